#include "place.h"
#include "descriptors.h"
#include "lock.h"
#include "log.h"
#include "own.h"
#include "server.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS 2000

static void lock_path(const struct server *s, char to[PATH_MAX + 8])
{
	snprintf(to, PATH_MAX + 8, "%s.lock", s->config.socket);
}

int place_take(struct server *s, struct err *err)
{
	char path[PATH_MAX + 8], pid[32] = "";
	lock_path(s, path);
	cleanup(closep) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(err, errno, "%s: the lock cannot be opened", path);
	/* Who has had a lock is on the loop, which does not wait. */
	if (s->place.lock_fd < 0 ? !lock_take(fd) : flock(fd, LOCK_EX | LOCK_NB) < 0) {
		ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
		pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
		return err_set(err, NPU_E_IN_USE,
			       "%s: npud with pid %s serves here already; stop it or choose another --socket",
			       s->config.socket, pid[0] ? pid : "unknown");
	}
	int n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
		return err_sys(err, errno, "%s: the lock cannot be written", path);
	closep(&s->place.lock_fd);
	s->place.lock_fd = take_fd(&fd);
	return 0;
}

void place_give_to_group(const struct server *s)
{
	const struct config *c = &s->config;
	char side[PATH_MAX + 8];
	const struct group *group = c->group[0] ? getgrnam(c->group) : NULL;
	if (c->group[0] && !group) {
		log_line("npud", 0, "there is no group %s: only the group that npud runs as can connect",
			 c->group);
	}
	/* Without one, too: a reload may have taken another back. */
	const gid_t gid = group ? group->gr_gid : getegid();
	snprintf(side, sizeof side, "%s.fd", c->socket);
	if (lchown(c->socket, (uid_t)-1, gid) < 0 || lchown(side, (uid_t)-1, gid) < 0)
		log_line("npud", 0, "the sockets cannot be given to group %s: %s",
			 group ? c->group : "of npud itself", strerror(errno));
}

static bool has_lock(const struct server *s)
{
	char path[PATH_MAX + 8];
	struct stat held, there;
	lock_path(s, path);
	return fstat(s->place.lock_fd, &held) == 0 && lstat(path, &there) == 0 &&
	       held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

static void on_look(uv_timer_t *timer)
{
	struct server *s = timer->data;
	bool main_there = listener_is_found(&s->listener), side_there = descriptors_are_found(s->descriptors);
	struct err err;

	if (s->stopping || (main_there && side_there && has_lock(s)))
		return;
	/* The lock first: without it another daemon may have come to serve here. */
	int r = config_places(&s->config, &err);
	if (r == 0 && !has_lock(s))
		r = place_take(s, &err);
	if (r == 0 && !main_there)
		r = listener_listen(&s->listener, &err);
	if (r == 0 && !side_there)
		r = descriptors_listen(s->descriptors, &err);
	if (r) {
		if (strcmp(s->place.told, err.text) != 0)
			events_tell(s, NULL, EVENT_SOCKET, 0,
				    "the sockets' files are gone and new clients cannot come: %s", err.text);
		snprintf(s->place.told, sizeof s->place.told, "%s", err.text);
		return;
	}
	s->place.told[0] = '\0';
	place_give_to_group(s);
	events_tell(s, NULL, EVENT_SOCKET, 0,
		    "files at %s were deleted or replaced: made again; who was connected stays so",
		    s->config.socket);
}

void place_watch(struct server *s)
{
	uv_timer_init(&s->loop, &s->place.look);
	s->place.look.data = s;
	uv_timer_start(&s->place.look, on_look, LOOK_MS, LOOK_MS);
}

void place_leave(struct server *s)
{
	uv_close((uv_handle_t *)&s->place.look, NULL);
	closep(&s->place.lock_fd);
}
