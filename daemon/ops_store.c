/*
 * The operations on the image store. What is short is read on the loop; what reads or writes much is a job of
 * the filing's writer, so that it takes its turn with the writing of heads, at low priority.
 */
#include "objects.h"
#include "own.h"
#include "request.h"
#include <stdio.h>
#include <string.h>

#define PAGE 64u			 /* rows of an answer */
#define STEP_BYTES (UINT64_C(256) << 20) /* hashed for one answer */
#define STEP_TILES 4096u
#define BAD_MAX 16u
#define FOR_EVER (UINT64_MAX / 2) /* the client's own limit ends it */

static int store_of(struct imagestore **out, const struct server *s, struct err *err)
{
	*out = s->filing.store;
	if (*out)
		return 0;
	return err_set(err, NPU_E_IO, "there is no image store, heads are packed every time: %s",
		       s->filing.off);
}

static bool is_resident(const struct head_key *keys, size_t count, const struct head_key *key)
{
	for (size_t i = 0; i < count; i++)
		if (keys[i].kd == key->kd && keys[i].nd == key->nd && keys[i].layout == key->layout &&
		    memcmp(keys[i].hash, key->hash, sizeof key->hash) == 0)
			return true;
	return false;
}

/* A row, and what it points into. */
struct shown {
	struct record_head key;
	char hash[33];
};

static struct row_stored row_of(struct shown *to, const struct stored_head *h, bool resident)
{
	record_head_key(&to->key, &h->key);
	return (struct row_stored){
		.key = {(const char *)&to->key, sizeof to->key},
		.hash = PROTO_STR(hash_hex(to->hash, h->key.hash)),
		.label = PROTO_STR(h->label),
		.tensor = PROTO_STR(h->tensor),
		.layout = PROTO_STR(layout_name(h->key.layout)),
		.kpad = h->key.kd,
		.tile = h->key.nd,
		.tiles = h->tiles,
		.columns = h->columns,
		.bytes = h->bytes,
		.hits = h->hits,
		.created_ms = h->created_us / 1000,
		.used_ms = h->used_us / 1000,
		.superseded = h->superseded,
		.resident = resident,
	};
}

/* "reason count" lines of the reasons there were. */
static const char *refusals(char *to, size_t room, const struct imagestore_stat *stat)
{
	size_t used = 0;
	to[0] = '\0';
	for (int i = 0; i < REFUSED_COUNT; i++)
		if (stat->refused[i] && used < room)
			used += (size_t)snprintf(to + used, room - used, "%s%s %llu", used ? "\n" : "",
						 refusal_name(i), (unsigned long long)stat->refused[i]);
	return to;
}

int on_store_list(struct request *r, const struct req_store_list *q, struct rep_store_list *a,
		  struct err *err)
{
	const struct server *s = r->server;
	struct stored_head heads[PAGE + 1];
	struct row_stored rows[PAGE];
	struct shown shown[PAGE];
	struct imagestore_stat stat = {};
	struct head_key after;
	struct imagestore *store;
	char refused[512];
	size_t n = 0, count;

	if (store_of(&store, s, err)) {
		a->off = PROTO_STR(s->filing.off);
		request_reply(r, a);
		return LATER;
	}
	if (q->after.size && q->after.size != sizeof(struct record_head))
		return err_set(err, NPU_E_BAD_VALUE, "after is no key of a row");
	if (q->after.size)
		record_head_unkey(&after, (const struct record_head *)q->after.data);
	int result = imagestore_heads(store, q->after.size ? &after : NULL, heads, PAGE + 1, &n, err);
	if (result == 0)
		result = imagestore_stat(store, &stat, err);
	if (result)
		return result;
	cleanup(freep) struct head_key *resident = filing_resident(s, &count);
	if (!resident)
		return err_set(err, NPU_E_NO_MEMORY, "no memory to list the image store");
	a->more = n > PAGE;
	n = a->more ? PAGE : n;
	for (size_t i = 0; i < n; i++)
		rows[i] = row_of(&shown[i], &heads[i], is_resident(resident, count, &heads[i].key));
	a->path = PROTO_STR(imagestore_path(store));
	a->moved = PROTO_STR(imagestore_moved(store));
	a->max_bytes = s->config.store_bytes;
	a->bytes = stat.bytes;
	a->superseded_bytes = stat.superseded_bytes;
	a->file_bytes = stat.file_bytes;
	a->free_bytes = stat.free_bytes;
	a->copied_bytes = stat.copied_bytes;
	a->count = stat.heads;
	a->hits = stat.hits;
	a->misses = stat.misses;
	a->written = stat.written;
	a->write_failures = stat.write_failures;
	a->refused = PROTO_STR(refusals(refused, sizeof refused, &stat));
	a->heads = (struct proto_list){rows, n};
	request_reply(r, a); /* here, for the rows are ours */
	return LATER;
}

