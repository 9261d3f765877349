/* Between runner.c, weights.c and launch.c; nobody else includes it. */
#ifndef NPUD_RUNNER_IMPL_H
#define NPUD_RUNNER_IMPL_H

#include "runner.h"
#include <pthread.h>
#include <stdatomic.h>

#define SLOTS 3u	 /* one more than may be in flight: its result is being looked at */
#define IN_FLIGHT_MAX 2u /* per context; the driver blocks a fifth launch */

struct weights {
	struct runner *runner;
	const struct design *design;
	struct device_buffer *buffer;
	struct tile tile;
	struct check check;
	atomic_uint references; /* the owner, and runs */
};

/* A launch and the buffers it uses. */
struct slot {
	struct device_buffer *a, *c;
	int8_t *q;
	int32_t *acc;
	struct device_run *run;
	struct weights *weights;
	struct job *job; /* under lock; NULL once it was failed */
	uint64_t started_ns;
	bool used;
};

/* A run that the device has not let go of. */
struct parked {
	struct parked *next;
	struct device_run *run;
	struct device_buffer *a, *c;
	struct weights *weights;
};

struct runner {
	struct runner_options options;
	const struct device_table *table;
	struct device *device;

	pthread_mutex_t lock;
	pthread_cond_t wake; /* the device's thread */
	pthread_cond_t tick; /* the watching one */
	pthread_t thread, watcher;

	/* under lock */
	bool stop, watcher_stop;
	struct keeper keeper;
	struct job *queue, **queue_end;
	struct runner_status status;
	uint64_t trouble_at; /* of status.trouble, ms */
	const char *call;    /* into the driver, now; NULL: none */
	uint64_t call_due, watched_until;

	bool ended; /* of who closes: both threads are gone */

	/* of the device's thread */
	struct device_context *context;
	const struct design *design; /* of the context */
	struct slot slots[SLOTS];
	struct slot *flying[IN_FLIGHT_MAX]; /* oldest first */
	uint32_t flying_count;
	struct parked *parked;
	uint64_t front_since; /* when the oldest became the oldest, ms */
	uint64_t slept_ms;    /* what the machine has slept so far */
};

uint64_t runner_ms(void); /* CLOCK_MONOTONIC */
uint64_t runner_ns(void);

/*
 * Brackets a call that may not come back: call_begin is entered with the lock and leaves without it; call_end
 * the other way round.
 */
void call_begin(struct runner *r, const char *what, uint32_t ms);
void call_end(struct runner *r);

/* Sets the reason shown for the health, and says it as an event. Lock held. */
void runner_say(struct runner *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fails every job queued or in flight. Lock held; released while they are told. */
void runner_fail_all(struct runner *r);

/* References to weights: a run has one. The last to go speaks to the driver. */
struct weights *weights_keep(struct weights *w);
void weights_release(struct weights *w);

/* launch.c, on the device's thread, lock held, released while the driver is called. */
bool slots_init(struct runner *r, struct device_why *why); /* buffers for the context's design */
void slots_fini(struct runner *r);
void launch_work(struct runner *r);  /* until nothing is left that this context can do, or a fault */
void launch_prove(struct runner *r); /* the canary */
void launch_drain(struct runner *r); /* waits for what is in flight, parks what does not end */
void parked_poll(struct runner *r);  /* frees those that ended */

#endif
