"""version_skew.py FOLDER MODEL ANSWER: recorded clients of other versions, replayed byte for byte.

FOLDER has their requests; MODEL is the file they open, and ANSWER what a client of this version is answered.
"""

import os
import sys
import time

import npud

FOLDER, MODEL, ANSWER = sys.argv[1:4]
PATH = os.environ["NPUD_SOCKET"]
failures = 0


def check(good, what):
    global failures
    if not good:
        failures += 1
        print("FAIL:", what)


class Replay:
    """Sends what was recorded on a connection of its own."""

    def __init__(self, name):
        with open(os.path.join(FOLDER, name + ".hex")) as f:
            self.requests = [bytes.fromhex(line) for line in f if not line.startswith("#")]
        self.name = name
        self.stream = npud.Stream(PATH, time.monotonic() + 10)
        self.sent = 0

    def next(self):
        """(operation, code, fields of the answer) of the next request."""
        body = self.requests[self.sent]
        self.sent += 1
        self.stream.send(self.sent, body, time.monotonic() + 10)
        ident, answer = self.stream.receive(time.monotonic() + 10, 64 << 20)
        _, op, req = npud.unpack(body)[:3]
        answer = npud.unpack(answer)
        check(
            ident == self.sent and answer[0] == req, f"{self.name}: {op} was answered as {ident}, {answer[0]}"
        )
        return op, answer[1], answer[2]


def pass_file(token):
    client = npud.Client()  # for its way to the side socket only
    client.hello = {"token": token}
    fd = os.open(MODEL, os.O_RDONLY)
    file = client.pass_file(fd, "model")
    os.close(fd)
    client.close()
    return file


def works(name):
    """A client of the same major is answered as one of this version."""
    replay = Replay(name)
    answers = {}
    while replay.sent < len(replay.requests):
        op, code, fields = replay.next()
        check(code == 0, f"{name}: {op}: {code} {fields}")
        answers[op] = fields
        if op == "ping":  # the record has the handles that the daemon gave then
            check(
                pass_file(answers["hello"]["token"]) == 1,
                f"{name}: other handles than recorded: record it anew",
            )
        if op == "head.wait" and not fields["ready"]:
            replay.sent -= 1
            time.sleep(0.05)
    check(answers["head.open"].get("head") == 2, f"{name}: other handles than recorded: record it anew")
    run = answers["head.run"]
    check((run["ids"] + run["values"]).hex() == ANSWER, f"{name}: the words are not those of this version")


def is_refused():
    """One of another major is told so at each request, whatever else is in it, and named both."""
    replay = Replay("other_major")
    while replay.sent < len(replay.requests):
        op, code, fields = replay.next()
        check((code, fields["error"]) == (4, "VERSION"), f"other major: {op}: {code} {fields}")
        check(
            "protocol 2 " in fields["message"] and "npud 1;" in fields["message"],
            f"the message: {fields['message']}",
        )


works("older_minor")
works("newer_minor")
is_refused()
with npud.Client() as client:
    client.ping()
sys.exit(failures != 0)
