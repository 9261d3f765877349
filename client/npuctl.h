/* npuctl: what its files share: the options of a command, listings as table or JSON. One thread. */
#ifndef NPUCTL_H
#define NPUCTL_H

#include "exit.h"
#include "npu.h"
#include "table.h"

struct options {
	const char *socket;
	bool json, headers, count_given, follow, superseded, remove;
	const char *operand; /* the first; of a command that takes one */
	char **operands;     /* all, NULL at the end */
	unsigned long count;
};

int no_memory(void);
int print_json(json_t *root); /* takes it */
void print_stranger(const char *field, const char *text);

/* Where the rows of a listing go: into the JSON array when there is one, else into the table. */
struct listing {
	struct table table;
	json_t *array;
};

/* Ends a listing: prints it under `name` unless `error`, and frees it. */
int finish_listing(struct listing *l, npu_client *c, const struct options *o, const char *name, int error);

/* npuctl_device.c */
int do_device(npu_client *c, const struct options *o);
#define DESIGN_COLUMNS 6
extern const struct table_column design_columns[DESIGN_COLUMNS];
int add_design(void *arg, const struct npu_design_row *row); /* to a listing */

int do_kernels(npu_client *c, const struct options *o); /* npuctl_kernels.c */

/* npuctl_resident.c */
int do_heads(npu_client *c, const struct options *o);
int do_weights(npu_client *c, const struct options *o);
int do_evict(npu_client *c, const struct options *o);
int do_pin(npu_client *c, const struct options *o);
int do_unpin(npu_client *c, const struct options *o);
int do_plan(npu_client *c, const struct options *o);

int do_store(npu_client *c, const struct options *o); /* npuctl_store.c */

/* npuctl_tickets.c */
int do_tickets(npu_client *c, const struct options *o);
int do_why(npu_client *c, const struct options *o);
int do_drain(npu_client *c, const struct options *o);
int do_resume(npu_client *c, const struct options *o);
int do_who(npu_client *c, const struct options *o);
int do_usage(npu_client *c, const struct options *o);

#endif
