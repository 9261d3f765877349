#include "exit.h"
#include "npu-head.h"
#include "plural.h"
#include "table.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define COMPARE_VALUES 65536u /* values of each file in memory at a time */

struct compared {
	const char *names[2];
	uint64_t counts[2]; /* values */
	uint64_t differing, first;
	uint32_t bits[2]; /* of the first that differ */
};

static int compare_open(FILE **out, const char *name)
{
	struct stat st;

	*out = strcmp(name, "-") ? fopen(name, "re") : stdin;
	if (!*out)
		return exit_complain(EX_NOINPUT, "%s: cannot open: %s", name, strerror(errno));
	if (fstat(fileno(*out), &st) == 0 && S_ISDIR(st.st_mode))
		return exit_complain(EX_NOINPUT, "%s: cannot read: it is a directory", name);
	return 0;
}

static int compare_files(struct compared *c, FILE *files[2])
{
	static uint32_t values[2][COMPARE_VALUES];
	uint64_t at = 0;

	for (;;) {
		size_t n[2], both;

		for (int i = 0; i < 2; i++) {
			size_t bytes = fread(values[i], 1, sizeof values[i], files[i]);

			if (ferror(files[i]))
				return exit_complain(EX_NOINPUT, "%s: cannot read: %s", c->names[i],
						     strerror(errno));
			if (bytes % 4)
				return exit_complain(EX_DATAERR,
						     "%s: found %" PRIu64
						     " bytes, which is not a whole number of float32 values",
						     c->names[i], c->counts[i] * 4 + bytes);
			n[i] = bytes / 4;
			c->counts[i] += n[i];
		}
		both = n[0] < n[1] ? n[0] : n[1];
		for (size_t j = 0; j < both; j++) {
			if (values[0][j] == values[1][j])
				continue;
			if (!c->differing++) {
				c->first = at + j;
				c->bits[0] = values[0][j];
				c->bits[1] = values[1][j];
			}
		}
		at += both;
		if (!n[0] && !n[1])
			return 0;
	}
}

static double value_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof value);
	return (double)value;
}

static int compare_json(const struct compared *c, bool equal)
{
	json_t *first = json_null(), *root;
	char hex[2][16];

	if (c->differing) {
		for (int i = 0; i < 2; i++)
			snprintf(hex[i], sizeof hex[i], "0x%08" PRIx32, c->bits[i]);
		first = json_pack("{sI so so ss ss}", "index", (json_int_t)c->first, "a",
				  table_json_real(value_of(c->bits[0])), "b",
				  table_json_real(value_of(c->bits[1])), "a_bits", hex[0], "b_bits", hex[1]);
	}
	root = json_pack("{sb sI sI sI so}", "equal", (int)equal, "a_values", (json_int_t)c->counts[0],
			 "b_values", (json_int_t)c->counts[1], "differing", (json_int_t)c->differing, "first",
			 first);
	if (table_json_print(root))
		return exit_complain(EX_TEMPFAIL, "not enough memory for the JSON");
	return 0;
}

int command_compare(const struct options *o, char *const *operands)
{
	const char *a = operands[0], *b = operands[1];
	struct compared c = {.names = {a, b}};
	FILE *files[2] = {NULL, NULL};
	bool equal;
	int status;

	if (!strcmp(a, "-") && !strcmp(b, "-"))
		return exit_usage("compare: only one of the files can be stdin");
	status = compare_open(&files[0], a);
	if (!status)
		status = compare_open(&files[1], b);
	if (!status)
		status = compare_files(&c, files);
	for (int i = 0; i < 2; i++) {
		if (files[i])
			fclose(files[i]);
	}
	if (status)
		return status;
	equal = !c.differing && c.counts[0] == c.counts[1];
	if (o->json) {
		status = compare_json(&c, equal);
		return status ? status : equal ? 0 : EXIT_DIFFERS;
	}
	if (equal) {
		printf("equal: %" PRIu64 " %s\n", c.counts[0], plural(c.counts[0], "value", "values"));
		return 0;
	}
	if (c.differing) {
		printf("first difference: value %" PRIu64 ": %.9g (0x%08" PRIx32 ") and %.9g (0x%08" PRIx32
		       ")\n",
		       c.first, value_of(c.bits[0]), c.bits[0], value_of(c.bits[1]), c.bits[1]);
		uint64_t both = c.counts[0] < c.counts[1] ? c.counts[0] : c.counts[1];
		printf("differing: %" PRIu64 " of %" PRIu64 " %s\n", c.differing, both,
		       plural(both, "value", "values"));
	}
	if (c.counts[0] != c.counts[1])
		printf("sizes differ: %" PRIu64 " and %" PRIu64 " %s\n", c.counts[0], c.counts[1],
		       plural(c.counts[1], "value", "values"));
	return EXIT_DIFFERS;
}
