#include "client.h"
#include "clock.h"
#include "own.h"

enum { DISPATCH_MAX = 64 };

int operation_ask(struct npu_call *o, enum proto_op_id op, const void *request, uint64_t session,
		  int timeout_ms)
{
	if (o->state == OPERATION_CANCELLED)
		return err_set(&o->err, NPU_E_CANCELLED, "%s: cancelled", proto_ops[op].wire);
	struct call_options options = {
		.session = session,
		.timeout_ms = timeout_ms,
		.owner = o->asynchronous ? o : NULL,
	};
	int r = call_start(&o->client->connection, op, request, options, &o->request, &o->err);
	return r ? r : MORE;
}

int operation_answer(struct npu_call *o, void *reply, struct answer *a)
{
	return call_finish(take(&o->request), reply, a, &o->err);
}

static void end(struct npu_call *o)
{
	if (o->err.code)
		*client_err() = o->err;
	if (o->fini)
		o->fini(o);
}

int operation_wait(struct npu_call *o)
{
	int r;
	while ((r = o->step(o)) == MORE)
		call_wait(o->request);
	end(o);
	return r;
}

static void enlist(npu_client *c, struct npu_call *o)
{
	pthread_mutex_lock(&c->lock);
	o->next = c->calls;
	o->link = &c->calls;
	if (o->next)
		o->next->link = &o->next;
	c->calls = o;
	pthread_mutex_unlock(&c->lock);
}

static void delist(npu_client *c, struct npu_call *o)
{
	pthread_mutex_lock(&c->lock);
	*o->link = o->next;
	if (o->next)
		o->next->link = o->link;
	pthread_mutex_unlock(&c->lock);
}

int operation_begin(struct npu_call *o, size_t size, npu_done *done, void *arg, npu_call **out)
{
	npu_client *c = o->client;
	struct npu_call *copy = done ? malloc(size) : NULL;
	if (!copy) {
		int r = done ? err_set(&o->err, NPU_E_NO_MEMORY, "out of memory for a call")
			     : err_set(&o->err, NPU_E_BAD_VALUE, "a function to call back must be given");
		end(o);
		return r;
	}
	memcpy(copy, o, size);
	copy->asynchronous = true;
	copy->done = done;
	copy->arg = arg;
	/* In the list before it is under way: another thread may dispatch its end at once. */
	enlist(c, copy);
	if (out)
		*out = copy;
	int r = copy->step(copy);
	if (r == MORE)
		return 0;
	if (out)
		*out = NULL;
	delist(c, copy);
	end(copy);
	free(copy);
	return r;
}

static void call_back(struct npu_call *o, int result)
{
	delist(o->client, o);
	end(o);
	o->done(o->arg, o, result);
	free(o);
}

NPU_API int npu_dispatch(npu_client *c, int wait_ms)
{
	int r = client_usable(c);
	if (r)
		return r;
	double until = clock_now() + wait_ms / 1e3;
	int called = 0;
	struct call *k;
	/* Bounded: callbacks that begin further calls would keep the caller here for ever. */
	while (called < DISPATCH_MAX && (k = call_next(&c->connection, wait_ms))) {
		struct npu_call *o = call_owner(k);
		r = o->step(o);
		if (r != MORE) {
			call_back(o, r);
			called++;
		}
		if (called)
			wait_ms = 0;
		else if (wait_ms > 0)
			wait_ms = until > clock_now() ? (int)((until - clock_now()) * 1e3) : 0;
	}
	return called;
}

NPU_API int npu_fd(npu_client *c)
{
	int r = client_usable(c);
	return r ? r : connection_fd(&c->connection, client_err());
}

NPU_API void npu_call_cancel(npu_call *o)
{
	if (!o || o->state != OPERATION_RUNNING)
		return;
	o->state = OPERATION_CANCELLED;
	call_cancel(o->request);
}

void operation_end_all(npu_client *c)
{
	while (c->calls) {
		struct npu_call *o = c->calls;
		o->request = NULL; /* went with the connection */
		err_set(&o->err, NPU_E_CANCELLED, "the client was closed");
		call_back(o, NPU_E_CANCELLED);
	}
}
