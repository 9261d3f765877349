/*
 * Launches, as the device's thread makes them. While the results of one are looked at the next ones run:
 * that is what the slot more than may be in flight is for. A slot's job may be taken away at any time the
 * lock is not held (the watcher fails jobs when a call does not come back); its buffers may not.
 */
#include "canary.h"
#include "runner_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of_a(const struct design *d)
{
	return (size_t)d->rows * d->kd;
}

static size_t bytes_of_c(const struct design *d, uint32_t rows)
{
	return (size_t)rows * d->nd * sizeof(int32_t);
}

bool slots_init(struct runner *r, struct device_why *why)
{
	const struct device_table *t = r->table;
	bool good = true;

	call_begin(r, "allocating buffers", r->options.call_ms);
	for (uint32_t i = 0; i < SLOTS && good; i++) {
		struct slot *s = &r->slots[i];
		void *q = NULL, *acc = NULL;
		*s = (struct slot){0};
		good = !t->buffer_new(&s->a, r->device, DEVICE_A, bytes_of_a(r->design), &q, why) &&
		       !t->buffer_new(&s->c, r->device, DEVICE_C, bytes_of_c(r->design, r->design->rows),
				      &acc, why);
		s->q = q;
		s->acc = acc;
	}
	call_end(r);
	return good;
}

void slots_fini(struct runner *r)
{
	call_begin(r, "freeing buffers", r->options.call_ms);
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *s = &r->slots[i];
		if (s->a)
			r->table->buffer_free(s->a);
		if (s->c)
			r->table->buffer_free(s->c);
		s->a = s->c = NULL;
	}
	call_end(r);
}

static struct slot *slot_free(struct runner *r)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		if (!r->slots[i].used)
			return &r->slots[i];
	return NULL;
}

/* Starts what is in the slot's A on its weights. Lock held. */
static bool start(struct runner *r, struct slot *s, struct device_why *why)
{
	call_begin(r, "starting a launch", r->options.call_ms);
	s->started_ns = runner_ns();
	int code = r->table->buffer_sync(s->a, DEVICE_TO, 0, bytes_of_a(r->design), why);
	if (code == 0)
		code = r->table->launch(&s->run, r->context, s->a, s->weights->buffer, s->c, why);
	call_end(r);
	if (code)
		return false;
	r->status.launches++;
	if (r->flying_count == 0)
		r->front_since = runner_ms();
	r->flying[r->flying_count++] = s;
	r->status.in_flight = r->flying_count;
	return true;
}

static void slot_done(struct runner *r, struct slot *s)
{
	struct weights *w = s->weights;

	s->weights = NULL;
	call_begin(r, "freeing weights", r->options.call_ms);
	weights_release(w);
	call_end(r);
	s->used = false;
}

static void land(struct runner *r)
{
	r->flying_count--;
	memmove(r->flying, r->flying + 1, r->flying_count * sizeof *r->flying);
	r->front_since = runner_ms();
	r->status.in_flight = r->flying_count;
}

/* Waits for the oldest launch until its deadline; final ones have landed and their run is freed. */
static enum device_state wait_front(struct runner *r)
{
	struct slot *s = r->flying[0];
	uint64_t due = r->front_since + r->options.launch_ms, now = runner_ms();
	uint32_t left = due > now ? (uint32_t)(due - now) : 0;

	call_begin(r, "waiting for a launch", left + r->options.call_ms);
	enum device_state state = r->table->wait(s->run, left);
	if (state != DEVICE_BUSY)
		r->table->run_free(s->run);
	call_end(r);
	if (state != DEVICE_BUSY) {
		s->run = NULL;
		land(r);
	}
	return state;
}

/* Leaves the oldest launch, which does not end, to itself: with everything that the device may touch. */
static void park_front(struct runner *r)
{
	struct slot *s = r->flying[0];
	struct parked *p = malloc(sizeof *p);

	land(r);
	r->status.parked++;
	r->status.parked_ever++;
	if (p) {
		*p = (struct parked){r->parked, s->run, s->a, s->c, s->weights};
		r->parked = p;
	} /* else it stays where it is for ever: nothing may be freed that the device may write */
	*s = (struct slot){.used = true};
}

void launch_drain(struct runner *r)
{
	while (r->flying_count) {
		struct slot *s = r->flying[0];
		if (wait_front(r) == DEVICE_BUSY)
			park_front(r);
		else
			slot_done(r, s);
	}
}

