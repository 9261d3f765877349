#include "extent.h"
#include "own.h"
#include "proto.h"
#include <criterion/criterion.h>
#include <stdalign.h>
#include <stdio.h>

static int check(const void *bytes, size_t size)
{
	return proto_extent_check(bytes, size, PROTO_ITEMS_MAX, PROTO_DEPTH_MAX);
}

/* [major, wire, 7, {n fields}]; the caller packs the fields. */
static void begin(msgpack_sbuffer *b, msgpack_packer *p, enum proto_op_id op, size_t n)
{
	const char *wire = proto_ops[op].wire;

	msgpack_sbuffer_init(b);
	msgpack_packer_init(p, b, msgpack_sbuffer_write);
	msgpack_pack_array(p, 4);
	msgpack_pack_uint64(p, PROTO_MAJOR);
	msgpack_pack_str_with_body(p, wire, strlen(wire));
	msgpack_pack_uint64(p, 7);
	msgpack_pack_map(p, n);
}

static void name(msgpack_packer *p, const char *text)
{
	msgpack_pack_str_with_body(p, text, strlen(text));
}

/* The code of reading the fields of a request that `b` holds; `b` is destroyed. */
static int read_code(msgpack_sbuffer *b, enum proto_op_id op, void *to, struct err *err)
{
	struct proto_in in;

	memset(err, 0, sizeof *err);
	cr_assert_eq(proto_read_request(&in, b->data, b->size, err), 0, "%s", err->text);
	int r = proto_read_fields(&in, &proto_ops[op].request, to, err);
	cr_expect_eq(r, err->code);
	cr_expect(!r || err->text[0]);
	proto_end(&in);
	msgpack_sbuffer_destroy(b);
	return r;
}

Test(proto, extent_refuses_every_cut_and_every_tail)
{
	msgpack_sbuffer b;
	msgpack_packer p;
	static char blob[70000];

	begin(&b, &p, OP_head_run, 11);
	name(&p, "x"), msgpack_pack_bin_with_body(&p, "\1\2\3", 3);
	name(&p, "bin16"), msgpack_pack_bin_with_body(&p, blob, 300);
	name(&p, "bin32"), msgpack_pack_bin_with_body(&p, blob, 70000);
	name(&p, "str8"), msgpack_pack_str_with_body(&p, blob, 100);
	name(&p, "str16"), msgpack_pack_str_with_body(&p, blob, 300);
	name(&p, "n"), msgpack_pack_nil(&p);
	name(&p, "f"), msgpack_pack_double(&p, 1.5);
	name(&p, "g"), msgpack_pack_float(&p, 1.5f);
	name(&p, "i"), msgpack_pack_int64(&p, INT64_MIN);
	name(&p, "array16"), msgpack_pack_array(&p, 20);
	for (int i = 0; i < 20; i++)
		msgpack_pack_uint64(&p, UINT64_C(1) << (3 * i));
	name(&p, "map"), msgpack_pack_map(&p, 17);
	for (int i = 0; i < 17; i++)
		msgpack_pack_true(&p), msgpack_pack_int(&p, -i * 40);

	cr_assert_eq(check(b.data, b.size), 0);
	for (size_t cut = 0; cut < b.size; cut++) {
		cleanup(freep) char *part = malloc(cut ? cut : 1); /* exact, for the address sanitizer */
		memcpy(part, b.data, cut);
		cr_assert_eq(check(part, cut), NPU_E_MALFORMED, "cut at %zu", cut);
	}
	msgpack_pack_nil(&p);
	cr_expect_eq(check(b.data, b.size), NPU_E_MALFORMED);
	msgpack_sbuffer_destroy(&b);
}

