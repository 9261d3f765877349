/*
 * Locks of files that say who works at a place: one process at a time, until it ends.
 */
#ifndef NPUD_LOCK_H
#define NPUD_LOCK_H

#include <stdbool.h>

/*
 * Locks `fd` (flock) for this process. False where another one has it, and still has it two seconds later:
 * one that was killed, or a child that it left, lets go only when all its memory has been given back. Not for
 * a loop.
 */
bool lock_take(int fd);

#endif
