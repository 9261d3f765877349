#include "state.h"
#include "own.h"
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

static char directory[64];
static struct state *s;
static struct err err;

static void open_in(const char *boot)
{
	cr_assert(eq(int, state_open(&s, directory, boot, &err), 0), "%s", err.text);
}

static void up(void)
{
	snprintf(directory, sizeof directory, "/tmp/npud-state.XXXXXX");
	cr_assert(mkdtemp(directory) != NULL);
	open_in("boot one");
}

static void down(void)
{
	static const char *const names[] = {"data.mdb", "lock.mdb", "lock", "boot", ""};
	char name[128];
	state_close(s);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(name, sizeof name, "%s/tickets/%s", directory, names[i]);
		remove(name);
	}
	remove(directory);
}

TestSuite(state, .init = up, .fini = down);

static void add(void *arg, uint64_t number, const void *bytes, size_t size)
{
	char *to = arg;
	size_t used = strlen(to);
	snprintf(to + used, 256 - used, "%llu=%.*s ", (unsigned long long)number, (int)size,
		 (const char *)bytes);
}

static void is(enum state_kind kind, const char *expected)
{
	char found[256] = "";
	cr_assert(eq(int, state_each(s, kind, add, found, &err), 0));
	cr_assert(eq(str, found, (char *)expected));
}

static void put(uint64_t number, const char *text)
{
	cr_assert(eq(int, state_begin(s, &err), 0));
	state_put(s, STATE_TICKET, number, text, strlen(text));
	cr_assert(eq(int, state_end(s, &err), 0));
}

Test(state, records_come_back_by_number_and_kind_after_a_restart)
{
	put(300, "c");
	put(2, "b");
	put(1, "a");
	cr_assert(eq(int, state_begin(s, &err), 0));
	state_put(s, STATE_USAGE, 7, "u", 1);
	state_put(s, STATE_TICKET, 2, "B", 1);
	state_drop(s, STATE_TICKET, 300);
	state_drop(s, STATE_TICKET, 999);
	cr_assert(eq(int, state_end(s, &err), 0));
	state_close(s);
	open_in("boot one");
	is(STATE_TICKET, "1=a 2=B ");
	is(STATE_USAGE, "7=u ");
	is(STATE_META, "");
}

Test(state, of_another_boot_nothing_is_kept)
{
	put(1, "a");
	state_close(s);
	open_in("boot two");
	is(STATE_TICKET, "");
	put(2, "b");
	state_close(s);
	open_in("boot one");
	is(STATE_TICKET, "");
}

Test(state, a_second_daemon_in_the_same_directory_is_refused)
{
	struct state *other = NULL;
	cr_assert(eq(int, state_open(&other, directory, "boot one", &err), NPU_E_IN_USE));
	cr_assert(strstr(err.text, directory) != NULL);
}

Test(state, what_does_not_fit_is_refused_as_a_whole)
{
	cleanup(freep) char *large = calloc(1, 80u << 20);
	put(1, "a");
	cr_assert(eq(int, state_begin(s, &err), 0));
	state_put(s, STATE_TICKET, 2, "b", 1);
	state_put(s, STATE_TICKET, 3, large, 80u << 20);
	cr_assert(ne(int, state_end(s, &err), 0));
	is(STATE_TICKET, "1=a ");
	put(2, "b");
	is(STATE_TICKET, "1=a 2=b ");
}
