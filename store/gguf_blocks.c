/*
 * The blocks of GGUF's types as float32. Every product is exact and there is at most one addition after
 * them, so each value is rounded once and no instruction set can change a bit. Compiled once for every
 * line of decoders.def.
 */
#include "bits.h"
#include "codes.h"
#include "decode.h"
#include <assert.h>

#define PACKED __attribute__((packed))

/* Groups of a block one after the other, so that their shifts are constants. */
#ifdef __clang__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

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

static inline bytes16 low_nibbles(const uint8_t q[16])
{
	return bytes16_load(q) & 15;
}

static inline bytes16 high_nibbles(const uint8_t q[16])
{
	return bytes16_load(q) >> 4;
}

static void block_q4_0(const struct q4_0 *b, float *to)
{
	float d = f32_from_f16(b->d);

	codes_scaled(to, low_nibbles(b->q) - 8, d);
	codes_scaled(to + 16, high_nibbles(b->q) - 8, d);
}

static void block_q4_1(const struct q4_1 *b, float *to)
{
	float d = f32_from_f16(b->d), m = f32_from_f16(b->m);

	codes_based(to, low_nibbles(b->q), d, m);
	codes_based(to + 16, high_nibbles(b->q), d, m);
}

/* 16 in each of the bytes whose bit is set: byte i is left with bit i, which a carry turns into bit 7. */
static inline uint64_t fifths8(uint8_t bits)
{
	uint64_t spread = bits * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);

	return ((spread + UINT64_C(0x7f7f7f7f7f7f7f7f)) & UINT64_C(0x8080808080808080)) >> 3;
}

static inline bytes16 fifths(const uint8_t high[2])
{
	typedef uint64_t words2 __attribute__((vector_size(16)));

	return (bytes16)(words2){fifths8(high[0]), fifths8(high[1])};
}

static void block_q5_0(const struct q5_0 *b, float *to)
{
	float d = f32_from_f16(b->d);

	codes_scaled(to, (low_nibbles(b->q) | fifths(b->high)) - 16, d);
	codes_scaled(to + 16, (high_nibbles(b->q) | fifths(b->high + 2)) - 16, d);
}

static void block_q5_1(const struct q5_1 *b, float *to)
{
	float d = f32_from_f16(b->d), m = f32_from_f16(b->m);

	codes_based(to, low_nibbles(b->q) | fifths(b->high), d, m);
	codes_based(to + 16, high_nibbles(b->q) | fifths(b->high + 2), d, m);
}

static void block_q8_0(const struct q8_0 *b, float *to)
{
	float d = f32_from_f16(b->d);

	codes_scaled(to, bytes16_load(b->q), d);
	codes_scaled(to + 16, bytes16_load(b->q + 16), d);
}

/* The 16 codes of 2 bits of a group of Q2_K and Q3_K. */
static inline bytes16 pairs(const uint8_t q[64], int group)
{
	return bytes16_load(q + group / 8 * 32 + group % 2 * 16) >> group % 8 / 2 * 2 & 3;
}

static void block_q2_k(const struct q2_k *b, float *to)
{
	float d = f32_from_f16(b->d), m = f32_from_f16(b->m);

	UNROLLED for (int group = 0; group < 16; group++)
		codes_based(to + group * 16, pairs(b->q, group), d * (float)(b->scales[group] & 15),
			    -(m * (float)(b->scales[group] >> 4)));
}

static void block_q3_k(const struct q3_k *b, float *to)
{
	float d = f32_from_f16(b->d);

	UNROLLED for (int group = 0; group < 16; group++)
	{
		int low = b->scales[group % 8] >> group / 8 * 4 & 15;
		int top = b->scales[8 + group % 4] >> group / 4 * 2 & 3;
		/* A high bit that is clear takes 4 away. */
		bytes16 high = (bytes16_load(b->high + group % 2 * 16) >> group / 2 & 1) << 2;
		codes_scaled(to + group * 16, pairs(b->q, group) + high - 4,
			     d * (float)((low | top << 4) - 32));
	}
}

/* Scale and least value of a group of Q4_K and Q5_K: 6 bits each, the last four groups' in pieces. */
static inline void scale_k4(const uint8_t scales[12], int group, float d, float m, float *scale, float *base)
{
	int s = group < 4 ? scales[group] & 63 : (scales[group + 4] & 15) | scales[group - 4] >> 6 << 4;
	/* cppcheck-suppress arrayIndexOutOfBoundsCond ; group is below 8 */
	int l = group < 4 ? scales[group + 4] & 63 : scales[group + 4] >> 4 | scales[group] >> 6 << 4;

	*scale = d * (float)s;
	*base = -(m * (float)l);
}

static void block_q4_k(const struct q4_k *b, float *to)
{
	float d = f32_from_f16(b->d), m = f32_from_f16(b->m), scale, base;

	UNROLLED for (int group = 0; group < 8; group++)
	{
		const uint8_t *q = b->q + group / 2 * 32;
		int shift = group % 2 * 4;
		scale_k4(b->scales, group, d, m, &scale, &base);
		for (int i = 0; i < 32; i += 16, to += 16)
			codes_based(to, bytes16_load(q + i) >> shift & 15, scale, base);
	}
}

static void block_q5_k(const struct q5_k *b, float *to)
{
	float d = f32_from_f16(b->d), m = f32_from_f16(b->m), scale, base;

	UNROLLED for (int group = 0; group < 8; group++)
	{
		const uint8_t *q = b->q + group / 2 * 32;
		int shift = group % 2 * 4;
		scale_k4(b->scales, group, d, m, &scale, &base);
		for (int i = 0; i < 32; i += 16, to += 16) {
			bytes16 high = (bytes16_load(b->high + i) >> group & 1) << 4;
			codes_based(to, (bytes16_load(q + i) >> shift & 15) | high, scale, base);
		}
	}
}

static void block_q6_k(const struct q6_k *b, float *to)
{
	float d = f32_from_f16(b->d);

	UNROLLED for (int group = 0; group < 16; group++)
	{
		int half = group / 8, quarter = group % 8 / 2, part = group % 2 * 16;
		bytes16 low = bytes16_load(b->low + half * 64 + quarter % 2 * 32 + part);
		bytes16 high = bytes16_load(b->high + half * 32 + part);
		low = low >> quarter / 2 * 4 & 15;
		high = (high >> quarter * 2 & 3) << 4;
		codes_scaled(to + group * 16, (low | high) - 32, d * (float)b->scales[group]);
	}
}

static inline bytes16 iq4_nl_levels(bytes16 codes)
{
	static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
					  1,	13,   25,  38,	53,  69,  89,  113};
#ifdef __AVX2__
	return (bytes16)_mm_shuffle_epi8((__m128i)bytes16_load(levels), (__m128i)codes);
#else
	for (int i = 0; i < 16; i++)
		codes[i] = (uint8_t)levels[codes[i]];
	return codes;
#endif
}

static void block_iq4_nl(const struct q4_0 *b, float *to)
{
	float d = f32_from_f16(b->d);

	codes_scaled(to, iq4_nl_levels(low_nibbles(b->q)), d);
	codes_scaled(to + 16, iq4_nl_levels(high_nibbles(b->q)), d);
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
