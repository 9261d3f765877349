/*
 * The one rule of what tickets mean for work: where a run may go, and with whose rows. Pure.
 */
#ifndef NPUD_WORK_H
#define NPUD_WORK_H

#include "arbiter.h"

struct work_ask {
	uint64_t ticket, number; /* under which it was sent; 0: none */
	bool usable;		 /* there is a device and it is well */
	bool device;		 /* the client insists on it */
};

struct work_place {
	bool device;
	uint64_t group; /* rows of different groups never share a launch; 0: of all who have no exclusive
			   ticket */
	enum ticket_class class; /* of its hold; without one NORMAL */
	uint32_t weight; /* by the class, of its rows among those of other clients that wait (batch.h) */
};

/*
 * Under a ticket: TICKET_OVER unless it is granted with this number, whatever the path. While an exclusive
 * ticket is out, work of others goes to the host, and HELD names the holder where it insists on the device.
 * Each class weighs four times the one below.
 */
int work_place(struct arbiter *a, uint64_t now, const struct work_ask *ask, struct work_place *out,
	       struct err *err);

/* The ticket that has the device for itself; 0: none has. What is under it has this `group`. */
uint64_t work_reserved(const struct arbiter *a);

#endif
