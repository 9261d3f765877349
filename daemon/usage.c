#include "usage.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HALF_LIFE_MS (24.0 * 3600 * 1000)

void usage_fini(struct usage *u)
{
	free(u->users);
	*u = (struct usage){};
}

static void decay(struct usage_record *r, uint64_t now)
{
	if (now > r->at_ms) {
		double left = exp2(-(double)(now - r->at_ms) / HALF_LIFE_MS);
		r->held_seconds *= left;
		r->computed_seconds *= left;
	}
	r->at_ms = now;
}

struct usage_user *usage_of(struct usage *u, uint64_t now, uint32_t uid)
{
	size_t at = 0;
	while (at < u->count && u->users[at].uid < uid)
		at++;
	if (at == u->count || u->users[at].uid != uid) {
		if (u->count == u->room) {
			size_t room = u->room ? 2 * u->room : 8;
			struct usage_user *more = reallocarray(u->users, room, sizeof *more);
			if (!more)
				return NULL;
			u->users = more;
			u->room = room;
		}
		memmove(&u->users[at + 1], &u->users[at], (u->count - at) * sizeof *u->users);
		u->users[at] = (struct usage_user){.uid = uid, .is = {.at_ms = now}};
		u->count++;
	}
	decay(&u->users[at].is, now);
	return &u->users[at];
}
