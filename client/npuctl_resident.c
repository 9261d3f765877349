/* npuctl: what is resident, what would be, and what is to stay. */
#include "npuctl.h"
#include "own.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static json_t *json_of_head(const struct npu_head_row *row)
{
	return json_pack("{sI so so so so so so sI sI sI sI sI sI sI sI sb so sI so}", "id",
			 (json_int_t)row->id, "label", table_json_string(row->label), "tensor",
			 table_json_string(row->tensor), "type", table_json_string(row->type), "layout",
			 table_json_string(row->layout), "hash", table_json_string(row->hash), "state",
			 table_json_string(row->state), "nv", (json_int_t)row->nv, "h", (json_int_t)row->h,
			 "kpad", (json_int_t)row->kpad, "tile", (json_int_t)row->tile, "tiles",
			 (json_int_t)row->tiles, "bytes", (json_int_t)row->bytes, "users",
			 (json_int_t)row->users, "rows", (json_int_t)row->rows, "pinned", (int)row->pinned,
			 "keep_ms", row->goes ? json_integer((json_int_t)row->keep_ms) : json_null(), "layer",
			 (json_int_t)row->layer, "role", table_json_string(row->role));
}

/* How long it stays. */
static void cell_kept(struct table *t, const struct npu_head_row *row)
{
	char text[TABLE_UNIT];

	if (row->pinned)
		table_cell(t, "pinned");
	else if (row->goes)
		table_cell(t, "%s", table_format_uptime(text, row->keep_ms));
	else
		table_cell(t, "%s", row->users ? "in use" : "-");
}

/* The cells that heads and weights have. */
static void add_cells(struct table *t, const struct npu_head_row *row)
{
	table_cell(t, "%" PRIu64, row->id);
	table_stranger(t, row->state);
	table_bytes(t, row->bytes);
	table_cell(t, "%" PRIu64, row->users);
	cell_kept(t, row);
	table_cell(t, "%" PRIu64, row->rows);
	table_cell(t, "%" PRIu64, row->nv);
	table_cell(t, "%" PRIu64, row->h);
	table_cell(t, "%" PRIu64, row->tile);
	table_stranger(t, row->layout);
	table_stranger(t, row->type);
	table_cell(t, "%.8s", row->hash ? row->hash : "-");
	table_stranger(t, row->tensor);
	table_stranger(t, row->label);
}

static int add_head(void *arg, const struct npu_head_row *row)
{
	struct listing *l = arg;

	if (l->array)
		return add_row(l->array, json_of_head(row));
	add_cells(&l->table, row);
	return 0;
}

static int add_weights(void *arg, const struct npu_head_row *row)
{
	struct listing *l = arg;

	if (l->array)
		return add_row(l->array, json_of_head(row));
	table_cell(&l->table, "%" PRIu64, row->layer);
	table_stranger(&l->table, row->role);
	add_cells(&l->table, row);
	return 0;
}

#define COLUMNS(n, k)                                                                                      \
	{"ID", true}, {"STATE", false}, {"SIZE", true}, {"USERS", true}, {"KEPT", true}, {"ROWS", true},   \
		{n, true}, {k, true}, {"TILE", true}, {"LAYOUT", false}, {"TYPE", false}, {"HASH", false}, \
		{"TENSOR", false},                                                                         \
	{                                                                                                  \
		"LABEL", false                                                                             \
	}
static const struct table_column columns[] = {COLUMNS("NV", "H")};
static const struct table_column weights_columns[] = {{"LAYER", true}, {"ROLE", false}, COLUMNS("N", "K")};

int do_heads(npu_client *c, const struct options *o)
{
	cleanup(listing_fini) struct listing l = listing_of(o, columns, sizeof columns / sizeof *columns);

	return print_listing(&l, c, o, "heads", npu_heads(c, add_head, &l));
}

