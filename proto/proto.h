/*
 * The shape of every message, made from ops.def. Any thread; no state.
 *
 * A message struct borrows: strings and bytes point into the message that was read (or into whatever
 * the writer has); lists that were read live in the message's zone. All of it is valid until proto_end.
 */
#ifndef NPUD_PROTO_H
#define NPUD_PROTO_H

#include "err.h"
#include <msgpack.h>
#include <stdbool.h>
#include <string.h>

#define PROTO_MAJOR 1u
#define PROTO_MINOR 1u
#define PROTO_REQUEST_MAX (16u << 20) /* bytes */
#define PROTO_REPLY_MAX (64u << 20)
#define PROTO_UPLOAD_PART (4u << 20) /* bytes of one upload.put at most; upload.begin asks for less */
#define PROTO_ROWS_MAX 256u
#define PROTO_ITEMS_MAX 4096u /* values of one message, outside of bin */
#define PROTO_DEPTH_MAX 8u
#define PROTO_WAIT_MAX_MS 25000u

/* str and bin: not NUL-terminated. */
struct proto_bytes {
	const char *data;
	size_t size;
};
#define PROTO_STR(text) ((struct proto_bytes){(text), strlen(text)})

static inline bool proto_is(struct proto_bytes b, const char *text)
{
	return b.size == strlen(text) && memcmp(b.data, text, b.size) == 0;
}

struct proto_list {
	void *rows; /* of the row's struct */
	size_t count;
};

typedef uint64_t proto_u64;
typedef double proto_f64;
typedef bool proto_flag;
typedef struct proto_bytes proto_str;
typedef struct proto_bytes proto_bin;

#define F(S, kind, name, bound, def, doc) proto_##kind name;
#define L(S, row, name, bound, doc) struct proto_list name;
#define OP(name, wire, access, repeat, doc)  \
	struct req_##name {                  \
		REQ_##name(F, L, req_##name) \
	};                                   \
	struct rep_##name {                  \
		REP_##name(F, L, rep_##name) \
	};
#include "ops.def"
#undef OP
struct row_client {
	ROW_client(F, L, row_client)
};
struct row_ticket {
	ROW_ticket(F, L, row_ticket)
};
struct row_foreign {
	ROW_foreign(F, L, row_foreign)
};
struct row_design {
	ROW_design(F, L, row_design)
};
struct row_usage {
	ROW_usage(F, L, row_usage)
};
struct row_event {
	ROW_event(F, L, row_event)
};
struct row_head {
	ROW_head(F, L, row_head)
};
struct row_tensor {
	ROW_tensor(F, L, row_tensor)
};
struct row_tensor_name {
	ROW_tensor_name(F, L, row_tensor_name)
};
struct row_stored {
	ROW_stored(F, L, row_stored)
};
struct row_stored_tile {
	ROW_stored_tile(F, L, row_stored_tile)
};
struct row_stored_bad {
	ROW_stored_bad(F, L, row_stored_bad)
};
struct proto_detail {
	DETAIL(F, L, proto_detail)
};
#undef F
#undef L
/* To be given to a list of fields that two structs have, where `to` and `from` point at one of each. */
#define PROTO_COPY_FIELD(S, kind, name, bound, def, doc) to->name = from->name;
#define PROTO_COPY_LIST(S, row, name, bound, doc) to->name = from->name;

enum proto_op_id {
#define OP(name, wire, access, repeat, doc) OP_##name,
#include "ops.def"
#undef OP
	OP_COUNT
};

enum event_kind {
#define E(kind, name, doc) EVENT_##kind,
	EVENT_KINDS(E)
#undef E
};

enum proto_access { ACCESS_FIRST, ACCESS_SESSION, ACCESS_ADMIN, ACCESS_SIDE };
enum proto_repeat { REPEAT_ANY, REPEAT_ONCE };
enum proto_kind { KIND_u64, KIND_f64, KIND_flag, KIND_str, KIND_bin, KIND_list };

struct proto_message;
struct proto_field {
	const char *name;
	enum proto_kind kind;
	size_t offset; /* in the message's struct */
	uint64_t bound;
	const char *def; /* the default, in words */
	const char *doc;
	const struct proto_message *row; /* of a list */
};
struct proto_message {
	size_t size; /* of the struct */
	const struct proto_field *fields;
	size_t count;
};
struct proto_op {
	const char *wire;
	enum proto_access access;
	enum proto_repeat repeat;
	const char *doc;
	struct proto_message request, reply;
};
extern const struct proto_op proto_ops[OP_COUNT];
extern const struct proto_message proto_detail_message; /* of an error */

/* The operation of a wire name, or OP_COUNT. */
enum proto_op_id proto_find(struct proto_bytes wire);

/* A message that was read. */
struct proto_in {
	msgpack_unpacked unpacked;
	uint64_t req;
	/* request */
	uint64_t major;
	struct proto_bytes op;
	/* reply */
	int code; /* 0 or NPU_E_ */
	const msgpack_object *fields;
};

/*
 * Bounds the bytes, decodes them and takes the envelope apart. MALFORMED with why, TOO_LARGE. `bytes`
 * must outlive `in`. On success proto_end is owed; where at least `req` could be read it is set even
 * on failure, so that the refusal finds its way.
 */
int proto_read_request(struct proto_in *in, const void *bytes, size_t size, struct err *err);
int proto_read_reply(struct proto_in *in, const void *bytes, size_t size, struct err *err);
void proto_end(struct proto_in *in);

/*
 * Reads the fields into the struct `to` of `m`: unknown names are ignored, missing ones take their
 * default; a known one that is there twice, of another kind or out of bounds is MALFORMED or BAD_VALUE.
 */
int proto_read_fields(struct proto_in *in, const struct proto_message *m, void *to, struct err *err);

/* The code, sentence and details of a refusal that was read (in->code is not 0). Returns the code. */
int proto_read_error(struct proto_in *in, struct err *err);

void proto_write_request(msgpack_packer *p, enum proto_op_id op, uint64_t req, const void *fields);
void proto_write_reply(msgpack_packer *p, enum proto_op_id op, uint64_t req, const void *fields);
void proto_write_error(msgpack_packer *p, uint64_t req, const struct err *err);

#endif
