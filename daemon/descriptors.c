#include "descriptors.h"
#include "log.h"
#include "own.h"
#include "proto.h"
#include "session.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define PEERS_MAX 256
#define PEERS_OF_USER 64
#define SILENT_MS 5000

struct descriptors {
	struct server *server;
	char path[112];
	dev_t device; /* of the socket's file */
	ino_t inode;
	int fd;
	uv_poll_t *poll; /* of its own: a handle is closed later than its owner may go */
	struct link peers;
	unsigned count;
};

struct side_peer {
	struct link in_peers;
	struct descriptors *owner;
	int fd;
	uid_t uid;
	uint64_t until_ms;
	uv_poll_t poll;
};

static void on_closed(uv_handle_t *handle)
{
	struct side_peer *p = handle->data;
	close(p->fd);
	free(p);
}

static void peer_end(struct side_peer *p)
{
	link_remove(&p->in_peers);
	p->owner->count--;
	quota_give(&p->owner->server->quota, p->uid, QUOTA_SIDE);
	uv_close((uv_handle_t *)&p->poll, on_closed);
}

/* Receives one packet and at most one descriptor; what came besides is closed. */
static ssize_t receive(int fd, void *to, size_t room, int *passed)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct iovec part = {to, room};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*passed = -1;
	if (n < 0)
		return n;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int one;
			memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
			if (*passed < 0)
				*passed = one;
			else
				close(one);
		}
	}
	return n;
}

static int serve(struct side_peer *p, struct proto_in *in, int *passed, struct rep_file_pass *a,
		 struct err *err)
{
	struct req_file_pass q;

	if (in->major != PROTO_MAJOR)
		return err_set(err, NPU_E_VERSION, "the client speaks protocol %llu and this npud %u",
			       (unsigned long long)in->major, PROTO_MAJOR);
	if (proto_find(in->op) != OP_file_pass)
		return err_set(err, NPU_E_UNKNOWN_OP, "only file.pass is served on the side socket");
	int r = proto_read_fields(in, &proto_ops[OP_file_pass].request, &q, err);
	if (r)
		return r;
	struct session *s = session_of_token(p->owner->server, q.token.data, q.token.size, p->uid);
	if (!s)
		return err_set(
			err, NPU_E_NOT_ALLOWED,
			"no session of uid %u has this token: say hello on the main socket and use its token",
			(unsigned)p->uid);
	if (*passed < 0)
		return err_set(err, NPU_E_BAD_VALUE, "no descriptor came with file.pass");
	r = session_add_file(s, *passed, q.name.data, q.name.size, q.of, &a->file, err);
	if (r == 0)
		(void)take_fd(passed);
	return r;
}

