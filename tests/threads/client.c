/*
 * libnpu under several threads and in a poll loop, against a real daemon (NPUD_BIN names the build folder):
 * one client shared by threads, calls that call back, cancel, deadlines, a daemon that restarts under its
 * clients or throws them out, fork.
 */
#include <npu.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 6, ROUNDS = 60, NV = 512, H = 96, MANY = 40, SEVERAL = 300 };

extern char **environ;
static char work[] = "/tmp/npud-threads.XXXXXX", path_of_socket[128], model[128];
static pid_t daemon_pid;
static float x[MANY * H], expected[MANY * NV];
static atomic_uint failures;

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("FAIL: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	atomic_fetch_add(&failures, 1);
}

#define good(c, what, r)                                                                 \
	do {                                                                             \
		int r_ = (r);                                                            \
		if (r_)                                                                  \
			fail("%s: %s: %s", what, npu_error_name(r_), npu_error_text(c)); \
	} while (0)
#define is(what, found, wanted)                                                                       \
	do {                                                                                          \
		int found_ = (found);                                                                 \
		if (found_ != (wanted))                                                               \
			fail("%s: %s, not %s", what, npu_error_name(found_), npu_error_name(wanted)); \
	} while (0)

static atomic_int thrown_out; /* of the next greetings to the daemon */

/*
 * NNG finds this before libc's. A daemon that is killed just after it let a client in is not to be had at
 * will; what NNG then sees is: the greeting of eight bytes fails with EPIPE.
 */
__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	bool greeting = message->msg_iovlen == 1 && message->msg_iov->iov_len == 8 &&
			memcmp(message->msg_iov->iov_base, "\0SP", 4) == 0;
	if (greeting && atomic_load(&thrown_out) > 0) {
		atomic_fetch_sub(&thrown_out, 1);
		shutdown(fd, SHUT_RDWR);
		errno = EPIPE;
		return -1;
	}
	return syscall(SYS_sendmsg, fd, message, flags);
}

static pid_t spawn(char *const argv[])
{
	posix_spawn_file_actions_t actions;
	pid_t pid = -1;
	char log[160];
	snprintf(log, sizeof log, "%s/log", work);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	if (posix_spawn(&pid, argv[0], &actions, NULL, argv, environ) != 0)
		fail("%s cannot be started", argv[0]);
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

static void start_daemon(const char *bin)
{
	char program[512], cache[160], state[160];
	snprintf(program, sizeof program, "%s/daemon/npud", bin);
	snprintf(cache, sizeof cache, "%s/cache", work);
	snprintf(state, sizeof state, "%s/state", work);
	daemon_pid = spawn((char *[]){program, "--foreground", "--socket", path_of_socket, "--cache-dir",
				      cache, "--state-dir", state, NULL});
	for (int i = 0; i < 600; i++) {
		npu_client *c = NULL;
		int r = npu_connect(&c, path_of_socket, "starter");
		npu_close(c);
		if (r == 0)
			return;
		usleep(50000);
	}
	fail("the daemon does not answer");
	exit(1);
}

static void stop_daemon(void)
{
	kill(daemon_pid, SIGTERM);
	waitpid(daemon_pid, NULL, 0);
	daemon_pid = 0;
}

/* At the end of a run that was given up. */
static void kill_daemon(void)
{
	if (daemon_pid > 0)
		kill(daemon_pid, SIGKILL);
}

static npu_client *connect_one(const char *name)
{
	npu_client *c = NULL;
	good(c, "npu_connect", npu_connect(&c, path_of_socket, name));
	return c;
}

static npu_head *open_one(npu_client *c)
{
	npu_head *head = NULL;
	struct npu_head_info info = {0};
	good(c, "npu_head_open", npu_head_open(c, model, NULL, &head, &info));
	if (!head || info.nv != NV || info.h != H) {
		fail("the head has %u words of %u", info.nv, info.h);
		exit(1);
	}
	return head;
}

static void same(const char *what, const float *logits, size_t row)
{
	if (memcmp(logits, expected + row * NV, NV * sizeof *logits) != 0)
		fail("%s: row %zu has other logits", what, row);
}

struct worker {
	pthread_t thread;
	npu_client *client;
	npu_head *head;
	unsigned number;
};

/* Runs, pings, opens and closes heads of its own, and makes mistakes whose sentences are its own. */
static void *work_one(void *arg)
{
	struct worker *w = arg;
	float logits[NV], value;
	uint32_t id;
	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t row = (i + w->number) % MANY;
		good(w->client, "logits", npu_head_logits(w->head, x + row * H, 1, logits, NULL));
		same("a shared client", logits, row);
		good(w->client, "top", npu_head_top(w->head, x + row * H, 1, 1, &id, &value, NULL));
		if (logits[id] != value)
			fail("the best word of row %zu is not its logit", row);
		if (i % 20 == 0) {
			npu_head *own = open_one(w->client);
			good(w->client, "close", npu_head_close(own));
		}
		char wanted[32];
		snprintf(wanted, sizeof wanted, "k is %u;", NV + 1 + w->number);
		int r = npu_head_top(w->head, x, 1, NV + 1 + w->number, &id, &value, NULL);
		good(w->client, "ping", npu_ping(w->client, NULL)); /* in which others fail */
		if (r != NPU_E_BAD_VALUE || !strstr(npu_error_text(w->client), wanted))
			fail("the sentence of a failure is another thread's: %s", npu_error_text(w->client));
	}
	return NULL;
}

