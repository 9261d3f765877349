/* npuctl top: what the daemon does now: rates, who has the NPU and who waits, which heads and which clients
 * are busy. */
#include "npuctl.h"
#include "plain.h"
#include "plural.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_S 1
#define STALE_MS 3000
#define ROWS_MAX 1000 /* of a list; what is more is left out */

/* One line of a list, and what it was at the last look. */
struct line {
	uint64_t id, count, in_flight, bytes, uid, pid;
	double rate;
	char name[160];
};

struct lines {
	struct line *at;
	size_t count;
};

struct look {
	struct timespec when;
	struct npu_status status;
	struct lines heads, clients;
	json_t *tickets;
};

static void look_fini(struct look *l)
{
	free(l->heads.at);
	free(l->clients.at);
	json_decref(l->tickets);
	*l = (struct look){0};
}

static int add_line(struct lines *to, const struct line *line)
{
	if (to->count == ROWS_MAX)
		return 0;
	struct line *more = reallocarray(to->at, to->count + 1, sizeof *more);
	if (!more)
		return NPU_E_NO_MEMORY;
	to->at = more;
	to->at[to->count++] = *line;
	return 0;
}

static int on_head(void *arg, const struct npu_head_row *row)
{
	struct line line = {.id = row->id, .count = row->rows, .in_flight = row->users, .bytes = row->bytes};
	snprintf(line.name, sizeof line.name, "%s", row->label);
	return add_line(arg, &line);
}

static int on_client(void *arg, const struct npu_client_row *row)
{
	struct line line = {.id = row->session,
			    .count = row->requests,
			    .in_flight = row->in_flight,
			    .uid = row->uid,
			    .pid = row->pid};
	snprintf(line.name, sizeof line.name, "%s", row->name);
	return add_line(arg, &line);
}

static int on_ticket(void *arg, const struct npu_ticket_info *t)
{
	return add_row(arg, json_of_ticket(t));
}

static int look_at(npu_client *c, struct look *l)
{
	*l = (struct look){.tickets = json_array()};
	clock_gettime(CLOCK_MONOTONIC, &l->when);
	int error = l->tickets ? npu_status(c, &l->status) : NPU_E_NO_MEMORY;
	if (!error)
		error = npu_heads(c, on_head, &l->heads);
	if (!error)
		error = npu_clients(c, on_client, &l->clients);
	if (!error)
		error = npu_tickets(c, on_ticket, l->tickets, NULL);
	return error;
}

static int busier(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	if (x->rate != y->rate)
		return x->rate < y->rate ? 1 : -1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* Since the last look; what was not there then began at 0. Busiest first. */
static void rate(struct lines *now, const struct lines *then, double seconds)
{
	for (size_t i = 0; i < now->count; i++) {
		uint64_t before = 0;
		for (size_t k = 0; k < then->count; k++)
			if (then->at[k].id == now->at[i].id)
				before = then->at[k].count;
		now->at[i].rate =
			before <= now->at[i].count ? (double)(now->at[i].count - before) / seconds : 0;
	}
	if (now->count)
		qsort(now->at, now->count, sizeof *now->at, busier);
}

/* 0 where the daemon began anew in between. */
static double rise(uint64_t now, uint64_t then, double seconds)
{
	return now >= then ? (double)(now - then) / seconds : 0;
}

static json_t *json_lines(const struct lines *l, bool heads)
{
	json_t *array = json_array();
	for (size_t i = 0; array && i < l->count; i++) {
		const struct line *x = &l->at[i];
		json_t *row =
			heads ? json_pack("{sI so sI so sI sI}", "id", (json_int_t)x->id, "label",
					  table_json_string(x->name), "rows", (json_int_t)x->count,
					  "rows_per_second", table_json_real(x->rate), "users",
					  (json_int_t)x->in_flight, "bytes", (json_int_t)x->bytes)
			      : json_pack("{sI so sI so sI sI sI}", "session", (json_int_t)x->id, "name",
					  table_json_string(x->name), "requests", (json_int_t)x->count,
					  "requests_per_second", table_json_real(x->rate), "in_flight",
					  (json_int_t)x->in_flight, "uid", (json_int_t)x->uid, "pid",
					  (json_int_t)x->pid);
		json_array_append_new(array, row);
	}
	return array;
}

/* A line an object: it may go on for ever. */
static int print_object(const struct look *l, double seconds, double rows, double requests)
{
	const struct npu_status *s = &l->status;
	json_t *root = json_pack(
		"{so so so sI sI sI sI so so sO so so}", "seconds", table_json_real(seconds), "device",
		table_json_string(s->device), "health", table_json_string(s->health), "clients_connected",
		(json_int_t)s->clients, "in_flight", (json_int_t)s->in_flight, "resident_bytes",
		(json_int_t)s->resident_bytes, "idle_ms", (json_int_t)s->idle_ms, "rows_per_second",
		table_json_real(rows), "requests_per_second", table_json_real(requests), "tickets",
		l->tickets, "heads", json_lines(&l->heads, true), "clients", json_lines(&l->clients, false));
	if (!root)
		return no_memory();
	json_dumpf(root, stdout, JSON_COMPACT);
	json_decref(root);
	puts("");
	return 0;
}

static const char *text_of(const json_t *row, const char *name)
{
	const char *text = json_string_value(json_object_get(row, name));
	return text ? text : "";
}

static uint64_t number_of(const json_t *row, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(row, name));
}

