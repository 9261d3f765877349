/* Packed weights in memory: all tiles in one allocation, in 2 MiB pages where the system gives them, or their
 * codes where a device reads them too. */
#ifndef NPUD_KERNELS_IMAGE_H
#define NPUD_KERNELS_IMAGE_H

#include "geometry.h"
#include "pool.h"

struct image {
	struct geometry geometry;
	void *memory;
	size_t size;	/* bytes mapped */
	int8_t **codes; /* [tiles] of a device; NULL: in `memory` */
};

/* Bytes that weights of the geometry take: in pages of the host, or (`on_device`) their codes as they are and
 * their scales in such pages. */
uint64_t image_bytes(const struct geometry *g, bool on_device);

/* Zeroed memory for the geometry. False where there is none. */
bool image_init(struct image *i, const struct geometry *g);
/* The same, but the tiles' codes are at codes[t] (zeroed; borrowed): room for scales is all that is made. */
bool image_init_on(struct image *i, const struct geometry *g, int8_t *const *codes);
void image_fini(struct image *i); /* zeroed is fine */

/* Tile t of the image; borrowed. */
struct tile image_tile(const struct image *i, uint32_t t);

/* What is wanted of one row: every logit, or the k best. */
struct pass_row {
	float ascale;
	float *logits; /* [nv]; NULL: ids and values */
	uint32_t k;    /* 1 .. nv */
	uint32_t *ids; /* [k], best first (top.h) */
	float *values; /* [k] */
};

/* Rows for one pass over an image; they may be of strangers. */
struct pass {
	const int8_t *q; /* [count][kd] */
	const struct pass_row *rows;
	uint32_t count;
};

/*
 * One pass over every tile, cut among the pool's threads in pieces of at least 1 MiB of codes. Sums become
 * logits, and logits the best, while they are in the cache of the thread that made them. False where there is
 * no memory for them.
 */
bool image_run(const struct image *i, const struct kernels *kernels, struct pool *pool,
	       const struct pass *pass);

/*
 * Decides kernels->prefetch: runs one row both ways over 64 MiB, in some 30 ms, and takes the least time of
 * either. Which is faster, and by up to 1.4 times, is the machine's; where they are within a few hundredths,
 * either may come out. Where there is no memory for it, it stays as it is.
 */
void image_measure(struct kernels *kernels, struct pool *pool);

#endif
