#include "filing.h"
#include "handles.h"
#include "log.h"
#include "own.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICK_MS 60000
#define SYNC_PIECE ((off_t)64 << 20)

/* A head that was opened: what the log says of it, and what the store is to take of it. */
struct filed {
	struct writer_job job;
	struct server *server;
	struct object *object; /* held */
	struct stored_head head;
	struct head_key *spared;
	size_t spared_count;
	enum {
		FILED_USE,	    /* nothing: it was used */
		FILED_WRITE,	    /* the tiles of `write` */
		FILED_WRITE_MISSING /* what the store lacks */
	} what;
	bool *write; /* [tiles] */
	uint64_t session;
	double seconds;
	uint32_t from_store, packed, refused;
	uint32_t written, there; /* tiles; that were in the store */
	struct err err;		 /* of the first write that failed */
};

static void log_open(const struct object *o, uint64_t session, uint32_t from_store, uint32_t packed,
		     uint32_t written, uint32_t refused, double seconds)
{
	const struct geometry *g = &o->geometry;
	const struct identity *i = &o->resident.identity;
	if (o->resident.fleeting) /* every token has some */
		return;
	char what[ROLE_MAX + 40] = "lm head";
	if (strcmp(i->role, HEAD_ROLE) != 0)
		snprintf(what, sizeof what, "layer %" PRIu32 " role %s", i->layer, i->role);
	log_line("session", session,
		 "%s: %s: %" PRIu32 " tile(s) from the image store, %" PRIu32 " packed (%" PRIu32
		 " written), %" PRIu32 " refused; kd=%" PRIu32 " T=%" PRIu32 " %s, %.1f MB, %.3f s",
		 o->label, what, from_store, packed, written, refused, g->kd, g->nd, layout_name(g->layout),
		 (double)object_bytes(o) / 1e6, seconds);
}

struct head_key *filing_resident(const struct server *s, size_t *count)
{
	struct head_key *keys = calloc(link_count(&s->residency.objects) + 1, sizeof *keys);
	*count = 0;
	if (!keys)
		return NULL;
	link_each(at, &s->residency.objects)
	{
		const struct identity *i = &link_of(at, struct resident, in_objects)->identity;
		struct head_key *key = &keys[(*count)++];
		*key = (struct head_key){.kd = i->kd, .nd = i->nd, .layout = i->layout};
		memcpy(key->hash, i->hash, sizeof key->hash);
	}
	return keys;
}

static void prepare(struct writer_job *job)
{
	struct filed *f = link_of(job, struct filed, job);
	f->spared = filing_resident(f->server, &f->spared_count);
}

static void work(struct writer_job *job, const atomic_bool *stop)
{
	struct filed *f = link_of(job, struct filed, job);
	struct imagestore *store = f->server->filing.store;
	const struct object *o = f->object;
	struct record_header header;

	for (uint32_t t = 0; t < o->geometry.tiles; t++) {
		if (f->what == FILED_WRITE_MISSING)
			f->write[t] = imagestore_tile(store, &f->head.key, t, &header) != IMAGE_HIT;
		f->there += !f->write[t];
	}
	if (f->there == o->geometry.tiles) {
		imagestore_use(store, &f->head, &f->err);
		return;
	}
	if (imagestore_admit(store, &f->head, f->spared, f->spared_count, &f->err))
		return;
	for (uint32_t t = 0; t < o->geometry.tiles && !f->err.code; t++) {
		struct image_tile_io io = load_tile_io(&o->target.image, o->resident.identity.hash, t);
		io.nonfinite = o->tile_nonfinite[t];
		if (f->write[t] && imagestore_write(store, &io, stop, &f->err) == 0)
			f->written++;
	}
}

/* A full disk would say it for every head: once, until a head is written whole. Of one that is too large,
 * once.
 */
static void note_failure(struct filing *f, const struct err *err)
{
	if (!err->code) {
		f->failing = false;
		return;
	}
	if (err->code == NPU_E_CANCELLED || (err->code == NPU_E_IO && f->failing) ||
	    strcmp(err->text, f->said) == 0)
		return;
	f->failing = err->code == NPU_E_IO;
	snprintf(f->said, sizeof f->said, "%s", err->text);
	log_line("store", 0, "not written: %s", err->text);
}

