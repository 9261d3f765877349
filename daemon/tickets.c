#include "tickets.h"
#include "work.h"
#include "log.h"
#include "own.h"
#include "process.h"
#include "queue.h"
#include "request.h"
#include "server.h"
#include "tree.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LOOK_MS 10	  /* how often absent clients and ending trees are looked at, at first ... */
#define LOOK_LATER_MS 100 /* ... and after two seconds */
#define TURN_MOST_MS 1000 /* the loop's clock stands still while the machine sleeps, ours does not */
#define KEEP_USAGE_MS 60000

enum { META_COUNTERS = 1, META_TENANTS };

struct counters {
	uint64_t next_id, next_number, next_seq, draining;
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static struct holding *holding_of(const struct ticket *t)
{
	return t->host;
}

static void holding_free(struct holding *h)
{
	link_remove(&h->in_session);
	if (h->owner_fd >= 0)
		close(h->owner_fd);
	if (h->keeper_fd >= 0)
		close(h->keeper_fd);
	h->ticket->host = NULL;
	free(h);
}

static struct holding *holding_new(struct tickets *ts, struct ticket *t)
{
	struct holding *h = calloc(1, sizeof *h);
	if (!h)
		return NULL;
	h->ticket = t;
	h->version = ++ts->version;
	h->owner_fd = process_open((pid_t)t->is.pid, t->is.owner_start);
	h->keeper_fd = -1;
	link_init(&h->in_session);
	link_init(&h->waiters);
	t->host = h;
	return h;
}

static void take_over(struct holding *h, struct session *s)
{
	h->session = s;
	h->ticket->absent = false;
	link_remove(&h->in_session);
	link_append(&s->tickets, &h->in_session);
}

int tickets_hold(struct tickets *ts, struct ticket *t, struct session *session, struct err *err)
{
	struct holding *h = holding_new(ts, t);
	if (!h)
		return err_set(err, NPU_E_NO_MEMORY, "no memory for one more ticket");
	take_over(h, session);
	return 0;
}

/* In constant time, as secrets are compared. */
static bool same_token(const struct ticket *t, struct proto_bytes token)
{
	unsigned char differs = token.size != sizeof t->is.token;
	for (size_t i = 0; !differs && i < sizeof t->is.token; i++)
		differs |= (unsigned char)(t->is.token[i] ^ (unsigned char)token.data[i]);
	return !differs;
}

struct ticket *tickets_of_token(struct tickets *ts, uint64_t id, struct proto_bytes token, struct err *err)
{
	struct ticket *t = arbiter_find(&ts->arbiter, id);
	if (t && same_token(t, token))
		return t;
	err_set(err, NPU_E_NO_SUCH_TICKET,
		"there is no ticket %llu, or this is not its token; the ones there are: npuctl tickets",
		(unsigned long long)id);
	return NULL;
}

struct ticket *tickets_claim(struct session *s, uint64_t id, struct proto_bytes token, struct err *err)
{
	struct ticket *t = tickets_of_token(&s->server->tickets, id, token, err);
	if (!t)
		return NULL;
	/* Its own process on another connection; one that was given the token only works under it. */
	struct holding *h = holding_of(t);
	if (h && h->session != s && (uint32_t)s->peer.pid == t->is.pid && s->peer.start == t->is.owner_start)
		take_over(h, s);
	return t;
}

/* Looks after a ticket whose client is not connected; returns when to look again. */
static uint64_t look_after(struct tickets *ts, struct holding *h, uint64_t now)
{
	struct ticket *t = h->ticket;
	bool dead = process_ended(h->owner_fd);

	if (dead && t->is.verdict != TICKET_LOST && t->is.state <= TICKET_GRANTED)
		arbiter_gone(&ts->arbiter, now, t, "its holder died");
	if (dead && t->is.tree && tree_is_empty(t->is.cgroup, h->keeper_fd))
		arbiter_tree_empty(&ts->arbiter, now, t);
	else if (dead && !t->is.tree)
		arbiter_gone(&ts->arbiter, now, t, "its holder died");
	if (t->is.state == TICKET_QUEUED && now >= h->resume_ms)
		arbiter_gone(&ts->arbiter, now, t, "its client did not come back");
	return now + (now - h->absent_ms < 2000 ? LOOK_MS : LOOK_LATER_MS);
}

static void set_absent(struct tickets *ts, struct holding *h, uint64_t now)
{
	h->session = NULL;
	h->ticket->absent = true;
	link_remove(&h->in_session);
	h->absent_ms = now;
	h->resume_ms = now + ts->server->config.ticket_resume * 1000;
}

void tickets_session_closed(struct session *s)
{
	struct tickets *ts = &s->server->tickets;
	uint64_t now = server_now();

	link_each(at, &s->tickets)
	{
		struct holding *h = link_of(at, struct holding, in_session);
		struct ticket *t = h->ticket;
		set_absent(ts, h, now);
		if (s->server->stopping)
			continue; /* kept for the next life of the daemon */
		if (!t->is.tree || t->is.state < TICKET_GRANTED)
			arbiter_gone(&ts->arbiter, now, t, "its client went away");
	}
	tickets_turn(ts);
}

static const char *whose(const struct ticket *t, char *to, size_t room)
{
	snprintf(to, room, "ticket %llu of uid %u%s%s (pid %u%s%s)", (unsigned long long)t->is.id, t->is.uid,
		 t->is.label[0] ? " " : "", t->is.label, t->is.pid, t->is.command[0] ? ", " : "",
		 t->is.command);
	return to;
}

static const char *reason_of(const struct accelerator *a, struct runner_status *s)
{
	accelerator_status(a, s);
	return s->reason;
}

const char *tickets_why(struct tickets *ts, const struct ticket *t, char *to, size_t room)
{
	const struct ticket *holder = arbiter_holder(&ts->arbiter);
	uint64_t now = server_now();
	struct runner_status device;
	const char *state = ticket_state_name(t->is.state);
	char who[300], time[32];

	if (ticket_over(t) && strncmp(t->is.reason, state, strlen(state)) == 0)
		snprintf(to, room, "%s", t->is.reason);
	else if (ticket_over(t))
		snprintf(to, room, "%s%s%s", state, t->is.reason[0] ? ": " : "", t->is.reason);
	else if (t->is.state == TICKET_EXPIRING && t->is.stuck)
		snprintf(to, room,
			 "its processes were killed and are still there: nobody else is granted until they "
			 "end");
	else if (t->is.state == TICKET_EXPIRING)
		snprintf(to, room, "its grace runs: %s", t->is.reason);
	else if (t->is.state == TICKET_GRANTED && t->is.expires_ms)
		snprintf(to, room, "it has the NPU for another %s%s%s",
			 ticket_time(time, t->is.expires_ms > now ? t->is.expires_ms - now : 0),
			 t->is.told_to_yield ? ": " : "", t->is.told_to_yield ? t->is.reason : "");
	else if (t->is.state == TICKET_GRANTED)
		snprintf(to, room, "it has the NPU until it lets go or another waits");
	else if (t->is.state == TICKET_OFFERED)
		snprintf(to, room, "it may have the NPU, and its client has not confirmed yet");
	else if (ts->arbiter.draining)
		snprintf(to, room,
			 "an administrator drains the daemon: nothing is granted until npuctl resume");
	else if (ts->arbiter.failed)
		snprintf(to, room, "the device has failed, and nothing is granted until it is well: %s",
			 reason_of(&ts->server->accelerator, &device));
	else if (t->absent)
		snprintf(to, room, "its client is not connected; it keeps its place for another %s",
			 ticket_time(time,
				     holding_of(t)->resume_ms > now ? holding_of(t)->resume_ms - now : 0));
	else if (t->is.alone && ts->arbiter.foreign)
		snprintf(to, room, "it wants to be alone, and programs without a ticket use the NPU: %s",
			 ts->server->neighbours.names);
	else if (holder && holder->is.stuck)
		snprintf(to, room, "%s: its processes were killed and are still there",
			 whose(holder, who, sizeof who));
	else if (holder)
		snprintf(to, room, "%s holds the NPU %s %s%s", whose(holder, who, sizeof who),
			 ticket_mode_name(holder->is.mode), holder->is.expires_ms > now ? "for another " : "",
			 holder->is.expires_ms > now ? ticket_time(time, holder->is.expires_ms - now)
						     : "until it lets go");
	else if (ts->arbiter.occupied && t->is.mode == TICKET_EXCLUSIVE)
		snprintf(to, room, "servers that use the NPU all the time are being paused for it");
	else
		snprintf(to, room, "the one before it in the queue has the turn");
	return to;
}

static void tell(struct tickets *ts, const struct decision *d)
{
	static const enum event_kind over[] = {
		[TICKET_RELEASED] = EVENT_RELEASED,
		[TICKET_EXPIRED] = EVENT_EXPIRED,
		[TICKET_REVOKED] = EVENT_REVOKED,
		[TICKET_LOST] = EVENT_LOST,
	};
	static const enum event_kind kinds[] = {
		[DECIDE_OFFER] = EVENT_OFFERED,	  [DECIDE_LAPSE] = EVENT_LAPSED,
		[DECIDE_WARN] = EVENT_WARNED,	  [DECIDE_YIELD] = EVENT_YIELD,
		[DECIDE_EXPIRE] = EVENT_EXPIRING, [DECIDE_KILL] = EVENT_KILLED,
		[DECIDE_STUCK] = EVENT_STUCK,	  [DECIDE_END] = EVENT_EXPIRED,
	};
	const struct ticket *t = d->ticket;
	const struct holding *h = holding_of(t);
	char who[300], left[160] = "";

	if (d->kind == DECIDE_STUCK || d->kind == DECIDE_KILL)
		tree_name(t->is.cgroup, left, sizeof left);
	events_tell(ts->server, h ? h->session : NULL,
		    d->kind == DECIDE_END ? over[t->is.state] : kinds[d->kind], t->is.id, "%s%s%s%s%s",
		    whose(t, who, sizeof who), t->is.reason[0] ? ": " : "", t->is.reason,
		    left[0] ? "; processes: " : "", left);
}

static void on_timer(uv_timer_t *timer)
{
	tickets_turn(timer->data);
}

static void count_usage(struct tickets *ts, const struct ticket *t, uint64_t now)
{
	if (!t->is.granted_ms || t->is.parent)
		return;
	struct usage_user *u = usage_of(&ts->usage, now, t->is.uid);
	if (!u)
		return;
	u->is.held_seconds += (double)(now - t->is.granted_ms) / 1000;
	u->is.tickets++;
	u->dirty = true;
}

void tickets_computed(struct tickets *ts, uint32_t uid, double seconds)
{
	struct usage_user *u = usage_of(&ts->usage, server_now(), uid);
	if (!u)
		return;
	u->is.computed_seconds += seconds;
	u->dirty = true;
	if (!uv_is_active((uv_handle_t *)&ts->timer))
		uv_timer_start(&ts->timer, on_timer, KEEP_USAGE_MS, 0);
}

struct tickets_sums tickets_sums(const struct tickets *ts)
{
	struct tickets_sums sums = {0};
	uint64_t now = server_now();

