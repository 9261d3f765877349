/* Handlers of tickets: a few lines each, the arbiter and tickets.c do the work. */
#include "npulock.h"
#include "own.h"
#include "queue.h"
#include "request.h"
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#define WHY_MAX 256
#define FRESH_MS 1000 /* a look at the neighbours is good for so long */

static uint64_t since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

/* The row of a ticket; strings are borrowed from it and from `why`. */
static struct row_ticket row_of(struct tickets *ts, const struct ticket *t, char why[static WHY_MAX])
{
	const struct ticket_record *r = &t->is;
	const struct holding *h = t->host;
	const struct ticket *holder = arbiter_holder(&ts->arbiter);
	uint64_t now = server_now(), then = ticket_over(t) ? r->ended_ms : now;
	bool queued = r->state == TICKET_QUEUED;
	uint64_t end = r->state == TICKET_EXPIRING  ? r->kill_ms
		       : r->state == TICKET_GRANTED ? r->expires_ms
						    : 0;

	return (struct row_ticket){
		.ticket = r->id,
		.version = h ? h->version : UINT64_MAX,
		.state = PROTO_STR(ticket_state_name(r->state)),
		.reason = PROTO_STR(r->reason),
		.number = r->number,
		.mode = PROTO_STR(ticket_mode_name(r->mode)),
		.class = PROTO_STR(ticket_class_name(r->class)),
		.class_now =
			PROTO_STR(ticket_class_name(queued ? queue_class(&ts->arbiter, now, t) : r->class)),
		.uid = r->uid,
		.pid = r->pid,
		.label = PROTO_STR(r->label),
		.command = PROTO_STR(r->command),
		.connected = h && h->session,
		.tree = r->tree,
		.alone = r->alone,
		.endless = r->duration_ms == 0,
		.joined = r->parent,
		.place = queue_place(&ts->arbiter, now, t),
		.waited_ms = since(r->granted_ms ? r->granted_ms : then, r->requested_ms),
		.bound_ms = queued ? queue_bound(&ts->arbiter, now, t) : 0,
		.duration_ms = r->duration_ms,
		.grace_ms = r->grace_ms,
		.held_ms = r->granted_ms ? since(then, r->granted_ms) : 0,
		.remaining_ms = since(end, now),
		.idle_ms = r->state == TICKET_GRANTED ? since(now, r->used_ms) : 0,
		.holder = holder ? holder->is.id : 0,
		.why = PROTO_STR(tickets_why(ts, t, why, WHY_MAX)),
		.beside = PROTO_STR(ticket_holds(t) ? ts->server->neighbours.names : ""),
	};
}

/* Every answer that shows one ticket has the fields of its row. */
#define COPY(S, kind, name, bound, def, doc) a.name = row.name;
#define SHOW(op)                                                                    \
	static int show_##op(struct request *r, const struct ticket *t)             \
	{                                                                           \
		char why[WHY_MAX];                                                  \
		struct row_ticket row = row_of(&r->server->tickets, t, why);        \
		struct rep_##op a = {};                                             \
		ROW_ticket(COPY, COPY, row) request_reply(r, &a);                   \
		return LATER; /* answered here, for the sentence is in our stack */ \
	}
SHOW(ticket_wait)
SHOW(ticket_renew)
SHOW(ticket_release)
SHOW(ticket_show)
SHOW(ticket_revoke)
SHOW(ticket_move)

static int show_request(struct request *r, const struct ticket *t)
{
	char why[WHY_MAX];
	struct row_ticket row = row_of(&r->server->tickets, t, why);
	struct rep_ticket_request a = {.token = {(const char *)t->is.token, sizeof t->is.token}};
	ROW_ticket(COPY, COPY, row) request_reply(r, &a);
	return LATER;
}

static int show_confirm(struct request *r, const struct ticket *t)
{
	char why[WHY_MAX];
	struct row_ticket row = row_of(&r->server->tickets, t, why);
	struct rep_ticket_confirm a = {};
	ROW_ticket(COPY, COPY, row) a.foreign = neighbours_list(&r->server->neighbours, 8);
	request_reply(r, &a);
	return LATER;
}

/* Serves a request again that had to wait for a look at the neighbours. */
static void request_again(struct request *r)
{
	struct req_ticket_request q;
	struct rep_ticket_request a = {};
	struct err err;
	int result = proto_read_fields(&r->in, &proto_ops[OP_ticket_request].request, &q, &err);
	if (result == 0)
		result = on_ticket_request(r, &q, &a, &err);
	if (result < 0)
		request_fail(r, &err);
}

