#include "fingerprint.h"
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>

/*
 * Images that were stored before a change of this value are packed anew by everybody who has them. It changes
 * with the packing, a decoder, or a type that becomes readable; change it then, and say so in the commit.
 */
#define PINNED UINT64_C(0x14c82ab8ff09b4ae)

static const char *const variants[] = {"ref", "avx2", "avx512"};

Test(fingerprint, every_variant_of_packer_and_decoders_gives_the_pinned_value)
{
	int ran = 0;
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
		struct kernels kernels;
		if (!kernels_pick(&kernels, cpu_have(), variants[i]))
			continue;
		for (size_t d = 0; decoders_variant(d); d++, ran++)
			cr_expect_eq(fingerprint(&kernels, decoders_variant(d)), PINNED,
				     "pack %s, decoders %s: %016" PRIx64, kernels.pack_variant,
				     decoders_variant(d)->variant,
				     fingerprint(&kernels, decoders_variant(d)));
	}
	cr_expect(ran > 0);
}

/* Two columns hold nothing and have the scale of zeros; were others alike, a wrong scale could go unseen. */
Test(fingerprint, every_column_that_holds_something_has_a_scale_of_its_own)
{
	static float w[FINGERPRINT_NV * FINGERPRINT_H];
	int8_t codes[128 * 256];
	float scales[256];
	struct tile t = {128, 256, LAYOUT_BLOCKED, codes, scales};
	unsigned ties[2] = {0}, odd = 0;

	fingerprint_columns(w);
	pack_ref(&t, 0, w, FINGERPRINT_NV, FINGERPRINT_H);
	for (int n = 0; n < FINGERPRINT_NV - 2; n++)
		for (int other = n + 1; other < FINGERPRINT_NV; other++)
			cr_assert_neq(scales[n], scales[other], "columns %d and %d", n, other);
	cr_expect(scales[198] == scales[199] && scales[199] == 1.0f / 127.0f);

	for (int i = 0; i < FINGERPRINT_NV * FINGERPRINT_H; i++) {
		float v = w[i] * (127.0f / (scales[i / FINGERPRINT_H] * 127.0f));
		odd += !isfinite(w[i]) || fpclassify(w[i]) == FP_SUBNORMAL;
		if (fabsf(v) < 127 && fabsf(v) - floorf(fabsf(v)) == 0.5f)
			ties[v < 0]++;
	}
	cr_expect(ties[0] > 900 && ties[1] > 900, "%u and %u ties", ties[0], ties[1]);
	cr_expect(odd >= 90, "%u odd values", odd);
}
