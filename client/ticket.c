/* Tickets, and what an operator may know and do about them. */
#include "client.h"
#include "clock.h"
#include "own.h"
#include <poll.h>
#include <stdio.h>

enum { WAIT_MS = 25000, RETRY_MS = 100, AWAY_MS = 30000 };

struct npu_ticket {
	npu_client *client;
	uint64_t id, number;
	char token[16];
};

static int check_rises(const char *list, uint64_t *after, uint64_t id)
{
	if (id <= *after)
		return err_set(client_err(), NPU_E_MALFORMED, "%s: row %llu comes after row %llu", list,
			       (unsigned long long)id, (unsigned long long)*after);
	*after = id;
	return 0;
}

static void read_row(struct npu_ticket_info *to, const struct row_ticket *row)
{
	*to = (struct npu_ticket_info){
		.ticket = row->ticket,
		.version = row->version,
		.number = row->number,
		.joined = row->joined,
		.holder = row->holder,
		.uid = row->uid,
		.pid = row->pid,
		.place = row->place,
		.waited_ms = row->waited_ms,
		.bound_ms = row->bound_ms,
		.duration_ms = row->duration_ms,
		.grace_ms = row->grace_ms,
		.held_ms = row->held_ms,
		.remaining_ms = row->remaining_ms,
		.idle_ms = row->idle_ms,
		.connected = row->connected,
		.tree = row->tree,
		.alone = row->alone,
		.endless = row->endless,
	};
	call_copy(to->state, sizeof to->state, row->state);
	call_copy(to->mode, sizeof to->mode, row->mode);
	call_copy(to->priority, sizeof to->priority, row->class);
	call_copy(to->priority_now, sizeof to->priority_now, row->class_now);
	call_copy(to->label, sizeof to->label, row->label);
	call_copy(to->command, sizeof to->command, row->command);
	call_copy(to->reason, sizeof to->reason, row->reason);
	call_copy(to->why, sizeof to->why, row->why);
	call_copy(to->beside, sizeof to->beside, row->beside);
}

/* Every answer that shows one ticket has the fields of its row. */
#define COPY(S, kind, name, bound, def, doc) row.name = a->name;
#define READ(op)                                                                    \
	static void read_##op(struct npu_ticket_info *to, const struct rep_##op *a) \
	{                                                                           \
		struct row_ticket row;                                              \
		ROW_ticket(COPY, COPY, row) if (to) read_row(to, &row);             \
	}
READ(ticket_request)
READ(ticket_wait)
READ(ticket_confirm)
READ(ticket_renew)
READ(ticket_show)
READ(ticket_why)
READ(ticket_revoke)
READ(ticket_move)

static struct proto_bytes token_of(const npu_ticket *t)
{
	return (struct proto_bytes){t->token, sizeof t->token};
}

static int refuse_missing(const char *what)
{
	return err_set(client_err(), NPU_E_BAD_VALUE, "%s must be given", what);
}

NPU_API int npu_ticket_request(npu_client *c, const struct npu_ticket_options *options, npu_ticket **out,
			       struct npu_ticket_info *info)
{
	static const struct npu_ticket_options none;
	const struct npu_ticket_options *o = options ? options : &none;
	char join_token[16];
	int r = client_usable(c);
	if (r)
		return r;
	if (!out)
		return refuse_missing("npu_ticket_request: out");
	*out = NULL;
	struct req_ticket_request q = {
		.mode = PROTO_STR(o->shared ? "shared" : "exclusive"),
		.class = PROTO_STR(o->priority ? o->priority : "normal"),
		.duration_ms = o->duration_ms,
		.endless = o->endless,
		.grace_ms = o->grace_ms,
		.alone = o->alone,
		.tree = o->tree,
		.now = o->now,
		.label = PROTO_STR(o->label ? o->label : ""),
		.command = PROTO_STR(o->command ? o->command : ""),
	};
	if (o->join && !connection_read_ticket(o->join, &q.join, join_token))
		return err_set(client_err(), NPU_E_BAD_VALUE,
			       "\"%.80s\" is no ticket: a number, a colon and 32 hexadecimal digits are",
			       o->join);
	if (o->join)
		q.join_token = (struct proto_bytes){join_token, sizeof join_token};
	/* Names are cut, not refused: they are for people. */
	q.label.size = q.label.size < 63 ? q.label.size : 63;
	q.command.size = q.command.size < 127 ? q.command.size : 127;
	cleanup(freep) npu_ticket *t = calloc(1, sizeof *t);
	if (!t)
		return err_set(client_err(), NPU_E_NO_MEMORY, "out of memory for a ticket");
	struct rep_ticket_request p = {};
	cleanup(answer_fini) struct answer a = {};
	r = client_ask(c, OP_ticket_request, &q, &p, &a);
	if (r)
		return r;
	if (p.token.size != sizeof t->token)
		return err_set(client_err(), NPU_E_MALFORMED, "ticket.request: the answer lacks the token");
	t->client = c;
	t->id = p.ticket;
	t->number = p.number;
	memcpy(t->token, p.token.data, sizeof t->token);
	read_ticket_request(info, &p);
	*out = take(&t);
	return 0;
}

