#include "server.h"
#include "descriptors.h"
#include "fingerprint.h"
#include "handles.h"
#include "log.h"
#include "own.h"
#include "plural.h"
#include "request.h"
#include "session.h"
#include <stdio.h>
#include <string.h>

#define SWEEP_MOST_MS 1000
#define DRAIN_LOOK_MS 25
#define DRAIN_MS 5000 /* running work may take this long after SIGTERM */

uint64_t server_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void on_born(void *arg, struct peer peer)
{
	struct session *s;
	if (session_new(&s, arg, peer)) {
		log_line("peer", (uint64_t)peer.pid, "no memory for a session");
		listen_disconnect(peer.pipe);
		if (peer.pidfd >= 0)
			close(peer.pidfd);
	}
}

static void on_dead(void *arg, uint32_t pipe)
{
	struct session *s = session_of_pipe(arg, pipe);
	if (s)
		session_close(s);
}

static void on_arrived(void *arg, struct slot *slot, nng_msg *message)
{
	request_arrived(arg, slot, message);
}

static void on_answered(void *arg, const struct slot *slot)
{
	struct server *s = arg;
	if (slot->owed)
		quota_give_bytes(&s->quota, slot->uid, QUOTA_REPLIES, slot->owed);
}

static bool answers_under_way(const struct server *s)
{
	for (const struct link *at = s->listener.slots.next; at != &s->listener.slots; at = at->next)
		if (link_of(at, struct slot, in_slots)->state == SLOT_SENDING)
			return true;
	return false;
}

static void on_sweep(uv_timer_t *timer)
{
	struct server *s = timer->data;
	uint64_t now = server_now();
	uint64_t next = request_sweep(s, now), next_peer = descriptors_sweep(s->descriptors, now);

	if (s->stopping) {
		bool done = s->in_flight == 0 && s->loads == 0 && !answers_under_way(s) &&
			    writer_idle(&s->filing.writer);
		if (done || now - s->stopping_since_ms > DRAIN_MS)
			uv_stop(&s->loop);
		next = now + DRAIN_LOOK_MS;
	}
	s->sweep_at_ms = UINT64_MAX;
	if (next_peer < next)
		next = next_peer;
	if (next != UINT64_MAX)
		server_wants_sweep(s, next);
}

void server_wants_sweep(struct server *s, uint64_t at_ms)
{
	uint64_t now = server_now(), in_ms = at_ms > now ? at_ms - now : 0;
	if (at_ms >= s->sweep_at_ms)
		return;
	s->sweep_at_ms = at_ms;
	/* Now and then all the same: the loop's clock stands still while the machine sleeps, ours does not.
	 */
	uv_timer_start(&s->sweep, on_sweep, in_ms < SWEEP_MOST_MS ? in_ms : SWEEP_MOST_MS, 0);
}

static void on_signal(uv_signal_t *signal, int number)
{
	struct server *s = signal->data;
	if (s->stopping) {
		uv_stop(&s->loop); /* asked twice: now */
		return;
	}
	s->stopping = true;
	tickets_stop(&s->tickets);
	events_tell_all(s, EVENT_SHUTDOWN, "signal %d: no new work, running work ends first", number);
	s->stopping_since_ms = server_now();
	link_each(at_session, &s->sessions)
	{
		struct session *session = link_of(at_session, struct session, in_sessions);
		link_each(at, &session->requests)
		{
			struct request *r = link_of(at, struct request, in_session);
			if (r->state == REQUEST_WAITING)
				request_stop(r, NPU_E_SHUTDOWN, "npud is shutting down");
		}
	}
	handles_stop(s);
	server_wants_sweep(s, 0);
}

int server_reload(struct server *s, struct err *err)
{
	struct config fresh;
	char kept[128];
	int r = config_load(&fresh, &s->source, err);
	if (r == 0)
		r = admins_load(&s->admins, fresh.admin_group, err);
	if (r)
		return r;
	config_adopt(&s->config, &fresh, kept, sizeof kept);
	listener_limit(&s->listener, (unsigned)s->config.connections, (unsigned)s->config.user_connections,
		       (unsigned)s->config.in_flight_all);
	tickets_limit(&s->tickets);
	objects_limit(s);
	place_give_to_group(s);
	events_tell(s, NULL, EVENT_RELOAD, 0, "the configuration was read again%s%s",
		    kept[0] ? "; what changes at a restart only: " : "", kept);
	return 0;
}

static void on_hangup(uv_signal_t *signal, int number)
{
	struct server *s = signal->data;
	struct err err;
	(void)number;
	if (server_reload(s, &err))
		events_tell(s, NULL, EVENT_RELOAD, 0, "everything stays as it was: %s", err.text);
}

/* The loop, and what of it is there before anything else. */
static void begin_loop(struct server *s)
{
	setenv("UV_THREADPOOL_SIZE", READERS_THREADS, 1);
	uv_loop_init(&s->loop);
	readers_init(&s->readers, &s->loop);
	objects_init(s);
	uv_timer_init(&s->loop, &s->sweep);
	uv_signal_init(&s->loop, &s->term);
	uv_signal_init(&s->loop, &s->interrupt);
	uv_signal_init(&s->loop, &s->hangup);
	s->sweep.data = s->term.data = s->interrupt.data = s->hangup.data = s;
}

