/*
 * Property: any bytes are an image or a refusal with a sentence; one that is accepted is written back byte
 * for byte the same.
 */
#include "q4hi.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int file_of(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || (size && write(fd, bytes, size) != (ssize_t)size))
		abort();
	return fd;
}

/* The image is not larger than the input, or it would not have been opened. */
static void write_back(const struct q4hi *q, const uint8_t *bytes, size_t size)
{
	struct err err = {0};
	int8_t *codes = malloc((size_t)q->kd * q->nd);
	float *scales = malloc(q->nd * sizeof *scales);
	uint8_t *again = malloc(size);
	int fd = memfd_create("again", MFD_CLOEXEC);
	if (!codes || !scales || !again || fd < 0 || q4hi_read(q, codes, scales, &err) ||
	    q4hi_write(fd, "again", q->kd, q->nd, codes, scales, &err) ||
	    pread(fd, again, size, 0) != (ssize_t)size || memcmp(again, bytes, size) != 0)
		abort();
	close(fd);
	free(again);
	free(scales);
	free(codes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct err err = {0};
	struct q4hi q;
	int fd = file_of(bytes, size);
	int r = q4hi_open(&q, fd, "input", 0, 0, &err);
	if (r == 0)
		r = q4hi_read(&q, NULL, NULL, &err);
	if (r && (err.code != r || !err.text[0]))
		abort();
	if (r == 0)
		write_back(&q, bytes, size);
	close(fd);
	return 0;
}
