/* The specification of a pass over a tile: exact integer sums. */
#include "kernels.h"
#include <string.h>

/* In the order of the bytes, so that even the reference streams; the sum is the same in any order. */
static void add_blocked(const struct tile *t, const int8_t *q, uint32_t columns, int32_t *acc)
{
	const int8_t *code = t->codes;
	for (uint32_t n0 = 0; n0 < columns; n0 += 128)
		for (uint32_t k0 = 0; k0 < t->kd; k0 += 64)
			for (uint32_t k8 = k0; k8 < k0 + 64; k8 += 8)
				for (uint32_t n8 = n0; n8 < n0 + 128; n8 += 8, code += 64) {
					if (n8 >= columns)
						continue;
					int32_t sum[8] = {0};
					for (uint32_t k = 0; k < 8; k++)
						for (uint32_t n = 0; n < 8; n++)
							sum[n] += q[k8 + k] * code[k * 8 + n];
					for (uint32_t n = 0; n < 8 && n8 + n < columns; n++)
						acc[n8 + n] += sum[n];
				}
}

void head_ref(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t columns, bool prefetch,
	      int32_t *acc)
{
	(void)prefetch;
	memset(acc, 0, (size_t)rows * columns * sizeof *acc);
	for (uint32_t m = 0; m < rows; m++, q += t->kd, acc += columns) {
		if (t->layout == LAYOUT_BLOCKED) {
			add_blocked(t, q, columns, acc);
			continue;
		}
		for (uint32_t k = 0; k < t->kd; k++)
			for (uint32_t n = 0; n < columns; n++)
				acc[n] += q[k] * t->codes[(size_t)k * t->nd + n];
	}
}

void head_epilogue(float *logits, const int32_t *acc, float ascale, const float *scales, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		logits[i] = (float)acc[i] * (ascale * scales[i]);
}
