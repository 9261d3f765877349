#include "kernel_files.h"
#include "kimage.h"
#include "own.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Exactly `size` bytes in memory of their own, so that a sanitizer sees one byte too far. */
static bool xclbin(const unsigned char *bytes, size_t size, const char *kernel)
{
	struct device_why why = {""};
	cleanup(freep) unsigned char *copy = malloc(size ? size : 1);

	memcpy(copy, bytes, size);
	bool good = kimage_xclbin(copy, size, kernel, &why);
	cr_expect_eq(good, !why.text[0], "%s", why.text);
	return good;
}

static bool elf(const unsigned char *bytes, size_t size)
{
	struct device_why why = {""};
	cleanup(freep) unsigned char *copy = malloc(size ? size : 1);

	memcpy(copy, bytes, size);
	bool good = kimage_elf(copy, size, &why);
	cr_expect_eq(good, !why.text[0], "%s", why.text);
	return good;
}

Test(kimage, a_whole_container_is_good_and_every_cut_of_it_is_not)
{
	size_t size;
	cleanup(freep) unsigned char *x = kernel_files_xclbin("MLIR_AIE", &size);

	cr_expect(xclbin(x, size, "MLIR_AIE"));
	cr_expect_not(xclbin(x, size, "MLIR"), "another kernel");
	cr_expect_not(xclbin(x, size, "MLIR_AIE2"));
	for (size_t cut = 0; cut < size; cut++)
		cr_expect_not(xclbin(x, cut, "MLIR_AIE"), "%zu of %zu bytes", cut, size);
}

/* Overwrites bytes, asks, and puts them back. */
static bool damaged(unsigned char *x, size_t size, size_t at, uint64_t value, unsigned bytes)
{
	unsigned char kept[8];

	memcpy(kept, x + at, bytes);
	for (unsigned i = 0; i < bytes; i++)
		x[at + i] = (unsigned char)(value >> 8 * i);
	bool good = xclbin(x, size, "MLIR_AIE");
	memcpy(x + at, kept, bytes);
	return good;
}

static size_t section(const unsigned char *x, unsigned kind)
{
	for (unsigned i = 0; i < x[304 + 144]; i++) {
		const unsigned char *h = x + 456 + i * 40;
		if (h[0] == kind)
			return h[24] | (size_t)h[25] << 8;
	}
	cr_assert_fail("no section %u", kind);
	return 0;
}

Test(kimage, counts_offsets_and_names_that_are_wrong_are_refused)
{
	size_t size;
	cleanup(freep) unsigned char *x = kernel_files_xclbin("MLIR_AIE", &size);

	cr_expect_not(damaged(x, size, 0, 'y', 1), "magic");
	cr_expect_not(damaged(x, size, 304, size + 8, 8), "length");
	cr_expect_not(damaged(x, size, 448, 0xffffffff, 4), "sections");
	cr_expect_not(damaged(x, size, 448, 0, 4), "no sections");
	cr_expect_not(damaged(x, size, 456 + 24, UINT64_MAX, 8), "offset");
	cr_expect_not(damaged(x, size, 456 + 32, UINT64_MAX - 100, 8), "size");
	cr_expect_not(damaged(x, size, section(x, 6), 3, 4), "memories");
	cr_expect_not(damaged(x, size, section(x, 26), 0x80000000, 4), "memories of the group");
	cr_expect_not(damaged(x, size, section(x, 7), 5, 4), "connections");
	cr_expect_not(damaged(x, size, section(x, 7) + 8, 1, 4), "a kernel there is not");
	cr_expect_not(damaged(x, size, section(x, 7) + 12, 2, 4), "a memory there is not");
	cr_expect_not(damaged(x, size, section(x, 27) + 12, 0xffffffff, 4), "a negative memory");
	cr_expect_not(damaged(x, size, section(x, 8), 2, 4), "instances");
	cr_expect_not(damaged(x, size, section(x, 8) + 24, 'X', 1), "the instance's name");
	cr_expect_not(damaged(x, size, section(x, 2), '>', 1), "XML");
	cr_expect_not(damaged(x, size, section(x, 32) + 120, 2, 4), "images");
	cr_expect_not(damaged(x, size, section(x, 32) + 192 + 20, 300, 4), "an image outside");
	cr_expect_not(damaged(x, size, section(x, 32) + 44, 304, 4), "columns outside");
}

Test(kimage, a_kernel_that_takes_other_arguments_is_refused)
{
	size_t size;
	cleanup(freep) unsigned char *x = kernel_files_xclbin("MLIR_AIE", &size);
	char *five = memmem(x, size, "id=\"5\"", 6);

	cr_assert(five);
	five[4] = '7';
	cr_expect_not(xclbin(x, size, "MLIR_AIE"));
}

Test(kimage, both_classes_of_elf_are_good_and_damaged_ones_are_not)
{
	for (int wide = 0; wide < 2; wide++) {
		size_t size;
		cleanup(freep) unsigned char *x = kernel_files_elf(wide, &size);
		cr_expect(elf(x, size));
		for (size_t cut = 0; cut < size; cut++)
			cr_expect_not(elf(x, cut), "%zu of %zu bytes, class %d", cut, size, wide);
		x[wide ? 62 : 50] = 3; /* names in a section there is not */
		cr_expect_not(elf(x, size));
		x[wide ? 62 : 50] = 2; /* names in the text */
		cr_expect_not(elf(x, size));
	}
}

Test(kimage, an_instruction_stream_has_the_size_it_says)
{
	struct design d = {.rows = 16, .kd = 64, .nd = 128};
	unsigned char stream[KERNEL_FILES_INSTRUCTIONS];
	struct device_why why;

	kernel_files_instructions(&d, stream);
	cr_expect(kimage_instructions(stream, sizeof stream, &why));
	for (size_t cut = 0; cut < sizeof stream; cut++)
		cr_expect_not(kimage_instructions(stream, cut, &why), "%zu bytes", cut);
	stream[8] = 9;
	cr_expect_not(kimage_instructions(stream, sizeof stream, &why), "operations");
	stream[8] = 0;
	cr_expect_not(kimage_instructions(stream, sizeof stream, &why), "no operations");
}

Test(kimage, files_that_are_not_there_or_no_files_are_refused_by_name)
{
	char dir[] = "/tmp/npud-kimage.XXXXXX";
	struct design d = {.rows = 1, .kd = 64, .nd = 128};
	struct device_why why = {""};

	cr_assert(mkdtemp(dir));
	cr_assert(kernel_files_write(dir, &d, 1));
	cr_expect_eq(kimage_design(&d, &why), 0, "%s", why.text);
	unlink(d.instructions);
	cr_expect_eq(kimage_design(&d, &why), DEVICE_E_BAD_KERNEL);
	cr_expect(strstr(why.text, "0.bin"), "%s", why.text);
	cr_assert_eq(mkfifo(d.instructions, 0600), 0);
	cr_expect_eq(kimage_design(&d, &why), DEVICE_E_BAD_KERNEL, "a pipe, which must not be waited for");
	char remove[64];
	snprintf(remove, sizeof remove, "rm -r %s", dir);
	cr_expect_eq(system(remove), 0);
}
