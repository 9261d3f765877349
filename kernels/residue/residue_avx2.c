#include "residue.h"

uint32_t residue_avx2(const int32_t *acc, const uint32_t *r, uint32_t nd, const int8_t *q, const uint32_t *s,
		      uint32_t kd)
{
	return residue(acc, r, nd, q, s, kd);
}
