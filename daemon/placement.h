/*
 * Where packed weights lie: in memory the device reads, when one of its kernels covers them and it has room,
 * else in the host's alone. Either way the host reads them in place. A worker thread's, until it hands the
 * weights over.
 */
#ifndef NPUD_PLACEMENT_H
#define NPUD_PLACEMENT_H

#include "accelerator.h"
#include "image.h"

#define PLACEMENT_ANY_LAYOUT (1u << LAYOUT_ROW_MAJOR | 1u << LAYOUT_BLOCKED)

struct placement {
	const struct accelerator *accelerator; /* NULL: the host's memory, and no words about it */
	const struct design *design;	       /* NULL: none covers them */
	struct weights **weights;	       /* [tiles], once there is memory; NULL: the host's */
	uint32_t tiles;
	char why[256]; /* why not on the device that there is; "" otherwise */
};

void placement_fini(struct placement *p); /* zeroed is fine; image_fini first */

/*
 * The geometry of weights of nv x h for the device: false where they are the host's, which has its own
 * geometry. `layouts` as for accelerator_design.
 */
bool placement_choose(struct placement *p, struct geometry *g, uint32_t nv, uint32_t h, unsigned layouts);

/* Zeroed memory for the geometry, the device's where a design was chosen and it has room. False: none. */
bool placement_memory(struct placement *p, struct image *image, const struct geometry *g);

/* What the weights take of memory, the device's included, where they are meant to lie; and what more it is if
 * the device does not take them. */
uint64_t placement_bytes(const struct placement *p, const struct geometry *g);
uint64_t placement_transient(const struct placement *p, const struct geometry *g);

/*
 * After the last code was written: gives the tiles to the device. Where it does not take them, `image` goes
 * to the host's memory. False: there is none.
 */
bool placement_seal(struct placement *p, struct image *image);

#endif
