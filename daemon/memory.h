/* What memory the machine, and the control groups this process is in, have left. Any thread. */
#ifndef NPUD_MEMORY_H
#define NPUD_MEMORY_H

#include <stdint.h>

/*
 * Bytes that can be taken now without pushing anybody out: the least of the kernel's MemAvailable and, for
 * every memory control group above this process (both hierarchies), its limit less what it uses and could
 * not give back (its inactive file pages). What cannot be read bounds nothing. `root` is "" (tests
 * give a tree of their own with proc/ and sys/).
 */
uint64_t memory_room(const char *root);

#endif
