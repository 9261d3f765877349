#include "container_impl.h"
#include "own.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* The format gives keys 65535 bytes; ggml gives names 63 and tensors 4 dimensions. */
#define KEY_MAX 65535u
#define NAME_MAX_BYTES 63u
#define DIMS_MAX 4u

/* Far above any model, so that what a file makes us allocate stays below some hundred megabytes. */
#define KEYS_MAX (1u << 20)
#define TENSORS_MAX (1u << 20)
/* Headers are tens of megabytes at most. A sparse file could have one of a terabyte, and keep us reading it.
 */
#define HEADER_MAX ((uint64_t)256 << 20)

/* What one of each has at least: length, one byte, type and one byte; length, rank, type and offset. */
#define KEY_LEAST 14u
#define TENSOR_LEAST 24u

/* A window of the file that moves over the header, however long arrays and strings in it are. */
struct cursor {
	const struct container *c;
	uint64_t at;	/* next byte, in the file; never past its end */
	uint64_t start; /* the buffer's first byte, in the file */
	size_t have;
	unsigned char buffer[65536];
	char key[KEY_MAX];
	size_t key_size; /* of the key whose value is read; 0 outside of values */
};

static const struct {
	bool known;
	enum tensor_type type;
} types[] = {
	[0] = {true, TYPE_F32},	    [1] = {true, TYPE_F16},	 [2] = {true, TYPE_Q4_0},
	[3] = {true, TYPE_Q4_1},    [6] = {true, TYPE_Q5_0},	 [7] = {true, TYPE_Q5_1},
	[8] = {true, TYPE_Q8_0},    [9] = {true, TYPE_Q8_1},	 [10] = {true, TYPE_Q2_K},
	[11] = {true, TYPE_Q3_K},   [12] = {true, TYPE_Q4_K},	 [13] = {true, TYPE_Q5_K},
	[14] = {true, TYPE_Q6_K},   [15] = {true, TYPE_Q8_K},	 [16] = {true, TYPE_IQ2_XXS},
	[17] = {true, TYPE_IQ2_XS}, [18] = {true, TYPE_IQ3_XXS}, [19] = {true, TYPE_IQ1_S},
	[20] = {true, TYPE_IQ4_NL}, [21] = {true, TYPE_IQ3_S},	 [22] = {true, TYPE_IQ2_S},
	[23] = {true, TYPE_IQ4_XS}, [24] = {true, TYPE_I8},	 [25] = {true, TYPE_I16},
	[26] = {true, TYPE_I32},    [27] = {true, TYPE_I64},	 [28] = {true, TYPE_F64},
	[29] = {true, TYPE_IQ1_M},  [30] = {true, TYPE_BF16},	 [34] = {true, TYPE_TQ1_0},
	[35] = {true, TYPE_TQ2_0},  [39] = {true, TYPE_MXFP4},	 [40] = {true, TYPE_NVFP4},
	[41] = {true, TYPE_Q1_0},   [42] = {true, TYPE_Q2_0},
};

enum value_type { VALUE_U32 = 4, VALUE_STRING = 8, VALUE_ARRAY = 9, VALUE_COUNT = 13 };

/* A value's bytes; a string's are its length's, an array has none of its own. */
static const unsigned char value_bytes[VALUE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};

/* BAD_CONTAINER, which names the key whose value is being read. */
__attribute__((format(printf, 3, 4))) static int cursor_refuse(const struct cursor *u, struct err *err,
							       const char *format, ...)
{
	char why[200], key[80];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof why, format, arguments);
	va_end(arguments);
	if (!u->key_size)
		return container_damaged(u->c, NULL, err, "%s", why);
	return container_damaged(u->c, NULL, err, "key \"%s\": %s",
				 err_printable(key, sizeof key, u->key, u->key_size), why);
}

static int cursor_want(const struct cursor *u, uint64_t size, const char *what, struct err *err)
{
	uint64_t left = u->c->size - u->at;

	if (u->at > HEADER_MAX)
		return cursor_refuse(u, err,
				     "%s at byte %" PRIu64 " is past the %" PRIu64 " a header may have", what,
				     u->at, HEADER_MAX);
	if (size <= left)
		return 0;
	return cursor_refuse(
		u, err, "%s at byte %" PRIu64 " takes %" PRIu64 " bytes and the file has %" PRIu64 " left",
		what, u->at, size, left);
}

