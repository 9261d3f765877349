/* Under what a program measured: every result says it. One thread. */
#ifndef CONDITIONS_H
#define CONDITIONS_H

#include <jansson.h>

/* The machine's load average of the last minute, before anything is measured. */
double conditions_load(void);

/*
 * `load`, the daemon's clients, device, health and version, and the ticket this works under. A new JSON
 * object, or NULL with a complaint and *status set. Connects, and NNG does not survive a fork: not before
 * crowd_run.
 */
json_t *conditions_of(const char *socket, double load, int *status);

#endif
