/*
 * A model of several files. Each is read alone; what they say of each other is compared before anything is
 * believed: shard numbers in names, a GGUF's split.* keys, a safetensors index.
 */
#include "container_impl.h"
#include "json.h"
#include "own.h"
#include "plural.h"
#include "shard.h"
#include "weight_map.h"
#include <inttypes.h>
#include <string.h>

#define SIDE_FILE_MAX WEIGHT_MAP_MAX

static bool ends_with(const char *name, const char *tail)
{
	size_t size = strlen(name), end = strlen(tail);

	return size >= end && strcmp(name + size - end, tail) == 0;
}

static bool is_side_file(const struct container *part)
{
	return part->kind == CONTAINER_JSON;
}

/* Moves a part's tensors, file `number`, to the model. */
static int adopt(struct container *c, struct container *part, uint32_t number, struct err *err)
{
	size_t count = c->count + part->count;

	if (part->count == 0)
		return 0;
	struct tensor *all = reallocarray(c->tensors, count, sizeof *all);
	if (!all)
		return container_refuse(c, NULL, err, NPU_E_NO_MEMORY, "no memory for %zu tensors", count);
	c->tensors = all;
	for (size_t i = 0; i < part->count; i++) {
		all[c->count + i] = part->tensors[i];
		all[c->count + i].file = number;
	}
	c->count = c->room = count;
	part->count = 0;
	return 0;
}

static int split_check(const struct container *c, struct err *err)
{
	for (size_t i = 0; i < c->part_count; i++) {
		const struct container *part = c->parts[i];
		if (part->split.count == 0)
			return container_refuse(
				part, NULL, err, NPU_E_BAD_CONTAINER,
				"it was given with %zu other %s and has no split.count; give it alone",
				c->part_count - 1, plural(c->part_count - 1, "file", "files"));
		if (part->split.count != c->part_count)
			return container_refuse(part, NULL, err, NPU_E_BAD_CONTAINER,
						"split.count is %" PRIu64
						", and %zu %s given; give all of one model",
						part->split.count, c->part_count,
						plural(c->part_count, "file was", "files were"));
		if (part->split.no >= part->split.count)
			return container_refuse(part, NULL, err, NPU_E_BAD_CONTAINER,
						"split.no is %" PRIu64 " of a split.count of %" PRIu64
						"; split the model again",
						part->split.no, part->split.count);
		if (part->split.tensors != c->parts[0]->split.tensors)
			return container_refuse(part, NULL, err, NPU_E_BAD_CONTAINER,
						"split.tensors.count is %" PRIu64 ", and %s says %" PRIu64
						"; are they of one model?",
						part->split.tensors, c->parts[0]->label,
						c->parts[0]->split.tensors);
		for (size_t k = 0; k < i; k++)
			if (c->parts[k]->split.no == part->split.no)
				return container_refuse(part, NULL, err, NPU_E_BAD_CONTAINER,
							"split.no is %" PRIu64
							", as that of %s; give every file once",
							part->split.no, c->parts[k]->label);
	}
	if (c->count != c->parts[0]->split.tensors)
		return container_refuse(c, NULL, err, NPU_E_BAD_CONTAINER,
					"the files have %zu tensors, and split.tensors.count is %" PRIu64
					"; are they of one model?",
					c->count, c->parts[0]->split.tensors);
	return 0;
}

/* Every shard once, all of one count and stem. The names were checked to be shards' where `shards` is not 0.
 */
static int shards_check(const struct container *c, const struct container_file *files, size_t shards,
			struct err *err)
{
	struct shard first = {0}, s, other;
	const char *name = NULL;

	for (size_t i = 0; i < c->part_count; i++) {
		if (is_side_file(c->parts[i]))
			continue;
		if (!shard_read(&s, files[i].name))
			return container_refuse(
				c->parts[i], NULL, err, NPU_E_BAD_CONTAINER,
				"it was given with %zu other files of weights, and its name is not one of "
				"NAME-00001-of-%05zu.safetensors",
				shards - 1, shards);
		if (!name) {
			name = files[i].name;
			first = s;
		}
		if (s.count != shards)
			return container_refuse(c->parts[i], NULL, err, NPU_E_BAD_CONTAINER,
						"by its name the model has %u files of weights, and %zu %s "
						"given; give all of them",
						s.count, shards, plural(shards, "was", "were"));
		if (s.stem != first.stem || memcmp(files[i].name, name, s.stem) != 0)
			return container_refuse(
				c->parts[i], NULL, err, NPU_E_BAD_CONTAINER,
				"it was given with %s, a shard of another model; give those of one", name);
		for (size_t k = 0; k < i; k++)
			if (shard_read(&other, files[k].name) && other.number == s.number)
				return container_refuse(c->parts[i], NULL, err, NPU_E_BAD_CONTAINER,
							"shard %u was given twice; give every file once",
							s.number);
	}
	return 0;
}

