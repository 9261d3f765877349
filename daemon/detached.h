/* Threads that nobody waits for, because what they do may never end. Any thread. */
#ifndef NPUD_DETACHED_H
#define NPUD_DETACHED_H

/* Runs `run` of `arg` on a thread of its own with a small stack and all signals blocked: the daemon's are the
 * loop's. 0, or an errno. */
int detached_begin(void *(*run)(void *), void *arg);

#endif
