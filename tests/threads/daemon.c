/*
 * The daemon's threads (NNG's, loop, executor, workers) under load, in one process for ThreadSanitizer: the
 * server on a thread of its own, clients on others that run heads, list, wait, are kicked, hang up in the
 * middle of things. NPUD_BIN names the build folder, whose make-model makes the model.
 */
#include "server.h"
#include <npu.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { WORKERS = 4, ROUNDS = 25, NV = 300, H = 64, ROWS = 3 };

static char work[] = "/tmp/npud-daemon.XXXXXX", model[64];
static struct server server;
static struct config config;
static float x[ROWS * H];
static uint32_t best[ROWS];
static atomic_uint failures;
static atomic_bool over;

/*
 * NNG 1.5 leaks when a connection ends at the very moment at which it sends (ipc_pipe_send drops a message
 * whose aio is closed already) or connects again (ipc_ep_close leaves a pipe that was greeted between stop
 * and close): what these threads do all the time, and nothing above NNG can free. What NNG allocates is
 * therefore not looked at here; everywhere else it is.
 */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libnng.so\n";
}

static void fail(const char *what, int result, const npu_client *c)
{
	fprintf(stderr, "FAIL: %s: %s: %s\n", what, npu_error_name(result), npu_error_text(c));
	atomic_fetch_add(&failures, 1);
}

static void *serve(void *arg)
{
	server_run(&server);
	server_fini(&server);
	return arg;
}

/* Kicks and quotas end calls at any time; a wrong number never comes. */
static bool is_end(int result)
{
	return result == NPU_E_CONNECTION_LOST || result == NPU_E_BUSY || result == NPU_E_CANCELLED ||
	       result == NPU_E_NO_SUCH_HANDLE || result == NPU_E_NOT_ALLOWED;
}

static int one_round(npu_client *c, bool tidy)
{
	npu_head *head = NULL;
	uint32_t ids[ROWS];
	float values[ROWS];
	int r = npu_head_open(c, model, NULL, &head, NULL);
	for (int i = 0; r == 0 && i < 5; i++) {
		r = npu_head_top(head, x, ROWS, 1, ids, values, NULL);
		if (r == 0 && memcmp(ids, best, sizeof ids) != 0) {
			fprintf(stderr, "FAIL: other words than alone\n");
			atomic_fetch_add(&failures, 1);
		}
	}
	if (r == 0)
		r = npu_ping(c, NULL);
	if (tidy) /* else npu_close does */
		npu_head_close(head);
	return r;
}

static void *work_on(void *arg)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		npu_client *c = NULL;
		int r = npu_connect(&c, config.socket, "worker");
		if (r == 0)
			r = one_round(c, i & 1);
		if (r && !is_end(r))
			fail("a worker", r, c);
		npu_close(c);
	}
	return arg;
}

static int kick_every_third(void *arg, const struct npu_client_row *row)
{
	uint64_t *victim = arg;
	if (row->session % 3 == 0 && strcmp(row->name, "worker") == 0)
		*victim = row->session;
	return 0;
}

static void *kick(void *arg)
{
	npu_client *c = NULL;
	int r = npu_connect(&c, config.socket, "kicker");
	while (r == 0 && !atomic_load(&over)) {
		uint64_t victim = 0;
		r = npu_clients(c, kick_every_third, &victim);
		if (r == 0 && victim)
			r = npu_kick(c, victim);
		if (r == NPU_E_NO_SUCH_SESSION)
			r = 0; /* was faster */
		usleep(20000);
	}
	if (r)
		fail("the kicker", r, c);
	npu_close(c);
	return arg;
}

static int count(void *arg, const struct npu_event_row *row)
{
	*(uint64_t *)arg = row->number;
	return 0;
}

static void *follow(void *arg)
{
	npu_client *c = NULL;
	uint64_t last = 0;
	int r = npu_connect(&c, config.socket, "follower");
	while (r == 0 && !atomic_load(&over))
		r = npu_events(c, last, 50, NULL, count, &last);
	if (r)
		fail("the follower", r, c);
	npu_close(c);
	return arg;
}

/* Raw peers that end before, in and after the greeting, and in the middle of a message. */
static void *hang_up(void *arg)
{
	static const char bytes[] = "\0SP\0\0\x30\0\0\1\0\0\0\0\0\0\0\x40\x80\0\0\1\x94";
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	snprintf(to.sun_path, sizeof to.sun_path, "%.107s", config.socket);
	for (unsigned i = 0; !atomic_load(&over); i++) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
			(void)!send(fd, bytes, i % sizeof bytes, MSG_NOSIGNAL);
		close(fd);
		usleep(2000);
	}
	return arg;
}

static int prepare(struct err *err)
{
	const char *bin = getenv("NPUD_BIN");
	char command[512];
	if (!bin || !mkdtemp(work))
		return err_set(err, NPU_E_IO, "NPUD_BIN must name the build folder, and /tmp be writable");
	snprintf(model, sizeof model, "%s/m.safetensors", work);
	snprintf(command, sizeof command, "%s/tests/make-model %s %d %d", bin, model, NV, H);
	if (system(command) != 0)
		return err_set(err, NPU_E_IO, "%s: failed", command);
	config_defaults(&config);
	snprintf(config.socket, sizeof config.socket, "%s/run/npud.sock", work);
	snprintf(config.cache_dir, sizeof config.cache_dir, "%s/cache", work);
	snprintf(config.state_dir, sizeof config.state_dir, "%s/state", work);
	for (int i = 0; i < ROWS * H; i++)
		x[i] = (float)((i * 7919) % 1000) / 500.0f - 1.0f;
	return server_init(&server, &config, NULL, err);
}

static void learn_best(void)
{
	npu_client *c = NULL;
	npu_head *head = NULL;
	float values[ROWS];
	int r = npu_connect(&c, config.socket, "alone");
	if (r == 0)
		r = npu_head_open(c, model, NULL, &head, NULL);
	if (r == 0)
		r = npu_head_top(head, x, ROWS, 1, best, values, NULL);
	if (r)
		fail("alone", r, c);
	npu_close(c);
}

int main(void)
{
	pthread_t server_thread, workers[WORKERS], others[3];
	void *(*const roles[])(void *) = {kick, follow, hang_up};
	struct err err;

	signal(SIGPIPE, SIG_IGN);
	if (prepare(&err)) {
		fprintf(stderr, "FAIL: %s\n", err.text);
		return 1;
	}
	pthread_create(&server_thread, NULL, serve, NULL);
	learn_best();
	for (int i = 0; i < 3; i++)
		pthread_create(&others[i], NULL, roles[i], NULL);
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&workers[i], NULL, work_on, NULL);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
	atomic_store(&over, true);
	for (int i = 0; i < 3; i++)
		pthread_join(others[i], NULL);
	kill(getpid(), SIGTERM);
	pthread_join(server_thread, NULL);

	char command[64];
	snprintf(command, sizeof command, "rm -rf %s", work);
	if (system(command) != 0)
		fprintf(stderr, "%s is left behind\n", work);
	printf("%u failures\n", atomic_load(&failures));
	return atomic_load(&failures) != 0;
}
