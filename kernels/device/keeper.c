#include "keeper.h"
#include <string.h>

#define PARKED_POLL_MS 1000u

const char *health_name(enum health h)
{
	switch (h) {
	case HEALTH_OK:
		return "ok";
	case HEALTH_DEGRADED:
		return "degraded";
	case HEALTH_FAILED:
		return "failed";
	case HEALTH_ABSENT:
		break;
	}
	return "absent";
}

void keeper_init(struct keeper *k, const struct keeper_times *times, uint64_t now)
{
	*k = (struct keeper){.times = *times, .health = HEALTH_DEGRADED, .not_before = now, .last_used = now};
}

static enum keeper_step wait_until(uint64_t *wake, uint64_t at)
{
	*wake = at;
	return STEP_WAIT;
}

/* Without a context: one is wanted for work, and to find out whether the device is well again. */
static enum keeper_step without(struct keeper *k, uint64_t now, bool work, uint32_t parked, uint64_t *wake)
{
	if (k->health == HEALTH_OK && !work)
		return wait_until(wake, 0);
	if (now < k->not_before)
		return wait_until(wake, k->not_before);
	if (parked >= KEEPER_PARKED_MAX)
		return wait_until(wake, now + PARKED_POLL_MS);
	if (k->health == HEALTH_FAILED) {
		k->health = HEALTH_DEGRADED;
		k->recovered = now;
		k->recoveries++;
	}
	return STEP_OPEN;
}

static enum keeper_step ready(struct keeper *k, uint64_t now, bool work, uint64_t *wake)
{
	uint64_t idle = now - k->last_used;

	if (work && idle >= k->times.stale_ms) {
		k->context = CONTEXT_UNPROVEN;
		k->renewable = true;
		return STEP_PROVE;
	}
	if (work)
		return STEP_WORK;
	if (idle >= k->times.idle_ms)
		return STEP_CLOSE;
	return wait_until(wake, k->last_used + k->times.idle_ms);
}

enum keeper_step keeper_next(struct keeper *k, uint64_t now, bool work, uint32_t parked, uint64_t *wake)
{
	*wake = 0;
	switch (k->context) {
	case CONTEXT_NONE:
		return without(k, now, work, parked, wake);
	case CONTEXT_UNPROVEN:
		return STEP_PROVE;
	case CONTEXT_READY:
		return ready(k, now, work, wake);
	case CONTEXT_BROKEN:
		break;
	}
	return STEP_CLOSE;
}

static void fault(struct keeper *k, uint64_t now)
{
	uint64_t interval = k->times.recovery_ms;

	if (k->recoveries && now - k->recovered < interval) {
		k->health = HEALTH_FAILED;
		k->not_before = k->recovered + interval;
		return;
	}
	k->health = HEALTH_DEGRADED;
	k->not_before = now;
	k->recovered = now;
	k->recoveries++;
}

void keeper_note(struct keeper *k, enum keeper_event event, uint64_t now)
{
	switch (event) {
	case KEEPER_OPENED:
		k->context = CONTEXT_UNPROVEN;
		k->renewable = false;
		break;
	case KEEPER_NO_CONTEXT:
		k->health = HEALTH_DEGRADED;
		k->not_before = now + k->times.retry_ms;
		break;
	case KEEPER_OPEN_FAILED:
		k->health = HEALTH_FAILED;
		k->not_before = now + k->times.recovery_ms;
		break;
	case KEEPER_PROVEN:
		k->context = CONTEXT_READY;
		k->health = HEALTH_OK;
		k->last_used = now;
		break;
	case KEEPER_PROOF_FAILED:
		k->context = CONTEXT_BROKEN;
		if (!k->renewable)
			fault(k, now);
		break;
	case KEEPER_WORKED:
		k->last_used = now;
		break;
	case KEEPER_FAULT:
		k->context = CONTEXT_BROKEN;
		fault(k, now);
		break;
	case KEEPER_STUCK:
		if (k->context == CONTEXT_READY)
			k->context = CONTEXT_UNPROVEN;
		k->renewable = false;
		k->health = HEALTH_FAILED;
		k->not_before = now + k->times.recovery_ms;
		break;
	case KEEPER_RESUMED:
		if (k->context == CONTEXT_READY) {
			k->context = CONTEXT_UNPROVEN;
			k->renewable = true;
		}
		break;
	case KEEPER_CLOSED:
		k->context = CONTEXT_NONE;
		break;
	}
}
