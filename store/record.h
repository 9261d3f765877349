/*
 * What the image store keeps, byte for byte, and what makes a record good. Pure; any thread.
 *
 * A packed head is a few tiles; a tile is one header and some chunks. The payload of a tile is its codes
 * (in the blocked layout only the 128-column panels that hold vocabulary) and then its scales, cut into
 * chunks of whole panels where a panel is not larger than a chunk.
 */
#ifndef NPUD_RECORD_H
#define NPUD_RECORD_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_SCHEMA 1u /* of the databases: names and keys */
#define RECORD_FORMAT 1u /* of headers and chunks */
#define RECORD_CHUNK_MAX (8u << 20)
#define RECORD_BLOCKED 1u /* layout: the number that kernels.h gives it */
#define RECORD_LABEL 129
#define RECORD_TENSOR 129

/* Which weights, packed how: two heads with different keys share nothing. */
struct head_key {
	unsigned char hash[16]; /* content hash, canonical */
	uint32_t kd, nd;	/* rows (K padded) and columns (T) of a tile */
	uint32_t layout;
};

/* Keys of the databases: big-endian, so that the tiles of a head and the chunks of a tile are neighbours. */
struct record_head {
	unsigned char hash[16], kd[4], nd[4], layout[1];
};
struct record_tile {
	struct record_head head;
	unsigned char tile[4];
};
struct record_chunk {
	struct record_tile tile;
	unsigned char chunk[4];
};
static_assert(sizeof(struct record_head) == 25 && sizeof(struct record_tile) == 29 &&
		      sizeof(struct record_chunk) == 33,
	      "keys have no padding");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are little-endian");

/* Value of `image`. */
struct record_header {
	unsigned char magic[4]; /* "NPHI" */
	uint32_t format;
	uint64_t fingerprint; /* of the packer */
	uint32_t kd, nd, layout, tile, tiles;
	uint32_t columns;     /* that are vocabulary */
	uint32_t chunk_bytes; /* payload of a chunk; less in the last of the codes and of the scales */
	uint32_t chunks;
	unsigned char hash[16]; /* the content hash */
	unsigned char sum[16];	/* canonical XXH3-128 over the chunks' hashes in order */
	uint64_t nonfinite;	/* stored values that were not finite and were packed as 0 */
	uint64_t created;	/* seconds since 1970 */
	unsigned char reserved[24];
	uint64_t self; /* XXH3-64 of all before */
};
static_assert(sizeof(struct record_header) == 128, "on disk");

/* Before the payload of a chunk. LMDB's page header has 16 bytes: the payload begins at byte 64 of its page.
 */
struct record_prefix {
	struct record_chunk key;
	unsigned char reserved[3];
	uint32_t length; /* of the payload */
	uint64_t hash;	 /* XXH3-64 of the payload */
};
static_assert(sizeof(struct record_prefix) == 48, "on disk");

/* Value of `usage`. Decides what goes first when room is needed, and nothing else. */
struct record_usage {
	char label[RECORD_LABEL];   /* the file as first seen; NUL-terminated */
	char tensor[RECORD_TENSOR]; /* NUL-terminated */
	unsigned char superseded;   /* the label was opened again with other weights */
	unsigned char reserved[5];
	uint64_t created, last_used; /* microseconds since 1970 */
	uint64_t hits;		     /* opens that were served from here */
	uint64_t bytes;		     /* of the file, pages and all */
	uint32_t tiles;
	uint32_t columns; /* vocabulary of the whole head */
};
static_assert(sizeof(struct record_usage) == 304, "on disk");

/* Key in `meta` of what files hashed to: this, and a digest of how they were named and read. */
struct record_name {
	unsigned char prefix[4]; /* "file" */
	unsigned char digest[16];
};
#define RECORD_NAME_PREFIX "file"

/* Of matrices that are read side by side, in their order. */
#define RECORD_PARTS 8u
struct content_hashes {
	uint32_t count;
	unsigned char of[RECORD_PARTS][16];
};

/* Value of such a key. */
struct record_named {
	uint32_t format;
	uint32_t idle; /* 1: nobody had the files open to write when they were hashed */
	struct content_hashes hashes;
	unsigned char reserved[4];
	uint64_t kept; /* microseconds since 1970 */
	uint64_t self; /* XXH3-64 of all before */
};
static_assert(sizeof(struct record_name) == 20 && sizeof(struct record_named) == 160, "on disk");

