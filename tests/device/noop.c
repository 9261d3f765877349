/*
 * Smoke, with XRT's own driver that does nothing: load, buffers, launch, wait. It computes nothing, so that
 * the canary must find it out.
 */
#include "kernel_files.h"
#include "launcher.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int steps(const struct device_table *t, const struct design *d, struct device_why *why)
{
	struct device *device;
	struct device_context *context;
	struct device_buffer *buffers[3];
	struct device_run *run;
	void *map;

	if (t->open(&device, "", why) || t->context_open(&context, device, d, why))
		return 1;
	for (int use = DEVICE_A; use <= DEVICE_C; use++)
		if (t->buffer_new(&buffers[use], device, (enum device_use)use, 1 << 16, &map, why) ||
		    t->buffer_sync(buffers[use], DEVICE_TO, 0, 1 << 16, why))
			return 1;
	if (t->buffer_sync(buffers[0], DEVICE_TO, 1, 1 << 16, why) != DEVICE_E_BAD_CALL ||
	    t->launch(&run, context, buffers[0], buffers[1], buffers[2], why) ||
	    t->wait(run, 5000) != DEVICE_COMPLETED)
		return 1;
	t->run_free(run);
	for (int use = DEVICE_A; use <= DEVICE_C; use++)
		t->buffer_free(buffers[use]);
	t->context_close(context);
	t->close(device);
	return 0;
}

int main(void)
{
	char directory[] = "/tmp/npud-noop.XXXXXX";
	struct design d = {.rows = 4, .kd = 64, .nd = 128, .layout = 1};
	struct runner_options o = runner_defaults;
	struct runner_status s;
	struct runner *r;
	struct device_why why = {""};

	if (!mkdtemp(directory) || !kernel_files_write(directory, &d, 1))
		return 2;
	int bad = steps(launcher_table(), &d, &why);
	o.table = launcher_table();
	o.designs = &d;
	o.design_count = 1;
	if (bad || runner_new(&r, &o, &why)) {
		fprintf(stderr, "noop: %s\n", why.text);
		return 1;
	}
	do {
		usleep(1000);
		runner_status(r, &s);
	} while (s.health == HEALTH_DEGRADED);
	printf("%s: %s\n", health_name(s.health), s.reason);
	runner_close(r);
	runner_free(r);
	unlink(d.file);
	unlink(d.instructions);
	char manifest[64];
	snprintf(manifest, sizeof manifest, "%s/kernels.json", directory);
	unlink(manifest);
	rmdir(directory);
	return s.health != HEALTH_FAILED || !strstr(s.reason, "canary");
}
