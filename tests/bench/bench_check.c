/* The check of every launch, beside the pass over the same weights that the host would make: on one thread.
 */
#include "bench.h"
#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 4096, NV = 16000, ROWS = 16 };

struct launch {
	struct kernels kernels;
	struct tile tile;
	struct check check;
	int8_t *q;
	int32_t *acc;
};

static void pass(void *arg)
{
	struct launch *l = arg;
	l->kernels.head(&l->tile, l->q, ROWS, NV, l->kernels.prefetch, l->acc);
}

static void check(void *arg)
{
	struct launch *l = arg;
	if (check_rows(&l->check, l->q, ROWS, l->acc) != ROWS)
		abort();
}

int main(void)
{
	struct launch l = {.tile = {H, NV, LAYOUT_BLOCKED, malloc((size_t)H * NV), NULL},
			   .q = malloc((size_t)ROWS * H),
			   .acc = malloc((size_t)ROWS * NV * sizeof(int32_t))};
	double ratios[BENCH_ROUNDS];

	if (!l.tile.codes || !l.q || !l.acc || !kernels_pick(&l.kernels, cpu_have(), NULL))
		return 1;
	for (size_t i = 0; i < (size_t)H * NV; i++)
		l.tile.codes[i] = (int8_t)(i * 7 % 255 - 127);
	for (size_t i = 0; i < (size_t)ROWS * H; i++)
		l.q[i] = (int8_t)(i * 11 % 255 - 127);
	if (!check_init(&l.check, &l.tile, 1))
		return 1;
	bench_begin();
	pass(&l);
	for (int i = 0; i < BENCH_ROUNDS; i++) {
		double host = bench_seconds(NULL, pass, &l);
		ratios[i] = bench_seconds(NULL, check, &l) / host;
	}
	bench_figure("check of a launch", LOWER, ratios, 0.05, 0.02, "of a host pass, 4096 x 16000, 16 rows");
	bench_end();
	check_fini(&l.check);
	free(l.tile.codes);
	free(l.q);
	free(l.acc);
	return 0;
}
