#include "arrival.h"
#include "detached.h"
#include "filesystem.h"
#include "own.h"
#include "undertaker.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

struct arrivals {
	uv_mutex_t lock;  /* over what follows */
	unsigned refs;	  /* the loop's, and one of each thread */
	uv_async_t *wake; /* NULL: closed. Of its own: a handle is closed later than its owner may go */
	struct link done;
	void (*arrived)(struct arrival *a); /* the loop's */
};

static void arrivals_release(struct arrivals *to)
{
	uv_mutex_lock(&to->lock);
	bool last = --to->refs == 0;
	uv_mutex_unlock(&to->lock);
	if (last) {
		uv_mutex_destroy(&to->lock);
		free(to);
	}
}

void arrival_free(struct arrival *a)
{
	closep(&a->passed);
	arrivals_release(a->to);
	free(a);
}

/* A socket of theirs might linger, and keep this thread. */
static void let_go(int fd)
{
	const struct linger at_once = {0};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(fd);
}

/* Receives one packet and at most one descriptor; what came besides is closed, and said. */
static void receive(struct arrival *a)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct iovec part = {a->packet, sizeof a->packet};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};

	a->size = recvmsg(a->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	a->error = errno;
	if (a->size < 0)
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int one;
			memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
			if (a->passed < 0)
				a->passed = one;
			else {
				let_go(one);
				err_set(&a->why, NPU_E_BAD_VALUE,
					"several descriptors came with it: pass each file by a file.pass of "
					"its own");
			}
		}
	}
}

/*
 * Whether root mounted the FUSE file system that `fd` is of (NTFS on a disk is one): known from the mounts
 * that this process sees, without asking the file system.
 */
static bool is_roots(int fd)
{
	struct statx st;
	char line[4096], options[1024];
	unsigned major, minor;
	bool found = false;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) < 0)
		return false;
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	while (mounts && !found && fgets(line, sizeof line, mounts)) {
		const char *tail = strstr(line, " - ");
		found = tail && sscanf(line, "%*u %*u %u:%u", &major, &minor) == 2 &&
			major == st.stx_dev_major && minor == st.stx_dev_minor &&
			sscanf(tail, " - %*s %*s %1023s", options) == 1 && strstr(options, "user_id=0,");
	}
	if (mounts)
		fclose(mounts);
	return found;
}

static int look(int fd, struct err *err)
{
	int flags = fcntl(fd, F_GETFL);
	const char *remote = NULL;
	struct statfs fs;
	struct stat st;

	if (flags < 0)
		return err_sys(err, errno, "the descriptor cannot be looked at");
	if ((flags & O_PATH) == 0) {
		if (fstatfs(fd, &fs) < 0)
			return err_sys(err, errno, "its file system cannot be looked at");
		remote = filesystem_remote((unsigned long)fs.f_type);
	}
	if (remote && strcmp(remote, "FUSE") == 0 && !is_roots(fd))
		return err_set(err, NPU_E_BAD_VALUE,
			       "it is on a file system that a user's program serves (FUSE), for which npud "
			       "does not wait: upload it, or copy it to a disk");
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "the descriptor cannot be looked at");
	if (!S_ISREG(st.st_mode) || (flags & O_ACCMODE) != O_RDONLY || (flags & O_PATH))
		return err_set(err, NPU_E_BAD_VALUE,
			       "only a regular file that is open for reading only is taken");
	return 0;
}

static void *take_in(void *arg)
{
	struct arrival *a = arg;
	struct arrivals *to = a->to;

	receive(a);
	if (a->passed >= 0 && (a->why.code || look(a->passed, &a->why)))
		let_go(take_fd(&a->passed));
	uv_mutex_lock(&to->lock);
	bool open = to->wake != NULL;
	if (open) {
		link_append(&to->done, &a->in_done);
		uv_async_send(to->wake);
	}
	uv_mutex_unlock(&to->lock);
	if (!open) {
		undertaker_take(a->socket);
		arrival_free(a);
	}
	return NULL;
}

int arrival_begin(struct arrivals *to, int socket, void *arg, struct err *err)
{
	struct arrival *a = calloc(1, sizeof *a);

	if (!a)
		return err_set(err, NPU_E_NO_MEMORY, "no memory for a packet");
	link_init(&a->in_done);
	a->to = to;
	a->socket = socket;
	a->arg = arg;
	a->passed = -1;
	uv_mutex_lock(&to->lock);
	to->refs++;
	uv_mutex_unlock(&to->lock);
	int r = detached_begin(take_in, a);
	if (r == 0)
		return 0;
	arrival_free(a);
	return err_set(err, NPU_E_NO_MEMORY, "no thread for a packet: %s", strerror(r));
}

static void on_wake(uv_async_t *wake)
{
	struct arrivals *to = wake->data;

	for (;;) {
		struct arrival *a = NULL;
		uv_mutex_lock(&to->lock);
		if (!link_empty(&to->done)) {
			a = link_of(to->done.next, struct arrival, in_done);
			link_remove(&a->in_done);
		}
		uv_mutex_unlock(&to->lock);
		if (!a)
			return;
		to->arrived(a);
	}
}

static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

int arrivals_new(struct arrivals **out, uv_loop_t *loop, void (*arrived)(struct arrival *a), struct err *err)
{
	cleanup(freep) struct arrivals *to = calloc(1, sizeof *to);
	cleanup(freep) uv_async_t *wake = calloc(1, sizeof *wake);

	if (!to || !wake || uv_mutex_init(&to->lock))
		return err_set(err, NPU_E_NO_MEMORY, "the side socket cannot be made");
	if (uv_async_init(loop, wake, on_wake)) {
		uv_mutex_destroy(&to->lock);
		return err_set(err, NPU_E_NO_MEMORY, "the side socket cannot be watched");
	}
	link_init(&to->done);
	to->refs = 1;
	to->arrived = arrived;
	wake->data = to;
	to->wake = take(&wake);
	*out = take(&to);
	return 0;
}

void arrivals_close(struct arrivals *to)
{
	uv_mutex_lock(&to->lock);
	uv_async_t *wake = take(&to->wake);
	uv_mutex_unlock(&to->lock);
	uv_close((uv_handle_t *)wake, on_closed);
	while (!link_empty(&to->done)) {
		struct arrival *a = link_of(to->done.next, struct arrival, in_done);
		link_remove(&a->in_done);
		undertaker_take(a->socket);
		arrival_free(a);
	}
	arrivals_release(to);
}
