#include "residency.h"
#include <string.h>

#define STAY_MIN_MS 50	  /* of an object that loads faster than this */
#define DRAIN_MS 2000	  /* in which the users of a draining object let go, or keep it */
#define RESPITE_MS 20000  /* in which an object that was kept is not asked again */
#define WAIT_MAX_MS 20000 /* no claim waits longer, whatever the objects in its way took to load */

bool identity_equal(const struct identity *a, const struct identity *b)
{
	return memcmp(a->hash, b->hash, sizeof a->hash) == 0 && a->layer == b->layer &&
	       strncmp(a->role, b->role, sizeof a->role) == 0 && a->k == b->k && a->n == b->n &&
	       a->kd == b->kd && a->nd == b->nd && a->layout == b->layout;
}

void residency_init(struct residency *r, int64_t keep_ms)
{
	memset(r, 0, sizeof *r);
	link_init(&r->objects);
	link_init(&r->claims);
	r->keep = keep_ms;
}

void residency_ask(struct residency *r, struct claim *w, uint64_t now)
{
	w->since = now;
	link_append(&r->claims, &w->in_claims);
}

void residency_withdraw(struct claim *w)
{
	link_remove(&w->in_claims);
}

void residency_begin(struct residency *r, struct resident *o, struct claim *w, uint64_t now)
{
	o->identity = w->identity;
	o->bytes = w->bytes;
	o->transient = w->transient;
	o->fleeting = w->fleeting;
	o->state = RESIDENT_LOADING;
	o->refs = 1;
	o->begun = now;
	link_append(&r->objects, &o->in_objects);
	residency_withdraw(w);
}

void residency_ready(struct resident *o, uint64_t bytes, uint64_t now)
{
	uint64_t took = now - o->begun;
	o->state = RESIDENT_READY;
	o->bytes = bytes;
	o->transient = 0;
	o->ready = o->released = now;
	o->stay_until = now + (took > STAY_MIN_MS ? took : STAY_MIN_MS);
}

void residency_abandon(struct resident *o)
{
	o->state = RESIDENT_ABANDONED;
}

void residency_remove(struct resident *o)
{
	link_remove(&o->in_objects);
}

void residency_hold(struct resident *o)
{
	o->refs++;
}

void residency_release(struct resident *o, uint64_t now)
{
	o->refs--;
	o->released = now;
}

void residency_pin(struct resident *o)
{
	o->pins = 1;
	o->draining = false;
}

void residency_unpin(struct resident *o, uint64_t now)
{
	o->pins = 0;
	o->released = now;
}

static bool idle(const struct resident *o)
{
	return o->state == RESIDENT_READY && o->refs == 0 && o->pins == 0;
}

struct residency_sums residency_sums(const struct residency *r)
{
	struct residency_sums s = {};
	for (const struct link *at = r->objects.next; at != &r->objects; at = at->next) {
		const struct resident *o = link_of(at, struct resident, in_objects);
		uint64_t bytes = o->bytes + o->transient;
		s.used += bytes;
		if (o->pins)
			s.pinned += bytes;
		else if (o->state != RESIDENT_READY)
			s.loading += bytes;
		else if (o->refs)
			s.held += bytes;
		else
			s.freeable += bytes;
	}
	return s;
}

static struct resident *find(const struct residency *r, const struct identity *identity)
{
	for (struct link *at = r->objects.next; at != &r->objects; at = at->next) {
		struct resident *o = link_of(at, struct resident, in_objects);
		if (!o->fleeting && identity_equal(&o->identity, identity))
			return o;
	}
	return NULL;
}

static void sooner(uint64_t *wake, uint64_t at)
{
	if (at < *wake)
		*wake = at;
}

/* The unused object that was used longest ago and whose stay is over. `bytes`: of all such. */
static struct resident *victim(struct residency *r, uint64_t now, uint64_t *bytes)
{
	struct resident *oldest = NULL;
	*bytes = 0;
	link_each(at, &r->objects)
	{
		struct resident *o = link_of(at, struct resident, in_objects);
		if (!idle(o) || now < o->stay_until)
			continue;
		*bytes += o->bytes;
		if (!oldest || o->released < oldest->released)
			oldest = o;
	}
	return oldest;
}

/* The open object that became ready first and whose stay is over. */
static struct resident *next_to_drain(struct residency *r, uint64_t now)
{
	struct resident *oldest = NULL;
	link_each(at, &r->objects)
	{
		struct resident *o = link_of(at, struct resident, in_objects);
		if (o->state == RESIDENT_READY && o->refs && !o->pins && !o->draining &&
		    now >= o->stay_until && (!oldest || o->ready < oldest->ready))
			oldest = o;
	}
	return oldest;
}

static void undrain(struct residency *r)
{
	link_each(at, &r->objects) link_of(at, struct resident, in_objects)->draining = false;
	r->drained_for = NULL;
}

/*
 * Closes as many objects as `w` lacks `missing` bytes beyond those of the unused ones (`unused`). False
 * where one of those that were closed kept its users too long.
 */
static bool drain(struct residency *r, const struct claim *w, uint64_t missing, uint64_t unused, uint64_t now,
		  uint64_t *wake)
{
	uint64_t room = unused;
	struct resident *o;

	if (r->drained_for != w)
		undrain(r);
	r->drained_for = w;
	link_each(at, &r->objects)
	{
		o = link_of(at, struct resident, in_objects);
		if (o->draining && o->refs) {
			if (now - o->drain_since >= DRAIN_MS) {
				o->stay_until = now + RESPITE_MS;
				return false;
			}
			room += o->bytes;
			sooner(wake, o->drain_since + DRAIN_MS);
		}
		if (now < o->stay_until)
			sooner(wake, o->stay_until);
	}
	while (room < missing && (o = next_to_drain(r, now))) {
		o->draining = true;
		o->drain_since = now;
		room += o->bytes;
		sooner(wake, now + DRAIN_MS);
	}
	return true;
}

