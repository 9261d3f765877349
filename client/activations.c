#include "activations.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npu.h"
#include "plural.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw float32 files are little-endian");
_Static_assert(sizeof(float) == 4, "float is float32");

enum { AXES_MAX = 32 };

/* Of a file, or of a pipe that may have no end: 2^17 rows of 8192 values. */
#define BYTES_MAX (UINT64_C(1) << 32)

static int fail(char *why, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int fail(char *why, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, ACTIVATIONS_WHY, format, args);
	va_end(args);
	return error;
}

/* The header of a .npy is a Python dict literal; the cursor reads the few kinds of values that numpy writes.
 */
struct cursor {
	const char *at, *end;
};

struct header {
	char descr[32], order[8];
	uint64_t shape[AXES_MAX];
	unsigned axes;
	bool descr_known, order_known, shape_known;
};

static bool space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool next_is(struct cursor *c, char wanted)
{
	while (c->at < c->end && space(*c->at))
		c->at++;
	if (c->at == c->end || *c->at != wanted)
		return false;
	c->at++;
	return true;
}

static bool read_string(struct cursor *c, char *out, size_t size)
{
	char quote = '\'';
	size_t n = 0;

	if (!next_is(c, quote)) {
		quote = '"';
		if (!next_is(c, quote))
			return false;
	}
	for (; c->at < c->end && *c->at != quote; c->at++) {
		/* Printable only, since it may be shown. */
		if (n + 1 >= size || *c->at < ' ' || *c->at > '~' || *c->at == '\\')
			return false;
		out[n++] = *c->at;
	}
	out[n] = '\0';
	return next_is(c, quote);
}

static bool read_word(struct cursor *c, char *out, size_t size)
{
	size_t n = 0;

	while (c->at < c->end && space(*c->at))
		c->at++;
	for (; c->at < c->end && ((*c->at | 32) >= 'a' && (*c->at | 32) <= 'z'); c->at++) {
		if (n + 1 >= size)
			return false;
		out[n++] = *c->at;
	}
	out[n] = '\0';
	return n > 0;
}

static bool read_number(struct cursor *c, uint64_t *out)
{
	const char *start;
	uint64_t value = 0;

	while (c->at < c->end && space(*c->at))
		c->at++;
	for (start = c->at; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*c->at - '0'), &value))
			return false;
	}
	*out = value;
	if (c->at == start)
		return false;
	if (c->at < c->end && *c->at == 'L') /* Python 2 */
		c->at++;
	return true;
}

static bool read_shape(struct cursor *c, struct header *h)
{
	if (!next_is(c, '('))
		return false;
	while (!next_is(c, ')')) {
		if (h->axes == AXES_MAX || !read_number(c, &h->shape[h->axes]))
			return false;
		h->axes++;
		if (!next_is(c, ',')) {
			/* (5) is a number in Python, not a shape. */
			return h->axes > 1 && next_is(c, ')');
		}
	}
	return true;
}

static bool read_header(struct cursor *c, struct header *h)
{
	char key[32];

	if (!next_is(c, '{'))
		return false;
	while (!next_is(c, '}')) {
		bool *known, good;

		if (!read_string(c, key, sizeof key) || !next_is(c, ':'))
			return false;
		if (!strcmp(key, "descr")) {
			known = &h->descr_known;
			good = read_string(c, h->descr, sizeof h->descr);
		} else if (!strcmp(key, "fortran_order")) {
			known = &h->order_known;
			good = read_word(c, h->order, sizeof h->order);
		} else if (!strcmp(key, "shape")) {
			known = &h->shape_known;
			good = read_shape(c, h);
		} else {
			return false;
		}
		if (!good || *known)
			return false;
		*known = true;
		if (!next_is(c, ','))
			return next_is(c, '}') && h->descr_known && h->order_known && h->shape_known;
	}
	return h->descr_known && h->order_known && h->shape_known;
}

