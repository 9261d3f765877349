#include "accelerator.h"
#include "log.h"
#include "own.h"
#include "plural.h"
#include "probe.h"
#include "process.h"
#include "server.h"
#include "soft.h"
#include "xrt_module.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/*
 * The kernels that the software device has when it is given none: every multiple of a head's depth that is a
 * power of two, both layouts, launches of 16 and of 128 rows. Of tiles that need the same bytes the widest is
 * found first.
 */
static bool built_in(struct kernelset *s)
{
	static const uint32_t widths[] = {1024, 256, 128}, rows[] = {16, 128};
	enum { DEEPEST = 16384 };
	uint32_t count = 0;

	for (uint32_t kd = 64; kd <= DEEPEST; kd *= 2)
		count += 2 * 2 * 3;
	s->designs = calloc(count, sizeof *s->designs);
	if (!s->designs)
		return false;
	for (uint32_t kd = 64; kd <= DEEPEST; kd *= 2)
		for (unsigned w = 0; w < 3; w++)
			for (unsigned r = 0; r < 2; r++)
				for (uint32_t row_major = 0; row_major < 2; row_major++)
					s->designs[s->count++] = (struct design){.rows = rows[r],
										 .kd = kd,
										 .nd = widths[w],
										 .layout = !row_major,
										 .image = DEVICE_ELF,
										 .file = "built in",
										 .kernel = "multiply"};
	return true;
}

/* Who has a lock on the file, as /proc/locks has it: 0 where it does not say. */
static pid_t lock_holder(int fd)
{
	struct stat st;
	char line[256], wanted[64];
	pid_t found = 0;
	FILE *f = fstat(fd, &st) == 0 ? fopen("/proc/locks", "re") : NULL;

	if (!f)
		return 0;
	snprintf(wanted, sizeof wanted, "%02x:%02x:%" PRIu64 " ", major(st.st_dev), minor(st.st_dev),
		 (uint64_t)st.st_ino);
	while (!found && fgets(line, sizeof line, f)) {
		int pid;
		if (strstr(line, wanted) && sscanf(line, "%*s %*s %*s %*s %d", &pid) == 1 && pid > 0)
			found = pid;
	}
	fclose(f);
	return found;
}

/* One daemon has an NPU, for life. False with the reason where it is another. A node that is not there or not
 * ours to open is left to the driver's library to complain about. */
static bool lock_node(struct accelerator *a, const char *node)
{
	cleanup(closep) int fd = open(node, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	char name[64];

	if (fd < 0)
		return true;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
		a->lock_fd = take_fd(&fd);
		return true;
	}
	pid_t pid = lock_holder(fd);
	if (pid)
		snprintf(a->absent, sizeof a->absent,
			 "%.200s is in use by process %d (%s), another npud most likely: use that one, or "
			 "stop it and start this one again",
			 node, (int)pid, process_name(pid, name, sizeof name));
	else
		snprintf(a->absent, sizeof a->absent,
			 "%.200s is locked by another process, another npud most likely: use that one, or "
			 "stop it and start this one again",
			 node);
	return false;
}

/* On a thread of the runner, under its lock: no more than to write it down. */
static void on_event(void *arg, const char *text)
{
	struct accelerator *a = arg;

	uv_mutex_lock(&a->lock);
	if (a->told_count == ACCELERATOR_TOLD)
		a->told_lost++;
	else
		snprintf(a->told[a->told_count++], sizeof a->told[0], "%s", text);
	if (!a->deaf)
		uv_async_send(&a->wake);
	uv_mutex_unlock(&a->lock);
}

static void on_wake(uv_async_t *wake)
{
	struct accelerator *a = wake->data;
	char told[ACCELERATOR_TOLD][257];

	uv_mutex_lock(&a->lock);
	unsigned count = a->told_count, lost = a->told_lost;
	memcpy(told, a->told, sizeof told);
	a->told_count = a->told_lost = 0;
	uv_mutex_unlock(&a->lock);
	for (unsigned i = 0; i < count; i++)
		events_tell(a->server, NULL, EVENT_DEVICE, 0, "%s", told[i]);
	if (lost)
		events_tell(a->server, NULL, EVENT_DEVICE, 0,
			    "%u more things happened to the device; npuctl device shows how it is", lost);
	tickets_turn(&a->server->tickets); /* they are granted, or not, by how it is */
}

/* The table behind a kind; NULL with `absent` said. */
static const struct device_table *table_of(struct accelerator *a, const struct config *c)
{
	const struct device_table *table = &device_soft;
	struct device_why why;

	if (strcmp(a->kind, "soft") == 0)
		return table;
	if (!lock_node(a, c->device_node))
		return NULL;
	if (xrt_module_load(&table, c->module, &why)) {
		snprintf(a->absent, sizeof a->absent, "%s", why.text);
		return NULL;
	}
	return table;
}

