/*
 * States: WAITS for the grant; RUNS the command, or holds without one; ENDS the tree, first by SIGTERM, after
 * the grace by SIGKILL. One poll loop: the daemon (a wait that ends when something of the ticket changes),
 * the front, children that end, and the next deadline. The keeper heeds the end of the lease by its own
 * clock, so that a daemon that is away, or a front that is stopped, does not make a hold longer.
 */
#include "keeper.h"
#include "descendants.h"
#include "exit.h"
#include "table.h"
#include "plain.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	LOOK_MS = 1000,	   /* how often the line on the terminal is renewed */
	RETRY_MS = 100,	   /* to a daemon that is away */
	AWAY_MS = 30000,   /* so long a waiter waits for it */
	RELEASE_MS = 3000, /* a daemon that is away finds out by itself that we have ended */
	KILL_AGAIN_MS = 50,
	STUCK_MS = 5000, /* after SIGKILL it is said who is still there */
};

struct keeper {
	const struct hold *hold;
	npu_client *client;
	npu_ticket *ticket;
	npu_call *waiting; /* for a change of the ticket */
	struct npu_ticket_info info;
	enum { WAITS, RUNS, ENDS, DONE } state;
	int front, children; /* front -1: gone */
	bool paused;	     /* the user stopped npu-hold while it waited */
	bool terminal;
	bool told;    /* that others use the NPU without a ticket */
	pid_t parked; /* the command's process, which waits for `begin` */
	int begin;
	pid_t command; /* 0: has not begun, has ended, or there is none */
	int status;    /* exit status so far */
	int64_t give_up_at, end_at, early_at, kill_at, stuck_at, retry_at, away_since; /* -1: never */
	int64_t grace_ms;
	char cgroup[200], shown[400];
};

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The line on the terminal: what the ticket waits for. */
static void show(struct keeper *k, const char *line)
{
	if (!k->terminal || strcmp(line, k->shown) == 0)
		return;
	char *harmless = plain_copy(line);
	fprintf(stderr, "\r\033[K%s", harmless ? harmless : "");
	fflush(stderr);
	free(harmless);
	snprintf(k->shown, sizeof k->shown, "%s", line);
}

static void show_place(struct keeper *k)
{
	char line[sizeof k->shown];
	snprintf(line, sizeof line, "npu-hold: ticket %" PRIu64 ", place %" PRIu64 ": %s", k->info.ticket,
		 k->info.place, k->info.why);
	show(k, line);
}

static int status_of(int error)
{
	switch (error) {
	case NPU_E_HELD:
	case NPU_E_QUEUE_FULL:
	case NPU_E_TICKET_OVER:
	case NPU_E_NO_SUCH_TICKET:
	case NPU_E_BUSY:
		return EX_TEMPFAIL;
	case NPU_E_NO_DAEMON:
	case NPU_E_CONNECTION_LOST:
	case NPU_E_SHUTDOWN:
	case NPU_E_TIMED_OUT:
	case NPU_E_VERSION:
		return EX_UNAVAILABLE;
	case NPU_E_NOT_ALLOWED:
		return EX_NOPERM;
	case NPU_E_BAD_VALUE:
		return EX_USAGE;
	default:
		return HOLD_FAILED;
	}
}

static void finish(struct keeper *k, int status)
{
	k->status = status;
	k->state = DONE;
}

static void fail(struct keeper *k, int error)
{
	show(k, "");
	finish(k, exit_complain(status_of(error), "%s", npu_error_text(k->client)));
}

static bool is_away(int error)
{
	return error == NPU_E_CONNECTION_LOST || error == NPU_E_SHUTDOWN || error == NPU_E_TIMED_OUT ||
	       error == NPU_E_NO_DAEMON;
}

