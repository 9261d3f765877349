#include "descendants.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PREFIX "npu-hold-" /* of the names of our cgroups, before the keeper's number */

void descendants_adopt(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
}

struct process {
	pid_t pid, parent;
	bool ours;
	char name[32];
};

static bool read_process(struct process *p, const char *pid)
{
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	char *open_paren = strchr(text, '('), *close_paren = strrchr(text, ')');
	char state;
	int parent;
	if (!open_paren || !close_paren || sscanf(close_paren + 1, " %c %d", &state, &parent) != 2)
		return false;
	*close_paren = '\0';
	*p = (struct process){.pid = (pid_t)strtol(text, NULL, 10), .parent = (pid_t)parent};
	snprintf(p->name, sizeof p->name, "%s", open_paren + 1);
	return state != 'Z';
}

/* Every process there is, those below us marked; the caller frees. */
static struct process *look(size_t *count)
{
	size_t room = 0, n = 0;
	struct process *all = NULL;
	DIR *dir = opendir("/proc");
	for (const struct dirent *e; dir && (e = readdir(dir));) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		if (n == room) {
			struct process *more = reallocarray(all, room + 256, sizeof *all);
			if (!more)
				break;
			all = more;
			room += 256;
		}
		n += read_process(&all[n], e->d_name);
	}
	if (dir)
		closedir(dir);
	/* Children may be listed before their parents: again until nothing new is found. */
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < n; i++) {
			bool ours = all[i].parent == getpid();
			for (size_t k = 0; !ours && !all[i].ours && k < n; k++)
				ours = all[k].ours && all[k].pid == all[i].parent;
			more |= ours && !all[i].ours;
			all[i].ours |= ours;
		}
	}
	*count = n;
	return all;
}

static void signal_all(int first, int then)
{
	size_t n;
	struct process *all = look(&n);
	for (size_t i = 0; i < n; i++)
		if (all[i].ours) {
			kill(all[i].pid, first);
			kill(all[i].pid, then);
		}
	free(all);
}

void descendants_terminate(void)
{
	signal_all(SIGTERM, SIGCONT);
}

void descendants_kill(void)
{
	signal_all(SIGKILL, 0);
}

pid_t descendants_reap(int *status)
{
	pid_t pid;
	do
		pid = waitpid(-1, status, WNOHANG | WUNTRACED);
	while (pid < 0 && errno == EINTR);
	return pid;
}

const char *descendants_name(char *to, size_t room)
{
	size_t n, used = 0;
	struct process *all = look(&n);
	to[0] = '\0';
	for (size_t i = 0; i < n && used + 48 < room; i++)
		if (all[i].ours)
			used += (size_t)snprintf(to + used, room - used, "%s%d (%s)", used ? ", " : "",
						 (int)all[i].pid, all[i].name);
	free(all);
	return to;
}

/* Where cgroup v2 is mounted; false: nowhere. */
static bool find_mount(char *to, size_t room)
{
	char line[1024], point[512], type[64];
	FILE *file = fopen("/proc/self/mountinfo", "re");
	bool found = false;
	while (file && !found && fgets(line, sizeof line, file)) {
		const char *dash = strstr(line, " - ");
		found = dash && sscanf(line, "%*s %*s %*s %*s %511s", point) == 1 &&
			sscanf(dash, " - %63s", type) == 1 && strcmp(type, "cgroup2") == 0;
	}
	if (file)
		fclose(file);
	return found && (size_t)snprintf(to, room, "%s", point) < room;
}

static bool find_own(char *to, size_t room)
{
	char line[512];
	FILE *file = fopen("/proc/self/cgroup", "re");
	bool found = false;
	while (file && !found && fgets(line, sizeof line, file)) {
		found = strncmp(line, "0::", 3) == 0;
		line[strcspn(line, "\n")] = '\0';
	}
	if (file)
		fclose(file);
	return found && (size_t)snprintf(to, room, "%s", strcmp(line + 3, "/") == 0 ? "" : line + 3) < room;
}

/* The cgroup that this process is in; false: there is none, or it cannot be seen. */
static bool find_parent(char *to, size_t room)
{
	char mount[128], own[256];
	return find_mount(mount, sizeof mount) && find_own(own, sizeof own) &&
	       (size_t)snprintf(to, room, "%s%s", mount, own) < room;
}

/* Whether it is one of ours whose process has gone, or is this very one, which got the number of another. */
static bool is_left(const char *name)
{
	char *end;
	long pid = strncmp(name, PREFIX, strlen(PREFIX)) == 0 ? strtol(name + strlen(PREFIX), &end, 10) : 0;
	return pid > 0 && pid <= INT_MAX && !*end &&
	       (pid == getpid() || (kill((pid_t)pid, 0) < 0 && errno == ESRCH));
}

void cgroup_sweep(void)
{
	char parent[512];
	DIR *dir = find_parent(parent, sizeof parent) ? opendir(parent) : NULL;
	/* The kernel removes none that has processes, as have those of other pid namespaces, numbered as ours
	 * are. */
	for (const struct dirent *e; dir && (e = readdir(dir));)
		if (is_left(e->d_name))
			unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
	if (dir)
		closedir(dir);
}

bool cgroup_make(char *path, size_t room)
{
	char parent[512], procs[512];
	path[0] = '\0';
	cgroup_sweep();
	if (!find_parent(parent, sizeof parent) ||
	    (size_t)snprintf(path, room, "%s/" PREFIX "%d", parent, (int)getpid()) >= room ||
	    mkdir(path, 0755) < 0) {
		path[0] = '\0';
		return false;
	}
	snprintf(procs, sizeof procs, "%s/cgroup.procs", path);
	if (access(procs, W_OK) < 0)
		cgroup_remove(path);
	if (access(procs, W_OK) < 0)
		path[0] = '\0';
	return path[0] != '\0';
}

static void write_to(const char *path, const char *file, const char *text)
{
	char name[512];
	snprintf(name, sizeof name, "%s/%s", path, file);
	int fd = path[0] ? open(name, O_WRONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		errno = 0; /* without it the descendants are still found */
	close(fd);
}

/*
 * A process that moves into a cgroup has the kernel hold up every fork, exec and exit of the machine until
 * all processors have passed a point of rest, often 10 ms and more; one that is born there disturbs nobody.
 * Where that is not known (before Linux 5.7, or where a filter of system calls does not have it) it moves.
 */
pid_t cgroup_fork(const char *path)
{
	int fd = path[0] ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)fd};
	pid_t pid = fd < 0 ? -1 : (pid_t)syscall(SYS_clone3, &args, sizeof args);

	if (pid < 0) {
		pid = fork();
		if (pid == 0)
			write_to(path, "cgroup.procs", "0");
	}
	if (fd >= 0)
		close(fd);
	return pid;
}

void cgroup_kill(const char *path)
{
	write_to(path, "cgroup.kill", "1");
}

void cgroup_remove(const char *path)
{
	if (path[0])
		rmdir(path);
}