static int part_named(const struct container *c, const struct container_file *files, const char *name)
{
	for (size_t i = 0; i < c->part_count; i++)
		if (!is_side_file(c->parts[i]) && strcmp(files[i].name, name) == 0)
			return (int)i;
	return -1;
}

static int side_file_read(json_t **out, const struct container *part, enum json_dialect dialect,
			  struct err *err)
{
	if (part->size > SIDE_FILE_MAX)
		return container_refuse(part, NULL, err, NPU_E_BAD_CONTAINER,
					"%" PRIu64 " bytes of JSON, and the most is %zu; is it this model's?",
					part->size, SIDE_FILE_MAX);
	return json_read(out, part, "the text", 0, part->size, dialect, err);
}

/* The places are names of files that were given: nothing is ever opened by them. Marks these in `placed`. */
static int places_check(const struct container *c, const struct container *index, json_t *map,
			const struct container_file *files, bool *placed, struct err *err)
{
	const char *tensor;
	json_t *place;
	char shown[80], file[80];

	json_object_foreach(map, tensor, place)
	{
		const char *name = json_string_value(place);
		err_printable(shown, sizeof shown, tensor, strlen(tensor));
		if (!name)
			return container_refuse(
				index, NULL, err, NPU_E_BAD_CONTAINER,
				"weight_map: the place of \"%s\" is not a string; fetch the index again",
				shown);
		int number = part_named(c, files, name);
		if (number >= 0) {
			placed[number] = true;
			continue;
		}
		err_printable(file, sizeof file, name, strlen(name));
		if (!*name || strchr(name, '/'))
			return container_refuse(
				index, NULL, err, NPU_E_BAD_CONTAINER,
				"weight_map: the place of \"%s\", \"%s\", is not the name of a "
				"file beside it; fetch the index again",
				shown, file);
		return container_refuse(index, NULL, err, NPU_E_BAD_CONTAINER,
					"weight_map: \"%s\" is in \"%s\", which was not given; is a shard "
					"missing?",
					shown, file);
	}
	return 0;
}

static int strangers_check(const struct container *c, const struct container *index, const bool *placed,
			   struct err *err)
{
	for (size_t i = 0; i < c->part_count; i++)
		if (!placed[i] && !is_side_file(c->parts[i]))
			return container_refuse(c->parts[i], NULL, err, NPU_E_BAD_CONTAINER,
						"%s says of no tensor that it is in this file; is it another "
						"model's?",
						index->label);
	return 0;
}

static int index_check(const struct container *c, const struct container *index,
		       const struct container_file *files, struct err *err)
{
	cleanup(json_freep) json_t *root = NULL;
	int code = side_file_read(&root, index, JSON_STANDARD, err);

	if (code)
		return code;
	json_t *map = json_object_get(root, "weight_map");
	if (!json_is_object(map))
		return container_refuse(index, NULL, err, NPU_E_BAD_CONTAINER,
					"weight_map is missing or not an object; fetch the index again");
	cleanup(freep) bool *placed = calloc(c->part_count, sizeof *placed);
	if (!placed)
		return container_refuse(c, NULL, err, NPU_E_NO_MEMORY, "no memory for %zu files",
					c->part_count);
	code = places_check(c, index, map, files, placed, err);
	for (size_t i = 0; !code && i < c->count; i++) {
		const struct tensor *t = &c->tensors[i];
		const char *place = json_string_value(json_object_getn(map, t->name, t->name_size));
		if (place && strcmp(place, files[t->file].name) != 0) {
			char shown[80];
			code = container_refuse(c, t, err, NPU_E_BAD_CONTAINER,
						"%s says that it is in \"%s\"; are they of one model?",
						index->label,
						err_printable(shown, sizeof shown, place, strlen(place)));
		}
		json_object_deln(map, t->name, t->name_size); /* what stays was found nowhere */
	}
	if (!code && json_object_size(map) == 0)
		code = strangers_check(c, index, placed, err);
	if (code || json_object_size(map) == 0)
		return code;
	const char *missing = json_object_iter_key(json_object_iter(map));
	char shown[80], file[80];
	const char *place = json_string_value(json_object_get(map, missing));
	return container_refuse(index, NULL, err, NPU_E_BAD_CONTAINER,
				"weight_map: \"%s\" is not in \"%s\", nor in another file; are they of one "
				"model?",
				err_printable(shown, sizeof shown, missing, strlen(missing)),
				err_printable(file, sizeof file, place, strlen(place)));
}

/*
 * A model of text and pictures has the text's settings one level down. Where the levels do not agree it
 * depends on a library's version which is heard, and the tensors that are there decide.
 */
