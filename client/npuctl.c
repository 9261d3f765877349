/* npuctl: what an operator asks the daemon; see docs/man/npuctl.1.scd. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "npuctl.h"
#include "plain.h"
#include "plural.h"
#include "own.h"

#ifndef NPUD_VERSION
#define NPUD_VERSION "unknown"
#endif

enum { PINGS_MAX = 1000000, IDLE_SHOWN_MS = 10000 };

int no_memory(void)
{
	return exit_complain(EX_TEMPFAIL, "not enough memory for the answer");
}

int print_json(json_t *root)
{
	return table_json_print(root) ? no_memory() : 0;
}

void print_stranger(const char *field, const char *text)
{
	plain_line(stdout, "%-10s  %s", field, text && *text ? text : "-");
}

static void print_trouble(const struct npu_status *s)
{
	char ago[TABLE_UNIT], line[sizeof s->trouble + 64];

	snprintf(line, sizeof line, "%s ago: %s", table_format_uptime(ago, s->trouble_ms), s->trouble);
	print_stranger("trouble", line);
}

static void print_kernel(const struct npu_status *s)
{
	char line[sizeof s->kernel + 64];

	snprintf(line, sizeof line, "%s%s, %" PRIu64 " %s", s->kernel, s->prefetch ? " with prefetch" : "",
		 s->threads, plural(s->threads, "thread", "threads"));
	print_stranger("host", line);
}

static int do_status(npu_client *c, const struct options *o)
{
	char text[TABLE_UNIT];
	struct npu_status s;
	int error = npu_status(c, &s);

	if (error)
		return exit_npu(c, error, NULL);
	if (o->json)
		return print_json(json_pack(
			"{so so so so so so so so sb sI sI sI sI sI sI sI sI sI sI sI sI sI sI sI sI sI sI "
			"sI sI sI sb}",
			"socket", table_json_string(npu_socket(c)), "version", table_json_string(s.version),
			"device", table_json_string(s.device), "health", table_json_string(s.health),
			"reason", table_json_string(s.reason), "trouble", table_json_string(s.trouble),
			"fingerprint", table_json_string(s.fingerprint), "kernel",
			table_json_string(s.kernel), "prefetch", s.prefetch, "threads", (json_int_t)s.threads,
			"pid", (json_int_t)s.pid, "trouble_ms", (json_int_t)s.trouble_ms, "uptime_ms",
			(json_int_t)s.uptime_ms, "clients", (json_int_t)s.clients, "heads",
			(json_int_t)s.heads, "resident_bytes", (json_int_t)s.resident_bytes, "requests",
			(json_int_t)s.requests, "refused", (json_int_t)s.refused, "rows", (json_int_t)s.rows,
			"in_flight", (json_int_t)s.in_flight, "launches", (json_int_t)s.launches, "faults",
			(json_int_t)s.faults, "contexts_used", (json_int_t)s.contexts_used, "contexts_max",
			(json_int_t)s.contexts_max, "passes", (json_int_t)s.passes, "upload_bytes",
			(json_int_t)s.upload_bytes, "holding", (json_int_t)s.holding, "waiting",
			(json_int_t)s.waiting, "idle_ms", (json_int_t)s.idle_ms, "pass_ms",
			(json_int_t)s.pass_ms, "draining", s.draining));
	print_stranger("socket", npu_socket(c));
	print_stranger("version", s.version);
	print_stranger("device", s.device);
	print_stranger("health", s.health);
	if (s.reason[0])
		print_stranger("reason", s.reason);
	else if (s.trouble[0])
		print_trouble(&s);
	if (s.kernel[0])
		print_kernel(&s);
	if (s.launches)
		printf("%-10s  %" PRIu64 ", of them %" PRIu64 " at fault\n", "launches", s.launches,
		       s.faults);
	if (s.contexts_max)
		printf("%-10s  %" PRIu64 " of %" PRIu64 "\n", "contexts", s.contexts_used, s.contexts_max);
	printf("%-10s  %" PRIu64 "\n", "pid", s.pid);
	printf("%-10s  %s\n", "uptime", table_format_uptime(text, s.uptime_ms));
	printf("%-10s  %" PRIu64 "\n", "clients", s.clients);
	printf("%-10s  %" PRIu64 "\n", "heads", s.heads);
	printf("%-10s  %s\n", "resident", table_format_bytes(text, s.resident_bytes));
	if (s.upload_bytes)
		printf("%-10s  %s\n", "uploads", table_format_bytes(text, s.upload_bytes));
	printf("%-10s  %" PRIu64 "\n", "requests", s.requests);
	printf("%-10s  %" PRIu64 "\n", "refused", s.refused);
	printf("%-10s  %" PRIu64 " in %" PRIu64 " %s\n", "rows", s.rows, s.passes,
	       plural(s.passes, "pass", "passes"));
	printf("%-10s  %" PRIu64 "\n", "in flight", s.in_flight);
	if (s.draining)
		printf("%-10s  no ticket is granted: npuctl resume ends that\n", "draining");
	if (s.pass_ms >= PASS_SHOWN_MS)
		printf("%-10s  has taken %.1f s: rows of all others wait for its end\n", "pass",
		       (double)s.pass_ms / 1e3);
	printf("%-10s  %" PRIu64 " hold, %" PRIu64 " wait\n", "tickets", s.holding, s.waiting);
	if (s.idle_ms >= IDLE_SHOWN_MS)
		printf("%-10s  a hold has done nothing for %s (npuctl tickets)\n", "idle",
		       table_format_uptime(text, s.idle_ms));
	print_stranger("packer", s.fingerprint);
	return 0;
}

static int add_client(void *arg, const struct npu_client_row *row)
{
	struct listing *l = arg;
	char text[TABLE_UNIT];

	if (l->array)
		return add_row(l->array,
			       json_pack("{sI so so sI sI sI sI sI sI sI}", "session",
					 (json_int_t)row->session, "name", table_json_string(row->name),
					 "version", table_json_string(row->version), "uid",
					 (json_int_t)row->uid, "pid", (json_int_t)row->pid, "connected_ms",
					 (json_int_t)row->connected_ms, "requests", (json_int_t)row->requests,
					 "heads", (json_int_t)row->heads, "files", (json_int_t)row->files,
					 "in_flight", (json_int_t)row->in_flight));
	table_cell(&l->table, "%" PRIu64, row->session);
	table_cell(&l->table, "%" PRIu64, row->uid);
	table_cell(&l->table, "%" PRIu64, row->pid);
	table_cell(&l->table, "%s", table_format_uptime(text, row->connected_ms));
	table_cell(&l->table, "%" PRIu64, row->requests);
	table_cell(&l->table, "%" PRIu64, row->in_flight);
	table_cell(&l->table, "%" PRIu64, row->heads);
	table_cell(&l->table, "%" PRIu64, row->files);
	table_stranger(&l->table, row->version);
	table_stranger(&l->table, row->name);
	return 0;
}

struct listing listing_of(const struct options *o, const struct table_column *columns, size_t width)
{
	struct listing l = {.array = o->json ? json_array() : NULL};

	table_init(&l.table, columns, width);
	return l;
}

void listing_fini(struct listing *l)
{
	json_decref(l->array);
	table_fini(&l->table);
}

int add_row(json_t *array, json_t *row)
{
	return json_array_append_new(array, row) ? NPU_E_NO_MEMORY : 0;
}

int print_listing(const struct listing *l, npu_client *c, const struct options *o, const char *name,
		  int error)
{
	if (error)
		return exit_npu(c, error, NULL);
	if (o->json)
		return print_json(json_pack("{sO}", name, l->array));
	return table_print(&l->table, stdout, o->headers) ? no_memory() : 0;
}

static int do_clients(npu_client *c, const struct options *o)
{
	static const struct table_column columns[] = {
		{"SESSION", true},  {"UID", true},	 {"PID", true},	  {"CONNECTED", true},
		{"REQUESTS", true}, {"IN-FLIGHT", true}, {"HEADS", true}, {"FILES", true},
		{"VERSION", false}, {"NAME", false},
	};
	cleanup(listing_fini) struct listing l = listing_of(o, columns, sizeof columns / sizeof *columns);

	return print_listing(&l, c, o, "clients", npu_clients(c, add_client, &l));
}

static int do_ping(npu_client *c, const struct options *o)
{
	json_t *all = o->json ? json_array() : NULL;
	double least = 0, most = 0, sum = 0, seconds;
	char text[3][TABLE_UNIT];

	if (o->json && !all)
		return no_memory();
	for (unsigned long i = 0; i < o->count; i++) {
		int error = npu_ping(c, &seconds);

		if (error) {
			json_decref(all);
			return exit_npu(c, error, NULL);
		}
		if (!i || seconds < least)
			least = seconds;
		if (!i || seconds > most)
			most = seconds;
		sum += seconds;
		if (all) {
			json_array_append_new(all, table_json_real(seconds));
		} else {
			printf("%lu: %s\n", i + 1, table_format_seconds(text[0], seconds));
			if (fflush(stdout))
				return 0; /* exit_flush tells */
		}
	}
	sum /= (double)o->count;
	if (all)
		return print_json(json_pack("{so so so so so}", "socket", table_json_string(npu_socket(c)),
					    "seconds", all, "least", table_json_real(least), "mean",
					    table_json_real(sum), "most", table_json_real(most)));
	if (o->count > 1)
		printf("least %s, mean %s, most %s\n", table_format_seconds(text[0], least),
		       table_format_seconds(text[1], sum), table_format_seconds(text[2], most));
	return 0;
}

