#include "inputs.h"
#include "hash.h"
#include "own.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static void need_data(void)
{
	if (access(data_dir(), R_OK) != 0)
		cr_skip_test("no test data in %s; NPUD_TEST_DATA says where it is", data_dir());
}

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int open_one(struct container **out, int fd, const char *name, struct err *err)
{
	return container_open(out, &(struct container_file){fd, name}, 1, name, err);
}

/* A file without a name, holding `size` bytes. */
static int file_of(const void *bytes, size_t size)
{
	char path[] = "/tmp/npud-container.XXXXXX";
	int fd = mkstemp(path);

	cr_assert(fd >= 0);
	unlink(path);
	cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
	return fd;
}

static int safetensors_of(const char *header, const void *data, size_t size)
{
	uint64_t length = strlen(header);
	cleanup(freep) char *file = malloc(8 + length + size);

	memcpy(file, &length, 8);
	memcpy(file + 8, header, length);
	memcpy(file + 8 + length, data, size);
	return file_of(file, 8 + length + size);
}

struct bytes {
	unsigned char at[8192];
	size_t size;
};

static void put(struct bytes *b, const void *from, size_t size)
{
	cr_assert(size <= sizeof b->at - b->size);
	memcpy(b->at + b->size, from, size);
	b->size += size;
}

static void put_u32(struct bytes *b, uint32_t value)
{
	put(b, &value, 4);
}

static void put_u64(struct bytes *b, uint64_t value)
{
	put(b, &value, 8);
}

static void put_string(struct bytes *b, const char *s)
{
	put_u64(b, strlen(s));
	put(b, s, strlen(s));
}

static void put_gguf(struct bytes *b, uint64_t tensors)
{
	put(b, "GGUF", 4);
	put_u32(b, 3);
	put_u64(b, tensors);
	put_u64(b, 0);
}

static void put_tensor(struct bytes *b, const char *name, uint64_t k, uint64_t n, uint32_t type,
		       uint64_t offset)
{
	put_string(b, name);
	put_u32(b, 2);
	put_u64(b, k);
	put_u64(b, n);
	put_u32(b, type);
	put_u64(b, offset);
}

static void put_padding(struct bytes *b)
{
	while (b->size % 32)
		put(b, "", 1);
}

/* Opens, finds the head and reads all of it. What fails is in `step`. */
static int read_head(int fd, const char *label, const char **step, struct err *err)
{
	cleanup(container_freep) struct container *c = NULL;
	const struct tensor *t;
	enum head_reason why;
	struct matrix m;
	int code;

	*step = "open";
	code = open_one(&c, fd, label, err);
	if (code)
		return code;
	*step = "head";
	code = container_head(c, NULL, &t, &why, err);
	if (!code)
		code = matrix_init(&m, c, t, NULL, why == HEAD_TIED, err);
	if (code)
		return code;
	*step = "read";
	for (uint32_t i = 0; i < matrix_bands(&m); i++) {
		cleanup(freep) void *stored = malloc(m.band_bytes);
		cleanup(freep) float *values = malloc((size_t)m.band_rows * m.width * sizeof *values);
		code = matrix_read(&m, i, 1, stored, err);
		if (code)
			return code;
		matrix_decode(&m, stored, 1, values);
	}
	return 0;
}

