#include "hash.h"
#include "own.h"
#include "xxh3.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

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

void hasher_end_plain(struct hasher *h, unsigned char out[16])
{
	XXH128_canonical_t canonical;
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(h->state));
	memcpy(out, canonical.digest, sizeof canonical.digest);
}

void hasher_end(struct hasher *h, const struct matrix *m, unsigned char out[16])
{
	uint32_t numbers[3] = {m->nv, m->h, m->read_width};
	unsigned char tied = m->tied, length = (unsigned char)strlen(m->reading);

	hasher_add(h, numbers, sizeof numbers);
	hasher_add(h, &tied, 1);
	hasher_add(h, &length, 1);
	hasher_add(h, m->reading, length);
	hasher_end_plain(h, out);
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

int hash_secret_make(struct hash_secret *out, struct err *err)
{
	/* Up to 256 bytes come whole or not at all. */
	while (getrandom(out->bytes, sizeof out->bytes, 0) != sizeof out->bytes)
		if (errno != EINTR)
			return err_sys(err, errno, "making the secret of content hashes");
	return 0;
}

void hash_secret_public(struct hash_secret *out)
{
	for (uint64_t i = 0; i < sizeof out->bytes / sizeof i; i++) {
		XXH64_hash_t part = XXH3_64bits_withSeed("npud", 4, i);
		memcpy(out->bytes + i * sizeof part, &part, sizeof part);
	}
}
