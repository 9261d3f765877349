#include "activations.h"
#include "clock.h"
#include "exit.h"
#include "npu-head.h"
#include "opening.h"
#include "output.h"
#include "plural.h"
#include "table.h"
#include "plain.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH 64u /* rows of logits in memory at a time */

struct run {
	const struct options *options;
	const char *model;
	struct activations x;
	struct output out;
	npu_client *client;
	npu_head *head;
	struct npu_head_info info;
	struct npu_run_info ran; /* times of all calls added up */
	size_t rows;
	uint32_t k;
	uint32_t *ids;
	float *scores, *logits;
	double start, total;
};

static void run_add(struct run *r, const struct npu_run_info *ran, bool first)
{
	/* Logits and top see the same activations; what is not finite is counted once. */
	if (first)
		r->ran.nonfinite += ran->nonfinite;
	r->ran.queue_seconds += ran->queue_seconds;
	r->ran.compute_seconds += ran->compute_seconds;
	r->ran.cpu_seconds += ran->cpu_seconds;
	memcpy(r->ran.path, ran->path, sizeof r->ran.path);
	memcpy(r->ran.kernel, ran->kernel, sizeof r->ran.kernel);
	memcpy(r->ran.why, ran->why, sizeof r->ran.why);
	r->ran.verified = ran->verified;
}

static int run_read(struct run *r)
{
	const char *file = r->options->x, *name = strcmp(file, "-") ? file : "stdin";
	char why[ACTIVATIONS_WHY];
	struct stat st;
	int fd = strcmp(file, "-") ? open(file, O_RDONLY | O_CLOEXEC) : 0, error;

	if (fd < 0)
		return exit_complain(EX_NOINPUT, "%s: cannot open: %s", name, strerror(errno));
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		close(fd);
		return exit_complain(EX_NOINPUT, "%s: cannot read: it is a directory; --x wants a file",
				     name);
	}
	error = activations_read(&r->x, fd, why);
	if (fd > 0)
		close(fd);
	if (error)
		return exit_complain(exit_status(error), "%s: %s", name, why);
	return 0;
}

static int run_open(struct run *r)
{
	const struct options *o = r->options;
	int error = npu_connect(&r->client, o->socket, "npu-head");

	if (error)
		return exit_npu(r->client, error, NULL);
	int status = opening_head(r->client, r->model, reading_options(&o->reading), &r->head, &r->info);
	if (status)
		return status;
	npu_head_set_verify(r->head, o->verify);
	if (o->path && npu_head_set_path(r->head, o->path))
		return exit_usage("--path %s: %s", o->path, npu_error_text(r->client));
	return 0;
}

static int run_rows(struct run *r)
{
	const struct options *o = r->options;
	char why[ACTIVATIONS_WHY];
	int error;

	r->rows = o->rows;
	if (o->random) {
		r->rows = o->rows ? o->rows : 1;
		error = activations_random(&r->x, o->seed, r->rows, r->info.h, why);
		return error ? exit_complain(exit_status(error), "--rows: %s", why) : 0;
	}
	error = activations_rows(&r->x, r->info.h, &r->rows, why);
	if (error)
		return exit_complain(exit_status(error), "%s: %s", strcmp(o->x, "-") ? o->x : "stdin", why);
	return 0;
}

static int run_logits(struct run *r)
{
	size_t batch = r->rows < BATCH ? r->rows : BATCH, values, bytes;

	if (__builtin_mul_overflow(batch, (size_t)r->info.nv, &values) ||
	    __builtin_mul_overflow(values, sizeof(float), &bytes))
		return exit_complain(EX_DATAERR, "%zu rows of %" PRIu32 " logits are more than fit memory",
				     batch, r->info.nv);
	r->logits = malloc(bytes);
	if (!r->logits)
		return exit_complain(EX_TEMPFAIL, "not enough memory for %zu rows of %" PRIu32 " logits",
				     batch, r->info.nv);
	for (size_t at = 0; at < r->rows; at += batch) {
		size_t n = r->rows - at < batch ? r->rows - at : batch;
		struct npu_run_info ran = {0};
		int error = npu_head_logits(r->head, r->x.values + at * r->info.h, n, r->logits, &ran);

		if (error)
			return exit_npu(r->client, error, NULL);
		run_add(r, &ran, true);
		error = output_write(&r->out, r->logits, n * r->info.nv * sizeof(float));
		if (error)
			return error;
	}
	return 0;
}

