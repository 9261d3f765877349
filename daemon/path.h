/*
 * Where a pass over weights runs: on the host or on the device. The bits are the same, so this is a question
 * of time, of whose the device is now, and of what was asked for. Pure; any thread.
 */
#ifndef NPUD_PATH_H
#define NPUD_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum path { PATH_AUTO, PATH_HOST, PATH_DEVICE, PATH_ALTERNATE, PATH_COUNT };

const char *path_name(enum path path);
/* PATH_COUNT where there is no such path. */
enum path path_of(const char *name, size_t size);

/* Seconds that passes of so many rows took lately, by path; 0: none has run. */
#define PATH_SIZES 5u /* 1, 2-4, 5-8, 9-16 and more rows */
struct path_costs {
	double host[PATH_SIZES], device[PATH_SIZES];
};
unsigned path_size(uint32_t rows);
/* Takes `seconds` into what is remembered: a moving average, the last four count most. */
void path_measured(double *cost, double seconds);

struct path_facts {
	enum path asked; /* by the request, or the default */
	uint32_t rows;
	bool device;		  /* there is one, and its kernels cover these weights */
	bool well;		  /* it answers */
	bool reserved;		  /* under an exclusive ticket, which these rows are not under */
	bool mapped;		  /* the host can read the weights */
	bool turn;		  /* the device's, for alternate */
	double host, device_cost; /* of path_costs, for so many rows */
};

struct path_choice {
	enum path path;	 /* HOST or DEVICE; AUTO: neither can be had */
	const char *why; /* static */
};

/*
 * Host-only weights are the host's; a device that is absent, unwell or reserved leaves them to it. With both,
 * auto takes what was quicker for so many rows; before both are measured, one row goes to the host and
 * several to the device, which takes sixteen for the price of one (design: measured on the original's NPU).
 */
struct path_choice path_choose(const struct path_facts *f);

#endif
