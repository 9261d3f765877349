#include "container_impl.h"
#include "own.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct type_info types[TYPE_COUNT] = {
#define TYPE(name, block, bytes) [TYPE_##name] = {#name, block, bytes},
#include "types.def"
#undef TYPE
};

const struct type_info *type_info(enum tensor_type type)
{
	assert((unsigned)type < TYPE_COUNT);
	return &types[type];
}

const char *tensor_type_name(enum tensor_type type)
{
	return type_info(type)->name;
}

const char *head_reason_name(enum head_reason why)
{
	static const char *const names[] = {
		[HEAD_NAMED] = "named", [HEAD_UNTIED] = "untied", [HEAD_TIED] = "tied"};
	return names[why];
}

/* The file that has the tensor, or the container where it is all of it or the whole is meant. */
static const struct container *part_of(const struct container *c, const struct tensor *t)
{
	return t && c->parts ? c->parts[t->file] : c;
}

int container_refuse(const struct container *c, const struct tensor *t, struct err *err, int code,
		     const char *format, ...)
{
	/* Together with the label less than err->text, which would be cut within a character. */
	char why[320], name[60];
	const struct container *part = part_of(c, t);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof why, format, arguments);
	va_end(arguments);
	if (t) {
		err_printable(name, sizeof name, t->name, t->name_size);
		err_set(err, code, "%s: tensor \"%s\": %s", part->label, name, why);
	} else {
		err_set(err, code, "%s: %s", part->label, why);
	}
	memcpy(err->detail.file, part->label, sizeof part->label);
	if (t)
		err_printable(err->detail.tensor, sizeof err->detail.tensor, t->name, t->name_size);
	return code;
}

int container_damaged(const struct container *c, const struct tensor *t, struct err *err, const char *format,
		      ...)
{
	char why[240];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof why, format, arguments);
	va_end(arguments);
	return container_refuse(c, t, err, NPU_E_BAD_CONTAINER,
				"%s; the file is damaged or not whole: fetch or convert it again", why);
}

int container_pread(const struct container *c, const struct tensor *t, uint64_t offset, void *to, size_t size,
		    struct err *err)
{
	const struct container *part = part_of(c, t);
	size_t have = 0;

	while (have < size) {
		ssize_t got = pread(part->fd, (char *)to + have, size - have, (off_t)(offset + have));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			int number = errno;
			err_sys(err, number, "%s: reading %zu bytes at byte %" PRIu64, part->label,
				size - have, offset + have);
			return err->code;
		}
		if (got == 0)
			return container_refuse(c, t, err, NPU_E_FILE_CHANGED,
						"the file ends at byte %" PRIu64 " and had %" PRIu64
						" bytes when it was opened",
						offset + have, part->size);
		have += (size_t)got;
	}
	return 0;
}

int container_add(struct container *c, const char *name, size_t name_size, struct tensor **out,
		  struct err *err)
{
	if (c->count == c->room) {
		size_t room = c->room ? 2 * c->room : 64;
		struct tensor *more = reallocarray(c->tensors, room, sizeof *more);
		if (!more)
			return container_refuse(c, NULL, err, NPU_E_NO_MEMORY, "no memory for %zu tensors",
						room);
		c->tensors = more;
		c->room = room;
	}

	char *copy = malloc(name_size + 1);
	if (!copy)
		return container_refuse(c, NULL, err, NPU_E_NO_MEMORY, "no memory for a name of %zu bytes",
					name_size);
	memcpy(copy, name, name_size);
	copy[name_size] = 0;

	struct tensor *t = &c->tensors[c->count++];
	*t = (struct tensor){.name = copy, .name_size = name_size};
	*out = t;
	return 0;
}

static int tensor_name_order(const void *a, const void *b)
{
	const struct tensor *x = *(const struct tensor *const *)a, *y = *(const struct tensor *const *)b;
	int order = memcmp(x->name, y->name, x->name_size < y->name_size ? x->name_size : y->name_size);

	return order ? order : (x->name_size > y->name_size) - (x->name_size < y->name_size);
}

int container_names_differ(const struct container *c, struct err *err)
{
	if (c->count < 2)
		return 0;

	cleanup(freep) const struct tensor **sorted = reallocarray(NULL, c->count, sizeof(*sorted));
	if (!sorted)
		return container_refuse(c, NULL, err, NPU_E_NO_MEMORY, "no memory to sort %zu names",
					c->count);
	for (size_t i = 0; i < c->count; i++)
		sorted[i] = &c->tensors[i];
	qsort(sorted, c->count, sizeof(*sorted), tensor_name_order);
	for (size_t i = 1; i < c->count; i++)
		if (tensor_name_order(&sorted[i - 1], &sorted[i]) == 0)
			return container_damaged(c, sorted[i], err, "two tensors have this name");
	return 0;
}

