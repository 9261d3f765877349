/*
 * output: a file that gets its name only when it is whole, and the progress of making it. One at a time; one
 * thread, and the signal handler.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct output {
	int fd; /* -1: none */
	const char *name, *target;
};

/* Opens FILE.tmp.PID, or what is there and no plain file; "-" is stdout. All return 0 or an exit status,
 * having complained. `file` has to outlive it. */
int output_open(struct output *o, const char *file);
int output_write(const struct output *o, const void *data, size_t size);
/* Closes it and gives it its name. */
int output_commit(struct output *o);
/* Takes away what was not committed. */
void output_fini(struct output *o);

/* A whole file in `folder`, written by `fill`, which returns 0 or fails with `err`. 0 or an exit status,
 * having complained. */
typedef int output_fill(void *arg, int fd, const char *path, struct err *err);
int output_file(const char *folder, const char *name, output_fill *fill, void *arg);

/* From now on SIGINT and SIGTERM take the unfinished file away, say so and end the process. */
void output_catch(void);
/* Until output_resume the first of them is only kept in mind, so that what is under way can end in good
 * order; output_held and output_resume return its number, or 0. */
void output_hold(void);
int output_held(void);
int output_resume(void);

/* A line on stderr, if that is a terminal, from the second second on. */
struct progress {
	double start, shown;
	bool tty, drawn;
};
void progress_begin(struct progress *p);
void progress_show(struct progress *p, uint64_t done, uint64_t tiles); /* packing */
void progress_bytes(struct progress *p, const char *doing, uint64_t done, uint64_t total);
void progress_end(struct progress *p); /* wipes it */

#endif
