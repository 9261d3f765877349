#include "../dice.h"
#include "tiles.h"
#include "image.h"
#include "pages.h"
#include "own.h"
#include "top.h"
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory whose last byte is followed by a page that cannot be read. */
struct guarded {
	char *map;
	size_t size;
	void *at;
};

static struct guarded guarded_new(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (size + page - 1) / page * page;
	char *map = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert(map != MAP_FAILED && mprotect(map + body, page, PROT_NONE) == 0);
	return (struct guarded){map, body + page, map + body - size};
}

static void guarded_free(struct guarded *g)
{
	munmap(g->map, g->size);
}

/* Values of every kind that matters to a column of `h`: exact ties, what is beside them, the odd ones out. */
static void fill(float *w, uint32_t h, uint64_t seed)
{
	float amax = seed % 5 == 0 ? 1e-12f : seed % 5 == 1 ? 9.9e-13f : seed % 5 == 2 ? 3e38f : 127.0f;
	uint64_t state = seed;

	for (uint32_t k = 0; k < h; k++) {
		uint64_t dice = splitmix(&state);
		float tie = (float)((int)(dice >> 8) % 128) + 0.5f;
		switch (dice % 16) {
		case 0:
			w[k] = dice & 1 << 20 ? NAN : dice & 1 << 21 ? INFINITY : -INFINITY;
			break;
		case 1:
			w[k] = amax / 127 * (dice & 1 << 20 ? tie : -tie);
			break;
		case 2:
			w[k] = amax / 127 * nextafterf(tie, dice & 1 << 20 ? 0 : 1000);
			break;
		case 3:
			w[k] = dice & 1 << 20 ? -0.0f : 1e-41f;
			break;
		default:
			w[k] = amax * ((float)(dice >> 40) * 0x1p-23f - 1);
		}
		w[k] = fabsf(w[k]) > amax && isfinite(w[k]) ? amax : w[k];
	}
	if (seed % 7 == 3)
		memset(w, 0, h * sizeof *w);
}

/* Packs w[count][h], which ends at an unreadable page, from column n on. */
static void check_pack(pack_fn *pack)
{
	static const uint32_t counts[] = {1, 7, 8, 9, 16, 40, 130}, begins[] = {0, 1, 5, 8, 127};

	for (uint32_t h = 1; h <= 195; h += h < 70 ? 1 : 25)
		for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
			uint32_t count = counts[c], n = begins[(h + c) % 5];
			cleanup(guarded_free) struct guarded memory =
				guarded_new((size_t)count * h * sizeof(float));
			float *w = memory.at;
			for (uint32_t i = 0; i < count; i++)
				fill(w + (size_t)i * h, h, i + h);
			for (int layout = 0; layout < 2; layout++) {
				uint32_t kd = (h + 63) / 64 * 64, nd = layout == LAYOUT_BLOCKED ? 384 : 301;
				cleanup(tile_free) struct tile want = tile_new(kd, nd, layout);
				cleanup(tile_free) struct tile got = tile_new(kd, nd, layout);
				uint64_t bad = pack_ref(&want, n, w, count, h);
				cr_assert_eq(pack(&got, n, w, count, h), bad);
				cr_assert(tiles_equal(&got, &want), "%u columns of %u from %u, layout %d",
					  count, h, n, layout);
			}
		}
}

static void check_quantise(quantise_fn *quantise)
{
	for (uint32_t h = 1; h <= 200; h++)
		for (uint64_t seed = 0; seed < 35; seed++) {
			cleanup(guarded_free) struct guarded x = guarded_new(h * sizeof(float));
			uint32_t kd = (h + 63) / 64 * 64;
			int8_t want[256], got[256];
			float want_scale, scale;
			fill(x.at, h, seed);
			memset(got, 0x55, sizeof got);
			cr_assert_eq(quantise(got, &scale, x.at, h, kd),
				     quantise_ref(want, &want_scale, x.at, h, kd));
			cr_assert(memcmp(got, want, kd) == 0 && memcmp(&scale, &want_scale, 4) == 0,
				  "%u values, seed %" PRIu64, h, seed);
		}
}

