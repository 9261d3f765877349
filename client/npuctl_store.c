/* npuctl's commands about the image store. */
#include "npuctl.h"
#include "output.h"
#include "plain.h"
#include "plural.h"
#include "own.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *when(char out[32], uint64_t ms)
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm tm;

	if (!ms || !localtime_r(&seconds, &tm) || !strftime(out, 32, "%F %T", &tm))
		snprintf(out, 32, "-");
	return out;
}

static json_t *json_of(const struct npu_stored_row *row)
{
	return json_pack("{so so so so sI sI sI sI sI sI sI sI sb sb}", "hash", table_json_string(row->hash),
			 "label", table_json_string(row->label), "tensor", table_json_string(row->tensor),
			 "layout", table_json_string(row->layout), "kpad", (json_int_t)row->kpad, "tile",
			 (json_int_t)row->tile, "tiles", (json_int_t)row->tiles, "columns",
			 (json_int_t)row->columns, "bytes", (json_int_t)row->bytes, "hits",
			 (json_int_t)row->hits, "created_ms", (json_int_t)row->created_ms, "used_ms",
			 (json_int_t)row->used_ms, "superseded", (int)row->superseded, "resident",
			 (int)row->resident);
}

static int add_stored(void *arg, const struct npu_stored_row *row)
{
	struct listing *l = arg;
	char text[32];

	if (l->array)
		return add_row(l->array, json_of(row));
	table_cell(&l->table, "%.8s", row->hash);
	table_bytes(&l->table, row->bytes);
	table_cell(&l->table, "%" PRIu64, row->tiles);
	table_cell(&l->table, "%" PRIu64, row->kpad);
	table_cell(&l->table, "%" PRIu64, row->tile);
	table_stranger(&l->table, row->layout);
	table_cell(&l->table, "%" PRIu64, row->hits);
	table_cell(&l->table, "%s", when(text, row->used_ms));
	table_cell(&l->table, "%s", row->resident ? "resident" : row->superseded ? "superseded" : "kept");
	table_stranger(&l->table, row->tensor);
	table_stranger(&l->table, row->label);
	return 0;
}

/* {"chunk-hash": 2} of lines of a reason and a count. */
static json_t *json_refused(const char *lines)
{
	json_t *root = json_object();
	char reason[64];
	uint64_t count;

	for (; root && sscanf(lines, "%63s %" SCNu64, reason, &count) == 2; lines = strchr(lines, '\n') + 1) {
		json_object_set_new(root, reason, json_integer((json_int_t)count));
		if (!strchr(lines, '\n'))
			break;
	}
	return root;
}

static json_t *json_summary(const struct npu_store *s, json_t *heads)
{
	return json_pack("{so so so sI sI sI sI sI sI sI sI sI sI so so}", "off",
			 table_json_string(s->off[0] ? s->off : NULL), "path",
			 table_json_string(s->off[0] ? NULL : s->path), "moved",
			 table_json_string(s->moved[0] ? s->moved : NULL), "max_bytes",
			 (json_int_t)s->max_bytes, "bytes", (json_int_t)s->bytes, "superseded_bytes",
			 (json_int_t)s->superseded_bytes, "file_bytes", (json_int_t)s->file_bytes,
			 "free_bytes", (json_int_t)s->free_bytes, "copied_bytes", (json_int_t)s->copied_bytes,
			 "hits", (json_int_t)s->hits, "misses", (json_int_t)s->misses, "written",
			 (json_int_t)s->written, "write_failures", (json_int_t)s->write_failures, "refused",
			 json_refused(s->refused), "heads", heads);
}

static void print_summary(const struct npu_store *s)
{
	char bytes[4][TABLE_UNIT];

	printf("%" PRIu64 " %s, %s of at most %s; the file has %s, %s of it free\n", s->heads,
	       plural(s->heads, "head", "heads"), table_format_bytes(bytes[0], s->bytes),
	       table_format_bytes(bytes[1], s->max_bytes), table_format_bytes(bytes[2], s->file_bytes),
	       table_format_bytes(bytes[3], s->free_bytes));
	printf("tiles since the start: %" PRIu64 " from the store, %" PRIu64 " not there, %" PRIu64
	       " written, %" PRIu64 " not written\n",
	       s->hits, s->misses, s->written, s->write_failures);
	table_print_lines("refused: ", s->refused);
	if (s->moved[0])
		print_stranger("moved", s->moved);
}

