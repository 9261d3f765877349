/*
 * Packing with AVX-512 (F and BW). Eight source rows at a time, which are eight columns of the tile: twice
 * over them, so that the second time they come from the cache.
 *
 * Rounding. roundf(v) is trunc(v + copysign(0.5 - 2^-25, v)) for every |v| below 2^22: adding the largest
 * float below one half cannot carry a v below .5 over it, and at .5 exactly the sum is halfway to the next
 * integer and goes to it, which is even in its last place.
 *
 * No clamp is needed: |w| <= amax, inv <= (127 / amax)(1 + 2^-24), and the product is rounded once, so
 * |w * inv| < 127.0001. Where amax is below 1e-12, inv is 127 and every code is 0.
 */
#include "kernels.h"
#include <immintrin.h>
#include <string.h>

#define INFINITE 0x7f800000
#define inlined static inline __attribute__((always_inline))

static __m512i magnitude(__m512 v)
{
	return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
}

static __mmask16 first_lanes(uint32_t left)
{
	return left < 16 ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
}

/* Magnitudes of finite floats are ordered as their bits are, and below those of the others. */
static uint64_t largest(float *amax, const float *w, uint32_t h)
{
	const __m512i infinite = _mm512_set1_epi32(INFINITE);
	__m512i most[4] = {0};
	uint64_t finite = 0;
	uint32_t k = 0;

	for (; k + 64 <= h; k += 64)
		for (int i = 0; i < 4; i++)
			most[i] = _mm512_max_epu32(most[i], magnitude(_mm512_loadu_ps(w + k + 16 * i)));
	for (; k < h; k += 16)
		most[0] = _mm512_max_epu32(most[0],
					   magnitude(_mm512_maskz_loadu_ps(first_lanes(h - k), w + k)));
	most[0] = _mm512_max_epu32(_mm512_max_epu32(most[0], most[1]), _mm512_max_epu32(most[2], most[3]));
	uint32_t bits = _mm512_reduce_max_epu32(most[0]);
	if (bits < INFINITE) {
		memcpy(amax, &bits, sizeof bits);
		return 0;
	}

	most[0] = _mm512_setzero_si512();
	for (k = 0; k < h; k += 16) {
		__mmask16 lanes = first_lanes(h - k);
		__m512i m = magnitude(_mm512_maskz_loadu_ps(lanes, w + k));
		__mmask16 good = _mm512_mask_cmplt_epu32_mask(lanes, m, infinite);
		most[0] = _mm512_mask_max_epu32(most[0], good, most[0], m);
		finite += (uint64_t)__builtin_popcount(good);
	}
	bits = _mm512_reduce_max_epu32(most[0]);
	memcpy(amax, &bits, sizeof bits);
	return h - finite;
}

static float divisor(float amax)
{
	return amax < 1e-12f ? 1.0f : amax;
}

/* Codes of 16 values, or of those in `lanes`, each in an int32. `finite`, a constant: they all are. */
inlined __m512i codes16(const float *w, __mmask16 lanes, bool finite, __m512 inv)
{
	const __m512i infinite = _mm512_set1_epi32(INFINITE);
	const __m512i half = _mm512_castps_si512(_mm512_set1_ps(0x1.fffffep-2f));
	__m512 v = _mm512_maskz_loadu_ps(lanes, w);
	if (finite)
		v = _mm512_mul_ps(v, inv);
	else
		v = _mm512_maskz_mul_ps(_mm512_cmplt_epu32_mask(magnitude(v), infinite), v, inv);
	/* (v & sign) | half */
	__m512i towards =
		_mm512_ternarylogic_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(INT32_MIN), half, 0xea);
	return _mm512_cvttps_epi32(_mm512_add_ps(v, _mm512_castsi512_ps(towards)));
}

