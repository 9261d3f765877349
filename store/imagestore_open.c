/*
 * Opening the image store. LMDB trusts its file: a file that was cut short is a SIGBUS, garbled pages are a
 * crash or an endless loop. So a child looks through all of it first, and only the child can die of it.
 */
#include "imagestore_impl.h"
#include "directory.h"
#include "filesystem.h"
#include "lock.h"
#include "own.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>

#define MAP_BYTES                                                                                \
	((size_t)1 << 40) /* address space only; never changed, for readers would lose their map \
			   */
#define READERS 256
#define CHECK_CPU_SECONDS 20 /* of a child whom a damaged tree leads in circles; a slow disk takes none */
#define PAGE_HEADER 16u	     /* of LMDB */
#define DATABASES 4

/* Memory maps over a network are not coherent and locks there do not hold. */
static int check_local(const char *path, struct err *err)
{
	struct statfs fs;
	if (statfs(path, &fs) < 0)
		return err_sys(err, errno, "%s: asking for the file system", path);
	const char *remote = filesystem_remote((unsigned long)fs.f_type);
	if (remote)
		return err_set(err, NPU_E_IO,
			       "%s: is on %s; an image store needs a local file system: set [store] path",
			       path, remote);
	return 0;
}

static int take_lock(struct imagestore *s, struct err *err)
{
	char path[PATH_MAX + 8], pid[32] = "";

	snprintf(path, sizeof path, "%s/lock", s->path);
	s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock_fd < 0)
		return err_sys(err, errno, "%s: cannot be opened", path);
	if (!lock_take(s->lock_fd)) {
		ssize_t n = pread(s->lock_fd, pid, sizeof pid - 1, 0);
		pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
		return err_set(
			err, NPU_E_IN_USE,
			"%s: npud with pid %s has this image store open; stop it, or give this one another "
			"[store] path",
			s->path, pid[0] ? pid : "unknown");
	}
	int n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
	if (ftruncate(s->lock_fd, 0) < 0 || pwrite(s->lock_fd, pid, (size_t)n, 0) != n)
		return err_sys(err, errno, "%s: cannot be written", path);
	return 0;
}

bool store_cut(struct imagestore *s)
{
	MDB_envinfo info;
	MDB_stat stat;
	struct stat file;
	int fd;

	/* The size first: what LMDB tells is in the first two pages. */
	if (mdb_env_get_fd(s->env, &fd) || fstat(fd, &file) < 0 || file.st_size < 2 * sysconf(_SC_PAGESIZE) ||
	    mdb_env_info(s->env, &info) || mdb_env_stat(s->env, &stat))
		return true;
	return (uint64_t)file.st_size < ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
}

static int open_databases(struct imagestore *s, unsigned txn_flags, unsigned flags)
{
	const struct {
		const char *name;
		MDB_dbi *dbi;
	} all[DATABASES] = {
		{"image", &s->image}, {"chunk", &s->chunk}, {"usage", &s->usage}, {"meta", &s->meta}};
	MDB_txn *txn;
	int rc = mdb_txn_begin(s->env, NULL, txn_flags, &txn);

	if (rc)
		return rc;
	for (int i = 0; i < DATABASES && !rc; i++)
		rc = mdb_dbi_open(txn, all[i].name, flags, all[i].dbi);
	if (!rc)
		return mdb_txn_commit(txn);
	mdb_txn_abort(txn);
	return rc;
}

void store_env_close(struct imagestore *s)
{
	if (s->env)
		mdb_env_close(s->env);
	s->env = NULL;
}

static int env_fail(struct imagestore *s, int rc, bool *damaged, struct err *err)
{
	*damaged = rc == MDB_INVALID || rc == MDB_VERSION_MISMATCH || rc == MDB_CORRUPTED ||
		   rc == MDB_PAGE_NOTFOUND || rc == MDB_PANIC || rc == MDB_INCOMPATIBLE;
	store_env_close(s);
	return store_fail(s, err, rc, "opening it");
}

