#include "model.h"
#include "hub.h"
#include "own.h"
#include "shard.h"
#include "weight_map.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A directory of models: one of more entries is not a model's. */
#define NAMES_MAX 4096u
/* The widest models are cut in some 200 files; the name has room for 99999. */
#define SHARDS_MAX 4096u

static const char safetensors[] = ".safetensors", gguf[] = ".gguf", q4nx[] = ".q4nx",
		  index_tail[] = ".safetensors.index.json", model_index[] = "model.safetensors.index.json";

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static bool ends_with(const char *name, const char *tail)
{
	size_t size = strlen(name), end = strlen(tail);
	return size > end && strcmp(name + size - end, tail) == 0;
}

void model_fini(struct model *m)
{
	for (size_t i = 0; i < m->count; i++) {
		close(m->files[i].fd);
		free(m->files[i].name);
	}
	free(m->files);
	*m = (struct model){.files = NULL};
}

/* Adds `folder`/`name`. 0 without adding where it is not there and `optional`. */
static int add(struct model *m, const char *folder, const char *name, bool optional, struct err *err)
{
	char path[PATH_MAX], shown[256];
	int n = snprintf(path, sizeof path, "%s%s", folder, name);
	if (n < 0 || (size_t)n >= sizeof path)
		return err_set(err, NPU_E_BAD_VALUE, "the path of a model file has %d bytes; %d are allowed",
			       n, PATH_MAX - 1);
	err_printable(shown, sizeof shown, path, strlen(path));

	/* Without O_NONBLOCK a named pipe would hold us until somebody writes. */
	cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	if (fd < 0 && errno == ENOENT && optional)
		return 0;
	bool socket = fd < 0 && errno == ENXIO;
	if (!socket && (fd < 0 || fstat(fd, &st) != 0)) {
		int number = errno;
		err_sys(err, number, "%s: cannot open", shown);
		return err_set(err, err->code, "%s; check the %s", err->text,
			       number == EACCES || number == EPERM ? "permissions" : "path");
	}
	if (socket || !S_ISREG(st.st_mode))
		return err_set(err, NPU_E_BAD_VALUE, "%s: is not a regular file; name the model file", shown);
	struct model_file *more = reallocarray(m->files, m->count + 1, sizeof *more);
	if (!more)
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory", shown);
	m->files = more;
	char *copy = strdup(name);
	if (!copy)
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory", shown);
	m->files[m->count++] = (struct model_file){take_fd(&fd), copy};
	return 0;
}

/* Every shard of the model that `name` is a shard of. */
static int add_shards(struct model *m, const char *folder, const char *name, const struct shard *s,
		      struct err *err)
{
	char one[NAME_MAX + 1];
	if (s->count > SHARDS_MAX)
		return err_set(err, NPU_E_TOO_LARGE, "a model of %u files; the most is %u", s->count,
			       SHARDS_MAX);
	for (unsigned i = 1; i <= s->count; i++) {
		snprintf(one, sizeof one, "%.*s-%05u-of-%05u%s", (int)s->stem, name, i, s->count,
			 s->extension);
		int r = add(m, folder, one, false, err);
		if (r)
			return err_set(err, r, "%s; the model has %u files: is the download complete?",
				       err->text, s->count);
	}
	return 0;
}

/* What Hugging Face and FastFlowLM call the model, beside whatever else is there. */
static bool is_whole(const char *name)
{
	return strcmp(name, "model.safetensors") == 0 || strcmp(name, "model.q4nx") == 0;
}

/* An index of shards beside them. */
struct index {
	char name[NAME_MAX + 1]; /* "" where there is none */
	struct weight_map map;
};

static void index_fini(struct index *x)
{
	weight_map_fini(&x->map);
	x->name[0] = 0;
}

