"""chaos.py BIN WORK STORE SECONDS SEED: everything at once, and something is killed all the time.

A daemon on a device at fault, with a store in STORE (small, so that it fills up); clients that run heads, others that
reserve the NPU. The daemon, clients, npu-hold and its command are killed at random moments; the daemon comes back.

Never: a wrong bit, two holders at a time, a command that outlives its hold, a daemon that does not come back, and
afterwards something of the dead, or a store that does not hold together. Prints what was done."""
import collections
import ctypes
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time

import npud

BIN, WORK, STORE, SECONDS, SEED = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
MODELS, RUNNERS, HOLDERS, ROWS, H = 4, 3, 3, 12, 256
PR_SET_PDEATHSIG = 1
rng = random.Random(SEED)
intervals = os.path.join(WORK, "intervals")
log = open(os.path.join(WORK, "npud.log"), "ab")


def program(name):
    return os.path.join(BIN, "daemon" if name == "npud" else "client", name)


def dies_with_us():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def fail(text):
    sys.exit(f"FAIL: seed {SEED}: {text}")


def start_daemon():
    daemon = subprocess.Popen(
        [program("npud"), "--foreground", "--config", os.path.join(WORK, "npud.conf"), "--socket",
         os.environ["NPUD_SOCKET"], "--cache-dir", os.path.join(WORK, "cache"), "--state-dir",
         os.path.join(WORK, "state")], stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=dies_with_us)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if daemon.poll() is not None:
            fail(f"the daemon ended by itself with {daemon.returncode}")
        try:
            with npud.Client(name="is it there"):
                return daemon
        except npud.Error:
            time.sleep(0.02)
    fail("the daemon does not answer after 20 s")


