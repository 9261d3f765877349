/*
 * npu-head's commands. Each says on stdout what was asked for and on stderr what went wrong, and returns the
 * exit status. One thread.
 */
#ifndef NPU_HEAD_H
#define NPU_HEAD_H

#include "reading.h"

struct options {
	struct reading reading;
	const char *x, *logits, *path, *socket, *out;
	bool verify, random, json, headers, top_given;
	uint64_t seed, rows, top;
};

int command_run(const struct options *o, char *const *operands);     /* MODEL */
int command_open(const struct options *o, char *const *operands);    /* MODEL */
int command_tensors(const struct options *o, char *const *operands); /* MODEL */
int command_pack(const struct options *o, char *const *operands);    /* MODEL */
int command_check(const struct options *o, char *const *operands);   /* FILE */
int command_compare(const struct options *o, char *const *operands); /* A B */

#endif
