#include "heads.h"
#include "log.h"
#include "own.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* One load on a worker thread: first for the handle that asked, then for the head it turns out to be. */
struct job {
	uv_work_t work;
	struct server *server;
	struct load *load;
	struct handle *handle; /* NULL once it was closed */
	struct head *head;
	int result;
	struct err err;
};

static const char *layout_name(enum layout layout)
{
	return layout == LAYOUT_BLOCKED ? "blocked" : "row-major";
}

static const char *hex(char to[33], const unsigned char hash[16])
{
	for (int i = 0; i < 16; i++)
		snprintf(to + 2 * i, 3, "%02x", hash[i]);
	return to;
}

static void job_free(struct job *j)
{
	j->server->loads--;
	load_free(j->load);
	free(j);
}

static void head_hold(struct head *h)
{
	h->refs++;
}

void head_release(struct head *h)
{
	if (--h->refs)
		return;
	link_remove(&h->in_heads); /* nobody attaches to what is about to go */
	if (h->state == HEAD_LOADING) {
		atomic_store(&h->job->load->stop, true); /* on_packed frees it */
		return;
	}
	if (h->state == HEAD_READY)
		log_line("head", h->id, "gone: %s %s, nobody uses it", h->label, h->tensor);
	image_fini(&h->image);
	free(h);
}

static struct head *find(struct server *s, const struct load *l)
{
	link_each(at, &s->heads)
	{
		struct head *h = link_of(at, struct head, in_heads);
		if (memcmp(h->hash, l->hash, sizeof h->hash) == 0 && h->geometry.kd == l->geometry.kd &&
		    h->geometry.nd == l->geometry.nd && h->geometry.layout == l->geometry.layout)
			return h;
	}
	return NULL;
}

/* What it has, or will have when it is loaded. */
static uint64_t head_bytes(const struct head *h)
{
	return h->state == HEAD_READY ? h->image.size : geometry_bytes(&h->geometry);
}

uint64_t heads_bytes(const struct server *server)
{
	uint64_t bytes = 0;
	link_each(at, &server->heads) bytes += head_bytes(link_of(at, struct head, in_heads));
	return bytes;
}

static void wake(struct handle *h)
{
	while (!link_empty(&h->waiters))
		handle_answer(link_of(h->waiters.next, struct request, in_waiters));
}

/* The handle has its head, ready or failed: said once in the log, and to those who wait. */
static void settled(struct handle *h)
{
	h->seconds = (double)(uv_hrtime() - h->opened_ns) * 1e-9;
	load_free(take(&h->spare));
	const struct head *head = h->head;
	if (head && head->state == HEAD_READY)
		log_line("session", h->session->number,
			 "lm head: 0 tile(s) from the image store, %u packed (0 written), 0 refused; kd=%u "
			 "T=%u %s, %.1f MB, %.3f s",
			 h->attached ? 0 : head->geometry.tiles, head->geometry.kd, head->geometry.nd,
			 layout_name(head->geometry.layout), (double)head->image.size / 1e6, h->seconds);
	else
		log_line("session", h->session->number, "head refused: %s",
			 head ? head->err.text : h->err.text);
	wake(h);
}

static void settle_all(struct head *head)
{
	link_each(at_session, &head->server->sessions)
	{
		struct session *s = link_of(at_session, struct session, in_sessions);
		link_each(at, &s->handles)
		{
			struct handle *h = link_of(at, struct handle, in_session);
			if (h->head == head)
				settled(h);
		}
	}
}

/* An error of loading names the file and the tensor for programs too. */
static void blame(struct job *j)
{
	const struct load_request *q = &j->load->request;
	if (!j->err.detail.file[0])
		snprintf(j->err.detail.file, sizeof j->err.detail.file, "%s", q->label);
	if (!j->err.detail.tensor[0])
		err_printable(j->err.detail.tensor, sizeof j->err.detail.tensor, q->tensor,
			      strlen(q->tensor));
}

