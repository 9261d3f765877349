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
	batch_add(&d.batch, &d.clients[0], &r, 0);
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
	batch_add(&d.batch, &d.clients[0], &a, 0);
	batch_add(&d.batch, &d.clients[1], &other, 0);
	batch_add(&d.batch, &d.clients[2], &b, 0);
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
	batch_add(&d.batch, &d.clients[0], &r, 0);
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
		batch_add(&d.batch, &d.clients[0], &many[i], 0);
	}
	for (unsigned round = 0; round < 10; round++) {
		batch_take(&d.batch, 16, d.parts);
		few = run(round % 2 ? 1 : 2, 4, 1); /* for the same object, and for another */
		batch_add(&d.batch, &d.clients[1], &few, 0);
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
		batch_add(&d.batch, &d.clients[0], &a, 0);
		batch_add(&d.batch, &d.clients[1], &b, 0);
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
	batch_add(&d.batch, &d.clients[0], &a, 0);
	for (unsigned pass = 0; pass < 100; pass++)
		batch_take(&d.batch, 16, d.parts);
	batch_add(&d.batch, &d.clients[1], &b, 0);
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
	batch_add(&d.batch, &d.clients[0], &a, 0);
	batch_take(&d.batch, 16, d.parts);
	batch_add(&d.batch, &d.clients[1], &b, 0);
	batch_remove(&a);
	batch_remove(&a);
	cr_assert_eq(batch_waiting(&d.batch, 1), 3u);
	unsigned n = batch_take(&d.batch, 16, d.parts);
	cr_assert_eq(n, 1u);
	cr_assert_eq(rows_of(&d, n, &b), 3u);
}