Test(proto, extent_refuses_extensions_claims_depth_and_items)
{
	static const unsigned char extensions[] = {0xc1, 0xc7, 0xc8, 0xc9, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8};
	unsigned char bytes[5000] = {0};

	for (size_t i = 0; i < sizeof extensions; i++) {
		unsigned char with[64] = {0x91, extensions[i]};
		for (size_t size = 2; size < sizeof with; size++)
			cr_expect_eq(check(with, size), NPU_E_MALFORMED, "%02x", extensions[i]);
	}
	cr_expect_eq(check("\xdd\xff\xff\xff\xff", 5), NPU_E_MALFORMED);
	cr_expect_eq(check("\xdd\x10\x00\x00\x00", 5), NPU_E_MALFORMED);
	cr_expect_eq(check("\xdf\xff\xff\xff\xff", 5), NPU_E_MALFORMED);
	cr_expect_eq(check("\xc6\xff\xff\xff\xff", 5), NPU_E_MALFORMED);
	cr_expect_eq(check("\xdb\x00\x00\x00\x01", 5), NPU_E_MALFORMED);

	memset(bytes, 0x91, 9);
	bytes[8] = 0x01;
	cr_expect_eq(check(bytes, 9), 0, "eight deep");
	bytes[8] = 0x91;
	bytes[9] = 0x01;
	cr_expect_eq(check(bytes, 10), NPU_E_TOO_LARGE, "nine deep");
	bytes[8] = 0x90;
	cr_expect_eq(check(bytes, 9), NPU_E_TOO_LARGE, "nine deep, the last one empty");
	bytes[8] = 0x80;
	cr_expect_eq(check(bytes, 9), NPU_E_TOO_LARGE, "nine deep, the last one an empty map");
	bytes[7] = 0x90;
	cr_expect_eq(check(bytes, 8), 0, "eight deep, the last one empty");
	memset(bytes, 0x91, sizeof bytes);
	cr_expect_eq(proto_extent_check(bytes, sizeof bytes, UINT32_MAX, UINT32_MAX), NPU_E_TOO_LARGE);

	memset(bytes, 0, sizeof bytes);
	bytes[0] = 0xdc; /* the array is an item too */
	bytes[1] = 4095 >> 8, bytes[2] = 4095 & 255;
	cr_expect_eq(check(bytes, 3 + 4095), 0);
	bytes[1] = 4096 >> 8, bytes[2] = 4096 & 255;
	cr_expect_eq(check(bytes, 3 + 4096), NPU_E_TOO_LARGE);
}

/* Values that are no defaults and say which field they are of. */
static void fill(const struct proto_message *m, char *to, char *rows)
{
	for (size_t i = 0; i < m->count; i++) {
		const struct proto_field *f = &m->fields[i];
		char *v = to + f->offset;
		switch (f->kind) {
		case KIND_u64:
			*(uint64_t *)v = f->bound - 1 - i;
			break;
		case KIND_f64:
			*(double *)v = 0.25 + (double)i;
			break;
		case KIND_flag:
			*(bool *)v = true;
			break;
		case KIND_str:
			*(struct proto_bytes *)v = PROTO_STR(i & 1 ? "\xc3\xa9" : "x\xc3\xa9");
			break;
		case KIND_bin:
			*(struct proto_bytes *)v = (struct proto_bytes){i & 1 ? "\xff\n" : "\0\xff", 2};
			break;
		case KIND_list:
			fill(f->row, rows, NULL);
			fill(f->row, rows + f->row->size, NULL);
			*(struct proto_list *)v = (struct proto_list){rows, 2};
			rows += 2 * f->row->size;
			break;
		}
	}
}

static void same(const struct proto_message *m, const char *a, const char *b, const char *what)
{
	for (size_t i = 0; i < m->count; i++) {
		const struct proto_field *f = &m->fields[i];
		const char *x = a + f->offset, *y = b + f->offset;
		const struct proto_bytes *p = (const void *)x, *q = (const void *)y;
		const struct proto_list *l = (const void *)x, *k = (const void *)y;
		bool equal = false;
		switch (f->kind) {
		case KIND_u64:
		case KIND_f64:
			equal = memcmp(x, y, 8) == 0;
			break;
		case KIND_flag:
			equal = *(const bool *)x == *(const bool *)y;
			break;
		case KIND_str:
		case KIND_bin:
			equal = p->size == q->size && memcmp(p->data, q->data, p->size) == 0;
			break;
		case KIND_list:
			equal = l->count == k->count;
			for (size_t r = 0; equal && r < l->count; r++)
				same(f->row, (const char *)l->rows + r * f->row->size,
				     (const char *)k->rows + r * f->row->size, f->name);
			break;
		}
		cr_expect(equal, "%s: %s is another", what, f->name);
	}
}

