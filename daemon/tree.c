#include "tree.h"
#include "own.h"
#include "process.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

static int open_in(const char *cgroup, const char *file, int flags)
{
	char path[256];
	if (!cgroup[0])
		return -1;
	snprintf(path, sizeof path, "%s/%s", cgroup, file);
	return open(path, flags | O_CLOEXEC | O_NOFOLLOW);
}

bool tree_is_cgroup_of(const char *path, uid_t uid)
{
	struct stat st;
	struct statfs fs;
	cleanup(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return path[0] == '/' && fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == uid &&
	       fstatfs(fd, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

static void pidfd_signal(int pidfd, int number)
{
	if (pidfd >= 0)
		syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
}

bool tree_is_empty(const char *cgroup, int keeper)
{
	char text[256];
	cleanup(closep) int fd = open_in(cgroup, "cgroup.events", O_RDONLY);
	if (fd < 0) /* one that was removed was empty */
		return process_ended(keeper);
	ssize_t n = read(fd, text, sizeof text - 1);
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, "populated 0") != NULL;
}

/* Calls `each` with every process of the cgroup. */
static void each_process(const char *cgroup, void (*each)(void *arg, pid_t pid), void *arg)
{
	cleanup(closep) int fd = open_in(cgroup, "cgroup.procs", O_RDONLY);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	int pid;
	if (!file)
		return;
	fd = -1; /* fclose closes it */
	while (fscanf(file, "%d", &pid) == 1)
		if (pid > 1) /* 0: of another pid namespace, not to be named from here */
			each(arg, (pid_t)pid);
	fclose(file);
}

static void signal_one(void *number, pid_t pid)
{
	kill(pid, *(const int *)number);
}

void tree_terminate(const char *cgroup, int keeper)
{
	int numbers[] = {SIGTERM, SIGCONT};
	for (int i = 0; i < 2; i++)
		each_process(cgroup, signal_one, &numbers[i]);
	pidfd_signal(keeper, SIGCONT);
}

void tree_kill(const char *cgroup, int owner, int keeper)
{
	int number = SIGKILL;
	cleanup(closep) int fd = open_in(cgroup, "cgroup.kill", O_WRONLY);
	if (fd < 0 || write(fd, "1", 1) != 1)
		each_process(cgroup, signal_one, &number);
	pidfd_signal(owner, SIGCONT);
	pidfd_signal(keeper, SIGCONT);
}

void tree_remove(const char *cgroup)
{
	if (cgroup[0])
		rmdir(cgroup);
}

struct names {
	char *to;
	size_t used, room;
};

static void add_name(void *arg, pid_t pid)
{
	struct names *n = arg;
	char name[32];
	if (n->used + 48 >= n->room)
		return;
	n->used += (size_t)snprintf(n->to + n->used, n->room - n->used, "%s%d (%s)", n->used ? ", " : "",
				    (int)pid, process_name(pid, name, sizeof name));
}

const char *tree_name(const char *cgroup, char *to, size_t room)
{
	struct names names = {.to = to, .room = room};
	to[0] = '\0';
	each_process(cgroup, add_name, &names);
	return to;
}
