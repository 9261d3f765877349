#include "exit.h"
#include "hash.h"
#include "npu-head.h"
#include "output.h"
#include "own.h"
#include "packer.h"
#include "plural.h"
#include "q4hi.h"
#include "table.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define THREADS_MAX 4

static int complain_err(const struct err *err)
{
	return exit_complain(exit_status(err->code), "%s", err->text);
}

static void show(void *arg, uint32_t done, uint32_t tiles)
{
	progress_show(arg, done, tiles);
}

static int pack_all(struct load *l)
{
	struct progress progress;
	struct err err;

	progress_begin(&progress);
	int r = packer_pack(l, show, &progress, &err);
	progress_end(&progress);
	return r ? complain_err(&err) : 0;
}

static int write_tile(void *arg, int fd, const char *path, struct err *err)
{
	const struct tile *tile = arg;
	return q4hi_write(fd, path, tile->kd, tile->nd, tile->codes, tile->scales, err);
}

/* Every tile to a file, and what was written to the table and the array. */
static int write_all(const struct load *l, const char *folder, struct table *table, json_t *files)
{
	for (uint32_t t = 0; t < l->geometry.tiles; t++) {
		char name[Q4HI_NAME_MAX];
		uint64_t bytes = q4hi_size(l->geometry.kd, l->geometry.nd);
		q4hi_name(name, l->hash, t);
		struct tile tile = image_tile(&l->image, t);
		int status = output_file(folder, name, write_tile, &tile);
		if (status)
			return status;
		table_cell(table, "%" PRIu32, t);
		table_bytes(table, bytes);
		table_cell(table, "%s", name);
		json_array_append_new(files, json_pack("{sI sI ss}", "tile", (json_int_t)t, "bytes",
						       (json_int_t)bytes, "file", name));
	}
	return 0;
}

static int print_json(const struct load *l, json_t *files)
{
	const struct geometry *g = &l->geometry;
	json_t *root = json_pack(
		"{so so so s{sI sI sI sI sI ss} sI sO}", "model", table_json_string(l->request.label),
		"tensor", table_json_string(l->parts[0].matrix.tensor->name), "type",
		table_json_string(l->parts[0].matrix.reading), "geometry", "nv", (json_int_t)g->nv, "h",
		(json_int_t)g->h, "kpad", (json_int_t)g->kd, "tile", (json_int_t)g->nd, "tiles",
		(json_int_t)g->tiles, "layout", g->layout == LAYOUT_BLOCKED ? "blocked" : "row-major",
		"weights_nonfinite", (json_int_t)l->nonfinite, "files", files);
	return table_json_print(root) ? exit_complain(EX_TEMPFAIL, "not enough memory for the JSON") : 0;
}

static int pack_and_write(const struct options *o, struct load *l)
{
	static const struct table_column columns[] = {{"TILE", true}, {"SIZE", true}, {"FILE", false}};
	struct table table;
	json_t *files = json_array();
	int status = pack_all(l);

	table_init(&table, columns, sizeof columns / sizeof *columns);
	if (status == 0)
		status = write_all(l, o->out, &table, files);
	if (status == 0 && o->json)
		status = print_json(l, files);
	else if (status == 0 && table_print(&table, stdout, o->headers))
		status = exit_complain(EX_TEMPFAIL, "not enough memory for the table");
	if (status == 0 && l->nonfinite)
		exit_complain(0, "%" PRIu64 " %s not finite: counted as 0", (uint64_t)l->nonfinite,
			      plural(l->nonfinite, "weight was", "weights were"));
	table_fini(&table);
	json_decref(files);
	return status;
}

/* The model's files become the source's. */
static int load_make(struct load **out, const struct options *o, struct model *m,
		     const struct hash_secret *secret, const struct kernels *kernels)
{
	struct load_request request = packer_request(&o->reading);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (packer_new(out, m, &request, secret, kernels,
		       cpus > 0 && cpus < THREADS_MAX ? (unsigned)cpus : THREADS_MAX))
		return exit_complain(EX_TEMPFAIL, "not enough memory");
	return 0;
}

int command_pack(const struct options *o, char *const *operands)
{
	cleanup(model_fini) struct model m = {.files = NULL};
	struct load *l = NULL;
	struct hash_secret secret;
	struct kernels kernels;
	struct stat st;
	struct err err;

	if (!o->out)
		return exit_usage("pack: no directory to write to was given; --out DIR is required");
	if (stat(o->out, &st) != 0 || !S_ISDIR(st.st_mode))
		return exit_complain(EX_CANTCREAT, "%s: is no directory; make it first", o->out);
	if (model_find(&m, operands[0], &err))
		return exit_found(&err);
	output_catch();
	kernels_pick(&kernels, cpu_have(), NULL); /* without a name there is always one */
	hash_secret_public(&secret);
	int status = load_make(&l, o, &m, &secret, &kernels);
	if (status == 0 && l)
		status = pack_and_write(o, l);
	load_free(l);
	return status;
}

int command_check(const struct options *o, char *const *operands)
{
	const char *name = operands[0];
	cleanup(closep) int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct q4hi q;
	struct err err;

	if (fd < 0 && errno == ENOENT)
		return exit_complain(EX_NOINPUT, "%s: not there", name);
	if (fd < 0)
		return exit_complain(EX_NOINPUT, "%s: cannot open: %s", name, strerror(errno));
	if (q4hi_open(&q, fd, name, 0, (uint32_t)o->reading.tile, &err) || q4hi_read(&q, NULL, NULL, &err))
		return complain_err(&err);
	if (!o->json) {
		printf("sound: kd %" PRIu32 ", nd %" PRIu32 ", %" PRIu64 " bytes, hash %016" PRIx64 "\n",
		       q.kd, q.nd, q4hi_size(q.kd, q.nd), q.hash);
		return 0;
	}
	char hash[17];
	snprintf(hash, sizeof hash, "%016" PRIx64, q.hash);
	json_t *root =
		json_pack("{so sI sI sI ss}", "file", table_json_string(name), "kd", (json_int_t)q.kd, "nd",
			  (json_int_t)q.nd, "bytes", (json_int_t)q4hi_size(q.kd, q.nd), "hash", hash);
	return table_json_print(root) ? exit_complain(EX_TEMPFAIL, "not enough memory for the JSON") : 0;
}