Test(proto, every_message_comes_back_as_it_was)
{
	alignas(16) static char from[4096], to[4096], rows[8192];

	for (unsigned op = 0; op < OP_COUNT; op++)
		for (int reply = 0; reply < 2; reply++) {
			const struct proto_message *m = reply ? &proto_ops[op].reply : &proto_ops[op].request;
			cleanup(msgpack_sbuffer_destroy) msgpack_sbuffer b;
			msgpack_packer p;
			struct proto_in in;
			struct err err = {0};
			uint64_t req = UINT64_MAX - op;

			cr_assert(m->size <= sizeof from && m->count < 64);
			memset(to, 0xa5, sizeof to);
			fill(m, from, rows);
			msgpack_sbuffer_init(&b);
			msgpack_packer_init(&p, &b, msgpack_sbuffer_write);
			(reply ? proto_write_reply : proto_write_request)(&p, op, req, from);
			cr_assert_eq(
				(reply ? proto_read_reply : proto_read_request)(&in, b.data, b.size, &err), 0,
				"%s: %s", proto_ops[op].wire, err.text);
			cr_expect_eq(in.req, req);
			cr_expect_eq(in.code, 0);
			if (!reply) {
				cr_expect_eq(in.major, PROTO_MAJOR);
				cr_expect_eq(proto_find(in.op), op);
			}
			cr_assert_eq(proto_read_fields(&in, m, to, &err), 0, "%s: %s", proto_ops[op].wire,
				     err.text);
			same(m, from, to, proto_ops[op].wire);
			proto_end(&in);
		}
}

Test(proto, missing_fields_take_their_defaults)
{
	struct req_head_run run;
	struct req_head_wait wait;
	struct req_head_open open;
	msgpack_sbuffer b;
	msgpack_packer p;
	struct err err;

	memset(&run, 0xa5, sizeof run);
	begin(&b, &p, OP_head_run, 0);
	cr_assert_eq(read_code(&b, OP_head_run, &run, &err), 0);
	cr_expect(run.head == 0 && run.rows == 1 && run.k == 1 && run.x.size == 0);
	cr_expect(run.want.size == 6 && memcmp(run.want.data, "logits", 6) == 0);
	begin(&b, &p, OP_head_wait, 0);
	cr_assert_eq(read_code(&b, OP_head_wait, &wait, &err), 0);
	cr_expect_eq(wait.wait_ms, PROTO_WAIT_MAX_MS);
	memset(&open, 0xa5, sizeof open);
	begin(&b, &p, OP_head_open, 0);
	cr_assert_eq(read_code(&b, OP_head_open, &open, &err), 0);
	cr_expect(!open.transpose && open.tile == 0 && open.tensor.size == 0);
	cr_expect(open.layout.size == 4 && memcmp(open.layout.data, "auto", 4) == 0);
}

Test(proto, unknown_fields_are_ignored_and_known_ones_beside_them_read)
{
	struct req_cancel cancel;
	msgpack_sbuffer b;
	msgpack_packer p;
	struct err err;

	begin(&b, &p, OP_cancel, 4);
	name(&p, "re"), msgpack_pack_nil(&p);
	name(&p, "req"), msgpack_pack_int(&p, 9);
	name(&p, "reqs"), msgpack_pack_array(&p, 1), msgpack_pack_map(&p, 0);
	name(&p, "re"), msgpack_pack_nil(&p);
	cr_assert_eq(read_code(&b, OP_cancel, &cancel, &err), 0, "%s", err.text);
	cr_expect_eq(cancel.req, 9);
}

