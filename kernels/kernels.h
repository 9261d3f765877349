/*
 * The arithmetic of heads: packing columns to int8 and running activation rows over packed tiles.
 * No idea of clients, files or errors; any thread. Every variant gives the bits of the reference.
 * The rules are docs/numbers.md.
 */
#ifndef NPUD_KERNELS_H
#define NPUD_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum layout { LAYOUT_ROW_MAJOR = 0, LAYOUT_BLOCKED = 1 };

/* A packed tile: codes[kd * nd] in its layout and a scale a column. */
struct tile {
	uint32_t kd, nd; /* rows (hidden, padded) and columns (vocabulary, padded) */
	enum layout layout;
	int8_t *codes;
	float *scales; /* nd */
};

/* Where the code of (k, n) is in a tile. */
size_t tile_index(const struct tile *t, uint32_t k, uint32_t n);

/* The tile that begins at column n of t (in the blocked layout n % 128 == 0); nd stays, for it is the stride.
 */
struct tile tile_from(const struct tile *t, uint32_t n);

/* Makes columns from..nd-1 what a column of zeros packs to: codes 0, scale 1/127. */
void tile_pad(struct tile *t, uint32_t from);

/*
 * Packs `count` columns of `h` values, w[count][h], to columns n.. of a tile whose codes are zero; rows
 * h..kd-1 stay zero. Values that are not finite count as 0. Returns how many were not.
 */
typedef uint64_t pack_fn(struct tile *t, uint32_t n, const float *w, uint32_t count, uint32_t h);

/*
 * The same for a matrix that is stored row k after row k, in two passes over it: amax[count] takes the
 * largest finite magnitude of every column (begin with zeros; returns how many values were not finite), then,
 * after tile_scales, each row gives its codes.
 */
uint64_t pack_amax(float *amax, const float *row, uint32_t count);
void pack_scales(struct tile *t, uint32_t n, const float *amax, uint32_t count);
void pack_row(struct tile *t, uint32_t n, uint32_t k, const float *amax, const float *row, uint32_t count);

/* One activation row as codes: q[kd], the scale, and how many values were not finite and count as 0. */
typedef uint64_t quantise_fn(int8_t *q, float *ascale, const float *x, uint32_t h, uint32_t kd);

/*
 * acc[rows][columns] = q[rows][kd] x codes, exact in int32, for the first `columns` columns of the tile.
 * kd is at most 133,144 rounded up, of which the padding is zero: no sum can wrap. `prefetch`: ask
 * for the codes ahead of their use even where they are read in order, which is faster or slower as the
 * machine's memory is (image_measure). No value of q is -128.
 */
typedef void head_fn(const struct tile *t, const int8_t *q, uint32_t rows, uint32_t columns, bool prefetch,
		     int32_t *acc);

/*
 * What is left of a row of sums, acc[nd], weighed by r[nd], when its activations, q[kd], weighed by s[kd] are
 * taken away; modulo 2^32. 0 where the sums are right (device/check.h).
 */
typedef uint32_t residue_fn(const int32_t *acc, const uint32_t *r, uint32_t nd, const int8_t *q,
			    const uint32_t *s, uint32_t kd);

/* logits[i] = (float)acc[i] * (ascale * scales[i]), in this association. */
void head_epilogue(float *logits, const int32_t *acc, float ascale, const float *scales, uint32_t count);

enum cpu_needs { CPU_ANY = 0, CPU_AVX2 = 1, CPU_AVX512 = 2, CPU_AVX512_VNNI = 4, CPU_AVX_VNNI = 8 };

struct kernels {
	pack_fn *pack;
	quantise_fn *quantise;
	head_fn *head;
	residue_fn *residue;
	bool prefetch; /* for head; false until it is measured */
	const char *pack_variant, *quantise_variant, *head_variant, *residue_variant;
};

/* What this processor and system can do: bits of cpu_needs. */
unsigned cpu_have(void);

/*
 * The best variants for a processor that has `have`; pure. `force` names a variant: every operation is then
 * picked for a processor that has just what that variant needs ("ref": nothing). NULL or "" leaves the
 * choice. False where there is no such variant or the processor cannot run it.
 */
bool kernels_pick(struct kernels *k, unsigned have, const char *force);

#define KERNEL(op, variant, needs) op##_fn op##_##variant;
#include "kernels.def"
#undef KERNEL

#endif