/* Reads `folder`/`name`, leaving `out` as it is where that does not exist. */
static int index_read(struct index *out, const char *folder, const char *name, struct err *err)
{
	cleanup(model_fini) struct model one = {.files = NULL};
	struct index x = {.name = ""};
	char shown[200];

	if (strlen(name) >= sizeof x.name)
		return 0;
	int r = add(&one, folder, name, true, err);
	if (r == 0 && one.count)
		r = weight_map_read(&x.map, one.files[0].fd,
				    err_printable(shown, sizeof shown, name, strlen(name)), err);
	if (r || one.count == 0)
		return r;
	memcpy(x.name, name, strlen(name) + 1);
	index_fini(out);
	*out = x;
	return 0;
}

/*
 * The index of the file `name`: that of its stem, or the model's where it says that `name` is a part. Names
 * tell less: there are shards from 00000 on, and some of six digits or of none.
 */
static int index_of(struct index *out, const char *folder, const char *name, struct err *err)
{
	char own[NAME_MAX + 1 + sizeof index_tail];
	struct shard s;
	int r = 0;

	if (shard_read(&s, name)) {
		snprintf(own, sizeof own, "%.*s%s", (int)s.stem, name, index_tail);
		r = index_read(out, folder, own, err);
	}
	if (r || out->name[0])
		return r;
	r = index_read(out, folder, model_index, err);
	if (r == 0 && !weight_map_has(&out->map, name))
		index_fini(out);
	return r;
}

/* Every file that the index says tensors are in, and what is beside them. */
static int add_indexed(struct model *m, const char *folder, const struct index *x, struct err *err)
{
	char shown[200];

	err_printable(shown, sizeof shown, x->name, strlen(x->name));
	if (x->map.count == 0)
		return err_set(err, NPU_E_BAD_VALUE,
			       "%s: its weight_map names no .safetensors file beside it; name the model file",
			       shown);
	for (size_t i = 0; i < x->map.count; i++) {
		int r = add(m, folder, x->map.files[i], false, err);
		if (r)
			return err_set(err, r,
				       "%s; %s says that tensors are in it: is the download complete?",
				       err->text, shown);
	}
	int r = add(m, folder, x->name, false, err);
	return r ? r : add(m, folder, "config.json", true, err);
}

/*
 * The model that the weights' file `name` belongs to: its other shards, and beside safetensors what says
 * where tensors are and whether the head is tied. A config.json is its folder's: it is taken for the files
 * that are a folder's model by their names, or when the folder was meant.
 */
static int add_model(struct model *m, const char *folder, const char *name, bool is_folders, struct err *err)
{
	cleanup(index_fini) struct index x = {.name = ""};
	struct shard s;
	bool sharded = shard_read(&s, name);
	bool json = ends_with(name, safetensors) || ends_with(name, q4nx);
	is_folders = is_folders || sharded || strncmp(name, "model.", 6) == 0;

	int r = ends_with(name, safetensors) && !is_whole(name) ? index_of(&x, folder, name, err) : 0;
	if (r)
		return r;
	if (x.name[0] && !weight_map_has(&x.map, name))
		return err_set(
			err, NPU_E_BAD_VALUE,
			"%s: %s, which is beside it, says of no tensor that it is in it; name the model "
			"file that is meant",
			name, x.name);
	if (x.name[0])
		return add_indexed(m, folder, &x, err);
	r = sharded ? add_shards(m, folder, name, &s, err) : add(m, folder, name, false, err);
	return r == 0 && json && is_folders ? add(m, folder, "config.json", true, err) : r;
}

struct names {
	char *at[NAMES_MAX];
	size_t count;
	bool pickles;		 /* PyTorch's own files are there */
	char part[NAME_MAX + 1]; /* a shard that is not the first, "" for none */
};

static void names_freep(struct names **n)
{
	if (!*n)
		return;
	for (size_t i = 0; i < (*n)->count; i++)
		free((*n)->at[i]);
	free(*n);
}

static int name_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Projectors for pictures have no head and go with a model, and so does what quantisers have measured. */
static bool is_weights(const char *name)
{
	return (ends_with(name, safetensors) || ends_with(name, gguf) || ends_with(name, q4nx)) &&
	       !strcasestr(name, "mmproj") && !strcasestr(name, "imatrix");
}

