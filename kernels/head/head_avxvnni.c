/* AVX2 with the vpdpbusd of AVX-VNNI: head_avx512vnni.c, where it is said why it is exact, at half the width.
 */
#include "avx2.h"

#define UNSIGNED 1
#define SHAPES(S, ask) \
	S(1, 8, ask)   \
	S(2, 4, ask) S(3, 2, ask) S(4, 2, ask) S(5, 1, ask) S(6, 1, ask) S(7, 1, ask) S(8, 1, ask)

static inline __attribute__((always_inline)) vec dot(vec sum, vec w, vec x)
{
	return _mm256_dpbusd_avx_epi32(sum, w, x);
}

static inline __attribute__((always_inline)) void weights(const int8_t *at, vec w[2])
{
	const vec sign = _mm256_set1_epi8(-128);
	w[0] = _mm256_xor_si256(turned(at), sign);
	w[1] = _mm256_xor_si256(turned(at + 32), sign);
}

#include "panel.h"

void head_avxvnni(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t columns, bool prefetch,
		  int32_t *acc)
{
	head_by_panels(t, q, rows, columns, prefetch, acc);
}
