/*
 * AVX-512 without VNNI: vpmaddubsw multiplies unsigned by signed bytes and adds pairs to int16, so the codes
 * go in as magnitudes and the activations with the sign of their code. It would saturate above 32767, and
 * the most is 2 * 128 * 127 = 32512: a code of -128 (magnitude 128, unsigned) is within, an activation is
 * never -128, and negating it does not overflow. vpmaddwd by ones adds pairs again, exactly.
 *
 * A pair of 64-byte chunks is [8 k][8 columns] twice. Two dwords of each row of 8 columns are gathered so
 * that a lane of 16 bytes has 4 k of 4 columns, and vpshufb turns those.
 */
#include <immintrin.h>
#include <stdint.h>

typedef __m512i vec;
#define LANES 16
#define UNSIGNED 0
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
	vec signed_x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
	vec pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_x);
	return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

static inline __attribute__((always_inline)) void weights(const int8_t *at, vec w[2])
{
	const vec low = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 16, 18, 20, 22, 17, 19, 21, 23);
	const vec high = _mm512_setr_epi32(8, 10, 12, 14, 9, 11, 13, 15, 24, 26, 28, 30, 25, 27, 29, 31);
	const vec turn =
		_mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
	vec a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 64);
	w[0] = _mm512_shuffle_epi8(_mm512_permutex2var_epi32(a, low, b), turn);
	w[1] = _mm512_shuffle_epi8(_mm512_permutex2var_epi32(a, high, b), turn);
}

#include "panel.h"

void head_avx512(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t columns, bool prefetch,
		 int32_t *acc)
{
	head_by_panels(t, q, rows, columns, prefetch, acc);
}
