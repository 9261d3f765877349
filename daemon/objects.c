#include "objects.h"
#include "handles.h"
#include "log.h"
#include "memory.h"
#include "own.h"
#include "plural.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * What is done for one handle: its file is read on a worker until its content is known; then it asks for
 * the object; then it loads it on a worker, or waits while another fetch does. A fetch keeps its own files
 * until the object is there: if the one that loads fails because its file is damaged or was rewritten, the
 * next loads from its own.
 */
struct fetch {
	struct link in_waiting; /* server.attaching, while another fetch loads its object */
	enum { FETCH_IDENTIFYING, FETCH_ASKING, FETCH_LOADING, FETCH_ATTACHING } state;
	struct reader reader;
	struct server *server;
	struct load *load;
	struct handle *handle; /* NULL once it has left */
	struct claim claim;
	struct object *object; /* held while LOADING or ATTACHING, if there still is a handle */
	int result;
	struct err err;
};

const char *layout_name(enum layout layout)
{
	return layout == LAYOUT_BLOCKED ? "blocked" : "row-major";
}

const char *hash_hex(char to[33], const unsigned char hash[16])
{
	for (int i = 0; i < 16; i++)
		snprintf(to + 2 * i, 3, "%02x", hash[i]);
	return to;
}

static void fetch_free(struct fetch *j)
{
	j->server->loads--;
	load_free(j->load);
	free(j);
}

struct object *fetch_object(const struct fetch *j)
{
	return j->object;
}

unsigned fetch_tiles_done(const struct fetch *j)
{
	const struct fetch *loader = j->object ? j->object->loader : NULL;
	return loader ? atomic_load(&loader->load->tiles_done) : 0;
}

uint64_t object_bytes(const struct object *o)
{
	return o->resident.bytes;
}

static void on_timer(uv_timer_t *timer);
static void identify(struct fetch *j);

/* Decides again soon, from the loop: whoever calls may be in the middle of something. */
static void step_soon(struct server *s)
{
	uv_timer_start(&s->residency_timer, on_timer, 0, 0);
}

static void object_free(struct object *o)
{
	residency_remove(&o->resident);
	target_fini(&o->target);
	free(o->tile_nonfinite);
	free(o);
}

void object_hold(struct object *o)
{
	residency_hold(&o->resident);
}

void object_release(struct object *o)
{
	residency_release(&o->resident, server_now());
	/* Nobody wants what is being loaded: its worker ends soon, and on_loaded takes it away. */
	if (o->resident.refs == 0 && o->resident.state == RESIDENT_LOADING) {
		residency_abandon(&o->resident);
		atomic_store(&o->loader->load->stop, true);
	}
	struct server *s = o->server;
	if (o->resident.refs == 0 &&
	    (o->damaged || (o->resident.fleeting && o->resident.state == RESIDENT_READY)))
		object_free(o);
	step_soon(s);
}

/* Adds one of the matrices that are side by side: "a + b"; types only where they differ. */
static void name_part(struct object *o, const struct matrix *m)
{
	size_t used = strlen(o->tensor), type = strlen(o->type);
	char name[sizeof o->tensor];

	err_printable(name, sizeof name, m->tensor->name, m->tensor->name_size);
	snprintf(o->tensor + used, sizeof o->tensor - used, "%s%s", used ? " + " : "", name);
	if (!strstr(o->type, m->reading))
		snprintf(o->type + type, sizeof o->type - type, "%s%s", type ? "+" : "", m->reading);
}

static struct object *object_new(struct fetch *j)
{
	struct server *s = j->server;
	const struct load *l = j->load;
	struct object *o = calloc(1, sizeof *o);
	if (!o || !(o->tile_nonfinite = calloc(l->geometry.tiles, sizeof *o->tile_nonfinite))) {
		free(o);
		return NULL;
	}
	o->server = s;
	o->id = ++s->next_object;
	o->loader = j;
	o->geometry = l->geometry;
	o->why = l->why;
	snprintf(o->label, sizeof o->label, "%s", l->request.label);
	for (unsigned i = 0; i < l->part_count; i++)
		name_part(o, &l->parts[i].matrix);
	return o;
}

