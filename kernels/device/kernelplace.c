#include "kernelplace.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SET ".npud-XXXXXX" /* behind the name of the place: what a set is called; mkdtemp fills it in */
#define SET_PREFIX ".npud-"

/* Whether a file beside the place is called as a set is. */
static bool is_set(const char *name, const char *place)
{
	size_t length = strlen(place);

	return strncmp(name, place, length) == 0 && strlen(name) == length + strlen(SET) &&
	       !strchr(name, '/') && strncmp(name + length, SET_PREFIX, strlen(SET_PREFIX)) == 0;
}

/* The place, taken apart; its directory is open and locked. */
struct place {
	char path[DEVICE_PATH_MAX];
	const char *name; /* within the directory */
	char old[256];	  /* the link's name */
	int directory;
};

__attribute__((format(printf, 3, 4))) static int refuse(struct device_why *why, int code, const char *format,
							...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why->text, sizeof why->text, format, args);
	va_end(args);
	return code;
}

static int refuse_errno(struct device_why *why, const char *what)
{
	int error = errno;

	if (error == ENOENT || error == ENOTDIR)
		return refuse(
			why, DEVICE_E_ABSENT,
			"%.250s: %s; a kernel set is a directory with kernels.json and every file that it "
			"names, or with what mlir-aie builds (docs/kernels.md)",
			what, strerror(error));
	if (error == EACCES || error == EPERM || error == EROFS)
		return refuse(why, DEVICE_E_DENIED, "%.250s: %s; run it as root, or as the user npud runs as",
			      what, strerror(error));
	return refuse(why, DEVICE_E_FAULT, "%.250s: %s", what, strerror(error));
}

static void place_close(struct place *p)
{
	close(p->directory);
}

static int place_open(struct place *p, const char *place, struct device_why *why)
{
	if (snprintf(p->path, sizeof p->path, "%s", place) >= (int)sizeof p->path)
		return refuse(why, DEVICE_E_BAD_CALL, "the path of the place is too long");
	char *slash = strrchr(p->path, '/');
	if (!slash || slash == p->path || !slash[1] || strlen(slash + 1) > sizeof p->old - 16)
		return refuse(why, DEVICE_E_BAD_CALL, "%.250s is no place for a kernel set", place);
	p->name = slash + 1;
	snprintf(p->old, sizeof p->old, "%s.old", p->name);
	*slash = '\0';
	p->directory = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = DEVICE_OK;
	if (p->directory < 0 && errno == ENOENT)
		r = refuse(why, DEVICE_E_BAD_CALL,
			   "%.250s: there is no such directory for a kernel set to go to: make it, or name "
			   "another "
			   "place in [device] kernels",
			   p->path);
	else if (p->directory < 0 || flock(p->directory, LOCK_EX))
		r = refuse_errno(why, p->path);
	*slash = '/';
	if (r && p->directory >= 0)
		close(p->directory);
	return r;
}

/* The set that a link beside the place leads to, by its name; "" where there is no link. */
static int link_read(const struct place *p, const char *name, char set[256], struct device_why *why)
{
	ssize_t n = readlinkat(p->directory, name, set, 255);

	set[n < 0 ? 0 : n] = '\0';
	if (n < 0 && errno == EINVAL)
		return refuse(why, DEVICE_E_BAD_CALL,
			      "%.250s is no kernel set that npuctl imported: move it away first, or name "
			      "another place in "
			      "[device] kernels",
			      p->path);
	if (n < 0 && errno != ENOENT)
		return refuse_errno(why, p->path);
	if (n >= 0 && !is_set(set, p->name))
		return refuse(why, DEVICE_E_BAD_CALL,
			      "%.200s leads to %.60s, which npuctl did not import: remove the link first",
			      p->path, set);
	return DEVICE_OK;
}

/* Has the link lead to the set, or takes it away for "". */
static int link_set(const struct place *p, const char *name, const char *set, struct device_why *why)
{
	char fresh[300];

	if (!*set)
		return unlinkat(p->directory, name, 0) && errno != ENOENT ? refuse_errno(why, p->path)
									  : DEVICE_OK;
	snprintf(fresh, sizeof fresh, "%s.link", p->name);
	if (unlinkat(p->directory, fresh, 0) && errno != ENOENT)
		return refuse_errno(why, p->path);
	if (symlinkat(set, p->directory, fresh) || renameat(p->directory, fresh, p->directory, name))
		return refuse_errno(why, p->path);
	return DEVICE_OK;
}

