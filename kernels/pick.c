#include "kernels.h"
#include <string.h>

unsigned cpu_have(void)
{
	unsigned have = CPU_ANY;
#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2"))
		have |= CPU_AVX2;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl"))
		have |= CPU_AVX512;
	if (__builtin_cpu_supports("avx512vnni"))
		have |= CPU_AVX512_VNNI;
#endif
	return have;
}

bool kernels_pick(struct kernels *k, unsigned have, const char *force)
{
	memset(k, 0, sizeof *k);
	if (force && !*force)
		force = NULL;
#define KERNEL(op, variant, needs)                                                          \
	if (!k->op && ((needs) & ~have) == 0 && (!force || strcmp(force, #variant) == 0)) { \
		k->op = op##_##variant;                                                     \
		k->op##_variant = #variant;                                                 \
	}
#include "kernels.def"
#undef KERNEL
	return k->pack && k->head;
}