static int run_top(struct run *r)
{
	struct npu_run_info ran = {0};
	size_t words, bytes;
	int error;

	r->k = r->options->top < r->info.nv ? (uint32_t)r->options->top : r->info.nv;
	if (__builtin_mul_overflow(r->rows, (size_t)r->k, &words) ||
	    __builtin_mul_overflow(words, sizeof *r->ids, &bytes))
		return exit_complain(EX_DATAERR, "%zu rows of %" PRIu32 " words are more than fit memory",
				     r->rows, r->k);
	r->ids = malloc(bytes);
	r->scores = malloc(bytes);
	if (!r->ids || !r->scores)
		return exit_complain(EX_TEMPFAIL, "not enough memory for %zu rows of %" PRIu32 " words",
				     r->rows, r->k);
	error = npu_head_top(r->head, r->x.values, r->rows, r->k, r->ids, r->scores, &ran);
	if (error)
		return exit_npu(r->client, error, NULL);
	run_add(r, &ran, !r->options->logits);
	return 0;
}

static int run_table(const struct run *r)
{
	static const struct table_column columns[] = {
		{"ROW", true},
		{"RANK", true},
		{"ID", true},
		{"SCORE", true},
	};
	struct table t;
	int error;

	table_init(&t, columns, sizeof columns / sizeof *columns);
	for (size_t m = 0; m < r->rows; m++) {
		for (uint32_t i = 0; i < r->k; i++) {
			table_cell(&t, "%zu", m);
			table_cell(&t, "%" PRIu32, i + 1);
			table_cell(&t, "%" PRIu32, r->ids[m * r->k + i]);
			table_cell(&t, "%.9g", (double)r->scores[m * r->k + i]);
		}
	}
	error = table_print(&t, stdout, r->options->headers);
	table_fini(&t);
	return error ? exit_complain(exit_status(error), "not enough memory for the table") : 0;
}

static json_t *run_json_top(const struct run *r)
{
	json_t *top = json_array();

	for (size_t m = 0; m < r->rows; m++) {
		json_t *row = json_array();

		for (uint32_t i = 0; i < r->k; i++) {
			size_t at = m * r->k + i;

			json_array_append_new(row, json_pack("{sI so}", "id", (json_int_t)r->ids[at], "score",
							     table_json_real((double)r->scores[at])));
		}
		json_array_append_new(top, row);
	}
	return top;
}

/* An array of {reason, text} of lines "REASON: sentence". */
static json_t *refusals_json(const char *lines)
{
	json_t *array = json_array();

	while (array && *lines) {
		size_t size = strcspn(lines, "\n"), reason = strcspn(lines, ":\n");
		size_t text = reason + 2 < size ? reason + 2 : size;
		char *copy = strndup(lines, size);
		if (copy)
			copy[reason < size ? reason : size] = '\0';
		json_array_append_new(array, copy ? json_pack("{so so}", "reason", table_json_string(copy),
							      "text", table_json_string(copy + text))
						  : NULL);
		free(copy);
		lines += size + (lines[size] == '\n');
	}
	return array;
}

/* What `open` and `run` say of the head. */
static json_t *head_json(const struct run *r)
{
	const struct npu_head_info *i = &r->info;
	return json_pack("{so so so so so s{sI sI sI sI sI so} so sI sb sI sI sI sI so sI sb sI s{so}}",
			 "model", table_json_string(r->model), "tensor", table_json_string(i->tensor), "type",
			 table_json_string(i->type), "note", table_json_string(i->note), "why",
			 table_json_string(i->why), "geometry", "nv", (json_int_t)i->nv, "h",
			 (json_int_t)i->h, "kpad", (json_int_t)i->kpad, "tile", (json_int_t)i->tile, "tiles",
			 (json_int_t)i->tiles, "layout", table_json_string(i->layout), "hash",
			 table_json_string(i->hash), "bytes", (json_int_t)i->bytes, "attached",
			 (int)i->attached, "packed", (json_int_t)i->packed, "written", (json_int_t)i->written,
			 "from_store", (json_int_t)i->from_store, "refused", (json_int_t)i->refused,
			 "refusals", refusals_json(i->refusals), "gathered_columns",
			 (json_int_t)i->gathered_columns, "hashed", (int)i->hashed, "weights_nonfinite",
			 (json_int_t)i->nonfinite, "seconds", "open", table_json_real(i->seconds));
}

static int run_json(const struct run *r)
{
	json_t *root = head_json(r), *seconds = json_object_get(root, "seconds");
	json_t *ran = json_pack("{sI sI so so sb so so so}", "rows", (json_int_t)r->rows, "nonfinite",
				(json_int_t)r->ran.nonfinite, "path", table_json_string(r->ran.path),
				"path_why", table_json_string(r->ran.why), "verified", (int)r->ran.verified,
				"kernel", table_json_string(r->ran.kernel), "logits",
				table_json_string(r->options->logits), "top", run_json_top(r));
	int failed = json_object_update(root, ran) ||
		     json_object_set_new(seconds, "queue", table_json_real(r->ran.queue_seconds)) ||
		     json_object_set_new(seconds, "compute", table_json_real(r->ran.compute_seconds)) ||
		     json_object_set_new(seconds, "cpu", table_json_real(r->ran.cpu_seconds)) ||
		     json_object_set_new(seconds, "total", table_json_real(r->total));

	json_decref(ran);
	if (failed) {
		json_decref(root);
		root = NULL;
	}
	if (table_json_print(root))
		return exit_complain(EX_TEMPFAIL, "not enough memory for the JSON");
	return 0;
}

