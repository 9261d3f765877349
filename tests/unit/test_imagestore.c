#include "stores.h"
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct err err;

TestSuite(imagestore, .init = stores_up, .fini = stores_down, .timeout = 120);

Test(imagestore, a_written_tile_comes_back_bit_for_bit_also_after_a_restart)
{
	/* More than one chunk of codes. */
	struct image_tile_io io = stores_tile(5, 1024, 16384, 16001);
	struct imagestore *s = stores_open();
	cr_expect_eq(stores_get(s, &io), IMAGE_MISS);
	stores_put(s, &io, "m");
	cr_expect_eq(stores_get(s, &io), IMAGE_HIT);
	for (int i = 0; i < 3; i++) {
		imagestore_close(s);
		s = stores_open();
		cr_expect_eq(stores_get(s, &io), IMAGE_HIT, "%s", stores_why.text);
		cr_expect_str_eq(imagestore_moved(s), "");
	}
	struct imagestore_stat stat;
	cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
	cr_expect_eq(stat.heads, 1u);
	cr_expect_eq(stat.hits, 1u);
	imagestore_close(s);
	stores_free(&io);
}

Test(imagestore, heads_that_differ_in_one_part_of_the_key_are_different)
{
	struct imagestore *s = stores_open();
	struct image_tile_io io = stores_tile(9, 128, 256, 100), other;
	stores_put(s, &io, "m");
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
		cr_expect_eq(stores_get(s, &other), IMAGE_MISS, "part %d", part);
	}
	cr_expect_eq(stores_get(s, &io), IMAGE_HIT);
	imagestore_close(s);
	stores_free(&io);
}

Test(imagestore, every_flipped_byte_of_a_header_is_refused_by_name_and_the_next_write_mends_it)
{
	struct image_tile_io io = stores_tile(3, 64, 128, 128);
	struct record_tile key;
	unsigned reasons[REFUSED_COUNT] = {0};
	record_tile_key(&key, &io.key, 0);
	for (size_t at = 0; at < sizeof(struct record_header); at++) {
		struct imagestore *s = stores_open();
		stores_put(s, &io, "m");
		imagestore_close(s);
		stores_flip("image", &key, sizeof key, at);
		s = stores_open();
		cr_assert_eq(stores_get(s, &io), IMAGE_REFUSED, "byte %zu", at);
		enum refusal_reason want = at < 4   ? REFUSED_MAGIC
					   : at < 8 ? REFUSED_FORMAT
						    : REFUSED_HEADER_HASH;
		cr_expect_eq(stores_why.reason, want, "byte %zu: %s", at, stores_why.text);
		cr_expect(strstr(stores_why.text, "tile 0: "), "%s", stores_why.text);
		cr_expect_eq(imagestore_verify(s, &io.key, 0, &stores_why), IMAGE_REFUSED, "byte %zu", at);
		reasons[stores_why.reason]++;
		stores_put(s, &io, "m");
		cr_assert_eq(stores_get(s, &io), IMAGE_HIT, "byte %zu", at);
		struct imagestore_stat stat;
		cr_assert_eq(imagestore_stat(s, &stat, &err), 0);
		cr_expect_eq(stat.refused[want], 1u);
		imagestore_close(s);
	}
	cr_expect_gt(reasons[REFUSED_HEADER_HASH], 80u);
	stores_free(&io);
}

