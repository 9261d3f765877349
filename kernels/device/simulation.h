/*
 * How a simulated device computes and misbehaves, for soft.c and for the test device beneath XRT. Pure but
 * for the memory it is given. Shares no arithmetic with the kernels of the host, so that "the same bits" is a
 * comparison of two things.
 *
 * Settings are words separated by spaces or commas:
 *   latency=US      a launch takes at least this long
 *   contexts=N      so many contexts exist (16)
 *   others=N        other programs hold so many of them (0)
 *   heap=BYTES      so much memory for buffers (no limit)
 *   watchdog=MS     the driver ends a hanging run as timed out, after the device has written once more
 * (never) lost=MS         a context that was idle this long is lost: its launches fail (never)
 *   no-context=MS@N for MS milliseconds from the N-th opening on, no context can be had
 *   FAULT@N, FAULT@N-M, FAULT/K
 *                   the N-th launch (from 1), those from N to M, every K-th; FAULT is one of timeout, error,
 *                   hang, stale, garbage, swap, flip. The last four complete as if all were well.
 */
#ifndef NPUD_SIMULATION_H
#define NPUD_SIMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum simulation_fault {
	SIMULATION_GOOD,
	SIMULATION_TIMEOUT,
	SIMULATION_ERROR,
	SIMULATION_HANG,
	SIMULATION_STALE,   /* nothing is written */
	SIMULATION_GARBAGE, /* everything is */
	SIMULATION_SWAP,    /* the first and the last row change places */
	SIMULATION_FLIP,    /* one bit of the first row */
	SIMULATION_FAULTS
};

struct simulation_rule {
	enum simulation_fault fault;
	uint64_t first, last, every;
};

struct simulation {
	uint64_t latency_us, contexts_max, others, heap_bytes, watchdog_ms, lost_ms, no_context_ms,
		no_context_at;
	struct simulation_rule rules[16];
	uint32_t rule_count;
};

/* False with a sentence in `why` where a word is not understood. */
bool simulation_parse(struct simulation *s, const char *settings, char *why, size_t room);

/* What goes wrong with the launch of this number, counted from 1; the first rule that fits. */
enum simulation_fault simulation_fault(const struct simulation *s, uint64_t launch);

/* c[rows][nd] = a[rows][kd] x b[kd][nd], b in `layout` (0 row-major, 1 blocked). */
void simulation_compute(const int8_t *a, const int8_t *b, int32_t *c, uint32_t rows, uint32_t kd, uint32_t nd,
			uint32_t layout);

/* Does to a computed (or, for STALE, untouched) result what the fault does; the launch's number varies it. */
void simulation_spoil(enum simulation_fault fault, uint64_t launch, int32_t *c, uint32_t rows, uint32_t nd);

#ifdef __cplusplus
}
#endif

#endif
