/*
 * A tensor read as a matrix W[nv][h] of float32. Used by the thread that uses the container.
 */
#ifndef NPUD_MATRIX_H
#define NPUD_MATRIX_H

#include "container.h"

/* The two orders of codes in a Q4NX chunk of 8704 bytes, which nothing in the file tells apart. */
enum q8_layout { Q8_AUTO, Q8_A, Q8_B };

/* What the file does not say. All but `transpose` are about Q4NX and refused elsewhere. */
struct matrix_options {
	bool transpose; /* the tensor is stored [h][nv] */
	enum q8_layout q8;
	bool is_signed; /* 4-bit codes are two's complement: the source was GGUF Q4_0 */
	uint32_t k;	/* h, where the file has it only padded; 0: the embedding's */
};

/* "auto", "a", "b"; false for anything else. */
bool q8_layout_of(const char *name, size_t size, enum q8_layout *out);

/*
 * A band is the smallest piece of the file that can be decoded alone: `band_rows` stored rows of `width`
 * values in `band_bytes` bytes (one row for every type but tiled ones). Stored rows are vocabulary rows, or
 * with `transposed` hidden rows ([h][nv] in the file).
 */
struct matrix {
	const struct container *container;
	const struct tensor *tensor;
	bool transposed, tied;
	uint32_t nv, h;
	uint32_t width;	    /* values of one stored row: h, or nv when transposed */
	uint32_t rows;	    /* stored rows: nv, or h when transposed */
	uint32_t band_rows; /* stored rows of one band */
	uint64_t band_bytes;
	uint32_t read_width; /* bytes of one stored row, of one Q4NX chunk: as in the content hash */
	int q4nx;	     /* enum q4nx_kind, or -1 */
	char reading[32];    /* the whole reading, as in the content hash: "BF16", "F32^T", "q4nx:q8b k=70" */
	char note[160];	     /* what was decided without being told, and why; or "" */
};

#define MATRIX_H_MAX 133144u /* int32 sums stay exact up to here: 127 * 127 * H < 2^31 */

/*
 * `options` NULL: none. NO_HEAD where the tensor is no matrix, is empty, or has no exact float32 reading
 * here; BAD_VALUE where an option does not go with it; TOO_LARGE where h is above MATRIX_H_MAX; and, where
 * Q8_AUTO has to look into the data, what reading it says. The numbers are in the message.
 */
int matrix_init(struct matrix *m, const struct container *c, const struct tensor *t,
		const struct matrix_options *options, bool tied, struct err *err);

uint32_t matrix_bands(const struct matrix *m);

/* Reads bands first .. first+count-1 as stored into `to` (count * band_bytes). FILE_CHANGED when the file
 * ends early. */
int matrix_read(const struct matrix *m, uint32_t first, uint32_t count, void *to, struct err *err);

/* Decodes `count` bands as stored into float32, [count * band_rows][width], each value by the container's
 * rule. */
void matrix_decode(const struct matrix *m, const void *stored, uint32_t count, float *to);

/* The same with a variant of decode.h; they all give the same bits. */
struct decoders;
void matrix_decode_by(const struct decoders *decoders, const struct matrix *m, const void *stored,
		      uint32_t count, float *to);

#endif
