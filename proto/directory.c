#include "directory.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int directory_make(const char *path, struct err *err)
{
	char part[PATH_MAX];
	snprintf(part, sizeof part, "%s", path);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(part, 0700) < 0 && errno != EEXIST && errno != EROFS)
			return err_sys(err, errno, "%s: cannot be made", part);
		*slash = '/';
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
	if ((st.st_uid != getuid() && st.st_uid != 0) || (st.st_mode & S_IWOTH))
		return err_set(
			err, NPU_E_NOT_ALLOWED,
			"%s: belongs to uid %u with mode %04o; it must be ours and not writable for everyone",
			part, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777u);
	return 0;
}
