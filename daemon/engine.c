#include "engine.h"
#include "clock.h"
#include "own.h"
#include "runner.h"
#include "top.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <uv.h>

void target_fini(struct target *t)
{
	for (uint32_t i = 0; t->device && i < t->image.geometry.tiles; i++)
		weights_free(t->device[i]);
	free(t->device);
	t->device = NULL;
	image_fini(&t->image);
}

uint64_t target_bytes(const struct target *t)
{
	return image_bytes(&t->image.geometry, t->device);
}

int engine_init(struct engine *e, struct kernels *kernels, unsigned threads)
{
	memset(e, 0, sizeof *e);
	e->kernels = kernels;
	npulock_init(&e->lock, "");
	if (!kernels_pick(&e->reference, CPU_ANY, "ref") || !pool_new(&e->pool, threads))
		return NPU_E_NO_MEMORY;
	image_measure(kernels, e->pool);
	return 0;
}

void engine_fini(struct engine *e)
{
	pool_free(e->pool);
}

/* Launches of one pass that are under way: at most two, so that the device always has a next one. */
#define AHEAD 2u

struct device_pass {
	uv_mutex_t lock;
	uv_cond_t done;
	struct slot_of_launch {
		struct job job;
		struct device_pass *pass;
		uint32_t tile, first; /* which tile, and the first of its rows */
		int32_t *acc;	      /* rows * nd: a copy, for the device's are gone when `done` returns */
		size_t size;
		bool busy, arrived;
	} slots[AHEAD];
};

static void launch_done(struct job *job)
{
	struct slot_of_launch *s = job->arg;
	if (job->result == JOB_DONE)
		memcpy(s->acc, job->acc, s->size);
	uv_mutex_lock(&s->pass->lock);
	s->arrived = true;
	uv_cond_signal(&s->pass->done);
	uv_mutex_unlock(&s->pass->lock);
}

/* Sums of some rows and one tile become logits, of rows that want no logits in `some`. */
static void take_sums(const struct image *image, const struct pass *pass, const struct slot_of_launch *s,
		      float *some)
{
	const struct geometry *g = &image->geometry;
	struct tile tile = image_tile(image, s->tile);
	uint32_t columns = geometry_columns(g, s->tile);
	for (uint32_t m = 0; m < s->job.rows; m++) {
		const struct pass_row *row = &pass->rows[s->first + m];
		float *to = row->logits ? row->logits : some + (size_t)(s->first + m) * g->nv;
		head_epilogue(to + (size_t)s->tile * g->nd, s->acc + (size_t)m * g->nd, row->ascale,
			      tile.scales, columns);
	}
}

static const char *result_name(enum job_result result)
{
	switch (result) {
	case JOB_DONE:
		return "done";
	case JOB_REFUSED:
		return "the device is not well";
	case JOB_TIMEOUT:
		return "the driver ended a launch";
	case JOB_ERROR:
		return "a launch failed";
	case JOB_HANG:
		return "a launch did not end in time";
	case JOB_MISMATCH:
		return "a launch was reported as completed, and was wrong";
	}
	return "";
}

/* Every tile with every `most` rows, in order; results are taken in that order too. */
static enum job_result launch_all(struct engine *e, struct target *t, const struct pass *pass,
				  struct device_pass *d, uint32_t most, float *some)
{
	const struct geometry *g = &t->image.geometry;
	uint32_t parts = (pass->count + most - 1) / most, all = parts * g->tiles, sent = 0, taken = 0;
	enum job_result result = JOB_DONE;

	while (taken < sent || (sent < all && result == JOB_DONE)) {
		if (sent < all && sent - taken < AHEAD && result == JOB_DONE) {
			struct slot_of_launch *s = &d->slots[sent % AHEAD];
			s->tile = sent / parts;
			s->first = sent % parts * most;
			s->job = (struct job){.weights = t->device[s->tile],
					      .q = pass->q + (size_t)s->first * g->kd,
					      .rows = pass->count - s->first < most ? pass->count - s->first
										    : most,
					      .done = launch_done,
					      .arg = s};
			s->size = (size_t)s->job.rows * g->nd * sizeof *s->acc;
			s->arrived = false;
			if (runner_submit(e->runner, &s->job))
				sent++;
			else
				result = JOB_REFUSED;
			continue;
		}
		struct slot_of_launch *s = &d->slots[taken++ % AHEAD];
		uv_mutex_lock(&d->lock);
		while (!s->arrived)
			uv_cond_wait(&d->done, &d->lock);
		uv_mutex_unlock(&d->lock);
		/* Those behind a launch that failed are refused: what is told is why. */
		if (s->job.result != JOB_DONE && (result == JOB_DONE || result == JOB_REFUSED))
			result = s->job.result;
		else if (result == JOB_DONE)
			take_sums(&t->image, pass, s, some);
	}
	return result;
}

