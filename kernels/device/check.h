/*
 * The check of every launch. A device may report success over garbage; so for every tile
 * s[k] = sum over n of r[n] * B[k][n] is made once, with random odd r, and after a launch
 * sum r[n] * C[m][n] must be sum A[m][k] * s[k] for every row m, all modulo 2^32. One bit that is wrong in a
 * row is always seen, any other wrong row but with a chance of about 2^-32. Pure; any thread.
 */
#ifndef NPUD_CHECK_H
#define NPUD_CHECK_H

#include "kernels.h"

struct check {
	uint32_t kd, nd;
	uint32_t *r; /* nd */
	uint32_t *s; /* kd */
};

/* Reads the tile's codes once. `seed` is random and nobody's business. False where there is no memory. */
bool check_init(struct check *c, const struct tile *t, uint64_t seed);
void check_fini(struct check *c); /* zeroed is fine */

/*
 * The first of `rows` rows of acc[rows][nd] that is not q[rows][kd] times the tile; `rows` where all are. Any
 * variant of `residue`.
 */
uint32_t check_rows(const struct check *c, residue_fn *residue, const int8_t *q, uint32_t rows,
		    const int32_t *acc);

#endif
