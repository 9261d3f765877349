#include "connection.h"
#include "clock.h"
#include "call.h"
#include "own.h"
#include "stream.h"
#include <ctype.h>
#include <errno.h>
#include <nng/protocol/reqrep0/req.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>

enum {
	HELLO_MS = 5000,
	HELLO_SEARCH_MS = 2000,	  /* where more places are to be tried */
	HELLO_UNCERTAIN_MS = 500, /* where perhaps nobody listens */
	ALONE_MS = 500,
	SLACK = 4096, /* what a message holds beside its bulk */
};

static const struct told nothing = {
	.max_request = PROTO_REQUEST_MAX,
	.max_reply = PROTO_REPLY_MAX,
	.max_rows = PROTO_ROWS_MAX,
};

bool connection_read_ticket(const char *text, uint64_t *id, char token[16])
{
	char *colon;
	errno = 0;
	*id = strtoull(text, &colon, 10);
	if (*text < '1' || *text > '9' || errno || *colon != ':' || strlen(colon + 1) != 32)
		return false;
	for (int i = 0; i < 16; i++) {
		const char digits[3] = {colon[1 + 2 * i], colon[2 + 2 * i], '\0'};
		if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
			return false;
		token[i] = (char)strtoul(digits, NULL, 16);
	}
	return true;
}

struct req_hello connection_hello(const struct connection *c)
{
	return (struct req_hello){
		.name = PROTO_STR(c->name),
		.version = PROTO_STR(NPUD_VERSION),
		.minor = PROTO_MINOR,
		.nonce = {c->nonce, sizeof c->nonce},
		.ticket = c->ticket,
		.ticket_token = {c->ticket_token, c->ticket ? sizeof c->ticket_token : 0},
	};
}

const struct told *connection_told(struct connection *c)
{
	pthread_mutex_lock(&c->lock);
	const struct told *t = c->told ? c->told : &nothing;
	pthread_mutex_unlock(&c->lock);
	return t;
}

int connection_greeted(struct connection *c, const struct rep_hello *h, struct err *err)
{
	if (h->major != PROTO_MAJOR)
		return err_set(err, NPU_E_VERSION,
			       "%s: the daemon speaks protocol %llu, this library %u; update the older",
			       c->path, (unsigned long long)h->major, PROTO_MAJOR);
	if (h->token.size != sizeof nothing.token || !h->max_request || !h->max_reply || !h->max_rows)
		return err_set(err, NPU_E_MALFORMED, "%s: hello: the answer lacks the token or the limits",
			       c->path);
	struct told *t = calloc(1, sizeof *t);
	if (!t)
		return err_set(err, NPU_E_NO_MEMORY, "%s: hello: out of memory", c->path);
	memcpy(t->token, h->token.data, sizeof t->token);
	call_copy(t->version, sizeof t->version, h->version);
	call_copy(t->device, sizeof t->device, h->device);
	t->max_request = h->max_request < PROTO_REQUEST_MAX ? h->max_request : PROTO_REQUEST_MAX;
	t->max_reply = h->max_reply < PROTO_REPLY_MAX ? h->max_reply : PROTO_REPLY_MAX;
	t->max_rows = h->max_rows;
	pthread_mutex_lock(&c->lock);
	/* Requests that met the new session together each say hello, and are told the same. */
	bool known = c->told && memcmp(c->told->token, t->token, sizeof t->token) == 0;
	if (!known) {
		t->session = c->told ? c->told->session + 1 : 1;
		t->before = c->told;
		c->told = t;
	}
	pthread_mutex_unlock(&c->lock);
	if (known)
		free(t);
	return 0;
}

uint64_t connection_next_req(struct connection *c)
{
	pthread_mutex_lock(&c->lock);
	uint64_t req = ++c->req;
	pthread_mutex_unlock(&c->lock);
	return req;
}

int connection_fd(struct connection *c, struct err *err)
{
	pthread_mutex_lock(&c->lock);
	if (c->fd < 0)
		c->fd = eventfd(c->first ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
	int fd = c->fd;
	int number = errno;
	pthread_mutex_unlock(&c->lock);
	return fd >= 0 ? fd : err_sys(err, number, "%s: no descriptor for finished calls", c->path);
}

void connection_close(struct connection *c)
{
	if (!c->open)
		return;
	/*
	 * NNG 1.5 frees the socket under a thread that is about to leave nng_ctx_recv, as one may be whose
	 * answer has come already: all have left when their calls have stopped.
	 */
	call_stop_all(c);
	nng_close(c->socket);
	call_free_all(c);
	c->open = false;
}

void connection_fini(struct connection *c)
{
	if (c->fd >= 0)
		close(take_fd(&c->fd));
	while (c->told) {
		struct told *t = c->told;
		c->told = t->before;
		free(t);
	}
}

static int say_hello(struct connection *c, int timeout_ms, struct err *err)
{
	struct req_hello q = connection_hello(c);
	struct rep_hello h;
	cleanup(answer_fini) struct answer a = {};
	return call(c, OP_hello, &q, (struct call_options){.timeout_ms = timeout_ms}, &h, &a, err);
}

static int err_socket(struct err *err, int number, const char *path)
{
	return err_set(err, number == NNG_ENOMEM ? NPU_E_NO_MEMORY : NPU_E_IO, "%s: cannot connect: %s", path,
		       nng_strerror(number));
}

static void on_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
	struct connection *c = arg;
	int id = nng_pipe_id(pipe);

	if (event == NNG_PIPE_EV_ADD_POST) {
		atomic_store(&c->pipe, id);
	} else if (atomic_compare_exchange_strong(&c->pipe, &id, 0)) {
		pthread_mutex_lock(&c->lock);
		c->alone_since = clock_now();
		pthread_mutex_unlock(&c->lock);
	}
}