static struct ticket *find(struct request *r, uint64_t id, struct err *err)
{
	struct ticket *t = arbiter_find(&r->server->tickets.arbiter, id);
	if (!t)
		err_set(err, NPU_E_NO_SUCH_TICKET,
			"there is no ticket %llu, or it ended long ago; the ones there are: npuctl tickets",
			(unsigned long long)id);
	return t;
}

/* A request that was made before the daemon restarted: its ticket is there already. */
static struct ticket *find_repeated(struct request *r, uint64_t nonce)
{
	link_each(at, &r->server->tickets.arbiter.tickets)
	{
		struct ticket *t = link_of(at, struct ticket, in_tickets);
		if (t->is.asked_nonce == nonce && t->is.asked_req == r->in.req && t->is.uid == r->uid)
			return t;
	}
	return NULL;
}

static int wish_of(struct request *r, const struct req_ticket_request *q, struct ticket_wish *w,
		   struct err *err)
{
	const struct peer *p = &r->session->peer;

	*w = (struct ticket_wish){
		.duration_ms = q->duration_ms,
		.grace_ms = q->grace_ms,
		.endless = q->endless,
		.alone = q->alone,
		.tree = q->tree,
		.now = q->now,
		.uid = p->uid,
		.gid = p->gid,
		.pid = (uint32_t)p->pid,
		.start = p->start,
	};
	w->mode = proto_is(q->mode, "shared") ? TICKET_SHARED : TICKET_EXCLUSIVE;
	if (w->mode == TICKET_EXCLUSIVE && !proto_is(q->mode, "exclusive"))
		return err_set(err, NPU_E_BAD_VALUE, "the mode of a ticket is exclusive or shared");
	if (!ticket_class_of(q->class.data, q->class.size, &w->class))
		return err_set(err, NPU_E_BAD_VALUE,
			       "the class of a ticket is realtime, interactive, normal or batch");
	if (!q->join)
		return 0;
	w->parent = tickets_of_token(&r->server->tickets, q->join, q->join_token, err);
	return w->parent ? 0 : err->code;
}

int on_ticket_request(struct request *r, const struct req_ticket_request *q, struct rep_ticket_request *a,
		      struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	const struct reply_client *client = r->session->replies;
	uint64_t nonce = client->nonce_size ? XXH3_64bits(client->nonce, client->nonce_size) : 0;
	struct ticket *t = nonce ? find_repeated(r, nonce) : NULL;
	struct ticket_wish w;
	char label[sizeof t->is.label], command[sizeof t->is.command];

	(void)a;
	if (t) { /* who asks for it again has come back */
		tickets_claim(r->session, t->is.id,
			      (struct proto_bytes){(char *)t->is.token, sizeof t->is.token}, err);
		tickets_turn(ts);
		return show_request(r, t);
	}
	if (q->alone && neighbours_stale(&r->server->neighbours, FRESH_MS))
		return neighbours_wait(&r->server->neighbours, r, request_again);
	int result = wish_of(r, q, &w, err);
	if (result)
		return result;
	w.label = err_printable(label, sizeof label, q->label.data, q->label.size);
	w.command = err_printable(command, sizeof command, q->command.data, q->command.size);
	result = arbiter_request(&ts->arbiter, server_now(), &w, &t, err);
	if (result)
		return result;
	t->is.asked_nonce = nonce;
	t->is.asked_req = r->in.req;
	if (getrandom(t->is.token, sizeof t->is.token, 0) != sizeof t->is.token)
		result = err_set(err, NPU_E_IO, "the system has no random bytes for a token");
	else
		result = tickets_hold(ts, t, r->session, err);
	if (result) {
		arbiter_forget(&ts->arbiter, t);
		return result;
	}
	events_tell(r->server, r->session, EVENT_REQUESTED, t->is.id, "%s, %s, %s%s%s",
		    ticket_mode_name(t->is.mode), ticket_class_name(t->is.class), label, label[0] ? ": " : "",
		    command);
	tickets_turn(ts);
	return show_request(r, t);
}

static void answer_wait(struct request *r)
{
	show_ticket_wait(r, r->holding->ticket);
}

int on_ticket_wait(struct request *r, const struct req_ticket_wait *q, struct rep_ticket_wait *a,
		   struct err *err)
{
	struct ticket *t = tickets_claim(r->session, q->ticket, q->token, err);

	(void)a;
	if (!t)
		return err->code;
	struct holding *h = t->host;
	tickets_turn(&r->server->tickets); /* one that came back may be offered what it missed */
	if (ticket_over(t) || h->version != q->version)
		return show_ticket_wait(r, t);
	r->holding = h;
	return request_wait(r, &h->waiters, q->wait_ms, answer_wait);
}

