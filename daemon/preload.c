#include "preload.h"
#include "handles.h"
#include "model.h"
#include "own.h"
#include "session.h"
#include <stdio.h>
#include <string.h>

static void tell(struct server *s, uint64_t head, const char *what, const char *text)
{
	events_tell(s, NULL, EVENT_PRELOAD, head, "%.100s: %s", what, text);
}

/* The model's files as the session's; the first of them is the model. */
static int pass(struct session *s, struct model *m, const struct file **first, struct err *err)
{
	uint64_t number, of = 0;

	for (size_t i = 0; i < m->count; i++) {
		const char *name = m->files[i].name;
		int r = session_add_file(s, m->files[i].fd, name, strlen(name), of, &number, err);
		if (r)
			return r;
		(void)take_fd(&m->files[i].fd);
		of = of ? of : number;
	}
	*first = session_file(s, of);
	return 0;
}

static int open_one(struct session *s, const char *name, struct err *err)
{
	cleanup(model_fini) struct model m = {.files = NULL};
	struct load_request want = {.layout = LAYOUT_BLOCKED, .any_layout = true, .store = true};
	const struct file *first = NULL;
	struct handle *h;
	int r = model_find(&m, name, err);

	if (r == 0)
		r = pass(s, &m, &first, err);
	if (r)
		return r;
	memcpy(want.label, m.label, sizeof want.label);
	want.tensor = strdup("");
	return handle_open(&h, s, first, &want, err);
}

/* Who called may be in the middle of something that is the session's. */
static void on_done(uv_timer_t *timer)
{
	struct server *s = timer->data;
	if (s->preload.session)
		session_close(take(&s->preload.session));
}

static void one_less(struct server *s)
{
	if (--s->preload.waiting == 0)
		uv_timer_start(&s->preload.done, on_done, 0, 0);
}

void preload_begin(struct server *server)
{
	const struct config *c = &server->config;
	struct preload *p = &server->preload;
	const struct peer us = {.uid = getuid(), .gid = getgid(), .pid = getpid(), .pidfd = -1};

	uv_timer_init(&server->loop, &p->done);
	p->done.data = server;
	if (!c->preload_count)
		return;
	if (session_new(&p->session, server, us)) {
		tell(server, 0, "[preload]", "no memory for a session");
		return;
	}
	snprintf(p->session->name, sizeof p->session->name, "[preload]");
	snprintf(p->session->version, sizeof p->session->version, "%s", NPUD_VERSION);
	p->waiting = 1; /* the loop below */
	for (uint32_t i = 0; i < c->preload_count; i++) {
		struct err err;
		if (open_one(p->session, c->preloads[i].model, &err))
			tell(server, 0, c->preloads[i].name, err.text);
		else
			p->waiting++;
	}
	one_less(server);
}

void preload_settled(struct handle *h)
{
	struct server *s = h->session->server;

	if (h->object) {
		object_pin(h->object);
		tell(s, h->object->id, h->object->label, "is there, and pinned");
	} else {
		tell(s, 0, "[preload]", h->err.text);
	}
	one_less(s);
}

void preload_end(struct server *server)
{
	uv_close((uv_handle_t *)&server->preload.done, NULL);
}
