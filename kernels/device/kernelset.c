#include "kernelset.h"
#include "kimage.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESIGNS_MAX 256u
#define MANIFEST_MAX ((size_t)1 << 16)
#define MANIFEST KERNELSET_MANIFEST

static int refuse(struct device_why *why, int code, const char *directory, const char *what)
{
	snprintf(why->text, sizeof why->text, "kernel set %.120s: %.240s", directory, what);
	return code;
}

/* A plain name within the directory, joined to it. */
static bool path_make(char to[DEVICE_PATH_MAX], const char *directory, const char *name)
{
	if (!*directory || !*name || *name == '.' || strchr(name, '/'))
		return false;
	return snprintf(to, DEVICE_PATH_MAX, "%s/%s", directory, name) < DEVICE_PATH_MAX;
}

/* What is wrong with the geometry, or NULL. */
static const char *geometry_wrong(json_int_t rows, json_int_t kd, json_int_t nd, const char *layout)
{
	bool blocked = strcmp(layout, "blocked") == 0;

	if (!blocked && strcmp(layout, "row-major") != 0)
		return "layout is \"row-major\" or \"blocked\"";
	if (rows < 1 || rows > 4096)
		return "rows is 1 to 4096";
	if (kd < 64 || kd > 1 << 20 || kd % 64)
		return "kd is a multiple of 64, at most 1048576";
	if (nd < 1 || nd > 1 << 20 || (blocked && nd % 128))
		return "nd is at most 1048576, and a multiple of 128 in the blocked layout";
	if (kd * nd > INT32_MAX || rows * nd > INT32_MAX / 4 || rows * kd > INT32_MAX)
		return "a tile, or the rows of a launch, would be more than 2 GiB";
	return NULL;
}

static const char *design_read(struct design *d, json_t *from, const char *directory)
{
	const char *layout, *image, *file, *kernel, *instructions = "";
	json_int_t rows, kd, nd;
	json_error_t error;
	static const char shape[] = "{s:I, s:I, s:I, s:s, s:s, s:s, s:s, s?s}";

	if (json_unpack_ex(from, &error, JSON_STRICT, shape, "rows", &rows, "kd", &kd, "nd", &nd, "layout",
			   &layout, "image", &image, "file", &file, "kernel", &kernel, "instructions",
			   &instructions))
		return "it needs rows, kd, nd, layout, image, file, kernel and, for an xclbin, instructions, "
		       "and nothing "
		       "else";
	const char *wrong = geometry_wrong(rows, kd, nd, layout);
	if (wrong)
		return wrong;
	bool elf = strcmp(image, "elf") == 0;
	if (!elf && strcmp(image, "xclbin") != 0)
		return "image is \"xclbin\" or \"elf\"";
	if (elf == (*instructions != 0))
		return "an xclbin has an instruction file, an ELF has none";
	if (!*kernel || strlen(kernel) >= sizeof d->kernel)
		return "kernel is a name of 1 to 63 bytes";
	if (!path_make(d->file, directory, file) ||
	    (!elf && !path_make(d->instructions, directory, instructions)))
		return "files are plain names within the directory";
	d->rows = (uint32_t)rows;
	d->kd = (uint32_t)kd;
	d->nd = (uint32_t)nd;
	d->layout = strcmp(layout, "blocked") == 0;
	d->image = elf ? DEVICE_ELF : DEVICE_XCLBIN;
	snprintf(d->kernel, sizeof d->kernel, "%s", kernel);
	return NULL;
}

static int read_designs(struct kernelset *s, json_t *list, const char *directory, struct device_why *why)
{
	size_t count = json_array_size(list);

	if (!json_is_array(list) || count == 0 || count > DESIGNS_MAX)
		return refuse(why, DEVICE_E_BAD_KERNEL, directory, "designs is a list of 1 to 256 records");
	struct design *designs = calloc(count, sizeof *designs);
	if (!designs)
		return refuse(why, DEVICE_E_NO_MEMORY, directory, "no memory");
	for (size_t i = 0; i < count; i++) {
		const char *wrong = design_read(&designs[i], json_array_get(list, i), directory);
		if (!wrong)
			continue;
		char text[256];
		snprintf(text, sizeof text, "design %zu of " MANIFEST ": %s", i + 1, wrong);
		free(designs);
		return refuse(why, DEVICE_E_BAD_KERNEL, directory, text);
	}
	*s = (struct kernelset){designs, (uint32_t)count};
	return DEVICE_OK;
}

int kernelset_parse(struct kernelset *s, const char *text, size_t size, const char *directory,
		    struct device_why *why)
{
	json_error_t error;
	json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
	json_t *list = NULL;
	json_int_t format = 0;
	int r;

