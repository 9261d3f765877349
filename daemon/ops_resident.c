/* The operations on what is resident: for those who look after the machine. */
#include "heads.h"
#include "plan.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int on_resident_evict(struct request *r, const struct req_resident_evict *q, struct rep_resident_evict *a,
		      struct err *err)
{
	struct object *o;
	char why[64];
	int result = object_find(&o, r->server, q->id, err);

	if (result)
		return result;
	a->bytes = object_bytes(o);
	snprintf(why, sizeof why, "uid %u (session %" PRIu64 ") said so", (unsigned)r->session->peer.uid,
		 r->session->number);
	return object_evict(o, why, err);
}

int on_resident_pin(struct request *r, const struct req_resident_pin *q, struct rep_resident_pin *a,
		    struct err *err)
{
	struct object *o;
	int result = object_find(&o, r->server, q->id, err);

	(void)a;
	if (result == 0)
		object_pin(o);
	return result;
}

int on_resident_unpin(struct request *r, const struct req_resident_unpin *q, struct rep_resident_unpin *a,
		      struct err *err)
{
	struct object *o;
	int result = object_find(&o, r->server, q->id, err);

	(void)a;
	if (result == 0)
		object_unpin(o);
	return result;
}

int on_resident_plan(struct request *r, const struct req_resident_plan *q, struct rep_resident_plan *a,
		     struct err *err)
{
	struct req_head_open open;
	struct load_request want;
	const struct file *file;

	(void)a;
	_Static_assert(sizeof open == sizeof *q, "they are one list of fields");
	memcpy(&open, q, sizeof open);
	int result = head_request(&want, &file, r->session, &open, err);
	return result ? result : plan_begin(r, file, &want, err);
}
