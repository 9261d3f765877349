#include "stores.h"
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct err err;

TestSuite(imagestore_keep, .init = stores_up, .fini = stores_down, .timeout = 120);

Test(imagestore_keep, superseded_heads_go_first_then_the_least_recently_used_never_one_in_use)
{
	struct image_tile_io t[6];
	for (unsigned i = 0; i < 6; i++)
		t[i] = stores_tile(i + 1, 64, 128, 128);
	uint64_t one = stores_head(&t[0], "").bytes;
	struct imagestore *s = stores_open_with(STORES_FINGERPRINT, 3 * one, 0);
	stores_put(s, &t[0], "a");
	stores_put(s, &t[1], "b");
	stores_put(s, &t[2], "b"); /* supersedes t[1] */
	stores_put(s, &t[3], "c");
	cr_expect(stores_has(s, &t[0]) && !stores_has(s, &t[1]) && stores_has(s, &t[2]) &&
		  stores_has(s, &t[3]));
	struct stored_head used = stores_head(&t[0], "a");
	cr_assert_eq(imagestore_use(s, &used, &err), 0);
	stores_put(s, &t[4], "d"); /* t[2] is now the least recently used */
	cr_expect(stores_has(s, &t[0]) && !stores_has(s, &t[2]) && stores_has(s, &t[3]) &&
		  stores_has(s, &t[4]));

	struct head_key spared[] = {t[0].key, t[3].key, t[4].key};
	struct stored_head fresh = stores_head(&t[5], "e");
	cr_expect_eq(imagestore_admit(s, &fresh, spared, 3, &err), NPU_E_TOO_LARGE, "%s", err.text);
	cr_assert_eq(imagestore_admit(s, &fresh, spared, 2, &err), 0);
	cr_expect(stores_has(s, &t[0]) && stores_has(s, &t[3]) && !stores_has(s, &t[4]));
	fresh.bytes = 3 * one + 1;
	cr_expect_eq(imagestore_admit(s, &fresh, NULL, 0, &err), NPU_E_TOO_LARGE);
	cr_expect(strstr(err.text, "max_bytes"), "%s", err.text);
	cr_expect(stores_has(s, &t[0]), "a head that cannot fit made others go");
	imagestore_close(s);
	for (unsigned i = 0; i < 6; i++)
		stores_free(&t[i]);
}

Test(imagestore_keep, a_hundred_heads_over_budget_leave_a_file_of_about_the_budget)
{
	struct image_tile_io t = stores_tile(1, 256, 4096, 4096);
	uint64_t one = stores_head(&t, "").bytes, budget = 5 * one;
	stores_free(&t);
	struct imagestore *s = stores_open_with(STORES_FINGERPRINT, budget, 0);
	struct imagestore_stat stat;
	for (unsigned i = 0; i < 100; i++) {
		t = stores_tile(i + 1, 256, 4096, 4096);
		char label[16];
		snprintf(label, sizeof label, "m%u", i);
		stores_put(s, &t, label);
		cr_expect(stores_has(s, &t));
		stores_free(&t);
		cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
		cr_expect_leq(stat.bytes, budget);
	}
	cr_expect_eq(stat.heads, 5u);
	cr_expect_lt(stores_file_size(), 2 * budget, "%llu for a budget of %llu",
		     (unsigned long long)stores_file_size(), (unsigned long long)budget);
	imagestore_close(s);
}

Test(imagestore_keep, below_the_floor_of_free_space_nothing_is_written_that_grows_the_file)
{
	struct image_tile_io a = stores_tile(1, 1024, 1024, 1024), b = stores_tile(2, 1024, 1024, 1024);
	struct imagestore *s = stores_open();
	stores_put(s, &a, "a");
	imagestore_close(s);
	s = stores_open_with(STORES_FINGERPRINT, STORES_BUDGET, UINT64_MAX / 2);
	struct stored_head h = stores_head(&b, "b");
	cr_assert_eq(imagestore_admit(s, &h, NULL, 0, &err), 0);
	cr_expect_eq(imagestore_write(s, &b, NULL, &err), NPU_E_IO);
	cr_expect(strstr(err.text, "min_free_bytes"), "%s", err.text);
	cr_expect_eq(stores_get(s, &b), IMAGE_MISS);
	cr_expect(stores_has(s, &a));
	struct imagestore_stat stat;
	cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
	cr_expect_eq(stat.heads, 1u, "a head of which nothing was written has an account");
	cr_expect_eq(stat.write_failures, 1u);
	imagestore_close(s);
	stores_free(&a);
	stores_free(&b);
}

