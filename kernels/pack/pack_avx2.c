/* Packing with AVX2: pack_avx512.c at half the width; why it rounds and does not clamp is said there. */
#include "kernels.h"
#include <immintrin.h>
#include <string.h>

#define INFINITE 0x7f800000
#define inlined static inline __attribute__((always_inline))

static __m256i magnitude(__m256 v)
{
	return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

/* All ones where the float is finite; as signed integers, for magnitudes have no sign. */
static __m256i where_finite(__m256i m)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(INFINITE), m);
}

static __m256i first_lanes(uint32_t left)
{
	const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(left < 8 ? (int)left : 8), lane);
}

static uint32_t most_of(__m256i v)
{
	uint32_t lanes[8], most = 0;
	_mm256_storeu_si256((__m256i *)lanes, v);
	for (int i = 0; i < 8; i++)
		most = lanes[i] > most ? lanes[i] : most;
	return most;
}

static uint64_t largest(float *amax, const float *w, uint32_t h)
{
	__m256i most[4] = {0};
	uint64_t finite = 0;
	uint32_t k = 0;

	for (; k + 32 <= h; k += 32)
		for (int i = 0; i < 4; i++)
			most[i] = _mm256_max_epu32(most[i], magnitude(_mm256_loadu_ps(w + k + 8 * i)));
	for (; k < h; k += 8)
		most[0] = _mm256_max_epu32(most[0], magnitude(_mm256_maskload_ps(w + k, first_lanes(h - k))));
	most[0] = _mm256_max_epu32(_mm256_max_epu32(most[0], most[1]), _mm256_max_epu32(most[2], most[3]));
	uint32_t bits = most_of(most[0]);
	if (bits < INFINITE) {
		memcpy(amax, &bits, sizeof bits);
		return 0;
	}

	most[0] = _mm256_setzero_si256();
	for (k = 0; k < h; k += 8) {
		__m256i lanes = first_lanes(h - k);
		__m256i m = magnitude(_mm256_maskload_ps(w + k, lanes));
		__m256i good = _mm256_and_si256(where_finite(m), lanes);
		most[0] = _mm256_max_epu32(most[0], _mm256_and_si256(m, good));
		finite +=
			(uint64_t)__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(good)));
	}
	bits = most_of(most[0]);
	memcpy(amax, &bits, sizeof bits);
	return h - finite;
}

static float divisor(float amax)
{
	return amax < 1e-12f ? 1.0f : amax;
}

/* Codes of 8 values, or of those in `lanes`, each in an int32. `whole`, a constant: all 8 are meant and
 * finite. */
inlined __m256i codes8(const float *w, __m256i lanes, bool whole, __m256 inv)
{
	const __m256 half = _mm256_set1_ps(0x1.fffffep-2f), sign = _mm256_set1_ps(-0.0f);
	__m256 v = whole ? _mm256_loadu_ps(w) : _mm256_maskload_ps(w, lanes);
	if (!whole)
		v = _mm256_and_ps(v, _mm256_castsi256_ps(where_finite(magnitude(v)))); /* 0 * inv is 0 */
	v = _mm256_mul_ps(v, inv);
	return _mm256_cvttps_epi32(_mm256_add_ps(v, _mm256_or_ps(_mm256_and_ps(v, sign), half)));
}

/* 8 k of four rows, as packs leaves them: in lane L the bytes [row][k - 4L]; out: [k - 4L][row]. */
inlined __m256i four_rows(const float *w, uint32_t h, __m256i lanes, bool whole, const __m256 *inv)
{
	const __m256i turn = _mm256_broadcastsi128_si256(
		_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
	__m256i a = _mm256_packs_epi32(codes8(w, lanes, whole, inv[0]), codes8(w + h, lanes, whole, inv[1]));
	w += 2 * (size_t)h;
	__m256i b = _mm256_packs_epi32(codes8(w, lanes, whole, inv[2]), codes8(w + h, lanes, whole, inv[3]));
	return _mm256_shuffle_epi8(_mm256_packs_epi16(a, b), turn);
}

/* A chunk is [8 k][8 columns], k..k+7 of the tile, columns n..n+7; in two halves. */
inlined void put(struct tile *t, uint32_t n, uint32_t k, __m256i upper, __m256i lower)
{
	int8_t *to = t->codes + tile_index(t, k, n);
	char bytes[64], *chunk = t->layout == LAYOUT_BLOCKED ? (char *)to : bytes;

	_mm256_storeu_si256((__m256i *)chunk, upper);
	_mm256_storeu_si256((__m256i *)(chunk + 32), lower);
	if (t->layout == LAYOUT_ROW_MAJOR)
		for (int i = 0; i < 8; i++, to += t->nd)
			memcpy(to, bytes + 8 * i, 8);
}

/* 8 k of eight rows, or those in `lanes`, as a chunk. */
inlined void pack_step(struct tile *t, uint32_t n, uint32_t k, const float *w, uint32_t h, __m256i lanes,
		       bool whole, const __m256 inv[8])
{
	__m256i a = four_rows(w + k, h, lanes, whole, inv);
	__m256i b = four_rows(w + k + 4 * (size_t)h, h, lanes, whole, inv + 4);
	/* of lane L: k = 4L and 4L+1; 4L+2 and 4L+3; eight columns each */
	__m256i low = _mm256_unpacklo_epi32(a, b), high = _mm256_unpackhi_epi32(a, b);

	put(t, n, k, _mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

static uint64_t pack_eight(struct tile *t, uint32_t n, const float *w, uint32_t h)
{
	uint64_t nonfinite = 0;
	uint32_t k = 0;
	__m256 inv[8];

	for (int i = 0; i < 8; i++) {
		float amax;
		nonfinite += largest(&amax, w + (size_t)i * h, h);
		t->scales[n + i] = divisor(amax) / 127.0f;
		inv[i] = _mm256_set1_ps(127.0f / divisor(amax));
	}
	for (; !nonfinite && k + 8 <= h; k += 8)
		pack_step(t, n, k, w, h, first_lanes(8), true, inv);
	for (; k < h; k += 8)
		pack_step(t, n, k, w, h, first_lanes(h - k), false, inv);
	return nonfinite;
}

uint64_t pack_avx2(struct tile *t, uint32_t n, const float *w, uint32_t count, uint32_t h)
{
	uint32_t odd = -n % 8 < count ? -n % 8 : count;
	uint64_t nonfinite = pack_ref(t, n, w, odd, h);

	for (n += odd, w += (size_t)odd * h, count -= odd; count >= 8; n += 8, w += (size_t)8 * h, count -= 8)
		nonfinite += pack_eight(t, n, w, h);
	return nonfinite + pack_ref(t, n, w, count, h);
}

uint64_t quantise_avx2(int8_t *q, float *ascale, const float *x, uint32_t h, uint32_t kd)
{
	float amax;
	uint64_t nonfinite = largest(&amax, x, h);
	__m256 inv = _mm256_set1_ps(127.0f / divisor(amax));

	*ascale = divisor(amax) / 127.0f;
	for (uint32_t k = 0; k < h; k += 8) {
		__m256i codes = codes8(x + k, first_lanes(h - k), false, inv);
		__m128i words =
			_mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
		_mm_storel_epi64((__m128i *)(q + k), _mm_packs_epi16(words, words)); /* kd is whole 64s */
	}
	memset(q + h, 0, kd - h);
	return nonfinite;
}
