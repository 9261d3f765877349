/*
 * The blocks of GGUF's types as float32. Every product is exact and there is at most one addition after
 * them, so each value is rounded once and no instruction set can change a bit. Compiled once for every
 * line of decoders.def: the loops are written for the compiler to make vector code of.
 */
#include "bits.h"
#include "decode.h"
#include <assert.h>

#define PACKED __attribute__((packed))

/* `d` and `m` are halves. Names as in ggml, whose file format this is. */
struct PACKED q4_0 {
	uint16_t d;
	uint8_t q[16];
};
struct PACKED q4_1 {
	uint16_t d, m;
	uint8_t q[16];
};
struct PACKED q5_0 {
	uint16_t d;
	uint8_t high[4], q[16];
};
struct PACKED q5_1 {
	uint16_t d, m;
	uint8_t high[4], q[16];
};
struct PACKED q8_0 {
	uint16_t d;
	int8_t q[32];
};
struct PACKED q2_k {
	uint8_t scales[16], q[64];
	uint16_t d, m;
};
struct PACKED q3_k {
	uint8_t high[32], q[64], scales[12];
	uint16_t d;
};
struct PACKED q4_k {
	uint16_t d, m;
	uint8_t scales[12], q[128];
};
struct PACKED q5_k {
	uint16_t d, m;
	uint8_t scales[12], high[32], q[128];
};
struct PACKED q6_k {
	uint8_t low[128], high[64];
	int8_t scales[16];
	uint16_t d;
};

static void decode_f32(const unsigned char *from, size_t values, float *to)
{
	memcpy(to, from, values * sizeof *to);
}

static void decode_f16(const unsigned char *from, size_t values, float *to)
{
	for (size_t i = 0; i < values; i++) {
		uint16_t half;
		memcpy(&half, from + 2 * i, sizeof half);
		to[i] = f32_from_f16(half);
	}
}

static void decode_bf16(const unsigned char *from, size_t values, float *to)
{
	for (size_t i = 0; i < values; i++) {
		uint16_t upper;
		memcpy(&upper, from + 2 * i, sizeof upper);
		to[i] = f32_from_bf16(upper);
	}
}

static void block_q4_0(const struct q4_0 *b, float *restrict to)
{
	float d = f32_from_f16(b->d);

	for (int i = 0; i < 16; i++)
		to[i] = d * (float)((b->q[i] & 15) - 8);
	for (int i = 0; i < 16; i++)
		to[16 + i] = d * (float)((b->q[i] >> 4) - 8);
}

static void block_q4_1(const struct q4_1 *b, float *restrict to)
{
	float d = f32_from_f16(b->d), m = f32_from_f16(b->m);

	for (int i = 0; i < 16; i++)
		to[i] = d * (float)(b->q[i] & 15) + m;
	for (int i = 0; i < 16; i++)
		to[16 + i] = d * (float)(b->q[i] >> 4) + m;
}

/* The 32 codes of 5 bits of a Q5 block. */
static void codes_q5(const uint8_t high[4], const uint8_t q[16], int32_t codes[restrict 32])
{
	uint32_t bits;

	memcpy(&bits, high, sizeof bits);
	for (int i = 0; i < 16; i++)
		codes[i] = (int32_t)((q[i] & 15u) | (bits >> i << 4 & 16));
	for (int i = 0; i < 16; i++)
		codes[16 + i] = (int32_t)(q[i] >> 4 | (bits >> (16 + i) << 4 & 16));
}

static void block_q5_0(const struct q5_0 *b, float *restrict to)
{
	float d = f32_from_f16(b->d);
	int32_t codes[32];

	codes_q5(b->high, b->q, codes);
	for (int i = 0; i < 32; i++)
		to[i] = d * (float)(codes[i] - 16);
}

static void block_q5_1(const struct q5_1 *b, float *restrict to)
{
	float d = f32_from_f16(b->d), m = f32_from_f16(b->m);
	int32_t codes[32];

	codes_q5(b->high, b->q, codes);
	for (int i = 0; i < 32; i++)
		to[i] = d * (float)codes[i] + m;
}

static void block_q8_0(const struct q8_0 *b, float *restrict to)
{
	float d = f32_from_f16(b->d);

	for (int i = 0; i < 32; i++)
		to[i] = d * (float)b->q[i];
}

static void block_q2_k(const struct q2_k *b, float *restrict to)
{
	float d = f32_from_f16(b->d), m = f32_from_f16(b->m);

	for (int group = 0; group < 16; group++, to += 16) {
		const uint8_t *q = b->q + group / 8 * 32 + group % 2 * 16;
		int shift = group % 8 / 2 * 2;
		float scale = d * (float)(b->scales[group] & 15), least = m * (float)(b->scales[group] >> 4);
		for (int i = 0; i < 16; i++)
			to[i] = scale * (float)(q[i] >> shift & 3) - least;
	}
}

