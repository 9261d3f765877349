/*
 * unsent: what NNG has yet to write of large messages. It calls a message sent when a pipe has taken it, each
 * pipe one, though its client may never read it. Any thread.
 */
#ifndef NPUD_UNSENT_H
#define NPUD_UNSENT_H

#include <stdint.h>
#include <sys/types.h>

/* Of the message that is being written to the socket `fd`, `bytes` are left; 0: it was written, or never will
 * be. */
void unsent_note(int fd, uint64_t bytes);

/* Of all messages to `uid`, but for the last megabyte of each. */
uint64_t unsent_to(uid_t uid);

#endif
