/*
 * Files that are often given for a model and are none, by their first bytes. Any thread; no state.
 */
#ifndef NPUD_STRANGER_H
#define NPUD_STRANGER_H

#include <stddef.h>

/* Longer than any of the beginnings that are known. */
#define STRANGER_BYTES 24u

/* What it is and what to do, to follow "this is"; NULL where nothing is known. */
const char *stranger_what(const void *first, size_t size);

#endif
