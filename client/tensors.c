#include "giving.h"
#include "own.h"

enum { WAIT_MS = 20000 }; /* one model.tensors; below PROTO_WAIT_MAX_MS */

static void info_read(struct npu_model_info *info, const struct rep_model_tensors *p)
{
	call_copy(info->format, sizeof info->format, p->format);
	call_copy(info->head, sizeof info->head, p->head);
	call_copy(info->why, sizeof info->why, p->why);
	call_copy(info->note, sizeof info->note, p->note);
	info->files = p->files;
	info->tensors = p->count;
}

static int row_read(const struct row_tensor *from, uint64_t *after,
		    int (*each)(void *arg, const struct npu_tensor_row *row), void *arg)
{
	char name[513], type[33], file[129];
	struct npu_tensor_row row = {
		.number = from->number,
		.name = name,
		.type = type,
		.file = file,
		.rank = (uint32_t)from->rank,
		.bytes = from->bytes,
		.head = from->head,
	};
	size_t kept = from->rank < 8 ? (size_t)from->rank : 8;

	int r = client_rises("model.tensors", after, from->number);
	if (r)
		return r;
	if (from->shape.size != kept * sizeof *row.shape)
		return err_set(client_err(), NPU_E_MALFORMED,
			       "model.tensors: a shape of %zu bytes for rank %u", from->shape.size, row.rank);
	memcpy(row.shape, from->shape.data, from->shape.size);
	call_copy(name, sizeof name, from->name);
	call_copy(type, sizeof type, from->type);
	call_copy(file, sizeof file, from->file);
	return each ? each(arg, &row) : 0;
}

/* All pages of the model whose first file is `file`. */
static int pages_read(npu_client *c, uint64_t session, uint64_t file, struct npu_model_info *info,
		      int (*each)(void *arg, const struct npu_tensor_row *row), void *arg)
{
	const struct call_options options = {.session = session, .timeout_ms = c->timeout_ms + WAIT_MS};
	struct req_model_tensors q = {.file = file, .label = PROTO_STR(info->label), .wait_ms = WAIT_MS};

	for (bool more = true; more;) {
		struct rep_model_tensors p = {};
		cleanup(answer_fini) struct answer a = {};
		int r = call(&c->connection, OP_model_tensors, &q, options, &p, &a, client_err());
		if (r)
			return r;
		if (!p.ready)
			continue;
		const struct row_tensor *rows = p.tensors.rows;
		if (q.after == 0)
			info_read(info, &p);
		for (size_t i = 0; i < p.tensors.count; i++)
			if ((r = row_read(&rows[i], &q.after, each, arg)))
				return r;
		more = p.more && p.tensors.count > 0;
	}
	return 0;
}

NPU_API int npu_model_tensors(npu_client *c, const char *model, struct npu_model_info *info,
			      int (*each)(void *arg, const struct npu_tensor_row *row), void *arg)
{
	int r = client_usable(c);
	if (r)
		return r;
	if (!model || !info)
		return err_set(client_err(), NPU_E_BAD_VALUE,
			       "npu_model_tensors: model and info must be given");

	cleanup(model_fini) struct model found = {.files = NULL};
	r = model_find(&found, model, client_err());
	if (r)
		return r;
	*info = (struct npu_model_info){.files = 0};
	memcpy(info->label, found.label, sizeof info->label);

	uint64_t session, file;
	r = giving_wait(c, &found, &session, &file);
	if (r == 0)
		r = pages_read(c, session, file, info, each, arg);
	giving_back(c, session, file);
	return r;
}