Test(imagestore, every_flipped_byte_of_a_chunks_prefix_and_of_its_payload_is_refused)
{
	struct image_tile_io io = stores_tile(4, 64, 128, 128);
	struct record_chunk key;
	record_tile_key(&key.tile, &io.key, 0);
	for (uint32_t chunk = 0; chunk < 2; chunk++) {
		record_chunk_key(&key, &key.tile, chunk);
		size_t payload = chunk ? 128 * 4 : 64 * 128;
		for (size_t at = 0; at < 48 + payload; at += at < 48 ? 1 : 509) {
			struct imagestore *s = stores_open();
			stores_put(s, &io, "m");
			imagestore_close(s);
			stores_flip("chunk", &key, sizeof key, at);
			s = stores_open();
			cr_assert_eq(stores_get(s, &io), IMAGE_REFUSED, "chunk %u byte %zu", chunk, at);
			enum refusal_reason want = at < 36   ? REFUSED_CHUNK_KEY
						   : at < 40 ? REFUSED_CHUNK_LENGTH
							     : REFUSED_CHUNK_HASH;
			cr_expect_eq(stores_why.reason, want, "byte %zu: %s", at, stores_why.text);
			char part[32];
			snprintf(part, sizeof part, "chunk %u", chunk);
			cr_expect(strstr(stores_why.text, part), "%s", stores_why.text);
			imagestore_close(s);
		}
	}
	stores_free(&io);
}

Test(imagestore, records_of_two_heads_swapped_are_refused)
{
	struct image_tile_io a = stores_tile(1, 64, 128, 128), b = stores_tile(2, 64, 128, 128);
	struct record_chunk ka, kb;
	size_t na, nb;
	struct imagestore *s = stores_open();
	stores_put(s, &a, "a");
	stores_put(s, &b, "b");
	imagestore_close(s);

	record_tile_key(&ka.tile, &a.key, 0);
	record_tile_key(&kb.tile, &b.key, 0);
	record_chunk_key(&ka, &ka.tile, 0);
	record_chunk_key(&kb, &kb.tile, 0);
	struct stores_raw r = stores_raw_open("chunk");
	unsigned char *va = stores_raw_get(&r, &ka, sizeof ka, &na),
		      *vb = stores_raw_get(&r, &kb, sizeof kb, &nb);
	stores_raw_put(&r, &ka, sizeof ka, vb, nb);
	stores_raw_put(&r, &kb, sizeof kb, va, na);
	stores_raw_close(&r);
	free(va);
	free(vb);
	s = stores_open();
	cr_expect_eq(stores_get(s, &a), IMAGE_REFUSED);
	cr_expect_eq(stores_why.reason, REFUSED_CHUNK_KEY, "%s", stores_why.text);
	stores_put(s, &a, "a");
	stores_put(s, &b, "b");
	imagestore_close(s);

	r = stores_raw_open("image");
	va = stores_raw_get(&r, &ka.tile, sizeof ka.tile, &na);
	vb = stores_raw_get(&r, &kb.tile, sizeof kb.tile, &nb);
	stores_raw_put(&r, &ka.tile, sizeof ka.tile, vb, nb);
	stores_raw_put(&r, &kb.tile, sizeof kb.tile, va, na);
	stores_raw_close(&r);
	free(va);
	free(vb);
	s = stores_open();
	cr_expect_eq(stores_get(s, &b), IMAGE_REFUSED);
	cr_expect_eq(stores_why.reason, REFUSED_GEOMETRY, "%s", stores_why.text);
	cr_expect(strstr(stores_why.text, "content hash"), "%s", stores_why.text);
	imagestore_close(s);
	stores_free(&a);
	stores_free(&b);
}

Test(imagestore, a_good_chunk_of_another_writing_is_refused_by_the_sum)
{
	struct image_tile_io io = stores_tile(1, 64, 128, 128), other = stores_tile(2, 64, 128, 128);
	struct record_chunk key;
	size_t size;
	other.key = io.key;
	struct imagestore *s = stores_open();
	stores_put(s, &other, "m");
	imagestore_close(s);
	record_tile_key(&key.tile, &io.key, 0);
	record_chunk_key(&key, &key.tile, 0);
	struct stores_raw r = stores_raw_open("chunk");
	unsigned char *old = stores_raw_get(&r, &key, sizeof key, &size);
	stores_raw_close(&r);
	s = stores_open();
	stores_put(s, &io, "m");
	imagestore_close(s);
	r = stores_raw_open("chunk");
	stores_raw_put(&r, &key, sizeof key, old, size);
	stores_raw_close(&r);
	s = stores_open();
	cr_expect_eq(stores_get(s, &io), IMAGE_REFUSED);
	cr_expect_eq(stores_why.reason, REFUSED_SUM, "%s", stores_why.text);
	cr_expect_eq(imagestore_verify(s, &io.key, 0, &stores_why), IMAGE_REFUSED);
	imagestore_close(s);
	free(old);
	stores_free(&io);
	stores_free(&other);
}