/* The first `columns` columns of a tile by `rows` of q, of which `want` has `width` columns a row. */
static void check_sums(head_fn *head, const struct tile *t, const int8_t *q, uint32_t rows, uint32_t columns,
		       const int32_t *want, uint32_t width)
{
	cleanup(guarded_free) struct guarded memory = guarded_new((size_t)rows * columns * sizeof *want);
	int32_t *got = memory.at;

	memset(got, 0x5a, (size_t)rows * columns * sizeof *want);
	head(t, q, rows, columns, rows % 2, got);
	for (uint32_t m = 0; m < rows; m++, got += columns, want += width)
		for (uint32_t n = 0; n < columns; n++)
			if (got[n] != want[n])
				cr_assert_fail(
					"kd %u, layout %d: row %u of %u, column %u of %u is %d, not %d",
					t->kd, t->layout, m, rows, n, columns, got[n], want[n]);
}

enum fill { RANDOM, MOST, LEAST, OPPOSITE, FILLS };

/* Codes of -128, which nothing here packs, are within what every variant sums exactly. */
static int8_t code(enum fill how, uint64_t *state, bool weight)
{
	switch (how) {
	case MOST:
		return 127;
	case LEAST:
		return weight ? -128 : -127;
	case OPPOSITE:
		return weight ? -127 : 127;
	default:
		return (int8_t)(weight ? splitmix(state) % 256 - 128 : splitmix(state) % 255 - 127);
	}
}

static void check_head_with(head_fn *head, uint32_t kd, enum layout layout, enum fill how, uint32_t rows,
			    uint32_t from, uint32_t to, uint32_t step)
{
	uint32_t nd = layout == LAYOUT_BLOCKED ? (to + 127) / 128 * 128 : to;
	uint64_t state = kd + rows;
	cleanup(guarded_free) struct guarded codes = guarded_new((size_t)kd * nd);
	cleanup(guarded_free) struct guarded q = guarded_new((size_t)kd * rows);
	cleanup(freep) int32_t *want = malloc((size_t)rows * to * sizeof *want);
	struct tile t = {kd, nd, layout, codes.at, NULL};

	for (size_t i = 0; i < (size_t)kd * nd; i++)
		t.codes[i] = code(how, &state, true);
	for (size_t i = 0; i < (size_t)kd * rows; i++)
		((int8_t *)q.at)[i] = code(how, &state, false);
	head_ref(&t, q.at, rows, to, false, want);
	for (uint32_t columns = from; columns <= to; columns += step)
		check_sums(head, &t, q.at, rows, columns, want, to);
}

/*
 * Rows beyond 8 are cut in parts, so every number up to 16 is a path of its own, and so is more than 128; the
 * sums are long enough for a piece of them that is shorter than the others.
 */
static void check_head(head_fn *head)
{
	for (int layout = 0; layout < 2; layout++) {
		uint32_t step = layout == LAYOUT_BLOCKED ? 1 : 37;
		for (uint32_t rows = 1; rows <= 17; rows++)
			check_head_with(head, 64, layout, RANDOM, rows, 1, 4 * 128 + 3, step);
		for (uint32_t rows = 1; rows <= 130; rows++)
			check_head_with(head, 64, layout, RANDOM, rows, 129, 129, 1);
		for (uint32_t rows = 1; rows <= 130; rows += rows < 18 ? 1 : 37)
			check_head_with(head, 320, layout, RANDOM, rows, 1, 140, 23);
		for (enum fill how = MOST; how < FILLS; how++)
			for (uint32_t rows = 1; rows <= 33; rows += rows < 4 ? 1 : 5)
				check_head_with(head, 1024, layout, how, rows, 130, 130, 1);
	}
	/* The largest sums there are: with codes that are made unsigned they wrap on the way. */
	for (uint32_t rows = 1; rows <= 9; rows += 8) {
		check_head_with(head, 133120, LAYOUT_BLOCKED, MOST, rows, 128, 128, 1);
		check_head_with(head, 133120, LAYOUT_BLOCKED, OPPOSITE, rows, 128, 128, 1);
	}
}

