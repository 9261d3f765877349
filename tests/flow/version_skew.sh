#!/bin/bash
# Clients and daemons of an older and a newer minor version understand each other; another major is told.
. "$(dirname "$0")/lib.bash"
export PYTHONPATH=$NPUD_SOURCE_DIR/client/python PYTHONDONTWRITEBYTECODE=1

start_daemon
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 64 16 || fail "make-model"
expect 0 "$head" run "$work/m.safetensors" --random 1 --top 3 --json
answer=$(python3 -c 'import json, struct, sys
top = json.load(open(sys.argv[1]))["top"][0]
ids, scores = [w["id"] for w in top], [w["score"] for w in top]
print(struct.pack("<3I3f", *ids, *scores).hex())' "$work/out")
timeout 60 python3 "$here/version_skew.py" "$here/skew" "$work/m.safetensors" "$answer" ||
	fail "version_skew.py"
stop_daemon

future() { # HOW STATUS COMMAND...: the command against a daemon to come
	local how=$1 wanted=$2 at=$work/$1.sock i
	shift 2
	rm -f "$at"
	python3 "$here/future_daemon.py" "$at" "$how" &
	children+=($!)
	for ((i = 0; i < 100; i++)); do
		[ -S "$at" ] && break
		sleep 0.1
	done
	NPUD_SOCKET=$at expect "$wanted" "$@"
}
future minor 0 "$npuctl" ping
future minor 70 "$npuctl" status
says "the NPU sleeps until noon; ask then"
future major 69 "$npuctl" ping
says "protocol 1" "npud 2" "install matching versions"
future silent-major 69 "$npuctl" ping
says "protocol 2" "library 1"
future minor 0 python3 -c 'import npud
with npud.Client() as c:
    c.ping()
    try:
        c.status()
    except npud.Error as e:
        assert (e.code, e.name, e.message) == (999, "TOO_TIRED", "the NPU sleeps until noon; ask then"), repr(e)'
future silent-major 0 python3 -c 'import npud
try:
    npud.Client()
except npud.Error as e:
    assert e.name == "VERSION", repr(e)'
