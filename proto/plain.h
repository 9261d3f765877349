/*
 * plain: text of others (arguments, files, the other side of a connection) made fit for a terminal or a log.
 * Every program of ours prints such text through here. Any thread.
 */
#ifndef NPUD_PLAIN_H
#define NPUD_PLAIN_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Bytes of the well-formed UTF-8 character at `p`, of which `left` bytes (at least 1) can be read; 0: it is
 * none. */
size_t plain_utf8(const char *p, size_t left);

/* The same, and 0 also for what must not be shown as it is: controls, which drive terminals and end lines,
 * and characters that are invisible or turn the direction of text. */
size_t plain_shown(const char *p, size_t left);

/* A copy of `text` in which each byte that cannot be shown is \xNN. The caller frees it; NULL: no memory. */
char *plain_copy(const char *text);

/* printf of one line, which is the only end of line in it: what cannot be shown is \xNN. It is written as a
 * whole. */
void plain_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void plain_vline(FILE *out, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

struct option;
/* getopt_long, whose complaints, which repeat what was given, are printed through here. */
int plain_getopt(int argc, char **argv, const char *letters, const struct option *words);

#endif