static void block_q3_k(const struct q3_k *b, float *restrict to)
{
	float d = f32_from_f16(b->d);

	for (int group = 0; group < 16; group++, to += 16) {
		const uint8_t *q = b->q + group / 8 * 32 + group % 2 * 16, *high = b->high + group % 2 * 16;
		int shift = group % 8 / 2 * 2, bit = group / 2;
		int low = b->scales[group % 8] >> group / 8 * 4 & 15;
		int top = b->scales[8 + group % 4] >> group / 4 * 2 & 3;
		float scale = d * (float)((low | top << 4) - 32);
		/* A high bit that is clear takes 4 away. */
		for (int i = 0; i < 16; i++)
			to[i] = scale * (float)((q[i] >> shift & 3) + (high[i] >> bit << 2 & 4) - 4);
	}
}

/* Scale and least value of a group of Q4_K and Q5_K: 6 bits each, the last four groups' in pieces. */
static void scale_k4(const uint8_t scales[12], int group, float d, float m, float *scale, float *least)
{
	int s = group < 4 ? scales[group] & 63 : (scales[group + 4] & 15) | scales[group - 4] >> 6 << 4;
	int l = group < 4 ? scales[group + 4] & 63 : scales[group + 4] >> 4 | scales[group] >> 6 << 4;

	*scale = d * (float)s;
	*least = m * (float)l;
}

static void block_q4_k(const struct q4_k *b, float *restrict to)
{
	float d = f32_from_f16(b->d), m = f32_from_f16(b->m);

	for (int group = 0; group < 8; group++, to += 32) {
		const uint8_t *q = b->q + group / 2 * 32;
		int shift = group % 2 * 4;
		float scale, least;
		scale_k4(b->scales, group, d, m, &scale, &least);
		for (int i = 0; i < 32; i++)
			to[i] = scale * (float)(q[i] >> shift & 15) - least;
	}
}

static void block_q5_k(const struct q5_k *b, float *restrict to)
{
	float d = f32_from_f16(b->d), m = f32_from_f16(b->m);

	for (int group = 0; group < 8; group++, to += 32) {
		const uint8_t *q = b->q + group / 2 * 32;
		int shift = group % 2 * 4;
		float scale, least;
		scale_k4(b->scales, group, d, m, &scale, &least);
		for (int i = 0; i < 32; i++)
			to[i] = scale * (float)((q[i] >> shift & 15) | (b->high[i] >> group << 4 & 16)) -
				least;
	}
}

static void block_q6_k(const struct q6_k *b, float *restrict to)
{
	float d = f32_from_f16(b->d);

	for (int group = 0; group < 8; group++, to += 32) {
		const uint8_t *low = b->low + group / 4 * 64 + group % 2 * 32,
			      *high = b->high + group / 4 * 32;
		const int8_t *scales = b->scales + group * 2;
		int shift = group % 4 / 2 * 4, top = group % 4 * 2;
		for (int i = 0; i < 32; i++)
			to[i] = d * (float)scales[i / 16] *
				(float)(((low[i] >> shift & 15) | (high[i] >> top << 4 & 48)) - 32);
	}
}

static void block_iq4_nl(const struct q4_0 *b, float *restrict to)
{
	static const float levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
					 1,    13,   25,  38,  53,  69,	 89,  113};
	float d = f32_from_f16(b->d);

	for (int i = 0; i < 16; i++)
		to[i] = d * levels[b->q[i] & 15];
	for (int i = 0; i < 16; i++)
		to[16 + i] = d * levels[b->q[i] >> 4];
}

/* BLOCKS(type in types.def, name here, struct): the loop over the blocks of a type. */
#define ALL_BLOCKS(BLOCKS)       \
	BLOCKS(Q4_0, q4_0, q4_0) \
	BLOCKS(Q4_1, q4_1, q4_1) \
	BLOCKS(Q5_0, q5_0, q5_0) \
	BLOCKS(Q5_1, q5_1, q5_1) \
	BLOCKS(Q8_0, q8_0, q8_0) \
	BLOCKS(Q2_K, q2_k, q2_k) \
	BLOCKS(Q3_K, q3_k, q3_k) \
	BLOCKS(Q4_K, q4_k, q4_k) \
	BLOCKS(Q5_K, q5_k, q5_k) \
	BLOCKS(Q6_K, q6_k, q6_k) \
	BLOCKS(IQ4_NL, iq4_nl, q4_0)

enum {
#define TYPE(name, values, bytes) VALUES_##name = values, BYTES_##name = bytes,
#include "types.def"
#undef TYPE
};

#define BLOCKS(type, name, block)                                                       \
	static_assert(sizeof(struct block) == BYTES_##type, "a block as it is stored"); \
	static void decode_##name(const unsigned char *from, size_t values, float *to)  \
	{                                                                               \
		const struct block *b = (const void *)from;                             \
		for (size_t i = 0; i < values; i += VALUES_##type)                      \
			block_##name(b++, to + i);                                      \
	}
ALL_BLOCKS(BLOCKS)
#undef BLOCKS

#define BLOCKS(type, name, block) [TYPE_##type] = decode_##name,
extern decode_fn *const DECODERS_TABLE(gguf_blocks)[TYPE_COUNT];
decode_fn *const DECODERS_TABLE(gguf_blocks)[TYPE_COUNT] = {
	[TYPE_F32] = decode_f32, [TYPE_F16] = decode_f16, [TYPE_BF16] = decode_bf16, ALL_BLOCKS(BLOCKS)};