static void end_tree(struct keeper *k, int status, const char *why)
{
	if (k->state == ENDS)
		return;
	show(k, "");
	if (why)
		exit_complain(0, "%s: ending %s", why, k->hold->command ? k->hold->command[0] : "the hold");
	if (k->command)
		k->status = status;
	k->state = ENDS;
	k->kill_at = now_ms() + k->grace_ms;
	k->early_at = k->end_at = -1;
	descendants_terminate();
	if (!k->hold->command)
		finish(k, status);
}

/* What the parked child waits for: it begins. */
struct go {
	char ticket[NPU_TICKET_TEXT], expires[32]; /* "": no end */
};

/* The parked child: as if it had been started without npu-hold, but for its environment and its end. */
static void run_command(const struct keeper *k, pid_t parent, int begins)
{
	struct go go;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(HOLD_FAILED);
	if (read(begins, &go, sizeof go) != sizeof go)
		_exit(0); /* it was not granted */
	setenv("NPU_TICKET", go.ticket, 1);
	unsetenv("NPU_TICKET_EXPIRES");
	if (go.expires[0])
		setenv("NPU_TICKET_EXPIRES", go.expires, 1);
	for (int i = 1; i < NSIG; i++)
		sigaction(i, &(*k->hold->found)[i], NULL);
	sigprocmask(SIG_SETMASK, &k->hold->mask, NULL);
	execvp(k->hold->command[0], k->hold->command);
	int status = errno == ENOENT ? HOLD_NOT_FOUND : HOLD_CANNOT_RUN;
	exit_complain(0, "%s: cannot be run: %s", k->hold->command[0], strerror(errno));
	_exit(status);
}

/*
 * The command's process is made before the ticket is asked for and parked until it is granted: nobody is to
 * wait for its making, and there are no threads yet that a fork would lose.
 */
static int park(struct keeper *k)
{
	int ends[2];
	pid_t parent = getpid();

	cgroup_make(k->cgroup, sizeof k->cgroup);
	if (pipe2(ends, O_CLOEXEC) < 0)
		return exit_complain(HOLD_FAILED, "cannot make a pipe: %s", strerror(errno));
	k->parked = cgroup_fork(k->cgroup);
	if (k->parked == 0) {
		close(ends[1]);
		run_command(k, parent, ends[0]);
	}
	close(ends[0]);
	k->begin = ends[1];
	return k->parked < 0 ? exit_complain(HOLD_FAILED, "cannot fork: %s", strerror(errno)) : 0;
}

static void set_early(struct keeper *k)
{
	int64_t at = k->end_at - k->hold->early_ms;
	k->early_at = k->hold->early_signal && k->end_at >= 0 && at > now_ms() ? at : -1;
}

/* What was asked for and does not come. */
static void tell_shorter(const struct keeper *k)
{
	if (k->info.joined && k->hold->ticket.duration_ms > k->info.remaining_ms + 1000 &&
	    k->info.remaining_ms)
		exit_complain(0, "it ends with ticket %" PRIu64 ", in which it is: in %" PRIu64 " s",
			      k->info.joined, (k->info.remaining_ms + 500) / 1000);
	if (k->hold->early_signal && k->early_at < 0)
		exit_complain(0, "--signal: it does not come, for the hold is over sooner than that");
}

static void start(struct keeper *k)
{
	struct go go = {0};
	int64_t now = now_ms();

	show(k, "");
	k->state = RUNS;
	k->grace_ms = (int64_t)k->info.grace_ms;
	k->end_at = k->info.remaining_ms ? now + (int64_t)k->info.remaining_ms : -1;
	set_early(k);
	tell_shorter(k);
	npu_ticket_text(k->ticket, go.ticket);
	if (!k->hold->command) {
		printf("%s\n", go.ticket);
		/* A ticket that nobody can know is of no use, and would be held from everybody until its end.
		 */
		if (exit_flush(0))
			finish(k, HOLD_FAILED);
		return;
	}
	if (k->info.remaining_ms)
		snprintf(go.expires, sizeof go.expires, "%lld",
			 (long long)time(NULL) + (long long)k->info.remaining_ms / 1000);
	k->command = k->parked;
	if (write(k->begin, &go, sizeof go) != sizeof go)
		finish(k, exit_complain(HOLD_FAILED, "the command's process is gone: %s", strerror(errno)));
	keeper_leave_pipes();
}

