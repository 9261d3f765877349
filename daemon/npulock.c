#include "npulock.h"
#include "own.h"
#include "process.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define STEP_MS 1

/* O_NONBLOCK: what lies there may be a pipe. */
#define FLAGS (O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)

void npulock_init(struct npulock *l, const char *path)
{
	*l = (struct npulock){.path = path, .fd = -1};
}

/* Of a file that is there; a lock may be taken on one that can only be read, too. */
static int open_existing(const char *path)
{
	int fd = open(path, O_RDWR | FLAGS);
	return fd >= 0 || errno == ENOENT ? fd : open(path, O_RDONLY | FLAGS);
}

/*
 * Without O_CREAT first: in a directory such as /tmp the kernel refuses it for a file of somebody else
 * (fs.protected_regular). A new one is for all, whatever our umask: their tools are to open it.
 */
static int open_lock(const char *path)
{
	struct stat st;
	cleanup(closep) int fd = open_existing(path);

	if (fd < 0 && errno == ENOENT) {
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | FLAGS, 0666);
		if (fd >= 0)
			(void)fchmod(fd, 0666);
		else if (errno == EEXIST)
			fd = open_existing(path);
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	if (!S_ISREG(st.st_mode)) {
		errno = EINVAL;
		return -1;
	}
	return take_fd(&fd);
}

/* The process that has the flock of this file; 0: the kernel does not tell. */
static pid_t keeper_pid(const struct stat *st)
{
	FILE *locks = fopen("/proc/locks", "re");
	char line[256];
	int keeper = 0, pid;

	if (!locks)
		return 0;
	while (!keeper && fgets(line, sizeof line, locks)) {
		unsigned major_number, minor_number;
		unsigned long long inode;
		/* "1: FLOCK  ADVISORY  WRITE 12 08:01:34 0 EOF"; who waits has "->" after the number. */
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major_number, &minor_number,
			   &inode) == 4 &&
		    inode == st->st_ino && makedev(major_number, minor_number) == st->st_dev)
			keeper = pid;
	}
	fclose(locks);
	return keeper > 0 ? keeper : 0;
}

/* False: the kernel does not tell. */
static bool name_keeper(const struct stat *st, char *to, size_t room)
{
	char command[64];
	pid_t pid = keeper_pid(st);

	/* "?" where that process ended, and the lock lives on in a child that has the descriptor. */
	snprintf(to, room, "pid %d (%s)", (int)pid, pid ? process_name(pid, command, sizeof command) : "");
	return pid != 0;
}

static bool take_within(int fd, unsigned wait_ms)
{
	static const struct timespec step = {0, STEP_MS * 1000000};
	struct timespec begun, now;
	long passed = 0;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EINTR && (errno != EWOULDBLOCK || passed >= (long)wait_ms))
			return false;
		nanosleep(&step, NULL);
		clock_gettime(CLOCK_MONOTONIC, &now);
		passed = (now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000;
	}
	return true;
}

const char *npulock_take(struct npulock *l)
{
	struct stat st;
	char who[96];

	if (!l->path[0] || l->yielded)
		return NULL;
	/* Opened each time: who tidies /tmp may have removed it, and its name is what others lock. */
	cleanup(closep) int fd = open_lock(l->path);
	if (fd < 0) {
		snprintf(l->why, sizeof l->why, "its lock %.60s cannot be opened: %s", l->path,
			 errno == EINVAL ? "no ordinary file" : strerror(errno));
		return l->why;
	}
	if (!take_within(fd, l->kept ? 0 : NPULOCK_WAIT_MS)) {
		l->kept = true;
		bool known = fstat(fd, &st) == 0 && name_keeper(&st, who, sizeof who);
		snprintf(l->why, sizeof l->why, "%s keeps its lock %.60s", known ? who : "another program",
			 l->path);
		return l->why;
	}
	l->kept = false;
	l->fd = take_fd(&fd);
	return NULL;
}

void npulock_give(struct npulock *l)
{
	closep(&l->fd);
	l->fd = -1;
}

bool npulock_keeper(const char *path, char *to, size_t room)
{
	struct stat st;

	if (path[0] && lstat(path, &st) == 0 && name_keeper(&st, to, room))
		return true;
	to[0] = '\0';
	return false;
}
