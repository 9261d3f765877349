#include "kernels.h"
#include "own.h"
#include "runner.h"
#include "soft.h"
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROWS 4u
#define HANG_MS 800u /* after which a launch counts as hanging; what only waits for a processor is faster */

static const struct design designs[] = {{.rows = ROWS, .kd = 64, .nd = 128, .layout = 1},
					{.rows = ROWS, .kd = 128, .nd = 100, .layout = 0}};

/* Waits for jobs by sleeping: what is waited for comes from other threads. */
static void nap(void)
{
	usleep(500);
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct rig {
	struct runner *runner;
	struct weights *weights[2];
};

/* Times so short that a test can wait for each of them. */
static struct runner_options options(const char *settings)
{
	struct runner_options o = runner_defaults;

	o.table = &device_soft;
	o.settings = settings;
	o.designs = designs;
	o.design_count = 2;
	o.times =
		(struct keeper_times){.idle_ms = 2000, .stale_ms = 1000, .retry_ms = 20, .recovery_ms = 400};
	/* Where nothing hangs, a launch that a busy machine holds up does not, either. */
	bool hangs = strstr(settings, "hang");
	o.launch_ms = hangs ? HANG_MS : 10000;
	if (hangs) /* the canary behind it may hang as long */
		o.times.recovery_ms = 3 * HANG_MS;
	o.call_ms = 5000;
	return o;
}

static struct weights *weights_of(struct runner *r, const struct design *d, unsigned seed)
{
	struct weights *w;
	struct device_why why = {""};

	cr_assert_eq(weights_new(&w, r, d, &why), 0, "%s", why.text);
	for (size_t i = 0; i < (size_t)d->kd * d->nd; i++)
		weights_codes(w)[i] = (int8_t)((i * seed + i / 7) % 255 - 127);
	cr_assert_eq(weights_seal(w, &why), 0, "%s", why.text);
	return w;
}

static struct rig rig_with(const struct runner_options *o)
{
	struct rig rig;
	struct device_why why = {""};

	cr_assert_eq(runner_new(&rig.runner, o, &why), 0, "%s", why.text);
	rig.weights[0] = weights_of(rig.runner, &designs[0], 7);
	rig.weights[1] = weights_of(rig.runner, &designs[1], 11);
	return rig;
}

static void rig_free(struct rig *rig)
{
	runner_close(rig->runner); /* a second time where the test did */
	weights_free(rig->weights[0]);
	weights_free(rig->weights[1]);
	runner_free(rig->runner);
}

static struct runner_status status(struct rig *rig)
{
	struct runner_status s;

	runner_status(rig->runner, &s);
	return s;
}

static void becomes(struct rig *rig, enum health h)
{
	uint64_t until = now_ms() + 20000;

	while (status(rig).health != h && now_ms() < until)
		nap();
	struct runner_status s = status(rig);
	cr_assert_eq(s.health, h, "%s: %s", health_name(s.health), s.reason);
	cr_expect_eq(s.health == HEALTH_OK, !s.reason[0], "%s", s.reason);
}

static struct rig rig_new(const char *settings)
{
	struct runner_options o = options(settings);
	struct rig rig = rig_with(&o);

	becomes(&rig, HEALTH_OK);
	return rig;
}

struct ask {
	struct job job;
	uint32_t columns;
	int8_t q[ROWS * 128];
	int32_t acc[ROWS * 128];
	_Atomic int told;
};

static void on_done(struct job *job)
{
	struct ask *a = job->arg;

	if (job->result == JOB_DONE)
		memcpy(a->acc, job->acc, sizeof(int32_t) * job->rows * a->columns);
	a->told++;
}

static bool submit(struct rig *rig, struct ask *a, int which, uint32_t rows, unsigned seed)
{
	*a = (struct ask){
		.job = {.weights = rig->weights[which], .q = a->q, .rows = rows, .done = on_done, .arg = a},
		.columns = designs[which].nd};
	for (uint32_t i = 0; i < rows * designs[which].kd; i++)
		a->q[i] = (int8_t)((i * seed) % 255 - 127);
	return runner_submit(rig->runner, &a->job);
}

static void answered(struct ask *a)
{
	for (uint64_t until = now_ms() + 20000; !a->told && now_ms() < until;)
		nap();
	cr_assert_eq(a->told, 1);
}

static void is_right(struct rig *rig, struct ask *a, int which)
{
	const struct design *d = &designs[which];
	struct tile t = {d->kd, d->nd, (enum layout)d->layout, weights_codes(rig->weights[which]), NULL};
	int32_t want[ROWS * 128];

	head_ref(&t, a->q, a->job.rows, d->nd, false, want);
	cr_expect_arr_eq(a->acc, want, sizeof(int32_t) * a->job.rows * d->nd);
}

/* Asks once; the answer is right if there is one. */
static enum job_result ask(struct rig *rig, int which, uint32_t rows, unsigned seed)
{
	struct ask a;

	if (!submit(rig, &a, which, rows, seed))
		return JOB_REFUSED;
	answered(&a);
	if (a.job.result == JOB_DONE)
		is_right(rig, &a, which);
	return a.job.result;
}

Test(runner, answers_are_right_for_every_number_of_rows)
{
	cleanup(rig_free) struct rig rig = rig_new("");

	for (uint32_t rows = 1; rows <= ROWS; rows++)
		cr_expect_eq(ask(&rig, 0, rows, 13 + rows), JOB_DONE);
	cr_expect_eq(ask(&rig, 0, 1, 77), JOB_DONE, "fewer rows than before");
}

Test(runner, another_design_takes_the_context)
{
	cleanup(rig_free) struct rig rig = rig_new("contexts=1");

	for (unsigned i = 0; i < 6; i++)
		cr_expect_eq(ask(&rig, i & 1, ROWS, 3 + i), JOB_DONE);
	cr_expect_eq(status(&rig).limits.contexts_used, 1);
	cr_expect_eq(status(&rig).contexts_opened, 6);
}

Test(runner, many_jobs_at_once_are_all_answered_with_two_in_flight)
{
	cleanup(rig_free) struct rig rig = rig_new("latency=200");
	static struct ask asks[200];
	struct runner_status s;
	uint32_t most = 0;

	for (unsigned i = 0; i < 200; i++)
		cr_assert(submit(&rig, &asks[i], 0, 1 + i % ROWS, i));
	do {
		s = status(&rig);
		most = s.in_flight > most ? s.in_flight : most;
	} while (s.done < 200 && s.health == HEALTH_OK);
	cr_assert_eq(s.health, HEALTH_OK, "%s", s.reason);
	cr_expect_eq(most, 2);
	for (unsigned i = 0; i < 200; i++) {
		answered(&asks[i]);
		cr_assert_eq(asks[i].job.result, JOB_DONE);
		is_right(&rig, &asks[i], 0);
	}
}

/* The canary is launch 1, so launch 2 is the first job. */
static void fault_of(const char *settings, enum job_result want)
{
	cleanup(rig_free) struct rig rig = rig_new(settings);

	cr_expect_eq(ask(&rig, 0, ROWS, 5), want, "%s", settings);
	struct runner_status s = status(&rig);
	cr_expect(s.health == HEALTH_DEGRADED || s.health == HEALTH_OK);
	becomes(&rig, HEALTH_OK);
	s = status(&rig);
	cr_expect_eq(s.recoveries, 1);
	cr_expect_eq(s.canaries, 2);
	cr_expect_eq(ask(&rig, 0, ROWS, 6), JOB_DONE);
}

Test(runner, each_fault_is_a_typed_failure_and_a_new_context)
{
	fault_of("timeout@2", JOB_TIMEOUT);
	fault_of("error@2", JOB_ERROR);
	fault_of("garbage@2", JOB_MISMATCH);
	fault_of("swap@2", JOB_MISMATCH);
	fault_of("flip@2", JOB_MISMATCH);
	fault_of("stale@2", JOB_MISMATCH);
	fault_of("hang@2 watchdog=1200", JOB_HANG);
}

Test(runner, a_hanging_run_keeps_its_memory_until_the_device_lets_go)
{
	cleanup(rig_free) struct rig rig = rig_new("hang@2 watchdog=2000");

	cr_expect_eq(ask(&rig, 0, ROWS, 5), JOB_HANG);
	becomes(&rig, HEALTH_OK);
	cr_expect_eq(status(&rig).parked, 1);
	weights_free(rig.weights[0]); /* the parked run holds what the device reads */
	rig.weights[0] = weights_of(rig.runner, &designs[0], 19);
	cr_expect_eq(ask(&rig, 0, ROWS, 6), JOB_DONE);
	for (uint64_t until = now_ms() + 20000; status(&rig).parked && now_ms() < until;)
		nap();
	cr_expect_eq(status(&rig).parked, 0);
	cr_expect_eq(status(&rig).parked_ever, 1);
	cr_expect_eq(ask(&rig, 0, ROWS, 7), JOB_DONE);
}

Test(runner, a_device_that_hangs_for_ever_fails_jobs_by_the_deadline_and_does_not_hold_up_the_end)
{
	cleanup(rig_free) struct rig rig = rig_new("hang@2-1000");
	struct ask a[8];
	uint64_t begun = now_ms();

	for (unsigned i = 0; i < 8; i++)
		cr_assert(submit(&rig, &a[i], 0, 1, i));
	for (unsigned i = 0; i < 8; i++) {
		answered(&a[i]);
		cr_expect_eq(a[i].job.result, i ? JOB_REFUSED : JOB_HANG);
	}
	cr_expect_geq(now_ms() - begun, HANG_MS);
	becomes(&rig, HEALTH_FAILED); /* the canary hangs too */
}

Test(runner, a_second_fault_within_the_interval_is_failure_until_it_is_over)
{
	cleanup(rig_free) struct rig rig = rig_new("garbage@2 flip@4");

	cr_expect_eq(ask(&rig, 0, ROWS, 5), JOB_MISMATCH);
	becomes(&rig, HEALTH_OK);
	cr_expect_eq(ask(&rig, 0, ROWS, 5), JOB_MISMATCH);
	struct runner_status s = status(&rig);
	cr_expect_eq(s.health, HEALTH_FAILED, "%s", s.reason);
	cr_expect_eq(ask(&rig, 0, ROWS, 5), JOB_REFUSED);
	becomes(&rig, HEALTH_OK);
	cr_expect_eq(status(&rig).recoveries, 2);
	cr_expect_eq(ask(&rig, 0, ROWS, 5), JOB_DONE);
}

Test(runner, a_lying_canary_is_no_proof)
{
	struct runner_options o = options("stale/1");
	cleanup(rig_free) struct rig rig = rig_with(&o);

	becomes(&rig, HEALTH_FAILED);
	struct runner_status s = status(&rig);
	cr_expect(strstr(s.reason, "canary"), "%s", s.reason);
	cr_expect_geq(s.canaries_failed, 2);
	cr_expect_eq(ask(&rig, 0, ROWS, 5), JOB_REFUSED);
}

Test(runner, waits_for_a_context_without_spinning_and_says_who_holds_them)
{
	struct runner_options o = options("no-context=500@1 contexts=3");
	cleanup(rig_free) struct rig rig = rig_with(&o);

	usleep(100000);
	struct runner_status s = status(&rig);
	cr_expect_eq(s.health, HEALTH_DEGRADED);
	cr_expect(strstr(s.reason, "of 3 are in use"), "%s", s.reason);
	cr_expect_eq(ask(&rig, 0, ROWS, 5), JOB_REFUSED);
	becomes(&rig, HEALTH_OK);
	s = status(&rig);
	cr_expect(s.contexts_refused >= 2 && s.contexts_refused <= 500 / 20 + 1, "%lu",
		  (unsigned long)s.contexts_refused);
	cr_expect_eq(s.recoveries, 0);
	cr_expect_eq(ask(&rig, 0, ROWS, 5), JOB_DONE);
}

Test(runner, a_context_lost_while_idle_is_renewed_without_a_failure)
{
	/* Far apart: were the thread kept from running for as long between the proof and a launch, that one
	 * would be lost in earnest. */
	struct runner_options o = options("lost=2500");
	o.times.stale_ms = 500;
	o.times.idle_ms = 20000;
	cleanup(rig_free) struct rig rig = rig_with(&o);

	becomes(&rig, HEALTH_OK);
	cr_expect_eq(ask(&rig, 0, ROWS, 5), JOB_DONE);
	usleep(2600000);
	cr_expect_eq(ask(&rig, 0, ROWS, 6), JOB_DONE);
	struct runner_status s = status(&rig);
	cr_expect_eq(s.contexts_opened, 2);
	cr_expect_eq(s.recoveries, 0);
	cr_expect_eq(s.canaries_failed, 1);
}

Test(runner, an_idle_context_is_given_back)
{
	struct runner_options o = options("");
	o.times.idle_ms = 50;
	cleanup(rig_free) struct rig rig = rig_with(&o);

	becomes(&rig, HEALTH_OK);
	for (uint64_t until = now_ms() + 20000; status(&rig).context && now_ms() < until;)
		nap();
	cr_expect_not(status(&rig).context);
	cr_expect_eq(status(&rig).health, HEALTH_OK);
	cr_expect_eq(ask(&rig, 0, ROWS, 5), JOB_DONE);
	cr_expect_eq(status(&rig).canaries, 2);
}

Test(runner, what_is_queued_when_it_ends_is_refused)
{
	cleanup(rig_free) struct rig rig = rig_new("latency=20000");
	static struct ask a[20];

	for (unsigned i = 0; i < 20; i++)
		cr_assert(submit(&rig, &a[i], 0, 1, i));
	runner_close(rig.runner);
	unsigned done = 0;
	for (unsigned i = 0; i < 20; i++) {
		cr_expect_eq(a[i].told, 1);
		done += a[i].job.result == JOB_DONE;
	}
	cr_expect_lt(done, 20);
	cr_expect_not(submit(&rig, &a[0], 0, 1, 1));
}

Test(runner, a_device_that_cannot_be_opened_is_an_error_with_a_sentence)
{
	struct runner_options o = options("rubbish=1");
	struct runner *r;
	struct device_why why = {""};

	cr_expect_eq(runner_new(&r, &o, &why), DEVICE_E_BAD_CALL);
	cr_expect(strstr(why.text, "rubbish"), "%s", why.text);
}
