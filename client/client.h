/*
 * client: what the files of libnpu share: the client, the thread's last failure, and operations, which are
 * one request after the other. An operation is a function `step` that takes the answer that has come, if one
 * has, and either sends the next request (MORE) or ends: the same for one that is waited for and one that
 * calls back.
 */
#ifndef NPU_CLIENT_H
#define NPU_CLIENT_H

#include "call.h"
#include "npu.h"
#include <stdatomic.h>
#include <sys/types.h>

#define NPU_API __attribute__((visibility("default")))
#define MORE 1 /* of a step: a request is under way */

struct npu_client {
	struct connection connection;
	pid_t process; /* that connected */
	atomic_int timeout_ms;
	struct err failure; /* why it never connected */

	pthread_mutex_t lock;	/* over what follows */
	struct npu_head *heads; /* every open one, weights included */
	struct npu_model *models;
	struct npu_call *calls; /* every one that will call back */
};

/* The last failure of this thread. */
struct err *client_err(void);

/* 0 where the client can be used; else the reason, with its sentence in client_err. */
int client_usable(npu_client *c);

/* One request of session 0 (any), waited for; failures in client_err. */
int client_ask(npu_client *c, enum proto_op_id op, const void *request, void *reply, struct answer *a);

/* Whether a list's row number rises, which `after` keeps: one that does not would be asked for without end.
 */
int client_rises(const char *list, uint64_t *after, uint64_t id);

struct npu_call {
	npu_client *client;
	int (*step)(struct npu_call *o); /* 0, an error in `err`, or MORE */
	void (*fini)(struct npu_call *o);
	struct call *request; /* under way or finished; NULL at the first step */
	bool asynchronous;
	enum { OPERATION_RUNNING, OPERATION_CANCELLED, OPERATION_ENDING } state;
	struct err err;
	npu_done *done;
	void *arg;
	struct npu_call *next, **link; /* client.calls */
};

/*
 * Sends the next request: MORE, or an error in o->err, CANCELLED for one that was. One that gives back what
 * it holds is ENDING, and not to be cancelled any more. `o` may be another thread's when it returns MORE.
 */
int operation_ask(struct npu_call *o, enum proto_op_id op, const void *request, uint64_t session,
		  int timeout_ms);
/* Takes the answer of the last one; an error is in o->err. */
int operation_answer(struct npu_call *o, void *reply, struct answer *a);

/* Runs to the end; failures in client_err. `o` is the caller's. */
int operation_wait(struct npu_call *o);
/*
 * Begins a copy of the operation of `size` bytes that embeds `o` at its start; it calls back from
 * npu_dispatch. On an error it has ended and does not. Ownership of what fini gives back goes to the copy in
 * any case.
 */
int operation_begin(struct npu_call *o, size_t size, npu_done *done, void *arg, npu_call **out);
/* Ends all as CANCELLED and calls back. The connection is closed. */
void operation_end_all(npu_client *c);

/* Frees the client's heads, and its models. */
void heads_free(npu_client *c);
void models_free(npu_client *c);

#endif