void record_named_seal(struct record_named *r);
/* Whether `size` bytes are such a value. */
bool record_named_good(const void *bytes, size_t size, struct record_named *out);

void record_head_key(struct record_head *to, const struct head_key *key);
void record_tile_key(struct record_tile *to, const struct head_key *key, uint32_t tile);
void record_chunk_key(struct record_chunk *to, const struct record_tile *tile, uint32_t chunk);
void record_head_unkey(struct head_key *to, const struct record_head *from);

/* How a tile is cut. */
struct record_plan {
	uint64_t codes, scales; /* payload bytes */
	uint32_t chunk_bytes;	/* at most RECORD_CHUNK_MAX */
	uint32_t code_chunks, chunks;
};
/* False where kd, nd, layout and columns are no tile. */
bool record_plan_make(struct record_plan *p, const struct head_key *key, uint32_t columns);
/* Chunk i is `length` bytes at `offset` of the codes, or of the scales. */
void record_plan_chunk(const struct record_plan *p, uint32_t i, bool *scales, uint64_t *offset,
		       uint32_t *length);
/* What the tile takes in the file: whole pages of 4096 bytes. */
uint64_t record_plan_bytes(const struct record_plan *p);

/* Why a record was refused: REFUSAL(NAME, "name for programs", "likely cause"). */
#define REFUSALS(REFUSAL)                                                                       \
	REFUSAL(MAGIC, "magic", "the record is damaged")                                        \
	REFUSAL(FORMAT, "format", "another version of npud wrote it")                           \
	REFUSAL(HEADER_HASH, "header-hash", "the record is damaged")                            \
	REFUSAL(GEOMETRY, "geometry", "the record is another head's or damaged")                \
	REFUSAL(FINGERPRINT, "fingerprint", "another version of npud packed it")                \
	REFUSAL(CHUNK_MISSING, "chunk-missing", "the store lost a part of it")                  \
	REFUSAL(CHUNK_KEY, "chunk-key", "the chunk is another tile's or damaged")               \
	REFUSAL(CHUNK_LENGTH, "chunk-length", "the chunk is damaged")                           \
	REFUSAL(CHUNK_HASH, "chunk-hash", "the chunk is damaged")                               \
	REFUSAL(SUM, "sum", "chunks of two writings are mixed, or the record is damaged")       \
	REFUSAL(SAMPLE, "sample", "the image is of other weights than the file that was named") \
	REFUSAL(STORE, "store", "the store's file is damaged, cut short, or cannot be read")

enum refusal_reason {
#define REFUSAL(name, word, cause) REFUSED_##name,
	REFUSALS(REFUSAL)
#undef REFUSAL
		REFUSED_COUNT
};

struct refusal {
	enum refusal_reason reason;
	char text[300]; /* the tile, what differs, both values, the likely cause */
};

/* "chunk-hash": for counters and programs. */
const char *refusal_name(enum refusal_reason reason);
void refusal_set(struct refusal *r, enum refusal_reason reason, uint32_t tile, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* What a tile must be to be used. */
struct record_want {
	struct head_key key;
	uint32_t tile, tiles, columns;
	uint64_t fingerprint;
};

/* A header without its sum and self hash. */
void record_header_make(struct record_header *h, const struct record_want *want,
			const struct record_plan *plan, uint64_t nonfinite, uint64_t created);
/* Takes in the chunks' hashes and closes the header. */
void record_header_seal(struct record_header *h, const uint64_t *hashes);

/* Magic, format, own hash, geometry, fingerprint, in this order. False with why. `size`: bytes that are
 * there. */
bool record_header_good(const void *bytes, size_t size, const struct record_want *want,
			const struct record_plan *plan, struct record_header *out, struct refusal *why);
/* The hash over the chunks' hashes. */
bool record_sum_good(const struct record_header *h, const uint64_t *hashes, struct refusal *why);

/* The prefix of chunk i, all but its hash. */
void record_prefix_make(struct record_prefix *p, const struct record_tile *tile, uint32_t chunk,
			uint32_t length);
/* Whether a chunk's prefix is what it must be; `size`: bytes of the whole record. False with why. */
bool record_prefix_good(const void *bytes, size_t size, const struct record_tile *tile, uint32_t number,
			uint32_t chunk, uint32_t length, struct record_prefix *out, struct refusal *why);

/* Copies and hashes (XXH3-64) what was copied, in one pass. */
uint64_t record_copy(void *to, const void *from, size_t size);

#endif
