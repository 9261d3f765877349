/*
 * Chunks of Q4NX as float32. Codes are stored column by column and wanted row by row, so blocks of 16 x 16
 * bytes are transposed; every product is exact, as in gguf_blocks.c. Compiled once for every line of
 * decoders.def.
 */
#include "bits.h"
#include "codes.h"
#include "decode.h"
#include <assert.h>

#define GROUP 32u    /* columns that share a scale */
#define COLUMNS 256u /* of the widest chunk */

static inline void interleave16(bytes16 to[16], const bytes16 from[16])
{
	for (int i = 0; i < 8; i++) {
		to[2 * i] = BYTES16_INTERLEAVE(from[i], from[i + 8], 0);
		to[2 * i + 1] = BYTES16_INTERLEAVE(from[i], from[i + 8], 8);
	}
}

/* Interleaving vector i with vector i + 8 rotates the 8 bits of a byte's place by one; four times is a
 * transposition. */
static inline void transpose16(bytes16 m[16])
{
	bytes16 other[16];

	interleave16(other, m);
	interleave16(m, other);
	interleave16(other, m);
	interleave16(m, other);
}

/* Two rows of 16 codes from 16 bytes that hold both, the even row's in the low nibbles. */
static inline void store_nibbles(uint8_t *even, uint8_t *odd, bytes16 both, bool is_signed)
{
	bytes16 low = both & 15, high = both >> 4;

	if (is_signed) {
		low = (low ^ 8) - 8;
		high = (high ^ 8) - 8;
	}
	memcpy(even, &low, sizeof low);
	memcpy(odd, &high, sizeof high);
}

/*
 * These give codes[r][k] of the 32 columns k from `first`. Here 16 bytes are two
 * columns of 16 rows, so that bytes i and i + 8 of a transposed vector are an even and an odd column.
 */
static inline void codes_q4_1(const unsigned char *from, uint32_t first, bool is_signed,
			      uint8_t codes[Q4NX_ROWS][COLUMNS])
{
	for (uint32_t half = 0; half < 2; half++) {
		bytes16 m[16];
		for (uint32_t i = 0; i < 16; i++)
			m[i] = bytes16_load(from + half * 2048 + (first + 2 * i) * 8);
		transpose16(m);
		for (uint32_t i = 0; i < 8; i++) {
			uint8_t *even = codes[half * 16 + 2 * i] + first,
				*odd = codes[half * 16 + 2 * i + 1] + first;
			store_nibbles(even, odd, BYTES16_INTERLEAVE(m[i], m[i + 8], 0), is_signed);
			store_nibbles(even + 16, odd + 16, BYTES16_INTERLEAVE(m[i], m[i + 8], 8), is_signed);
		}
	}
}

/* 16 bytes are one column of 32 rows. */
static inline void codes_q4_k(const unsigned char *from, uint32_t first, uint8_t codes[Q4NX_ROWS][COLUMNS])
{
	for (uint32_t strip = 0; strip < GROUP; strip += 16) {
		bytes16 m[16];
		for (uint32_t i = 0; i < 16; i++)
			m[i] = bytes16_load(from + (first + strip + i) * 16);
		transpose16(m);
		for (uint32_t i = 0; i < 16; i++)
			store_nibbles(codes[2 * i] + first + strip, codes[2 * i + 1] + first + strip, m[i],
				      false);
	}
}

/* 16 bytes are one column of 16 rows; columns and halves of the rows are so many bytes apart. */
static inline void codes_q8(const unsigned char *from, uint32_t first, uint32_t column_bytes,
			    uint32_t half_bytes, uint8_t codes[Q4NX_ROWS][COLUMNS])
{
	for (uint32_t half = 0; half < 2; half++)
		for (uint32_t strip = 0; strip < GROUP; strip += 16) {
			bytes16 m[16];
			for (uint32_t i = 0; i < 16; i++)
				m[i] = bytes16_load(from + half * half_bytes +
						    (first + strip + i) * column_bytes);
			transpose16(m);
			for (uint32_t i = 0; i < 16; i++)
				memcpy(codes[half * 16 + i] + first + strip, &m[i], sizeof m[i]);
		}
}

