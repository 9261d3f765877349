/*
 * arrival: one packet of the side socket with the descriptor it carries, received and looked at on a thread
 * of its own. Whatever is asked of a descriptor that somebody passed may wait for a program of theirs, even
 * its end: close asks a FUSE file system, and never hears from one that is stopped. What comes through is a
 * file that the loop may close, and ask for its size, as its own.
 */
#ifndef NPUD_ARRIVAL_H
#define NPUD_ARRIVAL_H

#include "err.h"
#include "link.h"
#include <sys/types.h>
#include <uv.h>

#define ARRIVAL_PACKET_MAX 8192

struct arrivals;

struct arrival {
	struct link in_done; /* arrivals.done */
	struct arrivals *to;
	int socket; /* the thread's until the arrival is handed over */
	void *arg;
	char packet[ARRIVAL_PACKET_MAX];
	ssize_t size;	/* as of recv, 0: hung up; or -1 with `error` */
	int error;	/* an errno */
	int passed;	/* a regular file, open for reading only, of this machine or root's; -1: none */
	struct err why; /* code 0, or why what came is not taken; a sentence without the file's name */
};

/* Where arrivals are handed over: `arrived` is called on the loop's thread and has arrival_free to do. */
int arrivals_new(struct arrivals **out, uv_loop_t *loop, void (*arrived)(struct arrival *a), struct err *err);
/* `arrived` is called no more: threads that are under way close what they have, their socket too, and end. */
void arrivals_close(struct arrivals *to);

/* Receives a packet of `socket`, which nobody else uses or closes until it is handed over. NO_MEMORY. */
int arrival_begin(struct arrivals *to, int socket, void *arg, struct err *err);
/* Closes what was passed, unless that was taken (-1). */
void arrival_free(struct arrival *a);

#endif
