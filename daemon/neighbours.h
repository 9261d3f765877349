/*
 * Programs that use the device and do not know us: processes that have its node open and run under no ticket.
 * Looking through /proc takes milliseconds, so a worker thread looks, and whoever wants to know waits for it
 * or takes what was seen last. Loop thread only.
 */
#ifndef NPUD_NEIGHBOURS_H
#define NPUD_NEIGHBOURS_H

#include "proto.h"
#include "link.h"
#include <uv.h>

#define NEIGHBOURS_MAX 64

struct request;
struct server;

struct neighbour {
	uint32_t pid, uid;
	char command[64];
	uint32_t ancestors[16]; /* nearest first; 0: no more */
};

struct neighbours {
	struct server *server;
	uv_work_t work;
	bool looking;
	bool unsure; /* the last look saw contexts that may be of one who held then */
	uint64_t looked_ms;
	struct link waiters, later; /* requests: for the look under way, for the next */
	struct neighbour *seen,
		*found; /* NEIGHBOURS_MAX each: the last look, without ours; the one under way */
	unsigned count, found_count, hidden, found_hidden;
	struct neighbours_contexts {
		uint32_t used, max, own; /* of the device's hardware contexts; 0, 0, 0: not known */
	} contexts, found_contexts;
	struct row_foreign rows[NEIGHBOURS_MAX]; /* of what was seen, for answers */
	char names[256];			 /* "12 (flm), 13 (python3)", of what was seen; "": nobody */
};

int neighbours_init(struct neighbours *n, struct server *server, struct err *err);
void neighbours_fini(struct neighbours *n);

/* Whether there is anything to look at, and what was seen is older than `ms`, or in doubt. */
bool neighbours_stale(const struct neighbours *n, uint64_t ms);
/* Whether a program that does not know us uses the device, by what was seen last and who holds now. */
bool neighbours_are_there(const struct neighbours *n);
/* Begins to look, unless a look is under way. */
void neighbours_look(struct neighbours *n);
/* Keeps `r` until a look that begins now has ended; then `answer` is called. Returns LATER. */
int neighbours_wait(struct neighbours *n, struct request *r, void (*answer)(struct request *r));
/* Rows of what was seen last, `most` at most; valid until the next look. */
struct proto_list neighbours_list(struct neighbours *n, size_t most);

#endif