int on_store_show(struct request *r, const struct req_store_show *q, struct rep_store_show *a,
		  struct err *err)
{
	struct row_stored_tile rows[PAGE];
	char prints[PAGE][17];
	struct stored_head head;
	struct head_key key;
	struct imagestore *store;
	size_t n = 0;

	int result = store_of(&store, r->server, err);
	if (result)
		return result;
	if (q->key.size != sizeof(struct record_head))
		return err_set(err, NPU_E_BAD_VALUE, "key is no key of a row of store.list");
	record_head_unkey(&key, (const struct record_head *)q->key.data);
	result = imagestore_head(store, &key, &head, err);
	if (result)
		return result;
	for (uint64_t t = q->after; t < head.tiles; t++) {
		struct record_header h;
		if (n == PAGE) {
			a->more = true;
			break;
		}
		rows[n] = (struct row_stored_tile){.number = t + 1};
		if (imagestore_tile(store, &key, (uint32_t)t, &h) == IMAGE_HIT) {
			snprintf(prints[n], sizeof prints[n], "%016llx", (unsigned long long)h.fingerprint);
			rows[n].there = true;
			rows[n].columns = h.columns;
			rows[n].chunks = h.chunks;
			rows[n].nonfinite = h.nonfinite;
			rows[n].created_ms = h.created < UINT64_MAX / 1000 ? h.created * 1000 : 0;
			rows[n].fingerprint = PROTO_STR(prints[n]);
		}
		n++;
	}
	a->tiles = (struct proto_list){rows, n};
	request_reply(r, a); /* here, for the rows are ours */
	return LATER;
}

struct bad {
	struct shown shown;
	struct stored_head head;
	uint32_t tile;
	struct refusal why;
	bool removed;
};

/* A request that the writer's thread does the work of; its client may be gone when it is done. */
struct chore {
	struct writer_job job;
	struct server *server;
	struct link waiters; /* the request, unless it is gone */
	int (*act)(struct chore *c, const atomic_bool *stop);
	void (*answer)(const struct chore *c, struct request *r);
	struct head_key *spared; /* what is resident; made right before the work */
	size_t spared_count;
	struct err err;
	int result;
	bool begun;

	bool superseded;	       /* prune: only those */
	bool remove;		       /* verify: heads with bad tiles go */
	struct record_tile at;	       /* verify: the last tile that was looked at */
	bool from_start, ended;	       /* verify: `at` is not set; there are no more */
	uint64_t tiles, heads;	       /* verify; prune */
	uint64_t bytes, before, after; /* verify, prune; compact */
	struct bad bad[BAD_MAX];       /* verify */
	size_t bad_count;
	struct head_key key; /* read */
	uint32_t tile, piece, length;
	bool scales;
	char *payload; /* owned */
};

static void chore_prepare(struct writer_job *job)
{
	struct chore *c = link_of(job, struct chore, job);
	c->spared = filing_resident(c->server, &c->spared_count);
}

static void chore_work(struct writer_job *job, const atomic_bool *stop)
{
	struct chore *c = link_of(job, struct chore, job);
	c->begun = true;
	c->result = c->spared ? c->act(c, stop)
			      : err_set(&c->err, NPU_E_NO_MEMORY, "no memory to look at the image store");
}

