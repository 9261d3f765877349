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
/* Sends `number` to every descendant. */
void descendants_signal(int number);
/* One that has ended, or stopped: its pid and *status; 0: none has; -1: there is no child left. */
pid_t descendants_reap(int *status);
/* "12 (sleep), 14 (python3)": who is left. Returns `to`. */
const char *descendants_name(char *to, size_t room);

/* Makes a cgroup for process `name`; false, and path "": none can be made here. */
bool cgroup_make(char *path, size_t room, int name);
/* Moves the calling process in. */
void cgroup_enter(const char *path);
/* Kills what is in it at once. */
void cgroup_kill(const char *path);
void cgroup_remove(const char *path);

#endif
