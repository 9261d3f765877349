#include "listen.h"
#include "process.h"
#include "proto.h"
#include "stream.h"
#include <nng/protocol/reqrep0/rep.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ANSWER_MS 5000
#define REQUEST_ID 4	    /* bytes that REQ puts before a message */
#define REFUSED_IN_WORDS 32 /* connections of a user that are only taken so that hello can say why not */

struct event {
	struct link in_events;
	enum { BORN, DEAD, DONE } kind;
	struct peer peer;
	struct slot *slot;
};

/* NNG's threads: queue and wake, nothing else. */
static void queue(struct listener *l, struct event event)
{
	struct event *e = malloc(sizeof *e);
	if (!e)
		abort(); /* losing an event would lose a request or keep a dead client's things for ever */
	*e = event;
	uv_mutex_lock(&l->lock);
	link_append(&l->events, &e->in_events);
	uv_mutex_unlock(&l->lock);
	uv_async_send(&l->wake);
}

static void on_aio(void *arg)
{
	struct slot *s = arg;
	queue(s->listener, (struct event){.kind = DONE, .slot = s});
}

/* Counts a connection, and says whether it may stay. */
static bool count_in(struct listener *l, uid_t uid)
{
	struct err err;
	uv_mutex_lock(&l->lock);
	l->connections++;
	/* Without a limit here: every connection is counted, as count_out cannot tell which were refused. */
	if (quota_take(&l->connected, uid, QUOTA_CONNECTIONS, UINT64_MAX, &err))
		abort();
	bool fits = l->connections <= l->connections_max &&
		    quota_used(&l->connected, uid, QUOTA_CONNECTIONS) <= l->user_max;
	uv_mutex_unlock(&l->lock);
	return fits;
}

static void count_out(struct listener *l, uid_t uid)
{
	uv_mutex_lock(&l->lock);
	l->connections--;
	quota_give(&l->connected, uid, QUOTA_CONNECTIONS);
	uv_mutex_unlock(&l->lock);
}

static void on_pipe(nng_pipe pipe, nng_pipe_ev ev, void *arg)
{
	struct listener *l = arg;
	struct peer peer = {.pipe = (uint32_t)nng_pipe_id(pipe), .pidfd = -1};
	uint64_t uid, gid, pid;

	bool known = nng_pipe_get_uint64(pipe, NNG_OPT_IPC_PEER_UID, &uid) == 0;
	if (ev == NNG_PIPE_EV_REM_POST) {
		if (known)
			count_out(l, (uid_t)uid);
		queue(l, (struct event){.kind = DEAD, .peer = peer});
		return;
	}
	if (!known || !count_in(l, (uid_t)uid) || nng_pipe_get_uint64(pipe, NNG_OPT_IPC_PEER_GID, &gid) ||
	    nng_pipe_get_uint64(pipe, NNG_OPT_IPC_PEER_PID, &pid)) {
		nng_pipe_close(pipe); /* REM_POST follows and counts it out */
		return;
	}
	peer.uid = (uid_t)uid;
	peer.gid = (gid_t)gid;
	peer.pid = (pid_t)pid;
	peer.start = process_start(peer.pid);
	peer.pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	queue(l, (struct event){.kind = BORN, .peer = peer});
}

static void receive(struct slot *s)
{
	s->state = SLOT_RECEIVING;
	s->listener->receiving++;
	nng_aio_set_timeout(s->aio, NNG_DURATION_INFINITE);
	nng_ctx_recv(s->ctx, s->aio);
}

static void slot_free(struct slot *s)
{
	link_remove(&s->in_slots);
	s->listener->slots_open--;
	nng_aio_free(s->aio);
	nng_ctx_close(s->ctx);
	free(s);
}

