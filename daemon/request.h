/*
 * One request, answered exactly once or abandoned because its client is gone. Loop thread only.
 * A handler is typed: it gets the fields that were read and fills the reply; it returns 0, an error
 * (with its sentence in `err`), or LATER when it keeps the request and will call request_reply or
 * request_fail.
 */
#ifndef NPUD_REQUEST_H
#define NPUD_REQUEST_H

#include "proto.h"
#include "session.h"

#define LATER 1

struct object;
struct handle;
struct holding;
struct plan;

struct request {
	struct link in_session;	 /* session.requests */
	struct session *session; /* NULL once it is gone */
	uid_t uid;		 /* whose quota it is charged to */
	struct server *server;
	struct slot *slot;
	nng_msg *message; /* what `in` borrows from */
	struct proto_in in;
	enum proto_op_id op;
	enum { REQUEST_SERVING, REQUEST_WAITING, REQUEST_RUNNING } state;
	bool cancelled;

	/* while it waits, or its rows do */
	struct link in_waiters; /* the list of whom it waits for */
	uint64_t deadline_ms;
	void (*answer)(
		struct request *r); /* says how far it is, when the deadline has passed; its rows have run */
	struct handle *handle;	    /* head.wait: for which */
	struct handle *fleeting;    /* gemm.run of an expert: to be closed with the request */
	struct event_ring *ring;    /* events.next, events.list: whose, and after which number */
	uint64_t since;
	struct holding *holding; /* ticket.wait: for which */
	struct plan *plan;	 /* resident.plan: what it waits for */
	/* head.run */
	struct run run;
	enum ticket_class class; /* of the hold it is sent under */
	struct object *object;	 /* held */
	uint64_t reply_bytes;	 /* of the answer, in the user's QUOTA_REPLIES until it was taken */

	struct reply *once; /* where its answer is kept for a repeat; NULL: nowhere */
};

/* A message for a live or vanished pipe: finds session and operation, checks, decodes, serves. */
void request_arrived(struct server *server, struct slot *slot, nng_msg *message);

void request_reply(struct request *r, const void *reply); /* the struct of its operation */
void request_fail(struct request *r, const struct err *err);
/* Keeps `r` in `list`, of its waiters, until it is answered; after `wait_ms` by `answer`. The handler returns
 * the result, LATER. */
int request_wait(struct request *r, struct link *list, uint64_t wait_ms, void (*answer)(struct request *r));
/* The client is gone: no answer. A pass that has begun ends first. */
void request_abandon(struct request *r);
/* Ends a waiting or queued request with `code`; a pass that has begun answers so when it ends. */
void request_stop(struct request *r, int code, const char *why);
/* Answers waiting requests whose time is over; returns when the next is due, UINT64_MAX: none waits. */
uint64_t request_sweep(struct server *server, uint64_t now);

/* The executor hands a pass back. */
void request_ran(void *server, struct run *run);

#define OP(name, wire, access, repeat, doc) \
	int on_##name(struct request *r, const struct req_##name *q, struct rep_##name *a, struct err *err);
#include "ops.def"
#undef OP

#endif
