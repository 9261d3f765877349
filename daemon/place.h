/*
 * The place in the file system where the daemon is found: the lock beside its sockets, the sockets' group,
 * and a look every two seconds whether the files are still there. Who deletes them (a cleaner of /tmp, a
 * careless rm) cuts nobody off who is connected; for everybody else the daemon listens there again. Loop
 * thread only.
 */
#ifndef NPUD_PLACE_H
#define NPUD_PLACE_H

#include "err.h"
#include <uv.h>

struct server;

struct place {
	int lock_fd; /* held for life */
	uv_timer_t look;
	char told[512]; /* why it cannot listen again: said once, until it is another reason */
};

/* Takes the lock, which keeps a second daemon from the sockets and from the store. IN_USE with the other's
 * pid. */
int place_take(struct server *s, struct err *err);
/* Gives the sockets to the group of the configuration, or that npud runs as; what goes wrong is logged. */
void place_give_to_group(const struct server *s);
/* Looks from now on; place_leave is owed. */
void place_watch(struct server *s);
void place_leave(struct server *s);

#endif
