#include "scene.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void give_up(void)
{
	fputs("bench: no memory for a head of 311 MB\n", stderr);
	exit(1);
}

void scene_init(struct scene *s)
{
	struct geometry g;
	uint64_t state = 1;

	memset(s, 0, sizeof *s);
	s->q = malloc((size_t)SCENE_ROWS * SCENE_H);
	if (!s->q || !geometry_make(&g, SCENE_NV, SCENE_H, 0, LAYOUT_BLOCKED) || !image_init(&s->image, &g))
		give_up();
	int8_t *codes = s->image.memory;
	for (size_t i = 0; i < (size_t)g.kd * g.nd * g.tiles; i++) {
		state = state * UINT64_C(6364136223846793005) + 1;
		codes[i] = (int8_t)((state >> 40) % 255 - 127);
	}
	for (uint32_t t = 0; t < g.tiles; t++)
		for (uint32_t n = 0; n < g.nd; n++)
			image_tile(&s->image, t).scales[n] = 1.0f / (float)(1 + n % 97);
	for (size_t i = 0; i < (size_t)SCENE_ROWS * SCENE_H; i++)
		s->q[i] = (int8_t)(i * 31 % 255 - 127);
	for (int m = 0; m < SCENE_ROWS; m++)
		s->rows[m] =
			(struct pass_row){.ascale = 1, .k = 1, .ids = &s->ids[m], .values = &s->values[m]};
}

void scene_fini(struct scene *s)
{
	image_fini(&s->image);
	free(s->q);
}

static void run(void *arg)
{
	struct scene *s = arg;
	if (!image_run(&s->image, &s->kernels, s->pool, &(struct pass){s->q, s->rows, s->count}))
		give_up();
}

double scene_seconds(struct scene *s, uint32_t rows)
{
	s->count = rows;
	return bench_seconds(s->pool, run, s);
}
