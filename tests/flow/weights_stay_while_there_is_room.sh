#!/bin/bash
# What nobody uses stays resident while there is room, goes oldest first when there is none, and what can
# never fit is refused with the arithmetic.
. "$(dirname "$0")/lib.bash"
for i in 1 2 3; do
	"$NPUD_BIN/tests/make-model" "$work/$i.safetensors" 3000 1024 $i >/dev/null || fail "make-model"
done
"$NPUD_BIN/tests/make-model" "$work/large.safetensors" 30000 1024 4 >/dev/null || fail "make-model"
# A head of 3000 x 1024 is 4 MB in pages of 2 MB: two of them and the room to pack one fit.
cat >"$work/npud.conf" <<EOC
[resident]
max_bytes = 15000000
keep = -1
EOC
start_daemon --config "$work/npud.conf"
resident() { "$npuctl" heads --json | python3 -c '
import json, sys
print(*sorted(h["label"].split(".")[0] for h in json.load(sys.stdin)["heads"]))'; }
open_head() { "$head" run "$work/$1.safetensors" --random 1 --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["packed"])'; }

[ "$(open_head 1)" = 1 ] || fail "the first open does not pack"
[ "$(open_head 1)" = 0 ] || fail "the second open packs again what is there"
[ "$(open_head 2)" = 1 ] || fail "another head is not packed"
[ "$(resident)" = "1 2" ] || fail "resident: $(resident)"
[ "$(open_head 1)" = 0 ] || fail "1 went although there was room"
sleep 0.1 # the shortest stay
[ "$(open_head 3)" = 1 ] || fail "3 finds no room"
[ "$(resident)" = "1 3" ] || fail "2 was used longest ago, but resident are: $(resident)"
grep -q 'evicted: 2.safetensors.*needs the room' "$log" || fail "the log does not say what was evicted"

status=0
"$head" run "$work/large.safetensors" --random 1 2>"$work/said" || status=$?
[ $status = 75 ] || fail "a head larger than the budget: status $status"
for word in 'needs 3' 'of 15000000 bytes' 'could go' 'never fit' 'max_bytes'; do
	grep -q -- "$word" "$work/said" || fail "the refusal lacks '$word': $(cat "$work/said")"
done
[ "$(resident)" = "1 3" ] || fail "a refusal evicted something: $(resident)"

# A routed expert is weighed as others are: it makes room for itself, is refused where it never fits or what is pinned
# is in its way, and leaves nothing.
PYTHONPATH=$NPUD_SOURCE_DIR/client/python python3 - "$work" <<'PY' || fail "experts"
import sys, npud
with npud.Client() as c:
    def expert(name):
        file = c.pass_file(open(f"{sys.argv[1]}/{name}.safetensors", "rb"))
        try:
            x = bytes(4 * 1024)
            c.call("gemm.run", file=file, tensors=[{"name": "lm_head.weight"}], role="-", rows=1, x=x)
        except npud.Error as error:
            return error.name, error.message, error.detail
        finally:
            c.call("file.close", file=file)
        return None
    name, message, detail = expert("large")
    assert name == "NO_MEMORY" and "never fit" in message, (name, message)
    assert detail["needed"] > detail["limit"] == 15000000, detail
    before = c.call("status")
    ids = [h["id"] for h in c.heads()]
    assert len(ids) == 2, ids
    for i in ids:
        c.call("resident.pin", id=i)
    name, message, detail = expert("2")
    assert name == "PINNED" and "unpin" in message, (name, message)
    after = c.call("status")
    assert (before["heads"], before["resident_bytes"]) == (after["heads"], after["resident_bytes"]), (before, after)
    for i in ids:
        c.call("resident.unpin", id=i)
    assert expert("2") is None
    left = [h["id"] for h in c.heads()]
    assert left == ids[-1:] or left == ids[:1], (ids, left)
    assert c.call("status")["resident_bytes"] == before["resident_bytes"] / 2, "the expert is still there"
PY
daemon_lives "evictions"
stop_daemon

# Small ones take whole pages: what is weighed is what they take, and many are never more than the budget.
printf '[resident]\nmax_bytes = 12000000\nkeep = -1\n' >"$work/npud.conf"
start_daemon --config "$work/npud.conf"
PYTHONPATH=$NPUD_SOURCE_DIR/client/python timeout 120 python3 - "$work/small.safetensors" <<'PY' || fail "many small ones"
import json, random, struct, sys, time, npud
n, k, count = 64, 64, 50
r = random.Random(1)
data = b"".join(struct.pack("<f", r.uniform(-1, 1)) for _ in range(n * k * count))
size = 4 * n * k
tensors = {f"t{i}": {"dtype": "F32", "shape": [n, k], "data_offsets": [i * size, (i + 1) * size]} for i in range(count)}
header = json.dumps(tensors).encode()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(header)) + header + data)
with npud.Client(name="collector") as c:
    file = c.pass_file(open(sys.argv[1], "rb"))
    expected, held, most = {}, [], 0
    for turn in range(150):
        i = r.randrange(count)
        if len(held) > 3 or (held and r.random() < 0.4):
            held.pop(r.randrange(len(held))).close()
        w = c.load_weights(file, f"t{i}", "0", layer=i)
        y = w.gemm([1.0] * k)
        assert expected.setdefault(i, y) == y, f"t{i} is another's"
        used = c.call("status")["resident_bytes"]
        assert used <= 12000000, f"{used} bytes are resident"
        most = max(most, used)
        held.append(w)
    assert most > 8000000, most
PY
daemon_lives "small ones"
stop_daemon

# Who has the room and does not let go is named, after a bounded wait.
printf '[resident]\nmax_bytes = 2500000\n' >"$work/npud.conf"
start_daemon --config "$work/npud.conf"
PYTHONPATH=$NPUD_SOURCE_DIR/client/python timeout 120 python3 - "$work/small.safetensors" <<'PY' || fail "who holds"
import sys, npud
with npud.Client(name="collector") as c, npud.Client(name="late") as late:
    held = c.load_weights(sys.argv[1], "t1", "0")
    try:
        late.load_weights(sys.argv[1], "t2", "0")
        sys.exit("two have the room of one")
    except npud.Error as error:
        assert error.name == "NO_MEMORY" and "2097152 held by collector (session" in error.message, error
        assert "could go; what others hold was not given back in time" in error.message, error
    held.gemm([1.0] * held.h)
PY
daemon_lives "a wait"
stop_daemon
