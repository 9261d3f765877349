#include "../dice.h"
#include "check.h"
#include "own.h"
#include <criterion/criterion.h>
#include <string.h>

#define ROWS 5u

struct launch {
	struct tile tile;
	struct check check;
	int8_t *q;
	int32_t *acc;
};

static struct launch launch_new(uint32_t kd, uint32_t nd, enum layout layout)
{
	struct launch l = {.tile = {kd, nd, layout, malloc((size_t)kd * nd), NULL},
			   .q = malloc((size_t)ROWS * kd),
			   .acc = malloc((size_t)ROWS * nd * sizeof(int32_t))};
	uint64_t state = kd * 1000 + nd;

	for (size_t i = 0; i < (size_t)kd * nd; i++)
		l.tile.codes[i] = (int8_t)(splitmix(&state) % 255 - 127);
	for (size_t i = 0; i < (size_t)ROWS * kd; i++)
		l.q[i] = (int8_t)(splitmix(&state) % 255 - 127);
	head_ref(&l.tile, l.q, ROWS, nd, false, l.acc);
	cr_assert(check_init(&l.check, &l.tile, 42));
	return l;
}

static void launch_free(struct launch *l)
{
	check_fini(&l->check);
	free(l->tile.codes);
	free(l->q);
	free(l->acc);
}

static const struct {
	uint32_t kd, nd;
	enum layout layout;
} shapes[] = {{64, 128, LAYOUT_BLOCKED},    {192, 384, LAYOUT_BLOCKED}, {64, 1, LAYOUT_ROW_MAJOR},
	      {128, 131, LAYOUT_ROW_MAJOR}, {1, 7, LAYOUT_ROW_MAJOR},	{1024, 256, LAYOUT_BLOCKED}};

Test(check, right_rows_pass_in_both_layouts)
{
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		cleanup(launch_free) struct launch l =
			launch_new(shapes[i].kd, shapes[i].nd, shapes[i].layout);
		cr_expect_eq(check_rows(&l.check, residue_ref, l.q, ROWS, l.acc), ROWS, "%u x %u",
			     shapes[i].kd, shapes[i].nd);
	}
}

Test(check, the_largest_sums_pass)
{
	struct tile t = {133184, 128, LAYOUT_BLOCKED, malloc((size_t)133184 * 128), NULL};
	cleanup(freep) int8_t *codes = t.codes, *q = malloc(t.kd);
	cleanup(freep) int32_t *acc = malloc(t.nd * sizeof *acc);
	struct check check;

	memset(t.codes, 127, (size_t)t.kd * t.nd);
	memset(q, -127, t.kd);
	memset(q + 133144, 0, t.kd - 133144);
	head_ref(&t, q, 1, t.nd, false, acc);
	cr_assert(check_init(&check, &t, 1));
	cr_expect_eq(check_rows(&check, residue_ref, q, 1, acc), 1);
	check_fini(&check);
	(void)codes;
}

Test(check, every_single_flipped_bit_is_seen)
{
	cleanup(launch_free) struct launch l = launch_new(64, 128, LAYOUT_BLOCKED);

	for (uint32_t i = 0; i < ROWS * 128; i++)
		for (int bit = 0; bit < 32; bit++) {
			l.acc[i] ^= (int32_t)(UINT32_C(1) << bit);
			cr_assert_eq(check_rows(&l.check, residue_ref, l.q, ROWS, l.acc), i / 128,
				     "word %u, bit %d", i, bit);
			l.acc[i] ^= (int32_t)(UINT32_C(1) << bit);
		}
}

static void swap(int32_t *a, int32_t *b)
{
	int32_t value = *a;
	*a = *b;
	*b = value;
}

Test(check, swapped_rows_columns_and_blocks_are_seen)
{
	cleanup(launch_free) struct launch l = launch_new(192, 384, LAYOUT_BLOCKED);

	for (uint32_t n = 0; n < 384; n++)
		swap(&l.acc[384 + n], &l.acc[3 * 384 + n]);
	cr_expect_eq(check_rows(&l.check, residue_ref, l.q, ROWS, l.acc), 1);
	for (uint32_t n = 0; n < 384; n++)
		swap(&l.acc[384 + n], &l.acc[3 * 384 + n]);

	for (uint32_t n = 0; n + 1 < 384; n++) {
		if (l.acc[n] == l.acc[n + 1])
			continue;
		swap(&l.acc[n], &l.acc[n + 1]);
		cr_expect_eq(check_rows(&l.check, residue_ref, l.q, ROWS, l.acc), 0, "columns %u and %u", n,
			     n + 1);
		swap(&l.acc[n], &l.acc[n + 1]);
	}
	for (uint32_t n = 0; n < 128; n++)
		swap(&l.acc[4 * 384 + n], &l.acc[4 * 384 + 256 + n]);
	cr_expect_eq(check_rows(&l.check, residue_ref, l.q, ROWS, l.acc), 4);
}

Test(check, zeros_and_the_result_of_another_tile_are_seen)
{
	cleanup(launch_free) struct launch l = launch_new(64, 256, LAYOUT_BLOCKED);
	cleanup(launch_free) struct launch other = launch_new(64, 256, LAYOUT_BLOCKED);

	other.tile.codes[77] ^= 4; /* one weight of 16384 differs; no activation is zero everywhere */
	head_ref(&other.tile, other.q, ROWS, 256, false, other.acc);
	cr_expect(check_rows(&l.check, residue_ref, l.q, ROWS, other.acc) < ROWS);
	memset(l.acc, 0, sizeof(int32_t) * ROWS * 256);
	cr_expect_eq(check_rows(&l.check, residue_ref, l.q, ROWS, l.acc), 0);
}
