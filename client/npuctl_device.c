/* npuctl device: how the device is, what it has done, what it can run. */
#include "npuctl.h"
#include "plain.h"
#include "own.h"
#include <inttypes.h>
#include <stdlib.h>

const struct table_column design_columns[DESIGN_COLUMNS] = {
	{"ROWS", true}, {"KD", true}, {"ND", true}, {"LAYOUT", false}, {"KERNEL", false}, {"FILE", false}};

int add_design(void *arg, const struct npu_design_row *row)
{
	struct listing *d = arg;

	if (d->array)
		return add_row(d->array,
			       json_pack("{sI sI sI so so so}", "rows", (json_int_t)row->rows, "kd",
					 (json_int_t)row->kd, "nd", (json_int_t)row->nd, "layout",
					 table_json_string(row->layout), "file", table_json_string(row->file),
					 "kernel", table_json_string(row->kernel)));
	table_cell(&d->table, "%" PRIu64, row->rows);
	table_cell(&d->table, "%" PRIu64, row->kd);
	table_cell(&d->table, "%" PRIu64, row->nd);
	table_stranger(&d->table, row->layout);
	table_stranger(&d->table, row->kernel);
	table_stranger(&d->table, row->file);
	return 0;
}

static const struct counter {
	const char *name;
	size_t offset;
} counters[] = {
#define COUNTER(name)                                    \
	{                                                \
#name, offsetof(struct npu_device, name) \
	}
	COUNTER(contexts_used),	   COUNTER(contexts_max), COUNTER(launches),	    COUNTER(done),
	COUNTER(timeouts),	   COUNTER(errors),	  COUNTER(hangs),	    COUNTER(mismatches),
	COUNTER(rejected),	   COUNTER(canaries),	  COUNTER(canaries_failed), COUNTER(contexts_opened),
	COUNTER(contexts_refused), COUNTER(recoveries),	  COUNTER(parked),
};
enum { COUNTERS = sizeof counters / sizeof *counters };

static uint64_t count_of(const struct npu_device *d, const struct counter *c)
{
	return *(const uint64_t *)((const char *)d + c->offset);
}

static int print_object(const struct npu_device *d, json_t *designs)
{
	json_t *root = json_pack("{so so so so so sb sO}", "device", table_json_string(d->device), "health",
				 table_json_string(d->health), "reason", table_json_string(d->reason),
				 "version", table_json_string(d->version), "kernels",
				 table_json_string(d->kernels), "context", d->context, "designs", designs);

	for (size_t i = 0; root && i < COUNTERS; i++)
		json_object_set_new(root, counters[i].name,
				    json_integer((json_int_t)count_of(d, &counters[i])));
	return table_json_print(root);
}

static void print_line(const char *field, const char *text)
{
	plain_line(stdout, "%-16s  %s", field, *text ? text : "-");
}

static int print_text(const struct npu_device *d, const struct table *designs, bool headers)
{
	print_line("device", d->device);
	print_line("health", d->health);
	if (d->reason[0])
		print_line("reason", d->reason);
	if (d->version[0])
		print_line("version", d->version);
	if (d->launches || d->contexts_max)
		print_line("context", d->context ? "held" : "none now");
	for (size_t i = 0; i < COUNTERS; i++)
		if (count_of(d, &counters[i]))
			printf("%-16s  %" PRIu64 "\n", counters[i].name, count_of(d, &counters[i]));
	if (!designs->cells)
		return 0;
	puts("");
	return table_print(designs, stdout, headers);
}

int do_device(npu_client *c, const struct options *o)
{
	cleanup(listing_fini) struct listing designs = listing_of(o, design_columns, DESIGN_COLUMNS);
	struct npu_device device;
	int status = 0;

	int error = npu_device_status(c, &device, add_design, &designs);
	if (error)
		status = exit_npu(c, error, NULL);
	else if (o->json ? print_object(&device, designs.array)
			 : print_text(&device, &designs.table, o->headers))
		status = no_memory();
	return status;
}