Test(imagestore, a_missing_or_longer_chunk_is_refused)
{
	struct image_tile_io io = stores_tile(1, 64, 128, 128);
	struct record_chunk key;
	size_t size;
	struct imagestore *s = stores_open();
	stores_put(s, &io, "m");
	imagestore_close(s);
	record_tile_key(&key.tile, &io.key, 0);
	record_chunk_key(&key, &key.tile, 1);
	struct stores_raw r = stores_raw_open("chunk");
	unsigned char *value = stores_raw_get(&r, &key, sizeof key, &size);
	stores_raw_put(&r, &key, sizeof key, value, size - 1);
	stores_raw_close(&r);
	s = stores_open();
	cr_expect_eq(stores_get(s, &io), IMAGE_REFUSED);
	cr_expect_eq(stores_why.reason, REFUSED_CHUNK_LENGTH, "%s", stores_why.text);
	imagestore_close(s);
	r = stores_raw_open("chunk");
	MDB_val k = {sizeof key, &key};
	cr_assert_eq(mdb_del(r.txn, r.dbi, &k, NULL), 0);
	stores_raw_close(&r);
	s = stores_open();
	cr_expect_eq(stores_get(s, &io), IMAGE_REFUSED);
	cr_expect_eq(stores_why.reason, REFUSED_CHUNK_MISSING, "%s", stores_why.text);
	imagestore_close(s);
	free(value);
	stores_free(&io);
}

Test(imagestore, another_packers_image_is_refused_with_both_fingerprints)
{
	struct image_tile_io io = stores_tile(1, 64, 128, 128);
	struct imagestore *s = stores_open();
	stores_put(s, &io, "m");
	imagestore_close(s);
	s = stores_open_with(STORES_FINGERPRINT + 1, STORES_BUDGET, 0);
	cr_expect_eq(stores_get(s, &io), IMAGE_REFUSED);
	cr_expect_eq(stores_why.reason, REFUSED_FINGERPRINT);
	cr_expect(strstr(stores_why.text, "1122334455667788") && strstr(stores_why.text, "1122334455667789"),
		  "%s", stores_why.text);
	stores_put(s, &io, "m");
	cr_expect_eq(stores_get(s, &io), IMAGE_HIT);
	imagestore_close(s);
	stores_free(&io);
}

Test(imagestore, a_head_of_other_tiles_or_columns_is_refused)
{
	struct image_tile_io io = stores_tile(1, 64, 256, 200), other;
	struct imagestore *s = stores_open();
	stores_put(s, &io, "m");
	other = io;
	other.tiles = 2;
	cr_expect_eq(stores_get(s, &other), IMAGE_REFUSED);
	cr_expect(strstr(stores_why.text, "tiles is 1 in the header and 2 here"), "%s", stores_why.text);
	other = io;
	other.columns = 199;
	cr_expect_eq(stores_get(s, &other), IMAGE_REFUSED);
	cr_expect(strstr(stores_why.text, "columns is 200 in the header and 199 here"), "%s",
		  stores_why.text);
	imagestore_close(s);
	stores_free(&io);
}

static bool differs(void *arg, const struct image_tile_io *io, struct refusal *r)
{
	(void)arg;
	refusal_set(r, REFUSED_SAMPLE, io->tile, "column 7: scale 1 in the image, 2 packed");
	return false;
}

