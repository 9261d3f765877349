#include "queue.h"
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static const struct arbiter_limits limits = {
	.shared_slots = 2,
	.aging_ms = 60000,
	.default_ms = 600000,
	.max_ms = 3600000,
	.grace_ms = 10000,
	.offer_ms = 5000,
	.kill_ms = 5000,
	.queue = 64,
	.per_uid = 32,
	.overtakes = 8,
	.lapses = 3,
};
static struct arbiter a;
static struct err err;

static void up(void)
{
	arbiter_init(&a, &limits);
}

static void down(void)
{
	arbiter_fini(&a);
}

TestSuite(arbiter, .init = up, .fini = down, .timeout = 120);

static struct ticket *ask(uint64_t now, struct ticket_wish w)
{
	struct ticket *t = NULL;
	cr_assert(eq(int, arbiter_request(&a, now, &w, &t, &err), 0), "%s", err.text);
	return t;
}

static struct ticket *exclusive(uint64_t now)
{
	return ask(now, (struct ticket_wish){.class = TICKET_NORMAL});
}

static struct ticket *shared(uint64_t now)
{
	return ask(now, (struct ticket_wish){.class = TICKET_NORMAL, .mode = TICKET_SHARED});
}

/* Everything that is due at this time, in the order in which it comes: 'o' offer, 'e' expire ... */
static const char *decide(uint64_t now)
{
	static char said[64];
	struct decision d;
	size_t n = 0;
	while (arbiter_decide(&a, now, &d) && n < sizeof said - 1)
		said[n++] = "olwyeks."[d.kind];
	said[n] = '\0';
	return said;
}

#define due(now, expected) cr_assert(eq(str, (char *)decide(now), (char *)(expected)))

static void confirm(uint64_t now, struct ticket *t)
{
	cr_assert(eq(int, arbiter_confirm(&a, now, t, t->is.number, &err), 0), "%s", err.text);
}

Test(arbiter, first_to_come_is_offered_and_the_next_waits)
{
	struct ticket *x = exclusive(0), *y = exclusive(0);
	due(0, "o");
	cr_assert(x->is.state == TICKET_OFFERED);
	cr_assert(y->is.state == TICKET_QUEUED);
	cr_assert(eq(u32, queue_place(&a, 0, y), 1));
}

Test(arbiter, ticket_of_a_vanished_client_goes_to_the_next)
{
	struct ticket *x = exclusive(0), *y = exclusive(0);
	due(0, "o");
	confirm(0, x);
	arbiter_gone(&a, 10, x, "its client went away");
	due(10, ".o");
	cr_assert(x->is.state == TICKET_LOST);
	cr_assert(y->is.state == TICKET_OFFERED);
}

Test(arbiter, waiter_that_vanishes_leaves_the_queue)
{
	exclusive(0);
	struct ticket *y = exclusive(0), *z = exclusive(0);
	due(0, "o");
	arbiter_gone(&a, 1, y, "gone");
	due(1, ".");
	cr_assert(eq(u32, queue_place(&a, 1, z), 1));
}

Test(arbiter, number_rises_with_every_offer_and_an_older_one_is_refused)
{
	struct ticket *x = exclusive(0);
	due(0, "o");
	uint64_t old = x->is.number;
	due(limits.offer_ms, "lo");
	cr_assert(gt(u64, x->is.number, old));
	cr_assert(eq(int, arbiter_confirm(&a, limits.offer_ms, x, old, &err), NPU_E_TICKET_OVER));
	confirm(limits.offer_ms, x);
	cr_assert(eq(int, arbiter_use(&a, limits.offer_ms, x, old, &err), NPU_E_TICKET_OVER));
	cr_assert(eq(int, arbiter_use(&a, limits.offer_ms, x, x->is.number, &err), 0));
	cr_assert(eq(int, arbiter_renew(&a, limits.offer_ms, x, old, 1000, &err), NPU_E_TICKET_OVER));
}