static void threads_share_one_client(void)
{
	npu_client *c = connect_one("shared");
	npu_head *head = open_one(c);
	struct worker workers[THREADS];
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.client = c, .head = head, .number = i};
		pthread_create(&workers[i].thread, NULL, work_one, &workers[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	npu_close(c);
}

struct counted {
	unsigned called, cancelled, lost, good;
	float logits[MANY][NV];
	npu_client *client;
};

static void count(void *arg, npu_call *call, int result)
{
	struct counted *t = arg;
	(void)call;
	t->called++;
	t->good += result == 0;
	t->cancelled += result == NPU_E_CANCELLED;
	t->lost += result == NPU_E_CONNECTION_LOST;
	if (result && result != NPU_E_CANCELLED && result != NPU_E_CONNECTION_LOST)
		fail("a callback: %s: %s", npu_error_name(result), npu_error_text(t->client));
}

/* Dispatches whenever poll says so, until `wanted` callbacks came; in 30 s at most. */
static void poll_until(npu_client *c, struct counted *t, unsigned wanted)
{
	struct pollfd p = {.fd = npu_fd(c), .events = POLLIN};
	while (t->called < wanted) {
		if (poll(&p, 1, 30000) != 1) {
			fail("%u of %u callbacks within 30 s", t->called, wanted);
			return;
		}
		if (npu_dispatch(c, 0) < 0)
			fail("npu_dispatch: %s", npu_error_text(c));
	}
	if (poll(&p, 1, 0) != 0)
		fail("the descriptor is readable though nothing is left to dispatch");
}

static void calls_call_back_from_a_poll_loop(void)
{
	static struct counted t;
	npu_client *c = t.client = connect_one("poller");
	npu_head *head = NULL;
	struct npu_head_info info = {0};
	if (npu_dispatch(c, 0) != 0)
		fail("there was something to dispatch");
	good(c, "open_start", npu_head_open_start(c, model, NULL, &head, &info, count, &t, NULL));
	poll_until(c, &t, 1);
	if (!head || info.nv != NV || strlen(info.hash) != 32)
		fail("open_start opened nothing");
	/* Fewer at once than a connection may have in flight. */
	for (size_t i = 0; i < MANY; i++) {
		good(c, "logits_start",
		     npu_head_logits_start(head, x + i * H, 1, t.logits[i], NULL, count, &t, NULL));
		if (i % 8 == 7)
			poll_until(c, &t, 1 + (unsigned)i + 1);
	}
	for (size_t i = 0; i < MANY; i++)
		same("logits_start", t.logits[i], i);

	/* A file that is no model, and one that is not there. */
	npu_head *none = NULL;
	int r = npu_head_open_start(c, "/nowhere/model", NULL, &none, NULL, count, &t, NULL);
	is("opening what is not there", r, NPU_E_IO);
	if (npu_dispatch(c, 50) != 0)
		fail("what could not begin called back");
	npu_close(c);
}

static void a_refusal_names_its_file_apart_from_the_sentence(void)
{
	struct npu_error_detail detail = {0};
	npu_client *c = connect_one("mistaken");
	npu_head *none = NULL;
	char log[160];
	snprintf(log, sizeof log, "%s/log", work); /* the daemon's, which is no model */
	is("a text as a model", npu_head_open(c, log, NULL, &none, NULL), NPU_E_BAD_CONTAINER);
	npu_error_detail(&detail);
	if (strcmp(detail.file, "log") != 0)
		fail("the detail names the file \"%s\"", detail.file);
	is("no name", npu_head_open(c, "", NULL, &none, NULL), NPU_E_BAD_VALUE);
	npu_error_detail(&detail);
	if (detail.file[0])
		fail("the detail is of an earlier failure");
	npu_close(c);
}

static void a_cancelled_call_ends_soon(void)
{
	static struct counted t;
	npu_client *c = t.client = connect_one("canceller");
	npu_head *head = open_one(c);
	npu_call *call;
	kill(daemon_pid, SIGSTOP); /* nothing is answered */
	for (size_t i = 0; i < 4; i++) {
		good(c, "logits_start",
		     npu_head_logits_start(head, x, 1, t.logits[i], NULL, count, &t, &call));
		npu_call_cancel(call);
		npu_call_cancel(call);
	}
	poll_until(c, &t, 4);
	if (t.cancelled != 4)
		fail("%u of 4 were cancelled", t.cancelled);
	kill(daemon_pid, SIGCONT);

	/* A call of two requests, cancelled between them. */
	static float rows[SEVERAL * H], logits[SEVERAL * NV];
	struct pollfd first = {.fd = npu_fd(c), .events = POLLIN};
	good(c, "logits_start", npu_head_logits_start(head, rows, SEVERAL, logits, NULL, count, &t, &call));
	if (poll(&first, 1, 30000) != 1)
		fail("nothing to dispatch within 30 s");
	npu_call_cancel(call);
	poll_until(c, &t, 5);
	if (t.cancelled != 5)
		fail("a call went on after it was cancelled");

	/* An open that is cancelled gives back what it has. */
	npu_head *none = NULL;
	good(c, "open_start", npu_head_open_start(c, model, NULL, &none, NULL, count, &t, &call));
	npu_call_cancel(call);
	poll_until(c, &t, 6);
	if (t.cancelled != 6 || none)
		fail("an open that was cancelled opened");
	good(c, "logits", npu_head_logits(head, x, 1, t.logits[0], NULL));
	same("after cancels", t.logits[0], 0);
	npu_close(c);
}

static void a_call_ends_at_its_deadline(void)
{
	npu_client *c = connect_one("waiter");
	npu_head *head = open_one(c);
	float logits[NV];
	npu_set_timeout(c, 200);
	kill(daemon_pid, SIGSTOP);
	is("a daemon that is stopped", npu_head_logits(head, x, 1, logits, NULL), NPU_E_TIMED_OUT);
	is("a daemon that is stopped", npu_ping(c, NULL), NPU_E_TIMED_OUT);
	kill(daemon_pid, SIGCONT);
	npu_set_timeout(c, 0);
	good(c, "logits after a deadline", npu_head_logits(head, x, 1, logits, NULL));
	same("after a deadline", logits, 0);
	npu_close(c);
}

static void closing_calls_back(void)
{
	static struct counted t;
	npu_client *c = t.client = connect_one("leaver");
	npu_head *head = open_one(c);
	kill(daemon_pid, SIGSTOP);
	for (size_t i = 0; i < 3; i++)
		good(c, "logits_start",
		     npu_head_logits_start(head, x, 1, t.logits[i], NULL, count, &t, NULL));
	npu_close(c);
	kill(daemon_pid, SIGCONT);
	if (t.called != 3 || t.cancelled != 3)
		fail("npu_close called back %u of 3, %u as cancelled", t.called, t.cancelled);
}

static void *ping_through(void *arg)
{
	npu_client *c = arg;
	unsigned lost = 0;
	for (unsigned i = 0; i < 200; i++) {
		lost += npu_ping(c, NULL) != 0;
		usleep(2000);
	}
	/* A ping means the same to any daemon, and is asked again. */
	if (lost)
		fail("%u of 200 pings were lost in one restart: %s", lost, npu_error_text(c));
	return NULL;
}

static int kick_thrown_out(void *kicker, const struct npu_client_row *row)
{
	return strcmp(row->name, "thrown out") == 0 ? npu_kick(kicker, row->session) : 0;
}

static void who_is_thrown_out_before_the_greeting_dials_again(void)
{
	npu_client *kicker = connect_one("kicker");
	for (int i = 0; i < 2; i++) {
		atomic_store(&thrown_out, 1);
		npu_client *c = connect_one("thrown out");
		if (atomic_load(&thrown_out) > 0)
			fail("NNG does not call this sendmsg");
		atomic_store(&thrown_out, 1);
		good(kicker, "kick", npu_clients(kicker, kick_thrown_out, kicker));
		good(c, "a ping after a kick", npu_ping(c, NULL));
		npu_close(c);
	}
	npu_close(kicker);
}

static void a_restarted_daemon_is_found_and_its_heads_are_gone(const char *bin)
{
	npu_client *c = connect_one("survivor");
	npu_head *head = open_one(c);
	float logits[NV];
	pthread_t pinging[2];
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&pinging[i], NULL, ping_through, c);
	usleep(50000);
	kill(daemon_pid, SIGSTOP); /* two pings are in flight when it dies */
	usleep(50000);
	kill(daemon_pid, SIGKILL);
	waitpid(daemon_pid, NULL, 0);
	start_daemon(bin);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(pinging[i], NULL);
	/* In the new session somebody opens heads, whose handles have the numbers of the old ones. */
	npu_head *fresh = open_one(c);
	is("a head of before the restart", npu_head_logits(head, x, 1, logits, NULL), NPU_E_CONNECTION_LOST);
	if (!strstr(npu_error_text(c), "open the head again"))
		fail("the sentence does not say what to do: %s", npu_error_text(c));
	good(c, "a new head", npu_head_logits(fresh, x, 1, logits, NULL));
	same("after a restart", logits, 0);
	good(c, "closing the lost head", npu_head_close(head));
	npu_close(c);
}

