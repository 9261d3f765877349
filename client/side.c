#include "side.h"
#include "own.h"
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum {
	SIDE_SECONDS = 5,
	SIDE_REPLY_MAX = 64 << 10,
};

static int err_side(struct err *err, const char *path, const char *what)
{
	int number = errno;
	if (number == EAGAIN || number == EINPROGRESS)
		return err_set(err, NPU_E_TIMED_OUT, "%s: %s: no answer within %d s", path, what,
			       SIDE_SECONDS);
	if (number == ECONNRESET || number == EPIPE || number == ECONNREFUSED || number == ENOENT)
		return err_set(err, NPU_E_CONNECTION_LOST, "%s: %s: %s; is the daemon still running?", path,
			       what, strerror(number));
	return err_sys(err, number, "%s: %s", path, what);
}

static int send_with_descriptor(int to, const void *bytes, size_t size, int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {};
	struct iovec iov = {(void *)bytes, size};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.room,
			   .msg_controllen = sizeof control.room};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	ssize_t n;
	do
		n = sendmsg(to, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -1 : 0;
}

/* `of` is the model's first file, 0 for that itself. */
static int pass_file(struct connection *c, const struct told *told, const struct model_file *passed,
		     uint64_t of, uint64_t *file, bool *unreachable, struct err *err)
{
	char name[129]; /* the field's bound and a NUL */
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const struct timeval limit = {.tv_sec = SIDE_SECONDS};
	snprintf(to.sun_path, sizeof to.sun_path, "%s.fd", c->path);

	cleanup(closep) int side = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (side < 0)
		return err_side(err, to.sun_path, "cannot make a socket");
	setsockopt(side, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	setsockopt(side, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	int r;
	do
		r = connect(side, (const struct sockaddr *)&to, sizeof to);
	while (r < 0 && errno == EINTR);
	if (r < 0) {
		*unreachable = !of && (errno == ENOENT || errno == ECONNREFUSED || errno == EACCES ||
				       errno == EPERM);
		return err_side(err, to.sun_path, "cannot connect");
	}

	err_printable(name, sizeof name, passed->name, strlen(passed->name));
	struct req_file_pass q = {
		.token = {told->token, sizeof told->token}, .name = PROTO_STR(name), .of = of};
	uint64_t req = connection_next_req(c);
	cleanup(msgpack_sbuffer_destroy) msgpack_sbuffer packet;
	msgpack_packer packer;
	msgpack_sbuffer_init(&packet);
	msgpack_packer_init(&packer, &packet, msgpack_sbuffer_write);
	proto_write_request(&packer, OP_file_pass, req, &q);
	/* A daemon that takes no more of us has said so, and hung up. */
	if (send_with_descriptor(side, packet.data, packet.size, passed->fd) < 0 && errno != EPIPE &&
	    errno != ECONNRESET)
		return err_side(err, to.sun_path, "cannot pass the file");

	cleanup(freep) char *bytes = malloc(SIDE_REPLY_MAX);
	if (!bytes)
		return err_set(err, NPU_E_NO_MEMORY, "out of memory");
	ssize_t n;
	bool reset = false; /* that it hung up comes once, before what it had said */
	do {
		n = recv(side, bytes, SIDE_REPLY_MAX, 0);
	} while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !reset && (reset = true))));
	if (n < 0)
		return err_side(err, to.sun_path, "the file was passed");
	if (n == 0)
		return err_set(err, NPU_E_CONNECTION_LOST, "%s: the daemon hung up on a passed file",
			       to.sun_path);

	struct rep_file_pass p = {};
	cleanup(proto_end) struct proto_in in = {};
	r = proto_read_reply(&in, bytes, (size_t)n, err);
	if (r)
		return r;
	if (in.code) {
		r = proto_read_error(&in, err);
		/* Of a file that is open for reading only it does not take what is on a user's file system.
		 */
		*unreachable = !of && r == NPU_E_BAD_VALUE;
		return r;
	}
	if (in.req != req)
		return err_set(err, NPU_E_MALFORMED, "%s: the answer belongs to another request",
			       to.sun_path);
	r = proto_read_fields(&in, &proto_ops[OP_file_pass].reply, &p, err);
	if (r)
		return r;
	*file = p.file;
	return 0;
}

int side_pass(struct connection *c, const struct told *told, const struct model *model, uint64_t *file,
	      bool *unreachable, struct err *err)
{
	*unreachable = false;
	*file = 0;
	for (size_t i = 0; i < model->count; i++) {
		uint64_t handle = 0;
		int r = pass_file(c, told, &model->files[i], *file, &handle, unreachable, err);
		if (r)
			return r;
		if (i == 0)
			*file = handle;
	}
	return 0;
}