static void shape_text(const struct header *h, char *out, size_t size)
{
	size_t n = 0;

	out[n++] = '(';
	for (unsigned i = 0; i < h->axes && n + 32 < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%" PRIu64 "%s", i ? " " : "", h->shape[i],
				      i + 1 < h->axes || h->axes == 1 ? "," : "");
	snprintf(out + n, size - n, ")");
}

/* Fills rows and width and says where the values start. */
static int parse_npy(struct activations *a, const unsigned char *bytes, size_t size, size_t *start, char *why)
{
	struct header h = {0};
	struct cursor c;
	char shape[160];
	size_t prefix = 10, length;
	uint64_t count;

	if (size < 10)
		return fail(why, NPU_E_MALFORMED, "the .npy ends within its header");
	if (bytes[6] < 1 || bytes[6] > 3)
		return fail(why, NPU_E_MALFORMED, ".npy version %u.%u is unknown; save it as version 1.0",
			    bytes[6], bytes[7]);
	length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
	if (bytes[6] > 1) {
		prefix = 12;
		if (size < prefix)
			return fail(why, NPU_E_MALFORMED, "the .npy ends within its header");
		length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
	}
	if (length > size - prefix)
		return fail(why, NPU_E_MALFORMED, "the .npy ends within its header");
	c.at = (const char *)bytes + prefix;
	c.end = c.at + length;
	if (!read_header(&c, &h))
		return fail(
			why, NPU_E_MALFORMED,
			"the .npy header is not one of a plain array; save a float32 array with numpy.save");
	if (strcmp(h.descr, "<f4") != 0)
		return fail(why, NPU_E_MALFORMED,
			    "the .npy holds '%s', only '<f4' is read; convert it with astype('<f4')",
			    h.descr);
	if (strcmp(h.order, "False") != 0)
		return fail(why, NPU_E_MALFORMED,
			    "the .npy has fortran_order %s; convert it with numpy.ascontiguousarray",
			    h.order);
	shape_text(&h, shape, sizeof shape);
	if (h.axes != 1 && h.axes != 2)
		return fail(why, NPU_E_MALFORMED, "the .npy has shape %s; reshape it to (H,) or (M, H)",
			    shape);
	count = h.shape[0];
	if (h.axes == 2 && __builtin_mul_overflow(count, h.shape[1], &count))
		return fail(why, NPU_E_BAD_COUNT, "the .npy has the impossible shape %s", shape);
	if ((size - prefix - length) / 4 != count || (size - prefix - length) % 4)
		return fail(why, NPU_E_BAD_COUNT,
			    "the .npy has %zu bytes of values, but its shape %s asks for %" PRIu64
			    " values of 4 bytes",
			    size - prefix - length, shape, count);
	a->shaped = true;
	a->rows = h.axes == 2 ? h.shape[0] : 1;
	a->width = h.shape[h.axes - 1];
	a->count = count;
	*start = prefix + length;
	return 0;
}

int activations_parse(struct activations *out, unsigned char *bytes, size_t size,
		      char why[static ACTIVATIONS_WHY])
{
	struct activations a = {0};
	size_t start = 0;
	int error = 0;

	if (size >= 6 && !memcmp(bytes, "\x93NUMPY", 6))
		error = parse_npy(&a, bytes, size, &start, why);
	else if (size % 4)
		error = fail(why, NPU_E_MALFORMED,
			     "found %zu bytes, which is not a whole number of float32 values", size);
	else
		a.count = size / 4;
	if (!error && !a.count)
		error = fail(why, NPU_E_BAD_COUNT, "it holds no values");
	if (error) {
		free(bytes);
		return error;
	}
	/* To the front, where malloc aligned it for floats. */
	memmove(bytes, bytes + start, a.count * sizeof(float));
	a.values = (float *)(void *)bytes;
	*out = a;
	return 0;
}

