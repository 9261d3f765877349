#include "loader.h"
#include "pages.h"
#include "own.h"
#include "pool.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <uv.h>

#define SLICE ((size_t)2 << 20)	 /* bytes of a slice, about, as stored or as float32 */
#define ROOMS ((size_t)48 << 20) /* bytes of the slices of all threads, but one there must be */

int load_new(struct load **out, struct load_request *request, struct source *source, struct imagestore *store,
	     const struct hash_secret *secret, const struct kernels *kernels, unsigned threads)
{
	struct load *l = calloc(1, sizeof *l);
	if (!l)
		return NPU_E_NO_MEMORY;
	l->request = *request;
	request->tensor = NULL;
	l->source = *source;
	*source = (struct source){.files = NULL};
	l->store = store;
	l->secret = secret;
	l->kernels = kernels;
	l->threads = threads;
	*out = l;
	return 0;
}

/* What load_identify and load_fill make. */
static void forget(struct load *l)
{
	container_free(take(&l->container));
	image_fini(&l->image);
	placement_fini(&l->placement);
	sample_fini(&l->sample);
	free(take(&l->tiles));
	free(take(&l->amax));
}

void load_doubt(struct load *l)
{
	known_forget(l->known, &l->name);
	l->known = NULL;
	l->doubted = true;
	forget(l);
	l->nonfinite = 0;
	l->from_store = l->packed = l->refused = 0;
	l->refusals[0] = '\0';
	atomic_store(&l->gathered, 0);
	atomic_store(&l->tiles_done, 0);
}

void load_free(struct load *l)
{
	if (!l)
		return;
	forget(l);
	free(l->request.tensor);
	source_fini(&l->source);
	free(l);
}

static void pool_freep(struct pool **p)
{
	pool_free(*p);
}

static int cancelled(struct err *err)
{
	return err_set(err, NPU_E_CANCELLED, "loading was cancelled: nobody waits for it any more");
}

/* What a pass does with a decoded slice: stored rows first .. first+rows-1. */
typedef void slice_fn(struct load *l, const struct load_part *part, uint32_t first, uint32_t rows,
		      const float *values);

/*
 * One reading of a whole matrix, slice by slice, by several threads at once. They read and pack beside
 * each other; the hash, whose bytes have an order, and `in_order` run in the order of the slices, each
 * slice by the thread that read it, while it is in that thread's cache.
 */
struct reading {
	struct load *load;
	const struct load_part *part;
	slice_fn *in_order, *each; /* NULL: nothing */
	bool sampling;		   /* the sample is taken from the bytes that are hashed */
	uint32_t bands, step;	   /* of the matrix; of one slice */
	size_t stored, room;	   /* bytes of a slice as stored; with its float32, a thread's room */
	char *rooms;
	struct hasher *hasher;

	uv_mutex_t lock;
	uv_cond_t turns;
	uint32_t turn; /* the slice the hash waits for */
	uint32_t rows_done;
	int result;
	struct err *err; /* of the first that failed */
};

/* Whether any tile that stored rows first .. first+rows-1 belong to is to be packed. */
static bool is_packed(const struct load *l, const struct load_part *part, uint32_t first, uint32_t rows)
{
	const struct matrix *m = &part->matrix;
	uint32_t from = part->from + (m->transposed ? 0 : first), count = m->transposed ? m->nv : rows;
	uint32_t t = from / l->geometry.nd, last = (from + count - 1) / l->geometry.nd;

	while (t < last && !l->tiles[t].packed)
		t++;
	return l->tiles[t].packed;
}

