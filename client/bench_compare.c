/*
 * npu-bench compare: the same rows through one head under two settings, by turns. Each round measures both
 * sides, and every other round in the other order, so that what the machine does meanwhile is in both. A
 * side with a daemon of its own gets a fresh one for each measurement: its opening is a load every time.
 */
#define _GNU_SOURCE 1
#include "activations.h"
#include "clock.h"
#include "bench.h"
#include "comparison.h"
#include "conditions.h"
#include "exit.h"
#include "output.h"
#include "own.h"
#include "plural.h"
#include "proto.h"
#include "setting.h"
#include "spare.h"
#include "table.h"
#include "plain.h"
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PHASES = 3, LEAST_TIMES = 4, MOST_TIMES = 1000, WARM_UP = -1 };

static const struct phase {
	const char *name;
	uint32_t rows; /* at most, as one answer has room for no more */
} phases[PHASES] = {{"decode", 1}, {"batch", 16}, {"prefill", 128}};
#define ROWS_MAX 128u

static const char *const names[2] = {"--a", "--b"};

struct side {
	struct setting setting;
	struct spare spare;
	bool own;      /* a daemon was started for it */
	json_t *about; /* under what it was measured */
};

struct difference {
	const char *phase;
	unsigned side, row;
	uint32_t word;
	float first, now;
};

