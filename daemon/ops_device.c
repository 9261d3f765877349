/* The handler of what the device is and does. */
#include "objects.h"
#include "request.h"
#include <stdio.h>

static size_t design_rows(const struct kernelset *set, uint64_t after, struct row_design *rows, size_t most)
{
	size_t n = 0;

	for (uint64_t i = after; i < set->count && n < most; i++) {
		const struct design *d = &set->designs[i];
		rows[n++] = (struct row_design){
			.rows = d->rows,
			.kd = d->kd,
			.nd = d->nd,
			.layout = PROTO_STR(layout_name(d->layout ? LAYOUT_BLOCKED : LAYOUT_ROW_MAJOR)),
			.file = PROTO_STR(d->file),
			.kernel = PROTO_STR(d->kernel),
		};
	}
	return n;
}

int on_device(struct request *r, const struct req_device *q, struct rep_device *a, struct err *err)
{
	const struct accelerator *device = &r->server->accelerator;
	struct row_design rows[64];
	struct runner_status s;

	(void)err;
	accelerator_status(device, &s);
	size_t n = design_rows(&device->kernels, q->after, rows, sizeof rows / sizeof *rows);
	*a = (struct rep_device){
		.device = PROTO_STR(device->kind),
		.health = PROTO_STR(health_name(s.health)),
		.reason = PROTO_STR(s.reason),
		.version = PROTO_STR(s.limits.version),
		.context = s.context,
		.contexts_used = s.limits.contexts_used,
		.contexts_max = s.limits.contexts_max,
		.launches = s.launches,
		.done = s.done,
		.timeouts = s.timeouts,
		.errors = s.errors,
		.hangs = s.hangs,
		.mismatches = s.mismatches,
		.rejected = s.refused,
		.canaries = s.canaries,
		.canaries_failed = s.canaries_failed,
		.contexts_opened = s.contexts_opened,
		.contexts_refused = s.contexts_refused,
		.recoveries = s.recoveries,
		.parked = s.parked,
		.designs = (struct proto_list){rows, n},
		.kernels = PROTO_STR(device->place),
		.more = q->after + n < device->kernels.count,
	};
	request_reply(r, a); /* here, for the rows and the text are ours */
	return LATER;
}