Test(arbiter, offer_that_is_not_confirmed_goes_to_the_next_and_is_lost_after_three)
{
	struct ticket *x = exclusive(0), *y = exclusive(0);
	due(0, "o");
	due(limits.offer_ms, "lo");
	cr_assert(y->is.state == TICKET_OFFERED);
	cr_assert(x->is.state == TICKET_QUEUED);
	arbiter_release(&a, limits.offer_ms, y);
	due(limits.offer_ms, ".o");
	due(2 * limits.offer_ms, "lo");
	due(3 * limits.offer_ms, ".");
	cr_assert(x->is.state == TICKET_LOST);
}

Test(arbiter, confirming_twice_changes_nothing)
{
	struct ticket *x = exclusive(0);
	due(0, "o");
	confirm(1, x);
	confirm(500, x);
	cr_assert(eq(u64, x->is.expires_ms, 1 + limits.default_ms));
}

Test(arbiter, lease_ends_in_a_grace_and_then_the_next_is_granted)
{
	struct ticket *x = ask(0, (struct ticket_wish){.class = TICKET_NORMAL, .duration_ms = 1000}),
		      *y = exclusive(0);
	due(0, "o");
	confirm(0, x);
	cr_assert(eq(u64, arbiter_due(&a, 0), 900));
	due(900, "w");
	due(999, "");
	due(1000, "e");
	cr_assert(eq(int, arbiter_use(&a, 1000, x, x->is.number, &err), NPU_E_TICKET_OVER));
	due(1000 + limits.grace_ms - 1, "");
	due(1000 + limits.grace_ms, ".o");
	cr_assert(x->is.state == TICKET_EXPIRED);
	cr_assert(y->is.state == TICKET_OFFERED);
}

Test(arbiter, work_is_refused_the_moment_the_lease_is_over)
{
	struct ticket *x = ask(0, (struct ticket_wish){.duration_ms = 1000});
	due(0, "o");
	confirm(0, x);
	cr_assert(eq(int, arbiter_use(&a, 1000, x, x->is.number, &err), NPU_E_TICKET_OVER));
}

Test(arbiter, tree_is_killed_and_waited_for_before_the_next_is_granted)
{
	struct ticket *x = ask(0, (struct ticket_wish){.class = TICKET_NORMAL, .tree = true}),
		      *y = exclusive(0);
	due(0, "o");
	confirm(0, x);
	arbiter_gone(&a, 100, x, "its client died");
	due(100, "e");
	due(100 + limits.grace_ms, "k");
	due(100 + limits.grace_ms + limits.kill_ms, "s");
	due(100 + 100 * limits.grace_ms, "");
	cr_assert(y->is.state == TICKET_QUEUED);
	arbiter_tree_empty(&a, 2000000, x);
	due(2000000, ".o");
	cr_assert(x->is.state == TICKET_LOST);
	cr_assert(y->is.state == TICKET_OFFERED);
}

Test(arbiter, lost_holder_whose_tree_is_empty_already_ends_at_once)
{
	struct ticket *x = ask(0, (struct ticket_wish){.tree = true});
	due(0, "o");
	confirm(0, x);
	arbiter_gone(&a, 100, x, "its client died");
	arbiter_tree_empty(&a, 100, x);
	due(100, ".");
	cr_assert(x->is.state == TICKET_LOST);
}

Test(arbiter, shared_ones_hold_together_up_to_the_slots)
{
	struct ticket *x = shared(0), *y = shared(0), *z = shared(0);
	due(0, "oo");
	cr_assert(z->is.state == TICKET_QUEUED);
	arbiter_release(&a, 1, x);
	due(1, ".o");
	cr_assert(z->is.state == TICKET_OFFERED);
	cr_assert(y->is.state == TICKET_OFFERED);
}

Test(arbiter, shared_one_that_comes_later_waits_behind_an_exclusive_one)
{
	struct ticket *x = shared(0);
	due(0, "o");
	confirm(0, x);
	struct ticket *y = exclusive(1), *z = shared(2);
	due(2, "");
	arbiter_release(&a, 3, x);
	due(3, ".o");
	cr_assert(y->is.state == TICKET_OFFERED);
	cr_assert(z->is.state == TICKET_QUEUED);
}