static int do_ls(npu_client *c, const struct options *o)
{
	static const struct table_column columns[] = {
		{"HASH", false},  {"SIZE", true},    {"TILES", true},  {"KPAD", true},
		{"TILE", true},	  {"LAYOUT", false}, {"HITS", true},   {"USED", false},
		{"STATE", false}, {"TENSOR", false}, {"LABEL", false},
	};
	cleanup(listing_fini) struct listing l = listing_of(o, columns, sizeof columns / sizeof *columns);
	struct npu_store store;
	int status = 0;

	int error = npu_store_list(c, &store, add_stored, &l);
	if (error)
		status = exit_npu(c, error, NULL);
	else if (o->json)
		status = print_json(json_summary(&store, json_incref(l.array)));
	else if (store.off[0])
		print_stranger("off", store.off);
	else if (table_print(&l.table, stdout, o->headers))
		status = no_memory();
	else if (o->headers)
		print_summary(&store);
	return status;
}

static int choose(void *arg, const struct npu_stored_row *row)
{
	struct choice *choice = arg;

	if (strncmp(row->hash, choice->hash, strlen(choice->hash)) != 0 ||
	    (choice->cut->tile && choice->cut->tile != row->tile) ||
	    (choice->cut->layout && strcmp(choice->cut->layout, row->layout) != 0))
		return 0;
	if (choice->count++)
		return 0;
	snprintf(choice->text, sizeof choice->text, "%s", row->hash);
	snprintf(choice->label, sizeof choice->label, "%s", row->label);
	snprintf(choice->tensor, sizeof choice->tensor, "%s", row->tensor);
	snprintf(choice->layout, sizeof choice->layout, "%s", row->layout);
	choice->row = *row;
	choice->row.hash = choice->text;
	choice->row.label = choice->label;
	choice->row.tensor = choice->tensor;
	choice->row.layout = choice->layout;
	return 0;
}

int choose_stored(npu_client *c, const struct options *o, struct choice *out)
{
	struct npu_store store;

	const struct reading *r = &o->reading;
	if (r->tensor || r->transpose || r->q8 || r->is_signed || r->k)
		return exit_usage(
			"store %s: of what says how a model is read only --tile and --layout go with it",
			o->operands[0]);
	*out = (struct choice){.hash = o->operands[1], .cut = r};
	int error = npu_store_list(c, &store, choose, out);
	if (error)
		return exit_npu(c, error, NULL);
	if (out->count == 1)
		return 0;
	return exit_complain(
		EX_DATAERR,
		out->count
			? "store %s %s: %u heads are so called; give more of the hash, or --tile and --layout"
			: "store %s %s: no head is so called; npuctl store ls lists them",
		o->operands[0], out->hash, out->count);
}

static int add_tile(void *arg, const struct npu_stored_tile_row *row)
{
	struct listing *l = arg;
	char text[32];

	if (l->array)
		return add_row(l->array,
			       json_pack("{sI sb sI sI sI sI so}", "number", (json_int_t)row->number, "there",
					 (int)row->there, "columns", (json_int_t)row->columns, "chunks",
					 (json_int_t)row->chunks, "nonfinite", (json_int_t)row->nonfinite,
					 "created_ms", (json_int_t)row->created_ms, "fingerprint",
					 table_json_string(row->there ? row->fingerprint : NULL)));
	table_cell(&l->table, "%" PRIu64, row->number);
	table_cell(&l->table, "%s", row->there ? "there" : "missing");
	table_cell(&l->table, "%" PRIu64, row->columns);
	table_cell(&l->table, "%" PRIu64, row->chunks);
	table_cell(&l->table, "%" PRIu64, row->nonfinite);
	table_cell(&l->table, "%s", when(text, row->created_ms));
	table_stranger(&l->table, row->fingerprint);
	return 0;
}

