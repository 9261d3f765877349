/* How files that do not say how they are read are read: Q4NX, llama2.c, and the decoders of every type. */
#include "../dice.h"
#include "decode.h"
#include "hash.h"
#include "own.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int file_of(const void *bytes, size_t size)
{
	int fd = memfd_create("matrix", MFD_CLOEXEC);

	cr_assert(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	return fd;
}

/* The file of the container opened last. */
static int opened;

static int open_bytes(struct container **c, const void *bytes, size_t size, struct err *err)
{
	opened = file_of(bytes, size);
	return container_open(c, &(struct container_file){opened, "test"}, 1, "test", err);
}

static const char embedding_64x70[] = "\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[64,70],"
				      "\"data_offsets\":[%zu,%zu]},";

/* A safetensors file of lm_head.weight, I8 of that shape, and where there is one an embedding of 64 x 70. */
static struct container *q4nx_file(const char *shape, const void *data, size_t size, bool embedding)
{
	size_t more = embedding ? 64 * 70 * 2 : 0;
	cleanup(freep) char *file = calloc(1, size + more + 1000);
	char *header = file + 8;
	struct container *c = NULL;
	struct err err = {0};
	size_t used = (size_t)sprintf(header, "{");

	if (embedding)
		used += (size_t)sprintf(header + used, embedding_64x70, size, size + more);
	used += (size_t)sprintf(
		header + used, "\"lm_head.weight\":{\"dtype\":\"I8\",\"shape\":%s,\"data_offsets\":[0,%zu]}}",
		shape, size);
	memcpy(file, &(uint64_t){used}, 8);
	memcpy(header + used, data, size);
	cr_assert_eq(open_bytes(&c, file, 8 + used + size + more, &err), 0, "%s", err.text);
	return c;
}

static int head_matrix(struct matrix *m, const struct container *c, const struct matrix_options *options,
		       struct err *err)
{
	const struct tensor *t;
	enum head_reason why;

	cr_assert_eq(container_head(c, NULL, &t, &why, err), 0, "%s", err->text);
	return matrix_init(m, c, t, options, false, err);
}

static void refused(const char *shape, size_t size, bool embedding, struct matrix_options options, int code,
		    const char *names)
{
	cleanup(freep) char *data = calloc(1, size + 1);
	cleanup(container_freep) struct container *c = q4nx_file(shape, data, size, embedding);
	struct matrix m;
	struct err err = {0};

	cr_expect_eq(head_matrix(&m, c, &options, &err), code, "%s: %d, %s", shape, err.code, err.text);
	cr_expect(strstr(err.text, names), "%s: \"%s\" does not name \"%s\"", shape, err.text, names);
}

Test(q4nx, a_shape_that_agrees_with_nothing_known_is_refused_and_says_what_would_help)
{
	const struct matrix_options none = {0};

	refused("[2,5120]", 2 * 5120, false, none, NPU_E_NO_HEAD, "--k");
	refused("[3,5120]", 3 * 5120, true, none, NPU_E_NO_HEAD, "64 x 70");
	refused("[64,5120]", 64 * 5120, true, none, NPU_E_NO_HEAD, "I8 without a scale");
	refused("[2,2,5120]", 4 * 5120, true, none, NPU_E_NO_HEAD, "70 columns");
	refused("[2,2,4736]", 4 * 4736, true, none, NPU_E_NO_HEAD, "--k");
	refused("[3,5120]", 3 * 5120, true, (struct matrix_options){.k = 300}, NPU_E_NO_HEAD,
		"whole rows of 2");
	refused("[2,1,5120]", 2 * 5120, true, (struct matrix_options){.k = 300}, NPU_E_NO_HEAD, "--k of 300");
	refused("[0,5120]", 0, true, none, NPU_E_NO_HEAD, "no Q4NX chunks");
	refused("[1,1,2,5120]", 2 * 5120, true, none, NPU_E_NO_HEAD, "4 dimensions");
	refused("[2,4608]", 2 * 4608, true, none, NPU_E_NO_HEAD, "I8 without a scale");
	refused("[1,521,5120]", 521 * 5120, false, none, NPU_E_TOO_LARGE, "133376 columns");
}

Test(q4nx, an_option_that_does_not_go_with_the_chunks_is_refused)
{
	const struct matrix_options is_signed = {.is_signed = true}, b = {.q8 = Q8_B};
	const struct matrix_options transpose = {.transpose = true};

	refused("[2,4736]", 2 * 4736, true, is_signed, NPU_E_BAD_VALUE, "--signed");
	refused("[2,8704]", 2 * 8704, true, is_signed, NPU_E_BAD_VALUE, "this is q8");
	refused("[2,5120]", 2 * 5120, true, b, NPU_E_BAD_VALUE, "--q8");
	refused("[2,8704]", 2 * 8704, true, transpose, NPU_E_BAD_VALUE, "--transpose");
}

Test(q4nx, options_of_q4nx_are_refused_for_a_plain_matrix)
{
	static const char header[] =
		"{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]}}";
	unsigned char file[8 + sizeof header - 1 + 4] = {sizeof header - 1};
	const struct matrix_options all[] = {{.q8 = Q8_A}, {.is_signed = true}, {.k = 1}};
	cleanup(container_freep) struct container *c = NULL;
	struct err err = {0};
	struct matrix m;

	memcpy(file + 8, header, sizeof header - 1);
	cr_assert_eq(open_bytes(&c, file, sizeof file, &err), 0, "%s", err.text);
	for (size_t i = 0; i < 3; i++) {
		cr_expect_eq(head_matrix(&m, c, &all[i], &err), NPU_E_BAD_VALUE);
		cr_expect(strstr(err.text, "F32 tensor"), "%s", err.text);
	}
	cr_expect_eq(head_matrix(&m, c, NULL, &err), 0);
}

/* Chunks of 8704 bytes as a quantiser makes them: each group of 32 has one code of full scale. */
static void fill_q8(unsigned char *chunks, size_t count, bool b)
{
	uint64_t state = 7;

	for (size_t i = 0; i < count; i++, chunks += 8704)
		for (uint32_t r = 0; r < 32; r++)
			for (uint32_t k = 0, full = 0; k < 256; k++) {
				uint32_t at = b ? r / 16 * 4096 + k * 16 + r % 16 : k * 32 + r;
				if (k % 32 == 0) {
					memcpy(chunks + 2 * (k / 32 * 32 + r), "\x80\x3f", 2); /* 1 */
					full = k + (uint32_t)(splitmix(&state) % 32);
				}
				chunks[512 + at] =
					(unsigned char)(k == full ? 127
								  : (int)(splitmix(&state) % 201) - 100);
			}
}

Test(q4nx, auto_finds_the_order_of_q8_codes_and_says_why)
{
	for (int b = 0; b < 2; b++) {
		static unsigned char chunks[4 * 8704];
		fill_q8(chunks, 4, b);
		cleanup(container_freep) struct container *c =
			q4nx_file("[4,1,8704]", chunks, sizeof chunks, true);
		struct matrix m;
		struct err err = {0};
		cr_assert_eq(head_matrix(&m, c, NULL, &err), 0, "%s", err.text);
		cr_expect_str_eq(m.reading, b ? "q4nx:q8b k=70" : "q4nx:q8a k=70");
		cr_expect(strstr(m.note, b ? "layout b: of 1024" : "layout a: of 1024"), "%s", m.note);

		/* Told, nothing is decided; told wrongly, it is read wrongly. */
		cr_assert_eq(head_matrix(&m, c, &(struct matrix_options){.q8 = Q8_B}, &err), 0);
		cr_expect(strcmp(m.reading, "q4nx:q8b k=70") == 0 && m.note[0] == '\0', "%s", m.note);
	}
}

Test(q4nx, auto_does_not_guess_where_the_codes_do_not_tell)
{
	static unsigned char chunks[2 * 8704];
	uint64_t state = 1;

	for (size_t i = 0; i < sizeof chunks; i++)
		chunks[i] = (unsigned char)(splitmix(&state) % 60);
	cleanup(container_freep) struct container *c = q4nx_file("[2,8704]", chunks, sizeof chunks, true);
	struct matrix m;
	struct err err = {0};
	cr_expect_eq(head_matrix(&m, c, NULL, &err), NPU_E_NO_HEAD);
	cr_expect(strstr(err.text, "--q8"), "%s", err.text);
	cr_expect_eq(head_matrix(&m, c, &(struct matrix_options){.q8 = Q8_A}, &err), 0);

	refused("[2,8704]", 2 * 8704, true, (struct matrix_options){0}, NPU_E_NO_HEAD, "of 0 groups");
}

Test(q4nx, auto_reads_no_more_of_the_file_than_there_is)
{
	static unsigned char chunks[2 * 8704];
	cleanup(container_freep) struct container *c = q4nx_file("[2,8704]", chunks, sizeof chunks, true);
	struct matrix m;
	struct err err = {0};

	cr_assert_eq(ftruncate(opened, 9000), 0);
	cr_expect_eq(head_matrix(&m, c, NULL, &err), NPU_E_FILE_CHANGED, "%d %s", err.code, err.text);
}

static void expect_reading(const char *shape, size_t size, bool embedding, struct matrix_options options,
			   const char *reading, uint32_t h, uint32_t read_width)
{
	cleanup(freep) char *data = malloc(size);
	memset(data, 1, size);
	cleanup(container_freep) struct container *c = q4nx_file(shape, data, size, embedding);
	struct matrix m;
	struct err err = {0};

	cr_assert_eq(head_matrix(&m, c, &options, &err), 0, "%s: %s", shape, err.text);
	cr_expect_str_eq(m.reading, reading);
	cr_expect(m.nv == 64 && m.rows == 64 && m.h == h && m.width == h && m.band_rows == 32 &&
			  matrix_bands(&m) == 2 && m.read_width == read_width,
		  "%s", shape);
}

Test(q4nx, the_reading_names_kind_options_and_cut_columns)
{
	const struct matrix_options none = {0}, is_signed = {.is_signed = true};

	expect_reading("[2,5120]", 2 * 5120, true, none, "q4nx:q4_1 k=70", 70, 5120);
	expect_reading("[2,1,5120]", 2 * 5120, true, is_signed, "q4nx:q4_1 signed k=70", 70, 5120);
	expect_reading("[2,4736]", 2 * 4736, true, none, "q4nx:q4k k=70", 70, 4736);
	expect_reading("[2,8704]", 2 * 8704, true, (struct matrix_options){.q8 = Q8_B}, "q4nx:q8b k=70", 70,
		       8704);
	expect_reading("[2,3,5120]", 6 * 5120, true, (struct matrix_options){.k = 300}, "q4nx:q8c k=300", 300,
		       5120);
	expect_reading("[2,2,5120]", 4 * 5120, true, (struct matrix_options){.k = 512}, "q4nx:q4_1", 512,
		       5120);
	expect_reading("[4,5120]", 4 * 5120, false, (struct matrix_options){.k = 257}, "q4nx:q4_1 k=257", 257,
		       5120);
	expect_reading("[2,3,4736]", 6 * 4736, false, none, "q4nx:q4k", 768, 4736);
}

/* FastFlowLM's lfm2, and models of pictures and text, call it otherwise. */
Test(q4nx, the_embedding_tells_the_columns_whatever_it_is_called)
{
	static const char *const names[] = {"model.embed_tokens.weight", "model.token_embd.weight",
					    "model.language_model.embed_tokens.weight"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		static char file[8 + 1000 + 2 * 5120 + 64 * 70 * 2];
		cleanup(container_freep) struct container *c = NULL;
		struct matrix m;
		struct err err = {0};
		uint64_t used = (uint64_t)sprintf(
			file + 8,
			"{\"%s\":{\"dtype\":\"BF16\",\"shape\":[64,70],\"data_offsets\":[10240,19200]},"
			"\"lm_head.weight\":{\"dtype\":\"I8\",\"shape\":[2,5120],\"data_offsets\":[0,10240]}"
			"}",
			names[i]);
		memcpy(file, &used, 8);
		cr_assert_eq(open_bytes(&c, file, 8 + used + 19200, &err), 0, "%s", err.text);
		cr_assert_eq(head_matrix(&m, c, NULL, &err), 0, "%s: %s", names[i], err.text);
		cr_expect_str_eq(m.reading, "q4nx:q4_1 k=70");
	}
}

Test(q4nx, zero_points_that_are_all_zero_are_pointed_out)
{
	static unsigned char chunks[2 * 5120];
	struct matrix m;
	struct err err = {0};

	memset(chunks, 0x33, sizeof chunks);
	for (int i = 0; i < 2; i++)
		memset(chunks + i * 5120 + 512, 0, 512);
	cleanup(container_freep) struct container *c = q4nx_file("[2,5120]", chunks, sizeof chunks, true);
	cr_assert_eq(head_matrix(&m, c, NULL, &err), 0);
	cr_expect(strstr(m.note, "--signed"), "%s", m.note);
	cr_assert_eq(head_matrix(&m, c, &(struct matrix_options){.is_signed = true}, &err), 0);
	cr_expect_str_eq(m.note, "");
	chunks[5120 + 700] = 1;
	cleanup(container_freep) struct container *other = q4nx_file("[2,5120]", chunks, sizeof chunks, true);
	cr_assert_eq(head_matrix(&m, other, NULL, &err), 0);
	cr_expect_str_eq(m.note, "");
}

/* By hand, as the container's description has it: scale 2 and zero -3 for row 1, 1 for columns 32.. of
 * row 22. */
Test(q4nx, nibbles_of_a_chunk_are_where_the_format_has_them)
{
	cleanup(freep) unsigned char *chunk = calloc(1, 5120);
	cleanup(freep) float *w = calloc(32, 70 * sizeof *w);
	memcpy(chunk + 2, "\x00\x40", 2);
	memcpy(chunk + 512 + 2, "\x40\xc0", 2);
	chunk[1024] = 0x50;
	chunk[1024 + 2048 + 8 * 37 + 3] = 0x0f;
	memcpy(chunk + 2 * (32 + 22), "\x80\x3f", 2);
	for (size_t i = 0; decoders_variant(i); i++) {
		memset(w, 0xff, 32 * 70 * sizeof *w);
		decoders_variant(i)->q4nx[Q4NX_Q4_1](chunk, 70, w);
		cr_expect(w[70] == 7 && w[0] == 0 && w[71] == -3 && w[22 * 70 + 37] == 15);
		decoders_variant(i)->q4nx[Q4NX_Q4_1_SIGNED](chunk, 70, w);
		cr_expect(w[70] == 10 && w[22 * 70 + 37] == -1 && w[31 * 70 + 69] == 0);
	}
}

static const struct {
	uint32_t values, bytes;
} types[TYPE_COUNT] = {
#define TYPE(name, values, bytes) [TYPE_##name] = {values, bytes},
#include "types.def"
#undef TYPE
};

static void expect_same_bits(const float *got, const float *want, size_t count, const char *what,
			     const char *variant)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t a, b;
		memcpy(&a, &got[i], 4);
		memcpy(&b, &want[i], 4);
		/* Which NaN it is counts nowhere: every one is code 0. */
		cr_assert(a == b || (isnan(got[i]) && isnan(want[i])), "%s, %s: value %zu is %a, not %a",
			  what, variant, i, (double)got[i], (double)want[i]);
	}
}

