#include "container_impl.h"
#include "json.h"
#include "own.h"
#include "stranger.h"
#include <inttypes.h>
#include <string.h>

/* The reference reader's limit. */
#define HEADER_MAX 100000000u

static const struct {
	const char *name;
	enum tensor_type type;
} dtypes[] = {
	{"BOOL", TYPE_BOOL},
	{"U8", TYPE_U8},
	{"I8", TYPE_I8},
	{"F8_E5M2", TYPE_F8_E5M2},
	{"F8_E4M3", TYPE_F8_E4M3},
	{"F8_E8M0", TYPE_F8_E8M0},
	{"I16", TYPE_I16},
	{"U16", TYPE_U16},
	{"F16", TYPE_F16},
	{"BF16", TYPE_BF16},
	{"I32", TYPE_I32},
	{"U32", TYPE_U32},
	{"F32", TYPE_F32},
	{"I64", TYPE_I64},
	{"U64", TYPE_U64},
	{"F8_E5M2FNUZ", TYPE_F8_E5M2FNUZ},
	{"F8_E4M3FNUZ", TYPE_F8_E4M3FNUZ},
	{"F64", TYPE_F64},
	{"C64", TYPE_C64},
	{"F4", TYPE_F4},
	{"F6_E2M3", TYPE_F6_E2M3},
	{"F6_E3M2", TYPE_F6_E3M2},
};

static bool dtype_find(const char *name, enum tensor_type *out)
{
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
		if (strcmp(dtypes[i].name, name) == 0) {
			*out = dtypes[i].type;
			return true;
		}
	return false;
}

static bool natural(const json_t *json, uint64_t *out)
{
	if (!json_is_integer(json) || json_integer_value(json) < 0)
		return false;
	*out = (uint64_t)json_integer_value(json);
	return true;
}

static int metadata_check(const struct container *c, json_t *metadata, struct err *err)
{
	const char *key;
	json_t *value;

	if (!metadata || json_is_null(metadata))
		return 0;
	if (!json_is_object(metadata))
		return container_damaged(c, NULL, err, "__metadata__ is not an object");
	json_object_foreach(metadata, key, value)
	{
		if (json_is_string(value))
			continue;
		char name[80];
		err_printable(name, sizeof name, key, strlen(key));
		return container_damaged(c, NULL, err, "__metadata__: \"%s\" is not a string", name);
	}
	return 0;
}

/* What the reference's checks of one tensor are, up to where its bytes lie between the others. */
static int tensor_read(const struct container *c, struct tensor *t, const json_t *entry, uint64_t base,
		       struct err *err)
{
	const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
	const json_t *offsets = json_object_get(entry, "data_offsets");
	uint64_t values = 1, start, end;

	if (!json_is_object(entry))
		return container_damaged(c, t, err, "the entry is not an object");
	if (!json_is_string(dtype) || !dtype_find(json_string_value(dtype), &t->type)) {
		const char *given = json_is_string(dtype) ? json_string_value(dtype) : "";
		char name[80];
		return container_refuse(c, t, err, NPU_E_BAD_CONTAINER,
					"dtype \"%s\" is missing or unknown; save it with one that is known",
					err_printable(name, sizeof name, given, strlen(given)));
	}
	if (!json_is_array(shape))
		return container_damaged(c, t, err, "shape is missing or no array");
	if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
	    !natural(json_array_get(offsets, 0), &start) || !natural(json_array_get(offsets, 1), &end))
		return container_damaged(c, t, err, "data_offsets is missing or not two whole numbers");

	t->rank = (unsigned)json_array_size(shape);
	for (size_t i = 0; i < json_array_size(shape); i++) {
		uint64_t size;
		if (!natural(json_array_get(shape, i), &size))
			return container_damaged(c, t, err,
						 "dimension %zu of the shape is not a whole number", i);
		if (__builtin_mul_overflow(values, size, &values))
			return container_damaged(
				c, t, err, "the shape's product at dimension %zu (%" PRIu64 ") is above 2^64",
				i, size);
		if (i < sizeof t->shape / sizeof *t->shape)
			t->shape[i] = size;
	}

	const struct type_info *type = type_info(t->type);
	if (values % type->block)
		return container_damaged(c, t, err, "%" PRIu64 " values of %s are not whole bytes", values,
					 type->name);
	if (__builtin_mul_overflow(values / type->block, (uint64_t)type->bytes, &t->bytes))
		return container_damaged(c, t, err, "%" PRIu64 " values of %s are above 2^64 bytes", values,
					 type->name);
	if (end < start || end > c->size - base || end - start != t->bytes)
		return container_damaged(c, t, err,
					 "data_offsets are %" PRIu64 " and %" PRIu64
					 "; the shape asks for %" PRIu64 " bytes and the file has %" PRIu64
					 " of data",
					 start, end, t->bytes, c->size - base);
	t->offset = base + start;
	return 0;
}

