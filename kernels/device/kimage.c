/*
 * The xclbin layout is that of XRT's xclbin.h, read here by offset so that nothing of XRT is needed to build:
 * a header of 456 bytes, section headers of 40 (kind at 0, offset at 24, size at 32), little-endian.
 */
#include "kimage.h"
#include <elf.h>
#include <errno.h>
#include <expat.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (UINT64_C(256) << 20)

struct span {
	const unsigned char *at;
	size_t size;
};

__attribute__((format(printf, 2, 3))) static bool refuse(struct device_why *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why->text, sizeof why->text, format, args);
	va_end(args);
	return false;
}

static uint64_t get(struct span s, size_t at, unsigned bytes)
{
	uint64_t v = 0;

	while (bytes--)
		v = v << 8 | s.at[at + bytes];
	return v;
}

static bool inside(size_t size, uint64_t from, uint64_t count, uint64_t each)
{
	return from <= size && (count == 0 || each <= (size - from) / count);
}

/* Whether the text field of `room` bytes ends within it. */
static bool ends(struct span s, size_t at, size_t room)
{
	return memchr(s.at + at, 0, room) != NULL;
}

/* A section that begins with a 32-bit count and then, at `first`, holds entries of `each` bytes. */
static bool counted(struct span s, size_t first, size_t each, uint32_t *count, const char *name,
		    struct device_why *why)
{
	if (s.size < first)
		return refuse(why, "its %s section is cut short", name);
	*count = (uint32_t)get(s, 0, 4);
	if (*count > INT32_MAX || !inside(s.size, first, *count, each))
		return refuse(why, "its %s section claims %u entries, more than it has room for", name,
			      *count);
	return true;
}

enum {
	EMBEDDED_METADATA = 2,
	MEM_TOPOLOGY = 6,
	CONNECTIVITY = 7,
	IP_LAYOUT = 8,
	GROUP_TOPOLOGY = 26,
	GROUP_CONNECTIVITY = 27,
	AIE_PARTITION = 32,
	KINDS = 64
};

static bool check_memories(struct span s, uint32_t *count, struct device_why *why)
{
	if (!counted(s, 8, 40, count, "memory", why))
		return false;
	for (uint32_t i = 0; i < *count; i++)
		if (!ends(s, 8 + i * 40u + 24, 16))
			return refuse(why, "the name of its memory %u has no end", i);
	return true;
}

static bool check_connections(struct span s, uint32_t ips, uint32_t memories, struct device_why *why)
{
	uint32_t count = 0;

	if (!counted(s, 4, 12, &count, "connectivity", why))
		return false;
	for (uint32_t i = 0; i < count; i++) {
		size_t at = 4 + i * (size_t)12;
		if (get(s, at, 4) > 255 || get(s, at + 4, 4) >= ips || get(s, at + 8, 4) >= memories)
			return refuse(
				why, "its connection %u names an argument, kernel or memory there is not", i);
	}
	return true;
}

/* The array configuration: columns and the images of it, each an offset within the section. */
static bool check_partition(struct span s, struct device_why *why)
{
	if (s.size < 184)
		return refuse(why, "its AIE partition section is cut short");
	uint64_t columns = get(s, 40, 4), columns_at = get(s, 44, 4), pdis = get(s, 120, 4),
		 pdis_at = get(s, 124, 4);
	if (!inside(s.size, columns_at, columns, 2) || !inside(s.size, pdis_at, pdis, 96))
		return refuse(why, "its AIE partition section names columns or images outside of itself");
	for (uint64_t i = 0; i < pdis; i++) {
		size_t at = (size_t)(pdis_at + i * 96);
		if (!inside(s.size, get(s, at + 20, 4), get(s, at + 16, 4), 1) ||
		    !inside(s.size, get(s, at + 28, 4), get(s, at + 24, 4), 96))
			return refuse(
				why, "image %" PRIu64 " of its AIE partition lies outside of the section", i);
	}
	return true;
}

/* What is looked for in the metadata: the arguments of the kernel of one name. */
struct metadata {
	const char *kernel;
	bool in_kernel, found;
	uint32_t arguments; /* a bit each, by id */
};

static const char *attribute(const char **attributes, const char *name)
{
	for (; *attributes; attributes += 2)
		if (strcmp(attributes[0], name) == 0)
			return attributes[1];
	return "";
}

