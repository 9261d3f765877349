#include "known.h"
#include "filesystem.h"
#include "own.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

struct entry {
	struct link in_entries; /* known.entries */
	struct stored_name named;
	bool kept; /* the image store has it, or is about to */
};

static void entry_free(struct known *k, struct entry *e)
{
	link_remove(&e->in_entries);
	k->count--;
	free(e);
}

void known_init(struct known *k)
{
	uv_mutex_init(&k->lock);
	link_init(&k->entries);
	k->count = 0;
}

void known_fini(struct known *k)
{
	link_each(at, &k->entries) entry_free(k, link_of(at, struct entry, in_entries));
	uv_mutex_destroy(&k->lock);
}

static void add_file(struct hasher *h, const struct container_file *f, const struct stat *st,
		     const struct statfs *fs)
{
	uint64_t system;
	memcpy(&system, &fs->f_fsid, sizeof system);
	const uint64_t identity[] = {system,
				     (uint64_t)st->st_dev,
				     (uint64_t)st->st_ino,
				     (uint64_t)st->st_size,
				     (uint64_t)st->st_mtim.tv_sec,
				     (uint64_t)st->st_mtim.tv_nsec,
				     (uint64_t)st->st_ctim.tv_sec,
				     (uint64_t)st->st_ctim.tv_nsec};
	hasher_add(h, identity, sizeof identity);
	hasher_add(h, f->name, strlen(f->name) + 1); /* shards and their index are told apart by it */
}

static int64_t ns_of(const struct timespec *t)
{
	return t->tv_sec > INT64_MAX / 2000000000 ? INT64_MAX : (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

/* Its owner may change what others may; a list of rights beyond owner and group shows as a right of the
 * group. */
static bool can_write(uid_t reader, const struct stat *st)
{
	return reader == 0 || reader == st->st_uid || (st->st_mode & (S_IWGRP | S_IWOTH));
}

/*
 * The kernel gives a lease for reading only where nobody has the file open to write, or mapped so. It asks
 * for the file's owner or CAP_LEASE, and some file systems have none: then nothing is known. Of a description
 * of our own, for the other is the client's, too; closing it gives the lease back. A writer who comes in
 * between waits so long, and we are told by a signal that means nothing.
 */
static bool nobody_writes(int fd)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	cleanup(closep) int own = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return own >= 0 && fcntl(own, F_SETSIG, SIGURG) == 0 && fcntl(own, F_SETLEASE, F_RDLCK) == 0;
}

void known_name_make(struct known_name *out, const struct source *s, const char *tensors, size_t size,
		     const struct matrix_options *options, uid_t reader, int64_t now_ns,
		     const struct hash_secret *secret)
{
	const uint32_t reading[] = {options->transpose, (uint32_t)options->q8, options->is_signed, options->k,
				    (uint32_t)s->count};
	struct known_name n = {
		.valid = true, .settled = true, .foreign = true, .idle = true, .lasting = !s->upload_count};
	cleanup(hasher_freep) struct hasher *hasher = NULL;

	*out = (struct known_name){.valid = false};
	if (hasher_new(&hasher, secret))
		return;
	/* Another npud may find another head in the same files, or read them otherwise. */
	hasher_add(hasher, NPUD_VERSION, sizeof NPUD_VERSION);
	hasher_add(hasher, reading, sizeof reading);
	hasher_add(hasher, tensors, size);
	for (size_t i = 0; i < s->count; i++) {
		struct statfs fs;
		struct stat st;
		if (fstat(s->files[i].fd, &st) < 0 || fstatfs(s->files[i].fd, &fs) < 0 ||
		    filesystem_remote((unsigned long)fs.f_type))
			return;
		add_file(hasher, &s->files[i], &st, &fs);
		int64_t changed = ns_of(&st.st_ctim), written = ns_of(&st.st_mtim);
		n.settled &= now_ns - changed >= KNOWN_SETTLED_NS && now_ns - written >= KNOWN_SETTLED_NS;
		n.foreign &= !can_write(reader, &st);
		n.lasting &= filesystem_tells_writes((unsigned long)fs.f_type);
		n.idle = n.idle && n.lasting && nobody_writes(s->files[i].fd);
	}
	hasher_end_plain(hasher, n.digest);
	*out = n;
}

/* Under the lock. */
static struct entry *find(const struct known *k, const struct known_name *name)
{
	link_each(at, &k->entries)
	{
		struct entry *e = link_of(at, struct entry, in_entries);
		if (name->valid && memcmp(e->named.digest, name->digest, sizeof name->digest) == 0)
			return e;
	}
	return NULL;
}

static void move_to_front(struct known *k, struct entry *e)
{
	link_remove(&e->in_entries);
	link_append(k->entries.next, &e->in_entries); /* in front of the first, or of the list itself */
}

bool known_find(struct known *k, const struct known_name *name, struct content_hashes *out)
{
	if (!name->foreign && !name->idle)
		return false;
	uv_mutex_lock(&k->lock);
	struct entry *e = find(k, name);
	if (e && !name->foreign && !e->named.idle)
		e = NULL;
	if (e) {
		*out = e->named.hashes;
		move_to_front(k, e);
	}
	uv_mutex_unlock(&k->lock);
	return e != NULL;
}

static struct entry *entry_new(struct known *k, const unsigned char digest[16])
{
	struct entry *e = calloc(1, sizeof *e);

	if (!e)
		return NULL;
	memcpy(e->named.digest, digest, sizeof e->named.digest);
	link_append(&k->entries, &e->in_entries);
	k->count++;
	return e;
}

void known_learn(struct known *k, const struct known_name *before, const struct known_name *after,
		 const struct content_hashes *hashes)
{
	if (!before->valid || !after->valid || !before->settled ||
	    memcmp(before->digest, after->digest, sizeof before->digest) != 0)
		return;
	uv_mutex_lock(&k->lock);
	struct entry *e = find(k, before);
	if (!e)
		e = entry_new(k, before->digest);
	if (e) {
		bool idle = before->idle && after->idle;
		e->kept = e->kept && e->named.idle == idle &&
			  memcmp(&e->named.hashes, hashes, sizeof *hashes) == 0;
		e->named.hashes = *hashes;
		e->named.idle = idle;
		move_to_front(k, e);
	}
	if (k->count > IMAGESTORE_NAMES_MAX)
		entry_free(k, link_of(k->entries.prev, struct entry, in_entries));
	uv_mutex_unlock(&k->lock);
}

void known_forget(struct known *k, const struct known_name *name)
{
	uv_mutex_lock(&k->lock);
	struct entry *e = find(k, name);
	if (e)
		entry_free(k, e);
	uv_mutex_unlock(&k->lock);
}

void known_restore(struct known *k, const struct stored_name *rows, size_t count)
{
	uv_mutex_lock(&k->lock);
	for (size_t i = 0; i < count && k->count < IMAGESTORE_NAMES_MAX; i++) {
		struct entry *e = entry_new(k, rows[i].digest);
		if (!e)
			break;
		e->named = rows[i];
		e->kept = true;
	}
	uv_mutex_unlock(&k->lock);
}

bool known_to_keep(struct known *k, const struct known_name *name, struct stored_name *out)
{
	uv_mutex_lock(&k->lock);
	struct entry *e = name->lasting ? find(k, name) : NULL;
	if (e && e->kept)
		e = NULL;
	if (e) {
		*out = e->named;
		e->kept = true;
	}
	uv_mutex_unlock(&k->lock);
	return e != NULL;
}
