#include "matrix.h"
#include "container_impl.h"
#include "q4nx.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool q8_layout_of(const char *name, size_t size, enum q8_layout *out)
{
	static const char *const names[] = {[Q8_AUTO] = "auto", [Q8_A] = "a", [Q8_B] = "b"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strlen(names[i]) == size && memcmp(names[i], name, size) == 0) {
			*out = (enum q8_layout)i;
			return true;
		}
	return false;
}

/* "[2, 3, 4]"; what does not fit is dots. */
static const char *tensor_shape(const struct tensor *t, char *to, size_t room)
{
	size_t kept = sizeof t->shape / sizeof *t->shape, used = 1;

	snprintf(to, room, "[");
	for (size_t i = 0; i < t->rank && i < kept && used < room; i++)
		used += (size_t)snprintf(to + used, room - used, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
	if (used < room)
		snprintf(to + used, room - used, t->rank > kept ? ", ...]" : "]");
	return to;
}

/* Every variant has the same types. */
static bool readable(enum tensor_type type)
{
	return decoders_variant(0)->blocks[type] != NULL;
}

/* Names those that a file of this format can have: blocks of several values are GGUF's. */
static int matrix_refuse_type(const struct container *c, const struct tensor *t, struct err *err)
{
	char text[200];
	size_t used = 0;

	for (size_t i = 0; i < TYPE_COUNT; i++)
		if (readable((enum tensor_type)i) &&
		    (c->kind == CONTAINER_GGUF || type_info((enum tensor_type)i)->block == 1))
			used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "",
						 tensor_type_name((enum tensor_type)i));
	return container_refuse(
		c, t, err, NPU_E_NO_HEAD,
		"the type is %s%s, not read as weights; convert the model so that it is one of "
		"%s here",
		tensor_type_name(t->type), t->type == TYPE_I8 || t->type == TYPE_U8 ? " without a scale" : "",
		text);
}

/* A plain matrix of a type with a decoder. */
static int matrix_init_plain(struct matrix *m, const struct container *c, const struct tensor *t,
			     bool transpose, struct err *err)
{
	const struct type_info *type = type_info(t->type);
	const uint64_t *shape = t->shape;
	unsigned rank = t->rank;
	char text[200];

	/* GGUF has always four dimensions, of which trailing ones (here: leading) need not be written. */
	while (c->kind == CONTAINER_GGUF && rank > 2 && shape[0] == 1) {
		shape++;
		rank--;
	}
	if (rank != 2)
		return container_refuse(c, t, err, NPU_E_NO_HEAD,
					"the shape is %s, of %u dimensions; a matrix has 2",
					tensor_shape(t, text, sizeof text), t->rank);

	uint64_t nv = shape[transpose ? 1 : 0], h = shape[transpose ? 0 : 1];
	if (nv == 0 || h == 0)
		return container_refuse(c, t, err, NPU_E_NO_HEAD,
					"the matrix is empty, %" PRIu64 " x %" PRIu64, nv, h);
	if (!readable(t->type))
		return matrix_refuse_type(c, t, err);
	if (h > MATRIX_H_MAX) {
		container_refuse(c, t, err, NPU_E_TOO_LARGE,
				 "a column has %" PRIu64 " values%s; the most is %u, for exact int32 sums", h,
				 transpose ? " (read transposed)" : "", MATRIX_H_MAX);
		err->detail.needed = h;
		err->detail.limit = MATRIX_H_MAX;
		return NPU_E_TOO_LARGE;
	}
	/* The width is whole blocks: the reader saw to it. */
	uint64_t width = shape[1], band_bytes = width / type->block * type->bytes;
	if (nv > UINT32_MAX || band_bytes > UINT32_MAX) {
		container_refuse(c, t, err, NPU_E_TOO_LARGE,
				 "%" PRIu64 " columns, and %" PRIu64 " bytes in a stored row; the most is %u",
				 nv, band_bytes, UINT32_MAX);
		err->detail.needed = nv > band_bytes ? nv : band_bytes;
		err->detail.limit = UINT32_MAX;
		return NPU_E_TOO_LARGE;
	}

	*m = (struct matrix){
		.transposed = transpose,
		.nv = (uint32_t)nv,
		.h = (uint32_t)h,
		.width = (uint32_t)width,
		.rows = (uint32_t)shape[0],
		.band_rows = 1,
		.band_bytes = band_bytes,
		.read_width = (uint32_t)band_bytes,
		.q4nx = -1,
	};
	snprintf(m->reading, sizeof m->reading, "%s%s", type->name, transpose ? "^T" : "");
	return 0;
}

int matrix_init(struct matrix *m, const struct container *c, const struct tensor *t,
		const struct matrix_options *options, bool tied, struct err *err)
{
	static const struct matrix_options none;
	struct matrix made;
	int code;

	if (!options)
		options = &none;
	if (q4nx_may_be(c, t))
		code = q4nx_init(&made, c, t, options, err);
	else if (readable(t->type) && (options->q8 != Q8_AUTO || options->is_signed || options->k))
		return container_refuse(
			c, t, err, NPU_E_BAD_VALUE,
			"--q8, --signed and --k say how Q4NX chunks are read, and this is a %s tensor",
			tensor_type_name(t->type));
	else
		code = matrix_init_plain(&made, c, t, options->transpose, err);
	if (code)
		return code;
	const struct tensor *bias = container_bias(c, t);
	if (bias && !made.note[0])
		snprintf(made.note, sizeof made.note, "%s is not added to the products", bias->name);
	made.container = c;
	made.tensor = t;
	made.tied = tied;
	*m = made;
	return 0;
}

uint32_t matrix_bands(const struct matrix *m)
{
	return m->rows / m->band_rows;
}

int matrix_read(const struct matrix *m, uint32_t first, uint32_t count, void *to, struct err *err)
{
	assert(first <= matrix_bands(m) && count <= matrix_bands(m) - first);
	return container_pread(m->container, m->tensor, m->tensor->offset + first * m->band_bytes, to,
			       count * m->band_bytes, err);
}

void matrix_decode(const struct matrix *m, const void *stored, uint32_t count, float *to)
{
	matrix_decode_by(decoders_variant(0), m, stored, count, to);
}

void matrix_decode_by(const struct decoders *decoders, const struct matrix *m, const void *stored,
		      uint32_t count, float *to)
{
	const unsigned char *from = stored;

	if (m->q4nx < 0) {
		decoders->blocks[m->tensor->type](from, (size_t)count * m->width, to);
		return;
	}
	for (uint32_t i = 0; i < count; i++, from += m->band_bytes, to += (size_t)m->band_rows * m->width)
		decoders->q4nx[m->q4nx](from, m->width, to);
}
