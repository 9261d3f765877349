/*
 * spare: a daemon of one's own for a while, in a temporary place, with the configuration of $NPUD_CONFIG and
 * some of it changed. It ends with this process at the latest. One thread.
 */
#ifndef SPARE_H
#define SPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct spare {
	char directory[64]; /* "": none was made */
	char socket[96];
	pid_t pid; /* 0: it does not run */
};

enum { SPARE_WHY = 512 };

/* A place for it; `changes` is what comes after the configuration. False with a sentence, as below. */
bool spare_init(struct spare *s, const char *changes, char why[static SPARE_WHY]);
/* Starts it and waits until it answers and its device, if it has one, has been tried. */
bool spare_start(struct spare *s, char why[static SPARE_WHY]);
/* Ends it and waits for that; what it stored stays for the next start. Fine where it does not run. */
void spare_stop(struct spare *s);
/* Ends it and takes its place away. Zeroed is fine. */
void spare_fini(struct spare *s);

#endif
