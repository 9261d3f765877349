/* Prints docs/protocol.md from the lists: the envelope, every operation, every error. */
#include "proto.h"
#include <stdio.h>

static void print_message(const char *title, const struct proto_message *m)
{
	static const char *const kinds[] = {"u64", "f64", "bool", "str", "bin", "list"};

	if (m->count == 0) {
		printf("%s: no fields.\n\n", title);
		return;
	}
	printf("%s:\n\n| field | kind | at most | if missing | meaning |\n| --- | --- | --- | --- | --- |\n",
	       title);
	for (size_t i = 0; i < m->count; i++) {
		const struct proto_field *f = &m->fields[i];
		const char *unit = f->kind == KIND_list ? " rows" : f->kind == KIND_u64 ? "" : " bytes";
		printf("| `%s` | %s | ", f->name, kinds[f->kind]);
		if (f->kind == KIND_f64 || f->kind == KIND_flag)
			printf("-");
		else if (f->bound == UINT64_MAX || f->bound == UINT32_MAX)
			printf("2^%d - 1%s", f->bound == UINT64_MAX ? 64 : 32, unit);
		else
			printf("%llu%s", (unsigned long long)f->bound, unit);
		const char *def = f->def[0] ? f->def : "empty";
		if (f->kind == KIND_flag)
			def = f->def[0] == '1' ? "true" : "false";
		printf(" | %s | %s |\n", def, f->doc);
	}
	printf("\n");
	for (size_t i = 0; i < m->count; i++)
		if (m->fields[i].kind == KIND_list)
			print_message("A row", m->fields[i].row);
}

int main(void)
{
	static const char *const access[] = {"the first request of a connection", "after hello",
					     "after hello, administrators only", "on the side socket"};

	printf("# The protocol of npud, version %u.%u\n\n", PROTO_MAJOR, PROTO_MINOR);
	printf("<!-- Printed by npud-protodoc from proto/ops.def and proto/errors.def; do not edit. -->\n\n");
	printf("NNG REQ/REP over `ipc://SOCKET`, one MessagePack value a message:\n\n"
	       "```\n"
	       "request   [ major, \"op.name\", req, { field: value, ... } ]\n"
	       "reply     [ req, 0, { field: value, ... } ]\n"
	       "          [ req, code, { \"error\": NAME, \"message\": sentence, \"detail\": { ... } } ]\n"
	       "```\n\n"
	       "`req` is the client's own counter. The first request of a connection is `hello`; until then "
	       "any other\n"
	       "is answered HELLO_FIRST (NNG reconnects silently, so a client says hello again when it sees "
	       "that).\n"
	       "Unknown fields are ignored, missing ones take the default. Bulk numbers are `bin`, "
	       "little-endian.\n"
	       "A client sets its resend time to infinite, or a long request is run twice. Operations whose "
	       "repeat is answered\n"
	       "from the cache are known by (user, nonce of hello, req): asked again with the same number, "
	       "on a "
	       "new connection\n"
	       "too, they are not done again. A client counts `req` on over its connections.\n\n"
	       "Limits: request %u bytes, reply %u bytes, %u rows a run, %u values and depth %u a message "
	       "outside of\n"
	       "`bin`, no extension types.\n\n",
	       PROTO_REQUEST_MAX, PROTO_REPLY_MAX, PROTO_ROWS_MAX, PROTO_ITEMS_MAX, PROTO_DEPTH_MAX);
	printf("The side socket is `SOCKET.fd`, SOCK_SEQPACKET, with the same envelope: one request a "
	       "packet, its\n"
	       "descriptor as SCM_RIGHTS, one reply a packet. A client that cannot pass a descriptor\n"
	       "sends the bytes: `upload.begin`, `upload.put` until all have gone, `upload.end`.\n\n"
	       "# Operations\n\n");
	for (unsigned i = 0; i < OP_COUNT; i++) {
		const struct proto_op *op = &proto_ops[i];
		printf("## %s\n\n%s (%s%s)\n\n", op->wire, op->doc, access[op->access],
		       op->repeat == REPEAT_ONCE ? "; a repeat is answered from the cache" : "");
		print_message("Request", &op->request);
		print_message("Reply", &op->reply);
	}
	printf("# Events\n\n| kind | what it is about |\n| --- | --- |\n");
#define E(kind, name, doc) printf("| %s | %s |\n", name, doc);
	EVENT_KINDS(E)
#undef E
	printf("\n# Errors\n\n");
	print_message("Details of an error, each only where it has something to say", &proto_detail_message);
	printf("| code | name | class | meaning |\n| --- | --- | --- | --- |\n");
#define ERROR(number, name, class, sentence) \
	printf("| %d | %s | %s | %s |\n", number, #name, #class, sentence);
#include "errors.def"
#undef ERROR
	return 0;
}