struct wait {
	struct npu_call call;
	npu_ticket *ticket;
	int wait_ms;
	struct npu_ticket_info *info;
};

static int wait_step(struct npu_call *o)
{
	struct wait *w = (struct wait *)o;
	npu_ticket *t = w->ticket;
	struct rep_ticket_wait p;
	cleanup(answer_fini) struct answer a = {};

	if (!o->request) {
		struct req_ticket_wait q = {
			.ticket = t->id,
			.token = token_of(t),
			.version = w->info->version,
			.wait_ms = (uint64_t)w->wait_ms,
		};
		return operation_ask(o, OP_ticket_wait, &q, 0, o->client->timeout_ms + w->wait_ms);
	}
	int r = operation_answer(o, &p, &a);
	if (r == 0) {
		t->number = p.number;
		read_ticket_wait(w->info, &p);
	}
	return r;
}

static struct wait wait_of(npu_ticket *t, int wait_ms, struct npu_ticket_info *info)
{
	wait_ms = wait_ms < 0 || wait_ms > WAIT_MS ? WAIT_MS : wait_ms;
	return (struct wait){{.client = t->client, .step = wait_step}, t, wait_ms, info};
}

NPU_API int npu_ticket_wait(npu_ticket *t, int wait_ms, struct npu_ticket_info *info)
{
	if (!t || !info)
		return refuse_missing("npu_ticket_wait: ticket and info");
	int r = client_usable(t->client);
	struct wait w = wait_of(t, wait_ms, info);
	return r ? r : operation_wait(&w.call);
}

NPU_API int npu_ticket_wait_start(npu_ticket *t, int wait_ms, struct npu_ticket_info *info, npu_done *done,
				  void *arg, npu_call **call)
{
	if (!t || !info)
		return refuse_missing("npu_ticket_wait_start: ticket and info");
	int r = client_usable(t->client);
	struct wait w = wait_of(t, wait_ms, info);
	return r ? r : operation_begin(&w.call, sizeof w, done, arg, call);
}

NPU_API int npu_ticket_confirm(npu_ticket *t, uint64_t keeper, const char *cgroup,
			       struct npu_ticket_info *info)
{
	if (!t)
		return refuse_missing("npu_ticket_confirm: a ticket");
	int r = client_usable(t->client);
	if (r)
		return r;
	struct req_ticket_confirm q = {
		.ticket = t->id,
		.token = token_of(t),
		.number = t->number,
		.keeper = keeper,
		.cgroup = PROTO_STR(cgroup ? cgroup : ""),
	};
	struct rep_ticket_confirm p = {};
	cleanup(answer_fini) struct answer a = {};
	r = client_ask(t->client, OP_ticket_confirm, &q, &p, &a);
	if (r == 0)
		read_ticket_confirm(info, &p);
	return r;
}

NPU_API int npu_ticket_renew(npu_ticket *t, uint64_t duration_ms, struct npu_ticket_info *info)
{
	if (!t)
		return refuse_missing("npu_ticket_renew: a ticket");
	int r = client_usable(t->client);
	if (r)
		return r;
	struct req_ticket_renew q = {
		.ticket = t->id, .token = token_of(t), .number = t->number, .duration_ms = duration_ms};
	struct rep_ticket_renew p = {};
	cleanup(answer_fini) struct answer a = {};
	r = client_ask(t->client, OP_ticket_renew, &q, &p, &a);
	if (r == 0)
		read_ticket_renew(info, &p);
	return r;
}

NPU_API int npu_ticket_release(npu_ticket *t)
{
	if (!t)
		return 0;
	int r = client_usable(t->client);
	struct req_ticket_release q = {.ticket = t->id, .token = token_of(t)};
	struct rep_ticket_release p = {};
	cleanup(answer_fini) struct answer a = {};
	if (r == 0)
		r = client_ask(t->client, OP_ticket_release, &q, &p, &a);
	free(t);
	return r;
}

NPU_API const char *npu_ticket_text(const npu_ticket *t, char to[NPU_TICKET_TEXT])
{
	int n = snprintf(to, NPU_TICKET_TEXT, "%llu:", (unsigned long long)t->id);
	for (size_t i = 0; i < sizeof t->token; i++)
		n += snprintf(to + n, NPU_TICKET_TEXT - (size_t)n, "%02x", (unsigned char)t->token[i]);
	return to;
}

