#!/bin/bash
# [preload]: heads are there and pinned before anybody asks, from the store at the next start; what cannot be opened is an event
# and nothing else.
. "$(dirname "$0")/lib.bash"
mkdir "$work/dir"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 200 1 || fail "make-model"
"$NPUD_BIN/tests/make-model" "$work/dir/model.safetensors" 2000 200 2 || fail "make-model"
echo "no model" >"$work/bad.safetensors"
cat >"$work/npud.conf" <<END
[resident]
keep = 0
[preload]
one = $work/m.safetensors
bad = $work/bad.safetensors
two = $work/dir
gone = $work/nothing.safetensors
END
events() { "$npuctl" events --json | jq -rs '[.[] | select(.kind == "preload")]' >"$work/events"; }
ready() {
	local i
	for ((i = 0; i < 300; i++)); do
		events
		[ "$(jq length "$work/events")" = 4 ] &&
			[ "$("$npuctl" clients --json | jq '[.clients[] | select(.name == "[preload]")] | length')" = 0 ] && return
		sleep 0.1
	done
	fail "preloading does not end: $("$npuctl" events)"
}
for start in first second; do
	: >"$log"
	start_daemon --config "$work/npud.conf"
	ready
	jq -e 'map(select(.text | test("is there, and pinned"))) | length == 2' "$work/events" >/dev/null || fail "$(cat "$work/events")"
	jq -e 'map(select(.text | test("^gone: .*nothing.safetensors"))) | length == 1' "$work/events" >/dev/null ||
		fail "what is not there is not named: $(cat "$work/events")"
	jq -e 'map(select(.text | test("bad.safetensors"))) | length == 1' "$work/events" >/dev/null ||
		fail "what is no model is not named: $(cat "$work/events")"
	"$npuctl" heads --json | jq -e '.heads | length == 2 and all(.pinned and .users == 0 and .state == "ready")' >/dev/null ||
		fail "$start: $("$npuctl" heads)"
	for m in m.safetensors dir; do
		"$head" open "$work/$m" --json >"$work/said" || fail "open"
		jq -e '.attached and .packed == 0' "$work/said" >/dev/null || fail "not attached: $(cat "$work/said")"
	done
	if [ $start = second ]; then
		[ "$(grep -c '1 tile(s) from the image store, 0 packed' "$log")" = 2 ] || fail "packed again: $(cat "$log")"
	fi
	[ $start = second ] || stop_daemon
done
id=$("$npuctl" heads --json | jq '.heads[0].id')
expect 75 "$npuctl" evict "$id"
expect 0 "$npuctl" unpin "$id"
for ((i = 0; i < 100; i++)); do
	[ "$("$npuctl" heads --json | jq '.heads | length')" = 1 ] && break
	sleep 0.1
done
[ "$("$npuctl" heads --json | jq '.heads | length')" = 1 ] || fail "what is unpinned stays"
echo 'three = /x' >>"$work/npud.conf"
expect 0 "$npuctl" reload
"$npuctl" events | grep -q 'at a restart only: \[preload\]' || fail "a reload does not say that [preload] waits"
stop_daemon
{
	echo '[preload]'
	for i in $(seq 17); do echo "m$i = /x"; done
} >"$work/many.conf"
expect 78 "$npud" --config "$work/many.conf" --check-config
says "many.conf:18" "more than 16"
# A stop while they load ends at once.
start_daemon --config "$work/npud.conf"
stop_daemon
