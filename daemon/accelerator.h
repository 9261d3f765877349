/*
 * The daemon's one device: which kind, with which kernels, and how it is. Opened at the start and closed in
 * two steps at the end; what it does in between is runner.h's. Loop thread only, but for the runner, which
 * loads and passes use from their threads.
 */
#ifndef NPUD_ACCELERATOR_H
#define NPUD_ACCELERATOR_H

#include "err.h"
#include "kernelset.h"
#include "runner.h"
#include <uv.h>

struct server;

#define ACCELERATOR_TOLD 16u

struct accelerator {
	struct server *server;
	const char *kind;	     /* "none", "soft" or "xrt"; static */
	char place[DEVICE_PATH_MAX]; /* where a kernel set is looked for at the start */
	struct kernelset kernels;
	struct runner *runner; /* NULL: none, and `absent` says why */
	char absent[512];
	int lock_fd;
	bool failed;		   /* and not well since */
	uint64_t contexts_refused; /* when it was seen to have failed */

	uv_async_t wake;
	uv_mutex_t lock; /* over what follows: what the runner's threads have to tell */
	char told[ACCELERATOR_TOLD][257];
	unsigned told_count, told_lost;
	bool deaf;
};

/*
 * Opens what [device] names. That there is none, or that another daemon has it, is no error: `absent` says so
 * and everything runs on the host. BAD_CONFIG where the backend does not understand its settings; NO_MEMORY.
 */
int accelerator_open(struct accelerator *a, struct server *server, struct err *err);
/* Takes no more work and waits for what runs, within the deadlines of runner_close. */
void accelerator_close(struct accelerator *a);
/* When all weights are freed. */
void accelerator_free(struct accelerator *a);

/*
 * The design for a head of nv x h, of the layouts allowed (bits, 1 << layout); NULL: no kernel covers it, or
 * there is no device.
 */
const struct design *accelerator_design(const struct accelerator *a, uint32_t nv, uint32_t h,
					unsigned layouts);

/* As runner_status; of a device that is absent health, reason and nothing else. */
void accelerator_status(const struct accelerator *a, struct runner_status *out);

/*
 * Whether it has failed and was not well since: one that is tried again and fails again is no device in
 * between. One whose driver has no context to give has not failed.
 */
bool accelerator_failed(struct accelerator *a);

#endif