Test(imagestore, the_sample_has_the_last_word)
{
	struct image_tile_io io = stores_tile(1, 64, 128, 128), to = stores_blank(&io);
	struct imagestore *s = stores_open();
	stores_put(s, &io, "m");
	cr_expect_eq(imagestore_read(s, &to, differs, NULL, &stores_why), IMAGE_REFUSED);
	cr_expect_eq(stores_why.reason, REFUSED_SAMPLE);
	cr_expect(strstr(stores_why.text, "other weights"), "%s", stores_why.text);
	imagestore_close(s);
	stores_free(&io);
	stores_free(&to);
}

Test(imagestore, the_pieces_of_a_tile_are_its_codes_and_then_its_scales)
{
	struct image_tile_io io = stores_tile(6, 1024, 16384, 16001);
	struct imagestore *s = stores_open();
	stores_put(s, &io, "m");
	cleanup(freep) char *piece = malloc(RECORD_CHUNK_MAX);
	uint64_t codes = 0, scales = 0;
	for (uint32_t i = 0;; i++) {
		uint32_t length;
		bool is_scales;
		if (imagestore_piece(s, &io.key, 0, i, piece, &length, &is_scales, &stores_why) != IMAGE_HIT)
			break;
		const char *want =
			is_scales ? (const char *)io.scales + scales : (const char *)io.codes + codes;
		cr_expect_eq(memcmp(piece, want, length), 0);
		*(is_scales ? &scales : &codes) += length;
	}
	cr_expect_eq(codes, (uint64_t)1024 * 126 * 128);
	cr_expect_eq(scales, (uint64_t)16384 * 4);
	imagestore_close(s);
	stores_free(&io);
}

Test(imagestore, a_stopped_write_leaves_nothing)
{
	struct image_tile_io io = stores_tile(2, 1024, 16384, 16384);
	struct imagestore *s = stores_open();
	struct stored_head h = stores_head(&io, "m");
	atomic_bool stop = true;
	cr_assert_eq(imagestore_admit(s, &h, NULL, 0, &err), 0);
	cr_expect_eq(imagestore_write(s, &io, &stop, &err), NPU_E_CANCELLED);
	cr_expect_eq(stores_get(s, &io), IMAGE_MISS);
	/* So too where it replaces one: the old header went first. */
	stores_put(s, &io, "m");
	cr_expect_eq(stores_get(s, &io), IMAGE_HIT);
	cr_expect_eq(imagestore_write(s, &io, &stop, &err), NPU_E_CANCELLED);
	cr_expect_eq(stores_get(s, &io), IMAGE_MISS);
	imagestore_close(s);
	stores_free(&io);
}

/* Two contents of one key. */
static void two_contents(struct image_tile_io t[2])
{
	for (unsigned i = 0; i < 2; i++)
		t[i] = stores_tile(i + 1, 1024, 16384, 16384);
	t[1].key = t[0].key;
	t[1].nonfinite = t[0].nonfinite;
}

/* Replaces one by the other for ever; the parent kills it. */
static void write_for_ever(void)
{
	struct image_tile_io t[2];
	struct imagestore *s = stores_open();
	two_contents(t);
	for (unsigned i = 0;; i++)
		stores_put(s, &t[i % 2], "m");
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
		struct imagestore *s = stores_open();
		cr_expect_str_eq(imagestore_moved(s), "");
		io = stores_blank(&t[0]);
		enum image_result result = imagestore_read(s, &io, stores_agrees, NULL, &stores_why);
		cr_expect_neq(result, IMAGE_REFUSED, "%s", stores_why.text);
		if (result == IMAGE_HIT) {
			hits++;
			stores_expect_same(&io, &t[io.scales[0] == t[1].scales[0]]);
		}
		stores_free(&io);
		imagestore_close(s);
		largest = stores_file_size() > largest ? stores_file_size() : largest;
	}
	printf("%u of 40 were there\n", hits);
	cr_expect_lt(largest, 256u << 20, "the file has %llu bytes", (unsigned long long)largest);
	stores_free(&t[0]);
	stores_free(&t[1]);
}
