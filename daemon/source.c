#include "source.h"
#include "own.h"
#include "session.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

int source_of_file(struct source *out, struct session *session, const struct file *file, struct err *err)
{
	cleanup(source_fini) struct source s = {.files = calloc(session->file_count, sizeof *s.files)};

	if (!s.files)
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for %u files", file->name,
			       session->file_count);
	link_each(at, &session->files)
	{
		const struct file *f = link_of(at, struct file, in_session);
		if (f->model != file->model)
			continue;
		cleanup(closep) int fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 3);
		if (fd < 0)
			return err_sys(err, errno, "%s: the descriptor cannot be copied", f->name);
		char *name = strdup(f->name);
		if (!name)
			return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for its name", f->name);
		s.files[s.count++] = (struct container_file){take_fd(&fd), name};
	}
	*out = s;
	s = (struct source){NULL, 0};
	return 0;
}

void source_fini(struct source *s)
{
	for (size_t i = 0; i < s->count; i++) {
		close(s->files[i].fd);
		free((char *)s->files[i].name);
	}
	free(s->files);
	*s = (struct source){NULL, 0};
}

int source_open(struct container **out, const struct source *s, const char *label, struct err *err)
{
	return container_open(out, s->files, s->count, label, err);
}
