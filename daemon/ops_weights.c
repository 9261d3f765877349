/* The operations on projection weights: what a layer multiplies with, as heads but for layer and role. */
#include "heads.h"
#include "runs.h"
#include <string.h>

#define WAIT_FOR_EXPERT_MS 86400000

static bool is_expert(struct proto_bytes role)
{
	return role.size && role.data[0] == '-';
}

/* The names one after the other, each ended by a NUL, as a load takes them; NULL: no memory. */
static char *join_names(const struct proto_list *tensors)
{
	const struct row_tensor_name *rows = tensors->rows;
	size_t size = 0;

	for (size_t i = 0; i < tensors->count; i++)
		size += rows[i].name.size + 1;
	char *names = calloc(1, size), *to = names;
	for (size_t i = 0; names && i < tensors->count; i++) {
		memcpy(to, rows[i].name.data, rows[i].name.size);
		to += rows[i].name.size + 1;
	}
	return names;
}

/* A handle for the weights that `q` names; they load now. */
static int begin(struct handle **out, struct request *r, const struct req_weights_load *q, struct err *err)
{
	const struct reading_ask reading = READING_ASK(q);
	const struct row_tensor_name *rows = q->tensors.rows;
	struct load_request want;
	const struct file *file;
	int result = head_reading(&want, &file, r->session, &reading, err);

	if (result)
		return result;
	if (!q->tensors.count)
		return err_set(err, NPU_E_BAD_VALUE, "%s: no tensors were named", want.label);
	for (size_t i = 0; i < q->tensors.count; i++)
		if (!rows[i].name.size)
			return err_set(err, NPU_E_BAD_VALUE, "%s: tensor %zu has no name", want.label, i);
	if (!q->role.size || proto_is(q->role, HEAD_ROLE))
		return err_set(
			err, NPU_E_BAD_VALUE,
			"%s: role: 0 to 4 or a name of its own is needed; a head is opened by head.open",
			want.label);
	err_printable(want.role, sizeof want.role, q->role.data, q->role.size);
	want.layer = (uint32_t)q->layer;
	want.fleeting = is_expert(q->role);
	want.tensors = (unsigned)q->tensors.count;
	want.tensor = join_names(&q->tensors);
	return handle_open(out, r->session, file, &want, err);
}

int on_weights_load(struct request *r, const struct req_weights_load *q, struct rep_weights_load *a,
		    struct err *err)
{
	struct handle *h;
	int result;

	(void)a;
	if (is_expert(q->role))
		return err_set(
			err, NPU_E_BAD_VALUE,
			"routed experts are not kept: give file, tensors and role to gemm.run, which packs "
			"them for its call");
	result = q->weights ? handle_find(&h, r->session, q->weights, err) : begin(&h, r, q, err);
	if (result)
		return result;
	r->handle = h;
	if (h->fetch)
		return request_wait(r, &h->waiters, q->wait_ms, head_answer_wait);
	head_answer_wait(r);
	return LATER;
}

int on_weights_close(struct request *r, const struct req_weights_close *q, struct rep_weights_close *a,
		     struct err *err)
{
	struct handle *h;
	int result = handle_find(&h, r->session, q->weights, err);

	(void)a;
	if (result == 0)
		handle_close(h);
	return result;
}

int on_weights_list(struct request *r, const struct req_weights_list *q, struct rep_weights_list *a,
		    struct err *err)
{
	struct head_page page;

	(void)err;
	a->weights = (struct proto_list){page.rows, head_page(&page, r->server, false, q->after, &a->more)};
	request_reply(r, a); /* here, for the rows are ours */
	return LATER;
}

static void answer_run(struct request *r)
{
	const struct run *run = &r->run;
	char digest[33];
	struct rep_gemm_run a = {
		.y = {(const char *)run->logits,
		      (size_t)run->waiting.rows * r->object->geometry.nv * sizeof *run->logits},
		RUN_ANSWER(r, digest),
	};
	request_reply(r, &a);
}

static struct run_ask ask_of(const struct req_gemm_run *q)
{
	return (struct run_ask){
		.handle = q->weights,
		.rows = q->rows,
		.x = q->x,
		.want = WANT_LOGITS,
		.path = q->path,
		.verify = q->verify,
		.deadline_ms = q->deadline_ms,
		.answer = answer_run,
	};
}

/* The expert that a gemm.run waits for is packed, or will not be. */
static void expert_settled(struct request *r)
{
	struct handle *h = r->fleeting;
	struct req_gemm_run q;
	struct err err;

	link_remove(&r->in_waiters);
	if (h->fetch)
		err_set(&err, NPU_E_TIMED_OUT, "gemm.run: the expert was not packed by the deadline");
	else if (proto_read_fields(&r->in, &proto_ops[OP_gemm_run].request, &q, &err) == 0) {
		const struct run_ask ask = ask_of(&q);
		if (run_on(r, h, &ask, &err) == LATER)
			return;
	}
	request_fail(r, &err);
}

int on_gemm_run(struct request *r, const struct req_gemm_run *q, struct rep_gemm_run *a, struct err *err)
{
	const struct run_ask ask = ask_of(q);

	(void)a;
	if (q->weights)
		return run_begin(r, &ask, err);
	if (!is_expert(q->role))
		return err_set(
			err, NPU_E_BAD_VALUE,
			"gemm.run: weights: no handle is given; without one the role is that of a routed "
			"expert (-...), all others are loaded by weights.load");
	/* Experts are named as weights that stay are. */
	struct req_weights_load named = {}, *to = &named;
	const struct req_gemm_run *from = q;
	WEIGHTS_FIELDS(PROTO_COPY_FIELD, PROTO_COPY_LIST, );
	int result = begin(&r->fleeting, r, &named, err);
	if (result)
		return result;
	return request_wait(r, &r->fleeting->waiters, q->deadline_ms ? q->deadline_ms : WAIT_FOR_EXPERT_MS,
			    expert_settled);
}
