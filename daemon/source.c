#include "source.h"
#include "own.h"
#include "undertaker.h"
#include "upload.h"
#include <stdlib.h>

void source_fini(struct source *s)
{
	for (size_t i = 0; i < s->count; i++) {
		undertaker_take(s->files[i].fd);
		free((char *)s->files[i].name);
	}
	free(s->files);
	for (size_t i = 0; i < s->upload_count; i++)
		upload_release(s->uploads[i]);
	free(s->uploads);
	*s = (struct source){.files = NULL};
}

int source_open(struct container **out, const struct source *s, const char *label, struct err *err)
{
	return container_open(out, s->files, s->count, label, err);
}
