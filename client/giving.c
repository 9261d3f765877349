#include "giving.h"
#include "own.h"
#include "side.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

enum { GIVE_BACK_MS = 2000 };

void giving_fini(struct giving *g)
{
	model_fini(&g->model);
}

static int ask(const struct giving *g, struct npu_call *o, enum proto_op_id op, const void *request)
{
	return operation_ask(o, op, request, g->session, o->client->timeout_ms);
}

static int upload_begin(struct giving *g, struct npu_call *o)
{
	const struct model_file *f = &g->model.files[g->number];
	char name[129];
	struct stat st;

	err_printable(name, sizeof name, f->name, strlen(f->name));
	if (fstat(f->fd, &st) < 0) {
		int number = errno;
		return err_sys(&o->err, number, "%s: cannot be looked at", name);
	}
	g->size = (uint64_t)st.st_size;
	g->sent = 0;
	g->at = GIVING_BEGIN;
	const struct req_upload_begin q = {.name = PROTO_STR(name), .of = g->file, .bytes = g->size};
	return ask(g, o, OP_upload_begin, &q);
}

/* The next bytes, or the end of them. */
static int upload_go_on(struct giving *g, struct npu_call *o)
{
	const struct model_file *f = &g->model.files[g->number];
	size_t count = g->size - g->sent < g->part ? (size_t)(g->size - g->sent) : (size_t)g->part;

	if (count == 0) {
		g->at = GIVING_END;
		return ask(g, o, OP_upload_end, &(struct req_upload_end){.file = g->upload});
	}
	cleanup(freep) char *bytes = malloc(count);
	if (!bytes)
		return err_set(&o->err, NPU_E_NO_MEMORY, "no memory for %zu bytes of an upload", count);
	ssize_t n = pread(f->fd, bytes, count, (off_t)g->sent);
	if (n < 0) {
		int number = errno;
		return err_sys(&o->err, number, "%s: cannot be read", g->model.label);
	}
	if (n == 0)
		return err_set(&o->err, NPU_E_FILE_CHANGED, "%s: became shorter while it was uploaded",
			       g->model.label);
	g->at = GIVING_PUT;
	const struct req_upload_put q = {.file = g->upload, .at = g->sent, .data = {bytes, (size_t)n}};
	return ask(g, o, OP_upload_put, &q);
}

static int on_begun(struct giving *g, struct npu_call *o, const struct rep_upload_begin *p)
{
	g->upload = p->file;
	if (!g->file)
		g->file = p->file;
	g->part = p->part < PROTO_UPLOAD_PART ? p->part : PROTO_UPLOAD_PART;
	if (!g->part)
		return err_set(&o->err, NPU_E_MALFORMED, "upload.begin: parts of no bytes");
	return upload_go_on(g, o);
}

static int on_put(struct giving *g, struct npu_call *o, const struct rep_upload_put *p)
{
	if (p->bytes <= g->sent || p->bytes > g->size)
		return err_set(&o->err, NPU_E_MALFORMED, "upload.put: %llu bytes have come of %llu",
			       (unsigned long long)p->bytes, (unsigned long long)g->size);
	g->sent = p->bytes;
	return upload_go_on(g, o);
}

/* A reconnect was silent: the ping before this got the token of the new session, without which no file is
 * taken. */
static int pass(struct giving *g, struct npu_call *o)
{
	const struct told *told = connection_told(&o->client->connection);
	bool unreachable;

	g->session = told->session;
	int r = side_pass(&o->client->connection, told, &g->model, &g->file, &unreachable, &o->err);
	if (r == 0 || !unreachable)
		return r;
	g->why = o->err;
	o->err = (struct err){};
	return upload_begin(g, o);
}

static int next(struct giving *g, struct npu_call *o)
{
	cleanup(answer_fini) struct answer a = {};
	union {
		struct rep_ping ping;
		struct rep_upload_begin begin;
		struct rep_upload_put put;
		struct rep_upload_end end;
	} p;
	const struct req_ping ping = {};

	if (!o->request)
		return operation_ask(o, OP_ping, &ping, 0, o->client->timeout_ms);
	int r = operation_answer(o, &p, &a);
	if (r)
		return r;
	switch (g->at) {
	case GIVING_GREET:
		return pass(g, o);
	case GIVING_BEGIN:
		return on_begun(g, o, &p.begin);
	case GIVING_PUT:
		return on_put(g, o, &p.put);
	case GIVING_END:
		break;
	}
	return ++g->number < g->model.count ? upload_begin(g, o) : 0;
}

int giving_step(struct giving *g, struct npu_call *o)
{
	int r = next(g, o);
	if (r < 0 && g->why.code) { /* who has passed files so far wonders why they are uploaded now */
		struct err_detail detail = o->err.detail;
		err_set(&o->err, r, "%s (uploaded, since no descriptor can be passed: %s)", o->err.text,
			g->why.text);
		o->err.detail = detail;
	}
	return r;
}

struct waited {
	struct npu_call call;
	struct giving giving;
};

static int waited_step(struct npu_call *o)
{
	return giving_step(&((struct waited *)o)->giving, o);
}

int giving_wait(npu_client *c, struct model *model, uint64_t *session, uint64_t *file)
{
	struct waited w = {
		.call = {.client = c, .step = waited_step},
		.giving = {.model = *model},
	};
	int r = operation_wait(&w.call);
	*session = w.giving.session;
	*file = w.giving.file;
	return r;
}

void giving_back(npu_client *c, uint64_t session, uint64_t file)
{
	const struct call_options options = {.session = session, .timeout_ms = GIVE_BACK_MS};
	const struct req_file_close q = {.file = file};
	struct rep_file_close p;
	cleanup(answer_fini) struct answer a = {};
	struct err ignored;

	if (file)
		call(&c->connection, OP_file_close, &q, options, &p, &a, &ignored);
}
