/* Projection weights of a model's layers. */
#include "giving.h"
#include "own.h"
#include "rows.h"
#include <limits.h>

enum {
	WAIT_MS = 20000, /* one weights.load; below PROTO_WAIT_MAX_MS */
	TENSORS_MAX = 8,
};

struct npu_model {
	npu_client *client;
	struct npu_model *next; /* client.models */
	uint64_t session, file;
	char label[129];
};

NPU_API int npu_model_open(npu_client *c, const char *model, npu_model **out)
{
	int r = client_usable(c);
	if (r)
		return r;
	if (!model || !out)
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_model_open: model and out must be given");
	*out = NULL;
	cleanup(model_fini) struct model files = {.files = NULL};
	cleanup(freep) struct npu_model *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(client_err(), NPU_E_NO_MEMORY, "out of memory");
	r = model_find(&files, model, client_err());
	if (r)
		return r;
	m->client = c;
	memcpy(m->label, files.label, sizeof m->label);
	r = giving_wait(c, &files, &m->session, &m->file);
	if (r) {
		giving_back(c, m->session, m->file);
		return r;
	}
	pthread_mutex_lock(&c->lock);
	m->next = c->models;
	c->models = m;
	pthread_mutex_unlock(&c->lock);
	*out = take(&m);
	return 0;
}

NPU_API int npu_model_close(npu_model *m)
{
	if (!m)
		return 0;
	npu_client *c = m->client;
	int r = client_usable(c);
	if (r == 0 && m->session == connection_told(&c->connection)->session)
		giving_back(c, m->session, m->file);
	pthread_mutex_lock(&c->lock);
	struct npu_model **link = &c->models;
	while (*link != m)
		link = &(*link)->next;
	*link = m->next;
	pthread_mutex_unlock(&c->lock);
	free(m);
	return r;
}

void models_free(npu_client *c)
{
	while (c->models) {
		struct npu_model *next = c->models->next;
		free(c->models);
		c->models = next;
	}
}

static int names_of(struct row_tensor_name rows[TENSORS_MAX], const char *const *tensors, size_t count,
		    struct err *err)
{
	if (!tensors || count == 0 || count > TENSORS_MAX)
		return err_set(err, NPU_E_BAD_VALUE, "%zu tensors were named; 1 to %d go side by side", count,
			       TENSORS_MAX);
	for (size_t i = 0; i < count; i++) {
		if (!tensors[i])
			return err_set(err, NPU_E_BAD_VALUE, "tensor %zu has no name", i);
		rows[i].name = PROTO_STR(tensors[i]);
	}
	return 0;
}

static struct proto_bytes text_or(const char *text, const char *otherwise)
{
	return PROTO_STR(text ? text : otherwise);
}

/* Which tensors, and how they are read: what is loaded, and what is packed for one call, are asked for alike.
 */
static struct req_weights_load request_of(const npu_model *m, struct row_tensor_name *rows, size_t count,
					  const struct npu_weights_options *options)
{
	return (struct req_weights_load){
		.file = m->file,
		.label = PROTO_STR(m->label),
		.tensors = {rows, count},
		.layer = options->layer,
		.role = text_or(options->role, "-"),
		.transpose = options->transpose,
		.q8 = text_or(options->q8, "auto"),
		.is_signed = options->is_signed,
		.k = options->k,
		.tile = options->tile,
		.layout = text_or(options->layout, "auto"),
		.wait_ms = WAIT_MS,
	};
}

static int ask_load(npu_model *m, const struct req_weights_load *q, struct rep_weights_load *p,
		    struct answer *a)
{
	npu_client *c = m->client;
	const struct call_options options = {
		.session = m->session,
		.timeout_ms = c->timeout_ms < INT_MAX - WAIT_MS ? c->timeout_ms + WAIT_MS : INT_MAX,
	};
	return call(&c->connection, OP_weights_load, q, options, p, a, client_err());
}

