/*
 * What of the daemon's state outlives its process: small records by kind and number, in an LMDB environment
 * of their own. They survive a kill of the daemon, not a reboot: nothing is synced, and what an earlier boot
 * left is removed unread, so that no damage done by a power loss is ever looked at. One thread.
 */
#ifndef NPUD_STATE_H
#define NPUD_STATE_H

#include "err.h"

struct state;

enum state_kind { STATE_META = 'm', STATE_TICKET = 't', STATE_USAGE = 'u' };

/*
 * Opens DIRECTORY/tickets, which is made. `boot` names this boot of the machine. IN_USE where another daemon
 * has it, IO. state_close is owed on success.
 */
int state_open(struct state **out, const char *directory, const char *boot, struct err *err);
void state_close(struct state *s); /* NULL is fine */

/* Calls `each` for every record of a kind, by number; `bytes` is valid until it returns. IO. */
int state_each(struct state *s, enum state_kind kind,
	       void (*each)(void *arg, uint64_t number, const void *bytes, size_t size), void *arg,
	       struct err *err);

/* What is put and dropped between state_begin and state_end is kept as a whole or not at all. */
int state_begin(struct state *s, struct err *err);
void state_put(struct state *s, enum state_kind kind, uint64_t number, const void *bytes, size_t size);
void state_drop(struct state *s, enum state_kind kind, uint64_t number);
/* IO, with what failed first: nothing of it is kept then. */
int state_end(struct state *s, struct err *err);

#endif
