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
	"waits.\n"
	"compare: the same rows under two settings, by turns: how much longer b takes than a, and whether "
	"every "
	"bit of every answer is the same.\n"
	"\n"
	"  -t, --seconds S       how long each number is measured (clients: 5, compare: 0.5)\n"
	"  -n, --tensor NAME     this tensor, not the model's head\n"
	"  -s, --socket PATH     the daemon's socket\n"
	"      --json            for programs\n"
	"      --no-headers      no headings in the table\n"
	"  -h, --help; -V, --version\n"
	"\n"
	"of clients:\n"
	"  -c, --clients LIST    numbers of clients, each a process (1,2,4,8,16)\n"
	"  -w, --want WHAT       argmax (the default) or logits\n"
	"      --separate        without the daemon: every process has its own weights and its own pass\n"
	"      --threads N       threads of each separate process (1)\n"
	"\n"
	"of compare:\n"
	"  -a, --a SETTINGS      path=auto|host|device|alternate, threads=N, store=on|off, batch=N, "
	"socket=PATH, with\n"
	"  -b, --b SETTINGS      commas between; for threads, store and batch a daemon is started\n"
	"      --rounds N        a then b, b then a, and so on (3)\n"
	"      --tolerance P     percent by which times may differ; without it they are only told\n"
	"      --one-sided       b may be quicker by any amount\n"
	"\n"
	"example: npu-bench clients model.gguf --clients 1,16 --seconds 10\n"
	"         npu-bench compare model.gguf --a path=host --b path=device --tolerance 10 --one-sided\n";

static bool number_of(const char *text, double least, double most, double *out)
{
	char *end;
	*out = strtod(text, &end);
	return end != text && !*end && *out >= least && *out <= most;
}

int main(int argc, char **argv)
{
	enum { SEPARATE = 256, THREADS, JSON, NO_HEADERS, ROUNDS, TOLERANCE, ONE_SIDED };
	static const struct option longs[] = {{"clients", required_argument, NULL, 'c'},
					      {"seconds", required_argument, NULL, 't'},
					      {"want", required_argument, NULL, 'w'},
					      {"tensor", required_argument, NULL, 'n'},
					      {"separate", no_argument, NULL, SEPARATE},
					      {"threads", required_argument, NULL, THREADS},
					      {"socket", required_argument, NULL, 's'},
					      {"json", no_argument, NULL, JSON},
					      {"no-headers", no_argument, NULL, NO_HEADERS},
					      {"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},
					      {"a", required_argument, NULL, 'a'},
					      {"b", required_argument, NULL, 'b'},
					      {"rounds", required_argument, NULL, ROUNDS},
					      {"tolerance", required_argument, NULL, TOLERANCE},
					      {"one-sided", no_argument, NULL, ONE_SIDED},
					      {}};
	struct bench_options o = {
		.clients = "1,2,4,8,16", .headers = true, .threads = 1, .rounds = 3, .tolerance = -1};
	static char name[] = "npu-bench";
	double number;
	int at;

	exit_begin(name);
	if (argc < 1)
		return exit_usage("nothing to do");
	argv[0] = name; /* how getopt begins its complaints */
	while ((at = plain_getopt(argc, argv, "c:t:w:n:s:a:b:hV", longs)) != -1)
		switch (at) {
		case 'c':
			o.clients = optarg;
			break;
		case 't':
			if (!number_of(optarg, 0.1, 86400, &o.seconds))
				return exit_usage("--seconds %s: give seconds between 0.1 and 86400", optarg);
			break;
		case 'w':
			o.logits = strcmp(optarg, "logits") == 0;
			if (!o.logits && strcmp(optarg, "argmax") != 0)
				return exit_usage("--want %s: give argmax or logits", optarg);
			break;
		case 'n':
			o.tensor = optarg;
			break;
		case 's':
			o.socket = optarg;
			break;
		case SEPARATE:
			o.separate = true;
			break;
		case THREADS:
			if (!number_of(optarg, 1, 16, &number) || number != (uint32_t)number)
				return exit_usage("--threads %s: give a whole number between 1 and 16",
						  optarg);
			o.threads = (uint32_t)number;
			break;
		case 'a':
			o.a = optarg;
			break;
		case 'b':
			o.b = optarg;
			break;
		case ROUNDS:
			if (!number_of(optarg, 1, 1000, &number) || number != (uint32_t)number)
				return exit_usage("--rounds %s: give a whole number between 1 and 1000",
						  optarg);
			o.rounds = (uint32_t)number;
			break;
		case TOLERANCE:
			if (!number_of(optarg, 0, 1000000, &o.tolerance))
				return exit_usage("--tolerance %s: give percent, 0 or more, such as 5",
						  optarg);
			break;
		case ONE_SIDED:
			o.one_sided = true;
			break;
		case JSON:
			o.json = true;
			break;
		case NO_HEADERS:
			o.headers = false;
			break;
		case 'h':
			fputs(help, stdout);
			return exit_flush(0);
		case 'V':
			puts("npu-bench " NPUD_VERSION);
			return exit_flush(0);
		default:
			return exit_help();
		}
	if (optind == argc)
		return exit_usage("no command was given; 'clients' and 'compare' are two");
	bool compare = strcmp(argv[optind], "compare") == 0;
	if (!compare && strcmp(argv[optind], "clients") != 0)
		return exit_usage("%s: there is no such command; 'clients' and 'compare' are two",
				  argv[optind]);
	if (argc - optind != 2)
		return exit_usage("%s: give one MODEL", argv[optind]);
	if (o.one_sided && o.tolerance < 0)
		return exit_usage("--one-sided says how --tolerance is meant: give that too");
	o.model = argv[optind + 1];
	if (o.seconds == 0)
		o.seconds = compare ? 0.5 : 5;
	return exit_flush(compare ? bench_compare(&o) : bench_clients(&o));
}
