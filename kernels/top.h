/*
 * The k best of many values, kept while they come. Best is the larger value, among equal ones (-0 equals
 * +0) the lower id; NaN, which a head of enormous weights can give, comes after every number. The order is
 * total, so what is kept depends on neither the order nor the pieces in which values come.
 */
#ifndef NPUD_KERNELS_TOP_H
#define NPUD_KERNELS_TOP_H

#include <stdint.h>

struct top {
	uint32_t k;    /* at least 1 */
	uint32_t size; /* so far */
	uint32_t *ids; /* k of each, the caller's */
	float *values;
};

/* values[i] has the id first + i. */
void top_add(struct top *t, uint32_t first, const float *values, uint32_t count);
/* What `from` kept, which is of other ids. */
void top_merge(struct top *t, const struct top *from);
/* Puts the best first; nothing is added afterwards. */
void top_sort(struct top *t);

#endif