def ctl(*words):
    done = subprocess.run([program("npuctl"), *words], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        fail(f"npuctl {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


# Rows are the same in all processes; what they must give is what an untroubled daemon gave.

def rows_of(model, count):
    local = random.Random(model)
    return [local.uniform(-2, 2) for _ in range(count * H)]


class Runner:
    """Opens heads and compares every bit, until it is killed."""

    def __init__(self, right):
        self.right = right

    def __call__(self, seed):
        local = random.Random(seed)
        while True:
            try:
                self.session(local)
            except npud.Error as error:
                if error.name in ("MALFORMED", "VERSION", "TOO_LARGE", "BAD_VALUE", "BAD_COUNT"):
                    fail(f"a runner: {error!r}")
                time.sleep(0.02)  # the daemon is away, or has no room for a moment

    def session(self, local):
        with npud.Client(name="runner") as client:
            for _ in range(local.randrange(1, 6)):
                model = local.randrange(MODELS)
                with client.open(os.path.join(WORK, f"{model}.safetensors")) as head:
                    for _ in range(local.randrange(1, 20)):
                        count = local.randrange(1, ROWS + 1)
                        logits = head.logits(rows_of(model, ROWS)[:count * H]).tobytes()
                        if logits != self.right[model][:len(logits)] or len(logits) != 4 * count * head.nv:
                            fail(f"model {model}, {count} rows: other bits than alone")


def hold(seed):
    """Reserves for a command that notes when it has the NPU, again and again; is killed with npu-hold."""
    local = random.Random(seed)
    while True:
        seconds = local.uniform(0.05, 1.5)
        subprocess.run(
            [program("npu-hold"), "-t", f"{local.choice((400, 5000))}ms", "-g", "200ms", "-l", f"holder {seed}",
             "--", sys.executable, "-c", NOTE, intervals, str(seconds)],
            stdin=subprocess.DEVNULL, stderr=log, check=False)


# One line at its begin and one every few milliseconds: its last is a moment at which it still had the NPU.
NOTE = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
until = time.monotonic() + float(sys.argv[2])
while (now := time.monotonic()) < until:
    os.write(fd, f"{os.getpid()} {now}\\n".encode())
    time.sleep(0.004)
"""


def spawn(work, seed):
    pid = os.fork()
    if pid == 0:
        dies_with_us()
        try:
            work(seed)
        except SystemExit as end:
            os.write(2, f"{end}\n".encode())
        except BaseException as end:  # noqa: B902: whatever it is, it is told and the process ends here
            os.write(2, f"FAIL: {end!r}\n".encode())
        os._exit(1)
    return pid


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(child) for child in f.read().split()]


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Chaos:
    def __init__(self, daemon, right):
        self.daemon = daemon
        self.seeds = itertools.count(SEED * 1000)
        self.done = collections.Counter()
        self.members = [self.member(Runner(right)) for _ in range(RUNNERS)]
        self.members += [self.member(hold) for _ in range(HOLDERS)]

    def member(self, work):
        seed = next(self.seeds)
        return work, spawn(work, seed)

    def nobody_failed(self):
        for _, pid in self.members:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                fail(f"a member ended by itself with status {status}, see above")

    def daemon_dies(self):
        self.daemon.kill()
        self.daemon.wait()
        time.sleep(rng.choice((0, 0.05, 0.4)))
        self.daemon = start_daemon()

    def member_dies(self):
        i = rng.randrange(len(self.members))
        work, pid = self.members[i]
        kill(pid)
        os.waitpid(pid, 0)
        self.members[i] = self.member(work)

    def hold_dies(self):
        """npu-hold, what it started, or what that started: any process below a holder."""
        _, pid = rng.choice([m for m in self.members if m[0] is hold])
        try:
            below = children_of(pid)
            while below and rng.random() < 0.6:
                pid = rng.choice(below)
                below = children_of(pid)
        except FileNotFoundError:
            return
        if all(pid != member for _, member in self.members):
            kill(pid)

    def run(self):
        until = time.monotonic() + SECONDS
        deeds = (self.daemon_dies, self.member_dies, self.member_dies, self.hold_dies, self.hold_dies)
        while time.monotonic() < until:
            time.sleep(rng.uniform(0.02, 0.6))
            deed = rng.choice(deeds)
            deed()
            self.done[deed.__name__] += 1
            self.nobody_failed()

    def stop(self):
        for _, pid in self.members:
            kill(pid)
            os.waitpid(pid, 0)


def never_two_holders():
    first, last = {}, {}
    with open(intervals) as f:
        for line in f:
            pid, now = line.split()
            first.setdefault(pid, float(now))
            last[pid] = float(now)
    spans = sorted((first[pid], last[pid], pid) for pid in first)
    for one, other in zip(spans, spans[1:]):
        if other[0] < one[1]:
            fail(f"two held at once: {one} and {other}")
    return len(spans)


def nothing_is_left(daemon):
    until = time.monotonic() + 20
    while True:
        tickets = json.loads(ctl("tickets", "--json"))["tickets"]
        status = json.loads(ctl("status", "--json"))
        noting = subprocess.run(["pgrep", "-f", intervals], capture_output=True, check=False).stdout.decode().split()
        others = [pid for pid in noting if int(pid) != os.getpid()]
        if not tickets and status["clients"] == 1 and not others:
            break
        if time.monotonic() > until:
            fail(f"something of the dead is left: tickets {tickets}, {status['clients']} clients, processes {others}")
        time.sleep(0.1)
    ctl("store", "verify")
    return daemon


def what_is_right():
    right = []
    with npud.Client(name="alone") as client:
        for model in range(MODELS):
            with client.open(os.path.join(WORK, f"{model}.safetensors")) as head:
                right.append(head.logits(rows_of(model, ROWS)).tobytes())
    return right


def configure(faults):
    with open(os.path.join(WORK, "npud.conf"), "w") as f:
        f.write(f"[resident]\nkeep = 0\n[store]\npath = {STORE}\nmin_free_bytes = 0\n[ticket]\ngrace = 1\n"
                f"[device]\nkind = {'soft' if faults else 'none'}\nsettings = {faults}\nrecovery = 0\nlaunch_ms = 500\n"
                f"[head]\npath = {'alternate' if faults else 'host'}\n")


open(intervals, "w").close()
configure("")
daemon = start_daemon()
right = what_is_right()
daemon.terminate()
daemon.wait()
configure("garbage/17 flip/23 stale/29 timeout/31 error/37 hang/211")
chaos = Chaos(start_daemon(), right)
try:
    chaos.run()
finally:
    chaos.stop()
spans = never_two_holders()
nothing_is_left(chaos.daemon)
if what_is_right() != right:
    fail("other bits afterwards")
chaos.daemon.terminate()
if chaos.daemon.wait(20):
    fail(f"the daemon ended with {chaos.daemon.returncode}")
if spans < 2 or not chaos.done["daemon_dies"]:
    fail(f"nothing much happened: {spans} holds, {dict(chaos.done)}")
print(spans, "holds;", ", ".join(f"{name} {count} times" for name, count in sorted(chaos.done.items())))
