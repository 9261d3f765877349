#!/bin/bash
# An administrator decides what stays and what goes; a plan tells beforehand; what somebody uses is not taken.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
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

heads() { "$npuctl" heads --json | python3 -c "
import json, sys
for h in json.load(sys.stdin)['heads']:
    if h['label'] == sys.argv[1] + '.safetensors':
        print(h[sys.argv[2]])" "$1" "$2"; }
plan() { "$npuctl" plan "$work/$1.safetensors" --json | python3 -c '
import json, sys
p = json.load(sys.stdin)
print(p["outcome"], *(h["label"].split(".")[0] for h in p["evicts"]))'; }
plan_bytes() { "$npuctl" plan "$work/$1.safetensors" --json | json_field bytes; }
load() { "$head" run "$work/$1.safetensors" --random 1 >/dev/null || fail "$1 does not load"; }
refused() { # refused STATUS WORD COMMAND...
	local status=0 want=$1 word=$2
	shift 2
	"$@" >/dev/null 2>"$work/said" || status=$?
	[ $status = "$want" ] || fail "$*: status $status: $(cat "$work/said")"
	grep -q -- "$word" "$work/said" || fail "$*: does not say '$word': $(cat "$work/said")"
}

[ "$(plan 1)" = fits ] || fail "into an empty daemon: $(plan 1)"
[ -z "$(heads 1 id)" ] || fail "a plan loads"
planned=$(plan_bytes 1)
load 1
[ "$(heads 1 bytes)" = "$planned" ] || fail "$planned bytes were planned, and $(heads 1 bytes) are resident"
[ "$(plan 1)" = resident ] || fail "what is resident: $(plan 1)"
load 2
[ "$(plan 3)" = "evicts 1" ] || fail "room for two: $(plan 3)"
[ "$(plan large)" = too-large ] || fail "larger than the budget: $(plan large)"
"$npuctl" plan "$work/3.safetensors" | grep -q 'these would go' || fail "the table does not say what would go"

# A pinned head stays although it was used longest ago; two of them are refused at once.
"$npuctl" pin "$(heads 1 id)" || fail "pin"
[ "$(heads 1 pinned)" = True ] || fail "it does not show as pinned"
[ "$(plan 3)" = "evicts 2" ] || fail "1 is pinned: $(plan 3)"
sleep 0.1 # the shortest stay
load 3
[ -n "$(heads 1 id)" ] || fail "a pinned head went"
[ -z "$(heads 2 id)" ] || fail "2 is still there"
"$npuctl" pin "$(heads 3 id)" || fail "pin"
[ "$(plan 2)" = pinned ] || fail "all is pinned: $(plan 2)"
refused 75 'pinned' "$head" run "$work/2.safetensors" --random 1
refused 75 'npuctl unpin' "$npuctl" evict "$(heads 1 id)"
"$npuctl" unpin "$(heads 1 id)" || fail "unpin"
"$npuctl" evict "$(heads 1 id)" | grep -q 'MB are free' || fail "evict does not say what is free"
[ -z "$(heads 1 id)" ] || fail "1 is still there"
"$npuctl" events | grep -q 'evicted .*1.safetensors.*uid 0' || fail "the journal does not say who evicted it"
refused 65 'npuctl heads' "$npuctl" evict 999
refused 64 'not the number' "$npuctl" pin one

# What a session uses is not taken, and it is said who it is.
mkfifo "$work/hold"
exec 9<>"$work/hold"
PYTHONPATH=$NPUD_SOURCE_DIR/client/python python3 -u -c '
import sys, npud
with npud.Client(name="holder") as c:
    head = c.open(sys.argv[1])
    print("open")
    sys.stdin.readline()
    head.close()
    print("closed")
    while True:
        for event in c.call("events.next", since=0)["events"]:
            print(event["kind"], event["text"])
            if event["kind"] == "evicted":
                sys.exit(0)
' "$work/2.safetensors" <"$work/hold" >"$work/held" 2>&1 &
children+=($!)
for ((i = 0; i < 100; i++)); do
	grep -q open "$work/held" && break
	sleep 0.1
done
refused 75 'in use: holder (session' "$npuctl" evict "$(heads 2 id)"
echo close >&9
for ((i = 0; i < 100; i++)); do
	grep -q closed "$work/held" && break
	sleep 0.1
done
"$npuctl" evict "$(heads 2 id)" >/dev/null || fail "nobody uses it any more"
for ((i = 0; i < 100; i++)); do
	grep -q evicted "$work/held" && break
	sleep 0.1
done
grep -q 'evicted.*2.safetensors' "$work/held" || fail "who used it last is not told: $(cat "$work/held")"
daemon_lives "pins"
stop_daemon

# On a device, whose memory is not in pages of 2 MB, too.
start_soft ""
health_becomes ok
planned=$(plan_bytes 1)
load 1
[ "$(heads 1 bytes)" = "$planned" ] || fail "$planned bytes were planned, and $(heads 1 bytes) are the device's"
stop_daemon
