#include "output.h"
#include "clock.h"
#include "table.h"
#include "exit.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t partial_exists;
static char partial[PATH_MAX]; /* the unfinished file */

static volatile sig_atomic_t holding, held;
static char said[64]; /* by the handler, which must not format */

static void on_signal(int number)
{
	if (holding && !held) {
		held = number;
		return;
	}
	if (partial_exists)
		unlink(partial);
	if (write(2, said, strlen(said)) < 0)
		_exit(128 + number);
	_exit(128 + number);
}

void output_catch(void)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	snprintf(said, sizeof said, "%s: interrupted\n", exit_program());
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

void output_hold(void)
{
	holding = 1;
}

int output_held(void)
{
	return held;
}

int output_resume(void)
{
	holding = 0;
	return held;
}

int output_open(struct output *o, const char *file)
{
	struct stat st;
	int n;

	if (!strcmp(file, "-")) {
		*o = (struct output){.fd = 1, .name = "stdout"};
		return 0;
	}
	o->name = file;
	/* What is there and no plain file (a device, a pipe, a link) is written to, never replaced. */
	if (lstat(file, &st) == 0 && !S_ISREG(st.st_mode)) {
		o->fd = open(file, O_WRONLY | O_TRUNC | O_CLOEXEC);
		if (o->fd < 0)
			return exit_complain(EX_CANTCREAT, "%s: cannot write: %s", file, strerror(errno));
		return 0;
	}
	n = snprintf(partial, sizeof partial, "%s.tmp.%ld", file, (long)getpid());
	if (n < 0 || (size_t)n >= sizeof partial)
		return exit_complain(EX_CANTCREAT, "%s: the name is too long", file);
	o->fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (o->fd < 0)
		return exit_complain(EX_CANTCREAT, "%s: cannot create: %s", partial, strerror(errno));
	partial_exists = 1;
	o->target = file;
	return 0;
}

int output_write(const struct output *o, const void *data, size_t size)
{
	const char *p = data;

	while (size) {
		ssize_t n = write(o->fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return exit_complain(EX_IOERR, "%s: cannot write: %s", o->name, strerror(errno));
		p += n;
		size -= (size_t)n;
	}
	return 0;
}

/* The file gets its name only now that it is whole. */
int output_commit(struct output *o)
{
	int fd = o->fd;

	o->fd = -1;
	if (fd >= 0 && close(fd) < 0)
		return exit_complain(EX_IOERR, "%s: cannot write: %s", o->name, strerror(errno));
	if (!o->target)
		return 0;
	if (rename(partial, o->target) < 0)
		return exit_complain(EX_CANTCREAT, "%s: cannot rename %s to it: %s", o->target, partial,
				     strerror(errno));
	partial_exists = 0;
	return 0;
}

void output_fini(struct output *o)
{
	if (o->fd > 1)
		close(o->fd);
	if (partial_exists)
		unlink(partial);
	partial_exists = 0;
}

int output_file(const char *folder, const char *name, output_fill *fill, void *arg)
{
	struct output out = {.fd = -1};
	char path[PATH_MAX];
	struct err err;
	int n = snprintf(path, sizeof path, "%s/%s", folder, name);

	if (n < 0 || (size_t)n >= sizeof path)
		return exit_complain(EX_CANTCREAT, "%s: the name is too long", folder);
	int status = output_open(&out, path);
	if (status == 0 && fill(arg, out.fd, path, &err))
		status = exit_complain(exit_status(err.code), "%s", err.text);
	if (status == 0)
		status = output_commit(&out);
	output_fini(&out);
	return status;
}

void progress_begin(struct progress *p)
{
	*p = (struct progress){.start = clock_now(), .tty = isatty(2)};
}

/* Whether it is time for another line; the rate so far. */
static bool is_due(struct progress *p, uint64_t done, double *rate)
{
	double t = clock_now();

	if (!p->tty || t - p->start < 1 || t - p->shown < 0.1)
		return false;
	p->shown = t;
	p->drawn = true;
	*rate = (double)done / (t - p->start);
	return true;
}

static void say_left(double rate, uint64_t done, uint64_t total)
{
	if (rate > 0 && done <= total)
		fprintf(stderr, ", %.0f s left", (double)(total - done) / rate);
	fflush(stderr);
}

void progress_show(struct progress *p, uint64_t done, uint64_t tiles)
{
	double rate;

	if (!is_due(p, done, &rate))
		return;
	fprintf(stderr, "\r\033[Kpacking: %" PRIu64 " of %" PRIu64 " tiles, %.1f tiles/s", done, tiles, rate);
	say_left(rate, done, tiles);
}

void progress_bytes(struct progress *p, const char *doing, uint64_t done, uint64_t total)
{
	char text[3][TABLE_UNIT];
	double rate;

	if (!is_due(p, done, &rate))
		return;
	fprintf(stderr, "\r\033[K%s: %s of %s, %s/s", doing, table_format_bytes(text[0], done),
		table_format_bytes(text[1], total), table_format_bytes(text[2], (uint64_t)rate));
	say_left(rate, done, total);
}

void progress_end(struct progress *p)
{
	if (p->drawn)
		fputs("\r\033[K", stderr);
	p->drawn = false;
}
