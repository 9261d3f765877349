#include "queue.h"
#include "plural.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDED_KEPT 256u
#define WARN_MS 60000u /* before the end, or a tenth of the lease where that is less */

enum { WARNED_END = 1, WARNED_IDLE = 2 };

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

bool ticket_over(const struct ticket *t)
{
	return t->is.state >= TICKET_RELEASED;
}

bool ticket_holds(const struct ticket *t)
{
	return t->is.state >= TICKET_OFFERED && t->is.state <= TICKET_EXPIRING && t->is.parent == 0;
}

void arbiter_init(struct arbiter *a, const struct arbiter_limits *limits)
{
	memset(a, 0, sizeof *a);
	a->limits = *limits;
	link_init(&a->tickets);
	link_init(&a->ended);
}

static void drop_all(struct link *list)
{
	link_each(at, list)
	{
		link_remove(at);
		free(link_of(at, struct ticket, in_tickets));
	}
}

void arbiter_fini(struct arbiter *a)
{
	drop_all(&a->tickets);
	drop_all(&a->ended);
}

struct ticket *arbiter_find(struct arbiter *a, uint64_t id)
{
	struct link *lists[] = {&a->tickets, &a->ended};
	for (int i = 0; i < 2; i++)
		link_each(at, lists[i])
		{
			struct ticket *t = link_of(at, struct ticket, in_tickets);
			if (t->is.id == id)
				return t;
		}
	return NULL;
}

struct ticket *arbiter_holder(const struct arbiter *a)
{
	struct ticket *best = NULL;
	link_each(at, &a->tickets)
	{
		struct ticket *t = link_of(at, struct ticket, in_tickets);
		if (ticket_holds(t) && (!best || t->is.mode == TICKET_EXCLUSIVE || t->is.expires_ms == 0 ||
					(best->is.expires_ms && t->is.expires_ms > best->is.expires_ms)))
			best = t;
	}
	return best;
}

/* Refuses with who holds, for how long, and the place that was to be had. */
static int refuse(const struct arbiter *a, uint64_t now, struct err *err, int code, const char *what,
		  const char *advice)
{
	const struct ticket *h = arbiter_holder(a);
	unsigned waiting = queue_length(a);
	uint64_t left = h && h->is.expires_ms > now ? h->is.expires_ms - now : 0;
	char time[32];

	if (!h)
		return err_set(err, code, "%s: %s, %u waiting; %s", what,
			       a->draining ? "nothing is granted while the daemon drains"
			       : a->failed ? "the device has failed, npuctl status says why and what to do"
					   : "nobody holds the NPU",
			       waiting, advice);
	err_set(err, code, "%s: ticket %llu of uid %u%s%s (pid %u%s%s) holds the NPU %s %s%s, %u waiting; %s",
		what, (unsigned long long)h->is.id, h->is.uid, h->is.label[0] ? " " : "", h->is.label,
		h->is.pid, h->is.command[0] ? ", " : "", h->is.command, ticket_mode_name(h->is.mode),
		left ? "for another " : "", left ? ticket_time(time, left) : "until it lets go", waiting,
		advice);
	err->detail.holder = h->is.id;
	err->detail.holder_uid = h->is.uid;
	err->detail.remaining_ms = left;
	err->detail.place = waiting + 1;
	return code;
}

static bool can_hold(const struct arbiter *a, const struct ticket *t)
{
	unsigned shared = 0;
	link_each(at, &a->tickets)
	{
		const struct ticket *other = link_of(at, struct ticket, in_tickets);
		if (!ticket_holds(other))
			continue;
		if (other->is.mode == TICKET_EXCLUSIVE || t->is.mode == TICKET_EXCLUSIVE)
			return false;
		shared++;
	}
	return shared < a->limits.shared_slots;
}

/* The one to be granted next; NULL: none, or nothing is granted at all. */
static struct ticket *next_of(const struct arbiter *a, uint64_t now, bool foreign)
{
	return a->draining || a->failed ? NULL : queue_first(a, now, foreign);
}

