#include "request.h"
#include "handles.h"
#include "log.h"
#include "own.h"
#include "plan.h"
#include "plural.h"
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

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
	if (r->plan)
		plan_leave(r->plan);
	if (r->fleeting)
		handle_close(r->fleeting);
	r->server->in_flight--;
	quota_give(&r->server->quota, r->uid, QUOTA_IN_FLIGHT);
	if (r->reply_bytes)
		quota_give_bytes(&r->server->quota, r->uid, QUOTA_REPLIES, r->reply_bytes);
	if (r->object)
		object_release(r->object);
	if (r->once)
		reply_forget(r->once);
	run_fini(&r->run);
	proto_end(&r->in);
	nng_msg_free(r->message);
	free(r);
}

/* The one way out for a request that is answered. */
static void finish(struct request *r, const void *reply, const struct err *err)
{
	struct slot *slot = r->slot;
	nng_msg *message = NULL;
	msgpack_packer packer;

	/* Room at once, for a message that grows is there twice. */
	if (nng_msg_alloc(&message, 0) || (!err && nng_msg_reserve(message, r->reply_bytes))) {
		nng_msg_free(message);
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
		slot->owed = r->reply_bytes;
		slot->uid = r->uid;
		r->reply_bytes = 0;
	}
	if (r->once)
		reply_keep(take(&r->once), nng_msg_body(message), nng_msg_len(message));
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
	if (proto_ops[*op].access == ACCESS_ADMIN &&
	    !admins_has(&s->server->admins, s->peer.uid, s->peer.gid)) {
		const char *group = s->server->admins.group;
		return err_set(err, NPU_E_NOT_ALLOWED,
			       "%s is not for uid %u: only root, the user npud runs as, and %s%s may",
			       proto_ops[*op].wire, (unsigned)s->peer.uid,
			       group[0] ? "members of the group "
					: "members of [daemon] admin_group, which is not set,",
			       group);
	}
	if (s->server->stopping)
		return err_set(err, NPU_E_SHUTDOWN, "npud is shutting down");
	bool own = s->in_flight >= c->in_flight;
	if ((own || s->server->in_flight >= c->in_flight_all) && *op != OP_cancel) {
		unsigned n = own ? s->in_flight : s->server->in_flight;
		err_set(err, NPU_E_BUSY, "%u %s %s %s in flight, which is the limit; ask again in 100 ms", n,
			plural(n, "request", "requests"), own ? "of this connection" : "of all clients",
			plural(n, "is", "are"));
		err->detail.depth = n;
		err->detail.limit = own ? c->in_flight : c->in_flight_all;
		err->detail.retry_ms = 100;
		return NPU_E_BUSY;
	}
	return 0;
}

static struct request *find_once(struct session *s, const struct reply *once)
{
	link_each(at, &s->requests)
	{
		struct request *r = link_of(at, struct request, in_session);
		if (r->once == once)
			return r;
	}
	return NULL;
}

/*
 * An operation that must not happen twice: 0 with `once` to serve it, LATER where it is a repeat that has
 * been seen to, or an error. A repeat of what is still worked on takes its place: who asks again has given
 * the first one up, and is the one to answer.
 */
static int once_begin(struct session *s, struct slot *slot, nng_msg *message, uint64_t req,
		      struct reply **once, struct err *err)
{
	const void *body = nng_msg_body(message);
	size_t size = nng_msg_len(message);

