#include "q4hi.h"
#include "own.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a big-endian host needs byte swaps here");

#define SLICE ((size_t)1 << 20) /* bytes; whole floats */

struct header {
	char magic[4], version[4];
	uint32_t kd, nd;
	uint64_t hash;
};
static_assert(sizeof(struct header) == Q4HI_HEADER, "as the file has it");

static const char magic[4] = {'Q', '4', 'H', 'I'}, version[4] = {'0', '0', '0', '1'};

#define FNV_BEGIN UINT64_C(0xcbf29ce484222325)

static uint64_t fnv_add(uint64_t hash, const void *bytes, size_t size)
{
	const unsigned char *b = bytes;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ b[i]) * UINT64_C(0x100000001b3);
	return hash;
}

uint64_t q4hi_size(uint32_t kd, uint32_t nd)
{
	uint64_t bytes;

	if (__builtin_mul_overflow((uint64_t)nd, kd + sizeof(float), &bytes) ||
	    bytes > INT64_MAX - Q4HI_HEADER)
		return 0;
	return Q4HI_HEADER + bytes;
}

void q4hi_name(char to[Q4HI_NAME_MAX], const unsigned char hash[16], uint32_t tile)
{
	char hex[33];

	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	snprintf(to, Q4HI_NAME_MAX, "headimg-%s-t%" PRIu32 ".q4hi", hex, tile);
}

