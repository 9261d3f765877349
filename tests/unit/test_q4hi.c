#include "inputs.h"
#include "q4hi.h"
#include "own.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { KD = 64, ND = 3 };

struct image {
	int8_t codes[KD * ND];
	float scales[ND];
};

static struct image some_image(void)
{
	struct image i;

	for (int n = 0; n < KD * ND; n++)
		i.codes[n] = (int8_t)(n * 37 % 255 - 127);
	for (int n = 0; n < ND; n++)
		i.scales[n] = 0.5f / (float)(n + 1);
	return i;
}

static int file_of(const struct image *i)
{
	int fd = memfd_create("q4hi", MFD_CLOEXEC);
	struct err err;

	cr_assert(fd >= 0);
	cr_assert_eq(q4hi_write(fd, "test", KD, ND, i->codes, i->scales, &err), 0, "%s", err.text);
	return fd;
}

/* Opens and checks the whole file. */
static int check(int fd, uint32_t kd, uint32_t nd, struct err *err)
{
	struct q4hi q;
	int r = q4hi_open(&q, fd, "test", kd, nd, err);

	return r ? r : q4hi_read(&q, NULL, NULL, err);
}

static void refused(int fd, const char *a, const char *b)
{
	struct err err = {.code = 0};

	cr_expect_eq(check(fd, KD, ND, &err), NPU_E_BAD_IMAGE);
	cr_expect(strstr(err.text, a) && strstr(err.text, b), "\"%s\" and \"%s\" are not both in: %s", a, b,
		  err.text);
}

Test(q4hi, what_was_written_is_read)
{
	struct image i = some_image(), back;
	cleanup(closep) int fd = file_of(&i);
	struct q4hi q;
	struct err err;

	cr_assert_eq(q4hi_open(&q, fd, "test", KD, ND, &err), 0, "%s", err.text);
	cr_assert_eq(q4hi_read(&q, back.codes, back.scales, &err), 0, "%s", err.text);
	cr_expect_eq(memcmp(i.codes, back.codes, sizeof i.codes), 0);
	cr_expect_eq(memcmp(i.scales, back.scales, sizeof i.scales), 0);
	cr_expect_eq(check(fd, 0, 0, &err), 0, "without an expectation: %s", err.text);
}

Test(q4hi, the_image_of_4096_by_28672_has_117555224_bytes)
{
	enum { K = 4096, N = 28672 };
	cleanup(freep) int8_t *codes = calloc(K, N);
	cleanup(freep) float *scales = malloc(N * sizeof *scales);
	cleanup(closep) int fd = memfd_create("q4hi", MFD_CLOEXEC);
	struct err err;
	struct stat st;

	cr_assert(codes && scales && fd >= 0);
	for (int n = 0; n < N; n++)
		scales[n] = 1.0f / 127.0f;
	cr_assert_eq(q4hi_write(fd, "test", K, N, codes, scales, &err), 0, "%s", err.text);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_expect_eq(st.st_size, 117555224);
	cr_expect_eq(q4hi_size(K, N), 117555224);
	cr_expect_eq(check(fd, K, N, &err), 0, "%s", err.text);
}

Test(q4hi, a_size_that_does_not_fit_is_none)
{
	cr_expect_eq(q4hi_size(UINT32_MAX, UINT32_MAX), 0);
	cr_expect_eq(q4hi_size(1u << 31, 1u << 31), Q4HI_HEADER + (UINT64_C(1) << 62) + (UINT64_C(1) << 33));
	cr_expect_eq(q4hi_size(1u << 31, UINT32_MAX), 0);
}

Test(q4hi, the_name_is_in_the_originals_form)
{
	unsigned char hash[16];
	char name[Q4HI_NAME_MAX];

	for (int i = 0; i < 16; i++)
		hash[i] = (unsigned char)(i * 17);
	q4hi_name(name, hash, 3);
	cr_expect_str_eq(name, "headimg-00112233445566778899aabbccddeeff-t3.q4hi");
	q4hi_name(name, hash, UINT32_MAX);
	cr_expect_str_eq(name, "headimg-00112233445566778899aabbccddeeff-t4294967295.q4hi");
}

Test(q4hi, every_changed_byte_is_noticed)
{
	struct image i = some_image();
	cleanup(closep) int fd = file_of(&i);
	struct err err;
	off_t size = (off_t)q4hi_size(KD, ND);

	for (off_t at = 0; at < size; at++) {
		unsigned char was, changed;
		cr_assert_eq(pread(fd, &was, 1, at), 1);
		changed = was ^ 0x10;
		cr_assert_eq(pwrite(fd, &changed, 1, at), 1);
		cr_expect_eq(check(fd, KD, ND, &err), NPU_E_BAD_IMAGE, "byte %lld", (long long)at);
		cr_assert_eq(pwrite(fd, &was, 1, at), 1);
	}
	cr_expect_eq(check(fd, KD, ND, &err), 0, "%s", err.text);
}

