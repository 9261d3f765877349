/* The words behind a number in what people read: "1 head", "2 heads"; "1 was", "2 were". Any thread. */
#ifndef NPUD_PLURAL_H
#define NPUD_PLURAL_H

#include <stdint.h>

static inline const char *plural(uint64_t n, const char *one, const char *several)
{
	return n == 1 ? one : several;
}

#endif
