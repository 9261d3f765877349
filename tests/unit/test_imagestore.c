#include "imagestore.h"
#include "own.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <ftw.h>
#include <lmdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FINGERPRINT UINT64_C(0x1122334455667788)
#define BUDGET (UINT64_C(1) << 30)

static char dir[64], path[80];
static struct err err;
static struct refusal why;

static void up(void)
{
	snprintf(dir, sizeof dir, "/tmp/npud-store.XXXXXX");
	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/images", dir);
}

static int drop(const char *name, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st, (void)kind, (void)ftw;
	return remove(name);
}

static void down(void)
{
	nftw(dir, drop, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(imagestore, .init = up, .fini = down, .timeout = 120);

static struct imagestore *open_with(uint64_t fingerprint, uint64_t max_bytes, uint64_t min_free)
{
	struct imagestore *s = NULL;
	struct imagestore_options o = {
		.path = path, .fingerprint = fingerprint, .max_bytes = max_bytes, .min_free_bytes = min_free};
	cr_assert_eq(imagestore_open(&s, &o, &err), 0, "%s", err.text);
	return s;
}

static struct imagestore *open_store(void)
{
	return open_with(FINGERPRINT, BUDGET, 0);
}

static void free_io(struct image_tile_io *io)
{
	free(io->codes);
	free(io->scales);
}

static struct image_tile_io blank(const struct image_tile_io *like)
{
	struct image_tile_io io = *like;
	io.codes = calloc(io.key.kd, io.key.nd);
	io.scales = calloc(io.key.nd, sizeof *io.scales);
	io.nonfinite = 0;
	return io;
}

/* A tile as packing makes it: codes of `seed` in the panels that hold vocabulary, zeros behind. */
static struct image_tile_io tile_of(unsigned seed, uint32_t kd, uint32_t nd, uint32_t columns)
{
	struct image_tile_io io = {
		.key = {.kd = kd, .nd = nd, .layout = RECORD_BLOCKED}, .tiles = 1, .columns = columns};
	for (int i = 0; i < 16; i++)
		io.key.hash[i] = (unsigned char)(seed >> 8 * (i % 4));
	io = blank(&io);
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

static void expect_same(const struct image_tile_io *a, const struct image_tile_io *b)
{
	cr_expect_eq(memcmp(a->codes, b->codes, (size_t)a->key.kd * a->key.nd), 0, "other codes");
	cr_expect_eq(memcmp(a->scales, b->scales, a->key.nd * sizeof(float)), 0, "other scales");
}

static struct stored_head head_of(const struct image_tile_io *io, const char *label)
{
	struct record_plan plan;
	struct stored_head h = {.key = io->key, .tiles = io->tiles, .columns = io->columns};
	cr_assert(record_plan_make(&plan, &io->key, io->columns));
	h.bytes = record_plan_bytes(&plan) * io->tiles;
	snprintf(h.label, sizeof h.label, "%s", label);
	snprintf(h.tensor, sizeof h.tensor, "lm_head.weight");
	return h;
}

static void put(struct imagestore *s, const struct image_tile_io *io, const char *label)
{
	struct stored_head h = head_of(io, label);
	cr_assert_eq(imagestore_admit(s, &h, NULL, 0, &err), 0, "%s", err.text);
	cr_assert_eq(imagestore_write(s, io, NULL, &err), 0, "%s", err.text);
}

static bool agrees(void *arg, const struct image_tile_io *io, struct refusal *r)
{
	(void)arg, (void)io, (void)r;
	return true;
}

static bool differs(void *arg, const struct image_tile_io *io, struct refusal *r)
{
	(void)arg;
	refusal_set(r, REFUSED_SAMPLE, io->tile, "column 7: scale 1 in the image, 2 packed");
	return false;
}

/* What reading `like` from the store gives; on a hit the bytes are those of `like`. */
static enum image_result get(struct imagestore *s, const struct image_tile_io *like)
{
	struct image_tile_io io = blank(like);
	enum image_result result = imagestore_read(s, &io, agrees, NULL, &why);
	if (result == IMAGE_HIT) {
		expect_same(&io, like);
		cr_expect_eq(io.nonfinite, like->nonfinite);
	}
	free_io(&io);
	return result;
}

/* Changes what lies in the file, behind the store's back, which must be closed. */
struct raw {
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;
};

static struct raw raw_open(const char *database)
{
	struct raw r;
	char db[96];
	snprintf(db, sizeof db, "%s/db", path);
	cr_assert_eq(mdb_env_create(&r.env), 0);
	mdb_env_set_maxdbs(r.env, 8);
	mdb_env_set_mapsize(r.env, 1u << 30);
	cr_assert_eq(mdb_env_open(r.env, db, 0, 0600), 0);
	cr_assert_eq(mdb_txn_begin(r.env, NULL, 0, &r.txn), 0);
	cr_assert_eq(mdb_dbi_open(r.txn, database, 0, &r.dbi), 0);
	return r;
}

static void raw_close(struct raw *r)
{
	cr_assert_eq(mdb_txn_commit(r->txn), 0);
	mdb_env_close(r->env);
}

/* A copy of the value, to be freed. */
static unsigned char *raw_get(struct raw *r, const void *key, size_t key_size, size_t *size)
{
	MDB_val k = {key_size, (void *)key}, v;
	cr_assert_eq(mdb_get(r->txn, r->dbi, &k, &v), 0);
	unsigned char *copy = malloc(v.mv_size);
	memcpy(copy, v.mv_data, v.mv_size);
	*size = v.mv_size;
	return copy;
}

static void raw_put(struct raw *r, const void *key, size_t key_size, const void *value, size_t size)
{
	MDB_val k = {key_size, (void *)key}, v = {size, (void *)value};
	cr_assert_eq(mdb_put(r->txn, r->dbi, &k, &v, 0), 0);
}

static void flip(const char *database, const void *key, size_t key_size, size_t at)
{
	size_t size;
	struct raw r = raw_open(database);
	unsigned char *value = raw_get(&r, key, key_size, &size);
	cr_assert_lt(at, size);
	value[at] ^= 0x10;
	raw_put(&r, key, key_size, value, size);
	free(value);
	raw_close(&r);
}

Test(record, a_blocked_tile_stores_the_panels_with_vocabulary_and_no_more)
{
	struct record_plan p;
	struct head_key key = {.kd = 4096, .nd = 28672, .layout = RECORD_BLOCKED};
	cr_assert(record_plan_make(&p, &key, 3329));
	cr_expect_eq(p.codes, (uint64_t)4096 * 3456);
	cr_expect_eq(p.scales, (uint64_t)28672 * 4);
	key.layout = 0;
	cr_assert(record_plan_make(&p, &key, 3329));
	cr_expect_eq(p.codes, (uint64_t)4096 * 28672);
}

Test(record, chunks_cover_codes_and_scales_once_and_in_whole_panels)
{
	static const uint32_t shapes[][3] = {{64, 128, 1},
					     {4096, 28672, 28672},
					     {192, 640, 513},
					     {131072, 256, 200},
					     {1024, 16384, 16384}};
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		struct record_plan p;
		struct head_key key = {.kd = shapes[i][0], .nd = shapes[i][1], .layout = RECORD_BLOCKED};
		uint64_t next[2] = {0, 0}, offset, panel = (uint64_t)key.kd * 128;
		uint32_t length;
		bool scales;
		cr_assert(record_plan_make(&p, &key, shapes[i][2]));
		for (uint32_t c = 0; c < p.chunks; c++) {
			record_plan_chunk(&p, c, &scales, &offset, &length);
			cr_expect_eq(offset, next[scales]);
			cr_expect(length > 0 && length <= RECORD_CHUNK_MAX);
			cr_expect(scales || panel > RECORD_CHUNK_MAX || length % panel == 0);
			next[scales] += length;
		}
		cr_expect_eq(next[0], p.codes);
		cr_expect_eq(next[1], p.scales);
	}
}

Test(record, a_tile_that_is_none_has_no_plan)
{
	struct record_plan p;
	struct head_key key = {.kd = 64, .nd = 128, .layout = RECORD_BLOCKED};
	cr_expect(!record_plan_make(&p, &key, 0));
	cr_expect(!record_plan_make(&p, &key, 129));
	key.nd = 200;
	cr_expect(!record_plan_make(&p, &key, 100));
	key.nd = 128;
	key.kd = 65;
	cr_expect(!record_plan_make(&p, &key, 100));
	key.layout = 0;
	cr_expect(record_plan_make(&p, &key, 100));
}

Test(imagestore, a_written_tile_comes_back_bit_for_bit_also_after_a_restart)
{
	/* More than one chunk of codes. */
	struct image_tile_io io = tile_of(5, 1024, 16384, 16001);
	struct imagestore *s = open_store();
	cr_expect_eq(get(s, &io), IMAGE_MISS);
	put(s, &io, "m");
	cr_expect_eq(get(s, &io), IMAGE_HIT);
	for (int i = 0; i < 3; i++) {
		imagestore_close(s);
		s = open_store();
		cr_expect_eq(get(s, &io), IMAGE_HIT, "%s", why.text);
		cr_expect_str_eq(imagestore_moved(s), "");
	}
	struct imagestore_stat stat;
	cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
	cr_expect_eq(stat.heads, 1u);
	cr_expect_eq(stat.hits, 1u);
	imagestore_close(s);
	free_io(&io);
}

Test(imagestore, heads_that_differ_in_one_part_of_the_key_are_different)
{
	struct imagestore *s = open_store();
	struct image_tile_io io = tile_of(9, 128, 256, 100), other;
	put(s, &io, "m");
	for (int part = 0; part < 4 + 16; part++) {
		other = io;
		if (part == 0)
			other.key.kd = 192;
		if (part == 1)
			other.key.nd = 384;
		if (part == 2)
			other.key.layout = 0;
		if (part == 3)
			other.tile = 1;
		if (part >= 4)
			other.key.hash[part - 4] ^= 1;
		cr_expect_eq(get(s, &other), IMAGE_MISS, "part %d", part);
	}
	cr_expect_eq(get(s, &io), IMAGE_HIT);
	imagestore_close(s);
	free_io(&io);
}

Test(imagestore, every_flipped_byte_of_a_header_is_refused_by_name_and_the_next_write_mends_it)
{
	struct image_tile_io io = tile_of(3, 64, 128, 128);
	struct record_tile key;
	unsigned reasons[REFUSED_COUNT] = {0};
	record_tile_key(&key, &io.key, 0);
	for (size_t at = 0; at < sizeof(struct record_header); at++) {
		struct imagestore *s = open_store();
		put(s, &io, "m");
		imagestore_close(s);
		flip("image", &key, sizeof key, at);
		s = open_store();
		cr_assert_eq(get(s, &io), IMAGE_REFUSED, "byte %zu", at);
		enum refusal_reason want = at < 4   ? REFUSED_MAGIC
					   : at < 8 ? REFUSED_FORMAT
						    : REFUSED_HEADER_HASH;
		cr_expect_eq(why.reason, want, "byte %zu: %s", at, why.text);
		cr_expect(strstr(why.text, "tile 0: "), "%s", why.text);
		cr_expect_eq(imagestore_verify(s, &io.key, 0, &why), IMAGE_REFUSED, "byte %zu", at);
		reasons[why.reason]++;
		put(s, &io, "m");
		cr_assert_eq(get(s, &io), IMAGE_HIT, "byte %zu", at);
		struct imagestore_stat stat;
		cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
		cr_expect_eq(stat.refused[want], 1u);
		imagestore_close(s);
	}
	cr_expect_gt(reasons[REFUSED_HEADER_HASH], 80u);
	free_io(&io);
}

Test(imagestore, every_flipped_byte_of_a_chunks_prefix_and_of_its_payload_is_refused)
{
	struct image_tile_io io = tile_of(4, 64, 128, 128);
	struct record_chunk key;
	record_tile_key(&key.tile, &io.key, 0);
	for (uint32_t chunk = 0; chunk < 2; chunk++) {
		record_chunk_key(&key, &key.tile, chunk);
		size_t payload = chunk ? 128 * 4 : 64 * 128;
		for (size_t at = 0; at < 48 + payload; at += at < 48 ? 1 : 509) {
			struct imagestore *s = open_store();
			put(s, &io, "m");
			imagestore_close(s);
			flip("chunk", &key, sizeof key, at);
			s = open_store();
			cr_assert_eq(get(s, &io), IMAGE_REFUSED, "chunk %u byte %zu", chunk, at);
			enum refusal_reason want = at < 36   ? REFUSED_CHUNK_KEY
						   : at < 40 ? REFUSED_CHUNK_LENGTH
							     : REFUSED_CHUNK_HASH;
			cr_expect_eq(why.reason, want, "byte %zu: %s", at, why.text);
			char part[32];
			snprintf(part, sizeof part, "chunk %u", chunk);
			cr_expect(strstr(why.text, part), "%s", why.text);
			imagestore_close(s);
		}
	}
	free_io(&io);
}

Test(imagestore, records_of_two_heads_swapped_are_refused)
{
	struct image_tile_io a = tile_of(1, 64, 128, 128), b = tile_of(2, 64, 128, 128);
	struct record_chunk ka, kb;
	size_t na, nb;
	struct imagestore *s = open_store();
	put(s, &a, "a");
	put(s, &b, "b");
	imagestore_close(s);

	record_tile_key(&ka.tile, &a.key, 0);
	record_tile_key(&kb.tile, &b.key, 0);
	record_chunk_key(&ka, &ka.tile, 0);
	record_chunk_key(&kb, &kb.tile, 0);
	struct raw r = raw_open("chunk");
	unsigned char *va = raw_get(&r, &ka, sizeof ka, &na), *vb = raw_get(&r, &kb, sizeof kb, &nb);
	raw_put(&r, &ka, sizeof ka, vb, nb);
	raw_put(&r, &kb, sizeof kb, va, na);
	raw_close(&r);
	free(va);
	free(vb);
	s = open_store();
	cr_expect_eq(get(s, &a), IMAGE_REFUSED);
	cr_expect_eq(why.reason, REFUSED_CHUNK_KEY, "%s", why.text);
	put(s, &a, "a");
	put(s, &b, "b");
	imagestore_close(s);

	r = raw_open("image");
	va = raw_get(&r, &ka.tile, sizeof ka.tile, &na);
	vb = raw_get(&r, &kb.tile, sizeof kb.tile, &nb);
	raw_put(&r, &ka.tile, sizeof ka.tile, vb, nb);
	raw_put(&r, &kb.tile, sizeof kb.tile, va, na);
	raw_close(&r);
	free(va);
	free(vb);
	s = open_store();
	cr_expect_eq(get(s, &b), IMAGE_REFUSED);
	cr_expect_eq(why.reason, REFUSED_GEOMETRY, "%s", why.text);
	cr_expect(strstr(why.text, "content hash"), "%s", why.text);
	imagestore_close(s);
	free_io(&a);
	free_io(&b);
}

Test(imagestore, a_good_chunk_of_another_writing_is_refused_by_the_sum)
{
	struct image_tile_io io = tile_of(1, 64, 128, 128), other = tile_of(2, 64, 128, 128);
	struct record_chunk key;
	size_t size;
	other.key = io.key;
	struct imagestore *s = open_store();
	put(s, &other, "m");
	imagestore_close(s);
	record_tile_key(&key.tile, &io.key, 0);
	record_chunk_key(&key, &key.tile, 0);
	struct raw r = raw_open("chunk");
	unsigned char *old = raw_get(&r, &key, sizeof key, &size);
	raw_close(&r);
	s = open_store();
	put(s, &io, "m");
	imagestore_close(s);
	r = raw_open("chunk");
	raw_put(&r, &key, sizeof key, old, size);
	raw_close(&r);
	s = open_store();
	cr_expect_eq(get(s, &io), IMAGE_REFUSED);
	cr_expect_eq(why.reason, REFUSED_SUM, "%s", why.text);
	cr_expect_eq(imagestore_verify(s, &io.key, 0, &why), IMAGE_REFUSED);
	imagestore_close(s);
	free(old);
	free_io(&io);
	free_io(&other);
}

Test(imagestore, a_missing_or_longer_chunk_is_refused)
{
	struct image_tile_io io = tile_of(1, 64, 128, 128);
	struct record_chunk key;
	size_t size;
	struct imagestore *s = open_store();
	put(s, &io, "m");
	imagestore_close(s);
	record_tile_key(&key.tile, &io.key, 0);
	record_chunk_key(&key, &key.tile, 1);
	struct raw r = raw_open("chunk");
	unsigned char *value = raw_get(&r, &key, sizeof key, &size);
	raw_put(&r, &key, sizeof key, value, size - 1);
	raw_close(&r);
	s = open_store();
	cr_expect_eq(get(s, &io), IMAGE_REFUSED);
	cr_expect_eq(why.reason, REFUSED_CHUNK_LENGTH, "%s", why.text);
	imagestore_close(s);
	r = raw_open("chunk");
	MDB_val k = {sizeof key, &key};
	cr_assert_eq(mdb_del(r.txn, r.dbi, &k, NULL), 0);
	raw_close(&r);
	s = open_store();
	cr_expect_eq(get(s, &io), IMAGE_REFUSED);
	cr_expect_eq(why.reason, REFUSED_CHUNK_MISSING, "%s", why.text);
	imagestore_close(s);
	free(value);
	free_io(&io);
}

Test(imagestore, another_packers_image_is_refused_with_both_fingerprints)
{
	struct image_tile_io io = tile_of(1, 64, 128, 128);
	struct imagestore *s = open_store();
	put(s, &io, "m");
	imagestore_close(s);
	s = open_with(FINGERPRINT + 1, BUDGET, 0);
	cr_expect_eq(get(s, &io), IMAGE_REFUSED);
	cr_expect_eq(why.reason, REFUSED_FINGERPRINT);
	cr_expect(strstr(why.text, "1122334455667788") && strstr(why.text, "1122334455667789"), "%s",
		  why.text);
	put(s, &io, "m");
	cr_expect_eq(get(s, &io), IMAGE_HIT);
	imagestore_close(s);
	free_io(&io);
}

Test(imagestore, a_head_of_other_tiles_or_columns_is_refused)
{
	struct image_tile_io io = tile_of(1, 64, 256, 200), other;
	struct imagestore *s = open_store();
	put(s, &io, "m");
	other = io;
	other.tiles = 2;
	cr_expect_eq(get(s, &other), IMAGE_REFUSED);
	cr_expect(strstr(why.text, "tiles is 1 in the header and 2 here"), "%s", why.text);
	other = io;
	other.columns = 199;
	cr_expect_eq(get(s, &other), IMAGE_REFUSED);
	cr_expect(strstr(why.text, "columns is 200 in the header and 199 here"), "%s", why.text);
	imagestore_close(s);
	free_io(&io);
}

Test(imagestore, the_sample_has_the_last_word)
{
	struct image_tile_io io = tile_of(1, 64, 128, 128), to = blank(&io);
	struct imagestore *s = open_store();
	put(s, &io, "m");
	cr_expect_eq(imagestore_read(s, &to, differs, NULL, &why), IMAGE_REFUSED);
	cr_expect_eq(why.reason, REFUSED_SAMPLE);
	cr_expect(strstr(why.text, "other weights"), "%s", why.text);
	imagestore_close(s);
	free_io(&io);
	free_io(&to);
}

static void moved_aside(const char *part)
{
	struct image_tile_io io = tile_of(1, 64, 128, 128);
	struct imagestore *s = open_store();
	char where[300];
	struct stat st;
	cr_expect(strstr(imagestore_moved(s), part), "%s", imagestore_moved(s));
	snprintf(where, sizeof where, "%.*s", (int)strcspn(imagestore_moved(s), ":"), imagestore_moved(s));
	cr_expect_eq(stat(where, &st), 0, "%s is not there", where);
	cr_expect_eq(get(s, &io), IMAGE_MISS);
	put(s, &io, "m");
	cr_expect_eq(get(s, &io), IMAGE_HIT);
	imagestore_close(s);
	free_io(&io);
}

static void some_store(char *data, size_t room)
{
	struct image_tile_io io = tile_of(1, 1024, 16384, 16384);
	struct imagestore *s = open_store();
	put(s, &io, "m");
	imagestore_close(s);
	free_io(&io);
	snprintf(data, room, "%s/db/data.mdb", path);
}

Test(imagestore, a_file_that_was_cut_short_is_moved_aside)
{
	static const off_t sizes[] = {8192, 65536, 9 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		char data[100];
		some_store(data, sizeof data);
		cr_assert_eq(truncate(data, sizes[i]), 0);
		moved_aside("db.bad-");
	}
}

Test(imagestore, an_empty_file_or_garbled_pages_are_moved_aside)
{
	static const unsigned char noise[8192] = {0x5a, 0x5a};
	char data[100];
	some_store(data, sizeof data);
	cr_assert_eq(truncate(data, 0), 0);
	moved_aside("empty");
	some_store(data, sizeof data);
	cleanup(closep) int fd = open(data, O_RDWR);
	cr_assert_eq(pwrite(fd, noise, sizeof noise, 0), (ssize_t)sizeof noise);
	moved_aside("damaged");
}

Test(imagestore, garbled_tree_pages_never_end_the_process)
{
	char data[100];
	struct stat st;
	for (unsigned seed = 0; seed < 40; seed++) {
		struct image_tile_io io = tile_of(1, 64, 128, 128);
		struct imagestore *s = open_store();
		for (unsigned i = 0; i < 20; i++) {
			struct image_tile_io other = tile_of(100 + i, 64, 128, 128);
			put(s, &other, "m");
			free_io(&other);
		}
		put(s, &io, "m");
		imagestore_close(s);
		snprintf(data, sizeof data, "%s/db/data.mdb", path);
		cleanup(closep) int fd = open(data, O_RDWR);
		cr_assert_eq(fstat(fd, &st), 0);
		/* Every seventh page but the first two, some bytes of its header. */
		for (off_t page = 2 + seed % 7; page * 4096 < st.st_size; page += 7) {
			unsigned char noise[12];
			for (size_t i = 0; i < sizeof noise; i++)
				noise[i] = (unsigned char)(seed * 31 + (unsigned)page * 17 + i * 7);
			if (pwrite(fd, noise, sizeof noise, page * 4096 + 8) < 0)
				cr_assert_fail();
		}
		s = open_store();
		enum image_result result = get(s, &io); /* a hit has been compared */
		cr_expect(result == IMAGE_HIT || result == IMAGE_MISS || result == IMAGE_REFUSED);
		imagestore_close(s);
		free_io(&io);
		down();
		cr_assert(mkdir(dir, 0700) == 0);
	}
}

Test(imagestore, a_store_of_another_schema_is_moved_aside)
{
	char data[100];
	uint32_t schema = RECORD_SCHEMA + 1;
	some_store(data, sizeof data);
	struct raw r = raw_open("meta");
	raw_put(&r, "schema", 6, &schema, sizeof schema);
	raw_close(&r);
	moved_aside("its schema is 2 and this npud's 1");
}

Test(imagestore, a_second_opener_is_refused_with_the_others_pid)
{
	struct imagestore *s = open_store(), *second = NULL;
	struct imagestore_options o = {.path = path, .max_bytes = BUDGET};
	char pid[32];
	cr_expect_eq(imagestore_open(&second, &o, &err), NPU_E_IN_USE);
	snprintf(pid, sizeof pid, "pid %d ", (int)getpid());
	cr_expect(strstr(err.text, pid), "%s", err.text);
	imagestore_close(s);
	imagestore_close(open_store());
}

Test(imagestore, a_directory_that_others_may_write_is_refused)
{
	struct imagestore *s = NULL;
	struct imagestore_options o = {.path = path, .max_bytes = BUDGET};
	cr_assert_eq(mkdir(path, 0700), 0);
	cr_assert_eq(chmod(path, 0777), 0);
	cr_expect_eq(imagestore_open(&s, &o, &err), NPU_E_NOT_ALLOWED, "%s", err.text);
}

Test(imagestore, the_secret_is_kept_and_one_of_an_older_npud_is_taken_over)
{
	char file[96];
	unsigned char old[HASH_SECRET_SIZE];
	snprintf(file, sizeof file, "%s/hash.secret", dir);
	for (size_t i = 0; i < sizeof old; i++)
		old[i] = (unsigned char)(i * 3);
	FILE *f = fopen(file, "w");
	cr_assert(f && fwrite(old, 1, sizeof old, f) == sizeof old && fclose(f) == 0);
	struct imagestore *s = NULL;
	struct imagestore_options o = {.path = path, .secret_file = file, .max_bytes = BUDGET};
	cr_assert_eq(imagestore_open(&s, &o, &err), 0);
	cr_expect_arr_eq(imagestore_secret(s)->bytes, old, sizeof old);
	cr_expect_lt(access(file, F_OK), 0);
	imagestore_close(s);
	s = open_store();
	cr_expect_arr_eq(imagestore_secret(s)->bytes, old, sizeof old);
	imagestore_close(s);
	down();
	cr_assert_eq(mkdir(dir, 0700), 0);
	s = open_store();
	cr_expect(memcmp(imagestore_secret(s)->bytes, old, sizeof old) != 0);
	imagestore_close(s);
}

static bool there(struct imagestore *s, const struct image_tile_io *io)
{
	return get(s, io) == IMAGE_HIT;
}

Test(imagestore, superseded_heads_go_first_then_the_least_recently_used_never_one_in_use)
{
	struct image_tile_io t[6];
	for (unsigned i = 0; i < 6; i++)
		t[i] = tile_of(i + 1, 64, 128, 128);
	uint64_t one = head_of(&t[0], "").bytes;
	struct imagestore *s = open_with(FINGERPRINT, 3 * one, 0);
	put(s, &t[0], "a");
	put(s, &t[1], "b");
	put(s, &t[2], "b"); /* supersedes t[1] */
	put(s, &t[3], "c");
	cr_expect(there(s, &t[0]) && !there(s, &t[1]) && there(s, &t[2]) && there(s, &t[3]));
	struct stored_head used = head_of(&t[0], "a");
	cr_assert_eq(imagestore_use(s, &used, &err), 0);
	put(s, &t[4], "d"); /* t[2] is now the least recently used */
	cr_expect(there(s, &t[0]) && !there(s, &t[2]) && there(s, &t[3]) && there(s, &t[4]));

	struct head_key spared[] = {t[0].key, t[3].key, t[4].key};
	struct stored_head fresh = head_of(&t[5], "e");
	cr_expect_eq(imagestore_admit(s, &fresh, spared, 3, &err), NPU_E_TOO_LARGE, "%s", err.text);
	cr_assert_eq(imagestore_admit(s, &fresh, spared, 2, &err), 0);
	cr_expect(there(s, &t[0]) && there(s, &t[3]) && !there(s, &t[4]));
	fresh.bytes = 3 * one + 1;
	cr_expect_eq(imagestore_admit(s, &fresh, NULL, 0, &err), NPU_E_TOO_LARGE);
	cr_expect(strstr(err.text, "max_bytes"), "%s", err.text);
	cr_expect(there(s, &t[0]), "a head that cannot fit made others go");
	imagestore_close(s);
	for (unsigned i = 0; i < 6; i++)
		free_io(&t[i]);
}

static uint64_t file_size(void)
{
	char data[100];
	struct stat st = {0};
	snprintf(data, sizeof data, "%s/db/data.mdb", path);
	stat(data, &st);
	return (uint64_t)st.st_size;
}

Test(imagestore, a_hundred_heads_over_budget_leave_a_file_of_about_the_budget)
{
	struct image_tile_io t = tile_of(1, 256, 4096, 4096);
	uint64_t one = head_of(&t, "").bytes, budget = 5 * one;
	free_io(&t);
	struct imagestore *s = open_with(FINGERPRINT, budget, 0);
	struct imagestore_stat stat;
	for (unsigned i = 0; i < 100; i++) {
		t = tile_of(i + 1, 256, 4096, 4096);
		char label[16];
		snprintf(label, sizeof label, "m%u", i);
		put(s, &t, label);
		cr_expect(there(s, &t));
		free_io(&t);
		cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
		cr_expect_leq(stat.bytes, budget);
	}
	cr_expect_eq(stat.heads, 5u);
	cr_expect_lt(file_size(), 2 * budget, "%llu for a budget of %llu", (unsigned long long)file_size(),
		     (unsigned long long)budget);
	imagestore_close(s);
}

Test(imagestore, below_the_floor_of_free_space_nothing_is_written_that_grows_the_file)
{
	struct image_tile_io a = tile_of(1, 1024, 1024, 1024), b = tile_of(2, 1024, 1024, 1024);
	struct imagestore *s = open_store();
	put(s, &a, "a");
	imagestore_close(s);
	s = open_with(FINGERPRINT, BUDGET, UINT64_MAX / 2);
	struct stored_head h = head_of(&b, "b");
	cr_assert_eq(imagestore_admit(s, &h, NULL, 0, &err), 0);
	cr_expect_eq(imagestore_write(s, &b, NULL, &err), NPU_E_IO);
	cr_expect(strstr(err.text, "min_free_bytes"), "%s", err.text);
	cr_expect_eq(get(s, &b), IMAGE_MISS);
	cr_expect(there(s, &a));
	struct imagestore_stat stat;
	cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
	cr_expect_eq(stat.heads, 1u, "a head of which nothing was written has an account");
	cr_expect_eq(stat.write_failures, 1u);
	imagestore_close(s);
	free_io(&a);
	free_io(&b);
}

Test(imagestore, a_write_that_the_system_refuses_leaves_the_rest_readable)
{
	struct image_tile_io a = tile_of(1, 1024, 1024, 1024), b = tile_of(2, 1024, 16384, 16384);
	struct imagestore *s = open_store();
	put(s, &a, "a");
	struct stored_head h = head_of(&b, "b");
	cr_assert_eq(imagestore_admit(s, &h, NULL, 0, &err), 0);
	struct rlimit before, little = {file_size() + (9 << 20), RLIM_INFINITY};
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	setrlimit(RLIMIT_FSIZE, &little);
	cr_expect_eq(imagestore_write(s, &b, NULL, &err), NPU_E_IO, "%s", err.text);
	cr_expect(there(s, &a));
	setrlimit(RLIMIT_FSIZE, &before);
	cr_expect_eq(get(s, &b), IMAGE_MISS);
	put(s, &b, "b");
	cr_expect(there(s, &b));
	imagestore_close(s);
	free_io(&a);
	free_io(&b);
}

Test(imagestore, a_stopped_write_leaves_nothing)
{
	struct image_tile_io io = tile_of(2, 1024, 16384, 16384);
	struct imagestore *s = open_store();
	struct stored_head h = head_of(&io, "m");
	atomic_bool stop = true;
	cr_assert_eq(imagestore_admit(s, &h, NULL, 0, &err), 0);
	cr_expect_eq(imagestore_write(s, &io, &stop, &err), NPU_E_CANCELLED);
	cr_expect_eq(get(s, &io), IMAGE_MISS);
	imagestore_close(s);
	free_io(&io);
}

Test(imagestore, chunks_without_a_header_go_at_the_next_start)
{
	struct image_tile_io io = tile_of(1, 1024, 16384, 16384), other = tile_of(2, 64, 128, 128);
	struct record_tile key;
	struct imagestore *s = open_store();
	put(s, &io, "m");
	put(s, &other, "o");
	imagestore_close(s);
	record_tile_key(&key, &io.key, 0);
	struct raw r = raw_open("image");
	MDB_val k = {sizeof key, &key};
	cr_assert_eq(mdb_del(r.txn, r.dbi, &k, NULL), 0);
	raw_close(&r);
	s = open_store();
	cr_expect_eq(get(s, &io), IMAGE_MISS);
	cr_expect(there(s, &other));
	struct imagestore_stat stat;
	cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
	cr_expect_eq(stat.heads, 1u);
	imagestore_close(s);
	r = raw_open("chunk");
	MDB_stat chunks;
	cr_assert_eq(mdb_stat(r.txn, r.dbi, &chunks), 0);
	cr_expect_eq(chunks.ms_entries, 2u, "%zu chunks", chunks.ms_entries);
	raw_close(&r);
	free_io(&io);
	free_io(&other);
}

Test(imagestore, headers_without_an_account_get_one)
{
	struct image_tile_io io = tile_of(1, 64, 128, 128);
	struct record_head key;
	struct stored_head h = head_of(&io, "m"), found;
	struct imagestore *s = open_store();
	put(s, &io, "m");
	imagestore_close(s);
	record_head_key(&key, &io.key);
	struct raw r = raw_open("usage");
	MDB_val k = {sizeof key, &key};
	cr_assert_eq(mdb_del(r.txn, r.dbi, &k, NULL), 0);
	raw_close(&r);
	s = open_store();
	cr_assert_eq(imagestore_head(s, &io.key, &found, &err), 0, "%s", err.text);
	cr_expect_eq(found.bytes, h.bytes);
	cr_expect_eq(found.tiles, 1u);
	cr_assert_eq(imagestore_use(s, &h, &err), 0);
	cr_assert_eq(imagestore_head(s, &io.key, &found, &err), 0);
	cr_expect_str_eq(found.label, "m");
	cr_expect_eq(found.hits, 1u);
	imagestore_close(s);
	free_io(&io);
}

/* Two contents of one key. */
static void two_contents(struct image_tile_io t[2])
{
	for (unsigned i = 0; i < 2; i++)
		t[i] = tile_of(i + 1, 1024, 16384, 16384);
	t[1].key = t[0].key;
	t[1].nonfinite = t[0].nonfinite;
}

/* Replaces one by the other for ever; the parent kills it. */
static void write_for_ever(void)
{
	struct image_tile_io t[2];
	struct imagestore *s = open_store();
	two_contents(t);
	for (unsigned i = 0;; i++)
		put(s, &t[i % 2], "m");
}

Test(imagestore, kill_9_while_writing_leaves_a_whole_tile_or_none)
{
	struct image_tile_io t[2], io;
	uint64_t largest = 0;
	unsigned hits = 0;
	two_contents(t);
	for (unsigned round = 0; round < 40; round++) {
		pid_t child = fork();
		if (child == 0) {
			write_for_ever();
			_exit(1);
		}
		usleep(50000 + round * 33710 % 150000);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		struct imagestore *s = open_store();
		cr_expect_str_eq(imagestore_moved(s), "");
		io = blank(&t[0]);
		enum image_result result = imagestore_read(s, &io, agrees, NULL, &why);
		cr_expect_neq(result, IMAGE_REFUSED, "%s", why.text);
		if (result == IMAGE_HIT) {
			hits++;
			expect_same(&io, &t[io.scales[0] == t[1].scales[0]]);
		}
		free_io(&io);
		imagestore_close(s);
		largest = file_size() > largest ? file_size() : largest;
	}
	printf("%u of 40 were there\n", hits);
	cr_expect_lt(largest, 256u << 20, "the file has %llu bytes", (unsigned long long)largest);
	free_io(&t[0]);
	free_io(&t[1]);
}

Test(imagestore, what_a_killed_reader_holds_is_given_back)
{
	struct image_tile_io io = tile_of(1, 512, 8192, 8192);
	struct imagestore *s = open_store();
	int pipes[2];
	char byte;
	put(s, &io, "m");
	cr_assert_eq(pipe(pipes), 0);
	pid_t child = fork();
	if (child == 0) {
		/* A reader of another process, as a tool that looks in would be. */
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test fail first */
		MDB_env *env;
		MDB_txn *txn;
		char db[96];
		snprintf(db, sizeof db, "%s/db", path);
		if (mdb_env_create(&env) || mdb_env_set_mapsize(env, 1u << 30) ||
		    mdb_env_open(env, db, MDB_NOTLS, 0600) || mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) ||
		    write(pipes[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	cr_assert_eq(read(pipes[0], &byte, 1), 1);
	for (int i = 0; i < 5; i++)
		put(s, &io, "m");
	uint64_t pinned = file_size();
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	imagestore_tick(s);
	for (int i = 0; i < 20; i++)
		put(s, &io, "m");
	cr_expect_leq(file_size(), pinned + (16u << 20));
	imagestore_close(s);
	free_io(&io);
}

Test(imagestore, compacting_gives_space_back_and_keeps_what_is_live)
{
	struct image_tile_io t[4];
	struct imagestore *s = open_store();
	uint64_t before, after, heads, bytes;
	for (unsigned i = 0; i < 4; i++) {
		t[i] = tile_of(i + 1, 512, 8192, 8192);
		put(s, &t[i], i < 2 ? "same" : i == 2 ? "b" : "c");
	}
	cr_assert_eq(imagestore_prune(s, true, NULL, 0, &heads, &bytes, &err), 0);
	cr_expect_eq(heads, 1u);
	cr_expect_eq(bytes, head_of(&t[0], "").bytes);
	cr_expect(!there(s, &t[0]) && there(s, &t[1]));
	cr_assert_eq(imagestore_prune(s, false, &t[3].key, 1, &heads, &bytes, &err), 0);
	cr_expect_eq(heads, 2u);
	cr_assert_eq(imagestore_compact(s, &before, &after, &err), 0, "%s", err.text);
	cr_expect_lt(after, before / 2);
	cr_expect(there(s, &t[3]) && !there(s, &t[1]));
	put(s, &t[1], "same");
	imagestore_close(s);
	s = open_store();
	cr_expect(there(s, &t[3]) && there(s, &t[1]));
	imagestore_close(s);
	for (unsigned i = 0; i < 4; i++)
		free_io(&t[i]);
}

Test(imagestore, heads_are_listed_a_page_at_a_time)
{
	struct imagestore *s = open_store();
	struct stored_head rows[3];
	size_t count, all = 0;
	for (unsigned i = 0; i < 7; i++) {
		struct image_tile_io io = tile_of(i + 1, 64, 128, 128);
		put(s, &io, "m");
		free_io(&io);
	}
	const struct head_key *after = NULL;
	struct head_key last;
	do {
		cr_assert_eq(imagestore_heads(s, after, rows, 3, &count, &err), 0);
		all += count;
		if (count) {
			last = rows[count - 1].key;
			after = &last;
		}
	} while (count == 3);
	cr_expect_eq(all, 7u);
	imagestore_close(s);
}

Test(imagestore, the_pieces_of_a_tile_are_its_codes_and_then_its_scales)
{
	struct image_tile_io io = tile_of(6, 1024, 16384, 16001);
	struct imagestore *s = open_store();
	put(s, &io, "m");
	cleanup(freep) char *piece = malloc(RECORD_CHUNK_MAX);
	uint64_t codes = 0, scales = 0;
	for (uint32_t i = 0;; i++) {
		uint32_t length;
		bool is_scales;
		if (imagestore_piece(s, &io.key, 0, i, piece, &length, &is_scales, &why) != IMAGE_HIT)
			break;
		const char *want =
			is_scales ? (const char *)io.scales + scales : (const char *)io.codes + codes;
		cr_expect_eq(memcmp(piece, want, length), 0);
		*(is_scales ? &scales : &codes) += length;
	}
	cr_expect_eq(codes, (uint64_t)1024 * 126 * 128);
	cr_expect_eq(scales, (uint64_t)16384 * 4);
	imagestore_close(s);
	free_io(&io);
}
