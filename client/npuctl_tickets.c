/* npuctl's commands about tickets. */
#include "npuctl.h"
#include "plain.h"
#include "plural.h"
#include "own.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct table_column columns[] = {
	{"TICKET", true}, {"STATE", false}, {"PLACE", true},	{"MODE", false}, {"CLASS", false},
	{"UID", true},	  {"PID", true},    {"WAITED", true},	{"HELD", true},	 {"LEFT", true},
	{"IDLE", true},	  {"LABEL", false}, {"COMMAND", false},
};

json_t *json_of_ticket(const struct npu_ticket_info *t)
{
	return json_pack("{sI ss ss sI ss ss ss sI sI so so sb sb sb sb sI sI sI sI sI sI sI sI sI sI ss so}",
			 "ticket", (json_int_t)t->ticket, "state", t->state, "reason", t->reason, "number",
			 (json_int_t)t->number, "mode", t->mode, "class", t->priority, "class_now",
			 t->priority_now, "uid", (json_int_t)t->uid, "pid", (json_int_t)t->pid, "label",
			 table_json_string(t->label), "command", table_json_string(t->command), "connected",
			 t->connected, "tree", t->tree, "alone", t->alone, "endless", t->endless, "joined",
			 (json_int_t)t->joined, "place", (json_int_t)t->place, "waited_ms",
			 (json_int_t)t->waited_ms, "bound_ms", (json_int_t)t->bound_ms, "duration_ms",
			 (json_int_t)t->duration_ms, "grace_ms", (json_int_t)t->grace_ms, "held_ms",
			 (json_int_t)t->held_ms, "remaining_ms", (json_int_t)t->remaining_ms, "idle_ms",
			 (json_int_t)t->idle_ms, "holder", (json_int_t)t->holder, "why", t->why, "beside",
			 table_json_string(t->beside));
}

static void add_time(struct table *t, uint64_t ms)
{
	char text[TABLE_UNIT];
	table_cell(t, "%s", ms ? table_format_uptime(text, ms) : "-");
}

static int add_ticket(void *arg, const struct npu_ticket_info *t)
{
	struct listing *l = arg;

	if (l->array)
		return add_row(l->array, json_of_ticket(t));
	table_cell(&l->table, "%" PRIu64, t->ticket);
	table_cell(&l->table, "%s%s", t->state, t->joined ? " (joined)" : "");
	if (t->place)
		table_cell(&l->table, "%" PRIu64, t->place);
	else
		table_cell(&l->table, "-");
	table_cell(&l->table, "%s", t->mode);
	if (strcmp(t->priority, t->priority_now) == 0)
		table_cell(&l->table, "%s", t->priority);
	else
		table_cell(&l->table, "%s (%s)", t->priority_now, t->priority);
	table_cell(&l->table, "%" PRIu64, t->uid);
	table_cell(&l->table, "%" PRIu64, t->pid);
	add_time(&l->table, t->waited_ms);
	add_time(&l->table, t->held_ms);
	add_time(&l->table, t->remaining_ms);
	add_time(&l->table, t->idle_ms);
	table_stranger(&l->table, t->label);
	table_stranger(&l->table, t->command);
	return 0;
}

static int do_list(npu_client *c, const struct options *o)
{
	cleanup(listing_fini) struct listing l = listing_of(o, columns, sizeof columns / sizeof *columns);
	bool draining = false;

	int error = npu_tickets(c, add_ticket, &l, &draining);
	int status = print_listing(&l, c, o, "tickets", error);
	if (!error && draining && !o->json && o->headers)
		puts("nothing is granted until npuctl resume");
	return status;
}

static void print_time(const char *field, uint64_t ms)
{
	char text[TABLE_UNIT];
	printf("%-10s  %s\n", field, ms ? table_format_uptime(text, ms) : "-");
}

