#include "image.h"
#include <string.h>
#include <sys/mman.h>

#define HUGE ((size_t)2 << 20)

bool image_init(struct image *i, const struct geometry *g)
{
	size_t want = (geometry_bytes(g) + HUGE - 1) / HUGE * HUGE;
	/* The kernel gives 2 MiB pages only to aligned ranges: map more, keep the aligned part. */
	char *map = mmap(NULL, want + HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return false;
	char *at = (char *)(((uintptr_t)map + HUGE - 1) / HUGE * HUGE);
	if (at > map)
		munmap(map, (size_t)(at - map));
	munmap(at + want, (size_t)(map + HUGE - at));
	madvise(at, want, MADV_HUGEPAGE); /* a refusal costs speed and nothing else */
	*i = (struct image){*g, at, want};
	return true;
}

void image_fini(struct image *i)
{
	if (i->memory)
		munmap(i->memory, i->size);
	memset(i, 0, sizeof *i);
}

struct tile image_tile(const struct image *i, uint32_t t)
{
	const struct geometry *g = &i->geometry;
	size_t codes = (size_t)g->kd * g->nd;
	int8_t *all_codes = i->memory;
	float *all_scales = (float *)(all_codes + g->tiles * codes);
	return (struct tile){g->kd, g->nd, g->layout, all_codes + t * codes, all_scales + (size_t)t * g->nd};
}

void image_run(const struct image *i, head_fn *head, const int8_t *q, const float *ascale, uint32_t rows,
	       int32_t *acc, float *logits)
{
	const struct geometry *g = &i->geometry;
	for (uint32_t t = 0; t < g->tiles; t++) {
		struct tile tile = image_tile(i, t);
		uint32_t columns = geometry_columns(g, t);
		head(&tile, q, rows, columns, acc);
		for (uint32_t m = 0; m < rows; m++)
			head_epilogue(logits + (size_t)m * g->nv + (size_t)t * g->nd,
				      acc + (size_t)m * columns, ascale[m], tile.scales, columns);
	}
}