/* One name for all shards of a model. */
static int names_read(struct names *n, const char *folder, struct err *err)
{
	cleanup(closedirp) DIR *d = opendir(folder);
	const struct dirent *e;
	char shown[200];

	err_printable(shown, sizeof shown, folder, strlen(folder));
	if (!d) {
		int number = errno;
		return err_sys(err, number, "%s: cannot read the directory", shown);
	}
	while ((e = readdir(d))) {
		n->pickles = n->pickles || ends_with(e->d_name, ".bin") || ends_with(e->d_name, ".pt") ||
			     ends_with(e->d_name, ".pth");
		if (!is_weights(e->d_name))
			continue;
		struct shard s;
		if (shard_read(&s, e->d_name) && s.number != 1) {
			snprintf(n->part, sizeof n->part, "%s", e->d_name);
			continue;
		}
		if (n->count == NAMES_MAX)
			return err_set(err, NPU_E_BAD_VALUE,
				       "%s: the directory has more than %u models; name one of them", shown,
				       NAMES_MAX);
		n->at[n->count] = strdup(e->d_name);
		if (!n->at[n->count])
			return err_set(err, NPU_E_NO_MEMORY, "out of memory");
		n->count++;
	}
	if (n->count)
		qsort(n->at, n->count, sizeof *n->at, name_order);
	return 0;
}

static bool is_first(const char *name)
{
	struct shard s;
	return shard_read(&s, name) && s.stem == 5 && strncmp(name, "model", 5) == 0;
}

/* Whole ones first, as Hugging Face's library takes them. */
static const char *names_choose(const struct names *n)
{
	for (int i = 0; i < 2; i++)
		for (size_t k = 0; k < n->count; k++)
			if (i == 0 ? is_whole(n->at[k]) : is_first(n->at[k]))
				return n->at[k];
	return n->count == 1 ? n->at[0] : NULL;
}

/* An index alone, whose files were never fetched, is no model: then another may be meant. */
static bool index_leads_to_a_file(const struct index *x, const char *folder)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < x->map.count; i++) {
		int n = snprintf(path, sizeof path, "%s%s", folder, x->map.files[i]);
		if (n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0)
			return true;
	}
	return false;
}

static int add_folder(struct model *m, const char *folder, struct err *err)
{
	cleanup(names_freep) struct names *n = calloc(1, sizeof *n);
	cleanup(index_fini) struct index x = {.name = ""};
	char shown[160], some[200] = "";

	if (!n)
		return err_set(err, NPU_E_NO_MEMORY, "out of memory");
	int r = names_read(n, folder, err);
	if (r)
		return r;
	const char *chosen = names_choose(n);
	if (!chosen || !is_whole(chosen)) {
		r = index_read(&x, folder, model_index, err);
		if (r || (x.name[0] && index_leads_to_a_file(&x, folder)))
			return r ? r : add_indexed(m, folder, &x, err);
	}
	if (chosen)
		return add_model(m, folder, chosen, true, err);
	/* Either says what is missing. */
	if (n->count == 0 && n->part[0])
		return add_model(m, folder, n->part, true, err);
	if (n->count == 0 && x.name[0])
		return add_indexed(m, folder, &x, err);

	err_printable(shown, sizeof shown, folder, strlen(folder));
	if (n->count == 0)
		return err_set(err, NPU_E_BAD_VALUE,
			       "%s: the directory has no model (*.safetensors, *.gguf, *.q4nx); %s", shown,
			       n->pickles ? "PyTorch's *.bin and *.pt are not read: save them as safetensors"
					  : "name the model file");
	for (size_t i = 0; i < n->count && i < 4 && n->at[i]; i++) {
		char one[60];
		size_t used = strlen(some);
		err_printable(one, sizeof one, n->at[i], strlen(n->at[i]));
		snprintf(some + used, sizeof some - used, "%s%s", i ? ", " : "", one);
	}
	return err_set(err, NPU_E_BAD_VALUE, "%s: the directory has %zu models (%s%s); name one of them",
		       shown, n->count, some, n->count > 4 ? ", ..." : "");
}

