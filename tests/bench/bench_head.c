/* Passes over a head that no cache holds: against a read pass, and against fewer rows. */
#include "scene.h"
#include <stdio.h>
#include <string.h>

/* What many rows cannot go below, were memory infinitely fast: cut for each thread. */
struct arithmetic {
	struct scene *scene;
	uint32_t rows;
	void (*each)(void *arg, uint32_t i, unsigned thread);
};

/* As many sums as a pass makes, of one panel that stays in the cache. */
static void sum_again(void *arg, uint32_t i, unsigned thread)
{
	static int32_t acc[2][SCENE_ROWS * 128];
	struct arithmetic *a = arg;
	struct scene *s = a->scene;
	struct tile t = image_tile(&s->image, 0);

	(void)thread;
	for (uint32_t n = 0; n < SCENE_NV / pool_threads(s->pool); n += 128)
		s->kernels.head(&t, s->q, a->rows, 128, s->kernels.prefetch, acc[i]);
}

/* As many vpdpbusd, of which a register has a chain; of what is in the registers, for no value matters. */
static void multiply(void *arg, uint32_t i, unsigned thread)
{
	struct arithmetic *a = arg;
	uint64_t count = (uint64_t)SCENE_NV * SCENE_H / 64 * a->rows / pool_threads(a->scene->pool);

	(void)i, (void)thread;
#ifdef __x86_64__
#define PRODUCT(n) "vpdpbusd %%zmm31, %%zmm31, %%zmm" #n "\n\t"
#define FOUR(a, b, c, d) PRODUCT(a) PRODUCT(b) PRODUCT(c) PRODUCT(d)
	for (; count >= 16; count -= 16)
		__asm__ volatile(FOUR(0, 1, 2, 3) FOUR(4, 5, 6, 7) FOUR(8, 9, 10, 11) FOUR(12, 13, 14, 15)::
					 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
					   "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
					   "xmm15");
#else
	(void)count;
#endif
}

static void on_all_threads(void *arg)
{
	struct arithmetic *a = arg;
	pool_run(a->scene->pool, pool_threads(a->scene->pool), a->each, a);
}

static void limit(struct scene *s, const char *figure, uint32_t rows,
		  void (*each)(void *arg, uint32_t i, unsigned thread), const char *note)
{
	struct arithmetic a = {s, rows, each};
	double ratios[BENCH_ROUNDS];
	char name[64];

	for (int n = 0; n < BENCH_ROUNDS; n++)
		ratios[n] = bench_seconds(s->pool, on_all_threads, &a) / scene_seconds(s, 1);
	snprintf(name, sizeof name, "head.%s.%s%u.%ut", s->kernels.head_variant, figure, rows,
		 pool_threads(s->pool));
	bench_figure(name, LOWER, ratios, 0, 0, note);
}

static void limits(struct scene *s)
{
	static const uint32_t rows[] = {8, 16, 128};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		limit(s, "limit", rows[i], sum_again,
		      "time of the sums alone, weights in cache, over one row's");
		if (strcmp(s->kernels.head_variant, "avx512vnni") == 0)
			limit(s, "ceiling", rows[i], multiply,
			      "time of their vpdpbusd alone, over one row's");
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
				if (cases[i].batches)
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
