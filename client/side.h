/*
 * side: the socket beside the daemon's, over which open files are passed. Any thread; blocks for a moment,
 * five seconds at most.
 */
#ifndef NPU_SIDE_H
#define NPU_SIDE_H

#include "connection.h"
#include "model.h"

/* Passes the files as one model to the session of `told`; *file is its handle there, 0 where not even the
 * first was taken, and is owed back on failure too. *unreachable: nothing was passed, for this process cannot
 * connect there, or the file is on a file system that the daemon does not wait for. */
int side_pass(struct connection *c, const struct told *told, const struct model *model, uint64_t *file,
	      bool *unreachable, struct err *err);

#endif
