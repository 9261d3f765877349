/*
 * The sample that shows whose weights an image is of: of every tile the first column, the last and 6 chosen
 * at random each time, as they are in the file named now. They are packed again by the packer in use and
 * compared bit for bit: the scale and all codes, where the layout has them. A hash of stored bytes cannot
 * find an intact image of other weights; this can. Filled by one thread; then any.
 */
#ifndef NPUD_SAMPLE_H
#define NPUD_SAMPLE_H

#include "geometry.h"
#include "matrix.h"
#include "record.h"

#define SAMPLE_COLUMNS 8u

struct sample {
	uint32_t tiles, h;
	uint32_t count[2];		     /* columns of a tile; of the last one */
	uint32_t (*columns)[SAMPLE_COLUMNS]; /* [tiles], of their tile */
	float *values;			     /* [tiles][SAMPLE_COLUMNS][h] */
	size_t bytes;			     /* that `values` were given, in pages */
	float *band;			     /* room for one, decoded */
};

/* Chooses the columns; `band` values are room for a band of any matrix they are in. NO_MEMORY. */
int sample_init(struct sample *s, size_t band, const struct geometry *g, struct err *err);
void sample_fini(struct sample *s); /* zeroed is fine */

/* Columns of tile t that are sampled. */
uint32_t sample_count(const struct sample *s, uint32_t t);

/* Takes those columns that are among bands first .. first+count-1 as stored, of a matrix whose rows are the
 * columns from `from` on. */
void sample_stored(struct sample *s, const struct matrix *m, const struct geometry *g, uint32_t from,
		   uint32_t first, uint32_t count, const void *stored);
/* Takes the columns' values out of stored row k of a transposed matrix, whose columns begin with `from`. */
void sample_take(struct sample *s, const struct matrix *m, const struct geometry *g, uint32_t from,
		 uint32_t k, const float *row);

/* Whether packed tile t is of these weights; false with the column and both values. */
bool sample_agrees(const struct sample *s, uint32_t t, const struct tile *tile, pack_fn *pack,
		   struct refusal *why);

#endif
