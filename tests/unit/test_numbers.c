#include "inputs.h"
#include "../dice.h"
#include "decode.h"
#include "tiles.h"
#include "image.h"
#include "launcher.h"
#include "loader.h"
#include "own.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void loadp(struct load **l)
{
	load_free(*l);
}

/* In [-4, 4) on a grid of 2^-20: the oracle's `vector`. */
static float grid(uint64_t *state)
{
	return (float)((double)((int64_t)(splitmix(state) >> 41) - (1 << 22)) / (1 << 20));
}

/* By the sha256sum of the system: hashing is no business of this project. */
static void sha256(const void *bytes, size_t size, char hex[65])
{
	char path[] = "/tmp/npud-numbers.XXXXXX", command[64];
	int fd = mkstemp(path);

	cr_assert(fd >= 0);
	for (size_t at = 0; at < size;) {
		ssize_t n = write(fd, (const char *)bytes + at, size - at);
		cr_assert(n > 0);
		at += (size_t)n;
	}
	close(fd);
	snprintf(command, sizeof command, "sha256sum <%s", path);
	FILE *sum = popen(command, "re");
	cr_assert(sum && fread(hex, 1, 64, sum) == 64, "sha256sum does not run");
	hex[64] = '\0';
	pclose(sum);
	unlink(path);
}

static uint64_t fnv(uint64_t h, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
	return h;
}

struct row {
	const char *file, *tensor, *opts;
	uint32_t n, k, kpad;
	const char *weights, *codes, *scales, *row, *blocked, *logits;
};

static bool parse(char *line, struct row *r)
{
	char *f[12] = {0};

	line[strcspn(line, "\n")] = '\0';
	for (int i = 0; i < 12; i++)
		if (!(f[i] = strsep(&line, "\t")))
			return false;
	*r = (struct row){f[0],
			  f[1],
			  f[2],
			  (uint32_t)atoi(f[3]),
			  (uint32_t)atoi(f[4]),
			  (uint32_t)atoi(f[5]),
			  f[6],
			  f[7],
			  f[8],
			  f[9],
			  f[10],
			  f[11]};
	return true;
}

/* The options column: what the oracle was given. */
static struct matrix_options options_of(const char *opts)
{
	struct matrix_options options = {0};
	const char *k = strstr(opts, "--k "), *q8 = strstr(opts, "--q8 ");

	options.transpose = strstr(opts, "--transpose") != NULL;
	options.is_signed = strstr(opts, "--signed") != NULL;
	options.k = k ? (uint32_t)atoi(k + 4) : 0;
	cr_assert(!q8 || q8_layout_of(q8 + 5, 1, &options.q8));
	return options;
}

/* Loaded and packed by the kernels that are forced, or the best; NULL where this processor cannot run them.
 */
static struct load *load_by(const char *forced, const struct row *r, uint32_t tile, enum layout layout)
{
	static const struct hash_secret secret;
	static struct kernels kernels; /* which the load refers to */
	struct load_request request = {.options = options_of(r->opts), .tile = tile, .layout = layout};
	struct load *l = NULL;
	struct err err = {0};
	char path[1024];

	if (!kernels_pick(&kernels, cpu_have(), forced))
		return NULL;
	snprintf(path, sizeof path, "%s/%s", data_dir(), r->file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0, "%s cannot be opened", path);
	snprintf(request.label, sizeof request.label, "%s", r->file);
	request.tensor = strdup(r->tensor);
	struct source source = {.files = malloc(sizeof *source.files), .count = 1};
	source.files[0] = (struct container_file){fd, strdup(request.label)};
	cr_assert_eq(load_new(&l, &request, &source, NULL, &secret, &kernels, 2), 0);
	cr_assert_eq(load_identify(l, &err), 0, "%s: %s", r->file, err.text);
	cr_assert_eq(load_fill(l, &err), 0, "%s: %s", r->file, err.text);
	cr_expect_eq(atomic_load(&l->tiles_done), l->geometry.tiles);
	return l;
}

static struct load *load(const struct row *r, uint32_t tile, enum layout layout)
{
	return load_by(NULL, r, tile, layout);
}