/* What the sentence must name, by how the file's name begins. */
static const char *field_of(const char *file)
{
	static const struct {
		const char *begins, *names;
	} fields[] = {
		{"gguf/cut-kv", "tensors"},
		{"gguf/cut-data", "data"},
		{"gguf/version", "version"},
		{"gguf/nkv-less", "dimensions"}, /* a key taken for a tensor */
		{"gguf/nkv", "keys"},
		{"gguf/ntensors-more", "dimensions"}, /* padding taken for a tensor */
		{"gguf/ntensors", "tensors"},
		{"gguf/keylen", "a key"},
		{"gguf/strlen", "key \""},
		{"gguf/namelen", "name"},
		{"gguf/arr-nested", "an array of arrays"},
		{"gguf/arr-deep", "an array of arrays"},
		{"gguf/arr", "key \""},
		{"gguf/vtype", "value type"},
		{"gguf/align-big", "data"},
		{"gguf/align", "general.alignment"},
		{"gguf/ndims", "dimensions"},
		{"gguf/dims", "dimensions"},
		{"gguf/dim-0", "empty"},
		{"gguf/type", "type"},
		{"gguf/block", "blocks of 32 (Q4_0)"},
		{"gguf/offset", "offset"},
		{"gguf/overlap", "offset"},
		{"gguf/name-64", "name"},
		{"gguf/notensors", "no tensors"},
		{"gguf/many-empty", "lm_head.weight"},
		{"gguf/empty", "the file is empty"},
		{"safetensors/cut-0", "the file is empty"},
		{"gguf-gridcore/bad-version", "version"},
		{"gguf-gridcore/v", "no tensors"},
		{"safetensors/other", "lm_head.weight"},
		{"safetensors/none", "no tensors"},
		{"safetensors/meta-only", "no tensors"},
		{"safetensors/n0", "empty"},
		{"safetensors/k0", "empty"},
		{"safetensors/n-0", "header"},
		{"safetensors/n-", "header would have"},
		{"safetensors/json-entry", "entry"},
		{"safetensors/json-deep", "nests deeper"},
		{"safetensors/json", "header at byte"},
		{"safetensors/utf8", "decode byte"},
		{"safetensors/t-neg", "dimension 0"},
		{"safetensors/t-float", "dimension 0"},
		{"safetensors/t-obj", "shape is missing"},
		{"safetensors/t-null", "shape is missing"},
		{"safetensors/t-wrapb", "above 2^64"},
		{"safetensors/t-wrap4", "shape's product"},
		{"safetensors/t-large", "data_offsets"},
		{"safetensors/t-offhole", "starts at byte"},
		{"safetensors/t-off64", "too big integer"},
		{"safetensors/t-off", "data_offsets"},
		{"safetensors/t-rev", "data_offsets"},
		{"safetensors/t-u64", "too big integer"},
		{"safetensors/t-", "header at byte"},
		{"safetensors/dtype", "dtype"},
		{"safetensors/no-shape", "shape is missing"},
		{"safetensors/no-data", "data_offsets"},
		{"safetensors/dup", "duplicate"},
		{"safetensors/short", "data_offsets"},
		{"safetensors/meta-arr", "__metadata__"},
		{"safetensors/f4", "F4"},
		{"safetensors/i32", "I32"},
		{"safetensors/d3", "dimensions"},
		{"q4nx/chunk", "I8 without a scale"},
		{"q4nx/noK", "--k"},
		{"q4nx/grid", "768 columns"},
		{"q4nx/zero", "no Q4NX chunks"},
		{"q4nx/d1", "shape"},
		{"q4nx/d4", "[1, 1, 2, 5120]"},
		{"q4nx/size", "data_offsets"},
	};

	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (strncmp(file, fields[i].begins, strlen(fields[i].begins)) == 0)
			return fields[i].names;
	return "byte";
}

static void check_verdict(const char *file, const char *verdict)
{
	char path[1024];
	const char *step = "";
	struct err err = {0};

	snprintf(path, sizeof path, "%s/%s", data_dir(), file);
	cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0, "%s cannot be opened", path);
	int code = read_head(fd, file, &step, &err);

	bool opened = strcmp(step, "open") != 0;
	if (code)
		cr_expect(err.text[0] && err.code == code, "%s: an error without a sentence", file);
	if (code && strncmp(file, "bad/", 4) == 0) {
		const char *said = strstr(err.text, ": ");
		cr_expect(code != NPU_E_BAD_CONTAINER || strstr(err.text, "convert it") ||
				  strstr(err.text, "save it with") || strstr(err.text, "name another file"),
			  "%s: \"%s\" does not say what to do", file, err.text);
		cr_expect(said && strstr(said, field_of(file + 4)), "%s: \"%s\" does not name \"%s\"", file,
			  err.text, field_of(file + 4));
	}
	for (const char *p = err.text; *p; p++)
		cr_expect((unsigned char)*p >= 0x20 && *p != 0x7f, "%s: a control byte in the sentence",
			  file);
	if (strcmp(verdict, "accept") == 0)
		cr_expect(code == 0, "%s is sound, but %s: %s", file, step, err.text);
	else if (strcmp(verdict, "reject") == 0)
		cr_expect(code == NPU_E_BAD_CONTAINER && !opened, "%s is not sound: %d at %s, %s", file, code,
			  step, err.text);
	else if (strcmp(verdict, "nohead") == 0)
		cr_expect(code == NPU_E_NO_HEAD && opened, "%s has no head: %d at %s, %s", file, code, step,
			  err.text);
	else
		cr_expect((code == 0 || code == NPU_E_NO_HEAD) && opened, "%s is sound: %d at %s, %s", file,
			  code, step, err.text);
}