Test(proto, twice_and_other_kinds_are_malformed)
{
	alignas(16) static char to[4096];
	msgpack_sbuffer b;
	msgpack_packer p;
	struct err err;

	begin(&b, &p, OP_cancel, 2);
	name(&p, "req"), msgpack_pack_int(&p, 1);
	name(&p, "req"), msgpack_pack_int(&p, 1);
	cr_expect_eq(read_code(&b, OP_cancel, to, &err), NPU_E_MALFORMED);
	cr_expect(strstr(err.text, "req"));

	begin(&b, &p, OP_cancel, 1);
	msgpack_pack_int(&p, 1), msgpack_pack_int(&p, 1);
	cr_expect_eq(read_code(&b, OP_cancel, to, &err), NPU_E_MALFORMED, "a name that is no str");

	begin(&b, &p, OP_cancel, 1);
	name(&p, "req"), msgpack_pack_int(&p, -1);
	cr_expect_eq(read_code(&b, OP_cancel, to, &err), NPU_E_MALFORMED);

	for (unsigned op = 0; op < OP_COUNT; op++)
		for (size_t i = 0; i < proto_ops[op].request.count; i++) {
			const struct proto_field *f = &proto_ops[op].request.fields[i];
			begin(&b, &p, op, 1);
			name(&p, f->name), msgpack_pack_nil(&p);
			cr_expect_eq(read_code(&b, op, to, &err), NPU_E_MALFORMED, "%s", f->name);
			cr_expect(strstr(err.text, f->name), "%s", err.text);
			begin(&b, &p, op, 1);
			name(&p, f->name);
			if (f->kind == KIND_str)
				msgpack_pack_bin_with_body(&p, "x", 1);
			else
				msgpack_pack_str_with_body(&p, "x", 1);
			cr_expect_eq(read_code(&b, op, to, &err), NPU_E_MALFORMED, "%s", f->name);
		}
}

Test(proto, what_is_over_its_bound_is_a_bad_value)
{
	alignas(16) static char to[4096];
	static char text[8192];
	msgpack_sbuffer b;
	msgpack_packer p;
	struct err err;

	memset(text, 't', sizeof text);
	for (unsigned op = 0; op < OP_COUNT; op++)
		for (size_t i = 0; i < proto_ops[op].request.count; i++) {
			const struct proto_field *f = &proto_ops[op].request.fields[i];
			bool number = f->kind == KIND_u64 && f->bound < UINT64_MAX;
			bool bytes = (f->kind == KIND_str || f->kind == KIND_bin) && f->bound < sizeof text;
			for (unsigned over = 0; (number || bytes) && over < 2; over++) {
				begin(&b, &p, op, 1);
				name(&p, f->name);
				if (number)
					msgpack_pack_uint64(&p, f->bound + over);
				else if (f->kind == KIND_str)
					msgpack_pack_str_with_body(&p, text, f->bound + over);
				else
					msgpack_pack_bin_with_body(&p, text, f->bound + over);
				cr_expect_eq(read_code(&b, op, to, &err), over ? NPU_E_BAD_VALUE : 0, "%s %s",
					     proto_ops[op].wire, f->name);
			}
		}
}

Test(proto, text_is_utf8_without_nul)
{
	static const struct {
		const char *at;
		size_t size;
		int code;
	} texts[] = {
		{"", 0, 0},
		{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, 0},
		{"a\0b", 3, NPU_E_BAD_VALUE},
		{"\xff", 1, NPU_E_BAD_VALUE},
		{"\xc3", 1, NPU_E_BAD_VALUE},
		{"\xc0\xaf", 2, NPU_E_BAD_VALUE},
		{"\xe0\x80\xaf", 3, NPU_E_BAD_VALUE},
		{"\xed\xa0\x80", 3, NPU_E_BAD_VALUE},
		{"\xf4\x90\x80\x80", 4, NPU_E_BAD_VALUE},
		{"\xf0\x80\x80\x80", 4, NPU_E_BAD_VALUE},
		{"\x80", 1, NPU_E_BAD_VALUE},
	};
	struct req_hello hello;
	msgpack_sbuffer b;
	msgpack_packer p;
	struct err err;

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		begin(&b, &p, OP_hello, 1);
		name(&p, "name"), msgpack_pack_str_with_body(&p, texts[i].at, texts[i].size);
		cr_expect_eq(read_code(&b, OP_hello, &hello, &err), texts[i].code, "text %zu", i);
	}
}

