#include "stores.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct err err;

TestSuite(imagestore_open, .init = stores_up, .fini = stores_down, .timeout = 120);

static void moved_aside(const char *part)
{
	struct image_tile_io io = stores_tile(1, 64, 128, 128);
	struct imagestore *s = stores_open();
	char where[300];
	struct stat st;
	cr_expect(strstr(imagestore_moved(s), part), "%s", imagestore_moved(s));
	snprintf(where, sizeof where, "%.*s", (int)strcspn(imagestore_moved(s), ":"), imagestore_moved(s));
	cr_expect_eq(stat(where, &st), 0, "%s is not there", where);
	cr_expect_eq(stores_get(s, &io), IMAGE_MISS);
	stores_put(s, &io, "m");
	cr_expect_eq(stores_get(s, &io), IMAGE_HIT);
	imagestore_close(s);
	stores_free(&io);
}

static void some_store(char *data, size_t room)
{
	struct image_tile_io io = stores_tile(1, 1024, 16384, 16384);
	struct imagestore *s = stores_open();
	stores_put(s, &io, "m");
	imagestore_close(s);
	stores_free(&io);
	snprintf(data, room, "%s/db/data.mdb", stores_path);
}

Test(imagestore_open, a_file_that_was_cut_short_is_moved_aside)
{
	static const off_t sizes[] = {8192, 65536, 9 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		char data[100];
		some_store(data, sizeof data);
		cr_assert_eq(truncate(data, sizes[i]), 0);
		moved_aside("db.bad-");
	}
}

Test(imagestore_open, an_empty_file_or_garbled_pages_are_moved_aside)
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

Test(imagestore_open, a_file_that_is_cut_while_it_is_open_is_refused_for_reading_and_writing)
{
	struct image_tile_io io = stores_tile(1, 1024, 16384, 16384), other = stores_tile(2, 64, 128, 128);
	struct stored_head h = stores_head(&other, "other");
	struct imagestore *s = stores_open();
	char data[100];
	stores_put(s, &io, "m");
	snprintf(data, sizeof data, "%s/db/data.mdb", stores_path);
	cr_assert_eq(truncate(data, 8192), 0);
	cr_expect_eq(stores_get(s, &io), IMAGE_REFUSED);
	cr_expect_lt(imagestore_admit(s, &h, NULL, 0, &err), 0);
	cr_expect_not_null(strstr(err.text, "cut short"), "%s", err.text);
	imagestore_close(s);
	stores_free(&io);
	stores_free(&other);
}

Test(imagestore_open, garbled_tree_pages_never_end_the_process)
{
	char data[100];
	struct stat st;
	for (unsigned seed = 0; seed < 40; seed++) {
		struct image_tile_io io = stores_tile(1, 64, 128, 128);
		struct imagestore *s = stores_open();
		for (unsigned i = 0; i < 20; i++) {
			struct image_tile_io other = stores_tile(100 + i, 64, 128, 128);
			stores_put(s, &other, "m");
			stores_free(&other);
		}
		stores_put(s, &io, "m");
		imagestore_close(s);
		snprintf(data, sizeof data, "%s/db/data.mdb", stores_path);
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
		s = stores_open();
		enum image_result result = stores_get(s, &io); /* a hit has been compared */
		cr_expect(result == IMAGE_HIT || result == IMAGE_MISS || result == IMAGE_REFUSED);
		imagestore_close(s);
		stores_free(&io);
		stores_down();
		cr_assert(mkdir(stores_dir, 0700) == 0);
	}
}

Test(imagestore_open, a_store_of_another_schema_is_moved_aside)
{
	char data[100];
	uint32_t schema = RECORD_SCHEMA + 1;
	some_store(data, sizeof data);
	struct stores_raw r = stores_raw_open("meta");
	stores_raw_put(&r, "schema", 6, &schema, sizeof schema);
	stores_raw_close(&r);
	moved_aside("its schema is 2 and this npud's 1");
}

Test(imagestore_open, a_second_opener_is_refused_with_the_others_pid)
{
	struct imagestore *s = stores_open(), *second = NULL;
	struct imagestore_options o = {.path = stores_path, .max_bytes = STORES_BUDGET};
	char pid[32];
	cr_expect_eq(imagestore_open(&second, &o, &err), NPU_E_IN_USE);
	snprintf(pid, sizeof pid, "pid %d ", (int)getpid());
	cr_expect(strstr(err.text, pid), "%s", err.text);
	imagestore_close(s);
	imagestore_close(stores_open());
}