static int cursor_skip(struct cursor *u, uint64_t size, const char *what, struct err *err)
{
	int code = cursor_want(u, size, what, err);

	if (!code)
		u->at += size;
	return code;
}

static int cursor_take(struct cursor *u, void *to, size_t size, const char *what, struct err *err)
{
	char *next = to;
	int code = cursor_want(u, size, what, err);

	if (code)
		return code;
	while (size) {
		if (u->at < u->start || u->at - u->start >= u->have) {
			uint64_t left = u->c->size - u->at;
			size_t have = left < sizeof u->buffer ? left : sizeof u->buffer;
			u->have = 0;
			code = container_pread(u->c, NULL, u->at, u->buffer, have, err);
			if (code)
				return code;
			u->start = u->at;
			u->have = have;
		}
		size_t from = u->at - u->start, part = u->have - from < size ? u->have - from : size;
		memcpy(next, u->buffer + from, part);
		u->at += part;
		next += part;
		size -= part;
	}
	return 0;
}

static int cursor_u32(struct cursor *u, uint32_t *out, const char *what, struct err *err)
{
	return cursor_take(u, out, sizeof *out, what, err);
}

static int cursor_u64(struct cursor *u, uint64_t *out, const char *what, struct err *err)
{
	return cursor_take(u, out, sizeof *out, what, err);
}

static int string_skip(struct cursor *u, struct err *err)
{
	uint64_t size;
	int code = cursor_u64(u, &size, "a string's length", err);

	return code ? code : cursor_skip(u, size, "a string", err);
}

static int array_skip(struct cursor *u, struct err *err)
{
	uint32_t type;
	uint64_t count;
	int code = cursor_u32(u, &type, "an array's type", err);

	if (!code)
		code = cursor_u64(u, &count, "an array's length", err);
	if (code)
		return code;
	/* Nesting has no use and would be a recursion as deep as the file likes. */
	if (type == VALUE_ARRAY || type >= VALUE_COUNT)
		return cursor_refuse(
			u, err, "an array of %s before byte %" PRIu64 " (type %" PRIu32 ") is not read",
			type == VALUE_ARRAY ? "arrays" : "values of an unknown type", u->at, type);
	if (count > (u->c->size - u->at) / value_bytes[type])
		return cursor_refuse(u, err,
				     "an array of %" PRIu64 " values of at least %u bytes at byte %" PRIu64
				     " is longer than the file, %" PRIu64 " bytes",
				     count, value_bytes[type], u->at, u->c->size);
	if (type != VALUE_STRING)
		return cursor_skip(u, count * value_bytes[type], "an array", err);
	while (!code && count--)
		code = string_skip(u, err);
	return code;
}

static int value_skip(struct cursor *u, uint32_t type, struct err *err)
{
	if (type == VALUE_STRING)
		return string_skip(u, err);
	if (type == VALUE_ARRAY)
		return array_skip(u, err);
	if (type >= VALUE_COUNT)
		return cursor_refuse(u, err, "value type %" PRIu32 " before byte %" PRIu64 " is not known",
				     type, u->at);
	return cursor_skip(u, value_bytes[type], "a value", err);
}

static int alignment_read(struct cursor *u, uint32_t type, uint32_t *alignment, struct err *err)
{
	if (type != VALUE_U32)
		return container_damaged(u->c, NULL, err,
					 "general.alignment is a value of type %" PRIu32 "; uint32 is %d",
					 type, VALUE_U32);
	int code = cursor_u32(u, alignment, "general.alignment", err);
	if (!code && (*alignment == 0 || *alignment & (*alignment - 1)))
		return container_damaged(u->c, NULL, err,
					 "general.alignment is %" PRIu32 ", which is not a power of two",
					 *alignment);
	return code;
}

static bool key_is(const struct cursor *u, size_t size, const char *key)
{
	return strlen(key) == size && memcmp(u->key, key, size) == 0;
}

/* A whole number of any width, as llama.cpp writes the split.* keys in two. */
static int natural_read(struct cursor *u, uint32_t type, const char *key, uint64_t *out, struct err *err)
{
	static const bool whole[VALUE_COUNT] = {[0] = true, [1] = true, [2] = true,  [3] = true,
						[4] = true, [5] = true, [10] = true, [11] = true};
	bool has_sign = type & 1;
	int code;

	if (type >= VALUE_COUNT || !whole[type])
		return container_damaged(u->c, NULL, err,
					 "%s is a value of type %" PRIu32 ", which is no whole number", key,
					 type);
	*out = 0;
	code = cursor_take(u, out, value_bytes[type], key, err);
	if (!code && has_sign && *out >> (8 * value_bytes[type] - 1))
		return container_damaged(u->c, NULL, err, "%s is negative", key);
	return code;
}

