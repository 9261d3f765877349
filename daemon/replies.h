/*
 * The reply cache: what operations marked ONCE were answered, so that a client that asks again, because the
 * answer or the connection was lost, gets the same answer and nothing is done twice. Keyed by (uid, the
 * nonce of hello, req). The answers of a client outlive its last connection by a set time.
 *
 * Loop thread only; no clock: time comes in.
 *
 * Bounded: REPLIES_KEPT answers a client, REPLIES_GONE clients a user that are not connected; the oldest
 * go first, so that nobody displaces what belongs to another user.
 */
#ifndef NPUD_REPLIES_H
#define NPUD_REPLIES_H

#include "link.h"
#include <stdint.h>
#include <sys/types.h>

#define REPLIES_KEPT 64
#define REPLIES_GONE 64
#define REPLIES_NONCE 32 /* bytes of a nonce at most */

struct replies {
	struct link clients; /* those that are gone in the order in which they went */
};

/* One client over all its connections. */
struct reply_client {
	struct link in_replies; /* replies.clients */
	uid_t uid;
	unsigned char nonce[REPLIES_NONCE];
	size_t nonce_size;
	unsigned sessions; /* connected now */
	uint64_t until_ms; /* of one that is gone */
	struct link kept;  /* oldest first */
	unsigned count;
};

struct reply {
	struct link in_client; /* reply_client.kept */
	struct reply_client *client;
	uint64_t req, print;
	void *bytes; /* the whole answer; NULL while it is worked on */
	size_t size;
};

void replies_init(struct replies *r);
void replies_fini(struct replies *r); /* no session may be attached */

/*
 * A session said hello: its client's answers, old ones included. An empty nonce is a client of its own, with
 * answers that end with the connection. NULL where there is no memory. replies_detach is owed.
 */
struct reply_client *replies_attach(struct replies *r, uid_t uid, const void *nonce, size_t nonce_size,
				    uint64_t now);
/* The session ends, its requests have ended before; NULL is fine. The last one leaves the answers behind
 * until `until_ms`. */
void replies_detach(struct replies *r, struct reply_client *c, uint64_t until_ms);
/* Forgets the clients whose time is over. */
void replies_expire(struct replies *r, uint64_t now);

enum reply_found {
	REPLY_NEW,     /* not asked before: reply_keep or reply_forget is owed */
	REPLY_PENDING, /* asked before and not answered yet */
	REPLY_DONE,    /* answered before: the bytes are there */
	REPLY_OTHER,   /* the number was used for another request: *out is not set */
	REPLY_NO_MEMORY,
};

/* Looks up `req`, whose request has the fingerprint `print`; a new one is entered. */
enum reply_found reply_find(struct reply_client *c, uint64_t req, uint64_t print, struct reply **out);
/* The answer: copied. Without memory it is forgotten. */
void reply_keep(struct reply *r, const void *bytes, size_t size);
/* There will be no answer; a repeat is a new request. */
void reply_forget(struct reply *r);

#endif
