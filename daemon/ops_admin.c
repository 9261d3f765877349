/* Handlers of a session's own affairs and of what the daemon knows about itself. */
#include "objects.h"
#include "request.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void copy(char *to, size_t room, struct proto_bytes from)
{
	snprintf(to, room, "%.*s", (int)from.size, from.size ? from.data : "");
}

int on_hello(struct request *r, const struct req_hello *q, struct rep_hello *a, struct err *err)
{
	struct session *s = r->session;
	const struct config *c = &r->server->config;

	copy(s->name, sizeof s->name, q->name);
	copy(s->version, sizeof s->version, q->version);
	/* A second hello leaves it at the nonce of the first: requests in flight belong to that. */
	if (!s->replies)
		s->replies = replies_attach(&r->server->replies, s->peer.uid, q->nonce.data, q->nonce.size,
					    server_now());
	if (!s->replies)
		return err_set(err, NPU_E_NO_MEMORY, "hello: no memory for one more client");
	if (!s->ready) {
		int result = quota_take(&r->server->quota, s->peer.uid, QUOTA_CONNECTIONS,
					c->user_connections, err);
		if (result)
			return result;
	}
	s->under = q->ticket;
	if (q->ticket) {
		struct err ignored; /* what is sent under it is refused, hello is not */
		const struct ticket *t =
			tickets_of_token(&r->server->tickets, q->ticket, q->ticket_token, &ignored);
		s->under_number = t ? t->is.number : 0;
	}
	s->ready = true;
	a->session = s->number;
	a->token = (struct proto_bytes){(const char *)s->token, sizeof s->token};
	a->major = PROTO_MAJOR;
	a->minor = PROTO_MINOR;
	a->version = PROTO_STR(NPUD_VERSION);
	a->device = PROTO_STR(r->server->accelerator.kind);
	a->max_request = PROTO_REQUEST_MAX;
	a->max_reply = PROTO_REPLY_MAX;
	a->max_rows = PROTO_ROWS_MAX;
	a->max_in_flight = c->in_flight;
	a->user_connections = c->user_connections;
	a->user_in_flight = c->user_in_flight;
	a->user_handles = c->handles;
	a->user_upload = c->user_upload;
	a->user_replies = c->user_replies;
	return 0;
}

int on_ping(struct request *r, const struct req_ping *q, struct rep_ping *a, struct err *err)
{
	(void)r, (void)q, (void)a, (void)err;
	return 0;
}

int on_cancel(struct request *r, const struct req_cancel *q, struct rep_cancel *a, struct err *err)
{
	(void)err;
	link_each(at, &r->session->requests)
	{
		struct request *other = link_of(at, struct request, in_session);
		if (other == r || other->in.req != q->req || other->state == REQUEST_SERVING)
			continue;
		a->found = true;
		request_stop(other, NPU_E_CANCELLED, "cancelled by its client");
		break;
	}
	return 0;
}

int on_file_close(struct request *r, const struct req_file_close *q, struct rep_file_close *a,
		  struct err *err)
{
	struct file *f;
	int result = session_find_file(&f, r->session, q->file, err);

	(void)a;
	if (result == 0)
		file_close(r->session, f);
	return result;
}

int on_status(struct request *r, const struct req_status *q, struct rep_status *a, struct err *err)
{
	struct server *s = r->server;
	struct runner_status device;
	char print[17];

	(void)q, (void)err;
	accelerator_status(&s->accelerator, &device);
	struct tickets_sums tickets = tickets_sums(&s->tickets);
	snprintf(print, sizeof print, "%016" PRIx64, s->fingerprint);
	*a = (struct rep_status){
		.version = PROTO_STR(NPUD_VERSION),
		.device = PROTO_STR(s->accelerator.kind),
		.health = PROTO_STR(health_name(device.health)),
		.reason = PROTO_STR(device.reason),
		.trouble = PROTO_STR(device.trouble),
		.trouble_ms = device.trouble_ms,
		.launches = device.launches,
		.faults = device.timeouts + device.errors + device.hangs + device.mismatches,
		.contexts_used = device.limits.contexts_used,
		.contexts_max = device.limits.contexts_max,
		.pid = (uint64_t)getpid(),
		.uptime_ms = server_now() - s->started_ms,
		.clients = link_count(&s->sessions),
		.heads = link_count(&s->residency.objects),
		.resident_bytes = residency_sums(&s->residency).used,
		.requests = s->requests,
		.refused = s->refused,
		.rows = s->rows,
		.passes = executor_passes(&s->executor),
		.pass_ms = executor_pass_ms(&s->executor),
		.draining = s->tickets.arbiter.draining,
		.upload_bytes = s->upload_bytes,
		.in_flight = s->in_flight,
		.fingerprint = PROTO_STR(print),
		.holding = tickets.holding,
		.waiting = tickets.waiting,
		.idle_ms = tickets.idle_ms,
		.kernel = PROTO_STR(s->kernels.head_variant),
		.prefetch = s->kernels.prefetch,
		.threads = s->threads,
	};
	request_reply(r, a); /* here, for the text is ours */
	return LATER;
}

int on_clients(struct request *r, const struct req_clients *q, struct rep_clients *a, struct err *err)
{
	struct row_client rows[64];
	size_t n = 0;
	uint64_t now = server_now();

	(void)err;
	link_each(at, &r->server->sessions)
	{
		const struct session *s = link_of(at, struct session, in_sessions);
		if (s->number <= q->after)
			continue;
		if (n == sizeof rows / sizeof *rows) {
			a->more = true;
			break;
		}
		rows[n++] = (struct row_client){
			.session = s->number,
			.uid = s->peer.uid,
			.pid = (uint64_t)s->peer.pid,
			.name = PROTO_STR(s->name),
			.version = PROTO_STR(s->version),
			.connected_ms = now - s->since_ms,
			.requests = s->requests_seen,
			.in_flight = s->in_flight,
			.heads = s->handle_count,
			.files = s->file_count,
		};
	}
	a->clients = (struct proto_list){rows, n};
	request_reply(r, a); /* here, for the rows are ours */
	return LATER;
}

int on_kick(struct request *r, const struct req_kick *q, struct rep_kick *a, struct err *err)
{
	struct session *s = session_of_number(r->server, q->session);
	(void)a;
	if (!s)
		return err_set(err, NPU_E_NO_SUCH_SESSION,
			       "there is no session %llu; npuctl clients lists them",
			       (unsigned long long)q->session);
	if (s->ended) /* and told so: in the list until its connection is closed */
		return 0;
	events_tell(r->server, s, EVENT_KICKED, 0, "by uid %u (session %llu)", (unsigned)r->session->peer.uid,
		    (unsigned long long)r->session->number);
	session_end(s);
	return 0;
}

int on_reload(struct request *r, const struct req_reload *q, struct rep_reload *a, struct err *err)
{
	(void)q, (void)a;
	return server_reload(r->server, err);
}
