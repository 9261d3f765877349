#include "known.h"
#include "filesystem.h"
#include "own.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define ENTRIES_MAX 256u
#define NAME_MAX_BYTES ((size_t)256 << 10) /* thousands of shards are read again instead */

struct entry {
	struct link in_entries; /* known.entries */
	unsigned char *bytes;	/* owned */
	size_t size;
	struct known_hashes hashes;
	bool idle; /* nobody had the files open to write when they were hashed */
};

static void entry_free(struct known *k, struct entry *e)
{
	link_remove(&e->in_entries);
	k->count--;
	free(e->bytes);
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

/* Appends to what has room for it, or only counts where there is nowhere to write. */
static void put(struct known_name *n, const void *from, size_t size)
{
	if (n->bytes)
		memcpy(n->bytes + n->size, from, size);
	n->size += size;
}

static void put_file(struct known_name *n, const struct container_file *f, const struct stat *st)
{
	const uint64_t identity[] = {(uint64_t)st->st_dev,	    (uint64_t)st->st_ino,
				     (uint64_t)st->st_size,	    (uint64_t)st->st_mtim.tv_sec,
				     (uint64_t)st->st_mtim.tv_nsec, (uint64_t)st->st_ctim.tv_sec,
				     (uint64_t)st->st_ctim.tv_nsec};
	put(n, identity, sizeof identity);
	put(n, f->name, strlen(f->name) + 1); /* shards and their index are told apart by it */
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

static void put_all(struct known_name *n, const struct source *s, const struct stat *stats,
		    const char *tensors, size_t size, const struct matrix_options *options)
{
	const uint32_t reading[] = {options->transpose, (uint32_t)options->q8, options->is_signed, options->k,
				    (uint32_t)s->count};
	put(n, reading, sizeof reading);
	put(n, tensors, size);
	for (size_t i = 0; i < s->count; i++)
		put_file(n, &s->files[i], &stats[i]);
}

void known_name_make(struct known_name *out, const struct source *s, const char *tensors, size_t size,
		     const struct matrix_options *options, uid_t reader, int64_t now_ns)
{
	cleanup(freep) struct stat *stats = calloc(s->count, sizeof *stats);
	struct known_name n = {.settled = true, .foreign = true, .idle = true};
	struct statfs fs;

	*out = (struct known_name){.bytes = NULL};
	for (size_t i = 0; i < s->count; i++) {
		if (!stats || fstat(s->files[i].fd, &stats[i]) < 0 || fstatfs(s->files[i].fd, &fs) < 0 ||
		    filesystem_remote((unsigned long)fs.f_type))
			return;
		int64_t changed = ns_of(&stats[i].st_ctim), written = ns_of(&stats[i].st_mtim);
		n.settled &= now_ns - changed >= KNOWN_SETTLED_NS && now_ns - written >= KNOWN_SETTLED_NS;
		n.foreign &= !can_write(reader, &stats[i]);
		n.idle = n.idle && filesystem_tells_writes((unsigned long)fs.f_type) &&
			 nobody_writes(s->files[i].fd);
	}
	put_all(&n, s, stats, tensors, size, options);
	if (n.size > NAME_MAX_BYTES || !(n.bytes = malloc(n.size)))
		return;
	n.size = 0;
	put_all(&n, s, stats, tensors, size, options);
	*out = n;
}

void known_name_fini(struct known_name *n)
{
	free(n->bytes);
	*n = (struct known_name){.bytes = NULL};
}

/* Under the lock. */
static struct entry *find(const struct known *k, const struct known_name *name)
{
	link_each(at, &k->entries)
	{
		struct entry *e = link_of(at, struct entry, in_entries);
		if (name->bytes && e->size == name->size && memcmp(e->bytes, name->bytes, e->size) == 0)
			return e;
	}
	return NULL;
}

static void move_to_front(struct known *k, struct entry *e)
{
	link_remove(&e->in_entries);
	link_append(k->entries.next, &e->in_entries); /* in front of the first, or of the list itself */
}

bool known_find(struct known *k, const struct known_name *name, struct known_hashes *out)
{
	if (!name->foreign && !name->idle)
		return false;
	uv_mutex_lock(&k->lock);
	struct entry *e = find(k, name);
	if (e && !name->foreign && !e->idle)
		e = NULL;
	if (e) {
		*out = e->hashes;
		move_to_front(k, e);
	}
	uv_mutex_unlock(&k->lock);
	return e != NULL;
}

static struct entry *entry_new(struct known *k, const struct known_name *name)
{
	cleanup(freep) unsigned char *bytes = name->size ? malloc(name->size) : NULL;
	struct entry *e = bytes ? calloc(1, sizeof *e) : NULL;

	if (!e)
		return NULL;
	memcpy(bytes, name->bytes, name->size);
	e->bytes = take(&bytes);
	e->size = name->size;
	link_init(&e->in_entries);
	k->count++;
	return e;
}

void known_learn(struct known *k, const struct known_name *before, const struct known_name *after,
		 const struct known_hashes *hashes)
{
	if (!before->bytes || !after->bytes || !before->settled || before->size != after->size ||
	    memcmp(before->bytes, after->bytes, before->size) != 0)
		return;
	uv_mutex_lock(&k->lock);
	struct entry *e = find(k, before);
	if (!e)
		e = entry_new(k, before);
	if (e) {
		e->hashes = *hashes;
		e->idle = before->idle && after->idle;
		move_to_front(k, e);
	}
	if (k->count > ENTRIES_MAX)
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
