#include "image.h"
#include "pages.h"
#include "top.h"
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static size_t scales_size(const struct geometry *g)
{
	return (size_t)g->tiles * g->nd * sizeof(float);
}

uint64_t image_bytes(const struct geometry *g, bool on_device)
{
	size_t all = geometry_bytes(g);

	return on_device ? all - scales_size(g) + pages_size(scales_size(g)) : pages_size(all);
}

bool image_init(struct image *i, const struct geometry *g)
{
	size_t size = geometry_bytes(g);
	void *memory = pages_new(&size);
	if (!memory)
		return false;
	*i = (struct image){*g, memory, size, NULL};
	return true;
}

bool image_init_on(struct image *i, const struct geometry *g, int8_t *const *codes)
{
	size_t size = scales_size(g);
	int8_t **copy = malloc(g->tiles * sizeof *copy);
	void *memory = copy ? pages_new(&size) : NULL;
	if (!memory) {
		free(copy);
		return false;
	}
	memcpy(copy, codes, g->tiles * sizeof *copy);
	*i = (struct image){*g, memory, size, copy};
	return true;
}

void image_fini(struct image *i)
{
	pages_free(i->memory, i->size);
	free(i->codes);
	memset(i, 0, sizeof *i);
}

struct tile image_tile(const struct image *i, uint32_t t)
{
	const struct geometry *g = &i->geometry;
	size_t codes = (size_t)g->kd * g->nd;
	int8_t *all_codes = i->memory;
	float *all_scales = (float *)(i->codes ? all_codes : all_codes + g->tiles * codes);
	return (struct tile){g->kd, g->nd, g->layout, i->codes ? i->codes[t] : all_codes + t * codes,
			     all_scales + (size_t)t * g->nd};
}

/* Columns that pieces are made of: one panel of blocks, or enough of a row to read it in lines. */
#define PANEL 128u
#define PANEL_ROW_MAJOR 1024u
/* Sums made together: of so many columns at most, and about so many in all that the cache has room for
 * weights. */
#define TOGETHER 1024u
#define SUMS 16384u
#define PIECE_LEAST ((size_t)1 << 20)
#define PIECE_MOST ((size_t)4 << 20)

struct running {
	const struct image *image;
	const struct kernels *kernels;
	const struct pass *pass;
	uint32_t piece;	      /* columns */
	uint32_t tile_pieces; /* of one tile */
	uint32_t together;    /* columns */
	int32_t *acc;	      /* [threads][count][together] */
	struct top *tops;     /* [threads][count] */
};

static void run_columns(struct running *r, uint32_t t, uint32_t n, uint32_t columns, int32_t *acc,
			struct top *tops)
{
	const struct pass *p = r->pass;
	const struct geometry *g = &r->image->geometry;
	struct tile all = image_tile(r->image, t), tile = tile_from(&all, n);
	size_t first = (size_t)t * g->nd + n;
	float some[TOGETHER];

	r->kernels->head(&tile, p->q, p->count, columns, r->kernels->prefetch, acc);
	for (uint32_t m = 0; m < p->count; m++, acc += columns) {
		const struct pass_row *row = &p->rows[m];
		float *to = row->logits ? row->logits + first : some;
		head_epilogue(to, acc, row->ascale, tile.scales, columns);
		if (!row->logits)
			top_add(&tops[m], (uint32_t)first, to, columns);
	}
}

static void run_piece(void *arg, uint32_t i, unsigned thread)
{
	struct running *r = arg;
	uint32_t rows = r->pass->count, t = i / r->tile_pieces,
		 columns = geometry_columns(&r->image->geometry, t);
	uint64_t n = (uint64_t)(i % r->tile_pieces) * r->piece, end = n + r->piece;

	if (end > columns)
		end = columns;
	for (; n < end; n += r->together)
		run_columns(r, t, (uint32_t)n, end - n < r->together ? (uint32_t)(end - n) : r->together,
			    r->acc + (size_t)thread * rows * r->together, r->tops + (size_t)thread * rows);
}