/* The value of a key whose name has been read: taken where it is one of those that matter, else passed over.
 */
static int value_read(struct cursor *u, size_t size, uint32_t type, struct container *c, uint32_t *alignment,
		      struct err *err)
{
	const struct {
		const char *key;
		uint64_t *to;
	} split[] = {{"split.no", &c->split.no},
		     {"split.count", &c->split.count},
		     {"split.tensors.count", &c->split.tensors}};

	if (key_is(u, size, "general.alignment"))
		return alignment_read(u, type, alignment, err);
	for (size_t i = 0; i < sizeof split / sizeof *split; i++)
		if (key_is(u, size, split[i].key))
			return natural_read(u, type, split[i].key, split[i].to, err);
	return value_skip(u, type, err);
}

static int key_read(struct cursor *u, size_t *size, struct err *err)
{
	uint64_t length;
	int code = cursor_u64(u, &length, "a key's length", err);

	if (!code)
		code = cursor_want(u, length, "a key", err);
	if (code)
		return code;
	if (length == 0 || length > KEY_MAX)
		return container_damaged(u->c, NULL, err,
					 "a key before byte %" PRIu64 " has %" PRIu64
					 " bytes; it may have 1 to %u",
					 u->at, length, KEY_MAX);
	*size = length;
	return cursor_take(u, u->key, length, "a key", err);
}

static int hash_order(const void *a, const void *b)
{
	return XXH128_cmp(a, b);
}

static int keys_read(struct cursor *u, uint64_t count, struct container *c, uint32_t *alignment,
		     struct err *err)
{
	/* Keys are compared by hash, so that memory does not grow with their length. Who makes two that
	 * collide gets his own file refused. */
	cleanup(freep) XXH128_hash_t *seen = calloc(count ? count : 1, sizeof *seen);

	if (!seen)
		return container_refuse(u->c, NULL, err, NPU_E_NO_MEMORY, "no memory for %" PRIu64 " keys",
					count);
	for (uint64_t i = 0; i < count; i++) {
		uint32_t type;
		size_t size = 0;
		int code = key_read(u, &size, err);
		if (!code)
			code = cursor_u32(u, &type, "a value's type", err);
		if (code)
			return code;
		seen[i] = XXH3_128bits(u->key, size);
		u->key_size = size;
		code = value_read(u, size, type, c, alignment, err);
		u->key_size = 0;
		if (code)
			return code;
	}
	qsort(seen, count, sizeof *seen, hash_order);
	for (uint64_t i = 1; i < count; i++)
		if (XXH128_isEqual(seen[i - 1], seen[i]))
			return container_damaged(u->c, NULL, err, "two of the %" PRIu64 " keys are the same",
						 count);
	return 0;
}

/* Sets t->bytes. A dimension of zero makes no elements, whatever the others are. */
static int tensor_size(const struct container *c, struct tensor *t, struct err *err)
{
	const struct type_info *type = type_info(t->type);
	uint64_t row = t->rank ? t->shape[t->rank - 1] : 1, values = 1;
	bool wrapped = false, none = false;

	if (row % type->block)
		return container_damaged(c, t, err,
					 "a row of %" PRIu64 " values is not whole blocks of %u (%s)", row,
					 type->block, type->name);
	for (unsigned i = 0; i < t->rank; i++) {
		none = none || t->shape[i] == 0;
		wrapped = __builtin_mul_overflow(values, t->shape[i], &values) || wrapped;
	}
	if (none) {
		t->bytes = 0;
		return 0;
	}
	if (!wrapped)
		wrapped = __builtin_mul_overflow(values / type->block, (uint64_t)type->bytes, &t->bytes);
	if (wrapped || t->bytes > c->size)
		return container_damaged(c, t, err,
					 "%s of dimensions %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
					 " is larger than the file, %" PRIu64 " bytes",
					 type->name, row, t->rank > 1 ? t->shape[t->rank - 2] : 1,
					 t->rank > 2 ? t->shape[t->rank - 3] : 1,
					 t->rank > 3 ? t->shape[t->rank - 4] : 1, c->size);
	return 0;
}

