/*
 * The side socket, SOCKET.fd: NNG cannot pass descriptors, so files come in here. One packet is one request
 * of the protocol (file.pass) with its descriptor, one packet back is the answer. Loop thread only.
 */
#ifndef NPUD_DESCRIPTORS_H
#define NPUD_DESCRIPTORS_H

#include "server.h"

/* Listens beside the server's socket. IO, IN_USE where something that is no socket is at the path. */
int descriptors_new(struct descriptors **out, struct server *server, struct err *err);
/* Whether the socket's file is still there and ours; and listening there once more when it is not. */
bool descriptors_are_found(const struct descriptors *d);
int descriptors_listen(struct descriptors *d, struct err *err);
void descriptors_free(struct descriptors *d);
/* Ends peers that have been silent for too long; returns when the next is due, UINT64_MAX: there is none. */
uint64_t descriptors_sweep(struct descriptors *d, uint64_t now);

#endif