Test(arbiter, lease_without_an_end_is_told_to_yield_when_an_exclusive_one_waits)
{
	struct ticket *x = ask(0, (struct ticket_wish){.mode = TICKET_SHARED, .endless = true});
	due(0, "o");
	confirm(0, x);
	due(100000000, "");
	exclusive(100000000);
	due(100000000, "y");
	due(100000000 + limits.grace_ms, "e");
	due(100000000 + 2 * limits.grace_ms, ".o");
}

Test(arbiter, leases_without_an_end_in_every_slot_make_room_for_a_shared_one)
{
	struct ticket *x = ask(0, (struct ticket_wish){.mode = TICKET_SHARED, .endless = true});
	struct ticket *y = ask(0, (struct ticket_wish){.mode = TICKET_SHARED, .endless = true});
	due(0, "oo");
	confirm(0, x);
	confirm(5, y);
	shared(10);
	due(10, "y");
	cr_assert(x->is.told_to_yield == 1);
	cr_assert(y->is.told_to_yield == 0);
}

Test(arbiter, higher_class_goes_first_until_the_lower_has_aged)
{
	struct ticket *x = exclusive(0);
	due(0, "o");
	confirm(0, x);
	struct ticket *low = ask(0, (struct ticket_wish){.class = TICKET_BATCH});
	struct ticket *high = ask(1, (struct ticket_wish){.class = TICKET_INTERACTIVE});
	cr_assert(eq(u32, queue_place(&a, 2, high), 1));
	cr_assert(eq(u32, queue_place(&a, 2 * limits.aging_ms, low), 2)); /* the other rises, too */
	cr_assert(eq(u32, queue_place(&a, 3 * limits.aging_ms, low), 1));
	cr_assert(queue_class(&a, 3 * limits.aging_ms, low) == TICKET_REALTIME);
}

Test(arbiter, ticket_is_overtaken_a_bounded_number_of_times)
{
	struct ticket *x = exclusive(0), *low = ask(0, (struct ticket_wish){.class = TICKET_BATCH});
	due(0, "o");
	for (unsigned i = 0; i < limits.overtakes; i++) {
		struct ticket *next = ask(1, (struct ticket_wish){.class = TICKET_REALTIME});
		arbiter_release(&a, 1, x);
		due(1, ".o");
		cr_assert(next->is.state == TICKET_OFFERED);
		x = next;
	}
	ask(1, (struct ticket_wish){.class = TICKET_REALTIME});
	arbiter_release(&a, 1, x);
	due(1, ".o");
	cr_assert(low->is.state == TICKET_OFFERED);
}

Test(arbiter, one_that_joins_is_granted_at_once_and_ends_with_the_hold_around_it)
{
	struct ticket *x = ask(0, (struct ticket_wish){.duration_ms = 1000});
	due(0, "o");
	confirm(0, x);
	struct ticket *longer = ask(100, (struct ticket_wish){.duration_ms = 5000, .parent = x});
	struct ticket *shorter = ask(100, (struct ticket_wish){.duration_ms = 200, .parent = x});
	cr_assert(eq(u64, longer->is.expires_ms, 1000));
	cr_assert(eq(u64, shorter->is.expires_ms, 300));
	cr_assert(eq(int, arbiter_use(&a, 100, longer, longer->is.number, &err), 0));
	arbiter_release(&a, 200, x);
	due(200, "...");
	cr_assert(ticket_over(longer) && ticket_over(shorter));
}

Test(arbiter, exclusive_one_inside_a_shared_hold_is_refused_instead_of_waiting_for_itself)
{
	struct ticket *x = shared(0), *out;
	due(0, "o");
	confirm(0, x);
	struct ticket_wish w = {.parent = x};
	cr_assert(eq(int, arbiter_request(&a, 1, &w, &out, &err), NPU_E_BAD_VALUE));
}

Test(arbiter, renewal_is_given_while_nobody_waits)
{
	struct ticket *x = ask(0, (struct ticket_wish){.duration_ms = 1000});
	due(0, "o");
	confirm(0, x);
	cr_assert(eq(int, arbiter_renew(&a, 500, x, x->is.number, 2000, &err), 0));
	cr_assert(eq(u64, x->is.expires_ms, 2500));
	exclusive(600);
	cr_assert(eq(int, arbiter_renew(&a, 700, x, x->is.number, 2000, &err), NPU_E_HELD));
	cr_assert(eq(u64, x->is.expires_ms, 2500));
}