int store_env_open(struct imagestore *s, bool *damaged, struct err *err)
{
	char path[PATH_MAX + 8];

	*damaged = false;
	snprintf(path, sizeof path, "%s/db", s->path);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "%s: cannot be made", path);
	int rc = mdb_env_create(&s->env);
	if (rc)
		return env_fail(s, rc, damaged, err);
	mdb_env_set_mapsize(s->env, MAP_BYTES);
	mdb_env_set_maxdbs(s->env, DATABASES);
	mdb_env_set_maxreaders(s->env, READERS);
	/* Not MDB_WRITEMAP: a full disk would be a SIGBUS, and the file 1 TiB long. Synchronous: a power cut
	 * must not take what was there before. */
	rc = mdb_env_open(s->env, path, MDB_NOTLS, 0600);
	if (rc)
		return env_fail(s, rc, damaged, err);
	if (store_cut(s)) {
		*damaged = true;
		store_env_close(s);
		return err_set(err, NPU_E_IO, "%s: the file is shorter than its pages in use", path);
	}
	/* Made only where one is missing: nothing can be written on a full disk, but all of it read. */
	rc = open_databases(s, MDB_RDONLY, 0);
	if (rc == MDB_NOTFOUND)
		rc = open_databases(s, 0, MDB_CREATE);
	return rc ? env_fail(s, rc, damaged, err) : 0;
}

/*
 * A value larger than a page has pages of its own, whose number is the last word of the page header before
 * it. Freeing them believes it, and would want memory for billions.
 */
static bool overflow_good(const MDB_val *value, unsigned page)
{
	uint32_t pages;

	if (value->mv_size <= page)
		return true;
	memcpy(&pages, (const char *)value->mv_data - sizeof pages, sizeof pages);
	return pages == (PAGE_HEADER + value->mv_size + page - 1) / page;
}

/*
 * Touches every key and both ends of every value of a database, and takes each key out and puts it back:
 * writing into a garbled page is an assertion of LMDB that would otherwise end the daemon some day.
 */
