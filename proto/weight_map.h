/*
 * Which files a model.safetensors.index.json says that tensors are in, so that all of them can be opened,
 * whatever they are called. No JSON reader: a client library carries none, and who serves the model reads the
 * index properly and refuses one that says anything else. Any thread; no state.
 */
#ifndef NPUD_WEIGHT_MAP_H
#define NPUD_WEIGHT_MAP_H

#include "err.h"
#include <stdbool.h>
#include <stddef.h>

/* The index of the largest models has about 100,000 tensors of 100 bytes. */
#define WEIGHT_MAP_MAX ((size_t)64 << 20)
/* The widest models are cut in some 200 files. */
#define WEIGHT_MAP_FILES_MAX 4096u

struct weight_map {
	char **files; /* owned; each once, in the order of their bytes */
	size_t count;
};

/*
 * The places of "weight_map" that are names of *.safetensors files beside the index; others are passed over,
 * a way out of the folder (`/`) among them. TOO_LARGE for more than WEIGHT_MAP_FILES_MAX, NO_MEMORY.
 */
int weight_map_scan(struct weight_map *out, const char *text, size_t size, const char *label,
		    struct err *err);

/* The same of an open file, from its beginning. Also IO; TOO_LARGE above WEIGHT_MAP_MAX bytes. */
int weight_map_read(struct weight_map *out, int fd, const char *label, struct err *err);

bool weight_map_has(const struct weight_map *map, const char *file);
void weight_map_fini(struct weight_map *map);

#endif
