/*
 * crowd: several processes that do the same thing at the same time, and how long each time took. For
 * measuring: what the members do begins together and is counted for the same seconds. One thread; forks, so
 * nothing that must not be forked (a connection) may be open.
 */
#ifndef CROWD_H
#define CROWD_H

#include <stdint.h>

enum { CROWD_WHY = 512 };

/* What a member does. All run in the member's process; they return 0 or a negative NPU_E_ number with a
 * sentence in `why`. */
struct crowd_work {
	const void *arg;
	int (*begin)(const void *arg, unsigned member, void **state, char why[CROWD_WHY]);
	int (*once)(void *state, double *share,
		    char why[CROWD_WHY]); /* timed; *share: of a pass that it took */
	void (*end)(void *state);
};

struct crowd_result {
	uint64_t times;		    /* of `once`, by all */
	double shares;		    /* of all of these */
	double seconds;		    /* from the common start to the end of the last */
	double p50, p99, worst_p99; /* seconds; worst_p99: of the member that had it worst */
};

/*
 * `members` processes prepare (begin, and `once` three times), start together, repeat `once` until `seconds`
 * have passed and end. The first failure of one ends all and is returned.
 */
int crowd_run(struct crowd_result *out, unsigned members, double seconds, const struct crowd_work *work,
	      char why[CROWD_WHY]);

#endif
