#include "kernels.h"
#include "own.h"
#include "simulation.h"
#include "soft.h"
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

static bool parses(const char *settings)
{
	struct simulation s;
	char why[384] = "";
	bool good = simulation_parse(&s, settings, why, sizeof why);

	cr_expect_eq(good, !why[0], "%s: %s", settings, why);
	return good;
}

Test(simulation, settings_that_make_no_sense_are_refused_with_a_sentence)
{
	cr_expect(parses(""));
	cr_expect(parses("latency=100, contexts=2 heap=1000000,no-context=50@1 timeout@3 hang@5-6 flip/100"));
	static const char *const bad[] = {
		"latency",     "latency=",     "latency=-1",	"latency=1x",
		"late=1",      "timeout",      "timeout@",	"timeout@x",
		"timeout@3-",  "timeout/0",    "boom@1",	"good@1",
		"timeout@3/2", "no-context=5", "no-context=5@", "latency=99999999999999999999"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect_not(parses(bad[i]), "%s", bad[i]);
}

Test(simulation, faults_come_at_the_launches_named)
{
	struct simulation s;
	char why[384];

	cr_assert(simulation_parse(&s, "timeout@3 hang@5-6 flip/4", why, sizeof why));
	static const enum simulation_fault want[] = {SIMULATION_GOOD, SIMULATION_GOOD, SIMULATION_TIMEOUT,
						     SIMULATION_FLIP, SIMULATION_HANG, SIMULATION_HANG,
						     SIMULATION_GOOD, SIMULATION_FLIP};
	for (uint64_t i = 0; i < 8; i++)
		cr_expect_eq(simulation_fault(&s, i + 1), want[i], "launch %lu", (unsigned long)i + 1);
}

static const struct design design = {.rows = 4, .kd = 64, .nd = 128, .layout = 1};

struct rig {
	struct device *device;
	struct device_context *context;
	struct device_buffer *a, *b, *c;
	int8_t *q;
	struct tile tile;
	int32_t *acc, want[4 * 128];
};

static struct rig rig_new(const char *settings)
{
	struct rig r = {.tile = {64, 128, LAYOUT_BLOCKED, NULL, NULL}};
	struct device_why why = {""};
	void *map;

	cr_assert_eq(device_soft.open(&r.device, settings, &why), 0, "%s", why.text);
	cr_assert_eq(device_soft.context_open(&r.context, r.device, &design, &why), 0, "%s", why.text);
	cr_assert_eq(device_soft.buffer_new(&r.a, r.device, DEVICE_A, 4 * 64, &map, &why), 0, "%s", why.text);
	r.q = map;
	cr_assert_eq(device_soft.buffer_new(&r.b, r.device, DEVICE_B, 64 * 128, &map, &why), 0);
	r.tile.codes = map;
	cr_assert_eq(device_soft.buffer_new(&r.c, r.device, DEVICE_C, sizeof r.want, &map, &why), 0);
	r.acc = map;
	for (int i = 0; i < 64 * 128; i++)
		r.tile.codes[i] = (int8_t)(i * 7 % 255 - 127);
	for (int i = 0; i < 4 * 64; i++)
		r.q[i] = (int8_t)(i * 11 % 255 - 127);
	head_ref(&r.tile, r.q, 4, 128, false, r.want);
	device_soft.buffer_sync(r.a, DEVICE_TO, 0, 4 * 64, &why);
	device_soft.buffer_sync(r.b, DEVICE_TO, 0, 64 * 128, &why);
	return r;
}

static void rig_free(struct rig *r)
{
	device_soft.buffer_free(r->a);
	device_soft.buffer_free(r->b);
	device_soft.buffer_free(r->c);
	if (r->context)
		device_soft.context_close(r->context);
	device_soft.close(r->device);
}

static struct device_run *start(struct rig *r)
{
	struct device_run *run = NULL;
	struct device_why why = {""};

	cr_assert_eq(device_soft.launch(&run, r->context, r->a, r->b, r->c, &why), 0, "%s", why.text);
	return run;
}

/* Runs once; the state, and whether the result is right. */
static enum device_state once(struct rig *r, bool *right)
{
	struct device_run *run = start(r);
	struct device_why why;
	enum device_state state = device_soft.wait(run, 10000);

	device_soft.run_free(run);
	cr_expect_eq(device_soft.buffer_sync(r->c, DEVICE_FROM, 0, sizeof r->want, &why), 0);
	*right = memcmp(r->acc, r->want, sizeof r->want) == 0;
	return state;
}

Test(soft, a_launch_computes_what_the_reference_does)
{
	cleanup(rig_free) struct rig r = rig_new("");
	bool right;

	cr_expect_eq(once(&r, &right), DEVICE_COMPLETED);
	cr_expect(right);
}

Test(soft, what_is_not_synced_is_not_seen)
{
	cleanup(rig_free) struct rig r = rig_new("");
	bool right;

	r.q[0] ^= 1; /* the device computes with what it was given */
	cr_expect_eq(once(&r, &right), DEVICE_COMPLETED);
	cr_expect(right);
	memset(r.acc, 0, sizeof r.want);
	struct device_run *run = start(&r);
	cr_expect_eq(device_soft.wait(run, 10000), DEVICE_COMPLETED);
	device_soft.run_free(run);
	cr_expect_eq(r.acc[0], 0);
}

Test(soft, faults_are_reported_or_lied_about)
{
	cleanup(rig_free) struct rig r = rig_new("timeout@2 error@3 garbage@4 swap@5 flip@6");
	static const struct {
		enum device_state state;
		bool right;
	} want[] = {{DEVICE_COMPLETED, true},  {DEVICE_TIMED_OUT, true},  {DEVICE_FAILED, true},
		    {DEVICE_COMPLETED, false}, {DEVICE_COMPLETED, false}, {DEVICE_COMPLETED, false},
		    {DEVICE_COMPLETED, true}};
	bool right;

	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		cr_expect_eq(once(&r, &right), want[i].state, "launch %zu", i + 1);
		cr_expect_eq(right, want[i].right, "launch %zu", i + 1);
	}
}

