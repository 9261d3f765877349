/* Image stores for unit tests: one in a temporary directory, tiles to put in, and a way behind its back. */
#ifndef STORES_H
#define STORES_H

#include "imagestore.h"
#include "own.h"
#include <lmdb.h>

#define STORES_FINGERPRINT UINT64_C(0x1122334455667788)
#define STORES_BUDGET (UINT64_C(1) << 30)

extern char stores_dir[64];	  /* a temporary directory */
extern char stores_path[80];	  /* of the store, in it */
extern struct refusal stores_why; /* of the last stores_get */

/* Before and after every test. */
void stores_up(void);
void stores_down(void);

struct imagestore *stores_open_with(uint64_t fingerprint, uint64_t max_bytes, uint64_t min_free);
struct imagestore *stores_open(void);

/* A tile as packing makes it: codes of `seed` in the panels that hold vocabulary, zeros behind. */
struct image_tile_io stores_tile(unsigned seed, uint32_t kd, uint32_t nd, uint32_t columns);
/* Zeros, of the same key. */
struct image_tile_io stores_blank(const struct image_tile_io *like);
void stores_free(struct image_tile_io *io);
void stores_expect_same(const struct image_tile_io *a, const struct image_tile_io *b);

struct stored_head stores_head(const struct image_tile_io *io, const char *label);
/* Admits and writes. */
void stores_put(struct imagestore *s, const struct image_tile_io *io, const char *label);
/* What reading `like` from the store gives; on a hit the bytes are those of `like`. */
enum image_result stores_get(struct imagestore *s, const struct image_tile_io *like);
/* Whether the tile comes back. */
bool stores_has(struct imagestore *s, const struct image_tile_io *io);
/* Of the store, which may be open. */
uint64_t stores_file_size(void);
/* A sample that agrees with everything. */
bool stores_agrees(void *arg, const struct image_tile_io *io, struct refusal *r);

/* Changes what lies in the file, behind the store's back, which must be closed. */
struct stores_raw {
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;
};
struct stores_raw stores_raw_open(const char *database);
void stores_raw_close(struct stores_raw *r);
/* A copy of the value, to be freed. */
unsigned char *stores_raw_get(struct stores_raw *r, const void *key, size_t key_size, size_t *size);
void stores_raw_put(struct stores_raw *r, const void *key, size_t key_size, const void *value, size_t size);
/* Flips a bit of byte `at` of a value. */
void stores_flip(const char *database, const void *key, size_t key_size, size_t at);

#endif
