/* Packing a model's head in this process, without a daemon, by the daemon's own loader. One thread. */
#ifndef PACKER_H
#define PACKER_H

#include "loader.h"
#include "model.h"

/* A load of `m`, whose files and label it takes, and of `request`, whose tensor it takes, also on failure.
 * `secret` and `kernels` must outlive it. NO_MEMORY. */
int packer_new(struct load **out, struct model *m, struct load_request *request,
	       const struct hash_secret *secret, const struct kernels *kernels, unsigned threads);

#endif
