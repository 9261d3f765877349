#include "q4nx.h"
#include "container_impl.h"
#include <inttypes.h>
#include <stdio.h>

static const struct {
	const char *reading;
	uint32_t columns, bytes;
} kinds[Q4NX_COUNT] = {
#define KIND(name, reading, columns, bytes) [Q4NX_##name] = {reading, columns, bytes},
	Q4NX_KINDS(KIND)
#undef KIND
};

#define CHUNK_MAX 8704u
#define SAMPLES 16u /* chunks looked into, spread over the tensor */
#define GROUP 32u   /* columns of a row that share a scale */

bool q4nx_may_be(const struct container *c, const struct tensor *t)
{
	if (c->kind != CONTAINER_SAFETENSORS || t->type != TYPE_I8 || (t->rank != 2 && t->rank != 3))
		return false;
	uint64_t bytes = t->shape[t->rank - 1];
	for (size_t i = 0; i < Q4NX_COUNT; i++)
		if (kinds[i].bytes == bytes)
			return true;
	return false;
}

/* The embedding is a plain matrix [vocabulary][hidden] in these files, and tells the padded shape. */
static const struct tensor *embedding(const struct container *c)
{
	const struct tensor *t = container_embedding(c);
	bool plain =
		t && t->rank == 2 && (t->type == TYPE_BF16 || t->type == TYPE_F16 || t->type == TYPE_F32);

	return plain ? t : NULL;
}

static uint64_t parts(uint64_t size, uint32_t part)
{
	return size / part + (size % part != 0);
}

struct grid {
	uint64_t h;		/* columns of the matrix, without padding */
	uint64_t rows, columns; /* chunks */
	bool padded;		/* h counts padding columns, for nothing tells how many there are */
};

/* The grid, where the number of columns is known and chunks agree with it. */
static int q4nx_grid(struct grid *g, const struct container *c, const struct tensor *t, uint32_t k,
		     struct err *err)
{
	const struct tensor *e = embedding(c);
	uint64_t bytes = t->shape[t->rank - 1];

	/* Three dimensions say themselves how many columns there are, padding included. */
	bool padded = !k && !e && t->rank == 3;
	if (!k && !padded && (!e || e->shape[1] == 0))
		return container_refuse(c, t, err, NPU_E_NO_HEAD,
					"taken for Q4NX chunks of %" PRIu64
					" bytes, the number of columns is not known: no embedding tells it. "
					"Say --k; I8 without a scale is not read",
					bytes);
	uint64_t h = padded ? t->shape[1] * 256 : k ? k : e->shape[1], wide = parts(h, 256);
	if (t->rank == 3) {
		*g = (struct grid){h, t->shape[0], t->shape[1], padded};
		if (g->columns == wide || (bytes == kinds[Q4NX_Q8C].bytes && g->columns == parts(h, 128)))
			return 0;
		return container_refuse(c, t, err, NPU_E_NO_HEAD,
					"taken for Q4NX, a row has %" PRIu64 " chunks of %" PRIu64
					" bytes and %s of %" PRIu64 " columns asks for %" PRIu64
					"; say --k if the matrix has others",
					g->columns, bytes, k ? "--k" : "the embedding", h, wide);
	}
	uint64_t chunks = t->shape[0];
	*g = (struct grid){h, chunks / wide, wide, false};
	if (k && chunks % wide)
		return container_refuse(c, t, err, NPU_E_NO_HEAD,
					"%" PRIu64 " Q4NX chunks are not whole rows of %" PRIu64
					", which %" PRIu64 " columns ask for",
					chunks, wide, h);
	/* A number of chunks alone shows little: 5120 is a hidden size as well. */
	if (!k && (chunks % wide || g->rows != parts(e->shape[0], Q4NX_ROWS)))
		return container_refuse(
			c, t, err, NPU_E_NO_HEAD,
			"taken for Q4NX, %" PRIu64 " chunks of %" PRIu64
			" bytes are not the embedding's %" PRIu64 " x %" PRIu64
			"; say --k if they are another matrix's. I8 without a scale is not read",
			chunks, bytes, e->shape[0], e->shape[1]);
	return 0;
}

