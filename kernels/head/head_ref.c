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

void head_ref(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t columns, int32_t *acc)
{
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

/* Whether word a is a worse answer than word b: smaller, or equal with the higher id. */
static bool worse(const float *values, uint32_t a, uint32_t b)
{
	return values[a] < values[b] || (values[a] == values[b] && a > b);
}

/* Moves the entry at `at` down in a heap whose top is the worst of the best. */
static void sink(uint32_t *heap, uint32_t size, uint32_t at, const float *values)
{
	for (;;) {
		uint32_t least = at, left = 2 * at + 1, right = left + 1;
		if (left < size && worse(values, heap[left], heap[least]))
			least = left;
		if (right < size && worse(values, heap[right], heap[least]))
			least = right;
		if (least == at)
			return;
		uint32_t swap = heap[at];
		heap[at] = heap[least];
		heap[least] = swap;
		at = least;
	}
}

void head_top(uint32_t *ids, float *best, uint32_t k, const float *values, uint32_t n)
{
	if (k == 0)
		return;
	for (uint32_t i = 0; i < k; i++)
		ids[i] = i;
	for (uint32_t i = k / 2; i-- > 0;)
		sink(ids, k, i, values);
	for (uint32_t i = k; i < n; i++)
		if (worse(values, ids[0], i)) {
			ids[0] = i;
			sink(ids, k, 0, values);
		}
	for (uint32_t size = k - 1; size > 0; size--) { /* the worst goes to the end, again and again */
		uint32_t swap = ids[0];
		ids[0] = ids[size];
		ids[size] = swap;
		sink(ids, size, 0, values);
	}
	for (uint32_t i = 0; i < k; i++)
		best[i] = values[ids[i]];
}
