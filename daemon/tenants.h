/*
 * Servers of others that use the NPU all the time ([tenant NAME]): their administrators' commands pause them
 * before an exclusive ticket is granted and resume them when none holds or is next. All commands run at once,
 * each within its time; what failed is an event, and the grant waits no longer for it. Loop thread only.
 */
#ifndef NPUD_TENANTS_H
#define NPUD_TENANTS_H

#include "config.h"
#include <stdbool.h>
#include <uv.h>

struct server;

struct tenant {
	struct tenants *of;
	const struct config_tenant *config;
	uv_process_t process;
	uv_timer_t timer;
	bool there;   /* the process, or what is left of its handle */
	bool awaited; /* the state changes when this one's command has ended */
	bool late;    /* it was killed */
};

struct tenants {
	struct server *server;
	struct tenant each[CONFIG_TENANTS];
	unsigned count, awaited;
	enum { TENANTS_RUN, TENANTS_PAUSING, TENANTS_PAUSED, TENANTS_RESUMING } state;
	bool closed;
};

/* The ones of the server's configuration, running. */
void tenants_init(struct tenants *t, struct server *server);
/* Before the loop's last run. Commands that are under way go on. */
void tenants_fini(struct tenants *t);

/* Whether they are in the way of an exclusive ticket: not all are paused. */
bool tenants_in_the_way(const struct tenants *t);
/*
 * Begins to pause them where `quiet` is wanted, or to resume them, unless commands are under way. When those
 * have ended, tickets_turn is called; true: that is now, for none could be started.
 */
bool tenants_turn(struct tenants *t, bool quiet);

#endif
