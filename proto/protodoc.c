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

static void print_introduction(void)
{
	printf("# The protocol of npud, version %u.%u\n\n", PROTO_MAJOR, PROTO_MINOR);
	printf("<!-- Printed by npud-protodoc from proto/ops.def and proto/errors.def; do not edit. -->\n\n");
	puts("NNG REQ/REP over `ipc://SOCKET`, one MessagePack value a message:\n\n"
	     "```\n"
	     "request   [ major, \"op.name\", req, { field: value, ... } ]\n"
	     "reply     [ req, 0, { field: value, ... } ]\n"
	     "          [ req, code, { \"error\": NAME, \"message\": sentence, \"detail\": { ... } } ]\n"
	     "```\n");
	puts("SOCKET is `$NPUD_SOCKET`, or the first of these that accepts:\n"
	     "`$XDG_RUNTIME_DIR/npud/npud.sock`, `/run/user/UID/npud/npud.sock`,\n"
	     "`/tmp/npud-UID/npud.sock`, `/run/npud/npud.sock`.\n");
	puts("`req` is the client's own counter, and comes back with the answer; 0 where the request\n"
	     "could not be read. The first request of a connection is `hello`; until then any other\n"
	     "is answered HELLO_FIRST (NNG reconnects silently, so a client says hello again when it\n"
	     "sees that). What a session has (files, heads, weights, waits) ends with its\n"
	     "connection, but tickets: their tokens find them again. The token that hello answers,\n"
	     "not the number, tells sessions apart: a daemon that restarts counts from 1.\n");
	puts("A client sets its resend time to infinite, or a long request is run twice. Operations\n"
	     "whose repeat is answered from the cache are known by (user, nonce of hello, req):\n"
	     "asked again with the same number, on a new connection too, they are not done again. A\n"
	     "client counts `req` on over its connections.\n");
	puts("Requests of a connection may be in flight together, as many as hello tells, in several\n"
	     "contexts of one NNG socket; each is answered when it is done. `cancel` has one\n"
	     "answered CANCELLED. One too many of anything that is limited is answered BUSY at once:\n"
	     "`detail` has how many there are (`depth`), the `limit` and when to ask again\n"
	     "(`retry_ms`). Who does not read answers is disconnected.\n");
	puts("Of fields:\n");
	puts("- u64 is an unsigned integer of any width, f64 a float of either (never an integer),\n"
	     "  str UTF-8 without NUL, list an array of maps. Another kind is MALFORMED, as is a\n"
	     "  field that is there twice; a value beyond what the tables allow is BAD_VALUE, and a\n"
	     "  list with too many rows TOO_LARGE.\n"
	     "- Unknown ones are ignored, missing ones take the default. A reply has all of its own\n"
	     "  but those of `detail`, where missing means 0 or empty. Bulk is `bin`, little-endian,\n"
	     "  row after row.\n"
	     "- `wait_ms`: what takes longer is answered as it is by then (not `ready`, no events, a\n"
	     "  ticket of the same `version`), which is no error: ask again.\n"
	     "- `after`, `more`: a list comes in pages. While `more` is true ask again, `after` the\n"
	     "  last row.\n");
	printf("Limits: request %u bytes, reply %u bytes, %u rows a run, %u values and depth %u a message\n"
	       "outside of `bin`, no extension types.\n\n",
	       PROTO_REQUEST_MAX, PROTO_REPLY_MAX, PROTO_ROWS_MAX, PROTO_ITEMS_MAX, PROTO_DEPTH_MAX);
	puts("# Files\n");
	puts("The side socket is `SOCKET.fd`, SOCK_SEQPACKET, with the same envelope: one request\n"
	     "(`file.pass`) a packet, its descriptor as SCM_RIGHTS, one reply a packet; any number\n"
	     "of them, each within 5 s of the last. One connection too many is answered BUSY, with\n"
	     "req 0, when it is made. A descriptor that comes along the main socket ends the\n"
	     "connection. What is on a FUSE file system that a user mounted is BAD_VALUE. Who cannot\n"
	     "pass a descriptor sends the bytes: `upload.begin`, `upload.put` in order until all\n"
	     "have gone, `upload.end`.\n");
	puts("A model of several files is several of them, each after the first with `of`, the\n"
	     "handle of the first: the weights first, shards in their order, then side files such as\n"
	     "config.json. `head.open` and `weights.load` copy the descriptors; the files may be\n"
	     "closed then.\n");
	puts("# Tickets\n");
	puts("`ticket.request` is answered at once: `offered`, or `queued`, and then `ticket.wait`\n"
	     "with the last `version` tells each change. What is offered is taken by\n"
	     "`ticket.confirm` with its `number`, within 5 s, or it lapses and the ticket is queued\n"
	     "again. A `granted` ticket ends by `ticket.release`, or at its end (`expiring`, for its\n"
	     "grace), or with its client's connection, unless that is back in time and asks for the\n"
	     "ticket with its token. Sessions whose `hello` had the ticket and its token work under\n"
	     "it.\n");
	puts("# Without NNG\n");
	puts("SOCKET is a stream socket. Each side first sends 8 bytes, a client `00 53 50 00 00 30\n"
	     "00 00`, npud `00 53 50 00 00 31 00 00`, and then frames: a byte `01`; the number of\n"
	     "bytes that follow, 8 bytes, big-endian; 4 bytes of the client's choice of which the\n"
	     "highest bit is set, and which come back with the answer; the message. A frame above\n"
	     "the limit, or of another form, ends the connection. This is `[1, \"hello\", 1, {\"name\":\n"
	     "\"x\"}]`:\n");
	puts("```\n"
	     "01 0000000000000015 80000001 94 01 a5 68656c6c6f 01 81 a4 6e616d65 a1 78\n"
	     "```\n");
	puts("# Operations\n");
}

int main(void)
{
	static const char *const access[] = {"the first request of a connection", "after hello",
					     "after hello, administrators only", "on the side socket"};

	print_introduction();
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
	puts("After a refusal of class REPLY the session goes on; FATAL is for the daemon itself, when it "
	     "starts. The\n"
	     "sentence says what, why, and what to do.\n");
	printf("| code | name | class | meaning |\n| --- | --- | --- | --- |\n");
#define ERROR(number, name, class, sentence) \
	printf("| %d | %s | %s | %s |\n", number, #name, #class, sentence);
#include "errors.def"
#undef ERROR
	return 0;
}
