#!/bin/bash
# npu-head compare tells equal files from others, bit for bit, without a daemon.
. "$(dirname "$0")/lib.bash"
python3 - "$work" <<'PY' || fail "python3"
import struct, sys
work = sys.argv[1]
n = 70000  # more than compare holds at a time
v = [i / 8 for i in range(n)]
def write(name, values):
    open(work + "/" + name, "wb").write(struct.pack("<%df" % len(values), *values))
write("a", v)
write("same", v)
w = list(v); w[66000] = 1.5; w[69999] = -1
write("other", w)
write("short", v[:69000])
open(work + "/odd", "wb").write(b"12345")
open(work + "/none", "wb").close()
write("plus", [0.0]); write("minus", [-0.0])
nan = bytes.fromhex("0000c07f")
open(work + "/nan", "wb").write(nan); open(work + "/nan2", "wb").write(nan)
PY
cd "$work" || exit 1
tells() { grep -qF -- "$1" "$work/out" || fail "no '$1' in: $(cat "$work/out")"; }

expect 0 "$head" compare a same
tells 70000
expect 0 "$head" compare a a
expect 0 "$head" compare none none
expect 0 "$head" compare nan nan2
expect 1 "$head" compare a other
tells "value 66000:"
tells "differing: 2 of 70000"
expect 1 "$head" compare a short
tells "sizes differ: 70000 and 69000"
expect 1 "$head" compare short a
tells "sizes differ: 69000 and 70000"
expect 1 "$head" compare none a
expect 1 "$head" compare plus minus
tells 0x80000000
"$head" compare - same <a >/dev/null || fail "stdin"

expect 1 "$head" compare --json a other
python3 -c 'import json
d = json.load(open("out"))
assert d["equal"] is False and d["differing"] == 2 and d["first"]["index"] == 66000, d
assert d["first"]["a"] == 8250 and d["first"]["b"] == 1.5, d' || fail "--json: $(cat out)"
expect 1 "$head" compare --json nan plus
python3 -c 'import json
d = json.load(open("out"), parse_constant=lambda c: 1 / 0)' || fail "--json of NaN: $(cat out)"
expect 0 "$head" compare --json a same
python3 -c 'import json
d = json.load(open("out"))
assert d["equal"] is True and d["first"] is None and d["a_values"] == d["b_values"] == 70000, d' || fail "--json: $(cat out)"

expect 65 "$head" compare a odd
says odd 5
expect 66 "$head" compare a missing
says missing
expect 66 "$head" compare a .
expect 64 "$head" compare a
expect 64 "$head" compare a same other
expect 64 "$head" compare - -
expect 64 "$head" compare a same --random 1
