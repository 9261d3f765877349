/*
 * The names by which Hugging Face and llama.cpp tell the files of one model apart: X-00002-of-00005.gguf,
 * X-00002-of-00005.safetensors. Any thread; no state.
 */
#ifndef NPUD_SHARD_H
#define NPUD_SHARD_H

#include <stdbool.h>
#include <stddef.h>

struct shard {
	unsigned number, count; /* from 1; number <= count */
	size_t stem;		/* bytes of the name before "-00002-of-" */
	const char *extension;	/* within the name: ".gguf" */
};

/* False where `name` is not so made. */
bool shard_read(struct shard *out, const char *name);

#endif
