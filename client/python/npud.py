"""A client of npud, the daemon that shares one NPU and its resident heads between programs.

Only the standard library, and no code of libnpu: the protocol (docs/protocol.md) a second time.

    import npud

    with npud.Client() as client, client.open("model.gguf") as head:
        for word, score in head.top([1.0] * head.h, 5)[0]:
            print(word, score)

Every operation of the daemon, of newer ones too, is a generic call: `client.call("status")` returns the
fields of the answer as a dict. What fails raises `npud.Error`. A Client is one thread's at a time; several
requests may be in flight (`start`). A lost connection is made again by the next call, which says hello; heads
of before are gone then, and say so.
"""

import array
import errno
import os
import socket
import stat
import struct
import sys
import time

__all__ = ["Client", "Error", "Head", "Pending", "Stream", "Weights", "pack", "unpack"]

MAJOR, MINOR = 1, 1
VERSION = "0.1.0"
CONNECT_SECONDS = 5.0  # for a daemon that restarts to be back
SIDE_SECONDS = 5.0
WAIT_MS = 20000  # one head.wait
DEPTH_MAX = 32
SLACK = 4096  # bytes of a message beside its bulk
START = "start one with: npud --foreground"
STOPPED = "the daemon may be stopped or not be npud"

# What may be asked again after a loss: it does no harm twice, or the daemon knows it again by `req`.
REPEATABLE = {"ping", "status", "clients", "head.list", "events.list", "kick"}

_NUMBERS = {
    "MALFORMED": 1,
    "TOO_LARGE": 2,
    "VERSION": 4,
    "BAD_VALUE": 6,
    "NOT_ALLOWED": 7,
    "TIMED_OUT": 11,
    "NO_DAEMON": 15,
    "IO": 16,
    "CONNECTION_LOST": 17,
    "BAD_COUNT": 21,
}


class Error(Exception):
    """A refusal of the daemon, or a failure on the way to it.

    name: "BUSY" and the like, of docs/protocol.md; code: its number; message: what, why and what to do;
    detail: a dict with what is known of needed, limit, depth, retry_ms, file, tensor.
    """

    def __init__(self, name, message, code=None, detail=None):
        super().__init__(message)
        self.name = name
        self.code = _NUMBERS[name] if code is None else code
        self.message = message
        self.detail = detail or {}

    def __repr__(self):
        return f"npud.Error({self.name}, {self.message!r})"


# MessagePack, as much as the protocol has: nil, bool, integers, floats, str, bin, arrays, maps.


# What says its size: the first tag, and the forms of the size that go with this and the following tags.
_BIN, _STR, _ARRAY, _MAP, _UINT = (0xC4, "BHI"), (0xD9, "BHI"), (0xDC, "HI"), (0xDE, "HI"), (0xCC, "BHIQ")
_SIZED = {kind[0] + i: (kind, form) for kind in (_BIN, _STR, _ARRAY, _MAP) for i, form in enumerate(kind[1])}
_SCALARS = dict(zip(range(0xCA, 0xD4), "fdBHIQbhiq"))


def _tagged(size, kind, short=0, room=0):
    """Tag and size (or value) in as few bytes as it takes; below `room` it is part of the tag `short`."""
    if size < room:
        return bytes([short | size])
    tag, forms = kind
    for i, form in enumerate(forms):
        if size < 1 << 8 * struct.calcsize(form):
            return struct.pack(">B" + form, tag + i, size)
    raise Error("BAD_VALUE", f"{size} is more than a message can say")


