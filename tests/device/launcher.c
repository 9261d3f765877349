#include "launcher.h"
#include "../dice.h"
#include "kernel_files.h"
#include "soft.h"
#include "xrt_module.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Noreturn void fail(const char *what, const struct device_why *why)
{
	fprintf(stderr, "launcher: %s: %s\n", what, why->text);
	abort();
}

const struct device_table *launcher_table(void)
{
	const char *module = getenv("NPUD_TEST_XRT");
	const struct device_table *table = &device_soft;
	struct device_why why = {""};

	if (module && xrt_module_load(&table, module, &why))
		fail("module", &why);
	return table;
}

const char *launcher_settings(const char *simulation)
{
	if (!getenv("NPUD_TEST_XRT"))
		return simulation;
	setenv("NPUD_TEST_NPU", simulation, 1);
	return "";
}

struct image launcher_image(enum layout layout)
{
	struct geometry g = {.nv = LAUNCHER_NV,
			     .h = LAUNCHER_K,
			     .kd = LAUNCHER_K,
			     .nd = LAUNCHER_ND,
			     .tiles = 2,
			     .layout = layout};
	struct image image;
	uint64_t state = 5;

	if (!image_init(&image, &g))
		abort();
	for (uint32_t t = 0; t < g.tiles; t++) {
		struct tile tile = image_tile(&image, t);
		for (size_t i = 0; i < (size_t)g.kd * g.nd; i++)
			tile.codes[i] = (int8_t)(splitmix(&state) % 255 - 127);
		for (uint32_t n = 0; n < g.nd; n++)
			tile.scales[n] = (float)(splitmix(&state) % 1000 + 1) / 4096;
	}
	return image;
}

bool launcher_well(struct launcher *l)
{
	struct runner_status s;

	for (int i = 0; i < 30000; i++) {
		runner_status(l->runner, &s);
		if (s.health == HEALTH_OK)
			return true;
		usleep(1000);
	}
	fprintf(stderr, "launcher: %s: %s\n", health_name(s.health), s.reason);
	return false;
}

void launcher_init(struct launcher *l, const struct image *image, uint32_t rows, const char *simulation,
		   uint32_t launch_ms)
{
	const struct geometry *g = &image->geometry;
	struct runner_options o = runner_defaults;
	struct device_why why = {""};

	*l = (struct launcher){.design = {.rows = rows, .kd = g->kd, .nd = g->nd, .layout = g->layout},
			       .tiles = g->tiles};
	strcpy(l->directory, "/tmp/npud-launcher.XXXXXX");
	if (!mkdtemp(l->directory) || !kernel_files_write(l->directory, &l->design, 1))
		fail(l->directory, &why);
	o.table = launcher_table();
	o.settings = launcher_settings(simulation);
	o.designs = &l->design;
	o.design_count = 1;
	/* Short, so that a test that makes faults does not wait for long. */
	o.times =
		(struct keeper_times){.idle_ms = 30000, .stale_ms = 10000, .retry_ms = 20, .recovery_ms = 1};
	o.launch_ms = launch_ms;
	if (runner_new(&l->runner, &o, &why))
		fail("device", &why);
	l->weights = calloc(l->tiles, sizeof(struct weights *));
	if (!l->weights || !launcher_well(l))
		fail("device", &why);
	for (uint32_t t = 0; t < l->tiles; t++) {
		struct tile tile = image_tile(image, t);
		if (weights_new(&l->weights[t], l->runner, &l->design, &why))
			fail("weights", &why);
		memcpy(weights_codes(l->weights[t]), tile.codes, (size_t)tile.kd * tile.nd);
		if (weights_seal(l->weights[t], &why))
			fail("weights", &why);
	}
}

void launcher_fini(struct launcher *l)
{
	char manifest[64];

	runner_close(l->runner);
	for (uint32_t t = 0; t < l->tiles; t++)
		weights_free(l->weights[t]);
	free(l->weights);
	runner_free(l->runner);
	snprintf(manifest, sizeof manifest, "%s/kernels.json", l->directory);
	unlink(manifest);
	unlink(l->design.file);
	unlink(l->design.instructions);
	rmdir(l->directory);
}

/* One job, and where its answer goes. */
struct call {
	struct job job;
	int32_t *acc;
	uint32_t nd;
	pthread_mutex_t lock;
	pthread_cond_t told;
	bool done;
};

static void on_done(struct job *job)
{
	struct call *c = job->arg;

	if (job->result == JOB_DONE)
		memcpy(c->acc, job->acc, (size_t)job->rows * c->nd * sizeof(int32_t));
	pthread_mutex_lock(&c->lock);
	c->done = true;
	pthread_cond_signal(&c->told);
	pthread_mutex_unlock(&c->lock);
}

enum job_result launcher_run(struct launcher *l, uint32_t t, const int8_t *q, uint32_t rows, int32_t *acc)
{
	struct call c = {.acc = acc, .nd = l->design.nd};

	c.job = (struct job){.weights = l->weights[t], .q = q, .rows = rows, .done = on_done, .arg = &c};
	pthread_mutex_init(&c.lock, NULL);
	pthread_cond_init(&c.told, NULL);
	if (runner_submit(l->runner, &c.job)) {
		pthread_mutex_lock(&c.lock);
		while (!c.done)
			pthread_cond_wait(&c.told, &c.lock);
		pthread_mutex_unlock(&c.lock);
	} else {
		c.job.result = JOB_REFUSED;
	}
	pthread_cond_destroy(&c.told);
	pthread_mutex_destroy(&c.lock);
	return c.job.result;
}