/* An error of loading names the file and the tensor for programs too. */
static void blame(const struct fetch *j, struct err *err)
{
	const struct load_request *q = &j->load->request;
	snprintf(err->detail.file, sizeof err->detail.file, "%s", q->label);
	err_printable(err->detail.tensor, sizeof err->detail.tensor, q->tensor, strlen(q->tensor));
}

/* The end of a fetch whose handle, if it still has one, gets nothing. */
static void fetch_fail(struct fetch *j)
{
	struct handle *h = j->handle;
	struct err err = j->err;
	blame(j, &err);
	fetch_free(j);
	if (h) {
		handle_settled(h, NULL, false, &err);
		handle_answer(h);
	}
}

struct claim object_claim(const struct load *l)
{
	const struct geometry *g = &l->geometry;
	struct claim c = {
		.identity =
			{
				.layer = l->request.layer,
				.k = g->h,
				.n = g->nv,
				.kd = g->kd,
				.nd = g->nd,
				.layout = g->layout,
			},
		.bytes = placement_bytes(&l->placement, g),
		.transient = load_transient(l) + placement_transient(&l->placement, g),
		.fleeting = l->request.fleeting,
	};
	snprintf(c.identity.role, sizeof c.identity.role, "%s",
		 l->request.role[0] ? l->request.role : HEAD_ROLE);
	memcpy(c.identity.hash, l->hash, sizeof c.identity.hash);
	return c;
}

static void ask(struct fetch *j)
{
	struct server *s = j->server;

	j->state = FETCH_ASKING;
	j->object = NULL;
	j->claim = object_claim(j->load);
	link_init(&j->claim.in_claims);
	residency_ask(&s->residency, &j->claim, server_now());
}

/*
 * A resident object that does not agree with weights that hash to its name has been damaged in memory:
 * nobody attaches to it, passes over it are refused, and it goes with its last user.
 */
static void doubt(struct object *o, const struct refusal *why)
{
	log_line("object", o->id, "damaged in memory, nobody may use it any more: %s: %s", o->label,
		 why->text);
	o->damaged = true;
	residency_remove(&o->resident);
}

/* From the start, and the files are read whole. */
static void identify_again(struct fetch *j)
{
	log_line("object", 0, "%s: is not as it was when it was hashed, whatever its times say: read again",
		 j->load->request.label);
	load_doubt(j->load);
	identify(j);
}

/* The end of a fetch whose object is there. */
static void fetch_done(struct fetch *j)
{
	struct handle *h = j->handle;
	struct object *o = j->object;
	struct load *l = j->load;
	bool attached = j->state == FETCH_ATTACHING;
	struct refusal why;

	if (attached && !load_agrees(l, &o->target.image, &why)) {
		/* Of files that were only known, the object need not be what is wrong. */
		bool hashed = l->hashed;
		if (hashed && !o->damaged)
			doubt(o, &why);
		object_release(o);
		if (hashed)
			ask(j);
		else
			identify_again(j);
		return;
	}
	j->load = NULL;
	fetch_free(j);
	if (h) {
		snprintf(h->note, sizeof h->note, "%s", l->parts[0].matrix.note);
		h->opened = (struct opened){.gathered = atomic_load(&l->gathered), .hashed = l->hashed};
		if (!attached) {
			h->opened.from_store = l->from_store;
			h->opened.packed = l->packed;
			h->opened.refused = l->refused;
			memcpy(h->opened.refusals, l->refusals, sizeof h->opened.refusals);
		}
		handle_settled(h, o, attached, NULL);
	}
	if (attached)
		filing_attached(o, l, h);
	else
		filing_loaded(o, l, h);
	filing_files(o->server, l);
	load_free(l);
	if (h)
		handle_answer(h);
}

static void loading(struct reader *r)
{
	struct fetch *j = link_of(r, struct fetch, reader);
	j->result = load_fill(j->load, &j->err);
}

