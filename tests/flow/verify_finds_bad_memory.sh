#!/bin/bash
# A bit of the weights goes bad in the daemon's memory, which the host reads and the device has its own copy of: verify
# names the first result that differs, and the journal has it.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
python3 - "$work/m.safetensors" <<'EOC' || fail "a model of equal weights"
import json, struct, sys
n, k = 1024, 512
header = json.dumps({"lm_head.weight": {"dtype": "F32", "shape": [n, k], "data_offsets": [0, 4 * n * k]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(header)) + header + struct.pack("<f", 0.5) * (n * k))
EOC
start_soft "" "recovery = 0"
health_becomes ok
run=("$head" run "$work/m.safetensors" --random 3 --verify --logits "$work/logits")
expect 0 "${run[@]}" --path host
expect 0 "${run[@]}" --path device

# Where in the daemon's memory the codes are, all 127: an address a line.
codes() {
	python3 - "$daemon_pid" <<'EOC'
import re, sys
SIZE = 512 * 1024
with open(f"/proc/{sys.argv[1]}/maps") as maps, open(f"/proc/{sys.argv[1]}/mem", "rb", buffering=0) as memory:
    for span, kind, _, _, file, *_ in map(str.split, maps):
        start, end = (int(x, 16) for x in span.split("-"))
        if not kind.startswith("rw") or file != "0" or not SIZE <= end - start <= 1 << 28:
            continue
        try:
            memory.seek(start)
            found = re.finditer(b"\x7f{%d,}" % (SIZE - 64), memory.read(end - start))
        except OSError:
            continue
        for run in found:  # copies may lie side by side
            for at in range(run.start(), run.end() - SIZE // 2, SIZE):
                print(start + at + 40000)
EOC
}
write_code() { # ADDRESS CODE
	python3 -c 'import sys
with open(f"/proc/{sys.argv[1]}/mem", "r+b", buffering=0) as memory:
    memory.seek(int(sys.argv[2]))
    memory.write(bytes([int(sys.argv[3])]))' "$daemon_pid" "$1" "$2"
}

# One of the places is what the host reads. Of the device's own copy the check of its launches says that it is wrong.
seen=
while read -r address; do
	write_code "$address" 126 2>/dev/null || continue
	seen=0
	"${run[@]}" --path host >"$work/out" 2>"$work/err" || seen=$?
	((seen != 70)) || break
	write_code "$address" 127
	health_becomes ok
done < <(codes 2>/dev/null)
[ -n "$seen" ] || skip "the daemon's memory cannot be written here"
said=$(cat "$work/err")
((seen == 70)) || fail "exit $seen: $said"
says "row 0 of the pass: logit " "by the device"
[[ $("$npuctl" events) == *"difference"*"m.safetensors): row 0 of the pass: logit "* ]] || fail "$("$npuctl" events)"
daemon_lives "bad memory"
stop_daemon
