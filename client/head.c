#include "client.h"
#include "own.h"
#include "side.h"
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>

_Static_assert(sizeof(float) == 4, "float32");

enum {
	GIVE_BACK_MS = 2000, /* for closing what a failure leaves */
	WAIT_MS = 20000,     /* one head.wait; below PROTO_WAIT_MAX_MS */
	WAIT_PROGRESS_MS = 200,
	SLACK = 4096, /* what a message holds beside its bulk */
};

struct npu_head {
	npu_client *client;
	struct npu_head *next; /* client.heads */
	uint64_t handle;
	uint64_t session; /* the handle means nothing, or another head, in any other */
	uint32_t nv, h;
	char path[16]; /* of runs; "": the daemon's default */
	bool verify;
};

static bool path_known(const char *path)
{
	static const char *const known[] = {"auto", "host", "device", "alternate"};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(path, known[i]) == 0)
			return true;
	return false;
}

/* A program that serves does not die of a typo in its environment: it is told, once. */
static void path_from_environment(char to[16])
{
	static atomic_bool told;
	const char *path = getenv("NPUD_HEAD_PATH");

	to[0] = '\0';
	if (!path || !*path)
		return;
	if (path_known(path))
		snprintf(to, 16, "%s", path);
	else if (!atomic_exchange(&told, true))
		fprintf(stderr, "libnpu: NPUD_HEAD_PATH: there is no such path; auto, host, device and "
				"alternate are; "
				"auto is used\n");
	if (!to[0])
		snprintf(to, 16, "auto");
}

NPU_API int npu_head_set_path(npu_head *head, const char *path)
{
	if (!head)
		return err_set(client_err(), NPU_E_BAD_VALUE, "no head was given");
	if (path && !path_known(path))
		return err_set(client_err(), NPU_E_BAD_VALUE,
			       "there is no such path; auto, host, device and alternate are");
	if (path)
		snprintf(head->path, sizeof head->path, "%s", path);
	else
		path_from_environment(head->path);
	return 0;
}

NPU_API void npu_head_set_verify(npu_head *head, bool verify)
{
	if (head)
		head->verify = verify;
}

void heads_free(npu_client *c)
{
	while (c->heads) {
		struct npu_head *next = c->heads->next;
		free(c->heads);
		c->heads = next;
	}
}

static void tell(struct npu_head_info *info, const struct rep_head_wait *w)
{
	*info = (struct npu_head_info){
		.nv = (uint32_t)w->nv,
		.h = (uint32_t)w->h,
		.kpad = (uint32_t)w->kpad,
		.tile = (uint32_t)w->tile,
		.tiles = (uint32_t)w->tiles,
		.bytes = w->bytes,
		.attached = w->attached,
		.packed = w->packed,
		.from_store = w->from_store,
		.written = w->written,
		.writing = w->writing,
		.refused = w->refused,
		.gathered_columns = w->gathered_columns,
		.hashed = w->hashed,
		.nonfinite = w->nonfinite,
		.seconds = w->seconds,
	};
	call_copy(info->layout, sizeof info->layout, w->layout);
	call_copy(info->tensor, sizeof info->tensor, w->tensor);
	call_copy(info->type, sizeof info->type, w->type);
	call_copy(info->note, sizeof info->note, w->note);
	call_copy(info->why, sizeof info->why, w->why);
	call_copy(info->hash, sizeof info->hash, w->hash);
	call_copy(info->refusals, sizeof info->refusals, w->refusals);
}

/* Greet (after a silent reconnect that gets the new session's token), pass, open, wait, give back. */
struct opening {
	struct npu_call call;
	enum { OPENING_GREET, OPENING_OPEN, OPENING_WAIT, OPENING_GIVE_BACK } at;
	struct model model;	    /* owned */
	char *tensor, *layout, *q8; /* owned */
	struct npu_head_options options;
	struct npu_head *head; /* owned until it is *out */
	uint64_t file;
	struct npu_head_info *info;
	npu_head **out;
	struct err failure;
};

