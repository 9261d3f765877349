/*
 * A pass with vpdpbusd, which adds to each int32 four products of unsigned by signed bytes. The codes are
 * made unsigned by inverting the sign bit, which adds 128; what that adds to a sum is 128 times the sum of q
 * and is taken off before. Nothing saturates (vpdpbusds would), and a sum that wraps on the way is right in
 * the end, for the true one fits (MATRIX_H_MAX in store/container.h). A code of -128 is 0 here and as good as
 * any.
 *
 * A pair of 64-byte chunks is [8 k][8 columns] twice, and one vpermi2b makes of it 4 k of 16 columns, each
 * column's side by side.
 *
 * One or two rows: the panel in the order of its bytes, all sums in registers. More: block by block, the sums
 * of some columns and rows at a time in registers and those of the whole panel in the first cache. The
 * instruction is written in assembler because gcc 12 copies and spills the sums around its intrinsic.
 */
#include "panel.h"
#include <immintrin.h>

#define inlined static inline __attribute__((always_inline))
#define GROUPS 8	/* of 16 columns, in a panel */
#define GROUP_BYTES 128 /* a pair of chunks */
#define STEPS 8		/* of 8 k, in a block */
#define STEP_BYTES 1024

inlined __m512i dot(__m512i sum, __m512i weights, __m512i q)
{
	__asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(q));
	return sum;
}

/* Where the bytes of 4 k are in a pair of chunks: for each column n those of k .. k+3. */
static const uint8_t first_four[64] __attribute__((aligned(64))) = {
#define FOUR(n) n, n + 8, n + 16, n + 24
#define EIGHT(n) \
	FOUR(n), FOUR(n + 1), FOUR(n + 2), FOUR(n + 3), FOUR(n + 4), FOUR(n + 5), FOUR(n + 6), FOUR(n + 7)
	EIGHT(0), EIGHT(64)};

struct order {
	__m512i first, second, sign;
};

inlined struct order order(void)
{
	__m512i first = _mm512_load_si512(first_four);
	return (struct order){first, _mm512_add_epi8(first, _mm512_set1_epi8(32)), _mm512_set1_epi8(-128)};
}

/* 16 columns of 8 k, as two times 4 k. */
inlined void weights(const int8_t *at, const struct order *o, __m512i w[2])
{
	__m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 64);
	w[0] = _mm512_xor_si512(_mm512_permutex2var_epi8(a, o->first, b), o->sign);
	w[1] = _mm512_xor_si512(_mm512_permutex2var_epi8(a, o->second, b), o->sign);
}

inlined __m512i four(const int8_t *q)
{
	int32_t bytes;
	memcpy(&bytes, q, sizeof bytes);
	return _mm512_set1_epi32(bytes);
}

/* What the sums of a row begin with. */
static __m512i begin(const int8_t *q, uint32_t kd)
{
	__m512i sum = _mm512_setzero_si512();
	for (uint32_t k = 0; k < kd; k += 64)
		sum = dot(sum, _mm512_set1_epi8(1), _mm512_loadu_si512(q + k));
	return _mm512_set1_epi32(-128 * _mm512_reduce_add_epi32(sum));
}

/* The whole panel for 1 or 2 rows. */
inlined void stream(const int8_t *codes, const int8_t *q, uint32_t kd, int rows, bool prefetch,
		    int32_t (*sums)[PANEL_COLUMNS])
{
	const struct order o = order();
	__m512i sum[2][GROUPS];

	for (int m = 0; m < rows; m++)
		for (int g = 0; g < GROUPS; g++)
			sum[m][g] = _mm512_load_si512(&sums[m][16 * g]);
	for (uint32_t k = 0; k < kd; k += 8, codes += STEP_BYTES) {
		__m512i low[2], high[2];
		for (int m = 0; m < rows; m++) {
			low[m] = four(q + (size_t)m * kd + k);
			high[m] = four(q + (size_t)m * kd + k + 4);
		}
		for (int g = 0; g < GROUPS; g++) {
			const int8_t *at = codes + g * GROUP_BYTES;
			__m512i w[2];
			if (prefetch) {
				_mm_prefetch(at + BLOCK_BYTES, _MM_HINT_T0);
				_mm_prefetch(at + BLOCK_BYTES + 64, _MM_HINT_T0);
			}
			weights(at, &o, w);
			for (int m = 0; m < rows; m++)
				sum[m][g] = dot(dot(sum[m][g], w[0], low[m]), w[1], high[m]);
		}
	}
	for (int m = 0; m < rows; m++)
		for (int g = 0; g < GROUPS; g++)
			_mm512_store_si512(&sums[m][16 * g], sum[m][g]);
}

