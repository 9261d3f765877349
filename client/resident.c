/* What is resident, and what would be. */
#include "giving.h"
#include "own.h"
#include <limits.h>

/* Calls `each` with the rows; their ids rise from *after on, where it is given. */
static int each_head(struct proto_list list, uint64_t *after,
		     int (*each)(void *arg, const struct npu_head_row *row), void *arg)
{
	const struct row_head *rows = list.rows;

	for (size_t i = 0; i < list.count; i++) {
		char label[129], tensor[513], type[33], layout[17], hash[33], state[17], role[16];
		call_copy(label, sizeof label, rows[i].label);
		call_copy(tensor, sizeof tensor, rows[i].tensor);
		call_copy(type, sizeof type, rows[i].type);
		call_copy(layout, sizeof layout, rows[i].layout);
		call_copy(hash, sizeof hash, rows[i].hash);
		call_copy(state, sizeof state, rows[i].state);
		call_copy(role, sizeof role, rows[i].role);
		struct npu_head_row row = {
			.id = rows[i].id,
			.nv = rows[i].nv,
			.h = rows[i].h,
			.kpad = rows[i].kpad,
			.tile = rows[i].tile,
			.tiles = rows[i].tiles,
			.bytes = rows[i].bytes,
			.users = rows[i].users,
			.rows = rows[i].rows,
			.label = label,
			.tensor = tensor,
			.type = type,
			.layout = layout,
			.hash = hash,
			.state = state,
			.pinned = rows[i].pinned,
			.goes = rows[i].goes,
			.keep_ms = rows[i].keep_ms,
			.layer = rows[i].layer,
			.role = role,
		};
		int r = after ? client_rises("the list of what is resident", after, row.id) : 0;
		if (r || (r = each(arg, &row)))
			return r;
	}
	return 0;
}

NPU_API int npu_heads(npu_client *c, int (*each)(void *arg, const struct npu_head_row *row), void *arg)
{
	int r = client_usable(c);
	if (r)
		return r;
	if (!each)
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_heads: each must be given");
	struct req_head_list q = {};
	for (bool more = true; more;) {
		struct rep_head_list p = {};
		cleanup(answer_fini) struct answer a = {};
		r = client_ask(c, OP_head_list, &q, &p, &a);
		if (r == 0)
			r = each_head(p.heads, &q.after, each, arg);
		if (r)
			return r;
		more = p.more && p.heads.count > 0;
	}
	return 0;
}

NPU_API int npu_weights_list(npu_client *c, int (*each)(void *arg, const struct npu_head_row *row), void *arg)
{
	int r = client_usable(c);
	if (r)
		return r;
	if (!each)
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_weights_list: each must be given");
	struct req_weights_list q = {};
	for (bool more = true; more;) {
		struct rep_weights_list p = {};
		cleanup(answer_fini) struct answer a = {};
		r = client_ask(c, OP_weights_list, &q, &p, &a);
		if (r == 0)
			r = each_head(p.weights, &q.after, each, arg);
		if (r)
			return r;
		more = p.more && p.weights.count > 0;
	}
	return 0;
}

NPU_API int npu_resident_evict(npu_client *c, uint64_t id, uint64_t *bytes)
{
	struct req_resident_evict q = {.id = id};
	struct rep_resident_evict p = {};
	cleanup(answer_fini) struct answer a = {};
	int r = client_usable(c);
	if (r == 0)
		r = client_ask(c, OP_resident_evict, &q, &p, &a);
	if (r == 0 && bytes)
		*bytes = p.bytes;
	return r;
}

NPU_API int npu_resident_pin(npu_client *c, uint64_t id)
{
	struct req_resident_pin q = {.id = id};
	struct rep_resident_pin p;
	cleanup(answer_fini) struct answer a = {};
	int r = client_usable(c);
	return r ? r : client_ask(c, OP_resident_pin, &q, &p, &a);
}

NPU_API int npu_resident_unpin(npu_client *c, uint64_t id)
{
	struct req_resident_unpin q = {.id = id};
	struct rep_resident_unpin p;
	cleanup(answer_fini) struct answer a = {};
	int r = client_usable(c);
	return r ? r : client_ask(c, OP_resident_unpin, &q, &p, &a);
}

/* Passes the model, asks, and gives it back. */
static int ask_plan(npu_client *c, struct model *model, struct req_resident_plan *q,
		    struct rep_resident_plan *p, struct answer *a)
{
	uint64_t session;
	int r = giving_wait(c, model, &session, &q->file);
	if (r == 0) {
		/* Reading all of a model takes as long as it takes. */
		const struct call_options options = {.session = session, .timeout_ms = INT_MAX};
		r = call(&c->connection, OP_resident_plan, q, options, p, a, client_err());
	}
	giving_back(c, session, q->file);
	return r;
}

NPU_API int npu_plan(npu_client *c, const char *model, const struct npu_head_options *options,
		     struct npu_plan *out, int (*each)(void *arg, const struct npu_head_row *row), void *arg)
{
	static const struct npu_head_options none = {};
	const struct npu_head_options *o = options ? options : &none;
	cleanup(model_fini) struct model files = {.files = NULL};
	cleanup(answer_fini) struct answer a = {};
	struct rep_resident_plan p = {};
	int r = client_usable(c);

	if (r)
		return r;
	if (!model || !out)
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_plan: model and out must be given");
	r = model_find(&files, model, client_err());
	if (r)
		return r;
	struct req_resident_plan q = {
		.label = PROTO_STR(files.label),
		.tensor = PROTO_STR(o->tensor ? o->tensor : ""),
		.transpose = o->transpose,
		.q8 = PROTO_STR(o->q8 ? o->q8 : "auto"),
		.is_signed = o->is_signed,
		.k = o->k,
		.tile = o->tile,
		.layout = PROTO_STR(o->layout ? o->layout : "auto"),
	};
	r = ask_plan(c, &files, &q, &p, &a);
	if (r)
		return r;
	*out = (struct npu_plan){
		.id = p.id,
		.bytes = p.bytes,
		.transient = p.transient,
		.budget = p.budget,
		.used = p.used,
		.held = p.held,
		.loading = p.loading,
		.pinned = p.pinned,
		.freeable = p.freeable,
	};
	call_copy(out->outcome, sizeof out->outcome, p.outcome);
	return each ? each_head(p.evicts, NULL, each, arg) : 0;
}
