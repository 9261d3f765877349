/*
 * comparison: what two sides measured in paired rounds, and what follows from it. Rows are matched by phase,
 * role and M, or by a declared exception; a pair's ratio is the median of its rounds'. Pure; one thread.
 */
#ifndef COMPARISON_H
#define COMPARISON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Strings are static. */
struct comparison_key {
	const char *phase, *role;
	uint32_t m;	/* rows that were computed together; 0: there are none in this phase */
	uint32_t asked; /* rows of the request */
	bool device;	/* else on the host */
};

struct comparison_sample {
	struct comparison_key key;
	unsigned side, round; /* side 0 or 1 */
	double seconds;
};

struct comparison {
	struct comparison_sample *samples;
	size_t count, room;
	unsigned rounds;
};

void comparison_init(struct comparison *c, unsigned rounds);
void comparison_fini(struct comparison *c);

/* One measurement, in seconds, more than 0. False: no memory. */
bool comparison_add(struct comparison *c, unsigned side, unsigned round, const struct comparison_key *key,
		    double seconds);

struct comparison_pair {
	struct comparison_key key[2];
	const char *exception;	 /* why they stand for one another although M differs; "" where it does not */
	double seconds[2];	 /* medians of the rounds' medians */
	double ratio, low, high; /* side 1 over side 0: the median of the rounds', the least and the most */
	unsigned rounds;	 /* in which both have such a row */
};

struct comparison_result {
	struct comparison_pair *pairs;
	/* Rows that the other side has nothing for; what has no M, as opening, may be on one side only. */
	struct comparison_key *unmatched[2];
	size_t pair_count, unmatched_count[2];
};

/* False: no memory. The result is freed by comparison_result_fini either way. */
bool comparison_match(const struct comparison *c, struct comparison_result *out);
void comparison_result_fini(struct comparison_result *r);

/*
 * Whether the ratio is within `percent` of 1 in either direction, or, one-sided, not above that: what took
 * half as long is off by as much as what took twice as long.
 */
bool comparison_within(const struct comparison_pair *p, double percent, bool one_sided);

#endif