static int tensor_read(struct cursor *u, struct container *c, struct err *err)
{
	struct tensor *t;
	char name[NAME_MAX_BYTES];
	uint64_t name_size;
	uint32_t rank, type;
	int code = cursor_u64(u, &name_size, "a tensor name's length", err);

	if (code)
		return code;
	if (name_size > sizeof name)
		return container_damaged(c, NULL, err,
					 "the name of tensor %zu has %" PRIu64 " bytes; it may have %u",
					 c->count, name_size, NAME_MAX_BYTES);
	code = cursor_take(u, name, name_size, "a tensor's name", err);
	if (!code)
		code = cursor_u32(u, &rank, "a tensor's rank", err);
	if (!code)
		code = container_add(c, name, name_size, &t, err);
	if (code)
		return code;
	if (rank > DIMS_MAX)
		return container_damaged(c, t, err, "%" PRIu32 " dimensions; there may be %u", rank,
					 DIMS_MAX);
	t->rank = rank;
	for (unsigned i = rank; !code && i-- > 0;)
		code = cursor_u64(u, &t->shape[i], "a tensor's dimension", err);
	if (!code)
		code = cursor_u32(u, &type, "a tensor's type", err);
	if (!code)
		code = cursor_u64(u, &t->offset, "a tensor's offset", err);
	if (code)
		return code;
	if (type >= sizeof types / sizeof *types || !types[type].known)
		return container_refuse(c, t, err, NPU_E_BAD_CONTAINER,
					"type %" PRIu32 " is not known; convert it to one that is", type);
	t->type = types[type].type;
	return tensor_size(c, t, err);
}

static uint64_t padded(uint64_t size, uint32_t alignment)
{
	return (size + alignment - 1) / alignment * alignment;
}

/* Makes offsets the file's. No sum here wraps: each is at most the file's size, below 2^63, plus 2^31. */
static int places_check(struct container *c, uint64_t base, uint32_t alignment, struct err *err)
{
	uint64_t next = base;

	for (size_t i = 0; i < c->count; i++) {
		struct tensor *t = &c->tensors[i];
		if (t->offset != next - base)
			return container_damaged(c, t, err,
						 "the offset is %" PRIu64
						 "; after the tensors before it must be %" PRIu64,
						 t->offset, next - base);
		if (next > c->size || t->bytes > c->size - next)
			return container_damaged(c, t, err,
						 "the data is %" PRIu64 " bytes at byte %" PRIu64
						 " and the file has %" PRIu64,
						 t->bytes, next, c->size);
		t->offset = next;
		next = base + padded(next + t->bytes - base, alignment);
	}
	return 0;
}

int gguf_read(struct container *c, struct err *err)
{
	cleanup(freep) struct cursor *u = malloc(sizeof *u);
	uint32_t version, alignment = 32;
	uint64_t tensors, keys;
	int code;

	if (!u)
		return container_refuse(c, NULL, err, NPU_E_NO_MEMORY, "no memory to read the header");
	u->c = c;
	u->at = 4;
	u->start = 0;
	u->have = 0;
	u->key_size = 0;

	code = cursor_u32(u, &version, "the version", err);
	if (code)
		return code;
	if (version != 2 && version != 3)
		return container_refuse(c, NULL, err, NPU_E_BAD_CONTAINER,
					"GGUF version %" PRIu32 "%s; 2 and 3 are read: convert it again",
					version,
					version && !(version & 0xffff) ? " (a big-endian file)" : "");
	code = cursor_u64(u, &tensors, "the number of tensors", err);
	if (!code)
		code = cursor_u64(u, &keys, "the number of keys", err);
	if (code)
		return code;
	uint64_t left = c->size - u->at;
	if (tensors > TENSORS_MAX || tensors > left / TENSOR_LEAST)
		return container_damaged(
			c, NULL, err, "%" PRIu64 " tensors do not fit in %" PRIu64 " bytes, or are above %u",
			tensors, left, TENSORS_MAX);
	if (keys > KEYS_MAX || keys > left / KEY_LEAST)
		return container_damaged(c, NULL, err,
					 "%" PRIu64 " keys do not fit in %" PRIu64 " bytes, or are above %u",
					 keys, left, KEYS_MAX);

	code = keys_read(u, keys, c, &alignment, err);
	for (uint64_t i = 0; !code && i < tensors; i++)
		code = tensor_read(u, c, err);
	if (!code)
		code = container_names_differ(c, err);
	return code ? code : places_check(c, padded(u->at, alignment), alignment, err);
}