int on_ticket_confirm(struct request *r, const struct req_ticket_confirm *q, struct rep_ticket_confirm *a,
		      struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	struct ticket *t = tickets_claim(r->session, q->ticket, q->token, err);

	(void)a;
	if (!t)
		return err->code;
	bool fresh = t->is.state == TICKET_OFFERED;
	int result = arbiter_confirm(&ts->arbiter, server_now(), t, q->number, err);
	if (result)
		return result;
	if (t->is.tree)
		tickets_set_tree(t, (pid_t)q->keeper, q->cgroup);
	if (fresh) {
		metrics_granted(&r->server->metrics, &t->is);
		neighbours_look(&r->server->neighbours); /* for who disturbs it; the grant does not wait */
		events_tell(r->server, r->session, EVENT_GRANTED, t->is.id, "%s %s",
			    ticket_mode_name(t->is.mode), t->is.label);
	}
	tickets_turn(ts);
	return show_confirm(r, t);
}

int on_ticket_renew(struct request *r, const struct req_ticket_renew *q, struct rep_ticket_renew *a,
		    struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	struct ticket *t = tickets_claim(r->session, q->ticket, q->token, err);

	(void)a;
	if (!t)
		return err->code;
	int result = arbiter_renew(&ts->arbiter, server_now(), t, q->number, q->duration_ms, err);
	if (result)
		return result;
	events_tell(r->server, r->session, EVENT_GRANTED, t->is.id, "renewed");
	tickets_turn(ts);
	return show_ticket_renew(r, t);
}

int on_ticket_release(struct request *r, const struct req_ticket_release *q, struct rep_ticket_release *a,
		      struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	struct ticket *t = tickets_claim(r->session, q->ticket, q->token, err);

	(void)a;
	if (!t)
		return err->code;
	arbiter_release(&ts->arbiter, server_now(), t);
	tickets_turn(ts);
	return show_ticket_release(r, t);
}

int on_ticket_list(struct request *r, const struct req_ticket_list *q, struct rep_ticket_list *a,
		   struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	struct row_ticket rows[32];
	static char why[32][WHY_MAX];
	size_t n = 0;
	uint64_t after = q->after;

	(void)err;
	/* By number: the list itself is by arrival, which moves change. */
	for (;;) {
		const struct ticket *next = NULL;
		link_each(at, &ts->arbiter.tickets)
		{
			const struct ticket *t = link_of(at, struct ticket, in_tickets);
			if (t->is.id > after && (!next || t->is.id < next->is.id))
				next = t;
		}
		a->more = next && n == sizeof rows / sizeof *rows;
		if (!next || a->more)
			break;
		after = next->is.id;
		rows[n] = row_of(ts, next, why[n]);
		n++;
	}
	a->tickets = (struct proto_list){rows, n};
	a->draining = ts->arbiter.draining;
	request_reply(r, a); /* here, for the rows are ours */
	return LATER;
}

int on_ticket_show(struct request *r, const struct req_ticket_show *q, struct rep_ticket_show *a,
		   struct err *err)
{
	const struct ticket *t = find(r, q->ticket, err);
	(void)a;
	return t ? show_ticket_show(r, t) : err->code;
}

int on_ticket_revoke(struct request *r, const struct req_ticket_revoke *q, struct rep_ticket_revoke *a,
		     struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	const struct peer *p = &r->session->peer;
	struct ticket *t = find(r, q->ticket, err);
	char shown[64], reason[sizeof t->is.reason];

	(void)a;
	if (!t)
		return err->code;
	if (t->is.uid != p->uid && !admins_has(&r->server->admins, p->uid, p->gid))
		return err_set(
			err, NPU_E_NOT_ALLOWED,
			"ticket %llu belongs to uid %u; only its owner and administrators may revoke it",
			(unsigned long long)q->ticket, t->is.uid);
	if (ticket_over(t))
		return show_ticket_revoke(r, t);
	err_printable(shown, sizeof shown, q->reason.data, q->reason.size);
	snprintf(reason, sizeof reason, "revoked by uid %u%s%s", p->uid, shown[0] ? ": " : "", shown);
	arbiter_revoke(&ts->arbiter, server_now(), t, reason);
	tickets_turn(ts);
	return show_ticket_revoke(r, t);
}

int on_ticket_move(struct request *r, const struct req_ticket_move *q, struct rep_ticket_move *a,
		   struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	struct ticket *t = find(r, q->ticket, err);

	(void)a;
	if (!t)
		return err->code;
	int result = queue_move(&ts->arbiter, server_now(), t, q->place, err);
	if (result)
		return result;
	events_tell(r->server, r->session, EVENT_MOVED, t->is.id, "to place %llu by uid %u",
		    (unsigned long long)q->place, (unsigned)r->session->peer.uid);
	tickets_turn(ts);
	return show_ticket_move(r, t);
}