Test(arbiter, full_queue_and_full_user_are_refused_with_the_holder_named)
{
	struct ticket *out;
	struct ticket_wish w = {.uid = 7, .label = "nightly", .command = "bench", .pid = 99};
	struct ticket *x = ask(0, w);
	due(0, "o");
	confirm(0, x);
	for (unsigned i = 1; i < limits.per_uid; i++)
		ask(0, w);
	cr_assert(eq(int, arbiter_request(&a, 1, &w, &out, &err), NPU_E_QUEUE_FULL));
	cr_assert(strstr(err.text, "uid 7 nightly (pid 99, bench)") != NULL, "%s", err.text);
	cr_assert(eq(u64, err.detail.remaining_ms, limits.default_ms - 1));
	cr_assert(eq(u64, err.detail.holder, x->is.id));
	for (w.uid = 8; a.count < limits.queue; w.uid++)
		ask(0, w);
	cr_assert(eq(int, arbiter_request(&a, 1, &w, &out, &err), NPU_E_QUEUE_FULL));
	cr_assert(eq(u64, err.detail.limit, limits.queue));
}

Test(arbiter, now_or_not_at_all_takes_no_place)
{
	struct ticket *x = exclusive(0), *out;
	due(0, "o");
	confirm(0, x);
	struct ticket_wish w = {.now = true};
	cr_assert(eq(int, arbiter_request(&a, 1, &w, &out, &err), NPU_E_HELD));
	cr_assert(eq(u32, a.count, 1));
	arbiter_release(&a, 2, x);
	due(2, ".");
	ask(2, w);
	due(2, "o");
}

Test(arbiter, one_that_wants_to_be_alone_is_passed_over_while_a_stranger_is_there)
{
	a.foreign = true;
	struct ticket *x = ask(0, (struct ticket_wish){.alone = true}), *y = exclusive(1);
	due(1, "o");
	cr_assert(y->is.state == TICKET_OFFERED);
	arbiter_release(&a, 2, y);
	a.foreign = false;
	due(2, ".o");
	cr_assert(x->is.state == TICKET_OFFERED);
}

Test(arbiter, exclusive_one_is_granted_when_servers_are_paused_and_a_shared_one_without)
{
	struct ticket *x = shared(0);
	a.occupied = true;
	due(0, "o");
	confirm(0, x);
	cr_assert(not(arbiter_wants_quiet(&a, 0)));
	struct ticket *y = exclusive(1);
	cr_assert(not(arbiter_wants_quiet(&a, 1)), "another holds still: too early to pause anybody");
	arbiter_release(&a, 2, x);
	due(2, ".");
	cr_assert(arbiter_wants_quiet(&a, 2));
	y->absent = true;
	cr_assert(not(arbiter_wants_quiet(&a, 2)));
	y->absent = false;
	a.occupied = false;
	due(3, "o");
	confirm(3, y);
	cr_assert(arbiter_wants_quiet(&a, 3));
	arbiter_release(&a, 4, y);
	due(4, ".");
	cr_assert(not(arbiter_wants_quiet(&a, 4)));
}

Test(arbiter, servers_are_paused_for_one_that_wants_to_be_alone_although_they_are_strangers_until_then)
{
	a.occupied = a.foreign = true;
	ask(0, (struct ticket_wish){.class = TICKET_NORMAL, .alone = true});
	due(0, "");
	cr_assert(arbiter_wants_quiet(&a, 0));
	a.occupied = false;
	due(1, "");
	a.foreign = false;
	due(2, "o");
}

Test(arbiter, draining_grants_nothing_and_ends_nothing)
{
	struct ticket *x = exclusive(0), *y = exclusive(0);
	due(0, "o");
	confirm(0, x);
	a.draining = true;
	arbiter_release(&a, 1, x);
	due(1, ".");
	a.draining = false;
	due(2, "o");
	cr_assert(y->is.state == TICKET_OFFERED);
}