static void chore_done(struct writer_job *job)
{
	struct chore *c = link_of(job, struct chore, job);

	if (!c->begun)
		c->result = err_set(&c->err, NPU_E_SHUTDOWN, "npud is shutting down");
	while (!link_empty(&c->waiters)) {
		struct request *r = link_of(c->waiters.next, struct request, in_waiters);
		if (c->result)
			request_fail(r, &c->err);
		else
			c->answer(c, r);
	}
	for (size_t i = 0; i < c->bad_count; i++)
		if (c->bad[i].removed)
			filing_removed(c->server, &c->bad[i].head.key);
	free(c->spared);
	free(c->payload);
	free(c);
}

/* Takes `c` (NULL: there was no memory). Returns what the handler returns. */
static int chore_begin(struct chore *c, struct request *r, struct err *err)
{
	struct imagestore *store;
	int result = c ? store_of(&store, r->server, err)
		       : err_set(err, NPU_E_NO_MEMORY, "no memory to look at the image store");

	if (result) {
		if (c)
			free(c->payload);
		free(c);
		return result;
	}
	c->job = (struct writer_job){.prepare = chore_prepare, .work = chore_work, .done = chore_done};
	c->server = r->server;
	link_init(&c->waiters);
	request_wait(r, &c->waiters, FOR_EVER, NULL);
	writer_add(&r->server->filing.writer, &c->job);
	return LATER;
}

/* The tile after c->at, and its head. False at the end, or with c->result. */
static bool next_tile(struct chore *c, struct stored_head *head, uint32_t *tile)
{
	struct imagestore *store = c->server->filing.store;
	struct head_key key;
	struct err ignored;
	size_t n = 0;

	if (!c->from_start) {
		const unsigned char *b = c->at.tile;
		record_head_unkey(&key, &c->at.head);
		*tile = ((uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]) + 1;
		if (*tile && imagestore_head(store, &key, head, &ignored) == 0 && *tile < head->tiles)
			return true;
	}
	*tile = 0;
	c->result = imagestore_heads(store, c->from_start ? NULL : &key, head, 1, &n, &c->err);
	return n == 1;
}

/* Tiles after c->at, as many as one answer is to wait for. */
static int verify(struct chore *c, const atomic_bool *stop)
{
	struct imagestore *store = c->server->filing.store;
	struct stored_head head;
	uint32_t tile;

	for (unsigned n = 0;
	     n < STEP_TILES && c->bytes < STEP_BYTES && c->bad_count < BAD_MAX && !atomic_load(stop); n++) {
		if (!next_tile(c, &head, &tile)) {
			c->ended = true;
			return c->result;
		}
		record_tile_key(&c->at, &head.key, tile);
		c->from_start = false;
		uint64_t share = head.tiles ? head.bytes / head.tiles : head.bytes;
		struct bad *bad = &c->bad[c->bad_count];
		enum image_result found = imagestore_verify(store, &head.key, tile, &bad->why);
		c->tiles += found != IMAGE_MISS;
		c->bytes += share;
		if (found != IMAGE_REFUSED)
			continue;
		bad->head = head;
		bad->tile = tile;
		c->bad_count++;
		if (!c->remove)
			continue;
		int r = imagestore_remove(store, &head.key, &c->err);
		if (r)
			return r;
		bad->removed = true;
	}
	return 0;
}

static void answer_verify(const struct chore *c, struct request *r)
{
	struct row_stored_bad rows[BAD_MAX];
	struct rep_store_verify a = {.tiles = c->tiles, .bytes = c->bytes, .more = !c->ended};
	char hashes[BAD_MAX][33];

	for (size_t i = 0; i < c->bad_count; i++) {
		const struct bad *b = &c->bad[i];
		rows[i] = (struct row_stored_bad){
			.hash = PROTO_STR(hash_hex(hashes[i], b->head.key.hash)),
			.label = PROTO_STR(b->head.label),
			.tile = b->tile,
			.reason = PROTO_STR(refusal_name(b->why.reason)),
			.text = PROTO_STR(b->why.text),
			.removed = b->removed,
		};
	}
	a.at = (struct proto_bytes){(const char *)&c->at, c->from_start ? 0 : sizeof c->at};
	a.bad = (struct proto_list){rows, c->bad_count};
	request_reply(r, &a);
}