/*
 * Weights are bounded by what the machine has, before they are packed: padding makes a head of narrow
 * rows up to 64 times its file.
 */
static int admit(struct server *s, const struct load *l, struct err *err)
{
	uint64_t need = geometry_bytes(&l->geometry), used = heads_bytes(s), limit = s->config.resident_bytes;
	if (need <= limit && used <= limit - need)
		return 0;
	err_set(err, NPU_E_NO_MEMORY,
		"%s: the packed head needs %llu bytes; %llu of %llu are in use by %u heads. Close some, or "
		"raise [resident] max_bytes",
		l->request.label, (unsigned long long)need, (unsigned long long)used,
		(unsigned long long)limit, link_count(&s->heads));
	err->detail.needed = need;
	err->detail.limit = limit;
	return err->code;
}

/* The next of those who opened the head whose own file can be packed, or NULL. */
static struct handle *spare_find(const struct head *head)
{
	link_each(at_session, &head->server->sessions)
	{
		struct session *s = link_of(at_session, struct session, in_sessions);
		link_each(at, &s->handles)
		{
			struct handle *h = link_of(at, struct handle, in_session);
			if (h->head == head && h->spare)
				return h;
		}
	}
	return NULL;
}

static void pack(uv_work_t *work)
{
	struct job *j = work->data;
	j->result = load_pack(j->load, &j->err);
}

static void on_packed(uv_work_t *work, int status);

/*
 * A file that changed or cannot be read any more is the fault of who passed it, and of nobody else: that
 * handle alone fails, and the head is packed from the next one's file. False where there is none.
 */
static bool pack_again(struct job *j)
{
	struct head *head = j->head;
	struct handle *failed = head->packer, *next = spare_find(head);

	if ((j->result != NPU_E_FILE_CHANGED && j->result != NPU_E_IO) || !next)
		return false;
	if (failed) {
		blame(j);
		failed->err = j->err;
		failed->head = NULL;
		head->users--;
		head->refs--; /* `next` holds it too */
		settled(failed);
	}
	log_line("head", head->id, "packed again from the file of session %llu: %s",
		 (unsigned long long)next->session->number, j->err.text);
	load_free(j->load);
	j->load = take(&next->spare);
	next->attached = false;
	head->packer = next;
	uv_queue_work(&j->server->loop, &j->work, pack, on_packed);
	return true;
}

static void on_packed(uv_work_t *work, int status)
{
	struct job *j = work->data;
	struct head *h = j->head;

	(void)status;
	if (j->result && pack_again(j))
		return;
	h->job = NULL;
	h->packer = NULL;
	h->nonfinite = j->load->nonfinite;
	if (j->result) {
		blame(j);
		h->state = HEAD_FAILED;
		h->err = j->err;
		link_remove(&h->in_heads);
	} else {
		h->state = HEAD_READY;
		h->image = j->load->image;
		memset(&j->load->image, 0, sizeof j->load->image);
	}
	job_free(j);
	if (h->refs == 0) { /* all went away while it was packed */
		link_remove(&h->in_heads);
		image_fini(&h->image);
		free(h);
		return;
	}
	settle_all(h);
}

static struct head *head_new(struct job *j)
{
	struct server *s = j->server;
	const struct load *l = j->load;
	struct head *h = calloc(1, sizeof *h);
	if (!h)
		return NULL;
	h->server = s;
	h->id = ++s->next_head;
	h->job = j;
	h->geometry = l->geometry;
	h->why = l->why;
	memcpy(h->hash, l->hash, sizeof h->hash);
	snprintf(h->label, sizeof h->label, "%s", l->request.label);
	snprintf(h->type, sizeof h->type, "%s", l->matrix.reading);
	err_printable(h->tensor, sizeof h->tensor, l->matrix.tensor->name, l->matrix.tensor->name_size);
	link_append(&s->heads, &h->in_heads);
	return h;
}

static void identify(uv_work_t *work)
{
	struct job *j = work->data;
	j->result = load_identify(j->load, &j->err);
}

