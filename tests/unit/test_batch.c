/* Which rows go together, and that nobody's many are in the way of another's few. */
#include "batch.h"
#include <criterion/criterion.h>
#include <stdlib.h>

struct desk {
	struct batch batch;
	struct batch_client clients[8];
	struct batch_part parts[BATCH_ROWS_MAX];
};

static void desk_init(struct desk *d)
{
	batch_init(&d->batch);
	for (unsigned i = 0; i < 8; i++)
		batch_client_init(&d->clients[i]);
}

static struct batch_run run(uint64_t key, uint32_t rows, uint32_t weight)
{
	struct batch_run r = {.key = key, .rows = rows, .weight = weight};
	link_init(&r.in_runs);
	return r;
}

static uint32_t rows_of(const struct desk *d, unsigned parts, const struct batch_run *r)
{
	uint32_t rows = 0;
	for (unsigned i = 0; i < parts; i++)
		if (d->parts[i].run == r)
			rows += d->parts[i].rows;
	return rows;
}

Test(batch, one_row_does_not_wait_for_company)
{
	struct desk d;
	desk_init(&d);
	cr_assert_eq(batch_take(&d.batch, 16, d.parts), 0u);
	struct batch_run r = run(1, 1, 1);
	batch_add(&d.batch, &d.clients[0], &r);
	cr_assert_eq(batch_take(&d.batch, 16, d.parts), 1u);
	cr_assert_eq(d.parts[0].run, &r);
	cr_assert_eq(d.parts[0].rows, 1u);
	cr_assert_eq(batch_take(&d.batch, 16, d.parts), 0u);
}

Test(batch, rows_of_different_clients_for_one_object_share_a_pass_and_others_do_not)
{
	struct desk d;
	desk_init(&d);
	struct batch_run a = run(1, 1, 1), b = run(1, 2, 1), other = run(2, 1, 1);
	batch_add(&d.batch, &d.clients[0], &a);
	batch_add(&d.batch, &d.clients[1], &other);
	batch_add(&d.batch, &d.clients[2], &b);
	unsigned n = batch_take(&d.batch, 16, d.parts);
	cr_assert_eq(n, 2u);
	cr_assert_eq(rows_of(&d, n, &a), 1u);
	cr_assert_eq(rows_of(&d, n, &b), 2u);
	n = batch_take(&d.batch, 16, d.parts);
	cr_assert_eq(n, 1u);
	cr_assert_eq(rows_of(&d, n, &other), 1u);
}

Test(batch, a_long_run_is_cut_into_passes_in_order)
{
	struct desk d;
	desk_init(&d);
	struct batch_run r = run(1, 37, 1);
	batch_add(&d.batch, &d.clients[0], &r);
	for (uint32_t first = 0; first < 37; first += 16) {
		cr_assert_eq(batch_take(&d.batch, 16, d.parts), 1u);
		cr_assert_eq(d.parts[0].first, first);
		cr_assert_eq(d.parts[0].rows, first + 16 <= 37 ? 16u : 5u);
	}
	cr_assert_eq(batch_take(&d.batch, 16, d.parts), 0u);
}

Test(batch, a_modest_client_is_in_the_next_pass_whatever_another_has_queued)
{
	struct desk d;
	struct batch_run many[40], few;
	desk_init(&d);
	for (unsigned i = 0; i < 40; i++) {
		many[i] = run(1, 16, 1);
		batch_add(&d.batch, &d.clients[0], &many[i]);
	}
	for (unsigned round = 0; round < 10; round++) {
		batch_take(&d.batch, 16, d.parts);
		few = run(round % 2 ? 1 : 2, 4, 1); /* for the same object, and for another */
		batch_add(&d.batch, &d.clients[1], &few);
		unsigned n = batch_take(&d.batch, 16, d.parts);
		cr_assert_eq(rows_of(&d, n, &few), 4u, "round %u", round);
	}
}