Test(arbiter, revoked_holder_has_its_grace_and_a_revoked_waiter_none)
{
	struct ticket *x = exclusive(0), *y = exclusive(0);
	due(0, "o");
	confirm(0, x);
	arbiter_revoke(&a, 10, y, "by root");
	due(10, ".");
	arbiter_revoke(&a, 10, x, "by root");
	due(10, "e");
	due(10 + limits.grace_ms, ".");
	cr_assert(x->is.state == TICKET_REVOKED);
	cr_assert(eq(str, x->is.reason, "by root"));
}

Test(arbiter, move_puts_one_before_another_of_a_higher_class_and_back)
{
	struct ticket *x = exclusive(0);
	due(0, "o");
	confirm(0, x);
	struct ticket *h1 = ask(1, (struct ticket_wish){.class = TICKET_REALTIME});
	struct ticket *h2 = ask(2, (struct ticket_wish){.class = TICKET_REALTIME});
	struct ticket *low = ask(3, (struct ticket_wish){.class = TICKET_BATCH});
	cr_assert(eq(int, queue_move(&a, 4, low, 2, &err), 0));
	cr_assert(eq(u32, queue_place(&a, 4, h1), 1));
	cr_assert(eq(u32, queue_place(&a, 4, low), 2));
	cr_assert(eq(u32, queue_place(&a, 4, h2), 3));
	cr_assert(eq(int, queue_move(&a, 5, low, 99, &err), 0));
	cr_assert(eq(u32, queue_place(&a, 5, low), 3));
	cr_assert(eq(int, queue_move(&a, 5, low, 1, &err), 0));
	cr_assert(eq(u32, queue_place(&a, 5, low), 1));
	cr_assert(eq(u32, queue_place(&a, 5, h1), 2));
	cr_assert(eq(int, queue_move(&a, 5, x, 1, &err), NPU_E_BAD_VALUE));
}

Test(arbiter, a_move_to_where_a_ticket_is_changes_nothing_of_it)
{
	struct ticket *x = exclusive(0);
	due(0, "o");
	confirm(0, x);
	struct ticket *normal = ask(1, (struct ticket_wish){.class = TICKET_NORMAL});
	struct ticket *batch = ask(2, (struct ticket_wish){.class = TICKET_BATCH});
	cr_assert(eq(int, queue_move(&a, 3, normal, 1, &err), 0));
	cr_assert(eq(int, queue_move(&a, 3, batch, 2, &err), 0));
	cr_assert(eq(int, queue_move(&a, 3, batch, 99, &err), 0));
	cr_assert(normal->is.class == TICKET_NORMAL && batch->is.class == TICKET_BATCH);
	cr_assert(eq(u32, queue_place(&a, 3, normal), 1));
	cr_assert(eq(u32, queue_place(&a, 3, batch), 2));
}

Test(arbiter, holder_that_does_nothing_is_warned_and_let_go_where_that_is_asked_for)
{
	a.limits.idle_ms = 20000;
	struct ticket *x = exclusive(0);
	due(0, "o");
	confirm(0, x);
	due(20000, "w");
	cr_assert(eq(int, arbiter_use(&a, 25000, x, x->is.number, &err), 0));
	due(30000, "");
	due(45000, "w");
	due(45000 + limits.grace_ms, "e");
	due(45000 + 2 * limits.grace_ms, ".");
	cr_assert(x->is.state == TICKET_REVOKED);
}

Test(arbiter, restored_tickets_keep_order_and_clock_and_numbers_go_on_rising)
{
	struct ticket *x = exclusive(0), *y = exclusive(1), *z = exclusive(2);
	due(2, "o");
	confirm(2, x);
	struct ticket_record kept[] = {z->is, x->is, y->is};
	uint64_t number = a.next_number;
	arbiter_fini(&a);
	arbiter_init(&a, &limits);
	for (int i = 0; i < 3; i++) {
		struct ticket *t;
		cr_assert(eq(int, arbiter_restore(&a, 1000, &kept[i], &t), 0));
	}
	due(1000, "");
	x = arbiter_find(&a, kept[1].id);
	cr_assert(eq(u64, x->is.expires_ms, 2 + limits.default_ms));
	cr_assert(eq(u32, queue_place(&a, 1000, arbiter_find(&a, kept[2].id)), 1));
	arbiter_release(&a, 1001, x);
	due(1001, ".o");
	cr_assert(arbiter_find(&a, kept[2].id)->is.state == TICKET_OFFERED);
	cr_assert(gt(u64, arbiter_find(&a, kept[2].id)->is.number, number));
}

