/*
 * exit: how the command line tools speak of failure: one place for the exit statuses (sysexits(3) style),
 * complaints on stderr and the last flush of stdout. One thread.
 */
#ifndef EXIT_H
#define EXIT_H

#include <sysexits.h>

#include "err.h"
#include "npu.h"

enum {
	EXIT_DIFFERS = 1,	/* npu-head compare */
	EXIT_INTERRUPTED = 130, /* ctrl-C */
};

/*
 * Begins a tool: `name` starts every complaint, a broken pipe becomes a write error, and descriptors 0 to 2
 * that are closed are filled, so that no socket or file ends up as stdout.
 */
void exit_begin(const char *name);

const char *exit_program(void); /* that name */

/* The exit status for an NPU_E_ number (0 gives 0). */
int exit_status(int error);

/* Prints the line "name: message" on stderr, as plain.h has it, and returns `status`. */
int exit_complain(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Complains about a wrong command line, points at --help and returns EX_USAGE. */
int exit_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Points at --help alone, where what is wrong has been said; returns EX_USAGE. */
int exit_help(void);

/* Complains with the client's sentence for `error` (`what` before it unless NULL); returns
 * exit_status(error). */
int exit_npu(const npu_client *c, int error, const char *what);

/* Complains of a model that model_find did not find: with EX_NOINPUT where one of its files cannot be opened.
 */
int exit_found(const struct err *err);

/* The same for a MODEL that the library looked for. */
int exit_model(const npu_client *c, int error, const char *name);

/*
 * Flushes stdout; returns `status`, or EX_IOERR when something could not be written: with a complaint, unless
 * it is a pipe whose reader has gone.
 */
int exit_flush(int status);

#endif
