/*
 * What the readers of single formats share with container.c; nobody else includes this.
 */
#ifndef NPUD_CONTAINER_IMPL_H
#define NPUD_CONTAINER_IMPL_H

#include "container.h"
#include <assert.h>

/* Every container stores little-endian numbers; the readers copy them as they are. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a big-endian host needs byte swaps here");

enum container_kind { CONTAINER_SAFETENSORS, CONTAINER_GGUF };

struct container {
	int fd; /* the caller's */
	enum container_kind kind;
	uint64_t size;	 /* of the file when it was opened; at most INT64_MAX */
	char label[104]; /* printable */
	struct tensor *tensors;
	size_t count, room;
};

struct type_info {
	const char *name;
	uint32_t block; /* values */
	uint32_t bytes; /* of one block */
};

const struct type_info *type_info(enum tensor_type type);

/* Sets code and sentence with the file's label and, unless NULL, the tensor's name before it. Returns the
 * code. */
int container_refuse(const struct container *c, const struct tensor *t, struct err *err, int code,
		     const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Exactly `size` bytes at `offset`. IO, or FILE_CHANGED where the file ends before. */
int container_pread(const struct container *c, const struct tensor *t, uint64_t offset, void *to, size_t size,
		    struct err *err);

/* A new last tensor with a copy of the name and zeros else; `out` holds until the next one. NO_MEMORY. */
int container_add(struct container *c, const char *name, size_t name_size, struct tensor **out,
		  struct err *err);

/* BAD_CONTAINER where two tensors have one name. */
int container_names_differ(const struct container *c, struct err *err);

/* These fill c->tensors. */
int safetensors_read(struct container *c, struct err *err);
int gguf_read(struct container *c, struct err *err);

#endif
