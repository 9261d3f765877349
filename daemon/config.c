#include "config.h"
#include "batch.h"
#include "directory.h"
#include "path.h"
#include "own.h"
#include "proto.h"
#include "simulation.h"
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TENANT "tenant"
#define PRELOAD "preload"
#define TENANT_ROOM sizeof((struct config_tenant *)0)->pause

static const struct key {
	const char *section, *name;
	enum { TEXT, COUNT, SPAN, FLAG } kind; /* SPAN: seconds, -1 is for ever; FLAG: yes or no */
	size_t offset, room;
	uint64_t least, most;
} keys[] = {
#define TEXT_KEY(s, n, m)                                                                   \
	{                                                                                   \
		s, n, TEXT, offsetof(struct config, m), sizeof((struct config *)0)->m, 0, 0 \
	}
#define COUNT_KEY(s, n, m, least, most)                                 \
	{                                                               \
		s, n, COUNT, offsetof(struct config, m), 0, least, most \
	}
#define FLAG_KEY(s, n, m)                                       \
	{                                                       \
		s, n, FLAG, offsetof(struct config, m), 0, 0, 1 \
	}
#define SPAN_KEY(s, n, m, most)                                    \
	{                                                          \
		s, n, SPAN, offsetof(struct config, m), 0, 0, most \
	}
	TEXT_KEY("daemon", "socket", socket),
	TEXT_KEY("daemon", "cache_dir", cache_dir),
	TEXT_KEY("daemon", "state_dir", state_dir),
	TEXT_KEY("daemon", "group", group),
	TEXT_KEY("daemon", "admin_group", admin_group),
	TEXT_KEY("device", "kind", device),
	TEXT_KEY("device", "settings", device_settings),
	COUNT_KEY("device", "launch_ms", launch_ms, 1, 600000),
	COUNT_KEY("device", "recovery", device_recovery, 0, 86400),
	TEXT_KEY("device", "node", device_node),
	FLAG_KEY("device", "acl", device_acl),
	TEXT_KEY("device", "lock", npu_lock),
	TEXT_KEY("device", "kernels", kernels),
	TEXT_KEY("device", "module", module),
	COUNT_KEY("metrics", "port", metrics_port, 0, 65535),
	COUNT_KEY("head", "threads", threads, 1, 16),
	COUNT_KEY("head", "batch", batch, 1, BATCH_ROWS_MAX),
	COUNT_KEY("resident", "max_bytes", resident_bytes, 1 << 20, UINT64_C(1) << 50),
	TEXT_KEY("head", "path", head_path),
	SPAN_KEY("resident", "keep", keep, 365 * 86400),
	FLAG_KEY("store", "enabled", store_enabled),
	TEXT_KEY("store", "path", store_path),
	COUNT_KEY("store", "max_bytes", store_bytes, 1 << 20, UINT64_C(1) << 39),
	COUNT_KEY("store", "min_free_bytes", store_free_bytes, 0, UINT64_C(1) << 50),
	COUNT_KEY("limits", "connections", connections, 1, 100000),
	COUNT_KEY("limits", "in_flight", in_flight, 1, 1024),
	COUNT_KEY("limits", "in_flight_all", in_flight_all, 1, 4096),
	COUNT_KEY("limits", "user_connections", user_connections, 1, 100000),
	COUNT_KEY("limits", "user_in_flight", user_in_flight, 1, 4096),
	COUNT_KEY("limits", "handles", handles, 1, 65536),
	COUNT_KEY("limits", "user_upload", user_upload, 0, UINT64_C(1) << 50),
	COUNT_KEY("limits", "user_replies", user_replies, PROTO_REPLY_MAX, UINT64_C(1) << 50),
	COUNT_KEY("ticket", "default", ticket_default, 1, 30 * 86400),
	COUNT_KEY("ticket", "max", ticket_max, 1, 30 * 86400),
	COUNT_KEY("ticket", "grace", ticket_grace, 1, 3600),
	COUNT_KEY("ticket", "aging", ticket_aging, 1, 86400),
	COUNT_KEY("ticket", "shared_slots", ticket_shared_slots, 1, 64),
	COUNT_KEY("ticket", "queue", ticket_queue, 1, 1024),
	COUNT_KEY("ticket", "per_user", ticket_per_user, 1, 1024),
	COUNT_KEY("ticket", "idle_release", ticket_idle_release, 0, 30 * 86400),
	COUNT_KEY("ticket", "resume", ticket_resume, 0, 3600),
};