def _pack(value, parts):
    if value is None or isinstance(value, bool):
        parts.append({None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value])
    elif isinstance(value, int) and value >= 0:
        parts.append(_tagged(value, _UINT, 0, 128))
    elif isinstance(value, int):
        if value < -(1 << 63):
            raise Error("BAD_VALUE", f"{value} is less than a message can say")
        parts.append(struct.pack(">Bq", 0xD3, value))
    elif isinstance(value, float):
        parts.append(struct.pack(">Bd", 0xCB, value))
    elif isinstance(value, str):
        text = value.encode()
        parts += (_tagged(len(text), _STR, 0xA0, 32), text)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        view = memoryview(value).cast("B")
        parts += (_tagged(len(view), _BIN), view)
    elif isinstance(value, (list, tuple)):
        parts.append(_tagged(len(value), _ARRAY, 0x90, 16))
        for one in value:
            _pack(one, parts)
    elif isinstance(value, dict):
        parts.append(_tagged(len(value), _MAP, 0x80, 16))
        for key, one in value.items():
            _pack(key, parts)
            _pack(one, parts)
    else:
        raise Error("BAD_VALUE", f"a {type(value).__name__} cannot be sent")


def pack(value):
    """The MessagePack bytes of a value."""
    parts = []
    _pack(value, parts)
    return b"".join(parts)


def _take(view, at, size):
    if size > len(view) - at:
        raise ValueError("cut short")
    return view[at : at + size], at + size


def _unpack(view, at, depth):
    if depth == 0:
        raise ValueError("too deep")
    (tag,), at = _take(view, at, 1)
    if tag < 0x80:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if tag in _SCALARS:
        form = ">" + _SCALARS[tag]
        raw, at = _take(view, at, struct.calcsize(form))
        return struct.unpack(form, raw)[0], at
    if tag < 0xC0:
        kind, bits = (_MAP, 15) if tag < 0x90 else (_ARRAY, 15) if tag < 0xA0 else (_STR, 31)
        size = tag & bits
    elif tag in _SIZED:
        kind, form = _SIZED[tag]
        raw, at = _take(view, at, struct.calcsize(form))
        size = int.from_bytes(raw, "big")
    else:
        raise ValueError(f"a value of type {tag:#x}")
    if kind in (_BIN, _STR):
        raw, at = _take(view, at, size)
        return (bytes(raw) if kind == _BIN else str(raw, "utf-8")), at
    if size > len(view) - at:  # each value takes a byte: a false claim is not worked off
        raise ValueError("cut short")
    if kind == _ARRAY:
        items = []
        for _ in range(size):
            item, at = _unpack(view, at, depth - 1)
            items.append(item)
        return items, at
    pairs = {}
    for _ in range(size):
        key, at = _unpack(view, at, depth - 1)
        if not isinstance(key, str):
            raise ValueError("a field's name is not a str")
        pairs[key], at = _unpack(view, at, depth - 1)
    return pairs, at


def unpack(data):
    """The one value that the bytes hold; ValueError where they do not."""
    view = memoryview(data)
    value, at = _unpack(view, 0, DEPTH_MAX)
    if at != len(view):
        raise ValueError("bytes behind the value")
    return value


def _left(deadline):
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class Stream:
    """One connection in the wire format of NNG's REQ over a Unix socket: messages with a request id.

    OSError, EOFError and ValueError: the connection is of no use any more. TimeoutError of receive: it is.
    """

    GREETING = b"\x00SP\x00\x00\x30\x00\x00"
    PEER = b"\x00SP\x00\x00\x31\x00\x00"

    def __init__(self, path, deadline):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._head, self._body, self._filled = bytearray(9), None, 0
        try:
            self._socket.setblocking(False)
            while True:
                try:
                    self._socket.connect(path)
                    break
                except BlockingIOError:  # the daemon has many to accept
                    time.sleep(min(0.01, _left(deadline)))
            self._send([self.GREETING], deadline)
            greeting = bytearray(len(self.PEER))
            self._fill(greeting, deadline)
            if greeting != self.PEER:
                raise ValueError("the other side does not speak the protocol of NNG's REP")
        except BaseException:
            self._socket.close()
            raise
        self._filled = 0

    def fileno(self):
        """For select and poll: readable when there is something to receive."""
        return self._socket.fileno()

    def close(self):
        self._socket.close()

    def _send(self, parts, deadline):
        for part in parts:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(part)

    def _fill(self, to, deadline):
        view = memoryview(to)
        while self._filled < len(view):
            self._socket.settimeout(_left(deadline))
            count = self._socket.recv_into(view[self._filled :])
            if count == 0:
                raise EOFError("the daemon closed the connection")
            self._filled += count

    def send(self, ident, body, deadline):
        """Sends one message; its id is below 2^31. After a TimeoutError the connection is of no use, too."""
        self._send([b"\x01" + struct.pack(">QI", len(body) + 4, ident | 0x80000000), body], deadline)

    def receive(self, deadline, most):
        """The next message: (request id, body of `most` bytes at most). Goes on after a TimeoutError."""
        if self._body is None:
            self._fill(self._head, deadline)
            kind, size = struct.unpack(">BQ", self._head)
            if kind != 1 or size < 4 or size > most + 4:
                raise ValueError(f"a frame of type {kind} with {size} bytes")
            self._body, self._filled = bytearray(size), 0
        self._fill(self._body, deadline)
        body, self._body, self._filled = self._body, None, 0
        return struct.unpack_from(">I", body)[0] & 0x7FFFFFFF, memoryview(body)[4:]