static void opening_fini(struct npu_call *o)
{
	struct opening *g = (struct opening *)o;
	model_fini(&g->model);
	free(g->tensor);
	free(g->layout);
	free(g->q8);
	free(g->head);
}

/* A call that the daemon may keep for `wait_ms`. */
static int wait_timeout(const npu_client *c, int wait_ms)
{
	return c->timeout_ms < INT_MAX - wait_ms ? c->timeout_ms + wait_ms : INT_MAX;
}

static int ask_wait(struct opening *g)
{
	struct req_head_wait q = {
		.head = g->head->handle,
		.wait_ms = g->options.progress ? WAIT_PROGRESS_MS : WAIT_MS,
	};
	g->at = OPENING_WAIT;
	return operation_ask(&g->call, OP_head_wait, &q, g->head->session,
			     wait_timeout(g->call.client, (int)q.wait_ms));
}

static int pass_and_open(struct opening *g)
{
	npu_client *c = g->call.client;
	const struct told *told = connection_told(&c->connection);
	int r = side_pass(&c->connection, told, &g->model, &g->file, &g->call.err);
	g->head->session = told->session; /* of the files, should only some have been taken */
	if (r)
		return r;
	struct req_head_open q = {
		.file = g->file,
		.label = PROTO_STR(g->model.label),
		.tensor = PROTO_STR(g->tensor),
		.transpose = g->options.transpose,
		.q8 = PROTO_STR(g->q8),
		.is_signed = g->options.is_signed,
		.k = g->options.k,
		.tile = g->options.tile,
		.layout = PROTO_STR(g->layout),
		.store = !g->options.no_store,
	};
	g->at = OPENING_OPEN;
	return operation_ask(&g->call, OP_head_open, &q, told->session, c->timeout_ms);
}

static int on_waited(struct opening *g, const struct rep_head_wait *w)
{
	const struct npu_head_options *options = &g->options;
	struct err *err = &g->call.err;

	if (!w->ready) {
		if (options->progress &&
		    options->progress(options->progress_arg, w->tiles_done, w->tiles) != 0)
			return err_set(err, NPU_E_CANCELLED, "opening the head was cancelled");
		return ask_wait(g);
	}
	if (!w->nv || !w->h)
		return err_set(err, NPU_E_MALFORMED, "head.wait: the head has no shape");
	path_from_environment(g->head->path);
	g->head->nv = (uint32_t)w->nv;
	g->head->h = (uint32_t)w->h;
	if (g->info)
		tell(g->info, w);
	return 0;
}

/* The next thing to give back, the head only after a failure; behind the last the outcome. */
static int give_back(struct opening *g)
{
	struct npu_call *o = &g->call;
	npu_client *c = o->client;

	g->at = OPENING_GIVE_BACK;
	o->state = OPERATION_ENDING;
	if (g->failure.code && g->head->handle) {
		struct req_head_close q = {.head = g->head->handle};
		g->head->handle = 0;
		if (operation_ask(o, OP_head_close, &q, g->head->session, GIVE_BACK_MS) == MORE)
			return MORE;
	}
	if (g->file) {
		struct req_file_close q = {.file = g->file};
		g->file = 0;
		if (operation_ask(o, OP_file_close, &q, g->head->session, GIVE_BACK_MS) == MORE)
			return MORE;
	}
	o->err = g->failure;
	if (g->failure.code)
		return g->failure.code;
	pthread_mutex_lock(&c->lock);
	g->head->next = c->heads;
	c->heads = g->head;
	pthread_mutex_unlock(&c->lock);
	*g->out = take(&g->head);
	return 0;
}

static int opening_step(struct npu_call *o)
{
	struct opening *g = (struct opening *)o;
	cleanup(answer_fini) struct answer a = {};
	union {
		struct rep_ping ping;
		struct rep_head_open open;
		struct rep_head_wait wait;
		struct rep_head_close head_close;
		struct rep_file_close file_close;
	} p;
	struct req_ping greeting = {};
	int r = o->request ? operation_answer(o, &p, &a) : 0;

	switch (g->at) {
	case OPENING_GREET:
		if (r == 0)
			r = a.message ? pass_and_open(g)
				      : operation_ask(o, OP_ping, &greeting, 0, o->client->timeout_ms);
		break;
	case OPENING_OPEN:
		if (r == 0) {
			g->head->handle = p.open.head;
			r = ask_wait(g);
		}
		break;
	case OPENING_WAIT:
		if (r == 0)
			r = on_waited(g, &p.wait);
		break;
	case OPENING_GIVE_BACK:
		return give_back(g);
	}
	if (r == MORE)
		return MORE;
	if (r)
		g->failure = o->err;
	return give_back(g);
}