static int add_index(struct model *m, const char *folder, const char *name, struct err *err)
{
	cleanup(index_fini) struct index x = {.name = ""};
	int r = index_read(&x, folder, name, err);

	if (r == 0 && !x.name[0]) /* which says why it cannot be opened */
		return add(m, folder, name, false, err);
	return r ? r : add_indexed(m, folder, &x, err);
}

static int add_file(struct model *m, const char *path, struct err *err)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	int n = snprintf(folder, sizeof folder, "%.*s", (int)(base - path), path);

	if (n < 0 || (size_t)n >= sizeof folder || !*base)
		return err_set(err, NPU_E_BAD_VALUE, "the model's path has %zu bytes; it may have %d",
			       strlen(path), PATH_MAX - 1);
	if (ends_with(base, index_tail))
		return add_index(m, folder, base, err);
	return add_model(m, folder, base, false, err);
}

/* The last part of a path, whatever slashes it ends in; of "." the directory's own name. */
static void label_of(struct model *m, const char *path)
{
	cleanup(freep) char *whole = realpath(path, NULL);
	const char *from = whole ? whole : path, *slash = strrchr(from, '/');
	const char *base = slash && slash[1] ? slash + 1 : from;
	err_printable(m->label, sizeof m->label, base, strlen(base));
}

static int open_directory(struct model *m, const char *path, struct err *err)
{
	cleanup(freep) struct hub_found *snapshot = malloc(sizeof *snapshot);
	char folder[PATH_MAX];

	if (!snapshot)
		return err_set(err, NPU_E_NO_MEMORY, "out of memory");
	bool repository = hub_snapshot(snapshot, path);
	int n = snprintf(folder, sizeof folder, "%s/", repository ? snapshot->path : path);
	if (n < 0 || (size_t)n >= sizeof folder)
		return err_set(err, NPU_E_BAD_VALUE, "the model's path has %zu bytes; it may have %d",
			       strlen(path), PATH_MAX - 2);
	if (repository)
		memcpy(m->label, snapshot->label, sizeof m->label);
	else
		label_of(m, path);
	return add_folder(m, folder, err);
}

static int open_path(struct model *m, const char *path, const struct stat *st, struct err *err)
{
	if (S_ISDIR(st->st_mode))
		return open_directory(m, path, err);
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	err_printable(m->label, sizeof m->label, base, strlen(base));
	return add_file(m, path, err);
}

static int open_named(struct model *m, const char *name, struct err *err)
{
	cleanup(freep) struct hub_found *found = malloc(sizeof *found);
	struct stat st;

	if (!found)
		return err_set(err, NPU_E_NO_MEMORY, "out of memory");
	int r = hub_find(found, name, err);
	if (r)
		return r;
	if (stat(found->path, &st) != 0) {
		int number = errno;
		return err_sys(err, number, "%s: found at %.300s", found->label, found->path);
	}
	r = open_path(m, found->path, &st, err);
	memcpy(m->label, found->label, sizeof m->label);
	return r;
}

int model_find(struct model *out, const char *name, struct err *err)
{
	cleanup(model_fini) struct model m = {.files = NULL};
	struct stat st;
	int r;

	if (!*name)
		return err_set(err, NPU_E_BAD_VALUE,
			       "the name of the model is empty; give a file, a directory or a name");
	if (stat(name, &st) == 0)
		r = open_path(&m, name, &st, err);
	else if (errno == ENOENT || errno == ENOTDIR)
		r = open_named(&m, name, err);
	else
		r = add_file(&m, name, err); /* says why it cannot be opened */
	if (r)
		return r;
	*out = m;
	m = (struct model){.files = NULL};
	return 0;
}