static void put_tickets(FILE *f, const json_t *tickets, bool headers)
{
	static const struct table_column columns[] = {{"TICKET", true}, {"STATE", false}, {"MODE", false},
						      {"CLASS", false}, {"UID", true},	  {"WAITED", true},
						      {"LEFT", true},	{"IDLE", true},	  {"COMMAND", false}};
	static const char *const times[] = {"waited_ms", "remaining_ms", "idle_ms"};
	struct table t;
	size_t i;
	const json_t *row;

	table_init(&t, columns, sizeof columns / sizeof *columns);
	json_array_foreach(tickets, i, row)
	{
		table_cell(&t, "%" PRIu64, number_of(row, "ticket"));
		table_cell(&t, "%s", text_of(row, "state"));
		table_cell(&t, "%s", text_of(row, "mode"));
		table_cell(&t, "%s", text_of(row, "class_now"));
		table_cell(&t, "%" PRIu64, number_of(row, "uid"));
		for (size_t k = 0; k < 3; k++) {
			char text[TABLE_UNIT];
			uint64_t ms = number_of(row, times[k]);
			table_cell(&t, "%s", ms ? table_format_uptime(text, ms) : "-");
		}
		table_stranger(&t,
			       text_of(row, "label")[0] ? text_of(row, "label") : text_of(row, "command"));
	}
	if (t.cells) {
		fputc('\n', f);
		table_print(&t, f, headers);
	}
	table_fini(&t);
}

static void put_lines(FILE *f, const struct lines *l, bool heads, bool headers)
{
	static const struct table_column of_heads[] = {{"HEAD", true},	{"ROWS/S", true}, {"ROWS", true},
						       {"USERS", true}, {"BYTES", true},  {"LABEL", false}};
	static const struct table_column of_clients[] = {
		{"SESSION", true}, {"REQ/S", true}, {"REQUESTS", true}, {"IN-FLIGHT", true},
		{"UID", true},	   {"PID", true},   {"NAME", false}};
	struct table t;

	table_init(&t, heads ? of_heads : of_clients, heads ? 6 : 7);
	for (size_t i = 0; i < l->count; i++) {
		const struct line *x = &l->at[i];
		table_cell(&t, "%" PRIu64, x->id);
		table_cell(&t, "%.1f", x->rate);
		table_cell(&t, "%" PRIu64, x->count);
		table_cell(&t, "%" PRIu64, x->in_flight);
		if (heads) {
			table_bytes(&t, x->bytes);
		} else {
			table_cell(&t, "%" PRIu64, x->uid);
			table_cell(&t, "%" PRIu64, x->pid);
		}
		table_stranger(&t, x->name);
	}
	if (t.cells) {
		fputc('\n', f);
		table_print(&t, f, headers);
	}
	table_fini(&t);
}