/* A row may have "-" for weights with values that are not numbers, of which there are many. */
static void check_weights(const struct load *l, const struct row *r)
{
	if (strcmp(r->weights, "-") == 0)
		return;
	const struct matrix *m = &l->parts[0].matrix;
	uint32_t bands = matrix_bands(m);
	size_t values = (size_t)bands * m->band_rows * m->width;
	cleanup(freep) void *stored = malloc(bands * m->band_bytes);
	cleanup(freep) float *decoded = malloc(values * sizeof *decoded);
	cleanup(freep) float *w = malloc((size_t)m->nv * m->h * sizeof *w);
	struct err err;
	char hex[65];

	cr_assert_eq(matrix_read(m, 0, bands, stored, &err), 0, "%s", err.text);
	for (size_t i = 0; decoders_variant(i); i++) {
		memset(decoded, 0xff, values * sizeof *decoded);
		matrix_decode_by(decoders_variant(i), m, stored, bands, decoded);
		for (uint32_t n = 0; n < m->nv; n++)
			for (uint32_t k = 0; k < m->h; k++)
				w[(size_t)n * m->h + k] =
					decoded[m->transposed ? (size_t)k * m->nv + n : (size_t)n * m->h + k];
		sha256(w, (size_t)m->nv * m->h * sizeof *w, hex);
		cr_expect_str_eq(hex, r->weights, "weights of %s %s, %s", r->file, r->tensor,
				 decoders_variant(i)->variant);
	}
}

static void check_fnv(const struct load *l, const char *want, const struct row *r)
{
	const char *by = l->kernels->pack_variant;
	struct tile t = image_tile(&l->image, 0);
	char got[17];
	uint64_t h = fnv(UINT64_C(0xcbf29ce484222325), t.codes, (size_t)t.kd * t.nd);

	cr_assert_eq(l->geometry.tiles, 1);
	snprintf(got, sizeof got, "%016" PRIx64, fnv(h, t.scales, t.nd * sizeof *t.scales));
	cr_expect_str_eq(got, want, "image of %s %s by %s", r->file, r->tensor, by);
}

/* The oracle's row, as codes. */
static void codes_of_row(int8_t *q, float *scale, const struct geometry *g)
{
	cleanup(freep) float *x = malloc(g->h * sizeof *x);
	uint64_t state = 1;

	for (uint32_t k = 0; k < g->h; k++)
		x[k] = grid(&state);
	cr_expect_eq(quantise_ref(q, scale, x, g->h, g->kd), 0);
}

static void check_logits(const struct load *l, const struct row *r)
{
	const struct geometry *g = &l->geometry;
	cleanup(freep) float *logits = malloc(g->nv * sizeof *logits);
	cleanup(freep) int8_t *q = malloc(g->kd);
	float scale;
	char hex[65];

	codes_of_row(q, &scale, g);
	struct pass pass = {q, &(struct pass_row){.ascale = scale, .logits = logits}, 1};
	struct pool *pool;
	cr_assert(pool_new(&pool, 2) && image_run(&l->image, l->kernels, pool, &pass));
	pool_free(pool);
	sha256(logits, g->nv * sizeof *logits, hex);
	cr_expect_str_eq(hex, r->logits, "logits of %s %s, tile %u, layout %d", r->file, r->tensor, g->nd,
			 g->layout);
}

#define DEVICE_ROWS 128u

/* Launches of every size give the reference's sums; of a large head, of some sizes on its first and last
 * tile. */
static void check_launches(struct launcher *device, const struct load *l, const int8_t *q, int32_t *acc)
{
	const struct geometry *g = &l->geometry;
	bool all = (uint64_t)g->kd * g->nd * g->tiles <= 1 << 16;
	cleanup(freep) int32_t *want = malloc((size_t)DEVICE_ROWS * g->nd * sizeof *want);

	for (uint32_t t = 0; t < g->tiles; t += all || t == g->tiles - 1 ? 1 : g->tiles - 1) {
		struct tile tile = image_tile(&l->image, t);
		head_ref(&tile, q, DEVICE_ROWS, g->nd, false, want);
		for (uint32_t rows = 1; rows <= DEVICE_ROWS; rows = all ? rows + 1 : rows * 2 + (rows == 1)) {
			cr_assert_eq(launcher_run(device, t, q, rows, acc), JOB_DONE);
			cr_assert(memcmp(acc, want, (size_t)rows * g->nd * sizeof *acc) == 0,
				  "%u rows of tile %u, %u x %u, layout %d", rows, t, g->kd, g->nd, g->layout);
		}
		cr_assert_eq(launcher_run(device, t, q, DEVICE_ROWS, acc), JOB_DONE);
		cr_assert(memcmp(acc, want, (size_t)DEVICE_ROWS * g->nd * sizeof *acc) == 0);
	}
}