Test(q4hi, every_refusal_names_what_differs)
{
	struct image i = some_image();
	cleanup(closep) int fd = file_of(&i);
	off_t size = (off_t)q4hi_size(KD, ND);
	uint32_t other = 128;

	cr_assert_eq(pwrite(fd, "Q5HI", 4, 0), 4);
	refused(fd, "magic", "Q5HI");
	cr_assert_eq(pwrite(fd, "Q4HI0002", 8, 0), 8);
	refused(fd, "version", "0002");
	cr_assert_eq(pwrite(fd, "Q4HI0001", 8, 0), 8);
	cr_assert_eq(pwrite(fd, &other, 4, 8), 4);
	refused(fd, "kd 128, nd 3", "kd 64, nd 3 was expected");
	other = KD;
	cr_assert_eq(pwrite(fd, &other, 4, 8), 4);
	cr_assert_eq(pwrite(fd, "", 1, size), 1);
	refused(fd, "trailing bytes", "has 229");
	cr_assert_eq(ftruncate(fd, size - 1), 0);
	refused(fd, "short payload", "has 227");
	cr_assert_eq(ftruncate(fd, 23), 0);
	refused(fd, "short payload", "23");
}

Test(q4hi, what_no_packer_writes_is_refused_with_a_sound_hash)
{
	const float scales[] = {0, -0.5f, NAN, INFINITY};

	for (size_t n = 0; n < sizeof scales / sizeof *scales; n++) {
		struct image i = some_image();
		i.scales[1] = scales[n];
		cleanup(closep) int fd = file_of(&i);
		refused(fd, "the scale of column 1", "above 0");
	}
	struct image i = some_image();
	i.codes[70] = -128;
	cleanup(closep) int fd = file_of(&i);
	refused(fd, "code 70", "-128");
}

Test(q4hi, what_cannot_be_an_image_is_refused_where_nothing_is_expected_too)
{
	static const uint32_t shapes[][2] = {{0, 3}, {65, 3}, {64, 0}};
	struct err err;

	for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
		struct image i = some_image();
		cleanup(closep) int fd = file_of(&i);
		cr_assert_eq(pwrite(fd, shapes[n], 8, 8), 8);
		cr_expect_eq(check(fd, 0, 0, &err), NPU_E_BAD_IMAGE);
		cr_expect(strstr(err.text, "kd is a multiple of 64"), "%s", err.text);
	}
	cleanup(closep) int folder = open("/", O_RDONLY | O_CLOEXEC);
	cr_expect_eq(check(folder, 0, 0, &err), NPU_E_BAD_IMAGE);
	cr_expect(strstr(err.text, "not a regular file"), "%s", err.text);
}

Test(q4hi, as_many_bytes_are_written_as_the_header_says)
{
	cleanup(closep) int fd = memfd_create("q4hi", MFD_CLOEXEC);
	static const int8_t codes[64 * 3 + 13];
	struct q4hi_writer w;
	struct err err;

	cr_assert_eq(q4hi_begin(&w, fd, "test", 64, 3, &err), 0);
	cr_expect_eq(q4hi_add(&w, codes, 64 * 3 + 13, &err), NPU_E_BAD_COUNT);
	cr_expect(strstr(err.text, "only 204"), "%s", err.text);
	cr_assert_eq(q4hi_add(&w, codes, 64 * 3, &err), 0);
	cr_expect_eq(q4hi_end(&w, &err), NPU_E_BAD_COUNT);
	cr_expect(strstr(err.text, "192 of 204"), "%s", err.text);
}

Test(q4hi, a_file_that_shrinks_meanwhile_has_changed)
{
	struct image i = some_image();
	cleanup(closep) int fd = file_of(&i);
	struct q4hi q;
	struct err err;

	cr_assert_eq(q4hi_open(&q, fd, "test", KD, ND, &err), 0, "%s", err.text);
	cr_assert_eq(ftruncate(fd, 100), 0);
	cr_expect_eq(q4hi_read(&q, NULL, NULL, &err), NPU_E_FILE_CHANGED);
}

Test(q4hi, the_collected_files_have_the_verdicts_of_their_list)
{
	char path[1024], line[512];
	unsigned seen = 0;

	if (access(data_dir(), R_OK) != 0)
		cr_skip_test("no test data in %s; NPUD_TEST_DATA says where it is", data_dir());
	snprintf(path, sizeof path, "%s/bad/MANIFEST.tsv", data_dir());
	cleanup(fclosep) FILE *list = fopen(path, "r");
	cr_assert(list, "%s", path);
	while (fgets(line, sizeof line, list)) {
		char *verdict = strchr(line, '\t');
		struct err err = {.code = 0};
		if (!verdict || strncmp(line, "image/", 6) != 0)
			continue;
		*verdict++ = 0;
		verdict[strcspn(verdict, "\t\n")] = 0;
		snprintf(path, sizeof path, "%s/bad/%s", data_dir(), line);
		cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
		cr_assert(fd >= 0, "%s", path);
		int r = check(fd, 64, 128, &err);
		cr_expect_eq(r, strcmp(verdict, "accept") == 0 ? 0 : NPU_E_BAD_IMAGE, "%s (%s): %d %s", line,
			     verdict, r, err.text);
		cr_expect(r == 0 || strstr(err.text, "again") || strstr(err.text, "name one"),
			  "%s: \"%s\" does not say what to do", line, err.text);
		seen++;
	}
	cr_expect(seen > 20);
}