/* Works without a daemon, too: `error` is what npu_connect returned. */
static int do_version(npu_client *c, const struct options *o, int error)
{
	struct npu_status s = {0};
	int status = 0;

	if (!error)
		error = npu_status(c, &s);
	if (error && error != NPU_E_NO_DAEMON)
		status = exit_npu(c, error, NULL);
	if (o->json) {
		int failed =
			print_json(json_pack("{ss so so so so}", "npuctl", NPUD_VERSION, "library",
					     table_json_string(npu_library_version()), "daemon",
					     table_json_string(error ? NULL : npu_daemon_version(c)),
					     "socket", table_json_string(error ? NULL : npu_socket(c)),
					     "fingerprint", table_json_string(error ? NULL : s.fingerprint)));

		return failed ? failed : status;
	}
	print_stranger("npuctl", NPUD_VERSION);
	print_stranger("libnpu", npu_library_version());
	if (error) {
		printf("%-10s  %s\n", "npud", error == NPU_E_NO_DAEMON ? "no daemon" : "unknown");
	} else {
		print_stranger("npud", npu_daemon_version(c));
		print_stranger("packer", s.fingerprint);
	}
	return status;
}

static int do_kick(npu_client *c, const struct options *o)
{
	char *end;

	errno = 0;
	uint64_t session = strtoull(o->operand, &end, 10);
	if (*o->operand < '0' || *o->operand > '9' || errno || *end)
		return exit_usage("kick: '%s' is not the number of a session; npuctl clients lists them",
				  o->operand);
	int error = npu_kick(c, session);
	return error ? exit_npu(c, error, NULL) : 0;
}

