/*
 * What was counted since the start, and all the daemon's figures as OpenMetrics text: names begin with npud_,
 * units are base units, counters end in _total. Loop thread only.
 */
#ifndef NPUD_METRICS_H
#define NPUD_METRICS_H

#include "executor.h"
#include "ticket.h"
#include <stddef.h>
#include <stdint.h>

struct server;

#define HISTOGRAM_BOUNDS 16u

/* How many values were at most as large as each bound, and no bound below. Zeroed is empty. */
struct histogram {
	uint64_t counts[HISTOGRAM_BOUNDS + 1];
	double sum;
};

#define METRICS_CLASSES (TICKET_REALTIME + 1)
#define METRICS_ENDINGS (TICKET_LOST - TICKET_RELEASED + 1)

struct metrics {
	struct metrics_runs {
		uint64_t runs, rows;
		struct histogram queue, compute; /* seconds */
	} ran[METRICS_CLASSES][2];		 /* by class of the ticket, and by path: host, device */
	uint64_t failed, fallbacks, differences;
	struct histogram waited[METRICS_CLASSES]; /* tickets: seconds from the request to the grant */
	uint64_t ended[METRICS_ENDINGS];	  /* tickets, from TICKET_RELEASED on */
};

/* A run is over: its rows have run, or not all of them. */
void metrics_ran(struct metrics *m, enum ticket_class class, const struct run *run);
void metrics_granted(struct metrics *m, const struct ticket_record *t);
void metrics_ended(struct metrics *m, const struct ticket_record *t);

/* The text, NUL-terminated, the caller's to free; its length without the NUL in *size. NULL: no memory. */
char *metrics_text(struct server *s, size_t *size);

#endif
