#include "memory.h"
#include "own.h"
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The number after `key` at the start of a line ("" : the first line). False where there is none ("max"). */
static bool number_in(const char *path, const char *key, uint64_t *out)
{
	cleanup(fclosep) FILE *f = fopen(path, "re");
	char line[256];
	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, key, strlen(key)) == 0)
			return sscanf(line + strlen(key), " %" SCNu64, out) == 1;
	return false;
}

struct hierarchy {
	const char *at[2]; /* where it may be mounted */
	const char *limit, *usage, *inactive;
};

/* Lowers `room` to what the group `directory` has left. */
static void bound_by(uint64_t *room, const struct hierarchy *h, const char *directory)
{
	char path[PATH_MAX + 32];
	uint64_t limit, usage, inactive = 0;

	snprintf(path, sizeof path, "%s/%s", directory, h->limit);
	if (!number_in(path, "", &limit))
		return;
	snprintf(path, sizeof path, "%s/%s", directory, h->usage);
	if (!number_in(path, "", &usage))
		return;
	snprintf(path, sizeof path, "%s/memory.stat", directory);
	number_in(path, h->inactive, &inactive);
	usage -= inactive < usage ? inactive : usage;
	uint64_t left = limit > usage ? limit - usage : 0;
	if (left < *room)
		*room = left;
}

/* The group of this process and every one above it. */
static void bound_by_all(uint64_t *room, const struct hierarchy *h, const char *root, const char *group)
{
	for (size_t i = 0; i < 2; i++) {
		char directory[PATH_MAX];
		int top = snprintf(directory, sizeof directory, "%s%s", root, h->at[i]);
		int n = snprintf(directory + top, sizeof directory - (size_t)top, "%s", group);
		if (n < 0 || (size_t)top + (size_t)n >= sizeof directory)
			return;
		for (;;) {
			bound_by(room, h, directory);
			char *slash = strrchr(directory + top, '/');
			if (!slash)
				break;
			*slash = '\0';
		}
	}
}

uint64_t memory_room(const char *root)
{
	static const struct hierarchy unified = {{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"},
						 "memory.max",
						 "memory.current",
						 "inactive_file"};
	static const struct hierarchy old = {{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"},
					     "memory.limit_in_bytes",
					     "memory.usage_in_bytes",
					     "total_inactive_file"};
	char path[PATH_MAX], line[PATH_MAX];
	uint64_t kib, room = UINT64_MAX;

	snprintf(path, sizeof path, "%s/proc/meminfo", root);
	if (number_in(path, "MemAvailable:", &kib))
		room = kib * 1024;
	snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
	cleanup(fclosep) FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f)) { /* "0::/a/b", or "7:memory,cpu:/a/b" */
		line[strcspn(line, "\n")] = '\0';
		char *controllers = strchr(line, ':'),
		     *group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		controllers++;
		if (!*controllers)
			bound_by_all(&room, &unified, root, strcmp(group, "/") == 0 ? "" : group);
		else if (strstr(controllers, "memory"))
			bound_by_all(&room, &old, root, strcmp(group, "/") == 0 ? "" : group);
	}
	return room;
}
