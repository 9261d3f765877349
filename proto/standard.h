/*
 * standard: descriptors 0 to 2 of our programs, which whoever starts one may have closed, or may read no
 * longer. Of the main thread.
 */
#ifndef STANDARD_H
#define STANDARD_H

#include <stdbool.h>

/*
 * For the start of main: fills those of the three that are closed, so that no socket or file that is opened
 * later becomes stdout or stderr and is written over. Whoever uses one that was closed fails as before.
 * Writing where no one reads, or beyond the limit of a file's size, becomes an error instead of a signal.
 * False where /dev/null cannot be opened.
 */
bool standard_begin(void);

/* Flushes stdout: 0, an errno where something of it was lost, or EPIPE where its reader has gone and wants no
 * more. */
int standard_flush(void);

#endif
