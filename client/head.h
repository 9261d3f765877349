/*
 * head: what the session of a client has resident: a head, or weights (struct npu_weights, which is one). Any
 * thread; the list of all of a client's is under its lock.
 */
#ifndef NPU_HEAD_H
#define NPU_HEAD_H

#include "client.h"

struct npu_head {
	npu_client *client;
	struct npu_head *next; /* client.heads */
	uint64_t handle;
	uint64_t session; /* the handle means nothing, or another head, in any other */
	uint32_t nv, h;
	char path[16]; /* of runs; "": the daemon's default */
	bool verify;
};

struct npu_weights {
	struct npu_head is;
};

void head_enlist(npu_client *c, struct npu_head *head);
void head_delist(npu_client *c, struct npu_head *head);

/* The path that NPUD_HEAD_PATH names; "": the daemon's default. */
void head_path_from_environment(char to[16]);
/* What a wait was answered. */
void head_tell(struct npu_head_info *info, const struct rep_head_wait *w);

#endif