Test(soft, a_stale_launch_completes_and_writes_nothing)
{
	cleanup(rig_free) struct rig r = rig_new("stale@2");
	struct device_why why;
	bool right;

	once(&r, &right);
	r.q[5] ^= 64;
	device_soft.buffer_sync(r.a, DEVICE_TO, 0, 4 * 64, &why);
	cr_expect_eq(once(&r, &right), DEVICE_COMPLETED);
	cr_expect(right, "the result of the launch before");
	once(&r, &right);
	cr_expect_not(right);
}

Test(soft, a_hang_holds_up_its_context_until_the_watchdog)
{
	cleanup(rig_free) struct rig r = rig_new("hang@1 watchdog=80");
	struct device_run *hanging = start(&r), *behind = start(&r);

	cr_expect_eq(device_soft.wait(hanging, 1), DEVICE_BUSY);
	cr_expect_eq(device_soft.wait(behind, 0), DEVICE_BUSY);
	cr_expect_eq(device_soft.wait(hanging, 10000), DEVICE_TIMED_OUT);
	cr_expect_eq(device_soft.wait(behind, 10000), DEVICE_COMPLETED);
	device_soft.run_free(hanging);
	device_soft.run_free(behind);
}

Test(soft, contexts_are_limited_and_a_closed_one_counts_while_it_has_a_run)
{
	cleanup(rig_free) struct rig r = rig_new("contexts=2 hang@1 watchdog=50");
	struct device_context *second, *third;
	struct device_limits limits;
	struct device_why why;

	cr_assert_eq(device_soft.context_open(&second, r.device, &design, &why), 0);
	cr_expect_eq(device_soft.context_open(&third, r.device, &design, &why), DEVICE_E_NO_CONTEXT);
	struct device_run *run = start(&r);
	device_soft.context_close(r.context);
	r.context = NULL;
	device_soft.limits(r.device, &limits);
	cr_expect_eq(limits.contexts_used, 2);
	cr_expect_eq(limits.contexts_max, 2);
	cr_expect_eq(device_soft.context_open(&third, r.device, &design, &why), DEVICE_E_NO_CONTEXT);
	device_soft.wait(run, 10000);
	device_soft.run_free(run);
	cr_expect_eq(device_soft.context_open(&third, r.device, &design, &why), 0);
	device_soft.context_close(second);
	device_soft.context_close(third);
}

Test(soft, a_context_that_was_idle_too_long_is_lost)
{
	cleanup(rig_free) struct rig r = rig_new("lost=1000");
	bool right;

	cr_expect_eq(once(&r, &right), DEVICE_COMPLETED);
	usleep(1200000);
	cr_expect_eq(once(&r, &right), DEVICE_FAILED);
}

Test(soft, what_does_not_fit_is_refused)
{
	struct device *d;
	struct device_buffer *b;
	struct device_why why;
	void *map;

	cr_expect_eq(device_soft.open(&d, "rubbish", &why), DEVICE_E_BAD_CALL);
	cr_assert_eq(device_soft.open(&d, "heap=8192", &why), 0);
	cr_assert_eq(device_soft.buffer_new(&b, d, DEVICE_B, 8000, &map, &why), 0);
	cr_expect_eq((uintptr_t)map % 4096, 0);
	struct device_buffer *more;
	cr_expect_eq(device_soft.buffer_new(&more, d, DEVICE_B, 200, &map, &why), DEVICE_E_NO_MEMORY);
	cr_expect_eq(device_soft.buffer_new(&more, d, DEVICE_B, SIZE_MAX, &map, &why), DEVICE_E_NO_MEMORY);
	cr_expect_eq(device_soft.buffer_sync(b, DEVICE_TO, 7999, 2, &why), DEVICE_E_BAD_CALL);
	cr_expect_eq(device_soft.buffer_sync(b, DEVICE_TO, SIZE_MAX, 1, &why), DEVICE_E_BAD_CALL);
	cr_expect_eq(device_soft.buffer_sync(b, DEVICE_FROM, 0, 8000, &why), 0);
	device_soft.buffer_free(b);
	cr_expect_eq(device_soft.buffer_new(&more, d, DEVICE_B, 8192, &map, &why), 0);
	device_soft.buffer_free(more);
	device_soft.close(d);
}
