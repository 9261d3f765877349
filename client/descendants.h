/*
 * The processes below this one, which is their subreaper: orphans of any depth come to it, so that whoever is
 * left can be found, signalled and waited for. And a cgroup of their own where one can be made, which also
 * holds those whose keeper was killed. One thread, the one that forks.
 */
#ifndef NPU_DESCENDANTS_H
#define NPU_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* From here on orphans of ours become our children. */
void descendants_adopt(void);
/* SIGTERM for every descendant, and SIGCONT, without which one that is stopped would not see it. */
void descendants_terminate(void);
void descendants_kill(void);
/* One that has ended, or stopped: its pid and *status; 0: none has; -1: there is no child left. */
pid_t descendants_reap(int *status);
/* "12 (sleep), 14 (python3)": who is left. Returns `to`. */
const char *descendants_name(char *to, size_t room);

/* Makes a cgroup for this process to put others in; false, and path "": none can be made here. */
bool cgroup_make(char *path, size_t room);
/* Removes what those left that were killed: the empty cgroups beside ours whose maker is gone. */
void cgroup_sweep(void);
/* fork(), with the child in the cgroup; for a process of one thread. */
pid_t cgroup_fork(const char *path);
/* Kills what is in it at once. */
void cgroup_kill(const char *path);
void cgroup_remove(const char *path);

#endif