Test(container, every_hostile_file_gets_the_verdict_of_the_manifest)
{
	char line[4096], path[1024];
	int seen = 0;

	need_data();
	snprintf(path, sizeof path, "%s/bad/MANIFEST.tsv", data_dir());
	cleanup(fclosep) FILE *manifest = fopen(path, "re");
	cr_assert(manifest, "%s cannot be opened", path);
	while (fgets(line, sizeof line, manifest)) {
		char *rest = line, *file = strsep(&rest, "\t"), *verdict = strsep(&rest, "\t");
		if (strncmp(file, "image/", 6) == 0)
			continue;
		snprintf(path, sizeof path, "bad/%s", file);
		check_verdict(path, verdict);
		seen++;
	}
	cr_expect(seen > 150, "only %d files in the manifest", seen);
}

static void check_directory(const char *name, const char *const *exceptions, const char *usual,
			    const char *exceptional)
{
	char path[1024];

	need_data();
	snprintf(path, sizeof path, "%s/%s", data_dir(), name);
	cleanup(closedirp) DIR *dir = opendir(path);
	cr_assert(dir, "%s cannot be opened", path);
	for (struct dirent *e; (e = readdir(dir));) {
		const char *verdict = usual;
		if (e->d_name[0] == '.')
			continue;
		for (const char *const *x = exceptions; *x; x++)
			if (strcmp(*x, e->d_name) == 0)
				verdict = exceptional;
		snprintf(path, sizeof path, "%s/%s", name, e->d_name);
		check_verdict(path, verdict);
	}
}

Test(container, gridcores_hostile_files_are_refused)
{
	static const char *const sound[] = {"v3-empty.bin", "valid-small.gguf", NULL};
	check_directory("bad/gguf-gridcore", sound, "reject", "nohead");
}

Test(container, real_llama2c_and_q4nx_files_are_sound)
{
	static const char *const none[] = {NULL};
	check_directory("llama2c", none, "accept", "");
	check_directory("q4nx", none, "accept", "");
}

Test(container, real_gguf_files_are_sound)
{
	static const char *const none[] = {NULL};
	check_directory("gguf", none, "sound", "");
}

Test(container, real_safetensors_files_are_sound_but_the_one_with_a_tail)
{
	static const char *const tail[] = {"las7-tiny-trailing.safetensors", NULL};
	check_directory("safetensors", tail, "sound", "reject");
}

static void open_matrix(struct container **c, struct matrix *m, int fd, const char *name, bool transpose)
{
	const struct tensor *t;
	enum head_reason why;
	struct err err;

	cr_assert_eq(open_one(c, fd, "test", &err), 0, "%s", err.text);
	cr_assert_eq(container_head(*c, name, &t, &why, &err), 0, "%s", err.text);
	cr_assert_eq(matrix_init(m, *c, t, &(struct matrix_options){.transpose = transpose}, why == HEAD_TIED,
				 &err),
		     0, "%s", err.text);
}

Test(container, every_f16_pattern_decodes_exactly)
{
	static uint16_t halves[65536];
	static float values[65536];
	cleanup(container_freep) struct container *c = NULL;
	struct matrix m;
	struct err err;

	for (unsigned i = 0; i < 65536; i++)
		halves[i] = (uint16_t)i;
	cleanup(closep) int fd = safetensors_of(
		"{\"lm_head.weight\":{\"dtype\":\"F16\",\"shape\":[256,256],\"data_offsets\":[0,131072]}}",
		halves, sizeof halves);
	open_matrix(&c, &m, fd, NULL, false);
	cr_assert_eq(matrix_read(&m, 0, 256, halves, &err), 0);
	matrix_decode(&m, halves, 256, values);
	for (unsigned i = 0; i < 65536; i++) {
		int exponent = (i >> 10) & 31, fraction = i & 1023;
		double want = exponent == 0    ? ldexp(fraction, -24)
			      : exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
					       : ldexp(1024 + fraction, exponent - 25);
		if (i & 0x8000)
			want = -want;
		cr_assert(isnan(want) ? isnan(values[i]) : (double)values[i] == want, "%04x is %a, not %a", i,
			  (double)values[i], want);
		cr_assert_eq(!!signbit(values[i]), i >> 15, "sign of %04x", i);
	}
}