static int check_wish(const struct arbiter *a, uint64_t now, const struct ticket_wish *w, struct err *err)
{
	char most[32];
	unsigned own = 0;

	if (w->duration_ms > a->limits.max_ms)
		return err_set(err, NPU_E_BAD_VALUE,
			       "a ticket lasts at most %s ([ticket] max in the daemon's configuration); ask "
			       "for less",
			       ticket_time(most, a->limits.max_ms));
	if (w->endless && (w->mode != TICKET_SHARED || w->duration_ms))
		return err_set(err, NPU_E_BAD_VALUE, "only a shared ticket can be without an end");
	if (w->grace_ms > a->limits.grace_ms)
		return err_set(err, NPU_E_BAD_VALUE,
			       "the grace is at most %s ([ticket] grace in the daemon's configuration)",
			       ticket_time(most, a->limits.grace_ms));
	if (w->parent && (w->parent->is.state != TICKET_GRANTED ||
			  (w->parent->is.expires_ms && now >= w->parent->is.expires_ms)))
		return err_set(err, NPU_E_TICKET_OVER, "ticket %llu, which was to be joined, is %s",
			       (unsigned long long)w->parent->is.id, ticket_state_name(w->parent->is.state));
	if (w->parent && w->mode == TICKET_EXCLUSIVE && w->parent->is.mode == TICKET_SHARED)
		return err_set(
			err, NPU_E_BAD_VALUE,
			"an exclusive ticket inside the shared hold %llu would wait for itself; ask for a "
			"shared one, or for an exclusive one outside of it",
			(unsigned long long)w->parent->is.id);
	if (w->parent && w->alone && a->foreign)
		return err_set(
			err, NPU_E_HELD,
			"ticket %llu, which was to be joined, is not alone: a program without a ticket "
			"uses the NPU (npuctl who)",
			(unsigned long long)w->parent->is.id);
	link_each(at, &a->tickets) own += link_of(at, struct ticket, in_tickets)->is.uid == w->uid;
	if (own >= a->limits.per_uid || a->count >= a->limits.queue) {
		bool mine = own >= a->limits.per_uid;
		char what[64];
		if (mine)
			snprintf(what, sizeof what, "uid %u has %u %s already", w->uid, own,
				 plural(own, "ticket", "tickets"));
		else
			snprintf(what, sizeof what, "there %s %u %s already", plural(a->count, "is", "are"),
				 a->count, plural(a->count, "ticket", "tickets"));
		refuse(a, now, err, NPU_E_QUEUE_FULL, what, "release some, or try again later");
		err->detail.depth = mine ? own : a->count;
		err->detail.limit = mine ? a->limits.per_uid : a->limits.queue;
		return err->code;
	}
	return 0;
}

