#include "work.h"

static const struct ticket *exclusive_holder(const struct arbiter *a)
{
	const struct ticket *holder = arbiter_holder(a);
	return holder && holder->is.mode == TICKET_EXCLUSIVE ? holder : NULL;
}

uint64_t work_reserved(const struct arbiter *a)
{
	const struct ticket *holder = exclusive_holder(a);
	return holder ? holder->is.id : 0;
}

/* By the hold it is in: what joined one has its class. */
static enum ticket_class class_of(struct arbiter *a, const struct ticket *under)
{
	const struct ticket *parent = under && under->is.parent ? arbiter_find(a, under->is.parent) : NULL;

	return parent ? parent->is.class : under ? under->is.class : TICKET_NORMAL;
}

int work_place(struct arbiter *a, uint64_t now, const struct work_ask *ask, struct work_place *out,
	       struct err *err)
{
	static const uint32_t weights[] = {
		[TICKET_BATCH] = 1, [TICKET_NORMAL] = 4, [TICKET_INTERACTIVE] = 16, [TICKET_REALTIME] = 64};
	const struct ticket *holder = exclusive_holder(a);
	struct ticket *under = ask->ticket ? arbiter_find(a, ask->ticket) : NULL;
	char time[32];

	if (ask->ticket && !under)
		return err_set(
			err, NPU_E_TICKET_OVER,
			"ticket %llu ended, or its token is another; unset NPU_TICKET to work without one",
			(unsigned long long)ask->ticket);
	int r = under ? arbiter_use(a, now, under, ask->number, err) : 0;
	if (r)
		return r;
	bool own = holder && under && (under == holder || under->is.parent == holder->is.id);
	if (holder && !own && ask->device) {
		uint64_t left = holder->is.expires_ms > now ? holder->is.expires_ms - now : 0;
		err_set(err, NPU_E_HELD,
			"the device is reserved by ticket %llu of uid %u %s for another %s; leave the path "
			"to "
			"npud, which computes the same on the host, or wait",
			(unsigned long long)holder->is.id, holder->is.uid, holder->is.label,
			ticket_time(time, left));
		err->detail.holder = holder->is.id;
		err->detail.holder_uid = holder->is.uid;
		err->detail.remaining_ms = left;
		return err->code;
	}
	enum ticket_class class = class_of(a, under);
	*out = (struct work_place){
		.device = ask->usable && (!holder || own),
		.group = own ? holder->is.id : 0,
		.class = class,
		.weight = weights[class],
	};
	return 0;
}
