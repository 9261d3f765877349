#define _GNU_SOURCE 1
#include "exit.h"
#include "model.h"
#include "own.h"
#include "plain.h"
#include "standard.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *program = "npu";

void exit_begin(const char *name)
{
	program = name;
	if (!standard_begin())
		_exit(EX_SOFTWARE);
}

const char *exit_program(void)
{
	return program;
}

int exit_status(int error)
{
	switch (error) {
	case NPU_OK:
		return 0;
	case NPU_E_BAD_CONTAINER:
	case NPU_E_NO_HEAD:
	case NPU_E_BAD_COUNT:
	case NPU_E_BAD_GEOMETRY:
	case NPU_E_TOO_LARGE:
	case NPU_E_BAD_VALUE:
	case NPU_E_MALFORMED:
	case NPU_E_FILE_CHANGED:
	case NPU_E_BAD_IMAGE:
	case NPU_E_NO_SUCH_SESSION:
	case NPU_E_NO_SUCH_OBJECT:
	case NPU_E_NO_SUCH_TICKET:
		return EX_DATAERR;
	case NPU_E_NO_DAEMON:
	case NPU_E_CONNECTION_LOST:
	case NPU_E_VERSION:
	case NPU_E_NO_PATH:
		return EX_UNAVAILABLE;
	case NPU_E_IO:
		return EX_IOERR;
	case NPU_E_BUSY:
	case NPU_E_TIMED_OUT:
	case NPU_E_SHUTDOWN:
	case NPU_E_NO_MEMORY:
	case NPU_E_PINNED:
	case NPU_E_OBJECT_USED:
	case NPU_E_HELD:
	case NPU_E_QUEUE_FULL:
	case NPU_E_TICKET_OVER:
		return EX_TEMPFAIL;
	case NPU_E_NOT_ALLOWED:
		return EX_NOPERM;
	case NPU_E_CANCELLED:
		return EXIT_INTERRUPTED;
	case NPU_E_BAD_CONFIG:
		return EX_CONFIG;
	default:
		return EX_SOFTWARE;
	}
}

static void complain(const char *format, va_list args)
{
	cleanup(freep) char *text = NULL;

	fflush(stdout);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	plain_line(stderr, "%s: %s", program, text ? text : "not enough memory to say what");
}

int exit_complain(int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain(format, args);
	va_end(args);
	return status;
}

int exit_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain(format, args);
	va_end(args);
	return exit_help();
}

int exit_help(void)
{
	plain_line(stderr, "%s: '%s --help' shows how it is used", program, program);
	return EX_USAGE;
}

int exit_npu(const npu_client *c, int error, const char *what)
{
	const char *text = c ? npu_error_text(c) : error == NPU_E_NO_MEMORY ? "not enough memory" : "";

	if (!*text)
		text = npu_error_name(error);
	if (what)
		return exit_complain(exit_status(error), "%s: %s", what, text);
	return exit_complain(exit_status(error), "%s", text);
}

/* What there is to say of a model's files that cannot be had. */
static bool is_of_input(int error)
{
	return error == NPU_E_IO || error == NPU_E_NOT_ALLOWED;
}

int exit_found(const struct err *err)
{
	return exit_complain(is_of_input(err->code) ? EX_NOINPUT : exit_status(err->code), "%s", err->text);
}

int exit_model(const npu_client *c, int error, const char *name)
{
	cleanup(model_fini) struct model m = {.files = NULL};
	int status = exit_npu(c, error, NULL);
	struct err err;

	return is_of_input(error) && is_of_input(model_find(&m, name, &err)) ? EX_NOINPUT : status;
}

int exit_flush(int status)
{
	int error = standard_flush();
	if (error == 0)
		return status;
	if (error == EPIPE)
		return EX_IOERR;
	return exit_complain(EX_IOERR, "stdout: cannot write: %s; the output is not complete",
			     strerror(error));
}