/* Asks until they are resident. */
static int load(npu_model *m, struct req_weights_load q, npu_weights *w, struct npu_head_info *info)
{
	for (;;) {
		struct rep_weights_load p = {};
		cleanup(answer_fini) struct answer a = {};
		int r = ask_load(m, &q, &p, &a);
		if (r)
			return r;
		w->is.handle = p.weights;
		if (!p.ready) {
			q = (struct req_weights_load){.weights = p.weights, .wait_ms = WAIT_MS};
			continue;
		}
		if (!p.nv || !p.h)
			return err_set(client_err(), NPU_E_MALFORMED,
				       "weights.load: the weights have no shape");
		w->is.nv = (uint32_t)p.nv;
		w->is.h = (uint32_t)p.h;
		struct rep_head_wait wait = {}, *to = &wait;
		const struct rep_weights_load *from = &p;
		REP_head_wait(PROTO_COPY_FIELD, , );
		if (info)
			head_tell(info, &wait);
		return 0;
	}
}

static int give_back(npu_client *c, const npu_head *w)
{
	const struct call_options options = {.session = w->session, .timeout_ms = c->timeout_ms};
	struct req_weights_close q = {.weights = w->handle};
	struct rep_weights_close p;
	cleanup(answer_fini) struct answer a = {};
	return call(&c->connection, OP_weights_close, &q, options, &p, &a, client_err());
}

NPU_API int npu_weights_load(npu_model *m, const char *const *tensors, size_t count,
			     const struct npu_weights_options *options, npu_weights **out,
			     struct npu_head_info *info)
{
	struct row_tensor_name rows[TENSORS_MAX];

	if (!m || !options || !options->role || !out)
		return err_set(client_err(), NPU_E_BAD_VALUE,
			       "npu_weights_load: a model, a role and out must be given");
	*out = NULL;
	int r = client_usable(m->client);
	if (r == 0)
		r = names_of(rows, tensors, count, client_err());
	if (r)
		return r;
	cleanup(freep) npu_weights *w = calloc(1, sizeof *w);
	if (!w)
		return err_set(client_err(), NPU_E_NO_MEMORY, "out of memory");
	w->is.client = m->client;
	w->is.session = m->session;
	head_path_from_environment(w->is.path);
	r = load(m, request_of(m, rows, count, options), w, info);
	if (r) {
		struct err failure = *client_err();
		if (w->is.handle)
			give_back(m->client, &w->is);
		*client_err() = failure;
		return r;
	}
	head_enlist(m->client, &w->is);
	*out = take(&w);
	return 0;
}

NPU_API int npu_weights_close(npu_weights *w)
{
	if (!w)
		return 0;
	npu_client *c = w->is.client;
	int r = client_usable(c);
	if (r == 0 && w->is.session == connection_told(&c->connection)->session)
		r = give_back(c, &w->is);
	head_delist(c, &w->is);
	free(w);
	return r;
}

NPU_API int npu_weights_set_path(npu_weights *w, const char *path)
{
	return npu_head_set_path(w ? &w->is : NULL, path);
}

NPU_API void npu_weights_set_verify(npu_weights *w, bool verify)
{
	npu_head_set_verify(w ? &w->is : NULL, verify);
}

NPU_API int npu_gemm_expert(npu_model *m, const char *const *tensors, size_t count,
			    const struct npu_weights_options *options, const float *x, size_t rows,
			    uint32_t k, float *y, uint32_t n, struct npu_run_info *info)
{
	struct row_tensor_name names[TENSORS_MAX];

	if (!m || !options || !k || !n)
		return err_set(client_err(), NPU_E_BAD_VALUE,
			       "npu_gemm_expert: a model, options, k and n must be given");
	int r = names_of(names, tensors, count, client_err());
	if (r)
		return r;
	npu_head expert = {.client = m->client, .session = m->session, .nv = n, .h = k};
	head_path_from_environment(expert.path);
	const struct req_weights_load named = request_of(m, names, count, options), *from = &named;
	struct req_gemm_run q = {}, *to = &q;
	WEIGHTS_FIELDS(PROTO_COPY_FIELD, PROTO_COPY_LIST, );
	return rows_through_expert(&expert, &q, x, rows, y, info);
}
