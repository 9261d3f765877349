#include "admins.h"
#include "exporter.h"
#include "log.h"
#include "own.h"
#include "plain.h"
#include "probe.h"
#include "server.h"
#include "standard.h"
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define FILES_MIN 64 /* before the first client: sockets, the store, the journal, the loop */

static const char help[] =
	"usage: npud [options]\n"
	"One daemon that owns the NPU of a machine on behalf of every program that wants it.\n\n"
	"  -c, --config FILE     read the configuration from FILE ($NPUD_CONFIG, else none)\n"
	"  -f, --foreground      accepted for service managers; npud never goes to the background\n"
	"  -s, --socket PATH     listen at PATH; files are passed at PATH.fd ($NPUD_SOCKET, then the user's "
	"place)\n"
	"      --cache-dir DIR   for what can be made again (npud in $XDG_CACHE_HOME)\n"
	"      --state-dir DIR   for what must survive a restart (npud in $XDG_STATE_HOME)\n"
	"      --check-config    read the configuration, say what is wrong, and leave\n"
	"      --check-device    say step by step what the NPU lacks, or that it works, and leave\n"
	"  -h, --help            this text\n"
	"  -V, --version         the version\n\n"
	"Exit status: 0 stopped by a signal; 64 usage; 69 --check-device found no device to use; 70 the "
	"system\n"
	"refused something; 74 stdout cannot be written; 75 another npud is there; 78 configuration.\n"
	"example: npud --socket /tmp/try/npud.sock &  npuctl --socket /tmp/try/npud.sock status\n";

static int fail(const struct err *err)
{
	plain_line(stderr, "npud: %s", err->text);
	return err->code == NPU_E_BAD_VALUE					 ? 64
	       : err->code == NPU_E_BAD_CONFIG || err->code == NPU_E_NOT_ALLOWED ? 78
	       : err->code == NPU_E_IN_USE					 ? 75
										 : 70;
}

/* `status`, or 74 where stdout did not take all that was asked for. */
static int flush(int status)
{
	int error = standard_flush();
	if (error && error != EPIPE)
		fprintf(stderr, "npud: stdout: cannot write: %s; the output is not complete\n",
			strerror(error));
	return error ? 74 : status;
}

static void print_step(void *arg, enum probe_verdict verdict, const char *what, const char *found,
		       const char *cure)
{
	static const char *const words[] = {[PROBE_GOOD] = "ok", [PROBE_BAD] = "BAD", [PROBE_SKIPPED] = "-"};

	(void)arg;
	plain_line(stdout, "%-3s %-10s  %s", words[verdict], what, found);
	if (*cure)
		plain_line(stdout, "%16s%s", "-> ", cure);
	fflush(stdout);
}

static int check_device(const struct config *c)
{
	char kernels[DEVICE_PATH_MAX];
	const struct probe_options o = {.node = c->device_node, .module = c->module, .kernels = kernels};

	config_kernels(c, kernels, sizeof kernels);
	bool usable = probe_device(&o, print_step, NULL);

	puts(usable ? "The device can be used." : "The device cannot be used; everything runs on the host.");
	return flush(usable ? 0 : 69);
}

struct asked {
	struct config_source source;
	bool check_config, check_device, help, version;
};

/* 0 or an exit status, having complained. */
static int read_options(int argc, char **argv, struct asked *asked)
{
	enum { CACHE_DIR = 256, STATE_DIR, CHECK_CONFIG, CHECK_DEVICE };
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"foreground", no_argument, NULL, 'f'},
		{"socket", required_argument, NULL, 's'},
		{"cache-dir", required_argument, NULL, CACHE_DIR},
		{"state-dir", required_argument, NULL, STATE_DIR},
		{"check-config", no_argument, NULL, CHECK_CONFIG},
		{"check-device", no_argument, NULL, CHECK_DEVICE},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{0},
	};
	int option;

	while ((option = plain_getopt(argc, argv, "c:fs:hV", options)) != -1)
		switch (option) {
		case 'c':
			asked->source.file = optarg;
			break;
		case 'f':
			break;
		case 's':
			asked->source.socket = optarg;
			break;
		case CACHE_DIR:
			asked->source.cache_dir = optarg;
			break;
		case STATE_DIR:
			asked->source.state_dir = optarg;
			break;
		case CHECK_CONFIG:
			asked->check_config = true;
			break;
		case CHECK_DEVICE:
			asked->check_device = true;
			break;
		case 'h':
			asked->help = true;
			return 0;
		case 'V':
			asked->version = true;
			return 0;
		default:
			fputs("npud: 'npud --help' shows how it is used\n", stderr);
			return 64;
		}
	if (optind == argc)
		return 0;
	plain_line(stderr, "npud: %s: npud takes no arguments; 'npud --help' shows how it is used",
		   argv[optind]);
	return 64;
}

/* A connection is a descriptor; the usual soft limit of 1024 is one for programs that use select(). */
static int raise_limits(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
		if (files.rlim_max < FILES_MIN) {
			fprintf(stderr,
				"npud: only %ju files may be open at once: npud needs %d and one for every "
				"client; raise the limit (ulimit -Hn, or LimitNOFILE= of a unit)\n",
				(uintmax_t)files.rlim_max, FILES_MIN);
			return 70;
		}
	}
	/* Answers of hundreds of kilobytes: kept in the heap, not mapped and unmapped each time. */
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 256 << 20);
	return 0;
}

static int serve(const struct config *config, const struct config_source *source)
{
	static struct exporter exporter;
	static struct server server; /* large, one a process, and its address is kept by callbacks */
	struct err err;
	int status = raise_limits();

	if (status)
		return status;
	if (server_init(&server, config, source, &err))
		return fail(&err);
	exporter_open(&exporter, &server, (uint16_t)config->metrics_port);
	server_run(&server);
	log_line("npud", 0, "stopped");
	exporter_close(&exporter);
	server_fini(&server);
	return 0;
}

int main(int argc, char **argv)
{
	static struct config config;
	struct asked asked = {.source.file = getenv("NPUD_CONFIG")};
	const struct config_source *source = &asked.source;
	struct err err;

	if (!standard_begin())
		return 70;
	int status = read_options(argc, argv, &asked);
	if (status)
		return status;
	if (asked.help) {
		fputs(help, stdout);
		return flush(0);
	}
	if (asked.version) {
		puts("npud " NPUD_VERSION);
		return flush(0);
	}
	if (config_load(&config, source, &err))
		return fail(&err);
	if (asked.check_config) {
		cleanup(admins_fini) struct admins admins = {.count = 0};
		if (admins_load(&admins, config.admin_group, &err))
			return fail(&err);
		if (config.group[0] && !getgrnam(config.group))
			plain_line(
				stderr,
				"npud: [daemon] group is \"%s\": there is no such group; only the group that "
				"npud runs as could connect",
				config.group);
		plain_line(stdout, "%s: good; socket %s, cache %s, state %s",
			   source->file && *source->file ? source->file : "defaults", config.socket,
			   config.cache_dir, config.state_dir);
		return flush(0);
	}
	return asked.check_device ? check_device(&config) : serve(&config, source);
}
