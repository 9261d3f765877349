/*
 * A launch on the device as the daemon makes it, queued, checked and handed over between threads, beside one
 * that only uses XRT: both on the device for tests beneath it, in turns. Times here are of who waits for a
 * launch.
 */
#include "bench.h"
#include "kernel_files.h"
#include "launcher.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIGURE "device.launch"

#ifdef BENCH_XRT_MODULE
enum { ROWS = 16, KD = 64, ND = 128, LAUNCHES = 200 };

struct bare {
	const struct device_table *table;
	struct device *device;
	struct device_context *context;
	struct device_buffer *buffers[3];
	int8_t *q;
};

static void must(int code, const struct device_why *why)
{
	if (code == DEVICE_OK)
		return;
	fprintf(stderr, "bench: %s\n", why->text);
	exit(1);
}

static void bare_init(struct bare *b, const struct design *d)
{
	const size_t sizes[] = {ROWS * KD, KD * ND, ROWS * ND * sizeof(int32_t)};
	struct device_why why = {""};
	void *maps[3];

	b->table = launcher_table();
	must(b->table->open(&b->device, launcher_settings(""), &why), &why);
	must(b->table->context_open(&b->context, b->device, d, &why), &why);
	for (int use = DEVICE_A; use <= DEVICE_C; use++)
		must(b->table->buffer_new(&b->buffers[use], b->device, (enum device_use)use, sizes[use],
					  &maps[use], &why),
		     &why);
	b->q = maps[DEVICE_A];
}

/* What is new each time crosses over, and nothing else. */
static void bare_run(struct bare *b, const int8_t *q, int32_t *acc)
{
	struct device_why why = {""};
	struct device_run *run;

	(void)acc;
	memcpy(b->q, q, ROWS * KD);
	must(b->table->buffer_sync(b->buffers[DEVICE_A], DEVICE_TO, 0, ROWS * KD, &why), &why);
	must(b->table->launch(&run, b->context, b->buffers[DEVICE_A], b->buffers[DEVICE_B],
			      b->buffers[DEVICE_C], &why),
	     &why);
	if (b->table->wait(run, 10000) != DEVICE_COMPLETED)
		exit(1);
	b->table->run_free(run);
	must(b->table->buffer_sync(b->buffers[DEVICE_C], DEVICE_FROM, 0, ROWS * ND * sizeof(int32_t), &why),
	     &why);
}

static void bare_fini(struct bare *b)
{
	for (int use = DEVICE_A; use <= DEVICE_C; use++)
		b->table->buffer_free(b->buffers[use]);
	b->table->context_close(b->context);
	b->table->close(b->device);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int rising(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median of some launches, in microseconds. */
static double launch_us(struct launcher *l, struct bare *b)
{
	static int8_t q[ROWS * KD];
	static int32_t acc[ROWS * ND];
	double took[LAUNCHES];

	for (int i = 0; i < LAUNCHES; i++) {
		q[i]++;
		double begun = now_us();
		if (b)
			bare_run(b, q, acc);
		else if (launcher_run(l, 0, q, ROWS, acc) != JOB_DONE)
			exit(1);
		took[i] = now_us() - begun;
	}
	qsort(took, LAUNCHES, sizeof *took, rising);
	return took[LAUNCHES / 2];
}

int main(void)
{
	const struct geometry g = {
		.nv = ND, .h = KD, .kd = KD, .nd = ND, .tiles = 1, .layout = LAYOUT_BLOCKED};
	struct image image;
	struct launcher l;
	struct bare b;
	double above[BENCH_ROUNDS], bare[BENCH_ROUNDS];

	setenv("NPUD_TEST_XRT", BENCH_XRT_MODULE, 1);
	setenv("XILINX_XRT", BENCH_XRT_DRIVER, 1);
	setenv("XCL_EMULATION_MODE", "sw_emu", 1);
	bench_begin();
	if (!image_init(&image, &g))
		return 1;
	launcher_init(&l, &image, ROWS, "", 10000);
	bare_init(&b, &l.design);
	for (int i = 0; i < BENCH_ROUNDS; i++) {
		bare[i] = launch_us(&l, &b);
		above[i] = launch_us(&l, NULL) - bare[i];
	}
	bench_figure(FIGURE, LOWER, above, 60, 30, "microseconds above a launch of XRT alone");
	bench_figure(FIGURE ".xrt", LOWER, bare, 0, 0, "microseconds of a launch of XRT alone");
	bare_fini(&b);
	launcher_fini(&l);
	image_fini(&image);
	return 0;
}
#else
int main(void)
{
	bench_skipped(FIGURE,
		      "it needs XRT 2.13 with its archives (Debian 12: libxrt-dev), before the build");
	return 0;
}
#endif
