#include "stores.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct err err;
static struct stored_name rows[IMAGESTORE_NAMES_MAX];

TestSuite(imagestore_names, .init = stores_up, .fini = stores_down, .timeout = 120);

static struct stored_name name_of(unsigned number)
{
	struct stored_name n = {.idle = number % 2, .hashes = {.count = 1 + number % RECORD_PARTS}};
	snprintf((char *)n.digest, sizeof n.digest, "%u", number);
	for (unsigned i = 0; i < n.hashes.count; i++)
		memset(n.hashes.of[i], (int)(number + i), sizeof n.hashes.of[i]);
	return n;
}

static void keep(struct imagestore *s, unsigned number)
{
	struct stored_name n = name_of(number);
	cr_assert_eq(imagestore_name_keep(s, &n, &err), 0, "%s", err.text);
}

static size_t names(struct imagestore *s)
{
	size_t count;
	cr_assert_eq(imagestore_names(s, rows, &count, &err), 0, "%s", err.text);
	return count;
}

static void expect(size_t row, unsigned number)
{
	struct stored_name n = name_of(number);
	cr_expect_eq(memcmp(rows[row].digest, n.digest, sizeof n.digest), 0, "row %zu is not %u", row,
		     number);
	cr_expect_eq(rows[row].idle, n.idle);
	cr_expect_eq(memcmp(&rows[row].hashes, &n.hashes, sizeof n.hashes), 0, "hashes of row %zu", row);
}

static struct imagestore *again(struct imagestore *s)
{
	imagestore_close(s);
	return stores_open();
}

Test(imagestore_names, names_outlive_the_daemon_the_latest_first_and_each_is_there_once)
{
	struct imagestore *s = stores_open();

	cr_expect_eq(names(s), 0);
	for (unsigned i = 1; i <= 3; i++)
		keep(s, i);
	keep(s, 2);
	s = again(s);
	cr_assert_eq(names(s), 3);
	expect(0, 2);
	expect(1, 3);
	expect(2, 1);
	struct stored_name changed = name_of(2);
	changed.hashes.of[0][0] ^= 1;
	cr_assert_eq(imagestore_name_keep(s, &changed, &err), 0);
	cr_assert_eq(names(s), 3);
	cr_expect_eq(memcmp(&rows[0].hashes, &changed.hashes, sizeof changed.hashes), 0);
	imagestore_close(s);
}

Test(imagestore_names, where_there_are_too_many_the_oldest_goes)
{
	struct imagestore *s = stores_open();

	for (unsigned i = 0; i < IMAGESTORE_NAMES_MAX + 2; i++)
		keep(s, i);
	keep(s, 2); /* is there, so none goes */
	s = again(s);
	cr_assert_eq(names(s), IMAGESTORE_NAMES_MAX);
	expect(0, 2);
	expect(1, IMAGESTORE_NAMES_MAX + 1);
	expect(IMAGESTORE_NAMES_MAX - 1, 3);
	imagestore_close(s);
}

Test(imagestore_names, what_is_dropped_is_gone_and_the_others_stay)
{
	struct imagestore *s = stores_open();

	keep(s, 1);
	keep(s, 2);
	struct stored_name first = name_of(1);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(imagestore_name_drop(s, first.digest, &err), 0, "%s", err.text);
	s = again(s);
	cr_assert_eq(names(s), 1);
	expect(0, 2);
	imagestore_close(s);
}

Test(imagestore_names, pruning_takes_them_out_and_pruning_the_superseded_does_not)
{
	struct imagestore *s = stores_open();
	struct image_tile_io t = stores_tile(1, 64, 128, 128);
	uint64_t heads, bytes;

	stores_put(s, &t, "a");
	keep(s, 1);
	cr_assert_eq(imagestore_prune(s, true, NULL, 0, &heads, &bytes, &err), 0);
	cr_expect_eq(names(s), 1);
	cr_assert_eq(imagestore_prune(s, false, NULL, 0, &heads, &bytes, &err), 0);
	cr_expect_eq(heads, 1);
	cr_expect_eq(names(s), 0);
	s = again(s); /* schema and secret, their neighbours, are there */
	cr_expect_str_eq(imagestore_moved(s), "");
	imagestore_close(s);
	stores_free(&t);
}

Test(imagestore_names, a_damaged_one_is_left_out_and_is_the_first_to_go)
{
	struct imagestore *s = stores_open();
	struct record_name key = {.prefix = RECORD_NAME_PREFIX};

	for (size_t at = 0; at < sizeof(struct record_named); at += 8) {
		keep(s, 1);
		keep(s, 2);
		imagestore_close(s);
		struct stored_name n = name_of(2);
		memcpy(key.digest, n.digest, sizeof key.digest);
		stores_flip("meta", &key, sizeof key, at);
		s = stores_open();
		cr_assert_eq(names(s), 1, "byte %zu", at);
		expect(0, 1);
	}
	for (unsigned i = 3; i <= IMAGESTORE_NAMES_MAX + 1; i++)
		keep(s, i);
	cr_assert_eq(names(s), IMAGESTORE_NAMES_MAX);
	expect(IMAGESTORE_NAMES_MAX - 1, 1);
	imagestore_close(s);
}

Test(imagestore_names, below_the_floor_of_free_space_none_is_written)
{
	struct imagestore *s = stores_open_with(STORES_FINGERPRINT, STORES_BUDGET, UINT64_MAX);
	struct stored_name n = name_of(1);

	cr_expect_eq(imagestore_name_keep(s, &n, &err), NPU_E_IO);
	cr_expect(strstr(err.text, "min_free_bytes"), "%s", err.text);
	cr_expect_eq(names(s), 0);
	imagestore_close(s);
}