static inline void codes_of(enum q4nx_kind kind, const unsigned char *chunk, uint32_t first,
			    uint8_t codes[Q4NX_ROWS][COLUMNS])
{
	switch (kind) {
	case Q4NX_Q4_1:
	case Q4NX_Q4_1_SIGNED:
		codes_q4_1(chunk + 1024, first, kind == Q4NX_Q4_1_SIGNED, codes);
		break;
	case Q4NX_Q4_K:
		codes_q4_k(chunk + 512, first, codes);
		break;
	case Q4NX_Q8A:
		codes_q8(chunk + 512, first, 32, 16, codes);
		break;
	case Q4NX_Q8B:
		codes_q8(chunk + 512, first, 16, 4096, codes);
		break;
	case Q4NX_Q8C:
		codes_q8(chunk + 512, first, 16, 2048, codes);
		break;
	case Q4NX_COUNT:
		break;
	}
}

static inline float bf16_at(const unsigned char *from, uint32_t i)
{
	uint16_t upper;
	memcpy(&upper, from + i * sizeof upper, sizeof upper);
	return f32_from_bf16(upper);
}

/* value = scale * code + zero in the `group`th 32 columns of row `r` of a chunk. */
static inline void scale_of(enum q4nx_kind kind, const unsigned char *chunk, uint32_t group, uint32_t r,
			    float *scale, float *zero)
{
	uint32_t i = group * Q4NX_ROWS + r;

	if (kind == Q4NX_Q4_K) {
		*scale = bf16_at(chunk + 4608, r) * (float)chunk[i];
		*zero = bf16_at(chunk + 4672, r) * (float)chunk[256 + i];
	} else {
		*scale = bf16_at(chunk, i);
		*zero = bf16_at(chunk + 512, i);
	}
}

/* Kinds without a zero must not add one: -0 + 0 is +0. */
static inline bool has_zero(enum q4nx_kind kind)
{
	return kind == Q4NX_Q4_1 || kind == Q4NX_Q4_K;
}

static inline void row_of(enum q4nx_kind kind, float to[GROUP], const uint8_t codes[GROUP], float scale,
			  float zero)
{
	for (uint32_t i = 0; i < GROUP; i += 16)
		if (has_zero(kind))
			codes_based(to + i, bytes16_load(codes + i), scale, zero);
		else
			codes_scaled(to + i, bytes16_load(codes + i), scale);
}

/* A chunk's part of a row goes out in one piece: pieces of one group at the strides models have, powers of
 * two, would fall into the same few lines of the cache. */
static inline void decode_chunks(enum q4nx_kind kind, uint32_t chunk_columns, size_t chunk_bytes,
				 const unsigned char *chunk, uint32_t width, float *to)
{
	uint8_t codes[Q4NX_ROWS][COLUMNS];

	for (uint32_t at = 0; at < width; at += chunk_columns, chunk += chunk_bytes) {
		uint32_t count = width - at < chunk_columns ? width - at : chunk_columns;
		for (uint32_t k = 0; k < count; k += GROUP)
			codes_of(kind, chunk, k, codes);
		for (uint32_t r = 0; r < Q4NX_ROWS; r++) {
			float *out = to + (size_t)r * width + at, scale, zero, last[GROUP];
			for (uint32_t k = 0; k < count; k += GROUP) {
				scale_of(kind, chunk, k / GROUP, r, &scale, &zero);
				if (count - k >= GROUP) {
					row_of(kind, out + k, codes[r] + k, scale, zero);
				} else {
					row_of(kind, last, codes[r] + k, scale, zero);
					memcpy(out + k, last, (count - k) * sizeof *out);
				}
			}
		}
	}
}

#define KIND(name, reading, columns, bytes)                                               \
	static void decode_##name(const unsigned char *chunks, uint32_t width, float *to) \
	{                                                                                 \
		decode_chunks(Q4NX_##name, columns, bytes, chunks, width, to);            \
	}
Q4NX_KINDS(KIND)
#undef KIND

#define KIND(name, reading, columns, bytes) [Q4NX_##name] = decode_##name,
extern q4nx_decode_fn *const DECODERS_TABLE(q4nx_chunks)[Q4NX_COUNT];
q4nx_decode_fn *const DECODERS_TABLE(q4nx_chunks)[Q4NX_COUNT] = {Q4NX_KINDS(KIND)};
