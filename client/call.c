#include "call.h"
#include "clock.h"
#include "own.h"
#include <nng/protocol/reqrep0/req.h>
#include <time.h>

/*
 * A call owns one NNG context, which it keeps when it is used again: an answer that comes too late belongs to
 * an earlier request of the context, and NNG drops it.
 *
 * on_aio, on a thread of NNG, drives a call: sent, received, and after HELLO_FIRST the same with a hello and
 * once more with the request. Until finish() the call's fields are that thread's, but for `cancelled`, which
 * anybody sets. finish() gives it away under the lock and touches it no more: the next user may have it at
 * once.
 */
enum {
	CONNECT_MS = 5000, /* until a daemon that went away must be back */
	LOOK_MS = 100,	   /* how often it is looked meanwhile whether NNG still tries */
	CANCEL_MS = 500,
	SLACK = 4096, /* what a message holds beside its bulk */
};

struct call {
	struct connection *connection;
	struct call *next_of_all; /* connection.all */
	struct call *next;	  /* connection.idle or .first */
	nng_ctx context;
	nng_aio *aio;
	pthread_cond_t done;

	enum proto_op_id op;
	struct call_options options;
	uint64_t req, hello_req;
	double deadline, connect_by;
	enum { PHASE_SENDING, PHASE_RECEIVING } phase;
	bool greeting;		  /* it is a hello that is under way */
	bool lost;		  /* its connection broke once */
	nng_msg *again;		  /* owned: the request, where it can be sent again */
	bool cancelled, finished; /* under the connection's lock */

	struct answer answer;
	struct err err; /* code 0: there is an answer */
};

void call_copy(char *to, size_t room, struct proto_bytes from)
{
	size_t n = from.size ? strnlen(from.data, from.size) : 0;
	if (n >= room) {
		n = room - 1;
		while (n > 0 && ((unsigned char)from.data[n] & 0xc0) == 0x80)
			n--;
	}
	if (n)
		memcpy(to, from.data, n);
	to[n] = '\0';
}

void answer_fini(struct answer *a)
{
	proto_end(&a->in);
	if (a->message)
		nng_msg_free(a->message);
	*a = (struct answer){};
}

static void nng_msg_freep(nng_msg **m)
{
	if (*m)
		nng_msg_free(*m);
	*m = NULL;
}

static int ms_left(const struct call *k)
{
	double left = (k->deadline - clock_now()) * 1e3;
	return left > 1 ? (int)left : 1;
}

struct sink {
	nng_msg *message;
	uint64_t size; /* goes on counting behind the limit, for the refusal */
	uint64_t limit;
	bool no_memory;
};

static int sink_write(void *arg, const char *bytes, size_t size)
{
	struct sink *s = arg;
	s->size += size;
	if (s->size <= s->limit && !s->no_memory)
		s->no_memory = nng_msg_append(s->message, bytes, size) != 0;
	return 0;
}

static int pack(nng_msg **out, enum proto_op_id op, uint64_t req, const void *request, uint64_t limit,
		struct err *err)
{
	cleanup(nng_msg_freep) nng_msg *m = NULL;
	const char *wire = proto_ops[op].wire;
	size_t bulk = op == OP_head_run ? ((const struct req_head_run *)request)->x.size : 0;
	/* One allocation: growing piece by piece copies what is there each time. */
	if (bulk <= limit && (nng_msg_alloc(&m, 0) != 0 || nng_msg_reserve(m, bulk + SLACK) != 0))
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory for a request of %zu bytes", wire,
			       bulk);
	struct sink sink = {.message = m, .limit = bulk <= limit ? limit : 0};
	msgpack_packer packer;
	msgpack_packer_init(&packer, &sink, sink_write);
	proto_write_request(&packer, op, req, request);
	if (sink.size > sink.limit) {
		err_set(err, NPU_E_TOO_LARGE, "%s: the request takes %llu bytes; the daemon allows %llu",
			wire, (unsigned long long)sink.size, (unsigned long long)limit);
		err->detail.needed = sink.size;
		err->detail.limit = limit;
		return NPU_E_TOO_LARGE;
	}
	if (sink.no_memory)
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory for a request of %llu bytes", wire,
			       (unsigned long long)sink.size);
	*out = take(&m);
	return 0;
}

/* What means the same in a new session: it names nothing of the old one, or is known by its number. */
static bool outlives_session(enum proto_op_id op)
{
	return proto_ops[op].repeat == REPEAT_ONCE || op == OP_ping || op == OP_status || op == OP_clients ||
	       op == OP_events_list || op == OP_head_list || op == OP_store_list || op == OP_store_show ||
	       op == OP_store_verify;
}