int arbiter_request(struct arbiter *a, uint64_t now, const struct ticket_wish *w, struct ticket **out,
		    struct err *err)
{
	int r = check_wish(a, now, w, err);
	if (r)
		return r;
	struct ticket *t = calloc(1, sizeof *t);
	if (!t)
		return err_set(err, NPU_E_NO_MEMORY, "no memory for one more ticket");
	t->is = (struct ticket_record){
		.id = a->next_id + 1,
		.seq = a->next_seq + 1,
		.requested_ms = now,
		.aged_ms = now,
		.duration_ms = w->endless	? 0
			       : w->duration_ms ? w->duration_ms
						: a->limits.default_ms,
		.grace_ms = w->grace_ms ? w->grace_ms : a->limits.grace_ms,
		.owner_start = w->start,
		.uid = w->uid,
		.gid = w->gid,
		.pid = w->pid,
		.mode = (uint8_t)w->mode,
		.class = (uint8_t)w->class,
		.state = TICKET_QUEUED,
		.verdict = TICKET_EXPIRED,
		.alone = w->alone,
		.tree = w->tree,
	};
	snprintf(t->is.label, sizeof t->is.label, "%s", w->label ? w->label : "");
	snprintf(t->is.command, sizeof t->is.command, "%s", w->command ? w->command : "");
	if (w->parent) {
		const struct ticket_record *p = &w->parent->is;
		t->is.parent = p->parent ? p->parent : p->id;
		t->is.state = TICKET_GRANTED;
		t->is.granted_ms = t->is.used_ms = now;
		t->is.expires_ms = t->is.duration_ms ? now + t->is.duration_ms : 0;
		if (p->expires_ms && (!t->is.expires_ms || p->expires_ms < t->is.expires_ms))
			t->is.expires_ms = p->expires_ms;
	}
	link_append(&a->tickets, &t->in_tickets);
	if (w->now && !w->parent && (next_of(a, now, a->foreign) != t || !can_hold(a, t))) {
		link_remove(&t->in_tickets);
		free(t);
		return refuse(a, now, err, NPU_E_HELD,
			      w->alone && a->foreign
				      ? "another program uses the NPU without a ticket (npuctl who)"
				      : "not granted at once",
			      "wait for it, or try again later");
	}
	a->next_id++;
	a->next_seq++;
	a->count++;
	if (w->parent)
		t->is.number = ++a->next_number;
	*out = t;
	return 0;
}

int arbiter_restore(struct arbiter *a, uint64_t now, const struct ticket_record *record, struct ticket **out)
{
	struct ticket *t = calloc(1, sizeof *t);
	if (!t)
		return NPU_E_NO_MEMORY;
	t->is = *record;
	if (t->is.state == TICKET_OFFERED)
		t->is.state = TICKET_QUEUED;
	/* A kill may have been missed: it is asked for again. */
	if (t->is.state == TICKET_EXPIRING && t->is.killed) {
		t->is.killed = t->is.stuck = 0;
		t->is.kill_ms = now;
	}
	a->next_id = a->next_id < t->is.id ? t->is.id : a->next_id;
	a->next_number = a->next_number < t->is.number ? t->is.number : a->next_number;
	a->next_seq = a->next_seq < t->is.seq ? t->is.seq : a->next_seq;
	/* By arrival, whatever order they are kept in. */
	struct link *at = a->tickets.prev;
	while (at != &a->tickets && link_of(at, struct ticket, in_tickets)->is.seq > t->is.seq)
		at = at->prev;
	link_append(at->next, &t->in_tickets);
	a->count++;
	*out = t;
	return 0;
}

void arbiter_forget(struct arbiter *a, struct ticket *t)
{
	link_remove(&t->in_tickets);
	a->count--;
	free(t);
}

static int refuse_over(const struct ticket *t, struct err *err)
{
	if (ticket_over(t) || t->is.state == TICKET_EXPIRING)
		return err_set(err, NPU_E_TICKET_OVER, "ticket %llu is %s%s%s; take another",
			       (unsigned long long)t->is.id, ticket_state_name(t->is.state),
			       t->is.reason[0] ? ": " : "", t->is.reason);
	return err_set(err, NPU_E_TICKET_OVER,
		       "ticket %llu is %s, and the number that was shown is not its own; wait for its grant",
		       (unsigned long long)t->is.id, ticket_state_name(t->is.state));
}

int arbiter_confirm(struct arbiter *a, uint64_t now, struct ticket *t, uint64_t number, struct err *err)
{
	(void)a;
	if (t->is.number != number || (t->is.state != TICKET_OFFERED && t->is.state != TICKET_GRANTED))
		return refuse_over(t, err);
	if (t->is.state == TICKET_GRANTED)
		return 0;
	t->is.state = TICKET_GRANTED;
	t->is.granted_ms = t->is.used_ms = now;
	t->is.expires_ms = t->is.duration_ms ? now + t->is.duration_ms : 0;
	return 0;
}

