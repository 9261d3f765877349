#!/bin/bash
# The same rows give the same file of logits, byte for byte: on the host, on the device and by turns, with the weights
# packed (cold), from the image store (warm), and without one.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
models=("$work/made.safetensors")
"$NPUD_BIN/tests/make-model" "${models[0]}" 3000 512 >/dev/null || fail "make-model"
for file in gguf/stories260K-bf16.gguf q4nx/discollama-q4k.q4nx; do
	[ ! -r "$data/$file" ] || models+=("$data/$file")
done

# Whether tiles were packed, and taken from the store; and where the rows ran last.
told() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(d["packed"] > 0, d["from_store"] > 0, d["path"])' "$work/run.json"; }

# dump NAME PACKED FROM_STORE PATHS OPTION...: of every model, 1 and 40 rows; the first ever is what all are compared with.
dump() {
	local name=$1 packed=$2 from_store=$3 paths=$4 model i rows how
	shift 4
	for i in "${!models[@]}"; do
		model=${models[i]}
		run_to "$work/dump" "$model" --random 9 --rows 40 "$@"
		how=$(told)
		[ "${how% *}" = "$packed $from_store" ] || fail "$name: packed, from the store: $how, not $packed $from_store"
		[[ " $paths " == *" ${how##* } "* ]] || fail "$name ran on ${how##* }"
		[ -e "$work/right.$i" ] || cp "$work/dump" "$work/right.$i"
		cmp "$work/right.$i" "$work/dump" || fail "$name of $model: other bytes"
		# One row alone, and then the file's first.
		run_once "$work/dump" "$model" --random 9 "$@"
		rows=$(stat -c %s "$work/right.$i")
		cmp -n $((rows / 40)) "$work/right.$i" "$work/dump" || fail "$name of $model: a row alone has other bytes"
	done
}

begin() { # NAME LINE...: a fresh daemon
	[ -z "$daemon_pid" ] || stop_daemon
	start_soft "" "[resident]" "keep = 0" "$@"
	health_becomes ok
}

begin
dump "cold, host" True False host --path host
begin
dump "warm, host" False True host --path host
dump "warm, device" False True device --path device
dump "warm, alternate" False True "host device" --path alternate
begin "[store]" "enabled = no"
dump "store off, host" True False host --path host
dump "store off, device" True False device --path device
dump "store off, alternate" True False "host device" --path alternate
export NPUD_STORE=0
begin
dump "store off by the client, host" True False host --path host
unset NPUD_STORE
stop_daemon
rm -rf "$work/cache"
begin
dump "cold, device" True False device --path device
stop_daemon
