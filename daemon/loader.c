#include "loader.h"
#include "own.h"
#include <stdio.h>
#include <string.h>

#define SLICE \
	((size_t)4 << 20) /* bytes read at once, about; also the float32 they become is a few of these */

int load_new(struct load **out, struct load_request *request, int fd, const struct hash_secret *secret,
	     const struct kernels *kernels)
{
	struct load *l = calloc(1, sizeof *l);
	if (!l)
		return NPU_E_NO_MEMORY;
	l->request = *request;
	request->tensor = NULL;
	l->fd = fd;
	l->secret = secret;
	l->kernels = kernels;
	*out = l;
	return 0;
}

void load_free(struct load *l)
{
	if (!l)
		return;
	container_free(l->container);
	image_fini(&l->image);
	free(l->amax);
	free(l->request.tensor);
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}

static int cancelled(struct err *err)
{
	return err_set(err, NPU_E_CANCELLED, "loading was cancelled: nobody waits for it any more");
}

/* Bands of one slice: about SLICE bytes as stored, and as many as leave the float32 copy at a few slices. */
static uint32_t slice_bands(const struct matrix *m)
{
	uint64_t as_float = (uint64_t)m->band_rows * m->width * sizeof(float);
	uint64_t larger = m->band_bytes > as_float ? m->band_bytes : as_float;
	uint64_t bands = SLICE / larger;
	return bands ? bands : 1;
}

/* What a pass does with a decoded slice: stored rows first .. first+rows-1. */
typedef void slice_fn(struct load *l, uint32_t first, uint32_t rows, const float *values);

/* Reads, hashes and hands on the whole matrix, slice by slice. `each` NULL: only hash. */
static int pass(struct load *l, slice_fn *each, unsigned char hash[16], struct err *err)
{
	const struct matrix *m = &l->matrix;
	uint32_t bands = matrix_bands(m), step = slice_bands(m);
	cleanup(hasher_freep) struct hasher *hasher = NULL;
	uint64_t slice = step * m->band_bytes;
	cleanup(freep) void *stored = malloc(slice);
	cleanup(freep) float *values =
		each ? malloc((size_t)step * m->band_rows * m->width * sizeof *values) : NULL;

	if (!stored || (each && !values) || hasher_new(&hasher, l->secret))
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for a slice of %llu bytes",
			       l->request.label, (unsigned long long)slice);
	for (uint32_t at = 0; at < bands; at += step) {
		uint32_t count = bands - at < step ? bands - at : step;
		if (atomic_load(&l->stop))
			return cancelled(err);
		int r = matrix_read(m, at, count, stored, err);
		if (r)
			return r;
		hasher_add(hasher, stored, count * m->band_bytes);
		if (!each)
			continue;
		uint32_t first = at * m->band_rows, rows = count * m->band_rows;
		matrix_decode(m, stored, count, values);
		each(l, first, m->rows - first < rows ? m->rows - first : rows, values);
	}
	hasher_end(hasher, m, hash);
	return 0;
}

static void take_amax(struct load *l, uint32_t first, uint32_t rows, const float *values)
{
	(void)first;
	for (uint32_t i = 0; i < rows; i++)
		l->nonfinite += pack_amax(l->amax, values + (size_t)i * l->matrix.width, l->matrix.width);
}

int load_identify(struct load *l, struct err *err)
{
	const struct load_request *q = &l->request;
	const struct tensor *tensor;
	int r = container_open(&l->container, &(struct container_file){l->fd, q->label}, 1, q->label, err);
	if (r == 0)
		r = container_head(l->container, q->tensor, &tensor, &l->why, err);
	if (r == 0)
		r = matrix_init(&l->matrix, l->container, tensor, q->transpose, l->why == HEAD_TIED, err);
	if (r)
		return r;
	if (!geometry_make(&l->geometry, l->matrix.nv, l->matrix.h, q->tile, q->layout)) {
		uint32_t kd = (l->matrix.h + 63) / 64 * 64;
		return err_set(err, NPU_E_BAD_GEOMETRY,
			       "%s: kd=%u T=%u does not go: %s, and T is at most the %u vocabulary rows "
			       "rounded up to 128",
			       q->label, kd, q->tile,
			       q->layout == LAYOUT_BLOCKED
				       ? "the blocked layout needs kd %% 64 == 0 and T %% 128 == 0"
				       : "row-major takes any T",
			       l->matrix.nv);
	}
	if (l->matrix.transposed && !(l->amax = calloc(l->matrix.nv, sizeof *l->amax)))
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for %u columns", q->label, l->matrix.nv);
	return pass(l, l->matrix.transposed ? take_amax : NULL, l->hash, err);
}

/* Stored rows are vocabulary rows: each is a column of a tile. */
static void pack_columns(struct load *l, uint32_t first, uint32_t rows, const float *values)
{
	const struct geometry *g = &l->geometry;
	while (rows) {
		struct tile tile = image_tile(&l->image, first / g->nd);
		uint32_t n = first % g->nd, count = g->nd - n < rows ? g->nd - n : rows;
		l->nonfinite += l->kernels->pack(&tile, n, values, count, g->h);
		values += (size_t)count * g->h;
		first += count;
		rows -= count;
		atomic_store(&l->tiles_done, first / g->nd);
	}
}

/* Stored rows are hidden rows: each has one code of every column, whose scales the first pass found. */
static void pack_hidden(struct load *l, uint32_t first, uint32_t rows, const float *values)
{
	const struct geometry *g = &l->geometry;
	for (uint32_t i = 0; i < rows; i++, values += g->nv)
		for (uint32_t t = 0; t < g->tiles; t++) {
			struct tile tile = image_tile(&l->image, t);
			size_t from = (size_t)t * g->nd;
			pack_row(&tile, 0, first + i, l->amax + from, values + from, geometry_columns(g, t));
		}
}

int load_pack(struct load *l, struct err *err)
{
	const struct geometry *g = &l->geometry;
	unsigned char hash[16];

	if (!image_init(&l->image, g))
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for a head of %llu bytes",
			       l->request.label, (unsigned long long)geometry_bytes(g));
	for (uint32_t t = 0; t < g->tiles; t++) {
		struct tile tile = image_tile(&l->image, t);
		if (l->matrix.transposed)
			pack_scales(&tile, 0, l->amax + (size_t)t * g->nd, geometry_columns(g, t));
		tile_pad(&tile, geometry_columns(g, t));
	}
	int r = pass(l, l->matrix.transposed ? pack_hidden : pack_columns, hash, err);
	if (r)
		return r;
	/* What was packed must be what was named, or somebody else would be served it under that name. */
	if (memcmp(hash, l->hash, sizeof hash) != 0)
		return err_set(
			err, NPU_E_FILE_CHANGED,
			"%s: the file was rewritten while it was read; nothing was kept. Open it again",
			l->request.label);
	atomic_store(&l->tiles_done, g->tiles);
	return 0;
}
