#include "canary.h"
#include <string.h>

#define CODES 8u /* of a row that are not zero */

/* Row m has codes in each eighth of its length, in other places than its neighbours. */
static uint32_t place(uint32_t m, uint32_t i, uint32_t kd)
{
	return i * (kd / CODES) + (m * 5 + i * 3) % (kd / CODES);
}

void canary_codes(int8_t *codes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		codes[i] = (int8_t)((int)((i * UINT64_C(0x9e3779b97f4a7c15)) >> 40) % 255 - 127);
}

void canary_rows(int8_t *q, uint32_t rows, uint32_t kd)
{
	memset(q, 0, (size_t)rows * kd);
	for (uint32_t m = 0; m < rows; m++)
		for (uint32_t i = 0; i < CODES; i++)
			q[(size_t)m * kd + place(m, i, kd)] =
				(int8_t)((m * 31 + i * 17) % 127 + 1) * (i & 1 ? -1 : 1);
}

bool canary_right(const struct tile *t, const int8_t *q, uint32_t rows, const int32_t *acc)
{
	for (uint32_t m = 0; m < rows; m++, q += t->kd)
		for (uint32_t n = 0; n < t->nd; n++) {
			int32_t want = 0;
			for (uint32_t i = 0; i < CODES; i++) {
				uint32_t k = place(m, i, t->kd);
				want += q[k] * t->codes[tile_index(t, k, n)];
			}
			if (*acc++ != want)
				return false;
		}
	return true;
}
