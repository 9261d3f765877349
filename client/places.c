#include "places.h"
#include "own.h"
#include <errno.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

bool places_user_socket(unsigned which, char *to, size_t room)
{
	char run[64];
	snprintf(run, sizeof run, "/run/user/%u", (unsigned)getuid());
	const char *xdg = getenv("XDG_RUNTIME_DIR");
	int n = 0;

	to[0] = '\0';
	switch (which) {
	case 0:
		if (xdg && xdg[0] == '/')
			n = snprintf(to, room, "%s/npud/npud.sock", xdg);
		break;
	case 1:
		if (!xdg || strcmp(xdg, run) != 0)
			n = snprintf(to, room, "%s/npud/npud.sock", run);
		break;
	case 2:
		n = snprintf(to, room, "/tmp/npud-%u/npud.sock", (unsigned)getuid());
		break;
	default:
		return false;
	}
	if (n < 0 || (size_t)n >= room)
		to[0] = '\0';
	return true;
}

/* Anybody may make /tmp/npud-UID before its owner does. */
static bool is_trusted(const char *path)
{
	static const char shared[] = "/tmp/npud-";
	if (strncmp(path, shared, sizeof shared - 1) != 0)
		return true;
	char directory[PLACES_PATH_MAX + 1];
	struct stat st;
	snprintf(directory, sizeof directory, "%s", path);
	char *slash = strchr(directory + sizeof shared - 1, '/');
	if (!slash)
		return true;
	*slash = '\0';
	if (lstat(directory, &st) != 0)
		return errno == ENOENT;
	return S_ISDIR(st.st_mode) && (st.st_uid == getuid() || st.st_uid == 0) && !(st.st_mode & 022);
}

/* The kernel lists each socket by the name it was bound to: this network namespace's only. */
static bool is_listed(const char *path)
{
	cleanup(fclosep) FILE *f = fopen("/proc/net/unix", "re");
	char line[512];
	while (f && fgets(line, sizeof line, f)) {
		unsigned flags;
		int at = 0;
		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "%*s %*x %*x %x %*x %*x %*u %n", &flags, &at) == 1 && at > 0 &&
		    (flags & 0x10000) && strcmp(line + at, path) == 0)
			return true;
	}
	return false;
}

/* The side socket is our own code and not hurt by a caller who leaves at once. */
static enum place probe_side(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	cleanup(closep) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return PLACE_UNCERTAIN;
	snprintf(to.sun_path, sizeof to.sun_path, "%s.fd", path);
	if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 || errno == EAGAIN)
		return PLACE_LISTENS;
	return errno == ECONNREFUSED ? PLACE_STALE : PLACE_UNCERTAIN;
}

enum place places_look(const char *path)
{
	struct stat st;
	if (!is_trusted(path))
		return PLACE_UNTRUSTED;
	if (stat(path, &st) != 0)
		return errno == EACCES ? PLACE_DENIED : PLACE_ABSENT;
	if (!S_ISSOCK(st.st_mode))
		return PLACE_NO_SOCKET;
	if (access(path, W_OK) != 0)
		return PLACE_DENIED;
	return is_listed(path) ? PLACE_LISTENS : probe_side(path);
}

const char *places_words(enum place place)
{
	switch (place) {
	case PLACE_LISTENS:
	case PLACE_UNCERTAIN:
		return "no answer";
	case PLACE_ABSENT:
		return "no such file";
	case PLACE_STALE:
		return "left over, nobody listens";
	case PLACE_NO_SOCKET:
		return "not a socket";
	case PLACE_UNTRUSTED:
		return "its directory may be another user's";
	case PLACE_DENIED:
		return "not allowed";
	}
	return "";
}

void places_advice(const char *path, char *to, size_t room)
{
	struct stat st;
	struct group entry, *found = NULL;
	char names[4096];
	/* Who may not look into its directory learns the directory's. */
	char directory[PLACES_PATH_MAX + 1];
	snprintf(directory, sizeof directory, "%s", path);
	char *slash = strrchr(directory, '/');
	if (slash)
		*slash = '\0';
	mode_t door = stat(path, &st) == 0		   ? st.st_mode & S_IWGRP
		      : slash && stat(directory, &st) == 0 ? st.st_mode & S_IXGRP
							   : 0;
	if (door == 0 || st.st_gid == 0) {
		snprintf(to, room,
			 "it serves its owner alone; start one of your own with: npud --foreground");
		return;
	}
	if (getgrgid_r(st.st_gid, &entry, names, sizeof names, &found) == 0 && found)
		snprintf(to, room, "become a member of the group %s", found->gr_name);
	else
		snprintf(to, room, "become a member of the group %ju, which has no name",
			 (uintmax_t)st.st_gid);
}