/*
 * Thousands of clients in virtual time. Each asks, waits, confirms or not, works, lets go, dies, or outstays
 * its lease; the daemon restarts. What must hold is looked at whenever something was decided.
 */
struct client {
	uint64_t id, bound_ms, lets_go_ms, tree_ends_ms;
	bool confirms, alive;
};

struct world {
	uint64_t seed, draws, now;
	struct client clients[48];
	unsigned offers, restarts, deaths, most_overtaken;
};

enum { CLIENTS = 48, STEPS = 4000 };

static uint64_t draw(struct world *w, uint64_t below)
{
	w->draws ^= w->draws << 13;
	w->draws ^= w->draws >> 7;
	w->draws ^= w->draws << 17;
	return w->draws % below;
}

#define must(condition, ...)                                                              \
	do {                                                                              \
		if (!(condition))                                                         \
			cr_fatal("seed %llu at %llu ms: %s", (unsigned long long)w->seed, \
				 (unsigned long long)w->now, __VA_ARGS__);                \
	} while (0)

static struct client *client_of(struct world *w, uint64_t id)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (w->clients[i].id == id)
			return &w->clients[i];
	return NULL;
}

static void look(struct world *w)
{
	unsigned exclusives = 0, shares = 0;
	link_each(at, &a.tickets)
	{
		const struct ticket *t = link_of(at, struct ticket, in_tickets);
		const struct client *c = client_of(w, t->is.id);
		if (t->is.state == TICKET_QUEUED && t->is.lapsed == 0 && c)
			must(w->now <= c->bound_ms, "a ticket waits longer than its bound");
		if (t->is.overtaken > w->most_overtaken)
			w->most_overtaken = t->is.overtaken;
		if (!ticket_holds(t))
			continue;
		exclusives += t->is.mode == TICKET_EXCLUSIVE;
		shares += t->is.mode == TICKET_SHARED;
		if (t->is.state == TICKET_GRANTED && t->is.duration_ms)
			must(w->now < t->is.granted_ms + t->is.duration_ms, "a lease outlives its time");
		if (t->is.state == TICKET_EXPIRING && t->is.duration_ms)
			must(w->now <=
				     t->is.granted_ms + t->is.duration_ms + t->is.grace_ms + a.limits.kill_ms,
			     "an end takes longer than grace and kill");
	}
	must(exclusives + (shares > 0) <= 1, "two hold what only one may");
	must(shares <= a.limits.shared_slots, "more share than there are slots");
}

static void look_at_offer(struct world *w, const struct ticket *offered)
{
	link_each(at, &a.tickets)
	{
		const struct ticket *t = link_of(at, struct ticket, in_tickets);
		must(!(t->is.state == TICKET_QUEUED && t->is.class == offered->is.class &&
		       t->is.seq < offered->is.seq),
		     "overtaken by one of its own class");
	}
}

static void decide_all(struct world *w)
{
	struct decision d;
	uint64_t number = a.next_number;
	while (arbiter_decide(&a, w->now, &d)) {
		if (d.kind == DECIDE_OFFER) {
			w->offers++;
			must(d.ticket->is.number > number, "a number does not rise");
			number = d.ticket->is.number;
			look_at_offer(w, d.ticket);
		}
		if (d.kind == DECIDE_KILL)
			arbiter_tree_empty(&a, w->now, d.ticket);
		look(w);
	}
}