static int print_ticket(const struct npu_ticket_info *t, const struct options *o)
{
	if (o->json)
		return print_json(json_of_ticket(t));
	printf("%-10s  %" PRIu64 "\n", "ticket", t->ticket);
	print_stranger("state", t->state);
	print_stranger("why", t->why);
	print_stranger("mode", t->mode);
	print_stranger("class", t->priority_now);
	printf("%-10s  %" PRIu64 "\n", "uid", t->uid);
	printf("%-10s  %" PRIu64 "%s\n", "pid", t->pid, t->connected ? "" : " (not connected)");
	print_stranger("label", t->label);
	print_stranger("command", t->command);
	if (t->joined)
		printf("%-10s  %" PRIu64 "\n", "joined", t->joined);
	if (t->place)
		printf("%-10s  %" PRIu64 "\n", "place", t->place);
	if (t->beside[0])
		print_stranger("beside", t->beside);
	print_time("waited", t->waited_ms);
	if (t->bound_ms)
		print_time("at most", t->bound_ms);
	print_time("held", t->held_ms);
	print_time("left", t->remaining_ms);
	print_time("idle", t->idle_ms);
	print_time("lease", t->duration_ms);
	print_time("grace", t->grace_ms);
	return 0;
}

static bool read_number(const char *text, uint64_t *to)
{
	char *end;
	errno = 0;
	*to = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !errno && !*end;
}

int do_tickets(npu_client *c, const struct options *o)
{
	char **words = o->operands;
	struct npu_ticket_info info;
	uint64_t ticket, place = 1;
	int error;

	if (!words[0])
		return do_list(c, o);
	bool show = strcmp(words[0], "show") == 0, revoke = strcmp(words[0], "revoke") == 0;
	if (!show && !revoke && strcmp(words[0], "move") != 0)
		return exit_usage("tickets %s: show, revoke or move a ticket", words[0]);
	if (!words[1] || !read_number(words[1], &ticket))
		return exit_usage("tickets %s: which ticket? npuctl tickets lists their numbers", words[0]);
	if (words[2] && (show || (!revoke && (!read_number(words[2], &place) || !place))))
		return exit_usage(show ? "tickets show: '%s' is one word too many"
				       : "tickets move: '%s' is no place in the queue; the first is 1",
				  words[2]);
	if (show)
		error = npu_ticket_show(c, ticket, &info);
	else if (revoke)
		error = npu_ticket_revoke(c, ticket, words[2], &info);
	else
		error = npu_ticket_move(c, ticket, place, &info);
	return error ? exit_npu(c, error, NULL) : print_ticket(&info, o);
}

struct why {
	const struct options *options;
	json_t *before, *foreign;
	unsigned count;
};

static int add_before(void *arg, const struct npu_ticket_info *t)
{
	struct why *w = arg;
	if (w->before)
		return add_row(w->before, json_of_ticket(t));
	w->count++;
	plain_line(stdout, "  ticket %" PRIu64 " of uid %" PRIu64 " (pid %" PRIu64 "): %s, %s%s%s%s%s",
		   t->ticket, t->uid, t->pid, t->state, t->mode, *t->label ? ", " : "", t->label,
		   *t->command ? ": " : "", t->command);
	return 0;
}

static int add_foreign(void *arg, const struct npu_foreign_row *row)
{
	struct why *w = arg;
	if (w->foreign)
		return add_row(w->foreign,
			       json_pack("{sI sI so}", "pid", (json_int_t)row->pid, "uid",
					 (json_int_t)row->uid, "command", table_json_string(row->command)));
	w->count++;
	plain_line(stdout, "  without a ticket: pid %" PRIu64 " of uid %" PRIu64 " (%s)", row->pid, row->uid,
		   row->command);
	return 0;
}

int do_why(npu_client *c, const struct options *o)
{
	struct npu_ticket_info info;
	struct why w = {.options = o};
	uint64_t ticket;

	if (!read_number(o->operand, &ticket))
		return exit_usage("why: '%s' is not the number of a ticket; npuctl tickets lists them",
				  o->operand);
	int error = npu_ticket_show(c, ticket, &info);
	if (error)
		return exit_npu(c, error, NULL);
	if (o->json) {
		w.before = json_array();
		w.foreign = json_array();
	} else {
		char text[TABLE_UNIT];
		/* Of one that is over it begins with its state. */
		if (strncmp(info.why, info.state, strlen(info.state)) == 0)
			plain_line(stdout, "ticket %" PRIu64 " is %s", info.ticket, info.why);
		else
			plain_line(stdout, "ticket %" PRIu64 " is %s: %s", info.ticket, info.state, info.why);
		if (info.place)
			printf("place %" PRIu64 " in the queue; granted within %s at the latest\n",
			       info.place, table_format_uptime(text, info.bound_ms));
	}
	error = npu_ticket_why(c, ticket, &info, add_before, add_foreign, &w);
	if (error) {
		json_decref(w.before);
		json_decref(w.foreign);
		return exit_npu(c, error, NULL);
	}
	return o->json ? print_json(json_pack("{so so so}", "ticket", json_of_ticket(&info), "before",
					      w.before, "foreign", w.foreign))
		       : 0;
}

