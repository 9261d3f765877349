/*
 * The order of the tickets that wait: by class, then by arrival. A queued one rises a class every `aging_ms`,
 * and counts as of the highest class once `overtakes` later ones were granted before it: then only those that
 * came earlier can still be before it, so that every wait has a bound. Pure, as the arbiter is whose tickets
 * these are.
 */
#ifndef NPUD_QUEUE_H
#define NPUD_QUEUE_H

#include "arbiter.h"

unsigned queue_length(const struct arbiter *a);
/* The class it counts as at this time. */
enum ticket_class queue_class(const struct arbiter *a, uint64_t now, const struct ticket *t);
/* 1: next; 0: it does not wait. */
unsigned queue_place(const struct arbiter *a, uint64_t now, const struct ticket *t);

/* The one that is next; NULL: none. One that wants to be alone holds up nobody while somebody is `foreign`.
 */
struct ticket *queue_first(const struct arbiter *a, uint64_t now, bool foreign);
/* The exclusive one that came first and could be granted were nobody in its way; NULL: none. */
struct ticket *queue_first_exclusive(const struct arbiter *a);

/*
 * The longest a queued ticket can still wait, in ms: whatever classes come, for as long as trees end when
 * they are killed, nobody drains or moves, the device has not failed, and no stranger is there for one that
 * wants to be alone.
 */
uint64_t queue_bound(const struct arbiter *a, uint64_t now, const struct ticket *t);

/* Moves a queued one to `place` (1: first); it takes on the class of those there. BAD_VALUE. */
int queue_move(struct arbiter *a, uint64_t now, struct ticket *t, uint64_t place, struct err *err);

#endif