Test(container, every_bf16_pattern_is_the_upper_half_of_a_float)
{
	static uint16_t uppers[65536];
	static float values[65536];
	cleanup(container_freep) struct container *c = NULL;
	struct matrix m;
	struct err err;

	for (unsigned i = 0; i < 65536; i++)
		uppers[i] = (uint16_t)i;
	cleanup(closep) int fd = safetensors_of(
		"{\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[256,256],\"data_offsets\":[0,131072]}}",
		uppers, sizeof uppers);
	open_matrix(&c, &m, fd, NULL, true);
	cr_expect_str_eq(m.reading, "BF16^T");
	cr_assert_eq(matrix_read(&m, 0, 256, uppers, &err), 0);
	matrix_decode(&m, uppers, 256, values);
	for (unsigned i = 0; i < 65536; i++) {
		uint32_t bits;
		memcpy(&bits, &values[i], 4);
		cr_assert_eq(bits, i << 16);
	}
}

Test(container, q8_0_is_a_scale_times_int8_and_shapes_are_slowest_first)
{
	cleanup(container_freep) struct container *c = NULL;
	struct bytes b = {0};
	unsigned char stored[2 * 3 * 34];
	float values[3 * 64];
	struct matrix m;
	struct err err;
	/* 1.5, -2^-24 (the smallest denormal), 65504, 1, 0, -0.75 */
	static const uint16_t scales[6] = {0x3e00, 0x8001, 0x7bff, 0x3c00, 0, 0xba00};
	static const double wants[6] = {1.5, -0x1p-24, 65504, 1, 0, -0.75};

	put_gguf(&b, 1);
	put_tensor(&b, "token_embd.weight", 64, 3, 8, 0);
	put_padding(&b);
	for (int block = 0; block < 6; block++) {
		put(&b, &scales[block], 2);
		for (int k = 0; k < 32; k++)
			put(&b, &(int8_t){(int8_t)(k == 0 ? -128 : k == 1 ? 127 : 7 * k - 100 + block)}, 1);
	}
	cleanup(closep) int fd = file_of(b.at, b.size);
	open_matrix(&c, &m, fd, NULL, false);
	cr_expect(m.nv == 3 && m.h == 64 && m.width == 64 && m.rows == 3 && m.tied && m.band_bytes == 68);
	cr_expect_str_eq(m.reading, "Q8_0");
	cr_assert_eq(matrix_read(&m, 0, 3, stored, &err), 0);
	matrix_decode(&m, stored, 3, values);
	for (int i = 0; i < 192; i++) {
		int k = i % 32, code = k == 0 ? -128 : k == 1 ? 127 : 7 * k - 100 + i / 32;
		cr_expect((double)values[i] == wants[i / 32] * code, "value %d is %a", i, (double)values[i]);
	}
}

Test(container, a_transposed_matrix_has_its_sides_exchanged)
{
	cleanup(container_freep) struct container *c = NULL;
	float data[6] = {1, 2, 3, 4, 5, 6}, stored[3], values[3];
	struct matrix m;
	struct err err;

	cleanup(closep) int fd = safetensors_of(
		" {\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}\n ", data, sizeof data);
	open_matrix(&c, &m, fd, "w", true);
	cr_expect(m.nv == 3 && m.h == 2 && m.width == 3 && m.rows == 2 && m.band_bytes == 12);
	cr_expect_str_eq(m.reading, "F32^T");
	cr_assert_eq(matrix_read(&m, 1, 1, stored, &err), 0);
	matrix_decode(&m, stored, 1, values);
	cr_expect(values[0] == 4 && values[1] == 5 && values[2] == 6);
}

