/* npu-head: output heads from the shell; see docs/man/npu-head.1.scd. */
#include "npu-head.h"
#include "exit.h"
#include "plain.h"
#include "plural.h"
#include <stdio.h>
#include <string.h>

#ifndef NPUD_VERSION
#define NPUD_VERSION "unknown"
#endif

#define TOP_DEFAULT 10u

static void help(void)
{
	fputs("usage: npu-head run MODEL (--x FILE | --random SEED) [options]\n"
	      "       npu-head open MODEL [options]\n"
	      "       npu-head tensors MODEL [--json]\n"
	      "       npu-head pack MODEL --out DIR [options]\n"
	      "       npu-head check FILE [--tile T] [--json]\n"
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
	      "      --path PATH      auto, host, device or alternate: where it runs\n"
	      "      --verify         run on two paths and compare every bit\n"
	      "      --signed         a Q4NX file's 4-bit codes are signed (made from GGUF Q4_0)\n"
	      "      --k H            columns of a Q4NX matrix (as the embedding has)\n"
	      "  -w, --tile T         columns of a tile (the daemon's default)\n"
	      "  -l, --layout LAYOUT  blocked or row-major (as the device has it)\n"
	      "open: make a model's head resident, and wait until it is in the image store\n"
	      "tensors: what is in a model, and which tensor is its head\n"
	      "pack: a head as Q4HI image files in DIR, without a daemon; check: one such file\n"
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

/* Without a short form. As characters they stand in the lists of which options go with a command. */
enum { OPTION_OUT = READING_ENDS, OPTION_PATH, OPTION_VERIFY };

static const struct option long_options[] = {
	{"x", required_argument, NULL, 'x'},
	{"random", required_argument, NULL, 'r'},
	{"rows", required_argument, NULL, 'm'},
	{"top", required_argument, NULL, 'k'},
	{"logits", required_argument, NULL, 'o'},
	{"out", required_argument, NULL, OPTION_OUT},
	{"path", required_argument, NULL, OPTION_PATH},
	{"verify", no_argument, NULL, OPTION_VERIFY},
	READING_LONG_OPTIONS,
	{"socket", required_argument, NULL, 's'},
	{"json", no_argument, NULL, 'j'},
	{"no-headers", no_argument, NULL, 'N'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{0},
};

static int set_option(struct options *o, int option)
{
	bool good = true;
	int status = reading_set(&o->reading, option, optarg);

	if (status != READING_NONE)
		return status;
	switch (option) {
	case 'x':
		o->x = optarg;
		break;
	case 'r':
		o->random = true;
		good = reading_number(optarg, 0, UINT64_MAX, &o->seed);
		break;
	case 'm':
		good = reading_number(optarg, 1, SIZE_MAX, &o->rows);
		break;
	case 'k':
		o->top_given = true;
		good = reading_number(optarg, 1, UINT64_MAX, &o->top);
		break;
	case 'o':
		o->logits = optarg;
		break;
	case OPTION_PATH:
		o->path = optarg;
		break;
	case OPTION_VERIFY:
		o->verify = true;
		break;
	case OPTION_OUT:
		o->out = optarg;
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
		return exit_help();
	}
	if (good)
		return 0;
	return exit_usage("%s: not a number that can be used here; give %s",
			  option == 'r'	  ? "--random"
			  : option == 'm' ? "--rows"
					  : "--top",
			  option == 'r' ? "one from 0 to 2^64-1" : "a whole number from 1");
}

static const struct command {
	const char *name, *operands, *options;
	int count; /* of operands */
	int (*function)(const struct options *o, char *const *operands);
} commands[] = {
	{"run", "one MODEL", "xrmkosjN\5\6" READING_OPTIONS, 1, command_run},
	{"open", "one MODEL", "sj" READING_OPTIONS, 1, command_open},
	{"tensors", "one MODEL", "sjN", 1, command_tensors},
	{"pack", "one MODEL", "jN\4" READING_OPTIONS, 1, command_pack},
	{"check", "one FILE", "jw", 1, command_check},
	{"compare", "two files", "jN", 2, command_compare},
};

static const char *option_name(int option)
{
	const struct option *l = long_options;
	while (l->name && l->val != option)
		l++;
	return l->name;
}

static int main_command(const struct options *o, const char *given, int count, char **words)
{
	const struct command *c = commands, *end = commands + sizeof commands / sizeof *commands;

	if (count == 0)
		return exit_usage("no command; give 'run', 'open', 'tensors', 'pack', 'check' or 'compare'");
	while (c < end && strcmp(c->name, words[0]) != 0)
		c++;
	if (c == end)
		return exit_usage("%s: there is no such command; give 'run', 'open', 'tensors', 'pack', "
				  "'check' or 'compare'",
				  words[0]);
	for (; *given; given++)
		if (!strchr(c->options, *given))
			return exit_usage("%s: --%s does not go with it", c->name, option_name(*given));
	if (count - 1 != c->count)
		return exit_usage("%s: found %d %s, expected %s", c->name, count - 1,
				  plural((uint64_t)count - 1, "argument", "arguments"), c->operands);
	return exit_flush(c->function(o, words + 1));
}

int main(int argc, char **argv)
{
	static char name[] = "npu-head";
	struct options o = {.headers = true, .top = TOP_DEFAULT};
	char given[64] = ""; /* each option once */
	int option, status;

	exit_begin(name);
	if (argc < 1)
		return exit_usage("nothing to do");
	argv[0] = name; /* how getopt begins its complaints */
	while ((option = plain_getopt(argc, argv, "x:r:m:k:o:n:Tw:l:s:jNhV", long_options)) != -1) {
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
		if (!strchr(given, option))
			given[strlen(given)] = (char)option;
	}
	return main_command(&o, given, argc - optind, argv + optind);
}
