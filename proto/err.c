#include "err.h"
#include "plain.h"
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

void err_format(char *to, size_t room, const char *format, va_list args)
{
	int n = vsnprintf(to, room, format, args);
	if (room == 0 || (n >= 0 && (size_t)n < room))
		return;
	/* It was cut: the last character goes unless it is whole. */
	size_t size = n < 0 ? 0 : room - 1, start = size;
	while (start > 0 && size - start < 3 && ((unsigned char)to[start - 1] & 0xc0) == 0x80)
		start--;
	if (start > 0 && plain_utf8(to + start - 1, size - start + 1) != size - start + 1)
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

bool err_is_utf8(const char *p, size_t size)
{
	while (size) {
		size_t n = plain_utf8(p, size);
		if (n == 0)
			return false;
		p += n;
		size -= n;
	}
	return true;
}

const char *err_printable(char *to, size_t room, const char *p, size_t size)
{
	size_t used = 0, cut = 0; /* cut: where "..." still fits behind */

	while (size) {
		size_t n = plain_shown(p, size);
		bool plain = n > 0 && *p != '"';
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
			snprintf(to + used, 5, "\\x%02x", (unsigned char)*p);
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