static int do_reload(npu_client *c, const struct options *o)
{
	int error = npu_reload(c);
	(void)o;
	return error ? exit_npu(c, error, NULL) : 0;
}

static int do_metrics(npu_client *c, const struct options *o)
{
	char *text;
	int error = npu_metrics(c, &text);

	(void)o;
	if (error)
		return exit_npu(c, error, NULL);
	table_print_lines("", text);
	free(text);
	return 0;
}

struct journal {
	const struct options *options;
	uint64_t last; /* number of the event printed last */
};

/* A line an event, at once: --follow may end at any time. */
static int print_event(void *arg, const struct npu_event_row *row)
{
	struct journal *j = arg;
	char when[32];
	time_t seconds = (time_t)(row->time_ms / 1000);
	struct tm tm;

	j->last = row->number;
	if (j->options->json) {
		json_t *line =
			json_pack("{sI sI so sI sI sI so}", "number", (json_int_t)row->number, "time_ms",
				  (json_int_t)row->time_ms, "kind", table_json_string(row->kind), "id",
				  (json_int_t)row->id, "session", (json_int_t)row->session, "uid",
				  (json_int_t)row->uid, "text", table_json_string(row->text));
		if (!line)
			return NPU_E_NO_MEMORY;
		json_dumpf(line, stdout, JSON_COMPACT);
		json_decref(line);
		puts("");
		return fflush(stdout);
	}
	strftime(when, sizeof when, "%F %T", localtime_r(&seconds, &tm));
	if (row->session)
		plain_line(stdout, "%s  %-10s  session %" PRIu64 " of uid %" PRIu64 ": %s", when, row->kind,
			   row->session, row->uid, row->text);
	else
		plain_line(stdout, "%s  %-10s  %s", when, row->kind, row->text);
	return fflush(stdout);
}

bool is_absence(int error)
{
	return error == NPU_E_SHUTDOWN || error == NPU_E_CONNECTION_LOST || error == NPU_E_TIMED_OUT;
}