	switch (reply_find(s->replies, req, XXH3_64bits(body, size), once)) {
	case REPLY_NEW:
		return 0;
	case REPLY_DONE:
		nng_msg_clear(message);
		if (nng_msg_append(message, (*once)->bytes, (*once)->size))
			break;
		slot_answer(slot, message);
		return LATER;
	case REPLY_PENDING: {
		struct request *first = find_once(s, *once);
		if (!first) {
			err_set(err, NPU_E_BUSY,
				"request %llu came on another connection and is still worked on; ask again "
				"in 100 ms",
				(unsigned long long)req);
			err->detail.retry_ms = 100;
			return NPU_E_BUSY;
		}
		struct slot *given_up = first->slot;
		first->slot = slot;
		err_set(err, NPU_E_CANCELLED, "request %llu was repeated; the repeat is answered",
			(unsigned long long)req);
		refuse(s->server, given_up, message, req, err);
		return LATER;
	}
	case REPLY_OTHER:
		return err_set(err, NPU_E_BAD_VALUE,
			       "request number %llu was used before for another request; count on",
			       (unsigned long long)req);
	case REPLY_NO_MEMORY:
		break;
	}
	return err_set(err, NPU_E_NO_MEMORY, "no memory for one more request");
}

/* Whose message it is; NULL: nobody's any more, and slot and message are gone. */
static struct session *sender(struct server *server, struct slot *slot, nng_msg *message)
{
	struct session *s = session_of_pipe(server, slot->pipe);

	if (s) {
		server->requests++;
		s->requests_seen++;
	}
	/* One that asks and never reads would hold every slot with answers it does not take. */
	if (s && !s->ended &&
	    slot_company(slot) > server->config.in_flight + server->config.in_flight_all / 4) {
		events_tell(server, s, EVENT_CUT_OFF, 0, "it does not read its answers");
		session_end(s);
	}
	if (s && !s->ended)
		return s;
	nng_msg_free(message);
	slot_drop(slot);
	return NULL;
}

/* The request that is to be served, which takes slot, message and `in`; LATER where once_begin has seen to
 * it. */
static int admit(struct request **out, struct session *s, struct slot *slot, nng_msg *message,
		 const struct proto_in *in, struct err *err)
{
	struct server *server = s->server;
	struct reply *once = NULL;
	struct request *q = NULL;
	enum proto_op_id op = OP_COUNT;

	int r = check(s, in, &op, err);
	if (r == 0 && proto_ops[op].repeat == REPEAT_ONCE)
		r = once_begin(s, slot, message, in->req, &once, err);
	if (r)
		return r;
	r = quota_take(&server->quota, s->peer.uid, QUOTA_IN_FLIGHT,
		       op == OP_cancel ? UINT64_MAX : server->config.user_in_flight, err);
	if (r == 0 && !(q = calloc(1, sizeof *q))) {
		quota_give(&server->quota, s->peer.uid, QUOTA_IN_FLIGHT);
		r = err_set(err, NPU_E_NO_MEMORY, "no memory for one more request");
	}
	if (r) {
		if (once)
			reply_forget(once);
		return r;
	}
	q->session = s;
	q->server = server;
	q->uid = s->peer.uid;
	q->slot = slot;
	q->message = message;
	q->in = *in;
	q->op = op;
	q->once = once;
	link_init(&q->in_waiters);
	link_init(&q->run.in_finished);
	link_append(&s->requests, &q->in_session);
	s->in_flight++;
	server->in_flight++;
	*out = q;
	return 0;
}

void request_arrived(struct server *server, struct slot *slot, nng_msg *message)
{
	struct session *s = sender(server, slot, message);
	struct request *q;
	struct proto_in in;
	struct err err;

	if (!s)
		return;
	if (proto_read_request(&in, nng_msg_body(message), nng_msg_len(message), &err)) {
		refuse(server, slot, message, in.req, &err);
		return;
	}
	int r = admit(&q, s, slot, message, &in, &err);
	if (r == 0) {
		if (serve[q->op](q, &err) < 0)
			request_fail(q, &err);
		return;
	}
	uint64_t req = in.req;
	proto_end(&in);
	if (r != LATER)
		refuse(server, slot, message, req, &err);
}

