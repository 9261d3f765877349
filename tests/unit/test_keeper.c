#include "keeper.h"
#include <criterion/criterion.h>

static const struct keeper_times times = {
	.idle_ms = 30000, .stale_ms = 5000, .retry_ms = 2000, .recovery_ms = 60000};

static struct keeper fresh(void)
{
	struct keeper k;

	keeper_init(&k, &times, 1000);
	return k;
}

/* A device that was shown to be well at 1000. */
static struct keeper well(void)
{
	struct keeper k = fresh();

	keeper_note(&k, KEEPER_OPENED, 1000);
	keeper_note(&k, KEEPER_PROVEN, 1000);
	return k;
}

static enum keeper_step next(struct keeper *k, uint64_t now, bool work)
{
	uint64_t wake;

	return keeper_next(k, now, work, 0, &wake);
}

/* The step is to wait, until `at`. */
static void waits(struct keeper *k, uint64_t now, bool work, uint64_t at)
{
	uint64_t wake;

	cr_expect_eq(keeper_next(k, now, work, 0, &wake), STEP_WAIT);
	cr_expect_eq(wake, at, "until %lu, not %lu", (unsigned long)wake, (unsigned long)at);
}

Test(keeper, a_device_is_proven_before_it_is_well_and_before_it_works)
{
	struct keeper k = fresh();

	cr_expect_eq(k.health, HEALTH_DEGRADED);
	cr_expect_eq(next(&k, 1000, false), STEP_OPEN);
	keeper_note(&k, KEEPER_OPENED, 1000);
	cr_expect_eq(next(&k, 1000, true), STEP_PROVE);
	cr_expect_eq(k.health, HEALTH_DEGRADED);
	keeper_note(&k, KEEPER_PROVEN, 1010);
	cr_expect_eq(k.health, HEALTH_OK);
	cr_expect_eq(next(&k, 1010, true), STEP_WORK);
}

Test(keeper, an_idle_context_is_released_and_opened_and_proven_again_for_work)
{
	struct keeper k = well();

	keeper_note(&k, KEEPER_WORKED, 2000);
	waits(&k, 2000, false, 32000);
	waits(&k, 31999, false, 32000);
	cr_expect_eq(next(&k, 32000, false), STEP_CLOSE);
	keeper_note(&k, KEEPER_CLOSED, 32000);
	waits(&k, 32000, false, 0);
	cr_expect_eq(k.health, HEALTH_OK);
	cr_expect_eq(next(&k, 99000, true), STEP_OPEN);
	keeper_note(&k, KEEPER_OPENED, 99000);
	cr_expect_eq(next(&k, 99000, true), STEP_PROVE);
}

Test(keeper, a_context_that_was_idle_or_slept_is_proven_and_renewed_if_it_is_lost)
{
	for (int slept = 0; slept < 2; slept++) {
		struct keeper k = well();
		uint64_t now = slept ? 2000 : 6000;
		if (slept)
			keeper_note(&k, KEEPER_RESUMED, now);
		cr_expect_eq(next(&k, 5999 < now ? now : 2000, true), STEP_PROVE);
		keeper_note(&k, KEEPER_PROOF_FAILED, now);
		cr_expect_eq(k.health, HEALTH_OK, "that a context is lost in its sleep is no fault");
		cr_expect_eq(next(&k, now, true), STEP_CLOSE);
		keeper_note(&k, KEEPER_CLOSED, now);
		cr_expect_eq(next(&k, now, true), STEP_OPEN);
		keeper_note(&k, KEEPER_OPENED, now);
		cr_expect_eq(next(&k, now, true), STEP_PROVE);
		keeper_note(&k, KEEPER_PROOF_FAILED, now);
		cr_expect_eq(k.health, HEALTH_DEGRADED, "that a new one does not work is");
	}
	struct keeper k = well();
	cr_expect_eq(next(&k, 5999, true), STEP_WORK);
}

/* Close, open, canary. */
static void recover(struct keeper *k, uint64_t now)
{
	cr_expect_eq(next(k, now, false), STEP_CLOSE);
	keeper_note(k, KEEPER_CLOSED, now);
	cr_expect_eq(next(k, now, false), STEP_OPEN);
	keeper_note(k, KEEPER_OPENED, now);
	keeper_note(k, KEEPER_PROVEN, now);
	cr_expect_eq(k->health, HEALTH_OK);
}