int on_store_verify(struct request *r, const struct req_store_verify *q, struct rep_store_verify *a,
		    struct err *err)
{
	(void)a;
	if (q->after.size && q->after.size != sizeof(struct record_tile))
		return err_set(err, NPU_E_BAD_VALUE, "after is not what an answer of store.verify had as at");
	struct chore *c = calloc(1, sizeof *c);
	if (c) {
		c->act = verify;
		c->answer = answer_verify;
		c->remove = q->remove;
		c->from_start = q->after.size == 0;
		if (q->after.size)
			memcpy(&c->at, q->after.data, sizeof c->at);
	}
	return chore_begin(c, r, err);
}

static int prune(struct chore *c, const atomic_bool *stop)
{
	(void)stop;
	return imagestore_prune(c->server->filing.store, c->superseded, c->spared, c->spared_count, &c->heads,
				&c->bytes, &c->err);
}

static void answer_prune(const struct chore *c, struct request *r)
{
	struct rep_store_prune a = {.heads = c->heads, .bytes = c->bytes};
	request_reply(r, &a);
}

int on_store_prune(struct request *r, const struct req_store_prune *q, struct rep_store_prune *a,
		   struct err *err)
{
	struct chore *c = calloc(1, sizeof *c);

	(void)a;
	if (c) {
		c->act = prune;
		c->answer = answer_prune;
		c->superseded = q->superseded;
	}
	return chore_begin(c, r, err);
}

static int compact(struct chore *c, const atomic_bool *stop)
{
	(void)stop;
	return imagestore_compact(c->server->filing.store, &c->before, &c->after, &c->err);
}

static void answer_compact(const struct chore *c, struct request *r)
{
	struct rep_store_compact a = {.before = c->before, .after = c->after};
	request_reply(r, &a);
}

int on_store_compact(struct request *r, const struct req_store_compact *q, struct rep_store_compact *a,
		     struct err *err)
{
	struct chore *c = calloc(1, sizeof *c);

	(void)a, (void)q;
	if (c) {
		c->act = compact;
		c->answer = answer_compact;
	}
	return chore_begin(c, r, err);
}

static int read_piece(struct chore *c, const atomic_bool *stop)
{
	struct refusal why;

	(void)stop;
	switch (imagestore_piece(c->server->filing.store, &c->key, c->tile, c->piece, c->payload, &c->length,
				 &c->scales, &why)) {
	case IMAGE_HIT:
		return 0;
	case IMAGE_MISS:
		return err_set(&c->err, NPU_E_NO_SUCH_HANDLE,
			       "the image store has no tile %u of this head, or no piece %u of it", c->tile,
			       c->piece);
	case IMAGE_REFUSED:
		break;
	}
	return err_set(&c->err, NPU_E_BAD_IMAGE, "%s: %s; npuctl store verify --remove takes the head out",
		       refusal_name(why.reason), why.text);
}

static void answer_read(const struct chore *c, struct request *r)
{
	struct rep_store_read a = {.payload = {c->payload, c->length}, .scales = c->scales};
	request_reply(r, &a);
}

int on_store_read(struct request *r, const struct req_store_read *q, struct rep_store_read *a,
		  struct err *err)
{
	(void)a;
	if (q->key.size != sizeof(struct record_head))
		return err_set(err, NPU_E_BAD_VALUE, "key is no key of a row of store.list");
	struct chore *c = calloc(1, sizeof *c);
	if (c && !(c->payload = malloc(RECORD_CHUNK_MAX))) {
		free(c);
		c = NULL;
	}
	if (c) {
		c->act = read_piece;
		c->answer = answer_read;
		record_head_unkey(&c->key, (const struct record_head *)q->key.data);
		c->tile = (uint32_t)q->tile;
		c->piece = (uint32_t)q->piece;
	}
	return chore_begin(c, r, err);
}