static void *come_and_go(void *arg)
{
	for (unsigned i = 0; i < 300; i++) {
		npu_client *c = connect_one("brief");
		good(c, "ping", npu_ping(c, NULL));
		npu_close(c);
	}
	return arg;
}

/* NNG 1.5 crashes when a socket is closed while a thread of its own leaves a call on it. */
static void closing_at_once_after_an_answer_is_safe(void)
{
	pthread_t threads[4];
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, come_and_go, NULL);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void a_forked_child_is_refused(void)
{
	npu_client *c = connect_one("parent");
	pid_t child = fork();
	if (child == 0) {
		npu_client *d = NULL;
		int r = npu_ping(c, NULL), s = npu_connect(&d, path_of_socket, "child");
		npu_close(d);
		npu_close(c);
		_exit(r == NPU_E_NOT_ALLOWED && s == NPU_E_NOT_ALLOWED ? 0 : 1);
	}
	int status = -1;
	waitpid(child, &status, 0);
	if (status != 0)
		fail("a child was not refused, status %d", status);
	good(c, "the parent's ping", npu_ping(c, NULL));
	npu_close(c);
}

int main(void)
{
	const char *bin = getenv("NPUD_BIN");
	if (!bin || !mkdtemp(work)) {
		fprintf(stderr, "NPUD_BIN must name the build folder\n");
		return 1;
	}
	snprintf(path_of_socket, sizeof path_of_socket, "%s/run/npud.sock", work);
	snprintf(model, sizeof model, "%s/model.safetensors", work);
	char maker[512], nv[16], h[16];
	int status = -1;
	snprintf(maker, sizeof maker, "%s/tests/make-model", bin);
	snprintf(nv, sizeof nv, "%d", NV);
	snprintf(h, sizeof h, "%d", H);
	waitpid(spawn((char *[]){maker, model, nv, h, NULL}), &status, 0);
	if (status != 0)
		fail("make-model: status %d", status);
	for (size_t i = 0; i < sizeof x / sizeof *x; i++)
		x[i] = (float)(int)(i * 2654435761u % 2001) / 256.0f - 4.0f;

	atexit(kill_daemon);
	start_daemon(bin);
	npu_client *c = connect_one("first");
	npu_head *head = open_one(c);
	for (size_t i = 0; i < MANY; i++)
		good(c, "logits", npu_head_logits(head, x + i * H, 1, expected + i * NV, NULL));
	npu_close(c);

	threads_share_one_client();
	calls_call_back_from_a_poll_loop();
	a_refusal_names_its_file_apart_from_the_sentence();
	a_cancelled_call_ends_soon();
	a_call_ends_at_its_deadline();
	closing_calls_back();
	who_is_thrown_out_before_the_greeting_dials_again();
	a_restarted_daemon_is_found_and_its_heads_are_gone(bin);
	closing_at_once_after_an_answer_is_safe();
	a_forked_child_is_refused();

	stop_daemon();
	char remove[64];
	snprintf(remove, sizeof remove, "exec rm -rf '%s'", work);
	if (failures == 0 && system(remove) != 0)
		fail("%s cannot be removed", work);
	printf("%u failures\n", failures);
	return failures != 0;
}
