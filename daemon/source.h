/*
 * What a session passed for one model, one file or a group, with descriptors of its own so that a worker can
 * read on when the session closes them. Made on the loop thread, used by one thread at a time.
 */
#ifndef NPUD_SOURCE_H
#define NPUD_SOURCE_H

#include "container.h"

struct session;
struct file;

struct source {
	struct container_file *files; /* owned: descriptors and names */
	size_t count;
};

/* All files of the model that `file` belongs to, in the order in which they were passed. NO_MEMORY, IO where
 * there are no descriptors left. */
int source_of_file(struct source *out, struct session *session, const struct file *file, struct err *err);
void source_fini(struct source *s); /* zeroed is fine */

/* container_open of the files, which must outlive the container. */
int source_open(struct container **out, const struct source *s, const char *label, struct err *err);

#endif
