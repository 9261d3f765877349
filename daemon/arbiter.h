/*
 * Who may use the device now, until when, and who is next. Pure: no clock, no socket, no process. Time comes
 * in as an argument (milliseconds of CLOCK_BOOTTIME), what happened comes in as calls, and what to do about
 * it comes out of arbiter_decide. The caller owns the loop; one thread.
 *
 * Only the first of the queue (queue.h) is ever granted: shared ones wait behind an exclusive one that waits
 * for shared ones to end.
 */
#ifndef NPUD_ARBITER_H
#define NPUD_ARBITER_H

#include "err.h"
#include "link.h"
#include "ticket.h"

struct ticket {
	struct link in_tickets; /* arbiter.tickets, or arbiter.ended */
	struct ticket_record is;
	bool absent; /* its client is not connected: it keeps its place and is offered nothing */
	void *host;  /* the caller's */
};

struct arbiter_limits {
	uint64_t shared_slots;		       /* shared tickets at once */
	uint64_t aging_ms, default_ms, max_ms; /* a class up; lease that did not say; longest lease */
	uint64_t grace_ms, offer_ms;	       /* after the end; to confirm */
	uint64_t pause_ms;		       /* until servers are paused, at most */
	uint64_t kill_ms;	    /* a killed tree may take this long before it counts as stuck */
	uint64_t queue, per_uid;    /* tickets that are not over; of one user */
	uint64_t idle_ms;	    /* a holder that does nothing for so long is let go; 0: never */
	uint64_t overtakes, lapses; /* see above; offers not confirmed before a ticket is lost */
};

struct arbiter {
	struct arbiter_limits limits;
	struct link tickets; /* not over, by arrival */
	struct link ended;   /* the last ones, for those who ask */
	unsigned count, ended_count;
	uint64_t next_id, next_number, next_seq;
	bool draining; /* no new grants: an administrator's wish, or the daemon ends */
	bool failed;   /* no new grants either: there is a device and it has failed */
	bool occupied; /* servers are to be paused before an exclusive ticket is granted */
	bool foreign;  /* a program that does not know us uses the device */
};

enum decision_kind {
	DECIDE_OFFER,  /* tell the client; it has offer_ms to confirm */
	DECIDE_LAPSE,  /* the offer was not confirmed: back to the end of the queue */
	DECIDE_WARN,   /* the end is near */
	DECIDE_YIELD,  /* it has no end and an exclusive one waits: it has got one now */
	DECIDE_EXPIRE, /* the grace begins: tell the holder, ask its tree to end */
	DECIDE_KILL,   /* the grace is over and the tree is still there */
	DECIDE_STUCK,  /* killed, and still there: nobody else is granted */
	DECIDE_END,    /* it is over: `is.state` says how, `is.reason` why */
};
struct decision {
	enum decision_kind kind;
	struct ticket *ticket; /* after DECIDE_END valid until it falls out of `ended` */
};

void arbiter_init(struct arbiter *a, const struct arbiter_limits *limits);
void arbiter_fini(struct arbiter *a);

/* What is asked for; the rest of a record is ours. */
struct ticket_wish {
	enum ticket_mode mode;
	enum ticket_class class;
	uint64_t duration_ms;	     /* 0: the default, or without an end where `endless` */
	uint64_t grace_ms;	     /* 0: the configured one, which is also the most */
	bool endless;		     /* shared ones only */
	bool alone;		     /* not while `foreign` */
	bool tree;		     /* passes on when its tree is empty, not when its holder is gone */
	bool now;		     /* refused unless it can be offered at once */
	const struct ticket *parent; /* joins this hold instead of waiting for itself; NULL: none */
	uint32_t uid, gid, pid;
	uint64_t start;
	const char *label, *command;
};

/*
 * A new ticket, queued (one that joins: granted). BAD_VALUE; QUEUE_FULL, and HELD where it must be now or
 * not at all: both name who holds, for how long, and the place it would have had.
 */
int arbiter_request(struct arbiter *a, uint64_t now, const struct ticket_wish *wish, struct ticket **out,
		    struct err *err);

/* The lease begins. TICKET_OVER where the number is not the offer's. Twice is fine. */
int arbiter_confirm(struct arbiter *a, uint64_t now, struct ticket *t, uint64_t number, struct err *err);

/* A new end, `duration_ms` from now. HELD where somebody waits, TICKET_OVER, BAD_VALUE. */
int arbiter_renew(struct arbiter *a, uint64_t now, struct ticket *t, uint64_t number, uint64_t duration_ms,
		  struct err *err);

/* Given back, or the queue left. What is over stays as it is. */
void arbiter_release(struct arbiter *a, uint64_t now, struct ticket *t);
/* Taken away: the grace begins. */
void arbiter_revoke(struct arbiter *a, uint64_t now, struct ticket *t, const char *reason);
/* Its holder is gone: it is lost, at once or when its tree is empty. */
void arbiter_gone(struct arbiter *a, uint64_t now, struct ticket *t, const char *reason);
/* Nothing is left of its tree. */
void arbiter_tree_empty(struct arbiter *a, uint64_t now, struct ticket *t);

/* Work under the ticket, checked on every use: TICKET_OVER unless it is granted with this very number. */
int arbiter_use(struct arbiter *a, uint64_t now, struct ticket *t, uint64_t number, struct err *err);

/* Whether an exclusive ticket holds, or would next if nobody were in its way but servers that can be paused.
 */
bool arbiter_wants_quiet(const struct arbiter *a, uint64_t now);
/* The next thing to do at this time; false: nothing. Call until then, after every other call. */
bool arbiter_decide(struct arbiter *a, uint64_t now, struct decision *d);
/* When something falls due if nothing else happens; UINT64_MAX: never. */
uint64_t arbiter_due(const struct arbiter *a, uint64_t now);

struct ticket *arbiter_find(struct arbiter *a, uint64_t id); /* ended ones too; NULL */
/* A ticket of a former life of the daemon. An offer that was under way is queued again in its place. */
int arbiter_restore(struct arbiter *a, uint64_t now, const struct ticket_record *record, struct ticket **out);
/* Undoes arbiter_request or arbiter_restore, for who cannot see the ticket through. */
void arbiter_forget(struct arbiter *a, struct ticket *t);

bool ticket_over(const struct ticket *t);
/* Offered, granted or expiring, and not by joining another. */
bool ticket_holds(const struct ticket *t);
/* The holder to name first: the exclusive one, else the shared one that ends last; NULL: nobody. */
struct ticket *arbiter_holder(const struct arbiter *a);

#endif
