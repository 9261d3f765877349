#!/bin/bash
# What operators see of the image store and do about it: npuctl store ls, show, verify, prune, compact.
. "$(dirname "$0")/lib.bash"
for i in 1 2; do
	mkdir "$work/$i" && "$NPUD_BIN/tests/make-model" "$work/$i/m.safetensors" 3000 200 $i || fail "make-model"
done
ask() { "$head" run "$work/$1/m.safetensors" --random 7 --tile 1024 --top 1 >/dev/null || fail "run"; }
# json EXPRESSION COMMAND...: the expression, of the answer j, is true.
json() {
	local expression=$1
	shift
	"$@" --json >"$work/json" || fail "$*: exit $?"
	python3 -c "import json, sys; j = json.load(open(sys.argv[1])); sys.exit(not ($expression))" "$work/json" ||
		fail "$*: not $expression: $(cat "$work/json")"
}
settled() {
	local i
	for ((i = 0; i < 100; i++)); do
		[ "$("$npuctl" store ls --json | grep -c '"hash"')" = "$1" ] &&
			"$npuctl" store ls --json | grep -q "\"written\": $2," && return
		sleep 0.1
	done
	fail "not $1 heads and $2 tiles: $("$npuctl" store ls)"
}

start_daemon --config "$keep_nothing"
json 'j["heads"] == [] and j["off"] is None and j["bytes"] == 0' "$npuctl" store
ask 1
settled 1 3
ask 2 # the same model with other weights
settled 2 6
json 'sorted(h["superseded"] for h in j["heads"]) == [False, True] and j["superseded_bytes"] == j["bytes"] // 2 and
	all(h["tiles"] == 3 and h["columns"] == 3000 and h["label"] == "m.safetensors" for h in j["heads"]) and
	j["refused"] == {} and j["misses"] == 6' "$npuctl" store ls
hash=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["heads"][0]["hash"])' "$work/json")
json 'j["hash"] == "'"$hash"'" and [r["columns"] for r in j["records"]] == [1024, 1024, 952] and
	all(r["there"] and len(r["fingerprint"]) == 16 for r in j["records"])' "$npuctl" store show "${hash:0:6}"
expect 65 "$npuctl" store show nothing
says "no head is so called" "npuctl store ls"
expect 64 "$npuctl" store show
expect 64 "$npuctl" store frobnicate
expect 64 "$npuctl" store ls --remove
expect 64 "$npuctl" store verify --superseded
json 'j["tiles"] == 6 and j["bad"] == []' "$npuctl" store verify

json 'j["heads"] == 1 and j["bytes"] > 700000' "$npuctl" store prune --superseded
json 'len(j["heads"]) == 1 and not j["heads"][0]["superseded"] and j["free_bytes"] > 700000' "$npuctl" store
json 'j["after"] < j["before"] - 600000' "$npuctl" store compact
json 'j["free_bytes"] < 100000' "$npuctl" store
ask 2
json 'j["hits"] == 3' "$npuctl" store # what was copied is read

# What is in memory stays; what is not goes.
stop_daemon
start_daemon
ask 2
json 'j["heads"] == 0' "$npuctl" store prune
json 'j["heads"][0]["resident"] and j["heads"][0]["hits"] >= 2' "$npuctl" store
stop_daemon
start_daemon --config "$keep_nothing"
json 'j["heads"] == 1' "$npuctl" store prune
json 'j["heads"] == []' "$npuctl" store
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	chmod 755 "$work" "$work/run" 2>/dev/null
	other=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	if "${other[@]}" "$npuctl" ping >/dev/null 2>&1; then
		for what in verify prune compact; do
			expect 77 "${other[@]}" "$npuctl" store $what
			says "store.$what is not for uid 65534"
		done
		expect 0 "${other[@]}" "$npuctl" store ls
	fi
fi
stop_daemon

# Without a store: said, and no failure of what only looks.
printf '[store]\nenabled = no\n' >"$work/off.conf"
start_daemon --config "$work/off.conf"
json '"enabled is no" in j["off"] and j["heads"] == []' "$npuctl" store
expect 74 "$npuctl" store verify
says "no image store" "enabled is no"
stop_daemon