static bool open_kernels(struct accelerator *a, const struct config *c)
{
	struct device_why why;
	int code = a->place[0] ? kernelset_open(&a->kernels, a->place, &why) : DEVICE_E_ABSENT;

	if (code == DEVICE_OK)
		return true;
	if (c->kernels[0] || code != DEVICE_E_ABSENT) {
		snprintf(a->absent, sizeof a->absent, "%s", why.text);
		return false;
	}
	if (strcmp(a->kind, "soft") == 0 && built_in(&a->kernels))
		return true;
	snprintf(a->absent, sizeof a->absent,
		 "no kernel set: npuctl kernels import DIR takes one in (docs/kernels.md says how it is "
		 "built), or [device] kernels names its directory; everything runs on the host");
	return false;
}

/* What will keep an NPU from working is said before the driver says that it does not, in words of its own. */
static void on_step(void *arg, enum probe_verdict verdict, const char *what, const char *found,
		    const char *cure)
{
	(void)arg;
	if (verdict == PROBE_BAD)
		log_line("device", 0, "%s: %s; %s", what, found, cure);
}

/* BAD_CALL is the configuration's fault; everything else leaves the device absent. */
static int open_device(struct accelerator *a, const struct config *c, struct err *err)
{
	struct runner_options options = runner_defaults;
	struct device_why why;

	if (!open_kernels(a, c) || !(options.table = table_of(a, c)))
		return 0;
	if (options.table != &device_soft)
		probe_machine(c->device_node, on_step, NULL);
	options.settings = c->device_settings;
	options.designs = a->kernels.designs;
	options.design_count = a->kernels.count;
	options.launch_ms = (uint32_t)c->launch_ms;
	options.times.recovery_ms = (uint32_t)c->device_recovery * 1000;
	options.residue = a->server->kernels.residue;
	options.event = on_event;
	options.arg = a;
	int code = runner_new(&a->runner, &options, &why);
	if (code == DEVICE_E_BAD_CALL)
		return err_set(err, NPU_E_BAD_CONFIG, "[device] settings: %s", why.text);
	if (code)
		snprintf(a->absent, sizeof a->absent,
			 "%s; npud --check-device says step by step what is missing and what to do",
			 why.text);
	return 0;
}

int accelerator_open(struct accelerator *a, struct server *server, struct err *err)
{
	const struct config *c = &server->config;
	bool automatic = strcmp(c->device, "auto") == 0;

	*a = (struct accelerator){.server = server, .lock_fd = -1, .kind = "none"};
	if (uv_mutex_init(&a->lock) || uv_async_init(&server->loop, &a->wake, on_wake))
		return err_set(err, NPU_E_NO_MEMORY, "no memory for what the device has to tell");
	a->wake.data = a;
	config_kernels(c, a->place, sizeof a->place);
	uv_unref((uv_handle_t *)&a->wake);
	if (strcmp(c->device, "soft") == 0)
		a->kind = "soft";
	else if (automatic || strcmp(c->device, "xrt") == 0)
		a->kind = "xrt";
	int r = 0;
	if (strcmp(a->kind, "none") != 0)
		r = open_device(a, c, err);
	else
		snprintf(a->absent, sizeof a->absent, "[device] kind is none");
	if (!a->runner) {
		closep(&a->lock_fd);
		a->lock_fd = -1;
		if (automatic)
			a->kind = "none";
	}
	if (r == 0 && a->runner)
		log_line("device", 0, "%s with %u %s (%s); it is yet to be tried", a->kind, a->kernels.count,
			 plural(a->kernels.count, "kernel", "kernels"),
			 a->kernels.designs[0].file[0] == '/' ? a->place : "built in");
	else if (r == 0)
		log_line("device", 0, "absent: %s", a->absent);
	return r;
}

void accelerator_close(struct accelerator *a)
{
	if (a->runner)
		runner_close(a->runner);
	/* A driver that never comes back may have something to say after the loop has ended. */
	uv_mutex_lock(&a->lock);
	a->deaf = true;
	uv_mutex_unlock(&a->lock);
	uv_close((uv_handle_t *)&a->wake, NULL);
}

void accelerator_free(struct accelerator *a)
{
	/* A driver that does not come back still reads the kernels' names: with a runner they stay. */
	if (a->runner)
		runner_free(a->runner);
	else
		kernelset_close(&a->kernels);
	a->runner = NULL;
	closep(&a->lock_fd);
}

const struct design *accelerator_design(const struct accelerator *a, uint32_t nv, uint32_t h,
					unsigned layouts)
{
	return a->runner ? kernelset_choose(&a->kernels, nv, h, layouts, (uint32_t)a->server->config.batch)
			 : NULL;
}

void accelerator_status(const struct accelerator *a, struct runner_status *out)
{
	*out = (struct runner_status){.health = HEALTH_ABSENT};
	if (a->runner)
		runner_status(a->runner, out);
	else
		snprintf(out->reason, sizeof out->reason, "%s", a->absent);
}

bool accelerator_failed(struct accelerator *a)
{
	struct runner_status s;

	accelerator_status(a, &s);
	if (s.health == HEALTH_FAILED && !a->failed) {
		a->failed = true;
		a->contexts_refused = s.contexts_refused;
	} else if (s.health != HEALTH_FAILED) {
		a->failed =
			a->failed && s.health == HEALTH_DEGRADED && s.contexts_refused == a->contexts_refused;
	}
	return a->failed;
}