/* Whether `x` holds, or waits before `t` does. */
static bool stands_before(struct tickets *ts, uint64_t now, const struct ticket *x, const struct ticket *t)
{
	unsigned place = queue_place(&ts->arbiter, now, t);
	return x != t && place &&
	       (ticket_holds(x) ||
		(x->is.state == TICKET_QUEUED && queue_place(&ts->arbiter, now, x) < place));
}

int on_ticket_why(struct request *r, const struct req_ticket_why *q, struct rep_ticket_why *a,
		  struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	const struct ticket *t = find(r, q->ticket, err);
	struct row_ticket before[32];
	static char whys[32][WHY_MAX], why[WHY_MAX];
	uint64_t now = server_now();
	size_t n = 0;

	if (!t)
		return err->code;
	/* Holders first, which have no place, then the queue in its order. */
	for (unsigned place = 0; place <= queue_place(&ts->arbiter, now, t); place++)
		link_each(at, &ts->arbiter.tickets)
		{
			const struct ticket *x = link_of(at, struct ticket, in_tickets);
			if (n < 32 && stands_before(ts, now, x, t) &&
			    queue_place(&ts->arbiter, now, x) == place) {
				before[n] = row_of(ts, x, whys[n]);
				n++;
			}
		}
	struct row_ticket row = row_of(ts, t, why);
#define COPY_TO(S, kind, name, bound, def, doc) a->name = row.name;
	ROW_ticket(COPY_TO, COPY_TO, row) a->before = (struct proto_list){before, n};
	a->foreign = neighbours_list(&r->server->neighbours, 8);
	request_reply(r, a);
	return LATER;
}

int on_drain(struct request *r, const struct req_drain *q, struct rep_drain *a, struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	(void)q, (void)err;
	events_tell(r->server, NULL, EVENT_DRAINED, 0, "by uid %u", (unsigned)r->session->peer.uid);
	tickets_drain(ts, true);
	link_each(at, &ts->arbiter.tickets) a->holding +=
		ticket_holds(link_of(at, struct ticket, in_tickets));
	return 0;
}

int on_resume(struct request *r, const struct req_resume *q, struct rep_resume *a, struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	(void)q, (void)err;
	events_tell(r->server, NULL, EVENT_RESUMED, 0, "by uid %u", (unsigned)r->session->peer.uid);
	tickets_drain(ts, false);
	link_each(at, &ts->arbiter.tickets) a->waiting +=
		link_of(at, struct ticket, in_tickets)->is.state == TICKET_QUEUED;
	return 0;
}

static void answer_who(struct request *r)
{
	struct neighbours *n = &r->server->neighbours;
	const char *lock = r->server->config.npu_lock;
	char keeper[128];
	npulock_keeper(lock, keeper, sizeof keeper);
	struct rep_who a = {
		.node = PROTO_STR(r->server->config.device_node),
		.there = access(r->server->config.device_node, F_OK) == 0,
		.hidden = n->hidden,
		.lock = PROTO_STR(lock),
		.lock_keeper = PROTO_STR(keeper),
		.contexts_used = n->contexts.used,
		.contexts_max = n->contexts.max,
		.contexts_own = n->contexts.own,
		.foreign = neighbours_list(n, NEIGHBOURS_MAX),
	};
	request_reply(r, &a);
}

int on_who(struct request *r, const struct req_who *q, struct rep_who *a, struct err *err)
{
	(void)q, (void)a, (void)err;
	return neighbours_wait(&r->server->neighbours, r, answer_who);
}

int on_usage(struct request *r, const struct req_usage *q, struct rep_usage *a, struct err *err)
{
	struct tickets *ts = &r->server->tickets;
	struct row_usage rows[64];
	uint64_t now = server_now();
	size_t n = 0;

	(void)err;
	for (size_t i = 0; i < ts->usage.count; i++) {
		if (ts->usage.users[i].uid < q->after)
			continue;
		a->more = n == sizeof rows / sizeof *rows;
		if (a->more)
			break;
		const struct usage_user *u = usage_of(&ts->usage, now, ts->usage.users[i].uid);
		rows[n++] = (struct row_usage){
			.uid = u->uid,
			.held_seconds = u->is.held_seconds,
			.computed_seconds = u->is.computed_seconds,
			.tickets = u->is.tickets,
		};
	}
	a->users = (struct proto_list){rows, n};
	request_reply(r, a);
	return LATER;
}