/* Of every section [tenant NAME]; offsets are those of struct config_tenant. */
static const struct key tenant_keys[] = {
	{TENANT, "pause", TEXT, offsetof(struct config_tenant, pause), TENANT_ROOM, 0, 0},
	{TENANT, "resume", TEXT, offsetof(struct config_tenant, resume), TENANT_ROOM, 0, 0},
	{TENANT, "timeout", COUNT, offsetof(struct config_tenant, timeout), 0, 1, 600},
};

static void place(char *to, const char *variable, const char *below_home, const char *name)
{
	const char *base = getenv(variable), *home = getenv("HOME");
	char nowhere[32]; /* without a home: beside the socket's last resort */

	snprintf(nowhere, sizeof nowhere, "/tmp/npud-%u", (unsigned)getuid());
	if (base && *base == '/')
		snprintf(to, PATH_MAX, "%s/%s", base, name);
	else
		snprintf(to, PATH_MAX, "%s/%s/%s", home && *home ? home : nowhere, below_home, name);
}

void config_defaults(struct config *c)
{
	const char *env = getenv("NPUD_SOCKET"), *runtime = getenv("XDG_RUNTIME_DIR");
	char run_user[64];

	*c = (struct config){.device = "auto",
			     .launch_ms = 5000,
			     .device_recovery = 60,
			     .device_node = "/dev/accel/accel0",
			     .npu_lock = "/tmp/npu.lock",
			     .module = NPUD_XRT_MODULE,
			     .store_enabled = 1,
			     .store_bytes = UINT64_C(32) << 30,
			     .store_free_bytes = UINT64_C(1) << 30,
			     .head_path = "auto",
			     .threads = 4,
			     .batch = 16,
			     .resident_bytes =
				     (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE),
			     .keep = 600,
			     .connections = 4096,
			     .in_flight = 16,
			     .in_flight_all = 512,
			     .user_connections = 1024,
			     .user_in_flight = 256,
			     .handles = 1024,
			     .user_upload = UINT64_C(2) << 30,
			     .user_replies = UINT64_C(1) << 30,
			     .ticket_default = 600,
			     .ticket_max = 14400,
			     .ticket_grace = 10,
			     .ticket_aging = 60,
			     .ticket_shared_slots = 2,
			     .ticket_queue = 256,
			     .ticket_per_user = 32,
			     .ticket_resume = 30};
	snprintf(run_user, sizeof run_user, "/run/user/%u", (unsigned)getuid());
	if (env && *env)
		snprintf(c->socket, sizeof c->socket, "%s", env);
	else if (runtime && *runtime == '/')
		snprintf(c->socket, sizeof c->socket, "%s/npud/npud.sock", runtime);
	else if (access(run_user, W_OK) == 0)
		snprintf(c->socket, sizeof c->socket, "%s/npud/npud.sock", run_user);
	else
		snprintf(c->socket, sizeof c->socket, "/tmp/npud-%u/npud.sock", (unsigned)getuid());
	place(c->cache_dir, "XDG_CACHE_HOME", ".cache", "npud");
	place(c->state_dir, "XDG_STATE_HOME", ".local/state", "npud");
}

#define KEYS (sizeof keys / sizeof *keys)
#define TENANT_KEYS (sizeof tenant_keys / sizeof *tenant_keys)

/* Edit distance of two short names, for the suggestion. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[64];
	size_t n = strnlen(b, 63);
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		unsigned diagonal = row[0];
		row[0] = i + 1;
		for (size_t j = 1; j <= n; j++) {
			unsigned change = diagonal + (a[i] != b[j - 1]);
			diagonal = row[j];
			unsigned insert = row[j - 1] + 1, erase = row[j] + 1;
			row[j] = change < insert ? change : insert;
			if (erase < row[j])
				row[j] = erase;
		}
	}
	return row[n];
}

struct reading {
	struct config *config;
	const char *path;
	FILE *file;
	int line;	/* counted here: Debian's inih does not tell the handler */
	int error_line; /* of what is in err */
	struct err *err;
};

/* inih takes a line in pieces of its buffer and would read the rest of a long one as another key. */
static char *next_line(char *to, int room, void *arg)
{
	struct reading *r = arg;
	char *line = fgets(to, room, r->file);
	r->line++;
	if (line && !strchr(line, '\n') && !feof(r->file)) {
		r->error_line = r->line;
		err_set(r->err, NPU_E_BAD_CONFIG, "%s:%d: the line is longer than %d bytes", r->path, r->line,
			room - 2);
		return NULL;
	}
	return line;
}