/* What computes. */
static int begin_compute(struct server *s, struct err *err)
{
	const struct config *c = &s->config;

	s->path = path_of(c->head_path, strlen(c->head_path));
	s->threads = pool_processors() < c->threads ? pool_processors() : (unsigned)c->threads;
	if (executor_init(&s->executor, &s->loop, &s->kernels, s->threads, (uint32_t)c->batch, request_ran,
			  s))
		return err_set(err, NPU_E_NO_MEMORY, "the executor's threads cannot be made");
	int r = accelerator_open(&s->accelerator, s, err);
	if (r)
		return r;
	s->executor.engine.runner = s->accelerator.runner; /* before there is any work */
	/* The lock is the NPU's: what is computed by software is in no tool's way. */
	npulock_init(&s->executor.engine.lock, strcmp(s->accelerator.kind, "soft") == 0 ? "" : c->npu_lock);
	return 0;
}

/* Lets clients in. From here on callbacks may be queued, and none runs before server_run. */
static int begin_listening(struct server *s, struct err *err)
{
	static const struct listen_calls calls = {on_born, on_dead, on_arrived, on_answered};
	const struct config *c = &s->config;

	int r = listener_init(&s->listener, &s->loop, c->socket, (unsigned)c->connections,
			      (unsigned)c->user_connections, (unsigned)c->in_flight_all, &calls, s, err);
	if (r == 0)
		r = descriptors_new(&s->descriptors, s, err);
	if (r)
		return r;
	place_give_to_group(s);
	place_watch(s);
	uv_signal_start(&s->term, on_signal, SIGTERM);
	uv_signal_start(&s->interrupt, on_signal, SIGINT);
	uv_signal_start(&s->hangup, on_hangup, SIGHUP);
	return 0;
}

int server_init(struct server *s, const struct config *config, const struct config_source *source,
		struct err *err)
{
	const char *force = getenv("NPU_KERNELS");

	memset(s, 0, sizeof *s);
	s->config = *config;
	if (source)
		s->source = *source;
	s->place.lock_fd = -1;
	s->started_ms = server_now();
	s->sweep_at_ms = UINT64_MAX;
	link_init(&s->sessions);
	replies_init(&s->replies);
	event_ring_init(&s->journal, EVENTS_OF_JOURNAL);
	if (!kernels_pick(&s->kernels, cpu_have(), force))
		return err_set(err, NPU_E_BAD_CONFIG,
			       "NPU_KERNELS=%s: no such variant runs on this processor; unset it, or try ref",
			       force);
	s->fingerprint = fingerprint(&s->kernels, decoders_variant(0));
	int r = config_places(config, err);
	if (r == 0)
		r = admins_load(&s->admins, config->admin_group, err);
	if (r == 0)
		r = place_take(s, err);
	if (r == 0)
		r = filing_open(s, err);
	if (r)
		return r;
	begin_loop(s);
	r = begin_compute(s, err);
	if (r == 0)
		r = neighbours_init(&s->neighbours, s, err);
	if (r)
		return r;
	tenants_init(&s->tenants, s);
	r = tickets_init(&s->tickets, s, err);
	if (r == 0)
		r = filing_begin(s, err);
	if (r == 0)
		r = begin_listening(s, err);
	if (r)
		return r;
	preload_begin(s);
	log_line("npud", 0, "%s serves at %s; device %s, kernels pack=%s head=%s%s, %u %s", NPUD_VERSION,
		 config->socket, s->accelerator.kind, s->kernels.pack_variant, s->kernels.head_variant,
		 s->kernels.prefetch ? " with prefetch" : "", s->threads,
		 plural(s->threads, "thread", "threads"));
	return 0;
}

void server_run(struct server *s)
{
	uv_run(&s->loop, UV_RUN_DEFAULT);
}

void server_fini(struct server *s)
{
	listener_close(&s->listener);
	preload_end(s);
	while (!link_empty(&s->sessions)) /* each drops its rows; a pass in hand ends in executor_fini */
		session_close(link_of(s->sessions.next, struct session, in_sessions));
	executor_fini(&s->executor);
	listener_fini(&s->listener);
	accelerator_close(&s->accelerator);
	tickets_fini(&s->tickets);
	tenants_fini(&s->tenants);
	filing_end(s);
	replies_fini(&s->replies);
	event_ring_fini(&s->journal);
	admins_fini(&s->admins);
	descriptors_free(s->descriptors);
	place_leave(s);
	uv_close((uv_handle_t *)&s->sweep, NULL);
	uv_close((uv_handle_t *)&s->residency_timer, NULL);
	uv_close((uv_handle_t *)&s->term, NULL);
	uv_close((uv_handle_t *)&s->interrupt, NULL);
	uv_close((uv_handle_t *)&s->hangup, NULL);
	uv_run(&s->loop, UV_RUN_DEFAULT); /* loads that were asked to stop, handles that close */
	quota_fini(&s->quota);
	objects_fini(s);
	accelerator_free(&s->accelerator);
	uv_loop_close(&s->loop);
	neighbours_fini(&s->neighbours);
	uv_mutex_destroy(&s->listener.lock);
}
