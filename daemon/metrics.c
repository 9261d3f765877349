#include "metrics.h"
#include "objects.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#define OBJECTS_MOST 1024u /* of resident objects so many are told one by one */
#define HOLDERS_MOST 128u

/* Of passes and of waiting for them, and of waiting for tickets. */
static const double of_runs[HISTOGRAM_BOUNDS] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
						 0.05,	 0.1,	  0.25,	  0.5,	 1,	 2.5,	5,    10};
static const double of_tickets[HISTOGRAM_BOUNDS] = {0.01, 0.1, 1,   2,	 5,    10,   20,   30,
						    60,	  120, 300, 600, 1800, 3600, 7200, 14400};

static void histogram_add(struct histogram *h, const double bounds[HISTOGRAM_BOUNDS], double value)
{
	unsigned i = 0;
	while (i < HISTOGRAM_BOUNDS && value > bounds[i])
		i++;
	h->counts[i]++;
	h->sum += value;
}

void metrics_ran(struct metrics *m, enum ticket_class class, const struct run *run)
{
	m->differences += run->err.code == NPU_E_DIFFERENCE;
	m->failed += run->err.code != 0 || run->done < run->waiting.rows;
	if (run->err.code || !run->done)
		return;
	struct metrics_runs *r = &m->ran[class][run->report.path == PATH_DEVICE];
	r->runs++;
	r->rows += run->done;
	m->fallbacks += run->report.fallback;
	histogram_add(&r->queue, of_runs, run->queue_seconds);
	histogram_add(&r->compute, of_runs, run->compute_seconds);
}

void metrics_granted(struct metrics *m, const struct ticket_record *t)
{
	histogram_add(&m->waited[t->class], of_tickets, (double)(t->granted_ms - t->requested_ms) / 1000);
}

void metrics_ended(struct metrics *m, const struct ticket_record *t)
{
	m->ended[t->state - TICKET_RELEASED]++;
}

/* The lines before a family's values; of a counter `name` is without _total. */
static void family(FILE *f, const char *name, const char *type, const char *unit, const char *help)
{
	fprintf(f, "# TYPE %s %s\n", name, type);
	if (unit)
		fprintf(f, "# UNIT %s %s\n", name, unit);
	fprintf(f, "# HELP %s %s\n", name, help);
}

static void one(FILE *f, const char *name, const char *type, const char *unit, double value, const char *help)
{
	family(f, name, type, unit, help);
	fprintf(f, "%s%s %.17g\n", name, strcmp(type, "counter") == 0 ? "_total" : "", value);
}

/* A label's value is a stranger's to choose. */
static void label(FILE *f, const char *name, const char *text)
{
	fprintf(f, "%s=\"", name);
	for (; *text; text++)
		if (*text == '\n')
			fputs("\\n", f);
		else if (*text == '"' || *text == '\\')
			fprintf(f, "\\%c", *text);
		else
			fputc(*text, f);
	fputc('"', f);
}

static void histogram(FILE *f, const char *name, const char *labels, const struct histogram *h,
		      const double bounds[HISTOGRAM_BOUNDS])
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < HISTOGRAM_BOUNDS; i++) {
		sum += h->counts[i];
		fprintf(f, "%s_bucket{%s,le=\"%.9g\"} %" PRIu64 "\n", name, labels, bounds[i], sum);
	}
	sum += h->counts[HISTOGRAM_BOUNDS];
	fprintf(f, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", name, labels, sum);
	fprintf(f, "%s_count{%s} %" PRIu64 "\n%s_sum{%s} %.9g\n", name, labels, sum, name, labels, h->sum);
}

enum runs_figure { RUNS, ROWS, QUEUE, COMPUTE };

static void put_runs_family(FILE *f, const struct metrics *m, const char *name, enum runs_figure figure)
{
	for (int c = 0; c < METRICS_CLASSES; c++)
		for (int device = 0; device < 2; device++) {
			const struct metrics_runs *r = &m->ran[c][device];
			char labels[64];
			snprintf(labels, sizeof labels, "class=\"%s\",path=\"%s\"", ticket_class_name(c),
				 path_name(device ? PATH_DEVICE : PATH_HOST));
			if (figure == RUNS || figure == ROWS)
				fprintf(f, "%s_total{%s} %" PRIu64 "\n", name, labels,
					figure == RUNS ? r->runs : r->rows);
			else
				histogram(f, name, labels, figure == QUEUE ? &r->queue : &r->compute,
					  of_runs);
		}
}

