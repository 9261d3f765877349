/*
 * Sixteen codes of one byte at a time, as vectors: they stay in registers, where arrays would go through
 * memory and be read back in larger pieces than they were written in, which is slow.
 */
#ifndef NPUD_CODES_H
#define NPUD_CODES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

typedef uint8_t bytes16 __attribute__((vector_size(16)));

static inline bytes16 bytes16_load(const void *from)
{
	bytes16 v;
	memcpy(&v, from, sizeof v);
	return v;
}

/* Eight bytes of each of two vectors by turns, from byte `from` (0 or 8). */
#define BYTES16_INTERLEAVE(a, b, from)                                                                     \
	__builtin_shufflevector(a, b, from, 16 + from, from + 1, 17 + from, from + 2, 18 + from, from + 3, \
				19 + from, from + 4, 20 + from, from + 5, 21 + from, from + 6, 22 + from,  \
				from + 7, 23 + from)

/* to[i] = scale * codes[i], the codes signed; and `base` added where there is one, for -0 + 0 is +0. The
 * compiler's own conversion of vectors wider than the processor's takes them apart, hence the variants. */
static inline void codes_put(float *to, bytes16 codes, float scale, bool has_base, float base)
{
#if defined __AVX512F__
	__m512 values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)codes));
	values = _mm512_mul_ps(values, _mm512_set1_ps(scale));
	if (has_base)
		values = _mm512_add_ps(values, _mm512_set1_ps(base));
	_mm512_storeu_ps(to, values);
#elif defined __AVX2__
	const __m128i halves[2] = {(__m128i)codes, _mm_srli_si128((__m128i)codes, 8)};
	for (int i = 0; i < 2; i++) {
		__m256 values = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(halves[i]));
		values = _mm256_mul_ps(values, _mm256_set1_ps(scale));
		if (has_base)
			values = _mm256_add_ps(values, _mm256_set1_ps(base));
		_mm256_storeu_ps(to + 8 * i, values);
	}
#else
	int8_t each[sizeof codes];
	memcpy(each, &codes, sizeof each);
	for (size_t i = 0; i < sizeof each; i++)
		to[i] = has_base ? scale * (float)each[i] + base : scale * (float)each[i];
#endif
}

static inline void codes_scaled(float *to, bytes16 codes, float scale)
{
	codes_put(to, codes, scale, false, 0);
}

static inline void codes_based(float *to, bytes16 codes, float scale, float base)
{
	codes_put(to, codes, scale, true, base);
}

#endif
