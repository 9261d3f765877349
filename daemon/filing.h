/*
 * The daemon's side of the image store: opens it, and puts packed heads into it behind their answers. Loop
 * thread only; what takes long is a job of the writer.
 */
#ifndef NPUD_FILING_H
#define NPUD_FILING_H

#include "imagestore.h"
#include "writer.h"

struct server;
struct object;
struct handle;
struct load;

struct filing {
	struct imagestore *store; /* NULL: there is none, and `off` says why */
	char off[512];
	char said[512];		   /* the last failure to write that was logged */
	bool failing;		   /* the file system refused the last write */
	struct hash_secret secret; /* of content hashes while there is no store */
	struct writer writer;
	uv_timer_t tick;
};

/*
 * Opens the store as it is configured. Without one the daemon goes on, and says why; IN_USE where another
 * daemon has it. Before any other thread is made (imagestore_open forks).
 */
int filing_open(struct server *server, struct err *err);
/* Begins to work, once there is a loop. */
int filing_begin(struct server *server, struct err *err);
void filing_end(struct server *server);

const struct hash_secret *filing_secret(const struct server *server);

/*
 * What `load` made of the object is known: `h` opened it, or NULL where it has gone. Tiles that were packed
 * are written in the background, and the log has a line on the open when that is done; if there is nothing to
 * write, now.
 */
void filing_loaded(struct object *o, const struct load *load, struct handle *h);

/*
 * `h` (NULL: it has gone) got the object that was resident, or that somebody else loaded: a line in the log.
 * Where `load` may use the store and the object is not in it (it was loaded without, or could not be
 * written), it is written first.
 */
void filing_attached(struct object *o, const struct load *load, struct handle *h);

/* The files of `l`, whose load has ended well, were named: what they hashed to is kept for later daemons, or
 * no longer where that was wrong. They become the filing's. */
void filing_files(struct server *server, struct load *l);

/* The head was taken out of the store. */
void filing_removed(struct server *server, const struct head_key *key);

/* Keys of what is resident, which is not evicted from the store; owned by the caller. */
struct head_key *filing_resident(const struct server *server, size_t *count);

#endif
