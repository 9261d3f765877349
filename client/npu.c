#include "client.h"
#include "clock.h"
#include "own.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bulk numbers go as they lie in memory");

enum { TIMEOUT_MS = 60000 };

/* The process in which NNG began: it does not run in a child that was forked from it. */
static _Atomic pid_t nng_process;

struct err *client_err(void)
{
	static _Thread_local struct err last;
	return &last;
}

static int refuse_child(pid_t parent)
{
	return err_set(
		client_err(), NPU_E_NOT_ALLOWED,
		"libnpu was used in process %d, which forked this one: fork before npu_connect, or exec",
		(int)parent);
}

NPU_API int npu_connect(npu_client **out, const char *socket, const char *name)
{
	if (!out)
		return NPU_E_BAD_VALUE;
	*out = NULL;
	npu_client *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(client_err(), NPU_E_NO_MEMORY, "out of memory for a client");
	*c = (npu_client){
		.connection = CONNECTION_INIT,
		.process = getpid(),
		.timeout_ms = TIMEOUT_MS,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	pid_t first = 0;
	int r;
	if (!atomic_compare_exchange_strong(&nng_process, &first, c->process) && first != c->process)
		r = refuse_child(first);
	else
		r = connection_open(&c->connection, socket, name && *name ? name : "libnpu", client_err());
	if (r)
		c->failure = *client_err();
	*out = c;
	return r;
}

NPU_API void npu_close(npu_client *c)
{
	if (!c)
		return;
	/* In a forked child the connection is the parent's. */
	if (c->process == getpid()) {
		connection_close(&c->connection);
		operation_end_all(c);
	}
	connection_fini(&c->connection);
	heads_free(c);
	models_free(c);
	free(c);
}

NPU_API const char *npu_error_text(const npu_client *c)
{
	const struct err *last = client_err();
	return c && c->failure.code && !last->code ? c->failure.text : last->text;
}

NPU_API void npu_error_detail(struct npu_error_detail *out)
{
	const struct err_detail *d = &client_err()->detail;
	*out = (struct npu_error_detail){
		.needed = d->needed,
		.limit = d->limit,
		.depth = d->depth,
		.retry_ms = d->retry_ms,
	};
	memcpy(out->file, d->file, sizeof out->file);
	memcpy(out->tensor, d->tensor, sizeof out->tensor);
}

NPU_API const char *npu_error_name(int code)
{
	return err_name(code);
}

NPU_API const char *npu_socket(const npu_client *c)
{
	return c ? c->connection.path : "";
}

static const struct told *told_of(const npu_client *c)
{
	return connection_told((struct connection *)&c->connection); /* only its lock changes */
}

NPU_API const char *npu_daemon_version(const npu_client *c)
{
	return c ? told_of(c)->version : "";
}

NPU_API const char *npu_device(const npu_client *c)
{
	return c ? told_of(c)->device : "";
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

int client_usable(npu_client *c)
{
	if (!c)
		return err_set(client_err(), NPU_E_BAD_VALUE, "no client was given");
	if (c->process != getpid())
		return refuse_child(c->process);
	if (c->connection.open)
		return 0;
	if (c->failure.code)
		*client_err() = c->failure;
	else
		err_set(client_err(), NPU_E_CONNECTION_LOST, "the client is closed");
	return client_err()->code;
}

int client_ask(npu_client *c, enum proto_op_id op, const void *request, void *reply, struct answer *a)
{
	const struct call_options options = {.timeout_ms = c->timeout_ms};
	return call(&c->connection, op, request, options, reply, a, client_err());
}

struct ping {
	struct npu_call call;
	double start;
	double *seconds;
};

static int ping_step(struct npu_call *o)
{
	struct ping *ping = (struct ping *)o;
	struct req_ping q = {};
	struct rep_ping p;
	cleanup(answer_fini) struct answer a = {};

	if (!o->request) {
		ping->start = clock_now();
		return operation_ask(o, OP_ping, &q, 0, o->client->timeout_ms);
	}
	int r = operation_answer(o, &p, &a);
	if (r == 0 && ping->seconds)
		*ping->seconds = clock_now() - ping->start;
	return r;
}

NPU_API int npu_ping(npu_client *c, double *seconds)
{
	int r = client_usable(c);
	struct ping ping = {{.client = c, .step = ping_step}, .seconds = seconds};
	return r ? r : operation_wait(&ping.call);
}

NPU_API int npu_ping_start(npu_client *c, double *seconds, npu_done *done, void *arg, npu_call **call)
{
	int r = client_usable(c);
	struct ping ping = {{.client = c, .step = ping_step}, .seconds = seconds};
	return r ? r : operation_begin(&ping.call, sizeof ping, done, arg, call);
}

NPU_API int npu_status(npu_client *c, struct npu_status *out)
{
	int r = client_usable(c);
	if (r)
		return r;
	if (!out)
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_status: out must be given");
	struct req_status q = {};
	struct rep_status p = {};
	cleanup(answer_fini) struct answer a = {};
	r = client_ask(c, OP_status, &q, &p, &a);
	if (r)
		return r;
	*out = (struct npu_status){
		.pid = p.pid,
		.uptime_ms = p.uptime_ms,
		.clients = p.clients,
		.heads = p.heads,
		.resident_bytes = p.resident_bytes,
		.requests = p.requests,
		.refused = p.refused,
		.rows = p.rows,
		.in_flight = p.in_flight,
		.trouble_ms = p.trouble_ms,
		.launches = p.launches,
		.faults = p.faults,
		.contexts_used = p.contexts_used,
		.contexts_max = p.contexts_max,
		.passes = p.passes,
		.upload_bytes = p.upload_bytes,
		.holding = p.holding,
		.waiting = p.waiting,
		.idle_ms = p.idle_ms,
		.prefetch = p.prefetch,
		.threads = p.threads,
		.pass_ms = p.pass_ms,
		.draining = p.draining,
	};
	call_copy(out->kernel, sizeof out->kernel, p.kernel);
	call_copy(out->reason, sizeof out->reason, p.reason);
	call_copy(out->trouble, sizeof out->trouble, p.trouble);
	call_copy(out->version, sizeof out->version, p.version);
	call_copy(out->device, sizeof out->device, p.device);
	call_copy(out->health, sizeof out->health, p.health);
	call_copy(out->fingerprint, sizeof out->fingerprint, p.fingerprint);
	return 0;
}

int client_rises(const char *list, uint64_t *after, uint64_t id)
{
	if (id <= *after)
		return err_set(client_err(), NPU_E_MALFORMED, "%s: row %llu comes after row %llu", list,
			       (unsigned long long)id, (unsigned long long)*after);
	*after = id;
	return 0;
}

NPU_API int npu_clients(npu_client *c, int (*each)(void *arg, const struct npu_client_row *row), void *arg)
{
	int r = client_usable(c);
	if (r)
		return r;
	if (!each)
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_clients: each must be given");
	struct req_clients q = {};
	for (bool more = true; more;) {
		struct rep_clients p = {};
		cleanup(answer_fini) struct answer a = {};
		r = client_ask(c, OP_clients, &q, &p, &a);
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
			if ((r = client_rises("clients", &q.after, row.session)) || (r = each(arg, &row)))
				return r;
		}
		more = p.more && p.clients.count > 0;
	}
	return 0;
}
