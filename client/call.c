#include "call.h"
#include "own.h"
#include <errno.h>
#include <nng/protocol/reqrep0/req.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum {
	HELLO_MS = 5000,
	HELLO_SEARCH_MS = 2000,	  /* where more places are to be tried */
	HELLO_UNCERTAIN_MS = 500, /* where perhaps nobody listens */
	CONNECT_MS = 5000,	  /* until a daemon that went away must be back */
	CANCEL_MS = 500,
	SIDE_SECONDS = 5,
	SIDE_REPLY_MAX = 64 << 10,
	SLACK = 4096, /* what a message holds beside its bulk */
};

void call_copy(char *to, size_t room, struct proto_bytes from)
{
	size_t n = from.size ? strnlen(from.data, from.size) : 0;
	if (n >= room) {
		n = room - 1;
		while (n > 0 && ((unsigned char)from.data[n] & 0xc0) == 0x80)
			n--;
	}
	if (n)
		memcpy(to, from.data, n);
	to[n] = '\0';
}

void answer_fini(struct answer *a)
{
	proto_end(&a->in);
	if (a->message)
		nng_msg_free(a->message);
	*a = (struct answer){};
}

static void nng_msg_freep(nng_msg **m)
{
	if (*m)
		nng_msg_free(*m);
}

static int err_nng(struct err *err, int number, const char *what, const char *path)
{
	int code = number == NNG_ENOMEM	     ? NPU_E_NO_MEMORY
		   : number == NNG_ETIMEDOUT ? NPU_E_TIMED_OUT
		   : number == NNG_EPERM     ? NPU_E_NOT_ALLOWED
		   : number == NNG_ECONNRESET || number == NNG_ECLOSED || number == NNG_ECONNREFUSED ||
				   number == NNG_ECONNABORTED || number == NNG_ECONNSHUT
			   ? NPU_E_CONNECTION_LOST
			   : NPU_E_IO;
	if (code == NPU_E_CONNECTION_LOST)
		return err_set(err, code, "%s: %s: the connection was lost; is the daemon still running?",
			       path, what);
	return err_set(err, code, "%s: %s: %s", path, what, nng_strerror(number));
}

struct sink {
	nng_msg *message;
	uint64_t size; /* goes on counting behind the limit, for the refusal */
	uint64_t limit;
	bool no_memory;
};

static int sink_write(void *arg, const char *bytes, size_t size)
{
	struct sink *s = arg;
	s->size += size;
	if (s->size <= s->limit && !s->no_memory)
		s->no_memory = nng_msg_append(s->message, bytes, size) != 0;
	return 0;
}

static int pack(nng_msg **out, enum proto_op_id op, uint64_t req, const void *request, uint64_t limit,
		struct err *err)
{
	cleanup(nng_msg_freep) nng_msg *m = NULL;
	const char *wire = proto_ops[op].wire;
	size_t bulk = op == OP_head_run ? ((const struct req_head_run *)request)->x.size : 0;
	/* One allocation: growing piece by piece copies what is there each time. */
	if (bulk <= limit && (nng_msg_alloc(&m, 0) != 0 || nng_msg_reserve(m, bulk + SLACK) != 0))
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory for a request of %zu bytes", wire,
			       bulk);
	struct sink sink = {.message = m, .limit = bulk <= limit ? limit : 0};
	msgpack_packer packer;
	msgpack_packer_init(&packer, &sink, sink_write);
	proto_write_request(&packer, op, req, request);
	if (sink.size > sink.limit) {
		err_set(err, NPU_E_TOO_LARGE, "%s: the request takes %llu bytes; the daemon allows %llu",
			wire, (unsigned long long)sink.size, (unsigned long long)limit);
		err->detail.needed = sink.size;
		err->detail.limit = limit;
		return NPU_E_TOO_LARGE;
	}
	if (sink.no_memory)
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory for a request of %llu bytes", wire,
			       (unsigned long long)sink.size);
	*out = take(&m);
	return 0;
}

