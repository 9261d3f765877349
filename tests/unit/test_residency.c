/* What stays, what goes and who waits, in virtual time. */
#include "residency.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define MB (UINT64_C(1) << 20)

static struct identity head(unsigned char n)
{
	return (struct identity){.hash = {n},
				 .role = "head",
				 .k = 64,
				 .n = 128,
				 .kd = 64,
				 .nd = 128,
				 .layout = LAYOUT_BLOCKED};
}

static struct claim wanting(struct identity identity, uint64_t bytes)
{
	struct claim w = {.identity = identity, .bytes = bytes};
	link_init(&w.in_claims);
	return w;
}

/* Asks for an object that must be loadable at once, and loads it in no time. */
static void load(struct residency *r, struct resident *o, unsigned char n, uint64_t bytes, uint64_t now)
{
	struct claim w = wanting(head(n), bytes);
	uint64_t wake;
	memset(o, 0, sizeof *o);
	residency_ask(r, &w, now);
	struct residency_step s = residency_next(r, now, &wake);
	cr_assert_eq(s.verdict, RESIDENCY_LOAD);
	residency_begin(r, o, &w, now);
	residency_ready(o, bytes, now);
}

/* The lists hold pointers to themselves: a table is made where it stays. */
#define TABLE(name, bytes)         \
	struct residency name;     \
	residency_init(&name, -1); \
	name.budget = (bytes)

