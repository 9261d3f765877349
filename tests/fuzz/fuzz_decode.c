/*
 * Property: any bytes decode, inside their bounds, to the same bits by every variant. The first byte chooses
 * the type or kind of chunk, the second the width of chunks; the rest is stored blocks.
 */
#include "decode.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const struct {
	size_t values, bytes;
} types[TYPE_COUNT] =
	{
#define TYPE(name, values, bytes) [TYPE_##name] = {values, bytes},
#include "types.def"
#undef TYPE
},
  kinds[Q4NX_COUNT] = {
#define KIND(name, reading, columns, bytes) [Q4NX_##name] = {columns, bytes},
	  Q4NX_KINDS(KIND)
#undef KIND
};

static void decode(const struct decoders *d, size_t reading, const uint8_t *stored, size_t count, float *to)
{
	if (reading < TYPE_COUNT)
		d->blocks[reading](stored, count, to);
	else
		d->q4nx[reading - TYPE_COUNT](stored, (uint32_t)(count / Q4NX_ROWS), to);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (size < 2)
		return 0;
	size_t reading = bytes[0] % (TYPE_COUNT + Q4NX_COUNT), width = bytes[1], count;
	bytes += 2;
	size -= 2;
	if (reading < TYPE_COUNT) {
		if (!decoders_variant(0)->blocks[reading])
			return 0;
		count = size / types[reading].bytes * types[reading].values;
	} else {
		size_t most = size / kinds[reading - TYPE_COUNT].bytes * kinds[reading - TYPE_COUNT].values;
		count = (width < most ? width : most) * Q4NX_ROWS;
	}
	float *first = malloc(count * sizeof *first + 1), *other = malloc(count * sizeof *other + 1);
	if (!first || !other)
		abort();
	decode(decoders_variant(0), reading, bytes, count, first);
	for (size_t i = 1; decoders_variant(i); i++) {
		decode(decoders_variant(i), reading, bytes, count, other);
		for (size_t v = 0; v < count; v++)
			if (memcmp(&first[v], &other[v], sizeof *first) != 0 &&
			    !(isnan(first[v]) && isnan(other[v])))
				abort();
	}
	free(first);
	free(other);
	return 0;
}