static void put_runs(FILE *f, struct server *s)
{
	const struct metrics *m = &s->metrics;

	family(f, "npud_runs", "counter", NULL, "Runs answered, by class of their ticket and by path.");
	put_runs_family(f, m, "npud_runs", RUNS);
	family(f, "npud_rows", "counter", NULL, "Activation rows of them.");
	put_runs_family(f, m, "npud_rows", ROWS);
	family(f, "npud_queue_seconds", "histogram", "seconds", "From a run's arrival to its first pass.");
	put_runs_family(f, m, "npud_queue_seconds", QUEUE);
	family(f, "npud_compute_seconds", "histogram", "seconds", "Of the passes a run was in.");
	put_runs_family(f, m, "npud_compute_seconds", COMPUTE);
	one(f, "npud_runs_failed", "counter", NULL, (double)m->failed,
	    "Runs refused or cut off after they began to wait.");
	one(f, "npud_run_fallbacks", "counter", NULL, (double)m->fallbacks,
	    "Runs that the host did because the device could not.");
	one(f, "npud_differences", "counter", NULL, (double)m->differences,
	    "Verified runs whose two paths gave different bits.");
	one(f, "npud_passes", "counter", NULL, (double)executor_passes(&s->executor),
	    "Passes over weights, each for rows of one run or of several.");
}

static void put_daemon(FILE *f, const struct server *s)
{
	family(f, "npud", "info", NULL, "What runs here.");
	fprintf(f, "npud_info{version=\"" NPUD_VERSION "\",device=\"%s\",pack=\"%s\",head=\"%s\"} 1\n",
		s->accelerator.kind, s->kernels.pack_variant, s->kernels.head_variant);
	one(f, "npud_uptime_seconds", "gauge", "seconds", (double)(server_now() - s->started_ms) / 1000,
	    "Since the daemon started; sleep of the machine counts.");
	one(f, "npud_clients", "gauge", NULL, link_count(&s->sessions), "Sessions.");
	one(f, "npud_requests", "counter", NULL, (double)s->requests, "Requests.");
	one(f, "npud_requests_refused", "counter", NULL, (double)s->refused,
	    "Requests answered by an error.");
	one(f, "npud_requests_in_flight", "gauge", NULL, s->in_flight, "Requests not answered yet.");
}

static void put_device(FILE *f, struct server *s)
{
	struct runner_status d;

	accelerator_status(&s->accelerator, &d);
	const struct {
		const char *kind;
		uint64_t count;
	} faults[] = {
		{"timeout", d.timeouts}, {"error", d.errors}, {"hang", d.hangs}, {"mismatch", d.mismatches}};
	family(f, "npud_device_health", "stateset", NULL, "How the device is; npuctl device says why.");
	for (int h = 0; h <= HEALTH_ABSENT; h++)
		fprintf(f, "npud_device_health{npud_device_health=\"%s\"} %d\n", health_name(h),
			d.health == (enum health)h);
	one(f, "npud_device_launches", "counter", NULL, (double)d.launches, "Launches.");
	family(f, "npud_device_faults", "counter", NULL, "Launches that hung, failed or were wrong.");
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		fprintf(f, "npud_device_faults_total{kind=\"%s\"} %" PRIu64 "\n", faults[i].kind,
			faults[i].count);
	one(f, "npud_device_recoveries", "counter", NULL, (double)d.recoveries, "Recoveries tried.");
	one(f, "npud_device_contexts_used", "gauge", NULL, d.limits.contexts_used,
	    "Hardware contexts in use by anybody, when one was last opened.");
	one(f, "npud_device_contexts_max", "gauge", NULL, d.limits.contexts_max,
	    "Hardware contexts there are; 0: not known.");
	one(f, "npud_device_reserved", "gauge", NULL, atomic_load(&s->executor.reserved) != 0,
	    "1 while an exclusive ticket has the device.");
}

static void put_tickets(FILE *f, struct server *s)
{
	const struct arbiter *a = &s->tickets.arbiter;
	const struct metrics *m = &s->metrics;
	unsigned count[TICKET_EXPIRING + 1][METRICS_CLASSES] = {{0}}, holders = 0;
	uint64_t now = server_now();

	family(f, "npud_ticket_idle_seconds", "gauge", "seconds",
	       "Since there was work under a ticket that holds.");
	link_each(at, &a->tickets)
	{
		const struct ticket_record *t = &link_of(at, struct ticket, in_tickets)->is;
		if (t->state > TICKET_EXPIRING)
			continue;
		count[t->state][t->class]++;
		if (t->state == TICKET_GRANTED && !t->parent && holders++ < HOLDERS_MOST)
			fprintf(f, "npud_ticket_idle_seconds{ticket=\"%" PRIu64 "\",uid=\"%u\"} %.9g\n",
				t->id, t->uid, (double)(now - t->used_ms) / 1000);
	}
	family(f, "npud_tickets", "gauge", NULL, "Tickets that are not over.");
	for (int state = 0; state <= TICKET_EXPIRING; state++)
		for (int c = 0; c < METRICS_CLASSES; c++)
			fprintf(f, "npud_tickets{state=\"%s\",class=\"%s\"} %u\n", ticket_state_name(state),
				ticket_class_name(c), count[state][c]);
	family(f, "npud_tickets_ended", "counter", NULL, "Tickets that are over, by how.");
	for (int i = 0; i < METRICS_ENDINGS; i++)
		fprintf(f, "npud_tickets_ended_total{state=\"%s\"} %" PRIu64 "\n",
			ticket_state_name(TICKET_RELEASED + i), m->ended[i]);
	family(f, "npud_ticket_wait_seconds", "histogram", "seconds", "From a request to its grant.");
	for (int c = 0; c < METRICS_CLASSES; c++) {
		char labels[64];
		snprintf(labels, sizeof labels, "class=\"%s\"", ticket_class_name(c));
		histogram(f, "npud_ticket_wait_seconds", labels, &m->waited[c], of_tickets);
	}
	one(f, "npud_draining", "gauge", NULL, a->draining,
	    "1 while nothing is granted by an administrator's wish.");
}

