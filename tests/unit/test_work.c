#include "work.h"
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

static struct arbiter a;
static struct err err;
static struct work_place place;

static void up(void)
{
	static const struct arbiter_limits limits = {.shared_slots = 2,
						     .aging_ms = 60000,
						     .default_ms = 600000,
						     .max_ms = 3600000,
						     .grace_ms = 10000,
						     .offer_ms = 5000,
						     .kill_ms = 5000,
						     .queue = 64,
						     .per_uid = 32,
						     .overtakes = 8,
						     .lapses = 3};
	arbiter_init(&a, &limits);
}

static void down(void)
{
	arbiter_fini(&a);
}

TestSuite(work, .init = up, .fini = down);

static struct ticket *granted(enum ticket_mode mode, const struct ticket *parent)
{
	struct ticket_wish w = {.mode = mode, .parent = parent};
	struct decision d;
	struct ticket *t;
	cr_assert(eq(int, arbiter_request(&a, 0, &w, &t, &err), 0));
	while (arbiter_decide(&a, 0, &d))
		;
	cr_assert(eq(int, arbiter_confirm(&a, 0, t, t->is.number, &err), 0));
	return t;
}

static int ask(const struct ticket *under, bool device)
{
	const struct work_ask w = {.ticket = under ? under->is.id : 0,
				   .number = under ? under->is.number : 0,
				   .usable = true,
				   .device = device};
	place = (struct work_place){.group = 99};
	return work_place(&a, 1, &w, &place, &err);
}

Test(work, without_any_ticket_everybody_may_use_the_device)
{
	cr_assert(eq(int, ask(NULL, true), 0));
	cr_assert(place.device);
	cr_assert(eq(u64, place.group, 0));
}

Test(work, beside_an_exclusive_ticket_goes_to_the_host_and_insisting_is_refused_by_name)
{
	struct ticket *t = granted(TICKET_EXCLUSIVE, NULL);
	cr_assert(eq(int, ask(NULL, false), 0));
	cr_assert(not(place.device));
	cr_assert(eq(int, ask(NULL, true), NPU_E_HELD));
	cr_assert(eq(u64, err.detail.holder, t->is.id));
}

Test(work, under_the_exclusive_ticket_uses_the_device_in_a_group_of_its_own)
{
	struct ticket *t = granted(TICKET_EXCLUSIVE, NULL), *inner = granted(TICKET_SHARED, t);
	cr_assert(eq(int, ask(t, true), 0));
	cr_assert(place.device);
	cr_assert(eq(u64, place.group, t->is.id));
	cr_assert(eq(int, ask(inner, true), 0));
	cr_assert(place.device);
	cr_assert(eq(u64, place.group, t->is.id));
}

Test(work, shared_tickets_take_the_device_from_nobody)
{
	struct ticket *t = granted(TICKET_SHARED, NULL);
	cr_assert(eq(int, ask(NULL, true), 0));
	cr_assert(place.device);
	cr_assert(eq(int, ask(t, true), 0));
	cr_assert(place.device);
}

Test(work, under_a_ticket_that_is_over_or_with_an_old_number_is_refused_on_every_path)
{
	struct ticket *t = granted(TICKET_EXCLUSIVE, NULL), old = *t;
	old.is.number--;
	cr_assert(eq(int, ask(&old, false), NPU_E_TICKET_OVER));
	arbiter_revoke(&a, 1, t, "by root");
	cr_assert(eq(int, ask(t, false), NPU_E_TICKET_OVER));
	old.is.id = 77;
	cr_assert(eq(int, ask(&old, false), NPU_E_TICKET_OVER));
}

Test(work, without_a_usable_device_goes_to_the_host)
{
	const struct work_ask w = {0};
	cr_assert(eq(int, work_place(&a, 1, &w, &place, &err), 0));
	cr_assert(not(place.device));
}

Test(work, rows_weigh_as_the_class_of_the_hold_they_are_under_and_as_normal_without_one)
{
	static const uint32_t weights[] = {
		[TICKET_BATCH] = 1, [TICKET_NORMAL] = 4, [TICKET_INTERACTIVE] = 16, [TICKET_REALTIME] = 64};
	cr_assert(eq(int, ask(NULL, false), 0));
	cr_assert(eq(u32, place.weight, weights[TICKET_NORMAL]));
	for (enum ticket_class c = TICKET_BATCH; c <= TICKET_REALTIME; c++) {
		struct ticket *t = granted(TICKET_EXCLUSIVE, NULL), *inner = granted(TICKET_SHARED, t);
		t->is.class = (uint8_t)c;
		inner->is.class = TICKET_REALTIME;
		cr_assert(eq(int, ask(t, false), 0));
		cr_assert(eq(u32, place.weight, weights[c]));
		cr_assert(eq(int, ask(inner, false), 0));
		cr_assert(eq(u32, place.weight, weights[c]), "one that joined rises above its hold");
		arbiter_release(&a, 1, t);
		struct decision d;
		while (arbiter_decide(&a, 1, &d))
			;
	}
}
