#include "queue.h"

enum ticket_class queue_class(const struct arbiter *a, uint64_t now, const struct ticket *t)
{
	uint64_t risen = now > t->is.aged_ms ? (now - t->is.aged_ms) / a->limits.aging_ms : 0;
	if (t->is.overtaken >= a->limits.overtakes || risen >= (uint64_t)(TICKET_REALTIME - t->is.class))
		return TICKET_REALTIME;
	return t->is.class + (enum ticket_class)risen;
}

static bool is_before(const struct arbiter *a, uint64_t now, const struct ticket *x, const struct ticket *y)
{
	enum ticket_class cx = queue_class(a, now, x), cy = queue_class(a, now, y);
	return cx != cy ? cx > cy : x->is.seq < y->is.seq;
}

unsigned queue_place(const struct arbiter *a, uint64_t now, const struct ticket *t)
{
	unsigned place = 1;
	if (t->is.state != TICKET_QUEUED)
		return 0;
	link_each(at, &a->tickets)
	{
		const struct ticket *other = link_of(at, struct ticket, in_tickets);
		place += other->is.state == TICKET_QUEUED && other != t && is_before(a, now, other, t);
	}
	return place;
}

unsigned queue_length(const struct arbiter *a)
{
	unsigned n = 0;
	link_each(at, &a->tickets) n += link_of(at, struct ticket, in_tickets)->is.state == TICKET_QUEUED;
	return n;
}

uint64_t queue_bound(const struct arbiter *a, uint64_t now, const struct ticket *t)
{
	const struct arbiter_limits *l = &a->limits;
	/* Those that hold now end, and then one lease after the other of all that may still come before. */
	uint64_t leases = 1;

	link_each(at, &a->tickets)
	{
		const struct ticket *other = link_of(at, struct ticket, in_tickets);
		leases += other->is.state == TICKET_QUEUED && other->is.seq < t->is.seq;
	}
	if (queue_class(a, now, t) < TICKET_REALTIME)
		leases += l->overtakes - t->is.overtaken;
	return leases * (l->pause_ms + l->offer_ms + l->max_ms + l->grace_ms + l->kill_ms);
}

struct ticket *queue_first(const struct arbiter *a, uint64_t now, bool foreign)
{
	struct ticket *best = NULL;
	link_each(at, &a->tickets)
	{
		struct ticket *t = link_of(at, struct ticket, in_tickets);
		if (t->is.state == TICKET_QUEUED && !(t->is.alone && foreign) &&
		    (!best || is_before(a, now, t, best)))
			best = t;
	}
	return best;
}

struct ticket *queue_first_exclusive(const struct arbiter *a)
{
	link_each(at, &a->tickets)
	{
		struct ticket *t = link_of(at, struct ticket, in_tickets);
		if (t->is.state == TICKET_QUEUED && t->is.mode == TICKET_EXCLUSIVE &&
		    !(t->is.alone && a->foreign))
			return t;
	}
	return NULL;
}

int queue_move(struct arbiter *a, uint64_t now, struct ticket *t, uint64_t place, struct err *err)
{
	struct ticket *before = NULL, *last = NULL;

	if (t->is.state != TICKET_QUEUED)
		return err_set(err, NPU_E_BAD_VALUE, "ticket %llu is %s; only one that waits can be moved",
			       (unsigned long long)t->is.id, ticket_state_name(t->is.state));
	if (place == 0)
		return err_set(err, NPU_E_BAD_VALUE, "the first place in the queue is 1");
	/* Where it is already: it keeps its class. */
	unsigned own = queue_place(a, now, t);
	if (place == own || (place > own && own == queue_length(a)))
		return 0;
	link_each(at, &a->tickets)
	{
		struct ticket *other = link_of(at, struct ticket, in_tickets);
		if (other->is.state != TICKET_QUEUED || other == t)
			continue;
		uint64_t its = queue_place(a, now, other) - (is_before(a, now, t, other) ? 1u : 0u);
		if (its == place)
			before = other;
		if (!last || is_before(a, now, last, other))
			last = other;
	}
	const struct ticket *like = before ? before : last;
	if (!like)
		return 0;
	/* It slips in by order of arrival and is from now on of the class of the one it stands beside. */
	uint64_t seq = before ? before->is.seq : last->is.seq + 1;
	t->is.class = like->is.class;
	t->is.aged_ms = like->is.aged_ms;
	t->is.overtaken = like->is.overtaken;
	link_each(at, &a->tickets)
	{
		struct ticket *other = link_of(at, struct ticket, in_tickets);
		if (other != t && other->is.seq >= seq)
			other->is.seq++;
	}
	t->is.seq = seq;
	a->next_seq++;
	return 0;
}
