/* What the image store keeps of files: how they were when they were hashed, and what they hashed to. */
#include "imagestore_impl.h"
#include <string.h>

static const char doing[] = "keeping what a file hashed to";

static struct record_name key_of(const unsigned char digest[16])
{
	struct record_name key = {.prefix = RECORD_NAME_PREFIX};
	memcpy(key.digest, digest, sizeof key.digest);
	return key;
}

/* Whether a record of `meta` is one of a file. */
static bool is_name(const MDB_val *key)
{
	return key->mv_size == sizeof(struct record_name) &&
	       memcmp(key->mv_data, RECORD_NAME_PREFIX, sizeof((struct record_name *)NULL)->prefix) == 0;
}

/* Calls `each` of every record of a file. LMDB's code. */
static int walk_names(struct imagestore *s, MDB_txn *txn,
		      void (*each)(void *arg, const struct record_name *key, const MDB_val *value), void *arg)
{
	struct record_name first = {.prefix = RECORD_NAME_PREFIX};
	MDB_val key = store_val(&first, sizeof first), value;
	MDB_cursor *cursor;
	int rc = mdb_cursor_open(txn, s->meta, &cursor);

	if (rc)
		return rc;
	rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
	while (rc == 0 && is_name(&key)) {
		struct record_name name;
		memcpy(&name, key.mv_data, sizeof name);
		each(arg, &name, &value);
		rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
	}
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Rows sorted by `kept`, the latest first: there are few. */
struct listing {
	struct stored_name *rows;
	uint64_t kept[IMAGESTORE_NAMES_MAX];
	size_t count;
};

static void list_name(void *arg, const struct record_name *key, const MDB_val *value)
{
	struct listing *l = arg;
	struct record_named r;
	size_t at = l->count;

	if (at == IMAGESTORE_NAMES_MAX || !record_named_good(value->mv_data, value->mv_size, &r))
		return;
	for (; at && l->kept[at - 1] < r.kept; at--) {
		l->rows[at] = l->rows[at - 1];
		l->kept[at] = l->kept[at - 1];
	}
	l->rows[at] = (struct stored_name){.idle = r.idle, .hashes = r.hashes};
	memcpy(l->rows[at].digest, key->digest, sizeof key->digest);
	l->kept[at] = r.kept;
	l->count++;
}

int imagestore_names(struct imagestore *s, struct stored_name *rows, size_t *count, struct err *err)
{
	struct listing l = {.rows = rows};
	MDB_txn *txn;
	int rc = store_begin(s, MDB_RDONLY, &txn);

	if (rc == 0) {
		rc = walk_names(s, txn, list_name, &l);
		store_abort(s, txn);
	}
	*count = l.count;
	return rc ? store_fail(s, err, rc, "listing what files hashed to") : 0;
}

/* Which record has to go for another one. */
struct oldest {
	struct record_name key;
	uint64_t kept;
	size_t count;
};

static void find_oldest(void *arg, const struct record_name *key, const MDB_val *value)
{
	struct oldest *o = arg;
	struct record_named r;
	uint64_t kept = record_named_good(value->mv_data, value->mv_size, &r) ? r.kept : 0;

	if (o->count++ && kept >= o->kept)
		return;
	o->kept = kept;
	o->key = *key;
}

static int make_room(struct imagestore *s, MDB_txn *txn)
{
	struct oldest oldest = {.count = 0};
	int rc = walk_names(s, txn, find_oldest, &oldest);
	MDB_val key = store_val(&oldest.key, sizeof oldest.key);

	if (rc == 0 && oldest.count >= IMAGESTORE_NAMES_MAX)
		rc = mdb_del(txn, s->meta, &key, NULL);
	return rc;
}

int imagestore_name_keep(struct imagestore *s, const struct stored_name *name, struct err *err)
{
	struct record_name named = key_of(name->digest);
	struct record_named r = {.idle = name->idle, .hashes = name->hashes, .kept = store_now_us()};
	MDB_val key = store_val(&named, sizeof named), value = store_val(&r, sizeof r), there;
	MDB_txn *txn;
	int result = store_room(s, sizeof named + sizeof r, err);

	if (result)
		return result;
	record_named_seal(&r);
	int rc = store_begin(s, 0, &txn);
	if (rc)
		return store_fail(s, err, rc, doing);
	rc = mdb_get(txn, s->meta, &key, &there);
	if (rc == MDB_NOTFOUND)
		rc = make_room(s, txn);
	if (rc == 0)
		rc = mdb_put(txn, s->meta, &key, &value, 0);
	rc = store_end(s, txn, rc);
	return rc ? store_fail(s, err, rc, doing) : 0;
}

/* Deletes the names that begin as `first` does in `prefix` bytes. */
static int drop(struct imagestore *s, const struct record_name *first, size_t prefix, struct err *err)
{
	MDB_txn *txn;
	int rc = store_begin(s, 0, &txn);

	if (rc)
		return store_fail(s, err, rc, doing);
	rc = store_end(s, txn, store_drop(txn, s->meta, first, sizeof *first, prefix));
	return rc ? store_fail(s, err, rc, doing) : 0;
}

int imagestore_name_drop(struct imagestore *s, const unsigned char digest[16], struct err *err)
{
	const struct record_name key = key_of(digest);
	return drop(s, &key, sizeof key, err);
}

int store_drop_names(struct imagestore *s, struct err *err)
{
	const struct record_name first = {.prefix = RECORD_NAME_PREFIX};
	return drop(s, &first, sizeof first.prefix, err);
}
