/* Tiles in and out of the image store. */
#include "imagestore_impl.h"
#include "own.h"
#include "xxh3.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <time.h>

#define PAGE ((uintptr_t)4096)
#define SLACK (256 * PAGE) /* what a commit of one chunk writes beside it */

int store_fail(const struct imagestore *s, struct err *err, int rc, const char *doing)
{
	int code = rc == ENOMEM			 ? NPU_E_NO_MEMORY
		   : rc == EACCES || rc == EPERM ? NPU_E_NOT_ALLOWED
						 : NPU_E_IO;
	/* A short write is all that LMDB sees of a full disk. */
	const char *hint = rc == EIO || rc == ENOSPC	 ? "; the disk may be full"
			   : rc == MDB_MAP_FULL		 ? "; the map cannot hold more"
			   : rc == STORE_CUT		 ? "; its file may have been cut short: restart npud"
			   : rc == EROFS || rc == EACCES ? "; npud must be able to write there"
							 : "";
	return err_set(err, code, "image store %s: %s: %s%s", s->path, doing, mdb_strerror(rc), hint);
}

int store_begin(struct imagestore *s, unsigned flags, MDB_txn **out)
{
	pthread_rwlock_rdlock(&s->swap);
	/* Of a file that somebody cut, what is missing of the map is a SIGBUS for who touches it, writers
	 * too. */
	int rc = !s->env ? ENODEV : store_cut(s) ? STORE_CUT : mdb_txn_begin(s->env, NULL, flags, out);
	if (rc)
		pthread_rwlock_unlock(&s->swap);
	return rc;
}

int store_commit(struct imagestore *s, MDB_txn *txn)
{
	int rc = mdb_txn_commit(txn);
	pthread_rwlock_unlock(&s->swap);
	return rc;
}

void store_abort(struct imagestore *s, MDB_txn *txn)
{
	mdb_txn_abort(txn);
	pthread_rwlock_unlock(&s->swap);
}

int store_end(struct imagestore *s, MDB_txn *txn, int rc)
{
	if (rc == 0)
		return store_commit(s, txn);
	store_abort(s, txn);
	return rc;
}

static void *at(const struct image_tile_io *io, bool scales, uint64_t offset)
{
	return (char *)(scales ? (void *)io->scales : (void *)io->codes) + offset;
}

/*
 * Faults a value's pages in at once, which is faster than one by one, and asks instead of dying: where the
 * file is too short for them, or the disk cannot read them, this fails and touching them would be a SIGBUS.
 */
static bool populate(const MDB_val *value)
{
	uintptr_t from = (uintptr_t)value->mv_data & ~(PAGE - 1);
	uintptr_t end = ((uintptr_t)value->mv_data + value->mv_size + PAGE - 1) & ~(PAGE - 1);

	return madvise((void *)from, end - from, MADV_POPULATE_READ) == 0 ||
	       (errno != EFAULT && errno != EHWPOISON);
}

struct reading {
	MDB_txn *txn;
	struct imagestore *store;
	struct record_tile key;
	uint32_t tile;
	struct record_plan plan;
};

static void refuse_store(struct refusal *why, uint32_t tile, const char *what, int rc)
{
	refusal_set(why, REFUSED_STORE, tile, "%s: %s", what, mdb_strerror(rc));
}

/* Chunk i, its prefix checked; the payload's hash is for the caller to compare with prefix->hash. */
static bool find_chunk(const struct reading *r, uint32_t i, struct record_prefix *prefix,
		       const char **payload, struct refusal *why)
{
	struct record_chunk key;
	MDB_val k = store_val(&key, sizeof key), v;
	bool scales;
	uint64_t offset;
	uint32_t length;

	record_chunk_key(&key, &r->key, i);
	record_plan_chunk(&r->plan, i, &scales, &offset, &length);
	int rc = mdb_get(r->txn, r->store->chunk, &k, &v);
	if (rc == MDB_NOTFOUND) {
		refusal_set(why, REFUSED_CHUNK_MISSING, r->tile,
			    "chunk %" PRIu32 " of %" PRIu32 " is not there", i, r->plan.chunks);
		return false;
	}
	if (rc) {
		refuse_store(why, r->tile, "finding a chunk", rc);
		return false;
	}
	if (!populate(&v)) {
		refusal_set(why, REFUSED_STORE, r->tile, "chunk %" PRIu32 " cannot be read from the file", i);
		return false;
	}
	*payload = (const char *)v.mv_data + sizeof *prefix;
	return record_prefix_good(v.mv_data, v.mv_size, &r->key, r->tile, i, length, prefix, why);
}

static bool hash_good(const struct reading *r, uint32_t i, uint64_t found, uint64_t said, struct refusal *why)
{
	if (found == said)
		return true;
	refusal_set(why, REFUSED_CHUNK_HASH, r->tile,
		    "chunk %" PRIu32 " hashes to %016" PRIx64 " and says %016" PRIx64, i, found, said);
	return false;
}

