/*
 * vpdpbusd adds to each int32 four products of unsigned by signed bytes. The codes are made unsigned by
 * inverting the sign bit, which adds 128. Nothing saturates (vpdpbusds would), and a sum that wraps on the
 * way is right in the end, for the true one fits. A code of -128 becomes 0 and is as good as any.
 *
 * A pair of 64-byte chunks is [8 k][8 columns] twice, and one vpermi2b makes of it 4 k of 16 columns. The
 * instruction is written in assembler because gcc 12 copies and spills the sums around its intrinsic.
 */
#include <immintrin.h>
#include <stdint.h>

typedef __m512i vec;
#define LANES 16
#define UNSIGNED 1
#define STREAM_ROWS 2
#define HELD_ROWS 2
#define SHAPES(S, ask) \
	S(1, 8, ask)   \
	S(2, 8, ask) S(3, 2, ask) S(4, 2, ask) S(5, 2, ask) S(6, 2, ask) S(7, 2, ask) S(8, 2, ask)
#define vec_load(p) _mm512_load_si512(p)
#define vec_store(p, v) _mm512_store_si512(p, v)
#define vec_spread(i) _mm512_set1_epi32(i)

static inline __attribute__((always_inline)) vec dot(vec sum, vec w, vec x)
{
	__asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
	return sum;
}

static inline __attribute__((always_inline)) void weights(const int8_t *at, vec w[2])
{
#define FOUR(n) n, n + 8, n + 16, n + 24
#define EIGHT(n) \
	FOUR(n), FOUR(n + 1), FOUR(n + 2), FOUR(n + 3), FOUR(n + 4), FOUR(n + 5), FOUR(n + 6), FOUR(n + 7)
	static const uint8_t order[2][64]
		__attribute__((aligned(64))) = {{EIGHT(0), EIGHT(64)}, {EIGHT(32), EIGHT(96)}};
	const vec sign = _mm512_set1_epi8(-128);
	vec a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 64);
	__asm__("" : "+v"(a), "+v"(b)); /* else gcc loads them twice */
	for (int half = 0; half < 2; half++)
		w[half] = _mm512_xor_si512(_mm512_permutex2var_epi8(a, _mm512_load_si512(order[half]), b),
					   sign);
}

#include "panel.h"

void head_avx512vnni(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t columns, bool prefetch,
		     int32_t *acc)
{
	head_by_panels(t, q, rows, columns, prefetch, acc);
}