static void take_slice(void *arg, uint32_t i, unsigned thread)
{
	struct reading *g = arg;
	struct load *l = g->load;
	const struct matrix *m = &g->part->matrix;
	uint32_t at = i * g->step, count = g->bands - at < g->step ? g->bands - at : g->step;
	uint32_t first = at * m->band_rows, rows = count * m->band_rows;
	char *stored = g->rooms + thread * g->room;
	float *values = (float *)(m->tensor->type == TYPE_F32 ? stored : stored + g->stored);
	struct err err;
	int r = atomic_load(&l->stop) ? cancelled(&err) : matrix_read(m, at, count, stored, &err);

	rows = m->rows - first < rows ? m->rows - first : rows;
	bool wanted = g->in_order || (g->each && is_packed(l, g->part, first, rows));
	if (r == 0 && wanted && values != (float *)stored)
		matrix_decode(m, stored, count, values);

	uv_mutex_lock(&g->lock);
	while (g->turn != i)
		uv_cond_wait(&g->turns, &g->lock);
	if (r && !g->result) {
		g->result = r;
		*g->err = err;
	}
	bool go = !g->result;
	uv_mutex_unlock(&g->lock);
	if (go) {
		hasher_add(g->hasher, stored, count * m->band_bytes);
		if (g->sampling)
			sample_stored(&l->sample, m, &l->geometry, g->part->from, at, count, stored);
		if (g->in_order)
			g->in_order(l, g->part, first, rows, values);
	}
	uv_mutex_lock(&g->lock);
	g->turn++;
	uv_cond_broadcast(&g->turns);
	uv_mutex_unlock(&g->lock);
	if (!go || !g->each)
		return;
	if (wanted)
		g->each(l, g->part, first, rows, values);
	uv_mutex_lock(&g->lock);
	g->rows_done += rows;
	/* Slices end in any order: so much is done, of whichever tile. Transposed, none is done before all
	 * are. */
	if (!m->transposed)
		atomic_store(&l->tiles_done, (g->part->from + g->rows_done) / l->geometry.nd);
	uv_mutex_unlock(&g->lock);
}

static size_t whole_lines(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* How the matrix is cut: g->bands, step, stored and room. Returns how many threads have a slice at once. */
static uint32_t cut(struct reading *g, const struct load *l, const struct load_part *part)
{
	const struct matrix *m = &part->matrix;
	uint64_t as_float = (uint64_t)m->band_rows * m->width * sizeof(float);
	uint64_t step = SLICE / (m->band_bytes > as_float ? m->band_bytes : as_float);
	/* The sample keeps a band as float32, too. */
	uint64_t rooms = ROOMS - (as_float < ROOMS / 2 ? as_float : ROOMS / 2);
	uint64_t most = rooms / (m->band_bytes + as_float), whole = m->band_rows % 8 ? 8 : 1;

	/* Whole chunks of the blocked layout, which two threads should not share, but where they are wide. */
	step = step < whole ? whole : step / whole * whole;
	step = step < most ? step : most ? most : 1;
	g->bands = matrix_bands(m);
	g->step = step < g->bands ? (uint32_t)step : g->bands;
	g->stored = whole_lines(g->step * m->band_bytes);
	g->room = g->stored + (m->tensor->type == TYPE_F32 ? 0 : whole_lines(g->step * as_float));
	uint32_t slices = (g->bands + g->step - 1) / g->step, threads = (uint32_t)(rooms / g->room);
	threads = threads < l->threads ? threads : l->threads;
	threads = threads < slices ? threads : slices;
	return threads ? threads : 1;
}

uint64_t load_transient(const struct load *l)
{
	uint64_t most = 0;
	for (unsigned i = 0; i < l->part_count; i++) {
		struct reading g;
		uint64_t bytes = cut(&g, l, &l->parts[i]);
		bytes *= g.room;
		most = bytes > most ? bytes : most;
	}
	return most + (l->amax ? l->geometry.nv * sizeof *l->amax : 0);
}

/* Reads, hashes and hands on one whole matrix. */
static int read_part(struct load *l, const struct load_part *part, slice_fn *in_order, slice_fn *each,
		     unsigned char hash[16], struct err *err)
{
	struct reading g = {.load = l,
			    .part = part,
			    .in_order = in_order,
			    .each = each,
			    .sampling = !each && !part->matrix.transposed,
			    .err = err};
	uint32_t threads = cut(&g, l, part), slices = (g.bands + g.step - 1) / g.step;
	size_t size = threads * g.room;
	cleanup(hasher_freep) struct hasher *hasher = NULL;
	cleanup(pool_freep) struct pool *pool = NULL;

	if (hasher_new(&hasher, l->secret) || !pool_new(&pool, threads) || !(g.rooms = pages_new(&size)))
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for slices of %zu bytes",
			       l->request.label, g.stored);
	g.hasher = hasher;
	uv_mutex_init(&g.lock);
	uv_cond_init(&g.turns);
	pool_run(pool, slices, take_slice, &g);
	uv_cond_destroy(&g.turns);
	uv_mutex_destroy(&g.lock);
	pages_free(g.rooms, size);
	if (g.result == 0)
		hasher_end(hasher, &part->matrix, hash);
	return g.result;
}