static void clients_act(struct world *w)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &w->clients[i];
		struct ticket *t = c->id ? arbiter_find(&a, c->id) : NULL;
		if (!t || ticket_over(t))
			continue;
		if (c->alive && t->is.state == TICKET_OFFERED && c->confirms) {
			must(arbiter_confirm(&a, w->now, t, t->is.number, &err) == 0, err.text);
			c->lets_go_ms = w->now + draw(w, 2 * a.limits.max_ms);
		} else if (c->alive && t->is.state == TICKET_GRANTED && w->now >= c->lets_go_ms) {
			arbiter_release(&a, w->now, t);
		} else if (!c->alive && t->is.tree && w->now >= c->tree_ends_ms) {
			arbiter_tree_empty(&a, w->now, t);
		}
	}
}

static void pass(struct world *w, uint64_t ms)
{
	uint64_t until = w->now + ms, due;
	unsigned turns = 0;
	while ((due = arbiter_due(&a, w->now)) < until) {
		must(++turns < 100000, "something stays due for ever");
		w->now = due > w->now ? due : w->now;
		decide_all(w);
		clients_act(w);
	}
	w->now = until;
	clients_act(w);
	decide_all(w);
}

static void restart(struct world *w)
{
	static struct ticket_record kept[CLIENTS + 1];
	struct arbiter_limits same = a.limits;
	size_t n = 0;
	link_each(at, &a.tickets) kept[n++] = link_of(at, struct ticket, in_tickets)->is;
	uint64_t number = a.next_number;
	arbiter_fini(&a);
	arbiter_init(&a, &same);
	a.next_number = number;
	while (n-- > 0) {
		struct ticket *t;
		must(arbiter_restore(&a, w->now, &kept[n], &t) == 0, "not restored");
	}
	w->restarts++;
}

static void act(struct world *w, struct client *c)
{
	struct ticket *t = c->id ? arbiter_find(&a, c->id) : NULL;

	if (t && !ticket_over(t)) {
		if (draw(w, 12) == 0) {
			c->alive = false;
			c->tree_ends_ms = w->now + draw(w, 4000);
			arbiter_gone(&a, w->now, t, "died");
			w->deaths++;
		}
		return;
	}
	struct ticket_wish wish = {.mode = draw(w, 3) == 0 ? TICKET_SHARED : TICKET_EXCLUSIVE,
				   .class = (enum ticket_class)draw(w, 4),
				   .duration_ms = 1 + draw(w, a.limits.max_ms),
				   .tree = draw(w, 2)};
	if (wish.mode == TICKET_SHARED && draw(w, 4) == 0) {
		wish.endless = true;
		wish.duration_ms = 0;
	}
	*c = (struct client){.alive = true, .confirms = draw(w, 10) != 0};
	if (arbiter_request(&a, w->now, &wish, &t, &err) == 0) {
		c->id = t->is.id;
		c->bound_ms = w->now + queue_bound(&a, w->now, t);
	}
}

static void simulate(uint64_t seed)
{
	struct world world = {.seed = seed, .draws = seed * 0x9e3779b97f4a7c15u + 1, .now = 1}, *w = &world;

	arbiter_fini(&a);
	arbiter_init(&a, &limits);
	a.limits.max_ms = 30000;
	a.limits.default_ms = 10000;
	a.limits.grace_ms = 2000;
	a.limits.kill_ms = 500;
	a.limits.aging_ms = 20000 + draw(w, 100000);
	a.limits.overtakes = 1 + draw(w, 8);
	a.limits.shared_slots = 1 + draw(w, 4);
	a.limits.queue = 8 + draw(w, CLIENTS - 8);
	for (unsigned step = 0; step < STEPS; step++) {
		pass(w, draw(w, 4) ? draw(w, 200) : draw(w, 3000));
		act(w, &w->clients[draw(w, CLIENTS)]);
		if (draw(w, 200) == 0)
			restart(w);
		decide_all(w);
	}
	must(w->offers > 50 && w->restarts > 0 && w->deaths > 0, "nothing happened");
	must(w->most_overtaken <= a.limits.overtakes, "overtaken more often than is allowed");
}

Test(arbiter, simulated_crowds_never_make_two_holders_nor_wait_longer_than_the_bound)
{
	const char *only = getenv("NPUD_SEED"); /* plays one seed again */
	uint64_t from = only ? strtoull(only, NULL, 10) : 1, to = only ? from : 200;
	for (uint64_t seed = from; seed <= to; seed++)
		simulate(seed);
}
