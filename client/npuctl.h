/* npuctl: what its files share: the options of a command, listings as table or JSON. One thread. */
#ifndef NPUCTL_H
#define NPUCTL_H

#include "exit.h"
#include "npu.h"
#include "reading.h"
#include "table.h"

struct options {
	const char *socket, *out;
	bool json, headers, count_given, follow, superseded, remove;
	struct reading reading;
	bool reading_given;
	const char *operand; /* the first; of a command that takes one */
	char **operands;     /* all, NULL at the end */
	unsigned long count;
};

/* Words behind store import: a model, and the files of as many tiles as there may be. */
#define STORE_WORDS 4096

int no_memory(void);
int print_json(json_t *root); /* takes it */
/* Of a daemon that may come back. */
bool is_absence(int error);
void print_stranger(const char *field, const char *text);

/* Where the rows of a listing go: into the JSON array when there is one, else into the table. */
struct listing {
	struct table table;
	json_t *array;
};

/* An empty one for cleanup(listing_fini); `columns` has to outlive it. */
struct listing listing_of(const struct options *o, const struct table_column *columns, size_t width);
void listing_fini(struct listing *l);
/* Adds the row, which it takes, to the array: 0 or NPU_E_NO_MEMORY. */
int add_row(json_t *array, json_t *row);
/* Prints it under `name`, or says what `error` is of. Returns an exit status. */
int print_listing(const struct listing *l, npu_client *c, const struct options *o, const char *name,
		  int error);

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

/* The one stored head whose hash begins as `hash` says, and that is cut as `cut` says, if it does; its
 * strings are below. */
struct choice {
	const char *hash;
	const struct reading *cut;
	struct npu_stored_row row;
	char text[33], label[129], tensor[129], layout[17];
	unsigned count;
};
/* 0, or an exit status, having complained: none, or several are meant. */
int choose_stored(npu_client *c, const struct options *o, struct choice *out);

/* npuctl_images.c */
int do_add(npu_client *c, const struct options *o);
int do_export(npu_client *c, const struct options *o);
/* Has MODEL packed and stored by the daemon, as `o` reads it and `tile` and `layout` (0, NULL: as `o` says)
 * cut it. */
int add_model(npu_client *c, const struct options *o, uint32_t tile, const char *layout);

int do_import(npu_client *c, const struct options *o); /* npuctl_import.c */

/* npuctl_tickets.c */
int do_tickets(npu_client *c, const struct options *o);
int do_why(npu_client *c, const struct options *o);
int do_drain(npu_client *c, const struct options *o);
int do_resume(npu_client *c, const struct options *o);
int do_who(npu_client *c, const struct options *o);
int do_usage(npu_client *c, const struct options *o);
json_t *json_of_ticket(const struct npu_ticket_info *t);

int do_top(npu_client *c, const struct options *o); /* npuctl_top.c */

/* A pass that takes so long is told: rows of other clients wait for its end. */
enum { PASS_SHOWN_MS = 1000 };

#endif