static void check_device(const struct load *l, const struct row *r)
{
	const struct geometry *g = &l->geometry;
	cleanup(freep) float *logits = malloc((size_t)g->tiles * g->nd * sizeof *logits);
	cleanup(freep) int8_t *q = malloc((size_t)DEVICE_ROWS * g->kd);
	cleanup(freep) int32_t *acc = malloc((size_t)DEVICE_ROWS * g->nd * sizeof *acc);
	struct launcher device;
	uint64_t state = 9;
	float scale;
	char hex[65];

	for (size_t i = 0; i < (size_t)DEVICE_ROWS * g->kd; i++)
		q[i] = (int8_t)(splitmix(&state) % 255 - 127);
	launcher_init(&device, &l->image, DEVICE_ROWS, "", 60000);
	check_launches(&device, l, q, acc);
	codes_of_row(q, &scale, g);
	for (uint32_t t = 0; t < g->tiles; t++) {
		cr_assert_eq(launcher_run(&device, t, q, 1, acc), JOB_DONE);
		head_epilogue(logits + (size_t)t * g->nd, acc, scale, image_tile(&l->image, t).scales, g->nd);
	}
	launcher_fini(&device);
	sha256(logits, g->nv * sizeof *logits, hex);
	cr_expect_str_eq(hex, r->logits, "logits of %s %s from a device, tile %u, layout %d", r->file,
			 r->tensor, g->nd, g->layout);
}

static void check_row_on_device(const struct row *r)
{
	cleanup(loadp) struct load *usual = load(r, 0, LAYOUT_BLOCKED);
	check_device(usual, r);
	cleanup(loadp) struct load *narrow_row = load(r, 128, LAYOUT_ROW_MAJOR);
	check_device(narrow_row, r);
}

static void check_packed(const char *forced, const struct row *r)
{
	cleanup(loadp) struct load *row = load_by(forced, r, r->n, LAYOUT_ROW_MAJOR);
	char hex[65];

	if (!row)
		return;
	struct tile t = image_tile(&row->image, 0);
	sha256(t.codes, (size_t)t.kd * t.nd, hex);
	cr_expect_str_eq(hex, r->codes, "codes of %s %s by %s", r->file, r->tensor, forced);
	sha256(t.scales, t.nd * sizeof *t.scales, hex);
	cr_expect_str_eq(hex, r->scales, "scales of %s %s by %s", r->file, r->tensor, forced);
	check_fnv(row, r->row, r);
	cleanup(loadp) struct load *blocked = load_by(forced, r, (r->n + 127) / 128 * 128, LAYOUT_BLOCKED);
	check_fnv(blocked, r->blocked, r);
}

static void check_row(const struct row *r)
{
	static const char *const variants[] = {"ref", "avx2", "avx512"};
	cleanup(loadp) struct load *usual = load(r, 0, LAYOUT_BLOCKED);

	cr_expect(usual->geometry.nv == r->n && usual->geometry.h == r->k && usual->geometry.kd == r->kpad);
	check_weights(usual, r);
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
		check_packed(variants[i], r);
	check_logits(usual, r);
	cleanup(loadp) struct load *narrow = load(r, 128, LAYOUT_BLOCKED);
	check_logits(narrow, r);
	cleanup(loadp) struct load *narrow_row = load(r, 128, LAYOUT_ROW_MAJOR);
	check_logits(narrow_row, r);
}

static void each_row(void (*check)(const struct row *r))
{
	char line[4096], path[1024];
	int ran = 0;

	if (access(data_dir(), R_OK) != 0)
		cr_skip_test("no test data in %s; NPUD_TEST_DATA says where it is", data_dir());
	snprintf(path, sizeof path, "%s/EXPECTED.tsv", data_dir());
	cleanup(fclosep) FILE *table = fopen(path, "re");
	cr_assert(table, "%s cannot be opened", path);
	while (fgets(line, sizeof line, table)) {
		struct row r;
		if (strncmp(line, "file\t", 5) == 0)
			continue;
		cr_assert(parse(line, &r), "a row of EXPECTED.tsv has too few columns");
		check(&r);
		ran++;
	}
	cr_expect(ran >= 40, "only %d rows ran", ran);
}