static void print_head(const struct npu_stored_row *row)
{
	char text[32], bytes[TABLE_UNIT];

	print_stranger("hash", row->hash);
	print_stranger("label", row->label);
	print_stranger("tensor", row->tensor);
	print_stranger("layout", row->layout);
	printf("%-10s  %" PRIu64 " %s of %" PRIu64 " x %" PRIu64 ", %" PRIu64 " words, %s\n", "shape",
	       row->tiles, plural(row->tiles, "tile", "tiles"), row->kpad, row->tile, row->columns,
	       table_format_bytes(bytes, row->bytes));
	printf("%-10s  %s\n", "created", when(text, row->created_ms));
	printf("%-10s  %s, %" PRIu64 " %s\n", "used", when(text, row->used_ms), row->hits,
	       plural(row->hits, "time", "times"));
	printf("%-10s  %s%s\n", "state", row->resident ? "resident" : "kept",
	       row->superseded ? ", superseded" : "");
}

static int do_show(npu_client *c, const struct options *o)
{
	static const struct table_column columns[] = {
		{"TILE", true},	     {"STATE", false},	 {"COLUMNS", true}, {"CHUNKS", true},
		{"NONFINITE", true}, {"CREATED", false}, {"PACKER", false},
	};
	cleanup(listing_fini) struct listing l = listing_of(o, columns, sizeof columns / sizeof *columns);
	struct choice choice;

	int status = choose_stored(c, o, &choice);
	if (status)
		return status;
	int error = npu_store_show(c, choice.row.key, add_tile, &l);
	if (error) {
		status = exit_npu(c, error, NULL);
	} else if (o->json) {
		json_t *root = json_of(&choice.row);
		if (root)
			json_object_set(root, "records", l.array);
		status = print_json(root);
	} else {
		print_head(&choice.row);
		status = table_print(&l.table, stdout, o->headers) ? no_memory() : 0;
	}
	return status;
}

struct verifying {
	json_t *array; /* with --json */
	uint64_t total;
	struct progress progress;
};

static int add_bad(void *arg, const struct npu_stored_bad_row *row)
{
	struct verifying *v = arg;

	if (v->array)
		return add_row(v->array,
			       json_pack("{so so sI so so sb}", "hash", table_json_string(row->hash), "label",
					 table_json_string(row->label), "tile", (json_int_t)row->tile,
					 "reason", table_json_string(row->reason), "text",
					 table_json_string(row->text), "removed", (int)row->removed));
	progress_end(&v->progress); /* which stands on the terminal where this goes */
	plain_line(stdout, "%.8s  %s: %s: %s%s", row->hash, row->label, row->reason, row->text,
		   row->removed ? "; removed" : "");
	return 0;
}

static int show_verified(void *arg, const struct npu_store_verified *done)
{
	struct verifying *v = arg;
	progress_bytes(&v->progress, "verifying", done->bytes, v->total);
	return 0;
}

static int do_verify(npu_client *c, const struct options *o)
{
	struct verifying v = {.array = o->json ? json_array() : NULL};
	struct npu_store_verified done = {0};
	struct npu_store store;
	int status;

	if (o->json && !v.array)
		return no_memory();
	int error = npu_store_list(c, &store, NULL, NULL);
	v.total = error ? 0 : store.bytes;
	progress_begin(&v.progress);
	if (!error)
		error = npu_store_verify(c, o->remove, &done, add_bad, show_verified, &v);
	progress_end(&v.progress);
	if (error) {
		json_decref(v.array);
		return exit_npu(c, error, NULL);
	}
	if (o->json) {
		status = print_json(json_pack("{sI sI so}", "tiles", (json_int_t)done.tiles, "bytes",
					      (json_int_t)done.bytes, "bad", v.array));
	} else {
		printf("%" PRIu64 " %s hashed, %" PRIu64 " bad\n", done.tiles,
		       plural(done.tiles, "tile", "tiles"), done.bad);
		status = 0;
	}
	return status ? status : done.bad ? EXIT_DIFFERS : 0;
}