static bool is_over(const struct npu_ticket_info *info)
{
	return info->state[0] != 'q' && info->state[0] != 'o' && info->state[0] != 'g';
}

static bool is_away(int r)
{
	return r == NPU_E_CONNECTION_LOST || r == NPU_E_SHUTDOWN || r == NPU_E_TIMED_OUT;
}

/* Waits for the offer and confirms it; a daemon that restarts meanwhile is waited for. */
static int wait_for_grant(npu_ticket *t, int wait_ms, struct npu_ticket_info *info)
{
	double until = clock_now() + wait_ms / 1e3, away = 0;
	for (;;) {
		int r = 0, left = wait_ms < 0 ? WAIT_MS : (int)((until - clock_now()) * 1e3);
		if (strcmp(info->state, "granted") == 0)
			return 0;
		if (is_over(info))
			return err_set(client_err(), NPU_E_TICKET_OVER, "ticket %llu: %s",
				       (unsigned long long)t->id, info->why);
		if (strcmp(info->state, "offered") == 0)
			r = npu_ticket_confirm(t, 0, NULL, info);
		else if (left <= 0)
			return err_set(client_err(), NPU_E_TIMED_OUT, "ticket %llu: not granted in time: %s",
				       (unsigned long long)t->id, info->why);
		else
			r = npu_ticket_wait(t, left, info);
		if (r == NPU_E_TICKET_OVER) { /* the offer had lapsed, or is of before a restart */
			info->version = 0;
			r = npu_ticket_wait(t, 0, info);
		}
		away = !is_away(r) ? 0 : away > 0 ? away : clock_now();
		if (r && (!is_away(r) || clock_now() - away > AWAY_MS / 1e3))
			return r;
		if (r) {
			info->version = 0; /* answered at once by a daemon that is back */
			poll(NULL, 0, RETRY_MS);
		}
	}
}

NPU_API int npu_ticket_take(npu_client *c, const struct npu_ticket_options *options, int wait_ms,
			    npu_ticket **out, struct npu_ticket_info *info)
{
	struct npu_ticket_info own;
	npu_ticket *t;
	if (!info)
		info = &own;
	int r = npu_ticket_request(c, options, &t, info);
	if (r)
		return r;
	r = wait_for_grant(t, wait_ms, info);
	if (r) {
		struct err why = *client_err();
		npu_ticket_release(t);
		*client_err() = why;
		return r;
	}
	*out = t;
	return 0;
}

NPU_API int npu_tickets(npu_client *c, int (*each)(void *arg, const struct npu_ticket_info *row), void *arg,
			bool *draining)
{
	int r = client_usable(c);
	if (r)
		return r;
	if (!each)
		return refuse_missing("npu_tickets: each");
	struct req_ticket_list q = {};
	for (bool more = true; more;) {
		struct rep_ticket_list p = {};
		cleanup(answer_fini) struct answer a = {};
		r = client_ask(c, OP_ticket_list, &q, &p, &a);
		if (r)
			return r;
		const struct row_ticket *rows = p.tickets.rows;
		for (size_t i = 0; i < p.tickets.count; i++) {
			struct npu_ticket_info row;
			read_row(&row, &rows[i]);
			if ((r = check_rises("ticket.list", &q.after, row.ticket)) || (r = each(arg, &row)))
				return r;
		}
		if (draining)
			*draining = p.draining;
		more = p.more && p.tickets.count > 0;
	}
	return 0;
}

NPU_API int npu_ticket_show(npu_client *c, uint64_t ticket, struct npu_ticket_info *info)
{
	int r = client_usable(c);
	if (r)
		return r;
	struct req_ticket_show q = {.ticket = ticket};
	struct rep_ticket_show p = {};
	cleanup(answer_fini) struct answer a = {};
	r = client_ask(c, OP_ticket_show, &q, &p, &a);
	if (r == 0)
		read_ticket_show(info, &p);
	return r;
}

static int each_foreign(const struct proto_list *list,
			int (*each)(void *arg, const struct npu_foreign_row *row), void *arg)
{
	const struct row_foreign *rows = list->rows;
	int r = 0;
	for (size_t i = 0; each && r == 0 && i < list->count; i++) {
		struct npu_foreign_row row = {.pid = rows[i].pid, .uid = rows[i].uid};
		call_copy(row.command, sizeof row.command, rows[i].command);
		r = each(arg, &row);
	}
	return r;
}

