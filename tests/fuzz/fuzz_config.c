/*
 * Property: any bytes are a configuration or a refusal that names the file and says why; what is accepted
 * stays within its fields, and a second reading gives the same.
 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int read_once(struct config *c, const char *path)
{
	struct err err = {0};
	memset(c, 0, sizeof *c); /* padding too: two readings are compared as bytes */
	config_defaults(c);
	int r = config_read(c, path, &err);
	if (r && (err.code != r || !strstr(err.text, path)))
		abort();
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static struct config one, two;
	char path[64];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || (size && write(fd, bytes, size) != (ssize_t)size))
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int r = read_once(&one, path);
	if (r != read_once(&two, path) || (r == 0 && memcmp(&one, &two, sizeof one) != 0))
		abort();
	close(fd);
	if (r)
		return 0;
	if (one.tenant_count > CONFIG_TENANTS || one.socket[0] != '/' || one.cache_dir[0] != '/' ||
	    one.state_dir[0] != '/' || !memchr(one.head_path, 0, sizeof one.head_path) ||
	    !memchr(one.device_settings, 0, sizeof one.device_settings))
		abort();
	return 0;
}