Test(imagestore_keep, a_write_that_the_system_refuses_leaves_the_rest_readable)
{
	struct image_tile_io a = stores_tile(1, 1024, 1024, 1024), b = stores_tile(2, 1024, 16384, 16384);
	struct imagestore *s = stores_open();
	stores_put(s, &a, "a");
	struct stored_head h = stores_head(&b, "b");
	cr_assert_eq(imagestore_admit(s, &h, NULL, 0, &err), 0);
	struct rlimit before, little = {stores_file_size() + (9 << 20), RLIM_INFINITY};
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	setrlimit(RLIMIT_FSIZE, &little);
	cr_expect_eq(imagestore_write(s, &b, NULL, &err), NPU_E_IO, "%s", err.text);
	cr_expect(stores_has(s, &a));
	setrlimit(RLIMIT_FSIZE, &before);
	cr_expect_eq(stores_get(s, &b), IMAGE_MISS);
	stores_put(s, &b, "b");
	cr_expect(stores_has(s, &b));
	imagestore_close(s);
	stores_free(&a);
	stores_free(&b);
}

Test(imagestore_keep, what_a_killed_reader_holds_is_given_back)
{
	struct image_tile_io io = stores_tile(1, 512, 8192, 8192);
	struct imagestore *s = stores_open();
	int pipes[2];
	char byte;
	stores_put(s, &io, "m");
	cr_assert_eq(pipe(pipes), 0);
	pid_t child = fork();
	if (child == 0) {
		/* A reader of another process, as a tool that looks in would be. */
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test fail first */
		MDB_env *env;
		MDB_txn *txn;
		char db[96];
		snprintf(db, sizeof db, "%s/db", stores_path);
		if (mdb_env_create(&env) || mdb_env_set_mapsize(env, 1u << 30) ||
		    mdb_env_open(env, db, MDB_NOTLS, 0600) || mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) ||
		    write(pipes[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	cr_assert_eq(read(pipes[0], &byte, 1), 1);
	for (int i = 0; i < 5; i++)
		stores_put(s, &io, "m");
	uint64_t pinned = stores_file_size();
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	imagestore_tick(s);
	for (int i = 0; i < 20; i++)
		stores_put(s, &io, "m");
	cr_expect_leq(stores_file_size(), pinned + (16u << 20));
	imagestore_close(s);
	stores_free(&io);
}

Test(imagestore_keep, compacting_gives_space_back_and_keeps_what_is_live)
{
	struct image_tile_io t[4];
	struct imagestore *s = stores_open();
	struct imagestore_stat stat;
	uint64_t before, after, heads, bytes;
	for (unsigned i = 0; i < 4; i++) {
		t[i] = stores_tile(i + 1, 512, 8192, 8192);
		stores_put(s, &t[i], i < 2 ? "same" : i == 2 ? "b" : "c");
	}
	cr_assert_eq(imagestore_prune(s, true, NULL, 0, &heads, &bytes, &err), 0);
	cr_expect_eq(heads, 1u);
	cr_expect_eq(bytes, stores_head(&t[0], "").bytes);
	cr_expect(!stores_has(s, &t[0]) && stores_has(s, &t[1]));
	cr_assert_eq(imagestore_prune(s, false, &t[3].key, 1, &heads, &bytes, &err), 0);
	cr_expect_eq(heads, 2u);
	cr_assert_eq(imagestore_compact(s, &before, &after, &err), 0, "%s", err.text);
	cr_expect_lt(after, before / 2);
	cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
	cr_expect_eq(stat.copied_bytes, 0u, "no copy is being made any more");
	cr_expect(stores_has(s, &t[3]) && !stores_has(s, &t[1]));
	stores_put(s, &t[1], "same");
	imagestore_close(s);
	s = stores_open();
	cr_expect(stores_has(s, &t[3]) && stores_has(s, &t[1]));
	imagestore_close(s);
	for (unsigned i = 0; i < 4; i++)
		stores_free(&t[i]);
}

Test(imagestore_keep, heads_are_listed_a_page_at_a_time)
{
	struct imagestore *s = stores_open();
	struct stored_head rows[3];
	size_t count, all = 0;
	for (unsigned i = 0; i < 7; i++) {
		struct image_tile_io io = stores_tile(i + 1, 64, 128, 128);
		stores_put(s, &io, "m");
		stores_free(&io);
	}
	const struct head_key *after = NULL;
	struct head_key last;
	do {
		cr_assert_eq(imagestore_heads(s, after, rows, 3, &count, &err), 0);
		all += count;
		if (count) {
			last = rows[count - 1].key;
			after = &last;
		}
	} while (count == 3);
	cr_expect_eq(all, 7u);
	imagestore_close(s);
}
