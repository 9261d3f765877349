/*
 * The processes that run under a ticket. While their keeper lives (npu-hold), ending them is its affair; this
 * is what the daemon can see and do when it is gone, or does not act: by the cgroup where there is one, and
 * by the process that took over otherwise. No state; pidfds are borrowed and may be -1.
 */
#ifndef NPUD_TREE_H
#define NPUD_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whether `path` is a cgroup (v2) that belongs to `uid`, so that its processes may be ended for it. */
bool tree_is_cgroup_of(const char *path, uid_t uid);

/* Nothing is left in the cgroup; without one: the keeper, which ends last, has ended. */
bool tree_is_empty(const char *cgroup, int keeper);
/* Asks all to end (SIGTERM, and SIGCONT for those that are stopped). */
void tree_terminate(const char *cgroup, int keeper);
/* Kills all at once; wakes owner and keeper, should they be stopped, to do it themselves. */
void tree_kill(const char *cgroup, int owner, int keeper);
/* Removes the empty cgroup of a keeper that cannot do so any more. */
void tree_remove(const char *cgroup);
/* "12 (sleep), 14 (python3)": who is left. Returns `to`; "" where that cannot be seen. */
const char *tree_name(const char *cgroup, char *to, size_t room);

#endif
