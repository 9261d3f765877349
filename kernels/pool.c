/*
 * How pieces are handed out. `ticket` is the number of the job (upper half) and how many of its pieces nobody
 * has taken yet (lower half). A piece is taken by compare-and-exchange: from then until `unfinished` is
 * counted down the job cannot end, so its description may be read without a lock. Who comes late finds no
 * piece left, or an exchange that fails because the job is another, and has read nothing of either. So a job
 * ends with its last piece, and never waits for a thread that has yet to be woken.
 *
 * `wakes` is what the threads sleep on: raised after a ticket is set, read before it is looked at for the
 * last time. All of this is sequentially consistent; a job costs a handful of such operations.
 */
#include "pool.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 1000 /* about 20 microseconds: between the passes of a busy head nobody sleeps */

struct worker {
	struct pool *pool;
	unsigned number;
	pthread_t thread;
};

struct pool {
	_Atomic uint64_t ticket;
	_Atomic uint32_t wakes, sleepers, unfinished;
	atomic_bool stop;
	/* the job */
	uint32_t pieces;
	void (*each)(void *, uint32_t, unsigned);
	void *arg;

	unsigned threads; /* the caller and the workers */
	struct worker workers[];
};

static void rest(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#else
	sched_yield();
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* Works on pieces until none is left. */
static void work(struct pool *p, unsigned number)
{
	uint64_t ticket = atomic_load(&p->ticket);

	while ((uint32_t)ticket) {
		if (!atomic_compare_exchange_weak(&p->ticket, &ticket, ticket - 1))
			continue;
		p->each(p->arg, p->pieces - (uint32_t)ticket, number);
		if (atomic_fetch_sub(&p->unfinished, 1) == 1)
			futex_wake(&p->unfinished, 1);
		ticket = atomic_load(&p->ticket);
	}
}

static void *run(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	unsigned spins = 0;

	while (!atomic_load(&p->stop)) {
		if ((uint32_t)atomic_load(&p->ticket)) {
			work(p, w->number);
			spins = 0;
		} else if (++spins < SPINS) {
			rest();
		} else {
			uint32_t seen = atomic_load(&p->wakes);
			atomic_fetch_add(&p->sleepers, 1);
			if (!(uint32_t)atomic_load(&p->ticket) && !atomic_load(&p->stop))
				futex_wait(&p->wakes, seen);
			atomic_fetch_sub(&p->sleepers, 1);
			spins = 0;
		}
	}
	return NULL;
}

static void wake(struct pool *p)
{
	atomic_fetch_add(&p->wakes, 1);
	if (atomic_load(&p->sleepers))
		futex_wake(&p->wakes, (int)p->threads);
}

bool pool_new(struct pool **out, unsigned threads)
{
	struct pool *p = calloc(1, sizeof *p + (threads - 1) * sizeof *p->workers);
	if (!p)
		return false;
	for (p->threads = 1; p->threads < threads; p->threads++) {
		struct worker *w = &p->workers[p->threads - 1];
		*w = (struct worker){.pool = p, .number = p->threads};
		if (pthread_create(&w->thread, NULL, run, w)) {
			pool_free(p);
			return false;
		}
	}
	*out = p;
	return true;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	atomic_store(&p->stop, true);
	wake(p);
	for (unsigned i = 1; i < p->threads; i++)
		pthread_join(p->workers[i - 1].thread, NULL);
	free(p);
}

unsigned pool_threads(const struct pool *p)
{
	return p->threads;
}

void pool_run(struct pool *p, uint32_t pieces, void (*each)(void *arg, uint32_t i, unsigned thread),
	      void *arg)
{
	if (pieces == 0)
		return;
	p->pieces = pieces;
	p->each = each;
	p->arg = arg;
	atomic_store(&p->unfinished, pieces);
	uint64_t job = (atomic_load(&p->ticket) >> 32) + 1;
	atomic_store(&p->ticket, job << 32 | pieces);
	if (pieces > 1)
		wake(p);
	work(p, 0);
	uint32_t left;
	for (unsigned spins = 0; (left = atomic_load(&p->unfinished)) != 0; spins++) {
		if (spins < SPINS)
			rest();
		else
			futex_wait(&p->unfinished, left);
	}
}

double pool_cpu_seconds(const struct pool *p)
{
	double seconds = 0;
	for (unsigned i = 1; i < p->threads; i++) {
		clockid_t clock;
		struct timespec t;
		if (pthread_getcpuclockid(p->workers[i - 1].thread, &clock) == 0 &&
		    clock_gettime(clock, &t) == 0)
			seconds += (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
	}
	return seconds;
}

unsigned pool_processors(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
	return n > 0 ? (unsigned)n : 1;
}