/* One block for `rows` rows and `groups` groups of columns, rows * groups at most 24. */
inlined void part(const int8_t *block, const int8_t *q, uint32_t kd, int rows, int groups, bool prefetch,
		  int32_t (*sums)[PANEL_COLUMNS])
{
	const struct order o = order();
	__m512i sum[12][4];

	for (int m = 0; m < rows; m++)
		for (int g = 0; g < groups; g++)
			sum[m][g] = _mm512_load_si512(&sums[m][16 * g]);
	for (int step = 0; step < STEPS; step++, block += STEP_BYTES, q += 8) {
		__m512i w[4][2];
		for (int g = 0; g < groups; g++) {
			const int8_t *at = block + g * GROUP_BYTES;
			if (prefetch) {
				_mm_prefetch(at + BLOCK_BYTES, _MM_HINT_T0);
				_mm_prefetch(at + BLOCK_BYTES + 64, _MM_HINT_T0);
			}
			weights(at, &o, w[g]);
		}
		for (int half = 0; half < 2; half++)
			for (int m = 0; m < rows; m++) {
				__m512i x = four(q + (size_t)m * kd + 4 * half);
				for (int g = 0; g < groups; g++)
					sum[m][g] = dot(sum[m][g], w[g][half], x);
			}
	}
	for (int m = 0; m < rows; m++)
		for (int g = 0; g < groups; g++)
			_mm512_store_si512(&sums[m][16 * g], sum[m][g]);
}

/* One block, all its columns. */
static void block(const int8_t *codes, const int8_t *q, uint32_t kd, uint32_t rows, bool prefetch,
		  int32_t (*sums)[PANEL_COLUMNS])
{
#define ROWS(m, groups)                                                           \
	case m:                                                                   \
		for (int g = 0; g < GROUPS; g += groups)                          \
			part(codes + g * GROUP_BYTES, q, kd, m, groups, prefetch, \
			     (int32_t(*)[PANEL_COLUMNS])(&sums[0][16 * g]));      \
		break;
	switch (rows) {
		ROWS(1, 4)
		ROWS(2, 4)
		ROWS(3, 4)
		ROWS(4, 4)
		ROWS(5, 2)
		ROWS(6, 2)
		ROWS(7, 2)
		ROWS(8, 2)
	}
#undef ROWS
}

static void panel(const int8_t *codes, const int8_t *q, uint32_t kd, uint32_t rows, bool prefetch,
		  int32_t (*sums)[PANEL_COLUMNS])
{
	for (uint32_t m = 0; m < rows; m++) {
		__m512i first = begin(q + (size_t)m * kd, kd);
		for (int g = 0; g < GROUPS; g++)
			_mm512_store_si512(&sums[m][16 * g], first);
	}
	if (rows == 1) {
		stream(codes, q, kd, 1, prefetch, sums);
		return;
	}
	if (rows == 2) {
		stream(codes, q, kd, 2, prefetch, sums);
		return;
	}
	uint32_t upper = rows <= 8 ? rows : (rows + 1) / 2;
	for (uint32_t k = 0; k < kd; k += 64, codes += BLOCK_BYTES) {
		block(codes, q + k, kd, upper, prefetch, sums);
		if (rows > upper)
			block(codes, q + (size_t)upper * kd + k, kd, rows - upper, false, sums + upper);
	}
}

void head_avx512vnni(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t columns, bool prefetch,
		     int32_t *acc)
{
	head_by_panels(panel, t, q, rows, columns, prefetch, acc);
}
