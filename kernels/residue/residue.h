/* The specification, and what every variant is: plain sums, of which a compiler makes the vectors of its
 * file. */
#include "kernels.h"

static inline __attribute__((always_inline)) uint32_t
residue(const int32_t *acc, const uint32_t *r, uint32_t nd, const int8_t *q, const uint32_t *s, uint32_t kd)
{
	uint32_t got = 0, want = 0;

	for (uint32_t n = 0; n < nd; n++)
		got += (uint32_t)acc[n] * r[n];
	for (uint32_t k = 0; k < kd; k++)
		want += (uint32_t)q[k] * s[k];
	return got - want;
}