/* Until what was packed is in the image store, or will never be: r->info says which. */
static int run_stored(struct run *r)
{
	int error = npu_head_stored(r->head, &r->info);
	return error ? exit_model(r->client, error, r->model) : 0;
}

/* What is no failure and to be known. */
static void run_notes(const struct run *r)
{
	if (r->info.note[0])
		exit_complain(0, "%s", r->info.note);
	if (r->info.nonfinite)
		exit_complain(0, "%" PRIu64 " %s not finite: counted as 0", r->info.nonfinite,
			      plural(r->info.nonfinite, "weight was", "weights were"));
}

static int run_all(struct run *r)
{
	const struct options *o = r->options;
	/* Logits on their own are asked for without words, unless those are asked for too. */
	bool top = !o->logits || o->top_given || o->json;
	int status = 0;

	if (o->x)
		status = run_read(r);
	if (!status && o->logits)
		status = output_open(&r->out, o->logits);
	if (!status)
		status = run_open(r);
	if (!status)
		status = run_rows(r);
	if (!status && o->logits)
		status = run_logits(r);
	if (!status && top)
		status = run_top(r);
	if (!status && o->logits)
		status = output_commit(&r->out);
	r->total = clock_now() - r->start;
	if (!status && o->json)
		status = run_stored(r);
	if (!status && o->json)
		status = run_json(r);
	else if (!status && top)
		status = run_table(r);
	if (!status && r->ran.nonfinite)
		exit_complain(0, "%" PRIu64 " %s not finite: counted as 0", r->ran.nonfinite,
			      plural(r->ran.nonfinite, "activation was", "activations were"));
	if (!status)
		run_notes(r);
	return status;
}

static void run_begin(struct run *r, const struct options *o, const char *model)
{
	*r = (struct run){.options = o, .model = model, .out.fd = -1, .start = clock_now()};
	output_catch();
}

static void run_end(struct run *r)
{
	output_fini(&r->out);
	npu_head_close(r->head);
	npu_close(r->client);
	activations_fini(&r->x);
	free(r->ids);
	free(r->scores);
	free(r->logits);
}

int command_run(const struct options *o, char *const *operands)
{
	struct run r;

	if (!o->x && !o->random)
		return exit_usage(
			"run: no activations were given; one of --x FILE and --random SEED is required");
	if (o->x && o->random)
		return exit_usage("run: --x and --random exclude each other; give one of them");
	if (o->logits && !strcmp(o->logits, "-")) {
		if (o->json || o->top_given)
			return exit_usage("--logits -: stdout cannot also take --top or --json; give a file");
		if (isatty(1))
			return exit_usage("--logits -: stdout is a terminal; redirect it or give a file");
	}
	run_begin(&r, o, operands[0]);
	int status = run_all(&r);
	run_end(&r);
	return status;
}

static void print_head(const struct npu_head_info *i)
{
	char bytes[TABLE_UNIT], seconds[TABLE_UNIT];

	plain_line(stdout, "tensor    %s, %s (%s)", i->tensor, i->type, i->why);
	plain_line(stdout,
		   "shape     %" PRIu32 " words of %" PRIu32 "; %" PRIu32 " tiles of %" PRIu32 " x %" PRIu32
		   ", %s",
		   i->nv, i->h, i->tiles, i->kpad, i->tile, i->layout);
	plain_line(stdout, "hash      %s", i->hash);
	printf("memory    %s, %s in %s\n", table_format_bytes(bytes, i->bytes),
	       i->attached ? "was resident already, found" : "loaded",
	       table_format_seconds(seconds, i->seconds));
	if (!i->attached)
		printf("tiles     %" PRIu64 " from the image store, %" PRIu64 " packed (%" PRIu64
		       " written), %" PRIu64 " refused\n",
		       i->from_store, i->packed, i->written, i->refused);
	table_print_lines("refused   ", i->refusals);
}

static int open_all(struct run *r)
{
	int status = run_open(r);

	if (!status)
		status = run_stored(r);
	if (!status && !r->options->json)
		print_head(&r->info);
	else if (!status && table_json_print(head_json(r)))
		status = exit_complain(EX_TEMPFAIL, "not enough memory for the JSON");
	if (!status)
		run_notes(r);
	return status;
}

int command_open(const struct options *o, char *const *operands)
{
	struct run r;

	run_begin(&r, o, operands[0]);
	int status = open_all(&r);
	run_end(&r);
	return status;
}
