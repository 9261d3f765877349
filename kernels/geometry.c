#include "geometry.h"

static uint64_t up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

bool geometry_make(struct geometry *g, uint32_t nv, uint32_t h, uint32_t tile, enum layout layout)
{
	uint64_t kd = up(h, 64), all = up(nv, 128);
	uint64_t nd = tile;

	if (tile == 0) {
		uint64_t tiles = (nv + (uint64_t)GEOMETRY_TILE_MAX - 1) / GEOMETRY_TILE_MAX;
		nd = up((nv + tiles - 1) / tiles, 128);
	}
	if (kd > UINT32_MAX || nd > all || (layout == LAYOUT_BLOCKED && nd % 128))
		return false;
	*g = (struct geometry){nv, h, kd, nd, (nv + nd - 1) / nd, layout};
	return geometry_bytes(g) < UINT64_C(1) << 46;
}

uint32_t geometry_columns(const struct geometry *g, uint32_t t)
{
	uint64_t left = g->nv - (uint64_t)t * g->nd;
	return left < g->nd ? left : g->nd;
}

uint64_t geometry_bytes(const struct geometry *g)
{
	return (uint64_t)g->tiles * g->nd * ((uint64_t)g->kd + sizeof(float));
}