/* A fetch that waits for `o`, out of the list; NULL: none does. */
static struct fetch *next_attaching(struct server *s, const struct object *o)
{
	link_each(at, &s->attaching)
	{
		struct fetch *j = link_of(at, struct fetch, in_waiting);
		if (j->object != o)
			continue;
		link_remove(&j->in_waiting);
		return j;
	}
	return NULL;
}

static void on_loaded(struct reader *r)
{
	struct fetch *j = link_of(r, struct fetch, reader);
	struct server *s = j->server;
	struct object *o = j->object;
	bool there = j->result == 0 && o->resident.state != RESIDENT_ABANDONED;

	o->loader = NULL;
	if (there) {
		o->nonfinite = j->load->nonfinite;
		o->target.image = j->load->image;
		memset(&j->load->image, 0, sizeof j->load->image);
		for (uint32_t t = 0; t < o->geometry.tiles; t++)
			o->tile_nonfinite[t] = atomic_load(&j->load->tiles[t].nonfinite);
		o->target.device = take(&j->load->placement.weights);
		residency_ready(&o->resident, target_bytes(&o->target), server_now());
		if (j->load->placement.why[0])
			events_tell(s, NULL, EVENT_DEVICE, o->id,
				    "head %" PRIu64 " (%.60s) is the host's: %s", o->id, o->label,
				    j->load->placement.why);
		fetch_done(j);
		while ((j = next_attaching(s, o)))
			fetch_done(j);
	} else {
		struct fetch *other;
		image_fini(&j->load->image);
		placement_fini(&j->load->placement); /* before anybody is let into the room it takes */
		/* Their own files may be good. The object, with its count of users, goes. */
		while ((other = next_attaching(s, o))) {
			log_line("object", o->id, "loaded again from the file of session %" PRIu64 ": %s",
				 other->handle->session->number, j->err.text);
			ask(other);
		}
		object_free(o);
		if (j->result == NPU_E_FILE_CHANGED && !j->load->hashed && j->handle)
			identify_again(j);
		else
			fetch_fail(j);
	}
	step_soon(s);
}

static void load_object(struct fetch *j)
{
	struct object *o = object_new(j);
	if (!o) {
		residency_withdraw(&j->claim);
		err_set(&j->err, NPU_E_NO_MEMORY, "no memory for one more object");
		fetch_fail(j);
		return;
	}
	j->state = FETCH_LOADING;
	j->object = o;
	residency_begin(&j->server->residency, &o->resident, &j->claim, server_now());
	reader_begin(&j->reader, &j->server->readers, j->load->reader, loading, on_loaded);
}

static void attach(struct fetch *j, struct object *o)
{
	residency_withdraw(&j->claim);
	object_hold(o);
	j->object = o;
	j->state = FETCH_ATTACHING;
	if (o->resident.state == RESIDENT_READY)
		fetch_done(j);
	else
		link_append(&j->server->attaching, &j->in_waiting);
}

static void evict(struct object *o, const char *why)
{
	events_tell(o->server, session_of_number(o->server, o->last_session), EVENT_EVICTED, o->id,
		    "%.100s %.60s, %.1f MB: %s", o->label, o->tensor, (double)object_bytes(o) / 1e6, why);
	object_free(o);
}

int object_find(struct object **out, struct server *server, uint64_t id, struct err *err)
{
	link_each(at, &server->residency.objects)
	{
		struct object *o = link_of(at, struct object, resident.in_objects);
		if (o->id == id) {
			*out = o;
			return 0;
		}
	}
	return err_set(err, NPU_E_NO_SUCH_OBJECT,
		       "nothing resident has the number %" PRIu64
		       "; npuctl heads and npuctl weights list what is there",
		       id);
}

