/*
 * A head on its way from a file into memory: hash (which names it), then fill: tiles from the image store,
 * and what it does not have, or what is in doubt, packed (which hashes again what it packs, and fails when
 * the two differ). Runs on a worker thread, with a pool of its own while it reads, so that a slow disk under
 * one load holds up no other; touches only its own struct. The loop looks at `tiles_done` and sets `stop`.
 */
#ifndef NPUD_LOADER_H
#define NPUD_LOADER_H

#include "hash.h"
#include "image.h"
#include "imagestore.h"
#include "known.h"
#include "residency.h"
#include "sample.h"
#include "placement.h"
#include "source.h"
#include <stdatomic.h>

struct load_request {
	char label[129]; /* the model's name, in messages */
	char *tensor; /* owned: names, each ended by a NUL, side by side in this order; one empty: the head */
	unsigned tensors; /* names; 0 is 1 */
	struct matrix_options options;
	uint32_t tile;
	enum layout layout;
	bool store;	 /* whether the image store may be used */
	bool any_layout; /* what the device takes, `layout` on the host */
	uint32_t layer;
	char role[ROLE_MAX]; /* empty: "head" */
	bool fleeting;	     /* for one call */
};

#define LOAD_TENSORS_MAX RECORD_PARTS

/* One of the matrices that are side by side in the image. */
struct load_part {
	struct matrix matrix;
	uint32_t from; /* its first column there */
	unsigned char hash[16];
};

struct load {
	struct load_request request;
	struct source source; /* owned */
	const struct hash_secret *secret;
	const struct kernels *kernels;
	struct placement placement; /* its accelerator is set by who gives the load away */
	struct imagestore *store;   /* NULL: neither read nor written */
	struct known
		*known;	  /* files that need not be hashed again; NULL: all are. Set by who made the load */
	uid_t reader;	  /* who passed the files */
	uint64_t most;	  /* bytes that may ever be resident; 0: any. Set by who made the load */
	unsigned threads; /* that read and pack, the caller's included */
	atomic_bool stop;
	atomic_uint tiles_done;

	/* made by load_identify */
	struct container *container;
	struct load_part parts[LOAD_TENSORS_MAX];
	unsigned part_count;
	enum head_reason why;
	struct geometry geometry;
	bool vast; /* more than `most`: it was not hashed, so it has no name and nobody may share it */
	unsigned char hash[16];
	struct known_name name; /* of the files, as they were before they were looked at */
	bool doubted;		/* they turned out not to be what was known of them */
	bool hashed; /* they were read whole; false: the hash is that of files that were as they are */
	float *amax; /* of the columns of transposed matrices, from the first pass; NULL: none is */
	struct sample sample;
	/* made by load_fill */
	struct image image;
	struct load_tile *tiles; /* [geometry.tiles] */
	uint64_t nonfinite;
	uint32_t from_store, packed, refused; /* tiles */
	char refusals[1024];		      /* a line for each, as many as fit */
	_Atomic uint64_t gathered;	      /* columns that were read from the file to be packed */
};

struct load_tile {
	bool packed; /* it was not in the store as it should be */
	_Atomic uint64_t nonfinite;
};

/* `request->tensor` and the source's files become the load's. */
int load_new(struct load **out, struct load_request *request, struct source *source, struct imagestore *store,
	     const struct hash_secret *secret, const struct kernels *kernels, unsigned threads);
void load_free(struct load *l);

/* Bytes that loading takes beside the image: room for the slices in hand. After load_identify. */
uint64_t load_transient(const struct load *l);

/* Opens the container, finds the tensors, chooses the geometry, hashes; not what is above `most`, which the
 * caller refuses. What container.h says, BAD_GEOMETRY also where the tensors have different H, CANCELLED. */
int load_identify(struct load *l, struct err *err);
/* The files are not what was known of them: forgets that, and makes the load as new, for load_identify, which
 * reads them whole. */
void load_doubt(struct load *l);
/* Fills `image`. FILE_CHANGED where the bytes packed are not those that were hashed (unless they were,
 * load_doubt helps); CANCELLED; NO_MEMORY. */
int load_fill(struct load *l, struct err *err);
/* Whether a resident image of the same name is of the weights in this file: the sample. False with why. */
bool load_agrees(struct load *l, const struct image *image, struct refusal *why);

/* Tile t of an image, as the store takes it. */
struct image_tile_io load_tile_io(const struct image *image, const unsigned char hash[16], uint32_t t);

#endif
