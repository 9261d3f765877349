/*
 * Which rows go together in the next pass over the weights. Pure; one thread.
 *
 * Runs that wait are queued by client. A pass belongs to one key (an object, and whatever else may not be
 * mixed); it is the key of the oldest run of the client that has had least, and is filled up to the row limit
 * with rows of every client that waits for the same key, one row at a time by the one that has had least.
 * So a client that asks for ten times as much as another is not in its way, and nobody waits for a pass
 * to fill. "Had" is rows divided by the client's weight (start-time fair queueing: Goyal, Vin, Cheng 1996):
 * one that comes back begins where those who wait are, it does not save up.
 */
#ifndef NPUD_BATCH_H
#define NPUD_BATCH_H

#include "link.h"
#include <stdint.h>

#define BATCH_ROWS_MAX 128u /* rows of a pass at most, and so its parts */

/* Somebody whose rows are to have their share: embedded in a session. */
struct batch_client {
	struct link in_clients; /* batch.clients while it has rows that wait */
	struct link runs;	/* oldest first */
	uint64_t had;		/* rows * BATCH_UNIT / weight */
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
	struct link clients;
	uint64_t now; /* what the client that was served last had had then */
};

/* Rows first .. first+rows-1 of `run`. */
struct batch_part {
	struct batch_run *run;
	uint32_t first, rows;
};

void batch_init(struct batch *b);
void batch_client_init(struct batch_client *c);

/* `run` (key, rows and weight set) waits at the end of its client's queue. */
void batch_add(struct batch *b, struct batch_client *c, struct batch_run *run);

/* The rows of `run` that wait do so no longer; those already taken are not touched. Twice is fine. */
void batch_remove(struct batch_run *run);

/*
 * Takes the next pass: at most `limit` rows (1 to BATCH_ROWS_MAX) into parts[limit], each run at most once.
 * Returns the number of parts; 0: nothing waits.
 */
unsigned batch_take(struct batch *b, uint32_t limit, struct batch_part *parts);

/* Rows that wait. */
uint64_t batch_waiting(const struct batch *b);

#endif
