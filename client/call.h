/*
 * call: one request to the daemon and its answer. It is under way on NNG's threads from call_start on; its
 * giver either waits for it (call_wait) or finds it in the connection's queue of finished calls (call_next).
 * Any thread; one call is one thread's at a time.
 *
 * A request that is answered HELLO_FIRST met a daemon that does not know us any more: hello is said again,
 * and what means the same in a new session is sent again, under its old number, so that nothing is done
 * twice. The same is sent again once when its connection breaks.
 */
#ifndef NPU_CALL_H
#define NPU_CALL_H

#include "connection.h"

struct call;

/* What an answer's strings and bytes point into. */
struct answer {
	nng_msg *message;
	struct proto_in in;
};
void answer_fini(struct answer *a);

struct call_options {
	uint64_t session; /* of the handles in the request: it fails in any other. 0: there are none */
	int timeout_ms;	  /* until TIMED_OUT, of which the daemon is told by a cancel */
	void *owner;	  /* not NULL: the finished call goes into the queue */
	bool forget;	  /* the answer does not matter: the call is not to be finished */
};

/*
 * Sends `request` (req_NAME of `op`; not needed afterwards). On success the call is under way and
 * call_finish is owed. TOO_LARGE, NO_MEMORY, CONNECTION_LOST (another session).
 */
int call_start(struct connection *c, enum proto_op_id op, const void *request, struct call_options options,
	       struct call **out, struct err *err);

/* Waits until it is finished; for one without owner. */
void call_wait(struct call *k);

/* Takes a finished call out of the queue; waits for one up to `wait_ms` (-1: for ever). NULL: there is none.
 */
struct call *call_next(struct connection *c, int wait_ms);
void *call_owner(const struct call *k);

/*
 * Ends a finished call: reads its answer into `reply` (rep_NAME), which borrows from `a`; answer_fini is owed
 * in any case (start with {}). Refusals of the daemon come back as its code and sentence; TIMED_OUT,
 * CANCELLED, CONNECTION_LOST and MALFORMED are ours.
 */
int call_finish(struct call *k, void *reply, struct answer *a, struct err *err);

/* Has it finish soon, as CANCELLED unless it is finished already; the daemon is told. */
void call_cancel(struct call *k);

/* Start, wait, finish. */
int call(struct connection *c, enum proto_op_id op, const void *request, struct call_options options,
	 void *reply, struct answer *a, struct err *err);

/* Ends every call, as CANCELLED where it was under way, and waits until no thread of NNG is in one. */
void call_stop_all(struct connection *c);
/* Frees every call of a closed connection; nobody may have one any more. */
void call_free_all(struct connection *c);

/* A NUL-terminated copy, cut at `room` between characters; ends at a NUL among the bytes. */
void call_copy(char *to, size_t room, struct proto_bytes from);

#endif
