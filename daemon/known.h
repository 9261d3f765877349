/*
 * What model files hashed to, so that one that is as it was need not be read whole again only to be named. A
 * file is as it was where its file system, device, inode, size, mtime and ctime are. That is believed
 *   - of files that had been left alone for a while when they were hashed: a write in the same tick of the
 * clock changes no time;
 *   - where nobody can have written them through a map that was made writable before, which changes bytes and
 * no times: the reader may not write them, or nobody has them open to write, nor had when they were hashed;
 *   - on this machine's own file systems: others say of their files what they like.
 * The image store keeps it for the daemons to come (filing.h), of files on disks and once their bytes are
 * there. Any thread.
 */
#ifndef NPUD_KNOWN_H
#define NPUD_KNOWN_H

#include "hash.h"
#include "imagestore.h"
#include "link.h"
#include "matrix.h"
#include "source.h"
#include <sys/types.h>
#include <uv.h>

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
	unsigned char digest[16];
	bool valid;   /* false: they cannot be known */
	bool settled; /* nobody has written them for a while */
	bool foreign; /* the reader may not write them */
	bool idle;    /* nobody has them open to write */
	bool lasting; /* they are on disks, which say the same of them after a restart */
};

/* Names the tensors (`size` bytes, a NUL behind each) of the source read by `options` at `now_ns` since 1970,
 * for a reader of user id `reader`. The digest is by `secret`. */
void known_name_make(struct known_name *out, const struct source *s, const char *tensors, size_t size,
		     const struct matrix_options *options, uid_t reader, int64_t now_ns,
		     const struct hash_secret *secret);

/* The content hashes of the tensors, in their order. False where the files must be read. */
bool known_find(struct known *k, const struct known_name *name, struct content_hashes *out);
/* The files had the name `before` when reading began, `after` when it had ended; it gave `hashes`. Remembered
 * where both are the same and had settled. */
void known_learn(struct known *k, const struct known_name *before, const struct known_name *after,
		 const struct content_hashes *hashes);
/* It turned out that the files are not what they were. */
void known_forget(struct known *k, const struct known_name *name);

/* What an earlier daemon kept: `count` rows, the latest first. Before anything else is learnt. */
void known_restore(struct known *k, const struct stored_name *rows, size_t count);
/* What is to be kept of the name and has not been: true once. */
bool known_to_keep(struct known *k, const struct known_name *name, struct stored_name *out);

#endif