/* "npu-bench (session 3), ...": who uses `o`, or NULL: any that are there. */
static void name_users(char *to, size_t room, const struct server *server, const struct object *o)
{
	size_t used = 0;
	unsigned more = 0;
	to[0] = '\0';
	link_each(at_session, &server->sessions)
	{
		const struct session *s = link_of(at_session, struct session, in_sessions);
		bool uses = false;
		link_each(at, &s->handles)
		{
			const struct handle *h = link_of(at, struct handle, in_session);
			const struct object *has = h->fetch ? fetch_object(h->fetch) : h->object;
			uses |= has && (has == o || !o);
		}
		if (uses && used + 120 < room)
			used += (size_t)snprintf(to + used, room - used, "%s%.64s (session %" PRIu64 ")",
						 used ? ", " : "", s->name, s->number);
		else
			more += uses;
	}
	if (more)
		snprintf(to + used, room - used, " and %u more", more);
}

int object_evict(struct object *o, const char *why, struct err *err)
{
	char users[300];

	if (o->resident.refs || o->resident.state != RESIDENT_READY) {
		name_users(users, sizeof users, o->server, o);
		return err_set(err, NPU_E_OBJECT_USED,
			       "%s (%" PRIu64 "): %s: %s; have it closed, or npuctl kick SESSION", o->label,
			       o->id, o->loader ? "it is being loaded" : "it is in use",
			       users[0] ? users : "a pass runs over it");
	}
	if (o->resident.pins)
		return err_set(err, NPU_E_PINNED,
			       "%s (%" PRIu64 "): it is pinned: npuctl unpin %" PRIu64 " first", o->label,
			       o->id, o->id);
	struct server *s = o->server;
	evict(o, why);
	step_soon(s);
	return 0;
}

void object_pin(struct object *o)
{
	residency_pin(&o->resident);
	step_soon(o->server);
}

void object_unpin(struct object *o)
{
	residency_unpin(&o->resident, server_now());
	step_soon(o->server);
}

/* Why there is no room, with the arithmetic. */
static void refuse(struct fetch *j, enum residency_verdict verdict)
{
	struct server *s = j->server;
	struct residency_sums sums = residency_sums(&s->residency);
	uint64_t need = j->claim.bytes + j->claim.transient;
	const char *why = "what others hold was not given back in time: ask again later, or close something";
	char users[200];
	int code = NPU_E_NO_MEMORY;

	if (verdict == RESIDENCY_TOO_LARGE)
		why = "it can never fit: raise [resident] max_bytes, or give the machine or its control "
		      "group more";
	else if (verdict == RESIDENCY_PINNED) {
		why = "what is not pinned would not be enough: unpin something, or raise [resident] "
		      "max_bytes";
		code = NPU_E_PINNED;
	}
	unsigned count = link_count(&s->residency.objects);
	name_users(users, sizeof users, s, NULL);
	err_set(&j->err, code,
		"%s: needs %" PRIu64 " bytes (%" PRIu64 " of weights, %" PRIu64
		" while they are packed); of %" PRIu64 " bytes, %" PRIu64 " are in use by %u %s: %" PRIu64
		" held by %s, %" PRIu64 " loading, %" PRIu64 " pinned, %" PRIu64 " could go; %s",
		j->load->request.label, need, j->claim.bytes, j->claim.transient, s->residency.budget,
		sums.used, count, plural(count, "object", "objects"), sums.held,
		users[0] ? users : "sessions", sums.loading, sums.pinned, sums.freeable, why);
	j->err.detail.needed = need;
	j->err.detail.limit = s->residency.budget;
	residency_withdraw(&j->claim);
	fetch_fail(j);
}

/*
 * Weights are bounded by what is configured and by what the machine has left now: objects that are there
 * are in the latter already, and bytes that uploads have yet to send are theirs.
 */
uint64_t objects_budget(const struct server *s)
{
	struct residency_sums sums = residency_sums(&s->residency);
	uint64_t most = s->config.resident_bytes;
	uint64_t room = memory_room(""), there = sums.used - sums.loading;
	room -= s->upload_missing < room ? s->upload_missing : room;
	return room < most && there < most - room ? there + room : most;
}