static int q4nx_kind(enum q4nx_kind *kind, const struct container *c, const struct tensor *t, bool wide,
		     const struct matrix_options *options, struct err *err)
{
	uint64_t bytes = t->shape[t->rank - 1];

	*kind = bytes == 4736 ? Q4NX_Q4_K : bytes == CHUNK_MAX ? Q4NX_Q8A : wide ? Q4NX_Q4_1 : Q4NX_Q8C;
	if (options->is_signed && *kind != Q4NX_Q4_1)
		return container_refuse(
			c, t, err, NPU_E_BAD_VALUE,
			"--signed is about 4-bit codes with a zero point (q4_1), and this is %s",
			*kind == Q4NX_Q8A ? "q8" : kinds[*kind].reading);
	if (options->q8 != Q8_AUTO && *kind != Q4NX_Q8A)
		return container_refuse(c, t, err, NPU_E_BAD_VALUE,
					"--q8 is about chunks of %u bytes, and this is %s of %u", CHUNK_MAX,
					kinds[*kind].reading, kinds[*kind].bytes);
	if (options->is_signed)
		*kind = Q4NX_Q4_1_SIGNED;
	if (options->q8 == Q8_B)
		*kind = Q4NX_Q8B;
	return 0;
}

struct sample {
	unsigned groups;  /* that have a scale */
	unsigned full[2]; /* of these, with a code of full scale, read as layout a and as layout b */
	bool zero;	  /* any zero point of q4_1 is not 0 */
};

static bool is_full(int8_t code)
{
	return code >= 126 || code <= -126;
}

static void sample_q8(struct sample *s, const unsigned char *chunk)
{
	const int8_t *codes = (const int8_t *)chunk + 512;

	for (uint32_t g = 0; g < 256 / GROUP; g++)
		for (uint32_t r = 0; r < Q4NX_ROWS; r++) {
			const unsigned char *d = chunk + 2 * (g * Q4NX_ROWS + r);
			bool full[2] = {false, false};
			if (d[0] == 0 && (d[1] & 0x7f) == 0)
				continue;
			for (uint32_t k = g * GROUP; k < (g + 1) * GROUP; k++) {
				full[0] |= is_full(codes[k * 32 + r]);
				full[1] |= is_full(codes[r / 16 * 4096 + k * 16 + r % 16]);
			}
			s->groups++;
			s->full[0] += full[0];
			s->full[1] += full[1];
		}
}

static void sample_zeros(struct sample *s, const unsigned char *chunk)
{
	for (size_t i = 512; i < 1024; i += 2)
		s->zero |= chunk[i] || chunk[i + 1] & 0x7f;
}

static int sample_take(struct sample *s, enum q4nx_kind kind, const struct container *c,
		       const struct tensor *t, uint64_t chunks, struct err *err)
{
	uint64_t count = chunks < SAMPLES ? chunks : SAMPLES;
	unsigned char chunk[CHUNK_MAX];

	*s = (struct sample){0};
	for (uint64_t i = 0; i < count; i++) {
		int code = container_pread(c, t, t->offset + i * chunks / count * kinds[kind].bytes, chunk,
					   kinds[kind].bytes, err);
		if (code)
			return code;
		if (kind == Q4NX_Q8A)
			sample_q8(s, chunk);
		else
			sample_zeros(s, chunk);
	}
	return 0;
}

/*
 * A quantiser gives the largest value of every 32 the code 127, so that in the right order of codes nearly
 * every group holds one. In the wrong order a "group" is made of halves of others, and a quarter holds none.
 */