static void on_identified(uv_work_t *work, int status)
{
	struct job *j = work->data;
	struct handle *h = j->handle;

	(void)status;
	if (!h) {
		job_free(j);
		return;
	}
	h->job = NULL;
	j->handle = NULL;
	if (!j->result)
		snprintf(h->note, sizeof h->note, "%s", j->load->matrix.note);
	struct head *head = j->result ? NULL : find(j->server, j->load);
	bool fresh = !j->result && !head && admit(j->server, j->load, &j->err) == 0;
	if (fresh && !(head = j->head = head_new(j)))
		err_set(&j->err, NPU_E_NO_MEMORY, "no memory for one more head");
	if (!head) {
		blame(j);
		h->err = j->err;
		job_free(j);
		settled(h);
		return;
	}
	h->head = head;
	head_hold(head);
	head->users++;
	if (fresh) {
		head->packer = h;
		uv_queue_work(&j->server->loop, &j->work, pack, on_packed);
		return;
	}
	h->attached = true;
	if (head->state == HEAD_LOADING)
		h->spare = take(&j->load);
	job_free(j);
	if (head->state == HEAD_READY)
		settled(h);
}

static struct handle *handle_of(struct session *s, uint64_t number, struct err *err)
{
	link_each(at, &s->handles)
	{
		struct handle *h = link_of(at, struct handle, in_session);
		if (h->number == number)
			return h;
	}
	err_set(err, NPU_E_NO_SUCH_HANDLE, "this session has no head %llu", (unsigned long long)number);
	return NULL;
}

void handle_close(struct handle *h)
{
	while (!link_empty(&h->waiters))
		request_stop(link_of(h->waiters.next, struct request, in_waiters), NPU_E_CANCELLED,
			     "the head was closed");
	if (h->job) {
		atomic_store(&h->job->load->stop, true);
		h->job->handle = NULL;
	}
	load_free(h->spare);
	if (h->head && h->head->packer == h)
		h->head->packer = NULL; /* others may still wait for what is made of its file */
	link_remove(&h->in_session);
	h->session->handle_count--;
	quota_give(&h->session->server->quota, h->session->peer.uid, QUOTA_HANDLES);
	if (h->head) {
		h->head->users--;
		head_release(h->head);
	}
	free(h);
}

void heads_stop(struct server *server)
{
	link_each(at_session, &server->sessions)
	{
		struct session *s = link_of(at_session, struct session, in_sessions);
		link_each(at, &s->handles) handle_close(link_of(at, struct handle, in_session));
	}
}

static int layout_of(struct proto_bytes name, enum layout *out, struct err *err)
{
	for (*out = LAYOUT_ROW_MAJOR; *out <= LAYOUT_BLOCKED; (*out)++) {
		const char *known = layout_name(*out);
		if (strlen(known) == name.size && memcmp(known, name.data, name.size) == 0)
			return 0;
	}
	return err_set(err, NPU_E_BAD_VALUE, "there is no such layout; blocked and row-major are");
}

