#include "readers.h"
#include <criterion/criterion.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#define ONE 1000
#define OTHER 1001

/* Reads until the test lets it end. */
struct job {
	struct reader reader;
	bool done;
};

static uv_loop_t loop;
static struct readers readers;
static sem_t begun, may_end;
static atomic_int reading[2]; /* of ONE and OTHER, now */
static int most[2];
static unsigned done;

static void job_read(struct reader *r)
{
	atomic_fetch_add(&reading[r->uid == OTHER], 1);
	sem_post(&begun);
	sem_wait(&may_end);
	atomic_fetch_sub(&reading[r->uid == OTHER], 1);
}

static void job_done(struct reader *r)
{
	link_of(r, struct job, reader)->done = true;
	done++;
}

static void up(void)
{
	setenv("UV_THREADPOOL_SIZE", READERS_THREADS, 1);
	uv_loop_init(&loop);
	readers_init(&readers, &loop);
	sem_init(&begun, 0, 0);
	sem_init(&may_end, 0, 0);
}

TestSuite(readers, .init = up, .timeout = 60);

static void begin(struct job *jobs, unsigned count, uid_t uid)
{
	for (unsigned i = 0; i < count; i++)
		reader_begin(&jobs[i].reader, &readers, uid, job_read, job_done);
}

static void await_begun(unsigned count)
{
	while (count--)
		sem_wait(&begun);
}

static void note_most(void)
{
	for (int i = 0; i < 2; i++)
		most[i] = atomic_load(&reading[i]) > most[i] ? atomic_load(&reading[i]) : most[i];
}

/* Lets one after the other end until `count` more have. */
static void let_end(unsigned count)
{
	for (unsigned until = done + count; done < until;) {
		note_most();
		sem_post(&may_end);
		for (unsigned before = done; done == before;)
			uv_run(&loop, UV_RUN_ONCE);
	}
}

Test(readers, what_one_user_reads_without_end_keeps_nobody_else_from_reading)
{
	struct job hanging[100] = {0}, quick[2] = {0};

	begin(hanging, 100, ONE);
	await_begun(READERS_A_USER);
	begin(quick, 2, OTHER);
	await_begun(2); /* the test hangs here where they do not run */
	cr_expect_eq(atomic_load(&reading[0]), READERS_A_USER);
	cr_expect_eq(atomic_load(&reading[1]), 2);
	let_end(102);
	cr_expect_eq(most[0], READERS_A_USER, "as many at once as a user may have, and no more");
	for (unsigned i = 0; i < 100; i++)
		cr_expect(hanging[i].done, "job %u was forgotten", i);
	cr_expect(quick[0].done && quick[1].done);
	uv_loop_close(&loop);
}

static void nothing(uv_work_t *work)
{
	(void)work;
}

static void on_nothing(uv_work_t *work, int status)
{
	(void)status;
	*(bool *)work->data = true;
}

Test(readers, many_users_leave_threads_for_what_reads_no_files_of_theirs)
{
	struct job jobs[10][READERS_A_USER] = {0};
	bool other_ran = false;
	uv_work_t other = {.data = &other_ran};

	for (uid_t i = 0; i < 10; i++)
		begin(jobs[i], READERS_A_USER, ONE + 10 * i);
	await_begun(READERS_MAX);
	uv_queue_work(&loop, &other, nothing, on_nothing);
	while (!other_ran) /* the test hangs here where it has no thread */
		uv_run(&loop, UV_RUN_ONCE);
	cr_expect_eq(atomic_load(&reading[0]), READERS_MAX);
	let_end(10 * READERS_A_USER);
	uv_loop_close(&loop);
}