/* Random numbers, and those whose sums and products are all at the ends of the range. */
static void check_residue(residue_fn *residue)
{
	for (uint32_t nd = 1; nd <= 300; nd += nd < 140 ? 1 : 79)
		for (uint32_t kd = 1; kd <= 140; kd += kd < 70 ? 3 : 23) {
			cleanup(guarded_free) struct guarded acc = guarded_new(nd * sizeof(int32_t));
			cleanup(guarded_free) struct guarded r = guarded_new(nd * sizeof(uint32_t));
			cleanup(guarded_free) struct guarded q = guarded_new(kd);
			cleanup(guarded_free) struct guarded s = guarded_new(kd * sizeof(uint32_t));
			uint64_t state = nd * 1000 + kd;
			for (uint32_t n = 0; n < nd; n++) {
				((int32_t *)acc.at)[n] = kd % 2 ? INT32_MIN : (int32_t)splitmix(&state);
				((uint32_t *)r.at)[n] = kd % 2 ? UINT32_MAX : (uint32_t)splitmix(&state) | 1;
			}
			for (uint32_t k = 0; k < kd; k++) {
				((int8_t *)q.at)[k] = code(nd % 2 ? LEAST : RANDOM, &state, false);
				((uint32_t *)s.at)[k] = nd % 2 ? UINT32_MAX : (uint32_t)splitmix(&state);
			}
			cr_assert_eq(residue(acc.at, r.at, nd, q.at, s.at, kd),
				     residue_ref(acc.at, r.at, nd, q.at, s.at, kd), "%u sums, %u activations",
				     nd, kd);
		}
}

