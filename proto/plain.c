#define _GNU_SOURCE 1
#include "plain.h"
#include "own.h"
#include <getopt.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

size_t plain_utf8(const char *from, size_t left)
{
	const unsigned char *p = (const unsigned char *)from;

	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		return left >= 2 && (p[1] & 0xc0) == 0x80 ? 2 : 0;
	if ((p[0] & 0xf0) == 0xe0) {
		if (left < 3 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80)
			return 0;
		bool overlong = p[0] == 0xe0 && p[1] < 0xa0;
		bool surrogate = p[0] == 0xed && p[1] > 0x9f;
		return overlong || surrogate ? 0 : 3;
	}
	if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		if (left < 4 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80 || (p[3] & 0xc0) != 0x80)
			return 0;
		bool overlong = p[0] == 0xf0 && p[1] < 0x90;
		bool beyond = p[0] == 0xf4 && p[1] > 0x8f;
		return overlong || beyond ? 0 : 4;
	}
	return 0;
}

/* Whether a well-formed character drives a terminal (C0, DEL, C1), is invisible, or turns text around. */
static bool is_format(const unsigned char *p, size_t n)
{
	if (n == 1)
		return p[0] < 0x20 || p[0] == 0x7f;
	if (n == 2)
		return (p[0] == 0xc2 && p[1] < 0xa0) || (p[0] == 0xd8 && p[1] == 0x9c); /* U+061C */
	if (n != 3)
		return false;
	unsigned c = (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
	return (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x2069) ||
	       c == 0xfeff;
}

size_t plain_shown(const char *p, size_t left)
{
	size_t n = plain_utf8(p, left);

	return n && !is_format((const unsigned char *)p, n) ? n : 0;
}

char *plain_copy(const char *text)
{
	size_t left = strlen(text);
	char *copy = malloc(left * 4 + 1), *end = copy;

	if (!copy)
		return NULL;
	while (left) {
		size_t n = plain_shown(text, left);

		if (n)
			end = mempcpy(end, text, n);
		else
			end += sprintf(end, "\\x%02x", (unsigned char)*text);
		n = n ? n : 1;
		text += n;
		left -= n;
	}
	*end = '\0';
	return copy;
}

void plain_vline(FILE *out, const char *format, va_list args)
{
	cleanup(freep) char *text = NULL;

	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	cleanup(freep) char *shown = text ? plain_copy(text) : NULL;
	fprintf(out, "%s\n", shown ? shown : "(not enough memory to say what)");
}

void plain_line(FILE *out, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	plain_vline(out, format, args);
	va_end(args);
}

int plain_getopt(int argc, char **argv, const char *letters, const struct option *words)
{
	cleanup(freep) char *said = NULL;
	size_t size;
	FILE *held = open_memstream(&said, &size), *terminal = stderr;

	/* It writes to stderr, which is a variable here, and gives its caller too little to say the same. */
	if (held)
		stderr = held;
	int option = getopt_long(argc, argv, letters, words, NULL);
	stderr = terminal;
	if (held && fclose(held) == 0 && size)
		plain_line(stderr, "%.*s", (int)size - 1, said);
	return option;
}
