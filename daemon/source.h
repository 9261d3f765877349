/*
 * The files of one model, one or a group, with descriptors of its own so that a worker can read on when
 * whoever passed them closes theirs. Else one thread at a time.
 */
#ifndef NPUD_SOURCE_H
#define NPUD_SOURCE_H

#include "container.h"

struct upload;

struct source {
	struct container_file *files; /* owned: descriptors and names */
	size_t count;
	struct upload **uploads; /* of files that were uploaded, held; or NULL */
	size_t upload_count;
};

/* Loop thread only, for the uploads. Zeroed is fine. */
void source_fini(struct source *s);

/* container_open of the files, which must outlive the container. */
int source_open(struct container **out, const struct source *s, const char *label, struct err *err);

#endif
