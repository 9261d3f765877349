#include "lock.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[] = "/tmp/npud-test-lock.XXXXXX";
static int fd;

static void up(void)
{
	fd = mkstemp(path);
	cr_assert(fd >= 0);
}

static void down(void)
{
	close(fd);
	unlink(path);
}

TestSuite(lock, .init = up, .fini = down);

/* A process that has the lock, and ends a while after it is told to. */
static pid_t holder(int *end)
{
	int has[2], ends[2];
	char byte;

	cr_assert(pipe(has) == 0 && pipe(ends) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[1]);
		if (lock_take(open(path, O_RDWR)) && write(has[1], "x", 1) == 1 &&
		    read(ends[0], &byte, 1) == 1)
			usleep(100000);
		_exit(0);
	}
	close(ends[0]);
	cr_assert_eq(read(has[0], &byte, 1), 1);
	*end = ends[1];
	return pid;
}

Test(lock, one_who_is_ending_is_waited_for)
{
	int end;
	pid_t pid = holder(&end);

	cr_assert_eq(write(end, "x", 1), 1);
	cr_expect(lock_take(fd));
	cr_expect_eq(waitpid(pid, NULL, 0), pid);
}

Test(lock, one_who_stays_keeps_it)
{
	int end;
	pid_t pid = holder(&end);

	cr_expect(!lock_take(fd));
	close(end);
	cr_expect_eq(waitpid(pid, NULL, 0), pid);
	cr_expect(lock_take(fd), "after its end it is free");
}
