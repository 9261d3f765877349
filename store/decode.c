#include "decode.h"

#define DECODERS(variant, needs)                         \
	extern decode_fn *const gguf_blocks_##variant[]; \
	extern q4nx_decode_fn *const q4nx_chunks_##variant[];
#include "decoders.def"
#undef DECODERS

const struct decoders *decoders_variant(size_t i)
{
#define DECODERS(variant, needs) {#variant, gguf_blocks_##variant, q4nx_chunks_##variant},
	static const struct decoders all[] = {
#include "decoders.def"
	};
#undef DECODERS
	size_t variant = 0;

#define DECODERS(name, needs)         \
	if ((needs) && i-- == 0)      \
		return &all[variant]; \
	variant++;
#include "decoders.def"
#undef DECODERS
	return NULL;
}