/* Every chunk, to where it lives in `io`, or with `io` NULL only hashed. */
static bool read_chunks(const struct reading *r, const struct record_header *header, struct image_tile_io *io,
			struct refusal *why)
{
	cleanup(freep) uint64_t *hashes = malloc((size_t)header->chunks * sizeof *hashes);

	if (!hashes) {
		refuse_store(why, r->tile, "reading chunks", ENOMEM);
		return false;
	}
	for (uint32_t i = 0; i < header->chunks; i++) {
		struct record_prefix prefix;
		const char *payload;
		bool scales;
		uint64_t offset;
		uint32_t length;

		if (!find_chunk(r, i, &prefix, &payload, why))
			return false;
		record_plan_chunk(&r->plan, i, &scales, &offset, &length);
		hashes[i] = io ? record_copy(at(io, scales, offset), payload, length)
			       : XXH3_64bits(payload, length);
		if (!hash_good(r, i, hashes[i], prefix.hash, why))
			return false;
	}
	return record_sum_good(header, hashes, why);
}

/* Begins to read a tile; store_abort is owed when it returns HIT, with the header's bytes in `value`. */
static enum image_result begin(struct imagestore *s, struct reading *r, const struct head_key *key,
			       uint32_t tile, MDB_val *value, struct refusal *why)
{
	r->store = s;
	r->tile = tile;
	record_tile_key(&r->key, key, tile);
	int rc = store_begin(s, MDB_RDONLY, &r->txn);
	if (rc == STORE_CUT) {
		refusal_set(why, REFUSED_STORE, tile, "the file is shorter than its pages in use");
		return IMAGE_REFUSED;
	}
	if (rc) {
		refuse_store(why, tile, "beginning to read", rc);
		return IMAGE_REFUSED;
	}
	MDB_val k = store_val(&r->key, sizeof r->key);
	rc = mdb_get(r->txn, s->image, &k, value);
	if (rc == 0)
		return IMAGE_HIT;
	store_abort(s, r->txn);
	if (rc == MDB_NOTFOUND)
		return IMAGE_MISS;
	refuse_store(why, tile, "finding the header", rc);
	return IMAGE_REFUSED;
}

static enum image_result counted(struct imagestore *s, enum image_result result, const struct refusal *why)
{
	atomic_fetch_add(result == IMAGE_HIT	? &s->hits
			 : result == IMAGE_MISS ? &s->misses
						: &s->refused[why->reason],
			 1);
	return result;
}

static struct record_want want_of(const struct imagestore *s, const struct image_tile_io *io)
{
	return (struct record_want){.key = io->key,
				    .tile = io->tile,
				    .tiles = io->tiles,
				    .columns = io->columns,
				    .fingerprint = s->fingerprint};
}

enum image_result imagestore_read(struct imagestore *s, struct image_tile_io *io, image_sample_fn *sample,
				  void *arg, struct refusal *why)
{
	const struct record_want want = want_of(s, io);
	struct record_header header;
	struct reading r;
	MDB_val value;

	if (!record_plan_make(&r.plan, &io->key, io->columns))
		return counted(s, IMAGE_MISS, why);
	enum image_result result = begin(s, &r, &io->key, io->tile, &value, why);
	if (result != IMAGE_HIT)
		return counted(s, result, why);
	bool good = record_header_good(value.mv_data, value.mv_size, &want, &r.plan, &header, why) &&
		    read_chunks(&r, &header, io, why);
	store_abort(s, r.txn);
	/* Outside of the transaction: the sample reads the model's file, and old pages wait for readers. */
	if (!good || !sample(arg, io, why))
		return counted(s, IMAGE_REFUSED, why);
	io->nonfinite = header.nonfinite;
	return counted(s, IMAGE_HIT, why);
}

enum image_result imagestore_tile(struct imagestore *s, const struct head_key *key, uint32_t tile,
				  struct record_header *out)
{
	struct reading r;
	struct refusal why;
	MDB_val value;

	if (begin(s, &r, key, tile, &value, &why) != IMAGE_HIT)
		return IMAGE_MISS;
	memset(out, 0, sizeof *out);
	memcpy(out, value.mv_data, value.mv_size < sizeof *out ? value.mv_size : sizeof *out);
	store_abort(s, r.txn);
	return IMAGE_HIT;
}

/*
 * Begins to read a tile of which only the key is known: what else the header says must at least agree with
 * itself. store_abort is owed on HIT.
 */