int arbiter_use(struct arbiter *a, uint64_t now, struct ticket *t, uint64_t number, struct err *err)
{
	struct ticket *parent = t->is.parent ? arbiter_find(a, t->is.parent) : NULL;

	if (t->is.state != TICKET_GRANTED || t->is.number != number ||
	    (t->is.expires_ms && now >= t->is.expires_ms))
		return refuse_over(t, err);
	if (parent) {
		if (parent->is.state != TICKET_GRANTED)
			return refuse_over(parent, err);
		parent->is.used_ms = now;
	}
	t->is.used_ms = now;
	t->is.warned &= (uint8_t)~WARNED_IDLE;
	return 0;
}

int arbiter_renew(struct arbiter *a, uint64_t now, struct ticket *t, uint64_t number, uint64_t duration_ms,
		  struct err *err)
{
	char most[32];
	const struct ticket *parent = t->is.parent ? arbiter_find(a, t->is.parent) : NULL;

	if (t->is.state != TICKET_GRANTED || t->is.number != number ||
	    (t->is.expires_ms && now >= t->is.expires_ms))
		return refuse_over(t, err);
	if (duration_ms > a->limits.max_ms)
		return err_set(err, NPU_E_BAD_VALUE, "a ticket lasts at most %s; ask for less",
			       ticket_time(most, a->limits.max_ms));
	if (queue_length(a))
		return refuse(a, now, err, NPU_E_HELD, "not renewed, for somebody waits",
			      "release it and ask again");
	uint64_t end = now + (duration_ms ? duration_ms : a->limits.default_ms);
	if (t->is.duration_ms == 0 && duration_ms == 0)
		end = 0;
	if (parent && parent->is.expires_ms && (!end || end > parent->is.expires_ms))
		end = parent->is.expires_ms;
	t->is.expires_ms = end;
	t->is.warned = 0;
	t->is.told_to_yield = 0;
	return 0;
}

static void end(struct ticket *t, uint64_t now, enum ticket_state state, const char *reason)
{
	t->is.state = (uint8_t)state;
	t->is.ended_ms = now;
	if (reason)
		snprintf(t->is.reason, sizeof t->is.reason, "%s", reason);
}

/* The lease ends now; arbiter_decide makes the grace of it. */
static void cut(struct ticket *t, uint64_t now, enum ticket_state verdict, const char *reason)
{
	t->is.verdict = (uint8_t)verdict;
	t->is.expires_ms = now;
	snprintf(t->is.reason, sizeof t->is.reason, "%s", reason);
}

void arbiter_release(struct arbiter *a, uint64_t now, struct ticket *t)
{
	(void)a;
	if (t->is.state == TICKET_EXPIRING)
		end(t, now, t->is.verdict, NULL);
	else if (!ticket_over(t))
		end(t, now, TICKET_RELEASED, NULL);
}

void arbiter_revoke(struct arbiter *a, uint64_t now, struct ticket *t, const char *reason)
{
	(void)a;
	if (t->is.state == TICKET_QUEUED || t->is.state == TICKET_OFFERED)
		end(t, now, TICKET_REVOKED, reason);
	else if (t->is.state == TICKET_GRANTED)
		cut(t, now, TICKET_REVOKED, reason);
}

void arbiter_gone(struct arbiter *a, uint64_t now, struct ticket *t, const char *reason)
{
	(void)a;
	if (ticket_over(t))
		return;
	if (t->is.state == TICKET_EXPIRING) {
		if (!t->is.tree)
			end(t, now, t->is.verdict, NULL);
	} else if (t->is.state == TICKET_GRANTED && t->is.tree) {
		cut(t, now, TICKET_LOST, reason);
	} else {
		end(t, now, TICKET_LOST, reason);
	}
}

void arbiter_tree_empty(struct arbiter *a, uint64_t now, struct ticket *t)
{
	(void)a;
	t->is.tree = 0;
	if (t->is.state == TICKET_EXPIRING)
		end(t, now, t->is.verdict, NULL);
	else if (t->is.state == TICKET_GRANTED && t->is.verdict == TICKET_LOST)
		end(t, now, TICKET_LOST, NULL);
}

