/*
 * A pass over a tile in the blocked layout, for every instruction set: a file includes this after having said
 * what its vectors are, and gets `head_by_panels`. For head/ alone.
 *
 *   vec, LANES, vec_load, vec_store, vec_spread: int32 lanes
 *   weights(at, w): LANES columns of 8 k at `at`, as w[0] and w[1]: 4 k of a column in each lane
 *   dot(sum, w, x): adds to each lane the products of its 4 weights by the 4 activations in x
 *   UNSIGNED: 1 where `weights` are 128 more than the codes
 *   SHAPES(S, from): S(rows, groups, from), how many groups of LANES columns go together for 1 to 8 rows
 *   STREAM_ROWS: for so many rows and fewer, all columns of the panel go together
 *   HELD_ROWS: for so many rows and fewer, their activations are held in registers
 *   REST_GROUPS: how many groups go together where weights are made already
 *
 * A panel is 128 columns, one piece of kd * 128 bytes. For few rows its sums stay in registers and it is read
 * in the order of its bytes. For more, it is read block by block (64 k): the sums of some rows and columns at
 * a time are in registers, those of the whole panel in the first cache. Where 8 rows are not all, a block is
 * made into weights once for all of them. Rows go 32 at a time: of more than that, the first read the panel
 * from memory and the others from the second cache.
 */
#include "kernels.h"
#include <immintrin.h>
#include <string.h>

#define inlined static inline __attribute__((always_inline))
#define PANEL_COLUMNS 128
#define PANEL_ROWS 32
#define FIRST_ROWS 8
#define REST_ROWS 4
#define BLOCK_BYTES 8192
#define BLOCK_K 64
#define BLOCK_STEPS 8 /* of 8 k */
#define STEP_BYTES 1024
#define GROUPS (PANEL_COLUMNS / LANES)
#define GROUP_BYTES (LANES * 8)

typedef int32_t panel_sums[PANEL_COLUMNS];

inlined vec four(const int8_t *q)
{
	int32_t bytes;
	memcpy(&bytes, q, sizeof bytes);
	return vec_spread(bytes);
}

/* The next block is asked for while this one is used: within it the order is not that of the bytes. */
inlined void ask(const int8_t *at)
{
	for (int line = 0; line < GROUP_BYTES; line += 64)
		_mm_prefetch(at + BLOCK_BYTES + line, _MM_HINT_T0);
}

/*
 * Where weights come from: from codes, the next of which may be asked for; from codes, and they are kept as
 * weights where `kept` is, each pair at the place of its codes; from what was kept.
 */
enum source { CODES, CODES_AHEAD, CODES_KEPT, KEPT };

struct from {
	const int8_t *codes;
	int8_t *kept;
	bool prefetch;
};

inlined void take(const struct from *f, enum source source, size_t at, vec w[2])
{
	if (source == KEPT) {
		w[0] = vec_load(f->kept + at);
		w[1] = vec_load(f->kept + at + sizeof(vec));
		return;
	}
	if (source == CODES_AHEAD || (source == CODES_KEPT && f->prefetch))
		ask(f->codes + at);
	weights(f->codes + at, w);
	if (source == CODES_KEPT) {
		vec_store(f->kept + at, w[0]);
		vec_store(f->kept + at + sizeof(vec), w[1]);
	}
}

/*
 * `steps` steps down `groups` groups of columns from byte `at` of a step on, for `rows` rows of q that are
 * `stride` bytes apart; the last three are constants.
 */
inlined void part(const struct from *from, size_t at, uint32_t steps, const int8_t *q, uint32_t stride,
		  panel_sums *sums, enum source source, int rows, int groups)
{
	struct from f = *from;
	vec sum[8][8]; /* of which constants leave what registers hold */

	for (int m = 0; m < rows; m++)
		for (int g = 0; g < groups; g++)
			sum[m][g] = vec_load(&sums[m][LANES * g]);
	for (; steps; steps--, at += STEP_BYTES, q += 8) {
		if (rows <= HELD_ROWS) {
			vec x[8][2], w[2];
			for (int m = 0; m < rows; m++) {
				x[m][0] = four(q + (size_t)m * stride);
				x[m][1] = four(q + (size_t)m * stride + 4);
			}
			for (int g = 0; g < groups; g++) {
				take(&f, source, at + g * GROUP_BYTES, w);
				for (int m = 0; m < rows; m++)
					sum[m][g] = dot(dot(sum[m][g], w[0], x[m][0]), w[1], x[m][1]);
			}
		} else {
			vec w[8][2];
			for (int g = 0; g < groups; g++)
				take(&f, source, at + g * GROUP_BYTES, w[g]);
			for (int half = 0; half < 2; half++)
				for (int m = 0; m < rows; m++) {
					vec x = four(q + (size_t)m * stride + 4 * half);
					for (int g = 0; g < groups; g++)
						sum[m][g] = dot(sum[m][g], w[g][half], x);
				}
		}
	}
	for (int m = 0; m < rows; m++)
		for (int g = 0; g < groups; g++)
			vec_store(&sums[m][LANES * g], sum[m][g]);
}

