/*
 * call: one connection to the daemon: finds it, says hello, sends a request and waits for its answer.
 * The only file of the client that knows NNG. One thread at a time per connection.
 */
#ifndef NPU_CALL_H
#define NPU_CALL_H

#include "places.h"
#include "proto.h"
#include <nng/nng.h>

struct connection {
	bool open;
	nng_socket socket;
	nng_ctx context;
	nng_aio *aio;
	char path[PLACES_PATH_MAX + 1];
	char name[65];	/* what the daemon shows of this program */
	char nonce[16]; /* stays the same over reconnects */
	uint64_t req;	/* of the last request */

	/* As hello told it. A daemon that restarted gives another session: handles of the last one are gone.
	 */
	uint64_t session;
	char token[16];
	char version[33], device[33];
	uint64_t max_request, max_reply, max_rows;
};

/* Connects to `socket`, or NULL: to the first place that answers. On failure nothing is owed. */
int connection_open(struct connection *c, const char *socket, const char *name, struct err *err);
void connection_close(
	struct connection *c); /* twice is fine; the daemon takes everything of the session back */

/* What an answer's strings and bytes point into. */
struct answer {
	nng_msg *message;
	struct proto_in in;
};
void answer_fini(struct answer *a);

/*
 * Sends `request` (req_NAME of `op`), waits `timeout_ms` for the answer and reads it into `reply` (rep_NAME),
 * which borrows from `a`; answer_fini is owed in any case (start with {}). Refusals of the daemon come
 * back as its code and sentence; TIMED_OUT, CONNECTION_LOST and MALFORMED are ours. After CONNECTION_LOST
 * the next call finds the daemon again if there is one.
 */
int call(struct connection *c, enum proto_op_id op, const void *request, void *reply, struct answer *a,
	 int timeout_ms, struct err *err);

/* Passes the open file `fd` over the side socket; *file is the handle. */
int call_pass(struct connection *c, int fd, const char *name, uint64_t *file, struct err *err);

/* A NUL-terminated copy, cut at `room` between characters; ends at a NUL among the bytes. */
void call_copy(char *to, size_t room, struct proto_bytes from);

#endif