static int container_read(struct container *c, struct err *err)
{
	bool taken;
	char magic[4];

	/* Nothing is taken for safetensors wrongly: "GGUF" as a header length is above its limit, and so are
	 * the first numbers of a llama2.c checkpoint. */
	c->kind = CONTAINER_SAFETENSORS;
	if (c->size >= sizeof magic) {
		int code = container_pread(c, NULL, 0, magic, sizeof magic, err);
		if (code)
			return code;
		if (memcmp(magic, "GGUF", sizeof magic) == 0)
			c->kind = CONTAINER_GGUF;
	}
	if (c->kind == CONTAINER_GGUF)
		return gguf_read(c, err);
	int code = llama2c_read(c, &taken, err);
	if (taken)
		c->kind = CONTAINER_LLAMA2C;
	return code || taken ? code : safetensors_read(c, err);
}

static int container_new(struct container **out, const char *label, struct err *err)
{
	struct container *c = calloc(1, sizeof *c);

	if (!c)
		return err_set(err, NPU_E_NO_MEMORY, "no memory to open a model file");
	c->fd = -1;
	err_printable(c->label, sizeof c->label, label, strlen(label));
	*out = c;
	return 0;
}

int container_open_file(struct container **out, const struct container_file *file, bool json, struct err *err)
{
	cleanup(container_freep) struct container *c = NULL;
	struct stat status;
	int code = container_new(&c, file->name, err);

	if (code)
		return code;
	c->fd = file->fd;
	if (fstat(c->fd, &status) < 0) {
		int number = errno;
		err_sys(err, number, "%s: asking for the file's size", c->label);
		return err->code;
	}
	if (!S_ISREG(status.st_mode))
		return container_refuse(c, NULL, err, NPU_E_BAD_CONTAINER, "this is not a regular file");
	if (status.st_size <= 0)
		return container_damaged(c, NULL, err, "the file is empty");
	c->size = (uint64_t)status.st_size;
	c->kind = CONTAINER_JSON;
	code = json ? 0 : container_read(c, err);
	if (code)
		return code;
	*out = take(&c);
	return 0;
}

int container_open(struct container **out, const struct container_file *files, size_t count,
		   const char *label, struct err *err)
{
	cleanup(container_freep) struct container *c = NULL;
	const struct container_file alone = {files->fd, label};
	int code;

	if (count == 1) {
		code = container_open_file(&c, &alone, false, err);
		if (!code)
			code = group_check_alone(c, files->name, err);
	} else {
		code = container_new(&c, label, err);
		if (!code)
			code = group_read(c, files, count, err);
	}
	if (code)
		return code;
	*out = take(&c);
	return 0;
}

void container_free(struct container *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->part_count; i++)
		container_free(c->parts[i]);
	free(c->parts);
	for (size_t i = 0; i < c->count; i++)
		free(c->tensors[i].name);
	free(c->tensors);
	free(c);
}

void container_freep(struct container **c)
{
	container_free(*c);
}

size_t container_count(const struct container *c)
{
	return c->count;
}

const struct tensor *container_tensor(const struct container *c, size_t i)
{
	assert(i < c->count);
	return &c->tensors[i];
}

const char *container_format(const struct container *c)
{
	static const char *const names[] = {
		[CONTAINER_SAFETENSORS] = "safetensors",
		[CONTAINER_GGUF] = "GGUF",
		[CONTAINER_LLAMA2C] = "llama2.c",
		[CONTAINER_JSON] = "JSON",
	};

	return names[c->kind];
}

const struct tensor *container_find(const struct container *c, const char *name)
{
	size_t size = strlen(name);

	for (size_t i = 0; i < c->count; i++)
		if (c->tensors[i].name_size == size && memcmp(c->tensors[i].name, name, size) == 0)
			return &c->tensors[i];
	return NULL;
}

static uint64_t rows_of(const struct tensor *t)
{
	return t->rank == 2 ? t->shape[0] : 0;
}

/* A few names that are there, for whoever mistyped one: heads are what has most rows. */
static void container_some_names(const struct container *c, char *to, size_t room)
{
	const struct tensor *shown[5];
	size_t count = 0, used = 0;

	if (c->count == 0) {
		snprintf(to, room, "the file has no tensors");
		return;
	}
	for (const struct tensor *t = c->tensors; t < c->tensors + c->count; t++) {
		size_t at = count;
		while (at && rows_of(shown[at - 1]) < rows_of(t))
			at--;
		if (at == sizeof shown / sizeof *shown)
			continue;
		count += count < sizeof shown / sizeof *shown;
		memmove(shown + at + 1, shown + at, (count - at - 1) * sizeof(*shown));
		shown[at] = t;
	}
	used += (size_t)snprintf(to, room, "of its %zu: ", c->count);
	for (size_t i = 0; i < count; i++) {
		char name[48];
		err_printable(name, sizeof name, shown[i]->name, shown[i]->name_size);
		int more = snprintf(to + used, room - used, "%s\"%s\"", i ? ", " : "", name);
		if (more < 0 || (size_t)more >= room - used) {
			to[used] = 0;
			return;
		}
		used += (size_t)more;
	}
	if (count < c->count)
		snprintf(to + used, room - used, ", ...");
}

