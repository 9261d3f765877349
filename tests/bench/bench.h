/*
 * Measuring by ratios. A machine's memory is faster in one minute than in the next, so what is compared is
 * run in turns, and each turn gives one ratio; the figure is their median. A turn during which the
 * threads did not have their processors is thrown away and repeated.
 *
 * A program prints one line a figure: name, value, must, aim, lowest, highest, and what it was compared with,
 * separated by tabs; "skipped", name, why. scripts/bench reads them.
 */
#ifndef NPUD_BENCH_H
#define NPUD_BENCH_H

#include "pool.h"
#include <stdbool.h>
#include <stddef.h>

#define BENCH_ROUNDS 9

/* Raises the priority where that is allowed. BENCH_QUICK in the environment: disturbed turns are repeated
 * less. */
void bench_begin(void);

typedef void bench_fn(void *arg);

/*
 * Seconds of one call, which is the work of pool_threads(pool) threads; with NULL of the caller alone.
 * Repeated some times while their processor time is below 97 % of it; the least disturbed turn counts.
 */
double bench_seconds(struct pool *pool, bench_fn *run, void *arg);
/* Ends a program: says how many turns stayed disturbed. */
void bench_end(void);

enum better { HIGHER, LOWER };

/* A figure of BENCH_ROUNDS ratios, which it sorts; `must` and `aim` 0: a figure to compare others with. */
void bench_figure(const char *name, enum better better, double *ratios, double must, double aim,
		  const char *note);
void bench_skipped(const char *name, const char *why);

/* Seconds of one read pass over the bytes by the pool's threads: the faster of with and without prefetch,
 * which is what memory gives. */
double bench_read(struct pool *pool, const void *bytes, size_t size);

#endif