/* The screen's first lines, cut to its width; all of it where there is none. */
static void print_screen(const char *text, bool terminal)
{
	struct winsize size = {0};

	if (!terminal || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row < 2 || size.ws_col < 2) {
		fputs(text, stdout);
		return;
	}
	fputs("\033[H\033[J", stdout);
	for (unsigned row = 1; row < size.ws_row && *text; row++) {
		size_t length = strcspn(text, "\n"), columns = 0, shown = 0;
		/* A byte that goes on with a character takes no column. */
		while (shown < length &&
		       (columns += ((unsigned char)text[shown] & 0xc0) != 0x80) <= size.ws_col)
			shown++;
		printf("%.*s\n", (int)shown, text);
		text += length + (text[length] == '\n');
	}
}

static int print_text(const struct look *l, const struct options *o, bool terminal, double rows,
		      double requests)
{
	const struct npu_status *s = &l->status;
	char bytes[TABLE_UNIT], up[TABLE_UNIT], *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return no_memory();
	plain_line(f, "npud %s, up %s; device %s %s%s%s", s->version, table_format_uptime(up, s->uptime_ms),
		   s->device, s->health, *s->reason ? ": " : "", s->reason);
	fprintf(f,
		"%.1f rows/s, %.1f requests/s, %" PRIu64 " in flight; %" PRIu64 " %s; %s resident; %" PRIu64
		" hold, %" PRIu64 " wait\n",
		rows, requests, s->in_flight, s->clients, plural(s->clients, "client", "clients"),
		table_format_bytes(bytes, s->resident_bytes), s->holding, s->waiting);
	if (s->pass_ms >= PASS_SHOWN_MS)
		fprintf(f, "the pass under way has taken %.1f s: rows of all others wait for its end\n",
			(double)s->pass_ms / 1e3);
	put_tickets(f, l->tickets, o->headers);
	put_lines(f, &l->heads, true, o->headers);
	put_lines(f, &l->clients, false, o->headers);
	if (fclose(f)) {
		free(text);
		return no_memory();
	}
	print_screen(text, terminal);
	free(text);
	return 0;
}

static double since(const struct timespec *now, const struct timespec *then)
{
	return (double)(now->tv_sec - then->tv_sec) + (double)(now->tv_nsec - then->tv_nsec) * 1e-9;
}

int do_top(npu_client *c, const struct options *o)
{
	bool terminal = isatty(STDOUT_FILENO) && !o->json;
	unsigned long left = o->count_given ? o->count : terminal ? 0 : 1; /* 0: until it is interrupted */
	struct look then = {0}, now = {0};
	int error = look_at(c, &then), status = 0;

	if (!left) /* what the screen says is soon no longer true */
		npu_set_timeout(c, STALE_MS);
	while (!error && !status) {
		nanosleep(&(struct timespec){.tv_sec = INTERVAL_S}, NULL);
		error = look_at(c, &now);
		if (!left && is_absence(error)) { /* of a daemon that may come back */
			fputs("\033[H\033[J", stdout);
			plain_line(stdout, "npuctl: %s; waiting for it to come back", npu_error_text(c));
			fflush(stdout);
			look_fini(&now);
			error = 0;
			continue;
		}
		if (error)
			break;
		double seconds = since(&now.when, &then.when);
		double rows = rise(now.status.rows, then.status.rows, seconds);
		double requests = rise(now.status.requests, then.status.requests, seconds);
		rate(&now.heads, &then.heads, seconds);
		rate(&now.clients, &then.clients, seconds);
		status = o->json ? print_object(&now, seconds, rows, requests)
				 : print_text(&now, o, terminal, rows, requests);
		look_fini(&then);
		then = now;
		now = (struct look){0};
		if (fflush(stdout) || (left && --left == 0))
			break; /* exit_flush tells of what could not be written */
		if (left && !o->json)
			puts("");
	}
	look_fini(&then);
	look_fini(&now);
	return error ? exit_npu(c, error, NULL) : status;
}
