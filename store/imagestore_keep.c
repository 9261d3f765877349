/* What the image store keeps and what goes: the list of heads, the budget, pruning, compacting. */
#include "imagestore_impl.h"
#include "own.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

uint64_t store_now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static bool same(const struct head_key *a, const struct head_key *b)
{
	return memcmp(a->hash, b->hash, sizeof a->hash) == 0 && a->kd == b->kd && a->nd == b->nd &&
	       a->layout == b->layout;
}

static bool among(const struct head_key *keys, size_t count, const struct head_key *key)
{
	for (size_t i = 0; i < count; i++)
		if (same(&keys[i], key))
			return true;
	return false;
}

static bool usage_read(struct stored_head *to, const MDB_val *key, const MDB_val *value)
{
	struct record_head head;
	struct record_usage u;

	if (key->mv_size != sizeof head || value->mv_size != sizeof u)
		return false;
	memcpy(&head, key->mv_data, sizeof head);
	memcpy(&u, value->mv_data, sizeof u);
	*to = (struct stored_head){.tiles = u.tiles,
				   .columns = u.columns,
				   .created_us = u.created,
				   .used_us = u.last_used,
				   .hits = u.hits,
				   .bytes = u.bytes,
				   .superseded = u.superseded};
	record_head_unkey(&to->key, &head);
	memcpy(to->label, u.label, sizeof to->label);
	memcpy(to->tensor, u.tensor, sizeof to->tensor);
	to->label[sizeof to->label - 1] = to->tensor[sizeof to->tensor - 1] = '\0';
	return true;
}

static int usage_put(struct imagestore *s, MDB_txn *txn, const struct stored_head *head)
{
	struct record_head key;
	struct record_usage u = {.superseded = head->superseded,
				 .created = head->created_us,
				 .last_used = head->used_us,
				 .hits = head->hits,
				 .bytes = head->bytes,
				 .tiles = head->tiles,
				 .columns = head->columns};
	memcpy(u.label, head->label, sizeof u.label);
	memcpy(u.tensor, head->tensor, sizeof u.tensor);
	record_head_key(&key, &head->key);
	MDB_val k = store_val(&key, sizeof key), v = store_val(&u, sizeof u);
	return mdb_put(txn, s->usage, &k, &v, 0);
}

static int list(struct imagestore *s, MDB_txn *txn, const struct head_key *after, struct stored_head *rows,
		size_t room, size_t *count)
{
	struct record_head from;
	MDB_cursor *cursor;
	MDB_val key = {0}, value;
	int rc = mdb_cursor_open(txn, s->usage, &cursor);

	*count = 0;
	if (rc)
		return rc;
	if (after) {
		record_head_key(&from, after);
		key = store_val(&from, sizeof from);
	}
	rc = mdb_cursor_get(cursor, &key, &value, after ? MDB_SET_RANGE : MDB_FIRST);
	while (rc == 0 && *count < room) {
		if (usage_read(&rows[*count], &key, &value) && !(after && same(&rows[*count].key, after)))
			++*count;
		rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
	}
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

int imagestore_heads(struct imagestore *s, const struct head_key *after, struct stored_head *rows,
		     size_t room, size_t *count, struct err *err)
{
	MDB_txn *txn;
	int rc = store_begin(s, MDB_RDONLY, &txn);

	if (rc == 0) {
		rc = list(s, txn, after, rows, room, count);
		store_abort(s, txn);
	}
	return rc ? store_fail(s, err, rc, "listing heads") : 0;
}

/* All heads, owned by the caller. */
static int all_heads(struct imagestore *s, struct stored_head **out, size_t *count, struct err *err)
{
	MDB_stat stat = {0};
	MDB_txn *txn;
	int rc = store_begin(s, MDB_RDONLY, &txn);

	if (rc)
		return store_fail(s, err, rc, "listing heads");
	rc = mdb_stat(txn, s->usage, &stat);
	cleanup(freep) struct stored_head *rows = calloc(stat.ms_entries + 1, sizeof *rows);
	if (!rows)
		rc = ENOMEM;
	if (rc == 0)
		rc = list(s, txn, NULL, rows, stat.ms_entries, count);
	store_abort(s, txn);
	if (rc)
		return store_fail(s, err, rc, "listing heads");
	*out = take(&rows);
	return 0;
}

int imagestore_head(struct imagestore *s, const struct head_key *key, struct stored_head *out,
		    struct err *err)
{
	struct record_head head;
	MDB_val k = store_val(&head, sizeof head), v;
	MDB_txn *txn;
	int rc = store_begin(s, MDB_RDONLY, &txn);

	if (rc)
		return store_fail(s, err, rc, "finding a head");
	record_head_key(&head, key);
	rc = mdb_get(txn, s->usage, &k, &v);
	bool good = rc == 0 && usage_read(out, &k, &v);
	store_abort(s, txn);
	if (rc && rc != MDB_NOTFOUND)
		return store_fail(s, err, rc, "finding a head");
	return good ? 0 : err_set(err, NPU_E_NO_SUCH_HANDLE, "the image store has no such head");
}

bool imagestore_has(struct imagestore *s, const struct head_key *key)
{
	struct record_tile first;
	MDB_val k = store_val(&first, sizeof first), v;
	MDB_cursor *cursor;
	MDB_txn *txn;
	bool has = false;

	record_tile_key(&first, key, 0);
	if (store_begin(s, MDB_RDONLY, &txn))
		return false;
	if (mdb_cursor_open(txn, s->image, &cursor) == 0) {
		has = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE) == 0 && k.mv_size == sizeof first &&
		      memcmp(k.mv_data, &first.head, sizeof first.head) == 0;
		mdb_cursor_close(cursor);
	}
	store_abort(s, txn);
	return has;
}

