/*
 * side: the socket beside the daemon's, over which open files are passed. Any thread; blocks for a moment,
 * five seconds at most.
 */
#ifndef NPU_SIDE_H
#define NPU_SIDE_H

#include "connection.h"

/* Passes the open file `fd` to the session of `told`; *file is its handle there. */
int side_pass(struct connection *c, const struct told *told, int fd, const char *name, uint64_t *file,
	      struct err *err);

#endif