static int q8_decide(enum q4nx_kind *kind, struct matrix *m, const struct container *c,
		     const struct tensor *t, uint64_t chunks, struct err *err)
{
	struct sample s;
	int code = sample_take(&s, Q4NX_Q8A, c, t, chunks, err);

	if (code)
		return code;
	unsigned best = s.full[1] > s.full[0], most = s.full[best], other = s.full[!best];
	if (s.groups == 0 || most * 10 < s.groups * 9 || (most - other) * 10 < s.groups)
		return container_refuse(
			c, t, err, NPU_E_NO_HEAD,
			"the order of Q8 codes cannot be told: of %u groups sampled %u reach full "
			"scale as layout a and %u as layout b. Say --q8 a or --q8 b",
			s.groups, s.full[0], s.full[1]);
	*kind = best ? Q4NX_Q8B : Q4NX_Q8A;
	snprintf(m->note, sizeof m->note,
		 "Q8 codes taken for layout %c: of %u groups sampled %u reach full scale so, %u as layout %c",
		 best ? 'b' : 'a', s.groups, most, other, best ? 'a' : 'b');
	return 0;
}

/* The only trace of codes that are signed. */
static int zeros_note(struct matrix *m, const struct container *c, const struct tensor *t, uint64_t chunks,
		      struct err *err)
{
	struct sample s;
	int code = sample_take(&s, Q4NX_Q4_1, c, t, chunks, err);

	if (!code && !s.zero)
		snprintf(m->note, sizeof m->note,
			 "read as q4_1, but every zero point sampled is 0: if the file was made from GGUF "
			 "Q4_0, its "
			 "codes are signed; say --signed then");
	return code;
}

int q4nx_init(struct matrix *m, const struct container *c, const struct tensor *t,
	      const struct matrix_options *options, struct err *err)
{
	struct grid g = {0};
	enum q4nx_kind kind;
	int code;

	if (options->transpose)
		return container_refuse(c, t, err, NPU_E_BAD_VALUE,
					"--transpose does not go with Q4NX: its chunks are always [NV][H]");
	*m = (struct matrix){0};
	if (t->bytes == 0)
		return container_refuse(c, t, err, NPU_E_NO_HEAD, "there are no Q4NX chunks in it");
	code = q4nx_grid(&g, c, t, options->k, err);
	if (code)
		return code;
	code = q4nx_kind(&kind, c, t, g.columns == parts(g.h, 256), options, err);
	if (code)
		return code;
	if (g.h > MATRIX_H_MAX || g.rows > UINT32_MAX / Q4NX_ROWS) {
		container_refuse(c, t, err, NPU_E_TOO_LARGE,
				 "%" PRIu64 " columns in %" PRIu64 " rows of %u; the most are %u in %u", g.h,
				 g.rows, Q4NX_ROWS, MATRIX_H_MAX, UINT32_MAX / Q4NX_ROWS);
		err->detail.needed = g.h;
		err->detail.limit = MATRIX_H_MAX;
		return NPU_E_TOO_LARGE;
	}
	if (kind == Q4NX_Q8A && options->q8 == Q8_AUTO)
		code = q8_decide(&kind, m, c, t, g.rows * g.columns, err);
	else if (kind == Q4NX_Q4_1)
		code = zeros_note(m, c, t, g.rows * g.columns, err);
	if (!code && g.padded && !m->note[0])
		snprintf(m->note, sizeof m->note,
			 "no embedding tells the columns: all %" PRIu64
			 " of the chunks are taken; say --k if some are padding",
			 g.h);
	if (code)
		return code;

	m->nv = m->rows = (uint32_t)g.rows * Q4NX_ROWS;
	m->h = m->width = (uint32_t)g.h;
	m->band_rows = Q4NX_ROWS;
	m->band_bytes = g.columns * kinds[kind].bytes;
	m->read_width = kinds[kind].bytes;
	m->q4nx = (int)kind;
	int used = snprintf(m->reading, sizeof m->reading, "q4nx:%s", kinds[kind].reading);
	/* Named where columns are cut off: then the file alone does not tell how many. */
	if (g.h % kinds[kind].columns)
		snprintf(m->reading + used, sizeof m->reading - (size_t)used, " k=%" PRIu64, g.h);
	return 0;
}