class Pending:
    """A request that is under way; `Client.start` makes it."""

    def __init__(self, client, op, req, ident):
        self._client, self._op, self._ident = client, op, ident
        self.req = req
        self._answer = self._failure = None

    def done(self):
        """Whether result() would return or raise at once. Does not look for messages."""
        return self._answer is not None or self._failure is not None

    def result(self, timeout=None):
        """The fields of the answer, in `timeout` seconds (the client's) at most; then the daemon is told."""
        return self._client._result(self, timeout)

    def cancel(self):
        """Asks the daemon to end it: True where it was still in flight. result() then raises CANCELLED."""
        return self._client.call("cancel", req=self.req).get("found", False)


def _ticket():
    """What hello says of $NPU_TICKET, "ID:TOKEN": all that is sent is sent under that ticket."""
    text = os.environ.get("NPU_TICKET")
    if not text:
        return {}
    number, _, token = text.partition(":")
    try:
        if number.isascii() and number.isdigit() and len(token) == 32 and int(number):
            return {"ticket": int(number), "ticket_token": bytes.fromhex(token)}
    except ValueError:
        pass
    raise Error("BAD_VALUE", "NPU_TICKET is no ticket: a number, a colon and 32 hexadecimal digits are; unset it")


class Client:
    """A session with the daemon, under the ticket of $NPU_TICKET where there is one.

    socket: its path; None: $NPUD_SOCKET, else the first of the user's and the system's sockets that answers.
    name: what the daemon shows of this program. timeout: seconds a request may take.
    hello: what the daemon told (session, limits, version, device ...).
    """

    def __init__(self, socket=None, name="npud.py", timeout=60.0):
        self.name, self.timeout = name, timeout
        self.path, self.hello = None, {}
        self._stream, self._pending = None, {}
        self._nonce, self._under = os.urandom(16), _ticket()
        self._req = self._ident = 0
        self._open = True
        self._find(socket or os.environ.get("NPUD_SOCKET") or None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Ends the session: the daemon takes back everything of it. Twice is fine."""
        self._open = False
        self._lose("the client was closed")

    # Where the daemon is.

    def _find(self, path):
        if path is not None:
            self.path = path.removeprefix("ipc://")
            self._connect(time.monotonic() + CONNECT_SECONDS)
            return
        looked = []
        for place in _places():
            self.path = place
            try:
                self._connect(time.monotonic() + 2)
                return
            except Error as error:
                if error.name not in ("NO_DAEMON", "TIMED_OUT", "CONNECTION_LOST"):
                    raise
                looked.append(place)
        raise Error("NO_DAEMON", f"no daemon answers: looked at {', '.join(looked)}; {START}")

    def _connect(self, deadline):
        try:
            self._stream = Stream(self.path, deadline)
        except PermissionError:
            raise Error("NOT_ALLOWED", f"{self.path}: not allowed to connect; {_advice(self.path)}") from None
        except TimeoutError:
            raise Error("TIMED_OUT", f"no answer from {self.path}; {STOPPED}") from None
        except (OSError, EOFError, ValueError) as error:
            raise Error("NO_DAEMON", f"no daemon answers: looked at {self.path} ({error}); {START}") from None
        name = self.name.encode()[:64].decode(errors="ignore")
        fields = {"name": name, "version": VERSION, "minor": MINOR, "nonce": self._nonce, **self._under}
        hello = self._send("hello", fields)
        told = self._await(hello, max(deadline - time.monotonic(), 0.1))
        if told.get("major") != MAJOR:
            self._lose("another major")
            spoken = f"protocol {told.get('major')} is spoken there, {MAJOR} here"
            raise Error("VERSION", f"{self.path}: {spoken}; update the older")
        self.hello = told

    def _lose(self, why):
        if self._stream:
            self._stream.close()
        self._stream = None
        for pending in self._pending.values():
            pending._failure = Error("CONNECTION_LOST", f"{self.path}: {pending._op}: {why}")
        self._pending = {}

    # Requests.

    def start(self, op, **fields):
        """Sends a request; its Pending has the answer later. Fields set to None are left out."""
        if not self._open:
            raise Error("CONNECTION_LOST", "the client is closed")
        if self._stream is None:
            self._reconnect()
        return self._send(op, fields)

    def call(self, op, **fields):
        """Sends a request and returns the fields of its answer as a dict. Fields set to None are left out."""
        pending = self.start(op, **fields)
        try:
            return pending.result()
        except Error as error:
            if error.name != "CONNECTION_LOST" or op not in REPEATABLE or not self._open:
                raise
        if self._stream is None:
            self._reconnect()
        return self._send(op, fields, pending.req).result()

    def _reconnect(self):
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                self._connect(deadline)
                return
            except Error as error:
                if error.name not in ("NO_DAEMON", "CONNECTION_LOST") or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _send(self, op, fields, req=None):
        if req is None:
            req = self._req = self._req + 1
        body = pack([MAJOR, op, req, {key: value for key, value in fields.items() if value is not None}])
        most = self.hello.get("max_request", 16 << 20)
        if len(body) > most:
            detail = {"needed": len(body), "limit": most}
            message = f"{op}: the request takes {len(body)} bytes; the daemon allows {most}"
            raise Error("TOO_LARGE", message, detail=detail)
        self._ident = (self._ident + 1) & 0x7FFFFFFF
        pending = self._pending[self._ident] = Pending(self, op, req, self._ident)
        try:
            self._stream.send(self._ident, body, time.monotonic() + self.timeout)
        except OSError as error:
            self._lose(
                f"the connection was lost ({error or 'it takes no more'}); is the daemon still running?"
            )
        return pending

    def _result(self, pending, timeout):
        try:
            return self._await(pending, self.timeout if timeout is None else timeout)
        except TimeoutError:
            self._pending.pop(pending._ident, None)
            pending._failure = Error("TIMED_OUT", f"{self.path}: {pending._op}: no answer in time")
            self._send("cancel", {"req": pending.req})  # whose answer nobody waits for
            raise pending._failure from None

    def _await(self, pending, timeout):
        deadline = time.monotonic() + timeout
        while not pending.done():
            try:
                self._receive(deadline)
            except TimeoutError:
                if pending._op == "hello":
                    self._lose("no answer")
                    raise Error("TIMED_OUT", f"no answer from {self.path}; {STOPPED}") from None
                raise
            except (OSError, EOFError, ValueError) as error:
                self._lose(f"the connection was lost ({error}); is the daemon still running?")
        if pending._failure:
            raise pending._failure
        return pending._answer

    def _receive(self, deadline):
        ident, body = self._stream.receive(deadline, self.hello.get("max_reply", 64 << 20))
        pending = self._pending.pop(ident, None)
        if pending is None:
            return  # of a request that was given up
        pending._answer, pending._failure = _read_answer(body, pending.req, pending._op)

    # The operations by name.

    def ping(self):
        """Asks for an answer; returns the seconds it took."""
        begin = time.monotonic()
        self.call("ping")
        return time.monotonic() - begin

    def status(self):
        """What the daemon knows about itself, as a dict."""
        return self.call("status")

    def _list(self, op, rows, key):
        after = 0
        while True:
            answer = self.call(op, after=after)
            yield from answer[rows]
            if not answer.get("more") or not answer[rows]:
                return
            after = answer[rows][-1][key]

    def clients(self):
        """The sessions of the daemon, a dict each."""
        return self._list("clients", "clients", "session")

    def heads(self):
        """The resident heads of the daemon, a dict each."""
        return self._list("head.list", "heads", "id")

    def pass_file(self, file, name=None, **fields):
        """Gives the daemon a file open for reading only: a descriptor, or an object with fileno().

        Returns the handle that head.open wants; `call("file.close", file=handle)` gives it back.
        """
        fd = file if isinstance(file, int) else file.fileno()
        self._req += 1
        fields = {"token": self.hello["token"], "name": name or f"descriptor {fd}", **fields}
        packet = pack([MAJOR, "file.pass", self._req, fields])
        path = self.path + ".fd"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as side:
            side.settimeout(SIDE_SECONDS)
            try:
                side.connect(path)
                try:
                    socket.send_fds(side, [packet], [fd])
                    body = side.recv(65536)
                except (BrokenPipeError, ConnectionResetError):
                    body = side.recv(65536)  # it takes no more of us: why comes before it hung up
            except TimeoutError:
                raise Error("TIMED_OUT", f"{path}: no answer within {SIDE_SECONDS:g} s") from None
            except OSError as error:
                ours = error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
                raise Error(
                    "IO" if ours else "CONNECTION_LOST", f"{path}: {error}; is the daemon still running?"
                ) from None
        if not body:
            raise Error("CONNECTION_LOST", f"{path}: the daemon hung up on a passed file")
        answer, failure = _read_answer(memoryview(body), self._req, "file.pass")
        if failure:
            raise failure
        return answer["file"]

    def upload(self, source, name=None, of=0):
        """Sends the bytes of a model's file: a bytes-like object, or a path. Returns a handle as pass_file does.

        For what is in no file, and for a client that cannot pass a descriptor. The bytes are in the daemon's
        memory until `call("file.close", file=handle)`; hello tells how many a user may have (user_upload).
        """
        if isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as f:
                size, read = os.fstat(f.fileno()).st_size, f.read
                return self._upload(size, lambda at, count: read(count), name or os.path.basename(source), of)
        view = memoryview(source).cast("B")
        return self._upload(len(view), lambda at, count: view[at : at + count], name or "upload", of)

    def _upload(self, size, read, name, of):
        begun = self.call("upload.begin", name=name, of=of, bytes=size)
        session, file, at = self.hello["token"], begun["file"], 0
        try:
            while at < size:
                part = read(at, begun["part"])
                if not part:
                    raise Error("IO", f"{name}: has become shorter while it was read")
                at = self.call("upload.put", file=file, at=at, data=part)["bytes"]
            self.call("upload.end", file=file)
        except BaseException:
            self._give_back(session, "file.close", "file", file)
            raise
        return file

    def open(self, model, progress=None, **options):
        """Opens a model's head and waits until it is resident: a Head.

        model: its file, or a list of all its files, the weights first (shards in order, config.json), which
        are uploaded where they cannot be passed (no side socket, a user's FUSE); or a handle of pass_file or
        upload.
        options: the fields of head.open (tensor, transpose, tile, layout ...). NPUD_STORE=0 in the environment
        keeps it out of the image store, unless store is among them.
        progress: called with (tiles done, tiles) while it loads; what it raises ends the opening.
        """
        if os.environ.get("NPUD_STORE") in ("0", "no"):
            options.setdefault("store", False)
        return self._open_as(Head, model, progress, options)

    def load_weights(self, model, tensors, role, layer=0, progress=None, **options):
        """Loads projection weights and waits until they are resident: Weights.

        tensors: names; several are side by side. role: "0" QKV, "1" O, "2" gate+up, "3" up, "4" down, or a
        name. model, progress: as for open. options: the fields of weights.load (transpose, tile ...).
        """
        names = [{"name": one} for one in ([tensors] if isinstance(tensors, str) else tensors)]
        fields = {"tensors": names, "role": role, "layer": layer, "wait_ms": 0, **options}
        return self._open_as(Weights, model, progress, fields)

    def _open_as(self, kind, model, progress, fields):
        self.call("ping")  # after a loss this gets the new session's token
        session, given, handle = self.hello["token"], None, None
        wait_ms = 200 if progress else WAIT_MS
        try:
            if not isinstance(model, int):
                for path in model if isinstance(model, (list, tuple)) else [model]:
                    passed = self._pass_path(path, given)
                    given = given or passed
            file = model if isinstance(model, int) else given
            handle = self.call(kind._open, file=file, **fields)[kind._field]
            while True:
                asked = self.start(kind._wait, **{kind._field: handle}, wait_ms=wait_ms)
                info = asked.result(self.timeout + wait_ms / 1e3)
                if info["ready"]:
                    break
                if progress:
                    progress(info["tiles_done"], info["tiles"])
        except BaseException:
            self._give_back(session, kind._close, kind._field, handle)
            raise
        finally:
            self._give_back(session, "file.close", "file", given)
        return kind(self, session, handle, info)

    def _pass_path(self, path, of):
        # Without O_NONBLOCK a named pipe would hold us until somebody writes.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Error("BAD_VALUE", f"{path}: is not a regular file; name the model file")
            name = os.path.basename(os.fspath(path))
            if os.access(self.path + ".fd", os.W_OK):
                try:
                    return self.pass_file(fd, name, of=of or 0)
                except Error as error:
                    if error.name != "BAD_VALUE":  # that is: on a file system npud does not wait for
                        raise
        finally:
            os.close(fd)
        return self.upload(path, name, of=of or 0)

    def _give_back(self, session, op, field, handle):
        if handle is None or self._stream is None or self.hello["token"] != session:
            return
        try:
            self.call(op, **{field: handle})
        except Error:
            pass  # the failure that led here is the one to tell


class _Resident:
    """Resident weights of a session. nv: columns; h: values of an activation row; info: what was said of them.

    A kind of them says what it is called (_what), the field of its handle, and the operations on it.
    """

    def __init__(self, client, session, handle, info):
        self.client, self.handle, self.info = client, handle, info
        self.nv, self.h = info["nv"], info["h"]
        self._session = session

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Gives them back. Twice is fine."""
        handle, self.handle = self.handle, None
        self.client._give_back(self._session, self._close, self._field, handle)

    def _run(self, x, bytes_a_row, **fields):
        x = _float32(x)
        row = 4 * self.h
        if not x or len(x) % row:
            raise Error("BAD_COUNT", f"x has {len(x) // 4} values; a row of this {self._what} has {self.h}")
        told = self.client.hello
        fit = min(
            told["max_rows"], (told["max_request"] - SLACK) // row, (told["max_reply"] - SLACK) // bytes_a_row
        )
        if fit < 1:
            raise Error("TOO_LARGE", "one row is more than a request or a reply may hold")
        for at in range(0, len(x), fit * row):
            part = memoryview(x)[at : at + fit * row]
            # Handles mean nothing, or something else, in any other session.
            lost = self.client._stream is None or self.client.hello["token"] != self._session
            if self.handle is None or lost:
                why = "the daemon restarted" if lost else f"the {self._what} was closed"
                raise Error("CONNECTION_LOST", f"{why}; open the {self._what} again")
            handle = {self._field: self.handle}
            yield self.client.call(self._run_op, **handle, rows=len(part) // row, x=part, **fields)

    def _product(self, x, field, **fields):
        out = array.array("f")
        for answer in self._run(x, 4 * self.nv, **fields):
            out.frombytes(answer[field])
        if sys.byteorder == "big":
            out.byteswap()
        return out


class Head(_Resident):
    """A resident head. nv: its words; h: the values of an activation row; info: what head.wait said."""

    _what, _field = "head", "head"
    _open, _wait, _run_op, _close = "head.open", "head.wait", "head.run", "head.close"

    def logits(self, x):
        """The logits of the rows of `x`: an array('f') of rows x nv values.

        x: float32 values in anything with a buffer (array('f'), a NumPy array), the bytes of little-endian
        ones, or numbers, or rows of numbers.
        """
        return self._product(x, "logits", want="logits")

    def top(self, x, k=1):
        """The k best words of each row of `x`, best first: a list of (id, score) a row."""
        if not 1 <= k <= self.nv:
            raise Error("BAD_VALUE", f"k is {k}; 1 to {self.nv} words can be had")
        rows = []
        for answer in self._run(x, 8 * k, want="top-k", k=k):
            ids = struct.unpack(f"<{len(answer['ids']) // 4}I", answer["ids"])
            scores = struct.unpack(f"<{len(answer['values']) // 4}f", answer["values"])
            pairs = list(zip(ids, scores))
            rows += [pairs[at : at + k] for at in range(0, len(pairs), k)]
        return rows


class Weights(_Resident):
    """Resident projection weights. nv: N; h: K; info: what weights.load said."""

    _what, _field = "matrix", "weights"
    _open, _wait, _run_op, _close = "weights.load", "weights.load", "gemm.run", "weights.close"

    def gemm(self, x):
        """The rows of `x`, as for Head.logits, times the weights: an array('f') of rows x nv values."""
        return self._product(x, "y")


def _read_answer(body, req, op):
    """(fields, None) or (None, Error)."""
    try:
        answer = unpack(body)
    except ValueError as error:
        return None, Error("MALFORMED", f"{op}: the answer is no MessagePack: {error}")
    whole = isinstance(answer, list) and len(answer) >= 3 and answer[0] == req
    if not whole or not isinstance(answer[1], int) or not isinstance(answer[2], dict):
        return None, Error("MALFORMED", f"{op}: the answer is not [{req}, code, {{field: value}}]")
    code, fields = answer[1:3]
    if code == 0:
        return fields, None
    return None, Error(
        str(fields.get("error", "")), str(fields.get("message", "")), code, fields.get("detail")
    )


def _float32(x):
    """The little-endian float32 bytes of what `Head.logits` takes."""
    if isinstance(x, (bytes, bytearray)):
        return bytes(x)
    values = array.array("f")
    try:
        view = memoryview(x)
    except TypeError:
        view = None
    if view is not None and view.format == "f":
        values.frombytes(view.tobytes())
    else:
        for one in x:
            values.extend(one if hasattr(one, "__iter__") else (one,))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _places():
    """The sockets to look at, best first."""
    run, uid = os.environ.get("XDG_RUNTIME_DIR", ""), os.getuid()
    places = [f"{run}/npud/npud.sock"] if run.startswith("/") else []
    places.append(f"/run/user/{uid}/npud/npud.sock")
    try:  # anybody may make it before its owner does
        found = os.lstat(f"/tmp/npud-{uid}")
        if stat.S_ISDIR(found.st_mode) and found.st_uid in (uid, 0) and not found.st_mode & 0o022:
            places.append(f"/tmp/npud-{uid}/npud.sock")
    except OSError:
        pass
    return list(dict.fromkeys(places + ["/run/npud/npud.sock"]))


def _advice(path):
    """What somebody can do who may not connect there."""
    import grp  # not on every platform, and seldom needed

    # Who may not look into its directory learns the directory's.
    for place, door in ((path, stat.S_IWGRP), (os.path.dirname(path), stat.S_IXGRP)):
        try:
            found = os.stat(place)
        except OSError:
            continue
        if not found.st_mode & door or found.st_gid == 0:
            break
        try:
            return f"become a member of the group {grp.getgrgid(found.st_gid).gr_name}"
        except KeyError:
            return f"become a member of the group {found.st_gid}, which has no name"
    return "it serves its owner alone; start one of your own with: npud --foreground"
