/*
 * The NNG listener: the only file that NNG's threads enter. They put what happened into a queue and wake
 * the loop; everything else here runs on the loop. Identity comes from the kernel, before any message.
 */
#ifndef NPUD_LISTEN_H
#define NPUD_LISTEN_H

#include "err.h"
#include "link.h"
#include "quota.h"
#include <nng/nng.h>
#include <sys/types.h>
#include <uv.h>

struct listener;

/* One NNG context: receives a request, holds it until it is answered, sends the answer, receives again. */
struct slot {
	struct link in_slots;
	struct listener *listener;
	nng_ctx ctx;
	nng_aio *aio;
	enum { SLOT_RECEIVING, SLOT_HELD, SLOT_SENDING } state;
	uint32_t pipe;
	uint64_t owed; /* bytes of QUOTA_REPLIES of `uid`, until the answer was taken or is lost */
	uid_t uid;
};

struct peer {
	uint32_t pipe;
	uid_t uid;
	gid_t gid;
	pid_t pid;
	uint64_t start; /* start time of the process, clock ticks since boot; 0 where it is gone */
	int pidfd;	/* -1 where it is gone; the receiver's to close */
};

/* What the loop is told, in the order in which it happened. */
struct listen_calls {
	void (*born)(void *arg, struct peer peer);
	void (*dead)(void *arg, uint32_t pipe);
	/* `message` and the slot are the receiver's until slot_answer or slot_drop. */
	void (*arrived)(void *arg, struct slot *slot, nng_msg *message);
	/* The answer was taken, or is lost. */
	void (*answered)(void *arg, const struct slot *slot);
};

struct listener {
	nng_socket socket;
	char path[108];
	dev_t device; /* of the socket's file */
	ino_t inode;
	uv_async_t wake;
	uv_mutex_t lock;
	struct link events;	/* under lock */
	struct quota connected; /* connections by user, those that did not say hello too; under lock */
	struct link slots;
	unsigned slots_open, slots_max, receiving;
	unsigned connections;		    /* under lock */
	unsigned connections_max, user_max; /* under lock */
	struct listen_calls calls;
	void *arg;
	bool stopping;
};

/*
 * Listens at `path` with `in_flight_max` requests held at once; calls come on `loop`. Connections above
 * `connections_max`, or above `user_max` of one user and a few that hello can refuse in words, are closed at
 * once. IO, IN_USE.
 */
int listener_init(struct listener *l, uv_loop_t *loop, const char *path, unsigned connections_max,
		  unsigned user_max, unsigned in_flight_max, const struct listen_calls *calls, void *arg,
		  struct err *err);
/* Other limits from now on; who is there stays. */
void listener_limit(struct listener *l, unsigned connections_max, unsigned user_max, unsigned in_flight_max);
/* Whether the socket's file is still there and ours. */
bool listener_is_found(const struct listener *l);
/*
 * Listens at the path once more, after its file was deleted. What listened there goes on, for NNG ends the
 * connections with their listener. IO; IN_USE where something is at the path, which is left alone.
 */
int listener_listen(struct listener *l, struct err *err);
/* Takes no more and ends all contexts; slots are still there for requests that have yet to be dropped. */
void listener_close(struct listener *l);
/* Frees everything but the async handle, which it closes. */
void listener_fini(struct listener *l);

/* Sends `message` (given away) as the answer. A client that does not read for 5 s loses its connection. */
void slot_answer(struct slot *s, nng_msg *message);
/* Slots that hold a request of this slot's client or an answer it has not taken. */
unsigned slot_company(const struct slot *s);
/* Ends a connection; `dead` follows. */
void listen_disconnect(uint32_t pipe);
/* Forgets the request: its client is gone. */
void slot_drop(struct slot *s);

#endif
