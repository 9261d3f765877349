/* Packing and hashing on one thread: against memcpy, a read pass, and each other. */
#include "bench.h"
#include "decode.h"
#include "hash.h"
#include "image.h"
#include "pages.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tile of 117 MB; the rows of a slice are what the loader decodes at once. */
enum { H = 4096, NV = 28672, SLICE = 128 };

struct source {
	struct kernels kernels;
	struct tile tile;
	const char *stored;
	void *copy;
	size_t size; /* of what is copied, read or hashed */
	decode_fn *decode;
	size_t row_bytes; /* as stored */
	float *slice;
};

static void copy(void *arg)
{
	struct source *s = arg;
	memcpy(s->copy, s->stored, s->size);
}

static void pack(void *arg)
{
	struct source *s = arg;
	s->kernels.pack(&s->tile, 0, (const float *)s->stored, NV, H);
}

static void decode_and_pack(void *arg)
{
	struct source *s = arg;
	for (uint32_t n = 0; n < NV; n += SLICE) {
		s->decode((const unsigned char *)s->stored + n * s->row_bytes, (size_t)SLICE * H, s->slice);
		s->kernels.pack(&s->tile, n, s->slice, SLICE, H);
	}
}

static void hash(void *arg)
{
	static const struct hash_secret secret = {{1, 2, 3}};
	struct source *s = arg;
	struct hasher *h;

	if (hasher_new(&h, &secret))
		exit(1);
	for (size_t at = 0; at < s->size; at += (size_t)1 << 20)
		hasher_add(h, s->stored + at, s->size - at < 1 << 20 ? s->size - at : 1 << 20);
	hasher_free(h);
}

/* Either half of a value is one of BF16, too: models have none that are denormal or no numbers, which packing
 * takes longer for. */
static void weight(char *to, uint32_t i)
{
	for (uint32_t half = 0; half < 2; half++) {
		float value = (float)(int32_t)((2 * i + half) * 2654435761u) * 0x1p-31f;
		memcpy(to + 2 * half, (char *)&value + 2, 2);
	}
}

static void packers(struct source *s, const char *variant)
{
	static const struct {
		enum tensor_type type;
		const char *name;
		size_t row_bytes;
	} types[] = {
		{TYPE_BF16, "BF16", 2 * H},	    {TYPE_F16, "F16", 2 * H},
		{TYPE_Q8_0, "Q8_0", H / 32 * 34},   {TYPE_Q4_0, "Q4_0", H / 32 * 18},
		{TYPE_Q4_K, "Q4_K", H / 256 * 144}, {TYPE_Q6_K, "Q6_K", H / 256 * 210},
	};
	enum { TYPES = sizeof types / sizeof *types };
	double plain[BENCH_ROUNDS], decoded[TYPES][BENCH_ROUNDS];
	char name[64];

	for (int i = 0; i < BENCH_ROUNDS; i++) {
		double whole = bench_seconds(NULL, pack, s);
		plain[i] = bench_seconds(NULL, copy, s) / whole;
		for (int t = 0; t < TYPES && !variant; t++) {
			s->decode = decoders_variant(0)->blocks[types[t].type];
			s->row_bytes = types[t].row_bytes;
			decoded[t][i] = whole / bench_seconds(NULL, decode_and_pack, s);
		}
	}
	snprintf(name, sizeof name, "pack.%s.F32", s->kernels.pack_variant);
	bench_figure(name, HIGHER, plain, 0.6, 0.8, "source bytes/s over those of memcpy");
	for (int t = 0; t < TYPES && !variant; t++) {
		snprintf(name, sizeof name, "pack.%s.%s", s->kernels.pack_variant, types[t].name);
		bench_figure(name, HIGHER, decoded[t], 0.5, 0.8, "image bytes/s over those from F32");
	}
}

int main(void)
{
	static const char *const variants[] = {NULL, "avx2"};
	struct source s = {.size = (size_t)NV * H * sizeof(float)};
	size_t size = s.size, copy_size = s.size, slice_size = SLICE * H * sizeof(float);
	struct image image;
	struct geometry g;
	struct pool *alone;
	double ratios[BENCH_ROUNDS];
	float *w = pages_new(&size);

	bench_begin();
	s.copy = pages_new(&copy_size);
	s.slice = pages_new(&slice_size);
	if (!w || !s.copy || !s.slice || !geometry_make(&g, NV, H, 0, LAYOUT_BLOCKED) ||
	    !image_init(&image, &g) || !pool_new(&alone, 1))
		return 1;
	for (size_t i = 0; i < (size_t)NV * H; i++)
		weight((char *)&w[i], (uint32_t)i);
	s.stored = (const char *)w;
	s.tile = image_tile(&image, 0);
	copy(&s); /* touches it */
	for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
		if (kernels_pick(&s.kernels, cpu_have(), variants[v])) {
			pack(&s); /* touches the image */
			packers(&s, variants[v]);
		}
	for (int i = 0; i < BENCH_ROUNDS; i++)
		ratios[i] = bench_read(alone, s.stored, s.size) / bench_seconds(NULL, hash, &s);
	bench_figure("hash.xxh3-128", HIGHER, ratios, 0.8, 0.95, "bytes/s over those of reading");
	pool_free(alone);
	image_fini(&image);
	pages_free(w, size);
	pages_free(s.copy, copy_size);
	pages_free(s.slice, slice_size);
	bench_end();
	return 0;
}