static void take_amax(struct load *l, const struct load_part *part, uint32_t first, uint32_t rows,
		      const float *values)
{
	const struct matrix *m = &part->matrix;
	uint64_t nonfinite = 0;
	for (uint32_t i = 0; i < rows; i++, values += m->width) {
		nonfinite += pack_amax(l->amax + part->from, values, m->width);
		sample_take(&l->sample, m, &l->geometry, part->from, first + i, values);
	}
	/* Which column each is of is not kept: the first tile has them all. */
	atomic_fetch_add(&l->tiles[part->from / l->geometry.nd].nonfinite, nonfinite);
}

/* Finds the tensors and what shape they have together. */
static int find_parts(struct load *l, struct err *err)
{
	const struct load_request *q = &l->request;
	const char *name = q->tensor;
	uint64_t columns = 0;

	for (l->part_count = 0; l->part_count < (q->tensors ? q->tensors : 1); name += strlen(name) + 1) {
		struct load_part *part = &l->parts[l->part_count];
		const struct matrix *m = &part->matrix;
		const struct tensor *tensor;
		enum head_reason why;
		char shown[2][128];
		int r = container_head(l->container, name, &tensor, &why, err);
		if (r == 0)
			r = matrix_init(&part->matrix, l->container, tensor, &q->options, why == HEAD_TIED,
					err);
		if (r)
			return r;
		if (m->h != l->parts[0].matrix.h || columns + m->nv > UINT32_MAX)
			return err_set(err, NPU_E_BAD_GEOMETRY,
				       "%s: %s has H=%u and %s H=%u: only matrices of the same H, with fewer "
				       "than 2^32 columns together, go side by side",
				       q->label, err_printable(shown[0], sizeof shown[0], name, strlen(name)),
				       m->h,
				       err_printable(shown[1], sizeof shown[1], q->tensor, strlen(q->tensor)),
				       l->parts[0].matrix.h);
		part->from = (uint32_t)columns;
		columns += m->nv;
		l->why = why;
		l->part_count++;
	}
	l->geometry.nv = (uint32_t)columns;
	l->geometry.h = l->parts[0].matrix.h;
	return 0;
}

/* Several hashes in their order have one: design 10, section 7. */
static int hash_parts(struct load *l, struct err *err)
{
	cleanup(hasher_freep) struct hasher *hasher = NULL;

	if (l->part_count == 1) {
		memcpy(l->hash, l->parts[0].hash, sizeof l->hash);
		return 0;
	}
	if (hasher_new(&hasher, l->secret))
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for a hash", l->request.label);
	for (unsigned i = 0; i < l->part_count; i++)
		hasher_add(hasher, l->parts[i].hash, sizeof l->parts[i].hash);
	hasher_end_plain(hasher, l->hash);
	return 0;
}

static void name_files(const struct load *l, struct known_name *out)
{
	const struct load_request *q = &l->request;
	const char *end = q->tensor;
	struct timespec now;

	for (unsigned i = 0; i < l->part_count; i++)
		end += strlen(end) + 1;
	clock_gettime(CLOCK_REALTIME, &now);
	known_name_make(out, &l->source, q->tensor, (size_t)(end - q->tensor), &q->options, l->reader,
			(int64_t)now.tv_sec * 1000000000 + now.tv_nsec, l->secret);
}

/* Whether the parts have hashes without being read. */
static bool find_known(struct load *l)
{
	struct content_hashes hashes;

	if (!l->known || !known_find(l->known, &l->name, &hashes) || hashes.count != l->part_count)
		return false;
	for (unsigned i = 0; i < l->part_count; i++)
		memcpy(l->parts[i].hash, hashes.of[i], sizeof hashes.of[i]);
	return true;
}

