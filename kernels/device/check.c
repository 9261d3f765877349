#include "check.h"
#include <stdlib.h>
#include <string.h>

/* The random multiplier of column n: any odd number, each as likely. */
static uint32_t multiplier(uint64_t seed, uint32_t n)
{
	uint64_t z = seed + (n + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)(z >> 32) | 1;
}

static void add_row_major(struct check *c, const int8_t *code)
{
	for (uint32_t k = 0; k < c->kd; k++, code += c->nd) {
		uint32_t sum = 0;
		for (uint32_t n = 0; n < c->nd; n++)
			sum += c->r[n] * (uint32_t)code[n];
		c->s[k] = sum;
	}
}

/* In the order of the bytes: blocks of 64 x 128, of 8 x 8 chunks. */
static void add_blocked(struct check *c, const int8_t *code)
{
	for (uint32_t n0 = 0; n0 < c->nd; n0 += 128)
		for (uint32_t k8 = 0; k8 < c->kd; k8 += 8)
			for (uint32_t n8 = n0; n8 < n0 + 128; n8 += 8, code += 64)
				for (uint32_t k = 0; k < 8; k++) {
					uint32_t sum = 0;
					for (uint32_t n = 0; n < 8; n++)
						sum += c->r[n8 + n] * (uint32_t)code[k * 8 + n];
					c->s[k8 + k] += sum;
				}
}

bool check_init(struct check *c, const struct tile *t, uint64_t seed)
{
	*c = (struct check){t->kd, t->nd, malloc(t->nd * sizeof *c->r), calloc(t->kd, sizeof *c->s)};
	if (!c->r || !c->s) {
		check_fini(c);
		return false;
	}
	for (uint32_t n = 0; n < t->nd; n++)
		c->r[n] = multiplier(seed, n);
	if (t->layout == LAYOUT_BLOCKED)
		add_blocked(c, t->codes);
	else
		add_row_major(c, t->codes);
	return true;
}

void check_fini(struct check *c)
{
	free(c->r);
	free(c->s);
	memset(c, 0, sizeof *c);
}

uint32_t check_rows(const struct check *c, residue_fn *residue, const int8_t *q, uint32_t rows,
		    const int32_t *acc)
{
	for (uint32_t m = 0; m < rows; m++, q += c->kd, acc += c->nd)
		if (residue(acc, c->r, c->nd, q, c->s, c->kd))
			return m;
	return rows;
}
