#include "record.h"
#include <criterion/criterion.h>

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