/* Of one part, the bands with columns of the sample and nothing else. */
static int read_sample(struct load *l, const struct load_part *part, void *stored, struct err *err)
{
	const struct matrix *m = &part->matrix;
	const struct geometry *g = &l->geometry;
	uint64_t end = part->from + (uint64_t)m->nv;

	for (uint32_t t = part->from / g->nd; t < g->tiles && (uint64_t)t * g->nd < end; t++)
		for (uint32_t i = 0; i < sample_count(&l->sample, t); i++) {
			uint64_t column = (uint64_t)t * g->nd + l->sample.columns[t][i];
			if (column < part->from || column >= end)
				continue;
			uint32_t band = (uint32_t)(column - part->from) / m->band_rows;
			int r = atomic_load(&l->stop) ? cancelled(err) : matrix_read(m, band, 1, stored, err);
			if (r)
				return r;
			sample_stored(&l->sample, m, g, part->from, band, 1, stored);
		}
	return 0;
}

static int read_samples(struct load *l, struct err *err)
{
	int r = 0;

	for (unsigned i = 0; i < l->part_count && r == 0; i++) {
		const struct load_part *part = &l->parts[i];
		cleanup(freep) void *stored = malloc(part->matrix.band_bytes);
		r = stored ? read_sample(l, part, stored, err)
			   : err_set(err, NPU_E_NO_MEMORY, "%s: no memory for a sample", l->request.label);
	}
	return r;
}

/* Reads all parts whole, and keeps in mind what they hashed to if nothing touched them meanwhile. */
static int hash_all(struct load *l, struct err *err)
{
	struct known_name after;
	struct content_hashes hashes = {.count = l->part_count};

	l->hashed = true;
	for (unsigned i = 0; i < l->part_count; i++) {
		struct load_part *part = &l->parts[i];
		int r = read_part(l, part, part->matrix.transposed ? take_amax : NULL, NULL, part->hash, err);
		if (r)
			return r;
		memcpy(hashes.of[i], part->hash, sizeof part->hash);
	}
	if (l->known) {
		name_files(l, &after);
		known_learn(l->known, &l->name, &after, &hashes);
	}
	return 0;
}

/* Whether the device is to run it: who names a tile has a geometry of their own, which is the host's. */
static bool choose_design(struct load *l)
{
	const struct load_request *q = &l->request;
	unsigned layouts = q->any_layout ? PLACEMENT_ANY_LAYOUT : 1u << q->layout;

	return q->tile == 0 &&
	       placement_choose(&l->placement, &l->geometry, l->geometry.nv, l->geometry.h, layouts);
}

int load_identify(struct load *l, struct err *err)
{
	const struct load_request *q = &l->request;
	bool transposed = false;
	size_t band = 0; /* values of the largest */
	l->part_count = q->tensors ? q->tensors : 1;
	if (l->known)
		name_files(l, &l->name);
	int r = source_open(&l->container, &l->source, q->label, err);
	if (r == 0)
		r = find_parts(l, err);
	if (r)
		return r;
	const uint32_t nv = l->geometry.nv, h = l->geometry.h;
	if (!choose_design(l) && !geometry_make(&l->geometry, nv, h, q->tile, q->layout)) {
		uint32_t kd = (h + 63) / 64 * 64;
		return err_set(err, NPU_E_BAD_GEOMETRY,
			       "%s: kd=%u T=%u does not go: %s, and T is at most the %u vocabulary rows "
			       "rounded up to 128",
			       q->label, kd, q->tile,
			       q->layout == LAYOUT_BLOCKED
				       ? "the blocked layout needs kd % 64 == 0 and T % 128 == 0"
				       : "row-major takes any T",
			       nv);
	}
	/* What never fits needs no name. It may be a terabyte of nothing: long to read, and its sample alone
	 * large. */
	l->vast = l->most && geometry_bytes(&l->geometry) > l->most;
	if (l->vast)
		return 0;
	for (unsigned i = 0; i < l->part_count; i++) {
		const struct matrix *m = &l->parts[i].matrix;
		size_t values = (size_t)m->band_rows * m->width;
		transposed |= m->transposed;
		band = values > band ? values : band;
	}
	l->tiles = calloc(l->geometry.tiles, sizeof *l->tiles);
	if (!l->tiles || (transposed && !(l->amax = calloc(nv, sizeof *l->amax))))
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for %u columns", q->label, nv);
	r = sample_init(&l->sample, band, &l->geometry, err);
	if (r == 0)
		r = !transposed && find_known(l) ? read_samples(l, err) : hash_all(l, err);
	return r ? r : hash_parts(l, err);
}