static int err_restarted(struct connection *c, struct err *err)
{
	return err_set(err, NPU_E_CONNECTION_LOST,
		       "%s: the daemon restarted or dropped this connection; open the head again", c->path);
}

/* The one way out, once for every start: the call is its giver's, the queue's, or idle. */
static void finish(struct call *k)
{
	struct connection *c = k->connection;
	static const uint64_t one = 1;

	nng_msg_freep(&k->again);
	if (k->options.forget)
		answer_fini(&k->answer);
	pthread_mutex_lock(&c->lock);
	k->finished = true;
	if (k->options.forget) {
		k->next = c->idle;
		c->idle = k;
	} else if (k->options.owner) {
		k->next = NULL;
		*c->last = k;
		c->last = &k->next;
		if (c->fd >= 0 && write(c->fd, &one, sizeof one) < 0) {
			/* Full: it has been readable for 2^64 - 1 calls. */
		}
		pthread_cond_signal(&c->finished);
	} else {
		pthread_cond_signal(&k->done);
	}
	pthread_mutex_unlock(&c->lock);
}

/* Tells the daemon that nobody waits for `k` any more. */
static void tell_cancelled(struct call *k)
{
	struct req_cancel q = {.req = k->req};
	const struct call_options options = {.timeout_ms = CANCEL_MS, .forget = true};
	struct call *cancel;
	struct err ignored;
	if (k->op != OP_cancel && k->op != OP_hello)
		call_start(k->connection, OP_cancel, &q, options, &cancel, &ignored);
}

/* A cancel that came while NNG had nothing of the call is made good. */
static void heed_cancel(struct call *k)
{
	pthread_mutex_lock(&k->connection->lock);
	bool cancelled = k->cancelled;
	pthread_mutex_unlock(&k->connection->lock);
	if (cancelled)
		nng_aio_cancel(k->aio);
}

/* A send waits for a connection: without a limit of its own a daemon that is gone costs the whole time. */
static bool is_connecting(const struct call *k)
{
	return clock_now() < k->connect_by && clock_now() < k->deadline;
}

static void submit(struct call *k, nng_msg *m)
{
	int left = ms_left(k);
	k->phase = PHASE_SENDING;
	nng_aio_set_timeout(k->aio, left < LOOK_MS ? left : LOOK_MS);
	nng_aio_set_msg(k->aio, m);
	nng_ctx_send(k->context, k->aio);
	heed_cancel(k);
}

static void send_message(struct call *k, nng_msg *m)
{
	k->connect_by = clock_now() + CONNECT_MS / 1e3;
	submit(k, m);
}

static void receive(struct call *k)
{
	k->phase = PHASE_RECEIVING;
	nng_aio_set_timeout(k->aio, ms_left(k));
	nng_ctx_recv(k->context, k->aio);
	heed_cancel(k);
}

static void fail_nng(struct call *k, int number)
{
	const char *path = k->connection->path;
	const char *wire = proto_ops[k->op].wire;
	nng_msg *m;

	switch (number) {
	case NNG_ECANCELED:
		err_set(&k->err, NPU_E_CANCELLED, "%s: cancelled", wire);
		break;
	case NNG_ETIMEDOUT:
		if (k->phase == PHASE_SENDING) {
			err_set(&k->err, NPU_E_CONNECTION_LOST,
				"%s: %s: no connection; is the daemon still running?", path, wire);
			break;
		}
		err_set(&k->err, NPU_E_TIMED_OUT, "%s: %s: no answer within %g s", path, wire,
			k->options.timeout_ms / 1000.0);
		tell_cancelled(k);
		break;
	case NNG_ECONNRESET:
		/* Whether it was done nobody knows; what can be repeated safely is. */
		if (k->again && !k->lost && k->phase == PHASE_RECEIVING && nng_msg_dup(&m, k->again) == 0) {
			k->lost = true;
			k->greeting = false;
			send_message(k, m);
			return;
		}
		/* fall through */
	case NNG_ECLOSED:
	case NNG_ECONNREFUSED:
	case NNG_ECONNABORTED:
	case NNG_ECONNSHUT:
		err_set(&k->err, NPU_E_CONNECTION_LOST,
			"%s: %s: the connection was lost; is the daemon still running?", path, wire);
		break;
	default:
		err_set(&k->err,
			number == NNG_ENOMEM  ? NPU_E_NO_MEMORY
			: number == NNG_EPERM ? NPU_E_NOT_ALLOWED
					      : NPU_E_IO,
			"%s: %s: %s", path, wire, nng_strerror(number));
	}
	finish(k);
}

