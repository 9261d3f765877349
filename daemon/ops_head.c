/* The operations on heads. */
#include "heads.h"
#include "runs.h"
#include "own.h"
#include <string.h>

static int layout_of(struct proto_bytes name, enum layout *out, struct err *err)
{
	for (*out = LAYOUT_ROW_MAJOR; *out <= LAYOUT_BLOCKED; (*out)++)
		if (proto_is(name, layout_name(*out)))
			return 0;
	return err_set(err, NPU_E_BAD_VALUE, "there is no such layout; auto, blocked and row-major are");
}

int head_reading(struct load_request *out, const struct file **file, struct session *s,
		 const struct reading_ask *q, struct err *err)
{
	struct load_request want = {
		.options = {.transpose = q->transpose, .is_signed = q->is_signed, .k = (uint32_t)q->k},
		.tile = (uint32_t)q->tile,
		.layout = LAYOUT_BLOCKED,
	};

	struct file *f;
	int result = session_find_file(&f, s, q->file, err);

	if (result)
		return result;
	if (!q8_layout_of(q->q8.data, q->q8.size, &want.options.q8))
		return err_set(err, NPU_E_BAD_VALUE, "there is no such q8 layout; auto, a and b are");
	want.any_layout = proto_is(q->layout, "auto");
	result = want.any_layout ? 0 : layout_of(q->layout, &want.layout, err);
	if (result)
		return result;
	if (q->label.size)
		err_printable(want.label, sizeof want.label, q->label.data, q->label.size);
	else
		snprintf(want.label, sizeof want.label, "%s", f->name);
	*file = f;
	*out = want;
	return 0;
}

int head_request(struct load_request *out, const struct file **file, struct session *s,
		 const struct req_head_open *q, struct err *err)
{
	const struct reading_ask ask = READING_ASK(q);
	int result = head_reading(out, file, s, &ask, err);
	if (result)
		return result;
	out->store = q->store;
	out->tensor = strndup(q->tensor.data, q->tensor.size);
	return out->tensor ? 0 : err_set(err, NPU_E_NO_MEMORY, "%s: no memory for a name", out->label);
}

int on_head_open(struct request *r, const struct req_head_open *q, struct rep_head_open *a, struct err *err)
{
	struct load_request want;
	const struct file *file;
	struct handle *h;
	int result = head_request(&want, &file, r->session, q, err);

	if (result == 0)
		result = handle_open(&h, r->session, file, &want, err);
	if (result == 0)
		a->head = h->number;
	return result;
}

/* How far the handle is that a request waits for, or that it is there, or why it will not be. */
void head_answer_wait(struct request *r)
{
	const struct handle *h = r->handle;
	const struct object *o = h->fetch ? fetch_object(h->fetch) : h->object;
	struct rep_head_wait a = {};
	char digest[33];

	if (h->err.code) {
		request_fail(r, &h->err);
		return;
	}
	if (o) {
		const struct geometry *g = &o->geometry;
		a.ready = !h->fetch;
		a.tiles_done = a.ready ? g->tiles : fetch_tiles_done(h->fetch);
		a.nv = g->nv;
		a.h = g->h;
		a.kpad = g->kd;
		a.tile = g->nd;
		a.tiles = g->tiles;
		a.layout = PROTO_STR(layout_name(g->layout));
		a.tensor = PROTO_STR(o->tensor);
		a.type = PROTO_STR(o->type);
		a.note = PROTO_STR(h->note);
		a.why = PROTO_STR(head_reason_name(o->why));
		a.hash = PROTO_STR(hash_hex(digest, o->resident.identity.hash));
		a.bytes = object_bytes(o);
		a.attached = h->attached;
		a.packed = h->opened.packed;
		a.from_store = h->opened.from_store;
		a.refused = h->opened.refused;
		a.refusals = PROTO_STR(h->opened.refusals);
		a.gathered_columns = h->opened.gathered;
		a.hashed = h->opened.hashed;
		a.written = h->opened.writes ? o->written : 0;
		a.writing = h->opened.writes ? o->writing : 0;
		a.nonfinite = o->nonfinite;
		a.seconds = h->seconds;
	}
	if (r->op != OP_weights_load) {
		request_reply(r, &a);
		return;
	}
	struct rep_weights_load weights = {.weights = h->number}, *to = &weights;
	const struct rep_head_wait *from = &a;
	REP_head_wait(PROTO_COPY_FIELD, , );
	request_reply(r, &weights);
}