/* The tile of the first chunk that the head still has. */
static int first_chunk(struct imagestore *s, MDB_txn *txn, const struct head_key *key,
		       struct record_tile *out)
{
	struct record_chunk first;
	MDB_val k = store_val(&first, sizeof first), v;
	MDB_cursor *cursor;
	int rc = mdb_cursor_open(txn, s->chunk, &cursor);

	if (rc)
		return rc;
	record_tile_key(&first.tile, key, 0);
	record_chunk_key(&first, &first.tile, 0);
	rc = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
	if (rc == 0 && (k.mv_size != sizeof first || memcmp(k.mv_data, &first, sizeof first.tile.head) != 0))
		rc = MDB_NOTFOUND;
	if (rc == 0)
		memcpy(out, k.mv_data, sizeof *out);
	mdb_cursor_close(cursor);
	return rc;
}

/* Headers first, for without them nothing of the head can be used; then chunks, a tile a commit; the account
 * last. */
int imagestore_remove(struct imagestore *s, const struct head_key *key, struct err *err)
{
	static const char doing[] = "removing a head";
	struct record_tile tile;
	struct record_head name;
	MDB_val usage = store_val(&name, sizeof name);
	MDB_txn *txn;
	int rc = store_begin(s, 0, &txn);

	if (rc)
		return store_fail(s, err, rc, doing);
	record_head_key(&name, key);
	rc = store_drop(txn, s->image, &name, sizeof name, sizeof name);
	while (rc == 0) {
		rc = store_commit(s, txn);
		if (rc == 0)
			rc = store_begin(s, 0, &txn);
		if (rc)
			return store_fail(s, err, rc, doing);
		rc = first_chunk(s, txn, key, &tile);
		if (rc == 0)
			rc = store_drop_chunks(s, txn, &tile, 0);
	}
	if (rc == MDB_NOTFOUND)
		rc = mdb_del(txn, s->usage, &usage, NULL);
	if (rc && rc != MDB_NOTFOUND) {
		store_abort(s, txn);
		return store_fail(s, err, rc, doing);
	}
	rc = store_commit(s, txn);
	return rc ? store_fail(s, err, rc, doing) : 0;
}

/* Whether `a` goes before `b`. */
static bool goes_first(const struct stored_head *a, const struct stored_head *b)
{
	return a->superseded != b->superseded ? a->superseded : a->used_us < b->used_us;
}

/* The same model's head as it was before: same file and tensor and shape, other weights. */
static bool supersedes(const struct stored_head *fresh, const struct stored_head *old)
{
	return fresh->label[0] && strcmp(fresh->label, old->label) == 0 &&
	       strcmp(fresh->tensor, old->tensor) == 0 && fresh->key.kd == old->key.kd &&
	       fresh->key.nd == old->key.nd && fresh->key.layout == old->key.layout &&
	       fresh->columns == old->columns && !same(&fresh->key, &old->key);
}