static int do_events(npu_client *c, const struct options *o)
{
	struct journal j = {.options = o};
	bool lost = false, first = true, absent = false;

	do {
		int error = npu_events(c, j.last, first ? 0 : 25000, &lost, print_event, &j);
		if (error == EOF)
			return 0;		   /* exit_flush tells */
		if (!first && is_absence(error)) { /* of a daemon that may come back */
			if (!absent)
				exit_complain(0, "%s; waiting for it to come back", npu_error_text(c));
			absent = true;
			nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
			continue;
		}
		absent = false;
		if (error)
			return exit_npu(c, error, NULL);
		if (lost && !first)
			exit_complain(0, "some events were lost before these");
		first = false;
	} while (o->follow);
	return 0;
}

static void help(void)
{
	fputs("usage: npuctl COMMAND [options]\n"
	      "\n"
	      "  status               the daemon's health, load and counters\n"
	      "  top [-c N]           what it does now, every second (once, if not to a terminal)\n"
	      "  clients              who is connected\n"
	      "  heads                what is resident, and how large\n"
	      "  weights              the same of layers' projection weights\n"
	      "  plan MODEL           what opening it would need, and what would go for it\n"
	      "  evict|pin|unpin ID   give up what is resident, or have it stay (administrators)\n"
	      "  device               its kernels, how well it is, and what to do\n"
	      "  kernels [ls|import DIR|remove|undo]  the kernel set it takes at its next start\n"
	      "  tickets [show|revoke ID|move ID PLACE]  who has the NPU, and who waits\n"
	      "  why ID               what a ticket waits for\n"
	      "  drain, resume        grant nothing more, grant again (administrators)\n"
	      "  who                  who uses the NPU without a ticket\n"
	      "  usage                what each user held and computed\n"
	      "  metrics              counters and gauges as OpenMetrics text\n"
	      "  store [ls|show HASH|verify|prune|compact]  the packed heads on disk\n"
	      "  store add MODEL      pack a head ahead of time\n"
	      "  store export HASH --out DIR, store import MODEL FILE...  heads as Q4HI files\n"
	      "  ping [-c N]          round trips to the daemon and back\n"
	      "  events [-f]          what the daemon decided and why\n"
	      "  kick SESSION         end a session (administrators)\n"
	      "  reload               read the configuration again (administrators)\n"
	      "  version              of npuctl, libnpu and the daemon\n"
	      "\n"
	      "  -c, --count N        round trips of ping (1), screens of top\n"
	      "  -f, --follow         of events: go on as they come\n"
	      "      --superseded     of store prune: only heads whose model has other weights now\n"
	      "      --remove         of store verify: take bad heads out\n"
	      "      --out DIR        of store export: where to\n"
	      "      --tensor, --transpose, --q8, --signed, --k, --tile, --layout  of store add, import "
	      "(npu-head);\n"
	      "                       the last two of show, export\n"
	      "  -s, --socket PATH    the daemon's socket ($NPUD_SOCKET, then the usual places)\n"
	      "  -j, --json           for programs; fields as in npuctl(1)\n"
	      "  -N, --no-headers     tables without their first line\n"
	      "  -h, --help           this text\n"
	      "  -V, --version        npuctl's own version\n"
	      "\n"
	      "example: npuctl heads --json\n",
	      stdout);
}

enum { OPTION_SUPERSEDED = READING_ENDS, OPTION_REMOVE, OPTION_OUT };