/* As NPUD_STORE says; what it does not say is yes. */
static bool store_is_off(void)
{
	const char *env = getenv("NPUD_STORE");
	return env && (strcmp(env, "0") == 0 || strcmp(env, "no") == 0);
}

static int opening_init(struct opening *g, npu_client *c, const char *model,
			const struct npu_head_options *options, npu_head **out, struct npu_head_info *info)
{
	*g = (struct opening){
		.call = {.client = c, .step = opening_step, .fini = opening_fini},
		.info = info,
		.out = out,
	};
	int r = client_usable(c);
	if (r)
		return r;
	if (!model || !*model || !out)
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_head_open: model and out must be given");
	*out = NULL;
	if (options)
		g->options = *options;
	r = model_find(&g->model, model, client_err());
	if (r)
		return r;
	g->options.no_store |= store_is_off();
	g->tensor = strdup(g->options.tensor ? g->options.tensor : "");
	g->layout = strdup(g->options.layout ? g->options.layout : "auto");
	g->q8 = strdup(g->options.q8 ? g->options.q8 : "auto");
	g->head = calloc(1, sizeof *g->head);
	if (!g->tensor || !g->layout || !g->q8 || !g->head)
		return err_set(client_err(), NPU_E_NO_MEMORY, "out of memory");
	g->head->client = c;
	return 0;
}

NPU_API int npu_head_open(npu_client *c, const char *model, const struct npu_head_options *options,
			  npu_head **out, struct npu_head_info *info)
{
	struct opening g;
	int r = opening_init(&g, c, model, options, out, info);
	if (r == 0)
		return operation_wait(&g.call);
	opening_fini(&g.call);
	return r;
}

NPU_API int npu_head_open_start(npu_client *c, const char *model, const struct npu_head_options *options,
				npu_head **out, struct npu_head_info *info, npu_done *done, void *arg,
				npu_call **call)
{
	struct opening g;
	int r = opening_init(&g, c, model, options, out, info);
	if (r == 0)
		return operation_begin(&g.call, sizeof g, done, arg, call);
	opening_fini(&g.call);
	return r;
}

NPU_API int npu_head_stored(npu_head *head, struct npu_head_info *info)
{
	if (!head || !info)
		return NPU_E_BAD_VALUE;
	npu_client *c = head->client;
	int r = client_usable(c);
	while (r == 0) {
		const struct call_options options = {.session = head->session,
						     .timeout_ms = wait_timeout(c, WAIT_MS)};
		struct req_head_wait q = {.head = head->handle, .wait_ms = WAIT_MS, .stored = true};
		struct rep_head_wait w = {};
		cleanup(answer_fini) struct answer a = {};
		r = call(&c->connection, OP_head_wait, &q, options, &w, &a, client_err());
		if (r)
			return r;
		tell(info, &w);
		if (!w.writing)
			break;
	}
	return r;
}

NPU_API int npu_head_close(npu_head *head)
{
	if (!head)
		return 0;
	npu_client *c = head->client;
	int r = client_usable(c);
	if (r == 0 && head->session == connection_told(&c->connection)->session) {
		const struct call_options options = {.session = head->session, .timeout_ms = c->timeout_ms};
		struct req_head_close q = {.head = head->handle};
		struct rep_head_close p;
		cleanup(answer_fini) struct answer a = {};
		r = call(&c->connection, OP_head_close, &q, options, &p, &a, client_err());
	}
	pthread_mutex_lock(&c->lock);
	struct npu_head **link = &c->heads;
	while (*link != head)
		link = &(*link)->next;
	*link = head->next;
	pthread_mutex_unlock(&c->lock);
	free(head);
	return r;
}

