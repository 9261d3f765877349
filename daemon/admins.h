/*
 * Who may use the operations that concern others (ADMIN in ops.def): uid 0, the daemon's own uid, and the
 * members of the admin group. The group is looked up when the configuration is read, never while a request
 * waits: name services can be slow. Loop thread only.
 */
#ifndef NPUD_ADMINS_H
#define NPUD_ADMINS_H

#include "err.h"
#include <sys/types.h>

struct admins {
	char group[64]; /* empty: none */
	gid_t gid;
	uid_t *uids; /* members that the group lists */
	size_t count;
};

/* `group` empty: only root and the daemon's own user. BAD_CONFIG where there is no such group; NO_MEMORY.
 * What was there stays on failure and goes on success. */
int admins_load(struct admins *a, const char *group, struct err *err);
void admins_fini(struct admins *a);

/* `uid` and `gid` are the kernel's word on the peer. */
bool admins_has(const struct admins *a, uid_t uid, gid_t gid);

#endif