static const struct key *nearer(const struct key *best, unsigned *least, const struct key *list, size_t count,
				const char *section, const char *name)
{
	for (size_t i = 0; i < count; i++) {
		unsigned d = distance(name, list[i].name) + distance(section, list[i].section);
		if (d < *least) {
			*least = d;
			best = &list[i];
		}
	}
	return best;
}

static int refuse_key(struct reading *r, int line, const char *section, const char *name)
{
	unsigned least = ~0u;
	const struct key *nearest = nearer(NULL, &least, keys, KEYS, section, name);
	nearest = nearer(nearest, &least, tenant_keys, TENANT_KEYS, section, name);
	char shown_section[64], shown[64], where[80] = "before any [section]";
	err_printable(shown_section, sizeof shown_section, section, strlen(section));
	err_printable(shown, sizeof shown, name, strlen(name));
	if (*section)
		snprintf(where, sizeof where, "in [%s]", shown_section);
	err_set(r->err, NPU_E_BAD_CONFIG, "%s:%d: there is no key \"%s\" %s; the nearest is \"%s\" in [%s]",
		r->path, line, shown, where, nearest->name, nearest->section);
	return 0;
}

static int read_value(struct reading *r, const struct key *k, char *to, const char *value)
{
	char shown[64], *end;

	if (k->kind == TEXT) {
		if (strlen(value) >= k->room) {
			err_set(r->err, NPU_E_BAD_CONFIG, "%s:%d: %s is longer than %zu bytes", r->path,
				r->line, k->name, k->room - 1);
			return 0;
		}
		memcpy(to, value, strlen(value) + 1);
		return 1;
	}
	err_printable(shown, sizeof shown, value, strlen(value));
	if (k->kind == FLAG) {
		*(uint64_t *)to = strcmp(value, "yes") == 0;
		if (*(uint64_t *)to || strcmp(value, "no") == 0)
			return 1;
		err_set(r->err, NPU_E_BAD_CONFIG, "%s:%d: %s is \"%s\"; yes or no is needed", r->path,
			r->line, k->name, shown);
		return 0;
	}
	if (k->kind == SPAN && strcmp(value, "-1") == 0) {
		*(uint64_t *)to = CONFIG_FOR_EVER;
		return 1;
	}
	errno = 0;
	unsigned long long n = strtoull(value, &end, 10);
	if (errno || *end || end == value || *value == '-' || n < k->least || n > k->most) {
		err_set(r->err, NPU_E_BAD_CONFIG,
			"%s:%d: %s is \"%s\"; a number from %llu to %llu%s is needed", r->path, r->line,
			k->name, shown, (unsigned long long)k->least, (unsigned long long)k->most,
			k->kind == SPAN ? ", or -1," : "");
		return 0;
	}
	*(uint64_t *)to = n;
	return 1;
}

/* The tenant of that name, a new one where there is none yet; NULL: refused. */
static struct config_tenant *tenant_of(struct reading *r, const char *name)
{
	struct config *c = r->config;
	size_t size = strlen(name);
	uint32_t i = 0;

	if (!size || size >= sizeof c->tenants[0].name ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != size) {
		err_set(r->err, NPU_E_BAD_CONFIG,
			"%s:%d: [tenant NAME] needs a name of 1 to %zu letters, digits and _.-", r->path,
			r->line, sizeof c->tenants[0].name - 1);
		return NULL;
	}
	while (i < c->tenant_count && strcmp(c->tenants[i].name, name) != 0)
		i++;
	if (i == CONFIG_TENANTS) {
		err_set(r->err, NPU_E_BAD_CONFIG, "%s:%d: there are more than %u tenants", r->path, r->line,
			CONFIG_TENANTS);
		return NULL;
	}
	if (i == c->tenant_count) {
		c->tenants[i] = (struct config_tenant){.timeout = 10};
		memcpy(c->tenants[i].name, name, size + 1);
		c->tenant_count++;
	}
	return &c->tenants[i];
}

static bool is_tenant(const char *section)
{
	size_t size = strlen(TENANT);
	return strncmp(section, TENANT, size) == 0 && (section[size] == ' ' || section[size] == '\0');
}