static void send_hello(struct call *k)
{
	struct connection *c = k->connection;
	struct req_hello q = connection_hello(c);
	nng_msg *m;

	k->hello_req = connection_next_req(c);
	if (pack(&m, OP_hello, k->hello_req, &q, PROTO_REQUEST_MAX, &k->err)) {
		finish(k);
		return;
	}
	k->greeting = true;
	send_message(k, m);
}

enum { LATER = 1 };

/* 0 or an error where the call is finished; LATER where it goes on. */
static int on_answer(struct call *k)
{
	struct connection *c = k->connection;
	struct answer *a = &k->answer;
	struct rep_hello h;
	int r = proto_read_reply(&a->in, nng_msg_body(a->message), nng_msg_len(a->message), &k->err);

	if (r)
		return r;
	uint64_t req = k->greeting ? k->hello_req : k->req;
	if (a->in.req != req)
		return err_set(&k->err, NPU_E_MALFORMED,
			       "%s: %s: the answer belongs to request %llu, not %llu", c->path,
			       proto_ops[k->op].wire, (unsigned long long)a->in.req, (unsigned long long)req);
	if (a->in.code == NPU_E_HELLO_FIRST && !k->greeting && !k->options.forget) {
		/* NNG connected again on its own, to a daemon that does not know us. */
		answer_fini(a);
		send_hello(k);
		return LATER;
	}
	/* Had another call said hello meanwhile, the daemon took our handles for those of the new session. */
	if (k->options.session && !k->greeting && connection_told(c)->session != k->options.session)
		return err_restarted(c, &k->err);
	if (a->in.code)
		return proto_read_error(&a->in, &k->err);
	if (!k->greeting)
		return 0;
	r = proto_read_fields(&a->in, &proto_ops[OP_hello].reply, &h, &k->err);
	if (r == 0)
		r = connection_greeted(c, &h, &k->err);
	if (r || k->op == OP_hello)
		return r;
	answer_fini(a);
	if (!k->again)
		return err_restarted(c, &k->err);
	k->greeting = false;
	send_message(k, take(&k->again));
	return LATER;
}

static void on_aio(void *arg)
{
	struct call *k = arg;
	int number = nng_aio_result(k->aio);

	if (number == NNG_ETIMEDOUT && k->phase == PHASE_SENDING && is_connecting(k)) {
		connection_redial(k->connection);
		submit(k, nng_aio_get_msg(k->aio));
	} else if (number) {
		if (k->phase == PHASE_SENDING)
			nng_msg_free(nng_aio_get_msg(k->aio));
		fail_nng(k, number);
	} else if (k->phase == PHASE_SENDING) {
		receive(k);
	} else {
		k->answer.message = nng_aio_get_msg(k->aio);
		if (on_answer(k) != LATER)
			finish(k);
	}
}

static int call_new(struct call **out, struct connection *c, struct err *err)
{
	cleanup(freep) struct call *k = calloc(1, sizeof *k);
	if (!k)
		return err_set(err, NPU_E_NO_MEMORY, "out of memory for a call");
	int r = nng_ctx_open(&k->context, c->socket);
	if (r)
		return err_set(err, r == NNG_ENOMEM ? NPU_E_NO_MEMORY : NPU_E_CONNECTION_LOST, "%s: %s",
			       c->path, nng_strerror(r));
	if (nng_aio_alloc(&k->aio, on_aio, k) != 0) {
		nng_ctx_close(k->context);
		return err_set(err, NPU_E_NO_MEMORY, "out of memory for a call");
	}
	k->connection = c;
	pthread_cond_init(&k->done, NULL);
	pthread_mutex_lock(&c->lock);
	k->next_of_all = c->all;
	c->all = k;
	pthread_mutex_unlock(&c->lock);
	*out = take(&k);
	return 0;
}

static struct call *take_idle(struct connection *c)
{
	pthread_mutex_lock(&c->lock);
	struct call *k = c->idle;
	if (k)
		c->idle = k->next;
	pthread_mutex_unlock(&c->lock);
	return k;
}

static void give_back(struct call *k)
{
	struct connection *c = k->connection;
	pthread_mutex_lock(&c->lock);
	k->next = c->idle;
	c->idle = k;
	pthread_mutex_unlock(&c->lock);
}

