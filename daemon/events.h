/*
 * What happened and why: told to the session it concerns, and kept in the daemon's journal for operators.
 * Both are rings: bounded, the oldest go first, and a reader who was too slow is told so ("resync": look at
 * the state itself again). Readers ask for what came after a number they know, and wait for it; numbers
 * rise over all rings, from 1 at the daemon's start. Loop thread only.
 */
#ifndef NPUD_EVENTS_H
#define NPUD_EVENTS_H

#include "link.h"
#include "proto.h"

#define EVENTS_OF_SESSION 32
#define EVENTS_OF_JOURNAL 1024

struct request;
struct server;
struct session;

struct event {
	struct link in_ring; /* event_ring.events */
	uint64_t number;
	uint64_t time_ms; /* of the wall clock: for reading, not for deciding */
	enum event_kind kind;
	uint64_t id;	  /* ticket or head that it is about; 0: none */
	uint64_t session; /* 0: all */
	uint64_t uid;
	char text[257];
};

struct event_ring {
	struct link events; /* oldest first */
	unsigned count, most;
	uint64_t lost;	     /* number of the newest that was displaced unread */
	struct link waiters; /* requests */
};

void event_ring_init(struct event_ring *ring, unsigned most);
void event_ring_fini(struct event_ring *ring); /* no request may wait */

/*
 * Tells `session` (NULL: nobody) and the journal, and logs it. `id` is the ticket or head concerned. The text
 * is a sentence; what strangers chose in it goes through err_printable.
 */
void events_tell(struct server *server, struct session *session, enum event_kind kind, uint64_t id,
		 const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Tells every session. */
void events_tell_all(struct server *server, enum event_kind kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
