#include "kernel_files.h"
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(unsigned char *at, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		at[i] = (unsigned char)(value >> 8 * i);
}

static const struct argument {
	const char *name, *type;
	int qualifier, size, offset;
} arguments[] = {
	{"opcode", "uint64_t", 0, 8, 0x10}, {"instr", "char*", 1, 8, 0x18},
	{"ninstr", "uint32_t", 0, 4, 0x20}, {"bo0", "void*", 1, 8, 0x24},
	{"bo1", "void*", 1, 8, 0x2c},	    {"bo2", "void*", 1, 8, 0x34},
};
#define ARGUMENTS (sizeof arguments / sizeof *arguments)

static size_t metadata(char *to, size_t room, const char *kernel)
{
	size_t n = (size_t)snprintf(
		to, room,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<project name=\"npud\"><platform "
		"vendor=\"test\" "
		"boardid=\"npu\" name=\"test\"><device name=\"fpga0\"><core name=\"OCL_REGION_0\" "
		"target=\"bitstream\"><kernelClocks/><kernel name=\"%s\" language=\"c\" type=\"dpu\">",
		kernel);
	for (size_t i = 0; i < ARGUMENTS; i++)
		n += (size_t)snprintf(to + n, room - n,
				      "<arg name=\"%s\" addressQualifier=\"%d\" id=\"%zu\" size=\"0x%x\" "
				      "offset=\"0x%x\" hostOffset=\"0x0\" hostSize=\"0x%x\" type=\"%s\"/>",
				      arguments[i].name, arguments[i].qualifier, i, arguments[i].size,
				      arguments[i].offset, arguments[i].size, arguments[i].type);
	n += (size_t)snprintf(
		to + n, room - n,
		"<instance name=\"0\"><addrRemap base=\"0x10000\" range=\"0x10000\"/></instance>"
		"</kernel></core></device></platform></project>\n");
	return n;
}

/* Two memories: the host's, and one for instructions. */
static size_t memories(unsigned char *to)
{
	static const char *const tags[] = {"HOST", "SRAM"};

	put(to, 2, 4);
	for (unsigned i = 0; i < 2; i++) {
		unsigned char *m = to + 8 + i * 40;
		m[0] = 2; /* DRAM */
		m[1] = 1;
		put(m + 8, 16u << 20, 8);
		put(m + 16, UINT64_C(0x400000000) * (i + 1), 8);
		memcpy(m + 24, tags[i], 4);
	}
	return 8 + 2 * 40;
}

static size_t connections(unsigned char *to)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < ARGUMENTS; i++) {
		if (!arguments[i].qualifier)
			continue;
		put(to + 4 + n * 12, i, 4);
		put(to + 4 + n * 12 + 8, strcmp(arguments[i].name, "instr") == 0, 4);
		n++;
	}
	put(to, n, 4);
	return 4 + n * 12;
}

static size_t instances(unsigned char *to, const char *kernel)
{
	put(to, 1, 4);
	put(to + 8, 1, 4);  /* a kernel ... */
	put(to + 12, 1, 4); /* ... with interrupts */
	put(to + 16, 0x10000, 8);
	snprintf((char *)to + 24, 64, "%s:0", kernel);
	return 8 + 80;
}

/* Columns 0, one image of 16 bytes. */
static size_t partition(unsigned char *to)
{
	put(to + 32, 4, 2);
	put(to + 40, 1, 4);
	put(to + 44, 184, 4);
	put(to + 120, 1, 4);
	put(to + 124, 192, 4);
	put(to + 192 + 16, 16, 4);
	put(to + 192 + 20, 288, 4);
	return 304;
}

unsigned char *kernel_files_xclbin(const char *kernel, size_t *size)
{
	static const unsigned kinds[] = {6, 26, 7, 27, 8, 2, 32};
	enum { COUNT = sizeof kinds / sizeof *kinds, ROOM = 16384 };
	unsigned char *x = calloc(1, ROOM);
	size_t at = (456 + COUNT * 40 + 7) / 8 * 8;

	if (!x)
		abort();
	memcpy(x, "xclbin2", 8);
	memset(x + 8, 0xff, 4 + 28 + 256);
	put(x + 296, 1, 8);
	x[304 + 26] = 2;
	x[304 + 27] = 13;
	put(x + 304 + 28, 1, 2); /* a partial image */
	memcpy(x + 304 + 48, "npud_test", 9);
	for (unsigned i = 0; i < 16; i++)
		x[304 + 112 + i] = (unsigned char)(i * 17 + 3 + strlen(kernel));
	put(x + 304 + 144, COUNT, 4);
	for (unsigned i = 0; i < COUNT; i++) {
		unsigned char *header = x + 456 + i * 40, *to = x + at;
		size_t n = kinds[i] == 2	? metadata((char *)to, ROOM - at, kernel)
			   : kinds[i] == 8	? instances(to, kernel)
			   : kinds[i] == 32	? partition(to)
			   : kinds[i] % 20 == 6 ? memories(to)
						: connections(to);
		put(header, kinds[i], 4);
		snprintf((char *)header + 4, 16, "s%u", kinds[i]);
		put(header + 24, at, 8);
		put(header + 32, n, 8);
		at = (at + n + 7) / 8 * 8;
	}
	put(x + 304, at, 8);
	*size = at;
	return x;
}

