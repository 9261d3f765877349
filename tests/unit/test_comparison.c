#include "comparison.h"
#include <criterion/criterion.h>
#include <string.h>

static const struct comparison_key host1 = {"decode", "head", 1, 1, false},
				   device16 = {"decode", "head", 16, 1, true},
				   strangers3 = {"decode", "head", 3, 1, false},
				   prefill16 = {"prefill", "head", 16, 128, false},
				   opening = {"open", "head", 0, 0, false},
				   prefill128 = {"prefill", "head", 128, 128, false};

static struct comparison made;
static struct comparison_result result;

static void begin(unsigned rounds)
{
	comparison_init(&made, rounds);
}

static void add(unsigned side, unsigned round, const struct comparison_key *key, double seconds)
{
	cr_assert(comparison_add(&made, side, round, key, seconds));
}

static void match(size_t pairs, size_t left_of_a, size_t left_of_b)
{
	comparison_result_fini(&result);
	cr_assert(comparison_match(&made, &result));
	cr_assert_eq(result.pair_count, pairs);
	cr_assert_eq(result.unmatched_count[0], left_of_a);
	cr_assert_eq(result.unmatched_count[1], left_of_b);
}

static void end(void)
{
	comparison_result_fini(&result);
	comparison_fini(&made);
}

TestSuite(comparison, .fini = end);

Test(comparison, the_ratio_is_the_median_of_the_rounds_and_not_of_the_sides)
{
	begin(3);
	/* The machine gets slower by the round; each round says that b takes twice as long. */
	for (unsigned round = 0; round < 3; round++) {
		add(0, round, &host1, round + 1);
		add(1, round, &host1, 2 * (round + 1));
	}
	add(1, 1, &host1, 400); /* one bad sample of three does not move a round */
	add(1, 1, &host1, 3);
	match(1, 0, 0);
	cr_expect_eq(result.pairs[0].ratio, 2);
	cr_expect_eq(result.pairs[0].low, 2);
	cr_expect_eq(result.pairs[0].high, 2);
	cr_expect_eq(result.pairs[0].seconds[0], 2);
	cr_expect_eq(result.pairs[0].rounds, 3);
	cr_expect_str_empty(result.pairs[0].exception);
}

Test(comparison, the_spread_is_from_the_least_to_the_most_of_the_rounds)
{
	begin(4);
	for (unsigned round = 0; round < 4; round++) {
		add(0, round, &host1, 1);
		add(1, round, &host1, round + 1);
	}
	match(1, 0, 0);
	cr_expect_eq(result.pairs[0].ratio, 2.5);
	cr_expect_eq(result.pairs[0].low, 1);
	cr_expect_eq(result.pairs[0].high, 4);
}

Test(comparison, a_row_of_the_host_stands_for_a_launch_that_computes_more)
{
	begin(1);
	add(0, 0, &host1, 1);
	add(1, 0, &device16, 3);
	match(1, 0, 0);
	cr_expect(strstr(result.pairs[0].exception, "launch"));
	cr_expect_eq(result.pairs[0].key[0].m, 1);
	cr_expect_eq(result.pairs[0].key[1].m, 16);
}

Test(comparison, one_row_may_stand_for_both_of_a_side_that_alternates)
{
	begin(1);
	add(0, 0, &host1, 1);
	add(1, 0, &host1, 1);
	add(1, 0, &device16, 3);
	match(2, 0, 0);
	cr_expect_eq(result.pairs[0].ratio, 1);
	cr_expect_eq(result.pairs[1].ratio, 3);
}

Test(comparison, passes_that_the_batch_limit_cut_are_compared)
{
	begin(1);
	add(0, 0, &prefill16, 8);
	add(1, 0, &prefill128, 2);
	match(1, 0, 0);
	cr_expect(strstr(result.pairs[0].exception, "batch limit"));
}

Test(comparison, what_has_strangers_in_it_or_no_partner_in_any_round_is_left_over)
{
	begin(2);
	add(0, 0, &host1, 1);
	add(1, 0, &strangers3, 1);
	add(1, 0, &prefill16, 1);
	match(0, 1, 2);
	cr_expect_eq(result.unmatched[1][0].m, 3);
	add(1, 1, &host1, 1); /* in the other round only */
	match(0, 1, 3);
	add(0, 1, &host1, 1);
	match(1, 0, 2);
}

Test(comparison, a_head_that_only_one_side_had_to_load_is_nothing_to_compare)
{
	begin(1);
	add(0, 0, &opening, 1);
	match(0, 0, 0);
	add(1, 0, &opening, 2);
	match(1, 0, 0);
	cr_expect_eq(result.pairs[0].ratio, 2);
}

Test(comparison, half_is_as_far_off_as_double_unless_only_slower_counts)
{
	const struct comparison_pair twice = {.ratio = 2}, half = {.ratio = 0.5}, even = {.ratio = 1.04};

	cr_expect(comparison_within(&even, 5, false));
	cr_expect_not(comparison_within(&even, 3, true));
	cr_expect(comparison_within(&twice, 100, false));
	cr_expect(comparison_within(&half, 100, false));
	cr_expect_not(comparison_within(&half, 99, false));
	cr_expect(comparison_within(&half, 0, true));
	cr_expect_not(comparison_within(&twice, 99, true));
}
