#include "executor.h"
#include "own.h"
#include <string.h>
#include <time.h>

#define ROWS_IN_PASS 128u /* rows of one pass over the weights: bounds the room for sums */

static double seconds(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void run_fini(struct run *r)
{
	free(r->logits);
	free(r->ids);
	free(r->values);
	r->logits = r->values = NULL;
	r->ids = NULL;
}

static int run_rows(struct executor *e, struct run *r)
{
	const struct geometry *g = &r->image->geometry;
	uint32_t most = r->rows < ROWS_IN_PASS ? r->rows : ROWS_IN_PASS;
	float ascale[ROWS_IN_PASS];
	cleanup(freep) int8_t *q = malloc((size_t)most * g->kd);
	cleanup(freep) float *row = malloc(g->h * sizeof *row); /* x may be at any address */

	if (r->want == WANT_LOGITS) {
		r->logits = malloc((size_t)r->rows * g->nv * sizeof *r->logits);
	} else {
		r->ids = malloc((size_t)r->rows * r->k * sizeof *r->ids);
		r->values = malloc((size_t)r->rows * r->k * sizeof *r->values);
	}
	bool room = q && row && (r->want == WANT_LOGITS ? !!r->logits : r->ids && r->values);
	for (uint32_t at = 0; room && at < r->rows; at += most) {
		struct pass pass = {q,	  ascale, r->rows - at < most ? r->rows - at : most, NULL, r->k,
				    NULL, NULL};
		if (r->logits) {
			pass.logits = r->logits + (size_t)at * g->nv;
		} else {
			pass.ids = r->ids + (size_t)at * r->k;
			pass.values = r->values + (size_t)at * r->k;
		}
		for (uint32_t m = 0; m < pass.rows; m++) {
			memcpy(row, (const char *)r->x + (size_t)(at + m) * g->h * sizeof *row,
			       g->h * sizeof *row);
			r->nonfinite +=
				e->kernels->quantise(q + (size_t)m * g->kd, &ascale[m], row, g->h, g->kd);
		}
		room = image_run(r->image, e->kernels, e->pool, &pass);
		r->rows_in_pass = pass.rows;
	}
	if (!room)
		return err_set(&r->err, NPU_E_NO_MEMORY, "no memory for %u rows of %u logits", r->rows,
			       g->nv);
	return 0;
}

static void work(void *arg)
{
	struct executor *e = arg;

	uv_mutex_lock(&e->lock);
	for (;;) {
		while (link_empty(&e->todo) && !e->stop)
			uv_cond_wait(&e->work, &e->lock);
		if (e->stop)
			break;
		struct run *r = link_of(e->todo.next, struct run, in_queue);
		link_remove(&r->in_queue);
		uv_mutex_unlock(&e->lock);

		double begun = seconds(CLOCK_MONOTONIC);
		double cpu = seconds(CLOCK_THREAD_CPUTIME_ID) + pool_cpu_seconds(e->pool);
		r->queue_seconds = begun - (double)r->queued_ns * 1e-9;
		run_rows(e, r);
		r->compute_seconds = seconds(CLOCK_MONOTONIC) - begun;
		r->cpu_seconds = seconds(CLOCK_THREAD_CPUTIME_ID) + pool_cpu_seconds(e->pool) - cpu;

		uv_mutex_lock(&e->lock);
		link_append(&e->finished, &r->in_queue);
		uv_async_send(&e->wake);
	}
	uv_mutex_unlock(&e->lock);
}

static void on_wake(uv_async_t *wake)
{
	struct executor *e = wake->data;
	for (;;) {
		uv_mutex_lock(&e->lock);
		struct run *r =
			link_empty(&e->finished) ? NULL : link_of(e->finished.next, struct run, in_queue);
		if (r)
			link_remove(&r->in_queue);
		uv_mutex_unlock(&e->lock);
		if (!r)
			return;
		e->done(e->arg, r);
	}
}

int executor_init(struct executor *e, uv_loop_t *loop, const struct kernels *kernels, unsigned threads,
		  void (*done)(void *, struct run *), void *arg)
{
	memset(e, 0, sizeof *e);
	link_init(&e->todo);
	link_init(&e->finished);
	e->kernels = kernels;
	e->done = done;
	e->arg = arg;
	e->wake.data = e;
	if (!pool_new(&e->pool, threads) || uv_mutex_init(&e->lock) || uv_cond_init(&e->work) ||
	    uv_async_init(loop, &e->wake, on_wake) || uv_thread_create(&e->thread, work, e))
		return NPU_E_NO_MEMORY;
	return 0;
}

void executor_fini(struct executor *e)
{
	uv_mutex_lock(&e->lock);
	e->stop = true;
	uv_cond_signal(&e->work);
	uv_mutex_unlock(&e->lock);
	uv_thread_join(&e->thread);
	on_wake(&e->wake);
	uv_close((uv_handle_t *)&e->wake, NULL);
	uv_cond_destroy(&e->work);
	uv_mutex_destroy(&e->lock);
	pool_free(e->pool);
}

void executor_add(struct executor *e, struct run *run)
{
	run->queued_ns = uv_hrtime();
	uv_mutex_lock(&e->lock);
	link_append(&e->todo, &run->in_queue);
	uv_cond_signal(&e->work);
	uv_mutex_unlock(&e->lock);
}

bool executor_drop(struct executor *e, struct run *run)
{
	bool dropped = false;
	uv_mutex_lock(&e->lock);
	link_each(at, &e->todo) if (at == &run->in_queue)
	{
		link_remove(at);
		dropped = true;
		break;
	}
	uv_mutex_unlock(&e->lock);
	return dropped;
}
