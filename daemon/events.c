#include "events.h"
#include "log.h"
#include "request.h"
#include "server.h"
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#define BATCH 32 /* events of one answer */

static const char *const names[] = {
#define E(kind, name, doc) [EVENT_##kind] = name,
	EVENT_KINDS(E)
#undef E
};

void event_ring_init(struct event_ring *ring, unsigned most)
{
	*ring = (struct event_ring){.most = most};
	link_init(&ring->events);
	link_init(&ring->waiters);
}

static void drop_oldest(struct event_ring *ring)
{
	struct event *e = link_of(ring->events.next, struct event, in_ring);
	link_remove(&e->in_ring);
	ring->count--;
	free(e);
}

void event_ring_fini(struct event_ring *ring)
{
	while (ring->count)
		drop_oldest(ring);
}

static void answer(struct request *r)
{
	struct row_event rows[BATCH];
	struct event_ring *ring = r->ring;
	/* A number that was never given is of an earlier life of the daemon. */
	bool unknown = r->since > r->server->last_event;
	uint64_t since = unknown ? 0 : r->since;
	struct rep_events_next a = {.resync = unknown || since < ring->lost};
	size_t n = 0;

	link_each(at, &ring->events)
	{
		const struct event *e = link_of(at, struct event, in_ring);
		if (e->number <= since)
			continue;
		if (n == BATCH) {
			a.more = true;
			break;
		}
		rows[n++] = (struct row_event){
			.number = e->number,
			.time_ms = e->time_ms,
			.kind = PROTO_STR(names[e->kind]),
			.id = e->id,
			.session = e->session,
			.uid = e->uid,
			.text = PROTO_STR(e->text),
		};
	}
	a.events = (struct proto_list){rows, n};
	request_reply(r, &a);
}

static void add(struct event_ring *ring, const struct event *event)
{
	struct event *e = malloc(sizeof *e);
	if (e) {
		*e = *event;
		link_append(&ring->events, &e->in_ring);
		if (++ring->count > ring->most) {
			ring->lost = link_of(ring->events.next, struct event, in_ring)->number;
			drop_oldest(ring);
		}
	} else {
		ring->lost = event->number;
	}
	while (!link_empty(&ring->waiters))
		answer(link_of(ring->waiters.next, struct request, in_waiters));
}

static struct event make(struct server *server, const struct session *s, enum event_kind kind, uint64_t id,
			 const char *format, va_list args)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	struct event e = {
		.number = ++server->last_event,
		.time_ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000,
		.kind = kind,
		.id = id,
		.session = s ? s->number : 0,
		.uid = s ? s->peer.uid : getuid(),
	};
	err_format(e.text, sizeof e.text, format, args);
	log_line(s ? "session" : "npud", e.session, "%s: %s", names[kind], e.text);
	return e;
}

void events_tell(struct server *server, struct session *session, enum event_kind kind, uint64_t id,
		 const char *format, ...)
{
	va_list args;
	va_start(args, format);
	struct event e = make(server, session, kind, id, format, args);
	va_end(args);
	add(&server->journal, &e);
	if (session)
		add(&session->events, &e);
}

void events_tell_all(struct server *server, enum event_kind kind, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	struct event e = make(server, NULL, kind, 0, format, args);
	va_end(args);
	add(&server->journal, &e);
	link_each(at, &server->sessions) add(&link_of(at, struct session, in_sessions)->events, &e);
}

/* What came after `since` at once, or the next thing that comes. */
static int serve(struct request *r, struct event_ring *ring, uint64_t since, uint64_t wait_ms)
{
	const struct link *newest = ring->events.prev;
	r->ring = ring;
	r->since = since;
	if (since > r->server->last_event || since < ring->lost ||
	    (ring->count && since < link_of(newest, struct event, in_ring)->number)) {
		answer(r);
		return LATER;
	}
	return request_wait(r, &ring->waiters, wait_ms, answer);
}

int on_events_next(struct request *r, const struct req_events_next *q, struct rep_events_next *a,
		   struct err *err)
{
	struct event_ring *ring = &r->session->events;

	(void)a, (void)err;
	/* Asking for what follows says that the ones before were read. */
	while (q->since <= r->server->last_event && ring->count &&
	       link_of(ring->events.next, struct event, in_ring)->number <= q->since)
		drop_oldest(ring);
	return serve(r, ring, q->since, q->wait_ms);
}

int on_events_list(struct request *r, const struct req_events_list *q, struct rep_events_list *a,
		   struct err *err)
{
	(void)a, (void)err;
	return serve(r, &r->server->journal, q->since, q->wait_ms);
}
