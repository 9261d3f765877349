#include "session.h"
#include "handles.h"
#include "listing.h"
#include "log.h"
#include "own.h"
#include "request.h"
#include "source.h"
#include "undertaker.h"
#include "upload.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

int session_new(struct session **out, struct server *server, struct peer peer)
{
	struct session *s = calloc(1, sizeof *s);
	if (!s)
		return NPU_E_NO_MEMORY;
	if (getrandom(s->token, sizeof s->token, 0) != sizeof s->token) {
		free(s);
		return NPU_E_IO;
	}
	s->server = server;
	s->peer = peer;
	s->number = ++server->next_session;
	s->since_ms = server_now();
	event_ring_init(&s->events, EVENTS_OF_SESSION);
	batch_client_init(&s->rows);
	link_init(&s->requests);
	link_init(&s->files);
	link_init(&s->handles);
	link_init(&s->tickets);
	link_append(&server->sessions, &s->in_sessions);
	*out = s;
	return 0;
}

static void file_free(struct session *s, struct file *f)
{
	link_remove(&f->in_session);
	s->file_count--;
	quota_give(&s->server->quota, s->peer.uid, QUOTA_HANDLES);
	undertaker_take(f->fd);
	upload_release(f->upload);
	free(f);
}

void session_close(struct session *s)
{
	link_remove(&s->in_sessions);
	link_each(at, &s->requests) request_abandon(link_of(at, struct request, in_session));
	executor_leave(&s->server->executor, &s->rows);
	link_each(at, &s->handles) handle_close(link_of(at, struct handle, in_session));
	listing_drop(s->listing);
	link_each(at, &s->files) file_free(s, link_of(at, struct file, in_session));
	tickets_session_closed(s);
	event_ring_fini(&s->events);
	replies_detach(&s->server->replies, s->replies,
		       server_now() + s->server->config.ticket_resume * 1000);
	if (s->ready)
		quota_give(&s->server->quota, s->peer.uid, QUOTA_CONNECTIONS);
	if (s->peer.pidfd >= 0)
		close(s->peer.pidfd);
	free(s);
}

void session_end(struct session *s)
{
	if (s->ended)
		return;
	s->ended = true;
	listen_disconnect(s->peer.pipe);
}

struct session *session_of_number(struct server *server, uint64_t number)
{
	link_each(at, &server->sessions)
	{
		struct session *s = link_of(at, struct session, in_sessions);
		if (s->number == number)
			return s;
	}
	return NULL;
}

struct session *session_of_pipe(struct server *server, uint32_t pipe)
{
	link_each(at, &server->sessions)
	{
		struct session *s = link_of(at, struct session, in_sessions);
		if (s->peer.pipe == pipe)
			return s;
	}
	return NULL;
}

struct session *session_of_token(struct server *server, const void *token, size_t size, uid_t uid)
{
	link_each(at, &server->sessions)
	{
		struct session *s = link_of(at, struct session, in_sessions);
		if (!s->ended && size == sizeof s->token && memcmp(token, s->token, size) == 0 &&
		    s->peer.uid == uid)
			return s;
	}
	return NULL;
}

/* What messages call a file, which need not have been given a name. */
static void show_name(char to[129], const char *name, size_t size)
{
	if (size)
		err_printable(to, 129, name, size);
	else
		snprintf(to, 129, "a file without a name");
}

/* A file of the model that `of` began, without a descriptor yet. */
static int file_new(struct file **out, struct session *s, const char *shown, uint64_t of, struct err *err)
{
	const struct file *first = of ? session_file(s, of) : NULL;
	if (of && !first)
		return err_set(err, NPU_E_NO_SUCH_HANDLE,
			       "%s: this session has no file %llu whose model it could belong to; `of` is an "
			       "earlier file of it, or 0",
			       shown, (unsigned long long)of);
	struct file *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(err, NPU_E_NO_MEMORY, "%s: out of memory", shown);
	int r = quota_take(&s->server->quota, s->peer.uid, QUOTA_HANDLES, s->server->config.handles, err);
	if (r) {
		free(f);
		return r;
	}
	f->number = ++s->next_handle;
	f->model = first ? first->model : f->number;
	f->fd = -1;
	snprintf(f->name, sizeof f->name, "%s", shown);
	link_append(&s->files, &f->in_session);
	s->file_count++;
	*out = f;
	return 0;
}

