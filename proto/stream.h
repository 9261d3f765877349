/*
 * NNG 1.5 forgets a transfer that its transport goes on with while the pipe is being closed, and its only
 * reaping thread then waits for that transfer for ever: no pipe of the process is reported dead any more,
 * and nng_close does not return. stream.c defines nng_stream_send and nng_stream_recv anew, found before
 * libnng's because libnng calls its own through the PLT, and ends such transfers with NNG_ECLOSED.
 */
#ifndef NPUD_STREAM_H
#define NPUD_STREAM_H

/**
 * Finds libnng's own functions; a user of NNG calls it before it opens a socket, which is also what links
 * stream.c into a program of static libraries. Any thread, any number of times.
 */
void stream_init(void);

#endif
