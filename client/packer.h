/* Packing a model's head in this process, without a daemon, by the daemon's own loader. One thread. */
#ifndef PACKER_H
#define PACKER_H

#include "loader.h"
#include "model.h"
#include "reading.h"

/* A load of `m`, whose files and label it takes, and of `request`, whose tensor it takes, also on failure.
 * `secret` and `kernels` must outlive it. NO_MEMORY. */
int packer_new(struct load **out, struct model *m, struct load_request *request,
	       const struct hash_secret *secret, const struct kernels *kernels, unsigned threads);

/* What is asked for; its tensor, to be given away, is NULL where there is no memory, which packer_new says.
 */
struct load_request packer_request(const struct reading *r);

/* Reads and packs it all. What load_identify and load_fill say; TOO_LARGE, unread, for what is more than the
 * machine's memory. */
int packer_fill(struct load *l, struct err *err);

/* The same on a thread of its own, so that this one can call `progress` now and then. Also NO_MEMORY. */
int packer_pack(struct load *l, void (*progress)(void *arg, uint32_t done, uint32_t tiles), void *arg,
		struct err *err);

#endif