/* How many rows go into one request, or a refusal with the numbers. */
static int rows_that_fit(const npu_head *head, uint64_t reply_bytes, size_t *out, struct err *err)
{
	const struct told *told = connection_told(&head->client->connection);
	uint64_t request_bytes = (uint64_t)head->h * sizeof(float);
	uint64_t request_room = told->max_request > SLACK ? told->max_request - SLACK : 0;
	uint64_t reply_room = told->max_reply > SLACK ? told->max_reply - SLACK : 0;
	if (request_bytes == 0 || reply_bytes == 0)
		return err_set(err, NPU_E_MALFORMED, "the daemon told a head without rows or columns");
	bool request = request_bytes > request_room;
	if (request || reply_bytes > reply_room) {
		uint64_t needed = request ? request_bytes : reply_bytes;
		uint64_t room = request ? request_room : reply_room;
		err_set(err, NPU_E_TOO_LARGE, "one row takes %llu bytes in a %s; the daemon allows %llu%s",
			(unsigned long long)needed, request ? "request" : "reply", (unsigned long long)room,
			request ? "" : "; ask for the best words instead of logits");
		err->detail.needed = needed;
		err->detail.limit = room;
		return NPU_E_TOO_LARGE;
	}
	uint64_t rows = told->max_rows;
	if (rows > request_room / request_bytes)
		rows = request_room / request_bytes;
	if (rows > reply_room / reply_bytes)
		rows = reply_room / reply_bytes;
	*out = (size_t)rows;
	return 0;
}

static int check_size(const char *field, struct proto_bytes bytes, uint64_t expected, struct err *err)
{
	if (bytes.size == expected)
		return 0;
	return err_set(err, NPU_E_MALFORMED, "head.run: %s has %zu bytes; %llu were expected", field,
		       bytes.size, (unsigned long long)expected);
}

static void add_run(struct npu_run_info *info, const struct rep_head_run *p)
{
	info->nonfinite += p->nonfinite;
	info->queue_seconds += p->queue_seconds;
	info->compute_seconds += p->compute_seconds;
	info->cpu_seconds += p->cpu_seconds;
	info->rows_in_pass = p->rows_in_pass;
	call_copy(info->path, sizeof info->path, p->path);
	call_copy(info->kernel, sizeof info->kernel, p->kernel);
	call_copy(info->why, sizeof info->why, p->why);
	info->verified = p->verified;
	info->launch_rows = p->launch_rows;
}

/* Rows through a head, in as many requests as they take: either `logits`, or `ids` and `values`, k of them a
 * row. */
struct running {
	struct npu_call call;
	const npu_head *head;
	const float *x;
	size_t rows, done, asked, fit;
	float *logits;
	uint32_t k, *ids;
	float *values;
	struct npu_run_info sum, *info;
};

static int ask_run(struct running *u)
{
	const npu_head *head = u->head;
	u->asked = u->rows - u->done < u->fit ? u->rows - u->done : u->fit;
	struct req_head_run q = {
		.head = head->handle,
		.rows = u->asked,
		.x = {(const char *)(u->x + u->done * head->h), u->asked * head->h * sizeof(float)},
		.want = u->logits ? PROTO_STR("logits") : PROTO_STR("top-k"),
		.k = u->logits ? 1 : u->k,
		.path = PROTO_STR(head->path),
		.verify = head->verify,
	};
	return operation_ask(&u->call, OP_head_run, &q, head->session, head->client->timeout_ms);
}

static int on_ran(struct running *u, const struct rep_head_run *p)
{
	struct err *err = &u->call.err;
	size_t nv = u->head->nv, at = u->done * u->k, n = u->asked * u->k;
	int r;

	if (u->logits) {
		r = check_size("logits", p->logits, (uint64_t)u->asked * nv * sizeof(float), err);
		if (r)
			return r;
		memcpy(u->logits + u->done * nv, p->logits.data, p->logits.size);
	} else {
		if ((r = check_size("ids", p->ids, (uint64_t)n * 4, err)) ||
		    (r = check_size("values", p->values, (uint64_t)n * 4, err)))
			return r;
		memcpy(u->ids + at, p->ids.data, p->ids.size);
		memcpy(u->values + at, p->values.data, p->values.size);
		/* A caller looks words up by them. */
		for (size_t i = at; i < at + n; i++)
			if (u->ids[i] >= nv)
				return err_set(err, NPU_E_MALFORMED,
					       "head.run: word %u of a head of %zu words", u->ids[i], nv);
	}
	add_run(&u->sum, p);
	u->done += u->asked;
	return 0;
}