/* Stored rows are vocabulary rows: each is a column of a tile. */
static void pack_columns(struct load *l, const struct load_part *part, uint32_t first, uint32_t rows,
			 const float *values)
{
	const struct geometry *g = &l->geometry;
	first += part->from;
	while (rows) {
		uint32_t t = first / g->nd, n = first % g->nd, count = g->nd - n < rows ? g->nd - n : rows;
		struct tile tile = image_tile(&l->image, t);
		if (l->tiles[t].packed) {
			atomic_fetch_add(&l->tiles[t].nonfinite,
					 l->kernels->pack(&tile, n, values, count, g->h));
			atomic_fetch_add(&l->gathered, count);
		}
		values += (size_t)count * g->h;
		first += count;
		rows -= count;
	}
}

/* The columns of a part that are in one tile: n .. n+count-1 of tile t. */
struct piece {
	uint32_t t, n, count;
};

/* That which begins with column `at` of the image. */
static struct piece piece_at(const struct load *l, const struct load_part *part, uint32_t at)
{
	uint32_t nd = l->geometry.nd, left = part->from + part->matrix.nv - at;
	struct piece p = {at / nd, at % nd, nd - at % nd};
	p.count = p.count < left ? p.count : left;
	return p;
}

/* Stored rows are hidden rows: each has one code of every column, whose scales the first pass found. */
static void pack_hidden(struct load *l, const struct load_part *part, uint32_t first, uint32_t rows,
			const float *values)
{
	uint32_t end = part->from + part->matrix.nv;
	struct piece p;
	for (uint32_t i = 0; i < rows; i++, values += part->matrix.nv)
		for (uint32_t at = part->from; at < end; at += p.count) {
			p = piece_at(l, part, at);
			struct tile tile = image_tile(&l->image, p.t);
			if (l->tiles[p.t].packed)
				pack_row(&tile, p.n, first + i, l->amax + at, values + (at - part->from),
					 p.count);
		}
}

static void pack_hidden_scales(struct load *l, const struct load_part *part)
{
	uint32_t end = part->from + part->matrix.nv;
	struct piece p;
	for (uint32_t at = part->from; at < end; at += p.count) {
		p = piece_at(l, part, at);
		struct tile tile = image_tile(&l->image, p.t);
		if (!l->tiles[p.t].packed)
			continue;
		pack_scales(&tile, p.n, l->amax + at, p.count);
		atomic_fetch_add(&l->gathered, p.count);
	}
}

struct image_tile_io load_tile_io(const struct image *image, const unsigned char hash[16], uint32_t t)
{
	const struct geometry *g = &image->geometry;
	struct tile tile = image_tile(image, t);
	struct image_tile_io io = {
		.key = {.kd = g->kd, .nd = g->nd, .layout = g->layout},
		.tile = t,
		.tiles = g->tiles,
		.columns = geometry_columns(g, t),
		.codes = tile.codes,
		.scales = tile.scales,
	};
	memcpy(io.key.hash, hash, sizeof io.key.hash);
	return io;
}

static bool sample_of_tile(void *arg, const struct image_tile_io *io, struct refusal *why)
{
	struct load *l = arg;
	struct tile tile = image_tile(&l->image, io->tile);
	atomic_fetch_add(&l->gathered, sample_count(&l->sample, io->tile));
	return sample_agrees(&l->sample, io->tile, &tile, l->kernels->pack, why);
}

bool load_agrees(struct load *l, const struct image *image, struct refusal *why)
{
	for (uint32_t t = 0; t < l->geometry.tiles; t++) {
		struct tile tile = image_tile(image, t);
		atomic_fetch_add(&l->gathered, sample_count(&l->sample, t));
		if (!sample_agrees(&l->sample, t, &tile, l->kernels->pack, why))
			return false;
	}
	return true;
}