Test(decode, every_variant_has_the_bits_of_the_reference_at_any_address_and_length)
{
	const struct decoders *ref = NULL;
	uint64_t state = 11;

	for (size_t i = 0; decoders_variant(i); i++)
		ref = decoders_variant(i);
	cr_assert_str_eq(ref->variant, "ref");
	for (int round = 0; round < 40; round++)
		for (size_t type = 0; type < TYPE_COUNT; type++) {
			if (!ref->blocks[type])
				continue;
			size_t blocks = types[type].values == 1 ? 1 + splitmix(&state) % 131
								: 1 + splitmix(&state) % 5;
			size_t count = blocks * types[type].values, size = blocks * types[type].bytes;
			/* The input ends where the memory does, which a sanitizer sees; at any alignment. */
			cleanup(freep) unsigned char *bytes = malloc(size + 1);
			cleanup(freep) float *want = malloc(count * sizeof *want),
					     *got = malloc(count * sizeof *got);
			for (size_t i = 0; i < size; i++)
				bytes[1 + i] = (unsigned char)splitmix(&state);
			ref->blocks[type](bytes + 1, count, want);
			for (size_t i = 0; decoders_variant(i); i++) {
				decoders_variant(i)->blocks[type](bytes + 1, count, got);
				expect_same_bits(got, want, count, tensor_type_name((enum tensor_type)type),
						 decoders_variant(i)->variant);
			}
		}
}