Test(numbers, every_tensor_has_the_sums_of_the_oracle)
{
	each_row(check_row);
}

Test(numbers, every_tensor_has_the_bits_of_the_host_and_the_oracle_on_a_device)
{
	each_row(check_row_on_device);
}

Test(numbers, places_in_a_tile_are_a_permutation)
{
	for (int layout = 0; layout < 2; layout++) {
		struct tile t = {.kd = 192, .nd = 384, .layout = layout};
		cleanup(freep) bool *seen = calloc(t.kd, t.nd);
		for (uint32_t k = 0; k < t.kd; k++)
			for (uint32_t n = 0; n < t.nd; n++) {
				size_t i = tile_index(&t, k, n);
				cr_assert(i < (size_t)t.kd * t.nd && !seen[i], "%u %u goes to %zu", k, n, i);
				seen[i] = true;
			}
	}
	struct tile t = {.kd = 128, .nd = 256, .layout = LAYOUT_BLOCKED};
	cr_expect_eq(tile_index(&t, 1, 0), 8);
	cr_expect_eq(tile_index(&t, 0, 9), 65);
	cr_expect_eq(tile_index(&t, 8, 0), 1024);
	cr_expect_eq(tile_index(&t, 64, 0), 8192);
	cr_expect_eq(tile_index(&t, 0, 128), 16384);
}

/* A column of 8 values packs, and a row of activations quantises, to these codes and this scale. */
static void column(const float w[8], const int8_t codes[8], float scale, uint64_t nonfinite)
{
	cleanup(tile_free) struct tile t = tile_new(64, 128, LAYOUT_BLOCKED);
	int8_t q[64];
	float ascale;

	cr_expect_eq(pack_ref(&t, 3, w, 1, 8), nonfinite);
	cr_expect_eq(quantise_ref(q, &ascale, w, 8, 64), nonfinite);
	cr_expect(t.scales[3] == scale && ascale == scale, "scales %a and %a, not %a", (double)t.scales[3],
		  (double)ascale, (double)scale);
	for (uint32_t k = 0; k < 64; k++) {
		int want = k < 8 ? codes[k] : 0;
		cr_expect_eq(t.codes[tile_index(&t, k, 3)], want, "weight %u", k);
		cr_expect_eq(q[k], want, "activation %u", k);
	}
}

Test(numbers, codes_of_ties_zeros_and_values_that_are_not_finite)
{
	const float one = 1.0f / 127.0f;

	column((float[]){127, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, 0.49999997f, 126.5f},
	       (int8_t[]){127, 1, -1, 2, 3, -3, 0, 127}, 1, 0);
	column((float[8]){0}, (int8_t[8]){0}, one, 0);
	column((float[8]){1e-13f, -1e-13f}, (int8_t[8]){0}, one, 0);
	column((float[8]){NAN, INFINITY, -INFINITY, 2}, (int8_t[8]){0, 0, 0, 127}, 2.0f / 127.0f, 3);
	column((float[8]){NAN, NAN, NAN, NAN, NAN, NAN, NAN, INFINITY}, (int8_t[8]){0}, one, 8);
	column((float[8]){FLT_MAX, -1e-45f, -FLT_MAX}, (int8_t[8]){127, 0, -127}, FLT_MAX / 127.0f, 0);
	column((float[8]){-3, 3, -0.0f}, (int8_t[8]){-127, 127, 0}, 3.0f / 127.0f, 0);
}

static const struct shape {
	uint32_t nv, h;
} shapes[] = {{1, 1},	  {3, 7},     {127, 63},  {128, 64},  {129, 65}, {130, 128},
	      {259, 100}, {300, 191}, {513, 320}, {640, 257}, {17, 1000}};

/* Weights with everything in them that a file may hold. */
static float *weights(struct shape s, uint64_t seed)
{
	float *w = malloc((size_t)s.nv * s.h * sizeof *w);

	for (size_t i = 0; i < (size_t)s.nv * s.h; i++) {
		uint64_t state = seed + i * 77, dice = splitmix(&state) % 400;
		w[i] = dice == 0   ? NAN
		       : dice == 1 ? (i & 1 ? INFINITY : -INFINITY)
		       : dice == 2 ? 1e-40f
		       : dice == 3 ? -0.0f
				   : grid(&state) * ((i / s.h) % 7 == 3	  ? 1e-14f
						     : (i / s.h) % 7 == 4 ? 1e30f
									  : 1);
	}
	return w;
}