static void done(struct writer_job *job)
{
	struct filed *f = link_of(job, struct filed, job);
	struct server *s = f->server;
	struct object *o = f->object;

	o->stored = f->there + f->written == o->geometry.tiles;
	if (f->what != FILED_USE) {
		o->writing = 0;
		o->written = f->written;
		log_open(o, f->session, f->from_store, f->packed, f->written, f->refused, f->seconds);
		note_failure(&s->filing, &f->err);
		handles_written(o);
	}
	object_release(o);
	free(f->spared);
	free(f->write);
	free(f);
}

/* Files that were opened: what they hashed to is to be kept, or no longer. */
struct noted {
	struct writer_job job;
	struct server *server;
	struct source source;
	bool keep;
	struct stored_name name; /* without `keep` only its digest */
};

/* Piece by piece: the end of the daemon does not wait for gigabytes on a slow disk. */
static bool bring_to_disk(int fd, const atomic_bool *stop)
{
	const unsigned whole =
		SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	for (off_t at = 0; at < st.st_size; at += SYNC_PIECE)
		if (atomic_load(stop) || sync_file_range(fd, at, SYNC_PIECE, whole) < 0)
			return false;
	return fdatasync(fd) == 0;
}

/* Their bytes first: after a power cut a file can have the times and the length of bytes that never got to
 * the disk. Losing a note costs reading the files once more, so a failure is nobody's business. */
static void note(struct writer_job *job, const atomic_bool *stop)
{
	struct noted *n = link_of(job, struct noted, job);
	struct imagestore *store = n->server->filing.store;
	bool there = n->keep;
	struct err err;

	for (size_t i = 0; there && i < n->source.count; i++)
		there = bring_to_disk(n->source.files[i].fd, stop);
	if (there)
		imagestore_name_keep(store, &n->name, &err);
	else
		imagestore_name_drop(store, n->name.digest, &err);
}

static void note_done(struct writer_job *job)
{
	struct noted *n = link_of(job, struct noted, job);
	source_fini(&n->source);
	free(n);
}

void filing_files(struct server *s, struct load *l)
{
	struct stored_name name;
	bool keep = l->store && known_to_keep(&s->known, &l->name, &name);

	if (!keep && !(l->store && l->doubted))
		return;
	struct noted *n = calloc(1, sizeof *n);
	if (!n)
		return;
	*n = (struct noted){.job = {.work = note, .done = note_done}, .server = s, .keep = keep};
	n->source = l->source;
	l->source = (struct source){.files = NULL};
	if (keep)
		n->name = name;
	else
		memcpy(n->name.digest, l->name.digest, sizeof n->name.digest);
	writer_add(&s->filing.writer, &n->job);
}

static uint64_t stored_bytes(const struct object *o)
{
	uint64_t bytes = 0;
	for (uint32_t t = 0; t < o->geometry.tiles; t++) {
		struct image_tile_io io = load_tile_io(&o->target.image, o->resident.identity.hash, t);
		struct record_plan plan;
		if (record_plan_make(&plan, &io.key, io.columns))
			bytes += record_plan_bytes(&plan);
	}
	return bytes;
}

/* What the store is to take of `o`; NULL where there is no memory, and it takes nothing. */
static struct filed *filed_new(struct object *o, const struct handle *h)
{
	const struct geometry *g = &o->geometry;
	struct filed *f = calloc(1, sizeof *f);

	if (!f || !(f->write = calloc(g->tiles, sizeof *f->write))) {
		free(f);
		return NULL;
	}
	f->job = (struct writer_job){.prepare = prepare, .work = work, .done = done};
	f->server = o->server;
	f->object = o;
	f->head.key = load_tile_io(&o->target.image, o->resident.identity.hash, 0).key;
	f->head.tiles = g->tiles;
	f->head.columns = g->nv;
	f->head.bytes = stored_bytes(o);
	snprintf(f->head.label, sizeof f->head.label, "%s", o->label);
	snprintf(f->head.tensor, sizeof f->head.tensor, "%.128s", o->tensor);
	f->session = h ? h->session->number : 0;
	f->seconds = h ? h->seconds : 0;
	return f;
}

/* Gives it to the writer; `tiles` of it may be written for `h`. */
static void filed_begin(struct filed *f, uint32_t tiles, struct handle *h)
{
	struct object *o = f->object;

	if (tiles) {
		o->writing = tiles;
		o->written = 0;
		if (h)
			h->opened.writes = true;
	}
	object_hold(o);
	writer_add(&f->server->filing.writer, &f->job);
}

void filing_attached(struct object *o, const struct load *l, struct handle *h)
{
	bool missing = l->store && !o->stored && !o->writing && !o->resident.fleeting;
	struct filed *f = missing ? filed_new(o, h) : NULL;

	if (!f) {
		if (h)
			log_open(o, h->session->number, 0, 0, 0, 0, h->seconds);
		return;
	}
	f->what = FILED_WRITE_MISSING;
	filed_begin(f, o->geometry.tiles, h);
}

