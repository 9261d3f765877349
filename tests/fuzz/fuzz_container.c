/*
 * Property: any bytes are a container or a refusal with a sentence; a tensor can be read and decoded
 * under any options, or is refused with a sentence.
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

static void read_band(const struct matrix *m, uint32_t band)
{
	struct err err = {0};
	size_t values = (size_t)m->band_rows * m->width;
	if (m->band_bytes == 0 || values == 0 || m->rows != matrix_bands(m) * m->band_rows)
		abort();
	void *stored = malloc(m->band_bytes);
	float *decoded = malloc(values * sizeof *decoded);
	if (stored && decoded) {
		int r = matrix_read(m, band, 1, stored, &err);
		must_say(r, &err);
		if (r == 0)
			matrix_decode(m, stored, 1, decoded);
	}
	free(decoded);
	free(stored);
}

static void try_tensor(const struct container *c, const struct tensor *t, bool tied)
{
	static const struct matrix_options all[] = {
		{0},	  {.transpose = true},	 {.is_signed = true}, {.q8 = Q8_A}, {.q8 = Q8_B},
		{.k = 1}, {.k = 70, .q8 = Q8_B}, {.k = 512},
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct err err = {0};
		struct matrix m;
		int r = matrix_init(&m, c, t, &all[i], tied, &err);
		must_say(r, &err);
		if (r)
			continue;
		if (matrix_bands(&m) == 0)
			abort();
		read_band(&m, 0);
		read_band(&m, matrix_bands(&m) - 1);
	}
}

static void try_tensors(const struct container *c)
{
	struct err err = {0};
	const struct tensor *t = NULL;
	enum head_reason why = HEAD_NAMED;

	int r = container_head(c, NULL, &t, &why, &err);
	must_say(r, &err);
	if (r == 0)
		try_tensor(c, t, why == HEAD_TIED);
	for (size_t i = 0; i < container_count(c) && i < 4; i++)
		try_tensor(c, container_tensor(c, i), false);
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
	if (r == 0)
		try_tensors(c);
	container_free(c);
	close(fd);
	return 0;
}