Test(container, a_file_cut_after_opening_is_an_error_and_no_signal)
{
	cleanup(container_freep) struct container *c = NULL;
	float data[6] = {0}, stored[6];
	struct matrix m;
	struct err err = {0};

	cleanup(closep) int fd = safetensors_of(
		"{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", data,
		sizeof data);
	open_matrix(&c, &m, fd, NULL, false);
	cr_assert_eq(ftruncate(fd, (off_t)(m.tensor->offset + 20)), 0);
	cr_expect_eq(matrix_read(&m, 0, 1, stored, &err), 0);
	cr_expect_eq(matrix_read(&m, 1, 1, stored, &err), NPU_E_FILE_CHANGED);
	cr_expect(strstr(err.text, "lm_head.weight"), "%s", err.text);
	cr_expect_str_eq(err.detail.file, "test");
}

Test(container, a_missing_name_is_told_with_names_that_are_there)
{
	cleanup(container_freep) struct container *c = NULL;
	const struct tensor *t;
	enum head_reason why;
	struct err err = {0};

	cleanup(closep) int fd = safetensors_of(
		"{\"an\\u001b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
		"\"lm_head.weight\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
		"\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[4,8]}}",
		"abcdefgh", 8);
	cr_assert_eq(open_one(&c, fd, "te\nst", &err), 0, "%s", err.text);
	cr_expect_eq(container_count(c), 3);
	cr_expect_str_eq(container_format(c), "safetensors");
	cr_expect_eq(container_head(c, "head\t", &t, &why, &err), NPU_E_NO_HEAD);
	cr_expect(strstr(err.text, "\"an\\x1b\"") && strstr(err.text, "head\\x09") &&
			  strstr(err.text, "te\\x0ast"),
		  "%s", err.text);

	cr_expect(strstr(err.text, "of its 3: \"lm_head.weight\""), "%s", err.text);

	/* A head of no use is not passed over for the embedding: that would be another model. */
	struct matrix m;
	cr_assert_eq(container_head(c, "", &t, &why, &err), 0);
	cr_expect_eq(why, HEAD_UNTIED);
	cr_expect_eq(matrix_init(&m, c, t, NULL, false, &err), NPU_E_NO_HEAD);
	cr_expect(strstr(err.text, "I32") && strstr(err.text, "F32, F16, BF16 here"), "%s", err.text);
	cr_assert_eq(container_head(c, "model.embed_tokens.weight", &t, &why, &err), 0);
	cr_expect_eq(why, HEAD_NAMED);
}

Test(container, what_is_often_given_for_a_model_is_told_by_its_first_bytes)
{
	static const struct {
		const char *bytes, *names, *helps;
	} strangers[] = {
		{"PK\3\4\24\1\10\10 and more bytes", "ZIP", "save the model as safetensors"},
		{"\x80\2}q\1(X\6 and more bytes", "pickle", "save the model as safetensors"},
		{"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "git lfs pull"},
		{"<!DOCTYPE html><html>", "web page", "fetch"},
		{"tjgg\3\1\1\1 and more bytes", "before GGUF", "convert"},
		{"{\"tie_word_embeddings\":false}", "JSON", "directory"},
		{"Q4HI0001 and more bytes", "packed image", "npu-head check"},
		{"nothing that is known", "neither GGUF nor llama2.c", "fetch"},
	};

	for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
		cleanup(container_freep) struct container *c = NULL;
		cleanup(closep) int fd = file_of(strangers[i].bytes, strlen(strangers[i].bytes));
		struct err err = {0};
		cr_expect_eq(open_one(&c, fd, "test", &err), NPU_E_BAD_CONTAINER);
		cr_expect(strstr(err.text, strangers[i].names) && strstr(err.text, strangers[i].helps), "%s",
			  err.text);
	}
	/* A header of 0x280 bytes begins as a pickle does. */
	cleanup(container_freep) struct container *c = NULL;
	char header[0x280 + 1];
	struct err err = {0};
	memset(header, ' ', sizeof header - 1);
	header[sizeof header - 1] = 0;
	memcpy(header, "{}", 2);
	cleanup(closep) int fd = safetensors_of(header, "", 0);
	cr_expect_eq(open_one(&c, fd, "test", &err), 0, "%s", err.text);
}