Test(decode, every_variant_reads_q4nx_chunks_of_any_width_alike)
{
	static const struct {
		const char *reading;
		uint32_t columns, bytes;
	} kinds[] = {
#define KIND(name, reading, columns, bytes) {reading, columns, bytes},
		Q4NX_KINDS(KIND)
#undef KIND
	};
	const struct decoders *ref = NULL;
	uint64_t state = 12;

	for (size_t i = 0; decoders_variant(i); i++)
		ref = decoders_variant(i);
	for (int round = 0; round < 20; round++)
		for (size_t kind = 0; kind < Q4NX_COUNT; kind++) {
			uint32_t width = (uint32_t)(1 + splitmix(&state) % 600);
			size_t size =
				(width + kinds[kind].columns - 1) / kinds[kind].columns * kinds[kind].bytes;
			size_t count = (size_t)width * Q4NX_ROWS;
			cleanup(freep) unsigned char *bytes = malloc(size + 1);
			cleanup(freep) float *want = malloc(count * sizeof *want),
					     *got = malloc(count * sizeof *got);
			for (size_t i = 0; i < size; i++)
				bytes[1 + i] = (unsigned char)splitmix(&state);
			ref->q4nx[kind](bytes + 1, width, want);
			for (size_t i = 0; decoders_variant(i); i++) {
				decoders_variant(i)->q4nx[kind](bytes + 1, width, got);
				expect_same_bits(got, want, count, kinds[kind].reading,
						 decoders_variant(i)->variant);
			}
		}
}