static void set_delete(const struct place *p, const char *set)
{
	int fd = openat(p->directory, set, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (struct dirent *e; (e = readdir(d));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			unlinkat(fd, e->d_name, 0);
	closedir(d);
	unlinkat(p->directory, set, AT_REMOVEDIR);
}

/* Deletes the sets that no link leads to: the one before the old one, and what an import that was killed
 * left. */
static void sweep(const struct place *p)
{
	char now[256], old[256];
	struct device_why why;
	int fd = openat(p->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		close(fd);
	if (d && link_read(p, p->name, now, &why) == DEVICE_OK &&
	    link_read(p, p->old, old, &why) == DEVICE_OK)
		for (struct dirent *e; (e = readdir(d));)
			if (is_set(e->d_name, p->name) && strcmp(e->d_name, now) != 0 &&
			    strcmp(e->d_name, old) != 0)
				set_delete(p, e->d_name);
	if (d)
		closedir(d);
}

/* The place has the set `now`, and undo leads to `old`. */
static int place_set(const struct place *p, const char *now, const char *old, struct device_why *why)
{
	int r = link_set(p, p->old, old, why);

	if (r == 0)
		r = link_set(p, p->name, now, why);
	if (r == 0 && fsync(p->directory))
		r = refuse_errno(why, p->path);
	if (r == 0)
		sweep(p);
	return r;
}

/* A design out of final_MxKxN[_...].xclbin, if its instructions are there; NULL where the name is no such
 * one. */
static json_t *design_of(const char *directory, const char *name)
{
	static const char *const ends[] = {".bin", ".txt"};
	unsigned rows, kd, nd;
	int after = 0;
	size_t length = strlen(name);

	if (length < 8 || length > 200 || strcmp(name + length - 7, ".xclbin") != 0 ||
	    sscanf(name, "final_%5ux%7ux%7u%n", &rows, &kd, &nd, &after) != 3 || !after ||
	    !strchr("_.", name[after]))
		return NULL;
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		char path[DEVICE_PATH_MAX + 256],
			*instructions = path + snprintf(path, sizeof path, "%.511s/", directory);
		snprintf(instructions, 256, "insts_%.*s%s", (int)(length - 13), name + 6, ends[i]);
		if (access(path, F_OK) == 0)
			return json_pack("{sI sI sI ss ss ss ss ss}", "rows", (json_int_t)rows, "kd",
					 (json_int_t)kd, "nd", (json_int_t)nd, "layout", "row-major", "image",
					 "xclbin", "file", name, "kernel", "MLIR_AIE", "instructions",
					 instructions);
	}
	return NULL;
}

/* A manifest for files that have none. */
static int manifest_make(char **out, const char *directory, struct device_why *why)
{
	json_t *designs = json_array();
	DIR *d = opendir(directory);

	if (!d || !designs) {
		json_decref(designs);
		int r = d ? refuse(why, DEVICE_E_NO_MEMORY, "no memory") : refuse_errno(why, directory);
		if (d)
			closedir(d);
		return r;
	}
	for (struct dirent *e; (e = readdir(d));) {
		json_t *design = design_of(directory, e->d_name);
		if (design)
			json_array_append_new(designs, design);
	}
	closedir(d);
	size_t count = json_array_size(designs);
	json_t *root = json_pack("{sI so}", "format", (json_int_t)1, "designs", designs);
	*out = root && count ? json_dumps(root, JSON_INDENT(1)) : NULL;
	json_decref(root);
	if (*out)
		return DEVICE_OK;
	return count ? refuse(why, DEVICE_E_NO_MEMORY, "no memory")
		     : refuse(why, DEVICE_E_ABSENT,
			      "%.200s has neither a kernels.json nor files named as mlir-aie names them "
			      "(final_MxKxN.xclbin with insts_MxKxN.bin); docs/kernels.md has an example",
			      directory);
}

static bool write_all(int fd, const char *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(fd, bytes, size);
		if (n < 0 && errno != EINTR)
			return false;
		bytes += n < 0 ? 0 : n;
		size -= n < 0 ? 0 : (size_t)n;
	}
	return true;
}

/* Writes a file of the new set, from memory or from another file. */
static int file_write(int to, const char *name, const char *text, const char *from, struct device_why *why)
{
	int out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	int in = from ? open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	char block[1 << 16];
	bool good = out >= 0 && (!from || in >= 0);
	ssize_t n = 0;

	if (good && !from)
		good = write_all(out, text, strlen(text));
	while (good && from && (n = read(in, block, sizeof block)) != 0)
		good = n > 0 && write_all(out, block, (size_t)n);
	good = good && fchmod(out, 0644) == 0 && fsync(out) == 0;
	int r = good ? DEVICE_OK : refuse_errno(why, from && in < 0 ? from : name);
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	return r;
}

static int file_copy(int to, const char *from, struct device_why *why)
{
	const char *name = strrchr(from, '/') + 1;

	/* Designs may share a file. */
	return faccessat(to, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? DEVICE_OK
								   : file_write(to, name, NULL, from, why);
}

static int set_copy(const struct kernelset *s, const char *manifest, const char *to, struct device_why *why)
{
	int fd = open(to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = fd < 0 ? refuse_errno(why, to) : file_write(fd, KERNELSET_MANIFEST, manifest, NULL, why);

	for (uint32_t i = 0; r == 0 && i < s->count; i++) {
		r = file_copy(fd, s->designs[i].file, why);
		if (r == 0 && s->designs[i].instructions[0])
			r = file_copy(fd, s->designs[i].instructions, why);
	}
	if (r == 0 && (fchmod(fd, 0755) || fsync(fd)))
		r = refuse_errno(why, to);
	if (fd >= 0)
		close(fd);
	return r;
}

/* Copies the set to a directory of its own beside the place, and checks it there. */
static int stage(const struct place *p, const struct kernelset *s, const char *manifest, char set[256],
		 struct device_why *why)
{
	char path[DEVICE_PATH_MAX + sizeof SET];
	struct kernelset copy;

	snprintf(path, sizeof path, "%s" SET, p->path);
	if (!mkdtemp(path))
		return refuse_errno(why, p->path);
	snprintf(set, 256, "%s", strrchr(path, '/') + 1);
	int r = set_copy(s, manifest, path, why);
	if (r == 0) { /* what was copied is what counts: files may change while they are read */
		r = kernelset_open(&copy, path, why);
		kernelset_close(&copy);
	}
	if (r)
		set_delete(p, set);
	return r;
}

/* The manifest of `from`, read or made, and the set it describes, checked. */
static int set_read(struct kernelset *s, char **manifest, const char *from, struct device_why *why)
{
	int r = kernelset_manifest(manifest, from, why);

	if (r == DEVICE_E_ABSENT)
		r = manifest_make(manifest, from, why);
	if (r)
		return r;
	r = kernelset_parse(s, *manifest, strlen(*manifest), from, why);
	if (r == 0)
		r = kernelset_check(s, why);
	if (r) {
		kernelset_close(s);
		free(*manifest);
	}
	return r;
}

int kernelplace_import(const char *place, const char *from, struct device_why *why)
{
	struct kernelset s;
	struct place p = {.directory = -1};
	char now[256], set[256], *manifest;
	int r = set_read(&s, &manifest, from, why);

	if (r)
		return r;
	r = place_open(&p, place, why);
	if (r == 0) {
		r = link_read(&p, p.name, now, why);
		if (r == 0)
			r = stage(&p, &s, manifest, set, why);
		if (r == 0)
			r = place_set(&p, set, now, why);
		place_close(&p);
	}
	kernelset_close(&s);
	free(manifest);
	return r;
}

int kernelplace_remove(const char *place, struct device_why *why)
{
	struct place p = {.directory = -1};
	char now[256];
	int r = place_open(&p, place, why);

	if (r)
		return r;
	r = link_read(&p, p.name, now, why);
	if (r == 0)
		r = *now ? place_set(&p, "", now, why)
			 : refuse(why, DEVICE_E_ABSENT, "%.250s: there is no kernel set to remove", place);
	place_close(&p);
	return r;
}

int kernelplace_undo(const char *place, struct device_why *why)
{
	struct place p = {.directory = -1};
	char now[256], old[256];
	int r = place_open(&p, place, why);

	if (r)
		return r;
	r = link_read(&p, p.name, now, why);
	if (r == 0)
		r = link_read(&p, p.old, old, why);
	if (r == 0)
		r = *old ? place_set(&p, old, now, why)
			 : refuse(why, DEVICE_E_ABSENT, "%.250s: there is no set before to go back to",
				  place);
	place_close(&p);
	return r;
}
