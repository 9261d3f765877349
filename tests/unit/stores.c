#include "stores.h"
#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct refusal stores_why;
char stores_path[80];
char stores_dir[64];
static struct err err;

void stores_up(void)
{
	snprintf(stores_dir, sizeof stores_dir, "/tmp/npud-store.XXXXXX");
	cr_assert(mkdtemp(stores_dir));
	snprintf(stores_path, sizeof stores_path, "%s/images", stores_dir);
}

static int drop(const char *name, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st, (void)kind, (void)ftw;
	return remove(name);
}

void stores_down(void)
{
	nftw(stores_dir, drop, 16, FTW_DEPTH | FTW_PHYS);
}

struct imagestore *stores_open_with(uint64_t fingerprint, uint64_t max_bytes, uint64_t min_free)
{
	struct imagestore *s = NULL;
	struct imagestore_options o = {.path = stores_path,
				       .fingerprint = fingerprint,
				       .max_bytes = max_bytes,
				       .min_free_bytes = min_free};
	cr_assert_eq(imagestore_open(&s, &o, &err), 0, "%s", err.text);
	return s;
}

struct imagestore *stores_open(void)
{
	return stores_open_with(STORES_FINGERPRINT, STORES_BUDGET, 0);
}

void stores_free(struct image_tile_io *io)
{
	free(io->codes);
	free(io->scales);
}

struct image_tile_io stores_blank(const struct image_tile_io *like)
{
	struct image_tile_io io = *like;
	io.codes = calloc(io.key.kd, io.key.nd);
	io.scales = calloc(io.key.nd, sizeof *io.scales);
	io.nonfinite = 0;
	return io;
}

struct image_tile_io stores_tile(unsigned seed, uint32_t kd, uint32_t nd, uint32_t columns)
{
	struct image_tile_io io = {
		.key = {.kd = kd, .nd = nd, .layout = RECORD_BLOCKED}, .tiles = 1, .columns = columns};
	for (int i = 0; i < 16; i++)
		io.key.hash[i] = (unsigned char)(seed >> 8 * (i % 4));
	io = stores_blank(&io);
	size_t used = ((size_t)columns + 127) / 128 * 128 * kd;
	uint32_t x = seed * 2654435761u + 1;
	for (size_t i = 0; i < used; i++) {
		x = x * 1664525u + 1013904223u;
		io.codes[i] = (int8_t)((int)(x >> 24) % 127);
	}
	for (uint32_t n = 0; n < nd; n++)
		io.scales[n] = (float)(seed + n) / 127.0f;
	io.nonfinite = seed;
	return io;
}

void stores_expect_same(const struct image_tile_io *a, const struct image_tile_io *b)
{
	cr_expect_eq(memcmp(a->codes, b->codes, (size_t)a->key.kd * a->key.nd), 0, "other codes");
	cr_expect_eq(memcmp(a->scales, b->scales, a->key.nd * sizeof(float)), 0, "other scales");
}

struct stored_head stores_head(const struct image_tile_io *io, const char *label)
{
	struct record_plan plan;
	struct stored_head h = {.key = io->key, .tiles = io->tiles, .columns = io->columns};
	cr_assert(record_plan_make(&plan, &io->key, io->columns));
	h.bytes = record_plan_bytes(&plan) * io->tiles;
	snprintf(h.label, sizeof h.label, "%s", label);
	snprintf(h.tensor, sizeof h.tensor, "lm_head.weight");
	return h;
}

void stores_put(struct imagestore *s, const struct image_tile_io *io, const char *label)
{
	struct stored_head h = stores_head(io, label);
	cr_assert_eq(imagestore_admit(s, &h, NULL, 0, &err), 0, "%s", err.text);
	cr_assert_eq(imagestore_write(s, io, NULL, &err), 0, "%s", err.text);
}

bool stores_agrees(void *arg, const struct image_tile_io *io, struct refusal *r)
{
	(void)arg, (void)io, (void)r;
	return true;
}

enum image_result stores_get(struct imagestore *s, const struct image_tile_io *like)
{
	struct image_tile_io io = stores_blank(like);
	enum image_result result = imagestore_read(s, &io, stores_agrees, NULL, &stores_why);
	if (result == IMAGE_HIT) {
		stores_expect_same(&io, like);
		cr_expect_eq(io.nonfinite, like->nonfinite);
	}
	stores_free(&io);
	return result;
}

struct stores_raw stores_raw_open(const char *database)
{
	struct stores_raw r;
	char db[96];
	snprintf(db, sizeof db, "%s/db", stores_path);
	cr_assert_eq(mdb_env_create(&r.env), 0);
	mdb_env_set_maxdbs(r.env, 8);
	mdb_env_set_mapsize(r.env, 1u << 30);
	cr_assert_eq(mdb_env_open(r.env, db, 0, 0600), 0);
	cr_assert_eq(mdb_txn_begin(r.env, NULL, 0, &r.txn), 0);
	cr_assert_eq(mdb_dbi_open(r.txn, database, 0, &r.dbi), 0);
	return r;
}

void stores_raw_close(struct stores_raw *r)
{
	cr_assert_eq(mdb_txn_commit(r->txn), 0);
	mdb_env_close(r->env);
}

unsigned char *stores_raw_get(struct stores_raw *r, const void *key, size_t key_size, size_t *size)
{
	MDB_val k = {key_size, (void *)key}, v;
	cr_assert_eq(mdb_get(r->txn, r->dbi, &k, &v), 0);
	unsigned char *copy = malloc(v.mv_size);
	memcpy(copy, v.mv_data, v.mv_size);
	*size = v.mv_size;
	return copy;
}

void stores_raw_put(struct stores_raw *r, const void *key, size_t key_size, const void *value, size_t size)
{
	MDB_val k = {key_size, (void *)key}, v = {size, (void *)value};
	cr_assert_eq(mdb_put(r->txn, r->dbi, &k, &v, 0), 0);
}

void stores_flip(const char *database, const void *key, size_t key_size, size_t at)
{
	size_t size;
	struct stores_raw r = stores_raw_open(database);
	unsigned char *value = stores_raw_get(&r, key, key_size, &size);
	cr_assert_lt(at, size);
	value[at] ^= 0x10;
	stores_raw_put(&r, key, key_size, value, size);
	free(value);
	stores_raw_close(&r);
}

bool stores_has(struct imagestore *s, const struct image_tile_io *io)
{
	return stores_get(s, io) == IMAGE_HIT;
}

uint64_t stores_file_size(void)
{
	char data[100];
	struct stat st = {0};
	snprintf(data, sizeof data, "%s/db/data.mdb", stores_path);
	stat(data, &st);
	return (uint64_t)st.st_size;
}
