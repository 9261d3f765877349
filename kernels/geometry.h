/* How a head is cut into tiles. Pure. */
#ifndef NPUD_GEOMETRY_H
#define NPUD_GEOMETRY_H

#include "kernels.h"

struct geometry {
	uint32_t nv, h;	 /* as stored */
	uint32_t kd, nd; /* rows and columns of a tile */
	uint32_t tiles;
	enum layout layout;
};

#define GEOMETRY_TILE_MAX 28672u /* columns of a default tile */

/*
 * nv, h at least 1. `tile` 0 asks for the default: the fewest tiles of at most GEOMETRY_TILE_MAX columns, of
 * equal width, rounded up to 128. False where the tile is not a multiple of 128 in the blocked layout, is
 * more than nv rounded up to 128, or a tile's bytes do not fit the address space.
 */
bool geometry_make(struct geometry *g, uint32_t nv, uint32_t h, uint32_t tile, enum layout layout);

/* Vocabulary columns of tile t: nd, or fewer in the last one. */
uint32_t geometry_columns(const struct geometry *g, uint32_t t);

/* Bytes of codes and scales of all tiles. */
uint64_t geometry_bytes(const struct geometry *g);

#endif
