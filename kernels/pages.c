#include "pages.h"
#include <stdint.h>
#include <sys/mman.h>

#define HUGE ((size_t)2 << 20)

size_t pages_size(size_t size)
{
	return (size + HUGE - 1) / HUGE * HUGE;
}

void *pages_new(size_t *size)
{
	size_t want = pages_size(*size);
	/* The kernel gives 2 MiB pages only to aligned ranges: map more, keep the aligned part. */
	char *map = mmap(NULL, want + HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	char *at = (char *)(((uintptr_t)map + HUGE - 1) / HUGE * HUGE);
	if (at > map)
		munmap(map, (size_t)(at - map));
	munmap(at + want, (size_t)(map + HUGE - at));
	madvise(at, want, MADV_HUGEPAGE); /* a refusal costs speed and nothing else */
	*size = want;
	return at;
}

void pages_free(void *memory, size_t size)
{
	if (memory)
		munmap(memory, size);
}
