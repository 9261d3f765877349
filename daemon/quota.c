#include "quota.h"
#include <stdlib.h>

struct quota_user {
	uid_t uid;
	uint64_t used[QUOTA_KINDS];
};

/* Handles and connections are given back by people and programs, requests by the daemon. */
static const struct {
	const char *what, *cure;
	unsigned retry_ms;
} kinds[QUOTA_KINDS] = {
	[QUOTA_CONNECTIONS] = {"connections", "close some", 1000},
	[QUOTA_IN_FLIGHT] = {"requests in flight", "wait for answers", 100},
	[QUOTA_SIDE] = {"connections to the side socket", "close some", 100},
	[QUOTA_SIDE_REFUSED] = {"refused connections to the side socket", "close some", 100},
	[QUOTA_HANDLES] = {"files and heads open", "close some", 1000},
	[QUOTA_REPLIES] = {"bytes of results that were not taken", "read them", 100},
	[QUOTA_UPLOAD] = {"bytes in uploads", "close some (file.close)", 1000},
};

void quota_fini(struct quota *q)
{
	free(q->users);
	*q = (struct quota){0};
}

static struct quota_user *find(const struct quota *q, uid_t uid)
{
	for (size_t i = 0; i < q->count; i++)
		if (q->users[i].uid == uid)
			return &q->users[i];
	return NULL;
}

static struct quota_user *find_or_add(struct quota *q, uid_t uid)
{
	struct quota_user *u = find(q, uid);
	if (u)
		return u;
	if (q->count == q->room) {
		size_t room = q->room ? 2 * q->room : 8;
		struct quota_user *more = realloc(q->users, room * sizeof *more);
		if (!more)
			return NULL;
		q->users = more;
		q->room = room;
	}
	u = &q->users[q->count++];
	*u = (struct quota_user){.uid = uid};
	return u;
}

static int take_some(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t amount, struct err *err)
{
	struct quota_user *u = find_or_add(q, uid);
	if (!u)
		return err_set(err, NPU_E_NO_MEMORY, "no memory for one more user");
	u->used[kind] += amount;
	return 0;
}

int quota_take(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t limit, struct err *err)
{
	uint64_t used = quota_used(q, uid, kind);
	if (used >= limit) {
		err_set(err, NPU_E_BUSY, "user %u has %llu %s, of %llu allowed; %s, or ask again in %u ms",
			(unsigned)uid, (unsigned long long)used, kinds[kind].what, (unsigned long long)limit,
			kinds[kind].cure, kinds[kind].retry_ms);
		err->detail.depth = used;
		err->detail.limit = limit;
		err->detail.retry_ms = kinds[kind].retry_ms;
		return NPU_E_BUSY;
	}
	return take_some(q, uid, kind, 1, err);
}

int quota_take_bytes(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t bytes, uint64_t limit,
		     struct err *err)
{
	uint64_t used = quota_used(q, uid, kind);
	if (bytes <= limit && used <= limit - bytes)
		return take_some(q, uid, kind, bytes, err);
	if (bytes > limit) {
		err_set(err, NPU_E_TOO_LARGE, "%llu bytes were asked for; user %u may have %llu %s",
			(unsigned long long)bytes, (unsigned)uid, (unsigned long long)limit,
			kinds[kind].what);
	} else {
		err_set(err, NPU_E_BUSY,
			"%llu bytes were asked for; user %u has %llu %s, of %llu allowed; %s, or ask again "
			"in %u ms",
			(unsigned long long)bytes, (unsigned)uid, (unsigned long long)used, kinds[kind].what,
			(unsigned long long)limit, kinds[kind].cure, kinds[kind].retry_ms);
		err->detail.retry_ms = kinds[kind].retry_ms;
	}
	err->detail.needed = bytes;
	err->detail.depth = used;
	err->detail.limit = limit;
	return err->code;
}

void quota_give_bytes(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t bytes)
{
	struct quota_user *u = find(q, uid);
	if (!u || u->used[kind] < bytes)
		abort(); /* given back twice: the count would never be right again */
	u->used[kind] -= bytes;
	for (int i = 0; i < QUOTA_KINDS; i++)
		if (u->used[i])
			return;
	*u = q->users[--q->count];
}

void quota_give(struct quota *q, uid_t uid, enum quota_kind kind)
{
	quota_give_bytes(q, uid, kind, 1);
}

uint64_t quota_used(const struct quota *q, uid_t uid, enum quota_kind kind)
{
	const struct quota_user *u = find(q, uid);
	return u ? u->used[kind] : 0;
}