Test(residency, every_part_of_an_identity_tells_objects_apart)
{
	struct identity a = head(1);
	strcpy(a.role, "2");
	a.layer = 3;
	cr_assert(identity_equal(&a, &a));
#define DIFFERS(change)                                               \
	do {                                                          \
		struct identity b = a;                                \
		change;                                               \
		cr_assert_not(identity_equal(&a, &b), "%s", #change); \
	} while (0)
	DIFFERS(b.hash[15] ^= 1);
	DIFFERS(b.layer++);
	DIFFERS(strcpy(b.role, "3"));
	DIFFERS(b.k++);
	DIFFERS(b.n++);
	DIFFERS(b.kd += 64);
	DIFFERS(b.nd += 128);
	DIFFERS(b.layout = LAYOUT_ROW_MAJOR);
}

Test(residency, a_second_asker_attaches_to_what_loads_and_to_what_is_there)
{
	TABLE(r, 10 * MB);
	struct resident o = {};
	struct claim first = wanting(head(1), MB), second = wanting(head(1), MB);
	uint64_t wake;

	residency_ask(&r, &first, 0);
	residency_ask(&r, &second, 0);
	cr_assert_eq(residency_next(&r, 0, &wake).verdict, RESIDENCY_LOAD);
	residency_begin(&r, &o, &first, 0);
	struct residency_step s = residency_next(&r, 0, &wake);
	cr_assert_eq(s.verdict, RESIDENCY_ATTACH);
	cr_assert_eq(s.claim, &second);
	cr_assert_eq(s.object, &o);
}

Test(residency, the_unused_object_that_was_used_longest_ago_makes_room)
{
	TABLE(r, 3 * MB);
	struct resident o[3];
	uint64_t wake;
	for (unsigned char i = 0; i < 3; i++)
		load(&r, &o[i], i, MB, i);
	residency_release(&o[1], 1000);
	residency_release(&o[0], 1001);
	struct claim w = wanting(head(9), MB);
	residency_ask(&r, &w, 2000);
	struct residency_step s = residency_next(&r, 2000, &wake);
	cr_assert_eq(s.verdict, RESIDENCY_EVICT);
	cr_assert_eq(s.object, &o[1]);
	residency_remove(s.object);
	cr_assert_eq(residency_next(&r, 2000, &wake).verdict, RESIDENCY_LOAD);
}

Test(residency, nothing_is_evicted_for_a_want_that_would_not_fit_all_the_same)
{
	TABLE(r, 4 * MB);
	struct resident held, unused;
	uint64_t wake;
	load(&r, &held, 1, 2 * MB, 0);
	load(&r, &unused, 2, MB, 0);
	residency_release(&unused, 10);
	struct claim w = wanting(head(3), 3 * MB);
	residency_ask(&r, &w, 1000);
	cr_assert_eq(residency_next(&r, 1000, &wake).verdict, RESIDENCY_NOTHING);
}

Test(residency, what_can_never_fit_is_refused_at_once_and_what_is_pinned_is_said)
{
	TABLE(r, 4 * MB);
	struct resident o;
	uint64_t wake;
	load(&r, &o, 1, 2 * MB, 0);
	residency_release(&o, 0);
	o.pins = 1;
	struct claim large = wanting(head(2), 4 * MB + 1), pinned = wanting(head(3), 3 * MB);
	residency_ask(&r, &large, 1);
	cr_assert_eq(residency_next(&r, 1, &wake).verdict, RESIDENCY_TOO_LARGE);
	residency_withdraw(&large);
	residency_ask(&r, &pinned, 1);
	cr_assert_eq(residency_next(&r, 1, &wake).verdict, RESIDENCY_PINNED);
}

Test(residency, the_transient_of_loading_counts_until_it_is_ready)
{
	TABLE(r, 4 * MB);
	struct resident o = {};
	struct claim w = wanting(head(1), 2 * MB), other = wanting(head(2), 2 * MB);
	uint64_t wake;
	w.transient = MB;
	residency_ask(&r, &w, 0);
	residency_next(&r, 0, &wake);
	residency_begin(&r, &o, &w, 0);
	residency_ask(&r, &other, 0);
	cr_assert_eq(residency_next(&r, 0, &wake).verdict, RESIDENCY_NOTHING);
	residency_ready(&o, 2 * MB, 5);
	cr_assert_eq(residency_next(&r, 5, &wake).verdict, RESIDENCY_LOAD);
}

Test(residency, users_who_do_not_let_go_keep_the_object_and_the_want_is_refused_in_bounded_time)
{
	TABLE(r, 2 * MB);
	struct resident o;
	uint64_t now = 10000, wake;
	load(&r, &o, 1, 2 * MB, 0);
	struct claim w = wanting(head(2), MB), own = wanting(head(1), 2 * MB);
	residency_ask(&r, &w, now);
	struct residency_step s = residency_next(&r, now, &wake);
	cr_assert_eq(s.verdict, RESIDENCY_NOTHING);
	cr_assert(o.draining);
	residency_ask(&r, &own, now); /* does not get in before the older one is settled */
	while ((s = residency_next(&r, now, &wake)).verdict == RESIDENCY_NOTHING) {
		cr_assert_neq(wake, UINT64_MAX);
		cr_assert_gt(wake, now);
		now = wake;
	}
	cr_assert_eq(s.verdict, RESIDENCY_HELD);
	cr_assert_eq(s.claim, &w);
	cr_assert_leq(now - 10000, 20000u);
	residency_withdraw(&w);
	s = residency_next(&r, now, &wake);
	cr_assert_eq(s.verdict, RESIDENCY_ATTACH);
	cr_assert_eq(s.claim, &own);
	/* and it is not asked to drain again at once */
	residency_withdraw(&own);
	residency_ask(&r, &w, now);
	residency_next(&r, now, &wake);
	cr_assert_not(o.draining);
}

Test(residency, a_want_that_is_withdrawn_opens_again_what_drained_for_it)
{
	TABLE(r, 2 * MB);
	struct resident o;
	uint64_t wake;
	load(&r, &o, 1, 2 * MB, 0);
	struct claim w = wanting(head(2), MB), own = wanting(head(1), 2 * MB);
	residency_ask(&r, &w, 1000);
	residency_next(&r, 1000, &wake);
	residency_ask(&r, &own, 1000);
	cr_assert_eq(residency_next(&r, 1000, &wake).verdict, RESIDENCY_NOTHING);
	residency_withdraw(&w);
	cr_assert_eq(residency_next(&r, 1001, &wake).verdict, RESIDENCY_ATTACH);
}

Test(residency, an_unused_object_goes_after_the_time_it_is_kept)
{
	struct residency r;
	struct resident o;
	uint64_t wake;
	residency_init(&r, 5000);
	r.budget = 4 * MB;
	load(&r, &o, 1, MB, 0);
	cr_assert_eq(residency_next(&r, 100000, &wake).verdict, RESIDENCY_NOTHING); /* it has a user */
	residency_release(&o, 100000);
	cr_assert_eq(residency_next(&r, 104999, &wake).verdict, RESIDENCY_NOTHING);
	cr_assert_eq(wake, 105000u);
	cr_assert_eq(residency_next(&r, 105000, &wake).verdict, RESIDENCY_EVICT);
}

Test(residency, a_budget_that_shrinks_lets_unused_objects_go)
{
	TABLE(r, 4 * MB);
	struct resident o[2];
	uint64_t wake;
	load(&r, &o[0], 1, 2 * MB, 0);
	load(&r, &o[1], 2, 2 * MB, 0);
	residency_release(&o[1], 0);
	cr_assert_eq(residency_next(&r, 1000, &wake).verdict, RESIDENCY_NOTHING);
	r.budget = 3 * MB;
	struct residency_step s = residency_next(&r, 1000, &wake);
	cr_assert_eq(s.verdict, RESIDENCY_EVICT);
	cr_assert_eq(s.object, &o[1]);
}

/*
 * Streams of requests in virtual time: each stream claims its own object over and over (use it `use` ms,
 * leave it `gap` ms). Loads take `load` ms.
 */
struct stream {
	struct claim want;
	unsigned char object;
	uint64_t use, gap, next, asked, worst, uses, refused;
	struct resident *has;
	bool asking;
};

struct world {
	struct residency r;
	struct resident objects[64];
	bool there[64], used[64];
	uint64_t now, ready_at[64], size, load_ms, loads, unused_evictions;
};

static void settle(struct world *w, uint64_t now)
{
	uint64_t wake;
	struct residency_step s;
	while ((s = residency_next(&w->r, now, &wake)).verdict != RESIDENCY_NOTHING) {
		struct stream *who = s.claim ? link_of(s.claim, struct stream, want) : NULL;
		unsigned at = s.object ? (unsigned)(s.object - w->objects) : who->object;
		switch (s.verdict) {
		case RESIDENCY_EVICT:
			cr_assert_eq(s.object->refs, 0u);
			cr_assert_eq(s.object->state, RESIDENT_READY);
			w->unused_evictions += !w->used[at];
			residency_remove(s.object);
			w->there[at] = false;
			break;
		case RESIDENCY_LOAD:
			cr_assert_not(w->there[at]);
			memset(&w->objects[at], 0, sizeof w->objects[at]);
			residency_begin(&w->r, &w->objects[at], s.claim, now);
			w->there[at] = true;
			w->used[at] = false;
			w->ready_at[at] = now + w->load_ms;
			w->loads++;
			who->has = &w->objects[at];
			break;
		case RESIDENCY_ATTACH:
			residency_hold(s.object);
			residency_withdraw(s.claim);
			who->has = s.object;
			break;
		default:
			residency_withdraw(s.claim);
			who->asking = false;
			who->refused++;
			who->next = now + who->gap;
		}
	}
	cr_assert_leq(residency_sums(&w->r).used, w->r.budget);
}

static void play(struct world *w, struct stream *streams, size_t count, uint64_t ms)
{
	for (uint64_t until = w->now + ms; w->now < until; w->now++) {
		uint64_t now = w->now;
		for (unsigned i = 0; i < 64; i++)
			if (w->there[i] && w->objects[i].state == RESIDENT_LOADING && now >= w->ready_at[i])
				residency_ready(&w->objects[i], w->size, now);
		for (size_t i = 0; i < count; i++) {
			struct stream *s = &streams[i];
			if (s->has && s->asking && s->has->state == RESIDENT_READY) { /* begins to use it */
				s->asking = false;
				s->worst = now - s->asked > s->worst ? now - s->asked : s->worst;
				s->uses++;
				w->used[s->has - w->objects] = true;
				s->next = now + s->use;
			} else if (s->has && !s->asking && now >= s->next) {
				residency_release(s->has, now);
				s->has = NULL;
				s->next = now + s->gap;
			} else if (!s->has && !s->asking && now >= s->next) {
				s->want = wanting(head(s->object), w->size);
				s->asking = true;
				s->asked = now;
				residency_ask(&w->r, &s->want, now);
			}
		}
		settle(w, now);
	}
}

Test(residency, two_streams_and_an_occasional_third_share_the_room_of_one_object)
{
	struct world w = {.size = MB, .load_ms = 500};
	struct stream streams[] = {
		{.object = 0, .use = 20, .gap = 1},
		{.object = 0, .use = 17, .gap = 2}, /* with the first: never without a user */
		{.object = 1, .use = 20, .gap = 1},
		{.object = 2, .use = 20, .gap = 7000},
	};
	uint64_t minutes = 2 * 60 * 1000;
	residency_init(&w.r, -1);
	w.r.budget = MB;
	play(&w, streams, 4, minutes);
	/* A load and the stay it buys: nothing can be loaded more often than every two load times. */
	cr_assert_leq(w.loads, minutes / (2 * w.load_ms) + 1);
	for (size_t i = 0; i < 4; i++) {
		cr_assert_eq(streams[i].refused, 0u, "stream %zu was refused", i);
		/* Before its turn every other object may load, stay and drain; then its own loads. */
		cr_assert_leq(streams[i].worst, 3 * (2 * w.load_ms + 20) + w.load_ms,
			      "stream %zu waited %llu ms", i, (unsigned long long)streams[i].worst);
		cr_assert_gt(streams[i].uses, 10u);
	}
	cr_assert_eq(w.unused_evictions, 0u, "an object was evicted before anybody used it");
}

Test(residency, fifty_objects_in_the_room_of_five_never_exceed_it_and_none_in_use_goes)
{
	struct world w = {.size = MB, .load_ms = 5};
	struct stream streams[20];
	unsigned seed = 1;
	residency_init(&w.r, 300);
	w.r.budget = 5 * MB;
	for (unsigned i = 0; i < 20; i++)
		streams[i] = (struct stream){.object = i % 5, .use = 1 + i % 7, .gap = 40 + i * 3};
	for (unsigned round = 0; round < 400; round++) {
		for (unsigned i = 0; i < 20; i++)
			if (!streams[i].asking && !streams[i].has)
				streams[i].object =
					(unsigned char)((seed = seed * 1103515245 + 12345) >> 16) % 50;
		play(&w, streams, 20, 50);
	}
	uint64_t uses = 0;
	for (unsigned i = 0; i < 20; i++)
		uses += streams[i].uses;
	cr_assert_gt(uses, 1000u);
	cr_assert_gt(w.loads, 100u);
}

Test(residency, what_is_pinned_is_never_evicted_and_a_claim_for_its_room_is_refused_at_once)
{
	TABLE(r, 100 * MB);
	struct resident a, b;
	uint64_t wake;
	load(&r, &a, 1, 40 * MB, 0);
	load(&r, &b, 2, 40 * MB, 0);
	residency_release(&a, 10);
	residency_release(&b, 20);
	residency_pin(&a);
	struct claim w = wanting(head(3), 50 * MB);
	residency_ask(&r, &w, 1000);
	struct residency_step s = residency_next(&r, 1000, &wake);
	cr_assert_eq(s.verdict, RESIDENCY_EVICT);
	cr_assert_eq(s.object, &b, "a was used longer ago, but is pinned");
	residency_pin(&b);
	w.bytes = 70 * MB;
	s = residency_next(&r, 1000, &wake);
	cr_assert_eq(s.verdict, RESIDENCY_PINNED);
	residency_unpin(&a, 1000);
	residency_unpin(&b, 1000);
	s = residency_next(&r, 1000, &wake);
	cr_assert_eq(s.verdict, RESIDENCY_EVICT);
}

Test(residency, pinning_ends_a_drain_and_unpinning_begins_the_keep_anew)
{
	TABLE(r, 100 * MB);
	struct resident a;
	uint64_t wake;
	r.keep = 500;
	load(&r, &a, 1, 60 * MB, 0);
	struct claim w = wanting(head(2), 60 * MB);
	residency_ask(&r, &w, 1000);
	cr_assert_eq(residency_next(&r, 1000, &wake).verdict, RESIDENCY_NOTHING);
	cr_assert(a.draining);
	residency_pin(&a);
	cr_assert_not(a.draining);
	cr_assert_eq(residency_next(&r, 1001, &wake).verdict, RESIDENCY_PINNED);
	residency_withdraw(&w);
	residency_release(&a, 1100);
	cr_assert_eq(residency_goes_in(&r, &a, 1700), -1);
	cr_assert_eq(residency_next(&r, 1700, &wake).verdict, RESIDENCY_NOTHING);
	residency_unpin(&a, 2000);
	cr_assert_eq(residency_goes_in(&r, &a, 2100), 400);
	cr_assert_eq(residency_next(&r, 2499, &wake).verdict, RESIDENCY_NOTHING);
	cr_assert_eq(residency_next(&r, 2500, &wake).verdict, RESIDENCY_EVICT);
}

/* What residency_plan says of n, which has `bytes`. */
static enum residency_verdict plan(struct residency *r, unsigned char n, uint64_t bytes,
				   const struct resident **evicts, size_t *count)
{
	struct claim w = wanting(head(n), bytes);
	const struct resident *there;
	return residency_plan(r, &w, &there, evicts, 2, count);
}

Test(residency, a_plan_says_what_would_happen_and_changes_nothing)
{
	TABLE(r, 100 * MB);
	struct resident o[3];
	const struct resident *evicts[2];
	size_t count;
	for (unsigned char i = 0; i < 3; i++)
		load(&r, &o[i], i + 1, 30 * MB, 0);
	cr_assert_eq(plan(&r, 2, 30 * MB, evicts, &count), RESIDENCY_ATTACH);
	cr_assert_eq(plan(&r, 9, 10 * MB, evicts, &count), RESIDENCY_LOAD);
	cr_assert_eq(plan(&r, 9, 101 * MB, evicts, &count), RESIDENCY_TOO_LARGE);
	cr_assert_eq(plan(&r, 9, 30 * MB, evicts, &count), RESIDENCY_NOTHING, "all three are held");
	residency_release(&o[2], 10);
	residency_release(&o[0], 20);
	cr_assert_eq(plan(&r, 9, 30 * MB, evicts, &count), RESIDENCY_EVICT);
	cr_assert_eq(count, 1);
	cr_assert_eq(evicts[0], &o[2]);
	cr_assert_eq(plan(&r, 9, 60 * MB, evicts, &count), RESIDENCY_EVICT);
	cr_assert_eq(count, 2);
	cr_assert_eq(evicts[1], &o[0], "in the order in which they were given back");
	residency_release(&o[1], 20);
	cr_assert_eq(plan(&r, 9, 100 * MB, evicts, &count), RESIDENCY_EVICT);
	cr_assert_eq(count, 3, "counts more than there is room to name");
	residency_pin(&o[2]);
	cr_assert_eq(plan(&r, 9, 80 * MB, evicts, &count), RESIDENCY_PINNED);
	cr_assert_eq(plan(&r, 9, 60 * MB, evicts, &count), RESIDENCY_EVICT);
	cr_assert_eq(link_count(&r.objects), 3);
	for (int i = 0; i < 3; i++)
		cr_assert_not(o[i].draining);
}