static int config_read(struct container *c, const struct container *config, struct err *err)
{
	static const char *const levels[] = {"text_config", "llm_config", "language_config"};
	cleanup(json_freep) json_t *root = NULL;
	bool yes = false, no = false;
	int code = side_file_read(&root, config, JSON_PYTHON, err);

	for (size_t i = 0; !code && i <= sizeof levels / sizeof *levels; i++) {
		const json_t *level = i ? json_object_get(root, levels[i - 1]) : root;
		const json_t *tie = json_object_get(level, "tie_word_embeddings");
		if (tie && !json_is_boolean(tie) && !json_is_null(tie))
			code = container_refuse(
				config, NULL, err, NPU_E_BAD_CONTAINER,
				"tie_word_embeddings is neither true nor false; set it to one of them");
		yes = yes || json_is_true(tie);
		no = no || json_is_false(tie);
	}
	if (!code && yes != no)
		c->tie = yes ? TIE_YES : TIE_NO;
	return code;
}

/* Of each side file one: what it says must not depend on an order. */
static int side_file_take(const struct container *part, const char *name, const struct container **index,
			  const struct container **config, struct err *err)
{
	const struct container **to = ends_with(name, ".index.json")	 ? index
				      : strcmp(name, "config.json") == 0 ? config
									 : NULL;
	if (!to)
		return container_refuse(
			part, NULL, err, NPU_E_BAD_CONTAINER,
			"of side files only config.json and *.index.json say something; leave it out");
	if (*to)
		return container_refuse(part, NULL, err, NPU_E_BAD_CONTAINER,
					"a second one beside %s; give one of them", (*to)->label);
	*to = part;
	return 0;
}

static int parts_read(struct container *c, const struct container_file *files, size_t count, struct err *err)
{
	c->parts = calloc(count, sizeof(*c->parts));
	if (!c->parts)
		return container_refuse(c, NULL, err, NPU_E_NO_MEMORY, "no memory for %zu files", count);
	for (size_t i = 0; i < count; i++) {
		struct container **part = &c->parts[i];
		int code = container_open_file(part, &files[i], ends_with(files[i].name, ".json"), err);
		if (code)
			return code;
		c->part_count++;
		code = adopt(c, *part, (uint32_t)i, err);
		if (code)
			return code;
	}
	return 0;
}

int group_read(struct container *c, const struct container_file *files, size_t count, struct err *err)
{
	const struct container *index = NULL, *config = NULL, *weights = NULL;
	size_t shards = 0, last = 0;
	int code = parts_read(c, files, count, err);

	for (size_t i = 0; !code && i < c->part_count; i++) {
		const struct container *part = c->parts[i];
		if (is_side_file(part)) {
			code = side_file_take(part, files[i].name, &index, &config, err);
			continue;
		}
		if (weights && weights->kind != part->kind)
			code = container_refuse(part, NULL, err, NPU_E_BAD_CONTAINER,
						"it is %s and %s is %s; give those of one model",
						container_format(part), weights->label,
						container_format(weights));
		weights = part;
		last = i;
		shards++;
	}
	if (!code && !weights)
		code = container_refuse(c, NULL, err, NPU_E_BAD_CONTAINER,
					"no file of weights was given; name one");
	if (code)
		return code;
	c->kind = weights->kind;
	if (c->kind == CONTAINER_GGUF && (index || config))
		return container_refuse(
			index ? index : config, NULL, err, NPU_E_BAD_CONTAINER,
			"it was given with a GGUF file, which has everything in itself; leave it out");
	code = container_names_differ(c, err);
	if (!code && c->kind == CONTAINER_GGUF)
		return split_check(c, err);
	/* An index says which files there are, whatever they are called; without one their names do. */
	if (!code && index)
		code = index_check(c, index, files, err);
	else if (!code && shards > 1)
		code = shards_check(c, files, shards, err);
	else if (!code)
		code = group_check_alone(weights, files[last].name, err);
	return !code && config ? config_read(c, config, err) : code;
}

int group_check_alone(const struct container *c, const char *name, struct err *err)
{
	struct shard s = {0};

	if (c->kind == CONTAINER_GGUF && c->split.count > 1)
		return container_refuse(c, NULL, err, NPU_E_BAD_CONTAINER,
					"this is file %" PRIu64 " of %" PRIu64
					" (split.count) and was given alone; give all of them",
					c->split.no + 1, c->split.count);
	if (c->kind == CONTAINER_SAFETENSORS && shard_read(&s, name) && s.count > 1)
		return container_refuse(c, NULL, err, NPU_E_BAD_CONTAINER,
					"by its name this is file %u of %u and was given alone; give all of "
					"them",
					s.number, s.count);
	return 0;
}