/* Puts the row of `head` and marks what it supersedes, in one commit. */
static int account(struct imagestore *s, const struct stored_head *head, const struct stored_head *rows,
		   size_t count, struct err *err)
{
	MDB_txn *txn;
	int rc = store_begin(s, 0, &txn);

	if (rc)
		return store_fail(s, err, rc, "accounting for a head");
	rc = usage_put(s, txn, head);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		struct stored_head old = rows[i];
		if (old.superseded || !supersedes(head, &old))
			continue;
		old.superseded = true;
		rc = usage_put(s, txn, &old);
	}
	rc = store_end(s, txn, rc);
	return rc ? store_fail(s, err, rc, "accounting for a head") : 0;
}

int imagestore_admit(struct imagestore *s, const struct stored_head *head, const struct head_key *spared,
		     size_t count, struct err *err)
{
	cleanup(freep) struct stored_head *rows = NULL;
	struct stored_head row = *head;
	size_t n = 0;
	uint64_t used = 0;

	if (head->bytes > s->max_bytes)
		return err_set(err, NPU_E_TOO_LARGE,
			       "%s: the packed head has %" PRIu64 " bytes and [store] max_bytes is %" PRIu64
			       ": it is packed again every time",
			       head->label, head->bytes, s->max_bytes);
	int r = all_heads(s, &rows, &n, err);
	if (r)
		return r;
	row.created_us = row.used_us = store_now_us();
	row.hits = 0;
	row.superseded = false;
	for (size_t i = 0; i < n; i++) {
		if (same(&rows[i].key, &head->key)) {
			row.created_us = rows[i].created_us;
			row.hits = rows[i].hits;
			rows[i].bytes = 0; /* counted as what it will be */
		}
		used += rows[i].bytes;
		rows[i].superseded |= supersedes(head, &rows[i]);
	}
	while (used + head->bytes > s->max_bytes) {
		struct stored_head *victim = NULL;
		for (size_t i = 0; i < n; i++)
			if (rows[i].bytes && !among(spared, count, &rows[i].key) &&
			    (!victim || goes_first(&rows[i], victim)))
				victim = &rows[i];
		if (!victim)
			return err_set(err, NPU_E_TOO_LARGE,
				       "%s: the packed head has %" PRIu64
				       " bytes; of [store] max_bytes %" PRIu64 " heads in use hold %" PRIu64
				       ": it was not written",
				       head->label, head->bytes, s->max_bytes, used);
		r = imagestore_remove(s, &victim->key, err);
		if (r)
			return r;
		used -= victim->bytes;
		*victim = rows[--n];
	}
	for (size_t i = 0; i < n; i++)
		rows[i].superseded =
			false; /* as stored, or account() takes it for done; a second mark does no harm */
	return account(s, &row, rows, n, err);
}

int imagestore_use(struct imagestore *s, const struct stored_head *head, struct err *err)
{
	cleanup(freep) struct stored_head *rows = NULL;
	size_t n = 0;
	int r = all_heads(s, &rows, &n, err);

	for (size_t i = 0; r == 0 && i < n; i++) {
		struct stored_head row = rows[i];
		if (!same(&row.key, &head->key))
			continue;
		/* Heads that were found without an account have no label yet. */
		if (!row.label[0]) {
			memcpy(row.label, head->label, sizeof row.label);
			memcpy(row.tensor, head->tensor, sizeof row.tensor);
		}
		row.used_us = store_now_us();
		row.hits++;
		row.superseded = false;
		return account(s, &row, rows, n, err);
	}
	return r;
}

int imagestore_prune(struct imagestore *s, bool superseded, const struct head_key *spared, size_t count,
		     uint64_t *heads, uint64_t *bytes, struct err *err)
{
	cleanup(freep) struct stored_head *rows = NULL;
	size_t n = 0;
	int r = all_heads(s, &rows, &n, err);

	*heads = *bytes = 0;
	for (size_t i = 0; r == 0 && i < n; i++) {
		if ((superseded && !rows[i].superseded) || among(spared, count, &rows[i].key))
			continue;
		r = imagestore_remove(s, &rows[i].key, err);
		if (r == 0) {
			*bytes += rows[i].bytes;
			++*heads;
		}
	}
	return r || superseded ? r : store_drop_names(s, err);
}

