#include "setting.h"
#include <criterion/criterion.h>
#include <string.h>

static struct setting s;
static char why[256];

Test(setting, has_every_name_once_in_any_order)
{
	cr_assert(setting_parse(&s, "batch=128,path=device,store=off,threads=16", why, sizeof why), "%s",
		  why);
	cr_expect_str_eq(s.path, "device");
	cr_expect_eq(s.threads, 16);
	cr_expect_eq(s.batch, 128);
	cr_expect_eq(s.store, STORE_OFF);
	cr_expect(setting_needs_daemon(&s));
	cr_assert(setting_parse(&s, "", why, sizeof why));
	cr_expect_not(setting_needs_daemon(&s));
}

Test(setting, of_a_daemon_that_is_there_cannot_change_it)
{
	cr_assert(setting_parse(&s, "socket=/run/npud/npud.sock,store=on", why, sizeof why));
	cr_expect_not(setting_needs_daemon(&s));
	cr_expect_str_eq(s.socket, "/run/npud/npud.sock");
	cr_expect_not(setting_parse(&s, "socket=/x,threads=2", why, sizeof why));
	cr_expect(strstr(why, "leave out the socket"), "%s", why);
}

Test(setting, that_cannot_be_read_is_named)
{
	static const char *const bad[][2] = {
		{"path", "NAME=VALUE"},
		{"path=npu", "path:"},
		{"path=host,path=host", "once"},
		{"threads=0", "threads:"},
		{"threads=17", "between 1 and 16"},
		{"threads=+1", "threads:"},
		{"threads=2x", "threads:"},
		{"batch=129", "batch:"},
		{"batch=", "batch:"},
		{"store=maybe", "on or off"},
		{"socket=", "socket:"},
		{"speed=9", "no such setting"},
		{"path=host,", "NAME=VALUE"},
		{",path=host", "NAME=VALUE"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		cr_expect_not(setting_parse(&s, bad[i][0], why, sizeof why), "%s", bad[i][0]);
		cr_expect(strstr(why, bad[i][1]), "%s: %s", bad[i][0], why);
	}
}
