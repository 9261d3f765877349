/*
 * A head on its way from a file into memory: hash (which names it), then pack (which hashes again what it
 * packs, and fails when the two differ). Runs on a worker thread, with a pool of its own while it reads, so
 * that a slow disk under one load holds up no other; touches only its own struct. The loop looks at
 * `tiles_done` and sets `stop`.
 */
#ifndef NPUD_LOADER_H
#define NPUD_LOADER_H

#include "hash.h"
#include "image.h"
#include "source.h"
#include <stdatomic.h>

struct load_request {
	char label[129]; /* the model's name, in messages */
	char *tensor;	 /* owned; empty: the model's head */
	struct matrix_options options;
	uint32_t tile;
	enum layout layout;
};

struct load {
	struct load_request request;
	struct source source; /* owned */
	const struct hash_secret *secret;
	const struct kernels *kernels;
	unsigned threads; /* that read and pack, the caller's included */
	atomic_bool stop;
	atomic_uint tiles_done;

	/* made by load_identify */
	struct container *container;
	struct matrix matrix;
	enum head_reason why;
	struct geometry geometry;
	unsigned char hash[16];
	float *amax; /* of the columns of a transposed matrix, from the first pass */
	/* made by load_pack */
	struct image image;
	_Atomic uint64_t nonfinite;
};

/* `request->tensor` and the source's files become the load's. */
int load_new(struct load **out, struct load_request *request, struct source *source,
	     const struct hash_secret *secret, const struct kernels *kernels, unsigned threads);
void load_free(struct load *l);

/* Bytes that loading takes beside the image: room for the slices in hand. After load_identify. */
uint64_t load_transient(const struct load *l);

/* Opens the container, finds the head, chooses the geometry, hashes. What container.h says, BAD_GEOMETRY,
 * CANCELLED. */
int load_identify(struct load *l, struct err *err);
/* Packs every tile into `image`. FILE_CHANGED where the bytes are not those that were hashed; CANCELLED;
 * NO_MEMORY. */
int load_pack(struct load *l, struct err *err);

#endif