/* Non-blocking: a blocking dial of NNG 1.5 heeds no time limit. */
static int start_dialing(struct connection *c)
{
	char url[PLACES_PATH_MAX + sizeof "ipc://"];
	snprintf(url, sizeof url, "ipc://%s", c->path);
	return nng_dial(c->socket, url, &c->dialer, NNG_FLAG_NONBLOCK);
}

/*
 * NNG before 1.6.0 stops to dial for ever, and tells nobody, when the daemon closes a connection before NNG
 * has written its greeting: sendmsg fails with EPIPE, which it maps to "closed" and takes for its own end
 * (the other side of nanomsg/nng#1518). A daemon that is killed does just that: the kernel closes its
 * connections before the socket it listens at, and whoever dials at once is let in and thrown out. The cure
 * of daemon/sendmsg.c is none for a library: the sendmsg of its program is not its own.
 */
void connection_redial(struct connection *c)
{
	/*
	 * Closing a dialer waits for its callbacks, which need a thread of NNG, of which there are two at
	 * least: one is enough to wait in here.
	 */
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

	if (pthread_mutex_trylock(&one) != 0)
		return;
	pthread_mutex_lock(&c->lock);
	bool due = atomic_load(&c->pipe) == 0 && clock_now() - c->alone_since >= ALONE_MS / 1e3;
	if (due)
		c->alone_since = clock_now();
	pthread_mutex_unlock(&c->lock);
	if (due) {
		nng_dialer_close(c->dialer);
		start_dialing(c); /* out of memory: again, later */
	}
	pthread_mutex_unlock(&one);
}

static int dial(struct connection *c, int hello_ms, struct err *err)
{
	stream_init();
	int r = nng_req0_open(&c->socket);
	if (r)
		return err_socket(err, r, c->path);
	c->open = true;
	c->alone_since = clock_now();
	/* Before any context, which copies it: NNG would run a long request again by default. */
	if ((r = nng_socket_set_ms(c->socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE)) ||
	    (r = nng_socket_set_size(c->socket, NNG_OPT_RECVMAXSZ, PROTO_REPLY_MAX + SLACK)) ||
	    (r = nng_socket_set_ms(c->socket, NNG_OPT_RECONNMINT, 50)) ||
	    (r = nng_socket_set_ms(c->socket, NNG_OPT_RECONNMAXT, ALONE_MS)) ||
	    (r = nng_pipe_notify(c->socket, NNG_PIPE_EV_ADD_POST, on_pipe, c)) ||
	    (r = nng_pipe_notify(c->socket, NNG_PIPE_EV_REM_POST, on_pipe, c)) || (r = start_dialing(c)))
		r = err_socket(err, r, c->path);
	else
		r = say_hello(c, hello_ms, err);
	if (r)
		connection_close(c);
	return r;
}

static int refuse_denied(const char *path, struct err *err)
{
	char advice[128];
	places_advice(path, advice, sizeof advice);
	return err_set(err, NPU_E_NOT_ALLOWED, "%s: not allowed to connect; %s", path, advice);
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
	pthread_condattr_t monotonic;
	*c = (struct connection)CONNECTION_INIT;
	c->last = &c->first;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c->finished, &monotonic);
	pthread_condattr_destroy(&monotonic);
	err_printable(c->name, sizeof c->name, name, strlen(name));
	if (getrandom(c->nonce, sizeof c->nonce, 0) != (ssize_t)sizeof c->nonce)
		return err_sys(err, errno, "random bytes");
	const char *ticket = getenv("NPU_TICKET");
	if (ticket && *ticket && !connection_read_ticket(ticket, &c->ticket, c->ticket_token))
		return err_set(
			err, NPU_E_BAD_VALUE,
			"NPU_TICKET is no ticket: a number, a colon and 32 hexadecimal digits are; unset it");
	if (!socket) {
		socket = getenv("NPUD_SOCKET");
		if (socket && !*socket)
			socket = NULL;
	}
	return socket ? open_named(c, socket, err) : open_found(c, err);
}