Test(container, a_column_above_the_int32_bound_is_too_large)
{
	static float data[133145];
	cleanup(container_freep) struct container *c = NULL;
	const struct tensor *t;
	enum head_reason why;
	struct matrix m;
	struct err err = {0};

	cleanup(closep) int fd = safetensors_of(
		"{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[1,133145],\"data_offsets\":[0,532580]}}",
		data, sizeof data);
	cr_assert_eq(open_one(&c, fd, "test", &err), 0, "%s", err.text);
	cr_assert_eq(container_head(c, NULL, &t, &why, &err), 0);
	cr_expect_eq(matrix_init(&m, c, t, NULL, false, &err), NPU_E_TOO_LARGE);
	cr_expect(err.detail.needed == 133145 && err.detail.limit == MATRIX_H_MAX);
	cr_expect_eq(matrix_init(&m, c, t, &(struct matrix_options){.transpose = true}, false, &err), 0);
}

Test(container, backslashes_at_the_end_of_a_name_do_not_hide_the_rest)
{
	cleanup(container_freep) struct container *c = NULL;
	struct err err = {0};

	cleanup(closep) int fd =
		safetensors_of("{\"a\\\\\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
			       "\"b\\\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
			       "", 0);
	cr_expect_eq(open_one(&c, fd, "test", &err), 0, "%s", err.text);

	char deep[4096] = "{\"a\\\\\\\"\":";
	memset(deep + strlen(deep), '[', 3000);
	cleanup(closep) int other = safetensors_of(deep, "", 0);
	cleanup(container_freep) struct container *none = NULL;
	cr_expect_eq(open_one(&none, other, "test", &err), NPU_E_BAD_CONTAINER);
	cr_expect(strstr(err.text, "nests deeper"), "%s", err.text);
}

Test(container, bytes_of_two_tensors_do_not_make_up_for_bytes_of_none)
{
	cleanup(container_freep) struct container *c = NULL;
	struct err err = {0};

	cleanup(closep) int fd =
		safetensors_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
			       "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
			       "abcdefgh", 8);
	cr_expect_eq(open_one(&c, fd, "test", &err), NPU_E_BAD_CONTAINER);
	cr_expect(strstr(err.text, "\"b\"") || strstr(err.text, "\"a\""), "%s", err.text);
}

Test(container, a_dimension_of_zero_makes_an_empty_tensor_whatever_the_others_are)
{
	cleanup(container_freep) struct container *c = NULL;
	struct bytes b = {0};
	struct err err = {0};

	put_gguf(&b, 1);
	put_string(&b, "a");
	put_u32(&b, 3);
	put_u64(&b, 0);
	put_u64(&b, (1ull << 33) + 1);
	put_u64(&b, (1ull << 33) + 1);
	put_u32(&b, 0);
	put_u64(&b, 0);
	put_padding(&b);
	cleanup(closep) int fd = file_of(b.at, b.size);
	cr_assert_eq(open_one(&c, fd, "test", &err), 0, "%s", err.text);
	cr_expect_eq(container_tensor(c, 0)->bytes, 0);
}

Test(container, names_and_keys_that_come_twice_are_refused)
{
	cleanup(container_freep) struct container *c = NULL;
	struct bytes b = {0}, keys = {0};
	struct err err = {0};

	put_gguf(&b, 3);
	put_tensor(&b, "a", 0, 1, 0, 0);
	put_tensor(&b, "b", 0, 1, 0, 0);
	put_tensor(&b, "a", 0, 1, 0, 0);
	put_padding(&b);
	cleanup(closep) int fd = file_of(b.at, b.size);
	cr_expect_eq(open_one(&c, fd, "test", &err), NPU_E_BAD_CONTAINER);
	cr_expect(strstr(err.text, "\"a\""), "%s", err.text);

	put(&keys, "GGUF", 4);
	put_u32(&keys, 3);
	put_u64(&keys, 0);
	put_u64(&keys, 2);
	for (int i = 0; i < 2; i++) {
		put_string(&keys, "key");
		put_u32(&keys, 4);
		put_u32(&keys, 7);
	}
	cleanup(closep) int other = file_of(keys.at, keys.size);
	cr_expect_eq(open_one(&c, other, "test", &err), NPU_E_BAD_CONTAINER);
	cr_expect(strstr(err.text, "keys are the same"), "%s", err.text);
}