static enum image_result begin_known(struct imagestore *s, struct reading *r, const struct head_key *key,
				     uint32_t tile, struct record_header *header, struct refusal *why)
{
	MDB_val value;
	struct record_header h;
	enum image_result result = begin(s, r, key, tile, &value, why);

	if (result != IMAGE_HIT)
		return result;
	memset(&h, 0, sizeof h);
	memcpy(&h, value.mv_data, value.mv_size < sizeof h ? value.mv_size : sizeof h);
	const struct record_want want = {.key = *key,
					 .tile = tile,
					 .tiles = h.tiles,
					 .columns = h.columns,
					 .fingerprint = h.fingerprint};
	if (!record_plan_make(&r->plan, key, h.columns))
		refusal_set(why, REFUSED_GEOMETRY, tile, "%" PRIu32 " columns do not go with the key",
			    h.columns);
	else if (record_header_good(value.mv_data, value.mv_size, &want, &r->plan, header, why))
		return IMAGE_HIT;
	store_abort(s, r->txn);
	return IMAGE_REFUSED;
}

enum image_result imagestore_verify(struct imagestore *s, const struct head_key *key, uint32_t tile,
				    struct refusal *why)
{
	struct record_header header;
	struct reading r;
	enum image_result result = begin_known(s, &r, key, tile, &header, why);

	if (result != IMAGE_HIT)
		return result;
	if (!read_chunks(&r, &header, NULL, why))
		result = IMAGE_REFUSED;
	store_abort(s, r.txn);
	return result;
}

enum image_result imagestore_piece(struct imagestore *s, const struct head_key *key, uint32_t tile,
				   uint32_t i, void *to, uint32_t *length, bool *scales, struct refusal *why)
{
	struct record_header header;
	struct record_prefix prefix;
	struct reading r;
	const char *payload;
	uint64_t offset;
	enum image_result result = begin_known(s, &r, key, tile, &header, why);

	if (result != IMAGE_HIT)
		return result;
	if (i >= header.chunks) {
		result = IMAGE_MISS;
	} else if (!find_chunk(&r, i, &prefix, &payload, why)) {
		result = IMAGE_REFUSED;
	} else {
		record_plan_chunk(&r.plan, i, scales, &offset, length);
		if (!hash_good(&r, i, record_copy(to, payload, *length), prefix.hash, why))
			result = IMAGE_REFUSED;
	}
	store_abort(s, r.txn);
	return result;
}

uint64_t store_free_bytes(struct imagestore *s)
{
	MDB_txn *txn;
	MDB_cursor *cursor;
	MDB_val key, value;
	uint64_t pages = 0;

	if (store_begin(s, MDB_RDONLY, &txn))
		return 0;
	/* Database 0 is LMDB's own list of free pages: a count, then their numbers. */
	if (mdb_cursor_open(txn, 0, &cursor) == 0) {
		while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0)
			pages += value.mv_size >= sizeof(size_t) ? *(const size_t *)value.mv_data : 0;
		mdb_cursor_close(cursor);
	}
	store_abort(s, txn);
	return pages * PAGE;
}

int store_room(struct imagestore *s, uint64_t bytes, struct err *err)
{
	struct statvfs fs;

	if (statvfs(s->path, &fs) < 0)
		return err_sys(err, errno, "image store %s: asking for free space", s->path);
	uint64_t avail = (uint64_t)fs.f_bavail * fs.f_frsize, grow = bytes + SLACK;
	if (avail >= grow && avail - grow >= s->min_free_bytes)
		return 0;
	/* The file need not grow where pages in it are free. They may not lie together, so twice as many. */
	if (store_free_bytes(s) >= 2 * grow)
		return 0;
	return err_set(err, NPU_E_IO,
		       "image store %s: %" PRIu64 " bytes are free and [store] min_free_bytes is %" PRIu64
		       ": nothing is written that makes the file grow; free some space",
		       s->path, avail, s->min_free_bytes);
}