int on_head_wait(struct request *r, const struct req_head_wait *q, struct rep_head_wait *a, struct err *err)
{
	struct handle *h;
	int result = handle_find(&h, r->session, q->head, err);

	(void)a;
	if (result)
		return result;
	r->handle = h;
	if (h->fetch || (q->stored && h->object && h->object->writing))
		return request_wait(r, &h->waiters, q->wait_ms, head_answer_wait);
	head_answer_wait(r);
	return LATER;
}

static void answer_run(struct request *r)
{
	const struct run *run = &r->run;
	uint32_t a_row = run->want == WANT_LOGITS ? r->object->geometry.nv : run->k;
	size_t words = (size_t)run->waiting.rows * a_row;
	char digest[33];
	struct rep_head_run a = {
		RUN_ANSWER(r, digest),
	};
	if (run->want == WANT_LOGITS) {
		a.logits = (struct proto_bytes){(const char *)run->logits, words * sizeof *run->logits};
	} else {
		a.ids = (struct proto_bytes){(const char *)run->ids, words * sizeof *run->ids};
		a.values = (struct proto_bytes){(const char *)run->values, words * sizeof *run->values};
	}
	request_reply(r, &a);
}

int on_head_run(struct request *r, const struct req_head_run *q, struct rep_head_run *a, struct err *err)
{
	struct run_ask ask = {
		.handle = q->head,
		.rows = q->rows,
		.x = q->x,
		.k = q->k,
		.path = q->path,
		.verify = q->verify,
		.deadline_ms = q->deadline_ms,
		.answer = answer_run,
	};

	(void)a;
	if (proto_is(q->want, "logits"))
		ask.want = WANT_LOGITS;
	else if (proto_is(q->want, "top-k") || proto_is(q->want, "argmax"))
		ask.want = WANT_TOP;
	else
		return err_set(err, NPU_E_BAD_VALUE, "want is none of logits, top-k, argmax");
	if (proto_is(q->want, "argmax"))
		ask.k = 1;
	return run_begin(r, &ask, err);
}

int on_head_close(struct request *r, const struct req_head_close *q, struct rep_head_close *a,
		  struct err *err)
{
	struct handle *h;
	int result = handle_find(&h, r->session, q->head, err);

	(void)a;
	if (result == 0)
		handle_close(h);
	return result;
}

struct row_head head_row(const struct object *o, char digest[33])
{
	const struct geometry *g = &o->geometry;
	int64_t goes = residency_goes_in(&o->server->residency, &o->resident, server_now());
	return (struct row_head){
		.id = o->id,
		.label = PROTO_STR(o->label),
		.tensor = PROTO_STR(o->tensor),
		.type = PROTO_STR(o->type),
		.layout = PROTO_STR(layout_name(g->layout)),
		.hash = PROTO_STR(hash_hex(digest, o->resident.identity.hash)),
		.state = PROTO_STR(o->resident.state == RESIDENT_READY ? "ready" : "loading"),
		.nv = g->nv,
		.h = g->h,
		.kpad = g->kd,
		.tile = g->nd,
		.tiles = g->tiles,
		.bytes = object_bytes(o),
		.users = o->handles,
		.rows = o->rows,
		.pinned = o->resident.pins > 0,
		.goes = goes >= 0,
		.keep_ms = goes >= 0 ? (uint64_t)goes : 0,
		.layer = o->resident.identity.layer,
		.role = PROTO_STR(o->resident.identity.role),
	};
}

size_t head_page(struct head_page *page, struct server *s, bool heads, uint64_t after, bool *more)
{
	size_t n = 0;

	link_each(at, &s->residency.objects)
	{
		const struct object *o = link_of(at, struct object, resident.in_objects);
		if (o->id <= after || o->resident.fleeting ||
		    (strcmp(o->resident.identity.role, HEAD_ROLE) == 0) != heads)
			continue;
		if (n == HEAD_ROWS) {
			*more = true;
			break;
		}
		page->rows[n] = head_row(o, page->digests[n]);
		n++;
	}
	return n;
}

int on_head_list(struct request *r, const struct req_head_list *q, struct rep_head_list *a, struct err *err)
{
	struct head_page page;

	(void)err;
	a->heads = (struct proto_list){page.rows, head_page(&page, r->server, true, q->after, &a->more)};
	request_reply(r, a); /* here, for the rows are ours */
	return LATER;
}
