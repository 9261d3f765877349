"""python_client.py MODEL BIG LOGITS X DAEMON_PID: what client/python/npud.py does, against a running daemon.

LOGITS are those of npu-head for the rows X of MODEL. BIG takes a while to load.
"""

import array
import os
import signal
import subprocess
import sys
import time

import npud

MODEL, BIG, LOGITS, X, DAEMON = sys.argv[1:6]
failures = 0


def check(good, what):
    global failures
    if not good:
        failures += 1
        print("FAIL:", what)


def raises(name, what, function, *args, **kwargs):
    """The Error that the function raises."""
    try:
        function(*args, **kwargs)
    except npud.Error as error:
        check(error.name == name, f"{what}: {error!r}, not {name}")
        check(error.message and error.message.isprintable(), f"{what}: message {error.message!r}")
        return error
    check(False, f"{what}: no {name}")
    return npud.Error("MALFORMED", "")


def packing():
    values = [
        None,
        True,
        False,
        0,
        127,
        128,
        255,
        256,
        65535,
        65536,
        2**32,
        2**64 - 1,
        -1,
        -(2**63),
        1.5,
    ]
    values += ["", "é" * 16, "x" * 255, "x" * 70000, b"", b"\xff" * 256, b"\0" * 70000]
    values += [[], list(range(15)), [0] * 70000, {}, {str(i): [i] for i in range(300)}]
    for value in values:
        check(npud.unpack(npud.pack(value)) == value, f"{str(value)[:40]} is not what was packed")
    for wrong in (
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 100 + b"\xc0",
        b"\xd4\x01\x00",
    ):
        try:
            npud.unpack(wrong)
            check(False, f"{wrong[:8]!r} was unpacked")
        except ValueError:
            pass


def running(client):
    with open(X, "rb") as f:
        x = f.read()
    with open(LOGITS, "rb") as f:
        expected = f.read()
    with client.open(MODEL) as head:
        logits = head.logits(x)
        check(logits.tobytes() == expected, "the logits are not npu-head's, bit for bit")
        rows = len(x) // 4 // head.h
        check(rows > client.hello["max_rows"], "the rows fit one request: this test needs more")
        numbers = array.array("f", x)
        check(
            head.logits(numbers[: head.h]).tobytes() == expected[: 4 * head.nv],
            "an array('f') as activations",
        )
        by_row = [list(numbers[i * head.h : (i + 1) * head.h]) for i in range(2)]
        check(head.logits(by_row).tobytes() == expected[: 8 * head.nv], "rows of numbers as activations")
        for row, words in enumerate(head.top(numbers, 3)):
            of_row = logits[row * head.nv : (row + 1) * head.nv]
            best = sorted(range(head.nv), key=lambda i: (-of_row[i], i))[:3]
            check(words == [(i, of_row[i]) for i in best], f"the best words of row {row}: {words}")
        for k in (0, -1, head.nv + 1):
            raises("BAD_VALUE", f"the best {k} words", head.top, numbers, k)
        raises("BAD_COUNT", "half a row", head.logits, x[: 2 * head.h])
        error = raises(
            "BAD_COUNT", "a row of another size", client.call, "head.run", head=head.handle, x=b"1234"
        )
        check(error.detail.get("needed") == 4 * head.h, f"its detail: {error.detail}")
    raises("CONNECTION_LOST", "a closed head", head.logits, x)
    check(
        not [
            c for c in client.clients() if c["session"] == client.hello["session"] and c["heads"] + c["files"]
        ],
        "a closed head is still held",
    )


def refusing(client):
    raises("UNKNOWN_OP", "no such operation", client.call, "no.such.op")
    check(raises("BAD_CONTAINER", "a text as a model", client.open, __file__).code == 18, "its code")
    raises("BAD_VALUE", "a directory as a model", client.open, "/")
    with open(MODEL, "r+b") as f:
        raises("BAD_VALUE", "a file that may be written", client.pass_file, f)
    try:
        client.open("/nowhere/model")
        check(False, "a file that is not there was opened")
    except FileNotFoundError:
        pass
    held = [c["files"] + c["heads"] for c in client.clients() if c["session"] == client.hello["session"]]
    check(held == [0], f"after refusals {held} handles are held")


def cancelling(client):
    """A waiting head.wait and a queued head.run are answered CANCELLED, and the rest goes on."""
    file = client.pass_file(os.open(BIG, os.O_RDONLY))
    head = client.call("head.open", file=file)["head"]
    wait = client.start("head.wait", head=head)
    client.ping()
    check(not wait.done(), "the head was loaded too fast for this test")
    check(wait.cancel(), "a waiting head.wait was not found")
    error = raises("CANCELLED", "a waiting head.wait", wait.result, 5)
    check(error.code == 10, f"its code: {error.code}")
    info = client.call("head.wait", head=head)
    while not info["ready"]:
        info = client.call("head.wait", head=head)

    x = bytes(4 * info["h"] * 64)
    runs = [client.start("head.run", head=head, rows=64, x=x, want="argmax") for _ in range(6)]
    check(runs[-1].cancel(), "a queued head.run was not found")
    raises("CANCELLED", "a queued head.run", runs[-1].result, 20)
    check(runs[0].result()["ids"] == bytes(4 * 64), "a run beside the cancelled one")
    for run in runs[1:-1]:
        run.cancel()  # running, queued or done: each is answered once
        try:
            check(len(run.result()["ids"]) == 4 * 64, "a run that was faster than its cancel")
        except npud.Error as error:
            check(error.name == "CANCELLED", f"a cancelled run: {error!r}")
    check(not client.call("cancel", req=10**9)["found"], "a request that never was is found")
    check(not runs[0].cancel(), "a request that was answered is found")
    client.call("head.close", head=head)
    client.call("file.close", file=file)


def timing_out(client):
    os.kill(int(DAEMON), signal.SIGSTOP)
    try:
        begin = time.monotonic()
        raises("TIMED_OUT", "a daemon that is stopped", client.start("ping").result, 0.3)
        check(time.monotonic() - begin < 5, "the time limit was not kept")
    finally:
        os.kill(int(DAEMON), signal.SIGCONT)
    client.ping()


def restarting(client):
    head = client.open(MODEL)
    session = client.hello["token"]
    print("restart", flush=True)  # the shell does, and says so
    sys.stdin.readline()
    client.ping()
    check(client.hello["token"] != session, "the session is the old one")
    again = client.open(MODEL)
    error = raises("CONNECTION_LOST", "a head of before the restart", head.logits, bytes(4 * head.h))
    check("open the head again" in error.message, f"its message: {error.message}")
    check(len(again.logits(bytes(4 * head.h))) == head.nv, "a head of after the restart")
    head.close()
    again.close()


def finding():
    error = raises("NO_DAEMON", "nobody listens", npud.Client, socket="/nowhere/npud.sock")
    check("/nowhere/npud.sock" in error.message, f"its message: {error.message}")
    said = subprocess.run(
        [os.path.join(os.environ["NPUD_BIN"], "daemon", "npud"), "--version"], capture_output=True
    )
    check(
        said.stdout.split()[-1].decode() == npud.VERSION, f"npud.VERSION is {npud.VERSION}, not {said.stdout}"
    )


packing()
finding()
with npud.Client(name="python_client.py") as client:
    running(client)
    refusing(client)
    cancelling(client)
    timing_out(client)
    restarting(client)
raises("CONNECTION_LOST", "a closed client", client.ping)
sys.exit(failures != 0)
