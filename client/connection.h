/*
 * connection: one connection to the daemon: finds it, says hello, and keeps what hello told. NNG connects
 * again on its own after a loss; the next request then says hello again (call.h). Any thread, several at
 * once; open and close by one, with no other inside.
 */
#ifndef NPU_CONNECTION_H
#define NPU_CONNECTION_H

#include "places.h"
#include "proto.h"
#include <nng/nng.h>
#include <pthread.h>
#include <stdatomic.h>

struct call;

/* What one hello told: never changed, and there until the connection is closed. */
struct told {
	struct told *before;
	/* Handles mean nothing, or something else, in any other. Counted here: a daemon that restarts counts
	 * its own from 1 again. */
	uint64_t session;
	char token[16];
	char version[33], device[33];
	uint64_t max_request, max_reply, max_rows;
};

struct connection {
	bool open;
	nng_socket socket;
	nng_dialer dialer; /* changed by connection_redial alone */
	atomic_int pipe;   /* there is a connection, of this number; 0: there is none */
	char path[PLACES_PATH_MAX + 1];
	char name[65];	 /* what the daemon shows of this program */
	char nonce[16];	 /* stays the same over reconnects */
	uint64_t ticket; /* under which requests are sent, from NPU_TICKET; 0: none */
	char ticket_token[16];

	pthread_mutex_t lock;	 /* over what follows */
	pthread_cond_t finished; /* signalled when `first` gets something */
	uint64_t req;		 /* of the last request; goes on over reconnects */
	double alone_since;	 /* of no pipe: lost, or dialled anew */
	struct told *told;	 /* NULL before the first hello */
	struct call *all;	 /* every call that was made */
	struct call *idle;	 /* of those, what can be used again */
	struct call *first, **last;
	int fd; /* readable while `first` is not NULL; -1 until somebody wants it */
};

#define CONNECTION_INIT                                                                           \
	{                                                                                         \
		.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .finished = PTHREAD_COND_INITIALIZER \
	}

/* Connects to `socket`, or NULL: to the first place that answers. connection_fini is owed in any case. */
int connection_open(struct connection *c, const char *socket, const char *name, struct err *err);
/* Ends and frees every call; the daemon takes everything of the session back. Twice is fine. */
void connection_close(struct connection *c);
void connection_fini(struct connection *c); /* closed; what was told goes */

/*
 * Dials anew if there has been no connection for half a second, for NNG may have stopped to try. Any thread,
 * those of NNG's callbacks for aios included.
 */
void connection_redial(struct connection *c);

/* A ticket as NPU_TICKET has it, "ID:TOKEN"; false: it is none. */
bool connection_read_ticket(const char *text, uint64_t *id, char token[16]);

/* The latest hello, or one of no session and the protocol's own limits. */
const struct told *connection_told(struct connection *c);
/* The hello of this program; borrows from `c`. */
struct req_hello connection_hello(const struct connection *c);
/* Keeps what a hello was answered. VERSION, MALFORMED, NO_MEMORY. */
int connection_greeted(struct connection *c, const struct rep_hello *h, struct err *err);
/* A number that no request of this connection had. */
uint64_t connection_next_req(struct connection *c);
/* A descriptor that is readable while finished calls wait in the queue; the connection's. IO. */
int connection_fd(struct connection *c, struct err *err);

#endif