/* One request, one answer, no second try. Whatever is left of an earlier request NNG drops when this one is
 * sent. */
static int once(struct connection *c, enum proto_op_id op, const void *request, void *reply, struct answer *a,
		int timeout_ms, struct err *err)
{
	cleanup(nng_msg_freep) nng_msg *m = NULL;
	const char *wire = proto_ops[op].wire;
	uint64_t req = ++c->req;
	int r = pack(&m, op, req, request, c->max_request, err);
	if (r)
		return r;

	/* A send waits for a connection: without a limit of its own a daemon that is gone costs the whole
	 * time. */
	nng_aio_set_timeout(c->aio, timeout_ms < CONNECT_MS ? timeout_ms : CONNECT_MS);
	nng_aio_set_msg(c->aio, m);
	nng_ctx_send(c->context, c->aio);
	nng_aio_wait(c->aio);
	r = nng_aio_result(c->aio);
	if (r == NNG_ETIMEDOUT)
		return err_set(err, NPU_E_CONNECTION_LOST,
			       "%s: %s: no connection; is the daemon still running?", c->path, wire);
	if (r)
		return err_nng(err, r, wire, c->path);
	take(&m); /* NNG has it */

	nng_aio_set_timeout(c->aio, timeout_ms);
	nng_ctx_recv(c->context, c->aio);
	nng_aio_wait(c->aio);
	r = nng_aio_result(c->aio);
	if (r == NNG_ETIMEDOUT)
		return err_set(err, NPU_E_TIMED_OUT, "%s: %s: no answer within %g s", c->path, wire,
			       timeout_ms / 1000.0);
	if (r)
		return err_nng(err, r, wire, c->path);

	answer_fini(a);
	a->message = nng_aio_get_msg(c->aio);
	r = proto_read_reply(&a->in, nng_msg_body(a->message), nng_msg_len(a->message), err);
	if (r)
		return r;
	if (a->in.req != req)
		return err_set(err, NPU_E_MALFORMED, "%s: %s: the answer belongs to request %llu, not %llu",
			       c->path, wire, (unsigned long long)a->in.req, (unsigned long long)req);
	if (a->in.code)
		return proto_read_error(&a->in, err);
	return proto_read_fields(&a->in, &proto_ops[op].reply, reply, err);
}

static int say_hello(struct connection *c, int timeout_ms, struct err *err)
{
	struct req_hello q = {
		.name = PROTO_STR(c->name),
		.version = PROTO_STR(NPUD_VERSION),
		.minor = PROTO_MINOR,
		.nonce = {c->nonce, sizeof c->nonce},
	};
	struct rep_hello h = {};
	cleanup(answer_fini) struct answer a = {};
	int r = once(c, OP_hello, &q, &h, &a, timeout_ms, err);
	if (r)
		return r;
	if (h.major != PROTO_MAJOR)
		return err_set(err, NPU_E_VERSION,
			       "%s: the daemon speaks protocol %llu, this library %u; update the older",
			       c->path, (unsigned long long)h.major, PROTO_MAJOR);
	if (h.token.size != sizeof c->token || !h.max_request || !h.max_reply || !h.max_rows)
		return err_set(err, NPU_E_MALFORMED, "%s: hello: the answer lacks the token or the limits",
			       c->path);
	c->session = h.session;
	memcpy(c->token, h.token.data, sizeof c->token);
	call_copy(c->version, sizeof c->version, h.version);
	call_copy(c->device, sizeof c->device, h.device);
	c->max_request = h.max_request < PROTO_REQUEST_MAX ? h.max_request : PROTO_REQUEST_MAX;
	c->max_reply = h.max_reply < PROTO_REPLY_MAX ? h.max_reply : PROTO_REPLY_MAX;
	c->max_rows = h.max_rows;
	return 0;
}

