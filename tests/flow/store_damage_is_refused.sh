#!/bin/bash
# Whatever is broken in the image store while no daemon runs: the logits are right, the log and npuctl name the reason, and the
# open after that is a hit again.
. "$(dirname "$0")/lib.bash"
command -v jq >/dev/null || skip "jq is not there"
for i in 1 2; do
	"$NPUD_BIN/tests/make-model" "$work/m$i.safetensors" 3000 200 $i || fail "make-model"
done
cmp -s "$work/m1.safetensors" "$work/m2.safetensors" && fail "make-model made the same twice"
ask() { "$head" run "$work/m$1.safetensors" --random 7 --rows 2 --tile 1024 --logits "$2" || fail "run"; }
stored() { "$head" open "$work/m$1.safetensors" --tile 1024 --json; }
refused() { "$npuctl" store ls --json | jq -r '.refused | to_entries | map("\(.key) \(.value)") | join(",")'; }

start_daemon
for i in 1 2; do
	NPUD_STORE=0 ask $i "$work/right$i"
done
stop_daemon
start_daemon
for i in 1 2; do
	[ "$(stored $i | jq -c '[.packed, .written, .from_store, .refused]')" = '[3,3,0,0]' ] || fail "cold: $(stored $i)"
done
stop_daemon
# Each breakage is one of a fresh file: replaced records leave copies of themselves in pages that are free.
cp -a "$work/cache/images" "$work/whole"
break_it() {
	rm -rf "$work/cache/images"
	cp -a "$work/whole" "$work/cache/images"
	python3 "$here/store_damage.py" "$@" "$work/cache/images/db/data.mdb" || fail "store_damage $*"
}

# damage REASONS TILES WHAT...: REASONS as npuctl counts them; TILES are packed again of the first head that is hit
damage() {
	local reasons=$1 tiles=$2 i packed=0 said
	: >"$log"
	shift 2
	break_it "$@"
	start_daemon
	for i in 1 2; do
		said=$(stored $i) || fail "$*: open"
		packed=$((packed + $(jq .packed <<<"$said")))
		jq -e '.packed == .refused and .packed + .from_store == 3 and .written == .packed and
			(.refusals | length) == .refused' <<<"$said" >/dev/null ||
			fail "$*: $said"
		ask $i "$work/now"
		cmp "$work/right$i" "$work/now" || fail "$*: other logits"
	done
	((packed == tiles)) || fail "$*: $packed tiles packed, not $tiles"
	[ "$(grep -c " refused: ${reasons% *}: " "$log")" = "$tiles" ] || fail "$*: the log does not say why"
	[ "$(refused)" = "$reasons" ] || fail "$*: refused: $(refused), not $reasons"
	stop_daemon
	start_daemon
	for i in 1 2; do
		[ "$(stored $i | jq .from_store)" = 3 ] || fail "$*: no hit afterwards: $(stored $i)"
	done
	"$npuctl" store verify >/dev/null || fail "$*: verify finds something still"
	stop_daemon
}

damage "chunk-hash 1" 1 codes 0
damage "chunk-hash 1" 1 scales 1
damage "chunk-length 1" 1 prefix 0
damage "magic 6" 6 header 0
damage "format 6" 6 header 4
for byte in 8 16 24 40 48 64 80 88 96 127; do
	damage "header-hash 6" 6 header $byte
done
damage "geometry 6" 6 swap-headers
damage "chunk-key 2" 2 swap-chunks

# An operator finds it before a program does.
break_it codes 0
start_daemon
expect 1 "$npuctl" store verify
grep -q 'safetensors: chunk-hash: ' "$work/out" && grep -q '^6 tiles hashed, 1 bad' "$work/out" || fail "verify: $(cat "$work/out")"
expect 1 "$npuctl" store verify --remove --json
jq -e '.bad[0].removed and .bad[0].reason == "chunk-hash"' "$work/out" >/dev/null || fail "remove: $(cat "$work/out")"
expect 0 "$npuctl" store verify
[ "$("$npuctl" store ls --json | jq '.heads | length')" = 1 ] || fail "the bad head is still there"
for i in 1 2; do
	ask $i "$work/now"
	cmp "$work/right$i" "$work/now" || fail "removed: other logits"
done
stop_daemon

# A file that is cut short is moved aside, said, and left there.
break_it cut
start_daemon
for i in 1 2; do
	ask $i "$work/now"
	cmp "$work/right$i" "$work/now" || fail "cut: other logits"
done
ls -d "$work/cache/images/db.bad-"* >/dev/null || fail "the cut store is nowhere"
"$npuctl" store ls --json | jq -e '.moved | test("db.bad-")' >/dev/null || fail "npuctl does not say where it went"
stop_daemon