#define KERNEL(op, variant, needs)                                                   \
	Test(kernels, op##_##variant##_agrees_with_the_reference)                    \
	{                                                                            \
		if ((unsigned)(needs) & ~cpu_have())                                 \
			cr_skip_test("this processor cannot run " #op "_" #variant); \
		check_##op(op##_##variant);                                          \
	}
#include "kernels.def"
#undef KERNEL

Test(kernels, the_reference_gives_the_sum_of_the_definition)
{
	for (int layout = 0; layout < 2; layout++) {
		cleanup(tile_free) struct tile t = tile_new(128, 256, layout);
		int8_t q[3 * 128];
		int32_t acc[3 * 200];
		uint64_t state = 3;

		for (size_t i = 0; i < sizeof q; i++)
			q[i] = code(RANDOM, &state, false);
		for (size_t i = 0; i < (size_t)t.kd * t.nd; i++)
			t.codes[i] = code(RANDOM, &state, true);
		head_ref(&t, q, 3, 200, false, acc);
		for (uint32_t m = 0; m < 3; m++)
			for (uint32_t n = 0; n < 200; n++) {
				int32_t sum = 0;
				for (uint32_t k = 0; k < t.kd; k++)
					sum += q[m * t.kd + k] * t.codes[tile_index(&t, k, n)];
				cr_assert_eq(acc[m * 200 + n], sum, "layout %d, row %u, column %u", layout, m,
					     n);
			}
	}
}

/* A head of `nv` x `h` cut in tiles of `nd`, and rows for it. */
struct scene {
	struct image image;
	struct kernels kernels;
	int8_t *q;
	float *ascale;
	uint32_t rows;
};

static void scene_init(struct scene *s, uint32_t nv, uint32_t h, uint32_t nd, enum layout layout,
		       uint32_t rows)
{
	struct geometry g;
	cleanup(freep) float *w = malloc((size_t)nd * h * sizeof *w);

	cr_assert(kernels_pick(&s->kernels, cpu_have(), getenv("NPU_KERNELS")));
	cr_assert(geometry_make(&g, nv, h, nd, layout) && image_init(&s->image, &g));
	for (uint32_t t = 0; t < g.tiles; t++) {
		struct tile tile = image_tile(&s->image, t);
		uint32_t columns = geometry_columns(&g, t);
		tile_pad(&tile, columns);
		for (uint32_t n = 0; n < columns; n++)
			fill(w + (size_t)n * h, h, 3 + 5 * ((uint64_t)t * nd + n));
		s->kernels.pack(&tile, 0, w, columns, h);
	}
	s->rows = rows;
	s->q = malloc((size_t)rows * g.kd);
	s->ascale = malloc(rows * sizeof *s->ascale);
	for (uint32_t m = 0; m < rows; m++) {
		fill(w, h, 3 + 5 * (uint64_t)m);
		s->kernels.quantise(s->q + (size_t)m * g.kd, &s->ascale[m], w, h, g.kd);
	}
}

static void scene_fini(struct scene *s)
{
	image_fini(&s->image);
	free(s->q);
	free(s->ascale);
}

static void pool_freep(struct pool **p)
{
	pool_free(*p);
}

/* Runs rows first .. first+count-1 for all their logits, [count][nv]. */
static void run_logits(const struct scene *s, struct pool *pool, uint32_t first, uint32_t count,
		       float *logits)
{
	struct pass_row rows[32] = {};
	cr_assert(count <= 32);
	for (uint32_t m = 0; m < count; m++)
		rows[m] = (struct pass_row){.ascale = s->ascale[first + m],
					    .logits = logits + (size_t)m * s->image.geometry.nv};
	struct pass pass = {s->q + (size_t)first * s->image.geometry.kd, rows, count};
	cr_assert(image_run(&s->image, &s->kernels, pool, &pass));
}

Test(kernels, a_row_has_the_bits_in_a_batch_and_on_threads_that_it_has_alone)
{
	enum { NV = 3000, H = 1200, ROWS = 21 };
	for (int layout = 0; layout < 2; layout++) {
		cleanup(scene_fini) struct scene s = {0};
		cleanup(freep) float *alone = malloc(NV * sizeof *alone);
		cleanup(freep) float *all = malloc((size_t)ROWS * NV * sizeof *all);
		scene_init(&s, NV, H, 1664, layout, ROWS);
		for (unsigned threads = 1; threads <= 5; threads += 2) {
			cleanup(pool_freep) struct pool *pool = NULL;
			cr_assert(pool_new(&pool, threads));
			run_logits(&s, pool, 0, ROWS, all);
			for (uint32_t m = 0; m < ROWS; m++) {
				run_logits(&s, pool, m, 1, alone);
				cr_assert_eq(memcmp(alone, all + (size_t)m * NV, NV * sizeof *alone), 0,
					     "row %u, %u threads, layout %d", m, threads, layout);
			}
		}
	}
}

static void best(const float *values, uint32_t n, uint32_t k, uint32_t *ids, float *kept)
{
	struct top top = {k, 0, ids, kept};
	/* In pieces, so that most come when there are k already. */
	for (uint32_t at = 0; at < n; at += 5)
		top_add(&top, at, values + at, n - at < 5 ? n - at : 5);
	top_sort(&top);
	cr_assert_eq(top.size, k < n ? k : n);
}

Test(kernels, the_best_found_within_the_pass_are_the_best_of_all_logits)
{
	enum { NV = 3000, H = 700, ROWS = 5 };
	static const uint32_t ks[] = {1, 2, 40, 2999, NV};
	cleanup(scene_fini) struct scene s = {0};
	cleanup(freep) float *all = malloc((size_t)ROWS * NV * sizeof *all),
			     *kept = malloc(NV * sizeof *kept);
	cleanup(freep) float *values = malloc((size_t)ROWS * NV * sizeof *values);
	cleanup(freep) uint32_t *ids = malloc((size_t)ROWS * NV * sizeof *ids),
				*want = malloc(NV * sizeof *want);

	scene_init(&s, NV, H, 1664, LAYOUT_BLOCKED, ROWS);
	/* columns that are equal, so that ties are among the best */
	for (uint32_t n = 0; n < 1664; n++)
		image_tile(&s.image, 0).scales[n] = image_tile(&s.image, 0).scales[n / 200];
	for (unsigned threads = 1; threads <= 3; threads++) {
		cleanup(pool_freep) struct pool *pool = NULL;
		cr_assert(pool_new(&pool, threads));
		run_logits(&s, pool, 0, ROWS, all);
		for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
			/* The last row wants all its logits: strangers in a pass may want different things.
			 */
			struct pass_row rows[ROWS];
			for (uint32_t m = 0; m < ROWS; m++)
				rows[m] = (struct pass_row){.ascale = s.ascale[m],
							    .k = ks[i],
							    .ids = ids + (size_t)m * ks[i],
							    .values = values + (size_t)m * ks[i]};
			rows[ROWS - 1] = (struct pass_row){.ascale = s.ascale[ROWS - 1], .logits = kept};
			cr_assert(image_run(&s.image, &s.kernels, pool, &(struct pass){s.q, rows, ROWS}));
			cr_expect_eq(memcmp(kept, all + (size_t)(ROWS - 1) * NV, NV * sizeof *kept), 0);
			for (uint32_t m = 0; m < ROWS - 1; m++) {
				best(all + (size_t)m * NV, NV, ks[i], want, kept);
				cr_expect(memcmp(want, ids + (size_t)m * ks[i], ks[i] * sizeof *want) == 0 &&
						  memcmp(kept, values + (size_t)m * ks[i], ks[i] * 4) == 0,
					  "row %u, k %u, %u threads", m, ks[i], threads);
			}
		}
	}
}

static void top_is(const float *values, uint32_t n, uint32_t k, const uint32_t *want)
{
	uint32_t ids[64];
	float kept[64];

	best(values, n, k, ids, kept);
	for (uint32_t i = 0; i < k; i++) {
		cr_expect_eq(ids[i], want[i], "place %u of %u is %u, not %u", i, k, ids[i], want[i]);
		cr_expect_eq(memcmp(&kept[i], &values[ids[i]], 4), 0);
	}
}

Test(kernels, the_best_come_first_and_ties_go_to_the_lower_id)
{
	static const float ties[] = {1, 3, 2, 3, 1, 3};
	static const float zeros[] = {-0.0f, 0.0f, -1, 0.0f, -0.0f};
	static const float odd[] = {NAN, -INFINITY, 1, NAN, INFINITY, -1};
	static const uint32_t order[] = {1, 3, 5, 2, 0, 4}, zero_order[] = {0, 1, 3, 4, 2},
			      odd_order[] = {4, 2, 5, 1, 0, 3};

	for (uint32_t k = 1; k <= 6; k++) {
		top_is(ties, 6, k, order);
		top_is(odd, 6, k, odd_order);
	}
	for (uint32_t k = 1; k <= 5; k++)
		top_is(zeros, 5, k, zero_order);

	/* against an insertion sort, with many ties */
	float values[64];
	uint32_t want[64];
	uint64_t state = 9;
	for (int round = 0; round < 50; round++) {
		for (uint32_t i = 0; i < 64; i++) {
			values[i] = (float)(splitmix(&state) % 9) - 4;
			uint32_t at = i;
			for (; at && values[want[at - 1]] < values[i]; at--)
				want[at] = want[at - 1];
			want[at] = i;
		}
		for (uint32_t k = 1; k <= 64; k++)
			top_is(values, 64, k, want);
	}
}

Test(kernels, a_forced_variant_is_used_with_what_its_processor_has_and_an_unknown_one_refused)
{
	struct kernels k;

	cr_expect(!kernels_pick(&k, ~0u, "nonsense"));
	cr_assert(kernels_pick(&k, ~0u, "ref"));
	cr_expect(k.pack == pack_ref && k.head == head_ref && k.quantise == quantise_ref);
	cr_expect_str_eq(k.pack_variant, "ref");
	cr_expect_str_eq(k.head_variant, "ref");
	cr_assert(kernels_pick(&k, CPU_ANY, ""));
	cr_expect(k.pack == pack_ref && k.head == head_ref, "a plain processor has only the reference");
	cr_expect(kernels_pick(&k, CPU_ANY, NULL));
#ifdef __x86_64__
	cr_expect(!kernels_pick(&k, CPU_ANY, "avx2"), "the processor has none");
	cr_assert(kernels_pick(&k, ~0u, "avx2"));
	cr_expect_str_eq(k.pack_variant, "avx2");
	cr_expect_str_eq(k.quantise_variant, "avx2");
	cr_assert(kernels_pick(&k, ~0u, NULL));
	cr_expect_str_eq(k.pack_variant, "avx512");
#endif
}

struct counted {
	_Atomic uint32_t calls, sum;
	_Atomic uint32_t by_thread[8];
};

static void count(void *arg, uint32_t i, unsigned thread)
{
	struct counted *c = arg;
	c->calls++;
	c->sum += i;
	c->by_thread[thread]++;
}

Test(kernels, a_pool_runs_every_piece_once)
{
	cleanup(pool_freep) struct pool *pool = NULL;
	cr_assert(pool_new(&pool, 4));
	cr_expect_eq(pool_threads(pool), 4);
	for (uint32_t pieces = 0; pieces < 600; pieces++) {
		struct counted c = {0};
		if (pieces % 100 == 99)
			usleep(2000); /* so that the threads sleep */
		pool_run(pool, pieces, count, &c);
		cr_assert_eq(c.calls, pieces);
		cr_assert_eq(c.sum, pieces * (pieces - 1) / 2 * (pieces > 0));
	}
}

Test(kernels, a_pool_with_nothing_to_do_takes_no_processor_time)
{
	cleanup(pool_freep) struct pool *pool = NULL;
	struct counted c = {0};

	cr_assert(pool_new(&pool, 4));
	pool_run(pool, 100, count, &c);
	usleep(20000);
	double before = pool_cpu_seconds(pool);
	usleep(200000);
	cr_expect_lt(pool_cpu_seconds(pool) - before, 0.02);
}

Test(kernels, large_memory_is_zeroed_and_aligned)
{
	size_t size = 1;
	char *memory = pages_new(&size);
	cr_assert(memory && size == (size_t)2 << 20 && (uintptr_t)memory % size == 0);
	cr_expect(memory[0] == 0 && memory[size - 1] == 0);
	memory[size - 1] = 1;
	pages_free(memory, size);
}