/* Models of pictures or sound and text have the text's tensors one level down. */
static const char *const untied_names[] = {"lm_head.weight",
					   "output.weight",
					   "wcls",
					   "language_model.lm_head.weight",
					   "language_model.output.weight",
					   "thinker.lm_head.weight",
					   NULL};
static const char *const tied_names[] = {"model.embed_tokens.weight",
					 "token_embd.weight",
					 "token_embedding_table",
					 "model.token_embd.weight",
					 "language_model.model.embed_tokens.weight",
					 "model.language_model.embed_tokens.weight",
					 "thinker.model.embed_tokens.weight",
					 NULL};

static const struct tensor *first_of(const struct container *c, const char *const *names)
{
	const struct tensor *found = NULL;

	for (; !found && *names; names++)
		found = container_find(c, *names);
	return found;
}

const struct tensor *container_embedding(const struct container *c)
{
	return first_of(c, tied_names);
}

/* NULL where the model has none. */
static const struct tensor *usual_head(const struct container *c, enum head_reason *why)
{
	const struct tensor *untied = first_of(c, untied_names);
	const struct tensor *tied = c->tie == TIE_NO ? NULL : container_embedding(c);
	bool said = c->tie == TIE_YES && tied && !(untied && untied->type == TYPE_I8);

	*why = untied && !said ? HEAD_UNTIED : HEAD_TIED;
	return untied && !said ? untied : tied;
}

/* The name's bytes before its last part, "lm_head." of "lm_head.weight"; 0 where it has one part. */
static size_t stem_of(const char *name)
{
	const char *dot = strrchr(name, '.');
	return dot ? (size_t)(dot - name) + 1 : 0;
}

/* A head in a form that is not read, GPTQ's lm_head.qweight: its embedding is not the head for that. */
static const struct tensor *other_form(const struct container *c)
{
	for (const char *const *name = untied_names; *name; name++) {
		size_t stem = stem_of(*name);
		for (size_t i = 0; stem && i < c->count; i++) {
			const struct tensor *t = &c->tensors[i];
			if (t->name_size > stem && memcmp(t->name, *name, stem) == 0 &&
			    strcmp(t->name + stem, "bias") != 0)
				return t;
		}
	}
	return NULL;
}

const struct tensor *container_bias(const struct container *c, const struct tensor *t)
{
	char bias[64];

	for (const char *const *name = untied_names; *name; name++) {
		if (strcmp(t->name, *name) != 0)
			continue;
		snprintf(bias, sizeof bias, "%.*sbias", (int)stem_of(*name), *name);
		return container_find(c, bias);
	}
	return NULL;
}

int container_head(const struct container *c, const char *name, const struct tensor **out,
		   enum head_reason *why, struct err *err)
{
	bool named = name && *name;
	enum head_reason reason = HEAD_NAMED;
	const struct tensor *found = named ? container_find(c, name) : usual_head(c, &reason);
	const struct tensor *other =
		!named && reason != HEAD_UNTIED && c->tie != TIE_YES ? other_form(c) : NULL;
	char names[160], wanted[80];

	if (other)
		return container_refuse(
			c, other, err, NPU_E_NO_HEAD,
			"the head is stored in a form that is not read (as by GPTQ or AWQ); take "
			"a file whose head is not quantised, or name the tensor (--tensor)");
	if (found) {
		*out = found;
		*why = reason;
		return 0;
	}
	container_some_names(c, names, sizeof names);
	if (!named && c->tie == TIE_NO)
		return container_refuse(c, NULL, err, NPU_E_NO_HEAD,
					"no lm_head.weight or output.weight, and by config.json "
					"(tie_word_embeddings false) the embedding is not the head; name it "
					"(--tensor), %s",
					names);
	if (!named)
		return container_refuse(c, NULL, err, NPU_E_NO_HEAD,
					"no lm_head.weight, output.weight, model.embed_tokens.weight or "
					"token_embd.weight; name the head (--tensor), %s",
					names);
	err_printable(wanted, sizeof wanted, name, strlen(name));
	container_refuse(c, NULL, err, NPU_E_NO_HEAD, "no tensor \"%s\"; %s", wanted, names);
	err_printable(err->detail.tensor, sizeof err->detail.tensor, name, strlen(name));
	return NPU_E_NO_HEAD;
}
