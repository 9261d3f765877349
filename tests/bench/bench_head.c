/* Passes over a head that no cache holds: against a read pass, and against fewer rows. */
#include "scene.h"
#include <stdio.h>

struct arithmetic {
	struct scene *scene;
	uint32_t rows;
	int32_t *acc;
};

/* As many sums as a pass makes, of one panel that stays in the cache. */
static void sum_again(void *arg)
{
	struct arithmetic *a = arg;
	struct tile t = image_tile(&a->scene->image, 0);
	for (uint32_t n = 0; n < SCENE_NV; n += 128)
		a->scene->kernels.head(&t, a->scene->q, a->rows, 128, a->scene->kernels.prefetch, a->acc);
}

/* The least time many rows can take, were memory infinitely fast: what the figures above cannot go below. */
static void limits(struct scene *s)
{
	static const uint32_t rows[] = {8, 16, 128};
	static int32_t acc[SCENE_ROWS * 128];
	char name[64];

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		double ratios[BENCH_ROUNDS];
		struct arithmetic a = {s, rows[i], acc};
		for (int n = 0; n < BENCH_ROUNDS; n++)
			ratios[n] = bench_seconds(NULL, sum_again, &a) / scene_seconds(s, 1);
		snprintf(name, sizeof name, "head.%s.limit%u", s->kernels.head_variant, rows[i]);
		bench_figure(name, LOWER, ratios, 0, 0,
			     "time of the sums alone, weights in cache, over one row's");
	}
}

/* One row over the read pass, and other numbers of rows over one, in the same rounds. */
static void against_memory(struct scene *s, double must, double aim, bool batches)
{
	static const struct {
		uint32_t rows;
		double must, aim;
	} batch[] = {{2, 1.10, 1.03}, {4, 1.40, 1.12}, {8, 1.45, 1.15}, {16, 1.75, 1.40}};
	size_t count = batches ? sizeof batch / sizeof *batch : 0;
	double one[BENCH_ROUNDS], more[4][BENCH_ROUNDS];
	char name[64];

	for (unsigned i = 0; i < BENCH_ROUNDS; i++) {
		double read = bench_read(s->pool, s->image.memory, (size_t)SCENE_NV * SCENE_H);
		double took = scene_seconds(s, 1);
		one[i] = read / took;
		for (size_t b = 0; b < count; b++)
			more[b][i] = scene_seconds(s, batch[b].rows) / took;
	}
	unsigned threads = pool_threads(s->pool);
	snprintf(name, sizeof name, "head.%s.rows1.%ut", s->kernels.head_variant, threads);
	bench_figure(name, HIGHER, one, must, aim, "bytes/s of a pass over those of reading");
	for (size_t b = 0; b < count; b++) {
		snprintf(name, sizeof name, "head.%s.rows%u.%ut", s->kernels.head_variant, batch[b].rows,
			 threads);
		bench_figure(name, LOWER, more[b], batch[b].must, batch[b].aim,
			     "time of a pass over that of one row");
	}
}

int main(void)
{
	static const struct {
		const char *variant;
		double must, aim;
		bool batches;
	} cases[] = {{NULL, 0.88, 1.0, true},
		     {"avx2", 0.75, 0.95, false},
		     {"avxvnni", 0, 0, false},
		     {"avx512", 0, 0, false}};
	static struct scene s;
	unsigned most = pool_processors() < 2 ? 1 : 2;

	bench_begin();
	scene_init(&s);
	for (unsigned threads = 1; threads <= most; threads++) {
		if (!pool_new(&s.pool, threads))
			return 1;
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			if (kernels_pick(&s.kernels, cpu_have(), cases[i].variant)) {
				image_measure(&s.kernels, s.pool);
				against_memory(&s, cases[i].must, cases[i].aim, cases[i].batches);
				if (threads == 1 && cases[i].batches)
					limits(&s);
			} else {
				bench_skipped(cases[i].variant, "this processor cannot run it");
			}
		pool_free(s.pool);
	}
	scene_fini(&s);
	bench_end();
	return 0;
}
