/*
 * Runs launches on a device that may hang, fail or lie, so that what comes out is a right answer or a
 * failure.
 *
 * One thread submits, keeps at most two launches in flight, waits for each no longer than its deadline, and
 * checks every one (check.h). Whatever goes wrong fails what was asked of it at once, and costs the context;
 * an unfinished run is parked with its buffers until the device has let go of it. keeper.h decides what
 * happens next. A second thread watches the calls into the driver: one that does not come back fails what
 * waits for it and nothing else. Functions may be called from any thread but `done` and `event`, which must
 * not call back, but for runner_submit.
 */
#ifndef NPUD_RUNNER_H
#define NPUD_RUNNER_H

#include "check.h"
#include "device.h"
#include "keeper.h"

struct runner;

struct runner_options {
	const struct device_table *table;
	const char *settings;	      /* of the table's open */
	const struct design *designs; /* at least one; the first is what the device is tried with; borrowed */
	uint32_t design_count;
	struct keeper_times times;
	uint32_t launch_ms;  /* a launch that takes longer is taken to hang */
	uint32_t call_ms;    /* so is any other call into the driver */
	residue_fn *residue; /* by which every launch is checked */
	void (*event)(void *arg,
		      const char *text); /* something happened that people want to know; may be NULL */
	void *arg;
};

/* What suits an NPU: released after 30 s, proven again after 5, a try for a context every 2, a recovery a
 * minute. */
extern const struct runner_options runner_defaults;

/*
 * Opens the device and starts the threads, which go on to prove it: its health is DEGRADED until then.
 * ABSENT, DENIED, BAD_CALL, NO_MEMORY.
 */
int runner_new(struct runner **out, const struct runner_options *options, struct device_why *why);

/*
 * Fails what is queued, waits for what is in flight, and gives the context back: no longer than the deadlines
 * of two launches and a call. Nothing is taken any more.
 */
void runner_close(struct runner *r);

/*
 * After runner_close and when all weights are freed. What the device did not let go of by its deadlines stays
 * behind until the process ends. NULL is fine.
 */
void runner_free(struct runner *r);

/*
 * A tile's weights where the device reads them. `codes` is ordinary memory for the host too, zeroed at first.
 * weights_seal once they are filled in: makes their check, and gives them to the device; they must not change
 * afterwards.
 */
struct weights;
int weights_new(struct weights **out, struct runner *r, const struct design *design, struct device_why *why);
int8_t *weights_codes(struct weights *w);	/* kd * nd, in the design's layout */
uint32_t weights_rows(const struct weights *w); /* of one launch at most */
int weights_seal(struct weights *w, struct device_why *why);
/* No job may use them. Memory that a parked run reads is kept until it is over. NULL is fine. */
void weights_free(struct weights *w);

enum job_result {
	JOB_DONE,     /* acc is right */
	JOB_REFUSED,  /* was not run: the device is not well, or stopped being so */
	JOB_TIMEOUT,  /* the driver ended it */
	JOB_ERROR,    /* the device or its driver failed */
	JOB_HANG,     /* no answer by the deadline */
	JOB_MISMATCH, /* COMPLETED, and wrong */
};

/* One launch. The submitter owns it; `done` is called exactly once, on a thread of the runner. */
struct job {
	struct weights *weights;
	const int8_t *q; /* rows * kd; may go once the job is done */
	uint32_t rows;	 /* 1 to the design's */
	void (*done)(struct job *job);
	void *arg;

	enum job_result result;
	const int32_t *acc; /* rows * nd, when DONE; until `done` returns */
	uint64_t device_ns; /* from its start to its end as seen here */
	struct job *next;   /* the runner's */
};

/* False where the device is not well: the job was not taken and `done` will not be called. */
bool runner_submit(struct runner *r, struct job *job);

struct runner_status {
	enum health health;
	char reason[512];    /* why it is not ok, and what to do; "" when ok */
	char trouble[512];   /* what was said so last; "": nothing has gone wrong yet */
	uint64_t trouble_ms; /* so long ago */
	bool context;	     /* one is held */
	uint32_t in_flight, queued, parked;
	uint64_t launches, done, timeouts, errors, hangs, mismatches, refused;
	uint64_t canaries, canaries_failed, contexts_opened, contexts_refused, recoveries, parked_ever;
	struct device_limits limits;
};

void runner_status(struct runner *r, struct runner_status *out);

/*
 * Asks the driver anew, for as long as that takes. Of the contexts in use `*own` are this runner's: one too
 * many rather than too few, where parked runs may share one.
 */
void runner_limits(struct runner *r, struct device_limits *out, uint32_t *own);

#endif
