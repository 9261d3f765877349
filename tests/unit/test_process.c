#include "process.h"
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends with the test that fails before it ends it: what has its stdout open holds up whoever reads that. */
static pid_t sleeper(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	return pid;
}

Test(process, one_that_began_at_another_time_is_not_the_one_that_is_meant)
{
	pid_t pid = sleeper();
	uint64_t start = process_start(pid);
	cr_assert(ne(u64, start, 0));
	int fd = process_open(pid, start);
	cr_assert(ge(int, fd, 0));
	cr_assert(not(process_ended(fd)));
	cr_assert(eq(int, process_open(pid, start + 1), -1));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	cr_assert(process_ended(fd));
	cr_assert(eq(int, process_open(pid, start), -1));
	close(fd);
}

Test(process, tells_parent_user_and_name)
{
	pid_t pid = sleeper();
	uid_t uid;
	char name[32];
	cr_assert(eq(int, process_parent(pid), getpid()));
	cr_assert(process_uid(pid, &uid));
	cr_assert(eq(u32, uid, geteuid()));
	cr_assert(eq(str, (char *)process_name(pid, name, sizeof name), "test_process"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	cr_assert(not(process_uid(pid, &uid)));
	cr_assert(eq(u64, process_start(pid), 0));
}
