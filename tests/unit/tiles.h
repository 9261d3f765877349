/* Tiles of their own memory for unit tests. */
#ifndef TILES_H
#define TILES_H

#include "kernels.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Codes and scales are zero. */
static inline struct tile tile_new(uint32_t kd, uint32_t nd, enum layout layout)
{
	struct tile t = {kd, nd, layout, calloc(kd, nd), calloc(nd, sizeof(float))};

	cr_assert(t.codes && t.scales);
	return t;
}

static inline void tile_free(struct tile *t)
{
	free(t->codes);
	free(t->scales);
}

static inline bool tiles_equal(const struct tile *a, const struct tile *b)
{
	return memcmp(a->codes, b->codes, (size_t)a->kd * a->nd) == 0 &&
	       memcmp(a->scales, b->scales, a->nd * sizeof *a->scales) == 0;
}

#endif
