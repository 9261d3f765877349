"""A handwritten client, low enough to misbehave with: SP framing, MessagePack, the side socket."""
import array
import os
import socket
import struct
import time

GREETING = b"\x00SP\x00\x00\x30\x00\x00"
PATH = os.environ["NPUD_SOCKET"]
failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print("FAIL:", what)


# --- as much MessagePack as is needed


def pack(v):
    if isinstance(v, bool):
        return b"\xc3" if v else b"\xc2"
    if isinstance(v, int):
        return bytes([v]) if 0 <= v < 128 else b"\xcf" + struct.pack(">Q", v)
    if isinstance(v, str):
        b = v.encode()
        return b"\xda" + struct.pack(">H", len(b)) + b
    if isinstance(v, bytes):
        return b"\xc6" + struct.pack(">I", len(v)) + v
    if isinstance(v, list):
        return b"\xdd" + struct.pack(">I", len(v)) + b"".join(map(pack, v))
    return b"\xdf" + struct.pack(">I", len(v)) + b"".join(pack(k) + pack(x) for k, x in v.items())


def unpack(b, i=0):
    t = b[i]
    i += 1

    def number(form):
        size = struct.calcsize(form)
        return struct.unpack_from(form, b, i)[0], i + size

    def several(n, i):
        out = []
        for _ in range(n):
            v, i = unpack(b, i)
            out.append(v)
        return out, i

    def pairs(n, i):
        flat, i = several(2 * n, i)
        return dict(zip(flat[::2], flat[1::2])), i

    if t < 0x80:
        return t, i
    if t < 0x90:
        return pairs(t & 15, i)
    if t < 0xA0:
        return several(t & 15, i)
    if t < 0xC0:
        n = t & 31
        return b[i : i + n].decode(), i + n
    if t in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[t], i
    forms = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
    if t in forms:
        return number(forms[t])
    n, i = number({0: ">B", 1: ">H", 2: ">I"}[(t - 0xC4) % 3 if t < 0xC7 else (t - 0xD9) % 3 if t < 0xDC else 1 + (t & 1)])
    if t in (0xC4, 0xC5, 0xC6):
        return b[i : i + n], i + n
    if t in (0xD9, 0xDA, 0xDB):
        return b[i : i + n].decode(), i + n
    if t in (0xDC, 0xDD):
        return several(n, i)
    if t in (0xDE, 0xDF):
        return pairs(n, i)
    raise ValueError(hex(t))


# --- the main socket: SP over ipc


def stream():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(PATH)  # blocking: a full backlog is waited for
    s.settimeout(10)
    return s


def exactly(s, n):
    out = b""
    while len(out) < n:
        part = s.recv(n - len(out))
        if not part:
            raise EOFError("the daemon closed the connection")
        out += part
    return out


class Client:
    def __init__(self):
        self.nonce = os.urandom(16)
        self.s = stream()
        self.s.sendall(GREETING)
        self.id = 0x80000000
        self.req = 0
        peer = exactly(self.s, 8)
        check(peer == b"\x00SP\x00\x00\x31\x00\x00", f"greeting of the daemon {peer!r}")

    def raw(self, body):
        self.raw_send(body)
        return self.raw_answer()

    def raw_send(self, body):
        self.id += 1
        payload = struct.pack(">I", self.id) + body
        self.s.sendall(b"\x01" + struct.pack(">Q", len(payload)) + payload)

    def raw_answer(self, mine=True):
        frame = exactly(self.s, 9)
        check(frame[0] == 1, f"frame type {frame[0]}")
        answer = exactly(self.s, struct.unpack(">Q", frame[1:])[0])
        check(not mine or struct.unpack(">I", answer[:4])[0] == self.id, "the answer has another request id")
        value, end = unpack(answer, 4)
        check(end == len(answer), "bytes behind the answer")
        check(isinstance(value, list) and len(value) == 3, f"envelope {value!r}")
        return value

    def send(self, op, fields, major=1):
        self.req += 1
        self.raw_send(pack([major, op, self.req, fields]))

    def answer(self, mine=True):
        """mine: to the request sent last."""
        return self.raw_answer(mine)[1:]

    def call(self, op, fields=None, major=1):
        self.send(op, fields or {}, major)
        req, code, body = self.raw_answer()
        check(req == self.req, f"{op}: req {req}, not {self.req}")
        return code, body

    def hello(self):
        code, body = self.call("hello", {"name": "hostile", "version": "1", "minor": 0, "nonce": self.nonce})
        check(code == 0, f"hello: {code} {body}")
        return body


def refused(answer, code, name, what):
    found, body = answer[-2:]
    check(found == code, f"{what}: code {found}, not {code} ({name}): {body}")
    if found:
        check(body.get("error") == name, f"{what}: error {body.get('error')}, not {name}")
        text = body.get("message", "")
        check(text and text.isprintable(), f"{what}: message {text!r}")


def lives(what, within=1):
    start = time.monotonic()
    c = Client()
    c.hello()
    code, _ = c.call("ping")
    took = time.monotonic() - start
    check(code == 0, f"ping after {what}: {code}")
    check(took < within, f"ping after {what} took {took:.2f} s")
    c.s.close()


# --- the side socket


def side():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(PATH + ".fd")
    s.settimeout(10)
    return s


def side_send(packet, fds=()):
    s = side()
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    s.sendmsg([packet], ancillary)
    answer = s.recv(65536)
    s.close()
    return unpack(answer)[0] if answer else [None, None, {}]


def file_pass(token, fds, req=5):
    answer = side_send(pack([1, "file.pass", req, {"token": token, "name": "some file"}]), fds)
    check(answer[0] == req, f"file.pass: req {answer[0]}")
    return answer
