#include "bench.h"
#include "clock.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

static unsigned tries = 12, disturbed, turns;

void bench_begin(void)
{
	if (getenv("BENCH_QUICK"))
		tries = 3;
	/* Where sessions are scheduled as groups, a priority counts among the processes of one. */
	setsid();
	FILE *group = fopen("/proc/self/autogroup", "we");
	if (group) {
		fputs("-20", group);
		fclose(group);
	}
	if (setpriority(PRIO_PROCESS, 0, -20) < 0)
		fputs("bench: without the right to raise its priority: expect noise\n", stderr);
	setvbuf(stdout, NULL, _IOLBF, 0);
}

void bench_end(void)
{
	fprintf(stderr, "bench: %u of %u turns did not have their processors to themselves\n", disturbed,
		turns);
}

double bench_seconds(struct pool *pool, bench_fn *run, void *arg)
{
	clockid_t clock = pool ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID;
	unsigned threads = pool ? pool_threads(pool) : 1;
	double least = INFINITY, fullest = 0;

	/* Of turns that were all disturbed the one that was least so counts. */
	for (unsigned i = 0; i < tries && fullest < 0.97; i++) {
		double begun = clock_now(), cpu = clock_seconds(clock);
		run(arg);
		double took = clock_now() - begun, used = (clock_seconds(clock) - cpu) / threads / took;
		if (used > fullest) {
			fullest = used;
			least = took;
		}
	}
	turns++;
	disturbed += fullest < 0.97;
	return least;
}

static int rising(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

void bench_figure(const char *name, enum better better, double *ratios, double must, double aim,
		  const char *note)
{
	const char *than = better == HIGHER ? ">=" : "<=";
	qsort(ratios, BENCH_ROUNDS, sizeof *ratios, rising);
	printf("%s\t%.3f\t", name, ratios[BENCH_ROUNDS / 2]);
	if (must > 0)
		printf("%s%.2f\t%s%.2f", than, must, than, aim);
	else
		printf("-\t-");
	printf("\t%.3f\t%.3f\t%s\n", ratios[0], ratios[BENCH_ROUNDS - 1], note);
}

void bench_skipped(const char *name, const char *why)
{
	printf("skipped\t%s\t%s\n", name, why);
}

#define PIECE ((size_t)4 << 20)

struct reading {
	const char *bytes;
	size_t size;
	int ahead; /* bytes, 0: no prefetch */
	struct pool *pool;
	_Atomic uint64_t sum; /* what keeps the compiler from leaving it out */
};

#ifdef __x86_64__
__attribute__((target("avx512f"))) static uint64_t sum_avx512(const char *at, const char *end, int ahead)
{
	__m512i sum[8] = {0};
	for (; at + 512 <= end; at += 512)
		for (int i = 0; i < 8; i++) {
			if (ahead)
				_mm_prefetch(at + 64 * i + ahead, _MM_HINT_T0);
			sum[i] = _mm512_add_epi64(sum[i], _mm512_loadu_si512(at + 64 * i));
		}
	for (int i = 1; i < 8; i++)
		sum[0] = _mm512_add_epi64(sum[0], sum[i]);
	return (uint64_t)_mm512_reduce_add_epi64(sum[0]);
}

__attribute__((target("avx2"))) static uint64_t sum_avx2(const char *at, const char *end, int ahead)
{
	__m256i sum[8] = {0};
	for (; at + 256 <= end; at += 256)
		for (int i = 0; i < 8; i++) {
			if (ahead && i % 2 == 0)
				_mm_prefetch(at + 32 * i + ahead, _MM_HINT_T0);
			sum[i] = _mm256_add_epi64(sum[i], _mm256_loadu_si256((const __m256i *)(at + 32 * i)));
		}
	for (int i = 1; i < 8; i++)
		sum[0] = _mm256_add_epi64(sum[0], sum[i]);
	return (uint64_t)_mm256_extract_epi64(sum[0], 0);
}
#endif

static uint64_t sum_any(const char *at, const char *end, int ahead)
{
	uint64_t sum = 0;
	for (; at + 8 <= end; at += 8) {
		if (ahead)
			__builtin_prefetch(at + ahead);
		sum += *(const uint64_t *)at;
	}
	return sum;
}

static void read_piece(void *arg, uint32_t i, unsigned thread)
{
	struct reading *r = arg;
	const char *at = r->bytes + i * PIECE;
	const char *end = r->size - i * PIECE < PIECE ? r->bytes + r->size : at + PIECE;

	(void)thread;
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		r->sum += sum_avx512(at, end, r->ahead);
	else if (__builtin_cpu_supports("avx2"))
		r->sum += sum_avx2(at, end, r->ahead);
	else
#endif
		r->sum += sum_any(at, end, r->ahead);
}

static void read_all(void *arg)
{
	struct reading *r = arg;
	pool_run(r->pool, (uint32_t)((r->size + PIECE - 1) / PIECE), read_piece, r);
}

double bench_read(struct pool *pool, const void *bytes, size_t size)
{
	struct reading r = {.bytes = bytes, .size = size, .pool = pool};
	double plain = bench_seconds(pool, read_all, &r);
	r.ahead = 4096;
	double ahead = bench_seconds(pool, read_all, &r);
	return ahead < plain ? ahead : plain;
}