/* A whole header whose only key has so many bytes, and a value of that type. */
static int gguf_of_key(size_t size, const char *key, uint32_t type)
{
	cleanup(freep) unsigned char *file = calloc(1, 24 + 8 + size + 4 + 8 + 64);
	uint64_t numbers[3] = {0, 1, size};

	memcpy(file, "GGUF\3\0\0", 8);
	memcpy(file + 8, numbers, sizeof numbers);
	memset(file + 32, 'k', size);
	memcpy(file + 32, key, strlen(key));
	memcpy(file + 32 + size, &type, 4);
	return file_of(file, 24 + 8 + size + 4 + 8 + 64);
}

Test(container, a_key_has_a_name_of_a_length_that_the_format_knows)
{
	static const struct {
		size_t size;
		int code;
	} sizes[] = {{0, NPU_E_BAD_CONTAINER}, {1, 0}, {65535, 0}, {65536, NPU_E_BAD_CONTAINER}};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		cleanup(container_freep) struct container *c = NULL;
		cleanup(closep) int fd = gguf_of_key(sizes[i].size, "", 4);
		struct err err = {0};
		cr_expect_eq(open_one(&c, fd, "test", &err), sizes[i].code, "%zu: %s", sizes[i].size,
			     err.text);
		cr_expect(!sizes[i].code || strstr(err.text, "1 to 65535"), "%s", err.text);
	}
}

Test(container, a_number_of_splits_is_a_whole_number)
{
	for (uint32_t type = 0; type < 14; type++) {
		bool whole = type < 6 || type == 10 || type == 11;
		cleanup(container_freep) struct container *c = NULL;
		cleanup(closep) int fd = gguf_of_key(strlen("split.count"), "split.count", type);
		struct err err = {0};
		cr_expect_eq(open_one(&c, fd, "test", &err), whole ? 0 : NPU_E_BAD_CONTAINER, "type %u: %s",
			     type, err.text);
		cr_expect(whole || strstr(err.text, "no whole number"), "type %u: %s", type, err.text);
	}
}

Test(container, more_values_than_any_header_has_are_not_parsed)
{
	enum { VALUES = 2000001 };
	cleanup(freep) char *header = malloc(2 * VALUES + 64);
	size_t used = (size_t)sprintf(header, "{\"a\":[0");
	cleanup(container_freep) struct container *c = NULL;
	struct err err = {0};

	for (int i = 0; i < VALUES; i++, used += 2)
		memcpy(header + used, ",0", 2);
	memcpy(header + used, "]}", 3);
	cleanup(closep) int fd = safetensors_of(header, "", 0);
	cr_expect_eq(open_one(&c, fd, "test", &err), NPU_E_BAD_CONTAINER);
	cr_expect(strstr(err.text, "more than 2000000 values"), "%s", err.text);
}

Test(container, more_rows_than_a_number_has_bits_for_are_too_large)
{
	const uint64_t rows = (UINT64_C(1) << 32) + 1;
	char header[128];
	cleanup(container_freep) struct container *c = NULL;
	const struct tensor *t;
	enum head_reason why;
	struct matrix m;
	struct err err = {0};

	snprintf(header, sizeof header,
		 "{\"lm_head.weight\":{\"dtype\":\"F16\",\"shape\":[%" PRIu64
		 ",1],\"data_offsets\":[0,%" PRIu64 "]}}",
		 rows, 2 * rows);
	cleanup(closep) int fd = safetensors_of(header, "", 0);
	cr_assert_eq(ftruncate(fd, (off_t)(8 + strlen(header) + 2 * rows)), 0);
	cr_assert_eq(open_one(&c, fd, "test", &err), 0, "%s", err.text);
	cr_assert_eq(container_head(c, NULL, &t, &why, &err), 0);
	cr_expect_eq(matrix_init(&m, c, t, NULL, false, &err), NPU_E_TOO_LARGE);
	cr_expect(strstr(err.text, "4294967297") && err.detail.needed == rows, "%s", err.text);
}

