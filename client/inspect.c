#include "exit.h"
#include "npu-head.h"
#include "plural.h"
#include "table.h"
#include "plain.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What the daemon tells goes on here, as rows of a table and of JSON: which is shown is known from the start.
 */
struct inspection {
	const struct options *options;
	struct npu_model_info info;
	struct table table;
	json_t *tensors;
};

/* "512 x 64", for a scalar "-". */
static void shape_text(char *to, size_t room, const struct npu_tensor_row *row)
{
	uint32_t kept = row->rank < 8 ? row->rank : 8;
	size_t used = 0;

	snprintf(to, room, "-");
	for (uint32_t i = 0; i < kept && used < room; i++)
		used += (size_t)snprintf(to + used, room - used, "%s%" PRIu64, i ? " x " : "", row->shape[i]);
	if (row->rank > kept && used < room)
		snprintf(to + used, room - used, " ...");
}

static void show_row(struct inspection *n, const struct npu_tensor_row *row)
{
	char shape[8 * 24];

	shape_text(shape, sizeof shape, row);
	table_stranger(&n->table, row->name);
	table_cell(&n->table, "%s", row->type);
	table_cell(&n->table, "%s", shape);
	table_bytes(&n->table, row->bytes);
	if (n->info.files > 1)
		table_stranger(&n->table, row->file);
}

static void keep_row(struct inspection *n, const struct npu_tensor_row *row)
{
	json_t *shape = json_array();

	for (uint32_t i = 0; i < row->rank && i < 8; i++)
		json_array_append_new(shape, json_integer((json_int_t)row->shape[i]));
	json_array_append_new(n->tensors,
			      json_pack("{so so sI so sI so sb}", "name", table_json_string(row->name),
					"type", table_json_string(row->type), "rank", (json_int_t)row->rank,
					"shape", shape, "bytes", (json_int_t)row->bytes, "file",
					table_json_string(row->file), "head", (int)row->head));
}

static int on_row(void *arg, const struct npu_tensor_row *row)
{
	static const struct table_column columns[] = {
		{"NAME", false}, {"TYPE", false}, {"SHAPE", false}, {"SIZE", true}, {"FILE", false}};
	struct inspection *n = arg;

	if (row->number == 1)
		table_init(&n->table, columns, n->info.files > 1 ? 5 : 4);
	if (n->options->json)
		keep_row(n, row);
	else
		show_row(n, row);
	return 0;
}

static int print_json(struct inspection *n)
{
	const struct npu_model_info *i = &n->info;
	json_t *head = json_null();

	if (i->head[0])
		head = json_pack("{so so sb}", "name", table_json_string(i->head), "why",
				 table_json_string(i->why), "usable", (int)(i->note[0] == 0));
	json_t *root = json_pack("{so so sI so so so}", "model", table_json_string(i->label), "format",
				 table_json_string(i->format), "files", (json_int_t)i->files, "head", head,
				 "note", i->note[0] ? table_json_string(i->note) : json_null(), "tensors",
				 json_incref(n->tensors));
	return table_json_print(root) ? exit_complain(EX_TEMPFAIL, "not enough memory for the JSON") : 0;
}

static int print_table(struct inspection *n)
{
	const struct npu_model_info *i = &n->info;

	if (i->tensors && table_print(&n->table, stdout, n->options->headers))
		return exit_complain(EX_TEMPFAIL, "not enough memory for the table");
	if (!n->options->headers)
		return 0;
	char files[48] = "";
	if (i->files > 1)
		snprintf(files, sizeof files, " in %" PRIu64 " files", i->files);
	const char *tensors = plural(i->tensors, "tensor", "tensors");
	if (i->tensors)
		puts("");
	if (i->head[0])
		plain_line(stdout, "%s, %" PRIu64 " %s%s; head: %s (%s)%s%s", i->format, i->tensors, tensors,
			   files, i->head, i->why, i->note[0] ? ", which cannot be used: " : "", i->note);
	else
		plain_line(stdout, "%s, %" PRIu64 " %s%s; no head: %s", i->format, i->tensors, tensors, files,
			   i->note);
	return 0;
}

int command_tensors(const struct options *o, char *const *operands)
{
	struct inspection n = {.options = o, .tensors = json_array()};
	npu_client *c = NULL;
	int status = npu_connect(&c, o->socket, "npu-head");

	if (status)
		status = exit_npu(c, status, NULL);
	else if ((status = npu_model_tensors(c, operands[0], &n.info, on_row, &n)))
		status = exit_model(c, status, operands[0]);
	else
		status = o->json ? print_json(&n) : print_table(&n);
	if (n.info.tensors)
		table_fini(&n.table);
	json_decref(n.tensors);
	npu_close(c);
	return status;
}
