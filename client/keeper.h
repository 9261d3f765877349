/*
 * The keeper of a hold: the process of npu-hold that talks to the daemon, starts the command, and ends
 * whatever it started. It is not the one its user sees and signals (the front, npu-hold.c), does not die with
 * that, and is the subreaper of all processes under it.
 */
#ifndef NPU_KEEPER_H
#define NPU_KEEPER_H

#include "npu.h"
#include <signal.h>

enum {
	HOLD_EXPIRED = 124,
	HOLD_FAILED = 125,
	HOLD_CANNOT_RUN = 126,
	HOLD_NOT_FOUND = 127,
};

struct hold {
	const char *socket;
	struct npu_ticket_options ticket;
	int64_t wait_ms;  /* -1: for ever */
	int early_signal; /* sent to the command `early_ms` before the end; 0: none */
	int64_t early_ms;
	char **command;			 /* NULL: hold until interrupted */
	struct sigaction (*found)[NSIG]; /* as npu-hold was started with, for the command */
	sigset_t mask;
};

/* What the front tells the keeper: a signal that it got. The other way goes a byte: stop, as the command did.
 */
struct hold_signal {
	int number;
	bool from_kernel; /* by the terminal: the command has got it, too */
};

/*
 * Runs in the process that was forked for it; `front` is its end of a socket pair of struct hold_signal,
 * whose end means that the front is gone. Returns the exit status of npu-hold.
 */
int keeper_run(const struct hold *hold, int front);

/* Stdin and stdout are the command's alone: who is at the other end of a pipe sees when it is done with them.
 */
void keeper_leave_pipes(void);

/* Ends all descendants of the calling process: SIGTERM, after `grace_ms` SIGKILL, until none is left. */
void keeper_end_tree(int64_t grace_ms);

#endif
