/*
 * Who may open the device's node, where npud owns it and nobody else may ([device] acl; systemd/npud.rules):
 * by an ACL the users whose tickets hold, as long as they do. Then nobody passes by the tickets. The ACL's
 * named users are ours alone, so that what a daemon that was killed left there is put right by the next. Loop
 * thread only.
 */
#ifndef NPUD_GATE_H
#define NPUD_GATE_H

#include "arbiter.h"
#include <sys/types.h>
#include <time.h>

#define GATE_USERS 64u

struct gate {
	const char *node; /* the giver's; NULL: it is left alone */
	uid_t users[GATE_USERS];
	size_t count;
	struct timespec changed; /* the node's ctime after we set it: udev may have reset it since */
	bool failed;		 /* the last time: said once */
};

void gate_init(struct gate *g, const char *node);

/*
 * Lets in whose tickets hold now, GATE_USERS of them at most, and nobody else; root and the node's owner need
 * no entry. Does nothing where that is so already, and where there is no node. The first time that it fails:
 * NOT_ALLOWED, IO, NO_MEMORY; then 0 until it has worked again.
 */
int gate_follow(struct gate *g, const struct arbiter *a, struct err *err);

#endif