static void XMLCALL on_start(void *arg, const char *element, const char **attributes)
{
	struct metadata *m = arg;

	if (strcmp(element, "kernel") == 0) {
		m->in_kernel = strcmp(attribute(attributes, "name"), m->kernel) == 0;
		m->found |= m->in_kernel;
	} else if (m->in_kernel && strcmp(element, "arg") == 0) {
		char *end;
		const char *id = attribute(attributes, "id");
		unsigned long n = strtoul(id, &end, 10);
		if (*id && !*end && n < 32)
			m->arguments |= UINT32_C(1) << n;
	}
}

static void XMLCALL on_end(void *arg, const char *element)
{
	struct metadata *m = arg;

	if (strcmp(element, "kernel") == 0)
		m->in_kernel = false;
}

static bool check_metadata(struct span s, const char *kernel, struct device_why *why)
{
	struct metadata m = {.kernel = kernel};
	XML_Parser p = XML_ParserCreate(NULL);

	if (!p)
		return refuse(why, "no memory to read its metadata");
	while (s.size && !s.at[s.size - 1]) /* the section may be padded with zeros */
		s.size--;
	XML_SetUserData(p, &m);
	XML_SetElementHandler(p, on_start, on_end);
	bool good = s.size <= INT32_MAX && XML_Parse(p, (const char *)s.at, (int)s.size, 1) == XML_STATUS_OK;
	if (!good)
		refuse(why, "its metadata is no XML: %s in line %lu", XML_ErrorString(XML_GetErrorCode(p)),
		       (unsigned long)XML_GetCurrentLineNumber(p));
	XML_ParserFree(p);
	if (!good)
		return false;
	if (!m.found)
		return refuse(why, "it has no kernel named %s", kernel);
	if ((m.arguments & 63) != 63)
		return refuse(why,
			      "its kernel %s does not take opcode, instructions, their number, A, B and C",
			      kernel);
	return true;
}

/* Finds the sections, each inside of the file; of every kind the first counts, as with XRT. */
static bool find_sections(struct span file, struct span kinds[KINDS], struct device_why *why)
{
	if (file.size < 456 || memcmp(file.at, "xclbin2", 8) != 0)
		return refuse(why, "it is no xclbin2 container");
	uint64_t length = get(file, 304, 8), count = get(file, 304 + 144, 4);
	if (length != file.size)
		return refuse(why, "it should be %" PRIu64 " bytes and has %zu", length, file.size);
	if (count > 256 || !inside(file.size, 456, count, 40))
		return refuse(why, "it claims %" PRIu64 " sections, more than it has room for", count);
	for (uint64_t i = 0; i < count; i++) {
		size_t at = (size_t)(456 + i * 40);
		uint64_t kind = get(file, at, 4), from = get(file, at + 24, 8), size = get(file, at + 32, 8);
		if (!ends(file, at + 4, 16))
			return refuse(why, "the name of its section %" PRIu64 " has no end", i);
		if (from < 456 + count * 40 || from > file.size || size > file.size - from)
			return refuse(why, "its section %" PRIu64 " lies outside of the file", i);
		if (from % 8)
			return refuse(why, "its section %" PRIu64 " is not aligned to 8 bytes", i);
		if (kind < KINDS && !kinds[kind].at)
			kinds[kind] = (struct span){file.at + from, (size_t)size};
	}
	return true;
}

static bool check_kernels(struct span s, const char *kernel, uint32_t *count, struct device_why *why)
{
	bool found = false;

	if (!counted(s, 8, 80, count, "IP layout", why))
		return false;
	for (uint32_t i = 0; i < *count; i++) {
		size_t at = 8 + i * (size_t)80 + 16;
		const char *name = (const char *)s.at + at;
		if (!ends(s, at, 64))
			return refuse(why, "the name of its kernel instance %u has no end", i);
		size_t length = strcspn(name, ":");
		found |=
			length == strlen(kernel) && strncmp(name, kernel, length) == 0 && name[length] == ':';
	}
	return found || refuse(why, "it has no instance of a kernel named %s", kernel);
}

