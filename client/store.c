#include "client.h"
#include "own.h"
#include <string.h>

#define CHORE_MS (60 * 60 * 1000) /* what a slow disk may take over a whole store */

/* As client_ask, of what takes as long as the disk does. */
static int ask_patiently(npu_client *c, enum proto_op_id op, const void *request, void *reply,
			 struct answer *a)
{
	return call(&c->connection, op, request, (struct call_options){.timeout_ms = CHORE_MS}, reply, a,
		    client_err());
}

static void read_store(struct npu_store *to, const struct rep_store_list *p)
{
	*to = (struct npu_store){
		.max_bytes = p->max_bytes,
		.heads = p->count,
		.bytes = p->bytes,
		.superseded_bytes = p->superseded_bytes,
		.file_bytes = p->file_bytes,
		.free_bytes = p->free_bytes,
		.hits = p->hits,
		.misses = p->misses,
		.written = p->written,
		.write_failures = p->write_failures,
		.copied_bytes = p->copied_bytes,
	};
	call_copy(to->off, sizeof to->off, p->off);
	call_copy(to->path, sizeof to->path, p->path);
	call_copy(to->moved, sizeof to->moved, p->moved);
	call_copy(to->refused, sizeof to->refused, p->refused);
}

static int give_stored(const struct row_stored *from,
		       int (*each)(void *arg, const struct npu_stored_row *row), void *arg)
{
	char hash[33], label[129], tensor[129], layout[17];
	struct npu_stored_row row = {
		.kpad = from->kpad,
		.tile = from->tile,
		.tiles = from->tiles,
		.columns = from->columns,
		.bytes = from->bytes,
		.hits = from->hits,
		.created_ms = from->created_ms,
		.used_ms = from->used_ms,
		.superseded = from->superseded,
		.resident = from->resident,
		.hash = hash,
		.label = label,
		.tensor = tensor,
		.layout = layout,
	};
	memcpy(row.key, from->key.data, sizeof row.key);
	call_copy(hash, sizeof hash, from->hash);
	call_copy(label, sizeof label, from->label);
	call_copy(tensor, sizeof tensor, from->tensor);
	call_copy(layout, sizeof layout, from->layout);
	return each(arg, &row);
}

NPU_API int npu_store_list(npu_client *c, struct npu_store *out,
			   int (*each)(void *arg, const struct npu_stored_row *row), void *arg)
{
	unsigned char last[sizeof((struct npu_stored_row *)0)->key] = {0};
	struct req_store_list q = {};
	int r = client_usable(c);

	for (bool more = true, first = true; r == 0 && more; first = false) {
		struct rep_store_list p = {};
		cleanup(answer_fini) struct answer a = {};
		r = client_ask(c, OP_store_list, &q, &p, &a);
		if (r)
			return r;
		if (first)
			read_store(out, &p);
		const struct row_stored *rows = p.heads.rows;
		for (size_t i = 0; each && r == 0 && i < p.heads.count; i++) {
			/* Keys rise, or this would be asked for without end. */
			if (rows[i].key.size != sizeof last ||
			    ((q.after.size || i) && memcmp(rows[i].key.data, last, sizeof last) <= 0))
				return err_set(client_err(), NPU_E_MALFORMED,
					       "store.list: the rows are not in the order of their keys");
			memcpy(last, rows[i].key.data, sizeof last);
			r = give_stored(&rows[i], each, arg);
		}
		q.after = (struct proto_bytes){(const char *)last, sizeof last};
		more = each && p.more && p.heads.count > 0;
	}
	return r;
}

NPU_API int npu_store_show(npu_client *c, const unsigned char key[25],
			   int (*each)(void *arg, const struct npu_stored_tile_row *row), void *arg)
{
	struct req_store_show q = {.key = {(const char *)key, 25}};
	int r = client_usable(c);

	if (r == 0 && (!key || !each))
		return err_set(client_err(), NPU_E_BAD_VALUE, "npu_store_show: key and each must be given");
	for (bool more = true; r == 0 && more;) {
		struct rep_store_show p = {};
		cleanup(answer_fini) struct answer a = {};
		r = client_ask(c, OP_store_show, &q, &p, &a);
		if (r)
			return r;
		const struct row_stored_tile *rows = p.tiles.rows;
		for (size_t i = 0; r == 0 && i < p.tiles.count; i++) {
			char fingerprint[17];
			const struct npu_stored_tile_row row = {
				.number = rows[i].number,
				.there = rows[i].there,
				.columns = rows[i].columns,
				.chunks = rows[i].chunks,
				.nonfinite = rows[i].nonfinite,
				.created_ms = rows[i].created_ms,
				.fingerprint = fingerprint,
			};
			call_copy(fingerprint, sizeof fingerprint, rows[i].fingerprint);
			r = client_rises("store.show", &q.after, row.number);
			if (r == 0)
				r = each(arg, &row);
		}
		more = p.more && p.tiles.count > 0;
	}
	return r;
}

