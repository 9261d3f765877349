"""
beside.py NPUD PID [TURNS]: a well-behaved client beside each kind of hostile one.

It must never get an error or wait for long; its latencies beside are printed against those alone, for reading:
nothing here depends on speed. With TURNS, of so many turns each, they are figures for scripts/bench beside, whose
bound is twice the 99th percentile alone.
"""
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

from sp import GREETING, Client, check, exactly, failures, file_pass, lives, pack, side, stream

NPUD, DAEMON = sys.argv[1], int(sys.argv[2])
TURNS = int(sys.argv[3]) if len(sys.argv) > 3 else 0
HANG = 10  # seconds after which a call counts as hung
LIMIT = 16 << 20


def resident():
    with open(f"/proc/{DAEMON}/smaps_rollup") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("Rss:"))


def descriptors():
    return len(os.listdir(f"/proc/{DAEMON}/fd"))


def settled(number, least, what):
    """Waits until number() is least or less."""
    for _ in range(100):
        if number() <= least:
            return
        time.sleep(0.1)
    check(False, f"{what}: {number()}, not {least}")


class Neighbour:
    """A process of its own that pings, a connection for all of its life, until it is asked for its times."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            os._exit(self.run(theirs))
        theirs.close()
        self.end = ours

    @staticmethod
    def run(end):
        try:
            c = Client()
            c.s.settimeout(HANG)
            c.hello()
            end.sendall(b"!")
            times = []
            while not select.select([end], [], [], 0.001)[0]:
                begun = time.perf_counter()
                code, body = c.call("ping")
                times.append(time.perf_counter() - begun)
                if code:
                    raise ValueError(f"ping: {code} {body}")
            end.sendall(struct.pack(f"<{len(times)}d", *times))
            return 0
        except Exception as e:  # whatever it is, it is the failure looked for
            print(f"FAIL: the well-behaved client: {e!r}", flush=True)
            return 1

    def stop(self):
        self.end.shutdown(socket.SHUT_WR)
        data = b""
        while part := self.end.recv(1 << 16):
            data += part
        check(os.waitpid(self.pid, 0)[1] == 0, "the well-behaved client failed")
        return sorted(struct.unpack(f"<{len(data) // 8}d", data))


def percentile(times, p):
    return times[min(len(times) - 1, int(len(times) * p))] if times else float("nan")


def measure(attack, seconds):
    n = Neighbour()
    n.end.recv(1)
    begun = time.monotonic()
    attack()
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    return n.stop()


# --- the hostile ones


def nothing():
    pass


def connect_and_close():
    for _ in range(2000):
        stream().close()


def half_greetings():
    held = [stream() for _ in range(100)]
    for s in held:
        s.sendall(GREETING[:4])
    time.sleep(1)
    for s in held:
        s.close()


def garbage():
    for i in range(20):
        for text in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", os.urandom(1 + 97 * i)):
            s = stream()
            try:
                s.sendall(text)
            except OSError:
                pass
            s.close()


def claims(size):
    s = stream()
    s.sendall(GREETING)
    exactly(s, 8)
    s.sendall(b"\x01" + struct.pack(">Q", size))
    try:
        check(s.recv(1) == b"", f"a frame of {size} bytes is not refused")
    except ConnectionError:
        pass
    except TimeoutError:
        check(False, f"a frame that claims {size} bytes is not disconnected within 10 s")
    s.close()


def claims_a_terabyte():
    for size in (1 << 40, 1 << 62, (1 << 64) - 1):
        claims(size)


def at_the_limit():
    c = Client()
    check(c.hello()["max_request"] == LIMIT, "the limit that hello tells")
    envelope = b"\x94\x01" + pack("ping") + b"\x07\x81" + pack("x")
    at = envelope + pack(b"\0" * (LIMIT - len(envelope) - 5))
    check(len(at) == LIMIT, "this test's sum")
    check(c.raw(at) == [7, 0, {}], "a message at the limit")
    c.s.close()
    c = Client()
    c.hello()
    try:
        c.raw(envelope + pack(b"\0" * (LIMIT + 1 - len(envelope) - 5)))
        check(False, "a message one byte over the limit is answered")
    except (EOFError, OSError):
        pass
    c.s.close()


def nested_nils():
    c = Client()
    c.hello()
    for _ in range(10):
        check(c.raw(b"\x91" * (1 << 20) + b"\xc0")[1] == 2, "1 MiB of nested arrays")
        check(c.raw(b"\x94\x01" + pack("ping") + b"\x01\x81" + pack("a") + b"\xdd\x00\x10\x00\x00" + b"\xc0" * (1 << 20))[1] == 2, "1 MiB of nils")
    c.s.close()


def never_reads():
    c = Client()
    c.hello()
    c.s.settimeout(0.5)
    try:
        for _ in range(20000):
            c.send("status", {})
    except OSError:
        pass
    time.sleep(1)
    c.s.close()


def a_byte_at_a_time():
    slow = [Client() for _ in range(20)]
    for c in slow:
        c.hello()
    message = b"\x80\0\0\1" + pack([1, "ping", 2, {}])
    frame = b"\x01" + struct.pack(">Q", len(message)) + message
    for byte in frame[:3]:
        for c in slow:
            c.s.sendall(bytes([byte]))
        time.sleep(1)
    slow[0].s.sendall(frame[3:])
    answer = exactly(slow[0].s, struct.unpack(">Q", exactly(slow[0].s, 9)[1:])[0])
    check(answer[4:7] == b"\x93\x02\x00", f"a message that came slowly: {answer!r}")
    for c in slow:
        c.s.close()


def stops():
    """Three processes that stop: in the middle of a message, before they read, and with a wait under way."""

    def child(step):
        pid = os.fork()
        if pid:
            os.waitpid(pid, os.WUNTRACED)
            return pid
        c = Client()
        c.hello()
        step(c)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)

    pids = [
        child(lambda c: c.s.sendall(b"\x01" + struct.pack(">Q", 1 << 20) + b"\x80\0\0\1" + b"x" * 1000)),
        child(lambda c: [c.send("clients", {}) for _ in range(16)]),
        child(lambda c: c.send("events.next", {})),
    ]
    time.sleep(1)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def two_hundred_requests_and_dies():
    for _ in range(5):
        c = Client()
        c.hello()
        for _ in range(200):
            c.send("events.next", {})
        c.s.close()


def descriptors_on_the_main_socket():
    file = os.open(NPUD, os.O_RDONLY)
    for step in (GREETING, GREETING[:3], b"garbage"):
        for _ in range(20):
            s = stream()
            socket.send_fds(s, [step], [file] * 8)
            s.close()
    os.close(file)


def passed_files():
    """Of every kind, as fast as it goes, and connections to the side socket that nobody uses."""
    token = Client().hello()["token"]
    crowd = [side() for _ in range(40)]
    kinds = [os.open(NPUD, os.O_RDONLY), os.open("/", os.O_RDONLY), *os.pipe()]
    for i in range(200):
        file_pass(token, [kinds[i % len(kinds)]])
    for fd in kinds:
        os.close(fd)
    for s in crowd:
        s.close()


def an_upload():
    c = Client()
    c.hello()
    part, size = c.call("upload.begin", {"name": "x", "bytes": 64 << 20})[1]["part"], 64 << 20
    at = 0
    while at < size:
        code, body = c.call("upload.put", {"file": 1, "at": at, "data": bytes(part)})
        check(code == 0, f"upload.put: {code} {body}")
        at = body["bytes"]
    c.s.close()


def idle_connections():
    before, had = resident(), descriptors()
    crowd = [Client() for _ in range(1000)]
    for c in crowd:
        c.hello()
    each = (resident() - before) / len(crowd)
    if not TURNS:
        print(f"an idle client: {each / 1024:.1f} KiB", flush=True)
    check(each < 16 * 1024, f"an idle client takes {each:.0f} bytes")
    for c in crowd:
        c.s.close()
    settled(descriptors, had, "descriptors after 1000 idle connections")


def second_daemon():
    for _ in range(3):
        path = os.environ["NPUD_SOCKET"]
        other = os.path.dirname(path) + "/other"
        r = subprocess.run([NPUD, "--socket", path, "--cache-dir", other, "--state-dir", other], capture_output=True, timeout=30)
        check(r.returncode == 75 and str(DAEMON).encode() in r.stderr, f"a second daemon: {r}")


before = descriptors()
for attack in (
    idle_connections,  # first: memory that others gave back would serve it
    connect_and_close,
    half_greetings,
    garbage,
    claims_a_terabyte,
    at_the_limit,
    nested_nils,
    never_reads,
    a_byte_at_a_time,
    stops,
    two_hundred_requests_and_dies,
    second_daemon,
    descriptors_on_the_main_socket,
    passed_files,
    an_upload,
):
    name = attack.__name__.replace("_", " ")
    ratios = []
    for turn in range(TURNS or 1):
        # Alone just before: other programs use the machine too.
        alone = measure(nothing, 1)
        times = measure(attack, 1)
        ratios.append(percentile(times, 0.99) / percentile(alone, 0.99))
        check(len(times) > 5, f"beside {name}: only {len(times)} pings")
        check(not times or times[-1] < HANG, f"beside {name}: a ping took {times[-1] if times else 0:.1f} s")
        lives(name, within=HANG)
    ratios.sort()
    if TURNS:
        print(f"beside.{attack.__name__}", "%.2f" % ratios[TURNS // 2], "<=2", "<=1.2", "%.2f" % ratios[0], "%.2f" % ratios[-1],
              "p99 of a client's pings over that without such peers", sep="\t", flush=True)  # fmt: skip
    else:
        print(f"beside {name}: {len(times)} pings, p99 {percentile(times, 0.99) * 1e6:.0f} us, {ratios[0]:.2f} times alone; "
              f"most {times[-1] * 1e3 if times else 0:.1f} ms", flush=True)  # fmt: skip
settled(descriptors, before, "descriptors at the end")
if failures or not TURNS:
    print("beside:", "good" if not failures else f"{len(failures)} failures")
sys.exit(bool(failures))
