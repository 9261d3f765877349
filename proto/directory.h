/* Directories of our own. Any thread. */
#ifndef NPUD_DIRECTORY_H
#define NPUD_DIRECTORY_H

#include "err.h"

/*
 * mkdir -p, 0700 where it is new. What is there must be a directory of ours, or root's, that not everybody
 * can write, and nothing on the way may be a stranger's that lies where everyone may write: BAD_CONFIG,
 * NOT_ALLOWED; IO where it cannot be made.
 */
int directory_make(const char *path, struct err *err);

#endif
