/*
 * Ownership of local variables: a local marked `cleanup(f)` is released when it goes out of scope;
 * `take(&p)` moves it to somebody else and leaves NULL behind.
 */
#ifndef NPUD_OWN_H
#define NPUD_OWN_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define cleanup(fn) __attribute__((cleanup(fn)))
#define take(p)                                 \
	({                                      \
		__typeof__(*(p)) taken_ = *(p); \
		*(p) = NULL;                    \
		taken_;                         \
	})

/* Moves a descriptor out of an owned local, leaving -1. */
static inline int take_fd(int *fd)
{
	int taken = *fd;
	*fd = -1;
	return taken;
}

static inline void closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void freep(void *p)
{
	free(*(void **)p);
}

#endif
