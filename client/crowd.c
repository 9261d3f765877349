#define _GNU_SOURCE 1
#include "crowd.h"
#include "clock.h"
#include "npu.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	SAMPLES = 1 << 20, /* of one member that are kept: of more, the last */
	WARM_UP = 3,
	LOOK_US = 2000, /* between two looks at the members while they prepare */
};

/* What a member and its parent share. */
struct member {
	atomic_bool ready;
	atomic_int result;
	uint64_t times;
	double shares, finished;
	char why[CROWD_WHY];
	float seconds[SAMPLES]; /* pages that are never written take no memory */
};

struct crowd {
	atomic_bool go;
	double stop; /* written before `go` */
	struct member members[];
};

static int member_work(struct crowd *c, struct member *m, const struct crowd_work *work, void *state)
{
	double share;
	int r = 0;

	for (int i = 0; i < WARM_UP && r == 0; i++)
		r = work->once(state, &share, m->why);
	atomic_store(&m->ready, true);
	while (r == 0 && !atomic_load(&c->go))
		usleep(LOOK_US);
	for (double begun = clock_now(); r == 0 && begun < c->stop;) {
		r = work->once(state, &share, m->why);
		double ended = clock_now();
		m->shares += share;
		m->seconds[m->times++ % SAMPLES] = (float)(ended - begun);
		m->finished = begun = ended;
	}
	return r;
}

static _Noreturn void member_main(struct crowd *c, unsigned number, const struct crowd_work *work,
				  pid_t parent)
{
	struct member *m = &c->members[number];
	void *state = NULL;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	int r = work->begin(work->arg, number, &state, m->why);
	if (r == 0)
		r = member_work(c, m, work, state);
	if (state)
		work->end(state);
	atomic_store(&m->result, r);
	atomic_store(&m->ready, true);
	_exit(0);
}

static int by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

/* The value that a share of the sorted samples does not exceed (nearest rank). */
static double quantile(const float *sorted, size_t count, double share)
{
	size_t rank = (size_t)(share * (double)count);
	return count ? (double)sorted[rank < count ? rank : count - 1] : 0;
}

static size_t kept(const struct member *m)
{
	return m->times < SAMPLES ? m->times : SAMPLES;
}

static int summarise(struct crowd_result *out, struct crowd *c, unsigned members, double begun,
		     char why[CROWD_WHY])
{
	size_t total = 0, at = 0;
	double ended = begun;

	for (unsigned i = 0; i < members; i++)
		total += kept(&c->members[i]);
	float *all = malloc((total ? total : 1) * sizeof *all);
	if (!all) {
		snprintf(why, CROWD_WHY, "no memory for %zu times", total);
		return NPU_E_NO_MEMORY;
	}
	*out = (struct crowd_result){};
	for (unsigned i = 0; i < members; i++) {
		struct member *m = &c->members[i];
		size_t n = kept(m);
		qsort(m->seconds, n, sizeof *m->seconds, by_size);
		double p99 = quantile(m->seconds, n, 0.99);
		out->worst_p99 = p99 > out->worst_p99 ? p99 : out->worst_p99;
		ended = m->finished > ended ? m->finished : ended;
		memcpy(all + at, m->seconds, n * sizeof *all);
		at += n;
		out->times += m->times;
		out->shares += m->shares;
	}
	qsort(all, total, sizeof *all, by_size);
	out->p50 = quantile(all, total, 0.5);
	out->p99 = quantile(all, total, 0.99);
	out->seconds = ended - begun;
	free(all);
	return 0;
}

/* Waits until all are ready, or one has failed or died. */
static int all_ready(struct crowd *c, unsigned members, const pid_t *pids, char why[CROWD_WHY])
{
	for (unsigned i = 0; i < members; i++)
		while (!atomic_load(&c->members[i].ready)) {
			siginfo_t info = {};
			usleep(LOOK_US);
			if (waitid(P_PID, (id_t)pids[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
			    info.si_pid && !atomic_load(&c->members[i].ready)) {
				snprintf(why, CROWD_WHY, "process %u of %u died while it prepared", i + 1,
					 members);
				return NPU_E_IO;
			}
		}
	return 0;
}

static int failure(const struct crowd *c, unsigned members, char why[CROWD_WHY])
{
	for (unsigned i = 0; i < members; i++) {
		int r = atomic_load(&c->members[i].result);
		if (r) {
			snprintf(why, CROWD_WHY, "%s", c->members[i].why);
			return r;
		}
	}
	return 0;
}

int crowd_run(struct crowd_result *out, unsigned members, double seconds, const struct crowd_work *work,
	      char why[CROWD_WHY])
{
	size_t size = sizeof(struct crowd) + members * sizeof(struct member);
	struct crowd *c = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t *pids = calloc(members, sizeof *pids), parent = getpid();
	unsigned started = 0;
	double begun = 0;
	int r = 0;

	if (c == MAP_FAILED || !pids) {
		snprintf(why, CROWD_WHY, "no memory for %u processes", members);
		free(pids);
		return NPU_E_NO_MEMORY;
	}
	while (started < members && r == 0) {
		pid_t pid = fork();
		if (pid == 0)
			member_main(c, started, work, parent);
		if (pid < 0) {
			snprintf(why, CROWD_WHY, "process %u cannot be made: %s", started + 1,
				 strerror(errno));
			r = NPU_E_IO;
		} else {
			pids[started++] = pid;
		}
	}
	if (r == 0)
		r = all_ready(c, members, pids, why);
	if (r == 0)
		r = failure(c, members, why);
	if (r == 0) {
		begun = clock_now();
		c->stop = begun + seconds;
		atomic_store(&c->go, true);
	}
	for (unsigned i = 0; i < started; i++) {
		int status = 0;
		if (r)
			kill(pids[i], SIGKILL);
		while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
			;
		if (r == 0 && !WIFEXITED(status)) {
			snprintf(why, CROWD_WHY, "process %u of %u died", i + 1, members);
			r = NPU_E_IO;
		}
	}
	if (r == 0)
		r = failure(c, members, why);
	if (r == 0)
		r = summarise(out, c, members, begun, why);
	free(pids);
	munmap(c, size);
	return r;
}