Test(batch, a_run_that_is_withdrawn_before_it_began_is_in_no_pass)
{
	struct desk d;
	desk_init(&d);
	struct batch_run a = run(1, 20, 1), b = run(1, 3, 1);
	batch_add(&d.batch, &d.clients[0], &a, 0);
	batch_add(&d.batch, &d.clients[1], &b, 0);
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
	for (unsigned i = 0; i < 200 || given < asked;) {
		for (unsigned more = (unsigned)rand() % 4; more && i < 200; more--, i++) {
			runs[i] = run(1 + (unsigned)rand() % 3, 1 + (unsigned)rand() % 40, 1u << rand() % 4);
			asked += runs[i].rows;
			batch_add(&d.batch, &d.clients[rand() % 8], &runs[i], 0);
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

/*
 * Virtual time: clients that ask for one row after the other, each `back` (its own, plus up to `spread`)
 * after its answer; a pass of one row takes PASS, 16 take 1.8 times that.
 */
#define PASS 8000000u

struct crowd {
	unsigned count;
	uint64_t back, spread;
	bool waits_for_nobody;
	uint64_t gathered;	      /* time that passes waited while there were rows */
	uint32_t passes, rows, alone; /* passes of one row */
};

static void crowd_run(struct crowd *w, uint64_t until)
{
	struct batch b;
	struct batch_client clients[16];
	struct batch_run runs[16];
	struct batch_part parts[16];
	uint64_t arrives[16], now = 0;

	batch_init(&b);
	srand(3);
	for (unsigned i = 0; i < w->count; i++) {
		batch_client_init(&clients[i]);
		arrives[i] = (uint64_t)rand() % PASS;
	}
	while (now < until) {
		uint64_t next = UINT64_MAX;
		for (unsigned i = 0; i < w->count; i++) {
			if (arrives[i] <= now) {
				runs[i] = run(1, 1, 1);
				batch_add(&b, &clients[i], &runs[i], arrives[i]);
				arrives[i] = UINT64_MAX;
			}
			next = arrives[i] < next ? arrives[i] : next;
		}
		uint64_t gathers = w->waits_for_nobody ? 0 : batch_gathers(&b, 16, now);
		if (gathers) {
			cr_assert_gt(gathers, now);
			next = gathers < next ? gathers : next;
			w->gathered += next - now;
			now = next;
			continue;
		}
		unsigned n = batch_take(&b, 16, parts);
		if (!n) {
			now = next;
			continue;
		}
		uint64_t took = PASS + PASS * 8 / 10 * (n - 1) / 15;
		now += took;
		w->passes++;
		w->rows += n;
		w->alone += n == 1;
		for (unsigned i = 0; i < n; i++) {
			unsigned at = (unsigned)(parts[i].run - runs);
			batch_answered(&b, &clients[at], 1, now, took);
			arrives[at] = now + w->back + (w->spread ? (uint64_t)rand() % w->spread : 0);
		}
	}
}

Test(batch, clients_that_ask_again_at_once_come_together)
{
	for (unsigned count = 2; count <= 16; count *= 2) {
		struct crowd w = {.count = count, .back = PASS / 50, .spread = PASS / 20};
		crowd_run(&w, 400ull * PASS);
		/* Two crowds that wait for each other have half of it. */
		cr_expect_geq(w.rows, w.passes * count * 95 / 100, "%u clients: %u rows in %u passes", count,
			      w.rows, w.passes);
		cr_expect_leq(w.alone, 8u);
	}
}

Test(batch, who_does_not_come_back_in_time_costs_nobody_much)
{
	/* In a fifth of a pass and more; of one and a half; hardly ever. */
	const uint64_t backs[] = {PASS / 5, PASS * 3 / 2, PASS * 20};
	for (unsigned i = 0; i < 3; i++) {
		struct crowd w = {.count = 16, .back = backs[i], .spread = PASS}, without = w;
		without.waits_for_nobody = true;
		crowd_run(&w, 1000ull * PASS);
		crowd_run(&without, 1000ull * PASS);
		cr_expect_geq(w.rows, without.rows * 90 / 100, "%u rows, %u where nobody is waited for",
			      w.rows, without.rows);
	}
}

Test(batch, a_pass_waits_only_for_who_may_join_it_and_only_for_a_while)
{
	struct desk d;
	struct batch_client *quick = &d.clients[0], *other = &d.clients[1];
	desk_init(&d);
	for (unsigned i = 0; i < 2; i++) { /* both come back at once */
		struct batch_run r = run(1, 1, 1);
		batch_add(&d.batch, &d.clients[i], &r, 0);
		batch_take(&d.batch, 16, d.parts);
		batch_answered(&d.batch, &d.clients[i], 1, 100, 800);
		batch_add(&d.batch, &d.clients[i], &r, 110);
		batch_take(&d.batch, 16, d.parts);
	}
	batch_answered(&d.batch, quick, 1, 2000, 800);
	cr_expect_eq(batch_gathers(&d.batch, 16, 2000), 0u, "nothing waits");
	struct batch_run mine = run(1, 1, 1), many = run(1, 20, 1), elsewhere = run(2, 1, 1);
	batch_add(&d.batch, other, &mine, 2000);
	cr_expect_eq(batch_gathers(&d.batch, 16, 2000), 2000u + 800u / BATCH_PATIENCE);
	cr_expect_eq(batch_gathers(&d.batch, 16, 2000 + 800 / BATCH_PATIENCE - 1),
		     2000u + 800u / BATCH_PATIENCE);
	cr_expect_eq(batch_gathers(&d.batch, 16, 2000 + 800 / BATCH_PATIENCE), 0u, "time is up");
	cr_expect_eq(batch_gathers(&d.batch, 1, 2000), 0u, "the pass is full");
	batch_remove(&mine);
	batch_add(&d.batch, other, &elsewhere, 2000);
	cr_expect_eq(batch_gathers(&d.batch, 16, 2000), 0u, "rows for other weights cannot join");
	batch_remove(&elsewhere);
	batch_add(&d.batch, other, &many, 2000);
	cr_expect_eq(batch_gathers(&d.batch, 16, 2000), 0u, "a long run needs no company");
	batch_remove(&many);
	batch_add(&d.batch, other, &mine, 2000);
	batch_leave(quick);
	batch_leave(quick);
	cr_expect_eq(batch_gathers(&d.batch, 16, 2000), 0u, "it has gone");
}
