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