Test(decode, types_without_an_exact_reading_are_refused_by_name)
{
	static const struct {
		uint32_t type, k, bytes;
		const char *name;
	} sized[] = {{39, 32, 17, "MXFP4"}, {40, 64, 36, "NVFP4"},    {41, 128, 18, "Q1_0"},
		     {42, 64, 18, "Q2_0"},  {23, 256, 136, "IQ4_XS"}, {24, 32, 32, "I8 without a scale"},
		     {28, 1, 8, "F64"},	    {15, 256, 292, "Q8_K"}};

	for (size_t i = 0; i < sizeof sized / sizeof *sized; i++) {
		unsigned char file[512] =
			"GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0d\0\0\0\0\0\0\0output.weight"
			"\2\0\0\0";
		cleanup(container_freep) struct container *c = NULL;
		struct matrix m;
		struct err err = {0};
		size_t at = 24 + 8 + 13 + 4;
		memcpy(file + at, &(uint64_t[]){sized[i].k, 1}, 16);
		memcpy(file + at + 16, &sized[i].type, 4);
		cr_assert_eq(open_bytes(&c, file, 96 + sized[i].bytes, &err), 0, "%s: %s", sized[i].name,
			     err.text);
		cr_expect_eq(head_matrix(&m, c, NULL, &err), NPU_E_NO_HEAD);
		cr_expect(strstr(err.text, sized[i].name) && strstr(err.text, "IQ4_NL"), "%s", err.text);
	}
}