static const struct option long_options[] = {
	{"count", required_argument, NULL, 'c'},
	{"follow", no_argument, NULL, 'f'},
	{"socket", required_argument, NULL, 's'},
	{"json", no_argument, NULL, 'j'},
	{"no-headers", no_argument, NULL, 'N'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{"superseded", no_argument, NULL, OPTION_SUPERSEDED},
	{"remove", no_argument, NULL, OPTION_REMOVE},
	{"out", required_argument, NULL, OPTION_OUT},
	READING_LONG_OPTIONS,
	{0},
};

static const struct command {
	const char *name;
	int (*run)(npu_client *c, const struct options *o); /* NULL: version */
	const char *operand;				    /* what it needs one of, or NULL */
	int most;					    /* words it may have without needing one */
} commands[] = {
	{"status", do_status, NULL, 0},	  {"top", do_top, NULL, 0},
	{"metrics", do_metrics, NULL, 0}, {"clients", do_clients, NULL, 0},
	{"heads", do_heads, NULL, 0},	  {"device", do_device, NULL, 0},
	{"weights", do_weights, NULL, 0}, {"evict", do_evict, "head", 0},
	{"pin", do_pin, "head", 0},	  {"unpin", do_unpin, "head", 0},
	{"plan", do_plan, "model", 0},	  {"ping", do_ping, NULL, 0},
	{"events", do_events, NULL, 0},	  {"kick", do_kick, "session", 0},
	{"reload", do_reload, NULL, 0},	  {"version", NULL, NULL, 0},
	{"tickets", do_tickets, NULL, 3}, {"why", do_why, "ticket", 0},
	{"drain", do_drain, NULL, 0},	  {"resume", do_resume, NULL, 0},
	{"kernels", do_kernels, NULL, 2}, {"who", do_who, NULL, 0},
	{"usage", do_usage, NULL, 0},	  {"store", do_store, NULL, STORE_WORDS + 1},
};

static int run(const struct command *command, const struct options *o)
{
	npu_client *c = NULL;
	int error = npu_connect(&c, o->socket, "npuctl"), status;

	if (!command->run)
		status = do_version(c, o, error);
	else if (error)
		status = exit_npu(c, error, NULL);
	else
		status = command->run(c, o);
	npu_close(c);
	return status;
}

static int set_option(struct options *o, int option)
{
	int status = reading_set(&o->reading, option, optarg);
	char *end;

	if (status != READING_NONE) {
		o->reading_given = true;
		return status;
	}
	switch (option) {
	case 'c':
		errno = 0;
		o->count = strtoul(optarg, &end, 10);
		o->count_given = true;
		if (*optarg < '0' || *optarg > '9' || errno || *end || o->count < 1 || o->count > PINGS_MAX)
			return exit_usage("--count: not a number from 1 to %d", PINGS_MAX);
		return 0;
	case 'f':
		o->follow = true;
		return 0;
	case OPTION_SUPERSEDED:
		o->superseded = true;
		return 0;
	case OPTION_REMOVE:
		o->remove = true;
		return 0;
	case OPTION_OUT:
		o->out = optarg;
		return 0;
	case 's':
		o->socket = optarg;
		return 0;
	case 'j':
		o->json = true;
		return 0;
	case 'N':
		o->headers = false;
		return 0;
	default: /* getopt has said what is wrong */
		return exit_help();
	}
}

/* Options that do not go with the command. */
static int check_options(const struct command *command, const struct options *o)
{
	if (o->count_given && command->run != do_ping && command->run != do_top)
		return exit_usage("%s: --count goes with ping and top only", command->name);
	if (o->json && command->run == do_metrics)
		return exit_usage("metrics: its text is for programs as it is; leave --json out");
	if (o->follow && command->run != do_events)
		return exit_usage("%s: --follow goes with events only", command->name);
	if ((o->superseded || o->remove || o->out || o->reading_given) && command->run != do_store)
		return exit_usage("%s: %s with store only", command->name,
				  o->superseded ? "--superseded goes"
				  : o->remove	? "--remove goes"
				  : o->out	? "--out goes"
						: "--tensor, --tile and their like go");
	return 0;
}

/* The command, with the words behind it. */
static int run_command(const struct command *command, struct options *o, int count, char **words)
{
	int operands = command->operand != NULL, status = check_options(command, o);
	int most = operands > command->most ? operands : command->most;

	if (status)
		return status;
	if (count < operands)
		return exit_usage("%s: which %s?", command->name, command->operand);
	if (count > most)
		return exit_usage("%s: unexpected; one command at a time", words[most]);
	o->operand = operands ? words[0] : NULL;
	o->operands = words;
	return exit_flush(run(command, o));
}

int main(int argc, char **argv)
{
	static char name[] = "npuctl";
	struct options o = {.headers = true, .count = 1};
	int option;

	exit_begin(name);
	if (argc < 1)
		return exit_usage("nothing to do");
	argv[0] = name; /* how getopt begins its complaints */
	while ((option = plain_getopt(argc, argv, "c:fs:jNhV", long_options)) != -1) {
		if (option == 'h') {
			help();
			return exit_flush(0);
		}
		if (option == 'V') {
			printf("npuctl %s\n", NPUD_VERSION);
			return exit_flush(0);
		}
		int status = set_option(&o, option);
		if (status)
			return status;
	}
	if (optind == argc)
		return exit_usage("no command");
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (strcmp(argv[optind], commands[i].name) == 0)
			return run_command(&commands[i], &o, argc - optind - 1, argv + optind + 1);
	return exit_usage("%s: there is no such command", argv[optind]);
}
