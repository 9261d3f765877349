/*
 * What each user held and computed: seconds that are halved every day, so that last week's work weighs
 * little. Pure: time (milliseconds of CLOCK_BOOTTIME) comes in. One thread.
 */
#ifndef NPUD_USAGE_H
#define NPUD_USAGE_H

#include "ticket.h"
#include <stddef.h>

struct usage_user {
	uint32_t uid;
	struct usage_record is;
	bool dirty; /* not yet kept */
};

struct usage {
	struct usage_user *users; /* by uid */
	size_t count, room;
};

void usage_fini(struct usage *u);
/* The user, brought up to date; made where there is none. NULL: no memory. Valid until the next call. */
struct usage_user *usage_of(struct usage *u, uint64_t now, uint32_t uid);

#endif