	link_each(at, &ts->arbiter.tickets)
	{
		const struct ticket *t = link_of(at, struct ticket, in_tickets);
		sums.holding += ticket_holds(t);
		sums.waiting += t->is.state == TICKET_QUEUED;
		if (t->is.state == TICKET_GRANTED && ticket_holds(t) && now - t->is.used_ms > sums.idle_ms)
			sums.idle_ms = now - t->is.used_ms;
	}
	return sums;
}

/* What the arbiter decided; `ended` gets the holdings of what is over. */
static void carry_out(struct tickets *ts, const struct decision *d, uint64_t now, struct link *ended)
{
	struct ticket *t = d->ticket;
	struct holding *h = holding_of(t);

	tell(ts, d);
	if (d->kind == DECIDE_END) {
		count_usage(ts, t, now);
		metrics_ended(&ts->server->metrics, &t->is);
		if (process_ended(h->owner_fd))
			tree_remove(t->is.cgroup);
		link_remove(&h->in_session);
		link_append(ended, &h->in_session);
	} else if (d->kind == DECIDE_KILL) {
		tree_kill(t->is.cgroup, h->owner_fd, h->keeper_fd);
	} else if (d->kind == DECIDE_EXPIRE && process_ended(h->owner_fd)) {
		tree_terminate(t->is.cgroup, h->keeper_fd);
	}
}

/* Whether tenants are paused, or may be by now should the daemon die: then its next life resumes them. */
static bool tenants_away(const struct tickets *ts)
{
	const struct tenants *t = &ts->server->tenants;
	return t->count && (ts->quiet || t->state != TENANTS_RUN);
}

static bool is_changed(const struct tickets *ts, const struct holding *h)
{
	return ts->state_failed || !h->is_kept || memcmp(&h->kept, &h->ticket->is, sizeof h->kept) != 0;
}

static bool anything_changed(const struct tickets *ts)
{
	link_each(at, &ts->arbiter.tickets) if (is_changed(ts, holding_of(link_of(at, struct ticket,
										  in_tickets)))) return true;
	for (size_t i = 0; i < ts->usage.count; i++)
		if (ts->usage.users[i].dirty)
			return true;
	return ts->state_failed || ts->tenants_away != tenants_away(ts);
}

static void put_all(struct tickets *ts)
{
	struct counters c = {ts->arbiter.next_id, ts->arbiter.next_number, ts->arbiter.next_seq, ts->drained};

	link_each(at, &ts->arbiter.tickets)
	{
		const struct holding *h = holding_of(link_of(at, struct ticket, in_tickets));
		if (is_changed(ts, h))
			state_put(ts->state, STATE_TICKET, h->ticket->is.id, &h->ticket->is,
				  sizeof h->ticket->is);
	}
	for (size_t i = 0; i < ts->usage.count; i++) {
		struct usage_user *u = &ts->usage.users[i];
		if (u->dirty)
			state_put(ts->state, STATE_USAGE, u->uid, &u->is, sizeof u->is);
		u->dirty = false;
	}
	state_put(ts->state, STATE_META, META_COUNTERS, &c, sizeof c);
	uint64_t away = ts->tenants_away = tenants_away(ts);
	state_put(ts->state, STATE_META, META_TENANTS, &away, sizeof away);
}

/* Before anybody hears of a change it is kept, so that a daemon that dies then still knows it. */
static void keep(struct tickets *ts, const struct link *ended)
{
	struct err err = {0};

	int r = state_begin(ts->state, &err);
	if (r == 0) {
		for (const struct link *at = ended->next; at != ended; at = at->next)
			state_drop(ts->state, STATE_TICKET,
				   link_of(at, struct holding, in_session)->ticket->is.id);
		put_all(ts);
		r = state_end(ts->state, &err);
	}
	if (r && !ts->state_failed)
		log_line("npud", 0, "tickets would not survive a restart now: %s", err.text);
	ts->state_failed = r != 0;
}

static void answer_all(struct holding *h)
{
	while (!link_empty(&h->waiters)) {
		struct request *r = link_of(h->waiters.next, struct request, in_waiters);
		r->answer(r);
	}
}

/* Who waits for a change of a ticket hears of it. */
static void notice(struct tickets *ts, uint64_t now)
{
	link_each(at, &ts->arbiter.tickets)
	{
		const struct ticket *t = link_of(at, struct ticket, in_tickets);
		struct holding *h = holding_of(t);
		unsigned place = queue_place(&ts->arbiter, now, t);
		if (h->is_kept && place == h->place && memcmp(&h->kept, &t->is, sizeof h->kept) == 0)
			continue;
		h->kept = t->is;
		h->is_kept = true;
		h->place = place;
		h->version = ++ts->version;
		answer_all(h);
	}
}

void tickets_company(struct tickets *ts)
{
	link_each(at, &ts->arbiter.tickets)
	{
		const struct ticket *t = link_of(at, struct ticket, in_tickets);
		struct holding *h = holding_of(t);
		if (!ticket_holds(t))
			continue;
		h->version = ++ts->version;
		answer_all(h);
	}
}

static bool wants_to_be_alone(const struct tickets *ts)
{
	link_each(at, &ts->arbiter.tickets)
	{
		const struct ticket *t = link_of(at, struct ticket, in_tickets);
		if (t->is.alone && t->is.state == TICKET_QUEUED)
			return true;
	}
	return false;
}

void tickets_turn(struct tickets *ts)
{
	uint64_t now = server_now(), look = UINT64_MAX;
	struct decision d;
	struct link ended;
	struct err err;

	link_init(&ended);
	link_each(at, &ts->arbiter.tickets)
	{
		struct holding *h = holding_of(link_of(at, struct ticket, in_tickets));
		if (!h->session && !ts->server->stopping)
			look = least(look, look_after(ts, h, now));
	}
	if (wants_to_be_alone(ts) && neighbours_stale(&ts->server->neighbours, TURN_MOST_MS))
		neighbours_look(&ts->server->neighbours);
	ts->arbiter.foreign = neighbours_are_there(&ts->server->neighbours);
	ts->arbiter.occupied = tenants_in_the_way(&ts->server->tenants);
	ts->arbiter.failed = accelerator_failed(&ts->server->accelerator);
	while (arbiter_decide(&ts->arbiter, now, &d))
		carry_out(ts, &d, now, &ended);
	if (gate_follow(&ts->gate, &ts->arbiter, &err))
		events_tell(ts->server, NULL, EVENT_DEVICE, 0, "%s", err.text);
	ts->quiet = arbiter_wants_quiet(&ts->arbiter, now);
	if (!link_empty(&ended) || anything_changed(ts))
		keep(ts, &ended);
	link_each(at, &ended)
	{
		struct holding *h = link_of(at, struct holding, in_session);
		answer_all(h);
		holding_free(h);
	}
	notice(ts, now);
	atomic_store(&ts->server->executor.reserved, work_reserved(&ts->arbiter));
	uint64_t due = least(look, arbiter_due(&ts->arbiter, now));
	bool again = tenants_turn(&ts->server->tenants, ts->quiet);
	if (again)
		due = now;
	if (link_empty(&ts->arbiter.tickets) && !again) {
		uv_timer_stop(&ts->timer);
		return;
	}
	due = least(due > now ? due - now : 0, TURN_MOST_MS);
	uv_timer_start(&ts->timer, on_timer, due, 0);
}

void tickets_set_tree(struct ticket *t, pid_t keeper, struct proto_bytes cgroup)
{
	struct holding *h = holding_of(t);
	uint64_t start = process_start(keeper);
	uid_t uid;

	if (keeper > 0 && h->keeper_fd < 0 && (h->keeper_fd = process_open(keeper, start)) >= 0) {
		if (process_uid(keeper, &uid) && uid == t->is.uid) {
			t->is.keeper = (uint32_t)keeper;
			t->is.keeper_start = start;
		} else {
			close(h->keeper_fd);
			h->keeper_fd = -1;
		}
	}
	snprintf(t->is.cgroup, sizeof t->is.cgroup, "%.*s", (int)cgroup.size, cgroup.size ? cgroup.data : "");
	if (!tree_is_cgroup_of(t->is.cgroup, t->is.uid))
		t->is.cgroup[0] = '\0';
}

void tickets_drain(struct tickets *ts, bool drained)
{
	ts->drained = drained;
	ts->arbiter.draining = drained || ts->server->stopping;
	ts->state_failed = true; /* has it kept */
	tickets_turn(ts);
}

void tickets_stop(struct tickets *ts)
{
	ts->arbiter.draining = true;
}

static void restore_counters(void *arg, uint64_t number, const void *bytes, size_t size)
{
	struct tickets *ts = arg;
	struct counters c;
	uint64_t away;
	if (number == META_TENANTS && size == sizeof away) {
		memcpy(&away, bytes, sizeof away);
		ts->tenants_away = away != 0;
		ts->server->tenants.state = away ? TENANTS_PAUSED : TENANTS_RUN;
	}
	if (number != META_COUNTERS || size != sizeof c)
		return;
	memcpy(&c, bytes, sizeof c);
	ts->arbiter.next_id = c.next_id;
	ts->arbiter.next_number = c.next_number;
	ts->arbiter.next_seq = c.next_seq;
	ts->drained = ts->arbiter.draining = c.draining != 0;
}

static void restore_usage(void *arg, uint64_t number, const void *bytes, size_t size)
{
	struct tickets *ts = arg;
	struct usage_record r;
	if (size != sizeof r)
		return;
	memcpy(&r, bytes, sizeof r);
	struct usage_user *u = usage_of(&ts->usage, r.at_ms, (uint32_t)number);
	if (u)
		u->is = r;
}

static void restore_ticket(void *arg, uint64_t number, const void *bytes, size_t size)
{
	struct tickets *ts = arg;
	struct ticket_record r;
	struct ticket *t;
	uint64_t now = server_now();
	char who[300];

	if (size != sizeof r)
		return;
	memcpy(&r, bytes, sizeof r);
	if (r.id != number || r.state > TICKET_EXPIRING || arbiter_restore(&ts->arbiter, now, &r, &t))
		return;
	struct holding *h = holding_new(ts, t);
	if (!h) {
		arbiter_forget(&ts->arbiter, t);
		return;
	}
	h->keeper_fd = process_open((pid_t)t->is.keeper, t->is.keeper_start);
	set_absent(ts, h, now);
	events_tell(ts->server, NULL, EVENT_RESTORED, t->is.id, "%s: %s", whose(t, who, sizeof who),
		    ticket_state_name(t->is.state));
}

/* Names this boot of the machine; a fixed name where the kernel does not tell. */
static void read_boot(char to[64])
{
	cleanup(closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, to, 63);
	snprintf(to + (n > 0 ? n : 0), 64 - (size_t)(n > 0 ? n : 0), "%s", n > 0 ? "" : "unknown");
	to[strcspn(to, "\n")] = '\0';
}

/* Seconds until all tenants are paused, should they just begin to resume. */
static uint64_t pause_most(const struct config *c)
{
	uint64_t most = 0;
	for (uint32_t i = 0; i < c->tenant_count; i++)
		if (c->tenants[i].timeout > most)
			most = c->tenants[i].timeout;
	return most ? 2 * (most + 1) : 0;
}

void tickets_limit(struct tickets *ts)
{
	const struct config *c = &ts->server->config;
	ts->arbiter.limits = (struct arbiter_limits){
		.shared_slots = c->ticket_shared_slots,
		.aging_ms = c->ticket_aging * 1000,
		.default_ms = c->ticket_default * 1000,
		.max_ms = c->ticket_max * 1000,
		.grace_ms = c->ticket_grace * 1000,
		.offer_ms = 5000,
		.kill_ms = 5000,
		.pause_ms = pause_most(c) * 1000,
		.queue = c->ticket_queue,
		.per_uid = c->ticket_per_user,
		.idle_ms = c->ticket_idle_release * 1000,
		.overtakes = 16,
		.lapses = 3,
	};
}

int tickets_init(struct tickets *ts, struct server *server, struct err *err)
{
	char boot[64];

	ts->server = server;
	static const struct arbiter_limits none;

	arbiter_init(&ts->arbiter, &none);
	tickets_limit(ts);
	gate_init(&ts->gate, server->config.device_acl ? server->config.device_node : NULL);
	/* Numbers go on rising even over a boot, which leaves nothing of ours behind. */
	ts->arbiter.next_number = (uint64_t)time(NULL) << 20;
	/* Nor is a version to be that of a former life: who shows it would not hear what is new. */
	ts->version = server_now() << 10;
	uv_timer_init(&server->loop, &ts->timer);
	ts->timer.data = ts;
	read_boot(boot);
	int r = state_open(&ts->state, server->config.state_dir, boot, err);
	if (r == 0)
		r = state_each(ts->state, STATE_META, restore_counters, ts, err);
	if (r == 0)
		r = state_each(ts->state, STATE_USAGE, restore_usage, ts, err);
	if (r == 0)
		r = state_each(ts->state, STATE_TICKET, restore_ticket, ts, err);
	if (r == 0)
		tickets_turn(ts);
	return r;
}

void tickets_fini(struct tickets *ts)
{
	struct link none;

	link_init(&none);
	if (anything_changed(ts))
		keep(ts, &none);
	link_each(at, &ts->arbiter.tickets) holding_free(holding_of(link_of(at, struct ticket, in_tickets)));
	arbiter_fini(&ts->arbiter);
	usage_fini(&ts->usage);
	state_close(ts->state);
	uv_close((uv_handle_t *)&ts->timer, NULL);
}
