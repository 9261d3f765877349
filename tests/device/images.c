/*
 * images COUNT: damages an xclbin in COUNT ways and opens each, as the daemon would, in a process of its own:
 * what our validation lets through must not crash XRT. Says how many XRT would have crashed on without it.
 */
#include "kernel_files.h"
#include "kimage.h"
#include "launcher.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Opens a context with the design in a child; true where that ends on its own. */
static bool survives(const struct device_table *table, const struct design *d, const char *settings)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct device *device;
		struct device_context *context;
		struct device_why why;
		alarm(20); /* a hang is no better */
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		if (table->open(&device, settings, &why) == 0 &&
		    table->context_open(&context, device, d, &why) == 0)
			table->context_close(context);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		abort();
	return WIFEXITED(status);
}

int main(int argc, char **argv)
{
	unsigned count = argc == 2 ? (unsigned)atoi(argv[1]) : 0, refused = 0, spared = 0, crashed = 0;
	char directory[] = "/tmp/npud-images.XXXXXX";
	struct design d = {.rows = 4, .kd = 64, .nd = 128, .layout = 1};
	const struct device_table *table = launcher_table();
	const char *settings = launcher_settings("");
	size_t size;
	unsigned char *whole = kernel_files_xclbin("MLIR_AIE", &size), *damaged = malloc(size);

	if (!count || !damaged || !mkdtemp(directory) || !kernel_files_write(directory, &d, 1))
		return 2;
	srand(1);
	for (unsigned i = 0; i < count; i++) {
		struct device_why why;
		FILE *f = fopen(d.file, "wbe");
		size_t length = i % 4 == 3 ? (size_t)rand() % size : size;
		memcpy(damaged, whole, size);
		for (int flips = 0; flips < 3 && i % 4 < 3;
		     flips++) /* most of the bytes are names and padding */
			damaged[flips == 0 ? 296 + (size_t)rand() % 460 : (size_t)rand() % size] ^=
				(unsigned char)(1 << rand() % 8);
		if (!f || fwrite(damaged, 1, length, f) != length || fclose(f))
			return 2;
		bool good = kimage_design(&d, &why) == 0;
		refused += !good;
		if (survives(table, &d, settings))
			continue;
		spared += !good;
		crashed += good;
		if (good)
			printf("image %u crashes XRT and was let through\n", i);
	}
	printf("%u damaged images: %u refused, of which %u crash XRT; %u that crash it were let through\n",
	       count, refused, spared, crashed);
	unlink(d.file);
	unlink(d.instructions);
	char manifest[64];
	snprintf(manifest, sizeof manifest, "%s/kernels.json", directory);
	unlink(manifest);
	rmdir(directory);
	free(whole);
	free(damaged);
	return crashed != 0;
}
