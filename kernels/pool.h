/*
 * Threads for work that is cut in pieces. They sleep while there is nothing to do and are awake within
 * microseconds; the caller works too. One thread at a time may call pool_run.
 */
#ifndef NPUD_KERNELS_POOL_H
#define NPUD_KERNELS_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* `threads` (at least 1), the caller's included. False where there are no more to be had. */
bool pool_new(struct pool **out, unsigned threads);
void pool_free(struct pool *p); /* NULL is fine */

unsigned pool_threads(const struct pool *p);

/*
 * Calls each(arg, i, thread) once for every i below `pieces`, taken in rising order by whoever is free, and
 * returns when all have returned. `thread` is below pool_threads(), for room of one's own. A thread that
 * the system does not run holds up only the piece it has taken.
 */
void pool_run(struct pool *p, uint32_t pieces, void (*each)(void *arg, uint32_t i, unsigned thread),
	      void *arg);

/* Processor time the threads other than the caller's have used since they began. */
double pool_cpu_seconds(const struct pool *p);

/* Processors this process may run on, at least 1. */
unsigned pool_processors(void);

#endif