/* A checkpoint of one layer: dim 4, hidden 3, 2 heads of 2, one of keys and values, `vocabulary` rows, 5
 * places. */
static size_t llama2c_file(int32_t *file, int32_t vocabulary)
{
	const int32_t header[7] = {4, 3, 1, 2, 1, vocabulary, 5};
	size_t rows = (size_t)abs(vocabulary);
	size_t values =
		rows * 4 + 4 + 16 + 8 + 8 + 16 + 4 + 12 + 12 + 12 + 4 + 10 + (vocabulary < 0 ? rows * 4 : 0);

	memcpy(file, header, sizeof header);
	for (size_t i = 0; i < values; i++)
		memcpy(file + 7 + i, &(float){(float)i}, 4);
	return 28 + 4 * values;
}

Test(llama2c, a_tied_and_an_untied_checkpoint_have_their_heads)
{
	for (int32_t vocabulary = -6; vocabulary <= 6; vocabulary += 12) {
		int32_t file[300];
		size_t size = llama2c_file(file, vocabulary);
		cleanup(container_freep) struct container *c = NULL;
		const struct tensor *t;
		enum head_reason why;
		struct matrix m;
		struct err err = {0};
		float row[4];

		cr_assert_eq(open_bytes(&c, file, size, &err), 0, "%s", err.text);
		cr_expect_str_eq(container_format(c), "llama2.c");
		cr_assert_eq(container_head(c, NULL, &t, &why, &err), 0);
		cr_expect_str_eq(t->name, vocabulary < 0 ? "wcls" : "token_embedding_table");
		cr_expect_eq(why, vocabulary < 0 ? HEAD_UNTIED : HEAD_TIED);
		cr_assert_eq(matrix_init(&m, c, t, NULL, false, &err), 0);
		cr_expect(m.nv == 6 && m.h == 4);
		cr_assert_eq(matrix_read(&m, 1, 1, row, &err), 0);
		/* 106 values are before the classifier. */
		cr_expect(row[0] == (vocabulary < 0 ? 24 + 106 + 4 : 4), "%a", (double)row[0]);
	}
}

Test(llama2c, a_file_that_is_cut_or_has_a_tail_is_refused_with_both_sizes)
{
	int32_t file[300];
	size_t size = llama2c_file(file, -6);

	for (size_t other = size - 4; other <= size + 4; other += 8) {
		cleanup(container_freep) struct container *c = NULL;
		struct err err = {0};
		char both[64];
		cr_expect_eq(open_bytes(&c, file, other, &err), NPU_E_BAD_CONTAINER);
		snprintf(both, sizeof both, "%zu bytes and has %zu", size, other);
		cr_expect(strstr(err.text, "llama2.c") && strstr(err.text, both), "%s", err.text);
	}
}

Test(llama2c, numbers_no_model_has_make_no_checkpoint)
{
	const int32_t bad[7] = {0, -3, 0, 3, 3, 0, -1};

	for (int i = 0; i < 7; i++) {
		int32_t file[300];
		size_t size = llama2c_file(file, 6);
		cleanup(container_freep) struct container *c = NULL;
		struct err err = {0};
		file[i] = bad[i];
		cr_expect_eq(open_bytes(&c, file, size, &err), NPU_E_BAD_CONTAINER, "field %d", i);
		cr_expect(strstr(err.text, "taken for safetensors"), "%s", err.text);
	}
}