void request_abandon(struct request *r)
{
	link_remove(&r->in_session);
	link_remove(&r->in_waiters);
	r->session->in_flight--;
	r->session = NULL;
	r->handle = r->fleeting = NULL; /* its session closes them */
	if (r->once)
		reply_forget(take(&r->once)); /* before its client is forgotten */
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

int request_wait(struct request *r, struct link *list, uint64_t wait_ms, void (*answer)(struct request *r))
{
	r->state = REQUEST_WAITING;
	r->deadline_ms = server_now() + wait_ms;
	r->answer = answer;
	link_append(list, &r->in_waiters);
	server_wants_sweep(r->server, r->deadline_ms);
	return LATER;
}

/* Rows that have not begun to run in time do not run; a pass that has begun is answered when it ends. */
static void request_overdue(struct request *r)
{
	struct err err;
	char behind[80] = "";
	uint64_t pass_ms = executor_pass_ms(&r->server->executor);

	r->deadline_ms = UINT64_MAX;
	if (!executor_drop(&r->server->executor, &r->run))
		return; /* request_ran sees what became of it */
	if (pass_ms)
		snprintf(behind, sizeof behind, ", for the pass under way has taken %.1f s (npuctl status)",
			 (double)pass_ms / 1e3);
	err_set(&err, NPU_E_TIMED_OUT, "%s: not all rows had begun to run by the deadline%s",
		proto_ops[r->op].wire, behind);
	request_fail(r, &err);
}

uint64_t request_sweep(struct server *server, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	link_each(at_session, &server->sessions)
	{
		struct session *s = link_of(at_session, struct session, in_sessions);
		link_each(at, &s->requests)
		{
			struct request *r = link_of(at, struct request, in_session);
			if (r->state == REQUEST_SERVING)
				continue;
			if (now >= r->deadline_ms && r->state == REQUEST_RUNNING)
				request_overdue(r);
			else if (now >= r->deadline_ms)
				r->answer(r);
			else if (r->deadline_ms < next)
				next = r->deadline_ms;
		}
	}
	return next;
}

void request_ran(void *arg, struct run *run)
{
	struct server *server = arg;
	struct request *r = link_of(run, struct request, run);

	server->rows += run->done;
	if (r->object->rows == 0 && run->done && !r->object->resident.fleeting)
		log_line("object", r->object->id,
			 "first pass: path=%s (%s; the request's path= and [head] path change it), kernel "
			 "%s, %u %s, %u %s, %.1f ms",
			 path_name(run->report.path), run->report.why, run->report.kernel,
			 r->object->geometry.tiles, plural(r->object->geometry.tiles, "tile", "tiles"),
			 server->threads, plural(server->threads, "thread", "threads"),
			 run->compute_seconds * 1e3);
	if (run->report.fallback && !r->object->fell_back) {
		r->object->fell_back = true; /* once a head, not once a token */
		events_tell(server, NULL, EVENT_DEVICE, r->object->id,
			    "head %" PRIu64 " (%.80s) runs on the host for now, with the same bits: %s",
			    r->object->id, r->object->label, run->report.why);
	}
	if (run->err.code == NPU_E_DIFFERENCE)
		events_tell(server, r->session, EVENT_DIFFERENCE, r->object->id,
			    "head %" PRIu64 " (%.80s): %.200s", r->object->id, r->object->label,
			    run->err.text);
	r->object->rows += run->done;
	metrics_ran(&server->metrics, r->class, run);
	tickets_computed(&server->tickets, r->uid, run->compute_seconds);
	if (!r->session) {
		slot_drop(r->slot);
		release(r);
	} else if (r->cancelled) {
		err_set(&run->err, NPU_E_CANCELLED, "%s: cancelled", proto_ops[r->op].wire);
		request_fail(r, &run->err);
	} else if (run->err.code) {
		request_fail(r, &run->err);
	} else if (run->done < run->waiting.rows) {
		err_set(&run->err, NPU_E_TIMED_OUT, "%s: %u of %u %s had run by the deadline",
			proto_ops[r->op].wire, run->done, run->waiting.rows,
			plural(run->waiting.rows, "row", "rows"));
		request_fail(r, &run->err);
	} else {
		r->answer(r);
	}
}
