#include "proto.h"
#include "extent.h"
#include <stdlib.h>
#include <string.h>

#define F(S, kind, name, bound, def, doc) \
	{#name, KIND_##kind, offsetof(struct S, name), bound, def, doc, NULL},
#define L(S, row, name, bound, doc) \
	{#name, KIND_list, offsetof(struct S, name), bound, "none", doc, &row_##row##_message},
#define MESSAGE(S)                                                                           \
	{                                                                                    \
		sizeof(struct S), S##_fields, sizeof S##_fields / sizeof(struct proto_field) \
	}

static const struct proto_field row_client_fields[] = {ROW_client(F, L, row_client)};
static const struct proto_field row_ticket_fields[] = {ROW_ticket(F, L, row_ticket)};
static const struct proto_field row_foreign_fields[] = {ROW_foreign(F, L, row_foreign)};
static const struct proto_field row_design_fields[] = {ROW_design(F, L, row_design)};
static const struct proto_field row_usage_fields[] = {ROW_usage(F, L, row_usage)};
static const struct proto_field row_event_fields[] = {ROW_event(F, L, row_event)};
static const struct proto_field row_head_fields[] = {ROW_head(F, L, row_head)};
static const struct proto_field row_tensor_fields[] = {ROW_tensor(F, L, row_tensor)};
static const struct proto_field row_tensor_name_fields[] = {ROW_tensor_name(F, L, row_tensor_name)};
static const struct proto_field row_stored_fields[] = {ROW_stored(F, L, row_stored)};
static const struct proto_field row_stored_tile_fields[] = {ROW_stored_tile(F, L, row_stored_tile)};
static const struct proto_field row_stored_bad_fields[] = {ROW_stored_bad(F, L, row_stored_bad)};
static const struct proto_field proto_detail_fields[] = {DETAIL(F, L, proto_detail)};
static const struct proto_message row_client_message = MESSAGE(row_client);
static const struct proto_message row_ticket_message = MESSAGE(row_ticket);
static const struct proto_message row_foreign_message = MESSAGE(row_foreign);
static const struct proto_message row_design_message = MESSAGE(row_design);
static const struct proto_message row_usage_message = MESSAGE(row_usage);
static const struct proto_message row_event_message = MESSAGE(row_event);
static const struct proto_message row_head_message = MESSAGE(row_head);
static const struct proto_message row_tensor_message = MESSAGE(row_tensor);
static const struct proto_message row_tensor_name_message = MESSAGE(row_tensor_name);
static const struct proto_message row_stored_message = MESSAGE(row_stored);
static const struct proto_message row_stored_tile_message = MESSAGE(row_stored_tile);
static const struct proto_message row_stored_bad_message = MESSAGE(row_stored_bad);
const struct proto_message proto_detail_message = MESSAGE(proto_detail);

#define OP(name, wire, access, repeat, doc)                                                     \
	static const struct proto_field req_##name##_fields[] = {REQ_##name(F, L, req_##name)}; \
	static const struct proto_field rep_##name##_fields[] = {REP_##name(F, L, rep_##name)};
#include "ops.def"
#undef OP

#define OP(name, wire, access, repeat, doc) \
	[OP_##name] = {wire, ACCESS_##access, REPEAT_##repeat, doc, MESSAGE(req_##name), MESSAGE(rep_##name)},
const struct proto_op proto_ops[OP_COUNT] = {
#include "ops.def"
};
#undef OP

enum proto_op_id proto_find(struct proto_bytes wire)
{
	for (unsigned i = 0; i < OP_COUNT; i++)
		if (proto_is(wire, proto_ops[i].wire))
			return i;
	return OP_COUNT;
}

static const msgpack_object *item(const msgpack_object *array, unsigned i, msgpack_object_type type)
{
	const msgpack_object *o = &array->via.array.ptr[i];
	return o->type == type ? o : NULL;
}

/* Bounds and decodes one array of at least `least` values, with a counter at `req_at`. */
static int open_envelope(struct proto_in *in, const void *bytes, size_t size, unsigned least, unsigned req_at,
			 struct err *err)
{
	size_t used = 0;
	int r = proto_extent_check(bytes, size, PROTO_ITEMS_MAX, PROTO_DEPTH_MAX);

	memset(in, 0, sizeof *in);
	if (r)
		return err_set(err, r,
			       "a message of %zu bytes is refused: %s (at most %u values, %u deep, one value "
			       "a message)",
			       size,
			       r == NPU_E_TOO_LARGE ? "too many or too deeply nested values"
						    : "it is not one whole MessagePack value",
			       PROTO_ITEMS_MAX, PROTO_DEPTH_MAX);
	msgpack_unpacked_init(&in->unpacked);
	if (msgpack_unpack_next(&in->unpacked, bytes, size, &used) != MSGPACK_UNPACK_SUCCESS) {
		proto_end(in);
		return err_set(err, NPU_E_NO_MEMORY,
			       "a message of %zu bytes could not be decoded: out of memory", size);
	}
	const msgpack_object *o = &in->unpacked.data;
	const msgpack_object *req = NULL;
	if (o->type == MSGPACK_OBJECT_ARRAY && o->via.array.size > req_at)
		req = item(o, req_at, MSGPACK_OBJECT_POSITIVE_INTEGER);
	if (req)
		in->req = req->via.u64;
	if (!req || o->via.array.size < least) {
		proto_end(in);
		return err_set(err, NPU_E_MALFORMED,
			       "the message is not an array of at least %u values with a counter at %u",
			       least, req_at);
	}
	return 0;
}

int proto_read_request(struct proto_in *in, const void *bytes, size_t size, struct err *err)
{
	int r = open_envelope(in, bytes, size, 4, 2, err);
	if (r)
		return r;
	const msgpack_object *o = &in->unpacked.data;
	const msgpack_object *major = item(o, 0, MSGPACK_OBJECT_POSITIVE_INTEGER),
			     *op = item(o, 1, MSGPACK_OBJECT_STR);
	in->fields = item(o, 3, MSGPACK_OBJECT_MAP);
	if (!major || !op || !in->fields) {
		proto_end(in);
		return err_set(err, NPU_E_MALFORMED,
			       "a request is [major, \"op.name\", req, {field: value}]");
	}
	in->major = major->via.u64;
	in->op = (struct proto_bytes){op->via.str.ptr, op->via.str.size};
	return 0;
}

int proto_read_reply(struct proto_in *in, const void *bytes, size_t size, struct err *err)
{
	int r = open_envelope(in, bytes, size, 3, 0, err);
	if (r)
		return r;
	const msgpack_object *o = &in->unpacked.data;
	const msgpack_object *code = item(o, 1, MSGPACK_OBJECT_POSITIVE_INTEGER);
	in->fields = item(o, 2, MSGPACK_OBJECT_MAP);
	if (!code || !in->fields || code->via.u64 > INT32_MAX) {
		proto_end(in);
		return err_set(err, NPU_E_MALFORMED, "a reply is [req, code, {field: value}]");
	}
	in->code = -(int)code->via.u64;
	return 0;
}

void proto_end(struct proto_in *in)
{
	msgpack_unpacked_destroy(&in->unpacked);
	in->fields = NULL;
}

static int read_map(struct proto_in *in, const msgpack_object *map, const struct proto_message *m, void *to,
		    struct err *err);

static int read_list(struct proto_in *in, const struct proto_field *f, const msgpack_object *o,
		     struct proto_list *to, struct err *err)
{
	uint32_t n = o->via.array.size;
	if (n > f->bound)
		return err_set(err, NPU_E_TOO_LARGE, "field %s has %u rows; at most %llu are allowed",
			       f->name, n, (unsigned long long)f->bound);
	char *rows = NULL;
	if (n && !(rows = msgpack_zone_malloc(in->unpacked.zone, n * f->row->size)))
		return err_set(err, NPU_E_NO_MEMORY, "field %s: out of memory", f->name);
	for (uint32_t i = 0; i < n; i++) {
		const msgpack_object *row = item(o, i, MSGPACK_OBJECT_MAP);
		if (!row)
			return err_set(err, NPU_E_MALFORMED, "field %s: row %u is not a map", f->name, i);
		int r = read_map(in, row, f->row, rows + i * f->row->size, err);
		if (r)
			return r;
	}
	*to = (struct proto_list){rows, n};
	return 0;
}

static int read_bytes(const struct proto_field *f, const char *data, uint32_t size, struct proto_bytes *to,
		      struct err *err)
{
	if (size > f->bound)
		return err_set(err, NPU_E_BAD_VALUE, "field %s has %u bytes; at most %llu are allowed",
			       f->name, size, (unsigned long long)f->bound);
	if (f->kind == KIND_str && (!err_is_utf8(data, size) || memchr(data, 0, size)))
		return err_set(err, NPU_E_BAD_VALUE, "field %s is not text: UTF-8 without NUL is needed",
			       f->name);
	*to = (struct proto_bytes){data, size};
	return 0;
}

static int read_field(struct proto_in *in, const struct proto_field *f, const msgpack_object *o, char *to,
		      struct err *err)
{
	static const char *const kinds[] = {
		"an unsigned integer", "a number", "a bool", "a str", "a bin", "an array"};

	switch (f->kind) {
	case KIND_u64:
		if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
			break;
		if (o->via.u64 > f->bound)
			return err_set(err, NPU_E_BAD_VALUE, "field %s is %llu; at most %llu is allowed",
				       f->name, (unsigned long long)o->via.u64, (unsigned long long)f->bound);
		*(uint64_t *)to = o->via.u64;
		return 0;
	case KIND_f64:
		if (o->type != MSGPACK_OBJECT_FLOAT64 && o->type != MSGPACK_OBJECT_FLOAT32)
			break;
		*(double *)to = o->via.f64;
		return 0;
	case KIND_flag:
		if (o->type != MSGPACK_OBJECT_BOOLEAN)
			break;
		*(bool *)to = o->via.boolean;
		return 0;
	case KIND_str:
		if (o->type != MSGPACK_OBJECT_STR)
			break;
		return read_bytes(f, o->via.str.ptr, o->via.str.size, (struct proto_bytes *)to, err);
	case KIND_bin:
		if (o->type != MSGPACK_OBJECT_BIN)
			break;
		return read_bytes(f, o->via.bin.ptr, o->via.bin.size, (struct proto_bytes *)to, err);
	case KIND_list:
		if (o->type != MSGPACK_OBJECT_ARRAY)
			break;
		return read_list(in, f, o, (struct proto_list *)to, err);
	}
	return err_set(err, NPU_E_MALFORMED, "field %s is not %s", f->name, kinds[f->kind]);
}

static void set_default(const struct proto_field *f, char *to)
{
	switch (f->kind) {
	case KIND_u64:
		*(uint64_t *)to = strtoull(f->def, NULL, 10);
		break;
	case KIND_str:
	case KIND_bin:
		*(struct proto_bytes *)to = PROTO_STR(f->def);
		break;
	case KIND_flag:
		*(bool *)to = f->def[0] == '1';
		break;
	case KIND_f64:
	case KIND_list:
		break; /* zero, as the struct is */
	}
}

static int read_map(struct proto_in *in, const msgpack_object *map, const struct proto_message *m, void *to,
		    struct err *err)
{
	uint64_t seen = 0; /* a bit a field: no message has as many as 64 */

	memset(to, 0, m->size);
	for (size_t i = 0; i < m->count; i++)
		set_default(&m->fields[i], (char *)to + m->fields[i].offset);
	for (uint32_t k = 0; k < map->via.map.size; k++) {
		const msgpack_object_kv *kv = &map->via.map.ptr[k];
		if (kv->key.type != MSGPACK_OBJECT_STR)
			return err_set(err, NPU_E_MALFORMED, "a field's name is not a str");
		struct proto_bytes name = {kv->key.via.str.ptr, kv->key.via.str.size};
		for (size_t i = 0; i < m->count; i++) {
			const struct proto_field *f = &m->fields[i];
			if (!proto_is(name, f->name))
				continue;
			if (seen & 1ull << i)
				return err_set(err, NPU_E_MALFORMED, "field %s is there twice", f->name);
			seen |= 1ull << i;
			int r = read_field(in, f, &kv->val, (char *)to + f->offset, err);
			if (r)
				return r;
			break;
		}
	}
	return 0;
}

int proto_read_fields(struct proto_in *in, const struct proto_message *m, void *to, struct err *err)
{
	return read_map(in, in->fields, m, to, err);
}

static void copy_text(char *to, size_t room, struct proto_bytes from)
{
	size_t n = from.size < room ? from.size : room - 1;
	if (n)
		memcpy(to, from.data, n);
	to[n] = '\0';
}

int proto_read_error(struct proto_in *in, struct err *err)
{
	struct proto_bytes message = PROTO_STR("");
	const msgpack_object *details = NULL;
	struct proto_detail d = {};

	for (uint32_t k = 0; k < in->fields->via.map.size; k++) {
		const msgpack_object_kv *kv = &in->fields->via.map.ptr[k];
		if (kv->key.type != MSGPACK_OBJECT_STR)
			continue;
		struct proto_bytes name = {kv->key.via.str.ptr, kv->key.via.str.size};
		if (proto_is(name, "message") && kv->val.type == MSGPACK_OBJECT_STR)
			message = (struct proto_bytes){kv->val.via.str.ptr, kv->val.via.str.size};
		else if (proto_is(name, "detail") && kv->val.type == MSGPACK_OBJECT_MAP)
			details = &kv->val;
	}
	struct err ignored; /* a daemon's odd detail does not hide its refusal */
	if (details && read_map(in, details, &proto_detail_message, &d, &ignored))
		d = (struct proto_detail){};
	err_set(err, in->code, "%.*s", (int)message.size, message.size ? message.data : "");
	err->detail.needed = d.needed;
	err->detail.limit = d.limit;
	err->detail.depth = d.depth;
	err->detail.retry_ms = d.retry_ms;
	err->detail.holder = d.holder;
	err->detail.holder_uid = d.holder_uid;
	err->detail.remaining_ms = d.remaining_ms;
	err->detail.place = d.place;
	copy_text(err->detail.file, sizeof err->detail.file, d.file);
	copy_text(err->detail.tensor, sizeof err->detail.tensor, d.tensor);
	return in->code;
}

static void write_text(msgpack_packer *p, const char *text)
{
	msgpack_pack_str_with_body(p, text, strlen(text));
}

static bool is_default(const struct proto_field *f, const char *from)
{
	if (f->kind == KIND_u64)
		return *(const uint64_t *)from == 0;
	return ((const struct proto_bytes *)from)->size == 0;
}

/* `sparse`: zero and empty fields, which mean "not said" in details, are left out. */
static void write_map(msgpack_packer *p, const struct proto_message *m, const void *from, bool sparse)
{
	size_t n = 0;
	for (size_t i = 0; i < m->count; i++)
		n += !sparse || !is_default(&m->fields[i], (const char *)from + m->fields[i].offset);
	msgpack_pack_map(p, n);
	for (size_t i = 0; i < m->count; i++) {
		const struct proto_field *f = &m->fields[i];
		const char *v = (const char *)from + f->offset;
		const struct proto_bytes *b = (const struct proto_bytes *)v;
		const struct proto_list *l = (const struct proto_list *)v;
		if (sparse && is_default(f, v))
			continue;
		write_text(p, f->name);
		switch (f->kind) {
		case KIND_u64:
			msgpack_pack_uint64(p, *(const uint64_t *)v);
			break;
		case KIND_f64:
			msgpack_pack_double(p, *(const double *)v);
			break;
		case KIND_flag:
			(*(const bool *)v ? msgpack_pack_true : msgpack_pack_false)(p);
			break;
		case KIND_str:
			msgpack_pack_str_with_body(p, b->size ? b->data : "", b->size);
			break;
		case KIND_bin:
			msgpack_pack_bin_with_body(p, b->size ? b->data : "", b->size);
			break;
		case KIND_list:
			msgpack_pack_array(p, l->count);
			for (size_t r = 0; r < l->count; r++)
				write_map(p, f->row, (const char *)l->rows + r * f->row->size, false);
			break;
		}
	}
}

void proto_write_request(msgpack_packer *p, enum proto_op_id op, uint64_t req, const void *fields)
{
	msgpack_pack_array(p, 4);
	msgpack_pack_uint64(p, PROTO_MAJOR);
	write_text(p, proto_ops[op].wire);
	msgpack_pack_uint64(p, req);
	write_map(p, &proto_ops[op].request, fields, false);
}

void proto_write_reply(msgpack_packer *p, enum proto_op_id op, uint64_t req, const void *fields)
{
	msgpack_pack_array(p, 3);
	msgpack_pack_uint64(p, req);
	msgpack_pack_uint8(p, 0);
	write_map(p, &proto_ops[op].reply, fields, false);
}

void proto_write_error(msgpack_packer *p, uint64_t req, const struct err *err)
{
	struct proto_detail d = {
		.needed = err->detail.needed,
		.limit = err->detail.limit,
		.depth = err->detail.depth,
		.retry_ms = err->detail.retry_ms,
		.holder = err->detail.holder,
		.holder_uid = err->detail.holder_uid,
		.remaining_ms = err->detail.remaining_ms,
		.place = err->detail.place,
		.file = PROTO_STR(err->detail.file),
		.tensor = PROTO_STR(err->detail.tensor),
	};
	msgpack_pack_array(p, 3);
	msgpack_pack_uint64(p, req);
	msgpack_pack_uint64(p, (uint64_t)-err->code);
	msgpack_pack_map(p, 3);
	write_text(p, "error");
	write_text(p, err_name(err->code));
	write_text(p, "message");
	write_text(p, err->text[0] ? err->text : err_sentence(err->code));
	write_text(p, "detail");
	write_map(p, &proto_detail_message, &d, true);
}
