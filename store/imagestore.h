/*
 * The image store: packed heads in LMDB, so that each is packed once a machine. Every doubt is a refusal
 * with a reason and ends in packing afresh.
 *
 * One process opens a store (a lock sees to it). imagestore_open and _close: one thread, before and after all
 * others. imagestore_read, _heads, _tile, _piece, _verify, _names, _stat: any thread. Whatever changes the
 * store
 * (_admit, _write, _use, _remove, _prune, _compact, _name_keep, _name_drop): one thread at a time, the caller
 * sees to it. Nobody else needs to wait for it.
 */
#ifndef NPUD_IMAGESTORE_H
#define NPUD_IMAGESTORE_H

#include "err.h"
#include "hash.h"
#include "record.h"
#include <stdatomic.h>

struct imagestore;

struct imagestore_options {
	const char *path; /* a directory of its own; made where it is not there */
	const char
		*secret_file; /* where an older npud kept the secret of content hashes; taken over, removed */
	uint64_t fingerprint; /* of the packer */
	uint64_t max_bytes;   /* of all images; whole heads go when more are written */
	uint64_t min_free_bytes; /* of the file system: below it the file does not grow */
};

/*
 * Opens or makes the store, moves one aside (to PATH/db.bad-TIME) that does not hold together, removes what
 * writes that never ended left. Forks a child that looks through the file first: no other thread may run yet.
 * IN_USE with the other's pid; IO, NOT_ALLOWED where there can be no store here: go on without.
 */
int imagestore_open(struct imagestore **out, const struct imagestore_options *options, struct err *err);
void imagestore_close(struct imagestore *s); /* NULL is fine */

/* The installation's secret; it lives as long as the store's directory. */
const struct hash_secret *imagestore_secret(const struct imagestore *s);
/* Its directory. */
const char *imagestore_path(const struct imagestore *s);
/* Where a store that did not hold together went and why, or "". */
const char *imagestore_moved(const struct imagestore *s);

/* A tile in the caller's memory. */
struct image_tile_io {
	struct head_key key;
	uint32_t tile, tiles;
	uint32_t columns; /* of this tile that are vocabulary */
	int8_t *codes;	  /* kd * nd */
	float *scales;	  /* nd */
	uint64_t nonfinite;
};

enum image_result { IMAGE_HIT, IMAGE_MISS, IMAGE_REFUSED };

/* Whether what was read agrees with the weights: false with `why` (refusal_set, REFUSED_SAMPLE). */
typedef bool image_sample_fn(void *arg, const struct image_tile_io *tile, struct refusal *why);

/*
 * Reads a tile into io->codes (which must be zero: panels past the vocabulary are not stored) and io->scales,
 * and verifies everything on the way; `sample` has the last word. On HIT io->nonfinite is what was counted
 * when it was packed. After REFUSED the memory holds anything.
 */
enum image_result imagestore_read(struct imagestore *s, struct image_tile_io *io, image_sample_fn *sample,
				  void *arg, struct refusal *why);

/* A head as a whole. */
struct stored_head {
	struct head_key key;
	char label[RECORD_LABEL], tensor[RECORD_TENSOR];
	uint32_t tiles, columns; /* columns of the vocabulary */
	uint64_t created_us, used_us, hits, bytes;
	bool superseded;
};

/*
 * Makes room for a head that is about to be written and accounts for it: superseded heads go first, then
 * the least recently used, never one of `spared`. head->key, label, tensor, tiles, columns and bytes are
 * read; bytes is the sum of record_plan_bytes. TOO_LARGE where it does not fit the budget, IO.
 */
int imagestore_admit(struct imagestore *s, const struct stored_head *head, const struct head_key *spared,
		     size_t count, struct err *err);

/*
 * Writes, or replaces, a tile of an admitted head: header away, chunks, header. IO (disk full, floor of free
 * space, ...) or CANCELLED by `stop`: nothing of the tile is left then.
 */
int imagestore_write(struct imagestore *s, const struct image_tile_io *io, const atomic_bool *stop,
		     struct err *err);

/* The head was opened and every tile came from here: counts a hit, and its label's other heads become
 * superseded. */
int imagestore_use(struct imagestore *s, const struct stored_head *head, struct err *err);

/* Up to `room` heads in the order of their keys, from the one behind `after` on (NULL: the first). */
int imagestore_heads(struct imagestore *s, const struct head_key *after, struct stored_head *rows,
		     size_t room, size_t *count, struct err *err);
/* One head; NO_SUCH_HANDLE where it is not there. */
int imagestore_head(struct imagestore *s, const struct head_key *key, struct stored_head *out,
		    struct err *err);
/* Whether any tile of the head is there. */
bool imagestore_has(struct imagestore *s, const struct head_key *key);
/* The header of a tile as stored, not verified. MISS, or HIT. */
enum image_result imagestore_tile(struct imagestore *s, const struct head_key *key, uint32_t tile,
				  struct record_header *out);
/* Hashes a stored tile where it lies. Its provenance (fingerprint, sample) is a matter of imagestore_read. */
enum image_result imagestore_verify(struct imagestore *s, const struct head_key *key, uint32_t tile,
				    struct refusal *why);
/* Payload of chunk i of a tile, verified by its hash, into `to` (RECORD_CHUNK_MAX bytes). */
enum image_result imagestore_piece(struct imagestore *s, const struct head_key *key, uint32_t tile,
				   uint32_t i, void *to, uint32_t *length, bool *scales, struct refusal *why);

/* Takes a whole head out. */
int imagestore_remove(struct imagestore *s, const struct head_key *key, struct err *err);
/* Takes out every head but those of `spared`, and what files hashed to; or only superseded heads. `heads` and
 * `bytes` went. */
int imagestore_prune(struct imagestore *s, bool superseded, const struct head_key *spared, size_t count,
		     uint64_t *heads, uint64_t *bytes, struct err *err);
/* Copies what is live to a new file and goes on with it; readers wait only for the change. IO where there is
 * not the free space of the live size. `before` and `after`: bytes of the file. */
int imagestore_compact(struct imagestore *s, uint64_t *before, uint64_t *after, struct err *err);

/* Once a minute: gives back what readers that died left. */
void imagestore_tick(struct imagestore *s);

/* What files hashed to, for a daemon to come: names of how they were, and hashes of what was read. */
struct stored_name {
	unsigned char digest[16];
	bool idle; /* nobody had them open to write when they were hashed */
	struct content_hashes hashes;
};
#define IMAGESTORE_NAMES_MAX 256u

/* All of them, the latest kept first; `rows` has room for IMAGESTORE_NAMES_MAX. Damaged ones are left out. */
int imagestore_names(struct imagestore *s, struct stored_name *rows, size_t *count, struct err *err);
/* Keeps one, in place of what there is by its digest, and of the oldest where there are too many. IO. */
int imagestore_name_keep(struct imagestore *s, const struct stored_name *name, struct err *err);
/* One that is not there is no error. */
int imagestore_name_drop(struct imagestore *s, const unsigned char digest[16], struct err *err);

struct imagestore_stat {
	uint64_t heads, bytes, superseded_bytes;	/* own accounting */
	uint64_t file_bytes, free_bytes;		/* of data.mdb; pages in it that can be used again */
	uint64_t hits, misses, written, write_failures; /* tiles, since the start */
	uint64_t copied_bytes; /* of the copy that imagestore_compact is making now; 0: none */
	uint64_t refused[REFUSED_COUNT];
};
int imagestore_stat(struct imagestore *s, struct imagestore_stat *out, struct err *err);

#endif
