/*
 * What this program's packer and decoders make of a built-in fixture, as 64 bits. Stored beside every packed
 * image: one that another packer made is not used, whether somebody remembered to bump a number or not. Any
 * thread; a few milliseconds.
 */
#ifndef NPUD_FINGERPRINT_H
#define NPUD_FINGERPRINT_H

#include "decode.h"
#include "kernels.h"

/*
 * The fixture: columns of different magnitudes with ties on both sides of zero, values that are not finite,
 * denormals, nothing but zeros, nothing above 1e-13; in both layouts, with padding; and bytes read as each
 * type a container may have. The same for every variant of either, or one of them is wrong. 0: no memory.
 */
uint64_t fingerprint(const struct kernels *kernels, const struct decoders *decoders);

/* The fixture's columns, w[FINGERPRINT_NV][FINGERPRINT_H], for the test that looks at it. */
enum { FINGERPRINT_NV = 200, FINGERPRINT_H = 75 };
void fingerprint_columns(float *w);

#endif
