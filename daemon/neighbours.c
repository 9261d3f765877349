#define _GNU_SOURCE 1 /* statx */
#include "neighbours.h"
#include "own.h"
#include "process.h"
#include "request.h"
#include "server.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int neighbours_init(struct neighbours *n, struct server *server, struct err *err)
{
	n->server = server;
	n->work.data = n;
	link_init(&n->waiters);
	link_init(&n->later);
	n->seen = calloc(NEIGHBOURS_MAX, sizeof *n->seen);
	n->found = calloc(NEIGHBOURS_MAX, sizeof *n->found);
	return n->seen && n->found ? 0 : err_set(err, NPU_E_NO_MEMORY, "no memory to look for neighbours");
}

void neighbours_fini(struct neighbours *n)
{
	free(n->seen);
	free(n->found);
}

/* The device's node, or a file where a test puts one in its place. */
struct node {
	char path[PATH_MAX]; /* without links */
	struct statx is;
};

static bool find_node(struct node *node, const char *path)
{
	return realpath(path, node->path) &&
	       statx(AT_FDCWD, node->path, AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &node->is) == 0;
}

/*
 * Whether a descriptor of a process is the node. What strangers have open lies anywhere, on file systems too
 * that answer nothing any more (a network's, a user's own), and who waits for one of those cannot be killed.
 * So only what has the node's name is looked at, and by what the kernel knows of it.
 */
static bool is_node(const struct node *node, int dir, const char *descriptor)
{
	char target[PATH_MAX];
	struct statx st;
	ssize_t length = readlinkat(dir, descriptor, target, sizeof target - 1);

	target[length > 0 ? length : 0] = '\0';
	const char *found = strrchr(target, '/'), *name = strrchr(node->path, '/');
	size_t size = strlen(name);
	/* One that was deleted has that written behind it. */
	if (!found || strncmp(found, name, size) != 0 || (found[size] && found[size] != ' ') ||
	    statx(dir, descriptor, AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &st) != 0)
		return false;
	if (S_ISCHR(node->is.stx_mode))
		return S_ISCHR(st.stx_mode) && st.stx_rdev_major == node->is.stx_rdev_major &&
		       st.stx_rdev_minor == node->is.stx_rdev_minor;
	return st.stx_dev_major == node->is.stx_dev_major && st.stx_dev_minor == node->is.stx_dev_minor &&
	       st.stx_ino == node->is.stx_ino;
}

/* 1: has it open, 0: has not, -1: may not be looked into. */
static int has_open(pid_t pid, const struct node *node)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	int result = 0;
	if (!dir)
		return errno == EACCES || errno == EPERM ? -1 : 0;
	for (const struct dirent *e; result == 0 && (e = readdir(dir));)
		result = e->d_name[0] != '.' && is_node(node, dirfd(dir), e->d_name);
	closedir(dir);
	return result;
}

static void describe(struct neighbour *n, pid_t pid)
{
	uid_t uid = 0;
	*n = (struct neighbour){.pid = (uint32_t)pid};
	process_uid(pid, &uid);
	n->uid = uid;
	process_name(pid, n->command, sizeof n->command);
	for (size_t i = 0; i < sizeof n->ancestors / sizeof *n->ancestors && (pid = process_parent(pid)) > 1;
	     i++)
		n->ancestors[i] = (uint32_t)pid;
}

/* What the driver tells of all programs, those included whose processes cannot be seen from here. */
static void look_at_contexts(struct neighbours *n)
{
	struct runner *runner = n->server->accelerator.runner;
	struct device_limits limits = {0};
	uint32_t own = 0;

	if (runner)
		runner_limits(runner, &limits, &own);
	n->found_contexts = (struct neighbours_contexts){limits.contexts_used, limits.contexts_max, own};
}

/* On a worker thread: writes what was `found`, which the loop leaves alone meanwhile. */
static void look(uv_work_t *work)
{
	struct neighbours *n = work->data;
	struct node node;

	look_at_contexts(n);
	n->found_count = n->found_hidden = 0;
	DIR *dir = find_node(&node, n->server->config.device_node) ? opendir("/proc") : NULL;
	if (!dir)
		return;
	for (const struct dirent *e; n->found_count < NEIGHBOURS_MAX && (e = readdir(dir));) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		int has = pid > 0 && pid != getpid() ? has_open(pid, &node) : 0;
		if (has > 0)
			describe(&n->found[n->found_count++], pid);
		n->found_hidden += has < 0;
	}
	closedir(dir);
}