static int write_all(int fd, const char *label, uint64_t at, const void *from, size_t size, struct err *err)
{
	const char *next = from;

	while (size) {
		ssize_t n = pwrite(fd, next, size, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int number = errno;
			return err_sys(err, number, "%s: cannot write the image", label);
		}
		next += n;
		at += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

static int write_header(const struct q4hi_writer *w, struct err *err)
{
	struct header h = {.kd = w->kd, .nd = w->nd, .hash = w->hash};

	memcpy(h.magic, magic, sizeof magic);
	memcpy(h.version, version, sizeof version);
	return write_all(w->fd, w->label, 0, &h, sizeof h, err);
}

int q4hi_begin(struct q4hi_writer *w, int fd, const char *label, uint32_t kd, uint32_t nd, struct err *err)
{
	*w = (struct q4hi_writer){.fd = fd, .label = label, .kd = kd, .nd = nd, .hash = FNV_BEGIN};
	if (q4hi_size(kd, nd))
		return 0;
	return err_set(err, NPU_E_BAD_GEOMETRY, "%s: kd %" PRIu32 ", nd %" PRIu32 " do not fit a file", label,
		       kd, nd);
}

int q4hi_add(struct q4hi_writer *w, const void *bytes, size_t size, struct err *err)
{
	uint64_t left = q4hi_size(w->kd, w->nd) - Q4HI_HEADER - w->done;

	if (size > left)
		return err_set(err, NPU_E_BAD_COUNT,
			       "%s: %zu bytes more, and only %" PRIu64 " belong into it", w->label, size,
			       left);
	int r = write_all(w->fd, w->label, Q4HI_HEADER + w->done, bytes, size, err);
	w->hash = fnv_add(w->hash, bytes, size);
	w->done += size;
	return r;
}

int q4hi_pad(struct q4hi_writer *w, struct err *err)
{
	static const char zeros[4096];
	uint64_t codes = (uint64_t)w->kd * w->nd;
	int r = 0;

	while (r == 0 && w->done < codes)
		r = q4hi_add(w, zeros, codes - w->done < sizeof zeros ? codes - w->done : sizeof zeros, err);
	return r;
}

int q4hi_end(struct q4hi_writer *w, struct err *err)
{
	uint64_t must = q4hi_size(w->kd, w->nd) - Q4HI_HEADER;

	if (w->done != must)
		return err_set(err, NPU_E_BAD_COUNT, "%s: %" PRIu64 " of %" PRIu64 " bytes were written",
			       w->label, w->done, must);
	return write_header(w, err);
}

int q4hi_write(int fd, const char *label, uint32_t kd, uint32_t nd, const int8_t *codes, const float *scales,
	       struct err *err)
{
	struct q4hi_writer w;
	int r = q4hi_begin(&w, fd, label, kd, nd, err);

	if (r == 0)
		r = q4hi_add(&w, codes, (size_t)kd * nd, err);
	if (r == 0)
		r = q4hi_add(&w, scales, nd * sizeof *scales, err);
	return r ? r : q4hi_end(&w, err);
}

static int read_all(const struct q4hi *q, uint64_t at, void *to, size_t size, struct err *err)
{
	char *next = to;

	while (size) {
		ssize_t n = pread(q->fd, next, size, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int number = errno;
			return err_sys(err, number, "%s: reading %zu bytes at byte %" PRIu64, q->label, size,
				       at);
		}
		if (n == 0)
			return err_set(err, NPU_E_FILE_CHANGED,
				       "%s: the file ends at byte %" PRIu64
				       " and was longer when it was opened",
				       q->label, at);
		next += n;
		at += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

/* What the header says, against what was expected and what is there. */
static int header_check(const struct q4hi *q, const struct header *h, uint32_t kd, uint32_t nd, uint64_t size,
			struct err *err)
{
	char shown[32];

	if (memcmp(h->magic, magic, sizeof magic) != 0)
		return err_set(
			err, NPU_E_BAD_IMAGE,
			"%s: magic: \"%s\" is not \"Q4HI\"; this is no image: name one that was packed",
			q->label, err_printable(shown, sizeof shown, h->magic, sizeof h->magic));
	if (memcmp(h->version, version, sizeof version) != 0)
		return err_set(err, NPU_E_BAD_IMAGE,
			       "%s: version: \"%s\" is not \"0001\", the one that is read; pack it again",
			       q->label, err_printable(shown, sizeof shown, h->version, sizeof h->version));
	if ((kd && h->kd != kd) || (nd && h->nd != nd))
		return err_set(err, NPU_E_BAD_IMAGE,
			       "%s: geometry: kd %" PRIu32 ", nd %" PRIu32 "; kd %" PRIu32 ", nd %" PRIu32
			       " was expected; pack it again with these, or ask for those",
			       q->label, h->kd, h->nd, kd ? kd : h->kd, nd ? nd : h->nd);
	if (h->kd == 0 || h->kd % 64 || h->nd == 0)
		return err_set(err, NPU_E_BAD_IMAGE,
			       "%s: geometry: kd %" PRIu32 ", nd %" PRIu32
			       "; kd is a multiple of 64 and neither is 0: pack it again",
			       q->label, h->kd, h->nd);
	uint64_t must = q4hi_size(h->kd, h->nd);
	if (must == 0 || size < must)
		return err_set(err, NPU_E_BAD_IMAGE,
			       "%s: short payload: kd %" PRIu32 ", nd %" PRIu32 " take %" PRIu64
			       " bytes and the file has %" PRIu64 "; copy or pack it again",
			       q->label, h->kd, h->nd, must ? must : UINT64_MAX, size);
	if (size > must)
		return err_set(err, NPU_E_BAD_IMAGE,
			       "%s: trailing bytes: kd %" PRIu32 ", nd %" PRIu32 " take %" PRIu64
			       " bytes and the file has %" PRIu64 "; copy or pack it again",
			       q->label, h->kd, h->nd, must, size);
	return 0;
}

int q4hi_open(struct q4hi *out, int fd, const char *label, uint32_t kd, uint32_t nd, struct err *err)
{
	struct q4hi q = {.fd = fd};
	struct header h;
	struct stat st;

	err_printable(q.label, sizeof q.label, label, strlen(label));
	if (fstat(fd, &st) < 0) {
		int number = errno;
		return err_sys(err, number, "%s: asking for the file's size", q.label);
	}
	if (!S_ISREG(st.st_mode))
		return err_set(err, NPU_E_BAD_IMAGE, "%s: this is not a regular file; name an image",
			       q.label);
	if ((uint64_t)st.st_size < sizeof h)
		return err_set(err, NPU_E_BAD_IMAGE,
			       "%s: short payload: the header alone is %u bytes and the file has %" PRIu64
			       "; copy or pack it again",
			       q.label, Q4HI_HEADER, (uint64_t)st.st_size);
	int r = read_all(&q, 0, &h, sizeof h, err);
	if (r == 0)
		r = header_check(&q, &h, kd, nd, (uint64_t)st.st_size, err);
	if (r)
		return r;
	q.kd = h.kd;
	q.nd = h.nd;
	q.hash = h.hash;
	*out = q;
	return 0;
}

static int codes_check(const struct q4hi *q, const int8_t *codes, size_t count, uint64_t first,
		       struct err *err)
{
	const int8_t *bad = memchr(codes, 0x80, count);

	if (!bad)
		return 0;
	return err_set(err, NPU_E_BAD_IMAGE,
		       "%s: code %" PRIu64 " is -128, which no packer writes; pack it again", q->label,
		       first + (uint64_t)(bad - codes));
}

static int scales_check(const struct q4hi *q, const float *scales, size_t count, uint64_t first,
			struct err *err)
{
	for (size_t i = 0; i < count; i++)
		if (!isfinite(scales[i]) || scales[i] <= 0)
			return err_set(err, NPU_E_BAD_IMAGE,
				       "%s: the scale of column %" PRIu64
				       " is %g, and a packer writes finite ones above 0; pack it again",
				       q->label, first + i, (double)scales[i]);
	return 0;
}

/* Reads `size` bytes at `at` slice by slice, to `to` or through the slice, and hashes them. `oddity` gets the
 * first value that is checked wrong; the hash, which says more, is looked at before it. */
static int part_read(const struct q4hi *q, uint64_t at, uint64_t size, char *to, char *slice, bool scales,
		     uint64_t *hash, struct err *oddity, struct err *err)
{
	for (uint64_t done = 0; done < size;) {
		size_t n = size - done < SLICE ? (size_t)(size - done) : SLICE;
		char *into = to ? to + done : slice;
		int r = read_all(q, at + done, into, n, err);
		if (r)
			return r;
		*hash = fnv_add(*hash, into, n);
		if (!oddity->code && scales)
			scales_check(q, (const void *)into, n / sizeof(float), done / sizeof(float), oddity);
		else if (!oddity->code)
			codes_check(q, (const void *)into, n, done, oddity);
		done += n;
	}
	return 0;
}

int q4hi_read(const struct q4hi *q, int8_t *codes, float *scales, struct err *err)
{
	uint64_t hash = FNV_BEGIN, count = (uint64_t)q->kd * q->nd;
	cleanup(freep) char *slice = malloc(SLICE);
	struct err oddity = {.code = 0};

	if (!slice)
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory to read it", q->label);
	int r = part_read(q, Q4HI_HEADER, count, (char *)codes, slice, false, &hash, &oddity, err);
	if (r == 0)
		r = part_read(q, Q4HI_HEADER + count, q->nd * sizeof *scales, (char *)scales, slice, true,
			      &hash, &oddity, err);
	if (r)
		return r;
	if (hash != q->hash)
		return err_set(err, NPU_E_BAD_IMAGE,
			       "%s: hash: the codes and scales give %016" PRIx64
			       "; the header says %016" PRIx64
			       ": the file was damaged, copy or pack it again",
			       q->label, hash, q->hash);
	if (oddity.code)
		*err = oddity;
	return oddity.code;
}
