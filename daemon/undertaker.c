#include "undertaker.h"
#include "detached.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAIT_NS 5000000L

static int queue[2] = {-1, -1}; /* a pipe: of any thread, without a lock */

static void on_timer(int number)
{
	(void)number; /* that it came is all */
}

/* A signal of its own, to this thread alone, so that no other call of the daemon is interrupted. */
static bool timer_make(timer_t *timer)
{
	const struct sigaction interrupt = {.sa_handler = on_timer};
	struct sigevent to = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 1};
	sigset_t mine;

	to._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	sigemptyset(&mine);
	sigaddset(&mine, to.sigev_signo);
	return sigaction(to.sigev_signo, &interrupt, NULL) == 0 &&
	       pthread_sigmask(SIG_UNBLOCK, &mine, NULL) == 0 &&
	       timer_create(CLOCK_MONOTONIC, &to, timer) == 0;
}

static void *empty(void *arg)
{
	const struct itimerspec often = {{0, WAIT_NS}, {0, WAIT_NS}}, never = {{0, 0}, {0, 0}};
	timer_t timer;
	bool ticks = timer_make(&timer);
	char bytes[4096];
	int fd;

	(void)arg;
	for (;;) {
		if (read(queue[0], &fd, sizeof fd) != sizeof fd)
			continue;
		if (ticks)
			timer_settime(timer, 0, &often, NULL);
		while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
			;
		close(fd);
		if (ticks)
			timer_settime(timer, 0, &never, NULL);
	}
	return NULL;
}

static void queue_begin(void)
{
	if (pipe2(queue, O_CLOEXEC) < 0)
		return;
	fcntl(queue[1], F_SETFL, O_NONBLOCK);
	detached_begin(empty, NULL);
}

void undertaker_begin(void)
{
	static pthread_once_t begun = PTHREAD_ONCE_INIT;
	pthread_once(&begun, queue_begin);
}

void undertaker_take(int fd)
{
	if (fd < 0)
		return;
	undertaker_begin();
	if (write(queue[1], &fd, sizeof fd) != sizeof fd)
		close(fd); /* full: nobody is that far behind unless the thread could not be made */
}
