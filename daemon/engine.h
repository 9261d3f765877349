/*
 * Where passes over weights run: the host's kernels and pool, and the device's runner. Both give the same
 * bits; whatever the device does, what comes back is right or an error. One thread, the executor's, runs; any
 * may look at the status.
 */
#ifndef NPUD_ENGINE_H
#define NPUD_ENGINE_H

#include "err.h"
#include "image.h"
#include "npulock.h"
#include "path.h"

struct runner;
struct weights;

/* Weights that passes run over, and what those have cost: part of an object. */
struct target {
	struct image image;
	struct weights **device; /* [tiles], which hold the image's codes; NULL: the host's alone */
	struct path_costs costs; /* the engine's */
	bool device_next;	 /* the engine's: for alternate */
};

void target_fini(struct target *t); /* zeroed is fine */
/* What it takes of memory, the device's included. */
uint64_t target_bytes(const struct target *t);

struct engine {
	const struct kernels *kernels;
	struct kernels reference; /* what the host is verified against where there is no device */
	struct pool *pool;
	struct runner *runner; /* NULL: no device */
	struct npulock lock;   /* around work on it */
};

/* `threads` at least 1, the caller's included; no lock until npulock_init is called on it. Measures what
 * suits this machine's memory (image_measure). NO_MEMORY. */
int engine_init(struct engine *e, struct kernels *kernels, unsigned threads);
void engine_fini(struct engine *e);

struct engine_report {
	enum path path;	    /* HOST or DEVICE: the one whose results these are */
	const char *kernel; /* static */
	char why[128];
	uint32_t launch_rows; /* that a launch computes, however few it is given; 0: on the host */
	bool fallback;	      /* the device could have run it, were it well and free */
};

/*
 * Runs the pass on the path that path.h chooses for `asked`; `reserved`: the device is somebody else's now. A
 * device that fails leaves the pass to the host, unless it was asked for by name: NO_PATH, as where a
 * path cannot be had. With `verify` the pass runs on both paths (without a device: by the reference kernel
 * too) and DIFFERENCE names the first result that is not the same. NO_MEMORY.
 */
int engine_run(struct engine *e, struct target *t, const struct pass *pass, enum path asked, bool reserved,
	       bool verify, struct engine_report *report, struct err *err);

#endif
