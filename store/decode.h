/*
 * How stored blocks become float32: one table of functions an instruction set, all with the same bits.
 * The functions are pure: any thread. They read and write at any address.
 */
#ifndef NPUD_DECODE_H
#define NPUD_DECODE_H

#include "container.h"

/* `values` whole blocks' values at `from` to `to`. */
typedef void decode_fn(const unsigned char *from, size_t values, float *to);

/*
 * What a Q4NX chunk holds: 32 rows by 256 columns (Q8C: 128), padding included.
 * KIND(name, reading, columns, bytes)
 */
#define Q4NX_KINDS(KIND)                            \
	KIND(Q4_1, "q4_1", 256, 5120)               \
	KIND(Q4_1_SIGNED, "q4_1 signed", 256, 5120) \
	KIND(Q4_K, "q4k", 256, 4736)                \
	KIND(Q8A, "q8a", 256, 8704)                 \
	KIND(Q8B, "q8b", 256, 8704)                 \
	KIND(Q8C, "q8c", 128, 5120)

enum q4nx_kind {
#define KIND(name, reading, columns, bytes) Q4NX_##name,
	Q4NX_KINDS(KIND)
#undef KIND
		Q4NX_COUNT
};

#define Q4NX_ROWS 32u

/* One row of chunks, as many as `width` columns need, to to[Q4NX_ROWS][width]; padding is dropped. */
typedef void q4nx_decode_fn(const unsigned char *chunks, uint32_t width, float *to);

struct decoders {
	const char *variant;
	decode_fn *const *blocks;    /* by tensor_type; NULL: the type is sized only */
	q4nx_decode_fn *const *q4nx; /* by q4nx_kind */
};

/* The name of a table in the objects of one variant. */
#define DECODERS_TABLE(name) DECODERS_JOIN(name, DECODERS_VARIANT)
#define DECODERS_JOIN(name, variant) DECODERS_JOIN_(name, variant)
#define DECODERS_JOIN_(name, variant) name##_##variant

/* Every variant this processor can run, best first; NULL past the last, which is "ref". */
const struct decoders *decoders_variant(size_t i);

#endif