struct bench {
	const struct bench_options *options;
	struct side sides[2];
	struct comparison comparison;
	struct activations x;
	struct npu_head_info head;     /* of the first opening; nv 0: there was none */
	float *first[PHASES], *logits; /* of the first answer of each phase; of the one in hand */
	bool answered[PHASES];
	uint64_t answers, values, differing;
	char *ticket;		      /* NPU_TICKET of the environment; NULL: none */
	struct difference difference; /* the first */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

static int on_progress(void *arg, uint64_t done, uint64_t tiles)
{
	(void)arg;
	(void)done;
	(void)tiles;
	return interrupted != 0;
}

static int stopped(void)
{
	return exit_complain(128 + interrupted, "interrupted");
}

static int no_memory(void)
{
	return exit_complain(EX_TEMPFAIL, "not enough memory");
}

/* Rows of one phase: halved until one request and one answer can carry them, so that passes stay full. */
static uint32_t rows_of(const struct bench *b, unsigned phase)
{
	uint64_t answer = sizeof(float) * (uint64_t)b->head.nv, request = sizeof(float) * (uint64_t)b->head.h;
	uint32_t rows = phases[phase].rows;

	while (rows > 1 &&
	       (rows * answer > PROTO_REPLY_MAX - 8192 || rows * request > PROTO_REQUEST_MAX - 8192))
		rows /= 2;
	return rows;
}

/* Room for what one head answers, once it is known; or whether this is that head. */
static int know_head(struct bench *b, const struct npu_head_info *info)
{
	char why[ACTIVATIONS_WHY];

	/* Hashes are keyed by each daemon's own secret: shapes are what can be compared before the bits. */
	if (b->head.nv && (b->head.nv != info->nv || b->head.h != info->h))
		return exit_complain(EX_DATAERR,
				     "%s: its head is %u x %u and was %u x %u: it was changed meanwhile",
				     b->options->model, info->nv, info->h, b->head.nv, b->head.h);
	if (b->head.nv)
		return 0;
	b->head = *info;
	int r = activations_random(&b->x, 1, ROWS_MAX, info->h, why);
	if (r)
		return exit_complain(exit_status(r), "%s", why);
	for (unsigned i = 0; i < PHASES; i++)
		if (!(b->first[i] = malloc((size_t)rows_of(b, i) * info->nv * sizeof(float))))
			return no_memory();
	b->logits = malloc((size_t)rows_of(b, PHASES - 1) * info->nv * sizeof(float));
	return b->logits ? 0 : no_memory();
}

/* Every answer of a phase must be its first, bit for bit. */
static void check_bits(struct bench *b, unsigned side, unsigned phase)
{
	size_t count = (size_t)rows_of(b, phase) * b->head.nv, at = 0;
	const float *first = b->first[phase];

	b->answers++;
	b->values += count;
	if (!b->answered[phase]) {
		memcpy(b->first[phase], b->logits, count * sizeof(float));
		b->answered[phase] = true;
		return;
	}
	if (memcmp(first, b->logits, count * sizeof(float)) == 0)
		return;
	while (memcmp(&first[at], &b->logits[at], sizeof(float)) == 0)
		at++;
	if (!b->differing++)
		b->difference = (struct difference){
			phases[phase].name,	     side,	(unsigned)(at / b->head.nv),
			(uint32_t)(at % b->head.nv), first[at], b->logits[at]};
}

/* One request of a phase; *ran says where it ran. */
static int run_once(struct bench *b, unsigned side, npu_client *c, npu_head *head, unsigned phase,
		    struct npu_run_info *ran)
{
	if (interrupted)
		return stopped();
	int r = npu_head_logits(head, b->x.values, rows_of(b, phase), b->logits, ran);
	if (interrupted)
		return stopped();
	if (r)
		return exit_npu(c, r, names[side]);
	check_bits(b, side, phase);
	return 0;
}

static int run_phase(struct bench *b, unsigned side, int round, npu_client *c, npu_head *head, unsigned phase)
{
	struct npu_run_info ran = {0};
	double begun = clock_now(), until = begun + b->options->seconds;
	/* What is run first is slower than what follows, and is not counted; by turns, both are first once.
	 */
	int status = run_once(b, side, c, head, phase, &ran);

	if (!status)
		status = run_once(b, side, c, head, phase, &ran);
	begun = clock_now();
	for (unsigned times = 0;
	     !status && round != WARM_UP && times < MOST_TIMES && (times < LEAST_TIMES || begun < until);
	     times++) {
		status = run_once(b, side, c, head, phase, &ran);
		double ended = clock_now();
		const struct comparison_key key = {
			phases[phase].name, "head",
			(uint32_t)(ran.launch_rows ? ran.launch_rows : ran.rows_in_pass), rows_of(b, phase),
			ran.launch_rows != 0};
		if (!status && !comparison_add(&b->comparison, side, (unsigned)round, &key, ended - begun))
			status = no_memory();
		begun = clock_now();
	}
	return status;
}

static int measure_head(struct bench *b, unsigned side, int round, npu_client *c)
{
	const struct setting *s = &b->sides[side].setting;
	const struct npu_head_options options = {
		.tensor = b->options->tensor, .no_store = s->store == STORE_OFF, .progress = on_progress};
	const struct comparison_key key = {.phase = "open", .role = "head"};
	struct npu_head_info info;
	npu_head *head = NULL;
	int status = 0;

	double begun = clock_now();
	int r = npu_head_open(c, b->options->model, &options, &head, &info);
	double took = clock_now() - begun;
	if (interrupted)
		status = stopped();
	else if (r)
		status = exit_model(c, r, b->options->model);
	if (!status && round != WARM_UP && !info.attached &&
	    !comparison_add(&b->comparison, side, (unsigned)round, &key, took))
		status = no_memory();
	/* What is still being written would take time from what is measured next. */
	if (!status && (r = npu_head_stored(head, &info)))
		status = exit_npu(c, r, NULL);
	if (!status)
		status = know_head(b, &info);
	if (!status && s->path[0] && (r = npu_head_set_path(head, s->path)))
		status = exit_npu(c, r, names[side]);
	for (unsigned phase = 0; phase < PHASES && !status; phase++)
		status = run_phase(b, side, round, c, head, phase);
	npu_head_close(head);
	return status;
}

/* The ticket of a hold is that of the daemon it came from. */
static void use_ticket(const struct bench *b, const struct side *s)
{
	if (b->ticket && s->own)
		unsetenv("NPU_TICKET");
	else if (b->ticket)
		setenv("NPU_TICKET", b->ticket, 1);
}

/* One side once, from its opening on. */
static int measure_side(struct bench *b, unsigned side, int round)
{
	struct side *s = &b->sides[side];
	const char *socket = s->own		    ? s->spare.socket
			     : s->setting.socket[0] ? s->setting.socket
						    : b->options->socket;
	char why[SPARE_WHY];
	npu_client *c = NULL;
	int status = 0;

	if (interrupted)
		return stopped();
	use_ticket(b, s);
	if (s->own && !spare_start(&s->spare, why))
		return interrupted ? stopped() : exit_complain(EX_UNAVAILABLE, "%s: %s", names[side], why);
	if (!s->about)
		s->about = conditions_of(socket, conditions_load(), &status);
	int r = status ? 0 : npu_connect(&c, socket, "npu-bench");
	if (r)
		status = exit_npu(c, r, names[side]);
	else if (!status)
		status = measure_head(b, side, round, c);
	npu_close(c);
	spare_stop(&s->spare);
	return status;
}

static int measure(struct bench *b)
{
	int rounds = (int)b->options->rounds, status = 0;

	for (int round = WARM_UP; round < rounds && !status; round++)
		for (unsigned turn = 0; turn < 2 && !status; turn++) {
			unsigned side = (round % 2 == 1) != turn;
			if (isatty(2))
				fprintf(stderr, "\r\033[Knpu-bench: round %d of %d, %s ...", round + 1,
					rounds, names[side] + 2);
			status = measure_side(b, side, round);
			if (isatty(2))
				fputs("\r\033[K", stderr);
		}
	return status;
}

/* "16", or "-" where there are no rows. */
static const char *m_text(char to[static 16], const struct comparison_key *key)
{
	snprintf(to, 16, "-");
	if (key->m)
		snprintf(to, 16, "%" PRIu32, key->m);
	return to;
}

static const char *path_of_row(const struct comparison_key *key)
{
	return !key->m ? "-" : key->device ? "device" : "host";
}

/* Adds to `reasons` a sentence about what does not hold. */
static void not_so(json_t *reasons, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void not_so(json_t *reasons, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	json_array_append_new(reasons, table_json_string(text));
}

/* How long opening takes is judged where the store is what differs; else it says how busy the disk was. */
static bool judged(const struct bench *b, const struct comparison_pair *p)
{
	return b->options->tolerance >= 0 &&
	       (p->key[0].m || b->sides[0].setting.store != b->sides[1].setting.store);
}

static bool in_tolerance(const struct bench *b, const struct comparison_pair *p)
{
	return !judged(b, p) || comparison_within(p, b->options->tolerance, b->options->one_sided);
}

static void judge(json_t *reasons, const struct bench *b, const struct comparison_result *r)
{
	const struct difference *d = &b->difference;
	uint32_t bits[2];
	char m[16];

	if (b->differing) {
		memcpy(&bits[0], &d->first, sizeof bits[0]);
		memcpy(&bits[1], &d->now, sizeof bits[1]);
		not_so(reasons,
		       "%" PRIu64 " of %" PRIu64 " %s other bits than the first one; first in %s: "
		       "logit %" PRIu32 " of row %u is %.9g (0x%08" PRIx32 ") and was %.9g (0x%08" PRIx32
		       ") for %s",
		       b->differing, b->answers, plural(b->answers, "answer has", "answers have"), d->phase,
		       d->word, d->row, (double)d->now, bits[1], (double)d->first, bits[0], names[d->side]);
	}
	for (unsigned side = 0; side < 2; side++)
		for (size_t i = 0; i < r->unmatched_count[side]; i++) {
			const struct comparison_key *k = &r->unmatched[side][i];
			if (k->m > k->asked && !k->device)
				not_so(reasons,
				       "%s of %s with %" PRIu32 " rows in a pass has rows of other clients "
				       "in it: measure while nobody else asks for this head",
				       k->phase, names[side], k->m);
			else
				not_so(reasons, "%s of %s with M = %s on %s has no partner on the other side",
				       k->phase, names[side], m_text(m, k), path_of_row(k));
		}
	for (size_t i = 0; i < r->pair_count; i++) {
		const struct comparison_pair *p = &r->pairs[i];
		if (!in_tolerance(b, p))
			not_so(reasons,
			       "%s: --b takes %.3f times as long as --a, which is not within %g %%%s",
			       p->key[0].phase, p->ratio, b->options->tolerance,
			       b->options->one_sided ? " above it" : "");
	}
}

/* Under what a side was measured. */
static void print_side(const char *name, const struct side *s)
{
	const char *device, *health, *version;
	char text[1024], held[48] = "";
	json_int_t clients, ticket;
	double load;

	if (json_unpack(s->about, "{s:F,s:I,s:s,s:s,s:s,s:I}", "load", &load, "clients", &clients, "device",
			&device, "health", &health, "version", &version, "ticket", &ticket))
		return;
	if (ticket)
		snprintf(held, sizeof held, ", ticket %lld", (long long)ticket);
	snprintf(text, sizeof text, "%s: npud %s%s, device %s %s, %lld other client(s), load %.1f%s",
		 s->setting.text[0] ? s->setting.text : "as it is", version, s->own ? " of its own" : "",
		 device, health, (long long)clients, load, held);
	plain_line(stdout, "%s: %s", name, text);
}

static int print_table(const struct bench *b, const struct comparison_result *r, json_t *reasons)
{
	static const struct table_column columns[] = {{"PHASE", false}, {"ROLE", false},   {"M A", true},
						      {"M B", true},	{"PATH A", false}, {"PATH B", false},
						      {"A", true},	{"B", true},	   {"B/A", true},
						      {"SPREAD", true}, {"MATCH", false}};
	struct table t;
	char text[TABLE_UNIT], m[16];

	table_init(&t, columns, sizeof columns / sizeof *columns);
	for (size_t i = 0; i < r->pair_count; i++) {
		const struct comparison_pair *p = &r->pairs[i];
		table_cell(&t, "%s", p->key[0].phase);
		table_cell(&t, "%s", p->key[0].role);
		for (unsigned side = 0; side < 2; side++)
			table_cell(&t, "%s", m_text(m, &p->key[side]));
		for (unsigned side = 0; side < 2; side++)
			table_cell(&t, "%s", path_of_row(&p->key[side]));
		for (unsigned side = 0; side < 2; side++)
			table_cell(&t, "%s", table_format_seconds(text, p->seconds[side]));
		table_cell(&t, "%.3f", p->ratio);
		table_cell(&t, "%.3f-%.3f", p->low, p->high);
		table_cell(&t, "%s%s", *p->exception ? p->exception : "equal M",
			   in_tolerance(b, p) ? "" : "; out of tolerance");
	}
	int failed = table_print(&t, stdout, b->options->headers);
	table_fini(&t);
	if (failed)
		return no_memory();
	for (unsigned side = 0; side < 2; side++)
		print_side(names[side] + 2, &b->sides[side]);
	printf("bits: %" PRIu64 " logits in %" PRIu64 " %s, %s\n", b->values, b->answers,
	       plural(b->answers, "answer", "answers"),
	       b->differing ? "NOT all equal" : "all equal, bit for bit");
	size_t count = json_array_size(reasons);
	printf("verdict: %s\n", count ? "does not hold" : "holds");
	for (size_t i = 0; i < count; i++)
		plain_line(stdout, "- %s", json_string_value(json_array_get(reasons, i)));
	return 0;
}

static json_t *key_json(const struct comparison_key *k)
{
	return json_pack("{ss ss sI sI ss}", "phase", k->phase, "role", k->role, "m", (json_int_t)k->m,
			 "rows", (json_int_t)k->asked, "path", path_of_row(k));
}

static json_t *pair_json(const struct bench *b, const struct comparison_pair *p)
{
	return json_pack("{so so ss so so so so so sI sb sb}", "a", key_json(&p->key[0]), "b",
			 key_json(&p->key[1]), "exception", p->exception, "a_ms",
			 table_json_real(p->seconds[0] * 1e3), "b_ms", table_json_real(p->seconds[1] * 1e3),
			 "ratio", table_json_real(p->ratio), "low", table_json_real(p->low), "high",
			 table_json_real(p->high), "rounds", (json_int_t)p->rounds, "judged",
			 (int)judged(b, p), "within", (int)in_tolerance(b, p));
}

static json_t *side_json(struct side *s)
{
	json_object_set_new(s->about, "setting", table_json_string(s->setting.text));
	json_object_set_new(s->about, "own_daemon", json_boolean(s->own));
	return json_incref(s->about);
}

static int print_json(struct bench *b, const struct comparison_result *r, json_t *reasons)
{
	json_t *rows = json_array(), *unmatched = json_array();

	for (size_t i = 0; i < r->pair_count; i++)
		json_array_append_new(rows, pair_json(b, &r->pairs[i]));
	for (unsigned side = 0; side < 2; side++)
		for (size_t i = 0; i < r->unmatched_count[side]; i++) {
			json_t *row = key_json(&r->unmatched[side][i]);
			json_object_set_new(row, "side", json_string(side ? "b" : "a"));
			json_array_append_new(unmatched, row);
		}
	json_t *root = json_pack(
		"{so so so sI so sb so so sI sI sI sb sO}", "model", table_json_string(b->options->model),
		"a", side_json(&b->sides[0]), "b", side_json(&b->sides[1]), "rounds",
		(json_int_t)b->options->rounds, "tolerance",
		b->options->tolerance < 0 ? json_null() : table_json_real(b->options->tolerance), "one_sided",
		(int)b->options->one_sided, "rows", rows, "unmatched", unmatched, "answers",
		(json_int_t)b->answers, "logits", (json_int_t)b->values, "differing",
		(json_int_t)b->differing, "holds", (int)!json_array_size(reasons), "reasons", reasons);
	return table_json_print(root) ? no_memory() : 0;
}

static int report(struct bench *b)
{
	struct comparison_result result;
	json_t *reasons = json_array();
	int status = comparison_match(&b->comparison, &result) && reasons ? 0 : no_memory();

	if (!status) {
		judge(reasons, b, &result);
		status =
			b->options->json ? print_json(b, &result, reasons) : print_table(b, &result, reasons);
	}
	if (!status && json_array_size(reasons))
		status = EXIT_DIFFERS;
	comparison_result_fini(&result);
	json_decref(reasons);
	return status;
}

/* Reads a side's settings and makes a place for its daemon, where it needs one. */
static int prepare(struct side *s, const char *name, const char *text)
{
	char why[SPARE_WHY], changes[256] = "[store]\npath =\n";
	size_t used = strlen(changes);

	if (!text)
		return exit_usage("compare: %s SETTINGS is missing, as in %s path=host", name, name);
	if (!setting_parse(&s->setting, text, why, sizeof why))
		return exit_usage("%s %s: %s", name, text, why);
	s->own = setting_needs_daemon(&s->setting);
	if (!s->own)
		return 0;
	if (s->setting.store) {
		unsetenv("NPUD_STORE"); /* it would decide for both sides */
		used += (size_t)snprintf(changes + used, sizeof changes - used, "enabled = %s\n",
					 s->setting.store == STORE_ON ? "yes" : "no");
	}
	used += (size_t)snprintf(changes + used, sizeof changes - used, "[head]\n");
	if (s->setting.threads)
		used += (size_t)snprintf(changes + used, sizeof changes - used, "threads = %" PRIu32 "\n",
					 s->setting.threads);
	if (s->setting.batch)
		snprintf(changes + used, sizeof changes - used, "batch = %" PRIu32 "\n", s->setting.batch);
	return spare_init(&s->spare, changes, why) ? 0 : exit_complain(EX_CANTCREAT, "%s: %s", name, why);
}

int bench_compare(const struct bench_options *o)
{
	struct bench b = {.options = o};
	struct sigaction action = {.sa_handler = on_signal};
	const char *const texts[2] = {o->a, o->b}, *ticket = getenv("NPU_TICKET");
	int status = 0;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	comparison_init(&b.comparison, o->rounds);
	if (ticket && !(b.ticket = strdup(ticket)))
		status = no_memory();
	for (unsigned side = 0; side < 2 && !status; side++)
		status = prepare(&b.sides[side], names[side], texts[side]);
	if (!status)
		status = measure(&b);
	if (!status)
		status = report(&b);
	for (unsigned side = 0; side < 2; side++) {
		spare_fini(&b.sides[side].spare);
		json_decref(b.sides[side].about);
	}
	for (unsigned i = 0; i < PHASES; i++)
		free(b.first[i]);
	free(b.logits);
	free(b.ticket);
	activations_fini(&b.x);
	comparison_fini(&b.comparison);
	return status;
}
