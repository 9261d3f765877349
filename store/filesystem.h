/* Which file systems are of another machine, or of a program. Pure; any thread. */
#ifndef NPUD_FILESYSTEM_H
#define NPUD_FILESYSTEM_H

/* The name of a file system by its `f_type` (statfs) where maps and locks do not hold, and what files are
 * said to be need not be so; NULL: it is this machine's own. */
const char *filesystem_remote(unsigned long type);

#endif
