/*
 * The daemon's state, all of it touched by the loop's thread alone. Worker threads get structs of their
 * own (load, run) and hand them back through the loop.
 */
#ifndef NPUD_SERVER_H
#define NPUD_SERVER_H

#include "accelerator.h"
#include "admins.h"
#include "config.h"
#include "events.h"
#include "executor.h"
#include "filing.h"
#include "hash.h"
#include "kernels.h"
#include "known.h"
#include "readers.h"
#include "listen.h"
#include "metrics.h"
#include "place.h"
#include "residency.h"
#include "neighbours.h"
#include "preload.h"
#include "quota.h"
#include "replies.h"
#include "tenants.h"
#include "tickets.h"
#include <time.h>

struct descriptors;

struct server {
	uv_loop_t loop;
	struct config config;
	struct config_source source; /* to read it again */
	struct admins admins;
	struct kernels kernels;
	unsigned threads;     /* of a pass, and of a load */
	uint64_t fingerprint; /* of the packer */
	struct filing filing;
	struct preload preload;
	struct known known; /* files that need not be hashed again */
	struct listener listener;
	struct accelerator accelerator;
	struct executor executor;
	struct descriptors *descriptors;
	uv_timer_t sweep;     /* deadlines of waiting requests and of side-socket peers */
	uint64_t sweep_at_ms; /* when it is due */
	uv_signal_t term, interrupt, hangup;
	struct link sessions;
	struct residency residency; /* the objects that are there, and who wants which */
	struct readers readers;
	struct link attaching; /* fetches that wait for an object another loads */
	uv_timer_t residency_timer;
	struct replies replies;
	struct quota quota;
	struct tenants tenants;
	struct tickets tickets;
	struct neighbours neighbours;
	struct event_ring journal;
	uint64_t last_event;
	enum path path;		 /* of runs that ask for none */
	uint64_t upload_bytes;	 /* of all uploads */
	uint64_t upload_missing; /* bytes that uploads have yet to send */
	unsigned in_flight, loads;
	uint64_t next_session, next_object;
	uint64_t started_ms;
	uint64_t requests, refused, rows; /* since the start */
	struct metrics metrics;
	struct place place;
	bool stopping;
	uint64_t stopping_since_ms;
};

/* Milliseconds of CLOCK_BOOTTIME: sleep of the machine counts, a change of the wall clock does not. */
uint64_t server_now(void);

/* Something has a deadline: all of them are looked at then. */
void server_wants_sweep(struct server *s, uint64_t at_ms);

/*
 * Takes the lock, listens; `config`, and `source` it came from (NULL: nothing to read again), are copied.
 * IN_USE with the other's pid, IO, BAD_CONFIG.
 */
int server_init(struct server *s, const struct config *config, const struct config_source *source,
		struct err *err);
/* Reads the configuration again (SIGHUP, reload) and tells the journal. BAD_CONFIG: everything stays as it
 * was. */
int server_reload(struct server *s, struct err *err);
/* Runs until SIGTERM or SIGINT; running work ends first, waiting requests are answered SHUTDOWN. */
void server_run(struct server *s);
void server_fini(struct server *s);

#endif