Test(batch, two_who_ask_for_more_than_a_pass_have_it_by_halves_and_by_their_weights)
{
	for (uint32_t weight = 1; weight <= 4; weight *= 2) {
		struct desk d;
		desk_init(&d);
		struct batch_run a = run(1, 4000, weight), b = run(1, 4000, 1);
		uint32_t of_a = 0, of_b = 0;
		batch_add(&d.batch, &d.clients[0], &a);
		batch_add(&d.batch, &d.clients[1], &b);
		for (unsigned pass = 0; pass < 100; pass++) {
			unsigned n = batch_take(&d.batch, 15, d.parts);
			of_a += rows_of(&d, n, &a);
			of_b += rows_of(&d, n, &b);
		}
		cr_assert_eq(of_a + of_b, 1500u);
		cr_assert_leq(abs((int)of_a - (int)(of_b * weight)), (int)weight);
	}
}

Test(batch, who_was_away_saves_nothing_up)
{
	struct desk d;
	desk_init(&d);
	struct batch_run a = run(1, 4000, 1), b = run(1, 4000, 1);
	batch_add(&d.batch, &d.clients[0], &a);
	for (unsigned pass = 0; pass < 100; pass++)
		batch_take(&d.batch, 16, d.parts);
	batch_add(&d.batch, &d.clients[1], &b);
	unsigned n = batch_take(&d.batch, 16, d.parts);
	/* Within one pass of even: the newcomer does not get 1600 rows first. */
	cr_assert_leq(rows_of(&d, n, &b), 16u);
	n = batch_take(&d.batch, 16, d.parts);
	cr_assert_geq(rows_of(&d, n, &a), 7u);
}

Test(batch, a_run_that_is_withdrawn_leaves_the_rest_of_the_pass_alone)
{
	struct desk d;
	desk_init(&d);
	struct batch_run a = run(1, 20, 1), b = run(1, 3, 1);
	batch_add(&d.batch, &d.clients[0], &a);
	batch_take(&d.batch, 16, d.parts);
	batch_add(&d.batch, &d.clients[1], &b);
	batch_remove(&a);
	batch_remove(&a);
	cr_assert_eq(batch_waiting(&d.batch), 3u);
	unsigned n = batch_take(&d.batch, 16, d.parts);
	cr_assert_eq(n, 1u);
	cr_assert_eq(rows_of(&d, n, &b), 3u);
}

Test(batch, a_run_that_is_withdrawn_before_it_began_is_in_no_pass)
{
	struct desk d;
	desk_init(&d);
	struct batch_run a = run(1, 20, 1), b = run(1, 3, 1);
	batch_add(&d.batch, &d.clients[0], &a);
	batch_add(&d.batch, &d.clients[1], &b);
	batch_remove(&a);
	unsigned n = batch_take(&d.batch, 16, d.parts);
	cr_assert_eq(rows_of(&d, n, &a), 0u);
	cr_assert_eq(rows_of(&d, n, &b), 3u);
	cr_assert_eq(batch_take(&d.batch, 16, d.parts), 0u);
}

Test(batch, every_row_is_given_once_and_in_order_whatever_comes)
{
	struct desk d;
	struct batch_run runs[200];
	uint32_t next[200] = {}, given = 0, asked = 0;
	desk_init(&d);
	srand(7);
	for (unsigned i = 0; i < 200 || batch_waiting(&d.batch);) {
		for (unsigned more = (unsigned)rand() % 4; more && i < 200; more--, i++) {
			runs[i] = run(1 + (unsigned)rand() % 3, 1 + (unsigned)rand() % 40, 1u << rand() % 4);
			asked += runs[i].rows;
			batch_add(&d.batch, &d.clients[rand() % 8], &runs[i]);
		}
		unsigned n = batch_take(&d.batch, 16, d.parts), rows = 0;
		for (unsigned p = 0; p < n; p++) {
			unsigned at = (unsigned)(d.parts[p].run - runs);
			cr_assert_eq(d.parts[p].run->key, d.parts[0].run->key);
			cr_assert_eq(d.parts[p].first, next[at]);
			next[at] += d.parts[p].rows;
			rows += d.parts[p].rows;
		}
		cr_assert_leq(rows, 16u);
		given += rows;
	}
	cr_assert_eq(given, asked);
}