static int too_large(char *why)
{
	return fail(why, NPU_E_TOO_LARGE, "has more than %" PRIu64 " bytes; give fewer rows at a time",
		    BYTES_MAX);
}

int activations_read(struct activations *out, int fd, char why[static ACTIVATIONS_WHY])
{
	struct stat st;
	size_t used = 0, room = 1 << 16;
	unsigned char *bytes;

	/* One byte more than the size, so that the end is seen without growing. */
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
		if ((uint64_t)st.st_size > BYTES_MAX)
			return too_large(why);
		room = (size_t)st.st_size + 1;
	}
	bytes = malloc(room);
	while (bytes) {
		ssize_t n = read(fd, bytes + used, room - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int cause = errno;

			free(bytes);
			return fail(why, NPU_E_IO, "cannot read: %s", strerror(cause));
		}
		if (n == 0)
			return activations_parse(out, bytes, used, why);
		used += (size_t)n;
		if (used > BYTES_MAX) {
			free(bytes);
			return too_large(why);
		}
		if (used == room) {
			unsigned char *grown = realloc(bytes, room * 2);

			if (!grown)
				free(bytes);
			bytes = grown;
			room *= 2;
		}
	}
	return fail(why, NPU_E_NO_MEMORY, "not enough memory to read it; give fewer rows at a time");
}

int activations_rows(const struct activations *a, uint32_t h, size_t *rows, char why[static ACTIVATIONS_WHY])
{
	size_t expected;

	if (a->shaped && a->width != h)
		return fail(why, NPU_E_BAD_COUNT,
			    "found rows of %zu %s (%zu %s), expected rows of %" PRIu32
			    ", which is what this head takes",
			    a->width, plural(a->width, "value", "values"), a->rows,
			    plural(a->rows, "row", "rows"), h);
	if (*rows) {
		if (__builtin_mul_overflow(*rows, (size_t)h, &expected))
			return fail(why, NPU_E_TOO_LARGE,
				    "%zu rows of %" PRIu32 " are more than can be counted", *rows, h);
		if (a->count != expected)
			return fail(why, NPU_E_BAD_COUNT,
				    "found %zu %s, expected %zu (%zu %s of %" PRIu32 ")", a->count,
				    plural(a->count, "value", "values"), expected, *rows,
				    plural(*rows, "row", "rows"), h);
		return 0;
	}
	if (!h || a->count % h)
		return fail(why, NPU_E_BAD_COUNT,
			    "found %zu %s, expected a multiple of %" PRIu32 ", which is what this head takes",
			    a->count, plural(a->count, "value", "values"), h);
	*rows = a->count / h;
	return 0;
}

void activations_vector(float *out, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t z = seed += 0x9e3779b97f4a7c15u;

		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
		z = (z ^ z >> 27) * 0x94d049bb133111ebu;
		z ^= z >> 31;
		out[i] = (float)((int32_t)(z >> 41) - (1 << 22)) / (1 << 20);
	}
}

int activations_random(struct activations *out, uint64_t seed, size_t rows, uint32_t h,
		       char why[static ACTIVATIONS_WHY])
{
	size_t count, bytes;
	float *values;

	if (__builtin_mul_overflow(rows, (size_t)h, &count) ||
	    __builtin_mul_overflow(count, sizeof *values, &bytes))
		return fail(why, NPU_E_TOO_LARGE, "%zu rows of %" PRIu32 " are more than fit memory", rows,
			    h);
	values = malloc(bytes);
	if (!values)
		return fail(why, NPU_E_NO_MEMORY, "not enough memory for %zu rows of %" PRIu32, rows, h);
	for (size_t m = 0; m < rows; m++)
		activations_vector(values + m * h, h, seed + m);
	*out = (struct activations){.values = values, .count = count};
	return 0;
}

void activations_fini(struct activations *a)
{
	free(a->values);
	*a = (struct activations){0};
}
