/*
 * One thread that runs passes over packed heads, in the order they came, with a pool of others to help it.
 * The loop hands in runs and gets them back through `done`, on the loop. A run's image must outlive it.
 */
#ifndef NPUD_EXECUTOR_H
#define NPUD_EXECUTOR_H

#include "err.h"
#include "image.h"
#include "link.h"
#include <uv.h>

enum want { WANT_LOGITS, WANT_TOP };

struct run {
	struct link in_queue;
	const struct image *image;
	const float *x; /* rows * h, any alignment; the giver keeps it */
	uint32_t rows, k;
	enum want want;
	uint64_t queued_ns;

	/* the answer; what is not NULL is freed by run_fini */
	struct err err;
	float *logits; /* rows * nv */
	uint32_t *ids; /* rows * k */
	float *values; /* rows * k */
	uint64_t nonfinite;
	double queue_seconds, compute_seconds, cpu_seconds;
	uint32_t rows_in_pass;
};

void run_fini(struct run *r);

struct executor {
	uv_thread_t thread;
	uv_mutex_t lock;
	uv_cond_t work;
	struct link todo, finished; /* under lock */
	bool stop;
	uv_async_t wake;
	const struct kernels *kernels;
	struct pool *pool; /* the thread's */
	void (*done)(void *arg, struct run *run);
	void *arg;
};

/* `threads` at least 1, the executor's own included; `kernels` must outlive it. */
int executor_init(struct executor *e, uv_loop_t *loop, const struct kernels *kernels, unsigned threads,
		  void (*done)(void *, struct run *), void *arg);
void executor_fini(struct executor *e); /* finishes the run in hand; the queue must be empty or dropped */

void executor_add(struct executor *e, struct run *run);
/* True where the run had not begun: it is the caller's again and `done` will not be called. */
bool executor_drop(struct executor *e, struct run *run);

#endif
