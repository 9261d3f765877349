/*
 * For LD_PRELOAD: a machine that seems to have slept for as many seconds as the file NPUD_TEST_SLEPT has
 * bytes.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *t)
{
	const char *file = getenv("NPUD_TEST_SLEPT");
	long r = syscall(SYS_clock_gettime, clock, t);
	struct stat st;

	if (r == 0 && clock == CLOCK_BOOTTIME && file && stat(file, &st) == 0)
		t->tv_sec += st.st_size;
	return (int)r;
}
