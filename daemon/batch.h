/*
 * Which rows go together in the next pass over the weights. Pure; one thread.
 *
 * Runs that wait are queued by client. A pass belongs to one key (an object, and whatever else may not be
 * mixed); it is the key of the oldest run of the client that has had least, and is filled up to the row limit
 * with rows of every client that waits for the same key, one row at a time by the one that has had least.
 * So a client that asks for ten times as much as another is not in its way. "Had" is rows divided by the
 * client's weight (start-time fair queueing: Goyal, Vin, Cheng 1996): one that comes back begins where those
 * who wait are, it does not save up.
 *
 * Nobody waits for a pass to fill, but for a moment for those who were answered just now and ask again at
 * once, as programs do that make word after word. Without it rows for the same weights part into two crowds,
 * each of which waits while a pass of the other runs (anticipatory scheduling: Iyer, Druschel 2001). A client
 * is waited for if it came back in time the last time, until the time its giver said, and once.
 */
#ifndef NPUD_BATCH_H
#define NPUD_BATCH_H

#include "link.h"
#include <stdbool.h>
#include <stdint.h>

#define BATCH_ROWS_MAX 128u /* rows of a pass at most, and so its parts */

/* Somebody whose rows are to have their share: embedded in a session. */
struct batch_client {
	struct link in_clients; /* batch.clients while it has rows that wait */
	struct link runs;	/* oldest first */
	uint64_t had;		/* rows * BATCH_UNIT / weight */

	struct link in_answered;	    /* batch.answered, from an answer until it asks again */
	uint64_t key, answered_ns, took_ns; /* of that answer: when, and what its pass took */
	int credit;			    /* above 0 it is waited for */
};

struct batch_run {
	struct link in_runs;	     /* batch_client.runs while rows of it wait */
	struct batch_client *client; /* NULL once none of its rows waits */
	uint64_t key;
	uint32_t rows, taken; /* of the run; those already given to a pass */
	uint32_t weight;      /* 1 to BATCH_UNIT */
};

#define BATCH_UNIT 64u

struct batch {
	struct link clients, answered;
	uint64_t now; /* what the client that was served last had had then */
};

/* Rows first .. first+rows-1 of `run`. */
struct batch_part {
	struct batch_run *run;
	uint32_t first, rows;
};

void batch_init(struct batch *b);
void batch_client_init(struct batch_client *c);

/* `run` (key, rows and weight set) waits at the end of its client's queue; it came at `now_ns`, of any clock.
 */
void batch_add(struct batch *b, struct batch_client *c, struct batch_run *run, uint64_t now_ns);

/* The rows of `run` that wait do so no longer; those already taken are not touched. Twice is fine. */
void batch_remove(struct batch_run *run);

/*
 * Takes the next pass: at most `limit` rows (1 to BATCH_ROWS_MAX) into parts[limit], each run at most once.
 * Returns the number of parts; 0: nothing waits.
 */
unsigned batch_take(struct batch *b, uint32_t limit, struct batch_part *parts);

#define BATCH_PATIENCE 2 /* who is waited for is for this part of the time that its pass took */
/* So many returns, soon but not in that time, make up for one that was waited for in vain. */
#define BATCH_DOUBT 32

/* A run of `c` for `key` has its answer at `now_ns`, of a pass that took `took_ns`. */
void batch_answered(struct batch *b, struct batch_client *c, uint64_t key, uint64_t now_ns, uint64_t took_ns);
/* `c`, none of whose rows waits, goes. */
void batch_leave(struct batch_client *c);
/* Until when the next pass, of at most `limit` rows, is to wait for who may join it; 0: not at all. */
uint64_t batch_gathers(const struct batch *b, uint32_t limit, uint64_t now_ns);

/* Rows that wait for `key`. */
uint64_t batch_waiting(const struct batch *b, uint64_t key);

#endif
