/* npu-head: output heads from the shell; see docs/man/npu-head.1.scd. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "activations.h"
#include "compare.h"
#include "exit.h"
#include "npu.h"
#include "table.h"

#ifndef NPUD_VERSION
#define NPUD_VERSION "unknown"
#endif

enum {
	TOP_DEFAULT = 10,
	BATCH = 64, /* rows of logits in memory at a time */
};

struct options {
	const char *tensor, *x, *logits, *layout, *q8, *socket;
	bool transpose, is_signed, random, json, headers, top_given, run_only;
	uint64_t seed, rows, top, tile, k;
};

/*
 * Ctrl-C. While a head is opened the first one only sets the flag: the progress callback then cancels in good
 * order. At any other time, or the second time, the process leaves from the handler; the daemon cancels what
 * it was doing when the connection ends.
 */
static volatile sig_atomic_t interrupted, opening, partial_exists;
static char partial[PATH_MAX]; /* the unfinished logits file */

static void on_signal(int number)
{
	static const char said[] = "npu-head: interrupted\n";

	if (opening && !interrupted) {
		interrupted = number;
		return;
	}
	if (partial_exists)
		unlink(partial);
	if (write(2, said, sizeof said - 1) < 0)
		_exit(128 + number);
	_exit(128 + number);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct output {
	int fd; /* -1: none */
	const char *name, *target;
};

static int output_open(struct output *o, const char *file)
{
	struct stat st;
	int n;

	if (!strcmp(file, "-")) {
		*o = (struct output){.fd = 1, .name = "stdout"};
		return 0;
	}
	o->name = file;
	/* What is there and no plain file (a device, a pipe, a link) is written to, never replaced. */
	if (lstat(file, &st) == 0 && !S_ISREG(st.st_mode)) {
		o->fd = open(file, O_WRONLY | O_TRUNC | O_CLOEXEC);
		if (o->fd < 0)
			return exit_complain(EX_CANTCREAT, "%s: cannot write: %s", file, strerror(errno));
		return 0;
	}
	n = snprintf(partial, sizeof partial, "%s.tmp.%ld", file, (long)getpid());
	if (n < 0 || (size_t)n >= sizeof partial)
		return exit_complain(EX_CANTCREAT, "%s: the name is too long", file);
	o->fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (o->fd < 0)
		return exit_complain(EX_CANTCREAT, "%s: cannot create: %s", partial, strerror(errno));
	partial_exists = 1;
	o->target = file;
	return 0;
}

static int output_write(const struct output *o, const void *data, size_t size)
{
	const char *p = data;

	while (size) {
		ssize_t n = write(o->fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return exit_complain(EX_IOERR, "%s: cannot write the logits: %s", o->name,
					     strerror(errno));
		p += n;
		size -= (size_t)n;
	}
	return 0;
}

/* The file gets its name only now that it is whole. */
static int output_commit(struct output *o)
{
	int fd = o->fd;

	o->fd = -1;
	if (fd >= 0 && close(fd) < 0)
		return exit_complain(EX_IOERR, "%s: cannot write the logits: %s", o->name, strerror(errno));
	if (!o->target)
		return 0;
	if (rename(partial, o->target) < 0)
		return exit_complain(EX_CANTCREAT, "%s: cannot rename %s to it: %s", o->target, partial,
				     strerror(errno));
	partial_exists = 0;
	return 0;
}

static void output_fini(struct output *o)
{
	if (o->fd > 1)
		close(o->fd);
	if (partial_exists)
		unlink(partial);
	partial_exists = 0;
}

struct progress {
	double start, shown;
	bool tty, drawn;
};

static int on_progress(void *arg, uint64_t done, uint64_t tiles)
{
	struct progress *p = arg;
	double t = now(), rate;

	if (interrupted)
		return 1;
	if (!p->tty || t - p->start < 1 || t - p->shown < 0.1)
		return 0;
	p->shown = t;
	p->drawn = true;
	rate = (double)done / (t - p->start);
	fprintf(stderr, "\r\033[Kpacking: %" PRIu64 " of %" PRIu64 " tiles, %.1f tiles/s", done, tiles, rate);
	if (rate > 0 && done <= tiles)
		fprintf(stderr, ", %.0f s left", (double)(tiles - done) / rate);
	fflush(stderr);
	return 0;
}

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
	struct progress progress = {.start = now(), .tty = isatty(2)};
	struct npu_head_options options = {
		.tensor = o->tensor,
		.layout = o->layout,
		.tile = (uint32_t)o->tile,
		.transpose = o->transpose,
		.q8 = o->q8,
		.is_signed = o->is_signed,
		.k = (uint32_t)o->k,
		.progress = on_progress,
		.progress_arg = &progress,
	};
	int error;

	error = npu_connect(&r->client, o->socket, "npu-head");
	if (error)
		return exit_npu(r->client, error, NULL);
	opening = 1;
	error = npu_head_open(r->client, r->model, &options, &r->head, &r->info);
	opening = 0;
	if (progress.drawn)
		fputs("\r\033[K", stderr);
	if (interrupted)
		return exit_complain(128 + interrupted, "interrupted");
	if (error == NPU_E_IO || error == NPU_E_NOT_ALLOWED) {
		/* The library opens the model; an input of ours that cannot be opened has its own status. */
		int fd = open(r->model, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

		if (fd < 0) {
			exit_npu(r->client, error, NULL);
			return EX_NOINPUT;
		}
		close(fd);
	}
	return error ? exit_npu(r->client, error, NULL) : 0;
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

static int run_json(const struct run *r)
{
	const struct npu_head_info *i = &r->info;
	json_t *root = json_pack(
		"{so so so so so s{sI sI sI sI sI so} so sI sb sI sI sI sI so so s{so so so so so} so so}",
		"model", table_json_string(r->model), "tensor", table_json_string(i->tensor), "type",
		table_json_string(i->type), "note", table_json_string(i->note), "why",
		table_json_string(i->why), "geometry", "nv", (json_int_t)i->nv, "h", (json_int_t)i->h, "kpad",
		(json_int_t)i->kpad, "tile", (json_int_t)i->tile, "tiles", (json_int_t)i->tiles, "layout",
		table_json_string(i->layout), "hash", table_json_string(i->hash), "bytes",
		(json_int_t)i->bytes, "attached", (int)i->attached, "packed", (json_int_t)i->packed,
		"weights_nonfinite", (json_int_t)i->nonfinite, "rows", (json_int_t)r->rows, "nonfinite",
		(json_int_t)r->ran.nonfinite, "path", table_json_string(r->ran.path), "kernel",
		table_json_string(r->ran.kernel), "seconds", "open", table_json_real(i->seconds), "queue",
		table_json_real(r->ran.queue_seconds), "compute", table_json_real(r->ran.compute_seconds),
		"cpu", table_json_real(r->ran.cpu_seconds), "total", table_json_real(r->total), "logits",
		table_json_string(r->options->logits), "top", run_json_top(r));

	if (table_json_print(root))
		return exit_complain(EX_TEMPFAIL, "not enough memory for the JSON");
	return 0;
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
	r->total = now() - r->start;
	if (!status && o->json)
		status = run_json(r);
	else if (!status && top)
		status = run_table(r);
	if (!status && r->ran.nonfinite)
		exit_complain(0, "%" PRIu64 " activations were not finite: they count as 0",
			      r->ran.nonfinite);
	if (!status && r->info.note[0])
		exit_complain(0, "%s", r->info.note);
	if (!status && r->info.nonfinite)
		exit_complain(0, "%" PRIu64 " weights were not finite: they count as 0", r->info.nonfinite);
	return status;
}

static int run(const struct options *o, const char *model)
{
	struct run r = {.options = o, .model = model, .out.fd = -1, .start = now()};
	struct sigaction action = {.sa_handler = on_signal};
	int status;

	if (!o->x && !o->random)
		return exit_usage(
			"run: no activations were given; one of --x FILE and --random SEED is required");
	if (o->x && o->random)
		return exit_usage("run: --x and --random exclude each other; give one of them");
	if (o->layout && strcmp(o->layout, "blocked") != 0 && strcmp(o->layout, "row-major") != 0)
		return exit_usage("--layout %s: there is no such layout; give 'blocked' or 'row-major'",
				  o->layout);
	if (o->logits && !strcmp(o->logits, "-")) {
		if (o->json || o->top_given)
			return exit_usage("--logits -: stdout cannot also take --top or --json; give a file");
		if (isatty(1))
			return exit_usage("--logits -: stdout is a terminal; redirect it or give a file");
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	status = run_all(&r);
	output_fini(&r.out);
	npu_head_close(r.head);
	npu_close(r.client);
	activations_fini(&r.x);
	free(r.ids);
	free(r.scores);
	free(r.logits);
	return status;
}

static void help(void)
{
	fputs("usage: npu-head run MODEL (--x FILE | --random SEED) [options]\n"
	      "       npu-head compare A B [--json]\n"
	      "\n"
	      "run: multiply activations with a model's output head and show the best words\n"
	      "  -x, --x FILE         rows of float32, raw little-endian or .npy; - is stdin\n"
	      "  -r, --random SEED    a reproducible random vector instead; row m has SEED+m\n"
	      "  -m, --rows M         rows (--x: as many as FILE has; --random: 1)\n"
	      "  -k, --top K          best words of each row (10)\n"
	      "  -o, --logits FILE    write all logits, raw float32, instead; - is stdout\n"
	      "  -n, --tensor NAME    the tensor to use (the model's head)\n"
	      "  -T, --transpose      the tensor is stored [H][NV]\n"
	      "      --q8 LAYOUT      a Q4NX file's 8-bit codes: a, b or auto (auto)\n"
	      "      --signed         a Q4NX file's 4-bit codes are signed (made from GGUF Q4_0)\n"
	      "      --k H            columns of a Q4NX matrix (as the embedding has)\n"
	      "  -w, --tile T         columns of a tile (the daemon's default)\n"
	      "  -l, --layout LAYOUT  blocked or row-major (blocked)\n"
	      "compare: two files of raw float32, bit for bit\n"
	      "\n"
	      "  -s, --socket PATH    the daemon's socket ($NPUD_SOCKET, then the usual places)\n"
	      "  -j, --json           for programs; fields as in npu-head(1)\n"
	      "  -N, --no-headers     tables without their first line\n"
	      "  -h, --help           this text        -V, --version    the version\n"
	      "\n"
	      "example: npu-head run model.safetensors --random 1 --top 5\n",
	      stdout);
}

/* Decimal, or hexadecimal with 0x; no sign, no spaces. */
static bool read_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
	int base = text[0] == '0' && (text[1] | 32) == 'x' ? 16 : 10;
	const char *digits = base == 16 ? text + 2 : text;
	char *end;

	if (!strchr("0123456789abcdefABCDEF", *digits) || !*digits)
		return false;
	errno = 0;
	*out = strtoull(digits, &end, base);
	return !errno && end != digits && !*end && *out >= least && *out <= most;
}

/* Without a short form. */
enum { OPTION_Q8 = 256, OPTION_SIGNED, OPTION_K };

static const struct option long_options[] = {
	{"x", required_argument, NULL, 'x'},	      {"random", required_argument, NULL, 'r'},
	{"rows", required_argument, NULL, 'm'},	      {"top", required_argument, NULL, 'k'},
	{"logits", required_argument, NULL, 'o'},     {"tensor", required_argument, NULL, 'n'},
	{"transpose", no_argument, NULL, 'T'},	      {"q8", required_argument, NULL, OPTION_Q8},
	{"signed", no_argument, NULL, OPTION_SIGNED}, {"k", required_argument, NULL, OPTION_K},
	{"tile", required_argument, NULL, 'w'},	      {"layout", required_argument, NULL, 'l'},
	{"socket", required_argument, NULL, 's'},     {"json", no_argument, NULL, 'j'},
	{"no-headers", no_argument, NULL, 'N'},	      {"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},	      {0},
};

static int set_option(struct options *o, int option)
{
	bool good = true;

	o->run_only |= option != 'j' && option != 'N';
	switch (option) {
	case 'x':
		o->x = optarg;
		break;
	case 'r':
		o->random = true;
		good = read_number(optarg, 0, UINT64_MAX, &o->seed);
		break;
	case 'm':
		good = read_number(optarg, 1, SIZE_MAX, &o->rows);
		break;
	case 'k':
		o->top_given = true;
		good = read_number(optarg, 1, UINT64_MAX, &o->top);
		break;
	case 'o':
		o->logits = optarg;
		break;
	case 'n':
		o->tensor = optarg;
		break;
	case 'T':
		o->transpose = true;
		break;
	case OPTION_Q8:
		if (strcmp(optarg, "a") != 0 && strcmp(optarg, "b") != 0 && strcmp(optarg, "auto") != 0)
			return exit_usage("--q8 %s: there is no such layout; give a, b or auto", optarg);
		o->q8 = optarg;
		break;
	case OPTION_SIGNED:
		o->is_signed = true;
		break;
	case OPTION_K:
		good = read_number(optarg, 1, UINT32_MAX, &o->k);
		break;
	case 'w':
		good = read_number(optarg, 1, UINT32_MAX, &o->tile);
		break;
	case 'l':
		o->layout = optarg;
		break;
	case 's':
		o->socket = optarg;
		break;
	case 'j':
		o->json = true;
		break;
	case 'N':
		o->headers = false;
		break;
	default: /* getopt has said what is wrong */
		fprintf(stderr, "npu-head: 'npu-head --help' shows how it is used\n");
		return EX_USAGE;
	}
	if (good)
		return 0;
	return exit_usage("%s: not a number that can be used here; give %s",
			  option == 'r'	       ? "--random"
			  : option == 'm'      ? "--rows"
			  : option == 'k'      ? "--top"
			  : option == OPTION_K ? "--k"
					       : "--tile",
			  option == 'r' ? "one from 0 to 2^64-1" : "a whole number from 1");
}

int main(int argc, char **argv)
{
	static char name[] = "npu-head";
	struct options o = {.headers = true, .top = TOP_DEFAULT};
	int option, status;

	exit_begin(name);
	if (argc < 1)
		return exit_usage("nothing to do");
	argv[0] = name; /* how getopt begins its complaints */
	while ((option = getopt_long(argc, argv, "x:r:m:k:o:n:Tw:l:s:jNhV", long_options, NULL)) != -1) {
		if (option == 'h') {
			help();
			return exit_flush(0);
		}
		if (option == 'V') {
			printf("npu-head %s\n", NPUD_VERSION);
			return exit_flush(0);
		}
		status = set_option(&o, option);
		if (status)
			return status;
	}
	argc -= optind;
	argv += optind;
	if (argc == 0)
		return exit_usage("no command; give 'run' or 'compare'");
	if (!strcmp(argv[0], "run")) {
		if (argc != 2)
			return exit_usage("run: found %d arguments, expected one MODEL", argc - 1);
		return exit_flush(run(&o, argv[1]));
	}
	if (!strcmp(argv[0], "compare")) {
		if (argc != 3)
			return exit_usage("compare: found %d arguments, expected two files", argc - 1);
		if (o.run_only)
			return exit_usage("compare: only --json goes with it");
		return exit_flush(compare(argv[1], argv[2], o.json));
	}
	return exit_usage("%s: there is no such command; give 'run' or 'compare'", argv[0]);
}
