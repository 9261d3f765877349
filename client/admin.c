#include "client.h"
#include "own.h"

NPU_API int npu_kick(npu_client *c, uint64_t session)
{
	int r = client_usable(c);
	struct req_kick q = {.session = session};
	struct rep_kick p;
	cleanup(answer_fini) struct answer a = {};
	return r ? r : client_ask(c, OP_kick, &q, &p, &a);
}

NPU_API int npu_reload(npu_client *c)
{
	int r = client_usable(c);
	struct req_reload q = {};
	struct rep_reload p;
	cleanup(answer_fini) struct answer a = {};
	return r ? r : client_ask(c, OP_reload, &q, &p, &a);
}

NPU_API int npu_metrics(npu_client *c, char **text)
{
	int r = client_usable(c);
	if (r)
		return r;
	if (!text)
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_metrics: text must be given");
	struct req_metrics q = {};
	struct rep_metrics p = {};
	cleanup(answer_fini) struct answer a = {};
	r = client_ask(c, OP_metrics, &q, &p, &a);
	if (r)
		return r;
	*text = strndup(p.text.size ? p.text.data : "", p.text.size);
	return *text ? 0 : err_set(client_err(), NPU_E_NO_MEMORY, "no memory for the metrics");
}

static void copy_device(struct npu_device *out, const struct rep_device *p)
{
	*out = (struct npu_device){
		.context = p->context,
		.contexts_used = p->contexts_used,
		.contexts_max = p->contexts_max,
		.launches = p->launches,
		.done = p->done,
		.timeouts = p->timeouts,
		.errors = p->errors,
		.hangs = p->hangs,
		.mismatches = p->mismatches,
		.rejected = p->rejected,
		.canaries = p->canaries,
		.canaries_failed = p->canaries_failed,
		.contexts_opened = p->contexts_opened,
		.contexts_refused = p->contexts_refused,
		.recoveries = p->recoveries,
		.parked = p->parked,
	};
	call_copy(out->device, sizeof out->device, p->device);
	call_copy(out->health, sizeof out->health, p->health);
	call_copy(out->reason, sizeof out->reason, p->reason);
	call_copy(out->version, sizeof out->version, p->version);
	call_copy(out->kernels, sizeof out->kernels, p->kernels);
}

static int each_design(const struct rep_device *p, int (*each)(void *, const struct npu_design_row *),
		       void *arg)
{
	const struct row_design *rows = p->designs.rows;
	int r = 0;

	for (size_t i = 0; i < p->designs.count && r == 0; i++) {
		char layout[17], file[512], kernel[64];
		call_copy(layout, sizeof layout, rows[i].layout);
		call_copy(file, sizeof file, rows[i].file);
		call_copy(kernel, sizeof kernel, rows[i].kernel);
		struct npu_design_row row = {rows[i].rows, rows[i].kd, rows[i].nd, layout, file, kernel};
		r = each(arg, &row);
	}
	return r;
}

NPU_API int npu_device_status(npu_client *c, struct npu_device *out,
			      int (*each)(void *arg, const struct npu_design_row *row), void *arg)
{
	int r = client_usable(c);
	struct req_device q = {};

	if (r == 0 && !out)
		r = err_set(client_err(), NPU_E_BAD_VALUE, "npu_device_status: out must be given");
	for (bool more = true; more && r == 0;) {
		struct rep_device p = {};
		cleanup(answer_fini) struct answer a = {};
		r = client_ask(c, OP_device, &q, &p, &a);
		if (r)
			return r;
		copy_device(out, &p);
		if (each)
			r = each_design(&p, each, arg);
		q.after += p.designs.count;
		more = each && p.more && p.designs.count > 0;
	}
	return r;
}

NPU_API int npu_events(npu_client *c, uint64_t since, uint32_t wait_ms, bool *lost,
		       int (*each)(void *arg, const struct npu_event_row *row), void *arg)
{
	int r = client_usable(c);
	if (r)
		return r;
	if (!each)
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_events: each must be given");
	struct req_events_list q = {.since = since, .wait_ms = wait_ms};
	bool any_lost = false;
	for (bool more = true; more; q.wait_ms = 0) {
		struct rep_events_list p = {};
		cleanup(answer_fini) struct answer a = {};
		r = client_ask(c, OP_events_list, &q, &p, &a);
		if (r)
			return r;
		if (p.resync) {
			any_lost = true;
			q.since = 0; /* the daemon may count from 1 again */
		}
		const struct row_event *rows = p.events.rows;
		for (size_t i = 0; i < p.events.count; i++) {
			char kind[17], text[257];
			call_copy(kind, sizeof kind, rows[i].kind);
			call_copy(text, sizeof text, rows[i].text);
			struct npu_event_row row = {
				.number = rows[i].number,
				.time_ms = rows[i].time_ms,
				.id = rows[i].id,
				.session = rows[i].session,
				.uid = rows[i].uid,
				.kind = kind,
				.text = text,
			};
			if (row.number <= q.since)
				return err_set(client_err(), NPU_E_MALFORMED,
					       "events.list: event %llu comes after event %llu",
					       (unsigned long long)row.number, (unsigned long long)q.since);
			q.since = row.number;
			if ((r = each(arg, &row)))
				return r;
		}
		more = p.more && p.events.count > 0;
	}
	if (lost)
		*lost = any_lost;
	return 0;
}