static int print_count(npu_client *c, const struct options *o, int error, const char *name, uint64_t count,
		       const char *sentence)
{
	if (error)
		return exit_npu(c, error, NULL);
	if (o->json)
		return print_json(json_pack("{sI}", name, (json_int_t)count));
	if (count)
		printf("%" PRIu64 " %s\n", count, sentence);
	else
		printf("nobody %s\n", sentence);
	return 0;
}

int do_drain(npu_client *c, const struct options *o)
{
	uint64_t holding = 0;
	int error = npu_drain(c, &holding);
	return print_count(c, o, error, "holding", holding,
			   plural(holding ? holding : 1, "still holds the NPU; nothing more is granted",
				  "still hold the NPU; nothing more is granted"));
}

int do_resume(npu_client *c, const struct options *o)
{
	uint64_t waiting = 0;
	int error = npu_resume(c, &waiting);
	return print_count(c, o, error, "waiting", waiting,
			   plural(waiting ? waiting : 1, "waits for the NPU; tickets are granted again",
				  "wait for the NPU; tickets are granted again"));
}

int do_who(npu_client *c, const struct options *o)
{
	struct npu_who who;
	struct why w = {.options = o, .foreign = o->json ? json_array() : NULL};

	int error = npu_who(c, &who, add_foreign, &w);
	if (error) {
		json_decref(w.foreign);
		return exit_npu(c, error, NULL);
	}
	if (o->json)
		return print_json(json_pack(
			"{so sb sI so so sI sI sI so}", "node", table_json_string(who.node), "there",
			who.there, "hidden", (json_int_t)who.hidden, "lock", table_json_string(who.lock),
			"lock_keeper", table_json_string(who.lock_keeper), "contexts_used",
			(json_int_t)who.contexts_used, "contexts_max", (json_int_t)who.contexts_max,
			"contexts_own", (json_int_t)who.contexts_own, "foreign", w.foreign));
	if (!who.there)
		plain_line(stdout, "%s: there is no such device", who.node);
	else if (w.count == 0)
		plain_line(stdout, "%s: nobody uses it without a ticket", who.node);
	if (who.contexts_max)
		printf("hardware contexts: %" PRIu64 " of %" PRIu64 " in use, %" PRIu64 " by npud, %" PRIu64
		       " by others\n",
		       who.contexts_used, who.contexts_max, who.contexts_own,
		       who.contexts_used - who.contexts_own);
	if (who.lock_keeper[0])
		plain_line(stdout, "%s: locked by %s", who.lock, who.lock_keeper);
	if (who.hidden)
		printf("npud may not look into %" PRIu64 " %s of other users\n", who.hidden,
		       plural(who.hidden, "process", "processes"));
	return 0;
}

static int add_usage(void *arg, const struct npu_usage_row *row)
{
	struct listing *l = arg;

	if (l->array)
		return add_row(l->array, json_pack("{sI sI so so}", "uid", (json_int_t)row->uid, "tickets",
						   (json_int_t)row->tickets, "held_seconds",
						   table_json_real(row->held_seconds), "computed_seconds",
						   table_json_real(row->computed_seconds)));
	table_cell(&l->table, "%" PRIu64, row->uid);
	table_cell(&l->table, "%" PRIu64, row->tickets);
	table_cell(&l->table, "%.1f", row->held_seconds);
	table_cell(&l->table, "%.1f", row->computed_seconds);
	return 0;
}

int do_usage(npu_client *c, const struct options *o)
{
	static const struct table_column usage_columns[] = {
		{"UID", true}, {"TICKETS", true}, {"HELD-SECONDS", true}, {"COMPUTED-SECONDS", true}};
	cleanup(listing_fini) struct listing l =
		listing_of(o, usage_columns, sizeof usage_columns / sizeof *usage_columns);

	return print_listing(&l, c, o, "usage", npu_usage(c, add_usage, &l));
}
