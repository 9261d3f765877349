#include "tenants.h"
#include "server.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define KILL_MS 1000 /* what was killed ends within this, or is not waited for */

void tenants_init(struct tenants *t, struct server *server)
{
	*t = (struct tenants){.server = server, .count = server->config.tenant_count};
	for (unsigned i = 0; i < t->count; i++) {
		struct tenant *one = &t->each[i];
		one->of = t;
		one->config = &server->config.tenants[i];
		uv_timer_init(&server->loop, &one->timer);
		one->timer.data = one->process.data = one;
	}
}

void tenants_fini(struct tenants *t)
{
	t->closed = true;
	for (unsigned i = 0; i < t->count; i++) {
		struct tenant *one = &t->each[i];
		uv_close((uv_handle_t *)&one->timer, NULL);
		if (one->there && !uv_is_closing((uv_handle_t *)&one->process))
			uv_close((uv_handle_t *)&one->process, NULL);
	}
}

bool tenants_in_the_way(const struct tenants *t)
{
	return t->count && t->state != TENANTS_PAUSED;
}

static const char *verb(const struct tenants *t)
{
	return t->state == TENANTS_PAUSING ? "pause" : "resume";
}

static void settle(struct tenants *t)
{
	t->state = t->state == TENANTS_PAUSING ? TENANTS_PAUSED : TENANTS_RUN;
}

static void command_over(struct tenant *one)
{
	struct tenants *t = one->of;

	one->awaited = false;
	if (--t->awaited == 0 && !t->closed) {
		settle(t);
		tickets_turn(&t->server->tickets);
	}
}

/* Only now can the handle be used for the next command. */
static void on_closed(uv_handle_t *handle)
{
	struct tenant *one = handle->data;

	one->there = false;
	if (one->awaited)
		command_over(one);
}

static void on_exit_of(uv_process_t *process, int64_t status, int signal)
{
	struct tenant *one = process->data;
	struct tenants *t = one->of;

	uv_timer_stop(&one->timer);
	if (one->awaited && !one->late && signal)
		events_tell(t->server, NULL, EVENT_TENANT, 0, "%s: %s failed: ended by signal %d",
			    one->config->name, verb(t), signal);
	else if (one->awaited && !one->late && status)
		events_tell(t->server, NULL, EVENT_TENANT, 0, "%s: %s failed: exit status %d",
			    one->config->name, verb(t), (int)status);
	else if (one->awaited && !one->late)
		events_tell(t->server, NULL, EVENT_TENANT, 0, "%s: %sd", one->config->name, verb(t));
	uv_close((uv_handle_t *)process, on_closed);
}

static void on_late(uv_timer_t *timer)
{
	struct tenant *one = timer->data;
	struct tenants *t = one->of;

	if (one->late) {
		command_over(one);
		return;
	}
	one->late = true;
	events_tell(t->server, NULL, EVENT_TENANT, 0,
		    "%s: %s failed: it took longer than %llu s and was killed", one->config->name, verb(t),
		    (unsigned long long)one->config->timeout);
	kill(-one->process.pid, SIGKILL);
	uv_timer_start(timer, on_late, KILL_MS, 0);
}

static void start(struct tenant *one)
{
	struct tenants *t = one->of;
	const char *command = t->state == TENANTS_PAUSING ? one->config->pause : one->config->resume;
	char *words[] = {"sh", "-c", (char *)command, NULL};
	uv_stdio_container_t stdio[] = {
		{.flags = UV_IGNORE},
		{.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
		{.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
	};
	/* A session of its own, so that all of it can be killed. */
	const uv_process_options_t options = {.exit_cb = on_exit_of,
					      .file = "/bin/sh",
					      .args = words,
					      .flags = UV_PROCESS_DETACHED,
					      .stdio_count = 3,
					      .stdio = stdio};
	const char *why = "its last command has not ended";

	if (!one->there) {
		int r = uv_spawn(&t->server->loop, &one->process, &options);
		one->there = true;
		one->late = false;
		if (r == 0) {
			one->awaited = true;
			t->awaited++;
			uv_timer_start(&one->timer, on_late, one->config->timeout * 1000, 0);
			return;
		}
		why = uv_strerror(r);
		uv_close((uv_handle_t *)&one->process, on_closed);
	}
	events_tell(t->server, NULL, EVENT_TENANT, 0, "%s: %s failed: %s", one->config->name, verb(t), why);
}

bool tenants_turn(struct tenants *t, bool quiet)
{
	bool rests = t->state == TENANTS_RUN || t->state == TENANTS_PAUSED;

	if (!t->count || !rests || quiet == (t->state == TENANTS_PAUSED) || t->server->stopping)
		return false;
	t->state = quiet ? TENANTS_PAUSING : TENANTS_RESUMING;
	for (unsigned i = 0; i < t->count; i++)
		start(&t->each[i]);
	if (t->awaited)
		return false;
	settle(t);
	return true;
}
