#define _GNU_SOURCE 1
#include "table.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"
#include "own.h"
#include "plain.h"

void table_init(struct table *t, const struct table_column *columns, size_t width)
{
	*t = (struct table){.columns = columns, .width = width};
}

void table_fini(struct table *t)
{
	free(t->text);
	*t = (struct table){0};
}

static void table_add(struct table *t, const char *cell)
{
	cleanup(freep) char *text = plain_copy(cell);
	size_t length = text ? strlen(text) + 1 : 0;

	t->failed |= !text;
	if (t->failed)
		return;
	if (t->room - t->used < length) {
		size_t room = (t->room + length) * 2;
		char *grown = realloc(t->text, room);

		if (!grown) {
			t->failed = true;
			return;
		}
		t->text = grown;
		t->room = room;
	}
	memcpy(t->text + t->used, text, length);
	t->used += length;
	t->cells++;
}

void table_cell(struct table *t, const char *format, ...)
{
	char text[256], *large = NULL;
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (length >= (int)sizeof text) {
		va_start(args, format);
		length = vasprintf(&large, format, args);
		va_end(args);
		if (length < 0)
			large = NULL;
	}
	if (length < 0)
		t->failed = true;
	else
		table_add(t, large ? large : text);
	free(large);
}

void table_stranger(struct table *t, const char *text)
{
	table_add(t, text && *text ? text : "-");
}

void table_bytes(struct table *t, uint64_t bytes)
{
	char text[TABLE_UNIT];

	table_add(t, table_format_bytes(text, bytes));
}

/* Code points, which is what a terminal shows for nearly every name; wide scripts will be a little off. */
static size_t columns_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static void print_cell(FILE *out, const char *text, size_t width, bool right, bool last)
{
	size_t have = columns_of(text);
	int pad = have < width ? (int)(width - have) : 0;

	if (right)
		fprintf(out, "%*s%s", pad, "", text);
	else
		fprintf(out, "%s%*s", text, last ? 0 : pad, "");
	fputs(last ? "\n" : "  ", out);
}

int table_print(const struct table *t, FILE *out, bool headers)
{
	size_t *widths = t->failed ? NULL : calloc(t->width, sizeof *widths);
	size_t rows = t->cells / t->width, i;
	const char *text;

	if (!widths)
		return NPU_E_NO_MEMORY;
	for (i = 0; headers && i < t->width; i++)
		widths[i] = columns_of(t->columns[i].heading);
	for (i = 0, text = t->text; i < rows * t->width; i++, text += strlen(text) + 1) {
		size_t have = columns_of(text);

		if (widths[i % t->width] < have)
			widths[i % t->width] = have;
	}
	for (i = 0; headers && i < t->width; i++)
		print_cell(out, t->columns[i].heading, widths[i], t->columns[i].right, i + 1 == t->width);
	for (i = 0, text = t->text; i < rows * t->width; i++, text += strlen(text) + 1) {
		size_t at = i % t->width;

		print_cell(out, text, widths[at], t->columns[at].right, at + 1 == t->width);
	}
	free(widths);
	fflush(out);
	return 0;
}

const char *table_format_bytes(char out[static TABLE_UNIT], uint64_t bytes)
{
	static const char units[][3] = {"kB", "MB", "GB", "TB", "PB", "EB"};
	double value = (double)bytes / 1000;
	size_t unit = 0;

	if (bytes < 1000) {
		snprintf(out, TABLE_UNIT, "%" PRIu64 " B", bytes);
		return out;
	}
	/* What would be rounded to 1000.0 takes the next unit. */
	while (value >= 999.95 && unit + 1 < sizeof units / sizeof *units) {
		value /= 1000;
		unit++;
	}
	snprintf(out, TABLE_UNIT, "%.1f %s", value, units[unit]);
	return out;
}

const char *table_format_seconds(char out[static TABLE_UNIT], double seconds)
{
	if (seconds < 1e-3)
		snprintf(out, TABLE_UNIT, "%.1f us", seconds * 1e6);
	else if (seconds < 1)
		snprintf(out, TABLE_UNIT, "%.2f ms", seconds * 1e3);
	else
		snprintf(out, TABLE_UNIT, "%.2f s", seconds);
	return out;
}

const char *table_format_uptime(char out[static TABLE_UNIT], uint64_t ms)
{
	uint64_t s = ms / 1000, days = s / 86400;
	unsigned hour = (unsigned)(s / 3600 % 24), minute = (unsigned)(s / 60 % 60),
		 second = (unsigned)(s % 60);

	if (days > 9999999)
		snprintf(out, TABLE_UNIT, "%" PRIu64 "d", days);
	else if (days)
		snprintf(out, TABLE_UNIT, "%ud %02u:%02u:%02u", (unsigned)days, hour, minute, second);
	else
		snprintf(out, TABLE_UNIT, "%02u:%02u:%02u", hour, minute, second);
	return out;
}

void table_print_lines(const char *before, const char *text)
{
	for (const char *line = text; *line;) {
		int size = (int)strcspn(line, "\n");
		plain_line(stdout, "%s%.*s", before, size, line);
		line += size + (line[size] == '\n');
	}
}

json_t *table_json_string(const char *text)
{
	json_t *value;
	char *escaped;

	if (!text)
		return json_null();
	value = json_string(text);
	if (value)
		return value;
	escaped = plain_copy(text);
	value = escaped ? json_string(escaped) : NULL;
	free(escaped);
	return value;
}

json_t *table_json_real(double value)
{
	if (isfinite(value))
		return json_real(value);
	return json_string(isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
}

static int write_out(const char *buffer, size_t size, void *arg)
{
	/* A write error stays in ferror(stdout); here only memory is to fail. */
	fwrite(buffer, 1, size, arg);
	return 0;
}

int table_json_print(json_t *root)
{
	/* Nine digits give every float32 back exactly. */
	int failed =
		!root || json_dump_callback(root, write_out, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));

	json_decref(root);
	if (failed)
		return NPU_E_NO_MEMORY;
	fputc('\n', stdout);
	fflush(stdout);
	return 0;
}
