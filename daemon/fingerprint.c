#include "fingerprint.h"
#include "own.h"
#include <assert.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { KD = 128, ND = 256, VALUES = 2048 /* of a type: whole blocks of all */, ROWS = VALUES / KD };

static uint64_t next(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

void fingerprint_columns(float *w)
{
	uint64_t state = 1;
	for (int n = 0; n < FINGERPRINT_NV; n++, w += FINGERPRINT_H) {
		/* No two alike. Of powers of two w * inv is exact, and so are the ties; of the others it is
		 * rounded. */
		float unit = n % 2 ? ldexpf((float)(129 + 2 * n), n * 7 % 40 - 28) : ldexpf(1, n / 2 - 40);
		for (int k = 0; k < FINGERPRINT_H; k++) {
			float tie = (float)(next(&state) % 127) + 0.5f;
			float any = (float)(int32_t)(next(&state) % (1 << 24)) * 0x1p-17f;
			w[k] = unit *
			       (k % 3 == 0  ? tie
				: any < 127 ? any
					    : 127) *
			       (next(&state) % 2 ? 1.0f : -1.0f);
		}
		w[n % FINGERPRINT_H] = n % 2 ? 127 * unit : -127 * unit;
		if (n % 8 == 2) {
			w[(n + 1) % FINGERPRINT_H] = NAN;
			w[(n + 2) % FINGERPRINT_H] = INFINITY;
			w[(n + 3) % FINGERPRINT_H] = -INFINITY;
		}
		if (n % 8 == 3)
			w[(n + 5) % FINGERPRINT_H] = n % 16 == 3 ? 1e-41f : -1e-41f;
	}
	w -= 2 * FINGERPRINT_H; /* the last two hold nothing */
	memset(w, 0, 2 * FINGERPRINT_H * sizeof *w);
	w[7] = 1e-13f;
}

/* Adds what `count` columns of `h` values pack to, and how many of them were not finite. */
static void add(XXH3_state_t *hash, const struct kernels *kernels, struct tile *t, const float *w,
		uint32_t count, uint32_t h)
{
	memset(t->codes, 0, (size_t)t->kd * t->nd);
	uint64_t nonfinite = kernels->pack(t, 0, w, count, h);
	tile_pad(t, count);
	XXH3_64bits_update(hash, t->codes, (size_t)t->kd * t->nd);
	XXH3_64bits_update(hash, t->scales, t->nd * sizeof *t->scales);
	XXH3_64bits_update(hash, &nonfinite, sizeof nonfinite);
}

/* The same columns from a matrix that is stored the other way, as it is packed. */
static void add_transposed(XXH3_state_t *hash, struct tile *t, const float *w)
{
	float amax[FINGERPRINT_NV] = {0}, row[FINGERPRINT_NV];

	memset(t->codes, 0, (size_t)t->kd * t->nd);
	for (int packing = 0; packing < 2; packing++) {
		if (packing)
			pack_scales(t, 0, amax, FINGERPRINT_NV);
		for (uint32_t k = 0; k < FINGERPRINT_H; k++) {
			for (uint32_t n = 0; n < FINGERPRINT_NV; n++)
				row[n] = w[n * FINGERPRINT_H + k];
			if (packing)
				pack_row(t, 0, k, amax, row, FINGERPRINT_NV);
			else
				pack_amax(amax, row, FINGERPRINT_NV);
		}
	}
	tile_pad(t, FINGERPRINT_NV);
	XXH3_64bits_update(hash, t->codes, (size_t)t->kd * t->nd);
	XXH3_64bits_update(hash, t->scales, t->nd * sizeof *t->scales);
}

static void add_decoded(XXH3_state_t *hash, const struct kernels *kernels, const struct decoders *decoders,
			struct tile *t, float *w)
{
	static const struct {
		uint32_t columns, bytes;
	} kinds[] = {
#define KIND(name, reading, columns, bytes) {columns, bytes},
		Q4NX_KINDS(KIND)
#undef KIND
	};
	unsigned char stored[9216]; /* as much as any type takes */
	uint64_t state = 2;

	for (size_t i = 0; i < sizeof stored; i++)
		stored[i] = (unsigned char)next(&state);
	for (int type = 0; type < TYPE_COUNT; type++)
		if (decoders->blocks[type]) {
			decoders->blocks[type](stored, VALUES, w);
			add(hash, kernels, t, w, ROWS, KD);
		}
	for (int kind = 0; kind < Q4NX_COUNT; kind++) {
		assert(kinds[kind].bytes <= sizeof stored);
		decoders->q4nx[kind](stored, kinds[kind].columns, w);
		add(hash, kernels, t, w, Q4NX_ROWS * kinds[kind].columns / KD, KD);
	}
}

uint64_t fingerprint(const struct kernels *kernels, const struct decoders *decoders)
{
	cleanup(freep) float *w = malloc((FINGERPRINT_NV * FINGERPRINT_H + Q4NX_ROWS * 256) * sizeof *w);
	cleanup(freep) int8_t *codes = malloc((size_t)KD * ND);
	float scales[ND];
	XXH3_state_t *hash = XXH3_createState();
	uint64_t print = 0;

	if (w && codes && hash && XXH3_64bits_reset(hash) == XXH_OK) {
		for (enum layout layout = LAYOUT_ROW_MAJOR; layout <= LAYOUT_BLOCKED; layout++) {
			struct tile t = {KD, ND, layout, codes, scales};
			fingerprint_columns(w);
			add(hash, kernels, &t, w, FINGERPRINT_NV, FINGERPRINT_H);
			add_transposed(hash, &t, w);
			add_decoded(hash, kernels, decoders, &t, w);
		}
		print = XXH3_64bits_digest(hash);
	}
	XXH3_freeState(hash);
	return print;
}
