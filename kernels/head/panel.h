/*
 * What the head kernels of all instruction sets share: a tile in panels of 128 columns and rows in blocks of
 * at most 16. A panel of the blocked layout is kd * 128 bytes in one piece: for more than 16 rows it comes
 * from memory once and then from the second cache. For head/ alone.
 */
#ifndef NPUD_KERNELS_PANEL_H
#define NPUD_KERNELS_PANEL_H

#include "kernels.h"
#include <string.h>

#define PANEL_COLUMNS 128
#define PANEL_ROWS 16
#define BLOCK_BYTES 8192 /* 64 k by 128 columns */

/* The sums of one panel, whatever was in `sums` before. rows: 1 to PANEL_ROWS. */
typedef void panel_fn(const int8_t *codes, const int8_t *q, uint32_t kd, uint32_t rows, bool prefetch,
		      int32_t (*sums)[PANEL_COLUMNS]);

static inline void head_by_panels(panel_fn *panel, const struct tile *t, const int8_t *q, uint32_t rows,
				  uint32_t columns, bool prefetch, int32_t *acc)
{
	_Alignas(64) int32_t sums[PANEL_ROWS][PANEL_COLUMNS];

	if (t->layout != LAYOUT_BLOCKED) {
		head_ref(t, q, rows, columns, prefetch, acc);
		return;
	}
	for (uint32_t n = 0; n < columns; n += PANEL_COLUMNS) {
		const int8_t *codes = t->codes + (size_t)n * t->kd;
		size_t wanted = columns - n < PANEL_COLUMNS ? columns - n : PANEL_COLUMNS;
		for (uint32_t m = 0, some; m < rows; m += some) {
			some = rows - m < PANEL_ROWS ? rows - m : PANEL_ROWS;
			/* Later rows find the panel in the cache. */
			panel(codes, q + (size_t)m * t->kd, t->kd, some, prefetch && m == 0, sums);
			for (uint32_t i = 0; i < some; i++)
				memcpy(acc + (size_t)(m + i) * columns + n, sums[i], wanted * sizeof **sums);
		}
	}
}

#endif
