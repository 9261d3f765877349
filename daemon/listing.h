/*
 * What is in a model that a session passed: its tensors and its head. Read once by a worker and kept for the
 * pages that a client asks for, one model a session. Loop thread only.
 */
#ifndef NPUD_LISTING_H
#define NPUD_LISTING_H

#include "session.h"

struct listing;

/* Lets it go, at once or when its worker is done; who waits for it is told. NULL is fine. */
void listing_drop(struct listing *l);
/* Of the model whose first file has this number. */
bool listing_is_of(const struct listing *l, uint64_t model);

#endif
