#include "head.h"
#include "giving.h"
#include "own.h"
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>

enum {
	GIVE_BACK_MS = 2000, /* for closing what a failure leaves */
	WAIT_MS = 20000,     /* one head.wait; below PROTO_WAIT_MAX_MS */
	WAIT_PROGRESS_MS = 200,
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
void head_path_from_environment(char to[16])
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
		head_path_from_environment(head->path);
	return 0;
}

NPU_API void npu_head_set_verify(npu_head *head, bool verify)
{
	if (head)
		head->verify = verify;
}

void head_enlist(npu_client *c, struct npu_head *head)
{
	pthread_mutex_lock(&c->lock);
	head->next = c->heads;
	c->heads = head;
	pthread_mutex_unlock(&c->lock);
}

void head_delist(npu_client *c, struct npu_head *head)
{
	pthread_mutex_lock(&c->lock);
	struct npu_head **link = &c->heads;
	while (*link != head)
		link = &(*link)->next;
	*link = head->next;
	pthread_mutex_unlock(&c->lock);
}

void heads_free(npu_client *c)
{
	while (c->heads) {
		struct npu_head *next = c->heads->next;
		free(c->heads);
		c->heads = next;
	}
}

void head_tell(struct npu_head_info *info, const struct rep_head_wait *w)
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

/* Give the files, open, wait, give back. */
struct opening {
	struct npu_call call;
	enum { OPENING_GIVE, OPENING_OPEN, OPENING_WAIT, OPENING_GIVE_BACK } at;
	struct giving giving;	    /* owned */
	char *tensor, *layout, *q8; /* owned */
	struct npu_head_options options;
	struct npu_head *head; /* owned until it is *out */
	struct npu_head_info *info;
	npu_head **out;
	struct err failure;
};

static void opening_fini(struct npu_call *o)
{
	struct opening *g = (struct opening *)o;
	giving_fini(&g->giving);
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

static int ask_open(struct opening *g)
{
	struct req_head_open q = {
		.file = g->giving.file,
		.label = PROTO_STR(g->giving.model.label),
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
	return operation_ask(&g->call, OP_head_open, &q, g->head->session, g->call.client->timeout_ms);
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
	head_path_from_environment(g->head->path);
	g->head->nv = (uint32_t)w->nv;
	g->head->h = (uint32_t)w->h;
	if (g->info)
		head_tell(g->info, w);
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
	if (g->giving.file) {
		struct req_file_close q = {.file = g->giving.file};
		g->giving.file = 0;
		if (operation_ask(o, OP_file_close, &q, g->head->session, GIVE_BACK_MS) == MORE)
			return MORE;
	}
	o->err = g->failure;
	if (g->failure.code)
		return g->failure.code;
	head_enlist(c, g->head);
	*g->out = take(&g->head);
	return 0;
}

static int opening_step(struct npu_call *o)
{
	struct opening *g = (struct opening *)o;
	cleanup(answer_fini) struct answer a = {};
	union {
		struct rep_head_open open;
		struct rep_head_wait wait;
		struct rep_head_close head_close;
		struct rep_file_close file_close;
	} p;
	int r = o->request && g->at != OPENING_GIVE ? operation_answer(o, &p, &a) : 0;

	switch (g->at) {
	case OPENING_GIVE:
		r = giving_step(&g->giving, o);
		g->head->session = g->giving.session; /* of the files, should only some have been taken */
		if (r == 0)
			r = ask_open(g);
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
	if (!model || !out)
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_head_open: model and out must be given");
	*out = NULL;
	if (options)
		g->options = *options;
	r = model_find(&g->giving.model, model, client_err());
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
		head_tell(info, &w);
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
	head_delist(c, head);
	free(head);
	return r;
}
