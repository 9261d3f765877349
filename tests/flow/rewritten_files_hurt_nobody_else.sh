#!/bin/bash
# Somebody's file that is rewritten while it is read fails for them, and never changes what others get.
. "$(dirname "$0")/lib.bash"
for i in 1 2; do
	"$NPUD_BIN/tests/make-model" "$work/$i.safetensors" 3000 256 $i || fail "make-model"
done
cp "$work/1.safetensors" "$work/shared.safetensors"
start_daemon --config "$keep_nothing"
before=$(daemon_descriptors)
# Without the image store every open packs; with it only those whose weights nobody had before.
for store in 0 1; do
	NPUD_STORE=$store "$NPUD_BIN/tests/rewritten" "$work/shared.safetensors" "$work/1.safetensors" \
		"$work/2.safetensors" 500 || fail "see above"
done
echo "loaded again from another's file: $(grep -c 'loaded again from the file' "$log") times"
daemon_lives "the rewritten files"
# What is still being written to the image store is held for that.
heads() { "$npuctl" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["heads"])'; }
for ((i = 0; i < 200; i++)); do
	(($(heads) == 0)) && break
	sleep 0.1
done
(($(heads) == 0)) || fail "a head is left that nobody has"
descriptors_back_to "$before" || fail "descriptors: $(daemon_descriptors), before: $before"
stop_daemon