int call_start(struct connection *c, enum proto_op_id op, const void *request, struct call_options options,
	       struct call **out, struct err *err)
{
	const struct told *told = connection_told(c);
	cleanup(nng_msg_freep) nng_msg *m = NULL;
	cleanup(nng_msg_freep) nng_msg *again = NULL;
	uint64_t req = connection_next_req(c);

	if (options.session && options.session != told->session)
		return err_restarted(c, err);
	int r = pack(&m, op, req, request, told->max_request, err);
	if (r)
		return r;
	if (outlives_session(op) && nng_msg_dup(&again, m) != 0)
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory", proto_ops[op].wire);
	struct call *k = take_idle(c);
	if (!k && (r = call_new(&k, c, err)))
		return r;
	k->op = op;
	k->options = options;
	k->req = k->hello_req = req;
	k->deadline = clock_now() + options.timeout_ms / 1e3;
	k->greeting = op == OP_hello;
	k->again = take(&again);
	k->lost = false;
	k->err.code = 0;
	pthread_mutex_lock(&c->lock);
	k->cancelled = k->finished = false;
	pthread_mutex_unlock(&c->lock);
	*out = k;
	send_message(k, take(&m));
	return 0;
}

void call_wait(struct call *k)
{
	struct connection *c = k->connection;
	pthread_mutex_lock(&c->lock);
	while (!k->finished)
		pthread_cond_wait(&k->done, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

struct call *call_next(struct connection *c, int wait_ms)
{
	struct timespec until;
	uint64_t count;

	clock_gettime(CLOCK_MONOTONIC, &until);
	if (wait_ms > 0) {
		until.tv_sec += wait_ms / 1000;
		until.tv_nsec += wait_ms % 1000 * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
	}
	pthread_mutex_lock(&c->lock);
	for (int r = 0; !c->first && wait_ms != 0 && r == 0;)
		r = wait_ms < 0 ? pthread_cond_wait(&c->finished, &c->lock)
				: pthread_cond_timedwait(&c->finished, &c->lock, &until);
	struct call *k = c->first;
	if (k) {
		c->first = k->next;
		if (!c->first) {
			c->last = &c->first;
			if (c->fd >= 0 && read(c->fd, &count, sizeof count) < 0) {
				/* Made after this call was queued, and not readable yet. */
			}
		}
	}
	pthread_mutex_unlock(&c->lock);
	return k;
}

void *call_owner(const struct call *k)
{
	return k->options.owner;
}

int call_finish(struct call *k, void *reply, struct answer *a, struct err *err)
{
	int r = k->err.code;
	answer_fini(a);
	*a = k->answer;
	k->answer = (struct answer){};
	if (r)
		*err = k->err;
	else
		r = proto_read_fields(&a->in, &proto_ops[k->op].reply, reply, err);
	give_back(k);
	return r;
}

void call_cancel(struct call *k)
{
	struct connection *c = k->connection;
	pthread_mutex_lock(&c->lock);
	bool late = k->finished || k->cancelled;
	k->cancelled = true;
	pthread_mutex_unlock(&c->lock);
	if (late)
		return;
	tell_cancelled(k);
	nng_aio_cancel(k->aio);
}

int call(struct connection *c, enum proto_op_id op, const void *request, struct call_options options,
	 void *reply, struct answer *a, struct err *err)
{
	struct call *k;
	options.owner = NULL;
	int r = call_start(c, op, request, options, &k, err);
	if (r)
		return r;
	call_wait(k);
	return call_finish(k, reply, a, err);
}

static const struct call *first_of_all(struct connection *c)
{
	pthread_mutex_lock(&c->lock);
	const struct call *k = c->all;
	pthread_mutex_unlock(&c->lock);
	return k;
}

void call_stop_all(struct connection *c)
{
	/* One that runs into its time limit meanwhile may add a call, which is its cancel and adds none. */
	for (const struct call *known = NULL, *all = first_of_all(c); known != all; all = first_of_all(c)) {
		known = all;
		for (const struct call *k = known; k; k = k->next_of_all)
			nng_aio_stop(k->aio);
	}
}

void call_free_all(struct connection *c)
{
	struct call *k;

	while ((k = c->all)) {
		c->all = k->next_of_all;
		/* Submitted when its aio was stopped already: nobody took it. */
		if (!k->finished && k->phase == PHASE_SENDING)
			nng_msg_free(nng_aio_get_msg(k->aio));
		nng_aio_free(k->aio);
		answer_fini(&k->answer);
		nng_msg_freep(&k->again);
		pthread_cond_destroy(&k->done);
		free(k);
	}
	c->idle = NULL;
	c->first = NULL;
	c->last = &c->first;
}