static int walk_database(MDB_txn *txn, MDB_dbi dbi, unsigned page, unsigned *sum)
{
	unsigned char copy[64];
	MDB_val key, value, again = store_val(copy, 0), little = store_val(copy, 1);
	MDB_cursor *cursor;
	int rc = mdb_cursor_open(txn, dbi, &cursor);

	while (rc == 0 && (rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
		if (key.mv_size > sizeof copy || (again.mv_size && mdb_cmp(txn, dbi, &again, &key) >= 0))
			return MDB_CORRUPTED; /* or this would go round in circles */
		again.mv_size = key.mv_size;
		memcpy(copy, key.mv_data, key.mv_size);
		if (!overflow_good(&value, page))
			return MDB_CORRUPTED;
		if (value.mv_size)
			*sum += ((unsigned char *)value.mv_data)[0] +
				((unsigned char *)value.mv_data)[value.mv_size - 1];
		rc = mdb_cursor_del(cursor, 0);
		if (rc == 0)
			rc = mdb_cursor_put(cursor, &again, &little, 0);
	}
	return rc;
}

/* In the child, which never commits. 0 where all holds together. */
static int walk(const char *path)
{
	static const char *const names[DATABASES] = {"image", "chunk", "usage", "meta"};
	MDB_env *env;
	MDB_txn *txn;
	MDB_stat stat;
	MDB_envinfo info;
	unsigned sum = 0;

	if (mdb_env_create(&env) || mdb_env_set_mapsize(env, MAP_BYTES) ||
	    mdb_env_set_maxdbs(env, DATABASES) || mdb_env_open(env, path, MDB_NOLOCK, 0600) ||
	    mdb_txn_begin(env, NULL, 0, &txn) || mdb_env_stat(env, &stat) || mdb_env_info(env, &info))
		return 1;
	for (int i = 0; i < DATABASES; i++) {
		MDB_dbi dbi;
		int rc = mdb_dbi_open(txn, names[i], 0, &dbi);
		/* Made in one commit: all are there, or none and only the two meta pages. */
		if (rc == MDB_NOTFOUND && i == 0 && info.me_last_pgno <= 1)
			return 0;
		if (rc || walk_database(txn, dbi, stat.ms_psize, &sum) != MDB_NOTFOUND)
			return 1;
	}
	/* The sum is used, so that the reads happen. */
	return sum == UINT32_MAX;
}

/* "" where the environment holds together, else what is wrong. */
static void check(const char *path, int lock_fd, char *why, size_t room)
{
	char data[PATH_MAX + 32];
	struct stat st;
	int status;

	*why = '\0';
	snprintf(data, sizeof data, "%s/data.mdb", path);
	if (stat(data, &st) < 0)
		return; /* nothing there yet */
	if (st.st_size == 0) {
		snprintf(why, room, "data.mdb is empty");
		return;
	}
	pid_t child = fork();
	if (child == 0) {
		const struct rlimit none = {0, 0}, cpu = {CHECK_CPU_SECONDS, CHECK_CPU_SECONDS};
		/* The lock is the parent's, and goes when the parent does. */
		close(lock_fd);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setrlimit(RLIMIT_CORE, &none);
		signal(SIGBUS, SIG_DFL);
		signal(SIGSEGV, SIG_DFL);
		setrlimit(RLIMIT_CPU, &cpu);
		_exit(walk(path));
	}
	if (child < 0)
		return; /* opening tells whether it goes without */
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return;
	if (WIFSIGNALED(status))
		snprintf(why, room, "looking through it ended by signal %d: data.mdb is damaged or cut short",
			 WTERMSIG(status));
	else if (WEXITSTATUS(status))
		snprintf(why, room, "data.mdb is damaged: not every record can be found");
}

static int move_aside(struct imagestore *s, const char *why, struct err *err)
{
	char from[PATH_MAX + 8], to[PATH_MAX + 80], stamp[32];
	time_t now = time(NULL);
	struct tm utc;

	snprintf(from, sizeof from, "%s/db", s->path);
	strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(to, sizeof to, "%s/db.bad-%s-%u", s->path, stamp, i);
		if (access(to, F_OK) == 0)
			continue;
		if (rename(from, to) < 0)
			return err_sys(err, errno, "%s: cannot be moved aside (%s)", from, why);
		snprintf(s->moved, sizeof s->moved, "%s: %s", to, why);
		return 0;
	}
	return err_set(err, NPU_E_IO, "%s: cannot be moved aside: too many are there", from);
}

/* The secret of an older npud, which kept it in a file. */
static bool secret_file_read(struct hash_secret *to, const char *path)
{
	cleanup(closep) int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW) : -1;
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == HASH_SECRET_SIZE &&
	       read(fd, to->bytes, sizeof to->bytes) == sizeof to->bytes;
}

static const char schema_name[] = "schema", secret_name[] = "secret";

/* LMDB's code: MDB_NOTFOUND where the store is new. `why`: another schema, or no secret. */
static int meta_read(struct imagestore *s, char *why, size_t room)
{
	MDB_val key = store_val(schema_name, sizeof schema_name - 1), value;
	uint32_t schema = 0;
	MDB_txn *txn;
	int rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn);

	if (rc)
		return rc;
	rc = mdb_get(txn, s->meta, &key, &value);
	if (rc == 0) {
		memcpy(&schema, value.mv_data, value.mv_size < sizeof schema ? value.mv_size : sizeof schema);
		key = store_val(secret_name, sizeof secret_name - 1);
		if (schema != RECORD_SCHEMA)
			snprintf(why, room, "its schema is %u and this npud's %u", schema, RECORD_SCHEMA);
		else if (mdb_get(txn, s->meta, &key, &value) || value.mv_size != HASH_SECRET_SIZE)
			snprintf(why, room, "it has no secret of content hashes");
		else
			memcpy(s->secret.bytes, value.mv_data, HASH_SECRET_SIZE);
	}
	mdb_txn_abort(txn);
	return rc;
}

