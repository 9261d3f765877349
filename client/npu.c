#include "npu.h"
#include "call.h"
#include "own.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#define NPU_API __attribute__((visibility("default")))

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bulk numbers go as they lie in memory");
_Static_assert(sizeof(float) == 4, "float32");

enum {
	TIMEOUT_MS = 60000,
	GIVE_BACK_MS = 2000, /* for closing what a failure leaves */
	WAIT_MS = 20000,     /* one head.wait; below PROTO_WAIT_MAX_MS */
	WAIT_PROGRESS_MS = 200,
	SLACK = 4096, /* what a message holds beside its bulk */
};

struct npu_client {
	struct connection connection;
	int timeout_ms;
	struct err last;
	struct npu_head *heads;
	struct {
		char version[33], device[33], health[17];
	} status;
};

struct npu_head {
	npu_client *client;
	struct npu_head *next; /* client.heads */
	uint64_t handle;
	uint64_t session; /* the handle means nothing, or another head, in any other */
	uint32_t nv, h;
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

NPU_API int npu_connect(npu_client **out, const char *socket, const char *name)
{
	if (!out)
		return NPU_E_BAD_VALUE;
	*out = NULL;
	npu_client *c = calloc(1, sizeof *c);
	if (!c)
		return NPU_E_NO_MEMORY;
	c->timeout_ms = TIMEOUT_MS;
	int r = connection_open(&c->connection, socket, name && *name ? name : "libnpu", &c->last);
	*out = c;
	return r;
}

NPU_API void npu_close(npu_client *c)
{
	if (!c)
		return;
	connection_close(&c->connection);
	while (c->heads) {
		struct npu_head *next = c->heads->next;
		free(c->heads);
		c->heads = next;
	}
	free(c);
}

NPU_API const char *npu_error_text(const npu_client *c)
{
	return c ? c->last.text : err_sentence(NPU_E_NO_MEMORY);
}

NPU_API const char *npu_error_name(int code)
{
	return err_name(code);
}

NPU_API const char *npu_socket(const npu_client *c)
{
	return c ? c->connection.path : "";
}

NPU_API const char *npu_daemon_version(const npu_client *c)
{
	return c ? c->connection.version : "";
}

NPU_API const char *npu_device(const npu_client *c)
{
	return c ? c->connection.device : "";
}

NPU_API const char *npu_library_version(void)
{
	return NPUD_VERSION;
}

NPU_API void npu_set_timeout(npu_client *c, int ms)
{
	if (c)
		c->timeout_ms = ms > 0 ? ms : TIMEOUT_MS;
}

/* 0 where the client can be used; one that never connected keeps the sentence that says why. */
static int usable(npu_client *c)
{
	if (!c)
		return NPU_E_BAD_VALUE;
	if (c->connection.open)
		return 0;
	return c->last.code ? c->last.code : err_set(&c->last, NPU_E_CONNECTION_LOST, "not connected");
}

static int ask(npu_client *c, enum proto_op_id op, const void *request, void *reply, struct answer *a)
{
	return call(&c->connection, op, request, reply, a, c->timeout_ms, &c->last);
}

NPU_API int npu_ping(npu_client *c, double *seconds)
{
	int r = usable(c);
	if (r)
		return r;
	struct req_ping q = {};
	struct rep_ping p = {};
	cleanup(answer_fini) struct answer a = {};
	double start = now();
	r = ask(c, OP_ping, &q, &p, &a);
	if (r == 0 && seconds)
		*seconds = now() - start;
	return r;
}

static int open_file(npu_client *c, const char *path, int *out)
{
	/* Without O_NONBLOCK a named pipe would hold us until somebody writes. */
	cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	char shown[256];
	err_printable(shown, sizeof shown, path, strlen(path));
	if (fd < 0 || fstat(fd, &st) != 0) {
		int number = errno;
		err_sys(&c->last, number, "%s: cannot open", shown);
		return err_set(&c->last, c->last.code, "%s; check the %s", c->last.text,
			       number == EACCES || number == EPERM ? "permissions" : "path");
	}
	if (S_ISDIR(st.st_mode))
		return err_set(&c->last, NPU_E_BAD_VALUE, "%s: is a directory; name the model file", shown);
	if (!S_ISREG(st.st_mode))
		return err_set(&c->last, NPU_E_BAD_VALUE, "%s: is not a regular file; name the model file",
			       shown);
	*out = take_fd(&fd);
	return 0;
}

/* Gives handles back after a failure, whose sentence stays. A handle of 0 was never had. */
static void give_back(npu_client *c, uint64_t session, uint64_t file, uint64_t head)
{
	struct err ignored;
	if (head && session == c->connection.session) {
		struct req_head_close q = {.head = head};
		struct rep_head_close p = {};
		cleanup(answer_fini) struct answer a = {};
		call(&c->connection, OP_head_close, &q, &p, &a, GIVE_BACK_MS, &ignored);
	}
	if (file && session == c->connection.session) {
		struct req_file_close q = {.file = file};
		struct rep_file_close p = {};
		cleanup(answer_fini) struct answer a = {};
		call(&c->connection, OP_file_close, &q, &p, &a, GIVE_BACK_MS, &ignored);
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
		.nonfinite = w->nonfinite,
		.seconds = w->seconds,
	};
	call_copy(info->layout, sizeof info->layout, w->layout);
	call_copy(info->tensor, sizeof info->tensor, w->tensor);
	call_copy(info->type, sizeof info->type, w->type);
	call_copy(info->note, sizeof info->note, w->note);
	call_copy(info->why, sizeof info->why, w->why);
	call_copy(info->hash, sizeof info->hash, w->hash);
}

/* Until the head can run; `head` gets its shape. */
static int wait_ready(npu_client *c, struct npu_head *head, const struct npu_head_options *options,
		      struct npu_head_info *info)
{
	struct req_head_wait q = {
		.head = head->handle,
		.wait_ms = options->progress ? WAIT_PROGRESS_MS : WAIT_MS,
	};
	int limit = c->timeout_ms < INT_MAX - WAIT_MS ? c->timeout_ms + (int)q.wait_ms : INT_MAX;
	for (;;) {
		struct rep_head_wait w = {};
		cleanup(answer_fini) struct answer a = {};
		int r = call(&c->connection, OP_head_wait, &q, &w, &a, limit, &c->last);
		if (r)
			return r;
		if (w.ready) {
			if (!w.nv || !w.h)
				return err_set(&c->last, NPU_E_MALFORMED, "head.wait: the head has no shape");
			head->nv = (uint32_t)w.nv;
			head->h = (uint32_t)w.h;
			if (info)
				tell(info, &w);
			return 0;
		}
		if (options->progress && options->progress(options->progress_arg, w.tiles_done, w.tiles) != 0)
			return err_set(&c->last, NPU_E_CANCELLED, "opening the head was cancelled");
	}
}

NPU_API int npu_head_open(npu_client *c, const char *path, const struct npu_head_options *options,
			  npu_head **out, struct npu_head_info *info)
{
	static const struct npu_head_options defaults;
	int r = usable(c);
	if (r)
		return r;
	if (!path || !*path || !out)
		return err_set(&c->last, NPU_E_BAD_VALUE, "npu_head_open: path and out must be given");
	*out = NULL;
	if (!options)
		options = &defaults;

	cleanup(closep) int fd = -1;
	r = open_file(c, path, &fd);
	if (r)
		return r;
	cleanup(freep) struct npu_head *head = calloc(1, sizeof *head);
	if (!head)
		return err_set(&c->last, NPU_E_NO_MEMORY, "out of memory");
	/* After a silent reconnect this gets the token of the new session, without which no file is taken. */
	r = npu_ping(c, NULL);
	if (r)
		return r;
	head->client = c;
	head->session = c->connection.session;

	char name[129]; /* the field's bound and a NUL */
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	err_printable(name, sizeof name, base, strlen(base));
	uint64_t file = 0;
	r = call_pass(&c->connection, fd, name, &file, &c->last);
	if (r)
		return r;

	struct req_head_open q = {
		.file = file,
		.tensor = PROTO_STR(options->tensor ? options->tensor : ""),
		.transpose = options->transpose,
		.q8 = PROTO_STR(options->q8 ? options->q8 : "auto"),
		.is_signed = options->is_signed,
		.k = options->k,
		.tile = options->tile,
		.layout = PROTO_STR(options->layout ? options->layout : "blocked"),
	};
	struct rep_head_open opened = {};
	cleanup(answer_fini) struct answer a = {};
	r = ask(c, OP_head_open, &q, &opened, &a);
	if (r == 0) {
		head->handle = opened.head;
		r = wait_ready(c, head, options, info);
	}
	give_back(c, head->session, file, r ? head->handle : 0);
	if (r)
		return r;
	head->next = c->heads;
	c->heads = head;
	*out = take(&head);
	return 0;
}

NPU_API int npu_head_close(npu_head *head)
{
	if (!head)
		return 0;
	npu_client *c = head->client;
	int r = 0;
	if (head->session == c->connection.session) {
		struct req_head_close q = {.head = head->handle};
		struct rep_head_close p = {};
		cleanup(answer_fini) struct answer a = {};
		r = ask(c, OP_head_close, &q, &p, &a);
	}
	struct npu_head **link = &c->heads;
	while (*link != head)
		link = &(*link)->next;
	*link = head->next;
	free(head);
	return r;
}

/* How many rows go into one request, or a refusal with the numbers. */
static int rows_that_fit(npu_head *head, uint64_t reply_bytes, size_t *out)
{
	npu_client *c = head->client;
	uint64_t request_bytes = (uint64_t)head->h * sizeof(float);
	uint64_t request_room = c->connection.max_request > SLACK ? c->connection.max_request - SLACK : 0;
	uint64_t reply_room = c->connection.max_reply > SLACK ? c->connection.max_reply - SLACK : 0;
	if (request_bytes == 0 || reply_bytes == 0)
		return err_set(&c->last, NPU_E_MALFORMED, "the daemon told a head without rows or columns");
	bool request = request_bytes > request_room;
	if (request || reply_bytes > reply_room) {
		uint64_t needed = request ? request_bytes : reply_bytes;
		uint64_t room = request ? request_room : reply_room;
		err_set(&c->last, NPU_E_TOO_LARGE,
			"one row takes %llu bytes in a %s; the daemon allows %llu%s",
			(unsigned long long)needed, request ? "request" : "reply", (unsigned long long)room,
			request ? "" : "; ask for the best words instead of logits");
		c->last.detail.needed = needed;
		c->last.detail.limit = room;
		return NPU_E_TOO_LARGE;
	}
	uint64_t rows = c->connection.max_rows;
	if (rows > request_room / request_bytes)
		rows = request_room / request_bytes;
	if (rows > reply_room / reply_bytes)
		rows = reply_room / reply_bytes;
	*out = (size_t)rows;
	return 0;
}

static int check_size(npu_client *c, const char *field, struct proto_bytes bytes, uint64_t expected)
{
	if (bytes.size == expected)
		return 0;
	return err_set(&c->last, NPU_E_MALFORMED, "head.run: %s has %zu bytes; %llu were expected", field,
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
}

/* Either `logits` or `ids` and `values`, k of them a row. */
static int run(npu_head *head, const float *x, size_t rows, float *logits, uint32_t k, uint32_t *ids,
	       float *values, struct npu_run_info *info)
{
	npu_client *c = head->client;
	struct npu_run_info sum = {};
	if (head->session != c->connection.session)
		return err_set(&c->last, NPU_E_CONNECTION_LOST,
			       "%s: the daemon restarted or dropped this connection; open the head again",
			       c->connection.path);
	size_t fit = 0;
	int r = rows_that_fit(head, logits ? (uint64_t)head->nv * sizeof(float) : (uint64_t)k * 8, &fit);
	for (size_t done = 0; r == 0 && done < rows;) {
		size_t n = rows - done < fit ? rows - done : fit;
		struct req_head_run q = {
			.head = head->handle,
			.rows = n,
			.x = {(const char *)(x + done * head->h), n * head->h * sizeof(float)},
			.want = logits ? PROTO_STR("logits") : PROTO_STR("top-k"),
			.k = logits ? 1 : k,
		};
		struct rep_head_run p = {};
		cleanup(answer_fini) struct answer a = {};
		r = ask(c, OP_head_run, &q, &p, &a);
		if (r)
			return r;
		if (logits) {
			r = check_size(c, "logits", p.logits, (uint64_t)n * head->nv * sizeof(float));
			if (r)
				return r;
			memcpy(logits + done * head->nv, p.logits.data, p.logits.size);
		} else {
			if ((r = check_size(c, "ids", p.ids, (uint64_t)n * k * 4)) ||
			    (r = check_size(c, "values", p.values, (uint64_t)n * k * 4)))
				return r;
			memcpy(ids + done * k, p.ids.data, p.ids.size);
			memcpy(values + done * k, p.values.data, p.values.size);
			/* A caller looks words up by them. */
			for (size_t i = done * k; i < (done + n) * k; i++)
				if (ids[i] >= head->nv)
					return err_set(&c->last, NPU_E_MALFORMED,
						       "head.run: word %u of a head of %u words", ids[i],
						       head->nv);
		}
		add_run(&sum, &p);
		done += n;
	}
	if (r == 0 && info)
		*info = sum;
	return r;
}

NPU_API int npu_head_logits(npu_head *head, const float *x, size_t rows, float *logits,
			    struct npu_run_info *info)
{
	if (!head)
		return NPU_E_BAD_VALUE;
	if (!x || !logits || rows == 0)
		return err_set(&head->client->last, NPU_E_BAD_VALUE,
			       "npu_head_logits: activations, logits and at least one row must be given");
	return run(head, x, rows, logits, 0, NULL, NULL, info);
}

NPU_API int npu_head_top(npu_head *head, const float *x, size_t rows, uint32_t k, uint32_t *ids,
			 float *values, struct npu_run_info *info)
{
	if (!head)
		return NPU_E_BAD_VALUE;
	if (!x || !ids || !values || rows == 0)
		return err_set(&head->client->last, NPU_E_BAD_VALUE,
			       "npu_head_top: activations, ids, values and at least one row must be given");
	if (k == 0 || k > head->nv)
		return err_set(&head->client->last, NPU_E_BAD_VALUE, "k is %u; 1 to %u are allowed", k,
			       head->nv);
	return run(head, x, rows, NULL, k, ids, values, info);
}

NPU_API int npu_status(npu_client *c, struct npu_status *out)
{
	int r = usable(c);
	if (r)
		return r;
	if (!out)
		return err_set(&c->last, NPU_E_BAD_VALUE, "npu_status: out must be given");
	struct req_status q = {};
	struct rep_status p = {};
	cleanup(answer_fini) struct answer a = {};
	r = ask(c, OP_status, &q, &p, &a);
	if (r)
		return r;
	call_copy(c->status.version, sizeof c->status.version, p.version);
	call_copy(c->status.device, sizeof c->status.device, p.device);
	call_copy(c->status.health, sizeof c->status.health, p.health);
	*out = (struct npu_status){
		.version = c->status.version,
		.device = c->status.device,
		.health = c->status.health,
		.pid = p.pid,
		.uptime_ms = p.uptime_ms,
		.clients = p.clients,
		.heads = p.heads,
		.resident_bytes = p.resident_bytes,
		.requests = p.requests,
		.refused = p.refused,
		.rows = p.rows,
		.in_flight = p.in_flight,
	};
	return 0;
}

/* A list that does not rise would be asked for without end. */
static int check_rises(npu_client *c, const char *list, uint64_t *after, uint64_t id)
{
	if (id <= *after)
		return err_set(&c->last, NPU_E_MALFORMED, "%s: row %llu comes after row %llu", list,
			       (unsigned long long)id, (unsigned long long)*after);
	*after = id;
	return 0;
}

NPU_API int npu_clients(npu_client *c, int (*each)(void *arg, const struct npu_client_row *row), void *arg)
{
	int r = usable(c);
	if (r)
		return r;
	if (!each)
		return err_set(&c->last, NPU_E_BAD_VALUE, "npu_clients: each must be given");
	struct req_clients q = {};
	for (bool more = true; more;) {
		struct rep_clients p = {};
		cleanup(answer_fini) struct answer a = {};
		r = ask(c, OP_clients, &q, &p, &a);
		if (r)
			return r;
		const struct row_client *rows = p.clients.rows;
		for (size_t i = 0; i < p.clients.count; i++) {
			char name[65], version[33];
			call_copy(name, sizeof name, rows[i].name);
			call_copy(version, sizeof version, rows[i].version);
			struct npu_client_row row = {
				.session = rows[i].session,
				.uid = rows[i].uid,
				.pid = rows[i].pid,
				.connected_ms = rows[i].connected_ms,
				.requests = rows[i].requests,
				.heads = rows[i].heads,
				.files = rows[i].files,
				.in_flight = rows[i].in_flight,
				.name = name,
				.version = version,
			};
			if ((r = check_rises(c, "clients", &q.after, row.session)) || (r = each(arg, &row)))
				return r;
		}
		more = p.more && p.clients.count > 0;
	}
	return 0;
}

NPU_API int npu_heads(npu_client *c, int (*each)(void *arg, const struct npu_head_row *row), void *arg)
{
	int r = usable(c);
	if (r)
		return r;
	if (!each)
		return err_set(&c->last, NPU_E_BAD_VALUE, "npu_heads: each must be given");
	struct req_head_list q = {};
	for (bool more = true; more;) {
		struct rep_head_list p = {};
		cleanup(answer_fini) struct answer a = {};
		r = ask(c, OP_head_list, &q, &p, &a);
		if (r)
			return r;
		const struct row_head *rows = p.heads.rows;
		for (size_t i = 0; i < p.heads.count; i++) {
			char label[129], tensor[513], type[33], layout[17], hash[33], state[17];
			call_copy(label, sizeof label, rows[i].label);
			call_copy(tensor, sizeof tensor, rows[i].tensor);
			call_copy(type, sizeof type, rows[i].type);
			call_copy(layout, sizeof layout, rows[i].layout);
			call_copy(hash, sizeof hash, rows[i].hash);
			call_copy(state, sizeof state, rows[i].state);
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
			};
			if ((r = check_rises(c, "head.list", &q.after, row.id)) || (r = each(arg, &row)))
				return r;
		}
		more = p.more && p.heads.count > 0;
	}
	return 0;
}
