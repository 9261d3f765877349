#include "indoors.h"
#include "log.h"
#include "proto.h"
#include "request.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each message gets a slot of its own, which is answered or dropped exactly once. */
static unsigned slots_held;
static char place[] = "/tmp/npud-fuzz.XXXXXX";

/* A line for every refused head would bury what is looked for. */
void log_line(const char *what, uint64_t id, const char *format, ...)
{
	(void)what, (void)id, (void)format;
}

int listener_init(struct listener *l, uv_loop_t *loop, const char *path, unsigned connections_max,
		  unsigned user_max, unsigned in_flight_max, const struct listen_calls *calls, void *arg,
		  struct err *err)
{
	(void)loop, (void)connections_max, (void)user_max, (void)in_flight_max, (void)calls, (void)arg,
		(void)err;
	link_init(&l->slots);
	snprintf(l->path, sizeof l->path, "%s", path);
	return 0;
}

void listener_limit(struct listener *l, unsigned connections_max, unsigned user_max, unsigned in_flight_max)
{
	(void)l, (void)connections_max, (void)user_max, (void)in_flight_max;
}

bool listener_is_found(const struct listener *l)
{
	(void)l;
	return true;
}

int listener_listen(struct listener *l, struct err *err)
{
	(void)l, (void)err;
	return 0;
}

void listener_close(struct listener *l)
{
	(void)l;
}

void listener_fini(struct listener *l)
{
	(void)l;
}

void listen_disconnect(uint32_t pipe)
{
	(void)pipe; /* the target closes every session itself */
}

unsigned slot_company(const struct slot *s)
{
	(void)s;
	return 0;
}

void slot_drop(struct slot *s)
{
	if (s->state != SLOT_HELD)
		abort();
	slots_held--;
	free(s);
}

void slot_answer(struct slot *s, nng_msg *message)
{
	struct proto_in in;
	struct err err = {0};

	if (proto_read_reply(&in, nng_msg_body(message), nng_msg_len(message), &err)) {
		fprintf(stderr, "an answer that is none: %s\n", err.text);
		abort();
	}
	if (in.code && (proto_read_error(&in, &err) != in.code || !err.text[0] ||
			strcmp(err_name(in.code), "INTERNAL") == 0)) {
		fprintf(stderr, "a refusal that says nothing: %d %s\n", in.code, err.text);
		abort();
	}
	proto_end(&in);
	nng_msg_free(message);
	if (s->owed)
		quota_give_bytes(&indoors()->quota, s->uid, QUOTA_REPLIES, s->owed);
	slot_drop(s);
}

static int erase(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)st, (void)kind, (void)where;
	return remove(path);
}

static void clean_up(void)
{
	nftw(place, erase, 16, FTW_DEPTH | FTW_PHYS);
}

struct server *indoors(void)
{
	static struct server server;
	static struct config config;
	static bool made;
	struct err err;

	if (made)
		return &server;
	if (!mkdtemp(place) || atexit(clean_up))
		abort();
	config_defaults(&config);
	snprintf(config.socket, sizeof config.socket, "%s/run/npud.sock", place);
	snprintf(config.cache_dir, sizeof config.cache_dir, "%s/cache", place);
	snprintf(config.state_dir, sizeof config.state_dir, "%s/state", place);
	config.threads = 1;
	if (server_init(&server, &config, NULL, &err)) {
		puts(err.text);
		abort();
	}
	made = true;
	return &server;
}

struct session *indoors_session(bool stranger)
{
	static uint32_t pipes;
	struct session *s;
	struct peer peer = {.pipe = ++pipes,
			    .uid = getuid() + stranger,
			    .gid = getgid() + stranger,
			    .pid = 1,
			    .pidfd = -1};
	if (session_new(&s, indoors(), peer))
		abort();
	return s;
}

void indoors_ask(struct session *s, const void *bytes, size_t size)
{
	nng_msg *message;
	struct slot *slot = calloc(1, sizeof *slot);
	if (!slot || nng_msg_alloc(&message, 0) || nng_msg_append(message, bytes, size))
		abort();
	slot->state = SLOT_HELD;
	slot->pipe = s->peer.pipe;
	slots_held++;
	request_arrived(indoors(), slot, message);
}

void indoors_turn(void)
{
	uv_run(&indoors()->loop, UV_RUN_NOWAIT);
}

void indoors_close(struct session *s)
{
	struct server *server = indoors();
	uid_t uid = s->peer.uid;

	session_close(s);
	while (server->in_flight || server->loads)
		uv_run(&server->loop, UV_RUN_ONCE);
	if (slots_held)
		abort();
	for (int kind = 0; kind < QUOTA_KINDS; kind++)
		if (quota_used(&server->quota, uid, kind))
			abort();
}
