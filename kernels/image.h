/* A packed head in memory: all its tiles in one allocation, in 2 MiB pages where the system gives them. */
#ifndef NPUD_KERNELS_IMAGE_H
#define NPUD_KERNELS_IMAGE_H

#include "geometry.h"

struct image {
	struct geometry geometry;
	void *memory;
	size_t size; /* bytes mapped */
};

/* Zeroed memory for the geometry. False where there is none. */
bool image_init(struct image *i, const struct geometry *g);
void image_fini(struct image *i); /* zeroed is fine */

/* Tile t of the image; borrowed. */
struct tile image_tile(const struct image *i, uint32_t t);

/*
 * Runs `rows` quantised rows over every tile and writes logits[rows][nv]. `acc` is room for rows * nd
 * values.
 */
void image_run(const struct image *i, head_fn *head, const int8_t *q, const float *ascale, uint32_t rows,
	       int32_t *acc, float *logits);

#endif