/* Sections: none, names, text; a segment over the text. */
unsigned char *kernel_files_elf(bool wide, size_t *size)
{
	static const char names[] = "\0.shstrtab\0.text";
	unsigned char *x = calloc(1, 1024);

	if (!x)
		abort();
	memcpy(x, ELFMAG, SELFMAG);
	x[EI_CLASS] = wide ? ELFCLASS64 : ELFCLASS32;
	x[EI_DATA] = ELFDATA2LSB;
	x[EI_VERSION] = EV_CURRENT;
	memcpy(x + 512, names, sizeof names);
	if (wide) {
		Elf64_Ehdr *e = (Elf64_Ehdr *)x;
		Elf64_Shdr *s = (Elf64_Shdr *)(x + 256);
		e->e_ehsize = sizeof *e;
		e->e_phentsize = sizeof(Elf64_Phdr);
		e->e_shentsize = sizeof *s;
		e->e_phoff = 64;
		e->e_shoff = 256;
		e->e_phnum = 1;
		e->e_shnum = 3;
		e->e_shstrndx = 1;
		*(Elf64_Phdr *)(x + 64) = (Elf64_Phdr){.p_type = PT_LOAD, .p_offset = 640, .p_filesz = 64};
		s[1] = (Elf64_Shdr){
			.sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = 512, .sh_size = sizeof names};
		s[2] = (Elf64_Shdr){.sh_name = 11, .sh_type = SHT_PROGBITS, .sh_offset = 640, .sh_size = 64};
	} else {
		Elf32_Ehdr *e = (Elf32_Ehdr *)x;
		Elf32_Shdr *s = (Elf32_Shdr *)(x + 256);
		e->e_ehsize = sizeof *e;
		e->e_phentsize = sizeof(Elf32_Phdr);
		e->e_shentsize = sizeof *s;
		e->e_phoff = 64;
		e->e_shoff = 256;
		e->e_phnum = 1;
		e->e_shnum = 3;
		e->e_shstrndx = 1;
		*(Elf32_Phdr *)(x + 64) = (Elf32_Phdr){.p_type = PT_LOAD, .p_offset = 640, .p_filesz = 64};
		s[1] = (Elf32_Shdr){
			.sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = 512, .sh_size = sizeof names};
		s[2] = (Elf32_Shdr){.sh_name = 11, .sh_type = SHT_PROGBITS, .sh_offset = 640, .sh_size = 64};
	}
	*size = 704;
	return x;
}

void kernel_files_instructions(const struct design *d, unsigned char to[KERNEL_FILES_INSTRUCTIONS])
{
	const uint32_t words[8] = {0x06030100, 0x00000104, 1,	  KERNEL_FILES_INSTRUCTIONS,
				   d->rows,    d->kd,	   d->nd, d->layout};

	for (unsigned i = 0; i < 8; i++)
		put(to + i * 4, words[i], 4);
}

static bool write_file(const char *path, const void *bytes, size_t size)
{
	FILE *f = fopen(path, "wbe");
	bool good = f && fwrite(bytes, 1, size, f) == size;

	return f && fclose(f) == 0 && good;
}

/* One design: its files, and its record in the manifest. */
static bool write_design(FILE *manifest, const char *directory, struct design *d, unsigned i)
{
	bool elf = d->image == DEVICE_ELF;
	const char *kind = elf ? "elf" : "xclbin";
	unsigned char stream[KERNEL_FILES_INSTRUCTIONS];
	size_t size;
	unsigned char *image = elf ? kernel_files_elf(false, &size) : kernel_files_xclbin("MLIR_AIE", &size);

	strcpy(d->kernel, "MLIR_AIE");
	snprintf(d->file, sizeof d->file, "%.400s/%u.%s", directory, i, kind);
	bool good =
		write_file(d->file, image, size) &&
		fprintf(manifest,
			"%s{\"rows\": %u, \"kd\": %u, \"nd\": %u, \"layout\": \"%s\", \"image\": \"%s\",\n"
			"  \"file\": \"%u.%s\", \"kernel\": \"MLIR_AIE\"",
			i ? ",\n " : "{\"format\": 1, \"designs\": [\n ", d->rows, d->kd, d->nd,
			d->layout ? "blocked" : "row-major", kind, i, kind) > 0;
	if (!elf) {
		snprintf(d->instructions, sizeof d->instructions, "%.400s/%u.bin", directory, i);
		kernel_files_instructions(d, stream);
		good = good && write_file(d->instructions, stream, sizeof stream) &&
		       fprintf(manifest, ", \"instructions\": \"%u.bin\"", i) > 0;
	}
	free(image);
	return good && fprintf(manifest, "}") > 0;
}

bool kernel_files_write(const char *directory, struct design *designs, unsigned count)
{
	char path[DEVICE_PATH_MAX + 32];

	snprintf(path, sizeof path, "%s/kernels.json", directory);
	FILE *manifest = fopen(path, "we");
	bool good = manifest != NULL;
	for (unsigned i = 0; good && i < count; i++)
		good = write_design(manifest, directory, &designs[i], i);
	good = good && fprintf(manifest, "]}\n") > 0;
	return manifest && fclose(manifest) == 0 && good;
}
