/*
 * undertaker: closes sockets whose queues others have filled. What they put there may be descriptors, and the
 * kernel waits for some when it lets go of them last: for a TCP socket with bytes that nobody takes as long
 * as its SO_LINGER says. So it is done on a thread of its own, which a timer's signal wakes from each wait.
 */
#ifndef NPUD_UNDERTAKER_H
#define NPUD_UNDERTAKER_H

/* Makes the thread, whose two descriptors stay; else the first that is taken does. */
void undertaker_begin(void);
/* Empties and closes `fd`, which is the undertaker's now; nothing for -1. Returns at once; any thread. */
void undertaker_take(int fd);

#endif
