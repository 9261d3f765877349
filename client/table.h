/*
 * table: what the tools print for people: aligned columns, units; and the
 * two JSON helpers their --json shares. One thread.
 */
#ifndef TABLE_H
#define TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct table_column {
	const char *heading;
	bool right; /* numbers */
};

struct table {
	const struct table_column *columns;
	size_t width; /* columns */
	char *text;   /* all cells, each ended by NUL */
	size_t used, room;
	size_t cells;
	bool failed; /* no memory */
};

/* An empty table; `columns` has to outlive it. */
void table_init(struct table *t, const struct table_column *columns, size_t width);
/* Adds the next cell, row by row, as plain.h has it; running out of memory is remembered and reported by
 * table_print. */
void table_cell(struct table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a string, or "-" where there is none. */
void table_stranger(struct table *t, const char *text);
/* Adds "131.1 MB". */
void table_bytes(struct table *t, uint64_t bytes);
/* Prints the whole rows. Returns 0 or NPU_E_NO_MEMORY; write errors stay in ferror(out). Flushed, as JSON is:
 * what was asked for is out, whatever becomes of this process while it closes its connection. */
int table_print(const struct table *t, FILE *out, bool headers);
void table_fini(struct table *t);

enum { TABLE_UNIT = 24 }; /* room that the formatters below need */

/* "131.1 MB" (decimal units), "3.20 ms", "2d 03:04:05". They return `out`. */
const char *table_format_bytes(char out[static TABLE_UNIT], uint64_t bytes);
const char *table_format_seconds(char out[static TABLE_UNIT], double seconds);
const char *table_format_uptime(char out[static TABLE_UNIT], uint64_t ms);

/* Prints each line of `text` on stdout behind `before`: what the daemon tells as several lines. */
void table_print_lines(const char *before, const char *text);

/* `text` as a JSON string, as plain.h has it where it is not UTF-8; JSON null for NULL. */
json_t *table_json_string(const char *text);
/* A number, or "inf", "-inf", "nan" as a string, which JSON has no numbers for. */
json_t *table_json_real(double value);
/* Prints `root` (which it takes) and a newline on stdout. Returns 0 or NPU_E_NO_MEMORY (also for NULL). */
int table_json_print(json_t *root);

#endif