/* What means the same in a new session: a request that names nothing of the old one. */
static bool outlives_session(enum proto_op_id op)
{
	return op == OP_ping || op == OP_status || op == OP_clients || op == OP_head_list;
}

int call(struct connection *c, enum proto_op_id op, const void *request, void *reply, struct answer *a,
	 int timeout_ms, struct err *err)
{
	int r = once(c, op, request, reply, a, timeout_ms, err);
	if (r == NPU_E_TIMED_OUT && op == OP_head_run) {
		struct req_cancel q = {.req = c->req};
		struct rep_cancel found = {};
		cleanup(answer_fini) struct answer cancelled = {};
		struct err ignored;
		once(c, OP_cancel, &q, &found, &cancelled, CANCEL_MS, &ignored);
		return r;
	}
	if (r != NPU_E_HELLO_FIRST)
		return r;

	/* NNG connected again on its own, to a daemon that does not know us. */
	r = say_hello(c, timeout_ms < HELLO_MS ? timeout_ms : HELLO_MS, err);
	if (r)
		return r;
	if (outlives_session(op))
		return once(c, op, request, reply, a, timeout_ms, err);
	return err_set(err, NPU_E_CONNECTION_LOST,
		       "%s: the daemon restarted or dropped this connection; open the head again", c->path);
}

void connection_close(struct connection *c)
{
	if (!c->open)
		return;
	nng_close(c->socket);
	nng_aio_free(c->aio);
	c->open = false;
}

static int dial(struct connection *c, int hello_ms, struct err *err)
{
	char url[PLACES_PATH_MAX + sizeof "ipc://"];
	snprintf(url, sizeof url, "ipc://%s", c->path);
	int r = nng_req0_open(&c->socket);
	if (r)
		return err_nng(err, r, "cannot make a socket", c->path);
	r = nng_aio_alloc(&c->aio, NULL, NULL);
	if (r) {
		nng_close(c->socket);
		return err_nng(err, r, "cannot make a socket", c->path);
	}
	c->open = true;
	/* Before the context, which copies it: NNG would run a long request again by default. */
	if ((r = nng_socket_set_ms(c->socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE)) ||
	    (r = nng_socket_set_size(c->socket, NNG_OPT_RECVMAXSZ, PROTO_REPLY_MAX + SLACK)) ||
	    (r = nng_socket_set_ms(c->socket, NNG_OPT_RECONNMINT, 50)) ||
	    (r = nng_socket_set_ms(c->socket, NNG_OPT_RECONNMAXT, 2000)) ||
	    (r = nng_ctx_open(&c->context, c->socket)) ||
	    /* Non-blocking: a blocking dial of NNG 1.5 heeds no time limit. */
	    (r = nng_dial(c->socket, url, NULL, NNG_FLAG_NONBLOCK)))
		err_nng(err, r, "cannot connect", c->path);
	else
		r = say_hello(c, hello_ms, err);
	if (r) {
		connection_close(c);
		return err->code;
	}
	return 0;
}

static int refuse_denied(const char *path, struct err *err)
{
	char group[64];
	places_group(path, group, sizeof group);
	return err_set(err, NPU_E_NOT_ALLOWED, "%s: not allowed to connect; become a member of the group %s",
		       path, group);
}

/* Whether nobody can be said to have answered: the search goes on. */
static bool is_silence(int r)
{
	return r == NPU_E_TIMED_OUT || r == NPU_E_CONNECTION_LOST;
}