Test(keeper, a_fault_costs_the_context_and_is_recovered_from_once_an_interval)
{
	struct keeper k = well();

	keeper_note(&k, KEEPER_FAULT, 10000);
	cr_expect_eq(k.health, HEALTH_DEGRADED);
	recover(&k, 10100);

	keeper_note(&k, KEEPER_FAULT, 20000); /* within the interval */
	cr_expect_eq(k.health, HEALTH_FAILED);
	cr_expect_eq(next(&k, 20000, false), STEP_CLOSE);
	keeper_note(&k, KEEPER_CLOSED, 20000);
	waits(&k, 20000, false, 70000);
	waits(&k, 69999, false, 70000);
	cr_expect_eq(next(&k, 70000, false), STEP_OPEN);
	cr_expect_eq(k.health, HEALTH_DEGRADED);
	keeper_note(&k, KEEPER_OPENED, 70000);
	keeper_note(&k, KEEPER_PROOF_FAILED, 70001);
	cr_expect_eq(k.health, HEALTH_FAILED);
	keeper_note(&k, KEEPER_CLOSED, 70001);
	waits(&k, 70001, false, 130000);
	cr_expect_eq(next(&k, 130000, false), STEP_OPEN);
	keeper_note(&k, KEEPER_OPENED, 130000);
	keeper_note(&k, KEEPER_PROVEN, 130000);
	cr_expect_eq(k.health, HEALTH_OK);

	keeper_note(&k, KEEPER_FAULT, 190000); /* outside of it */
	cr_expect_eq(k.health, HEALTH_DEGRADED);
	recover(&k, 190000);
}

Test(keeper, that_no_context_is_to_be_had_is_no_fault_and_is_asked_again)
{
	struct keeper k = fresh();

	for (uint64_t now = 1000; now < 41000; now += 2000) {
		cr_expect_eq(next(&k, now, false), STEP_OPEN);
		keeper_note(&k, KEEPER_NO_CONTEXT, now);
		cr_expect_eq(k.health, HEALTH_DEGRADED);
		waits(&k, now, false, now + 2000);
	}
	cr_expect_eq(k.recoveries, 0);
	cr_expect_eq(next(&k, 41000, false), STEP_OPEN);
	keeper_note(&k, KEEPER_OPENED, 41000);
	keeper_note(&k, KEEPER_PROVEN, 41000);
	cr_expect_eq(k.health, HEALTH_OK);
}

Test(keeper, an_opening_that_fails_is_not_repeated_within_the_interval)
{
	struct keeper k = fresh();

	cr_expect_eq(next(&k, 1000, false), STEP_OPEN);
	keeper_note(&k, KEEPER_OPEN_FAILED, 1000);
	cr_expect_eq(k.health, HEALTH_FAILED);
	waits(&k, 1000, false, 61000);
	cr_expect_eq(next(&k, 61000, false), STEP_OPEN);
}

Test(keeper, no_context_is_opened_while_too_many_runs_are_parked)
{
	struct keeper k = fresh();
	uint64_t wake;

	cr_expect_eq(keeper_next(&k, 1000, true, KEEPER_PARKED_MAX, &wake), STEP_WAIT);
	cr_expect_gt(wake, 1000);
	cr_expect_eq(keeper_next(&k, 1000, true, KEEPER_PARKED_MAX - 1, &wake), STEP_OPEN);
}

Test(keeper, a_call_that_got_stuck_is_followed_by_a_canary_once_it_is_back)
{
	struct keeper k = well();

	keeper_note(&k, KEEPER_STUCK, 2000);
	cr_expect_eq(k.health, HEALTH_FAILED);
	cr_expect_eq(next(&k, 9000, false), STEP_PROVE);
	keeper_note(&k, KEEPER_PROVEN, 9000);
	cr_expect_eq(k.health, HEALTH_OK);
}

/* Whatever is noted in whatever order: it never asks to wait for a time that has come, which would be
 * spinning. */
Test(keeper, never_spins_and_never_works_unproven)
{
	uint64_t state = 7;

	for (int round = 0; round < 2000; round++) {
		struct keeper k = fresh();
		uint64_t now = 1000;
		for (int i = 0; i < 200; i++) {
			state = state * UINT64_C(6364136223846793005) + 1;
			unsigned dice = (unsigned)(state >> 40);
			uint64_t wake;
			bool work = dice & 1 && k.health == HEALTH_OK;
			enum keeper_step s = keeper_next(&k, now, work, (dice >> 1) % 6, &wake);
			dice >>= 4;
			switch (s) {
			case STEP_WAIT:
				cr_assert(wake == 0 || wake > now);
				now = wake && dice % 3 ? wake : now + dice % 7000;
				if (dice % 11 == 0)
					keeper_note(&k, KEEPER_RESUMED, now);
				break;
			case STEP_OPEN:
				cr_assert_eq(k.context, CONTEXT_NONE);
				keeper_note(&k,
					    dice % 4 == 0   ? KEEPER_NO_CONTEXT
					    : dice % 4 == 1 ? KEEPER_OPEN_FAILED
							    : KEEPER_OPENED,
					    now);
				break;
			case STEP_PROVE:
				cr_assert_eq(k.context, CONTEXT_UNPROVEN);
				keeper_note(&k, dice % 3 ? KEEPER_PROVEN : KEEPER_PROOF_FAILED, now);
				break;
			case STEP_WORK:
				cr_assert(k.context == CONTEXT_READY && k.health == HEALTH_OK && work);
				keeper_note(&k,
					    dice % 3   ? KEEPER_WORKED
					    : dice % 5 ? KEEPER_FAULT
						       : KEEPER_STUCK,
					    now);
				break;
			case STEP_CLOSE:
				keeper_note(&k, KEEPER_CLOSED, now);
				break;
			}
			now += dice % 50;
		}
		cr_assert_leq(k.recoveries, (now - 1000) / times.recovery_ms + 1);
	}
}