static void on_changed(void *arg, npu_call *call, int result);

static void wait_for_change(struct keeper *k)
{
	int wait_ms = k->terminal && k->state == WAITS ? LOOK_MS : -1;
	int r = npu_ticket_wait_start(k->ticket, wait_ms, &k->info, on_changed, k, &k->waiting);
	if (r)
		k->retry_at = now_ms() + RETRY_MS;
}

/* Once, whoever they are: that there is somebody is what the command's user may want to know of its results.
 */
static void tell_beside(struct keeper *k)
{
	if (!k->info.beside[0] || k->told)
		return;
	k->told = true;
	exit_complain(0, "the NPU is used without a ticket, too: %s; see npuctl who, or take --alone",
		      k->info.beside);
}

static void confirm(struct keeper *k)
{
	int r = npu_ticket_confirm(k->ticket, k->hold->command ? (uint64_t)getppid() : 0, k->cgroup,
				   &k->info);
	if (r == 0) {
		start(k);
		tell_beside(k);
	} else if (r == NPU_E_TICKET_OVER || is_away(r)) {
		k->info.version = 0; /* how it stands now: the offer lapsed, or the answer was lost */
	} else {
		fail(k, r);
	}
}

/* Granted already: it joined the hold it is in, or the answer to the confirmation was lost. */
static bool is_to_confirm(const struct keeper *k)
{
	return strcmp(k->info.state, "offered") == 0 || strcmp(k->info.state, "granted") == 0;
}

/* How the ticket stands, while the command runs. */
static void heed(struct keeper *k)
{
	tell_beside(k);
	if (strcmp(k->info.state, "granted") == 0) {
		int64_t end = k->info.remaining_ms ? now_ms() + (int64_t)k->info.remaining_ms : -1;
		/* Answers are late by a little; only what was renewed or cut short is another end. */
		if (end < 0 || k->end_at < 0 || llabs(end - k->end_at) > 200) {
			k->end_at = end;
			set_early(k);
		}
		return;
	}
	end_tree(k, HOLD_EXPIRED, k->info.reason[0] ? k->info.reason : k->info.state);
}

static void on_gone(struct keeper *k, int error)
{
	int64_t now = now_ms();

	if (is_away(error)) {
		k->away_since = k->away_since < 0 ? now : k->away_since;
		k->retry_at = now + RETRY_MS;
		k->info.version =
			0; /* answered at once by a daemon that is back, which is how that is known */
		if (k->state == WAITS && now - k->away_since > AWAY_MS)
			fail(k, error);
	} else if (k->state == WAITS) {
		fail(k, error);
	} else if (k->state == RUNS) {
		/* The daemon may give the device to others now. */
		end_tree(k, HOLD_FAILED, npu_error_text(k->client));
	}
}

static void on_changed(void *arg, npu_call *call, int result)
{
	struct keeper *k = arg;

	(void)call;
	k->waiting = NULL;
	if (result == NPU_E_CANCELLED)
		return; /* by us, to ask anew */
	if (result) {
		on_gone(k, result);
		return;
	}
	k->away_since = -1;
	if (k->state == RUNS) {
		heed(k);
	} else if (k->state == WAITS && is_to_confirm(k)) {
		if (!k->paused)
			confirm(k);
	} else if (k->state == WAITS && strcmp(k->info.state, "queued") == 0) {
		show_place(k);
	} else if (k->state == WAITS) {
		show(k, "");
		finish(k, exit_complain(EX_TEMPFAIL, "ticket %" PRIu64 ": %s", k->info.ticket, k->info.why));
	}
}