static bool leave(struct arbiter *a, struct ticket *t)
{
	link_remove(&t->in_tickets);
	link_append(&a->ended, &t->in_tickets);
	a->count--;
	if (++a->ended_count > ENDED_KEPT) {
		struct ticket *oldest = link_of(a->ended.next, struct ticket, in_tickets);
		link_remove(&oldest->in_tickets);
		a->ended_count--;
		free(oldest);
	}
	return true;
}

/* One that joined ends with the hold it is in. */
static void follow_parent(struct arbiter *a, uint64_t now, struct ticket *t)
{
	const struct ticket *parent = arbiter_find(a, t->is.parent);

	if (!parent || ticket_over(parent))
		end(t, now, parent ? parent->is.state : TICKET_LOST, parent ? parent->is.reason : NULL);
	else if (t->is.state == TICKET_GRANTED && parent->is.state == TICKET_EXPIRING &&
		 !(t->is.expires_ms && t->is.expires_ms <= now))
		cut(t, now, parent->is.verdict, parent->is.reason);
}

static uint64_t warn_at(const struct ticket *t)
{
	uint64_t lease = t->is.expires_ms - t->is.granted_ms;
	return t->is.expires_ms - least(lease / 10, WARN_MS);
}

/* What falls due for one ticket; false: nothing. */
static bool step(struct arbiter *a, uint64_t now, struct ticket *t, enum decision_kind *kind)
{
	struct ticket_record *r = &t->is;
	uint64_t idle = a->limits.idle_ms;

	if (r->parent && !ticket_over(t))
		follow_parent(a, now, t);
	if (ticket_over(t)) {
		*kind = DECIDE_END;
		return leave(a, t);
	}
	switch ((enum ticket_state)r->state) {
	case TICKET_OFFERED:
		if (now < r->offer_until_ms)
			return false;
		if (++r->lapsed >= a->limits.lapses) {
			end(t, now, TICKET_LOST, "it was offered several times and never confirmed");
			*kind = DECIDE_END;
			return leave(a, t);
		}
		r->state = TICKET_QUEUED;
		r->seq = ++a->next_seq; /* as if it had come now */
		r->aged_ms = now;
		r->overtaken = 0;
		link_remove(&t->in_tickets);
		link_append(&a->tickets, &t->in_tickets);
		*kind = DECIDE_LAPSE;
		return true;
	case TICKET_GRANTED:
		if (idle && !r->parent && now >= r->used_ms + idle + r->grace_ms &&
		    !(r->expires_ms && r->expires_ms <= now))
			cut(t, now, TICKET_REVOKED, "it held and did nothing ([ticket] idle_release)");
		if (r->expires_ms && now >= r->expires_ms) {
			r->state = TICKET_EXPIRING;
			r->kill_ms = now + r->grace_ms;
			if (!r->reason[0])
				snprintf(r->reason, sizeof r->reason, "its time was up");
			*kind = DECIDE_EXPIRE;
			return true;
		}
		if (r->expires_ms && !(r->warned & WARNED_END) && now >= warn_at(t)) {
			r->warned |= WARNED_END;
			*kind = DECIDE_WARN;
			return true;
		}
		if (idle && !r->parent && !(r->warned & WARNED_IDLE) && now >= r->used_ms + idle) {
			r->warned |= WARNED_IDLE;
			*kind = DECIDE_WARN;
			return true;
		}
		return false;
	case TICKET_EXPIRING:
		if (r->stuck || now < r->kill_ms)
			return false;
		if (!r->tree) {
			end(t, now, r->verdict, NULL);
			*kind = DECIDE_END;
			return leave(a, t);
		}
		*kind = r->killed ? DECIDE_STUCK : DECIDE_KILL;
		r->stuck = r->killed;
		r->killed = 1;
		r->kill_ms = now + a->limits.kill_ms;
		return true;
	case TICKET_QUEUED:
	case TICKET_RELEASED:
	case TICKET_EXPIRED:
	case TICKET_REVOKED:
	case TICKET_LOST:
		break;
	}
	return false;
}

