#include "record.h"
#include "xxh3.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PAGE 4096u
#define PAGE_HEADER 16u
#define PANEL 128u
#define PIECE ((size_t)32 << 10) /* of copy and hash: stays in the first cache between the two */

static void big(unsigned char to[4], uint32_t v)
{
	for (int i = 0; i < 4; i++)
		to[i] = (unsigned char)(v >> (24 - 8 * i));
}

static uint32_t from_big(const unsigned char from[4])
{
	return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

void record_head_key(struct record_head *to, const struct head_key *key)
{
	memcpy(to->hash, key->hash, sizeof to->hash);
	big(to->kd, key->kd);
	big(to->nd, key->nd);
	to->layout[0] = (unsigned char)key->layout;
}

void record_tile_key(struct record_tile *to, const struct head_key *key, uint32_t tile)
{
	record_head_key(&to->head, key);
	big(to->tile, tile);
}

void record_chunk_key(struct record_chunk *to, const struct record_tile *tile, uint32_t chunk)
{
	to->tile = *tile;
	big(to->chunk, chunk);
}

void record_head_unkey(struct head_key *to, const struct record_head *from)
{
	memcpy(to->hash, from->hash, sizeof to->hash);
	to->kd = from_big(from->kd);
	to->nd = from_big(from->nd);
	to->layout = from->layout[0];
}

static uint64_t parts(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit;
}

bool record_plan_make(struct record_plan *p, const struct head_key *key, uint32_t columns)
{
	bool blocked = key->layout == RECORD_BLOCKED;
	uint64_t panel = (uint64_t)key->kd * PANEL;

	if (!key->kd || !columns || columns > key->nd || key->layout > 255 ||
	    (blocked && (key->kd % 64 || key->nd % PANEL)))
		return false;
	p->codes = blocked ? parts(columns, PANEL) * panel : (uint64_t)key->kd * key->nd;
	p->scales = (uint64_t)key->nd * sizeof(float);
	p->chunk_bytes = RECORD_CHUNK_MAX;
	if (panel <= RECORD_CHUNK_MAX)
		p->chunk_bytes -= (uint32_t)(RECORD_CHUNK_MAX % panel);
	uint64_t codes = parts(p->codes, p->chunk_bytes), all = codes + parts(p->scales, p->chunk_bytes);
	if (all > UINT32_MAX)
		return false;
	p->code_chunks = (uint32_t)codes;
	p->chunks = (uint32_t)all;
	return true;
}

void record_plan_chunk(const struct record_plan *p, uint32_t i, bool *scales, uint64_t *offset,
		       uint32_t *length)
{
	*scales = i >= p->code_chunks;
	*offset = (uint64_t)(*scales ? i - p->code_chunks : i) * p->chunk_bytes;
	uint64_t left = (*scales ? p->scales : p->codes) - *offset;
	*length = left < p->chunk_bytes ? (uint32_t)left : p->chunk_bytes;
}

uint64_t record_plan_bytes(const struct record_plan *p)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < p->chunks; i++) {
		bool scales;
		uint64_t offset;
		uint32_t length;
		record_plan_chunk(p, i, &scales, &offset, &length);
		bytes += parts(PAGE_HEADER + sizeof(struct record_prefix) + length, PAGE) * PAGE;
	}
	return bytes;
}

const char *refusal_name(enum refusal_reason reason)
{
	static const char *const names[] = {
#define REFUSAL(name, word, cause) word,
		REFUSALS(REFUSAL)
#undef REFUSAL
	};
	return names[reason];
}

void refusal_set(struct refusal *r, enum refusal_reason reason, uint32_t tile, const char *format, ...)
{
	static const char *const causes[] = {
#define REFUSAL(name, word, cause) cause,
		REFUSALS(REFUSAL)
#undef REFUSAL
	};
	char what[200];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	r->reason = reason;
	snprintf(r->text, sizeof r->text, "tile %" PRIu32 ": %s: %s", tile, what, causes[reason]);
}

void record_header_make(struct record_header *h, const struct record_want *want,
			const struct record_plan *plan, uint64_t nonfinite, uint64_t created)
{
	*h = (struct record_header){
		.magic = {'N', 'P', 'H', 'I'},
		.format = RECORD_FORMAT,
		.fingerprint = want->fingerprint,
		.kd = want->key.kd,
		.nd = want->key.nd,
		.layout = want->key.layout,
		.tile = want->tile,
		.tiles = want->tiles,
		.columns = want->columns,
		.chunk_bytes = plan->chunk_bytes,
		.chunks = plan->chunks,
		.nonfinite = nonfinite,
		.created = created,
	};
	memcpy(h->hash, want->key.hash, sizeof h->hash);
}

static void sum_of(unsigned char to[16], const uint64_t *hashes, uint32_t count)
{
	XXH128_canonical_t canonical;
	XXH128_canonicalFromHash(&canonical, XXH3_128bits(hashes, count * sizeof *hashes));
	memcpy(to, canonical.digest, 16);
}

void record_header_seal(struct record_header *h, const uint64_t *hashes)
{
	sum_of(h->sum, hashes, h->chunks);
	h->self = XXH3_64bits(h, offsetof(struct record_header, self));
}

static const char *hex(char to[33], const unsigned char bytes[16])
{
	for (int i = 0; i < 16; i++)
		snprintf(to + 2 * i, 3, "%02x", bytes[i]);
	return to;
}

