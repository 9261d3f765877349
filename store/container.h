/*
 * One face for every file that holds a model's tensors. Any thread; one container is used by one
 * thread at a time. Nothing is mapped: headers are read into memory bounded by the file's size, data
 * by pread into the caller's buffers, so a file that shrinks is an error and never a signal.
 */
#ifndef NPUD_CONTAINER_H
#define NPUD_CONTAINER_H

#include "err.h"
#include <stdbool.h>

struct container;

enum tensor_type {
#define TYPE(name, block, bytes) TYPE_##name,
#include "types.def"
#undef TYPE
	TYPE_COUNT
};

struct tensor {
	char *name; /* bytes as stored, NUL-terminated; may hold anything else: print with err_printable */
	size_t name_size;
	enum tensor_type type;
	unsigned rank;	   /* 0 to 8 (4 for GGUF); more is a refusal of safetensors matrices, not of files */
	uint64_t shape[8]; /* slowest first in every container: a head is [NV][H] */
	uint32_t file;	   /* which of the files that were given holds it */
	uint64_t offset;   /* of the data in that file, bytes */
	uint64_t bytes;
};

/* One file of a model, opened by the caller, who keeps it open while the container lives. */
struct container_file {
	int fd;
	const char *
		name; /* without folders; tells a side file (*.json) and a shard's place, else for messages */
};

/*
 * Reads and checks the whole headers of the files that are one model, `count` of them, at least 1: a GGUF or
 * safetensors file, whose format goes by its first bytes, or all its shards, and for safetensors the
 * model.safetensors.index.json and config.json beside them. What the parts say of each other must agree, and
 * none may be missing: half a model would have another head. `label` names the model in messages.
 * BAD_CONTAINER with the file, the field and the numbers, FILE_CHANGED where one shrinks meanwhile, IO,
 * NO_MEMORY.
 */
int container_open(struct container **out, const struct container_file *files, size_t count,
		   const char *label, struct err *err);
void container_free(struct container *c);
void container_freep(struct container **c);

size_t container_count(const struct container *c);
const struct tensor *container_tensor(const struct container *c, size_t i);
const char *container_format(const struct container *c); /* "safetensors", "GGUF", "llama2.c" */

/* The container's own name of a type ("BF16", "Q8_0"). */
const char *tensor_type_name(enum tensor_type type);

enum head_reason { HEAD_NAMED, HEAD_UNTIED, HEAD_TIED };
const char *head_reason_name(enum head_reason why); /* "named", "untied", "tied" */

/*
 * The head: the tensor called `name`, or with NULL or "" lm_head.weight / output.weight, or for a tied
 * model model.embed_tokens.weight / token_embd.weight, each also below language_model. A config.json with
 * tie_word_embeddings decides: false leaves only the former, true takes the embedding (but not before an
 * lm_head.weight of FastFlowLM's I8 tiles, which were made from it). Where nothing is said, an embedding is
 * not taken for a head that is there in a form that is not read (lm_head.qweight). NO_HEAD says what was
 * looked for. The tensor belongs to the container.
 */
int container_head(const struct container *c, const char *name, const struct tensor **out,
		   enum head_reason *why, struct err *err);

#endif