static int slot_open(struct listener *l)
{
	struct slot *s = calloc(1, sizeof *s);
	if (!s)
		return NNG_ENOMEM;
	int r = nng_ctx_open(&s->ctx, l->socket);
	if (r == 0 && (r = nng_aio_alloc(&s->aio, on_aio, s)) != 0)
		nng_ctx_close(s->ctx);
	if (r) {
		free(s);
		return r;
	}
	s->listener = l;
	link_append(&l->slots, &s->in_slots);
	l->slots_open++;
	receive(s);
	return 0;
}

static void on_done(struct slot *s)
{
	struct listener *l = s->listener;
	int result = nng_aio_result(s->aio);

	if (s->state == SLOT_RECEIVING) {
		l->receiving--;
		if (result == 0) {
			nng_msg *message = nng_aio_get_msg(s->aio);
			s->state = SLOT_HELD;
			s->pipe = (uint32_t)nng_pipe_id(nng_msg_get_pipe(message));
			/* A spare context always receives: with none, NNG parks requests in
			 * the pipe, stops reading it and does not notice its death. */
			if (l->receiving == 0 && l->slots_open < l->slots_max && !l->stopping)
				slot_open(l);
			l->calls.arrived(l->arg, s, message);
			return;
		}
	} else {
		if (result)
			nng_msg_free(nng_aio_get_msg(s->aio));
		if (result == NNG_ETIMEDOUT)
			listen_disconnect(s->pipe);
		l->calls.answered(l->arg, s);
		s->owed = 0;
	}
	if (!l->stopping)
		receive(s);
}

static void on_wake(uv_async_t *wake)
{
	struct listener *l = wake->data;
	struct link todo;

	/* uv_async coalesces: everything that is there is taken at once. */
	link_init(&todo);
	uv_mutex_lock(&l->lock);
	if (!link_empty(&l->events)) {
		todo = l->events;
		todo.next->prev = todo.prev->next = &todo;
		link_init(&l->events);
	}
	uv_mutex_unlock(&l->lock);
	link_each(at, &todo)
	{
		struct event *e = link_of(at, struct event, in_events);
		if (e->kind == DONE)
			on_done(e->slot);
		else if (e->kind == DEAD)
			l->calls.dead(l->arg, e->peer.pipe);
		else if (!l->stopping)
			l->calls.born(l->arg, e->peer);
		else if (e->peer.pidfd >= 0)
			close(e->peer.pidfd);
		free(e);
	}
}

void listener_limit(struct listener *l, unsigned connections_max, unsigned user_max, unsigned in_flight_max)
{
	uv_mutex_lock(&l->lock);
	l->connections_max = connections_max;
	l->user_max = user_max + REFUSED_IN_WORDS;
	uv_mutex_unlock(&l->lock);
	/* As many again for answers under way, and the spare one. */
	l->slots_max = 2 * in_flight_max + 1;
}