bool kimage_xclbin(const void *bytes, size_t size, const char *kernel, struct device_why *why)
{
	static const struct {
		int memories, connections;
	} pairs[] = {{MEM_TOPOLOGY, CONNECTIVITY}, {GROUP_TOPOLOGY, GROUP_CONNECTIVITY}};
	struct span kinds[KINDS] = {{NULL, 0}};
	uint32_t kernels = 0;

	if (!find_sections((struct span){bytes, size}, kinds, why))
		return false;
	if (!kinds[EMBEDDED_METADATA].at || !kinds[IP_LAYOUT].at)
		return refuse(why, "it has no metadata or no IP layout");
	if (!check_kernels(kinds[IP_LAYOUT], kernel, &kernels, why) ||
	    !check_metadata(kinds[EMBEDDED_METADATA], kernel, why))
		return false;
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		uint32_t memories = 0;
		if (kinds[pairs[i].memories].at && !check_memories(kinds[pairs[i].memories], &memories, why))
			return false;
		if (kinds[pairs[i].connections].at &&
		    !check_connections(kinds[pairs[i].connections], kernels, memories, why))
			return false;
	}
	return !kinds[AIE_PARTITION].at || check_partition(kinds[AIE_PARTITION], why);
}

/* The two classes have the same fields in other places. */
struct elf_header {
	uint64_t program_at, section_at;
	uint32_t header_size, program_size, programs, section_size, sections, names;
};

static bool read_elf_header(struct span s, struct elf_header *h, bool *wide)
{
	if (s.size < EI_NIDENT || memcmp(s.at, ELFMAG, SELFMAG) != 0 || s.at[EI_DATA] != ELFDATA2LSB ||
	    s.at[EI_VERSION] != EV_CURRENT)
		return false;
	if (s.at[EI_CLASS] == ELFCLASS64 && s.size >= sizeof(Elf64_Ehdr)) {
		Elf64_Ehdr e;
		memcpy(&e, s.at, sizeof e);
		*h = (struct elf_header){e.e_phoff, e.e_shoff,	   e.e_ehsize, e.e_phentsize,
					 e.e_phnum, e.e_shentsize, e.e_shnum,  e.e_shstrndx};
		*wide = true;
		return h->header_size == sizeof e &&
		       (!h->programs || h->program_size == sizeof(Elf64_Phdr)) &&
		       (!h->sections || h->section_size == sizeof(Elf64_Shdr));
	}
	if (s.at[EI_CLASS] == ELFCLASS32 && s.size >= sizeof(Elf32_Ehdr)) {
		Elf32_Ehdr e;
		memcpy(&e, s.at, sizeof e);
		*h = (struct elf_header){e.e_phoff, e.e_shoff,	   e.e_ehsize, e.e_phentsize,
					 e.e_phnum, e.e_shentsize, e.e_shnum,  e.e_shstrndx};
		*wide = false;
		return h->header_size == sizeof e &&
		       (!h->programs || h->program_size == sizeof(Elf32_Phdr)) &&
		       (!h->sections || h->section_size == sizeof(Elf32_Shdr));
	}
	return false;
}

struct elf_section {
	uint32_t name, type, link;
	uint64_t from, size, entry;
};

static struct elf_section elf_section(struct span s, const struct elf_header *h, bool wide, uint32_t i)
{
	const unsigned char *at = s.at + h->section_at + (size_t)i * h->section_size;

	if (wide) {
		Elf64_Shdr e;
		memcpy(&e, at, sizeof e);
		return (struct elf_section){e.sh_name,	 e.sh_type, e.sh_link,
					    e.sh_offset, e.sh_size, e.sh_entsize};
	}
	Elf32_Shdr e;
	memcpy(&e, at, sizeof e);
	return (struct elf_section){e.sh_name, e.sh_type, e.sh_link, e.sh_offset, e.sh_size, e.sh_entsize};
}

static bool check_elf_section(struct span s, struct elf_section e, uint32_t i, uint32_t sections,
			      struct device_why *why)
{
	if (e.type == SHT_NULL || e.type == SHT_NOBITS)
		return true;
	if (!inside(s.size, e.from, e.size, 1))
		return refuse(why, "its section %u lies outside of the file", i);
	if (e.type == SHT_STRTAB && e.size && s.at[e.from + e.size - 1])
		return refuse(why, "the strings of its section %u have no end", i);
	bool table = e.type == SHT_SYMTAB || e.type == SHT_DYNSYM || e.type == SHT_RELA || e.type == SHT_REL;
	if (table && (e.link >= sections || e.entry == 0 || e.size % e.entry))
		return refuse(why, "its table in section %u does not add up", i);
	return true;
}