static void step(struct server *s)
{
	uint64_t wake;

	for (;;) {
		s->residency.budget =
			link_empty(&s->residency.claims) ? s->config.resident_bytes : objects_budget(s);
		struct residency_step step = residency_next(&s->residency, server_now(), &wake);
		struct fetch *j = step.claim ? link_of(step.claim, struct fetch, claim) : NULL;
		struct object *o = step.object ? link_of(step.object, struct object, resident) : NULL;
		switch (step.verdict) {
		case RESIDENCY_ATTACH:
			attach(j, o);
			break;
		case RESIDENCY_LOAD:
			load_object(j);
			break;
		case RESIDENCY_EVICT:
			evict(o,
			      j ? "somebody else needs the room" : "nobody has used it for [resident] keep");
			break;
		case RESIDENCY_TOO_LARGE:
		case RESIDENCY_PINNED:
		case RESIDENCY_HELD:
			refuse(j, step.verdict);
			break;
		case RESIDENCY_NOTHING:
			if (wake != UINT64_MAX) {
				uint64_t now = server_now();
				uv_timer_start(&s->residency_timer, on_timer, wake > now ? wake - now : 0, 0);
			}
			return;
		}
	}
}

static void on_timer(uv_timer_t *timer)
{
	step(timer->data);
}

static void identifying(struct reader *r)
{
	struct fetch *j = link_of(r, struct fetch, reader);
	j->result = load_identify(j->load, &j->err);
}

static void on_identified(struct reader *r)
{
	struct fetch *j = link_of(r, struct fetch, reader);

	if (!j->handle) {
		fetch_free(j);
		return;
	}
	if (j->result) {
		fetch_fail(j);
		return;
	}
	/* Not even asked for: more may be allowed by now, and without a name it is like any other without
	 * one. */
	if (j->load->vast) {
		j->claim = object_claim(j->load);
		link_init(&j->claim.in_claims);
		j->server->residency.budget = objects_budget(j->server);
		refuse(j, RESIDENCY_TOO_LARGE);
		return;
	}
	ask(j);
	step(j->server);
}

static void identify(struct fetch *j)
{
	j->state = FETCH_IDENTIFYING;
	j->object = NULL;
	reader_begin(&j->reader, &j->server->readers, j->load->reader, identifying, on_identified);
}

int fetch_begin(struct fetch **out, struct server *server, struct load *load, struct handle *h)
{
	struct fetch *j = calloc(1, sizeof *j);
	if (!j) {
		load_free(load);
		return NPU_E_NO_MEMORY;
	}
	j->server = server;
	j->load = load;
	j->handle = h;
	link_init(&j->in_waiting);
	link_init(&j->claim.in_claims);
	server->loads++;
	identify(j);
	*out = j;
	return 0;
}

void fetch_leave(struct fetch *j)
{
	struct object *o = j->object;

	j->handle = NULL;
	switch (j->state) {
	case FETCH_IDENTIFYING:
		atomic_store(&j->load->stop, true);
		break;
	case FETCH_ASKING:
		residency_withdraw(&j->claim);
		step_soon(j->server);
		fetch_free(j);
		break;
	case FETCH_LOADING: /* goes on while others wait for it */
		object_release(o);
		break;
	case FETCH_ATTACHING:
		link_remove(&j->in_waiting);
		object_release(o);
		fetch_free(j);
		break;
	}
}

static int64_t keep_ms(const struct server *s)
{
	return s->config.keep == CONFIG_FOR_EVER ? -1 : (int64_t)s->config.keep * 1000;
}

void objects_limit(struct server *server)
{
	server->residency.keep = keep_ms(server);
	step_soon(server);
}

void objects_init(struct server *server)
{
	residency_init(&server->residency, keep_ms(server));
	link_init(&server->attaching);
	known_init(&server->known);
	uv_timer_init(&server->loop, &server->residency_timer);
	server->residency_timer.data = server;
}

void objects_fini(struct server *server)
{
	known_fini(&server->known);
	link_each(at, &server->residency.objects)
		object_free(link_of(at, struct object, resident.in_objects));
}