int on_head_open(struct request *r, const struct req_head_open *q, struct rep_head_open *a, struct err *err)
{
	struct session *s = r->session;
	struct server *server = r->server;
	struct file *file = session_file(s, q->file);
	struct load_request want = {
		.options = {.transpose = q->transpose, .is_signed = q->is_signed, .k = q->k},
		.tile = q->tile,
	};

	if (!file)
		return err_set(err, NPU_E_NO_SUCH_HANDLE,
			       "this session has no file %llu: pass it on the side socket first",
			       (unsigned long long)q->file);
	if (!q8_layout_of(q->q8.data, q->q8.size, &want.options.q8))
		return err_set(err, NPU_E_BAD_VALUE, "there is no such q8 layout; auto, a and b are");
	int result = layout_of(q->layout, &want.layout, err);
	if (result)
		return result;
	if (q->label.size)
		err_printable(want.label, sizeof want.label, q->label.data, q->label.size);
	else
		snprintf(want.label, sizeof want.label, "%s", file->name);
	cleanup(source_fini) struct source source = {NULL, 0};
	result = source_of_file(&source, s, file, err);
	if (result)
		return result;
	result = quota_take(&server->quota, s->peer.uid, QUOTA_HANDLES, server->config.handles, err);
	if (result)
		return result;
	cleanup(freep) struct handle *h = calloc(1, sizeof *h);
	cleanup(freep) struct job *j = calloc(1, sizeof *j);
	want.tensor = strndup(q->tensor.data, q->tensor.size);
	if (!h || !j || !want.tensor ||
	    load_new(&j->load, &want, &source, &server->secret, &server->kernels, server->threads)) {
		free(want.tensor);
		quota_give(&server->quota, s->peer.uid, QUOTA_HANDLES);
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory", want.label);
	}
	h->session = s;
	h->number = a->head = ++s->next_handle;
	h->opened_ns = uv_hrtime();
	h->job = j;
	link_init(&h->waiters);
	link_append(&s->handles, &h->in_session);
	s->handle_count++;
	j->server = server;
	j->handle = h;
	j->work.data = j;
	server->loads++;
	uv_queue_work(&server->loop, &take(&j)->work, identify, on_identified);
	(void)take(&h);
	return 0;
}

void handle_answer(struct request *r)
{
	const struct handle *h = r->handle;
	const struct head *head = h->head;
	struct rep_head_wait a = {};
	static const char *const why[] = {"named", "untied", "tied"};
	char digest[33];

	if (h->err.code || (head && head->state == HEAD_FAILED)) {
		struct err err = h->err.code ? h->err : head->err;
		request_fail(r, &err);
		return;
	}
	if (head) {
		const struct geometry *g = &head->geometry;
		a.ready = head->state == HEAD_READY;
		a.tiles_done = a.ready ? g->tiles : atomic_load(&head->job->load->tiles_done);
		a.nv = g->nv;
		a.h = g->h;
		a.kpad = g->kd;
		a.tile = g->nd;
		a.tiles = g->tiles;
		a.layout = PROTO_STR(layout_name(g->layout));
		a.tensor = PROTO_STR(head->tensor);
		a.type = PROTO_STR(head->type);
		a.note = PROTO_STR(h->note);
		a.why = PROTO_STR(why[head->why]);
		a.hash = PROTO_STR(hex(digest, head->hash));
		a.bytes = head->image.size;
		a.attached = h->attached;
		a.packed = a.ready && !h->attached ? g->tiles : 0;
		a.nonfinite = head->nonfinite;
		a.seconds = h->seconds;
	}
	request_reply(r, &a);
}

int on_head_wait(struct request *r, const struct req_head_wait *q, struct rep_head_wait *a, struct err *err)
{
	struct handle *h = handle_of(r->session, q->head, err);
	(void)a;
	if (!h)
		return err->code;
	r->handle = h;
	if (h->err.code || (h->head && h->head->state != HEAD_LOADING)) {
		handle_answer(r);
		return LATER;
	}
	return request_wait(r, &h->waiters, q->wait_ms, handle_answer);
}

static bool is(struct proto_bytes b, const char *text)
{
	return strlen(text) == b.size && memcmp(text, b.data, b.size) == 0;
}

