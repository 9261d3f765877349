/* The check of every launch, beside the pass over the same weights that the host would make: on one thread.
 */
#include "bench.h"
#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NV = 16000, ROWS = 16 };

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
	if (check_rows(&l->check, l->kernels.residue, l->q, ROWS, l->acc) != ROWS)
		abort();
}

/* For weights of `h` rows: the fewer, the more of the pass the check is. */
static bool compare(const struct kernels *kernels, uint32_t h)
{
	struct launch l = {*kernels,
			   {h, NV, LAYOUT_BLOCKED, malloc((size_t)h * NV), NULL},
			   {0},
			   malloc((size_t)ROWS * h),
			   malloc((size_t)ROWS * NV * sizeof(int32_t))};
	double ratios[BENCH_ROUNDS];
	char name[64];
	bool ready = l.tile.codes && l.q && l.acc;

	for (size_t i = 0; ready && i < (size_t)h * NV; i++)
		l.tile.codes[i] = (int8_t)(i * 7 % 255 - 127);
	for (size_t i = 0; ready && i < (size_t)ROWS * h; i++)
		l.q[i] = (int8_t)(i * 11 % 255 - 127);
	ready = ready && check_init(&l.check, &l.tile, 1);
	if (ready) {
		pass(&l);
		for (int i = 0; i < BENCH_ROUNDS; i++) {
			double host = bench_seconds(NULL, pass, &l);
			ratios[i] = bench_seconds(NULL, check, &l) / host;
		}
		snprintf(name, sizeof name, "check.%u", h);
		bench_figure(name, LOWER, ratios, 0.05, 0.02,
			     "time to check a launch of 16 rows over a host pass");
		check_fini(&l.check);
	}
	free(l.tile.codes);
	free(l.q);
	free(l.acc);
	return ready;
}

int main(void)
{
	struct kernels kernels;

	bench_begin();
	if (!kernels_pick(&kernels, cpu_have(), NULL) || !compare(&kernels, 4096) || !compare(&kernels, 1024))
		return 1;
	bench_end();
	return 0;
}
