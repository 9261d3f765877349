/*
 * The weights that are resident, and their loading. What stays and what goes is residency.h's to decide; here
 * it is done. Loop thread only; files are read and packed on worker threads (loader.h). Objects are
 * named by what they hold, so those who want the same share one load and one copy.
 */
#ifndef NPUD_OBJECTS_H
#define NPUD_OBJECTS_H

#include "loader.h"
#include "residency.h"
#include "server.h"

struct handle;
struct fetch;

struct object {
	struct resident resident; /* identity, state, users: handles and passes */
	struct server *server;
	uint64_t id;
	struct geometry geometry;
	struct target target; /* when ready */
	char label[129], tensor[512], type[32];
	enum head_reason why;
	uint64_t nonfinite, rows;
	uint64_t *tile_nonfinite;  /* [geometry.tiles], when ready */
	uint32_t writing, written; /* tiles: still to go into the image store; gone there */
	bool stored;		   /* all its tiles are in the image store, for all that is known */
	unsigned handles;
	uint64_t last_session; /* number of the session that gave it back last */
	bool damaged;	       /* in memory: out of the table, nobody may use it */
	bool fell_back;	       /* it was said that the host does what the device should */
	struct fetch *loader;  /* while loading */
};

/*
 * Begins to find out what `load` (given away) names, and then to attach `h` to it: handle_settled follows,
 * unless fetch_leave comes first.
 */
int fetch_begin(struct fetch **out, struct server *server, struct load *load, struct handle *h);
/* The handle wants nothing any more. */
void fetch_leave(struct fetch *j);
/* What the fetch will attach to, once that is known and there is room; NULL before. */
struct object *fetch_object(const struct fetch *j);
unsigned fetch_tiles_done(const struct fetch *j);

void object_hold(struct object *o);
void object_release(struct object *o);
/* Bytes it has, or will have when it is loaded. */
uint64_t object_bytes(const struct object *o);

/* NO_SUCH_OBJECT. */
int object_find(struct object **out, struct server *server, uint64_t id, struct err *err);
/* Frees the room of `o`, and tells who had it last `why`. OBJECT_USED with their names, PINNED. */
int object_evict(struct object *o, const char *why, struct err *err);
void object_pin(struct object *o);
void object_unpin(struct object *o);

/* What `l`, identified, would ask for. */
struct claim object_claim(const struct load *l);
/* Bytes that may be resident: what is configured, or what the machine has left now. */
uint64_t objects_budget(const struct server *server);

void objects_init(struct server *server);
/* [resident] was read again. */
void objects_limit(struct server *server);
/* Forgets what nobody uses; all handles must be closed and all passes ended. */
void objects_fini(struct server *server);

const char *layout_name(enum layout layout);
const char *hash_hex(char to[33], const unsigned char hash[16]);

#endif
