/*
 * giving: a model's files on their way to the daemon, as part of an operation (client.h): passed as
 * descriptors, or uploaded where they cannot be passed.
 */
#ifndef NPU_GIVING_H
#define NPU_GIVING_H

#include "client.h"
#include "model.h"

struct giving {
	struct model model; /* owned; from model_find */
	uint64_t session;   /* of what follows */
	uint64_t file;	    /* of the first; 0: not even that was taken. Owed back, on failure too */

	enum { GIVING_GREET, GIVING_BEGIN, GIVING_PUT, GIVING_END } at;
	size_t number; /* of the file that is uploaded */
	uint64_t upload, size, sent, part;
	struct err why; /* it is not passed */
};

/* As the step of an operation (zeroed but for the model): 0 when all files are there. */
int giving_step(struct giving *g, struct npu_call *o);
void giving_fini(struct giving *g); /* zeroed is fine */

/* Gives a model of the caller's and waits; failures in client_err. What it sets is as in `struct giving`. */
int giving_wait(npu_client *c, struct model *model, uint64_t *session, uint64_t *file);
/* Gives it back, 0 is fine; a failure is nobody's business any more. */
void giving_back(npu_client *c, uint64_t session, uint64_t file);

#endif
