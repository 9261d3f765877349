#!/bin/bash
# No file grows without bound: a hundred heads over the budget leave about the budget, and what is resident stays; what a killed
# reader held is used again.
. "$(dirname "$0")/lib.bash"
export PYTHONPATH=$NPUD_SOURCE_DIR/client/python
images=$work/cache/images
size() { stat -c %s "$images/db/data.mdb"; }
for ((i = 0; i < 100; i++)); do
	"$NPUD_BIN/tests/make-model" "$work/$i.safetensors" 256 64 $((i + 1)) || fail "make-model"
done
"$NPUD_BIN/tests/make-model" "$work/kept.safetensors" 512 64 1000 || fail "make-model"
printf '[resident]\nkeep = 0\n[store]\nmax_bytes = 1048576\nmin_free_bytes = 0\n[preload]\nkept = %s\n' "$work/kept.safetensors" >"$work/npud.conf"
start_daemon --config "$work/npud.conf"
rows() { # HEAD...: what each gives, one after the other
	python3 - "$work" "$@" <<'END' || fail "python"
import sys
import npud
x = [[(k % 7) - 3.0 for k in range(64)]]
with npud.Client() as c:
    for name in sys.argv[2:]:
        with c.open(f"{sys.argv[1]}/{name}.safetensors") as head:
            print(head.top(x, k=5))
END
}
written() { # TILES: the writing is behind the answers
	local i
	for ((i = 0; i < 600; i++)); do
		"$npuctl" store --json >"$work/store" || fail "store"
		jq -e ".written + .write_failures >= $1" "$work/store" >/dev/null && return
		sleep 0.1
	done
	fail "not $1 tiles written: $(jq 'del(.heads)' "$work/store")"
}
rows $(seq 0 99) >"$work/first"
written 101
rows 0 >"$work/again"
written 102
[ "$(cat "$work/again")" = "$(head -n 1 "$work/first")" ] || fail "other logits of a head that was evicted"
jq -e '.write_failures == 0 and .written == 102' "$work/store" >/dev/null || fail "not written: $(jq 'del(.heads)' "$work/store")"
jq -e '.bytes <= .max_bytes and .bytes > .max_bytes * 0.8' "$work/store" >/dev/null || fail "budget: $(jq 'del(.heads)' "$work/store")"
jq -e '[.heads[] | select(.label == "kept.safetensors")] | length == 1 and .[0].resident' "$work/store" >/dev/null ||
	fail "what is resident was evicted"
jq -e 'any(.heads[]; .label == "99.safetensors") and any(.heads[]; .label == "0.safetensors") and
	all(.heads[]; .label != "10.safetensors")' "$work/store" >/dev/null || fail "not the least recently used went"
(($(size) < 4 << 20)) || fail "the file has $(size) bytes"
stop_daemon

# A reader that holds its snapshot, and one that only keeps LMDB from beginning its table of readers anew.
rm -rf "$images"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 6000 200 || fail "make-model"
printf '[resident]\nkeep = 0\n[store]\nmin_free_bytes = 0\n' >"$work/npud.conf"
begin() { # WHAT
	: >"$work/$1"
	"$NPUD_BIN/tests/forge" "$images" "$1" >"$work/$1" &
	children+=($!)
	until grep -q there "$work/$1"; do
		kill -0 "${children[-1]}" || fail "no $1"
		sleep 0.02
	done
}
rewrite() { # TIMES
	local i
	for ((i = 0; i < $1; i++)); do
		"$npuctl" store prune >/dev/null || fail "prune"
		"$head" open "$work/m.safetensors" --json >"$work/said" || fail "open"
		jq -e '.written == .packed and .packed > 0' "$work/said" >/dev/null || fail "not written: $(cat "$work/said")"
	done
}
start_daemon --config "$work/npud.conf"
rewrite 2
alone=$(size)
begin idle
begin reader
rewrite 4
held=$(size)
((held > alone + 2 * 1536000)) || fail "the reader holds nothing, this shows nothing: $alone, then $held bytes"
kill -KILL "${children[1]}"
wait "${children[1]}" 2>/dev/null
stop_daemon
start_daemon --config "$work/npud.conf"
rewrite 4
(($(size) < held + 2 * 1536000)) || fail "what the killed reader held is lost: $held, now $(size) bytes"
kill "${children[0]}"
wait "${children[0]}" 2>/dev/null
children=()
stop_daemon