NPU_API int npu_ticket_why(npu_client *c, uint64_t ticket, struct npu_ticket_info *info,
			   int (*before)(void *arg, const struct npu_ticket_info *row),
			   int (*foreign)(void *arg, const struct npu_foreign_row *row), void *arg)
{
	int r = client_usable(c);
	if (r)
		return r;
	struct req_ticket_why q = {.ticket = ticket};
	struct rep_ticket_why p = {};
	cleanup(answer_fini) struct answer a = {};
	r = client_ask(c, OP_ticket_why, &q, &p, &a);
	if (r)
		return r;
	read_ticket_why(info, &p);
	const struct row_ticket *rows = p.before.rows;
	for (size_t i = 0; before && r == 0 && i < p.before.count; i++) {
		struct npu_ticket_info row;
		read_row(&row, &rows[i]);
		r = before(arg, &row);
	}
	return r ? r : each_foreign(&p.foreign, foreign, arg);
}

NPU_API int npu_ticket_revoke(npu_client *c, uint64_t ticket, const char *reason,
			      struct npu_ticket_info *info)
{
	int r = client_usable(c);
	if (r)
		return r;
	struct req_ticket_revoke q = {.ticket = ticket, .reason = PROTO_STR(reason ? reason : "")};
	struct rep_ticket_revoke p = {};
	cleanup(answer_fini) struct answer a = {};
	r = client_ask(c, OP_ticket_revoke, &q, &p, &a);
	if (r == 0)
		read_ticket_revoke(info, &p);
	return r;
}

NPU_API int npu_ticket_move(npu_client *c, uint64_t ticket, uint64_t place, struct npu_ticket_info *info)
{
	int r = client_usable(c);
	if (r)
		return r;
	struct req_ticket_move q = {.ticket = ticket, .place = place};
	struct rep_ticket_move p = {};
	cleanup(answer_fini) struct answer a = {};
	r = client_ask(c, OP_ticket_move, &q, &p, &a);
	if (r == 0)
		read_ticket_move(info, &p);
	return r;
}

NPU_API int npu_drain(npu_client *c, uint64_t *holding)
{
	int r = client_usable(c);
	struct req_drain q = {};
	struct rep_drain p = {};
	cleanup(answer_fini) struct answer a = {};
	if (r == 0)
		r = client_ask(c, OP_drain, &q, &p, &a);
	if (r == 0 && holding)
		*holding = p.holding;
	return r;
}

NPU_API int npu_resume(npu_client *c, uint64_t *waiting)
{
	int r = client_usable(c);
	struct req_resume q = {};
	struct rep_resume p = {};
	cleanup(answer_fini) struct answer a = {};
	if (r == 0)
		r = client_ask(c, OP_resume, &q, &p, &a);
	if (r == 0 && waiting)
		*waiting = p.waiting;
	return r;
}

NPU_API int npu_who(npu_client *c, struct npu_who *out,
		    int (*each)(void *arg, const struct npu_foreign_row *row), void *arg)
{
	int r = client_usable(c);
	if (r)
		return r;
	struct req_who q = {};
	struct rep_who p = {};
	cleanup(answer_fini) struct answer a = {};
	r = client_ask(c, OP_who, &q, &p, &a);
	if (r)
		return r;
	*out = (struct npu_who){
		.there = p.there,
		.hidden = p.hidden,
		.contexts_used = p.contexts_used,
		.contexts_max = p.contexts_max,
		.contexts_own = p.contexts_own,
	};
	call_copy(out->node, sizeof out->node, p.node);
	call_copy(out->lock, sizeof out->lock, p.lock);
	call_copy(out->lock_keeper, sizeof out->lock_keeper, p.lock_keeper);
	return each_foreign(&p.foreign, each, arg);
}

NPU_API int npu_usage(npu_client *c, int (*each)(void *arg, const struct npu_usage_row *row), void *arg)
{
	int r = client_usable(c);
	if (r)
		return r;
	if (!each)
		return refuse_missing("npu_usage: each");
	struct req_usage q = {};
	for (bool more = true; more;) {
		struct rep_usage p = {};
		cleanup(answer_fini) struct answer a = {};
		r = client_ask(c, OP_usage, &q, &p, &a);
		if (r)
			return r;
		const struct row_usage *rows = p.users.rows;
		for (size_t i = 0; i < p.users.count; i++) {
			const struct npu_usage_row row = {
				.uid = rows[i].uid,
				.tickets = rows[i].tickets,
				.held_seconds = rows[i].held_seconds,
				.computed_seconds = rows[i].computed_seconds,
			};
			if ((r = check_rises("usage", &q.after, row.uid + 1)) || (r = each(arg, &row)))
				return r;
		}
		more = p.more && p.users.count > 0;
	}
	return 0;
}