/* Of the file in use ("db"), or of its copy ("compact"). */
static uint64_t file_bytes(const struct imagestore *s, const char *folder)
{
	char path[PATH_MAX + 32];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s/data.mdb", s->path, folder);
	return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* In place of the open environment, which nobody uses while `swap` is held for writing. */
static int swap_in(struct imagestore *s, const char *fresh, const char *data, struct err *err)
{
	struct err opening;
	bool damaged;
	int r = 0;

	pthread_rwlock_wrlock(&s->swap);
	store_env_close(s);
	if (rename(fresh, data) < 0)
		r = err_sys(err, errno, "%s: cannot be put in place", fresh);
	if (store_env_open(s, &damaged, &opening) && r == 0) {
		*err = opening;
		r = err->code;
	}
	pthread_rwlock_unlock(&s->swap);
	return r;
}

int imagestore_compact(struct imagestore *s, uint64_t *before, uint64_t *after, struct err *err)
{
	char directory[PATH_MAX + 16], fresh[PATH_MAX + 32], data[PATH_MAX + 16];
	struct statvfs fs;

	*before = file_bytes(s, "db");
	uint64_t free_bytes = store_free_bytes(s), live = *before > free_bytes ? *before - free_bytes : 0;
	if (statvfs(s->path, &fs) < 0)
		return err_sys(err, errno, "image store %s: asking for free space", s->path);
	uint64_t avail = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (avail < live) {
		err_set(err, NPU_E_IO,
			"image store %s: compacting needs %" PRIu64
			" bytes, the size of what is live, and %" PRIu64
			" are free; free some, or prune first",
			s->path, live, avail);
		err->detail.needed = live;
		err->detail.limit = avail;
		return err->code;
	}
	snprintf(directory, sizeof directory, "%s/compact", s->path);
	snprintf(fresh, sizeof fresh, "%s/data.mdb", directory);
	snprintf(data, sizeof data, "%s/db/data.mdb", s->path);
	unlink(fresh); /* of one that was killed */
	if (mkdir(directory, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "%s: cannot be made", directory);
	pthread_rwlock_rdlock(&s->swap);
	atomic_store(&s->copying, true);
	int rc = s->env ? mdb_env_copy2(s->env, directory, MDB_CP_COMPACT) : ENODEV;
	atomic_store(&s->copying, false);
	pthread_rwlock_unlock(&s->swap);
	int r = rc ? store_fail(s, err, rc, "compacting") : swap_in(s, fresh, data, err);
	if (r)
		unlink(fresh);
	rmdir(directory);
	*after = file_bytes(s, "db");
	return r;
}

int imagestore_stat(struct imagestore *s, struct imagestore_stat *out, struct err *err)
{
	cleanup(freep) struct stored_head *rows = NULL;
	size_t n = 0;
	int r = all_heads(s, &rows, &n, err);

	if (r)
		return r;
	*out = (struct imagestore_stat){.heads = n,
					.file_bytes = file_bytes(s, "db"),
					.free_bytes = store_free_bytes(s),
					.copied_bytes =
						atomic_load(&s->copying) ? file_bytes(s, "compact") : 0,
					.hits = atomic_load(&s->hits),
					.misses = atomic_load(&s->misses),
					.written = atomic_load(&s->written),
					.write_failures = atomic_load(&s->write_failures)};
	for (size_t i = 0; i < n; i++) {
		out->bytes += rows[i].bytes;
		out->superseded_bytes += rows[i].superseded ? rows[i].bytes : 0;
	}
	for (int i = 0; i < REFUSED_COUNT; i++)
		out->refused[i] = atomic_load(&s->refused[i]);
	return 0;
}

/* Heads that have headers, with what these say, in the order of keys; `rows` has room for all. */
static int heads_of_headers(struct imagestore *s, MDB_txn *txn, struct stored_head *rows, size_t *count)
{
	MDB_cursor *cursor;
	MDB_val key, value;
	int rc = mdb_cursor_open(txn, s->image, &cursor);

	*count = 0;
	if (rc)
		return rc;
	while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
		struct record_tile tile;
		struct record_header h = {0};
		struct record_plan plan;
		struct head_key head;

		if (key.mv_size != sizeof tile)
			continue;
		memcpy(&tile, key.mv_data, sizeof tile);
		memcpy(&h, value.mv_data, value.mv_size < sizeof h ? value.mv_size : sizeof h);
		record_head_unkey(&head, &tile.head);
		struct stored_head *row = *count ? &rows[*count - 1] : NULL;
		if (!row || !same(&row->key, &head)) {
			row = &rows[(*count)++];
			*row = (struct stored_head){.key = head,
						    .tiles = h.tiles,
						    .created_us = h.created * 1000000,
						    .used_us = h.created * 1000000};
		}
		row->columns += h.columns;
		/* One that cannot be planned is refused when it is opened; until then it counts as a whole
		 * tile. */
		row->bytes += record_plan_make(&plan, &head, h.columns) ? record_plan_bytes(&plan)
									: (uint64_t)head.kd * head.nd;
	}
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Chunks of tiles without a header are what a crash left. */
static int drop_orphans(struct imagestore *s, MDB_txn *txn)
{
	struct record_chunk at;
	MDB_cursor *cursor;
	MDB_val key, value;
	int rc = mdb_cursor_open(txn, s->chunk, &cursor);

	if (rc)
		return rc;
	rc = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
	while (rc == 0) {
		if (key.mv_size != sizeof at) {
			rc = mdb_cursor_del(cursor, 0);
			if (rc == 0)
				rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
			continue;
		}
		memcpy(&at, key.mv_data, sizeof at);
		MDB_val tile = store_val(&at.tile, sizeof at.tile), header;
		rc = mdb_get(txn, s->image, &tile, &header);
		if (rc == MDB_NOTFOUND)
			rc = store_drop_chunks(s, txn, &at.tile, 0);
		if (rc)
			break;
		/* On to the first chunk behind this tile. */
		record_chunk_key(&at, &at.tile, UINT32_MAX);
		key = store_val(&at, sizeof at);
		rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
	}
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Every head with headers has a row, and every row a header. */
static int mend_usage(struct imagestore *s, MDB_txn *txn)
{
	MDB_stat images, usages;
	size_t found = 0, known = 0;
	int rc = mdb_stat(txn, s->image, &images);

	if (rc == 0)
		rc = mdb_stat(txn, s->usage, &usages);
	if (rc)
		return rc;
	cleanup(freep) struct stored_head *there = calloc(images.ms_entries + 1, sizeof *there);
	cleanup(freep) struct stored_head *rows = calloc(usages.ms_entries + 1, sizeof *rows);
	if (!there || !rows)
		return ENOMEM;
	rc = heads_of_headers(s, txn, there, &found);
	if (rc == 0)
		rc = list(s, txn, NULL, rows, usages.ms_entries, &known);
	for (size_t i = 0; rc == 0 && i < found; i++) {
		bool has = false;
		for (size_t j = 0; j < known; j++)
			has |= same(&there[i].key, &rows[j].key);
		if (!has)
			rc = usage_put(s, txn, &there[i]);
	}
	for (size_t j = 0; rc == 0 && j < known; j++) {
		bool has = false;
		for (size_t i = 0; i < found; i++)
			has |= same(&there[i].key, &rows[j].key);
		struct record_head name;
		MDB_val key = store_val(&name, sizeof name);
		record_head_key(&name, &rows[j].key);
		if (!has)
			rc = mdb_del(txn, s->usage, &key, NULL);
	}
	return rc;
}

int store_reconcile(struct imagestore *s, struct err *err)
{
	MDB_txn *txn;
	int rc = store_begin(s, 0, &txn);

	if (rc)
		return store_fail(s, err, rc, "looking for leftovers");
	rc = drop_orphans(s, txn);
	if (rc == 0)
		rc = mend_usage(s, txn);
	rc = store_end(s, txn, rc);
	/* On a full disk nothing can be removed; the leftovers do no harm until the next start. */
	return rc && rc != EIO && rc != ENOSPC ? store_fail(s, err, rc, "looking for leftovers") : 0;
}
