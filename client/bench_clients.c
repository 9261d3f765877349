/* npu-bench clients: N processes ask for rows of one head at once, through the daemon or each by itself. */
#define _GNU_SOURCE 1
#include "activations.h"
#include "bench.h"
#include "conditions.h"
#include "crowd.h"
#include "exit.h"
#include "lone.h"
#include "plural.h"
#include "table.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZES = 32, MEMBERS_MAX = 1024 };

/* What one client asks for over and over: the same row each time, so that every answer must be the first. */
struct asker {
	npu_client *client;
	npu_head *head;
	struct lone *lone;	   /* instead of both, with --separate */
	float *x, *values, *first; /* x[h]; values, first[words] */
	uint32_t *ids, first_id;
	uint32_t words; /* of an answer: nv for logits, 1 for argmax */
	bool logits, asked;
};

static int failed(const struct asker *a, int error, char why[CROWD_WHY])
{
	snprintf(why, CROWD_WHY, "%s", a->client ? npu_error_text(a->client) : npu_error_name(error));
	return error;
}

static void asker_end(void *state)
{
	struct asker *a = state;
	npu_head_close(a->head);
	npu_close(a->client);
	lone_close(a->lone);
	free(a->x);
	free(a->values);
	free(a->first);
	free(a->ids);
	free(a);
}

static int asker_begin(const void *arg, unsigned member, void **state, char why[CROWD_WHY])
{
	const struct bench_options *o = arg;
	struct npu_head_options options = {.tensor = o->tensor};
	struct npu_head_info info;
	struct asker *a = calloc(1, sizeof *a);

	if (!a) {
		snprintf(why, CROWD_WHY, "no memory");
		return NPU_E_NO_MEMORY;
	}
	*state = a;
	int r;
	if (o->separate) {
		struct err err;
		r = lone_open(&a->lone, o->model, o->tensor, o->threads, &info.nv, &info.h, &err);
		if (r)
			snprintf(why, CROWD_WHY, "%s", err.text);
	} else {
		r = npu_connect(&a->client, o->socket, "npu-bench");
		if (r == 0)
			r = npu_head_open(a->client, o->model, &options, &a->head, &info);
		if (r)
			failed(a, r, why);
	}
	if (r)
		return r;
	a->logits = o->logits;
	a->words = o->logits ? info.nv : 1;
	a->x = malloc(info.h * sizeof *a->x);
	a->values = malloc(a->words * sizeof *a->values);
	a->first = malloc(a->words * sizeof *a->first);
	a->ids = malloc(sizeof *a->ids);
	if (!a->x || !a->values || !a->first || !a->ids) {
		snprintf(why, CROWD_WHY, "no memory for a row of %u and its answer", info.h);
		return NPU_E_NO_MEMORY;
	}
	activations_vector(a->x, info.h, member + 1);
	return 0;
}

static int asker_once(void *state, double *share, char why[CROWD_WHY])
{
	struct asker *a = state;
	size_t size = a->words * sizeof *a->values;
	struct npu_run_info info = {.rows_in_pass = 1};
	int r = a->lone	    ? lone_run(a->lone, a->x, a->logits ? a->values : NULL, a->ids, a->values)
		: a->logits ? npu_head_logits(a->head, a->x, 1, a->values, &info)
			    : npu_head_top(a->head, a->x, 1, 1, a->ids, a->values, &info);
	if (r)
		return failed(a, r, why);
	*share = 1 / (double)info.rows_in_pass;
	if (!a->asked) {
		memcpy(a->first, a->values, size);
		a->first_id = *a->ids;
		a->asked = true;
	} else if (memcmp(a->first, a->values, size) != 0 || (!a->logits && a->first_id != *a->ids)) {
		snprintf(why, CROWD_WHY,
			 "the same row had two answers: this is a defect of npud, please report it");
		return NPU_E_INTERNAL;
	}
	return 0;
}

