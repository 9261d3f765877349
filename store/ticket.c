#include "ticket.h"
#include <stdio.h>
#include <string.h>

const char *ticket_mode_name(enum ticket_mode mode)
{
	return mode == TICKET_SHARED ? "shared" : "exclusive";
}

static const char *const class_names[] = {"batch", "normal", "interactive", "realtime"};

const char *ticket_class_name(enum ticket_class class)
{
	return class_names[class];
}

bool ticket_class_of(const char *name, size_t size, enum ticket_class *out)
{
	for (*out = TICKET_BATCH; *out <= TICKET_REALTIME; (*out)++)
		if (strlen(class_names[*out]) == size && memcmp(class_names[*out], name, size) == 0)
			return true;
	return false;
}

const char *ticket_state_name(enum ticket_state state)
{
	static const char *const names[] = {"queued",	"offered", "granted", "expiring",
					    "released", "expired", "revoked", "lost"};
	return names[state];
}

const char *ticket_time(char to[static 32], uint64_t ms)
{
	unsigned long long s = ms / 1000;
	if (ms < 10000)
		snprintf(to, 32, "%.1f s", (double)ms / 1000);
	else if (s < 60)
		snprintf(to, 32, "%llu s", s);
	else if (s < 3600)
		snprintf(to, 32, s % 60 ? "%llu min %llu s" : "%llu min", s / 60, s % 60);
	else
		snprintf(to, 32, "%llu h %llu min", s / 3600, s / 60 % 60);
	return to;
}
