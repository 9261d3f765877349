/*
 * A ticket as it is kept over a restart of the daemon: plain data, of fixed width, the same in memory and on
 * disk. Times are milliseconds of CLOCK_BOOTTIME, so a record means something only until the next boot.
 */
#ifndef NPUD_TICKET_H
#define NPUD_TICKET_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ticket_mode { TICKET_EXCLUSIVE, TICKET_SHARED };
enum ticket_class { TICKET_BATCH, TICKET_NORMAL, TICKET_INTERACTIVE, TICKET_REALTIME };
enum ticket_state {
	TICKET_QUEUED,
	TICKET_OFFERED,	 /* granted, not yet confirmed */
	TICKET_GRANTED,	 /* confirmed: the lease runs */
	TICKET_EXPIRING, /* over: the grace runs, then whatever is left of its tree is killed */
	TICKET_RELEASED,
	TICKET_EXPIRED,
	TICKET_REVOKED,
	TICKET_LOST, /* its holder died or went away */
};

struct ticket_record {
	uint64_t id, number; /* the number rises with every offer; an older one is refused (fencing) */
	uint64_t seq;	     /* order of arrival */
	uint64_t parent;     /* of a ticket that joined another's hold; 0: none */
	uint64_t requested_ms, aged_ms /* since when it rises in class */, offer_until_ms, granted_ms;
	uint64_t duration_ms, expires_ms; /* 0: without an end */
	uint64_t grace_ms, kill_ms, ended_ms, used_ms;
	uint64_t asked_nonce, asked_req;    /* of the request it was made for, so that a repeat finds it */
	uint64_t owner_start, keeper_start; /* clock ticks since boot: tell a reused pid from the process */
	uint32_t uid, gid, pid;
	uint32_t keeper;	    /* process that ends the tree when the owner dies; 0: none */
	uint32_t overtaken, lapsed; /* grants to later ones; offers that were not confirmed */
	uint8_t mode, class, state, verdict /* the state in which an expiring one will end */;
	uint8_t alone, tree, warned, told_to_yield, killed, stuck;
	uint8_t unused[6];
	uint8_t token[16];
	char label[64], command[128], reason[96];
	char cgroup[200]; /* that holds the tree; empty: none */
};
/* What one user held and computed, halved every day. */
struct usage_record {
	double held_seconds, computed_seconds;
	uint64_t tickets, at_ms; /* granted; when it was last brought up to date */
};
static_assert(sizeof(struct usage_record) == 32, "usage on disk");
static_assert(sizeof(struct ticket_record) == 688, "tickets on disk");

const char *ticket_mode_name(enum ticket_mode mode);
const char *ticket_class_name(enum ticket_class class);
const char *ticket_state_name(enum ticket_state state);
/* The class of a name; false: there is none. */
bool ticket_class_of(const char *name, size_t size, enum ticket_class *out);
/* "9 min 30 s", for sentences. Returns `to`. */
const char *ticket_time(char to[static 32], uint64_t ms);

#endif
