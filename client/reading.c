#include "reading.h"
#include "exit.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool reading_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
	int base = text[0] == '0' && (text[1] | 32) == 'x' ? 16 : 10;
	const char *digits = base == 16 ? text + 2 : text;
	char *end;

	if (!strchr("0123456789abcdefABCDEF", *digits) || !*digits)
		return false;
	errno = 0;
	*out = strtoull(digits, &end, base);
	return !errno && end != digits && !*end && *out >= least && *out <= most;
}

static int set_number(uint64_t *to, const char *option, const char *value)
{
	if (reading_number(value, 1, UINT32_MAX, to))
		return 0;
	return exit_usage("--%s: not a number that can be used here; give a whole number from 1", option);
}

int reading_set(struct reading *r, int option, const char *value)
{
	switch (option) {
	case READING_TENSOR:
		r->tensor = value;
		return 0;
	case READING_TRANSPOSE:
		r->transpose = true;
		return 0;
	case READING_Q8:
		if (strcmp(value, "a") != 0 && strcmp(value, "b") != 0 && strcmp(value, "auto") != 0)
			return exit_usage("--q8 %s: there is no such layout; give a, b or auto", value);
		r->q8 = value;
		return 0;
	case READING_SIGNED:
		r->is_signed = true;
		return 0;
	case READING_K:
		return set_number(&r->k, "k", value);
	case READING_TILE:
		return set_number(&r->tile, "tile", value);
	case READING_LAYOUT:
		if (strcmp(value, "blocked") != 0 && strcmp(value, "row-major") != 0)
			return exit_usage(
				"--layout %s: there is no such layout; give 'blocked' or 'row-major'", value);
		r->layout = value;
		return 0;
	default:
		return READING_NONE;
	}
}

struct npu_head_options reading_options(const struct reading *r)
{
	return (struct npu_head_options){
		.tensor = r->tensor,
		.layout = r->layout,
		.tile = (uint32_t)r->tile,
		.transpose = r->transpose,
		.q8 = r->q8,
		.is_signed = r->is_signed,
		.k = (uint32_t)r->k,
	};
}