static int running_step(struct npu_call *o)
{
	struct running *u = (struct running *)o;
	cleanup(answer_fini) struct answer a = {};
	struct rep_head_run p;

	if (o->request) {
		int r = operation_answer(o, &p, &a);
		if (r == 0)
			r = on_ran(u, &p);
		if (r)
			return r;
	}
	if (u->done < u->rows)
		return ask_run(u);
	if (u->info)
		*u->info = u->sum;
	return 0;
}

static int running_init(struct running *u, npu_head *head, const float *x, size_t rows,
			struct npu_run_info *info)
{
	if (!head)
		return err_set(client_err(), NPU_E_BAD_VALUE, "no head was given");
	*u = (struct running){
		.call = {.client = head->client, .step = running_step},
		.head = head,
		.x = x,
		.rows = rows,
		.info = info,
	};
	int r = client_usable(head->client);
	if (r)
		return r;
	if (!x || rows == 0)
		return err_set(client_err(), NPU_E_BAD_VALUE,
			       "activations and at least one row must be given");
	return 0;
}

static int logits_init(struct running *u, npu_head *head, const float *x, size_t rows, float *logits,
		       struct npu_run_info *info)
{
	int r = running_init(u, head, x, rows, info);
	if (r)
		return r;
	if (!logits)
		return err_set(client_err(), NPU_E_BAD_VALUE, "room for the logits must be given");
	u->logits = logits;
	return rows_that_fit(head, (uint64_t)head->nv * sizeof(float), &u->fit, client_err());
}

static int top_init(struct running *u, npu_head *head, const float *x, size_t rows, uint32_t k, uint32_t *ids,
		    float *values, struct npu_run_info *info)
{
	int r = running_init(u, head, x, rows, info);
	if (r)
		return r;
	if (!ids || !values)
		return err_set(client_err(), NPU_E_BAD_VALUE, "room for ids and values must be given");
	if (k == 0 || k > head->nv)
		return err_set(client_err(), NPU_E_BAD_VALUE, "k is %u; 1 to %u are allowed", k, head->nv);
	u->k = k;
	u->ids = ids;
	u->values = values;
	return rows_that_fit(head, (uint64_t)k * 8, &u->fit, client_err());
}

NPU_API int npu_head_logits(npu_head *head, const float *x, size_t rows, float *logits,
			    struct npu_run_info *info)
{
	struct running u;
	int r = logits_init(&u, head, x, rows, logits, info);
	return r ? r : operation_wait(&u.call);
}

NPU_API int npu_head_logits_start(npu_head *head, const float *x, size_t rows, float *logits,
				  struct npu_run_info *info, npu_done *done, void *arg, npu_call **call)
{
	struct running u;
	int r = logits_init(&u, head, x, rows, logits, info);
	return r ? r : operation_begin(&u.call, sizeof u, done, arg, call);
}

NPU_API int npu_head_top(npu_head *head, const float *x, size_t rows, uint32_t k, uint32_t *ids,
			 float *values, struct npu_run_info *info)
{
	struct running u;
	int r = top_init(&u, head, x, rows, k, ids, values, info);
	return r ? r : operation_wait(&u.call);
}

NPU_API int npu_head_top_start(npu_head *head, const float *x, size_t rows, uint32_t k, uint32_t *ids,
			       float *values, struct npu_run_info *info, npu_done *done, void *arg,
			       npu_call **call)
{
	struct running u;
	int r = top_init(&u, head, x, rows, k, ids, values, info);
	return r ? r : operation_begin(&u.call, sizeof u, done, arg, call);
}
