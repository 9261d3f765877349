/* Which path a pass takes. */
#include "path.h"
#include <criterion/criterion.h>
#include <string.h>

static enum path named(const char *name)
{
	return path_of(name, strlen(name));
}

Test(path, names_are_exact)
{
	cr_assert_eq(named("auto"), PATH_AUTO);
	cr_assert_eq(named("host"), PATH_HOST);
	cr_assert_eq(named("device"), PATH_DEVICE);
	cr_assert_eq(named("alternate"), PATH_ALTERNATE);
	static const char *const garbage[] = {"", "Host", "hos", "hosts", "npu", " auto"};
	for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++)
		cr_assert_eq(named(garbage[i]), PATH_COUNT, "\"%s\"", garbage[i]);
	for (enum path p = PATH_AUTO; p < PATH_COUNT; p++)
		cr_assert_eq(named(path_name(p)), p);
}

Test(path, every_case_of_the_decision)
{
	static const enum path A = PATH_AUTO, H = PATH_HOST, D = PATH_DEVICE, L = PATH_ALTERNATE,
			       NONE = PATH_AUTO;
	const struct {
		struct path_facts
			facts; /* asked, rows, device, well, reserved, mapped, turn, host, device_cost */
		enum path path;
		const char *why;
	} cases[] = {
		/* no device, or none for these weights */
		{{A, 1, 0, 0, 0, 1, 0, 0, 0}, H, "no device"},
		{{A, 16, 0, 0, 0, 1, 0, 0, 0}, H, "no device"},
		{{H, 1, 0, 0, 0, 1, 0, 0, 0}, H, "asked for"},
		{{L, 1, 0, 0, 0, 1, 1, 0, 0}, H, "no device"},
		{{D, 1, 0, 0, 0, 1, 0, 0, 0}, NONE, "no device"},
		/* nothing measured, or only one path */
		{{A, 1, 1, 1, 0, 1, 0, 0, 0}, H, "single row"},
		{{A, 2, 1, 1, 0, 1, 0, 0, 0}, D, "several rows"},
		{{A, 1, 1, 1, 0, 1, 0, 2, 0}, H, "single row"},
		{{A, 16, 1, 1, 0, 1, 0, 0, 9}, D, "several rows"},
		/* both measured */
		{{A, 1, 1, 1, 0, 1, 0, 2, 1}, D, "device was quicker"},
		{{A, 16, 1, 1, 0, 1, 0, 1, 2}, H, "host was quicker"},
		/* asked for */
		{{H, 16, 1, 1, 0, 1, 0, 2, 1}, H, "asked for"},
		{{D, 1, 1, 1, 0, 1, 0, 1, 2}, D, "asked for"},
		{{L, 4, 1, 1, 0, 1, 0, 1, 2}, H, "by turns"},
		{{L, 4, 1, 1, 0, 1, 1, 1, 2}, D, "by turns"},
		/* reserved for somebody else, or unwell */
		{{A, 16, 1, 1, 1, 1, 0, 2, 1}, H, "reserved"},
		{{L, 16, 1, 1, 1, 1, 1, 2, 1}, H, "reserved"},
		{{D, 16, 1, 1, 1, 1, 0, 2, 1}, NONE, "reserved"},
		{{A, 16, 1, 0, 0, 1, 0, 2, 1}, H, "not well"},
		{{L, 16, 1, 0, 0, 1, 1, 0, 0}, H, "not well"},
		{{D, 16, 1, 0, 0, 1, 0, 2, 1}, NONE, "not well"},
		/* weights that the host cannot read */
		{{A, 1, 1, 1, 0, 0, 0, 1, 2}, D, "cannot read"},
		{{L, 1, 1, 1, 0, 0, 0, 1, 2}, D, "cannot read"},
		{{H, 1, 1, 1, 0, 0, 0, 0, 0}, NONE, "cannot read"},
		{{A, 1, 1, 1, 1, 0, 0, 0, 0}, NONE, "reserved"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct path_choice c = path_choose(&cases[i].facts);
		cr_expect_eq(c.path, cases[i].path, "case %zu: %s", i, c.why);
		cr_expect(strstr(c.why, cases[i].why), "case %zu says \"%s\"", i, c.why);
	}
}

Test(path, rows_are_measured_with_their_like_and_the_last_passes_count_most)
{
	static const uint32_t ends[] = {1, 4, 8, 16};
	for (unsigned i = 0; i < 4; i++) {
		cr_assert_eq(path_size(ends[i]), i);
		cr_assert_eq(path_size(ends[i] + 1), i + 1);
	}
	double cost = 0;
	path_measured(&cost, 8);
	cr_assert_eq(cost, 8.0);
	path_measured(&cost, 4);
	cr_assert_eq(cost, 7.0);
}
