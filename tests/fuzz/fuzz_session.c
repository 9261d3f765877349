/*
 * Property: whatever requests a session makes, in whatever order, each is answered exactly once by what the
 * protocol has, and when its client has gone nothing of it is left. The input says which operations, and
 * which values the fields of ops.def take: handles that exist, extremes, defaults, and its own bytes.
 */
#include "indoors.h"
#include "proto.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { NV = 16, H = 8, REQUESTS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

struct input {
	const uint8_t *at;
	size_t left;
};

static uint8_t next(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

static struct proto_bytes next_bytes(struct input *in, size_t most)
{
	size_t size = next(in);
	if (size > in->left)
		size = in->left;
	if (size > most)
		size = most;
	struct proto_bytes b = {(const char *)in->at, size};
	in->at += size;
	in->left -= size;
	return b;
}

/* A model of one small matrix, or five bytes that are none. */
static void pass_file(struct session *s, bool good)
{
	static const char json[] =
		"{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[16,8],\"data_offsets\":[0,512]}}   ";
	unsigned char header[8] = {(sizeof json - 1) & 255}, weights[NV * H * 4];
	uint64_t number;
	struct err err;
	int fd = memfd_create("model", MFD_CLOEXEC);
	char path[64];

	memset(weights, 0x3c, sizeof weights);
	if (fd < 0 ||
	    (good && (write(fd, header, 8) != 8 || write(fd, json, sizeof json - 1) != sizeof json - 1 ||
		      write(fd, weights, sizeof weights) != sizeof weights)) ||
	    (!good && write(fd, "hello", 5) != 5))
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int reading = open(path, O_RDONLY | O_CLOEXEC);
	close(fd);
	if (reading < 0 || session_add_file(s, reading, "model", 5, 0, &number, &err))
		abort();
}

static uint64_t next_u64(struct input *in, uint64_t bound)
{
	uint8_t how = next(in);
	if (how < 224)
		return how % 32; /* handles, counts */
	return how < 240 ? bound : how < 248 ? bound + 1 : (uint64_t)next(in) << (how & 7) * 8;
}

static void write_value(msgpack_packer *p, const struct proto_field *f, struct input *in)
{
	static const char activations[256 * H * 4];
	uint8_t how = next(in);
	struct proto_bytes b;

	if (how > 250) { /* of another kind */
		msgpack_pack_array(p, 2);
		msgpack_pack_nil(p);
		msgpack_pack_int(p, -1);
		return;
	}
	switch (f->kind) {
	case KIND_u64:
		msgpack_pack_uint64(p, next_u64(in, f->bound));
		break;
	case KIND_f64:
		msgpack_pack_double(p, how / 16.0);
		break;
	case KIND_flag:
		(how & 1 ? msgpack_pack_true : msgpack_pack_false)(p);
		break;
	case KIND_str: {
		static const char *const known[] = {"logits",	      "top-k",	   "argmax",
						    "blocked",	      "row-major", "auto",
						    "lm_head.weight", "0",	   "-1"};
		b = how & 1 ? PROTO_STR(known[how / 2 % (sizeof known / sizeof *known)]) : next_bytes(in, 64);
		msgpack_pack_str_with_body(p, b.data, b.size);
		break;
	}
	case KIND_bin:
		b = how & 1 ? (struct proto_bytes){activations, (how / 2 % 4 + 1) * H * 4}
			    : next_bytes(in, 64);
		msgpack_pack_bin_with_body(p, b.data, b.size);
		break;
	case KIND_list:
		msgpack_pack_array(p, how % 4);
		for (unsigned i = 0; i < how % 4; i++) {
			msgpack_pack_map(p, f->row->count);
			for (size_t k = 0; k < f->row->count; k++) {
				const struct proto_field *of = &f->row->fields[k];
				msgpack_pack_str_with_body(p, of->name, strlen(of->name));
				write_value(p, of, in);
			}
		}
		break;
	}
}

static void ask(struct session *s, enum proto_op_id op, uint64_t req, struct input *in)
{
	const struct proto_message *m = &proto_ops[op].request;
	msgpack_sbuffer out;
	msgpack_packer p;
	uint8_t which = next(in),
		damage = next(in); /* fields that are there; a byte that is not as it should be */

	msgpack_sbuffer_init(&out);
	msgpack_packer_init(&p, &out, msgpack_sbuffer_write);
	msgpack_pack_array(&p, 4);
	msgpack_pack_int(&p, damage == 255 ? 2 : 1);
	msgpack_pack_str_with_body(&p, proto_ops[op].wire, strlen(proto_ops[op].wire));
	msgpack_pack_uint64(&p, req);
	size_t count = 0;
	for (size_t i = 0; i < m->count; i++)
		count += !(which >> (i & 7) & 1);
	msgpack_pack_map(&p, count);
	for (size_t i = 0; i < m->count; i++) {
		if (which >> (i & 7) & 1)
			continue;
		msgpack_pack_str_with_body(&p, m->fields[i].name, strlen(m->fields[i].name));
		write_value(&p, &m->fields[i], in);
	}
	if (damage >= 240 && damage < 255)
		out.data[next(in) % out.size] ^= (char)damage;
	indoors_ask(s, out.data, out.size);
	msgpack_sbuffer_destroy(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (size == 0)
		return 0;
	struct input in = {bytes, size};
	uint8_t begin = next(&in);
	struct session *s = indoors_session(begin & 1);
	struct input none = {bytes, 0};

	if (begin & 2)
		ask(s, OP_hello, 0, &none);
	pass_file(s, true);
	pass_file(s, false);
	for (unsigned i = 1; i <= REQUESTS && in.left; i++) {
		uint8_t op = next(&in);
		if (op >= 192)
			indoors_turn();
		else
			ask(s, op % OP_COUNT, begin & 4 ? i : i % 4, &in);
	}
	indoors_close(s);
	return 0;
}
