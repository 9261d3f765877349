/*
 * undertaker: closes what others may have made slow to close, on a thread of its own. The kernel waits for
 * some descriptors when it lets go of them last, which may lie in the queue of a socket: for a TCP socket
 * with bytes that nobody takes as long as its SO_LINGER says, unless a signal comes, as here a timer's does;
 * to free the memory of a large upload, or the blocks of a file that was deleted, takes it a second.
 */
#ifndef NPUD_UNDERTAKER_H
#define NPUD_UNDERTAKER_H

/* Makes the thread, whose two descriptors stay; else the first that is taken does. */
void undertaker_begin(void);
/* Closes `fd`, a socket after it was emptied; it is the undertaker's now. Nothing for -1. Returns at once;
 * any thread. */
void undertaker_take(int fd);

#endif