int store_drop(MDB_txn *txn, MDB_dbi dbi, const void *first, size_t size, size_t prefix)
{
	MDB_cursor *cursor;
	MDB_val key = store_val(first, size), value;
	int rc = mdb_cursor_open(txn, dbi, &cursor);

	if (rc)
		return rc;
	rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
	while (rc == 0 && key.mv_size >= prefix && memcmp(key.mv_data, first, prefix) == 0) {
		rc = mdb_cursor_del(cursor, 0);
		if (rc == 0)
			rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
	}
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

int store_drop_chunks(struct imagestore *s, MDB_txn *txn, const struct record_tile *tile, uint32_t from)
{
	struct record_chunk first;
	record_chunk_key(&first, tile, from);
	return store_drop(txn, s->chunk, &first, sizeof first, sizeof *tile);
}

static int drop_header(struct imagestore *s, const struct record_tile *tile, struct err *err)
{
	MDB_val key = store_val(tile, sizeof *tile), value;
	MDB_txn *txn;
	int rc = store_begin(s, 0, &txn);

	if (rc)
		return store_fail(s, err, rc, "replacing a tile");
	rc = mdb_get(txn, s->image, &key, &value);
	if (rc == MDB_NOTFOUND) {
		store_abort(s, txn);
		return 0;
	}
	if (rc == 0)
		rc = mdb_del(txn, s->image, &key, NULL);
	rc = store_end(s, txn, rc);
	return rc ? store_fail(s, err, rc, "replacing a tile") : 0;
}

static int write_chunk(struct imagestore *s, const struct image_tile_io *io, const struct record_plan *plan,
		       const struct record_tile *tile, uint32_t i, uint64_t *hash, struct err *err)
{
	struct record_prefix prefix;
	bool scales;
	uint64_t offset;
	uint32_t length;
	MDB_txn *txn;

	record_plan_chunk(plan, i, &scales, &offset, &length);
	record_prefix_make(&prefix, tile, i, length);
	int r = store_room(s, sizeof prefix + length, err);
	if (r)
		return r;
	int rc = store_begin(s, 0, &txn);
	if (rc)
		return store_fail(s, err, rc, "writing a chunk");
	MDB_val key = store_val(&prefix.key, sizeof prefix.key), value = {sizeof prefix + length, NULL};
	rc = mdb_put(txn, s->chunk, &key, &value, MDB_RESERVE);
	if (rc) {
		store_abort(s, txn);
		return store_fail(s, err, rc, "writing a chunk");
	}
	prefix.hash = record_copy((char *)value.mv_data + sizeof prefix, at(io, scales, offset), length);
	memcpy(value.mv_data, &prefix, sizeof prefix);
	*hash = prefix.hash;
	rc = store_commit(s, txn);
	return rc ? store_fail(s, err, rc, "writing a chunk") : 0;
}

static int write_header(struct imagestore *s, const struct image_tile_io *io, const struct record_plan *plan,
			const struct record_tile *tile, const uint64_t *hashes, struct err *err)
{
	const struct record_want want = want_of(s, io);
	struct record_header header;
	MDB_txn *txn;
	int rc = store_begin(s, 0, &txn);

	if (rc)
		return store_fail(s, err, rc, "writing a header");
	record_header_make(&header, &want, plan, io->nonfinite, (uint64_t)time(NULL));
	record_header_seal(&header, hashes);
	MDB_val key = store_val(tile, sizeof *tile), value = store_val(&header, sizeof header);
	/* A record of another chunking may have had more chunks. */
	rc = store_drop_chunks(s, txn, tile, plan->chunks);
	if (rc == 0)
		rc = mdb_put(txn, s->image, &key, &value, 0);
	rc = store_end(s, txn, rc);
	return rc ? store_fail(s, err, rc, "writing a header") : 0;
}

static int write_tile(struct imagestore *s, const struct image_tile_io *io, const struct record_plan *plan,
		      const struct record_tile *tile, const atomic_bool *stop, struct err *err)
{
	cleanup(freep) uint64_t *hashes = malloc((size_t)plan->chunks * sizeof *hashes);

	if (!hashes)
		return err_set(err, NPU_E_NO_MEMORY, "no memory to write a tile");
	int r = drop_header(s, tile, err);
	for (uint32_t i = 0; r == 0 && i < plan->chunks; i++) {
		if (stop && atomic_load(stop))
			r = err_set(err, NPU_E_CANCELLED, "writing tile %" PRIu32 " was stopped", io->tile);
		else
			r = write_chunk(s, io, plan, tile, i, &hashes[i], err);
	}
	return r ? r : write_header(s, io, plan, tile, hashes, err);
}

int imagestore_write(struct imagestore *s, const struct image_tile_io *io, const atomic_bool *stop,
		     struct err *err)
{
	struct record_plan plan;
	struct record_tile tile;
	MDB_txn *txn;

	if (!record_plan_make(&plan, &io->key, io->columns))
		return err_set(err, NPU_E_BAD_GEOMETRY, "kd=%" PRIu32 " T=%" PRIu32 " is no tile", io->key.kd,
			       io->key.nd);
	record_tile_key(&tile, &io->key, io->tile);
	int r = write_tile(s, io, &plan, &tile, stop, err);
	if (r == 0) {
		atomic_fetch_add(&s->written, 1);
		return 0;
	}
	if (r != NPU_E_CANCELLED)
		atomic_fetch_add(&s->write_failures, 1);
	/* What this leaves, where even this fails, the next start removes. */
	if (store_begin(s, 0, &txn) == 0) {
		if (store_drop_chunks(s, txn, &tile, 0) == 0)
			store_commit(s, txn);
		else
			store_abort(s, txn);
	}
	struct err ignored;
	if (!imagestore_has(s, &io->key))
		imagestore_remove(s, &io->key, &ignored);
	return r;
}