/* Whether it runs under a ticket that holds: it, or one that it comes from, is the holder. */
static bool has_ticket(const struct neighbours *n, const struct neighbour *it)
{
	const struct arbiter *a = &n->server->tickets.arbiter;
	link_each(at, &a->tickets)
	{
		const struct ticket_record *t = &link_of(at, struct ticket, in_tickets)->is;
		if (t->state < TICKET_GRANTED)
			continue;
		if (t->pid == it->pid)
			return true;
		for (size_t i = 0; i < sizeof it->ancestors / sizeof *it->ancestors && it->ancestors[i]; i++)
			if (it->ancestors[i] == t->pid || (t->keeper && it->ancestors[i] == t->keeper))
				return true;
	}
	return false;
}

static void write_names(const struct neighbours *n, char *to, size_t room)
{
	size_t used = 0;
	snprintf(to, room, "%s",
		 neighbours_are_there(n) ? "hardware contexts that no process seen from here has" : "");
	for (unsigned i = 0; i < n->count && used + 80 < room; i++)
		used += (size_t)snprintf(to + used, room - used, "%s%u (%s)", used ? ", " : "",
					 n->seen[i].pid, n->seen[i].command);
}

static void on_looked(uv_work_t *work, int status)
{
	struct neighbours *n = work->data;

	(void)status;
	n->looking = false;
	n->looked_ms = server_now();
	n->hidden = n->found_hidden;
	n->count = 0;
	for (unsigned i = 0; i < n->found_count; i++)
		if (!has_ticket(n, &n->found[i]))
			n->seen[n->count++] = n->found[i];
	n->contexts = n->found_contexts;
	n->unsure = n->contexts.used > n->contexts.own && arbiter_holder(&n->server->tickets.arbiter);
	n->server->tickets.arbiter.foreign = neighbours_are_there(n);
	char names[sizeof n->names];
	write_names(n, names, sizeof names);
	if (strcmp(names, n->names) != 0) {
		memcpy(n->names, names, sizeof names);
		tickets_company(&n->server->tickets);
	}
	while (!link_empty(&n->waiters)) {
		struct request *r = link_of(n->waiters.next, struct request, in_waiters);
		r->answer(r);
	}
	tickets_turn(&n->server->tickets);
	/* Those that came while it was under way get a look that began after they came. */
	if (!link_empty(&n->later)) {
		n->waiters = n->later;
		n->waiters.next->prev = n->waiters.prev->next = &n->waiters;
		link_init(&n->later);
		neighbours_look(n);
	}
}

bool neighbours_stale(const struct neighbours *n, uint64_t ms)
{
	bool any = n->server->accelerator.runner || access(n->server->config.device_node, F_OK) == 0;
	bool holder_left = n->unsure && !arbiter_holder(&n->server->tickets.arbiter);
	return any && (holder_left || server_now() - n->looked_ms > ms);
}

/* Contexts have no names: while somebody holds, they may be the holder's. */
bool neighbours_are_there(const struct neighbours *n)
{
	return n->count > 0 ||
	       (n->contexts.used > n->contexts.own && !arbiter_holder(&n->server->tickets.arbiter));
}

void neighbours_look(struct neighbours *n)
{
	if (n->looking || n->server->stopping)
		return;
	n->looking = true;
	uv_queue_work(&n->server->loop, &n->work, look, on_looked);
}

int neighbours_wait(struct neighbours *n, struct request *r, void (*answer)(struct request *r))
{
	struct link *list = n->looking ? &n->later : &n->waiters;
	neighbours_look(n);
	return request_wait(r, list, PROTO_WAIT_MAX_MS, answer);
}

struct proto_list neighbours_list(struct neighbours *n, size_t most)
{
	size_t count = n->count < most ? n->count : most;
	for (size_t i = 0; i < count; i++)
		n->rows[i] = (struct row_foreign){.pid = n->seen[i].pid,
						  .uid = n->seen[i].uid,
						  .command = PROTO_STR(n->seen[i].command)};
	return (struct proto_list){n->rows, count};
}
