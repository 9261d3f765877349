#include "process.h"
#include "err.h"
#include "own.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static ssize_t read_of(pid_t pid, const char *file, char *to, size_t room)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, to, room - 1);
	to[n > 0 ? n : 0] = '\0';
	return n;
}

/* A field of /proc/PID/stat behind the command, from 3 on, counted from its closing parenthesis. */
static uint64_t stat_field(pid_t pid, int number)
{
	char text[1024];
	if (read_of(pid, "stat", text, sizeof text) < 0)
		return 0;
	char *at = strrchr(text, ')');
	for (int field = 2; at && field < number; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

uint64_t process_start(pid_t pid)
{
	return stat_field(pid, 22);
}

pid_t process_parent(pid_t pid)
{
	return (pid_t)stat_field(pid, 4);
}

int process_open(pid_t pid, uint64_t start)
{
	if (pid <= 0)
		return -1;
	cleanup(closep) int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	/* Opened before the look: what the pidfd holds cannot be replaced by another any more. */
	if (fd < 0 || process_start(pid) != start)
		return -1;
	return take_fd(&fd);
}

bool process_ended(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	return pidfd < 0 || (poll(&p, 1, 0) == 1 && (p.revents & POLLIN));
}

bool process_uid(pid_t pid, uid_t *uid)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	if (stat(path, &st) < 0)
		return false;
	*uid = st.st_uid;
	return true;
}

const char *process_name(pid_t pid, char *to, size_t room)
{
	char text[64];
	if (read_of(pid, "comm", text, sizeof text) <= 0)
		snprintf(text, sizeof text, "?");
	return err_printable(to, room, text, strcspn(text, "\n"));
}
