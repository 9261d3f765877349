/*
 * Where other programs keep models by name: Hugging Face's cache, FastFlowLM's models, Ollama's store. Any
 * thread; no state.
 */
#ifndef NPU_HUB_H
#define NPU_HUB_H

#include "err.h"
#include <limits.h>

struct hub_found {
	char path[PATH_MAX]; /* a directory, or Ollama's one file */
	char label[129];
};

/*
 * The first place that has a model called `name`: "org/model" or "model" of Hugging Face (the revision main),
 * a directory of FastFlowLM, "model[:tag]" of Ollama. IO where none has, with where it was looked for;
 * BAD_VALUE where one place has several.
 */
int hub_find(struct hub_found *out, const char *name, struct err *err);

/* A repository's folder in Hugging Face's cache (models--org--model): its snapshot of main. False where
 * `path` is none, or it has no such snapshot. */
bool hub_snapshot(struct hub_found *out, const char *path);

#endif
