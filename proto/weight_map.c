#include "weight_map.h"
#include "own.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char extension[] = ".safetensors";

/* The quote that ends the string that begins at `at`, or `end`. */
static const char *string_end(const char *at, const char *end)
{
	while (at < end && *at != '"')
		at += *at == '\\' && end - at > 1 ? 2 : 1;
	return at;
}

/* Without escapes: no name that needs one is looked for. */
static bool is_beside(const char *name, size_t size)
{
	size_t tail = sizeof extension - 1;
	return size > tail && size <= NAME_MAX && memcmp(name + size - tail, extension, tail) == 0 &&
	       !memchr(name, '/', size) && !memchr(name, '\\', size) && !memchr(name, 0, size);
}

/* Where `name` is, or belongs. */
static size_t place_of(const struct weight_map *map, const char *name, size_t size, bool *there)
{
	size_t low = 0, high = map->count;

	*there = false;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strncmp(map->files[middle], name, size);
		if (order == 0)
			order = map->files[middle][size] != 0;
		if (order == 0) {
			*there = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int add(struct weight_map *map, const char *name, size_t size, const char *label, struct err *err)
{
	bool there;
	size_t place = place_of(map, name, size, &there);

	if (there)
		return 0;
	if (map->count == WEIGHT_MAP_FILES_MAX)
		return err_set(err, NPU_E_TOO_LARGE, "%s: a model of more than %u files", label,
			       WEIGHT_MAP_FILES_MAX);
	char **more = reallocarray(map->files, map->count + 1, sizeof *more);
	if (more)
		map->files = more;
	char *copy = more ? strndup(name, size) : NULL;
	if (!copy)
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory", label);
	memmove(map->files + place + 1, map->files + place, (map->count - place) * sizeof *more);
	map->files[place] = copy;
	map->count++;
	return 0;
}

int weight_map_scan(struct weight_map *out, const char *text, size_t size, const char *label, struct err *err)
{
	static const char key[] = "weight_map";
	cleanup(weight_map_fini) struct weight_map map = {.files = NULL};
	const char *at = text, *end = text + size;
	bool inside = false;

	while (at < end && !(inside && *at == '}')) {
		if (*at++ != '"')
			continue;
		const char *from = at, *to = string_end(from, end);
		size_t length = (size_t)(to - from);
		for (at = to < end ? to + 1 : end; at < end && isspace((unsigned char)*at);)
			at++;
		bool is_key = at < end && *at == ':';
		if (is_key && !inside)
			inside = length == sizeof key - 1 && memcmp(from, key, length) == 0;
		if (is_key || !inside || !is_beside(from, length))
			continue;
		int code = add(&map, from, length, label, err);
		if (code)
			return code;
	}
	*out = map;
	map = (struct weight_map){.files = NULL};
	return 0;
}

int weight_map_read(struct weight_map *out, int fd, const char *label, struct err *err)
{
	struct stat st;
	size_t have = 0;
	ssize_t n = 1;

	if (fstat(fd, &st) != 0) {
		int number = errno;
		return err_sys(err, number, "%s: asking for the file's size", label);
	}
	if (st.st_size > (off_t)WEIGHT_MAP_MAX)
		return err_set(err, NPU_E_TOO_LARGE, "%s: an index of %lld bytes; the most is %zu", label,
			       (long long)st.st_size, WEIGHT_MAP_MAX);
	size_t size = (size_t)st.st_size;
	cleanup(freep) char *text = malloc(size ? size : 1);
	if (!text)
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory", label);
	while (n > 0 && have < size) {
		n = pread(fd, text + have, size - have, (off_t)have);
		if (n < 0 && errno == EINTR)
			n = 1;
		else
			have += n > 0 ? (size_t)n : 0;
	}
	if (n < 0) {
		int number = errno;
		return err_sys(err, number, "%s: cannot read", label);
	}
	return weight_map_scan(out, text, have, label, err);
}

bool weight_map_has(const struct weight_map *map, const char *file)
{
	bool there;
	place_of(map, file, strlen(file), &there);
	return there;
}

void weight_map_fini(struct weight_map *map)
{
	for (size_t i = 0; i < map->count; i++)
		free(map->files[i]);
	free(map->files);
	*map = (struct weight_map){.files = NULL};
}