	*s = (struct kernelset){0};
	if (!root) {
		char line[256];
		snprintf(line, sizeof line, MANIFEST " is no JSON: line %d: %.160s", error.line, error.text);
		return refuse(why, DEVICE_E_BAD_KERNEL, directory, line);
	}
	if (json_unpack(root, "{s:I, s:o}", "format", &format, "designs", &list) || format != 1)
		r = refuse(why, DEVICE_E_BAD_KERNEL, directory,
			   MANIFEST " needs \"format\": 1 and \"designs\"; docs/kernels.md has an example");
	else
		r = read_designs(s, list, directory, why);
	json_decref(root);
	return r;
}

/* The manifest, open; whoever made it a pipe does not hold us up. -1 with errno. */
static int manifest_open(const char *directory)
{
	char path[DEVICE_PATH_MAX];
	struct stat st;

	errno = ENAMETOOLONG;
	int fd = path_make(path, directory, MANIFEST) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
		close(fd);
		errno = EINVAL;
		fd = -1;
	}
	return fd;
}

int kernelset_manifest(char **out, const char *directory, struct device_why *why)
{
	char *text = malloc(MANIFEST_MAX), line[256];

	if (!text)
		return refuse(why, DEVICE_E_NO_MEMORY, directory, "no memory");
	int fd = manifest_open(directory);
	if (fd < 0) {
		int code = errno == EACCES   ? DEVICE_E_DENIED
			   : errno == EINVAL ? DEVICE_E_BAD_KERNEL
					     : DEVICE_E_ABSENT;
		snprintf(line, sizeof line, MANIFEST " cannot be read: %s",
			 errno == EINVAL ? "it is no plain file" : strerror(errno));
		free(text);
		return refuse(why, code, directory, line);
	}
	ssize_t size = pread(fd, text, MANIFEST_MAX, 0);
	close(fd);
	if (size < 0 || size == MANIFEST_MAX || memchr(text, 0, (size_t)size)) {
		free(text);
		return refuse(why, DEVICE_E_BAD_KERNEL, directory,
			      MANIFEST " is longer than 64 KiB, no text, or cannot be read");
	}
	text[size] = '\0';
	*out = text;
	return DEVICE_OK;
}

int kernelset_check(const struct kernelset *s, struct device_why *why)
{
	int r = DEVICE_OK;

	for (uint32_t i = 0; r == 0 && i < s->count; i++)
		r = kimage_design(&s->designs[i], why);
	return r;
}

int kernelset_open(struct kernelset *s, const char *directory, struct device_why *why)
{
	char *text, *real = realpath(directory, NULL);

	*s = (struct kernelset){0};
	int r = kernelset_manifest(&text, real ? real : directory, why);
	if (r == DEVICE_OK) {
		r = kernelset_parse(s, text, strlen(text), real ? real : directory, why);
		free(text);
	}
	free(real);
	if (r == DEVICE_OK)
		r = kernelset_check(s, why);
	if (r)
		kernelset_close(s);
	return r;
}

void kernelset_close(struct kernelset *s)
{
	free(s->designs);
	*s = (struct kernelset){0};
}

struct geometry design_geometry(const struct design *d, uint32_t nv, uint32_t h)
{
	return (struct geometry){.nv = nv,
				 .h = h,
				 .kd = d->kd,
				 .nd = d->nd,
				 .tiles = (uint32_t)(((uint64_t)nv + d->nd - 1) / d->nd),
				 .layout = d->layout ? LAYOUT_BLOCKED : LAYOUT_ROW_MAJOR};
}

static uint64_t design_bytes(const struct design *d, uint32_t nv)
{
	return ((uint64_t)nv + d->nd - 1) / d->nd * d->nd * d->kd;
}

/* What a device reads in the time that a launch costs besides: some 100 us, at 10 GB/s. */
#define LAUNCH_BYTES (UINT64_C(1) << 20)

static uint64_t design_cost(const struct design *d, uint32_t nv)
{
	return design_bytes(d, nv) + ((uint64_t)nv + d->nd - 1) / d->nd * LAUNCH_BYTES;
}

/* Whether a suits `rows` better than b does, their costs being equal. */
static bool rows_better(const struct design *a, const struct design *b, uint32_t rows)
{
	bool a_takes = a->rows >= rows, b_takes = b->rows >= rows;

	if (a_takes != b_takes)
		return a_takes;
	return a_takes ? a->rows < b->rows : a->rows > b->rows;
}

const struct design *kernelset_choose(const struct kernelset *s, uint32_t nv, uint32_t h, unsigned layouts,
				      uint32_t rows)
{
	uint64_t most = 2 * (((uint64_t)h + 63) / 64 * 64) * (((uint64_t)nv + 127) / 128 * 128);
	const struct design *best = NULL;

	for (uint32_t i = 0; i < s->count; i++) {
		const struct design *d = &s->designs[i];
		uint64_t cost = design_cost(d, nv);
		if (!(layouts & 1u << d->layout) || d->kd < h || design_bytes(d, nv) > most)
			continue;
		if (!best || cost < design_cost(best, nv) ||
		    (cost == design_cost(best, nv) && rows_better(d, best, rows)))
			best = d;
	}
	return best;
}
