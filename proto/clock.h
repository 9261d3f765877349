/* Seconds of a clock: CLOCK_MONOTONIC's only rise. Any thread. */
#ifndef NPUD_CLOCK_H
#define NPUD_CLOCK_H

#include <time.h>

static inline double clock_seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Since some time before the program started. */
static inline double clock_now(void)
{
	return clock_seconds(CLOCK_MONOTONIC);
}

#endif