static int do_prune(npu_client *c, const struct options *o)
{
	char text[TABLE_UNIT];
	uint64_t heads, bytes;
	int error = npu_store_prune(c, o->superseded, &heads, &bytes);

	if (error)
		return exit_npu(c, error, NULL);
	if (o->json)
		return print_json(
			json_pack("{sI sI}", "heads", (json_int_t)heads, "bytes", (json_int_t)bytes));
	printf("%" PRIu64 " %s went, %s; the file keeps its size until npuctl store compact\n", heads,
	       plural(heads, "head", "heads"), table_format_bytes(text, bytes));
	return 0;
}

/* The daemon answers when it is done; a thread of its own asks meanwhile how far it is. */
struct compacting {
	npu_client *client;
	uint64_t total;
	atomic_bool over;
};

static void *watch_copy(void *arg)
{
	struct compacting *w = arg;
	struct progress progress;
	struct npu_store store;

	progress_begin(&progress);
	while (!atomic_load(&w->over)) {
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
		if (npu_store_list(w->client, &store, NULL, NULL) == 0 && store.copied_bytes)
			progress_bytes(&progress, "compacting", store.copied_bytes, w->total);
	}
	progress_end(&progress);
	return NULL;
}

static int do_compact(npu_client *c, const struct options *o)
{
	char text[2][TABLE_UNIT];
	uint64_t before, after;
	struct npu_store store;
	pthread_t watcher;
	int error = npu_store_list(c, &store, NULL, NULL);

	if (error)
		return exit_npu(c, error, NULL);
	struct compacting w = {.client = c, .total = store.file_bytes - store.free_bytes};
	bool watched = isatty(2) && pthread_create(&watcher, NULL, watch_copy, &w) == 0;
	error = npu_store_compact(c, &before, &after);
	atomic_store(&w.over, true);
	if (watched)
		pthread_join(watcher, NULL);
	if (error)
		return exit_npu(c, error, NULL);
	if (o->json)
		return print_json(
			json_pack("{sI sI}", "before", (json_int_t)before, "after", (json_int_t)after));
	printf("the file had %s and has %s\n", table_format_bytes(text[0], before),
	       table_format_bytes(text[1], after));
	return 0;
}

static const struct {
	const char *name, *operand; /* what it needs one of, or NULL */
	int most;		    /* words it takes */
	int (*run)(npu_client *c, const struct options *o);
	bool superseded, remove, out, reading; /* options it takes; --out it needs */
} subcommands[] = {
	{"ls", NULL, 0, do_ls, false, false, false, false},
	{"show", "HASH", 1, do_show, false, false, false, true},
	{"verify", NULL, 0, do_verify, false, true, false, false},
	{"prune", NULL, 0, do_prune, true, false, false, false},
	{"compact", NULL, 0, do_compact, false, false, false, false},
	{"add", "MODEL", 1, do_add, false, false, false, true},
	{"export", "HASH", 1, do_export, false, false, true, true},
	{"import", "MODEL", STORE_WORDS, do_import, false, false, false, true},
};

int do_store(npu_client *c, const struct options *o)
{
	const char *name = o->operands[0] ? o->operands[0] : "ls";

	for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++) {
		int words = 0;
		if (strcmp(name, subcommands[i].name) != 0)
			continue;
		while (o->operands[0] && o->operands[words + 1])
			words++;
		if (subcommands[i].operand && !words)
			return exit_usage(
				"store %s: which %s?%s", name, subcommands[i].operand,
				strcmp(subcommands[i].operand, "HASH") ? "" : " npuctl store ls lists them");
		if (words > subcommands[i].most)
			return exit_usage("store %s: '%s' is one word too many", name,
					  o->operands[subcommands[i].most + 1]);
		const char *wrong = o->superseded && !subcommands[i].superseded ? "--superseded does"
				    : o->remove && !subcommands[i].remove	? "--remove does"
				    : o->out && !subcommands[i].out		? "--out does"
				    : o->reading_given && !subcommands[i].reading
					    ? "--tensor, --tile and their like do"
					    : NULL;
		if (wrong)
			return exit_usage("store %s: %s not go with it", name, wrong);
		return subcommands[i].run(c, o);
	}
	return exit_usage("store %s: ls, show, verify, prune, compact, add, export or import", name);
}
