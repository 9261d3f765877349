/*
 * output: a file that gets its name only when it is whole, and the progress of making it. One at a time; one
 * thread, and the signal handler.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

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

/* A handler for SIGINT and SIGTERM: takes the unfinished file away, says so and ends the process. */
void output_on_signal(int number);

/* A line on stderr, if that is a terminal, from the second second on. */
struct progress {
	double start, shown;
	bool tty, drawn;
};
void progress_begin(struct progress *p);
void progress_show(struct progress *p, uint64_t done, uint64_t tiles); /* packing */
void progress_bytes(struct progress *p, const char *doing, uint64_t done, uint64_t total);
void progress_end(struct progress *p); /* wipes it */

double output_now(void); /* seconds that only rise */

#endif