/* A refusal where there is `err`, else the reply. -1 where the peer does not read: the daemon never waits. */
static int answer(int fd, uint64_t req, const struct rep_file_pass *a, const struct err *err)
{
	cleanup(msgpack_sbuffer_destroy) msgpack_sbuffer out;
	msgpack_packer packer;

	msgpack_sbuffer_init(&out);
	msgpack_packer_init(&packer, &out, msgpack_sbuffer_write);
	if (err)
		proto_write_error(&packer, req, err);
	else
		proto_write_reply(&packer, OP_file_pass, req, a);
	return send(fd, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static void on_packet(uv_poll_t *poll, int status, int events)
{
	struct side_peer *p = poll->data;
	char packet[8192];
	cleanup(closep) int passed = -1;
	struct proto_in in;
	struct rep_file_pass a = {};
	struct err err;

	(void)events;
	ssize_t n = status < 0 ? 0 : receive(p->fd, packet, sizeof packet, &passed);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		peer_end(p);
		return;
	}
	int r = proto_read_request(&in, packet, (size_t)n, &err);
	if (r == 0) {
		r = serve(p, &in, &passed, &a, &err);
		proto_end(&in);
	}
	if (answer(p->fd, in.req, &a, r ? &err : NULL))
		peer_end(p);
	p->until_ms = server_now() + SILENT_MS;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct descriptors *d = poll->data;
	struct ucred peer;
	socklen_t size = sizeof peer;

	(void)status, (void)events;
	cleanup(closep) int fd = accept4(d->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return;
	struct err err;
	if (quota_take(&d->server->quota, peer.uid, QUOTA_SIDE, d->count < PEERS_MAX ? PEERS_OF_USER : 0,
		       &err)) {
		answer(fd, 0, NULL, &err);
		return;
	}
	struct side_peer *p = calloc(1, sizeof *p);
	if (!p || uv_poll_init(&d->server->loop, &p->poll, fd)) {
		free(p);
		quota_give(&d->server->quota, peer.uid, QUOTA_SIDE);
		return;
	}
	p->owner = d;
	p->uid = peer.uid;
	p->until_ms = server_now() + SILENT_MS;
	p->poll.data = p;
	p->fd = take_fd(&fd);
	link_append(&d->peers, &p->in_peers);
	d->count++;
	uv_poll_start(&p->poll, UV_READABLE | UV_DISCONNECT, on_packet);
	server_wants_sweep(d->server, p->until_ms);
}

uint64_t descriptors_sweep(struct descriptors *d, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	link_each(at, &d->peers)
	{
		struct side_peer *p = link_of(at, struct side_peer, in_peers);
		if (now >= p->until_ms)
			peer_end(p);
		else if (p->until_ms < next)
			next = p->until_ms;
	}
	return next;
}

bool descriptors_are_found(const struct descriptors *d)
{
	struct stat st;
	return lstat(d->path, &st) == 0 && st.st_dev == d->device && st.st_ino == d->inode;
}

static void on_listener_closed(uv_handle_t *handle)
{
	free(handle);
}

/* Peers have descriptors of their own and stay. */
static void stop_listening(struct descriptors *d)
{
	if (!d->poll)
		return;
	uv_poll_stop(d->poll);
	uv_close((uv_handle_t *)take(&d->poll), on_listener_closed);
	close(d->fd);
}

int descriptors_listen(struct descriptors *d, struct err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;

	memcpy(address.sun_path, d->path, strlen(d->path));
	if (lstat(d->path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return err_set(err, NPU_E_IN_USE, "%s: is there and is no socket; it was left alone",
			       d->path);
	unlink(d->path); /* the lock says that no other daemon listens here */
	cleanup(closep) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	cleanup(freep) uv_poll_t *poll = calloc(1, sizeof *poll);
	mode_t mask =
		umask(0117); /* 0660 from the first moment; nothing else makes files on this thread now */
	int bound = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&address, sizeof address);
	umask(mask);
	if (bound < 0 || listen(fd, 128) < 0 || lstat(d->path, &st) < 0)
		return err_sys(err, errno, "%s: cannot listen", d->path);
	if (!poll || uv_poll_init(&d->server->loop, poll, fd))
		return err_set(err, NPU_E_NO_MEMORY, "%s: cannot be watched", d->path);
	stop_listening(d);
	d->poll = take(&poll);
	d->poll->data = d;
	uv_poll_start(d->poll, UV_READABLE, on_connection);
	d->fd = take_fd(&fd);
	d->device = st.st_dev;
	d->inode = st.st_ino;
	return 0;
}

int descriptors_new(struct descriptors **out, struct server *server, struct err *err)
{
	cleanup(freep) struct descriptors *d = calloc(1, sizeof *d);

	if (!d)
		return err_set(err, NPU_E_NO_MEMORY, "the side socket cannot be made");
	d->server = server;
	link_init(&d->peers);
	int n = snprintf(d->path, sizeof d->path, "%s.fd", server->listener.path);
	if (n < 0 || (size_t)n >= sizeof((struct sockaddr_un *)0)->sun_path)
		return err_set(err, NPU_E_BAD_CONFIG, "%s.fd: the path is too long for a socket",
			       server->listener.path);
	int r = descriptors_listen(d, err);
	if (r)
		return r;
	*out = take(&d);
	return 0;
}

void descriptors_free(struct descriptors *d)
{
	if (!d)
		return;
	link_each(at, &d->peers) peer_end(link_of(at, struct side_peer, in_peers));
	if (descriptors_are_found(d))
		unlink(d->path);
	stop_listening(d);
	free(d);
}
