/* npu-bench: measures the daemon as programs see it; see docs/man/npu-bench.1.scd. */
#define _GNU_SOURCE 1
#include "bench.h"
#include "exit.h"
#include "plain.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef NPUD_VERSION
#define NPUD_VERSION "unknown"
#endif

static const char help[] =
	"usage: npu-bench clients MODEL [options]\n"
	"       npu-bench compare MODEL --a SETTINGS --b SETTINGS [options]\n"
	"clients: how many rows of MODEL's head a second several clients get together, and how long each "
	"waits\n"
	"compare: the same rows under two settings, by turns: how much longer b takes than a, and whether "
	"every\n"
	"bit of every answer is the same\n"
	"\n"
	"of clients:\n"
	"  -c, --clients LIST    numbers of clients, each a process (1,2,4,8,16)\n"
	"  -w, --want WHAT       argmax or logits (argmax)\n"
	"      --separate        without the daemon: every process has its own weights and its own pass\n"
	"      --threads N       threads of each separate process (1)\n"
	"of compare:\n"
	"  -a, --a SETTINGS      path=auto|host|device|alternate, threads=N, store=on|off, batch=N, "
	"socket=PATH,\n"
	"  -b, --b SETTINGS      with commas between; for threads, store and batch a daemon is started\n"
	"      --rounds N        a then b, b then a, and so on (3)\n"
	"      --tolerance P     percent by which times may differ (they are only told)\n"
	"      --one-sided       b may be quicker by any amount\n"
	"of both:\n"
	"  -t, --seconds S       how long each number is measured (clients: 5, compare: 0.5)\n"
	"  -n, --tensor NAME     the tensor to use (the model's head)\n"
	"  -s, --socket PATH     the daemon's socket ($NPUD_SOCKET, then the usual places)\n"
	"  -j, --json            for programs; fields as in npu-bench(1)\n"
	"  -N, --no-headers      tables without their first line\n"
	"  -h, --help            this text\n"
	"  -V, --version         the version\n"
	"\n"
	"example: npu-bench clients model.gguf --clients 1,16 --seconds 10\n"
	"         npu-bench compare model.gguf --a path=host --b path=device --tolerance 10 --one-sided\n";

enum { SEPARATE = 256, THREADS, ROUNDS, TOLERANCE, ONE_SIDED };

static const struct option long_options[] = {
	{"clients", required_argument, NULL, 'c'},
	{"want", required_argument, NULL, 'w'},
	{"separate", no_argument, NULL, SEPARATE},
	{"threads", required_argument, NULL, THREADS},
	{"a", required_argument, NULL, 'a'},
	{"b", required_argument, NULL, 'b'},
	{"rounds", required_argument, NULL, ROUNDS},
	{"tolerance", required_argument, NULL, TOLERANCE},
	{"one-sided", no_argument, NULL, ONE_SIDED},
	{"seconds", required_argument, NULL, 't'},
	{"tensor", required_argument, NULL, 'n'},
	{"socket", required_argument, NULL, 's'},
	{"json", no_argument, NULL, 'j'},
	{"no-headers", no_argument, NULL, 'N'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{0},
};

static bool number_of(const char *text, double least, double most, double *out)
{
	char *end;
	*out = strtod(text, &end);
	return end != text && !*end && *out >= least && *out <= most;
}

/* A whole number from 1. */
static int count_of(const char *option, double most, uint32_t *out)
{
	double number;

	if (!number_of(optarg, 1, most, &number) || number != (uint32_t)number)
		return exit_usage("--%s %s: give a whole number between 1 and %g", option, optarg, most);
	*out = (uint32_t)number;
	return 0;
}

static int set_option(struct bench_options *o, int option)
{
	switch (option) {
	case 'c':
		o->clients = optarg;
		return 0;
	case 'w':
		o->logits = strcmp(optarg, "logits") == 0;
		if (!o->logits && strcmp(optarg, "argmax") != 0)
			return exit_usage("--want %s: give argmax or logits", optarg);
		return 0;
	case SEPARATE:
		o->separate = true;
		return 0;
	case THREADS:
		return count_of("threads", 16, &o->threads);
	case 'a':
		o->a = optarg;
		return 0;
	case 'b':
		o->b = optarg;
		return 0;
	case ROUNDS:
		return count_of("rounds", 1000, &o->rounds);
	case TOLERANCE:
		if (!number_of(optarg, 0, 1000000, &o->tolerance))
			return exit_usage("--tolerance %s: give percent, 0 or more, such as 5", optarg);
		return 0;
	case ONE_SIDED:
		o->one_sided = true;
		return 0;
	case 't':
		if (!number_of(optarg, 0.1, 86400, &o->seconds))
			return exit_usage("--seconds %s: give seconds between 0.1 and 86400", optarg);
		return 0;
	case 'n':
		o->tensor = optarg;
		return 0;
	case 's':
		o->socket = optarg;
		return 0;
	case 'j':
		o->json = true;
		return 0;
	case 'N':
		o->headers = false;
		return 0;
	default: /* getopt has said what is wrong */
		return exit_help();
	}
}

static bool is_of_clients(int option)
{
	return option == 'c' || option == 'w' || option == SEPARATE || option == THREADS;
}

static bool is_of_compare(int option)
{
	return option == 'a' || option == 'b' || option == ROUNDS || option == TOLERANCE ||
	       option == ONE_SIDED;
}

/* `odd`: an option was given that goes with the other command. */
static int run(struct bench_options *o, bool compare, bool odd)
{
	if (odd)
		return exit_usage("an option goes with %s only", compare ? "clients" : "compare");
	if (o->one_sided && o->tolerance < 0)
		return exit_usage("--one-sided says how --tolerance is meant: give that too");
	if (o->seconds == 0)
		o->seconds = compare ? 0.5 : 5;
	return exit_flush(compare ? bench_compare(o) : bench_clients(o));
}

int main(int argc, char **argv)
{
	static char name[] = "npu-bench";
	struct bench_options o = {
		.clients = "1,2,4,8,16", .headers = true, .threads = 1, .rounds = 3, .tolerance = -1};
	bool of_clients = false, of_compare = false;
	int option, status;

	exit_begin(name);
	if (argc < 1)
		return exit_usage("nothing to do");
	argv[0] = name; /* how getopt begins its complaints */
	while ((option = plain_getopt(argc, argv, "c:w:a:b:t:n:s:jNhV", long_options)) != -1) {
		if (option == 'h') {
			fputs(help, stdout);
			return exit_flush(0);
		}
		if (option == 'V') {
			puts("npu-bench " NPUD_VERSION);
			return exit_flush(0);
		}
		status = set_option(&o, option);
		if (status)
			return status;
		of_clients |= is_of_clients(option);
		of_compare |= is_of_compare(option);
	}
	if (optind == argc)
		return exit_usage("no command was given; 'clients' and 'compare' are two");
	bool compare = strcmp(argv[optind], "compare") == 0;
	if (!compare && strcmp(argv[optind], "clients") != 0)
		return exit_usage("%s: there is no such command; 'clients' and 'compare' are two",
				  argv[optind]);
	if (argc - optind != 2)
		return exit_usage("%s: give one MODEL", argv[optind]);
	o.model = argv[optind + 1];
	return run(&o, compare, compare ? of_clients : of_compare);
}
