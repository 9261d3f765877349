#include "quota.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct quota quota;

static void down(void)
{
	quota_fini(&quota);
}

TestSuite(quota, .fini = down);

Test(quota, the_last_one_allowed_is_had_and_one_more_is_refused_with_what_is_in_use)
{
	struct err err = {0};

	for (int i = 0; i < 3; i++)
		cr_assert_eq(quota_take(&quota, 1000, QUOTA_HANDLES, 3, &err), 0);
	cr_assert_eq(quota_take(&quota, 1000, QUOTA_HANDLES, 3, &err), NPU_E_BUSY);
	cr_expect_eq(err.code, NPU_E_BUSY);
	cr_expect_eq(err.detail.depth, 3);
	cr_expect_eq(err.detail.limit, 3);
	cr_expect(err.detail.retry_ms > 0);
	cr_expect(strstr(err.text, "1000") && strstr(err.text, "3 files and heads"), "%s", err.text);
	cr_expect_eq(quota_used(&quota, 1000, QUOTA_HANDLES), 3, "a refusal takes nothing");
}

Test(quota, what_is_given_back_can_be_had_again)
{
	struct err err;

	cr_assert_eq(quota_take(&quota, 1000, QUOTA_CONNECTIONS, 1, &err), 0);
	cr_assert_eq(quota_take(&quota, 1000, QUOTA_CONNECTIONS, 1, &err), NPU_E_BUSY);
	quota_give(&quota, 1000, QUOTA_CONNECTIONS);
	cr_assert_eq(quota_take(&quota, 1000, QUOTA_CONNECTIONS, 1, &err), 0);
}

Test(quota, users_and_kinds_do_not_count_for_each_other)
{
	struct err err;

	cr_assert_eq(quota_take(&quota, 1000, QUOTA_IN_FLIGHT, 1, &err), 0);
	cr_expect_eq(quota_take(&quota, 1001, QUOTA_IN_FLIGHT, 1, &err), 0);
	cr_expect_eq(quota_take(&quota, 1000, QUOTA_HANDLES, 1, &err), 0);
	cr_expect_eq(quota_take(&quota, 0, QUOTA_IN_FLIGHT, 1, &err), 0);
	cr_expect_eq(quota_take(&quota, 0, QUOTA_IN_FLIGHT, 1, &err), NPU_E_BUSY, "root has a limit too");
}

Test(quota, a_limit_that_was_lowered_below_what_is_in_use_refuses_until_enough_is_given_back)
{
	struct err err;

	for (int i = 0; i < 3; i++)
		cr_assert_eq(quota_take(&quota, 1000, QUOTA_HANDLES, 3, &err), 0);
	cr_expect_eq(quota_take(&quota, 1000, QUOTA_HANDLES, 2, &err), NPU_E_BUSY);
	quota_give(&quota, 1000, QUOTA_HANDLES);
	cr_expect_eq(quota_take(&quota, 1000, QUOTA_HANDLES, 2, &err), NPU_E_BUSY);
	quota_give(&quota, 1000, QUOTA_HANDLES);
	cr_expect_eq(quota_take(&quota, 1000, QUOTA_HANDLES, 2, &err), 0);
}

/* Against a table of plain counters: whatever the order, and nothing is kept of who has nothing. */
Test(quota, many_users_in_any_order)
{
	static unsigned used[100][QUOTA_KINDS];
	struct err err;

	srand(1);
	for (int i = 0; i < 100000; i++) {
		unsigned uid = (unsigned)rand() % 100, kind = (unsigned)rand() % QUOTA_KINDS;
		if (rand() & 1) {
			int r = quota_take(&quota, uid, kind, 5, &err);
			cr_assert_eq(r, used[uid][kind] < 5 ? 0 : NPU_E_BUSY);
			used[uid][kind] += r == 0;
		} else if (used[uid][kind]) {
			quota_give(&quota, uid, kind);
			used[uid][kind]--;
		}
		cr_assert_eq(quota_used(&quota, uid, kind), used[uid][kind]);
	}
	for (unsigned uid = 0; uid < 100; uid++)
		for (unsigned kind = 0; kind < QUOTA_KINDS; kind++)
			for (; used[uid][kind]; used[uid][kind]--)
				quota_give(&quota, uid, kind);
	cr_expect_eq(quota.count, 0);
}

Test(quota, bytes_are_taken_at_once_or_not_at_all)
{
	struct err err = {0};

	cr_assert_eq(quota_take_bytes(&quota, 1000, QUOTA_UPLOAD, 60, 100, &err), 0);
	cr_expect_eq(quota_take_bytes(&quota, 1000, QUOTA_UPLOAD, 101, 100, &err), NPU_E_TOO_LARGE);
	cr_expect(err.detail.needed == 101 && err.detail.limit == 100 && err.detail.retry_ms == 0);
	cr_expect_eq(quota_take_bytes(&quota, 1000, QUOTA_UPLOAD, 41, 100, &err), NPU_E_BUSY);
	cr_expect(err.detail.needed == 41 && err.detail.depth == 60 && err.detail.retry_ms > 0);
	cr_expect(strstr(err.text, "60 bytes in uploads, of 100"), "%s", err.text);
	cr_expect_eq(quota_take_bytes(&quota, 1001, QUOTA_UPLOAD, 100, 100, &err), 0, "another user's");
	cr_expect_eq(quota_take_bytes(&quota, 1000, QUOTA_UPLOAD, 40, 100, &err), 0);
	quota_give_bytes(&quota, 1000, QUOTA_UPLOAD, 60);
	cr_expect_eq(quota_used(&quota, 1000, QUOTA_UPLOAD), 40);
	cr_expect_eq(quota_take_bytes(&quota, 1000, QUOTA_UPLOAD, 10, 20, &err), NPU_E_BUSY,
		     "a limit that was lowered meanwhile");
	quota_give_bytes(&quota, 1000, QUOTA_UPLOAD, 40);
	quota_give_bytes(&quota, 1001, QUOTA_UPLOAD, 100);
	cr_expect_eq(quota.count, 0);
}