int on_head_run(struct request *r, const struct req_head_run *q, struct rep_head_run *a, struct err *err)
{
	struct handle *h = handle_of(r->session, q->head, err);
	struct run *run = &r->run;

	(void)a;
	if (!h)
		return err->code;
	if (h->err.code || (h->head && h->head->state == HEAD_FAILED)) {
		*err = h->err.code ? h->err : h->head->err;
		return err->code;
	}
	if (!h->head || h->head->state != HEAD_READY)
		return err_set(err, NPU_E_BAD_VALUE, "head %llu is loading: head.wait until it is ready",
			       (unsigned long long)q->head);
	const struct geometry *g = &h->head->geometry;
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
	if (is(q->want, "logits")) {
		run->want = WANT_LOGITS;
		run->k = g->nv;
	} else if (is(q->want, "top-k") || is(q->want, "argmax")) {
		run->want = WANT_TOP;
		run->k = is(q->want, "argmax") ? 1 : q->k;
	} else {
		return err_set(err, NPU_E_BAD_VALUE, "want is none of logits, top-k, argmax");
	}
	if (run->k == 0 || q->k > g->nv)
		return err_set(err, NPU_E_BAD_VALUE, "k is %llu; 1 to %u words can be had",
			       (unsigned long long)q->k, g->nv);
	uint64_t reply = q->rows * run->k * (run->want == WANT_LOGITS ? 4 : 8) + 4096;
	if (reply > PROTO_REPLY_MAX) {
		err_set(err, NPU_E_TOO_LARGE,
			"the answer would have %llu bytes; a reply may have %u: ask for fewer rows",
			(unsigned long long)reply, PROTO_REPLY_MAX);
		err->detail.needed = reply;
		err->detail.limit = PROTO_REPLY_MAX;
		return err->code;
	}
	run->image = &h->head->image;
	run->x = (const void *)q->x.data;
	run->waiting = (struct batch_run){.key = h->head->id, .rows = q->rows, .weight = 1};
	r->head = h->head;
	head_hold(r->head);
	r->state = REQUEST_RUNNING;
	executor_add(&r->server->executor, &r->session->rows, run);
	return LATER;
}

void head_answer_run(struct request *r)
{
	const struct run *run = &r->run;
	size_t words = (size_t)run->waiting.rows * run->k;
	char digest[33];
	struct rep_head_run a = {
		.nonfinite = run->nonfinite,
		.path = PROTO_STR("host"),
		.kernel = PROTO_STR(r->server->kernels.head_variant),
		.rows_in_pass = run->rows_in_pass,
		.hash = PROTO_STR(hex(digest, r->head->hash)),
		.queue_seconds = run->queue_seconds,
		.compute_seconds = run->compute_seconds,
		.cpu_seconds = run->cpu_seconds,
	};
	if (run->want == WANT_LOGITS) {
		a.logits = (struct proto_bytes){(const char *)run->logits, words * sizeof *run->logits};
	} else {
		a.ids = (struct proto_bytes){(const char *)run->ids, words * sizeof *run->ids};
		a.values = (struct proto_bytes){(const char *)run->values, words * sizeof *run->values};
	}
	request_reply(r, &a);
}

int on_head_close(struct request *r, const struct req_head_close *q, struct rep_head_close *a,
		  struct err *err)
{
	struct handle *h = handle_of(r->session, q->head, err);
	(void)a;
	if (!h)
		return err->code;
	handle_close(h);
	return 0;
}

int on_head_list(struct request *r, const struct req_head_list *q, struct rep_head_list *a, struct err *err)
{
	static const char *const states[] = {"loading", "ready", "failed"};
	struct row_head rows[64];
	char digests[64][33];
	size_t n = 0;

	(void)err;
	link_each(at, &r->server->heads)
	{
		const struct head *h = link_of(at, struct head, in_heads);
		if (h->id <= q->after)
			continue;
		if (n == 64) {
			a->more = true;
			break;
		}
		rows[n] = (struct row_head){
			.id = h->id,
			.label = PROTO_STR(h->label),
			.tensor = PROTO_STR(h->tensor),
			.type = PROTO_STR(h->type),
			.layout = PROTO_STR(layout_name(h->geometry.layout)),
			.hash = PROTO_STR(hex(digests[n], h->hash)),
			.state = PROTO_STR(states[h->state]),
			.nv = h->geometry.nv,
			.h = h->geometry.h,
			.kpad = h->geometry.kd,
			.tile = h->geometry.nd,
			.tiles = h->geometry.tiles,
			.bytes = head_bytes(h),
			.users = h->users,
			.rows = h->rows,
		};
		n++;
	}
	a->heads = (struct proto_list){rows, n};
	request_reply(r, a); /* here, for the rows are ours */
	return LATER;
}
