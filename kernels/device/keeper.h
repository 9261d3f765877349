/*
 * What to do next with a device's one context, and how well the device is: decisions only, a pure function of
 * what was noted and of the time (any clock in milliseconds that never goes back). runner.c acts on them.
 *
 * A context is opened when there is work or when the device has yet to be shown to be well; it does no work
 * before a canary has passed; it is released when idle. A context that was idle for a while, or slept with
 * the machine, is proven again, and renewed without ado if it is lost. Anything else that goes wrong costs
 * the context and, at most once an interval, is followed by a recovery; a second time within the interval the
 * device has failed until the interval is over. That no context is to be had is no fault: it is asked again.
 */
#ifndef NPUD_KEEPER_H
#define NPUD_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

enum health {
	HEALTH_OK,
	HEALTH_DEGRADED, /* on the way to being well: the host does the work */
	HEALTH_FAILED,	 /* not before the next recovery, if ever */
	HEALTH_ABSENT,	 /* there is no device, or no kernel for it */
};

enum keeper_context {
	CONTEXT_NONE,
	CONTEXT_UNPROVEN, /* no canary has passed since it was opened, or since it may have been lost */
	CONTEXT_READY,
	CONTEXT_BROKEN, /* good for nothing but to be closed */
};

enum keeper_step {
	STEP_WAIT, /* for work, or until the time given */
	STEP_OPEN,
	STEP_PROVE,
	STEP_WORK,
	STEP_CLOSE,
};

enum keeper_event {
	KEEPER_OPENED,
	KEEPER_NO_CONTEXT,   /* others hold them all */
	KEEPER_OPEN_FAILED,  /* for another reason */
	KEEPER_PROVEN,	     /* the canary passed */
	KEEPER_PROOF_FAILED, /* it did not */
	KEEPER_WORKED,	     /* a launch gave what it should */
	KEEPER_FAULT,	     /* it did not: timeout, error, hang, wrong numbers */
	KEEPER_STUCK,	     /* a call into the driver has not come back in time */
	KEEPER_RESUMED,	     /* the machine slept */
	KEEPER_CLOSED,
};

struct keeper_times {
	uint32_t idle_ms;     /* a context without work is released after this */
	uint32_t stale_ms;    /* ... and proven again after this */
	uint32_t retry_ms;    /* between two tries to get a context when others hold them all */
	uint32_t recovery_ms; /* at most one recovery in this time */
};

struct keeper {
	struct keeper_times times;
	enum health health;
	enum keeper_context context;
	bool renewable; /* the context to be proven was good once: that it is lost is no fault */
	uint64_t last_used;
	uint64_t not_before; /* no opening earlier */
	uint64_t recovered;  /* when the last recovery began, if `recoveries` */
	uint32_t recoveries;
};

#define KEEPER_PARKED_MAX 4u /* unfinished runs of lost contexts; with so many, no more are opened */

/* No context yet, and the device is yet to be shown to be well. */
void keeper_init(struct keeper *k, const struct keeper_times *times, uint64_t now);

/*
 * The next step. `work`: something is queued or in flight. `parked`: unfinished runs of contexts that are
 * gone. *wake is when to ask again at the latest if the step is to wait; 0: when something happens.
 */
enum keeper_step keeper_next(struct keeper *k, uint64_t now, bool work, uint32_t parked, uint64_t *wake);

void keeper_note(struct keeper *k, enum keeper_event event, uint64_t now);

const char *health_name(enum health h);

#endif
