/*
 * A model file that a client sends in pieces since it cannot pass a descriptor: memory of this process that
 * becomes a file like any other when it is complete. Its bytes are charged to its user from the start, until
 * the last who has it, the session or a load that reads it, lets go. Loop thread only.
 */
#ifndef NPUD_UPLOAD_H
#define NPUD_UPLOAD_H

#include "server.h"

struct upload;

/*
 * Room for `size` bytes of a file that messages call `name`; *fd is its descriptor, the caller's. BAD_VALUE,
 * TOO_LARGE and BUSY at the user's limit, NO_MEMORY where the machine has no such room now, IO.
 * upload_release is owed.
 */
int upload_new(struct upload **out, int *fd, struct server *server, uid_t uid, const char *name,
	       uint64_t size, struct err *err);
void upload_hold(struct upload *u);
void upload_release(struct upload *u); /* NULL is fine */

/* The next bytes, which are to begin at `at`. BAD_VALUE, TOO_LARGE, IO. */
int upload_put(struct upload *u, int fd, const char *name, uint64_t at, const void *bytes, size_t size,
	       struct err *err);
/* It is complete, and never changes again. BAD_COUNT where bytes are missing; twice is fine. */
int upload_end(struct upload *u, int fd, const char *name, struct err *err);

uint64_t upload_size(const struct upload *u);
uint64_t upload_got(const struct upload *u); /* bytes that have come */
bool upload_ended(const struct upload *u);

#endif
