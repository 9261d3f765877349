#include "state.h"
#include "lock.h"
#include "own.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <lmdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAP_BYTES (64u << 20) /* thousands of records */

struct state {
	char path[PATH_MAX];
	int lock_fd;
	MDB_env *env;
	MDB_dbi dbi;
	MDB_txn *txn; /* between begin and end */
	int failed;   /* LMDB's code of the first failure in it */
};

/* Big-endian, so that LMDB's order of bytes is the order of kinds and numbers. */
struct key {
	unsigned char kind;
	unsigned char number[8];
};

static MDB_val key_of(struct key *k, enum state_kind kind, uint64_t number)
{
	uint64_t big = htobe64(number);
	k->kind = (unsigned char)kind;
	memcpy(k->number, &big, sizeof big);
	return (MDB_val){sizeof *k, k};
}

static int err_lmdb(struct err *err, int code, const char *path)
{
	return err_set(err, code == ENOMEM ? NPU_E_NO_MEMORY : NPU_E_IO,
		       "%s: the tickets' state: %s; is the disk full, or the directory not ours?", path,
		       mdb_strerror(code));
}

/* True where `file` holds exactly `text`. */
static bool holds(const char *file, const char *text)
{
	char found[128];
	cleanup(closep) int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = fd < 0 ? -1 : read(fd, found, sizeof found);
	return n >= 0 && (size_t)n == strlen(text) && memcmp(found, text, (size_t)n) == 0;
}

static int start_afresh(const char *path, const char *boot_file, const char *boot, struct err *err)
{
	static const char *const names[] = {"data.mdb", "lock.mdb"};
	char name[PATH_MAX + 16];
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(name, sizeof name, "%s/%s", path, names[i]);
		if (unlink(name) < 0 && errno != ENOENT)
			return err_sys(err, errno, "%s: of an earlier boot, cannot be removed", name);
	}
	cleanup(closep) int fd = open(boot_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || write(fd, boot, strlen(boot)) != (ssize_t)strlen(boot))
		return err_sys(err, errno, "%s: cannot be written", boot_file);
	return 0;
}

static int open_env(struct state *s, struct err *err)
{
	MDB_txn *txn = NULL;
	int r = mdb_env_create(&s->env);
	if (r == 0)
		r = mdb_env_set_mapsize(s->env, MAP_BYTES);
	if (r == 0)
		r = mdb_env_open(s->env, s->path, MDB_NOSYNC | MDB_NOTLS, 0600);
	if (r == 0)
		r = mdb_txn_begin(s->env, NULL, 0, &txn);
	if (r == 0)
		r = mdb_dbi_open(txn, NULL, 0, &s->dbi);
	if (r == 0)
		r = mdb_txn_commit(txn);
	else if (txn)
		mdb_txn_abort(txn);
	return r ? err_lmdb(err, r, s->path) : 0;
}

static void state_closep(struct state **s)
{
	state_close(*s);
}

int state_open(struct state **out, const char *directory, const char *boot, struct err *err)
{
	char boot_file[PATH_MAX + 16], lock[PATH_MAX + 16];
	cleanup(state_closep) struct state *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(err, NPU_E_NO_MEMORY, "no memory for the tickets' state");
	s->lock_fd = -1;
	if ((size_t)snprintf(s->path, sizeof s->path, "%s/tickets", directory) >= sizeof s->path)
		return err_set(err, NPU_E_BAD_CONFIG, "%s: the path is too long", directory);
	if (mkdir(s->path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "%s: cannot be made", s->path);
	snprintf(lock, sizeof lock, "%s/lock", s->path);
	snprintf(boot_file, sizeof boot_file, "%s/boot", s->path);
	s->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock_fd < 0)
		return err_sys(err, errno, "%s: the lock cannot be opened", lock);
	if (!lock_take(s->lock_fd))
		return err_set(err, NPU_E_IN_USE,
			       "%s: another npud keeps its tickets here; give this one another --state-dir",
			       directory);
	int r = holds(boot_file, boot) ? 0 : start_afresh(s->path, boot_file, boot, err);
	if (r == 0)
		r = open_env(s, err);
	if (r)
		return r;
	*out = take(&s);
	return 0;
}

void state_close(struct state *s)
{
	if (!s)
		return;
	if (s->env)
		mdb_env_close(s->env);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	free(s);
}

int state_each(struct state *s, enum state_kind kind,
	       void (*each)(void *arg, uint64_t number, const void *bytes, size_t size), void *arg,
	       struct err *err)
{
	MDB_txn *txn;
	MDB_cursor *cursor = NULL;
	struct key from;
	MDB_val key = key_of(&from, kind, 0), value;

	int r = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn);
	if (r)
		return err_lmdb(err, r, s->path);
	r = mdb_cursor_open(txn, s->dbi, &cursor);
	if (r == 0)
		r = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
	while (r == 0) {
		struct key k;
		uint64_t big;
		if (key.mv_size != sizeof k)
			break;
		memcpy(&k, key.mv_data, sizeof k);
		if (k.kind != (unsigned char)kind)
			break;
		memcpy(&big, k.number, sizeof big);
		each(arg, be64toh(big), value.mv_data, value.mv_size);
		r = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
	}
	if (cursor)
		mdb_cursor_close(cursor);
	mdb_txn_abort(txn);
	return r && r != MDB_NOTFOUND ? err_lmdb(err, r, s->path) : 0;
}

int state_begin(struct state *s, struct err *err)
{
	s->failed = mdb_txn_begin(s->env, NULL, 0, &s->txn);
	return s->failed ? err_lmdb(err, s->failed, s->path) : 0;
}

void state_put(struct state *s, enum state_kind kind, uint64_t number, const void *bytes, size_t size)
{
	struct key k;
	MDB_val key = key_of(&k, kind, number), value = {size, (void *)bytes};
	if (!s->failed)
		s->failed = mdb_put(s->txn, s->dbi, &key, &value, 0);
}

void state_drop(struct state *s, enum state_kind kind, uint64_t number)
{
	struct key k;
	MDB_val key = key_of(&k, kind, number);
	int r = s->failed ? 0 : mdb_del(s->txn, s->dbi, &key, NULL);
	if (r && r != MDB_NOTFOUND)
		s->failed = r;
}

int state_end(struct state *s, struct err *err)
{
	if (s->failed)
		mdb_txn_abort(s->txn);
	else
		s->failed = mdb_txn_commit(s->txn);
	s->txn = NULL;
	return s->failed ? err_lmdb(err, s->failed, s->path) : 0;
}
