/*
 * Property: any bytes are a container or a refusal with a sentence; a head that is found can be read and
 * decoded, or is refused with a sentence.
 */
#include "matrix.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must_say(int r, const struct err *err)
{
	if (r && (err->code != r || !err->text[0]))
		abort();
}

static void read_first_band(const struct matrix *m)
{
	struct err err = {0};
	size_t values = (size_t)m->band_rows * m->width;
	if (matrix_bands(m) == 0 || m->band_bytes == 0 || values == 0)
		abort();
	void *stored = malloc(m->band_bytes);
	float *decoded = malloc(values * sizeof *decoded);
	if (stored && decoded) {
		int r = matrix_read(m, 0, 1, stored, &err);
		must_say(r, &err);
		if (r == 0)
			matrix_decode(m, stored, 1, decoded);
	}
	free(decoded);
	free(stored);
}

static void try_head(const struct container *c, bool transpose)
{
	struct err err = {0};
	const struct tensor *t = NULL;
	enum head_reason why = HEAD_NAMED;
	struct matrix m;

	int r = container_head(c, NULL, &t, &why, &err);
	must_say(r, &err);
	if (r)
		return;
	r = matrix_init(&m, c, t, &(struct matrix_options){.transpose = transpose}, why == HEAD_TIED, &err);
	must_say(r, &err);
	if (r == 0)
		read_first_band(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct err err = {0};
	struct container *c = NULL;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || (size && write(fd, bytes, size) != (ssize_t)size))
		abort();

	int r = container_open(&c, &(struct container_file){fd, "input"}, 1, "input", &err);
	must_say(r, &err);
	if (r == 0) {
		try_head(c, false);
		try_head(c, true);
	}
	container_free(c);
	close(fd);
	return 0;
}