/* What takes no place on a disk could be read for hours, and whoever gave it may have gone. */
Test(container, a_header_without_an_end_is_not_read_to_it)
{
	cleanup(container_freep) struct container *c = NULL;
	struct bytes b = {.size = 0};
	struct err err = {0};

	put_gguf(&b, 0);
	memcpy(b.at + 16, &(uint64_t){1}, 8);
	put_string(&b, "tokens");
	put_u32(&b, 9);
	put_u32(&b, 8);
	put_u64(&b, (UINT64_C(256) << 20) / 8 + 1);
	cleanup(closep) int fd = file_of(b.at, b.size);
	cr_assert_eq(ftruncate(fd, INT64_C(1) << 29), 0);
	cr_expect_eq(open_one(&c, fd, "test", &err), NPU_E_BAD_CONTAINER);
	cr_expect(strstr(err.text, "key \"tokens\"") && strstr(err.text, "a header may have"), "%s",
		  err.text);
}

Test(container, what_is_no_file_is_refused)
{
	struct container *c = NULL;
	struct err err = {0};
	cleanup(closep) int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cleanup(closep) int dir = open("/", O_RDONLY | O_CLOEXEC);

	cr_expect_eq(open_one(&c, null, "null", &err), NPU_E_BAD_CONTAINER);
	cr_expect_eq(open_one(&c, dir, "dir", &err), NPU_E_BAD_CONTAINER);
	cr_expect_eq(open_one(&c, -1, "none", &err), NPU_E_IO);

	char path[] = "/tmp/npud-container.XXXXXX";
	cleanup(closep) int made = mkstemp(path);
	cr_assert_eq(write(made, "GGUFGGUF", 8), 8);
	cleanup(closep) int blind = open(path, O_WRONLY | O_CLOEXEC);
	unlink(path);
	cr_expect_eq(open_one(&c, blind, "blind", &err), NPU_E_IO);
	cr_expect_null(c);
}

static void hash_of(const struct hash_secret *secret, const struct matrix *m, const char *bytes, size_t first,
		    unsigned char out[16])
{
	cleanup(hasher_freep) struct hasher *h = NULL;

	cr_assert_eq(hasher_new(&h, secret), 0);
	hasher_add(h, bytes, first);
	hasher_add(h, bytes + first, strlen(bytes) - first);
	hasher_end(h, m, out);
}

Test(hash, every_part_of_the_reading_and_every_byte_counts)
{
	struct hash_secret secret, other;
	const struct matrix m = {.nv = 5, .h = 7, .read_width = 28, .reading = "F32"};
	struct matrix variants[] = {m, m, m, m, m};
	unsigned char first[16], again[16];

	for (int i = 0; i < HASH_SECRET_SIZE; i++)
		secret.bytes[i] = (unsigned char)(i * 37 + 11 + i * i);
	other = secret;
	other.bytes[9] ^= 1;
	variants[0].nv = 6;
	variants[1].h = 8;
	variants[2].read_width = 29;
	variants[3].tied = true;
	strcpy(variants[4].reading, "F32^T");

	hash_of(&secret, &m, "stored bytes", 0, first);
	hash_of(&secret, &m, "stored bytes", 5, again);
	cr_expect_arr_eq(first, again, 16);
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
		hash_of(&secret, &variants[i], "stored bytes", 0, again);
		cr_expect(memcmp(first, again, 16) != 0, "variant %zu has the same hash", i);
	}
	hash_of(&secret, &m, "stored bytez", 0, again);
	cr_expect(memcmp(first, again, 16) != 0);
	hash_of(&other, &m, "stored bytes", 0, again);
	cr_expect(memcmp(first, again, 16) != 0);
}

Test(hash, the_trailer_is_as_the_design_has_it)
{
	static const unsigned char whole[] = "stored\x05\0\0\0\x07\0\0\0\x1c\0\0\0\x01\x06"
					     "BF16^T";
	struct hash_secret secret;
	struct matrix m = {.nv = 5, .h = 7, .read_width = 28, .tied = true, .reading = "BF16^T"};
	unsigned char out[16];
	XXH128_canonical_t want;

	for (int i = 0; i < HASH_SECRET_SIZE; i++)
		secret.bytes[i] = (unsigned char)(i * 91 + 3);
	hash_of(&secret, &m, "stored", 3, out);
	XXH128_canonicalFromHash(
		&want, XXH3_128bits_withSecret(whole, sizeof whole - 1, secret.bytes, sizeof secret.bytes));
	cr_expect_arr_eq(out, want.digest, 16);
}