/*
 * Leases without an end stand in the way of `waits`: all of them when it is exclusive; when it is shared, the
 * oldest, if every slot is taken by one of them.
 */
static struct ticket *must_yield(const struct arbiter *a, const struct ticket *waits)
{
	struct ticket *oldest = NULL;
	unsigned endless = 0;

	link_each(at, &a->tickets)
	{
		struct ticket *t = link_of(at, struct ticket, in_tickets);
		if (t->is.state != TICKET_GRANTED || t->is.parent || t->is.expires_ms)
			continue;
		endless++;
		if (!oldest || t->is.granted_ms < oldest->is.granted_ms)
			oldest = t;
	}
	return waits->is.mode == TICKET_EXCLUSIVE || endless >= a->limits.shared_slots ? oldest : NULL;
}

bool arbiter_wants_quiet(const struct arbiter *a, uint64_t now)
{
	const struct ticket *holder = arbiter_holder(a);
	if (holder && holder->is.mode == TICKET_EXCLUSIVE)
		return true;
	/* Who is foreign may be just the server that is to be paused. */
	const struct ticket *next = next_of(a, now, false);
	return next && !next->absent && next->is.mode == TICKET_EXCLUSIVE && can_hold(a, next);
}

bool arbiter_decide(struct arbiter *a, uint64_t now, struct decision *d)
{
	link_each(at, &a->tickets)
	{
		d->ticket = link_of(at, struct ticket, in_tickets);
		if (step(a, now, d->ticket, &d->kind))
			return true;
	}
	struct ticket *next = next_of(a, now, a->foreign);
	if (!next || next->absent)
		return false;
	if (can_hold(a, next)) {
		if (a->occupied && next->is.mode == TICKET_EXCLUSIVE)
			return false;
		next->is.state = TICKET_OFFERED;
		next->is.number = ++a->next_number;
		next->is.offer_until_ms = now + a->limits.offer_ms;
		link_each(at, &a->tickets)
		{
			struct ticket *other = link_of(at, struct ticket, in_tickets);
			if (other->is.state == TICKET_QUEUED && other->is.seq < next->is.seq)
				other->is.overtaken++;
		}
		*d = (struct decision){DECIDE_OFFER, next};
		return true;
	}
	const struct ticket *exclusive = queue_first_exclusive(a);
	struct ticket *yields = must_yield(a, exclusive ? exclusive : next);
	if (!yields)
		return false;
	yields->is.told_to_yield = 1;
	yields->is.expires_ms = now + yields->is.grace_ms;
	yields->is.warned |= WARNED_END; /* said by this */
	snprintf(yields->is.reason, sizeof yields->is.reason, "it had no end and ticket %llu waits",
		 (unsigned long long)(exclusive ? exclusive : next)->is.id);
	*d = (struct decision){DECIDE_YIELD, yields};
	return true;
}

uint64_t arbiter_due(const struct arbiter *a, uint64_t now)
{
	uint64_t due = UINT64_MAX;

	link_each(at, &a->tickets)
	{
		const struct ticket *t = link_of(at, struct ticket, in_tickets);
		const struct ticket_record *r = &t->is;
		if (ticket_over(t))
			return now;
		if (r->state == TICKET_OFFERED)
			due = least(due, r->offer_until_ms);
		if (r->state == TICKET_EXPIRING && !r->stuck)
			due = least(due, r->kill_ms);
		if (r->state != TICKET_GRANTED)
			continue;
		if (r->expires_ms)
			due = least(due, r->warned & WARNED_END ? r->expires_ms : warn_at(t));
		if (a->limits.idle_ms && !r->parent)
			due = least(due, r->used_ms + a->limits.idle_ms +
						 (r->warned & WARNED_IDLE ? r->grace_ms : 0));
	}
	return due;
}
