/*
 * The flock that tools for XDNA NPUs take around their launches, by custom that of /tmp/npu.lock: we take it
 * around ours. Inside an exclusive hold it is left to the holder's own tools. The struct is one thread's, the
 * executor's; npulock_keeper is anybody's.
 */
#ifndef NPUD_NPULOCK_H
#define NPUD_NPULOCK_H

#include <stdbool.h>
#include <stddef.h>

#define NPULOCK_WAIT_MS 100

struct npulock {
	const char *path; /* the giver's; "": no lock is used */
	bool yielded;	  /* an exclusive hold is out: nothing is taken, and work may go on */
	bool kept;	  /* by a stranger, when it was tried last */
	int fd;
	char why[256];
};

void npulock_init(struct npulock *l, const char *path);

/*
 * Before work on the device. NULL: go on, and call npulock_give after it. Otherwise a stranger keeps it, or
 * it cannot be opened, and the sentence says so until the next call. Waits NPULOCK_WAIT_MS at most, and not
 * at all for one that was kept the last time.
 */
const char *npulock_take(struct npulock *l);
void npulock_give(struct npulock *l);

/*
 * Names who keeps the lock at `path` now, ourselves included: "pid 12 (flm)". Takes nothing, so that it
 * disturbs nobody. False, and "" in `to`: nobody does, or the kernel does not tell.
 */
bool npulock_keeper(const char *path, char *to, size_t room);

#endif
