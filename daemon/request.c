#include "request.h"
#include "heads.h"
#include "log.h"
#include <string.h>

typedef int serve_fn(struct request *r, struct err *err);

/* An operation of the side socket is served there (descriptors.c), and refused here. */
int on_file_pass(struct request *r, const struct req_file_pass *q, struct rep_file_pass *a, struct err *err)
{
	(void)r, (void)q, (void)a;
	return err_set(err, NPU_E_NOT_ALLOWED, "file.pass carries a descriptor: send it to the side socket");
}

/* Typed bridges: read the fields, call the handler, write the reply. */
#define OP(name, wire, access, repeat, doc)                                                     \
	static int serve_##name(struct request *r, struct err *err)                             \
	{                                                                                       \
		struct req_##name q;                                                            \
		struct rep_##name a = {};                                                       \
		int result = proto_read_fields(&r->in, &proto_ops[OP_##name].request, &q, err); \
		if (result == 0)                                                                \
			result = on_##name(r, &q, &a, err);                                     \
		if (result == 0)                                                                \
			request_reply(r, &a);                                                   \
		return result;                                                                  \
	}
#include "ops.def"
#undef OP

static serve_fn *const serve[OP_COUNT] = {
#define OP(name, wire, access, repeat, doc) [OP_##name] = serve_##name,
#include "ops.def"
#undef OP
};

static int append(void *message, const char *bytes, size_t size)
{
	return nng_msg_append(message, bytes, size) ? -1 : 0;
}

static void release(struct request *r)
{
	if (r->session) {
		link_remove(&r->in_session);
		r->session->in_flight--;
	}
	link_remove(&r->in_waiters);
	r->server->in_flight--;
	if (r->head)
		head_release(r->head);
	run_fini(&r->run);
	proto_end(&r->in);
	nng_msg_free(r->message);
	free(r);
}

/* The one way out for a request that is answered. */
static void finish(struct request *r, const void *reply, const struct err *err)
{
	struct slot *slot = r->slot;
	nng_msg *message;
	msgpack_packer packer;

	if (nng_msg_alloc(&message, 0)) {
		slot_drop(slot); /* no memory for an answer: the client's own limit ends its wait */
		release(r);
		return;
	}
	msgpack_packer_init(&packer, message, append);
	if (err) {
		r->server->refused++;
		proto_write_error(&packer, r->in.req, err);
	} else {
		proto_write_reply(&packer, r->op, r->in.req, reply);
	}
	release(r);
	slot_answer(slot, message);
}

void request_reply(struct request *r, const void *reply)
{
	finish(r, reply, NULL);
}

void request_fail(struct request *r, const struct err *err)
{
	finish(r, NULL, err);
}

/* A refusal before there is a request: of what cannot be read, or is one too many. */
static void refuse(struct server *server, struct slot *slot, nng_msg *message, uint64_t req,
		   const struct err *err)
{
	msgpack_packer packer;

	server->refused++;
	nng_msg_clear(message);
	msgpack_packer_init(&packer, message, append);
	proto_write_error(&packer, req, err);
	slot_answer(slot, message);
}

static int check(struct session *s, const struct proto_in *in, enum proto_op_id *op, struct err *err)
{
	const struct config *c = &s->server->config;
	char shown[64];

	if (in->major != PROTO_MAJOR)
		return err_set(err, NPU_E_VERSION,
			       "the client speaks protocol %llu and this npud %u; install matching versions",
			       (unsigned long long)in->major, PROTO_MAJOR);
	*op = proto_find(in->op);
	if (*op == OP_COUNT)
		return err_set(err, NPU_E_UNKNOWN_OP, "there is no operation \"%s\" in protocol %u.%u",
			       err_printable(shown, sizeof shown, in->op.data, in->op.size), PROTO_MAJOR,
			       PROTO_MINOR);
	if (!s->ready && proto_ops[*op].access != ACCESS_FIRST)
		return err_set(err, NPU_E_HELLO_FIRST, "%s before hello: say hello first on every connection",
			       proto_ops[*op].wire);
	if (s->server->stopping)
		return err_set(err, NPU_E_SHUTDOWN, "npud is shutting down");
	bool own = s->in_flight >= c->in_flight;
	if ((own || s->server->in_flight >= c->in_flight_all) && *op != OP_cancel) {
		err_set(err, NPU_E_BUSY,
			"%u requests %s are in flight, which is the limit; ask again in 100 ms",
			own ? s->in_flight : s->server->in_flight,
			own ? "of this connection" : "of all clients");
		err->detail.depth = own ? s->in_flight : s->server->in_flight;
		err->detail.limit = own ? c->in_flight : c->in_flight_all;
		err->detail.retry_ms = 100;
		return NPU_E_BUSY;
	}
	return 0;
}

void request_arrived(struct server *server, struct slot *slot, nng_msg *message)
{
	struct session *s = session_of_pipe(server, slot->pipe);
	struct proto_in in;
	struct err err;
	enum proto_op_id op = OP_COUNT;

	if (!s) { /* its client has gone before the message was looked at */
		nng_msg_free(message);
		slot_drop(slot);
		return;
	}
	server->requests++;
	s->requests_seen++;
	/* One that asks and never reads would hold every slot with answers it does not take. */
	if (slot_company(slot) > s->server->config.in_flight + s->server->config.in_flight_all / 4) {
		log_line("session", s->number, "cut off: it does not read its answers");
		slot_disconnect(slot);
		nng_msg_free(message);
		slot_drop(slot);
		return;
	}
	int r = proto_read_request(&in, nng_msg_body(message), nng_msg_len(message), &err);
	if (r) {
		refuse(server, slot, message, in.req, &err);
		return;
	}
	struct request *q = NULL;
	r = check(s, &in, &op, &err);
	if (r == 0) {
		q = calloc(1, sizeof *q);
		if (!q)
			err_set(&err, NPU_E_NO_MEMORY, "no memory for one more request");
	}
	if (!q) {
		uint64_t req = in.req;
		proto_end(&in);
		refuse(server, slot, message, req, &err);
		return;
	}
	q->session = s;
	q->server = server;
	q->slot = slot;
	q->message = message;
	q->in = in;
	q->op = op;
	link_init(&q->in_waiters);
	link_init(&q->run.in_queue);
	link_append(&s->requests, &q->in_session);
	s->in_flight++;
	server->in_flight++;
	r = serve[op](q, &err);
	if (r < 0)
		request_fail(q, &err);
}

void request_abandon(struct request *r)
{
	link_remove(&r->in_session);
	link_remove(&r->in_waiters);
	r->session->in_flight--;
	r->session = NULL;
	r->handle = NULL;
	if (r->state == REQUEST_RUNNING && !executor_drop(&r->server->executor, &r->run))
		return; /* request_ran lets it go */
	slot_drop(r->slot);
	release(r);
}

void request_stop(struct request *r, int code, const char *why)
{
	struct err err;

	if (r->state == REQUEST_RUNNING && !executor_drop(&r->server->executor, &r->run)) {
		r->cancelled = true;
		return;
	}
	err_set(&err, code, "%s: %s", proto_ops[r->op].wire, why);
	request_fail(r, &err);
}

unsigned request_sweep(struct server *server, uint64_t now)
{
	unsigned waiting = 0;
	link_each(at_session, &server->sessions)
	{
		struct session *s = link_of(at_session, struct session, in_sessions);
		link_each(at, &s->requests)
		{
			struct request *r = link_of(at, struct request, in_session);
			if (r->state != REQUEST_WAITING)
				continue;
			if (now >= r->deadline_ms)
				handle_answer(r);
			else
				waiting++;
		}
	}
	return waiting;
}

void request_ran(void *arg, struct run *run)
{
	struct server *server = arg;
	struct request *r = link_of(run, struct request, run);

	server->rows += run->rows;
	r->head->rows += run->rows;
	if (!r->session) {
		slot_drop(r->slot);
		release(r);
	} else if (r->cancelled) {
		err_set(&run->err, NPU_E_CANCELLED, "head.run: cancelled");
		request_fail(r, &run->err);
	} else if (run->err.code) {
		request_fail(r, &run->err);
	} else {
		head_answer_run(r);
	}
}