bool kimage_elf(const void *bytes, size_t size, struct device_why *why)
{
	struct span s = {bytes, size};
	struct elf_header h;
	bool wide;

	if (!read_elf_header(s, &h, &wide))
		return refuse(why, "it is no little-endian ELF");
	if (!h.sections || !inside(size, h.section_at, h.sections, h.section_size) ||
	    !inside(size, h.program_at, h.programs, h.program_size))
		return refuse(why, "its headers lie outside of the file");
	if (h.names >= h.sections)
		return refuse(why, "its section names are in a section there is not");
	struct elf_section names = elf_section(s, &h, wide, h.names);
	if (names.type != SHT_STRTAB)
		return refuse(why, "its section names are no strings");
	for (uint32_t i = 0; i < h.sections; i++) {
		struct elf_section e = elf_section(s, &h, wide, i);
		if (e.name >= names.size)
			return refuse(why, "the name of its section %u lies outside of the names", i);
		if (!check_elf_section(s, e, i, h.sections, why))
			return false;
	}
	for (uint32_t i = 0; i < h.programs; i++) {
		size_t at = (size_t)h.program_at + (size_t)i * h.program_size;
		uint64_t from = wide ? get(s, at + 8, 8) : get(s, at + 4, 4);
		uint64_t bytes_there = wide ? get(s, at + 32, 8) : get(s, at + 16, 4);
		if (!inside(size, from, bytes_there, 1))
			return refuse(why, "its segment %u lies outside of the file", i);
	}
	return true;
}

bool kimage_instructions(const void *bytes, size_t size, struct device_why *why)
{
	struct span s = {bytes, size};

	if (size < 16 || size % 4)
		return refuse(why, "it is no stream of 32-bit instructions with a header (%zu bytes)", size);
	uint64_t operations = get(s, 8, 4), length = get(s, 12, 4);
	if (length != size)
		return refuse(why, "its header says %" PRIu64 " bytes and it has %zu", length, size);
	if (operations == 0 || operations > (size - 16) / 4)
		return refuse(why, "its header claims %" PRIu64 " operations, which it has no room for",
			      operations);
	return true;
}

/* Reads a whole file into memory of the caller. */
static int read_file(const char *path, unsigned char **out, size_t *size, struct device_why *why)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), code = DEVICE_E_BAD_KERNEL;
	unsigned char *bytes = NULL;

	if (fd < 0 || fstat(fd, &st)) {
		code = errno == EACCES ? DEVICE_E_DENIED : DEVICE_E_BAD_KERNEL;
		refuse(why, "kernel file %s: %s", path, strerror(errno));
	} else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > FILE_MAX) {
		refuse(why, "kernel file %s: not a plain file of at most %" PRIu64 " MiB", path,
		       FILE_MAX >> 20);
	} else if (!(bytes = malloc((size_t)st.st_size + 1))) {
		code = DEVICE_E_NO_MEMORY;
		refuse(why, "kernel file %s: no memory", path);
	} else if (pread(fd, bytes, (size_t)st.st_size, 0) != st.st_size) {
		refuse(why, "kernel file %s: cannot be read to its end", path);
	} else {
		*size = (size_t)st.st_size;
		*out = bytes;
		bytes = NULL;
		code = DEVICE_OK;
	}
	free(bytes);
	if (fd >= 0)
		close(fd);
	return code;
}

/* Reads one file and has it judged; "kernel file PATH: WHY". */
static int check_file(const struct design *d, const char *path, bool instructions, struct device_why *why)
{
	struct device_why reason = {""};
	unsigned char *bytes;
	size_t size;
	int r = read_file(path, &bytes, &size, why);

	if (r)
		return r;
	bool good = instructions		? kimage_instructions(bytes, size, &reason)
		    : d->image == DEVICE_XCLBIN ? kimage_xclbin(bytes, size, d->kernel, &reason)
						: kimage_elf(bytes, size, &reason);
	free(bytes);
	if (good)
		return DEVICE_OK;
	refuse(why, "kernel file %.150s: %.150s; build the kernel set again", path, reason.text);
	return DEVICE_E_BAD_KERNEL;
}

int kimage_design(const struct design *d, struct device_why *why)
{
	int r = check_file(d, d->file, false, why);

	return r || !d->instructions[0] ? r : check_file(d, d->instructions, true, why);
}
