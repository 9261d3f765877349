#include "hash.h"
#include "own.h"
#include "xxh3.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

static_assert(HASH_SECRET_SIZE <= 256, "getrandom gives no more at once");
static_assert(HASH_SECRET_SIZE >= XXH3_SECRET_SIZE_MIN, "XXH3 refuses a shorter secret");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the trailer is little-endian");

struct hasher {
	XXH3_state_t *state;
};

int hasher_new(struct hasher **out, const struct hash_secret *secret)
{
	cleanup(hasher_freep) struct hasher *h = calloc(1, sizeof *h);

	if (!h)
		return NPU_E_NO_MEMORY;
	h->state = XXH3_createState();
	if (!h->state)
		return NPU_E_NO_MEMORY;
	if (XXH3_128bits_reset_withSecret(h->state, secret->bytes, sizeof secret->bytes) != XXH_OK)
		return NPU_E_INTERNAL;
	*out = take(&h);
	return 0;
}

void hasher_add(struct hasher *h, const void *bytes, size_t size)
{
	XXH3_128bits_update(h->state, bytes, size);
}

void hasher_end(struct hasher *h, const struct matrix *m, unsigned char out[16])
{
	uint32_t numbers[3] = {m->nv, m->h, m->read_width};
	unsigned char tied = m->tied, length = (unsigned char)strlen(m->reading);
	XXH128_canonical_t canonical;

	hasher_add(h, numbers, sizeof numbers);
	hasher_add(h, &tied, 1);
	hasher_add(h, &length, 1);
	hasher_add(h, m->reading, length);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(h->state));
	memcpy(out, canonical.digest, sizeof canonical.digest);
}

void hasher_free(struct hasher *h)
{
	if (!h)
		return;
	XXH3_freeState(h->state);
	free(h);
}

void hasher_freep(struct hasher **h)
{
	hasher_free(*h);
}

static int secret_fail(struct err *err, int number, const char *what, const char *path)
{
	char name[200];

	err_sys(err, number, "%s: %s the secret of content hashes",
		err_printable(name, sizeof name, path, strlen(path)), what);
	/* Not NOT_ALLOWED, which speaks of a client: whose permissions these are, the sentence says. */
	err->code = NPU_E_IO;
	return err->code;
}

/* 0, IO, or `*absent` where there is no such file. */
static int secret_read(struct hash_secret *out, const char *path, int *absent, struct err *err)
{
	cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct hash_secret secret;
	struct stat status;
	size_t have = 0;

	*absent = fd < 0 && errno == ENOENT;
	if (*absent)
		return 0;
	if (fd < 0 || fstat(fd, &status) < 0)
		return secret_fail(err, errno, "opening", path);
	if (!S_ISREG(status.st_mode) || status.st_size != HASH_SECRET_SIZE) {
		char name[200];
		return err_set(err, NPU_E_IO,
			       "%s: the secret of content hashes must be a file of %d bytes and has %lld; "
			       "restore it, or remove it together with the stored weights",
			       err_printable(name, sizeof name, path, strlen(path)), HASH_SECRET_SIZE,
			       (long long)status.st_size);
	}
	while (have < sizeof secret.bytes) {
		ssize_t got = read(fd, secret.bytes + have, sizeof secret.bytes - have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return secret_fail(err, got < 0 ? errno : EIO, "reading", path);
		have += (size_t)got;
	}
	*out = secret;
	return 0;
}

int hash_secret_make(struct hash_secret *out, struct err *err)
{
	/* Up to 256 bytes come whole or not at all. */
	while (getrandom(out->bytes, sizeof out->bytes, 0) != sizeof out->bytes)
		if (errno != EINTR)
			return err_sys(err, errno, "making the secret of content hashes");
	return 0;
}

static int secret_fill(int fd)
{
	struct hash_secret secret;
	struct err ignored;
	size_t have = 0;

	if (hash_secret_make(&secret, &ignored))
		return -1;
	while (have < sizeof secret.bytes) {
		ssize_t put = write(fd, secret.bytes + have, sizeof secret.bytes - have);
		if (put < 0 && errno != EINTR)
			return -1;
		have += put > 0 ? (size_t)put : 0;
	}
	return fsync(fd);
}

/* The new file's name must outlast a power cut as well, or the next start makes another secret. */
static int secret_settle(const char *path)
{
	cleanup(freep) char *copy = strdup(path);
	if (!copy)
		return -1;
	cleanup(closep) int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -1 : fsync(fd);
}

static int secret_make(const char *path, struct err *err)
{
	cleanup(freep) char *draft = NULL;

	if (asprintf(&draft, "%s.XXXXXX", path) < 0) {
		draft = NULL;
		return err_set(err, NPU_E_NO_MEMORY, "no memory to make the secret of content hashes");
	}
	/* mkostemp is O_EXCL and 0600. */
	cleanup(closep) int fd = mkostemp(draft, O_CLOEXEC);
	if (fd < 0)
		return secret_fail(err, errno, "making", path);
	/* A link and no rename: of two that start at once, both must come to use the first one's secret. */
	int number = secret_fill(fd) < 0 || (link(draft, path) < 0 && errno != EEXIST) ? errno : 0;
	unlink(draft);
	if (!number && secret_settle(path) < 0)
		number = errno;
	return number ? secret_fail(err, number, "making", path) : 0;
}

int hash_secret_load(struct hash_secret *out, const char *path, struct err *err)
{
	int absent, code = secret_read(out, path, &absent, err);

	if (code || !absent)
		return code;
	code = secret_make(path, err);
	if (!code)
		code = secret_read(out, path, &absent, err);
	return !code && absent ? secret_fail(err, ENOENT, "opening", path) : code;
}
