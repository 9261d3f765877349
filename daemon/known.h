/*
 * What model files hashed to in this daemon's life, so that one that is as it was need not be read whole
 * again only to be named. A file is as it was where its device, inode, size, mtime and ctime are. That is
 * believed
 *   - of files that had been left alone for a while when they were hashed: a write in the same tick of the
 * clock changes no time;
 *   - where nobody can have written them through a map that was made writable before, which changes bytes and
 * no times: the reader may not write them, or nobody has them open to write, nor had when they were hashed;
 *   - on this machine's own file systems: others say of their files what they like.
 * Any thread.
 */
#ifndef NPUD_KNOWN_H
#define NPUD_KNOWN_H

#include "link.h"
#include "matrix.h"
#include "source.h"
#include <sys/types.h>
#include <uv.h>

#define KNOWN_PARTS_MAX 8u
#define KNOWN_SETTLED_NS INT64_C(2000000000) /* FAT counts in two seconds */

struct known {
	uv_mutex_t lock;
	struct link entries; /* the latest used first */
	unsigned count;
};

void known_init(struct known *k);
void known_fini(struct known *k);

/* One reading of some files, as they are now. */
struct known_name {
	unsigned char *bytes; /* owned; NULL: they cannot be known */
	size_t size;
	bool settled; /* nobody has written them for a while */
	bool foreign; /* the reader may not write them */
	bool idle;    /* nobody has them open to write */
};

/* Names the tensors (`size` bytes, a NUL behind each) of the source read by `options` at `now_ns` since 1970,
 * for a reader of user id `reader`. */
void known_name_make(struct known_name *out, const struct source *s, const char *tensors, size_t size,
		     const struct matrix_options *options, uid_t reader, int64_t now_ns);
void known_name_fini(struct known_name *n); /* zeroed is fine */

/* The content hashes of the tensors, in their order. */
struct known_hashes {
	unsigned count;
	unsigned char of[KNOWN_PARTS_MAX][16];
};

/* False where the files must be read. */
bool known_find(struct known *k, const struct known_name *name, struct known_hashes *out);
/* The files had the name `before` when reading began, `after` when it had ended; it gave `hashes`. Kept where
 * both are the same and had settled. */
void known_learn(struct known *k, const struct known_name *before, const struct known_name *after,
		 const struct known_hashes *hashes);
/* It turned out that the files are not what they were. */
void known_forget(struct known *k, const struct known_name *name);

#endif
