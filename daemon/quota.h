/*
 * What each user has in use of what is bounded, so that one cannot take it all. Pure: no clock, no lock; the
 * owner of a `struct quota` says which thread.
 */
#ifndef NPUD_QUOTA_H
#define NPUD_QUOTA_H

#include "err.h"
#include <sys/types.h>

enum quota_kind {
	QUOTA_CONNECTIONS,
	QUOTA_IN_FLIGHT,
	QUOTA_HANDLES,
	QUOTA_SIDE,
	QUOTA_SIDE_REFUSED,
	QUOTA_UPLOAD,
	QUOTA_REPLIES,
	QUOTA_KINDS
};

struct quota {
	struct quota_user *users; /* only those who have something in use, in no order */
	size_t count, room;
};

void quota_fini(struct quota *q);

/*
 * Takes one more of `kind` for `uid`. BUSY where it has `limit` already: the sentence and the detail say what
 * is in use, the limit, and when it is worth asking again. NO_MEMORY. quota_give is owed on success.
 */
int quota_take(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t limit, struct err *err);
void quota_give(struct quota *q, uid_t uid, enum quota_kind kind);

/* The same for `bytes` of memory at once; TOO_LARGE where that alone is above `limit`. */
int quota_take_bytes(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t bytes, uint64_t limit,
		     struct err *err);
void quota_give_bytes(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t bytes);

uint64_t quota_used(const struct quota *q, uid_t uid, enum quota_kind kind);

#endif
