#include "handles.h"
#include "log.h"
#include "own.h"
#include <string.h>

int handle_open(struct handle **out, struct session *s, const struct file *file, struct load_request *want,
		struct err *err)
{
	struct server *server = s->server;
	struct load *load;
	bool fleeting = want->fleeting;
	cleanup(freep) char *tensor = want->tensor; /* the load's, once there is one */
	cleanup(source_fini) struct source source = {.files = NULL};
	int r = session_source(s, file, &source, err);
	if (r == 0)
		r = quota_take(&server->quota, s->peer.uid, QUOTA_HANDLES, server->config.handles, err);
	if (r)
		return r;
	struct handle *h = calloc(1, sizeof *h);
	r = h && tensor ? load_new(&load, want, &source, want->store ? server->filing.store : NULL,
				   filing_secret(server), &server->kernels, server->threads)
			: NPU_E_NO_MEMORY;
	if (r == 0) {
		(void)take(&tensor);
		load->known = &server->known;
		load->most = server->config.resident_bytes;
		load->reader = s->peer.uid;
		if (!want->fleeting)
			load->placement.accelerator = &server->accelerator;
		r = fetch_begin(&h->fetch, server, load, h);
	}
	if (r) {
		free(h);
		quota_give(&server->quota, s->peer.uid, QUOTA_HANDLES);
		return err_set(err, r, "%s: out of memory", want->label);
	}
	h->session = s;
	h->fleeting = fleeting;
	h->number = ++s->next_handle;
	h->opened_ns = uv_hrtime();
	link_init(&h->waiters);
	link_append(&s->handles, &h->in_session);
	s->handle_count++;
	*out = h;
	return 0;
}

void handle_close(struct handle *h)
{
	struct session *s = h->session;

	if (h->closing) /* by a request that waits for it, and is ended here */
		return;
	h->closing = true;
	while (!link_empty(&h->waiters))
		request_stop(link_of(h->waiters.next, struct request, in_waiters), NPU_E_CANCELLED,
			     "the handle was closed");
	if (h->fetch)
		fetch_leave(h->fetch);
	if (h->object) {
		h->object->handles--;
		h->object->last_session = s->number;
		object_release(h->object);
	}
	link_remove(&h->in_session);
	s->handle_count--;
	quota_give(&s->server->quota, s->peer.uid, QUOTA_HANDLES);
	free(h);
}

int handle_find(struct handle **out, struct session *s, uint64_t number, struct err *err)
{
	link_each(at, &s->handles)
	{
		struct handle *h = link_of(at, struct handle, in_session);
		if (h->number == number && !h->fleeting) {
			*out = h;
			return 0;
		}
	}
	return err_set(err, NPU_E_NO_SUCH_HANDLE, "this session has no head or weights %llu",
		       (unsigned long long)number);
}

void handle_answer(struct handle *h)
{
	for (bool more = !link_empty(&h->waiters); more;) {
		struct link *first = h->waiters.next;
		struct request *r = link_of(first, struct request, in_waiters);
		more = first->next != &h->waiters; /* of a fleeting handle there is one, and it may end it */
		r->answer(r);
	}
}

void handle_settled(struct handle *h, struct object *o, bool attached, const struct err *err)
{
	h->fetch = NULL;
	h->object = o;
	h->attached = attached;
	h->seconds = (double)(uv_hrtime() - h->opened_ns) * 1e-9;
	if (o) {
		o->handles++;
	} else {
		h->err = *err;
		log_line("session", h->session->number, "head refused: %s", err->text);
	}
	if (h->session == h->session->server->preload.session)
		preload_settled(h);
}

void handles_written(struct object *o)
{
	link_each(at_session, &o->server->sessions)
	{
		struct session *s = link_of(at_session, struct session, in_sessions);
		link_each(at, &s->handles)
		{
			struct handle *h = link_of(at, struct handle, in_session);
			if (h->object == o)
				handle_answer(h);
		}
	}
}

void handles_stop(struct server *server)
{
	link_each(at_session, &server->sessions)
	{
		struct session *s = link_of(at_session, struct session, in_sessions);
		link_each(at, &s->handles) handle_close(link_of(at, struct handle, in_session));
	}
}
