#include "sample.h"
#include "own.h"
#include "pages.h"
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

int sample_init(struct sample *s, size_t band, const struct geometry *g, struct err *err)
{
	uint32_t widths[2] = {geometry_columns(g, 0), geometry_columns(g, g->tiles - 1)};

	*s = (struct sample){.tiles = g->tiles, .h = g->h};
	for (int i = 0; i < 2; i++)
		s->count[i] = widths[i] < SAMPLE_COLUMNS ? widths[i] : SAMPLE_COLUMNS;
	s->columns = calloc(g->tiles, sizeof *s->columns);
	/* Megabytes, which no thread's heap is to keep when they are given back. */
	s->bytes = (size_t)g->tiles * SAMPLE_COLUMNS * g->h * sizeof *s->values;
	s->values = pages_new(&s->bytes);
	s->band = malloc(band * sizeof *s->band);
	if (!s->columns || !s->values || !s->band)
		return err_set(err, NPU_E_NO_MEMORY, "no memory for a sample of %" PRIu32 " tiles", g->tiles);
	for (uint32_t t = 0; t < g->tiles; t++) {
		uint32_t width = geometry_columns(g, t), count = sample_count(s, t);
		uint32_t *columns = s->columns[t], random[SAMPLE_COLUMNS] = {0};
		if (getrandom(random, sizeof random, 0) != sizeof random)
			return err_set(err, NPU_E_IO, "no random numbers for a sample");
		for (uint32_t i = 0; i < count; i++)
			columns[i] = width <= SAMPLE_COLUMNS ? i : random[i] % width;
		columns[0] = 0;
		columns[count - 1] = width - 1;
	}
	return 0;
}

void sample_fini(struct sample *s)
{
	free(s->columns);
	pages_free(s->values, s->bytes);
	free(s->band);
	memset(s, 0, sizeof *s);
}

uint32_t sample_count(const struct sample *s, uint32_t t)
{
	return s->count[t == s->tiles - 1];
}

static float *values_of(const struct sample *s, uint32_t t, uint32_t i)
{
	return s->values + ((size_t)t * SAMPLE_COLUMNS + i) * s->h;
}

void sample_stored(struct sample *s, const struct matrix *m, const struct geometry *g, uint32_t from,
		   uint32_t first, uint32_t count, const void *stored)
{
	uint64_t begin = from + (uint64_t)first * m->band_rows;
	uint64_t end = from + (uint64_t)(first + count) * m->band_rows, last = from + (uint64_t)m->nv;

	end = end < last ? end : last;
	for (uint32_t t = (uint32_t)(begin / g->nd); t < s->tiles && (uint64_t)t * g->nd < end; t++)
		for (uint32_t i = 0; i < sample_count(s, t); i++) {
			uint64_t column = (uint64_t)t * g->nd + s->columns[t][i];
			if (column < begin || column >= end)
				continue;
			uint32_t row = (uint32_t)(column - from), band = row / m->band_rows;
			matrix_decode(m, (const char *)stored + (band - first) * m->band_bytes, 1, s->band);
			memcpy(values_of(s, t, i), s->band + (size_t)(row % m->band_rows) * m->width,
			       s->h * sizeof *s->band);
		}
}

void sample_take(struct sample *s, const struct matrix *m, const struct geometry *g, uint32_t from,
		 uint32_t k, const float *row)
{
	for (uint32_t t = from / g->nd; t < s->tiles && (uint64_t)t * g->nd < from + (uint64_t)m->nv; t++)
		for (uint32_t i = 0; i < sample_count(s, t); i++) {
			uint64_t column = (uint64_t)t * g->nd + s->columns[t][i];
			if (column >= from && column < from + (uint64_t)m->nv)
				values_of(s, t, i)[k] = row[column - from];
		}
}

static bool equal(const struct tile *tile, uint32_t n, const struct tile *packed, uint32_t i, uint32_t number,
		  struct refusal *why)
{
	if (memcmp(&tile->scales[n], &packed->scales[i], sizeof(float)) != 0) {
		refusal_set(why, REFUSED_SAMPLE, number,
			    "column %" PRIu32 ": the scale is %.9g in the image and %.9g packed now", n,
			    (double)tile->scales[n], (double)packed->scales[i]);
		return false;
	}
	for (uint32_t k = 0; k < tile->kd; k++) {
		int found = tile->codes[tile_index(tile, k, n)],
		    want = packed->codes[tile_index(packed, k, i)];
		if (found == want)
			continue;
		refusal_set(why, REFUSED_SAMPLE, number,
			    "column %" PRIu32 ": the code of row %" PRIu32
			    " is %d in the image and %d packed now",
			    n, k, found, want);
		return false;
	}
	return true;
}

bool sample_agrees(const struct sample *s, uint32_t t, const struct tile *tile, pack_fn *pack,
		   struct refusal *why)
{
	/* Packed side by side into the first columns of a tile as narrow as the layout allows. */
	cleanup(freep) int8_t *codes = calloc(tile->kd, 128);
	float scales[128];
	struct tile packed = {tile->kd, 128, tile->layout, codes, scales};

	if (!codes) {
		refusal_set(why, REFUSED_SAMPLE, t, "no memory to pack it");
		return false;
	}
	pack(&packed, 0, values_of(s, t, 0), sample_count(s, t), s->h);
	for (uint32_t i = 0; i < sample_count(s, t); i++)
		if (!equal(tile, s->columns[t][i], &packed, i, t, why))
			return false;
	return true;
}
