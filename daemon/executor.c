#include "executor.h"
#include "clock.h"
#include "own.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>

void run_fini(struct run *r)
{
	free(r->logits);
	free(r->ids);
	free(r->values);
	r->logits = r->values = NULL;
	r->ids = NULL;
}

/* Room for all rows of the answer; there already from the second pass on. */
static bool room_for_answer(struct run *r)
{
	size_t rows = r->waiting.rows;
	if (r->want == WANT_LOGITS && !r->logits)
		r->logits = malloc(rows * r->target->image.geometry.nv * sizeof *r->logits);
	if (r->want == WANT_TOP && !r->ids) {
		r->ids = malloc(rows * r->k * sizeof *r->ids);
		r->values = malloc(rows * r->k * sizeof *r->values);
	}
	return r->want == WANT_LOGITS ? !!r->logits : r->ids && r->values;
}

static struct pass_row answer_row(const struct run *r, uint32_t m, float ascale)
{
	if (r->want == WANT_LOGITS)
		return (struct pass_row){ascale, r->logits + (size_t)m * r->target->image.geometry.nv, 0,
					 NULL, NULL};
	return (struct pass_row){ascale, NULL, r->k, r->ids + (size_t)m * r->k, r->values + (size_t)m * r->k};
}

/* One pass over the target of the parts' key; which runs the rows are of makes no difference to it. */
static int run_pass(struct executor *e, const struct batch_part *parts, unsigned count,
		    struct engine_report *report, struct err *err)
{
	const struct run *any = link_of(parts[0].run, struct run, waiting);
	const struct geometry *g = &any->target->image.geometry;
	struct pass_row rows[BATCH_ROWS_MAX];
	cleanup(freep) int8_t *q = malloc((size_t)e->rows_max * g->kd);
	cleanup(freep) float *x = malloc(g->h * sizeof *x); /* a client's may be at any address */
	uint32_t n = 0;

	for (unsigned i = 0; i < count; i++) {
		struct run *r = link_of(parts[i].run, struct run, waiting);
		if (!q || !x || !room_for_answer(r))
			return err_set(err, NPU_E_NO_MEMORY, "no memory for a pass");
		for (uint32_t m = parts[i].first; m < parts[i].first + parts[i].rows; m++, n++) {
			float ascale;
			memcpy(x, (const char *)r->x + (size_t)m * g->h * sizeof *x, g->h * sizeof *x);
			r->nonfinite +=
				e->engine.kernels->quantise(q + (size_t)n * g->kd, &ascale, x, g->h, g->kd);
			rows[n] = answer_row(r, m, ascale);
		}
	}
	uint64_t reserved = atomic_load(&e->reserved);
	/* Who holds the device runs tools of its own, which lock each other out. */
	e->engine.lock.yielded = reserved != 0;
	return engine_run(&e->engine, any->target, &(struct pass){q, rows, n}, any->path,
			  reserved && reserved != any->ticket, any->verify, report, err);
}

static uint32_t pass_begins(const struct batch_part *parts, unsigned count, double now)
{
	uint32_t rows = 0;
	for (unsigned i = 0; i < count; i++) {
		struct run *r = link_of(parts[i].run, struct run, waiting);
		if (r->done == 0)
			r->queue_seconds = now - (double)r->queued_ns * 1e-9;
		r->in_pass = true;
		rows += parts[i].rows;
	}
	return rows;
}

/* Under lock. Runs that are complete, failed or unwanted go back to the loop. */
static void pass_ended(struct executor *e, const struct batch_part *parts, unsigned count, uint32_t rows,
		       double took, double cpu, const struct engine_report *report, const struct err *err)
{
	uint64_t now = uv_hrtime();

	for (unsigned i = 0; i < count; i++) {
		struct run *r = link_of(parts[i].run, struct run, waiting);
		r->in_pass = false;
		r->done += parts[i].rows;
		r->rows_in_pass = rows;
		r->compute_seconds += took;
		r->cpu_seconds += cpu * parts[i].rows / rows;
		r->report = *report;
		if (err->code) {
			r->err = *err;
			batch_remove(&r->waiting);
		}
		bool complete = r->done == r->waiting.rows;
		if (complete && !r->unwanted && !err->code)
			batch_answered(&e->batch, r->client, r->waiting.key, now, (uint64_t)(took * 1e9));
		if (err->code || r->unwanted || complete)
			link_append(&e->finished, &r->in_finished);
	}
	e->passes++;
}