NPU_API int npu_store_read(npu_client *c, const unsigned char key[25], uint32_t tile, uint32_t piece,
			   void *to, size_t *size, bool *scales)
{
	struct req_store_read q = {.key = {(const char *)key, 25}, .tile = tile, .piece = piece};
	struct rep_store_read p = {};
	cleanup(answer_fini) struct answer a = {};
	int r = client_usable(c);

	if (r == 0 && (!key || !to || !size || !scales))
		return err_set(client_err(), NPU_E_BAD_VALUE,
			       "npu_store_read: key, to, size and scales must be given");
	if (r == 0)
		r = ask_patiently(c, OP_store_read, &q, &p, &a);
	if (r)
		return r;
	if (p.payload.size > NPU_STORE_PIECE || !p.payload.size)
		return err_set(client_err(), NPU_E_MALFORMED, "store.read: a piece of %zu bytes",
			       p.payload.size);
	memcpy(to, p.payload.data, p.payload.size);
	*size = p.payload.size;
	*scales = p.scales;
	return 0;
}

static int give_bad(const struct proto_list *list,
		    int (*bad)(void *arg, const struct npu_stored_bad_row *row), void *arg)
{
	const struct row_stored_bad *rows = list->rows;
	int r = 0;

	for (size_t i = 0; bad && r == 0 && i < list->count; i++) {
		char hash[33], label[129], reason[33], text[300];
		const struct npu_stored_bad_row row = {
			.tile = rows[i].tile,
			.removed = rows[i].removed,
			.hash = hash,
			.label = label,
			.reason = reason,
			.text = text,
		};
		call_copy(hash, sizeof hash, rows[i].hash);
		call_copy(label, sizeof label, rows[i].label);
		call_copy(reason, sizeof reason, rows[i].reason);
		call_copy(text, sizeof text, rows[i].text);
		r = bad(arg, &row);
	}
	return r;
}

NPU_API int npu_store_verify(npu_client *c, bool remove, struct npu_store_verified *done,
			     int (*bad)(void *arg, const struct npu_stored_bad_row *row),
			     int (*progress)(void *arg, const struct npu_store_verified *done), void *arg)
{
	struct req_store_verify q = {.remove = remove};
	struct npu_store_verified sums = {0};
	char at[29];
	int r = client_usable(c);

	for (bool more = true; r == 0 && more;) {
		struct rep_store_verify p = {};
		cleanup(answer_fini) struct answer a = {};
		r = ask_patiently(c, OP_store_verify, &q, &p, &a);
		if (r)
			return r;
		more = p.more;
		if (more &&
		    (p.at.size != sizeof at || (q.after.size && memcmp(p.at.data, at, sizeof at) <= 0)))
			return err_set(client_err(), NPU_E_MALFORMED,
				       "store.verify: the answer does not get any further");
		if (more)
			memcpy(at, p.at.data, sizeof at);
		q.after = (struct proto_bytes){at, sizeof at};
		sums.tiles += p.tiles;
		sums.bytes += p.bytes;
		sums.bad += p.bad.count;
		r = give_bad(&p.bad, bad, arg);
		if (r == 0 && progress)
			r = progress(arg, &sums);
	}
	if (r == 0 && done)
		*done = sums;
	return r;
}

NPU_API int npu_store_prune(npu_client *c, bool superseded, uint64_t *heads, uint64_t *bytes)
{
	struct req_store_prune q = {.superseded = superseded};
	struct rep_store_prune p = {};
	cleanup(answer_fini) struct answer a = {};
	int r = client_usable(c);

	if (r == 0)
		r = ask_patiently(c, OP_store_prune, &q, &p, &a);
	if (r)
		return r;
	*heads = p.heads;
	*bytes = p.bytes;
	return 0;
}

NPU_API int npu_store_compact(npu_client *c, uint64_t *before, uint64_t *after)
{
	struct req_store_compact q = {};
	struct rep_store_compact p = {};
	cleanup(answer_fini) struct answer a = {};
	int r = client_usable(c);

	if (r == 0)
		r = ask_patiently(c, OP_store_compact, &q, &p, &a);
	if (r)
		return r;
	*before = p.before;
	*after = p.after;
	return 0;
}
