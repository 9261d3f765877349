/*
 * npu-hold: a reservation around a command; see docs/man/npu-hold.1.scd. This process is the front: what a
 * shell and a user see, signal and stop. It tells the keeper (keeper.c) of signals and takes over the end of
 * the tree should the keeper be killed. It is forked off before libnpu is used, and never uses it.
 */
#include "descendants.h"
#include "exit.h"
#include "keeper.h"
#include "plain.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS 10000 /* where the keeper, which knows better, is gone */

static struct sigaction found[NSIG];

/* "90s", "9m", "1h30m", "250ms", or a bare number of `unit` ms; false: it is none of these, or too much. */
static bool read_time(const char *text, uint64_t unit, uint64_t *ms)
{
	static const struct {
		const char *name;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
	uint64_t last = UINT64_MAX;
	*ms = 0;
	do {
		char *end;
		if (*text < '0' || *text > '9')
			return false;
		errno = 0;
		unsigned long long n = strtoull(text, &end, 10);
		size_t length = strspn(end, "abcdefghijklmnopqrstuvwxyz");
		uint64_t each = 0;
		for (size_t i = 0; i < sizeof units / sizeof *units; i++)
			if (strlen(units[i].name) == length && memcmp(units[i].name, end, length) == 0)
				each = units[i].ms;
		if (length == 0 && last == UINT64_MAX)
			each = unit;
		/* Larger units first, each once. */
		if (errno || each == 0 || each >= last || n > (INT64_MAX / 4 - *ms) / each)
			return false;
		*ms += n * each;
		last = length ? each : 0;
		text = end + length;
	} while (*text);
	return true;
}

/* "USR1@60s", "SIGTERM@1m", "10@30". */
static bool read_signal(char *text, struct hold *hold)
{
	char *at = strchr(text, '@');
	uint64_t ms;
	if (!at || !read_time(at + 1, 1000, &ms) || ms == 0)
		return false;
	*at = '\0';
	const char *name = strncmp(text, "SIG", 3) == 0 ? text + 3 : text;
	for (int i = 1; i < NSIG; i++) {
		const char *known = sigabbrev_np(i);
		char number[16];
		snprintf(number, sizeof number, "%d", i);
		if ((known && strcmp(known, name) == 0) || strcmp(number, text) == 0) {
			hold->early_signal = i;
			hold->early_ms = (int64_t)ms;
			return true;
		}
	}
	return false;
}

static void help(void)
{
	fputs("usage: npu-hold [options] -- COMMAND [ARGUMENT]...\n"
	      "Reserves the NPU, runs COMMAND, and gives the NPU back when all of it has ended.\n"
	      "Without COMMAND it prints the ticket and holds until interrupted.\n"
	      "\n"
	      "  -t, --time TIME      for so long; a bare number is minutes (the daemon's default)\n"
	      "  -s, --shared         others with shared tickets may hold, too; -t 0: without an end\n"
	      "  -c, --class CLASS    realtime, interactive, normal or batch (normal)\n"
	      "  -w, --wait TIME      wait at most so long; a bare number is seconds (for ever)\n"
	      "  -n, --no-wait        now or not at all\n"
	      "  -l, --label TEXT     what others see it is for\n"
	      "  -g, --grace TIME     between SIGTERM and SIGKILL at the end (the daemon's)\n"
	      "      --alone          not while a program without a ticket uses the NPU\n"
	      "      --signal SIG@TIME  send SIG to the command so long before the end\n"
	      "      --socket PATH    the daemon's socket ($NPUD_SOCKET, then the usual places)\n"
	      "  -h, --help           this text\n"
	      "  -V, --version        the version\n"
	      "\n"
	      "TIME: 90s, 9m, 1h30m, 250ms. Exit status: COMMAND's; 124 the time ran out; 75 not granted;\n"
	      "69 no daemon; 77 not allowed; 64 usage; 125 npu-hold failed; 126, 127 COMMAND cannot be run.\n"
	      "example: npu-hold -t 9 -l nightly -- ./benchmark --rounds 5\n",
	      stdout);
}

/* Options into `hold`: -1 to go on, else the exit status. */
static int read_options(int argc, char **argv, struct hold *hold)
{
	enum { ALONE = 256, SIGNAL, SOCKET };
	static const struct option options[] = {
		{"time", required_argument, NULL, 't'},
		{"shared", no_argument, NULL, 's'},
		{"class", required_argument, NULL, 'c'},
		{"wait", required_argument, NULL, 'w'},
		{"no-wait", no_argument, NULL, 'n'},
		{"label", required_argument, NULL, 'l'},
		{"grace", required_argument, NULL, 'g'},
		{"alone", no_argument, NULL, ALONE},
		{"signal", required_argument, NULL, SIGNAL},
		{"socket", required_argument, NULL, SOCKET},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{0},
	};
	struct npu_ticket_options *t = &hold->ticket;
	bool timed = false;
	uint64_t ms;
	int option;

	while ((option = plain_getopt(argc, argv, "+t:sc:w:nl:g:hV", options)) != -1) {
		switch (option) {
		case 't':
			if (!read_time(optarg, 60000, &t->duration_ms))
				return exit_usage("--time %s: not a time such as 90s, 9m or 1h30m", optarg);
			timed = true;
			break;
		case 's':
			t->shared = true;
			break;
		case 'c':
			t->priority = optarg;
			break;
		case 'w':
			if (!read_time(optarg, 1000, &ms))
				return exit_usage("--wait %s: not a time such as 90s, 9m or 1h30m", optarg);
			hold->wait_ms = (int64_t)ms;
			break;
		case 'n':
			t->now = true;
			break;
		case 'l':
			t->label = optarg;
			break;
		case 'g':
			if (!read_time(optarg, 1000, &t->grace_ms) || t->grace_ms == 0)
				return exit_usage("--grace %s: not a time such as 90s or 250ms", optarg);
			break;
		case ALONE:
			t->alone = true;
			break;
		case SIGNAL:
			if (!read_signal(optarg, hold))
				return exit_usage("--signal: not a signal and a time, such as USR1@60s");
			break;
		case SOCKET:
			hold->socket = optarg;
			break;
		case 'h':
			help();
			return exit_flush(0);
		case 'V':
			puts("npu-hold " NPUD_VERSION);
			return exit_flush(0);
		default: /* getopt has said what is wrong */
			return exit_help();
		}
	}
	t->endless = timed && t->duration_ms == 0;
	if (t->endless && !t->shared)
		return exit_usage("--time 0: only a shared ticket (-s) can be without an end");
	if (t->now && hold->wait_ms >= 0)
		return exit_usage("--wait and --no-wait exclude each other");
	if (optind < argc)
		hold->command = argv + optind;
	if (hold->early_signal && t->endless)
		return exit_usage("--signal: a hold without an end has no time before it");
	if (hold->early_signal && !hold->command)
		return exit_usage("--signal: there is no command to send it to");
	if (hold->early_signal && timed && (uint64_t)hold->early_ms >= t->duration_ms)
		return exit_usage(
			"--signal: it would never come: the hold (--time) is over sooner than that");
	return -1;
}

/* The command's words, for those who see the ticket. */
static const char *join_words(char **words, char *to, size_t room)
{
	size_t used = 0;
	to[0] = '\0';
	for (; words && *words && used < room; words++)
		used += (size_t)snprintf(to + used, room - used, "%s%s", used ? " " : "", *words);
	return to;
}

static void tell(int keeper, int number, bool from_kernel)
{
	const struct hold_signal s = {number, from_kernel};
	if (send(keeper, &s, sizeof s, MSG_NOSIGNAL) < 0)
		errno = 0; /* it is about to end, and SIGCHLD about to come */
}

static int watch(pid_t keeper, int signals, int socket, const struct hold *hold)
{
	for (;;) {
		struct pollfd fds[] = {{.fd = signals, .events = POLLIN}, {.fd = socket, .events = POLLIN}};
		struct signalfd_siginfo info;
		char stopped;
		int status;

		poll(fds, 2, -1);
		while (read(signals, &info, sizeof info) == sizeof info) {
			int number = (int)info.ssi_signo;
			if (number == SIGCHLD)
				continue;
			tell(socket, number, info.ssi_code == SI_KERNEL);
		}
		/* The keeper says when we are to stop as well: then the shell has its terminal back. */
		ssize_t n = recv(socket, &stopped, sizeof stopped, MSG_DONTWAIT);
		if (n == sizeof stopped)
			raise(SIGSTOP);
		pid_t pid = waitpid(keeper, &status, WNOHANG);
		if (pid == keeper && WIFEXITED(status))
			return WEXITSTATUS(status);
		if (pid == keeper) {
			exit_complain(0, "the keeper of the hold was killed: ending what ran under it");
			keeper_end_tree(hold->ticket.grace_ms ? (int64_t)hold->ticket.grace_ms : GRACE_MS);
			return HOLD_FAILED;
		}
		if (n == 0)
			socket = -1; /* SIGCHLD follows */
	}
}

int main(int argc, char **argv)
{
	static const int heeded[] = {SIGINT,  SIGQUIT, SIGTERM, SIGHUP,	  SIGUSR1, SIGUSR2,
				     SIGALRM, SIGTSTP, SIGCONT, SIGWINCH, SIGCHLD};
	static char name[] = "npu-hold";
	struct hold hold = {.wait_ms = -1, .found = &found, .ticket = {.join = getenv("NPU_TICKET")}};
	char words[128];
	sigset_t set;
	int pair[2];

	for (int i = 1; i < NSIG; i++)
		sigaction(i, NULL, &found[i]);
	sigprocmask(SIG_SETMASK, NULL, &hold.mask);
	exit_begin(name);
	if (argc < 1)
		return exit_usage("nothing to do");
	argv[0] = name; /* how getopt begins its complaints */
	int status = read_options(argc, argv, &hold);
	if (status >= 0)
		return status;
	if (hold.ticket.join && !*hold.ticket.join)
		hold.ticket.join = NULL;
	hold.ticket.tree = hold.command != NULL;
	hold.ticket.command = join_words(hold.command, words, sizeof words);

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof heeded / sizeof *heeded; i++)
		if (found[heeded[i]].sa_handler != SIG_IGN || heeded[i] == SIGCHLD) {
			sigaddset(&set, heeded[i]);
			signal(heeded[i], SIG_DFL);
		}
	sigprocmask(SIG_BLOCK, &set, NULL);
	int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return exit_complain(HOLD_FAILED, "cannot be prepared: %s", strerror(errno));
	descendants_adopt();
	pid_t keeper = fork();
	if (keeper < 0)
		return exit_complain(HOLD_FAILED, "cannot fork: %s", strerror(errno));
	if (keeper == 0) {
		close(pair[0]);
		close(signals);
		return keeper_run(&hold, pair[1]);
	}
	close(pair[1]);
	keeper_leave_pipes();
	return watch(keeper, signals, pair[0], &hold);
}