/* The shell is to see that npu-hold has stopped, as it would see it of the command. */
static void stop_front(const struct keeper *k)
{
	if (k->front >= 0 && send(k->front, "", 1, MSG_NOSIGNAL) < 0)
		errno = 0; /* it is gone, which is noticed elsewhere */
}

static void on_signal(struct keeper *k, const struct hold_signal *s)
{
	if (k->state == WAITS) {
		k->paused = s->number == SIGTSTP || (k->paused && s->number != SIGCONT);
		if (s->number == SIGTSTP)
			stop_front(k);
		if (s->number == SIGCONT) {
			k->info.version = 0; /* what it was let pass meanwhile is asked for anew */
			npu_call_cancel(k->waiting);
		}
		if (s->number == SIGINT || s->number == SIGTERM || s->number == SIGHUP ||
		    s->number == SIGQUIT) {
			show(k, "");
			finish(k, 128 + s->number);
		}
		return;
	}
	if (k->command) {
		/* A terminal that hangs up tells the leader of the session alone, which we may be; its end
		 * would tell all of the group. */
		if (s->from_kernel && s->number == SIGHUP)
			kill(0, SIGHUP);
		else if (!s->from_kernel)
			kill(k->command, s->number);
	} else if (s->number == SIGINT || s->number == SIGTERM || s->number == SIGHUP ||
		   s->number == SIGQUIT) {
		/* The command has ended, or there is none: what is left is to end. */
		end_tree(k, k->hold->command ? k->status : 0, NULL);
	}
}

static void on_front(struct keeper *k)
{
	struct hold_signal s;
	ssize_t n = recv(k->front, &s, sizeof s, MSG_DONTWAIT);

	if (n == sizeof s) {
		on_signal(k, &s);
	} else if (n == 0) {
		k->front = -1;
		if (k->state == WAITS)
			finish(k, HOLD_FAILED);
		else
			end_tree(k, HOLD_FAILED, NULL);
	}
}

static void on_child(struct keeper *k)
{
	int status;
	pid_t pid;

	while ((pid = descendants_reap(&status)) > 0) {
		if (pid != k->command)
			continue;
		if (WIFSTOPPED(status)) {
			/* By job control; one that somebody stopped by SIGSTOP is not ours to follow. */
			if (WSTOPSIG(status) != SIGSTOP)
				stop_front(k);
			continue;
		}
		k->command = 0;
		if (k->state == RUNS)
			k->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	}
	if (pid < 0 && k->hold->command && (k->state == RUNS || k->state == ENDS)) {
		finish(k, k->status);
	} else if (k->state == RUNS && !k->command && k->terminal) {
		char left[200], line[sizeof k->shown];
		snprintf(line, sizeof line, "npu-hold: the command has ended; left of it: %s",
			 descendants_name(left, sizeof left));
		show(k, line);
	}
}

static void on_time(struct keeper *k)
{
	int64_t now = now_ms();
	char left[200];

	if (k->give_up_at >= 0 && now >= k->give_up_at && k->state == WAITS) {
		show(k, "");
		finish(k, exit_complain(EX_TEMPFAIL, "not granted in time: %s", k->info.why));
	}
	if (k->early_at >= 0 && now >= k->early_at && k->state == RUNS) {
		if (k->command)
			kill(k->command, k->hold->early_signal);
		k->early_at = -1;
	}
	if (k->end_at >= 0 && now >= k->end_at && k->state == RUNS)
		end_tree(k, HOLD_EXPIRED, "its time was up");
	if (k->kill_at >= 0 && now >= k->kill_at && k->state == ENDS) {
		cgroup_kill(k->cgroup);
		descendants_kill();
		k->stuck_at = k->stuck_at < 0 ? now + STUCK_MS : k->stuck_at;
		k->kill_at = now + KILL_AGAIN_MS; /* what was forked meanwhile */
		if (now >= k->stuck_at) {
			exit_complain(0, "killed, and still there: %s", descendants_name(left, sizeof left));
			k->stuck_at = now + 10 * STUCK_MS;
		}
	}
	if (k->retry_at >= 0 && now >= k->retry_at)
		k->retry_at = -1;
	if (k->state != DONE && k->state != ENDS && !k->waiting && k->retry_at < 0)
		wait_for_change(k);
}

