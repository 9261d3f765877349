/*
 * By what a session holds resident weights: a handle, from open to close. Loop thread only.
 */
#ifndef NPUD_HANDLES_H
#define NPUD_HANDLES_H

#include "objects.h"
#include "request.h"

struct handle {
	struct link in_session; /* session.handles */
	struct session *session;
	uint64_t number;
	struct object *object; /* held, and ready; NULL before, and where there will be none */
	struct fetch *fetch;   /* while it is on its way */
	struct err err;	       /* why there will be none */
	bool fleeting;	       /* one request's, which closes it; nobody else finds it */
	bool closing;
	struct link waiters; /* requests */
	bool attached;	     /* it was resident, or somebody else loaded it */
	struct opened {
		uint32_t from_store, packed, refused; /* tiles */
		uint64_t gathered;		      /* columns read to be packed */
		bool hashed;			      /* the file was read whole, for its name */
		bool writes;			      /* its tiles go into the image store for this open */
		char refusals[1024];		      /* a line each */
	} opened;
	char note[160]; /* of the matrix it opened: another handle of this object may have been told more */
	uint64_t opened_ns;
	double seconds; /* from open to ready */
};

/*
 * A new handle of the session's, for the weights of `want` (whose tensor is taken, also on failure) in the
 * model that `file` belongs to. It loads now: handle_settled. BUSY at the user's limit, IO, NO_MEMORY.
 */
int handle_open(struct handle **out, struct session *s, const struct file *file, struct load_request *want,
		struct err *err);
void handle_close(struct handle *h);
/* NO_SUCH_HANDLE. */
int handle_find(struct handle **out, struct session *s, uint64_t number, struct err *err);

/* What was packed of an object is in the image store, or never will be: who waits for that is answered. */
void handles_written(struct object *o);

/* It has its object (held for it), or `err` says why not. handle_answer is owed. */
void handle_settled(struct handle *h, struct object *o, bool attached, const struct err *err);
/* Answers the requests that wait for it. A fleeting one, and its object, may be gone then. */
void handle_answer(struct handle *h);

/* Closes every handle of every session, so that every load ends. */
void handles_stop(struct server *server);

#endif
