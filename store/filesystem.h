/* Which file systems are of another machine, or of a program. Pure; any thread. */
#ifndef NPUD_FILESYSTEM_H
#define NPUD_FILESYSTEM_H

#include <stdbool.h>

/* The name of a file system by its `f_type` (statfs) where maps and locks do not hold, and what files are
 * said to be need not be so; NULL: it is this machine's own. */
const char *filesystem_remote(unsigned long type);

/*
 * Whether it is on a disk of this machine, and a file's times change with every map through which it is
 * written, when a page of it is first written, and a map counts as having it open to write. Not in tmpfs,
 * where a page that was read can be written without a fault, nor in overlayfs, whose maps are the file's
 * beneath.
 */
bool filesystem_tells_writes(unsigned long type);

#endif
