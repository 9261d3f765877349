/* AVX2: the products of head_avx512.c, where it is said why nothing saturates, at half the width. */
#include "avx2.h"

#define UNSIGNED 0
#define SHAPES(S, ask) \
	S(1, 8, ask)   \
	S(2, 2, ask) S(3, 2, ask) S(4, 2, ask) S(5, 1, ask) S(6, 1, ask) S(7, 1, ask) S(8, 1, ask)

static inline __attribute__((always_inline)) vec dot(vec sum, vec w, vec x)
{
	vec pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
	return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline __attribute__((always_inline)) void weights(const int8_t *at, vec w[2])
{
	w[0] = turned(at);
	w[1] = turned(at + 32);
}

#include "panel.h"

void head_avx2(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t columns, bool prefetch,
	       int32_t *acc)
{
	head_by_panels(t, q, rows, columns, prefetch, acc);
}
