/*
 * Processes of others, told apart from a later one with the same pid by the time they began. Any thread; no
 * state.
 */
#ifndef NPUD_PROCESS_H
#define NPUD_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* When it began, in clock ticks since boot; 0: it is gone. */
uint64_t process_start(pid_t pid);
/* A pidfd of the process that began at `start`; -1: it is gone, or another has its pid. */
int process_open(pid_t pid, uint64_t start);
/* Whether the process of a pidfd has ended; true for -1. */
bool process_ended(int pidfd);
/* The effective user; false: it is gone. */
bool process_uid(pid_t pid, uid_t *uid);
/* The process that made it, or took it over; 0: it is gone. */
pid_t process_parent(pid_t pid);
/* What it calls itself (comm), control bytes made harmless. Returns `to`, "?" where it is gone. */
const char *process_name(pid_t pid, char *to, size_t room);

#endif
