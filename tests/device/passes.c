/*
 * passes FAULT COUNT: passes over a head on a device that fails or lies, by the engine, on each path that may
 * use it and in both layouts, until COUNT launches went wrong on each. Every answer is compared with the
 * reference kernel's, and must say where it was made.
 */
#include "../dice.h"
#include "engine.h"
#include "launcher.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS 8u
#define NV LAUNCHER_NV
#define K LAUNCHER_K

static _Noreturn void fail(const char *what, const char *simulation, const char *path)
{
	fprintf(stderr, "%s, path=%s: %s\n", simulation, path, what);
	exit(1);
}

struct faults {
	uint64_t count;
	bool well;
};

static struct faults faults_of(struct runner *r)
{
	struct runner_status s;

	runner_status(r, &s);
	return (struct faults){s.timeouts + s.errors + s.hangs + s.mismatches, s.health == HEALTH_OK};
}

struct bench {
	const char *simulation;
	struct engine engine, reference; /* the second one has no device */
	struct kernels kernels, plain;
	struct target target;
	struct launcher launcher;
	uint64_t state, on_device, on_host, refused;
};

/* One pass of some rows on both engines. */
static void pass_once(struct bench *b, enum path path)
{
	static int8_t q[ROWS * K];
	static float got[ROWS][NV], want[ROWS][NV];
	struct pass_row rows[ROWS], right[ROWS];
	struct engine_report report = {.kernel = ""}, other;
	struct err err = {};
	uint32_t count = (uint32_t)(splitmix(&b->state) % (ROWS - 1)) + 2;
	struct pass pass = {q, rows, count};

	for (uint32_t i = 0; i < count * K; i++)
		q[i] = (int8_t)(splitmix(&b->state) % 255 - 127);
	for (uint32_t m = 0; m < count; m++) {
		float ascale = (float)(splitmix(&b->state) % 1000 + 1) / 1024;
		rows[m] = (struct pass_row){.ascale = ascale, .logits = got[m]};
		right[m] = (struct pass_row){.ascale = ascale, .logits = want[m]};
	}
	memset(got, 0x7f, sizeof got);
	b->target.costs =
		(struct path_costs){.host = {0}}; /* else auto would soon know the host as quicker */
	int r = engine_run(&b->engine, &b->target, &pass, path, false, false, &report, &err);
	if (r == NPU_E_NO_PATH && path == PATH_DEVICE) {
		b->refused++;
		return;
	}
	if (r)
		fail(err.text, b->simulation, path_name(path));
	struct target host = {.image = b->target.image};
	if (engine_run(&b->reference, &host, &(struct pass){q, right, count}, PATH_HOST, false, false, &other,
		       &err))
		fail(err.text, b->simulation, "host");
	for (uint32_t m = 0; m < count; m++)
		if (memcmp(got[m], want[m], sizeof got[m]) != 0)
			fail("a wrong answer got by", b->simulation, path_name(path));
	bool device = report.path == PATH_DEVICE;
	if (device != (strcmp(report.kernel, "device") == 0) || device != (report.launch_rows == ROWS) ||
	    (path == PATH_DEVICE && !device))
		fail("an answer says that it was made elsewhere", b->simulation, path_name(path));
	b->on_device += device;
	b->on_host += !device;
}

static void suffer(struct bench *b, enum path path, uint64_t wanted)
{
	uint64_t begun = faults_of(b->launcher.runner).count;
	struct faults f;

	b->on_device = b->on_host = b->refused = 0;
	while ((f = faults_of(b->launcher.runner)).count - begun < wanted) {
		pass_once(b, path);
		if (!f.well)
			usleep(200);
	}
	printf("%s, layout %d, path=%s: %" PRIu64 " faults; %" PRIu64 " answers of the device, %" PRIu64
	       " of the host, none wrong; %" PRIu64 " refused\n",
	       b->simulation, b->target.image.geometry.layout, path_name(path), f.count - begun, b->on_device,
	       b->on_host, b->refused);
	if (!b->on_device && strncmp(b->simulation, "hang", 4) != 0)
		fail("the device has never answered", b->simulation, path_name(path));
}

static void suffer_all(const char *simulation, enum layout layout, uint64_t wanted)
{
	static struct bench b;

	memset(&b, 0, sizeof b);
	b.simulation = simulation;
	b.target.image = launcher_image(layout);
	/* What hangs is to be noticed soon; what is only slow then is a fault too, and no wrong answer. */
	launcher_init(&b.launcher, &b.target.image, ROWS, simulation,
		      strncmp(simulation, "hang", 4) == 0 ? 2 : 10000);
	if (!kernels_pick(&b.kernels, cpu_have(), NULL) || !kernels_pick(&b.plain, CPU_ANY, "ref") ||
	    engine_init(&b.engine, &b.kernels, 1) || engine_init(&b.reference, &b.plain, 1))
		abort();
	b.engine.runner = b.launcher.runner;
	b.target.device = b.launcher.weights;
	suffer(&b, PATH_DEVICE, wanted);
	suffer(&b, PATH_AUTO, wanted);
	suffer(&b, PATH_ALTERNATE, wanted);
	engine_fini(&b.engine);
	engine_fini(&b.reference);
	launcher_fini(&b.launcher);
	image_fini(&b.target.image);
}

int main(int argc, char **argv)
{
	uint64_t count = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;

	if (count == 0) {
		fprintf(stderr, "usage: %s FAULT COUNT\n", argv[0]);
		return 2;
	}
	suffer_all(argv[1], LAYOUT_BLOCKED, count);
	suffer_all(argv[1], LAYOUT_ROW_MAJOR, count);
	return 0;
}
