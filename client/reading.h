/*
 * reading: which tensor of a model is meant, how its bytes are read and how it is cut: the options that every
 * command has which opens or packs a head. One thread.
 */
#ifndef READING_H
#define READING_H

#include "npu.h"
#include <getopt.h>

struct reading {
	const char *tensor, *layout, *q8;
	bool transpose, is_signed;
	uint64_t tile, k;
};

/* What getopt_long returns for them; as characters they stand in READING_OPTIONS. */
enum {
	READING_Q8 = 1,
	READING_SIGNED,
	READING_K,
	READING_ENDS, /* options without a short form that are the program's begin here */
	READING_TENSOR = 'n',
	READING_TRANSPOSE = 'T',
	READING_TILE = 'w',
	READING_LAYOUT = 'l',
};
#define READING_OPTIONS "nTwl\1\2\3"

/* Of a table of long options. */
#define READING_LONG_OPTIONS                                                                                \
	{"tensor", required_argument, NULL, READING_TENSOR},                                                \
		{"transpose", no_argument, NULL, READING_TRANSPOSE},                                        \
		{"q8", required_argument, NULL, READING_Q8}, {"signed", no_argument, NULL, READING_SIGNED}, \
		{"k", required_argument, NULL, READING_K}, {"tile", required_argument, NULL, READING_TILE}, \
	{                                                                                                   \
		"layout", required_argument, NULL, READING_LAYOUT                                           \
	}

#define READING_NONE (-1) /* the option is none of these */

/* 0, READING_NONE, or an exit status, having complained. `value` has to outlive it. */
int reading_set(struct reading *r, int option, const char *value);

/* As the daemon is asked for it. */
struct npu_head_options reading_options(const struct reading *r);

/* Decimal, or hexadecimal with 0x; no sign, no spaces. */
bool reading_number(const char *text, uint64_t least, uint64_t most, uint64_t *out);

#endif