void parked_poll(struct runner *r)
{
	for (struct parked **at = &r->parked; *at;) {
		struct parked *p = *at;
		call_begin(r, "asking for a parked run", r->options.call_ms);
		bool over = r->table->wait(p->run, 0) != DEVICE_BUSY;
		if (over) {
			r->table->run_free(p->run);
			r->table->buffer_free(p->a);
			r->table->buffer_free(p->c);
			weights_release(p->weights);
		}
		call_end(r);
		if (!over) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		free(p);
		r->status.parked--;
	}
}

/* Takes the job from its slot; NULL where it was failed already. Lock held. */
static struct job *job_of(struct slot *s)
{
	struct job *job = s->job;

	s->job = NULL;
	return job;
}

/* What became of a job, told without the lock. */
static void tell(struct runner *r, struct job *job, enum job_result result)
{
	if (!job)
		return;
	job->result = result;
	pthread_mutex_unlock(&r->lock);
	job->done(job);
	pthread_mutex_lock(&r->lock);
}

static void count(struct runner *r, enum job_result result)
{
	switch (result) {
	case JOB_DONE:
		r->status.done++;
		break;
	case JOB_TIMEOUT:
		r->status.timeouts++;
		break;
	case JOB_ERROR:
		r->status.errors++;
		break;
	case JOB_HANG:
		r->status.hangs++;
		break;
	case JOB_MISMATCH:
		r->status.mismatches++;
		break;
	case JOB_REFUSED:
		r->status.refused++;
		break;
	}
}

/* A launch went wrong: everybody is told, and the context is done with. The slot's own launch has landed or
 * hangs. */
static void fault(struct runner *r, struct slot *s, enum job_result result, const char *what)
{
	struct job *job = job_of(s);

	count(r, result);
	keeper_note(&r->keeper, KEEPER_FAULT, runner_ms());
	runner_say(r, "%s; its context is given up and the host does the work%s", what,
		   r->keeper.health == HEALTH_FAILED
			   ? ", until the next recovery; npud --check-device says more"
			   : ", until a canary passes");
	tell(r, job, result);
	runner_fail_all(r);
	launch_drain(r);
}

static const struct {
	enum job_result result;
	const char *what;
} endings[] = {
	[DEVICE_BUSY] = {JOB_HANG, "a launch did not end by its deadline"},
	[DEVICE_TIMED_OUT] = {JOB_TIMEOUT, "the driver ended a launch as timed out"},
	[DEVICE_FAILED] = {JOB_ERROR, "the driver says that a launch failed"},
};

/* Starts the job at the head of the queue. False after a fault. Lock held. */
static bool begin(struct runner *r, struct slot *s)
{
	struct job *job = r->queue;
	struct device_why why = {""};
	size_t codes = (size_t)job->rows * r->design->kd;

	r->queue = job->next;
	if (!r->queue)
		r->queue_end = &r->queue;
	r->status.queued--;
	s->used = true;
	s->job = job;
	s->weights = weights_keep(job->weights);
	memcpy(s->q, job->q, codes);
	memset(s->q + codes, 0, bytes_of_a(r->design) - codes);
	if (start(r, s, &why))
		return true;
	char what[512];
	snprintf(what, sizeof what, "a launch could not be started: %s", why.text);
	fault(r, s, JOB_ERROR, what);
	slot_done(r, s);
	return false;
}

/* Launches what may be. False after a fault. */
static bool fill(struct runner *r)
{
	struct slot *s;

	while (!r->stop && r->queue && r->flying_count < IN_FLIGHT_MAX &&
	       r->queue->weights->design == r->design && (s = slot_free(r)))
		if (!begin(r, s))
			return false;
	return true;
}

/* The result of a launch that completed: checked, and handed over. */
static void hand_over(struct runner *r, struct slot *s)
{
	struct device_why why = {""};
	uint32_t rows = s->job ? s->job->rows : 0, bad = 0;
	uint64_t ended_ns = runner_ns();

	call_begin(r, "reading a result", r->options.call_ms);
	int code = rows ? r->table->buffer_sync(s->c, DEVICE_FROM, 0, bytes_of_c(r->design, rows), &why) : 0;
	if (code == 0)
		bad = check_rows(&s->weights->check, r->options.residue, s->q, rows, s->acc);
	call_end(r);
	if (code || bad < rows) {
		char what[512];
		if (code)
			snprintf(what, sizeof what, "a result could not be read: %s", why.text);
		else
			snprintf(what, sizeof what,
				 "the device reported success over a wrong result (row %u of %u)", bad, rows);
		fault(r, s, code ? JOB_ERROR : JOB_MISMATCH, what);
	} else if (rows) {
		keeper_note(&r->keeper, KEEPER_WORKED, runner_ms());
		struct job *job = job_of(s);
		if (job) {
			job->acc = s->acc;
			job->device_ns = ended_ns - s->started_ns;
			count(r, JOB_DONE);
			tell(r, job, JOB_DONE);
		}
	}
	slot_done(r, s);
}

