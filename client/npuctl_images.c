/* npuctl: heads into the image store ahead of time, and out of it as Q4HI files. */
#include "npuctl.h"
#include "opening.h"
#include "output.h"
#include "own.h"
#include "q4hi.h"
#include "plain.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The head that was opened, among those that are stored. */
struct search {
	const struct npu_head_info *info;
	unsigned char key[25];
	uint64_t there;
	bool found;
};

static int look(void *arg, const struct npu_stored_row *row)
{
	struct search *s = arg;
	const struct npu_head_info *i = s->info;

	if (strcmp(row->hash, i->hash) == 0 && row->kpad == i->kpad && row->tile == i->tile &&
	    strcmp(row->layout, i->layout) == 0) {
		memcpy(s->key, row->key, sizeof s->key);
		s->found = true;
	}
	return 0;
}

static int count(void *arg, const struct npu_stored_tile_row *row)
{
	struct search *s = arg;
	s->there += row->there;
	return 0;
}

static int print_added(const struct options *o, const struct npu_head_info *i)
{
	char bytes[TABLE_UNIT];

	if (o->json)
		return print_json(json_pack(
			"{so so so sI sI sI so sI sI sI sI so}", "model", table_json_string(o->operands[1]),
			"tensor", table_json_string(i->tensor), "hash", table_json_string(i->hash), "kpad",
			(json_int_t)i->kpad, "tile", (json_int_t)i->tile, "tiles", (json_int_t)i->tiles,
			"layout", table_json_string(i->layout), "bytes", (json_int_t)i->bytes, "packed",
			(json_int_t)i->packed, "written", (json_int_t)i->written, "refused",
			(json_int_t)i->refused, "seconds", table_json_real(i->seconds)));
	plain_line(stdout, "%.8s  %" PRIu32 " tiles, %s: %" PRIu64 " written, %" PRIu64 " were there",
		   i->hash, i->tiles, table_format_bytes(bytes, i->bytes), i->written, i->tiles - i->written);
	return 0;
}

/* Whether all of it is in the store now, as a table or not. */
static int tell_stored(npu_client *c, const struct options *o, const struct npu_head_info *i)
{
	struct search s = {.info = i};
	struct npu_store store;
	int error = npu_store_list(c, &store, look, &s);

	if (!error && s.found)
		error = npu_store_show(c, s.key, count, &s);
	if (error)
		return exit_npu(c, error, NULL);
	if (s.there == i->tiles)
		return print_added(o, i);
	return exit_complain(EX_IOERR,
			     "store %s: of %" PRIu32 " tiles %" PRIu64
			     " are in the store; npud's log says why the others could not be written",
			     o->operands[0], i->tiles, s.there);
}

static int open_and_store(npu_client *c, const struct options *o, struct npu_head_options options)
{
	struct npu_head_info info;
	npu_head *head;
	int status = opening_head(c, o->operands[1], options, &head, &info);

	if (status)
		return status;
	int error = npu_head_stored(head, &info);
	status = error ? exit_npu(c, error, NULL) : tell_stored(c, o, &info);
	npu_head_close(head);
	return status;
}

int add_model(npu_client *c, const struct options *o, uint32_t tile, const char *layout)
{
	struct npu_head_options options = reading_options(&o->reading);
	const char *off = getenv("NPUD_STORE");
	struct npu_store store;

	if (off && (strcmp(off, "0") == 0 || strcmp(off, "no") == 0))
		return exit_usage("store %s: NPUD_STORE=%s turns the store off; unset it", o->operands[0],
				  off);
	int error = npu_store_list(c, &store, NULL, NULL);
	if (error)
		return exit_npu(c, error, NULL);
	if (store.off[0])
		return exit_complain(EX_UNAVAILABLE, "store %s: there is no image store: %s", o->operands[0],
				     store.off);
	if (tile)
		options.tile = tile;
	if (layout)
		options.layout = layout;
	output_catch();
	return open_and_store(c, o, options);
}

int do_add(npu_client *c, const struct options *o)
{
	return add_model(c, o, 0, NULL);
}

/* Tiles on their way from the daemon into files. */
struct exporting {
	npu_client *client;
	const struct npu_stored_row *row;
	char *piece; /* NPU_STORE_PIECE */
	uint32_t tile;
};

static int export_pieces(const struct exporting *e, struct q4hi_writer *w, struct err *err)
{
	uint64_t scales_end = q4hi_size(w->kd, w->nd) - Q4HI_HEADER;

	for (uint32_t piece = 0; w->done < scales_end; piece++) {
		bool scales;
		size_t size;
		int r = npu_store_read(e->client, e->row->key, e->tile, piece, e->piece, &size, &scales);
		if (r)
			return err_set(err, r, "%s", npu_error_text(e->client));
		if ((scales && (r = q4hi_pad(w, err))) || (r = q4hi_add(w, e->piece, size, err)))
			return r;
	}
	return q4hi_end(w, err);
}

static int export_tile(void *arg, int fd, const char *path, struct err *err)
{
	const struct exporting *e = arg;
	struct q4hi_writer w;
	int r = q4hi_begin(&w, fd, path, (uint32_t)e->row->kpad, (uint32_t)e->row->tile, err);

	return r ? r : export_pieces(e, &w, err);
}

static int export_all(struct exporting *e, const char *folder, struct listing *l)
{
	const struct npu_stored_row *row = e->row;
	struct progress progress;
	int status = 0;

	progress_begin(&progress);
	for (uint32_t t = 0; t < row->tiles && status == 0; t++) {
		char name[Q4HI_NAME_MAX];
		uint64_t bytes = q4hi_size((uint32_t)row->kpad, (uint32_t)row->tile);
		/* The content hash begins the key. */
		q4hi_name(name, row->key, t);
		progress_show(&progress, t, row->tiles);
		e->tile = t;
		status = output_file(folder, name, export_tile, e);
		if (status)
			break;
		if (l->array) {
			json_array_append_new(l->array, json_pack("{sI sI ss}", "tile", (json_int_t)t,
								  "bytes", (json_int_t)bytes, "file", name));
			continue;
		}
		table_cell(&l->table, "%" PRIu32, t);
		table_bytes(&l->table, bytes);
		table_cell(&l->table, "%s", name);
	}
	progress_end(&progress);
	return status;
}

int do_export(npu_client *c, const struct options *o)
{
	static const struct table_column columns[] = {{"TILE", true}, {"SIZE", true}, {"FILE", false}};
	cleanup(freep) char *piece = malloc(NPU_STORE_PIECE);
	struct choice choice;
	struct stat st;

	if (!o->out)
		return exit_usage("store export: no directory to write to was given; --out DIR is required");
	if (stat(o->out, &st) != 0 || !S_ISDIR(st.st_mode))
		return exit_complain(EX_CANTCREAT, "%s: is no directory; make it first", o->out);
	int status = choose_stored(c, o, &choice);
	if (status)
		return status;
	cleanup(listing_fini) struct listing l = listing_of(o, columns, sizeof columns / sizeof *columns);
	struct exporting e = {.client = c, .row = &choice.row, .piece = piece};
	if (!piece)
		return no_memory();
	output_catch();
	status = export_all(&e, o->out, &l);
	if (status == 0 && o->json)
		status = print_json(json_pack("{so so so sO}", "hash", table_json_string(choice.row.hash),
					      "label", table_json_string(choice.row.label), "layout",
					      table_json_string(choice.row.layout), "files", l.array));
	else if (status == 0 && table_print(&l.table, stdout, o->headers))
		status = no_memory();
	return status;
}