static int tensor_place_order(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Every byte after the header is exactly one tensor's. */
static int places_check(const struct container *c, uint64_t at, struct err *err)
{
	for (size_t i = 0; i < c->count; i++) {
		const struct tensor *t = &c->tensors[i];
		if (t->offset != at)
			return container_damaged(c, t, err,
						 "the data starts at byte %" PRIu64
						 " of the file, the data before ends at byte %" PRIu64,
						 t->offset, at);
		at += t->bytes;
	}
	if (at != c->size)
		return container_damaged(c, NULL, err,
					 "the last tensor ends at byte %" PRIu64
					 " and the file at byte %" PRIu64,
					 at, c->size);
	return 0;
}

/* No format is left that it could be; a beginning that is known says more than a length. */
static int header_refuse(const struct container *c, uint64_t size, struct err *err)
{
	unsigned char first[STRANGER_BYTES];
	size_t have = c->size < sizeof first ? (size_t)c->size : sizeof first;
	int code = container_pread(c, NULL, 0, first, have, err);
	const char *what = code ? NULL : stranger_what(first, have);

	if (code)
		return code;
	if (what)
		return container_refuse(c, NULL, err, NPU_E_BAD_CONTAINER, "this is %s", what);
	return container_damaged(
		c, NULL, err,
		"taken for safetensors, for it is neither GGUF nor llama2.c, the header would "
		"have %" PRIu64 " bytes; the most is %u and the file has %" PRIu64,
		size, HEADER_MAX, c->size);
}

int safetensors_read(struct container *c, struct err *err)
{
	cleanup(json_freep) json_t *header = NULL;
	uint64_t size;
	const char *name;
	json_t *entry;
	int code;

	if (c->size < sizeof size)
		return container_refuse(
			c, NULL, err, NPU_E_BAD_CONTAINER,
			"%" PRIu64 " bytes are neither safetensors nor GGUF nor llama2.c; name another file",
			c->size);
	code = container_pread(c, NULL, 0, &size, sizeof size, err);
	if (code)
		return code;
	if (size > HEADER_MAX || size > c->size - sizeof size)
		return header_refuse(c, size, err);

	code = json_read(&header, c, "the header", sizeof size, size, JSON_STANDARD, err);
	if (!code)
		code = metadata_check(c, json_object_get(header, "__metadata__"), err);
	if (code)
		return code;
	json_object_foreach(header, name, entry)
	{
		struct tensor *t;
		if (strcmp(name, "__metadata__") == 0)
			continue;
		code = container_add(c, name, strlen(name), &t, err);
		if (!code)
			code = tensor_read(c, t, entry, sizeof size + size, err);
		if (code)
			return code;
	}
	if (c->count)
		qsort(c->tensors, c->count, sizeof *c->tensors, tensor_place_order);
	return places_check(c, sizeof size + size, err);
}
