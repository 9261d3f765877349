/* What the operations that multiply rows with resident weights have in common. Loop thread only. */
#ifndef NPUD_RUNS_H
#define NPUD_RUNS_H

#include "handles.h"

struct run_ask {
	uint64_t handle, rows;
	struct proto_bytes x; /* rows * h float32 */
	enum want want;
	uint64_t k;		 /* words a row, for TOP */
	struct proto_bytes path; /* its name; empty: the default */
	bool verify;
	uint64_t deadline_ms;		   /* 0: none */
	void (*answer)(struct request *r); /* when its rows have run */
};

/*
 * Checks `q` against the weights and queues it: LATER, and the answer follows from request_ran.
 * NO_SUCH_HANDLE, BAD_VALUE, BAD_COUNT, TOO_LARGE, BUSY, or why the handle has no weights.
 */
int run_begin(struct request *r, const struct run_ask *q, struct err *err);
/* The same for a handle that has settled, whatever number it has. */
int run_on(struct request *r, struct handle *h, const struct run_ask *q, struct err *err);

/* What the answers to all of them say about `r`, whose rows have run: initialisers; `digest` is char[33]. */
#define RUN_ANSWER(r, digest)                                                                 \
	.nonfinite = (r)->run.nonfinite, .path = PROTO_STR(path_name((r)->run.report.path)),  \
	.why = PROTO_STR((r)->run.report.why), .verified = (r)->run.verify,                   \
	.kernel = PROTO_STR((r)->run.report.kernel), .rows_in_pass = (r)->run.rows_in_pass,   \
	.launch_rows = (r)->run.report.launch_rows,                                           \
	.hash = PROTO_STR(hash_hex(digest, (r)->object->resident.identity.hash)),             \
	.queue_seconds = (r)->run.queue_seconds, .compute_seconds = (r)->run.compute_seconds, \
	.cpu_seconds = (r)->run.cpu_seconds

#endif
