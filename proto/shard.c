#include "shard.h"
#include <ctype.h>
#include <string.h>

#define DIGITS 5u

static bool number_read(const char *text, unsigned *out)
{
	*out = 0;
	for (size_t i = 0; i < DIGITS; i++) {
		if (!isdigit((unsigned char)text[i]))
			return false;
		*out = *out * 10 + (unsigned)(text[i] - '0');
	}
	return true;
}

bool shard_read(struct shard *out, const char *name)
{
	static const char of[] = "-of-";
	size_t part = 1 + DIGITS + sizeof of - 1 + DIGITS;
	const char *dot = strrchr(name, '.');

	if (!dot || (size_t)(dot - name) <= part)
		return false;
	const char *at = dot - part;
	*out = (struct shard){.stem = (size_t)(at - name), .extension = dot};
	return *at == '-' && number_read(at + 1, &out->number) &&
	       memcmp(at + 1 + DIGITS, of, sizeof of - 1) == 0 && number_read(dot - DIGITS, &out->count) &&
	       out->number >= 1 && out->number <= out->count;
}
