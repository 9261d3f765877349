#include "directory.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_ours(const struct stat *st)
{
	return st->st_uid == getuid() || st->st_uid == 0;
}

/* One on the way, in a directory that everyone may write if `open`; then whether it is such a one. */
static int make_part(const char *part, bool *open, struct err *err)
{
	struct stat st;

	if (mkdir(part, 0700) < 0 && errno != EEXIST && errno != EROFS)
		return err_sys(err, errno, "%s: cannot be made", part);
	/* Who made it before us could put something else in our directory's place at any time. */
	if (*open && lstat(part, &st) == 0 && !is_ours(&st))
		return err_set(
			err, NPU_E_NOT_ALLOWED,
			"%s: belongs to uid %u, and lies where everyone may write; choose another place",
			part, (unsigned)st.st_uid);
	*open = stat(part, &st) == 0 && (st.st_mode & S_IWOTH);
	return 0;
}

int directory_make(const char *path, struct err *err)
{
	char part[PATH_MAX];
	bool open = false;
	snprintf(part, sizeof part, "%s", path);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		int r = make_part(part, &open, err);
		*slash = '/';
		if (r)
			return r;
	}
	if (mkdir(part, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "%s: cannot be made", part);
	struct stat st;
	if (lstat(part, &st) < 0)
		return err_sys(err, errno, "%s: cannot be looked at", part);
	if (S_ISLNK(st.st_mode) && stat(part, &st) < 0)
		return err_sys(err, errno, "%s: cannot be looked at", part);
	if (!S_ISDIR(st.st_mode))
		return err_set(err, NPU_E_BAD_CONFIG, "%s: is not a directory", part);
	if (!is_ours(&st) || (st.st_mode & S_IWOTH))
		return err_set(
			err, NPU_E_NOT_ALLOWED,
			"%s: belongs to uid %u with mode %04o; it must be ours and not writable for everyone",
			part, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777u);
	return 0;
}