/* Returns NULL where it is done, otherwise what happened. */
static const char *device_run(struct engine *e, struct target *t, const struct pass *pass)
{
	const struct geometry *g = &t->image.geometry;
	uint32_t most = weights_rows(t->device[0]);
	struct device_pass d = {};
	cleanup(freep) int32_t *acc = malloc(AHEAD * (size_t)most * g->nd * sizeof *acc);
	cleanup(freep) float *some = NULL;

	for (uint32_t m = 0; m < pass->count && !some; m++)
		if (!pass->rows[m].logits && !(some = malloc((size_t)pass->count * g->nv * sizeof *some)))
			return "there is no memory for its results";
	if (!acc || uv_mutex_init(&d.lock))
		return "there is no memory for its results";
	uv_cond_init(&d.done);
	for (unsigned i = 0; i < AHEAD; i++) {
		d.slots[i].pass = &d;
		d.slots[i].acc = acc + i * (size_t)most * g->nd;
	}
	const char *kept = npulock_take(&e->lock);
	enum job_result result = kept ? JOB_REFUSED : launch_all(e, t, pass, &d, most, some);
	npulock_give(&e->lock);
	uv_cond_destroy(&d.done);
	uv_mutex_destroy(&d.lock);
	if (kept)
		return kept;
	if (result != JOB_DONE)
		return result_name(result);
	for (uint32_t m = 0; m < pass->count; m++) {
		const struct pass_row *row = &pass->rows[m];
		if (row->logits)
			continue;
		struct top top = {row->k, 0, row->ids, row->values};
		top_add(&top, 0, some + (size_t)m * g->nv, g->nv);
		top_sort(&top);
	}
	return NULL;
}

/* The same rows with room of their own for the results, so that two passes can be compared. */
struct copies {
	struct pass pass;
	struct pass_row *rows;
	float *floats;
	uint32_t *ids;
};

static void copies_fini(struct copies *c)
{
	free(c->rows);
	free(c->floats);
	free(c->ids);
}

static bool copies_init(struct copies *c, const struct pass *pass, uint32_t nv)
{
	size_t floats = 0, ids = 0;
	for (uint32_t m = 0; m < pass->count; m++) {
		floats += pass->rows[m].logits ? nv : pass->rows[m].k;
		ids += pass->rows[m].logits ? 0 : pass->rows[m].k;
	}
	*c = (struct copies){.rows = malloc((pass->count + 1) * sizeof *c->rows),
			     .floats = malloc((floats + 1) * sizeof *c->floats),
			     .ids = malloc((ids + 1) * sizeof *c->ids)};
	if (!c->rows || !c->floats || !c->ids)
		return false;
	float *f = c->floats;
	uint32_t *i = c->ids;
	for (uint32_t m = 0; m < pass->count; m++) {
		c->rows[m] = pass->rows[m];
		if (c->rows[m].logits) {
			c->rows[m].logits = f;
			f += nv;
			continue;
		}
		c->rows[m].values = f;
		c->rows[m].ids = i;
		f += c->rows[m].k;
		i += c->rows[m].k;
	}
	c->pass = (struct pass){pass->q, c->rows, pass->count};
	return true;
}

/* The first of `count` words that differs; `count`: none. */
static uint32_t first_difference(const void *a, const void *b, uint32_t count)
{
	const unsigned char *x = a, *y = b;
	uint32_t i = 0;
	while (i < count && memcmp(x + (size_t)i * 4, y + (size_t)i * 4, 4) == 0)
		i++;
	return i;
}

