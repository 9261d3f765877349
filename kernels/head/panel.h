/*
 * A pass over a tile in the blocked layout, for every instruction set: a file includes this after having said
 * what its vectors are, and gets `head_by_panels`. For head/ alone.
 *
 *   vec, LANES, vec_load, vec_store, vec_spread    int32 lanes
 *   weights(at, w)      LANES columns of 8 k at `at`, as w[0] and w[1]: 4 k of a column in each lane
 *   dot(sum, w, x)      adds to each lane the products of its 4 weights by the 4 activations in x
 *   UNSIGNED            1 where `weights` are 128 more than the codes
 *   SHAPES(S)           S(rows, groups): how many groups of LANES columns go together for so many rows, 1 to
 * 8 STREAM_ROWS         for so many rows and fewer all columns of the panel go together HELD_ROWS for so many
 * rows and fewer their activations are held in registers
 *
 * A panel is 128 columns, one piece of kd * 128 bytes. For few rows its sums stay in registers and it is read
 * in the order of its bytes. For more, it is read block by block (64 k): the sums of some rows and columns
 * at a time are in registers, those of the whole panel in the first cache. Rows go 16 at a time: of more
 * than that, the first read the panel from memory and the others from the second cache.
 */
#include "kernels.h"
#include <immintrin.h>
#include <string.h>

#define inlined static inline __attribute__((always_inline))
#define PANEL_COLUMNS 128
#define PANEL_ROWS 16
#define BLOCK_BYTES 8192
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

/* `steps` steps down `groups` groups of columns, for `rows` rows; the last three are constants. */
inlined void part(const int8_t *codes, uint32_t steps, const int8_t *q, uint32_t kd, bool prefetch,
		  panel_sums *sums, int rows, int groups)
{
	vec sum[8][8]; /* of which constants leave what registers hold */

	for (int m = 0; m < rows; m++)
		for (int g = 0; g < groups; g++)
			sum[m][g] = vec_load(&sums[m][LANES * g]);
	for (; steps; steps--, codes += STEP_BYTES, q += 8) {
		if (rows <= HELD_ROWS) {
			vec x[8][2], w[2];
			for (int m = 0; m < rows; m++) {
				x[m][0] = four(q + (size_t)m * kd);
				x[m][1] = four(q + (size_t)m * kd + 4);
			}
			for (int g = 0; g < groups; g++) {
				if (prefetch)
					ask(codes + g * GROUP_BYTES);
				weights(codes + g * GROUP_BYTES, w);
				for (int m = 0; m < rows; m++)
					sum[m][g] = dot(dot(sum[m][g], w[0], x[m][0]), w[1], x[m][1]);
			}
		} else {
			vec w[8][2];
			for (int g = 0; g < groups; g++) {
				if (prefetch)
					ask(codes + g * GROUP_BYTES);
				weights(codes + g * GROUP_BYTES, w[g]);
			}
			for (int half = 0; half < 2; half++)
				for (int m = 0; m < rows; m++) {
					vec x = four(q + (size_t)m * kd + 4 * half);
					for (int g = 0; g < groups; g++)
						sum[m][g] = dot(sum[m][g], w[g][half], x);
				}
		}
	}
	for (int m = 0; m < rows; m++)
		for (int g = 0; g < groups; g++)
			vec_store(&sums[m][LANES * g], sum[m][g]);
}

/* All columns of a panel, `steps` steps of it, for 1 to 8 rows. */
static void block(const int8_t *codes, uint32_t steps, const int8_t *q, uint32_t kd, uint32_t rows,
		  bool prefetch, panel_sums *sums)
{
#define SHAPE(m, groups)                                                      \
	case m:                                                               \
		for (int g = 0; g < GROUPS; g += groups)                      \
			part(codes + g * GROUP_BYTES, steps, q, kd, prefetch, \
			     (panel_sums *)(&sums[0][LANES * g]), m, groups); \
		break;
	switch (rows) {
		SHAPES(SHAPE)
	}
#undef SHAPE
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
	uint32_t upper = rows <= 8 ? rows : (rows + 1) / 2,
		 steps = rows <= STREAM_ROWS ? kd / 8 : BLOCK_STEPS;

	for (uint32_t m = 0; m < rows; m++) {
		vec first = vec_spread(begin(q + (size_t)m * kd, kd));
		for (int g = 0; g < GROUPS; g++)
			vec_store(&sums[m][LANES * g], first);
	}
	for (uint32_t k = 0; k < kd; k += 8 * steps, codes += (size_t)steps * STEP_BYTES) {
		block(codes, steps, q + k, kd, upper, prefetch, sums);
		if (rows > upper)
			block(codes, steps, q + (size_t)upper * kd + k, kd, rows - upper, false,
			      sums + upper);
	}
}

static void head_by_panels(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t columns,
			   bool prefetch, int32_t *acc)
{
	_Alignas(64) panel_sums sums[PANEL_ROWS];

	if (t->layout != LAYOUT_BLOCKED) {
		head_ref(t, q, rows, columns, prefetch, acc);
		return;
	}
	for (uint32_t n = 0; n < columns; n += PANEL_COLUMNS) {
		const int8_t *codes = t->codes + (size_t)n * t->kd;
		size_t wanted = columns - n < PANEL_COLUMNS ? columns - n : PANEL_COLUMNS;
		for (uint32_t m = 0, some; m < rows; m += some) {
			some = rows - m < PANEL_ROWS ? rows - m : PANEL_ROWS;
			panel(codes, q + (size_t)m * t->kd, t->kd, some, prefetch && m == 0, sums);
			for (uint32_t i = 0; i < some; i++)
				memcpy(acc + (size_t)(m + i) * columns + n, sums[i], wanted * sizeof **sums);
		}
	}
}
