/*
 * MODEL, as people give it to a program, opened: a file, a directory as Hugging Face, FastFlowLM or llama.cpp
 * lay it out, or the name of a model in one of the usual places. Which files are one model goes by their
 * names; what is in them is the daemon's business. Any thread.
 */
#ifndef NPU_MODEL_H
#define NPU_MODEL_H

#include "err.h"

struct model_file {
	int fd;	    /* owned, open for reading */
	char *name; /* owned, without folders */
};

struct model {
	struct model_file *files; /* the weights first, in the order of their shards */
	size_t count;
	char label[129]; /* what to call it: "org/name", a directory's or a file's name; printable */
};

/*
 * Opens every file of the model: all shards where one, their index or their directory was named, and the
 * config.json beside them that says whether the head is tied. IO and NOT_ALLOWED where one cannot be opened,
 * BAD_VALUE where it is not said which of several models is meant; the sentence names what was looked at.
 */
int model_find(struct model *out, const char *name, struct err *err);
void model_fini(struct model *m); /* zeroed is fine */

#endif
