#include "descriptors.h"
#include "arrival.h"
#include "log.h"
#include "own.h"
#include "proto.h"
#include "session.h"
#include "undertaker.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define PEERS_MAX 256
#define PEERS_OF_USER 64
#define REFUSED_OF_USER 32 /* beside those, which are told why and stay until they have read it */
#define SILENT_MS 5000
#define REFUSED_MS 1000

struct descriptors {
	struct server *server;
	char path[112];
	dev_t device; /* of the socket's file */
	ino_t inode;
	int fd;
	uv_poll_t *poll; /* of its own: a handle is closed later than its owner may go */
	struct arrivals *arrivals;
	struct link peers;
	unsigned count; /* of peers that are served */
};

struct side_peer {
	struct link in_peers;
	struct descriptors *owner;
	int fd;
	uid_t uid;
	uint64_t until_ms;
	bool refused; /* it is one too many, and was told */
	bool busy;    /* its packet is being received: the descriptor is the arrival's */
	uv_poll_t poll;
};

static void on_closed(uv_handle_t *handle)
{
	struct side_peer *p = handle->data;
	if (!p->busy)
		undertaker_take(p->fd);
	free(p);
}

static void peer_end(struct side_peer *p)
{
	link_remove(&p->in_peers);
	p->owner->count -= !p->refused;
	quota_give(&p->owner->server->quota, p->uid, p->refused ? QUOTA_SIDE_REFUSED : QUOTA_SIDE);
	uv_close((uv_handle_t *)&p->poll, on_closed);
}

static int serve(struct side_peer *p, struct proto_in *in, struct arrival *came, struct rep_file_pass *a,
		 struct err *err)
{
	struct req_file_pass q;
	char shown[129];

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
	if (came->why.code)
		return err_set(err, came->why.code, "%s: %s",
			       err_printable(shown, sizeof shown, q.name.data, q.name.size), came->why.text);
	if (came->passed < 0)
		return err_set(err, NPU_E_BAD_VALUE, "no descriptor came with file.pass");
	r = session_add_file(s, came->passed, q.name.data, q.name.size, q.of, &a->file, err);
	if (r == 0)
		(void)take_fd(&came->passed);
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

static void on_packet(uv_poll_t *poll, int status, int events);

static void watch(struct side_peer *p)
{
	uv_poll_start(&p->poll, UV_READABLE | UV_DISCONNECT, on_packet);
}

/* The answer to what came, and what becomes of its peer. */
static void on_arrived(struct arrival *came)
{
	struct side_peer *p = came->arg;
	struct proto_in in;
	struct rep_file_pass a = {};
	struct err err;

	p->busy = false;
	if (came->size < 0 && (came->error == EAGAIN || came->error == EINTR)) {
		watch(p);
	} else if (came->size <= 0 || p->refused) {
		peer_end(p);
	} else {
		int r = proto_read_request(&in, came->packet, (size_t)came->size, &err);
		if (r == 0) {
			r = serve(p, &in, came, &a, &err);
			proto_end(&in);
		}
		p->until_ms = server_now() + SILENT_MS;
		if (answer(p->fd, in.req, &a, r ? &err : NULL))
			peer_end(p);
		else
			watch(p);
		server_wants_sweep(p->owner->server, p->until_ms);
	}
	arrival_free(came);
}

static void on_packet(uv_poll_t *poll, int status, int events)
{
	struct side_peer *p = poll->data;
	struct err err;

	(void)events;
	uv_poll_stop(poll);
	p->busy = true;
	if (status >= 0 && arrival_begin(p->owner->arrivals, p->fd, p, &err) == 0)
		return;
	p->busy = false;
	peer_end(p);
}

/* What a user has of them, and of all there are. */
static int take_place(struct descriptors *d, uid_t uid, struct err *err)
{
	if (d->count < PEERS_MAX)
		return quota_take(&d->server->quota, uid, QUOTA_SIDE, PEERS_OF_USER, err);
	err_set(err, NPU_E_BUSY,
		"all users together have %u connections to the side socket, which is the limit; ask again in "
		"100 ms",
		d->count);
	err->detail.depth = d->count;
	err->detail.limit = PEERS_MAX;
	err->detail.retry_ms = 100;
	return NPU_E_BUSY;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct descriptors *d = poll->data;
	struct ucred peer;
	socklen_t size = sizeof peer;
	struct err err, ignored;

	(void)status, (void)events;
	int fd = accept4(d->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	struct side_peer *p = calloc(1, sizeof *p);
	if (!p || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
	    uv_poll_init(&d->server->loop, &p->poll, fd)) {
		free(p);
		undertaker_take(fd);
		return;
	}
	p->poll.data = p;
	p->fd = fd;
	p->refused = take_place(d, peer.uid, &err) != 0;
	/* One that was closed at once would find that its packet was not read, instead of why. */
	if (p->refused &&
	    (answer(fd, 0, NULL, &err) ||
	     quota_take(&d->server->quota, peer.uid, QUOTA_SIDE_REFUSED, REFUSED_OF_USER, &ignored))) {
		uv_close((uv_handle_t *)&p->poll, on_closed);
		return;
	}
	p->owner = d;
	p->uid = peer.uid;
	p->until_ms = server_now() + (p->refused ? REFUSED_MS : SILENT_MS);
	link_append(&d->peers, &p->in_peers);
	d->count += !p->refused;
	watch(p);
	server_wants_sweep(d->server, p->until_ms);
}

uint64_t descriptors_sweep(struct descriptors *d, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	link_each(at, &d->peers)
	{
		struct side_peer *p = link_of(at, struct side_peer, in_peers);
		if (p->busy)
			continue; /* however long it takes; the user has one less meanwhile */
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
	/* Nobody can connect before it listens; a umask would be every thread's. */
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || chmod(d->path, 0660) < 0 ||
	    listen(fd, 128) < 0 || lstat(d->path, &st) < 0)
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
	undertaker_begin();
	link_init(&d->peers);
	int n = snprintf(d->path, sizeof d->path, "%s.fd", server->listener.path);
	if (n < 0 || (size_t)n >= sizeof((struct sockaddr_un *)0)->sun_path)
		return err_set(err, NPU_E_BAD_CONFIG, "%s.fd: the path is too long for a socket",
			       server->listener.path);
	int r = descriptors_listen(d, err);
	if (r == 0)
		r = arrivals_new(&d->arrivals, &server->loop, on_arrived, err);
	if (r)
		return r;
	*out = take(&d);
	return 0;
}

void descriptors_free(struct descriptors *d)
{
	if (!d)
		return;
	arrivals_close(d->arrivals);
	link_each(at, &d->peers) peer_end(link_of(at, struct side_peer, in_peers));
	if (descriptors_are_found(d))
		unlink(d->path);
	stop_listening(d);
	free(d);
}
