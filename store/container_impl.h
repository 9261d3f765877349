/*
 * What the readers of single formats share with container.c; nobody else includes this.
 */
#ifndef NPUD_CONTAINER_IMPL_H
#define NPUD_CONTAINER_IMPL_H

#include "container.h"
#include <assert.h>

/* Every container stores little-endian numbers; the readers copy them as they are. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a big-endian host needs byte swaps here");

enum container_kind { CONTAINER_SAFETENSORS, CONTAINER_GGUF, CONTAINER_LLAMA2C, CONTAINER_JSON };

struct container {
	int fd; /* the caller's; -1 where there are parts */
	enum container_kind kind;
	uint64_t size;	 /* of the file when it was opened; at most INT64_MAX */
	char label[104]; /* printable */
	struct tensor *tensors;
	size_t count, room;
	struct {
		uint64_t no, count, tensors;
	} split; /* a GGUF file's split.* keys; 0 where it has none */
	/* A model of several files: each was read alone and gave its tensors away. */
	struct container **parts;
	size_t part_count;
	enum { TIE_UNSAID, TIE_NO, TIE_YES } tie; /* tie_word_embeddings of config.json */
};

struct type_info {
	const char *name;
	uint32_t block; /* values */
	uint32_t bytes; /* of one block */
};

const struct type_info *type_info(enum tensor_type type);

/* The embedding, whether it is the head or not; NULL where there is none. */
const struct tensor *container_embedding(const struct container *c);

/* What is to be added to the products of the head `t` and is stored beside it; NULL where there is nothing.
 */
const struct tensor *container_bias(const struct container *c, const struct tensor *t);

/* Sets code and sentence with the file's label and, unless NULL, the tensor's name before it. Returns the
 * code. */
int container_refuse(const struct container *c, const struct tensor *t, struct err *err, int code,
		     const char *format, ...) __attribute__((format(printf, 5, 6)));

/* BAD_CONTAINER for what no sound file has, with what helps against it. */
int container_damaged(const struct container *c, const struct tensor *t, struct err *err, const char *format,
		      ...) __attribute__((format(printf, 4, 5)));

/* Exactly `size` bytes at `offset`. IO, or FILE_CHANGED where the file ends before. */
int container_pread(const struct container *c, const struct tensor *t, uint64_t offset, void *to, size_t size,
		    struct err *err);

/* A new last tensor with a copy of the name and zeros else; `out` holds until the next one. NO_MEMORY. */
int container_add(struct container *c, const char *name, size_t name_size, struct tensor **out,
		  struct err *err);

/* BAD_CONTAINER where two tensors have one name. */
int container_names_differ(const struct container *c, struct err *err);

/* Reads one file alone. A side file of JSON is only looked at, and has no tensors. */
int container_open_file(struct container **out, const struct container_file *file, bool json,
			struct err *err);

/* Reads every file into a part and makes one model of them. */
int group_read(struct container *c, const struct container_file *files, size_t count, struct err *err);
/* What shard names and split keys say of one file that was given alone. */
int group_check_alone(const struct container *c, const char *name, struct err *err);

/* The tensor of that name, or NULL. */
const struct tensor *container_find(const struct container *c, const char *name);

/* These fill c->tensors. */
int safetensors_read(struct container *c, struct err *err);
int gguf_read(struct container *c, struct err *err);
/* `taken` false and no error where the file is none of these: they have no magic, only a plausible header. */
int llama2c_read(struct container *c, bool *taken, struct err *err);

#endif