/* 16 k of four rows, as packs leaves them: in lane L the bytes [row][k - 4L]; out: [k - 4L][row]. */
inlined __m512i four_rows(const float *w, uint32_t h, __mmask16 lanes, bool finite, const __m512 *inv)
{
	const __m512i turn =
		_mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
	__m512i a =
		_mm512_packs_epi32(codes16(w, lanes, finite, inv[0]), codes16(w + h, lanes, finite, inv[1]));
	w += 2 * (size_t)h;
	__m512i b =
		_mm512_packs_epi32(codes16(w, lanes, finite, inv[2]), codes16(w + h, lanes, finite, inv[3]));
	return _mm512_shuffle_epi8(_mm512_packs_epi16(a, b), turn);
}

/* A chunk is [8 k][8 columns]; k..k+7 of the tile, columns n..n+7. */
inlined void put(struct tile *t, uint32_t n, uint32_t k, __m512i chunk)
{
	int8_t *to = t->codes + tile_index(t, k, n);
	if (t->layout == LAYOUT_BLOCKED) {
		_mm512_storeu_si512(to, chunk);
		return;
	}
	char bytes[64];
	_mm512_storeu_si512(bytes, chunk);
	for (int i = 0; i < 8; i++, to += t->nd)
		memcpy(to, bytes + 8 * i, 8);
}

/* 16 k of eight rows, or those in `lanes`, as two chunks. */
inlined void pack_step(struct tile *t, uint32_t n, uint32_t k, const float *w, uint32_t h, __mmask16 lanes,
		       bool finite, const __m512 inv[8])
{
	const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
	const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
	__m512i a = four_rows(w + k, h, lanes, finite, inv);
	__m512i b = four_rows(w + k + 4 * (size_t)h, h, lanes, finite, inv + 4);
	/* of lane L: k = 4L and 4L+1; 4L+2 and 4L+3; eight columns each */
	__m512i low = _mm512_unpacklo_epi32(a, b), high = _mm512_unpackhi_epi32(a, b);

	put(t, n, k, _mm512_permutex2var_epi64(low, first, high));
	put(t, n, k + 8, _mm512_permutex2var_epi64(low, second, high));
}

static uint64_t pack_eight(struct tile *t, uint32_t n, const float *w, uint32_t h)
{
	uint64_t nonfinite = 0;
	uint32_t k = 0;
	__m512 inv[8];

	for (int i = 0; i < 8; i++) {
		float amax;
		nonfinite += largest(&amax, w + (size_t)i * h, h);
		t->scales[n + i] = divisor(amax) / 127.0f;
		inv[i] = _mm512_set1_ps(127.0f / divisor(amax));
	}
	for (; !nonfinite && k + 16 <= h; k += 16)
		pack_step(t, n, k, w, h, 0xffff, true, inv);
	for (; k < h; k += 16)
		pack_step(t, n, k, w, h, first_lanes(h - k), false, inv);
	return nonfinite;
}

uint64_t pack_avx512(struct tile *t, uint32_t n, const float *w, uint32_t count, uint32_t h)
{
	uint32_t odd = -n % 8 < count ? -n % 8 : count;
	uint64_t nonfinite = pack_ref(t, n, w, odd, h);

	for (n += odd, w += (size_t)odd * h, count -= odd; count >= 8; n += 8, w += (size_t)8 * h, count -= 8)
		nonfinite += pack_eight(t, n, w, h);
	return nonfinite + pack_ref(t, n, w, count, h);
}

uint64_t quantise_avx512(int8_t *q, float *ascale, const float *x, uint32_t h, uint32_t kd)
{
	float amax;
	uint64_t nonfinite = largest(&amax, x, h);
	__m512 inv = _mm512_set1_ps(127.0f / divisor(amax));

	*ascale = divisor(amax) / 127.0f;
	for (uint32_t k = 0; k < h; k += 16) {
		__mmask16 lanes = first_lanes(h - k);
		_mm512_mask_cvtepi32_storeu_epi8(q + k, lanes, codes16(x + k, lanes, false, inv));
	}
	memset(q + h, 0, kd - h);
	return nonfinite;
}
