#include "runner_impl.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PARKED_POLL_MS 1000u

const struct runner_options runner_defaults = {
	.settings = "",
	.times = {.idle_ms = 30000, .stale_ms = 5000, .retry_ms = 2000, .recovery_ms = 60000},
	.launch_ms = 5000,
	.call_ms = 10000,
	.residue = residue_ref,
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t runner_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t runner_ms(void)
{
	return runner_ns() / 1000000;
}

/* How long the machine has slept since it was started. */
static uint64_t slept_ms(void)
{
	uint64_t with = clock_ns(CLOCK_BOOTTIME), without = clock_ns(CLOCK_MONOTONIC);

	return with > without ? (with - without) / 1000000 : 0;
}

static void wait_until_ms(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t ms)
{
	struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	if (ms)
		pthread_cond_timedwait(cond, lock, &t);
	else
		pthread_cond_wait(cond, lock);
}

void call_begin(struct runner *r, const char *what, uint32_t ms)
{
	r->call = what;
	r->call_due = runner_ms() + ms;
	/* The watcher is woken only if it would look too late: calls are many. */
	if (!r->watched_until || r->call_due < r->watched_until)
		pthread_cond_signal(&r->tick);
	pthread_mutex_unlock(&r->lock);
}

void call_end(struct runner *r)
{
	pthread_mutex_lock(&r->lock);
	r->call = NULL;
}

void runner_say(struct runner *r, const char *format, ...)
{
	char text[sizeof r->status.reason];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (strcmp(text, r->status.reason) == 0)
		return;
	memcpy(r->status.reason, text, sizeof text);
	if (*text) {
		memcpy(r->status.trouble, text, sizeof text);
		r->trouble_at = runner_ms();
	}
	if (r->options.event)
		r->options.event(r->options.arg, *text ? text : "the device is well: the canary passed");
}

void runner_fail_all(struct runner *r)
{
	struct job *failed = r->queue, **end = &failed;

	while (*end)
		end = &(*end)->next;
	r->queue = NULL;
	r->queue_end = &r->queue;
	r->status.queued = 0;
	for (uint32_t i = 0; i < SLOTS; i++) {
		if (!r->slots[i].job)
			continue;
		*end = r->slots[i].job;
		end = &(*end)->next;
		*end = NULL;
		r->slots[i].job = NULL;
	}
	for (struct job *j = failed; j; j = j->next)
		r->status.refused++;
	pthread_mutex_unlock(&r->lock);
	while (failed) {
		struct job *job = failed;
		failed = job->next; /* done may free it */
		job->result = JOB_REFUSED;
		job->done(job);
	}
	pthread_mutex_lock(&r->lock);
}

/* The watching thread: a call that is overdue fails everybody who waits, once. */
static void *watch(void *arg)
{
	struct runner *r = arg;
	const uint64_t never = 0;
	uint64_t told = never;

	pthread_mutex_lock(&r->lock);
	while (!r->watcher_stop) {
		r->watched_until = r->call && r->call_due != told ? r->call_due : never;
		if (r->watched_until && runner_ms() >= r->watched_until) {
			told = r->call_due;
			keeper_note(&r->keeper, KEEPER_STUCK, runner_ms());
			runner_say(r,
				   "%s: the driver has not come back from it; the host does the work; if it "
				   "stays so, restart "
				   "npud, and the machine if that does not help",
				   r->call);
			runner_fail_all(r);
			continue;
		}
		wait_until_ms(&r->tick, &r->lock, r->watched_until);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void context_close(struct runner *r)
{
	struct device_context *c = r->context;

	r->context = NULL;
	r->status.context = false;
	call_begin(r, "closing a context", r->options.call_ms);
	if (c)
		r->table->context_close(c);
	call_end(r);
	slots_fini(r);
	keeper_note(&r->keeper, KEEPER_CLOSED, runner_ms());
}

/* No context: says who has them, as far as the driver tells. */
static void say_no_context(struct runner *r, const char *why)
{
	const struct device_limits *l = &r->status.limits;
	char count[64] = "";

	if (l->contexts_max)
		snprintf(count, sizeof count, " (%u of %u are in use)", l->contexts_used, l->contexts_max);
	runner_say(r,
		   "no hardware context is free%s: %.200s; other programs hold them (fuser -v "
		   "/dev/accel/accel0 names them); "
		   "npud asks again, and the host does the work",
		   count, why);
}

static void context_open(struct runner *r)
{
	struct device_why why = {""};
	struct device_limits limits = {0};

	if (r->queue)
		r->design = r->queue->weights->design;
	call_begin(r, "opening a context", r->options.call_ms);
	int code = r->table->context_open(&r->context, r->device, r->design, &why);
	r->table->limits(r->device, &limits);
	call_end(r);
	r->status.limits = limits;
	if (code == DEVICE_E_NO_CONTEXT) {
		r->status.contexts_refused++;
		keeper_note(&r->keeper, KEEPER_NO_CONTEXT, runner_ms());
		say_no_context(r, why.text);
		return;
	}
	if (code) {
		keeper_note(&r->keeper, KEEPER_OPEN_FAILED, runner_ms());
		runner_say(r,
			   "no context can be opened: %.250s; the host does the work; npud --check-device "
			   "says more",
			   why.text);
		return;
	}
	r->status.contexts_opened++;
	r->status.context = true;
	keeper_note(&r->keeper, KEEPER_OPENED, runner_ms());
	if (slots_init(r, &why))
		return;
	keeper_note(&r->keeper, KEEPER_FAULT, runner_ms());
	runner_say(r, "no memory for launches: %.250s; the host does the work", why.text);
}

static void notice_sleep(struct runner *r)
{
	uint64_t slept = slept_ms();

	/* The two clocks are read one after the other: they differ by a little always. */
	if (slept > r->slept_ms + 500) {
		keeper_note(&r->keeper, KEEPER_RESUMED, runner_ms());
		r->slept_ms = slept;
	}
}

static void step(struct runner *r)
{
	uint64_t wake, now = runner_ms();

	switch (keeper_next(&r->keeper, now, r->queue != NULL, r->status.parked, &wake)) {
	case STEP_WAIT:
		if (r->parked && (!wake || wake > now + PARKED_POLL_MS))
			wake = now + PARKED_POLL_MS;
		wait_until_ms(&r->wake, &r->lock, wake);
		break;
	case STEP_OPEN:
		context_open(r);
		break;
	case STEP_PROVE:
		launch_prove(r);
		break;
	case STEP_WORK:
		if (r->queue->weights->design == r->design)
			launch_work(r);
		else
			context_close(r); /* one context at a time: this job's design is another */
		break;
	case STEP_CLOSE:
		context_close(r);
		break;
	}
	r->status.recoveries = r->keeper.recoveries;
	if (r->keeper.health != HEALTH_OK && r->queue)
		runner_fail_all(r);
}

static void *work(void *arg)
{
	struct runner *r = arg;

	pthread_mutex_lock(&r->lock);
	while (!r->stop) {
		notice_sleep(r);
		if (r->parked)
			parked_poll(r);
		step(r);
	}
	runner_fail_all(r);
	launch_drain(r);
	if (r->context)
		context_close(r);
	parked_poll(r);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void fini_lock(struct runner *r)
{
	pthread_cond_destroy(&r->wake);
	pthread_cond_destroy(&r->tick);
	pthread_mutex_destroy(&r->lock);
}

static void init_lock(struct runner *r)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->wake, &monotonic);
	pthread_cond_init(&r->tick, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static void end_watcher(struct runner *r)
{
	pthread_mutex_lock(&r->lock);
	r->watcher_stop = true;
	pthread_cond_signal(&r->tick);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->watcher, NULL);
}

int runner_new(struct runner **out, const struct runner_options *options, struct device_why *why)
{
	struct runner *r = calloc(1, sizeof *r);

	if (!r) {
		snprintf(why->text, sizeof why->text, "no memory");
		return DEVICE_E_NO_MEMORY;
	}
	r->options = *options;
	r->table = options->table;
	int code = r->table->open(&r->device, options->settings, why);
	if (code) {
		free(r);
		return code;
	}
	init_lock(r);
	r->queue_end = &r->queue;
	r->design = options->designs;
	r->slept_ms = slept_ms();
	keeper_init(&r->keeper, &options->times, runner_ms());
	snprintf(r->status.reason, sizeof r->status.reason, "it has yet to be tried");
	r->table->limits(r->device, &r->status.limits);
	bool watched = pthread_create(&r->watcher, NULL, watch, r) == 0;
	if (watched && pthread_create(&r->thread, NULL, work, r) == 0) {
		*out = r;
		return DEVICE_OK;
	}
	if (watched)
		end_watcher(r);
	fini_lock(r);
	r->table->close(r->device);
	free(r);
	snprintf(why->text, sizeof why->text, "no thread can be had for the device");
	return DEVICE_E_NO_MEMORY;
}

/* Runners that a device would not let go of: kept, since their threads or their device still use them. */
static struct runner *abandoned[16];

static void abandon(struct runner *r)
{
	for (size_t i = 0; i < sizeof abandoned / sizeof *abandoned; i++)
		if (__sync_bool_compare_and_swap(&abandoned[i], NULL, r))
			return;
}

void runner_close(struct runner *r)
{
	struct timespec until;

	if (r->ended)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec +=
		(time_t)(((uint64_t)r->options.launch_ms * IN_FLIGHT_MAX + r->options.call_ms) / 1000 + 1);
	if (pthread_timedjoin_np(r->thread, NULL, &until))
		return;
	r->ended = true;
	end_watcher(r);
}

void runner_free(struct runner *r)
{
	if (!r)
		return;
	if (!r->ended || r->status.parked) {
		abandon(r);
		return;
	}
	fini_lock(r);
	r->table->close(r->device);
	free(r);
}

bool runner_submit(struct runner *r, struct job *job)
{
	pthread_mutex_lock(&r->lock);
	bool taken = r->keeper.health == HEALTH_OK && !r->stop;
	if (taken) {
		job->next = NULL;
		job->acc = NULL;
		*r->queue_end = job;
		r->queue_end = &job->next;
		r->status.queued++;
		pthread_cond_signal(&r->wake);
	} else {
		r->status.refused++;
	}
	pthread_mutex_unlock(&r->lock);
	return taken;
}

void runner_status(struct runner *r, struct runner_status *out)
{
	pthread_mutex_lock(&r->lock);
	*out = r->status;
	out->health = r->keeper.health;
	out->trouble_ms = *out->trouble ? runner_ms() - r->trouble_at : 0;
	pthread_mutex_unlock(&r->lock);
}

static uint32_t own_contexts(struct runner *r)
{
	pthread_mutex_lock(&r->lock);
	uint32_t own = r->status.parked + r->status.context;
	pthread_mutex_unlock(&r->lock);
	return own;
}

void runner_limits(struct runner *r, struct device_limits *out, uint32_t *own)
{
	/* One that is opened or closed meanwhile is nobody else's. */
	uint32_t before = own_contexts(r), after;
	r->table->limits(r->device, out);
	after = own_contexts(r);
	*own = before > after ? before : after;
	if (*own > out->contexts_used)
		*own = out->contexts_used;
}
