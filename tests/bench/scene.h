/* A head of 151936 x 2048, 311 MB, which no cache holds, and rows for it: what figures on heads are taken of.
 */
#ifndef NPUD_BENCH_SCENE_H
#define NPUD_BENCH_SCENE_H

#include "bench.h"
#include "image.h"

enum { SCENE_NV = 151936, SCENE_H = 2048, SCENE_ROWS = 128 };

struct scene {
	struct image image;
	struct kernels kernels;
	struct pool *pool; /* whose threads run it: the caller's to set */
	int8_t *q;
	struct pass_row rows[SCENE_ROWS];
	uint32_t ids[SCENE_ROWS];
	float values[SCENE_ROWS];
	uint32_t count;
};

/* Exits where there is no memory. */
void scene_init(struct scene *s);
void scene_fini(struct scene *s);

/* Seconds of one pass with `rows` rows, argmax. */
double scene_seconds(struct scene *s, uint32_t rows);

#endif
