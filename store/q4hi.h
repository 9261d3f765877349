/*
 * Q4HI, format 0001: one packed tile as a file, for exchange with the original engine. "Q4HI", "0001", kd and
 * nd (uint32), FNV-1a-64 over codes then scales, kd * nd codes (int8), nd scales (float32), little-endian.
 * The hash shows that the bytes are what was written, not whose weights they are; layout and tile are not in
 * it. Any thread; a reader is used by one.
 */
#ifndef NPUD_Q4HI_H
#define NPUD_Q4HI_H

#include "err.h"

#define Q4HI_HEADER 24u

/* Bytes of the file, 0 where they do not fit 63 bits. */
uint64_t q4hi_size(uint32_t kd, uint32_t nd);

/* "headimg-<32 hex digits of the content hash>-t<tile>.q4hi", the original's form. */
#define Q4HI_NAME_MAX 64
void q4hi_name(char to[Q4HI_NAME_MAX], const unsigned char hash[16], uint32_t tile);

/* A file that is written piece by piece. */
struct q4hi_writer {
	int fd; /* the caller's; can be sought */
	const char *label;
	uint32_t kd, nd;
	uint64_t hash, done; /* of codes and scales; bytes of them */
};
/* All begin at byte 0 of the file. IO. */
int q4hi_begin(struct q4hi_writer *w, int fd, const char *label, uint32_t kd, uint32_t nd, struct err *err);
/* The codes, then the scales, in any pieces; BAD_COUNT where they are more than there are. */
int q4hi_add(struct q4hi_writer *w, const void *bytes, size_t size, struct err *err);
/* Zeros up to the end of the codes. */
int q4hi_pad(struct q4hi_writer *w, struct err *err);
/* The header, which says what was written. BAD_COUNT where something is missing. */
int q4hi_end(struct q4hi_writer *w, struct err *err);

/* Writes codes[kd * nd] and scales[nd] to the file `fd`. IO. */
int q4hi_write(int fd, const char *label, uint32_t kd, uint32_t nd, const int8_t *codes, const float *scales,
	       struct err *err);

struct q4hi {
	int fd; /* the caller's */
	char label[104];
	uint32_t kd, nd;
	uint64_t hash;
};

/*
 * Looks at the header and the size. Unless 0, `kd` and `nd` are what the file must have. BAD_IMAGE with what
 * differs and both values: magic, version, geometry, a short payload, trailing bytes. IO.
 */
int q4hi_open(struct q4hi *out, int fd, const char *label, uint32_t kd, uint32_t nd, struct err *err);

/*
 * Reads it all into codes[kd * nd] and scales[nd]; NULL for both only checks, in bounded memory. BAD_IMAGE
 * where the hash does not reproduce, and for what no packer writes, whatever the hash: a scale that is not
 * finite and above 0, the code -128. FILE_CHANGED where it shrinks meanwhile; IO. What was read counts only
 * on success.
 */
int q4hi_read(const struct q4hi *q, int8_t *codes, float *scales, struct err *err);

#endif
