#include "json.h"
#include "container_impl.h"
#include "own.h"
#include <inttypes.h>
#include <string.h>

/*
 * jansson makes up to about 250 bytes of tree for one byte of text, so values are counted first. A
 * tensor has about ten; the largest files known have fewer than 100,000 tensors.
 */
#define VALUES_MAX 2000000u
#define DEPTH_MAX 64u

void json_freep(json_t **json)
{
	json_decref(*json);
}

/* No parser: up to the first mistake it sees strings where jansson does, and after it nobody reads on. */
static int bounded(const struct container *c, const char *what, uint64_t offset, const char *text,
		   size_t size, struct err *err)
{
	size_t values = 0, depth = 0;
	bool string = false;

	for (size_t i = 0; i < size; i++) {
		if (string) {
			if (text[i] == '\\')
				i++;
			else
				string = text[i] != '"';
			continue;
		}
		string = text[i] == '"';
		values += text[i] == ',' || text[i] == '[' || text[i] == '{';
		depth += text[i] == '[' || text[i] == '{';
		depth -= depth && (text[i] == ']' || text[i] == '}');
		if (depth > DEPTH_MAX)
			return container_damaged(c, NULL, err, "%s nests deeper than %u at byte %" PRIu64,
						 what, DEPTH_MAX, offset + i);
		if (values > VALUES_MAX)
			return container_damaged(c, NULL, err, "%s has more than %u values", what,
						 VALUES_MAX);
	}
	return 0;
}

/* Zeros of the same length. A sign before them may stay. */
static void python_words(char *text, size_t size)
{
	static const char *const words[] = {"NaN", "Infinity"};
	bool string = false;

	for (size_t i = 0; i < size; i++) {
		if (string && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			string = !string;
		for (size_t w = 0; !string && w < sizeof words / sizeof *words; w++) {
			size_t length = strlen(words[w]);
			if (size - i < length || memcmp(text + i, words[w], length) != 0)
				continue;
			memset(text + i, ' ', length);
			text[i] = '0';
		}
	}
}

int json_read(json_t **out, const struct container *c, const char *what, uint64_t offset, size_t size,
	      enum json_dialect dialect, struct err *err)
{
	cleanup(freep) char *text = malloc(size + 1);
	cleanup(json_freep) json_t *root = NULL;
	json_error_t mistake;
	int code;

	if (!text)
		return container_refuse(c, NULL, err, NPU_E_NO_MEMORY, "no memory for %s of %zu bytes", what,
					size);
	code = container_pread(c, NULL, offset, text, size, err);
	if (!code)
		code = bounded(c, what, offset, text, size, err);
	if (code)
		return code;

	if (dialect == JSON_PYTHON)
		python_words(text, size);
	root = json_loadb(text, size,
			  dialect == JSON_PYTHON ? JSON_DECODE_INT_AS_REAL : JSON_REJECT_DUPLICATES,
			  &mistake);
	if (!root && json_error_code(&mistake) == json_error_out_of_memory)
		return container_refuse(c, NULL, err, NPU_E_NO_MEMORY, "no memory to parse %s of %zu bytes",
					what, size);
	if (!root) {
		char why[JSON_ERROR_TEXT_LENGTH];
		return container_damaged(c, NULL, err, "%s at byte %" PRIu64 ": %s", what,
					 offset + (uint64_t)mistake.position,
					 err_printable(why, sizeof why, mistake.text, strlen(mistake.text)));
	}
	if (!json_is_object(root))
		return container_damaged(c, NULL, err, "%s is not a JSON object", what);
	*out = take(&root);
	return 0;
}