static int compare(const struct pass *pass, const struct pass *with, uint32_t nv, const char *names[2],
		   struct err *err)
{
	for (uint32_t m = 0; m < pass->count; m++) {
		const struct pass_row *a = &pass->rows[m], *b = &with->rows[m];
		const float *x = a->logits ? a->logits : a->values, *y = b->logits ? b->logits : b->values;
		uint32_t count = a->logits ? nv : a->k, at = first_difference(x, y, count), bits[2];
		if (!a->logits && first_difference(a->ids, b->ids, count) < at)
			at = first_difference(a->ids, b->ids, count);
		if (at == count)
			continue;
		memcpy(&bits[0], &x[at], 4);
		memcpy(&bits[1], &y[at], 4);
		if (!a->logits)
			return err_set(err, NPU_E_DIFFERENCE,
				       "row %u of the pass: in place %u of the best words is %u with %.9g "
				       "(0x%08x) by %s "
				       "and %u with %.9g (0x%08x) by %s",
				       m, at, a->ids[at], (double)x[at], bits[0], names[0], b->ids[at],
				       (double)y[at], bits[1], names[1]);
		return err_set(err, NPU_E_DIFFERENCE,
			       "row %u of the pass: logit %u is %.9g (0x%08x) by %s and %.9g (0x%08x) by %s",
			       m, at, (double)x[at], bits[0], names[0], (double)y[at], bits[1], names[1]);
	}
	return 0;
}

static int no_memory(struct err *err, const struct pass *pass)
{
	return err_set(err, NPU_E_NO_MEMORY, "no memory for a pass of %u rows", pass->count);
}

/* Runs what has been run by `report` another way and compares. */
static int verify_pass(struct engine *e, struct target *t, const struct pass *pass,
		       const struct engine_report *report, const struct path_facts *facts, struct err *err)
{
	cleanup(copies_fini) struct copies c = {};
	const char *names[2] = {report->kernel, e->reference.head_variant}, *failed = NULL;

	if (!copies_init(&c, pass, t->image.geometry.nv))
		return no_memory(err, pass);
	if (report->path == PATH_DEVICE) {
		names[1] = e->kernels->head_variant;
		if (!image_run(&t->image, e->kernels, e->pool, &c.pass))
			return no_memory(err, pass);
	} else if (facts->device) {
		names[1] = "the device";
		failed =
			facts->reserved ? "it is reserved by an exclusive ticket" : device_run(e, t, &c.pass);
		if (failed)
			return err_set(err, NPU_E_NO_PATH, "verify needs the device too: %s", failed);
	} else if (!image_run(&t->image, &e->reference, e->pool, &c.pass)) {
		return no_memory(err, pass);
	}
	return compare(pass, &c.pass, t->image.geometry.nv, names, err);
}

static bool device_well(struct engine *e)
{
	struct runner_status s;
	runner_status(e->runner, &s);
	return s.health == HEALTH_OK;
}

int engine_run(struct engine *e, struct target *t, const struct pass *pass, enum path asked, bool reserved,
	       bool verify, struct engine_report *report, struct err *err)
{
	unsigned size = path_size(pass->count);
	struct path_facts facts = {
		.asked = asked,
		.rows = pass->count,
		.device = t->device != NULL,
		.well = t->device && device_well(e),
		.reserved = reserved,
		.mapped = true, /* what runners allocate is ordinary memory for the host */
		.turn = t->device_next,
		.host = t->costs.host[size],
		.device_cost = t->costs.device[size],
	};
	struct path_choice choice = path_choose(&facts);
	const char *failed = NULL;
	double begun = clock_now();

	if (choice.path == PATH_AUTO)
		return err_set(err, NPU_E_NO_PATH, "path=%s cannot be had: %s", path_name(asked), choice.why);
	t->device_next = !t->device_next;
	*report = (struct engine_report){.path = choice.path, .kernel = "device"};
	snprintf(report->why, sizeof report->why, "%s", choice.why);
	if (choice.path == PATH_DEVICE) {
		failed = device_run(e, t, pass);
		if (!failed) {
			path_measured(&t->costs.device[size], clock_now() - begun);
			report->launch_rows = weights_rows(t->device[0]);
		} else if (asked == PATH_DEVICE) {
			return err_set(err, NPU_E_NO_PATH, "path=device cannot be had: %s", failed);
		} else {
			snprintf(report->why, sizeof report->why, "%s", failed);
		}
	}
	if (choice.path == PATH_HOST || failed) {
		begun = clock_now();
		report->path = PATH_HOST;
		report->kernel = e->kernels->head_variant;
		report->fallback = facts.device && asked != PATH_HOST && (failed || !facts.well || reserved);
		if (!image_run(&t->image, e->kernels, e->pool, pass))
			return no_memory(err, pass);
		path_measured(&t->costs.host[size], clock_now() - begun);
	}
	return verify ? verify_pass(e, t, pass, report, &facts, err) : 0;
}
