/*
 * One thread at low priority that does, one at a time and in their order, the jobs that change the image
 * store or take long over it. Jobs are given by the loop and come back to it; a clean stop lets what is begun
 * end.
 */
#ifndef NPUD_WRITER_H
#define NPUD_WRITER_H

#include "link.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

struct writer_job {
	struct link in_queue;
	void (*prepare)(struct writer_job *j); /* on the loop, right before it begins; NULL: nothing */
	/* On the thread. `stop`: end soon, leaving things whole. */
	void (*work)(struct writer_job *j, const atomic_bool *stop);
	void (*done)(struct writer_job *j); /* on the loop; the job is the giver's again */
};

struct writer {
	uv_thread_t thread;
	uv_mutex_t lock;
	uv_cond_t begin;
	struct writer_job *now; /* under lock: begun and not ended */
	bool ended, leave;	/* under lock */
	struct link waiting;	/* loop */
	atomic_bool stop;
	uv_async_t wake;
};

int writer_init(struct writer *w, uv_loop_t *loop);
void writer_add(struct writer *w, struct writer_job *job);
bool writer_idle(const struct writer *w);
/* Ends the job in hand, runs `done` of every job, whether it was worked on or not. */
void writer_fini(struct writer *w);

#endif