Test(proto, a_list_over_its_bound_and_a_row_that_is_no_map_are_refused)
{
	struct rep_clients clients;
	for (int which = 0; which < 2; which++) {
		cleanup(msgpack_sbuffer_destroy) msgpack_sbuffer b;
		msgpack_packer p;
		struct proto_in in;
		struct err err = {0};

		msgpack_sbuffer_init(&b);
		msgpack_packer_init(&p, &b, msgpack_sbuffer_write);
		msgpack_pack_array(&p, 3), msgpack_pack_int(&p, 1), msgpack_pack_int(&p, 0);
		msgpack_pack_map(&p, 1), name(&p, "clients"), msgpack_pack_array(&p, which ? 1 : 65);
		for (int i = 0; i < (which ? 1 : 65); i++)
			which ? msgpack_pack_int(&p, 1) : msgpack_pack_map(&p, 0);
		cr_assert_eq(proto_read_reply(&in, b.data, b.size, &err), 0, "%s", err.text);
		cr_expect_eq(proto_read_fields(&in, &proto_ops[OP_clients].reply, &clients, &err),
			     which ? NPU_E_MALFORMED : NPU_E_TOO_LARGE);
		proto_end(&in);
	}
}

Test(proto, an_envelope_of_another_shape_is_malformed_and_keeps_its_number)
{
	static const struct {
		const char *bytes;
		size_t size;
		uint64_t req;
	} requests[] = {
		{"\x01", 1, 0},
		{"\x90", 1, 0},
		{"\x80", 1, 0},
		{"\x93\x01\xa1x\x05", 5, 5},	     /* no fields */
		{"\x94\x01\xa1x\xff\x80", 6, 0},     /* a negative number */
		{"\x94\xa1x\xa1x\x05\x80", 7, 5},    /* major is text */
		{"\x94\x01\x01\x05\x80", 5, 5},	     /* op is a number */
		{"\x94\x01\xa1x\x05\x90", 6, 5},     /* fields are an array */
		{"\x94\x01\xc4\x01x\x05\x80", 7, 5}, /* op is bin */
	};
	struct proto_in in;
	struct err err;

	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
		cr_expect_eq(proto_read_request(&in, requests[i].bytes, requests[i].size, &err),
			     NPU_E_MALFORMED, "request %zu", i);
		cr_expect_eq(in.req, requests[i].req, "request %zu", i);
	}
	cr_expect_eq(proto_read_reply(&in, "\x93\x05\xff\x80", 4, &err), NPU_E_MALFORMED);
	cr_expect_eq(proto_read_reply(&in, "\x93\x05\xce\x80\x00\x00\x00\x80", 8, &err), NPU_E_MALFORMED);
	cr_expect_eq(proto_read_reply(&in, "\x93\x05\x00\xc0", 4, &err), NPU_E_MALFORMED);
}

Test(proto, a_refusal_comes_back_with_its_details)
{
	struct err said, heard;

	for (int detailed = 0; detailed < 2; detailed++) {
		cleanup(msgpack_sbuffer_destroy) msgpack_sbuffer b;
		msgpack_packer p;
		struct proto_in in;

		err_set(&said, NPU_E_BUSY, "too %s", "much");
		if (detailed) {
			said.detail = (struct err_detail){.needed = UINT64_MAX,
							  .limit = 2,
							  .depth = 3,
							  .retry_ms = 4,
							  .tensor = "lm_head.weight"};
			memset(said.detail.file, 'f', sizeof said.detail.file - 1);
		}
		msgpack_sbuffer_init(&b);
		msgpack_packer_init(&p, &b, msgpack_sbuffer_write);
		proto_write_error(&p, 12, &said);
		cr_assert_eq(proto_read_reply(&in, b.data, b.size, &heard), 0, "%s", heard.text);
		cr_expect_eq(in.req, 12);
		cr_expect_eq(in.code, NPU_E_BUSY);
		cr_expect_eq(proto_read_error(&in, &heard), NPU_E_BUSY);
		cr_expect_eq(heard.code, said.code);
		cr_expect_str_eq(heard.text, said.text);
		cr_expect_eq(heard.detail.needed, said.detail.needed);
		cr_expect_eq(heard.detail.limit, said.detail.limit);
		cr_expect_eq(heard.detail.depth, said.detail.depth);
		cr_expect_eq(heard.detail.retry_ms, said.detail.retry_ms);
		cr_expect_str_eq(heard.detail.file, said.detail.file);
		cr_expect_str_eq(heard.detail.tensor, said.detail.tensor);
		proto_end(&in);
	}
}

