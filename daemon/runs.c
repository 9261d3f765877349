#include "runs.h"
#include "unsent.h"
#include "work.h"
#include <string.h>

/* `reply`: bytes of the answer, about. */
static int check_ask(const struct run_ask *q, const struct geometry *g, uint64_t *reply, struct err *err)
{
	uint64_t x_bytes = q->rows * g->h * sizeof(float);

	if (q->rows == 0 || q->rows > PROTO_ROWS_MAX)
		return err_set(err, NPU_E_TOO_LARGE, "%llu rows; 1 to %u are allowed",
			       (unsigned long long)q->rows, PROTO_ROWS_MAX);
	if (q->x.size != x_bytes) {
		err_set(err, NPU_E_BAD_COUNT, "x has %zu bytes; %llu rows of %u float32 are %llu bytes",
			q->x.size, (unsigned long long)q->rows, g->h, (unsigned long long)x_bytes);
		err->detail.needed = x_bytes;
		err->detail.limit = q->x.size;
		return err->code;
	}
	if (q->want == WANT_TOP && (q->k == 0 || q->k > g->nv))
		return err_set(err, NPU_E_BAD_VALUE, "k is %llu; 1 to %u words can be had",
			       (unsigned long long)q->k, g->nv);
	*reply = q->rows * (q->want == WANT_LOGITS ? UINT64_C(4) * g->nv : 8 * q->k) + 4096;
	if (*reply > PROTO_REPLY_MAX) {
		err_set(err, NPU_E_TOO_LARGE,
			"the answer would have %llu bytes; a reply may have %u: ask for fewer rows",
			(unsigned long long)*reply, PROTO_REPLY_MAX);
		err->detail.needed = *reply;
		err->detail.limit = PROTO_REPLY_MAX;
		return err->code;
	}
	return 0;
}

/* What the user asked for and has not taken leaves room for `reply` bytes more. */
static int check_room(const struct request *r, uint64_t reply, struct err *err)
{
	const uint64_t limit = r->server->config.user_replies;
	uint64_t depth = quota_used(&r->server->quota, r->uid, QUOTA_REPLIES) + unsent_to(r->uid);

	if (depth <= limit && reply <= limit - depth)
		return 0;
	err_set(err, NPU_E_BUSY,
		"user %u has %llu bytes of results that were not taken, of %llu allowed; read them, or ask "
		"again in 100 ms",
		(unsigned)r->uid, (unsigned long long)depth, (unsigned long long)limit);
	err->detail.needed = reply;
	err->detail.depth = depth;
	err->detail.limit = limit;
	err->detail.retry_ms = 100;
	return err->code;
}

/* Rows that may share a pass: of one object, and alike in whatever the pass depends on. */
static uint64_t key_of(const struct object *o, const struct run *run)
{
	return o->id << 32 | (run->ticket & 0xffffff) << 8 | (unsigned)run->path << 1 | run->verify;
}

int run_begin(struct request *r, const struct run_ask *q, struct err *err)
{
	struct handle *h;
	int result = handle_find(&h, r->session, q->handle, err);

	if (result)
		return result;
	if (h->fetch)
		return err_set(err, NPU_E_BAD_VALUE,
			       "the weights of handle %llu are loading: wait until they are ready",
			       (unsigned long long)q->handle);
	return run_on(r, h, q, err);
}

int run_on(struct request *r, struct handle *h, const struct run_ask *q, struct err *err)
{
	struct run *run = &r->run;

	if (h->err.code) {
		*err = h->err;
		return err->code;
	}
	if (h->object->damaged)
		return err_set(err, NPU_E_INTERNAL,
			       "the weights were damaged in memory and are not used any more: close them and "
			       "open them again");
	uint64_t reply = 0;
	int result = check_ask(q, &h->object->geometry, &reply, err);
	if (result)
		return result;
	run->path = q->path.size ? path_of(q->path.data, q->path.size) : r->server->path;
	if (run->path == PATH_COUNT)
		return err_set(err, NPU_E_BAD_VALUE,
			       "there is no such path; auto, host, device and alternate are");
	/* What a ticket allows now; the executor looks again when the rows' turn comes. */
	const struct work_ask ask = {.ticket = r->session->under,
				     .number = r->session->under_number,
				     .usable = h->object->target.device != NULL,
				     .device = run->path == PATH_DEVICE && h->object->target.device};
	struct work_place place;
	result = work_place(&r->server->tickets.arbiter, server_now(), &ask, &place, err);
	if (result == 0)
		result = check_room(r, reply, err);
	if (result == 0)
		result = quota_take_bytes(&r->server->quota, r->uid, QUOTA_REPLIES, reply, UINT64_MAX, err);
	if (result)
		return result;
	r->reply_bytes = reply;
	r->class = place.class;
	run->ticket = place.group;
	run->target = &h->object->target;
	run->verify = q->verify;
	run->x = (const void *)q->x.data;
	run->want = q->want;
	run->k = (uint32_t)q->k;
	run->waiting = (struct batch_run){
		.key = key_of(h->object, run), .rows = (uint32_t)q->rows, .weight = place.weight};
	r->object = h->object;
	object_hold(r->object);
	r->state = REQUEST_RUNNING;
	r->answer = q->answer;
	r->deadline_ms = UINT64_MAX;
	if (q->deadline_ms) {
		r->deadline_ms = server_now() + q->deadline_ms;
		server_wants_sweep(r->server, r->deadline_ms);
	}
	executor_add(&r->server->executor, &r->session->rows, run);
	return LATER;
}