/* Sees one launch to its end. False where this context is not to be used any more. */
static bool work_on(struct runner *r)
{
	struct slot *s = r->flying[0];
	enum device_state state = wait_front(r);

	if (state != DEVICE_COMPLETED) {
		fault(r, s, endings[state].result, endings[state].what);
		if (state != DEVICE_BUSY)
			slot_done(r, s);
		return false;
	}
	if (fill(r))
		hand_over(r, s);
	else
		slot_done(r, s); /* its job was failed with the others */
	return r->keeper.context == CONTEXT_READY;
}

void launch_work(struct runner *r)
{
	while (fill(r) && r->flying_count && work_on(r))
		;
	launch_drain(r);
}

/* Weights for a canary: those of the next job, or some made for it. Lock held. */
static struct weights *canary_weights(struct runner *r, struct device_why *why)
{
	struct weights *w = NULL;

	if (r->queue && r->queue->weights->design == r->design)
		return weights_keep(r->queue->weights);
	call_begin(r, "allocating a canary", r->options.call_ms);
	if (weights_new(&w, r, r->design, why) == DEVICE_OK) {
		size_t size = (size_t)w->tile.kd * w->tile.nd;
		canary_codes(w->tile.codes, size);
		if (r->table->buffer_sync(w->buffer, DEVICE_TO, 0, size, why)) {
			weights_release(w);
			w = NULL;
		}
	}
	call_end(r);
	return w;
}

/* Runs the canary that the slot holds. Lock held. */
static bool canary_sings(struct runner *r, struct slot *s, struct device_why *why)
{
	const struct design *d = r->design;
	size_t bytes = bytes_of_c(d, d->rows);
	enum device_state state;

	canary_rows(s->q, d->rows, d->kd);
	/* What a device leaves as it was must not pass for an answer. */
	memset(s->acc, 0x5a, bytes);
	call_begin(r, "preparing a canary", r->options.call_ms);
	int code = r->table->buffer_sync(s->c, DEVICE_TO, 0, bytes, why);
	call_end(r);
	if (code || !start(r, s, why)) {
		slot_done(r, s);
		return false;
	}
	state = wait_front(r);
	if (state == DEVICE_BUSY) {
		snprintf(why->text, sizeof why->text, "%s", endings[state].what);
		park_front(r);
		return false;
	}
	if (state == DEVICE_COMPLETED) {
		call_begin(r, "reading a canary", r->options.call_ms);
		bool right = r->table->buffer_sync(s->c, DEVICE_FROM, 0, bytes, why) == 0;
		if (right && !(right = canary_right(&s->weights->tile, s->q, d->rows, s->acc)))
			snprintf(why->text, sizeof why->text, "its answer is wrong");
		call_end(r);
		slot_done(r, s);
		return right;
	}
	snprintf(why->text, sizeof why->text, "%s", endings[state].what);
	slot_done(r, s);
	return false;
}

void launch_prove(struct runner *r)
{
	struct device_why why = {""};
	struct slot *s = slot_free(r);
	bool was_well = r->keeper.health == HEALTH_OK, right = false;

	r->status.canaries++;
	if (!s || !s->a || !s->c)
		snprintf(why.text, sizeof why.text, "it has no buffers");
	else if ((s->weights = canary_weights(r, &why))) {
		s->used = true;
		right = canary_sings(r, s, &why);
	}
	keeper_note(&r->keeper, right ? KEEPER_PROVEN : KEEPER_PROOF_FAILED, runner_ms());
	if (right) {
		if (!was_well)
			runner_say(r, "%s", "");
		return;
	}
	r->status.canaries_failed++;
	if (r->keeper.health == HEALTH_OK)
		return; /* lost while idle: renewed without ado */
	runner_say(r, "the canary, a launch with a known answer, failed: %s; the host does the work%s",
		   why.text,
		   r->keeper.health == HEALTH_FAILED ? " until the next recovery; see npud --check-device, "
						       "and whether the kernel set is for this NPU"
						     : ", and a new context is tried");
}