typedef void columns_fn(const struct from *f, uint32_t steps, const int8_t *q, uint32_t stride, uint32_t rows,
			panel_sums *sums);

/*
 * All columns of a panel, for 1 to FIRST_ROWS rows. A function for each source, and none inlined in another:
 * the addresses of the rows need the registers.
 */
#define COLUMNS(name, source)                                                                             \
	static __attribute__((noinline)) void name(const struct from *f, uint32_t steps, const int8_t *q, \
						   uint32_t stride, uint32_t rows, panel_sums *sums)      \
	{                                                                                                 \
		switch (rows) {                                                                           \
			SHAPES(SHAPE, source)                                                             \
		}                                                                                         \
	}
#define SHAPE(m, groups, source)                                                                       \
	case m:                                                                                        \
		for (int g = 0; g < GROUPS; g += groups)                                               \
			part(f, g *GROUP_BYTES, steps, q, stride, (panel_sums *)(&sums[0][LANES * g]), \
			     source, m, groups);                                                       \
		break;
COLUMNS(columns_of_codes, CODES)
COLUMNS(columns_of_codes_ahead, CODES_AHEAD)
COLUMNS(columns_of_codes_kept, CODES_KEPT)

static __attribute__((noinline)) void columns_of_kept(const struct from *f, const int8_t *q, panel_sums *sums)
{
	for (int g = 0; g < GROUPS; g += REST_GROUPS)
		part(f, g * GROUP_BYTES, BLOCK_STEPS, q, BLOCK_K, (panel_sums *)(&sums[0][LANES * g]), KEPT,
		     REST_ROWS, REST_GROUPS);
}

/* What the sums of a row begin with: codes that are 128 more add 128 times the sum of q. */
inlined int32_t begin(const int8_t *q, uint32_t kd)
{
	int32_t sum = 0;
	for (uint32_t k = 0; UNSIGNED && k < kd; k++)
		sum += q[k];
	return -128 * sum;
}

/* The sums of one panel for 1 to PANEL_ROWS rows. */
static void panel(const int8_t *codes, const int8_t *q, uint32_t kd, uint32_t rows, bool prefetch,
		  panel_sums *sums)
{
	_Alignas(64) int8_t kept[BLOCK_BYTES], x[PANEL_ROWS][BLOCK_K];
	/* In any order but that of the bytes, the processor does not guess what comes next. */
	struct from from = {codes, kept, prefetch || rows > STREAM_ROWS};
	/* Making weights hides behind many rows; once made, 4 rows by more groups load the least. */
	uint32_t rest = rows <= FIRST_ROWS ? 0 : (rows - FIRST_ROWS + REST_ROWS - 1) / REST_ROWS * REST_ROWS;
	uint32_t first = rows - rest;

	for (uint32_t m = 0; m < rows; m++) {
		vec start = vec_spread(begin(q + (size_t)m * kd, kd));
		for (int g = 0; g < GROUPS; g++)
			vec_store(&sums[m][LANES * g], start);
	}
	columns_fn *few = from.prefetch ? columns_of_codes_ahead : columns_of_codes;
	if (rows <= STREAM_ROWS) {
		few(&from, kd / 8, q, kd, rows, sums);
		return;
	}
	for (uint32_t k = 0; k < kd; k += BLOCK_K, from.codes += BLOCK_BYTES) {
		/* Rows that are a power of two apart would share a few sets of the first cache. */
		for (uint32_t m = 0; m < rows; m++)
			memcpy(x[m], q + (size_t)m * kd + k, BLOCK_K);
		if (rest == 0) {
			few(&from, BLOCK_STEPS, x[0], BLOCK_K, rows, sums);
			continue;
		}
		columns_of_codes_kept(&from, BLOCK_STEPS, x[0], BLOCK_K, first, sums);
		for (uint32_t m = first; m < rows; m += REST_ROWS)
			columns_of_kept(&from, x[m], sums + m);
	}
}

static void head_by_panels(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t count,
			   bool prefetch, int32_t *acc)
{
	_Alignas(64) panel_sums sums[PANEL_ROWS];

	if (t->layout != LAYOUT_BLOCKED) {
		head_ref(t, q, rows, count, prefetch, acc);
		return;
	}
	for (uint32_t n = 0; n < count; n += PANEL_COLUMNS) {
		const int8_t *codes = t->codes + (size_t)n * t->kd;
		size_t wanted = count - n < PANEL_COLUMNS ? count - n : PANEL_COLUMNS;
		for (uint32_t m = 0, some; m < rows; m += some) {
			some = rows - m < PANEL_ROWS ? rows - m : PANEL_ROWS;
			panel(codes, q + (size_t)m * t->kd, t->kd, some, prefetch, sums);
			for (uint32_t i = 0; i < some; i++)
				memcpy(acc + (size_t)(m + i) * count + n, sums[i], wanted * sizeof **sums);
		}
	}
}