/* Another value for a name that was there is that name's. */
static int read_preload(struct reading *r, const char *name, const char *value)
{
	struct config *c = r->config;
	uint32_t i = 0;

	while (i < c->preload_count && strcmp(c->preloads[i].name, name) != 0)
		i++;
	struct config_preload *p = &c->preloads[i];
	if (i == CONFIG_PRELOADS)
		err_set(r->err, NPU_E_BAD_CONFIG, "%s:%d: there are more than %u heads in [preload]", r->path,
			r->line, CONFIG_PRELOADS);
	else if (strlen(name) >= sizeof p->name || !*value || strlen(value) >= sizeof p->model)
		err_set(r->err, NPU_E_BAD_CONFIG,
			"%s:%d: [preload] has NAME = MODEL, a name of at most %zu bytes and a model of 1 to "
			"%zu",
			r->path, r->line, sizeof p->name - 1, sizeof p->model - 1);
	if (r->err->code)
		return 0;
	memcpy(p->name, name, strlen(name) + 1);
	memcpy(p->model, value, strlen(value) + 1);
	c->preload_count += i == c->preload_count;
	return 1;
}

static int on_key(void *arg, const char *section, const char *name, const char *value)
{
	struct reading *r = arg;
	if (r->err->code)
		return 0; /* inih goes on after an error; the first is the one to tell */
	r->error_line = r->line;
	const struct key *list = keys;
	size_t count = KEYS;
	char *base = (char *)r->config;
	if (strcmp(section, PRELOAD) == 0)
		return read_preload(r, name, value);
	if (is_tenant(section)) {
		const char *its = section + strlen(TENANT);
		list = tenant_keys;
		count = TENANT_KEYS;
		base = (char *)tenant_of(r, its + strspn(its, " "));
		section = TENANT;
		if (!base)
			return 0;
	}
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i].section, section) == 0 && strcmp(list[i].name, name) == 0)
			return read_value(r, &list[i], base + list[i].offset, value);
	return refuse_key(r, r->line, section, name);
}

static int check_tenants(const struct config *c, const char *path, struct err *err)
{
	for (uint32_t i = 0; i < c->tenant_count; i++)
		if (!c->tenants[i].pause[0] || !c->tenants[i].resume[0])
			return err_set(err, NPU_E_BAD_CONFIG, "%s: [tenant %s] needs both pause and resume",
				       path, c->tenants[i].name);
	return 0;
}

static int check_device(const struct config *c, const char *path, struct err *err)
{
	static const char *const kinds[] = {"auto", "xrt", "soft", "none"};
	struct simulation simulation;
	char why[256];
	unsigned kind = 0;

	while (kind < sizeof kinds / sizeof *kinds && strcmp(c->device, kinds[kind]) != 0)
		kind++;
	if (kind == sizeof kinds / sizeof *kinds)
		return err_set(err, NPU_E_BAD_CONFIG,
			       "%s: [device] kind is \"%s\"; it can be auto, xrt, soft or none", path,
			       c->device);
	if (strcmp(c->device, "soft") == 0 &&
	    !simulation_parse(&simulation, c->device_settings, why, sizeof why))
		return err_set(err, NPU_E_BAD_CONFIG, "%s: [device] settings: %s", path, why);
	if (c->kernels[0] && c->kernels[0] != '/')
		return err_set(err, NPU_E_BAD_CONFIG,
			       "%s: [device] kernels is \"%s\"; an absolute path is needed", path,
			       c->kernels);
	return 0;
}

/*
 * A file that can be read again: of a pipe SIGHUP would find an empty one, which changes every limit, or wait
 * for ever. A device such as /dev/null says the same each time.
 */
static FILE *open_again_and_again(const char *path, struct err *err)
{
	cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0) {
		if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode)) {
			err_set(err, NPU_E_BAD_CONFIG,
				"%s: the configuration cannot be read: it is %s, and npud reads it again at "
				"every "
				"reload; give a file",
				path, S_ISDIR(st.st_mode) ? "a directory" : "a pipe");
			return NULL;
		}
		FILE *file = fdopen(fd, "r");
		if (file) {
			(void)take_fd(&fd);
			return file;
		}
	}
	err_set(err, NPU_E_BAD_CONFIG,
		"%s: the configuration cannot be read: %s; it is named by --config, else by $NPUD_CONFIG",
		path, strerror(errno));
	return NULL;
}

