#include "kernels.h"
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

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
	/* vpermi2b is used beside it: every processor with both is meant. */
	if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi"))
		have |= CPU_AVX512_VNNI;
	unsigned a, b, c, d;
	if ((have & CPU_AVX2) && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4))
		have |= CPU_AVX_VNNI;
#endif
	return have;
}

bool kernels_pick(struct kernels *k, unsigned have, const char *force)
{
	bool found = !force || !*force;

	memset(k, 0, sizeof *k);
#define KERNEL(op, variant, needs)                    \
	if (!found && strcmp(force, #variant) == 0) { \
		if ((unsigned)(needs) & ~have)        \
			return false;                 \
		have = needs;                         \
		found = true;                         \
	}
#include "kernels.def"
#undef KERNEL
	if (!found)
		return false;
#define KERNEL(op, variant, needs)                        \
	if (!k->op && ((unsigned)(needs) & ~have) == 0) { \
		k->op = op##_##variant;                   \
		k->op##_variant = #variant;               \
	}
#include "kernels.def"
#undef KERNEL
	return true;
}
