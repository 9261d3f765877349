#include "err.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
	int code;
	const char *name;
	enum err_class class;
	const char *sentence;
} errors[] = {
#define ERROR(number, name, class, sentence) {-(number), #name, ERR_##class, sentence},
#include "errors.def"
#undef ERROR
};

static size_t find(int code)
{
	size_t internal = 0;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		if (errors[i].code == code)
			return i;
		if (errors[i].code == NPU_E_INTERNAL)
			internal = i;
	}
	return internal;
}

const char *err_name(int code)
{
	return code == 0 ? "OK" : errors[find(code)].name;
}

enum err_class err_class(int code)
{
	return errors[find(code)].class;
}

const char *err_sentence(int code)
{
	return errors[find(code)].sentence;
}

/* Bytes of the well-formed sequence at `p`, or 0. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
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

void err_format(char *to, size_t room, const char *format, va_list args)
{
	int n = vsnprintf(to, room, format, args);
	if (room == 0 || (n >= 0 && (size_t)n < room))
		return;
	/* It was cut: the last character goes unless it is whole. */
	size_t size = n < 0 ? 0 : room - 1, start = size;
	while (start > 0 && size - start < 3 && ((unsigned char)to[start - 1] & 0xc0) == 0x80)
		start--;
	if (start > 0 && utf8_length((unsigned char *)to + start - 1, size - start + 1) != size - start + 1)
		size = start - 1;
	to[size] = '\0';
}

static void set(struct err *e, int code, const char *format, va_list args)
{
	/* Through a copy: a caller may wrap the sentence that is already there. */
	char text[sizeof e->text];
	err_format(text, sizeof text, format, args);
	memset(e, 0, sizeof *e);
	e->code = code;
	memcpy(e->text, text, sizeof text);
}

int err_set(struct err *e, int code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	set(e, code, format, args);
	va_end(args);
	return code;
}

int err_sys(struct err *e, int number, const char *format, ...)
{
	va_list args;
	int code = number == ENOMEM			 ? NPU_E_NO_MEMORY
		   : number == EACCES || number == EPERM ? NPU_E_NOT_ALLOWED
							 : NPU_E_IO;
	va_start(args, format);
	set(e, code, format, args);
	va_end(args);
	size_t used = strlen(e->text);
	snprintf(e->text + used, sizeof e->text - used, ": %s", strerror(number));
	return code;
}

bool err_is_utf8(const char *from, size_t size)
{
	const unsigned char *p = (const unsigned char *)from;
	while (size) {
		size_t n = utf8_length(p, size);
		if (n == 0)
			return false;
		p += n;
		size -= n;
	}
	return true;
}

/* Well-formed and still not to be printed: C1 controls drive terminals; others are invisible or turn text
 * around. */
static bool is_format(const unsigned char *p, size_t n)
{
	if (n == 2)
		return p[0] == 0xc2 && p[1] < 0xa0; /* U+0080 to U+009F */
	if (n != 3)
		return false;
	unsigned c = (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
	return (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x2069) ||
	       c == 0xfeff;
}

const char *err_printable(char *to, size_t room, const char *from, size_t size)
{
	const unsigned char *p = (const unsigned char *)from;
	size_t used = 0, cut = 0; /* cut: where "..." still fits behind */

	while (size) {
		size_t n = utf8_length(p, size);
		bool plain = n > 0 && !is_format(p, n) && p[0] >= 0x20 && p[0] != 0x7f && p[0] != '"' &&
			     p[0] != '\\';
		size_t need = plain ? n : 4;
		if (!plain)
			n = 1;
		if (used + need + 1 > room) {
			used = cut;
			if (used + 4 <= room) {
				memcpy(to + used, "...", 3);
				used += 3;
			}
			break;
		}
		if (plain)
			memcpy(to + used, p, n);
		else
			snprintf(to + used, 5, "\\x%02x", p[0]);
		used += need;
		if (used + 4 <= room)
			cut = used;
		p += n;
		size -= n;
	}
	if (room)
		to[used] = '\0';
	return to;
}