Test(imagestore_open, a_directory_that_others_may_write_is_refused)
{
	struct imagestore *s = NULL;
	struct imagestore_options o = {.path = stores_path, .max_bytes = STORES_BUDGET};
	cr_assert_eq(mkdir(stores_path, 0700), 0);
	cr_assert_eq(chmod(stores_path, 0777), 0);
	cr_expect_eq(imagestore_open(&s, &o, &err), NPU_E_NOT_ALLOWED, "%s", err.text);
}

Test(imagestore_open, the_secret_is_kept_and_one_of_an_older_npud_is_taken_over)
{
	char file[96];
	unsigned char old[HASH_SECRET_SIZE];
	snprintf(file, sizeof file, "%s/hash.secret", stores_dir);
	for (size_t i = 0; i < sizeof old; i++)
		old[i] = (unsigned char)(i * 3);
	FILE *f = fopen(file, "w");
	cr_assert(f && fwrite(old, 1, sizeof old, f) == sizeof old && fclose(f) == 0);
	struct imagestore *s = NULL;
	struct imagestore_options o = {.path = stores_path, .secret_file = file, .max_bytes = STORES_BUDGET};
	cr_assert_eq(imagestore_open(&s, &o, &err), 0);
	cr_expect_arr_eq(imagestore_secret(s)->bytes, old, sizeof old);
	cr_expect_lt(access(file, F_OK), 0);
	imagestore_close(s);
	s = stores_open();
	cr_expect_arr_eq(imagestore_secret(s)->bytes, old, sizeof old);
	imagestore_close(s);
	stores_down();
	cr_assert_eq(mkdir(stores_dir, 0700), 0);
	s = stores_open();
	cr_expect(memcmp(imagestore_secret(s)->bytes, old, sizeof old) != 0);
	imagestore_close(s);
}

Test(imagestore_open, chunks_without_a_header_go_at_the_next_start)
{
	struct image_tile_io io = stores_tile(1, 1024, 16384, 16384), other = stores_tile(2, 64, 128, 128);
	struct record_tile key;
	struct imagestore *s = stores_open();
	stores_put(s, &io, "m");
	stores_put(s, &other, "o");
	imagestore_close(s);
	record_tile_key(&key, &io.key, 0);
	struct stores_raw r = stores_raw_open("image");
	MDB_val k = {sizeof key, &key};
	cr_assert_eq(mdb_del(r.txn, r.dbi, &k, NULL), 0);
	stores_raw_close(&r);
	s = stores_open();
	cr_expect_eq(stores_get(s, &io), IMAGE_MISS);
	cr_expect(stores_has(s, &other));
	struct imagestore_stat stat;
	cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
	cr_expect_eq(stat.heads, 1u);
	imagestore_close(s);
	r = stores_raw_open("chunk");
	MDB_stat chunks;
	cr_assert_eq(mdb_stat(r.txn, r.dbi, &chunks), 0);
	cr_expect_eq(chunks.ms_entries, 2u, "%zu chunks", chunks.ms_entries);
	stores_raw_close(&r);
	stores_free(&io);
	stores_free(&other);
}

Test(imagestore_open, headers_without_an_account_get_one)
{
	struct image_tile_io io = stores_tile(1, 64, 128, 128);
	struct record_head key;
	struct stored_head h = stores_head(&io, "m"), found;
	struct imagestore *s = stores_open();
	stores_put(s, &io, "m");
	imagestore_close(s);
	record_head_key(&key, &io.key);
	struct stores_raw r = stores_raw_open("usage");
	MDB_val k = {sizeof key, &key};
	cr_assert_eq(mdb_del(r.txn, r.dbi, &k, NULL), 0);
	stores_raw_close(&r);
	s = stores_open();
	cr_assert_eq(imagestore_head(s, &io.key, &found, &err), 0, "%s", err.text);
	cr_expect_eq(found.bytes, h.bytes);
	cr_expect_eq(found.tiles, 1u);
	cr_assert_eq(imagestore_use(s, &h, &err), 0);
	cr_assert_eq(imagestore_head(s, &io.key, &found, &err), 0);
	cr_expect_str_eq(found.label, "m");
	cr_expect_eq(found.hits, 1u);
	imagestore_close(s);
	stores_free(&io);
}