static int until_next(const struct keeper *k)
{
	const int64_t times[] = {k->state == WAITS ? k->give_up_at : -1, k->early_at, k->end_at,
				 k->state == ENDS ? k->kill_at : -1, k->retry_at};
	int64_t next = LOOK_MS, now = now_ms(); /* poll's clock stands still while the machine sleeps */
	for (size_t i = 0; i < sizeof times / sizeof *times; i++)
		if (times[i] >= 0 && times[i] - now < next)
			next = times[i] - now;
	return next > 0 ? (int)next : 0;
}

static void loop(struct keeper *k)
{
	for (;;) {
		if (k->state != DONE)
			on_time(k);
		if (k->state == DONE)
			return;
		struct pollfd fds[] = {{.fd = k->front, .events = POLLIN},
				       {.fd = k->children, .events = POLLIN},
				       {.fd = npu_fd(k->client), .events = POLLIN}};
		poll(fds, 3, until_next(k));
		struct signalfd_siginfo info;
		while (read(k->children, &info, sizeof info) == sizeof info)
			;
		if (fds[0].revents)
			on_front(k);
		npu_dispatch(k->client, 0);
		on_child(k);
	}
}

static int children_fd(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void ignore_terminal(void)
{
	static const int numbers[] = {SIGINT,  SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGHUP,
				      SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM};
	/* They come to the whole process group; the front tells of those that matter. */
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		signal(numbers[i], SIG_IGN);
}

int keeper_run(const struct hold *hold, int front)
{
	struct keeper k = {
		.hold = hold,
		.front = front,
		.begin = -1,
		.terminal = isatty(STDERR_FILENO),
		.status = HOLD_FAILED,
		.give_up_at = hold->wait_ms >= 0 ? now_ms() + hold->wait_ms : -1,
		.end_at = -1,
		.early_at = -1,
		.kill_at = -1,
		.stuck_at = -1,
		.retry_at = -1,
		.away_since = -1,
	};

	prctl(PR_SET_NAME,
	      "npu-keeper"); /* one that kills all npu-hold by name spares what ends their trees */
	ignore_terminal();
	descendants_adopt();
	k.children = children_fd(); /* before there are threads, which would take SIGCHLD from it */
	if (hold->command && park(&k))
		return HOLD_FAILED;
	int r = npu_connect(&k.client, hold->socket, "npu-hold");
	if (r == 0)
		r = npu_ticket_request(k.client, &hold->ticket, &k.ticket, &k.info);
	if (r) {
		fail(&k, r);
	} else {
		if (is_to_confirm(&k))
			confirm(&k);
		else
			show_place(&k);
		loop(&k);
	}
	npu_call_cancel(k.waiting);
	npu_set_timeout(k.client, RELEASE_MS);
	if (k.ticket)
		npu_ticket_release(k.ticket);
	npu_close(k.client);
	/* One that never began ends by the end of the pipe; its cgroup is empty then. */
	if (k.begin >= 0)
		close(k.begin);
	while (k.parked > 0 && waitpid(k.parked, NULL, 0) < 0 && errno == EINTR)
		;
	cgroup_remove(k.cgroup);
	return k.status;
}

void keeper_leave_pipes(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	dup2(fd, STDIN_FILENO);
	dup2(fd, STDOUT_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

void keeper_end_tree(int64_t grace_ms)
{
	int64_t kill_at = now_ms() + grace_ms;
	int status;

	descendants_terminate();
	while (descendants_reap(&status) >= 0) {
		struct timespec pause = {.tv_nsec = 5000000};
		nanosleep(&pause, NULL);
		if (now_ms() >= kill_at)
			descendants_kill();
	}
	cgroup_sweep();
}