/* "1,2,4": sizes, at least one. Returns how many, 0 for anything else. */
static size_t sizes_of(const char *text, unsigned sizes[SIZES])
{
	size_t n = 0;
	for (;;) {
		char *end;
		unsigned long v = strtoul(text, &end, 10);
		if (n == SIZES || end == text || *text == '-' || *text == '+' || v == 0 || v > MEMBERS_MAX)
			return 0;
		sizes[n++] = (unsigned)v;
		if (*end == '\0')
			return n;
		if (*end != ',')
			return 0;
		text = end + 1;
	}
}

static void add_row(struct table *t, json_t *rows, unsigned n, const struct crowd_result *r, double one)
{
	char text[TABLE_UNIT];
	double rate = (double)r->times / r->seconds;

	json_array_append_new(rows,
			      json_pack("{s:i,s:o,s:o,s:o,s:o,s:o}", "clients", (int)n, "rows_per_second",
					table_json_real(rate), "p50_ms", table_json_real(r->p50 * 1e3),
					"p99_ms", table_json_real(r->p99 * 1e3), "worst_p99_ms",
					table_json_real(r->worst_p99 * 1e3), "rows_per_pass",
					table_json_real((double)r->times / r->shares)));
	table_cell(t, "%u", n);
	table_cell(t, "%.1f", rate);
	table_cell(t, "%.2f", rate / one);
	table_cell(t, "%.1f", (double)r->times / r->shares);
	table_cell(t, "%s", table_format_seconds(text, r->p50));
	table_cell(t, "%s", table_format_seconds(text, r->p99));
	table_cell(t, "%s", table_format_seconds(text, r->worst_p99));
}

int bench_clients(const struct bench_options *o)
{
	static const struct table_column columns[] = {
		{"CLIENTS", true}, {"ROWS/S", true}, {"OF FIRST", true}, {"IN A PASS", true},
		{"P50", true},	   {"P99", true},    {"WORST P99", true}};
	const struct crowd_work work = {o, asker_begin, asker_once, asker_end};
	unsigned sizes[SIZES];
	char why[CROWD_WHY] = "";
	double one = 0;
	int status = 0;

	size_t count = sizes_of(o->clients, sizes);
	if (!count)
		return exit_usage(
			"--clients %s: give numbers of clients between 1 and %d, such as 1,2,4,8,16",
			o->clients, MEMBERS_MAX);
	double load = conditions_load();
	json_t *rows = json_array(), *about = NULL;
	struct table t;
	table_init(&t, columns, sizeof columns / sizeof *columns);
	for (size_t i = 0; i < count && status == 0; i++) {
		struct crowd_result result;
		if (isatty(2))
			fprintf(stderr, "\rnpu-bench: %u %s, %.0f s ...", sizes[i],
				plural(sizes[i], "client", "clients"), o->seconds);
		int r = crowd_run(&result, sizes[i], o->seconds, &work, why);
		if (isatty(2))
			fprintf(stderr, "\r\033[K");
		if (r) {
			status = exit_complain(exit_status(r), "%u %s: %s", sizes[i],
					       plural(sizes[i], "client", "clients"), why);
			break;
		}
		if (i == 0)
			one = (double)result.times / result.seconds;
		add_row(&t, rows, sizes[i], &result, one);
	}
	if (status == 0 && o->json &&
	    (about = o->separate ? json_pack("{s:o}", "load", table_json_real(load))
				 : conditions_of(o->socket, load, &status))) {
		json_object_set_new(about, "model", table_json_string(o->model));
		json_object_set_new(about, "want", json_string(o->logits ? "logits" : "argmax"));
		json_object_set_new(about, "separate", json_boolean(o->separate));
		json_object_set(about, "rows", rows);
		if (table_json_print(about))
			status = exit_complain(EX_TEMPFAIL, "not enough memory for the JSON");
	} else if (status == 0 && table_print(&t, stdout, o->headers)) {
		status = exit_complain(EX_TEMPFAIL, "not enough memory for the table");
	}
	table_fini(&t);
	json_decref(rows);
	return status;
}
