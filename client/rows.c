/* Rows of activations through what is resident. */
#include "rows.h"
#include "own.h"

_Static_assert(sizeof(float) == 4, "float32");

enum { SLACK = 4096 }; /* what a message holds beside its bulk */

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
	return err_set(err, NPU_E_MALFORMED, "the answer to a run: %s has %zu bytes; %llu were expected",
		       field, bytes.size, (unsigned long long)expected);
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

/*
 * Rows through a head, in as many requests as they take: either `logits`, or `ids` and `values`, k of them a
 * row.
 */
struct running {
	struct npu_call call;
	const npu_head *head;
	bool product;		    /* through weights: `logits` are the product */
	struct req_gemm_run expert; /* all that is known of one; else empty */
	const float *x;
	size_t rows, done, asked, fit;
	float *logits;
	uint32_t k, *ids;
	float *values;
	struct npu_run_info sum, *info;
};

static int ask_head(struct running *u, struct proto_bytes x)
{
	const npu_head *head = u->head;
	struct req_head_run q = {
		.head = head->handle,
		.rows = u->asked,
		.x = x,
		.want = u->logits ? PROTO_STR("logits") : PROTO_STR("top-k"),
		.k = u->logits ? 1 : u->k,
		.path = PROTO_STR(head->path),
		.verify = head->verify,
	};
	return operation_ask(&u->call, OP_head_run, &q, head->session, head->client->timeout_ms);
}

static int ask_weights(struct running *u, struct proto_bytes x)
{
	const npu_head *head = u->head;
	struct req_gemm_run q = u->expert;
	q.weights = head->handle;
	q.rows = u->asked;
	q.x = x;
	q.path = PROTO_STR(head->path);
	q.verify = head->verify;
	return operation_ask(&u->call, OP_gemm_run, &q, head->session, head->client->timeout_ms);
}

static int ask_run(struct running *u)
{
	u->asked = u->rows - u->done < u->fit ? u->rows - u->done : u->fit;
	struct proto_bytes x = {(const char *)(u->x + u->done * u->head->h),
				u->asked * u->head->h * sizeof(float)};
	return u->product ? ask_weights(u, x) : ask_head(u, x);
}

static int on_numbers(struct running *u, struct proto_bytes numbers)
{
	size_t nv = u->head->nv;
	int r = check_size("logits or y", numbers, (uint64_t)u->asked * nv * sizeof(float), &u->call.err);
	if (r == 0)
		memcpy(u->logits + u->done * nv, numbers.data, numbers.size);
	return r;
}

static int on_words(struct running *u, const struct rep_head_run *p)
{
	struct err *err = &u->call.err;
	size_t nv = u->head->nv, at = u->done * u->k, n = u->asked * u->k;
	int r;

	if ((r = check_size("ids", p->ids, (uint64_t)n * 4, err)) ||
	    (r = check_size("values", p->values, (uint64_t)n * 4, err)))
		return r;
	memcpy(u->ids + at, p->ids.data, p->ids.size);
	memcpy(u->values + at, p->values.data, p->values.size);
	/* A caller looks words up by them. */
	for (size_t i = at; i < at + n; i++)
		if (u->ids[i] >= nv)
			return err_set(err, NPU_E_MALFORMED, "head.run: word %u of a head of %zu words",
				       u->ids[i], nv);
	return 0;
}

static int take_answer(struct running *u)
{
	cleanup(answer_fini) struct answer a = {};
	union {
		struct rep_head_run head;
		struct rep_gemm_run gemm;
	} p;
	int r = operation_answer(&u->call, &p, &a);
	if (r)
		return r;
	if (!u->product) {
		r = u->logits ? on_numbers(u, p.head.logits) : on_words(u, &p.head);
		add_run(&u->sum, &p.head);
	} else {
		struct rep_head_run ran = {}, *to = &ran;
		const struct rep_gemm_run *from = &p.gemm;
		RAN(PROTO_COPY_FIELD, , );
		r = on_numbers(u, p.gemm.y);
		add_run(&u->sum, &ran);
	}
	u->done += u->asked;
	return r;
}

static int running_step(struct npu_call *o)
{
	struct running *u = (struct running *)o;
	int r = o->request ? take_answer(u) : 0;

	if (r)
		return r;
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
		return err_set(client_err(), NPU_E_BAD_VALUE, "no head or weights were given");
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

static int numbers_init(struct running *u, npu_head *head, const float *x, size_t rows, float *logits,
			struct npu_run_info *info)
{
	int r = running_init(u, head, x, rows, info);
	if (r)
		return r;
	if (!logits)
		return err_set(client_err(), NPU_E_BAD_VALUE, "room for the results must be given");
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
	int r = numbers_init(&u, head, x, rows, logits, info);
	return r ? r : operation_wait(&u.call);
}

NPU_API int npu_head_logits_start(npu_head *head, const float *x, size_t rows, float *logits,
				  struct npu_run_info *info, npu_done *done, void *arg, npu_call **call)
{
	struct running u;
	int r = numbers_init(&u, head, x, rows, logits, info);
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

static int product_init(struct running *u, npu_weights *w, const float *x, size_t rows, float *y,
			struct npu_run_info *info)
{
	int r = numbers_init(u, w ? &w->is : NULL, x, rows, y, info);
	u->product = true;
	return r;
}

NPU_API int npu_gemm(npu_weights *w, const float *x, size_t rows, float *y, struct npu_run_info *info)
{
	struct running u;
	int r = product_init(&u, w, x, rows, y, info);
	return r ? r : operation_wait(&u.call);
}

NPU_API int npu_gemm_start(npu_weights *w, const float *x, size_t rows, float *y, struct npu_run_info *info,
			   npu_done *done, void *arg, npu_call **call)
{
	struct running u;
	int r = product_init(&u, w, x, rows, y, info);
	return r ? r : operation_begin(&u.call, sizeof u, done, arg, call);
}

int rows_through_expert(npu_head *expert, const struct req_gemm_run *fields, const float *x, size_t rows,
			float *y, struct npu_run_info *info)
{
	struct running u;
	int r = numbers_init(&u, expert, x, rows, y, info);
	if (r)
		return r;
	u.product = true;
	u.expert = *fields;
	return operation_wait(&u.call);
}