Test(proto, names_and_numbers_are_unique)
{
	static const int numbers[] = {
#define ERROR(number, name, class, sentence) number,
#include "errors.def"
#undef ERROR
	};
	size_t count = sizeof numbers / sizeof *numbers;

	for (unsigned i = 0; i < OP_COUNT; i++) {
		cr_expect_eq(proto_find(PROTO_STR(proto_ops[i].wire)), i);
		for (unsigned j = 0; j < i; j++)
			cr_expect_str_neq(proto_ops[i].wire, proto_ops[j].wire);
	}
	cr_expect_eq(proto_find(PROTO_STR("nothing")), OP_COUNT);
	cr_expect_eq(proto_find(PROTO_STR("")), OP_COUNT);
	for (size_t i = 0; i < count; i++) {
		cr_expect(numbers[i] > 0 && err_sentence(-numbers[i])[0] && err_name(-numbers[i])[0]);
		for (size_t j = 0; j < i; j++) {
			cr_expect_neq(numbers[i], numbers[j]);
			cr_expect_str_neq(err_name(-numbers[i]), err_name(-numbers[j]));
		}
	}
	cr_expect_str_eq(err_name(-999999), "INTERNAL");
	cr_expect_str_eq(err_name(0), "OK");
}

static void printed(const char *from, size_t size, size_t room, const char *want)
{
	char to[256];

	memset(to, '#', sizeof to);
	cr_expect_str_eq(err_printable(to, room, from, size), want);
	cr_expect_eq(to[room], '#');
}

Test(proto, printable_escapes_what_drives_a_terminal)
{
	printed("", 0, 64, "");
	printed("a\033[31mb", 7, 64, "a\\x1b[31mb");
	printed("a\nb\0c\x7f", 6, 64, "a\\x0ab\\x00c\\x7f");
	printed("\xc2\x9b", 2, 64, "\\xc2\\x9b");
	printed("\xc2\xa0\xc3\xa9\xf0\x9f\x98\x80", 8, 64, "\xc2\xa0\xc3\xa9\xf0\x9f\x98\x80");
	printed("\"\\'", 3, 64, "\\x22\\'");
	printed("\xff\xc3(\xed\xa0\x80", 6, 64, "\\xff\\xc3(\\xed\\xa0\\x80");
	printed("\xe2\x82", 2, 64, "\\xe2\\x82");
	printed("abcdefghij", 10, 8, "abcd...");
	printed("abcdefg", 7, 8, "abcdefg");
	printed("a\xe2\x82\xac\xe2\x82\xac", 7, 8, "a\xe2\x82\xac\xe2\x82\xac");
	printed("a\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", 10, 8, "a\xe2\x82\xac...");
	printed("a\xe2\x82\xac\xe2\x82\xac", 7, 7, "a...");
	printed("\033\033\033", 3, 10, "\\x1b...");
	for (size_t room = 1; room < 32; room++) {
		char to[64];
		memset(to, '#', sizeof to);
		err_printable(to, room, "\xe2\x82\xac\033\"\xe2\x82\xac\n\xe2\x82\xac", 12);
		cr_expect(strnlen(to, room) < room && err_is_utf8(to, strlen(to)), "room %zu", room);
		cr_expect_eq(to[room], '#', "room %zu", room);
	}
}

Test(proto, a_sentence_is_never_cut_in_the_middle_of_a_character)
{
	static const char *const characters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};

	for (size_t c = 0; c < sizeof characters / sizeof *characters; c++) {
		char many[600] = "";
		while (strlen(many) + 5 < sizeof many)
			strcat(many, characters[c]);
		for (size_t before = 0; before < 5; before++) {
			struct err err;
			err_set(&err, NPU_E_IO, "%.*s%s", (int)before, "----", many);
			size_t size = strlen(err.text), one = strlen(characters[c]);
			cr_expect(err_is_utf8(err.text, size), "%zu bytes a character, %zu before", one,
				  before);
			cr_expect(size + one >= sizeof err.text, "more was cut than one character: %zu",
				  size);
		}
	}
}

Test(proto, a_field_that_is_left_out_has_the_default_of_the_list_flags_too)
{
	struct req_head_open q;
	msgpack_sbuffer b;
	msgpack_packer p;
	struct err err;

	begin(&b, &p, OP_head_open, 0);
	cr_assert_eq(read_code(&b, OP_head_open, &q, &err), 0);
	cr_expect(q.store, "who says nothing may use the image store");
	cr_expect_not(q.transpose);
	cr_expect_eq(q.q8.size, 4);
}
