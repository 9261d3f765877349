/*
 * One thread that runs passes over packed weights, on an engine (engine.h) of its own. The loop hands in runs
 * and gets them back through `done`, on the loop. When a pass ends, the rows that wait then, of whichever
 * clients, share the next, and those of who asks again at once (batch.h). A run's target must outlive it.
 */
#ifndef NPUD_EXECUTOR_H
#define NPUD_EXECUTOR_H

#include "batch.h"
#include "engine.h"
#include <uv.h>

enum want { WANT_LOGITS, WANT_TOP };

struct run {
	struct batch_run waiting; /* key, rows and weight are the giver's to set: rows of one key have one
				     target, path, verify and ticket */
	struct link in_finished;
	struct batch_client *client;
	struct target *target;
	enum path path; /* asked for */
	bool verify;
	uint64_t ticket; /* under which it is sent; 0: none */
	const float *x;	 /* rows * h, any alignment; the giver keeps it */
	uint32_t k;
	enum want want;
	uint64_t queued_ns;
	uint32_t done; /* rows that have been run */
	bool in_pass;  /* of which some are being run: the thread's */
	bool unwanted; /* what is not in the pass will not be run */

	/* the answer; what is not NULL is freed by run_fini */
	struct err err;
	float *logits; /* rows * nv */
	uint32_t *ids; /* rows * k */
	float *values; /* rows * k */
	uint64_t nonfinite;
	double queue_seconds;	     /* until its first pass */
	double compute_seconds;	     /* of the passes it was in */
	double cpu_seconds;	     /* its share of theirs, by rows */
	uint32_t rows_in_pass;	     /* of the last, strangers' included */
	struct engine_report report; /* of the last */
};

void run_fini(struct run *r);

struct executor {
	uv_thread_t thread;
	uv_mutex_t lock;
	uv_cond_t work;
	struct batch batch; /* under lock, as all of the next five */
	struct link finished;
	uint64_t passes; /* since the start */
	double begun;	 /* the pass under way, by clock_now; 0: there is none */
	bool gathering;	 /* the thread waits for company, not for work */
	bool stop;
	uint32_t rows_max; /* of a pass */
	uv_async_t wake;
	struct engine engine;	   /* the thread's */
	_Atomic uint64_t reserved; /* the exclusive ticket whose the device is; 0: nobody's */
	void (*done)(void *arg, struct run *run);
	void *arg;
};

/* `threads` at least 1, the executor's own included; passes of at most `rows_max` rows, 1 to BATCH_ROWS_MAX;
 * `kernels` must outlive it, and gets its `prefetch` here. */
int executor_init(struct executor *e, uv_loop_t *loop, struct kernels *kernels, unsigned threads,
		  uint32_t rows_max, void (*done)(void *, struct run *), void *arg);
void executor_fini(struct executor *e); /* finishes the pass in hand; the queue must be empty or dropped */

/* `run` waits for its turn in the queue of `client`, which must live until the run has left it. */
void executor_add(struct executor *e, struct batch_client *client, struct run *run);
/* Milliseconds that the pass under way has taken, behind which everybody's rows wait; 0: there is none. */
uint64_t executor_pass_ms(struct executor *e);
/* Passes so far. */
uint64_t executor_passes(struct executor *e);
/* `client`, none of whose runs is here or wanted any more, goes. */
void executor_leave(struct executor *e, struct batch_client *client);
/* True where no row of it is being run: it is the caller's again and `done` will not be called. Otherwise
 * `done` comes when the pass ends. Either way none of its rows waits any more. */
bool executor_drop(struct executor *e, struct run *run);

#endif
