/*
 * What is resident, who waits for room, and what has to go. Pure: time comes in, what to do comes out;
 * memory, threads and sessions are the caller's. One thread.
 *
 * The caller embeds a `struct resident` in each object and a `struct claim` in whatever asks for one, tells
 * what happens (ask, loaded, hold, release ...) and after each event calls residency_next until it says
 * nothing more is to be done.
 *
 * Claims are served in the order they were asked. One whose object is here attaches. One that must be loaded
 * waits while an older one waits for room, so that nobody is passed over for ever; it is refused when
 * no waiting could make room (more than the budget, or pinned), and at the end of a bounded wait.
 * An object stays at least as long as it took to load, so that two streams of requests in the room of one
 * object spend at most half their time loading. After that, if an older claim needs its room, nobody new
 * attaches to it: it drains, and goes when its last user has gone. One that does not drain in time keeps
 * its users and its place, and the claim is refused.
 */
#ifndef NPUD_RESIDENCY_H
#define NPUD_RESIDENCY_H

#include "kernels.h"
#include "link.h"

#define ROLE_MAX 16 /* with its NUL */
#define HEAD_ROLE "head"

/*
 * What an object is. Content decides what is served; layer and role are in the key all the same (design: a
 * key with less in it has served layer 0's weights to every layer), and so that eviction speaks the model's
 * language. A head has layer 0 and the role "head".
 */
struct identity {
	unsigned char hash[16]; /* of the tensor; of several: of their hashes in order */
	uint32_t layer;
	char role[ROLE_MAX]; /* padded with NULs */
	uint32_t k, n;	     /* rows and columns as stored: H and NV of a head */
	uint32_t kd, nd;     /* rows and columns of a packed tile */
	enum layout layout;
};

bool identity_equal(const struct identity *a, const struct identity *b);

struct resident {
	struct link in_objects; /* residency.objects */
	struct identity identity;
	uint64_t bytes;	    /* codes and scales, as mapped */
	uint64_t transient; /* what loading takes beside them; 0 once it is ready */
	enum { RESIDENT_LOADING, RESIDENT_ABANDONED, RESIDENT_READY } state;
	unsigned refs;			 /* users; an object that has one is never evicted */
	unsigned pins;			 /* never evicted either */
	bool fleeting;			 /* for one call: nobody else attaches, and it goes with its user */
	bool draining;			 /* nobody new attaches: an older claim needs the room */
	uint64_t begun, ready, released; /* ms; released: when the last user went */
	uint64_t stay_until, drain_since;
};

struct claim {
	struct link in_claims; /* residency.claims; link_init'ed when it is in none */
	struct identity identity;
	uint64_t bytes, transient;
	bool fleeting;
	uint64_t since; /* ms */
};

struct residency {
	struct link objects, claims;
	const struct claim *drained_for;
	int64_t keep;	 /* ms an unused object stays; below 0: for ever */
	uint64_t budget; /* bytes; the caller sets it to what is so now before residency_next */
};

void residency_init(struct residency *r, int64_t keep_ms);

/* Somebody wants the object of w->identity, of w->bytes and w->transient. */
void residency_ask(struct residency *r, struct claim *w, uint64_t now);
/* It does so no longer, or was answered. Twice is fine. */
void residency_withdraw(struct claim *w);

/* `o` (zeroed, with one user: who asked) begins to load for `w`, which is withdrawn. */
void residency_begin(struct residency *r, struct resident *o, struct claim *w, uint64_t now);
/* It is there; `bytes` is what it takes in the end. */
void residency_ready(struct resident *o, uint64_t bytes, uint64_t now);
/* Nobody wants what is loading any more: it keeps its room until it is removed, and nobody attaches. */
void residency_abandon(struct resident *o);
/* It failed, was abandoned, or was evicted: out of the table. */
void residency_remove(struct resident *o);
void residency_hold(struct resident *o);
void residency_release(struct resident *o, uint64_t now);
/* It stays whatever others need, and claims that had it drained look elsewhere. */
void residency_pin(struct resident *o);
/* Its keep begins anew. */
void residency_unpin(struct resident *o, uint64_t now);

enum residency_verdict {
	RESIDENCY_NOTHING,
	RESIDENCY_ATTACH,    /* `claim` is satisfied by `object`: hold it and withdraw the claim */
	RESIDENCY_LOAD,	     /* there is room: begin */
	RESIDENCY_EVICT,     /* `object` has to go */
	RESIDENCY_TOO_LARGE, /* refuse `claim`: it never fits into the budget */
	RESIDENCY_PINNED,    /* refuse: what is not pinned would not be enough */
	RESIDENCY_HELD,	     /* refuse: waited, and those who use the rest did not let go */
};

struct residency_step {
	enum residency_verdict verdict;
	struct claim *claim;
	struct resident *object;
};

/*
 * The next thing to do at `now`. With NOTHING, *wake is when to ask again if nothing happens before
 * (UINT64_MAX: only when something does).
 */
struct residency_step residency_next(struct residency *r, uint64_t now, uint64_t *wake);

/*
 * What `w`, which need not have been asked for, would meet now: ATTACH to *o; LOAD; EVICT, after which it
 * loads: *count objects, which are in evicts[] in the order they would go (as many as `room`, at least 1,
 * takes); NOTHING: others would have to let go first; TOO_LARGE, PINNED. Changes nothing.
 */
enum residency_verdict residency_plan(const struct residency *r, const struct claim *w,
				      const struct resident **o, const struct resident **evicts, size_t room,
				      size_t *count);

/* Milliseconds after which an object that nobody uses goes, if nothing happens before; below 0: it does not
 * go. */
int64_t residency_goes_in(const struct residency *r, const struct resident *o, uint64_t now);

/* Where the budget goes; `freeable`: ready, without users and not pinned. */
struct residency_sums {
	uint64_t used, loading, pinned, held, freeable;
};
struct residency_sums residency_sums(const struct residency *r);

#endif
