/* What AVX2 and AVX-VNNI share: 8 lanes, and how a chunk of [8 k][8 columns] becomes twice 4 k of 8 columns.
 */
#include <immintrin.h>
#include <stdint.h>

typedef __m256i vec;
#define LANES 8
#define STREAM_ROWS 0
#define HELD_ROWS 1
#define vec_load(p) _mm256_load_si256((const __m256i *)(p))
#define vec_store(p, v) _mm256_store_si256((__m256i *)(p), v)
#define vec_spread(i) _mm256_set1_epi32(i)

/* Dwords are gathered so that a lane of 16 bytes has 4 k of 4 columns, and vpshufb turns those. */
static inline __attribute__((always_inline)) vec turned(const int8_t *at)
{
	const vec gather = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
	const vec turn = _mm256_broadcastsi128_si256(
		_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
	vec chunk = _mm256_loadu_si256((const __m256i *)at);
	return _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(chunk, gather), turn);
}
