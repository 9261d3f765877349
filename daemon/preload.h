/*
 * [preload]: heads that are opened when the daemon begins, and pinned. A session of the daemon's own opens
 * them, which shows among the clients while they load and ends with the last. Loop thread only.
 */
#ifndef NPUD_PRELOAD_H
#define NPUD_PRELOAD_H

#include <uv.h>

struct server;
struct session;
struct handle;

struct preload {
	struct session *session; /* NULL: there is nothing to open, or it is done */
	unsigned waiting;	 /* heads that load */
	uv_timer_t done;
};

/* Begins to open what is configured, once the daemon listens. What cannot be opened is an event, and nothing
 * else. */
void preload_begin(struct server *server);
/* The handle of a session of ours has its head, or there will be none. */
void preload_settled(struct handle *h);
void preload_end(struct server *server);

#endif