enum object_figure { OBJECT_BYTES, OBJECT_USERS, OBJECT_ROWS };

static void put_object_family(FILE *f, struct server *s, const char *name, enum object_figure figure)
{
	unsigned n = 0;
	link_each(at, &s->residency.objects)
	{
		const struct object *o = link_of(at, struct object, resident.in_objects);
		if (n++ == OBJECTS_MOST)
			break;
		fprintf(f, "%s{id=\"%" PRIu64 "\",", name, o->id);
		label(f, "label", o->label);
		fprintf(f, ",layer=\"%u\",", o->resident.identity.layer);
		label(f, "role", o->resident.identity.role);
		fprintf(f, "} %" PRIu64 "\n",
			figure == OBJECT_BYTES	 ? object_bytes(o)
			: figure == OBJECT_USERS ? o->handles
						 : o->rows);
	}
}

static void put_resident(FILE *f, struct server *s)
{
	struct residency_sums sums = residency_sums(&s->residency);

	one(f, "npud_resident_bytes", "gauge", "bytes", (double)sums.used, "Resident heads and weights.");
	one(f, "npud_resident_freeable_bytes", "gauge", "bytes", (double)sums.freeable,
	    "Of them what nobody uses and may go.");
	one(f, "npud_resident_budget_bytes", "gauge", "bytes", (double)objects_budget(s),
	    "What may be resident now.");
	family(f, "npud_object_bytes", "gauge", "bytes", "Of each resident head or projection weight.");
	put_object_family(f, s, "npud_object_bytes", OBJECT_BYTES);
	family(f, "npud_object_users", "gauge", NULL, "Handles of clients that refer to it.");
	put_object_family(f, s, "npud_object_users", OBJECT_USERS);
	family(f, "npud_object_rows", "counter", NULL, "Activation rows it has run.");
	put_object_family(f, s, "npud_object_rows_total", OBJECT_ROWS);
}

static void put_store(FILE *f, const struct server *s)
{
	struct imagestore_stat stat;
	struct err err;

	if (!s->filing.store || imagestore_stat(s->filing.store, &stat, &err))
		return;
	one(f, "npud_store_bytes", "gauge", "bytes", (double)stat.bytes, "Packed heads on disk.");
	one(f, "npud_store_heads", "gauge", NULL, (double)stat.heads, "How many.");
	family(f, "npud_store_tiles", "counter", NULL, "Tiles, by what became of them.");
	fprintf(f, "npud_store_tiles_total{outcome=\"hit\"} %" PRIu64 "\n", stat.hits);
	fprintf(f, "npud_store_tiles_total{outcome=\"miss\"} %" PRIu64 "\n", stat.misses);
	fprintf(f, "npud_store_tiles_total{outcome=\"written\"} %" PRIu64 "\n", stat.written);
	fprintf(f, "npud_store_tiles_total{outcome=\"not written\"} %" PRIu64 "\n", stat.write_failures);
	family(f, "npud_store_tiles_refused", "counter", NULL,
	       "Tiles on disk that were not believed, by reason.");
	for (int i = 0; i < REFUSED_COUNT; i++) {
		fputs("npud_store_tiles_refused_total{", f);
		label(f, "reason", refusal_name(i));
		fprintf(f, "} %" PRIu64 "\n", stat.refused[i]);
	}
}

static void put_users(FILE *f, struct server *s)
{
	struct usage *u = &s->tickets.usage;
	uint64_t now = server_now();

	for (int computed = 0; computed < 2; computed++) {
		const char *name = computed ? "npud_user_computed_seconds" : "npud_user_held_seconds";
		family(f, name, "gauge", "seconds",
		       computed ? "Passes over weights for a user, halved every day."
				: "Tickets held by a user, halved every day.");
		for (size_t i = 0; i < u->count; i++) {
			const struct usage_user *user = usage_of(u, now, u->users[i].uid);
			fprintf(f, "%s{uid=\"%u\"} %.9g\n", name, user->uid,
				computed ? user->is.computed_seconds : user->is.held_seconds);
		}
	}
}

char *metrics_text(struct server *s, size_t *size)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, size);

	if (!f)
		return NULL;
	put_daemon(f, s);
	put_runs(f, s);
	put_device(f, s);
	put_tickets(f, s);
	put_resident(f, s);
	put_store(f, s);
	put_users(f, s);
	fputs("# EOF\n", f);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}
