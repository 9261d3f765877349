/*
 * forge STORE WHAT: makes records of an image store, which nobody has open, into something that holds
 * together and is something else, as another version of npud, or an image of other weights under the same
 * name, would be. codes, scales, fingerprint, format   of every tile, with every hash made good again lost
 * the last chunk of every tile is gone schema                               of the whole store names
 * every file that is known has the hashes of another one. forge STORE reader|idle: reads, or only has the
 * store open, until it is killed; says "there" when it does.
 */
#include "record.h"
#include "xxh3.h"
#include <errno.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static MDB_env *env;

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "forge: %s: %s\n", what, mdb_strerror(rc));
	exit(1);
}

static void open_store(const char *store)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/db", store);
	must(mdb_env_create(&env), "environment");
	must(mdb_env_set_mapsize(env, (size_t)1 << 32), "map");
	must(mdb_env_set_maxdbs(env, 4), "databases");
	must(mdb_env_open(env, path, MDB_NOTLS, 0600), path);
}

static MDB_dbi database(MDB_txn *txn, const char *name)
{
	MDB_dbi dbi;
	must(mdb_dbi_open(txn, name, 0, &dbi), name);
	return dbi;
}

/* Chunk i of the tile with `what` changed in its payload; its hash as it is now. */
static uint64_t forge_chunk(MDB_txn *txn, MDB_dbi chunk, const struct record_tile *tile, uint32_t i,
			    const char *what)
{
	struct record_chunk name;
	struct record_prefix prefix;
	MDB_val key = {sizeof name, &name}, value;

	record_chunk_key(&name, tile, i);
	must(mdb_get(txn, chunk, &key, &value), "chunk");
	unsigned char *copy = malloc(value.mv_size), *payload = copy + sizeof prefix;
	if (!copy)
		exit(1);
	memcpy(copy, value.mv_data, value.mv_size);
	memcpy(&prefix, copy, sizeof prefix);
	if (strcmp(what, "codes") == 0)
		/* Of every column the rows 5, 69, ...: where the blocked layout has them. */
		for (uint32_t at = 0; at < prefix.length; at++)
			payload[at] ^= at % 8192 / 1024 == 0 && at % 64 / 8 == 5;
	else if (strcmp(what, "scales") == 0)
		for (uint32_t k = 0; k < prefix.length; k += 4)
			payload[k] ^= 1; /* the last bit of a float */
	prefix.hash = XXH3_64bits(payload, prefix.length);
	memcpy(copy, &prefix, sizeof prefix);
	value.mv_data = copy;
	must(mdb_put(txn, chunk, &key, &value, 0), "chunk");
	free(copy);
	return prefix.hash;
}

static void forge_tile(MDB_txn *txn, MDB_dbi chunk, const struct record_tile *tile, struct record_header *h,
		       const char *what)
{
	struct head_key key;
	struct record_plan plan;
	uint64_t *hashes = malloc(h->chunks * sizeof *hashes);

	record_head_unkey(&key, &tile->head);
	if (!hashes || !record_plan_make(&plan, &key, h->columns))
		exit(1);
	for (uint32_t i = 0; i < h->chunks; i++) {
		bool its = strcmp(what, "codes") == 0 ? i < plan.code_chunks : i >= plan.code_chunks;
		hashes[i] = forge_chunk(txn, chunk, tile, i, its ? what : "");
	}
	if (strcmp(what, "fingerprint") == 0)
		h->fingerprint ^= 1;
	else if (strcmp(what, "format") == 0)
		h->format++;
	record_header_seal(h, hashes);
	free(hashes);
}

static void forge_tiles(MDB_txn *txn, const char *what)
{
	MDB_dbi image = database(txn, "image"), chunk = database(txn, "chunk");
	MDB_cursor *cursor;
	MDB_val key, value;

	must(mdb_cursor_open(txn, image, &cursor), "tiles");
	while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
		struct record_tile tile;
		struct record_header h;
		if (key.mv_size != sizeof tile || value.mv_size != sizeof h)
			exit(1);
		memcpy(&tile, key.mv_data, sizeof tile);
		memcpy(&h, value.mv_data, sizeof h);
		if (strcmp(what, "lost") == 0) {
			struct record_chunk last;
			MDB_val k = {sizeof last, &last};
			record_chunk_key(&last, &tile, h.chunks - 1);
			must(mdb_del(txn, chunk, &k, NULL), "chunk");
			continue;
		}
		forge_tile(txn, chunk, &tile, &h, what);
		MDB_val k = {sizeof tile, &tile}, v = {sizeof h, &h};
		must(mdb_cursor_put(cursor, &k, &v, MDB_CURRENT), "header");
	}
	mdb_cursor_close(cursor);
}

static void forge_schema(MDB_txn *txn)
{
	const uint32_t other = RECORD_SCHEMA + 1;
	MDB_val key = {6, "schema"}, value = {sizeof other, (void *)&other};
	must(mdb_put(txn, database(txn, "meta"), &key, &value, 0), "schema");
}

/* The first two have each other's hashes. */
static void forge_names(MDB_txn *txn)
{
	MDB_dbi meta = database(txn, "meta");
	struct record_name names[2] = {{.prefix = RECORD_NAME_PREFIX}};
	struct record_named named[2];
	MDB_val key = {sizeof names[0], &names[0]}, value;
	MDB_cursor *cursor;

	must(mdb_cursor_open(txn, meta, &cursor), "files");
	for (int i = 0; i < 2; i++) {
		must(mdb_cursor_get(cursor, &key, &value, i ? MDB_NEXT : MDB_SET_RANGE), "file");
		if (key.mv_size != sizeof names[i] ||
		    !record_named_good(value.mv_data, value.mv_size, &named[i]))
			must(EINVAL, "file");
		memcpy(&names[i], key.mv_data, sizeof names[i]);
	}
	mdb_cursor_close(cursor);
	for (int i = 0; i < 2; i++) {
		struct record_named other = named[1 - i];
		record_named_seal(&other);
		MDB_val k = {sizeof names[i], &names[i]}, v = {sizeof other, &other};
		must(mdb_put(txn, meta, &k, &v, 0), "file");
	}
}

int main(int argc, char **argv)
{
	MDB_txn *txn;

	if (argc != 3) {
		fprintf(stderr,
			"usage: forge STORE codes|scales|fingerprint|format|lost|schema|names|reader|idle\n");
		return 2;
	}
	const char *what = argv[2];
	open_store(argv[1]);
	bool idle = strcmp(what, "idle") == 0, reader = strcmp(what, "reader") == 0;
	if (!idle)
		must(mdb_txn_begin(env, NULL, reader ? MDB_RDONLY : 0, &txn), "transaction");
	if (idle || reader) {
		puts("there");
		fflush(stdout);
		pause();
		return 1;
	}
	if (strcmp(what, "schema") == 0)
		forge_schema(txn);
	else if (strcmp(what, "names") == 0)
		forge_names(txn);
	else
		forge_tiles(txn, what);
	must(mdb_txn_commit(txn), "commit");
	mdb_env_close(env);
	return 0;
}