int config_read(struct config *c, const char *path, struct err *err)
{
	struct reading r = {.config = c, .path = path, .file = open_again_and_again(path, err), .err = err};
	if (!r.file)
		return err->code;
	*err = (struct err){0};
	int line = ini_parse_stream(next_line, &r, on_key, &r);
	bool whole = !ferror(r.file);
	fclose(r.file);
	if (!whole)
		return err_set(err, NPU_E_BAD_CONFIG, "%s: the configuration cannot be read to its end",
			       path);
	/* inih returns the first line that it or on_key refused: an earlier one than on_key's is its own. */
	if (line != 0 && (!err->code || line < r.error_line))
		return err_set(err, NPU_E_BAD_CONFIG, "%s:%d: neither a [section] nor key = value", path,
			       line);
	if (err->code || check_tenants(c, path, err))
		return err->code;
	if (path_of(c->head_path, strlen(c->head_path)) == PATH_COUNT)
		return err_set(err, NPU_E_BAD_CONFIG,
			       "%s: [head] path is \"%s\"; it can be auto, host, device or alternate", path,
			       c->head_path);
	if (check_device(c, path, err))
		return err->code;
	if (c->npu_lock[0] && c->npu_lock[0] != '/')
		return err_set(err, NPU_E_BAD_CONFIG,
			       "%s: [device] lock is \"%s\"; an absolute path is needed, or nothing", path,
			       c->npu_lock);
	const char *paths[][2] = {
		{"socket", c->socket}, {"cache_dir", c->cache_dir}, {"state_dir", c->state_dir}};
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		if (paths[i][1][0] != '/')
			return err_set(err, NPU_E_BAD_CONFIG,
				       "%s: [daemon] %s is \"%s\"; an absolute path is needed", path,
				       paths[i][0], paths[i][1]);
	return 0;
}

static int override(char *to, size_t room, const char *option, const char *value, struct err *err)
{
	if (!value)
		return 0;
	if (strlen(value) >= room)
		return err_set(err, NPU_E_BAD_VALUE, "--%s: longer than %zu bytes", option, room - 1);
	memcpy(to, value, strlen(value) + 1);
	return 0;
}

int config_load(struct config *c, const struct config_source *from, struct err *err)
{
	config_defaults(c);
	int r = from->file && *from->file ? config_read(c, from->file, err) : 0;
	if (r == 0)
		r = override(c->socket, sizeof c->socket, "socket", from->socket, err);
	if (r == 0)
		r = override(c->cache_dir, sizeof c->cache_dir, "cache-dir", from->cache_dir, err);
	if (r == 0)
		r = override(c->state_dir, sizeof c->state_dir, "state-dir", from->state_dir, err);
	return r;
}

void config_kernels(const struct config *c, char *to, size_t room)
{
	if (c->kernels[0])
		snprintf(to, room, "%s", c->kernels);
	else if (snprintf(to, room, "%s/kernels", c->state_dir) >= (int)room)
		*to = '\0';
}

/* What nothing was built upon when the daemon started. */
static bool can_change(const struct key *k)
{
	return strcmp(k->section, "limits") == 0 || strcmp(k->section, "resident") == 0 ||
	       strcmp(k->section, "ticket") == 0 || strcmp(k->name, "group") == 0 ||
	       strcmp(k->name, "admin_group") == 0;
}

void config_adopt(struct config *running, const struct config *fresh, char *kept, size_t room)
{
	size_t used = 0;
	kept[0] = '\0';
	for (size_t i = 0; i < KEYS; i++) {
		const struct key *k = &keys[i];
		char *to = (char *)running + k->offset;
		const char *from = (const char *)fresh + k->offset;
		bool same = k->kind == TEXT ? strcmp(to, from) == 0 : memcmp(to, from, sizeof(uint64_t)) == 0;
		if (same)
			continue;
		if (can_change(k))
			memcpy(to, from, k->kind == TEXT ? k->room : sizeof(uint64_t));
		else if (used < room)
			used += (size_t)snprintf(kept + used, room - used, "%s[%s] %s", used ? ", " : "",
						 k->section, k->name);
	}
	if ((running->tenant_count != fresh->tenant_count ||
	     memcmp(running->tenants, fresh->tenants, sizeof fresh->tenants) != 0) &&
	    used < room)
		used += (size_t)snprintf(kept + used, room - used, "%s[tenant]", used ? ", " : "");
	if ((running->preload_count != fresh->preload_count ||
	     memcmp(running->preloads, fresh->preloads, sizeof fresh->preloads) != 0) &&
	    used < room)
		snprintf(kept + used, room - used, "%s[preload]", used ? ", " : "");
}

int config_places(const struct config *c, struct err *err)
{
	char directory[PATH_MAX];
	snprintf(directory, sizeof directory, "%s", c->socket);
	char *slash = strrchr(directory, '/');
	if (!slash || slash == directory)
		return err_set(err, NPU_E_BAD_CONFIG, "%s: the socket needs a directory of its own",
			       c->socket);
	*slash = '\0';
	int r = directory_make(directory, err);
	if (r == 0)
		r = directory_make(c->state_dir, err);
	return r;
}
