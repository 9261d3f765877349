#include "listing.h"
#include "container.h"
#include "matrix.h"
#include "own.h"
#include "request.h"
#include "source.h"
#include <string.h>

#define PAGE 64u /* rows, as in ops.def */

struct listing {
	uv_work_t work;
	struct server *server;
	struct session *session; /* NULL once it was dropped */
	uint64_t model;
	char label[129];
	struct source source;
	struct link waiters;
	bool ready;
	/* made by the worker */
	struct container *container;
	int result;
	struct err err;
	const struct tensor *head; /* NULL: none */
	enum head_reason why;
	struct err unusable; /* why there is no head, or it cannot be used */
};

static void listing_free(struct listing *l)
{
	container_free(l->container);
	source_fini(&l->source);
	free(l);
}

bool listing_is_of(const struct listing *l, uint64_t model)
{
	return l && l->model == model;
}

void listing_drop(struct listing *l)
{
	if (!l)
		return;
	while (!link_empty(&l->waiters))
		request_stop(link_of(l->waiters.next, struct request, in_waiters), NPU_E_CANCELLED,
			     "the model's files were closed");
	l->session->listing = NULL;
	l->session = NULL;
	if (l->ready)
		listing_free(l); /* else on_listed does */
}

static void list(uv_work_t *work)
{
	struct listing *l = work->data;
	struct matrix m;
	const struct matrix_options options = {.transpose = false};

	l->result = source_open(&l->container, &l->source, l->label, &l->err);
	if (l->result || container_head(l->container, NULL, &l->head, &l->why, &l->unusable))
		return;
	matrix_init(&m, l->container, l->head, &options, l->why == HEAD_TIED, &l->unusable);
}

/* Shape bytes and printable text of one page; the reply borrows from it. */
struct page {
	struct row_tensor rows[PAGE];
	char names[PAGE][513];
	uint64_t shapes[PAGE][8];
};

static void page_fill(struct page *page, const struct listing *l, uint64_t after, struct rep_model_tensors *a)
{
	size_t count = container_count(l->container), n = 0;

	for (size_t i = after; i < count && n < PAGE; i++, n++) {
		const struct tensor *t = container_tensor(l->container, i);
		size_t kept = t->rank < 8 ? t->rank : 8;
		err_printable(page->names[n], sizeof page->names[n], t->name, t->name_size);
		memcpy(page->shapes[n], t->shape, sizeof t->shape);
		page->rows[n] = (struct row_tensor){
			.number = i + 1,
			.name = PROTO_STR(page->names[n]),
			.type = PROTO_STR(tensor_type_name(t->type)),
			.rank = t->rank,
			.shape = {(const char *)page->shapes[n], kept * sizeof(uint64_t)},
			.bytes = t->bytes,
			.file = PROTO_STR(l->source.files[t->file].name),
			.head = t == l->head,
		};
	}
	a->tensors = (struct proto_list){page->rows, n};
	a->more = after + n < count;
	a->count = count;
}

static void answer(struct request *r)
{
	const struct listing *l = r->session->listing;
	struct rep_model_tensors a = {};
	char head[513] = "";

	if (!l->ready) {
		request_reply(r, &a);
		return;
	}
	if (l->result) {
		request_fail(r, &l->err);
		return;
	}
	cleanup(freep) struct page *page = malloc(sizeof *page);
	if (!page) {
		struct err err;
		err_set(&err, NPU_E_NO_MEMORY, "%s: no memory for a page of tensors", l->label);
		request_fail(r, &err);
		return;
	}
	a.ready = true;
	a.format = PROTO_STR(container_format(l->container));
	a.files = l->source.count;
	if (l->head)
		err_printable(head, sizeof head, l->head->name, l->head->name_size);
	a.head = PROTO_STR(head);
	a.why = PROTO_STR(l->head ? head_reason_name(l->why) : "");
	a.note = PROTO_STR(l->unusable.code ? l->unusable.text : "");
	page_fill(page, l, r->since, &a);
	request_reply(r, &a);
}

static void on_listed(uv_work_t *work, int status)
{
	struct listing *l = work->data;

	(void)status;
	l->server->loads--;
	l->ready = true;
	if (!l->session) {
		listing_free(l);
		return;
	}
	while (!link_empty(&l->waiters))
		answer(link_of(l->waiters.next, struct request, in_waiters));
}

static int listing_new(struct listing **out, struct session *s, const struct file *f,
		       const struct req_model_tensors *q, struct err *err)
{
	struct listing *l = calloc(1, sizeof *l);

	if (!l)
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory to list its tensors", f->name);
	int r = session_source(s, f, &l->source, err);
	if (r) {
		free(l);
		return r;
	}
	err_printable(l->label, sizeof l->label, q->label.size ? q->label.data : f->name,
		      q->label.size ? q->label.size : strlen(f->name));
	l->server = s->server;
	l->session = s;
	l->model = f->model;
	link_init(&l->waiters);
	l->work.data = l;
	l->server->loads++;
	uv_queue_work(&l->server->loop, &l->work, list, on_listed);
	*out = l;
	return 0;
}

int on_model_tensors(struct request *r, const struct req_model_tensors *q, struct rep_model_tensors *a,
		     struct err *err)
{
	struct session *s = r->session;
	struct file *f;
	int result = session_find_file(&f, s, q->file, err);

	(void)a;
	if (result)
		return result;
	if (s->listing && s->listing->model != f->model) {
		if (!s->listing->ready) {
			err_set(err, NPU_E_BUSY, "another model is being listed for this session; ask again");
			err->detail.retry_ms = 100;
			return NPU_E_BUSY;
		}
		listing_drop(s->listing);
	}
	result = s->listing ? 0 : listing_new(&s->listing, s, f, q, err);
	if (result)
		return result;
	r->since = q->after;
	if (s->listing->ready) {
		answer(r);
		return LATER;
	}
	return request_wait(r, &s->listing->waiters, q->wait_ms, answer);
}
