/* setting: one side of npu-bench compare, as --a and --b have it: "path=device,batch=16". Pure; any thread.
 */
#ifndef SETTING_H
#define SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct setting {
	char text[512];	  /* as it was given */
	char path[16];	  /* "": what the environment and the daemon have */
	char socket[512]; /* "": no other daemon is named */
	uint32_t threads; /* 0: not given, as for the next */
	uint32_t batch;
	enum { STORE_AS_IS, STORE_ON, STORE_OFF } store;
};

/* False with a sentence in `why`. "" is good: nothing is set. */
bool setting_parse(struct setting *out, const char *text, char *why, size_t room);

/* Whether it needs a daemon that was started for it. */
bool setting_needs_daemon(const struct setting *s);

#endif