bool record_header_good(const void *bytes, size_t size, const struct record_want *want,
			const struct record_plan *plan, struct record_header *out, struct refusal *why)
{
	uint32_t t = want->tile;
	struct record_header h;
	char found[33], wanted[33];

	if (size != sizeof h) {
		refusal_set(why, REFUSED_FORMAT, t, "the header has %zu bytes, not %zu", size, sizeof h);
		return false;
	}
	memcpy(&h, bytes, sizeof h);
	if (memcmp(h.magic, "NPHI", 4) != 0) {
		refusal_set(why, REFUSED_MAGIC, t, "the header begins with %02x%02x%02x%02x, not \"NPHI\"",
			    h.magic[0], h.magic[1], h.magic[2], h.magic[3]);
		return false;
	}
	if (h.format != RECORD_FORMAT) {
		refusal_set(why, REFUSED_FORMAT, t, "record format %" PRIu32 ", not %u", h.format,
			    RECORD_FORMAT);
		return false;
	}
	uint64_t self = XXH3_64bits(&h, offsetof(struct record_header, self));
	if (self != h.self) {
		refusal_set(why, REFUSED_HEADER_HASH, t,
			    "the header hashes to %016" PRIx64 " and says %016" PRIx64, self, h.self);
		return false;
	}
	const struct {
		const char *name;
		uint32_t found, wanted;
	} fields[] = {
		{"kd", h.kd, want->key.kd},
		{"T", h.nd, want->key.nd},
		{"layout", h.layout, want->key.layout},
		{"tile", h.tile, want->tile},
		{"tiles", h.tiles, want->tiles},
		{"columns", h.columns, want->columns},
		{"chunk bytes", h.chunk_bytes, plan->chunk_bytes},
		{"chunks", h.chunks, plan->chunks},
	};
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		if (fields[i].found == fields[i].wanted)
			continue;
		refusal_set(why, REFUSED_GEOMETRY, t, "%s is %" PRIu32 " in the header and %" PRIu32 " here",
			    fields[i].name, fields[i].found, fields[i].wanted);
		return false;
	}
	if (memcmp(h.hash, want->key.hash, sizeof h.hash) != 0) {
		refusal_set(why, REFUSED_GEOMETRY, t,
			    "the content hash is %s in the header and %s in the key", hex(found, h.hash),
			    hex(wanted, want->key.hash));
		return false;
	}
	if (h.fingerprint != want->fingerprint) {
		refusal_set(why, REFUSED_FINGERPRINT, t,
			    "the packer's fingerprint is %016" PRIx64 " and this packer's %016" PRIx64,
			    h.fingerprint, want->fingerprint);
		return false;
	}
	*out = h;
	return true;
}

bool record_sum_good(const struct record_header *h, const uint64_t *hashes, struct refusal *why)
{
	unsigned char sum[16];
	char found[33], said[33];

	sum_of(sum, hashes, h->chunks);
	if (memcmp(sum, h->sum, sizeof sum) == 0)
		return true;
	refusal_set(why, REFUSED_SUM, h->tile, "the chunks together hash to %s and the header says %s",
		    hex(found, sum), hex(said, h->sum));
	return false;
}

void record_prefix_make(struct record_prefix *p, const struct record_tile *tile, uint32_t chunk,
			uint32_t length)
{
	memset(p, 0, sizeof *p);
	record_chunk_key(&p->key, tile, chunk);
	p->length = length;
}

bool record_prefix_good(const void *bytes, size_t size, const struct record_tile *tile, uint32_t number,
			uint32_t chunk, uint32_t length, struct record_prefix *out, struct refusal *why)
{
	struct record_prefix p, want;

	if (size != sizeof p + length) {
		refusal_set(why, REFUSED_CHUNK_LENGTH, number, "chunk %" PRIu32 " has %zu bytes, not %zu",
			    chunk, size, sizeof p + length);
		return false;
	}
	memcpy(&p, bytes, sizeof p);
	record_prefix_make(&want, tile, chunk, length);
	if (memcmp(&p.key, &want.key, sizeof p.key) != 0 ||
	    memcmp(p.reserved, want.reserved, sizeof p.reserved) != 0) {
		size_t at = 0;
		const unsigned char *found = (const unsigned char *)&p,
				    *wanted = (const unsigned char *)&want;
		while (found[at] == wanted[at])
			at++;
		refusal_set(why, REFUSED_CHUNK_KEY, number,
			    "chunk %" PRIu32 ": byte %zu of the key inside is %02x, not %02x", chunk, at,
			    found[at], wanted[at]);
		return false;
	}
	if (p.length != length) {
		refusal_set(why, REFUSED_CHUNK_LENGTH, number,
			    "chunk %" PRIu32 " says a length of %" PRIu32 ", not %" PRIu32, chunk, p.length,
			    length);
		return false;
	}
	*out = p;
	return true;
}

uint64_t record_copy(void *to, const void *from, size_t size)
{
	XXH3_state_t state;
	/* As a local the state is not what XXH3_createState makes: this is what makes it valid. */
	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	for (size_t at = 0; at < size; at += PIECE) {
		size_t piece = size - at < PIECE ? size - at : PIECE;
		memcpy((char *)to + at, (const char *)from + at, piece);
		XXH3_64bits_update(&state, (const char *)to + at, piece);
	}
	return XXH3_64bits_digest(&state);
}

static uint64_t named_sum(const struct record_named *r)
{
	return XXH3_64bits(r, offsetof(struct record_named, self));
}

void record_named_seal(struct record_named *r)
{
	r->format = RECORD_FORMAT;
	r->self = named_sum(r);
}

bool record_named_good(const void *bytes, size_t size, struct record_named *out)
{
	if (size != sizeof *out)
		return false;
	memcpy(out, bytes, sizeof *out);
	return out->format == RECORD_FORMAT && out->self == named_sum(out) && out->hashes.count &&
	       out->hashes.count <= RECORD_PARTS;
}