/* Room for the best of every row and thread; the first thread's is the answer itself. */
static bool tops_new(struct running *r, unsigned threads)
{
	const struct pass *p = r->pass;
	size_t tops = (size_t)threads * p->count, best = 0;
	for (uint32_t m = 0; m < p->count; m++)
		best += p->rows[m].logits ? 0 : p->rows[m].k;
	best *= threads - 1;
	r->tops = malloc(tops * sizeof *r->tops + best * (sizeof(uint32_t) + sizeof(float)));
	if (!r->tops)
		return false;
	uint32_t *ids = (uint32_t *)(r->tops + tops);
	float *values = (float *)(ids + best);
	for (size_t i = 0; i < tops; i++) {
		const struct pass_row *row = &p->rows[i % p->count];
		uint32_t k = row->logits ? 0 : row->k;
		if (i < p->count) {
			r->tops[i] = (struct top){k, 0, row->ids, row->values};
			continue;
		}
		r->tops[i] = (struct top){k, 0, ids, values};
		ids += k;
		values += k;
	}
	return true;
}

static void tops_end(struct running *r, unsigned threads)
{
	uint32_t count = r->pass->count;
	for (uint32_t m = 0; m < count; m++) {
		if (r->pass->rows[m].logits)
			continue;
		for (unsigned i = 1; i < threads; i++)
			top_merge(&r->tops[m], &r->tops[i * count + m]);
		top_sort(&r->tops[m]);
	}
}

bool image_run(const struct image *i, const struct kernels *kernels, struct pool *pool,
	       const struct pass *pass)
{
	const struct geometry *g = &i->geometry;
	unsigned threads = pool_threads(pool);
	uint32_t panel = g->layout == LAYOUT_BLOCKED ? PANEL : PANEL_ROW_MAJOR;
	uint32_t tile_panels = (g->nd + panel - 1) / panel;
	/* A few pieces a thread even out; fewer and larger ones read faster. */
	size_t share = (size_t)g->tiles * g->nd * g->kd / threads / 4, bytes = (size_t)panel * g->kd;
	share = share < PIECE_LEAST ? PIECE_LEAST : share > PIECE_MOST ? PIECE_MOST : share;
	size_t panels = (share + bytes - 1) / bytes;
	uint32_t together = SUMS / pass->count / panel * panel;
	struct running r = {
		.image = i,
		.kernels = kernels,
		.pass = pass,
		.piece = (panels < tile_panels ? (uint32_t)panels : tile_panels) * panel,
		.together = together < panel	  ? panel
			    : together > TOGETHER ? TOGETHER
						  : together,
	};

	r.tile_pieces = (tile_panels * panel + r.piece - 1) / r.piece;
	r.acc = aligned_alloc(64, (size_t)threads * pass->count * r.together * sizeof *r.acc);
	bool done = r.acc && tops_new(&r, threads);
	if (done) {
		pool_run(pool, g->tiles * r.tile_pieces, run_piece, &r);
		tops_end(&r, threads);
	}
	free(r.tops);
	free(r.acc);
	return done;
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void image_measure(struct kernels *kernels, struct pool *pool)
{
	/* In turns, so that none finds its codes in the cache; short ones, of which other programs leave some
	 * alone. */
	enum { H = 2048, NV = 8192, IMAGES = 4, TURNS = 24 };
	struct geometry g;
	struct image images[IMAGES] = {0};
	static const int8_t q[H];
	float value, best[2] = {FLT_MAX, FLT_MAX};
	uint32_t id;
	struct pass_row row = {.ascale = 1, .k = 1, .ids = &id, .values = &value};
	struct pass pass = {q, &row, 1};
	bool ready = kernels->head != head_ref && /* which has no use for it */
		     geometry_make(&g, NV, H, 0, LAYOUT_BLOCKED);

	for (int i = 0; ready && i < IMAGES; i++) {
		ready = image_init(&images[i], &g);
		if (ready) /* memory that was never written is not read either */
			memset(images[i].memory, 1, images[i].size);
	}
	for (int turn = 0; ready && turn < TURNS; turn++) {
		struct kernels with = *kernels;
		with.prefetch = (turn / IMAGES + turn) % 2;
		double begun = seconds();
		bool ran = image_run(&images[turn % IMAGES], &with, pool, &pass);
		float took = ran ? (float)(seconds() - begun) : FLT_MAX;
		best[with.prefetch] = took < best[with.prefetch] ? took : best[with.prefetch];
	}
	if (ready)
		kernels->prefetch = best[1] < best[0];
	for (int i = 0; i < IMAGES; i++)
		image_fini(&images[i]);
}
