#include "engine.h"
#include "launcher.h"
#include "own.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define K 64u
#define NV 200u
#define ROWS 3u

/* A head on the host and on a device, and rows that run over it. */
struct rig {
	struct kernels kernels;
	struct engine engine;
	struct target target;
	struct launcher launcher;
	int8_t q[ROWS * K];
	float logits[ROWS][NV];
	struct pass_row rows[ROWS];
	struct pass pass;
	struct engine_report report;
	struct err err;
};

static struct rig *rig_new(const char *simulation)
{
	const struct geometry g = {
		.nv = NV, .h = K, .kd = K, .nd = 128, .tiles = 2, .layout = LAYOUT_BLOCKED};
	struct rig *r = calloc(1, sizeof *r);

	cr_assert(r && image_init(&r->target.image, &g));
	for (uint32_t t = 0; t < g.tiles; t++) {
		struct tile tile = image_tile(&r->target.image, t);
		for (uint32_t i = 0; i < g.kd * g.nd; i++)
			tile.codes[i] = (int8_t)(i * 37 % 255 - 127);
		for (uint32_t n = 0; n < g.nd; n++)
			tile.scales[n] = (float)(n + 1) / 512;
	}
	launcher_init(&r->launcher, &r->target.image, 16, simulation, 10000);
	cr_assert(kernels_pick(&r->kernels, cpu_have(), NULL));
	cr_assert_eq(engine_init(&r->engine, &r->kernels, 1), 0);
	r->engine.runner = r->launcher.runner;
	r->target.device = r->launcher.weights;
	for (uint32_t i = 0; i < ROWS * K; i++)
		r->q[i] = (int8_t)(i % 100 + 1);
	for (uint32_t m = 0; m < ROWS; m++)
		r->rows[m] = (struct pass_row){.ascale = 0.5f, .logits = r->logits[m]};
	r->pass = (struct pass){r->q, r->rows, ROWS};
	return r;
}

static void rig_freep(struct rig **p)
{
	struct rig *r = *p;

	engine_fini(&r->engine);
	launcher_fini(&r->launcher);
	image_fini(&r->target.image);
	free(r);
}

static int run(struct rig *r, enum path path, bool verify)
{
	return engine_run(&r->engine, &r->target, &r->pass, path, false, verify, &r->report, &r->err);
}

/* One code of word 150 goes bad in the host's memory; the device has its own copy. */
static void flip(struct rig *r)
{
	struct tile tile = image_tile(&r->target.image, 1);
	tile.codes[tile_index(&tile, 5, 150 - 128)] ^= 64;
}

Test(engine, verify_is_content_where_both_paths_agree)
{
	cleanup(rig_freep) struct rig *r = rig_new("");

	cr_expect_eq(run(r, PATH_DEVICE, true), 0, "%s", r->err.text);
	cr_expect_eq(r->report.path, PATH_DEVICE);
	cr_expect_eq(r->report.launch_rows, 16);
	cr_expect_eq(run(r, PATH_HOST, true), 0, "%s", r->err.text);
	cr_expect_eq(r->report.path, PATH_HOST);
	cr_expect_eq(r->report.launch_rows, 0);
}

Test(engine, verify_names_the_first_result_that_two_paths_do_not_agree_on)
{
	cleanup(rig_freep) struct rig *r = rig_new("");

	flip(r);
	cr_expect_eq(run(r, PATH_DEVICE, false), 0, "nobody asked");
	cr_expect_eq(run(r, PATH_DEVICE, true), NPU_E_DIFFERENCE);
	cr_expect(strstr(r->err.text, "row 0 of the pass: logit 150 is "), "%s", r->err.text);
	cr_expect(strstr(r->err.text, "by device and "), "%s", r->err.text);
	cr_expect_eq(run(r, PATH_HOST, true), NPU_E_DIFFERENCE);
	cr_expect(strstr(r->err.text, "by the device"), "%s", r->err.text);
}

Test(engine, verify_sees_a_difference_among_the_best_words_too)
{
	cleanup(rig_freep) struct rig *r = rig_new("");
	uint32_t ids[ROWS][NV];

	for (uint32_t m = 0; m < ROWS; m++)
		r->rows[m] =
			(struct pass_row){.ascale = 0.5f, .k = NV, .ids = ids[m], .values = r->logits[m]};
	cr_expect_eq(run(r, PATH_DEVICE, true), 0, "%s", r->err.text);
	flip(r);
	cr_expect_eq(run(r, PATH_DEVICE, true), NPU_E_DIFFERENCE);
	cr_expect(strstr(r->err.text, "row 0 of the pass: in place "), "%s", r->err.text);
}

Test(engine, a_path_that_cannot_be_had_is_refused_and_one_that_fails_is_left)
{
	cleanup(rig_freep) struct rig *r = rig_new("error@3-1000000");

	cr_expect_eq(run(r, PATH_DEVICE, false), NPU_E_NO_PATH);
	cr_expect(strstr(r->err.text, "a launch failed"), "%s", r->err.text);
	cr_expect_eq(run(r, PATH_AUTO, false), 0);
	cr_expect_eq(r->report.path, PATH_HOST);
	cr_expect(r->report.fallback);
	cr_expect_eq(
		engine_run(&r->engine, &r->target, &r->pass, PATH_DEVICE, true, false, &r->report, &r->err),
		NPU_E_NO_PATH);
	cr_expect(strstr(r->err.text, "reserved"), "%s", r->err.text);
}
