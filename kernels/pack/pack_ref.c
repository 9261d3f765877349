/* The specification of packing, written to be believed; every step is one float32 operation. */
#include "kernels.h"
#include <math.h>

size_t tile_index(const struct tile *t, uint32_t k, uint32_t n)
{
	if (t->layout == LAYOUT_ROW_MAJOR)
		return (size_t)k * t->nd + n;
	size_t block = (size_t)(n / 128) * (t->kd / 64) + k / 64;
	return block * 8192 + (k % 64 / 8) * 1024 + (n % 128 / 8) * 64 + (k % 8) * 8 + n % 8;
}

struct tile tile_from(const struct tile *t, uint32_t n)
{
	size_t skip = t->layout == LAYOUT_BLOCKED ? (size_t)n * t->kd : n;
	return (struct tile){t->kd, t->nd, t->layout, t->codes + skip, t->scales + n};
}

static float divisor(float amax)
{
	return amax < 1e-12f ? 1.0f : amax;
}

static int8_t code_of(float w, float inv)
{
	if (!isfinite(w))
		return 0;
	float c = roundf(w * inv);
	return (int8_t)(c > 127.0f ? 127.0f : c < -127.0f ? -127.0f : c);
}

void tile_pad(struct tile *t, uint32_t from)
{
	for (uint32_t n = from; n < t->nd; n++) {
		t->scales[n] = 1.0f / 127.0f;
		for (uint32_t k = 0; k < t->kd; k++)
			t->codes[tile_index(t, k, n)] = 0;
	}
}

uint64_t pack_amax(float *amax, const float *row, uint32_t count)
{
	uint64_t nonfinite = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (!isfinite(row[i]))
			nonfinite++;
		else if (fabsf(row[i]) > amax[i])
			amax[i] = fabsf(row[i]);
	}
	return nonfinite;
}

void pack_scales(struct tile *t, uint32_t n, const float *amax, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		t->scales[n + i] = divisor(amax[i]) / 127.0f;
}

void pack_row(struct tile *t, uint32_t n, uint32_t k, const float *amax, const float *row, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		t->codes[tile_index(t, k, n + i)] = code_of(row[i], 127.0f / divisor(amax[i]));
}

uint64_t pack_ref(struct tile *t, uint32_t n, const float *w, uint32_t count, uint32_t h)
{
	uint64_t nonfinite = 0;
	for (uint32_t i = 0; i < count; i++, w += h) {
		float amax = 0;
		for (uint32_t k = 0; k < h; k++)
			nonfinite += pack_amax(&amax, &w[k], 1);
		pack_scales(t, n + i, &amax, 1);
		for (uint32_t k = 0; k < h; k++)
			pack_row(t, n + i, k, &amax, &w[k], 1);
	}
	return nonfinite;
}

uint64_t quantise_ref(int8_t *q, float *ascale, const float *x, uint32_t h, uint32_t kd)
{
	float amax = 0;
	uint64_t nonfinite = 0;
	for (uint32_t k = 0; k < h; k++)
		nonfinite += pack_amax(&amax, &x[k], 1);
	*ascale = divisor(amax) / 127.0f;
	for (uint32_t k = 0; k < kd; k++)
		q[k] = k < h ? code_of(x[k], 127.0f / divisor(amax)) : 0;
	return nonfinite;
}