static double cpu_seconds(const struct executor *e)
{
	return clock_seconds(CLOCK_THREAD_CPUTIME_ID) + pool_cpu_seconds(e->engine.pool);
}

/* Under lock: waits for the next pass. 0: to stop. */
static unsigned next_pass(struct executor *e, struct batch_part *parts)
{
	while (!e->stop) {
		uint64_t now = uv_hrtime(), until = batch_gathers(&e->batch, e->rows_max, now);
		if (until) {
			e->gathering = true;
			uv_cond_timedwait(&e->work, &e->lock, until - now);
			e->gathering = false;
			continue;
		}
		unsigned count = batch_take(&e->batch, e->rows_max, parts);
		if (count)
			return count;
		uv_cond_wait(&e->work, &e->lock);
	}
	return 0;
}

static void work(void *arg)
{
	struct executor *e = arg;
	struct batch_part parts[BATCH_ROWS_MAX];
	unsigned count;

	uv_mutex_lock(&e->lock);
	while ((count = next_pass(e, parts)) != 0) {
		double begun = clock_now(), cpu = cpu_seconds(e);
		uint32_t rows = pass_begins(parts, count, begun);
		e->begun = begun;
		uv_mutex_unlock(&e->lock);

		struct engine_report report = {.kernel = ""};
		struct err err = {};
		run_pass(e, parts, count, &report, &err);

		uv_mutex_lock(&e->lock);
		e->begun = 0;
		pass_ended(e, parts, count, rows, clock_now() - begun, cpu_seconds(e) - cpu, &report, &err);
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
			link_empty(&e->finished) ? NULL : link_of(e->finished.next, struct run, in_finished);
		if (r)
			link_remove(&r->in_finished);
		uv_mutex_unlock(&e->lock);
		if (!r)
			return;
		e->done(e->arg, r);
	}
}

int executor_init(struct executor *e, uv_loop_t *loop, struct kernels *kernels, unsigned threads,
		  uint32_t rows_max, void (*done)(void *, struct run *), void *arg)
{
	memset(e, 0, sizeof *e);
	batch_init(&e->batch);
	link_init(&e->finished);
	e->rows_max = rows_max;
	e->done = done;
	e->arg = arg;
	e->wake.data = e;
	if (engine_init(&e->engine, kernels, threads) || uv_mutex_init(&e->lock) || uv_cond_init(&e->work) ||
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
	engine_fini(&e->engine);
}

void executor_add(struct executor *e, struct batch_client *client, struct run *run)
{
	run->queued_ns = uv_hrtime();
	run->client = client;
	uv_mutex_lock(&e->lock);
	batch_add(&e->batch, client, &run->waiting, run->queued_ns);
	/* While it waits for others it would wake for nothing. */
	if (!e->gathering || !batch_gathers(&e->batch, e->rows_max, run->queued_ns))
		uv_cond_signal(&e->work);
	uv_mutex_unlock(&e->lock);
}

uint64_t executor_pass_ms(struct executor *e)
{
	uv_mutex_lock(&e->lock);
	double begun = e->begun;
	uv_mutex_unlock(&e->lock);
	return begun > 0 ? (uint64_t)((clock_now() - begun) * 1e3) : 0;
}

uint64_t executor_passes(struct executor *e)
{
	uv_mutex_lock(&e->lock);
	uint64_t passes = e->passes;
	uv_mutex_unlock(&e->lock);
	return passes;
}

void executor_leave(struct executor *e, struct batch_client *client)
{
	uv_mutex_lock(&e->lock);
	batch_leave(client);
	uv_mutex_unlock(&e->lock);
}

bool executor_drop(struct executor *e, struct run *run)
{
	uv_mutex_lock(&e->lock);
	batch_remove(&run->waiting);
	run->unwanted = true;
	/* One whose rows have all been run is on its way back already. */
	bool idle = !run->in_pass && run->done < run->waiting.rows && run->err.code == 0;
	uv_mutex_unlock(&e->lock);
	return idle;
}
