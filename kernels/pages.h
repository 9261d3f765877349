/* Large memory in 2 MiB pages where the system gives them: touching it first costs a fraction. Any thread. */
#ifndef NPUD_KERNELS_PAGES_H
#define NPUD_KERNELS_PAGES_H

#include <stddef.h>

/* `size` rounded up to 2 MiB: what pages_new makes of it. */
size_t pages_size(size_t size);
/* Zeroed, aligned to 2 MiB, `size` rounded up to it. NULL where there is none. */
void *pages_new(size_t *size);
void pages_free(void *memory, size_t size); /* as rounded; NULL is fine */

#endif
