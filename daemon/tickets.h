/*
 * The daemon's side of tickets: who is connected, what is kept over a restart, which processes live, who
 * waits for an answer. What to do is the arbiter's to decide (arbiter.h). Loop thread only.
 */
#ifndef NPUD_TICKETS_H
#define NPUD_TICKETS_H

#include "arbiter.h"
#include "gate.h"
#include "proto.h"
#include "state.h"
#include "usage.h"
#include <uv.h>

struct request;
struct server;
struct session;

struct tickets {
	struct server *server;
	struct arbiter arbiter;
	struct state *state;
	struct usage usage;
	struct gate gate;
	uv_timer_t timer;
	uint64_t version;  /* of the newest change */
	bool quiet;	   /* an exclusive ticket holds or is next: no tenant is to run */
	bool tenants_away; /* as it is kept */
	bool drained;	   /* by an administrator, who has to resume */
	bool state_failed; /* the last time: everything is kept anew the next */
};

/* What a ticket that is not over has beside its record. */
struct holding {
	struct ticket *ticket;
	struct session *session; /* of its client; NULL: not connected */
	struct link in_session; /* session.tickets; of one that is over: those whose waiters are to be told */
	struct link waiters;	/* requests */
	struct ticket_record kept;
	bool is_kept;
	unsigned place;
	uint64_t version;
	uint64_t absent_ms, resume_ms; /* while not connected: since when; until when it may come back */
	int owner_fd, keeper_fd;       /* pidfds */
};

/* Reads what an earlier life of the daemon kept. IO, IN_USE, NO_MEMORY. */
int tickets_init(struct tickets *ts, struct server *server, struct err *err);
/* Heeds the [ticket] section of the configuration, as it is now. */
void tickets_limit(struct tickets *ts);
/* No new grants from here on; what is granted stays. */
void tickets_stop(struct tickets *ts);
void tickets_drain(struct tickets *ts, bool drained);
void tickets_fini(struct tickets *ts);

/* Others use the device than before: those who hold are told. */
void tickets_company(struct tickets *ts);

/* Carries out what the arbiter decides, keeps what changed, tells who waits. After every change. */
void tickets_turn(struct tickets *ts);

/* Gives a new ticket its holding, for `session`. NO_MEMORY: the ticket is to be released. */
int tickets_hold(struct tickets *ts, struct ticket *t, struct session *session, struct err *err);
/* The ticket of an id, if `token` is its token. NULL: NO_SUCH_TICKET. */
struct ticket *tickets_of_token(struct tickets *ts, uint64_t id, struct proto_bytes token, struct err *err);
/* The same; a session of the process that asked for it becomes the one that holds it. */
struct ticket *tickets_claim(struct session *s, uint64_t id, struct proto_bytes token, struct err *err);
/* Keeps who ends the tree of a ticket: a process of the same user, or -1, and the cgroup, or "". */
void tickets_set_tree(struct ticket *t, pid_t keeper, struct proto_bytes cgroup);
/* The client is gone, and the session about to be freed. */
void tickets_session_closed(struct session *s);

/* What `t` waits for, or how it stands, as a sentence. Returns `to`. */
const char *tickets_why(struct tickets *ts, const struct ticket *t, char *to, size_t room);

struct tickets_sums {
	unsigned holding, waiting;
	uint64_t idle_ms; /* since there was work under a ticket that holds: of the longest */
};
struct tickets_sums tickets_sums(const struct tickets *ts);

/* A pass took so many seconds for `uid`. */
void tickets_computed(struct tickets *ts, uint32_t uid, double seconds);

#endif
