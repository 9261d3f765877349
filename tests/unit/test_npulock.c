#include "npulock.h"
#include "own.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char directory[] = "/tmp/npud-lock.XXXXXX", path[64];

static void make(void)
{
	cr_assert(mkdtemp(directory));
	snprintf(path, sizeof path, "%s/npu.lock", directory);
}

static void tidy(void)
{
	unlink(path);
	rmdir(path);
	rmdir(directory);
}

TestSuite(npulock, .init = make, .fini = tidy);

/* A tool that has the lock until it is killed. */
static pid_t stranger(void)
{
	int ready[2];
	char byte;
	cr_assert_eq(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test fail first */
		int fd = open(path, O_RDWR | O_CREAT, 0666);
		if (fd < 0 || flock(fd, LOCK_EX) < 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void finish(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static bool is_free(void)
{
	cleanup(closep) int fd = open(path, O_RDWR);
	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0; /* which only a lock of one alone hinders */
}

Test(npulock, is_held_during_work_and_free_after_it)
{
	struct npulock l;
	npulock_init(&l, path);
	cr_assert_null(npulock_take(&l));
	cr_expect_not(is_free());
	npulock_give(&l);
	cr_expect(is_free());
	cr_assert_null(npulock_take(&l));
	cr_expect_not(is_free());
	npulock_give(&l);
}

Test(npulock, a_file_that_is_made_can_be_opened_by_tools_of_all_users)
{
	struct npulock l;
	struct stat st;
	umask(077);
	npulock_init(&l, path);
	cr_assert_null(npulock_take(&l));
	npulock_give(&l);
	cr_assert_eq(stat(path, &st), 0);
	cr_expect_eq(st.st_mode & 0777, 0666u, "%o", st.st_mode);
}

Test(npulock, a_stranger_that_keeps_it_is_named_and_work_goes_elsewhere)
{
	struct npulock l;
	char pid[32], who[128];
	pid_t other = stranger();

	npulock_init(&l, path);
	const char *why = npulock_take(&l);
	cr_assert(why);
	cr_expect(strstr(why, path), "%s", why);
	if (npulock_keeper(path, who, sizeof who)) { /* some containers do not tell */
		snprintf(pid, sizeof pid, "pid %d (", (int)other);
		cr_expect(strstr(why, pid), "no %s in: %s", pid, why);
		cr_expect(strstr(who, pid), "no %s in: %s", pid, who);
	}
	npulock_give(&l); /* of what was not taken: nothing happens */
	cr_expect_not(is_free());
	finish(other);
	cr_expect_null(npulock_take(&l));
	npulock_give(&l);
}

Test(npulock, is_left_to_the_holder_of_an_exclusive_ticket)
{
	struct npulock l;
	pid_t holders = stranger();

	npulock_init(&l, path);
	l.yielded = true;
	cr_expect_null(npulock_take(&l));
	npulock_give(&l);
	finish(holders);
	cr_expect_null(npulock_take(&l));
	cr_expect(is_free());
	npulock_give(&l);
}

Test(npulock, one_that_is_removed_is_made_again_and_locked)
{
	struct npulock l;
	npulock_init(&l, path);
	cr_assert_null(npulock_take(&l));
	npulock_give(&l);
	cr_assert_eq(unlink(path), 0);
	cr_assert_null(npulock_take(&l));
	cr_expect_not(is_free());
	npulock_give(&l);
}

Test(npulock, what_is_no_file_is_refused_with_its_name)
{
	struct npulock l;
	npulock_init(&l, path);
	cr_assert_eq(mkfifo(path, 0600), 0);
	const char *why = npulock_take(&l);
	cr_assert(why);
	cr_expect(strstr(why, path) && strstr(why, "no ordinary file"), "%s", why);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(symlink("/etc/passwd", path), 0);
	cr_expect(npulock_take(&l));
	cr_expect_eq(l.fd, -1);
}

Test(npulock, without_a_path_there_is_no_lock)
{
	struct npulock l;
	char who[128] = "x";
	npulock_init(&l, "");
	cr_expect_null(npulock_take(&l));
	npulock_give(&l);
	cr_expect_not(npulock_keeper("", who, sizeof who));
	cr_expect_str_eq(who, "");
}
