/*
 * Looks step by step at everything a device needs, and says of each what was found and what to do about it:
 * the first thing to run when something does not work. It opens the device itself: nobody else should have
 * it.
 */
#ifndef NPUD_PROBE_H
#define NPUD_PROBE_H

#include <stdbool.h>

enum probe_verdict { PROBE_GOOD, PROBE_BAD, PROBE_SKIPPED };

struct probe_options {
	const char *node;    /* of the NPU */
	const char *module;  /* npud-xrt.so */
	const char *kernels; /* directory of the kernel set */
};

/* One line of the report; `cure` is "" where nothing is to be done. */
typedef void probe_report(void *arg, enum probe_verdict verdict, const char *what, const char *found,
			  const char *cure);

/* The first steps, which are of the machine and not of a kernel set: the node, who may open it, locked
 * memory. */
void probe_machine(const char *node, probe_report *report, void *arg);

/* True where at least one design of the kernel set has passed its canary: the device can be used. */
bool probe_device(const struct probe_options *o, probe_report *report, void *arg);

#endif