struct fetching {
	struct load *load;
	uv_mutex_t lock; /* of the load's counts and refusals */
};

static void fetch_tile(void *arg, uint32_t t, unsigned thread)
{
	struct fetching *f = arg;
	struct load *l = f->load;
	struct image_tile_io io = load_tile_io(&l->image, l->hash, t);
	struct refusal why;

	(void)thread;
	if (atomic_load(&l->stop))
		return;
	enum image_result result = imagestore_read(l->store, &io, sample_of_tile, l, &why);
	uv_mutex_lock(&f->lock);
	if (result == IMAGE_HIT) {
		l->tiles[t].packed = false;
		atomic_store(&l->tiles[t].nonfinite, io.nonfinite);
		l->from_store++;
		atomic_store(&l->tiles_done, l->from_store);
	} else if (result == IMAGE_REFUSED) {
		size_t used = strlen(l->refusals), more = strlen(why.text) + 32;
		if (used + more < sizeof l->refusals)
			snprintf(l->refusals + used, sizeof l->refusals - used, "%s%s: %s", used ? "\n" : "",
				 refusal_name(why.reason), why.text);
		l->refused++;
	}
	uv_mutex_unlock(&f->lock);
	if (result == IMAGE_REFUSED) /* packing begins with zeros */
		memset(io.codes, 0, (size_t)io.key.kd * io.key.nd);
}

/* What the store has; the tiles it does not have are left to be packed. */
static int fetch(struct load *l, struct err *err)
{
	unsigned threads = l->threads < l->geometry.tiles ? l->threads : l->geometry.tiles;
	struct fetching f = {.load = l};
	cleanup(pool_freep) struct pool *pool = NULL;

	if (!pool_new(&pool, threads))
		return err_set(err, NPU_E_NO_MEMORY, "%s: no threads to read with", l->request.label);
	uv_mutex_init(&f.lock);
	pool_run(pool, l->geometry.tiles, fetch_tile, &f);
	uv_mutex_destroy(&f.lock);
	return atomic_load(&l->stop) ? cancelled(err) : 0;
}

/* Packs the tiles that `part` is in. What was packed must be what was named, or somebody else would be served
 * it under that name. */
static int pack_part(struct load *l, const struct load_part *part, struct err *err)
{
	unsigned char hash[16];

	if (part->matrix.transposed)
		pack_hidden_scales(l, part);
	int r = read_part(l, part, NULL, part->matrix.transposed ? pack_hidden : pack_columns, hash, err);
	if (r == 0 && memcmp(hash, part->hash, sizeof hash) != 0)
		return err_set(
			err, NPU_E_FILE_CHANGED,
			"%s: the file was rewritten while it was read; nothing was kept. Open it again",
			l->request.label);
	return r;
}

static int pack_missing(struct load *l, struct err *err)
{
	const struct geometry *g = &l->geometry;
	int r = 0;

	for (uint32_t t = 0; t < g->tiles; t++) {
		struct tile tile = image_tile(&l->image, t);
		if (!l->tiles[t].packed)
			continue;
		tile_pad(&tile, geometry_columns(g, t));
		l->packed++;
	}
	for (unsigned i = 0; i < l->part_count && r == 0; i++)
		r = pack_part(l, &l->parts[i], err);
	return r;
}

int load_fill(struct load *l, struct err *err)
{
	const struct geometry *g = &l->geometry;

	if (!placement_memory(&l->placement, &l->image, g))
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for a head of %llu bytes",
			       l->request.label, (unsigned long long)geometry_bytes(g));
	for (uint32_t t = 0; t < g->tiles; t++)
		l->tiles[t].packed = true;
	int r = l->store ? fetch(l, err) : 0;
	if (r == 0 && l->from_store < g->tiles)
		r = pack_missing(l, err);
	if (r)
		return r;
	for (uint32_t t = 0; t < g->tiles; t++)
		l->nonfinite += atomic_load(&l->tiles[t].nonfinite);
	if (!placement_seal(&l->placement, &l->image))
		return err_set(err, NPU_E_NO_MEMORY,
			       "%s: the device refuses its weights, and there is no other "
			       "memory for them",
			       l->request.label);
	atomic_store(&l->tiles_done, g->tiles);
	return 0;
}
