/*
 * A run belongs to its context's queue until the device's thread takes it, then to the thread until it is
 * final. A context that hangs keeps the run at its head for ever, or until the watchdog ends it. A context
 * counts against the limit until it is closed and its last run is freed. Buffers are not counted:
 * who frees one that a run still uses is told so by a sanitizer, which is what tests want.
 */
#include "soft.h"
#include "simulation.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct device_run {
	struct device_context *context;
	struct device_buffer *a, *b, *c;
	struct device_run *next;
	enum device_state state;
	bool hanging;
	uint64_t hangs_until; /* 0: for ever */
	uint64_t launch;      /* its number */
};

struct device_context {
	struct device *device;
	struct design design;
	struct device_context *next;
	struct device_run *head, *tail;
	uint32_t runs; /* not freed */
	bool closed;
	uint64_t last_used;
};

struct device_buffer {
	struct device *device;
	size_t size, mapped; /* of each of the two, which are one map */
	char *host, *shadow;
};

struct device {
	struct simulation simulation;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	pthread_t thread;
	bool stop;
	struct device_context *contexts;
	uint32_t context_count;
	uint64_t openings, no_context_until, launches, heap_used;
};

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static struct timespec at_ms(uint64_t ms)
{
	return (struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
}

static int refuse(struct device_why *why, int code, const char *text)
{
	snprintf(why->text, sizeof why->text, "software device: %s", text);
	return code;
}

/* Called with the lock held, which is released while computing: the run is the thread's. */
static enum device_state compute(struct device *d, struct device_run *r, enum simulation_fault fault)
{
	const struct design *g = &r->context->design;
	int32_t *c = (int32_t *)r->c->shadow;

	if (fault == SIMULATION_ERROR)
		return DEVICE_FAILED;
	if (fault == SIMULATION_TIMEOUT)
		return DEVICE_TIMED_OUT;
	pthread_mutex_unlock(&d->lock);
	if (d->simulation.latency_us) {
		struct timespec nap = {(time_t)(d->simulation.latency_us / 1000000),
				       (long)(d->simulation.latency_us % 1000000) * 1000};
		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
	}
	if (fault != SIMULATION_STALE && fault != SIMULATION_GARBAGE)
		simulation_compute((const int8_t *)r->a->shadow, (const int8_t *)r->b->shadow, c, g->rows,
				   g->kd, g->nd, g->layout);
	simulation_spoil(fault, r->launch, c, g->rows, g->nd);
	pthread_mutex_lock(&d->lock);
	return DEVICE_COMPLETED;
}

/* The next run to work on; NULL, and the time at which a hanging one ends (0: none does), where there is
 * none. */
static struct device_run *next_run(struct device *d, uint64_t now, uint64_t *until)
{
	*until = 0;
	for (struct device_context *c = d->contexts; c; c = c->next) {
		struct device_run *r = c->head;
		if (!r)
			continue;
		if (!r->hanging || (r->hangs_until && now >= r->hangs_until))
			return r;
		if (r->hangs_until && (!*until || r->hangs_until < *until))
			*until = r->hangs_until;
	}
	return NULL;
}

static void finish(struct device *d, struct device_run *r, enum device_state state)
{
	struct device_context *c = r->context;

	c->head = r->next;
	if (!c->head)
		c->tail = NULL;
	c->last_used = now_ms();
	r->state = state;
	pthread_cond_broadcast(&d->done);
}

static void serve(struct device *d, struct device_run *r)
{
	if (r->hanging) { /* the watchdog's time has come, and the device's last words */
		finish(d, r, (compute(d, r, SIMULATION_GARBAGE), DEVICE_TIMED_OUT));
		return;
	}
	uint64_t now = now_ms(), lost = d->simulation.lost_ms;
	enum simulation_fault fault = simulation_fault(&d->simulation, r->launch);
	if (lost && now - r->context->last_used >= lost)
		fault = SIMULATION_ERROR;
	if (fault == SIMULATION_HANG) {
		r->hanging = true;
		r->hangs_until = d->simulation.watchdog_ms ? now + d->simulation.watchdog_ms : 0;
		return;
	}
	finish(d, r, compute(d, r, fault));
}

static void *work(void *arg)
{
	struct device *d = arg;

	pthread_mutex_lock(&d->lock);
	while (!d->stop) {
		uint64_t until;
		struct device_run *r = next_run(d, now_ms(), &until);
		if (r) {
			serve(d, r);
		} else if (until) {
			struct timespec t = at_ms(until);
			pthread_cond_timedwait(&d->work, &d->lock, &t);
		} else {
			pthread_cond_wait(&d->work, &d->lock);
		}
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

static int soft_open(struct device **out, const char *settings, struct device_why *why)
{
	struct device *d = calloc(1, sizeof *d);
	pthread_condattr_t monotonic;

	if (!d)
		return refuse(why, DEVICE_E_NO_MEMORY, "no memory");
	if (!simulation_parse(&d->simulation, settings, why->text, sizeof why->text)) {
		free(d);
		return DEVICE_E_BAD_CALL;
	}
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->work, &monotonic);
	pthread_cond_init(&d->done, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (pthread_create(&d->thread, NULL, work, d)) {
		free(d);
		return refuse(why, DEVICE_E_NO_MEMORY, "no thread can be had");
	}
	*out = d;
	return DEVICE_OK;
}

/* Unlinks a context that nobody needs any more. */
static void context_drop(struct device_context *c)
{
	struct device_context **at = &c->device->contexts;

	if (!c->closed || c->runs)
		return;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->device->context_count--;
	free(c);
}

static void soft_close(struct device *d)
{
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	pthread_cond_signal(&d->work);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->thread, NULL);
	pthread_cond_destroy(&d->work);
	pthread_cond_destroy(&d->done);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static void soft_limits(struct device *d, struct device_limits *out)
{
	pthread_mutex_lock(&d->lock);
	*out = (struct device_limits){.contexts_used = d->context_count + (uint32_t)d->simulation.others,
				      .contexts_max = (uint32_t)d->simulation.contexts_max,
				      .heap_bytes = d->simulation.heap_bytes,
				      .version = "simulated"};
	pthread_mutex_unlock(&d->lock);
}

static int soft_context_open(struct device_context **out, struct device *d, const struct design *design,
			     struct device_why *why)
{
	struct device_context *c = calloc(1, sizeof *c);
	int result = DEVICE_OK;

	if (!c)
		return refuse(why, DEVICE_E_NO_MEMORY, "no memory");
	pthread_mutex_lock(&d->lock);
	uint64_t now = now_ms();
	if (++d->openings == d->simulation.no_context_at)
		d->no_context_until = now + d->simulation.no_context_ms;
	if (now < d->no_context_until ||
	    d->context_count + d->simulation.others >= d->simulation.contexts_max) {
		snprintf(why->text, sizeof why->text, "software device: all %llu contexts are taken",
			 (unsigned long long)d->simulation.contexts_max);
		free(c);
		result = DEVICE_E_NO_CONTEXT;
	} else {
		*c = (struct device_context){
			.device = d, .design = *design, .next = d->contexts, .last_used = now};
		d->contexts = c;
		d->context_count++;
		*out = c;
	}
	pthread_mutex_unlock(&d->lock);
	return result;
}

static void soft_context_close(struct device_context *c)
{
	struct device *d = c->device;

	pthread_mutex_lock(&d->lock);
	c->closed = true;
	context_drop(c);
	pthread_mutex_unlock(&d->lock);
}

static int soft_buffer_new(struct device_buffer **out, struct device *d, enum device_use use, size_t size,
			   void **map, struct device_why *why)
{
	struct device_buffer *b = calloc(1, sizeof *b);
	uint64_t limit = d->simulation.heap_bytes;

	(void)use;
	if (!b || size == 0 || size > SIZE_MAX / 4) {
		free(b);
		return refuse(why, DEVICE_E_NO_MEMORY, "no memory for a buffer");
	}
	pthread_mutex_lock(&d->lock);
	bool fits = !limit || (d->heap_used <= limit && size <= limit - d->heap_used);
	if (fits)
		d->heap_used += size;
	pthread_mutex_unlock(&d->lock);
	*b = (struct device_buffer){.device = d, .size = size, .mapped = (size + 4095) / 4096 * 4096};
	/* Not of the heap, which would keep it for the daemon's life. */
	b->host = fits ? mmap(NULL, 2 * b->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
		       : MAP_FAILED;
	if (b->host == MAP_FAILED) {
		pthread_mutex_lock(&d->lock);
		d->heap_used -= fits ? size : 0;
		pthread_mutex_unlock(&d->lock);
		free(b);
		snprintf(why->text, sizeof why->text, "software device: no room for a buffer of %zu bytes",
			 size);
		return DEVICE_E_NO_MEMORY;
	}
	b->shadow = b->host + b->mapped;
	*map = b->host;
	*out = b;
	return DEVICE_OK;
}

static int soft_buffer_sync(struct device_buffer *b, enum device_direction to, size_t from, size_t size,
			    struct device_why *why)
{
	if (from > b->size || size > b->size - from) {
		snprintf(why->text, sizeof why->text,
			 "software device: %zu bytes from %zu of a buffer of %zu", size, from, b->size);
		return DEVICE_E_BAD_CALL;
	}
	if (to == DEVICE_TO)
		memcpy(b->shadow + from, b->host + from, size);
	else
		memcpy(b->host + from, b->shadow + from, size);
	return DEVICE_OK;
}

static void soft_buffer_free(struct device_buffer *b)
{
	struct device *d = b->device;

	pthread_mutex_lock(&d->lock);
	d->heap_used -= b->size;
	pthread_mutex_unlock(&d->lock);
	munmap(b->host, 2 * b->mapped);
	free(b);
}

static int soft_launch(struct device_run **out, struct device_context *c, struct device_buffer *a,
		       struct device_buffer *b, struct device_buffer *to, struct device_why *why)
{
	struct device *d = c->device;
	const struct design *g = &c->design;

	if (a->size < (size_t)g->rows * g->kd || b->size < (size_t)g->kd * g->nd ||
	    to->size < (size_t)g->rows * g->nd * sizeof(int32_t))
		return refuse(why, DEVICE_E_BAD_CALL, "a buffer is smaller than the design asks");
	struct device_run *r = calloc(1, sizeof *r);
	if (!r)
		return refuse(why, DEVICE_E_NO_MEMORY, "no memory");
	pthread_mutex_lock(&d->lock);
	*r = (struct device_run){.context = c, .a = a, .b = b, .c = to, .launch = ++d->launches};
	if (c->tail)
		c->tail->next = r;
	else
		c->head = r;
	c->tail = r;
	c->runs++;
	pthread_cond_signal(&d->work);
	pthread_mutex_unlock(&d->lock);
	*out = r;
	return DEVICE_OK;
}

static enum device_state soft_wait(struct device_run *r, uint32_t ms)
{
	struct device *d = r->context->device;
	struct timespec until = at_ms(now_ms() + ms);

	pthread_mutex_lock(&d->lock);
	while (ms && r->state == DEVICE_BUSY)
		if (pthread_cond_timedwait(&d->done, &d->lock, &until))
			break;
	enum device_state state = r->state;
	pthread_mutex_unlock(&d->lock);
	return state;
}

static void soft_run_free(struct device_run *r)
{
	struct device_context *c = r->context;
	struct device *d = c->device;

	pthread_mutex_lock(&d->lock);
	c->runs--;
	context_drop(c);
	pthread_mutex_unlock(&d->lock);
	free(r);
}

const struct device_table device_soft = {
	.abi = DEVICE_ABI,
	.name = "soft",
	.open = soft_open,
	.close = soft_close,
	.limits = soft_limits,
	.context_open = soft_context_open,
	.context_close = soft_context_close,
	.buffer_new = soft_buffer_new,
	.buffer_sync = soft_buffer_sync,
	.buffer_free = soft_buffer_free,
	.launch = soft_launch,
	.wait = soft_wait,
	.run_free = soft_run_free,
};