static int open_named(struct connection *c, const char *path, struct err *err)
{
	if (strncmp(path, "ipc://", 6) == 0)
		path += 6;
	if (!*path || strlen(path) >= sizeof c->path)
		return err_set(err, NPU_E_BAD_VALUE, "the socket's path has %zu bytes; 1 to %zu are allowed",
			       strlen(path), sizeof c->path - 1);
	memcpy(c->path, path, strlen(path) + 1);
	enum place place = places_look(path);
	if (place == PLACE_DENIED)
		return refuse_denied(path, err);
	if (place != PLACE_LISTENS && place != PLACE_UNCERTAIN)
		return err_set(err, NPU_E_NO_DAEMON,
			       "no daemon answers: looked at %s (%s); start one with: npud --foreground",
			       path, places_words(place));
	int r = dial(c, HELLO_MS, err);
	if (is_silence(r))
		return err_set(err, place == PLACE_LISTENS ? NPU_E_TIMED_OUT : NPU_E_NO_DAEMON,
			       "no answer from %s within %d s; the daemon may be stopped or not be npud",
			       path, HELLO_MS / 1000);
	return r;
}

static int open_found(struct connection *c, struct err *err)
{
	char looked[384] = "", denied[PLACES_PATH_MAX + 1] = "";
	bool last = false;
	for (unsigned i = 0; !last; i++) {
		if (!places_user_socket(i, c->path, sizeof c->path)) {
			strcpy(c->path, PLACES_SYSTEM_SOCKET);
			last = true;
		}
		if (!c->path[0])
			continue;
		enum place place = places_look(c->path);
		if (place == PLACE_LISTENS || place == PLACE_UNCERTAIN) {
			int r = dial(c, place == PLACE_LISTENS ? HELLO_SEARCH_MS : HELLO_UNCERTAIN_MS, err);
			if (!is_silence(r))
				return r;
		}
		if (place == PLACE_DENIED)
			snprintf(denied, sizeof denied, "%s", c->path);
		size_t used = strlen(looked);
		snprintf(looked + used, sizeof looked - used, "%s%s (%s)", used ? ", " : "", c->path,
			 places_words(place));
	}
	if (denied[0])
		return refuse_denied(denied, err);
	return err_set(err, NPU_E_NO_DAEMON,
		       "no daemon answers: looked at %s; start one with: npud --foreground", looked);
}

int connection_open(struct connection *c, const char *socket, const char *name, struct err *err)
{
	*c = (struct connection){.max_request = PROTO_REQUEST_MAX};
	err_printable(c->name, sizeof c->name, name, strlen(name));
	if (getrandom(c->nonce, sizeof c->nonce, 0) != (ssize_t)sizeof c->nonce)
		return err_sys(err, errno, "random bytes");
	if (!socket) {
		socket = getenv("NPUD_SOCKET");
		if (socket && !*socket)
			socket = NULL;
	}
	return socket ? open_named(c, socket, err) : open_found(c, err);
}

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

int call_pass(struct connection *c, int fd, const char *name, uint64_t *file, struct err *err)
{
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
	if (r < 0)
		return err_side(err, to.sun_path, "cannot connect");

	struct req_file_pass q = {.token = {c->token, sizeof c->token}, .name = PROTO_STR(name)};
	uint64_t req = ++c->req;
	cleanup(msgpack_sbuffer_destroy) msgpack_sbuffer packet;
	msgpack_packer packer;
	msgpack_sbuffer_init(&packet);
	msgpack_packer_init(&packer, &packet, msgpack_sbuffer_write);
	proto_write_request(&packer, OP_file_pass, req, &q);
	if (send_with_descriptor(side, packet.data, packet.size, fd) < 0)
		return err_side(err, to.sun_path, "cannot pass the file");

	cleanup(freep) char *bytes = malloc(SIDE_REPLY_MAX);
	if (!bytes)
		return err_set(err, NPU_E_NO_MEMORY, "out of memory");
	ssize_t n;
	do
		n = recv(side, bytes, SIDE_REPLY_MAX, 0);
	while (n < 0 && errno == EINTR);
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
	if (in.code)
		return proto_read_error(&in, err);
	if (in.req != req)
		return err_set(err, NPU_E_MALFORMED, "%s: the answer belongs to another request",
			       to.sun_path);
	r = proto_read_fields(&in, &proto_ops[OP_file_pass].reply, &p, err);
	if (r)
		return r;
	*file = p.file;
	return 0;
}
