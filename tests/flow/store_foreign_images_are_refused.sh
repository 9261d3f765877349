#!/bin/bash
# Records that hold together and are something else: images of other weights (the same scales and other codes, other scales) under
# this model's name, another packer's, another format's, another schema's. The logits are right, the reason is named, and the next
# open is a hit.
. "$(dirname "$0")/lib.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 200 1 || fail "make-model"
images=$work/cache/images
ask() { "$head" run "$work/m.safetensors" --random 7 --rows 2 --tile 1024 --logits "$1" || fail "run"; }
stored() { "$head" open "$work/m.safetensors" --tile 1024 --json >"$work/said" || fail "open"; }
start_daemon
NPUD_STORE=0 ask "$work/right"
stop_daemon
start_daemon
stored
jq -e '.packed == 3 and .written == 3' "$work/said" >/dev/null || fail "cold: $(cat "$work/said")"
stop_daemon

# foreign WHAT REASON SAYS...
foreign() {
	local what=$1 reason=$2 part
	shift 2
	: >"$log"
	"$NPUD_BIN/tests/forge" "$images" "$what" || fail "forge $what"
	start_daemon
	stored
	jq -e '.refused == 3 and .packed == 3 and .written == 3 and .from_store == 0' "$work/said" >/dev/null ||
		fail "$what: $(cat "$work/said")"
	jq -e --arg reason "$reason" '[.refusals[].reason] == [$reason, $reason, $reason]' "$work/said" >/dev/null ||
		fail "$what is not called $reason: $(cat "$work/said")"
	for part; do
		jq -e --arg part "$part" 'all(.refusals[]; .text | contains($part))' "$work/said" >/dev/null ||
			fail "$what: the reason does not have '$part': $(cat "$work/said")"
	done
	[ "$("$npuctl" store --json | jq -c .refused)" = "{\"$reason\":3}" ] || fail "$what is not counted"
	[ "$(grep -c " refused: $reason: " "$log")" = 3 ] || fail "$what: the log does not say why"
	ask "$work/now"
	cmp "$work/right" "$work/now" || fail "$what: other logits"
	stop_daemon
	start_daemon
	stored
	jq -e '.from_store == 3 and .refused == 0' "$work/said" >/dev/null || fail "$what: no hit afterwards: $(cat "$work/said")"
	ask "$work/now"
	cmp "$work/right" "$work/now" || fail "$what: other logits from the store"
	stop_daemon
}
foreign codes sample "column" "the code of row" "in the image" "packed now"
foreign scales sample "column" "the scale is"
foreign fingerprint fingerprint "another version of npud packed it"
foreign format format "another version of npud wrote it"
foreign lost chunk-missing "is not there"

: >"$log"
"$NPUD_BIN/tests/forge" "$images" schema || fail "forge schema"
start_daemon
grep -q 'moved aside and a fresh one begun: .*its schema is 2 and this npud.s 1' "$log" || fail "the schema is not named"
"$npuctl" store --json | jq -e '.moved | test("schema")' >/dev/null || fail "npuctl does not say so"
stored
jq -e '.packed == 3 and .written == 3 and .refused == 0' "$work/said" >/dev/null || fail "schema: $(cat "$work/said")"
ask "$work/now"
cmp "$work/right" "$work/now" || fail "schema: other logits"
[ -s "$(echo "$images"/db.bad-*/data.mdb)" ] || fail "the other schema's store is gone"
stop_daemon