static int meta_write(struct imagestore *s)
{
	const uint32_t schema = RECORD_SCHEMA;
	MDB_val key = store_val(schema_name, sizeof schema_name - 1),
		value = store_val(&schema, sizeof schema);
	MDB_txn *txn;
	int rc = mdb_txn_begin(s->env, NULL, 0, &txn);

	if (rc)
		return rc;
	rc = mdb_put(txn, s->meta, &key, &value, 0);
	if (rc == 0) {
		key = store_val(secret_name, sizeof secret_name - 1);
		value = store_val(&s->secret, HASH_SECRET_SIZE);
		rc = mdb_put(txn, s->meta, &key, &value, 0);
	}
	if (rc == 0)
		return mdb_txn_commit(txn);
	mdb_txn_abort(txn);
	return rc;
}

/* Schema and secret; made where the store is new. `why`: they are there and cannot be used. */
static int meta_take(struct imagestore *s, const char *secret_file, char *why, size_t room, struct err *err)
{
	int rc = meta_read(s, why, room);
	if (rc != MDB_NOTFOUND)
		return rc ? store_fail(s, err, rc, "reading its schema") : 0;
	bool old = secret_file_read(&s->secret, secret_file);
	int r = old ? 0 : hash_secret_make(&s->secret, err);
	if (r)
		return r;
	rc = meta_write(s);
	if (rc)
		return store_fail(s, err, rc, "writing its schema");
	if (old)
		unlink(secret_file);
	return 0;
}

/* Opens what is there; where that does not hold together, moves it aside and begins a fresh one. */
static int open_or_move(struct imagestore *s, const char *secret_file, struct err *err)
{
	char path[PATH_MAX + 8], why[200];

	snprintf(path, sizeof path, "%s/db", s->path);
	check(path, s->lock_fd, why, sizeof why);
	for (bool again = false;; again = true) {
		bool damaged = false;
		int r = 0;
		if (!*why)
			r = store_env_open(s, &damaged, err);
		if (r && !damaged)
			return r;
		if (r)
			snprintf(why, sizeof why, "%.180s", err->text);
		if (!*why && (r = meta_take(s, secret_file, why, sizeof why, err)))
			return r;
		if (!*why)
			return 0;
		store_env_close(s);
		if (again)
			return err_set(err, NPU_E_IO, "%s: no store can be begun: %s", s->path, why);
		r = move_aside(s, why, err);
		if (r)
			return r;
		*why = '\0';
	}
}

static void store_freep(struct imagestore **s)
{
	imagestore_close(*s);
}

int imagestore_open(struct imagestore **out, const struct imagestore_options *o, struct err *err)
{
	cleanup(store_freep) struct imagestore *s = calloc(1, sizeof *s);

	if (!s)
		return err_set(err, NPU_E_NO_MEMORY, "no memory for the image store");
	s->lock_fd = -1;
	pthread_rwlock_init(&s->swap, NULL);
	s->fingerprint = o->fingerprint;
	s->max_bytes = o->max_bytes;
	s->min_free_bytes = o->min_free_bytes;
	if (snprintf(s->path, sizeof s->path, "%s", o->path) >= (int)sizeof s->path - 64)
		return err_set(err, NPU_E_IO, "%.100s...: the path of the image store is too long", o->path);
	/* Writable for nobody else: a crafted file can crash LMDB. */
	int r = directory_make(s->path, err);
	if (r == 0)
		r = check_local(s->path, err);
	if (r == 0)
		r = take_lock(s, err);
	if (r == 0)
		r = open_or_move(s, o->secret_file, err);
	if (r)
		return r;
	imagestore_tick(s);
	r = store_reconcile(s, err);
	if (r)
		return r;
	*out = take(&s);
	return 0;
}

void imagestore_close(struct imagestore *s)
{
	if (!s)
		return;
	store_env_close(s);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	pthread_rwlock_destroy(&s->swap);
	free(s);
}

const struct hash_secret *imagestore_secret(const struct imagestore *s)
{
	return &s->secret;
}

const char *imagestore_path(const struct imagestore *s)
{
	return s->path;
}

const char *imagestore_moved(const struct imagestore *s)
{
	return s->moved;
}

void imagestore_tick(struct imagestore *s)
{
	int dead;
	pthread_rwlock_rdlock(&s->swap);
	if (s->env)
		mdb_reader_check(s->env, &dead);
	pthread_rwlock_unlock(&s->swap);
}