void filing_loaded(struct object *o, const struct load *l, struct handle *h)
{
	for (const char *line = l->refusals; *line;) {
		size_t size = strcspn(line, "\n");
		log_line("store", 0, "%s: refused: %.*s", o->label, (int)size, line);
		line += size + (line[size] == '\n');
	}
	struct filed *f = l->store ? filed_new(o, h) : NULL;
	o->stored = l->store && !l->packed;
	if (!f || !l->packed)
		log_open(o, h ? h->session->number : 0, l->from_store, l->packed, 0, l->refused,
			 h ? h->seconds : 0);
	if (!f)
		return;
	f->what = l->packed ? FILED_WRITE : FILED_USE;
	for (uint32_t t = 0; t < o->geometry.tiles; t++)
		f->write[t] = l->tiles[t].packed;
	f->from_store = l->from_store;
	f->packed = l->packed;
	f->refused = l->refused;
	filed_begin(f, l->packed, h);
}

void filing_removed(struct server *s, const struct head_key *key)
{
	link_each(at, &s->residency.objects)
	{
		struct resident *r = link_of(at, struct resident, in_objects);
		const struct identity *i = &r->identity;
		if (i->kd == key->kd && i->nd == key->nd && i->layout == key->layout &&
		    memcmp(i->hash, key->hash, sizeof key->hash) == 0)
			link_of(r, struct object, resident)->stored = false;
	}
}

const struct hash_secret *filing_secret(const struct server *s)
{
	return s->filing.store ? imagestore_secret(s->filing.store) : &s->filing.secret;
}

int filing_open(struct server *s, struct err *err)
{
	struct filing *f = &s->filing;
	const struct config *c = &s->config;
	char path[PATH_MAX], old_secret[PATH_MAX + 16];

	snprintf(path, sizeof path, "%s", c->store_path);
	if (!path[0] && snprintf(path, sizeof path, "%s/images", c->cache_dir) >= (int)sizeof path)
		return err_set(err, NPU_E_BAD_CONFIG, "%s: the path is too long", c->cache_dir);
	snprintf(old_secret, sizeof old_secret, "%s/hash.secret", c->cache_dir);
	const struct imagestore_options options = {.path = path,
						   .secret_file = old_secret,
						   .fingerprint = s->fingerprint,
						   .max_bytes = c->store_bytes,
						   .min_free_bytes = c->store_free_bytes};
	if (!c->store_enabled) {
		snprintf(f->off, sizeof f->off, "[store] enabled is no");
	} else {
		int r = imagestore_open(&f->store, &options, err);
		if (r == NPU_E_IN_USE)
			return r;
		if (r) {
			snprintf(f->off, sizeof f->off, "%s", err->text);
			log_line("store", 0, "there is none, heads are packed every time: %s", f->off);
		}
	}
	if (!f->store)
		return hash_secret_make(&f->secret, err);
	if (*imagestore_moved(f->store))
		log_line("store", 0, "a damaged store was moved aside and a fresh one begun: %s",
			 imagestore_moved(f->store));
	return 0;
}

static void on_tick(uv_timer_t *timer)
{
	struct server *s = timer->data;
	imagestore_tick(s->filing.store);
}

/* What earlier daemons found files to hash to. Without it they are read once more. */
static void recall(struct server *s)
{
	cleanup(freep) struct stored_name *rows = calloc(IMAGESTORE_NAMES_MAX, sizeof *rows);
	size_t count;
	struct err err;

	if (rows && imagestore_names(s->filing.store, rows, &count, &err) == 0)
		known_restore(&s->known, rows, count);
}

int filing_begin(struct server *s, struct err *err)
{
	struct filing *f = &s->filing;

	if (writer_init(&f->writer, &s->loop))
		return err_set(err, NPU_E_NO_MEMORY, "the thread that writes the image store cannot be made");
	uv_timer_init(&s->loop, &f->tick);
	f->tick.data = s;
	if (f->store) {
		recall(s);
		uv_timer_start(&f->tick, on_tick, TICK_MS, TICK_MS);
	}
	return 0;
}

void filing_end(struct server *s)
{
	writer_fini(&s->filing.writer);
	uv_close((uv_handle_t *)&s->filing.tick, NULL);
	imagestore_close(s->filing.store);
	s->filing.store = NULL;
}