static struct tile tile_for(struct shape s, enum layout layout)
{
	uint32_t nd = layout == LAYOUT_BLOCKED ? (s.nv + 127) / 128 * 128 : s.nv;

	return tile_new((s.h + 63) / 64 * 64, nd, layout);
}

Test(numbers, a_transposed_matrix_packs_to_the_same_image)
{
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (int layout = 0; layout < 2; layout++) {
			struct shape s = shapes[i];
			cleanup(freep) float *w = weights(s, 11);
			cleanup(freep) float *row = malloc(s.nv * sizeof *row);
			cleanup(freep) float *amax = calloc(s.nv, sizeof *amax);
			cleanup(tile_free) struct tile want = tile_for(s, layout), got = tile_for(s, layout);
			uint64_t bad = 0;

			for (int pass = 0; pass < 2; pass++) {
				if (pass)
					pack_scales(&got, 0, amax, s.nv);
				for (uint32_t k = 0; k < s.h; k++) {
					for (uint32_t n = 0; n < s.nv; n++)
						row[n] = w[(size_t)n * s.h + k];
					if (pass)
						pack_row(&got, 0, k, amax, row, s.nv);
					else
						bad += pack_amax(amax, row, s.nv);
				}
			}
			cr_expect_eq(pack_ref(&want, 0, w, s.nv, s.h), bad);
			cr_expect(tiles_equal(&got, &want), "%u x %u, layout %d", s.nv, s.h, layout);
		}
}

Test(numbers, padding_is_a_column_of_zeros)
{
	cleanup(tile_free) struct tile t = tile_new(64, 128, LAYOUT_BLOCKED);
	memset(t.codes, 1, (size_t)t.kd * t.nd);
	tile_pad(&t, 5);
	for (uint32_t n = 0; n < t.nd; n++) {
		cr_expect_eq(t.scales[n], n < 5 ? 0 : 1.0f / 127.0f);
		for (uint32_t k = 0; k < t.kd; k++)
			cr_expect_eq(t.codes[tile_index(&t, k, n)], n < 5);
	}
}

static void cut(uint32_t nv, uint32_t tiles, uint32_t nd)
{
	struct geometry g;

	cr_assert(geometry_make(&g, nv, 100, 0, LAYOUT_BLOCKED));
	cr_expect(g.tiles == tiles && g.nd == nd && g.kd == 128 && g.nv == nv && g.h == 100,
		  "%u: %u tiles of %u", nv, g.tiles, g.nd);
	uint64_t columns = 0;
	for (uint32_t t = 0; t < g.tiles; t++)
		columns += geometry_columns(&g, t);
	cr_expect_eq(columns, nv);
	cr_expect_eq(geometry_bytes(&g), (uint64_t)tiles * nd * (128 + 4));
}

Test(numbers, default_tiles_are_few_and_equal)
{
	cut(1, 1, 128);
	cut(128, 1, 128);
	cut(129, 1, 256);
	cut(28672, 1, 28672);
	cut(28673, 2, 14464); /* 14337 rounded up to 128 */
	cut(32000, 2, 16000);
	cut(128256, 5, 25728);
}

Test(numbers, tiles_that_do_not_go_are_refused)
{
	struct geometry g;

	cr_expect(!geometry_make(&g, 1000, 64, 100, LAYOUT_BLOCKED));
	cr_expect(geometry_make(&g, 1000, 64, 100, LAYOUT_ROW_MAJOR) && g.tiles == 10 && g.nd == 100);
	cr_expect(geometry_make(&g, 1000, 64, 1024, LAYOUT_BLOCKED) && g.tiles == 1);
	cr_expect(!geometry_make(&g, 1000, 64, 1152, LAYOUT_BLOCKED));
	cr_expect(geometry_make(&g, 1000, 64, 1024, LAYOUT_ROW_MAJOR) && geometry_columns(&g, 0) == 1000);
	cr_expect(!geometry_make(&g, 1000, 64, 1025, LAYOUT_ROW_MAJOR));
	cr_expect(!geometry_make(&g, 1000, 64, UINT32_MAX, LAYOUT_ROW_MAJOR));
	cr_expect(!geometry_make(&g, 1000, UINT32_MAX, 0, LAYOUT_BLOCKED));
	cr_expect(!geometry_make(&g, UINT32_MAX, 1 << 20, 0, LAYOUT_BLOCKED));
}