/* Room that objects would take beside what is pinned: whether `need` bytes can ever be had. */
static enum residency_verdict possible(const struct residency *r, uint64_t need, uint64_t pinned)
{
	if (need > r->budget)
		return RESIDENCY_TOO_LARGE;
	return need > r->budget - (pinned < r->budget ? pinned : r->budget) ? RESIDENCY_PINNED
									    : RESIDENCY_LOAD;
}

/* What becomes of a claim that has to be loaded and has nobody older in front of it. */
static struct residency_step make_room(struct residency *r, struct claim *w, uint64_t now, uint64_t *wake)
{
	struct residency_sums sums = residency_sums(r);
	uint64_t need = w->bytes + w->transient, unused;

	enum residency_verdict verdict = possible(r, need, sums.pinned);
	if (verdict != RESIDENCY_LOAD)
		return (struct residency_step){verdict, w, NULL};
	if (sums.used <= r->budget - need)
		return (struct residency_step){RESIDENCY_LOAD, w, NULL};
	uint64_t missing = sums.used - (r->budget - need);
	struct resident *o = victim(r, now, &unused);
	if (o && unused >= missing)
		return (struct residency_step){RESIDENCY_EVICT, w, o};
	if (now - w->since >= WAIT_MAX_MS || !drain(r, w, missing, unused, now, wake))
		return (struct residency_step){RESIDENCY_HELD, w, NULL};
	sooner(wake, w->since + WAIT_MAX_MS);
	return (struct residency_step){RESIDENCY_NOTHING, w, NULL};
}

static bool asks(const struct residency *r, const struct claim *w)
{
	for (const struct link *at = r->claims.next; at != &r->claims; at = at->next)
		if (at == &w->in_claims)
			return true;
	return false;
}

/* An object that nobody has used for the time that it is kept, or longest when the budget has shrunk. */
static struct resident *overdue(struct residency *r, uint64_t now, uint64_t *wake)
{
	uint64_t unused;

	if (residency_sums(r).used > r->budget)
		return victim(r, now, &unused);
	link_each(at, &r->objects)
	{
		struct resident *o = link_of(at, struct resident, in_objects);
		if (!idle(o) || r->keep < 0)
			continue;
		if (now - o->released >= (uint64_t)r->keep)
			return o;
		sooner(wake, o->released + (uint64_t)r->keep);
	}
	return NULL;
}

struct residency_step residency_next(struct residency *r, uint64_t now, uint64_t *wake)
{
	bool waits = false; /* an older claim waits for room */

	*wake = UINT64_MAX;
	if (r->drained_for && !asks(r, r->drained_for))
		undrain(r); /* who needed the room has gone */
	link_each(at, &r->claims)
	{
		struct claim *w = link_of(at, struct claim, in_claims);
		struct resident *o = w->fleeting ? NULL : find(r, &w->identity);
		if (o && !o->draining && o->state != RESIDENT_ABANDONED)
			return (struct residency_step){RESIDENCY_ATTACH, w, o};
		if (o || waits)
			continue;
		struct residency_step s = make_room(r, w, now, wake);
		if (s.verdict != RESIDENCY_NOTHING) {
			if (s.verdict != RESIDENCY_EVICT)
				undrain(r);
			return s;
		}
		waits = true;
	}
	struct resident *o = overdue(r, now, wake);
	return (struct residency_step){o ? RESIDENCY_EVICT : RESIDENCY_NOTHING, NULL, o};
}

/* Of the objects that nobody uses, the one that goes next after `last` (NULL: the first of all). */
static const struct resident *next_unused(const struct residency *r, const struct resident *last)
{
	const struct resident *next = NULL;
	bool passed = !last; /* of equal age the table's order decides */
	for (const struct link *at = r->objects.next; at != &r->objects; at = at->next) {
		const struct resident *o = link_of(at, struct resident, in_objects);
		if (o == last)
			passed = true;
		else if (idle(o) &&
			 (!last || o->released > last->released ||
			  (passed && o->released == last->released)) &&
			 (!next || o->released < next->released))
			next = o;
	}
	return next;
}

enum residency_verdict residency_plan(const struct residency *r, const struct claim *w,
				      const struct resident **o, const struct resident **evicts, size_t room,
				      size_t *count)
{
	struct residency_sums sums = residency_sums(r);
	uint64_t need = w->bytes + w->transient, freed = 0;

	*count = 0;
	*o = find(r, &w->identity);
	if (*o && (*o)->state != RESIDENT_ABANDONED)
		return RESIDENCY_ATTACH;
	enum residency_verdict verdict = possible(r, need, sums.pinned);
	if (verdict != RESIDENCY_LOAD || sums.used <= r->budget - need)
		return verdict;
	uint64_t missing = sums.used - (r->budget - need);
	if (sums.freeable < missing)
		return RESIDENCY_NOTHING;
	for (const struct resident *v = next_unused(r, NULL); freed < missing; v = next_unused(r, v)) {
		freed += v->bytes;
		if (*count < room)
			evicts[*count] = v;
		++*count;
	}
	return RESIDENCY_EVICT;
}

int64_t residency_goes_in(const struct residency *r, const struct resident *o, uint64_t now)
{
	if (!idle(o) || r->keep < 0)
		return -1;
	int64_t left = r->keep - (int64_t)(now - o->released);
	return left > 0 ? left : 0;
}