bool listener_is_found(const struct listener *l)
{
	struct stat st;
	return lstat(l->path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode;
}

int listener_listen(struct listener *l, struct err *err)
{
	char url[128];
	struct stat st;
	nng_listener listening;

	/* NNG unlinks whatever is at the path, a regular file too: look first. */
	if (lstat(l->path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return err_set(err, NPU_E_IN_USE,
			       "%s: is there and is no socket; it was left alone. Move it or choose another "
			       "--socket",
			       l->path);
	snprintf(url, sizeof url, "ipc://%s", l->path);
	int r = nng_listener_create(&listening, l->socket, url);
	if (r == 0) {
		r = nng_listener_set_int(listening, NNG_OPT_IPC_PERMISSIONS, 0660);
		if (r == 0)
			r = nng_listener_start(listening, 0);
		if (r)
			nng_listener_close(listening);
	}
	if (r == 0 && lstat(l->path, &st) < 0)
		r = NNG_ENOENT;
	if (r)
		return err_set(err, r == NNG_EADDRINUSE ? NPU_E_IN_USE : NPU_E_IO, "%s: cannot listen: %s",
			       l->path, nng_strerror(r));
	l->device = st.st_dev;
	l->inode = st.st_ino;
	return 0;
}

int listener_init(struct listener *l, uv_loop_t *loop, const char *path, unsigned connections_max,
		  unsigned user_max, unsigned in_flight_max, const struct listen_calls *calls, void *arg,
		  struct err *err)
{
	memset(l, 0, sizeof *l);
	if (strlen(path) >= sizeof l->path - 3)
		return err_set(err, NPU_E_BAD_CONFIG, "%s: the path of a socket may have at most %zu bytes",
			       path, sizeof l->path - 4);
	memcpy(l->path, path, strlen(path) + 1);
	link_init(&l->events);
	link_init(&l->slots);
	l->calls = *calls;
	l->arg = arg;
	l->wake.data = l;
	if (uv_mutex_init(&l->lock) || uv_async_init(loop, &l->wake, on_wake))
		return err_set(err, NPU_E_NO_MEMORY, "the listener's queue cannot be made");
	listener_limit(l, connections_max, user_max, in_flight_max);
	stream_init();
	int r = nng_rep0_open(&l->socket);
	if (r)
		return err_set(err, NPU_E_IO, "%s: cannot listen: %s", path, nng_strerror(r));
	nng_socket_set_size(l->socket, NNG_OPT_RECVMAXSZ, PROTO_REQUEST_MAX + REQUEST_ID);
	nng_pipe_notify(l->socket, NNG_PIPE_EV_ADD_PRE, on_pipe, l);
	nng_pipe_notify(l->socket, NNG_PIPE_EV_REM_POST, on_pipe, l);
	for (int i = 0; i < 4 && r == 0; i++)
		r = slot_open(l);
	if (r)
		return err_set(err, NPU_E_NO_MEMORY, "%s: cannot listen: %s", path, nng_strerror(r));
	return listener_listen(l, err);
}

/* NNG unlinks its path when it closes, whatever is there by now: what is not ours steps aside meanwhile. */
static void close_socket(struct listener *l)
{
	char aside[sizeof l->path + sizeof ".aside"];
	snprintf(aside, sizeof aside, "%s.aside", l->path);
	bool moved = !listener_is_found(l) && rename(l->path, aside) == 0;
	nng_close(l->socket);
	if (moved)
		(void)renameat2(AT_FDCWD, aside, AT_FDCWD, l->path, RENAME_NOREPLACE);
}

void listener_close(struct listener *l)
{
	l->stopping = true;
	link_each(at, &l->slots)
	{
		struct slot *s = link_of(at, struct slot, in_slots);
		nng_aio_stop(s->aio);
	}
	close_socket(l);
	on_wake(&l->wake);
}

void listener_fini(struct listener *l)
{
	while (!link_empty(&l->slots))
		slot_free(link_of(l->slots.next, struct slot, in_slots));
	quota_fini(&l->connected);
	uv_close((uv_handle_t *)&l->wake, NULL);
}

void slot_answer(struct slot *s, nng_msg *message)
{
	if (s->listener->stopping) { /* its context was ended: NNG would keep the message */
		nng_msg_free(message);
		return;
	}
	s->state = SLOT_SENDING;
	nng_aio_set_timeout(s->aio, ANSWER_MS);
	nng_aio_set_msg(s->aio, message);
	nng_ctx_send(s->ctx, s->aio);
}

unsigned slot_company(const struct slot *s)
{
	const struct link *slots = &s->listener->slots;
	unsigned n = 0;
	for (const struct link *at = slots->next; at != slots; at = at->next) {
		const struct slot *other = link_of(at, struct slot, in_slots);
		n += other->state != SLOT_RECEIVING && other->pipe == s->pipe;
	}
	return n;
}

void listen_disconnect(uint32_t pipe)
{
	nng_pipe_close((nng_pipe){.id = pipe});
}

void slot_drop(struct slot *s)
{
	if (!s->listener->stopping)
		receive(s);
}
