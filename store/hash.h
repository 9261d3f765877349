/*
 * The content hash of weights: XXH3-128 with a secret of this installation, over the stored bytes in
 * file order and then a trailer that names the whole reading (NV, H, read width, tied, dtype and options).
 * Any thread; a hasher is used by one.
 */
#ifndef NPUD_HASH_H
#define NPUD_HASH_H

#include "matrix.h"

#define HASH_SECRET_SIZE 192

struct hash_secret {
	unsigned char bytes[HASH_SECRET_SIZE];
};

/* A new one, from the system's random source. The image store keeps that of the installation. */
int hash_secret_make(struct hash_secret *out, struct err *err);

/* A secret that is the same everywhere, for names that go from one machine to another. What is named by it
 * does not withstand somebody who prepares a collision. */
void hash_secret_public(struct hash_secret *out);

struct hasher;
/* The secret must outlive the hasher. */
int hasher_new(struct hasher **out, const struct hash_secret *secret);
void hasher_add(struct hasher *h, const void *bytes, size_t size);
/* Adds the trailer of `m` and writes the canonical (big-endian) 16 bytes. */
void hasher_end(struct hasher *h, const struct matrix *m, unsigned char out[16]);
/* The same without a trailer: of what has hashes of its own. */
void hasher_end_plain(struct hasher *h, unsigned char out[16]);
void hasher_free(struct hasher *h);
void hasher_freep(struct hasher **h);

#endif