int do_weights(npu_client *c, const struct options *o)
{
	cleanup(listing_fini) struct listing l =
		listing_of(o, weights_columns, sizeof weights_columns / sizeof *weights_columns);

	return print_listing(&l, c, o, "weights", npu_weights_list(c, add_weights, &l));
}

/* The number that `o` names, or an exit status. */
static int read_id(const struct options *o, const char *command, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(o->operand, &end, 10);
	if (*o->operand < '0' || *o->operand > '9' || errno || *end)
		return exit_usage(
			"%s: '%s' is not the number of a head or weights; npuctl heads and weights list them",
			command, o->operand);
	return 0;
}

int do_evict(npu_client *c, const struct options *o)
{
	char text[TABLE_UNIT];
	uint64_t id, bytes;
	int status = read_id(o, "evict", &id);

	if (status)
		return status;
	int error = npu_resident_evict(c, id, &bytes);
	if (error)
		return exit_npu(c, error, NULL);
	if (o->json)
		return print_json(json_pack("{sI}", "bytes", (json_int_t)bytes));
	printf("%s are free\n", table_format_bytes(text, bytes));
	return 0;
}

int do_pin(npu_client *c, const struct options *o)
{
	uint64_t id;
	int status = read_id(o, "pin", &id);
	int error = status ? 0 : npu_resident_pin(c, id);
	return error ? exit_npu(c, error, NULL) : status;
}

int do_unpin(npu_client *c, const struct options *o)
{
	uint64_t id;
	int status = read_id(o, "unpin", &id);
	int error = status ? 0 : npu_resident_unpin(c, id);
	return error ? exit_npu(c, error, NULL) : status;
}

static const char *outcome_sentence(const char *outcome)
{
	static const struct {
		const char *outcome, *sentence;
	} sentences[] = {
		{"resident", "it is resident already"},
		{"fits", "there is room"},
		{"evicts", "these would go for it:"},
		{"waits", "it would wait for others to let go, and be refused if they do not in time"},
		{"too-large",
		 "it would be refused: it can never fit; raise [resident] max_bytes, or give the machine or "
		 "its control group more memory"},
		{"pinned", "it would be refused: what is not pinned would not be enough"},
	};
	for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++)
		if (strcmp(outcome, sentences[i].outcome) == 0)
			return sentences[i].sentence;
	return outcome;
}

static void print_bytes(const char *field, uint64_t bytes)
{
	char text[TABLE_UNIT];
	printf("%-10s  %s\n", field, table_format_bytes(text, bytes));
}

int do_plan(npu_client *c, const struct options *o)
{
	cleanup(listing_fini) struct listing l = listing_of(o, columns, sizeof columns / sizeof *columns);
	struct npu_plan p;
	int status;

	int error = npu_plan(c, o->operand, NULL, &p, add_head, &l);
	if (error) {
		status = exit_model(c, error, o->operand);
	} else if (o->json) {
		status = print_json(json_pack(
			"{so sI sI sI sI sI sI sI sI sI sO}", "outcome", table_json_string(p.outcome), "id",
			(json_int_t)p.id, "bytes", (json_int_t)p.bytes, "transient", (json_int_t)p.transient,
			"budget", (json_int_t)p.budget, "used", (json_int_t)p.used, "held",
			(json_int_t)p.held, "loading", (json_int_t)p.loading, "pinned", (json_int_t)p.pinned,
			"freeable", (json_int_t)p.freeable, "evicts", l.array));
	} else {
		print_bytes("weights", p.bytes);
		print_bytes("packing", p.transient);
		print_bytes("budget", p.budget);
		print_bytes("used", p.used);
		print_bytes("held", p.held);
		print_bytes("loading", p.loading);
		print_bytes("pinned", p.pinned);
		print_bytes("unused", p.freeable);
		print_stranger("outcome", outcome_sentence(p.outcome));
		status = l.table.cells && table_print(&l.table, stdout, o->headers) ? no_memory() : 0;
	}
	return status;
}