int session_add_file(struct session *s, int fd, const char *name, size_t name_size, uint64_t of,
		     uint64_t *number, struct err *err)
{
	char shown[129];
	struct file *f = NULL;

	show_name(shown, name, name_size);
	int r = file_new(&f, s, shown, of, err);
	if (r)
		return r;
	f->fd = fd;
	*number = f->number;
	return 0;
}

int session_add_upload(struct session *s, const char *name, size_t name_size, uint64_t of, uint64_t size,
		       uint64_t *number, struct err *err)
{
	char shown[129];
	struct file *f = NULL;

	show_name(shown, name, name_size);
	int r = file_new(&f, s, shown, of, err);
	if (r)
		return r;
	r = upload_new(&f->upload, &f->fd, s->server, s->peer.uid, shown, size, err);
	if (r)
		file_free(s, f);
	else
		*number = f->number;
	return r;
}

/* A copy of the file's descriptor and name, at the end of `s`, which has room for it. */
static int add_to_source(struct source *s, const struct file *f, struct err *err)
{
	if (f->upload && !upload_ended(f->upload))
		return err_set(err, NPU_E_BAD_VALUE,
			       "%s: is being uploaded, %llu of %llu bytes have come: send the rest, then "
			       "upload.end",
			       f->name, (unsigned long long)upload_got(f->upload),
			       (unsigned long long)upload_size(f->upload));
	cleanup(closep) int fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return err_sys(err, errno, "%s: the descriptor cannot be copied", f->name);
	char *name = strdup(f->name);
	if (!name)
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for its name", f->name);
	s->files[s->count++] = (struct container_file){take_fd(&fd), name};
	if (f->upload) {
		upload_hold(f->upload);
		s->uploads[s->upload_count++] = f->upload;
	}
	return 0;
}

int session_source(struct session *session, const struct file *file, struct source *out, struct err *err)
{
	cleanup(source_fini) struct source s = {
		.files = calloc(session->file_count, sizeof *s.files),
		.uploads = calloc(session->file_count, sizeof(struct upload *)),
	};

	if (!s.files || !s.uploads)
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for %u files", file->name,
			       session->file_count);
	link_each(at, &session->files)
	{
		const struct file *f = link_of(at, struct file, in_session);
		int r = f->model == file->model ? add_to_source(&s, f, err) : 0;
		if (r)
			return r;
	}
	*out = s;
	s = (struct source){.files = NULL};
	return 0;
}

struct file *session_file(struct session *s, uint64_t number)
{
	link_each(at, &s->files)
	{
		struct file *f = link_of(at, struct file, in_session);
		if (f->number == number)
			return f;
	}
	return NULL;
}

int session_find_file(struct file **out, struct session *s, uint64_t number, struct err *err)
{
	*out = session_file(s, number);
	return *out ? 0
		    : err_set(err, NPU_E_NO_SUCH_HANDLE,
			      "this session has no file %llu: pass it on the side socket, or upload it, "
			      "first",
			      (unsigned long long)number);
}

void file_close(struct session *s, struct file *f)
{
	uint64_t model = f->model;

	if (f->number != model) {
		file_free(s, f);
		return;
	}
	if (listing_is_of(s->listing, model))
		listing_drop(s->listing);
	link_each(at, &s->files)
	{
		struct file *other = link_of(at, struct file, in_session);
		if (other->model == model)
			file_free(s, other);
	}
}
