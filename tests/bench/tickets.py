#!/usr/bin/env python3
"""tests/bench/tickets.py [ROUNDS]: how soon the next holder's command runs, after the last one ended and after its
npu-hold was killed by SIGKILL. A daemon of its own; NPUD_BIN is the build folder. One line a figure, separated by
tabs, as scripts/bench reads it: name, value (the 99th percentile in ms), must, aim, the least, the largest, what it
is. All of it runs before other load of the machine, where that is allowed: it is npud that is measured.
BENCH_QUICK: fewer rounds."""
import os
import signal
import subprocess
import sys
import time

import server

HOLD = os.path.join(server.BIN, "client", "npu-hold")
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 50 if os.environ.get("BENCH_QUICK") else 200


class Hold:
    """One whose command says that it runs and ends when its stdin does."""

    def __init__(self):
        self.process = subprocess.Popen([HOLD, "-t", "10", "--", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)

    def runs(self):
        if not self.process.stdout.readline():
            sys.exit("tickets: a command did not run")
        return time.monotonic()

    def over(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def wait_for_waiter():
    while b"queued" not in subprocess.run([server.CTL, "tickets"], stdout=subprocess.PIPE, check=True).stdout:
        time.sleep(0.005)


def measure(end):
    times = []
    holder = Hold()
    holder.runs()
    for _ in range(ROUNDS):
        waiter = Hold()
        wait_for_waiter()
        begun = time.monotonic()
        end(holder)
        times.append((waiter.runs() - begun) * 1e3)
        holder.over()
        holder = waiter
    holder.over()
    return sorted(times)


def report(name, times, must, aim, what):
    value = times[min(len(times) - 1, int(len(times) * 0.99))]
    print(name, "%.2f" % value, "<=%g" % must, "<=%g" % aim, "%.2f" % times[0],
          "%.2f" % times[-1], "%s; median %.2f ms of %d" % (what, times[len(times) // 2], len(times)), sep="\t", flush=True)


def main():
    os.environ.pop("NPU_TICKET", None)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pass
    with server.running():
        report("ticket.release", measure(lambda h: h.process.stdin.close()), 10, 2,
               "ms from the end of a command to the next holder's running")
        report("ticket.killed", measure(lambda h: os.kill(h.process.pid, signal.SIGKILL)), 40, 10,
               "the same from SIGKILL of npu-hold")


main()
