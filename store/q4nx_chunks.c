/*
 * Chunks of Q4NX as float32. Codes are stored column by column and wanted row by row, so blocks of 16 x 16
 * bytes are transposed; every product is exact, as in gguf_blocks.c. Compiled once for every line of
 * decoders.def.
 */
#include "bits.h"
#include "decode.h"
#include <assert.h>

#define GROUP 32u /* columns that share a scale */

typedef uint8_t bytes16 __attribute__((vector_size(16)));

/* The low (0) or high (8) eight bytes of two vectors, by turns. */
#define INTERLEAVE(a, b, from)                                                                             \
	__builtin_shufflevector(a, b, from, 16 + from, from + 1, 17 + from, from + 2, 18 + from, from + 3, \
				19 + from, from + 4, 20 + from, from + 5, 21 + from, from + 6, 22 + from,  \
				from + 7, 23 + from)

/* Interleaving vector i with vector i + 8 rotates the 8 bits of a byte's place by one; four times is a
 * transposition. */
static inline void transpose16(bytes16 m[16])
{
	for (int round = 0; round < 4; round++) {
		bytes16 from[16];
		memcpy(from, m, sizeof from);
		for (int i = 0; i < 8; i++) {
			m[2 * i] = INTERLEAVE(from[i], from[i + 8], 0);
			m[2 * i + 1] = INTERLEAVE(from[i], from[i + 8], 8);
		}
	}
}

static inline bytes16 load16(const unsigned char *from)
{
	bytes16 v;
	memcpy(&v, from, sizeof v);
	return v;
}

/* 16 nibbles, the low one first. */
static inline bytes16 load_nibbles(const unsigned char *from)
{
	uint64_t both;
	memcpy(&both, from, sizeof both);
	bytes16 v = {0};
	memcpy(&v, &both, sizeof both);
	return INTERLEAVE(v & 15, v >> 4, 0);
}

/* codes[r][k] of the group of 32 columns that begins with column `first`; 16 rows of a column at a time. */
static inline void codes_of(enum q4nx_kind kind, const unsigned char *chunk, uint32_t first,
			    uint8_t codes[Q4NX_ROWS][GROUP])
{
	for (uint32_t half = 0; half < 2; half++)
		for (uint32_t strip = 0; strip < GROUP; strip += 16) {
			bytes16 m[16];
			for (uint32_t i = 0; i < 16; i++) {
				uint32_t k = first + strip + i;
				switch (kind) {
				case Q4NX_Q4_1:
					m[i] = load_nibbles(chunk + 1024 + half * 2048 + k * 8);
					break;
				case Q4NX_Q4_1_SIGNED:
					m[i] = load_nibbles(chunk + 1024 + half * 2048 + k * 8);
					m[i] = (m[i] ^ 8) - 8;
					break;
				case Q4NX_Q4_K:
					m[i] = load_nibbles(chunk + 512 + k * 16 + half * 8);
					break;
				case Q4NX_Q8A:
					m[i] = load16(chunk + 512 + k * 32 + half * 16);
					break;
				case Q4NX_Q8B:
					m[i] = load16(chunk + 512 + half * 4096 + k * 16);
					break;
				case Q4NX_Q8C:
					m[i] = load16(chunk + 512 + half * 2048 + k * 16);
					break;
				case Q4NX_COUNT:
					break;
				}
			}
			transpose16(m);
			for (uint32_t r = 0; r < 16; r++)
				memcpy(codes[half * 16 + r] + strip, &m[r], sizeof m[r]);
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

static inline void decode_chunks(enum q4nx_kind kind, uint32_t chunk_columns, size_t chunk_bytes,
				 const unsigned char *chunks, uint32_t width, float *to)
{
	uint8_t codes[Q4NX_ROWS][GROUP];

	for (uint32_t k = 0; k < width; k += GROUP) {
		const unsigned char *chunk = chunks + k / chunk_columns * chunk_bytes;
		uint32_t first = k % chunk_columns, count = width - k < GROUP ? width - k : GROUP;
		codes_of(kind, chunk, first, codes);
		for (uint32_t r = 0; r < Q4NX_ROWS; r++) {
			float *restrict out = to + (size_t)r * width + k, scale, zero, all[GROUP];
			scale_of(kind, chunk, first / GROUP, r, &scale, &zero);
			for (uint32_t i = 0; i < GROUP; i++)
				all[i] = has_zero(kind) ? scale * (float)(int8_t)codes[r][i] + zero
							: scale * (float)(int8_t)codes[r][i];
			memcpy(out, all, count * sizeof *out);
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
