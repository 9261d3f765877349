"""Processes of a test that count what they did, and tell it when they end."""
import collections
import json
import os
import sys


def spawn(member, *arguments):
    """A process that runs member(...), which returns counts or ends by sys.exit: (its pid, the pipe it tells on)."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        try:
            os.write(theirs, json.dumps(member(*arguments)).encode())
            os._exit(0)
        except SystemExit as end:
            os.write(2, f"{end}\n".encode())
        except BaseException as end:
            os.write(2, f"FAIL: {end!r}\n".encode())
        os._exit(1)
    os.close(theirs)
    return pid, ours


def collect(members):
    """Waits for all that spawn() made: their counts together, and whether one failed."""
    total = collections.Counter()
    failed = False
    for pid, pipe in members:
        total.update(json.loads(os.read(pipe, 4096) or b"{}"))
        failed |= os.waitpid(pid, 0)[1] != 0
    return total, failed
