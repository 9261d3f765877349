/* What the files of the image store share; nobody else includes this. */
#ifndef NPUD_IMAGESTORE_IMPL_H
#define NPUD_IMAGESTORE_IMPL_H

#include "imagestore.h"
#include <limits.h>
#include <lmdb.h>
#include <pthread.h>

struct imagestore {
	char path[PATH_MAX]; /* the directory; the environment is PATH/db */
	uint64_t fingerprint, max_bytes, min_free_bytes;
	int lock_fd;
	pthread_rwlock_t
		swap; /* held for reading by whoever uses env; compacting puts another in its place */
	MDB_env *env; /* NULL: could not be opened again after compacting */
	MDB_dbi image, chunk, usage, meta;
	struct hash_secret secret;
	char moved[PATH_MAX + 256];
	atomic_bool copying; /* compacting */
	atomic_uint_fast64_t hits, misses, written, write_failures, refused[REFUSED_COUNT];
};

/* Opens PATH/db and its databases and checks that the file is as long as it says. `damaged`: the failure is
 * the file's fault, not the system's. On failure there is no environment. */
int store_env_open(struct imagestore *s, bool *damaged, struct err *err);
void store_env_close(struct imagestore *s);

/* An LMDB code as ours, with "doing what". Returns the code. */
int store_fail(const struct imagestore *s, struct err *err, int rc, const char *doing);

/* What store_begin says of a file that was cut. */
#define STORE_CUT MDB_CORRUPTED

/* A transaction, with the environment held in place until one of the three below. Returns LMDB's code. */
int store_begin(struct imagestore *s, unsigned flags, MDB_txn **out);
int store_commit(struct imagestore *s, MDB_txn *txn);
void store_abort(struct imagestore *s, MDB_txn *txn);
/* Commits where `rc`, of what was done in it, is 0, and aborts otherwise. Returns what became of it. */
int store_end(struct imagestore *s, MDB_txn *txn, int rc);

/* True where the file is shorter than the pages in use: touching the map behind its end would be a SIGBUS. */
bool store_cut(struct imagestore *s);

/*
 * Deletes, inside a transaction, the keys from `first` on that share its first `prefix` bytes. LMDB's code;
 * none is no error.
 */
int store_drop(MDB_txn *txn, MDB_dbi dbi, const void *first, size_t size, size_t prefix);
/* So the chunks of a tile from number `from` on. */
int store_drop_chunks(struct imagestore *s, MDB_txn *txn, const struct record_tile *tile, uint32_t from);

/* Whether `bytes` more may be written without going below the floor of free space. IO with the numbers. */
int store_room(struct imagestore *s, uint64_t bytes, struct err *err);

/* Pages of the file that can be used again, in bytes. */
uint64_t store_free_bytes(struct imagestore *s);

/* All that imagestore_name_keep kept. */
int store_drop_names(struct imagestore *s, struct err *err);

/* Microseconds since 1970. */
uint64_t store_now_us(void);

/* After opening: drops chunks without header and makes usage agree with the headers. */
int store_reconcile(struct imagestore *s, struct err *err);

/* Not a function: gcc would take a pointer to const for a read, of keys that are made only afterwards. */
#define store_val(data, size) ((MDB_val){(size), (void *)(data)})

#endif
