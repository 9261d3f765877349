#!/bin/bash
# Real heads on the device, in both layouts and by turns, and on the host: the oracle's logits, bit for bit; and up to
# 128 rows at once.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
need_data EXPECTED.tsv

# What the software device has by itself.
every_geometry() { # ROWS
	local kd nd designs=()
	for ((kd = 64; kd <= 16384; kd *= 2)); do
		for nd in 1024 256 128; do designs+=("$1,$kd,$nd,0" "$1,$kd,$nd,1"); done
	done
	kernel_set "${designs[@]}"
}
[ "$kind" = soft ] || every_geometry 16
start_device ""
health_becomes ok

ran=0
while IFS=$'\x1f' read -r file tensor opts _ _ _ _ _ _ _ _ sha; do
	read -ra options <<<"$opts"
	options=("$data/$file" --tensor "$tensor" ${options[@]+"${options[@]}"} --random 1)
	for how in "device --layout blocked" "device --layout row-major" alternate host; do
		read -ra path <<<"$how"
		run_once "$work/logits" "${options[@]}" --path "${path[@]}"
		found=$(sha256sum <"$work/logits")
		[ "${found%% *}" = "$sha" ] || fail "$file $tensor on $how: sha256 ${found%% *}, the oracle has $sha"
	done
	run_once "$work/host" "${options[@]}" --rows 128 --path host
	for layout in blocked row-major; do
		run_once "$work/logits" "${options[@]}" --rows 128 --path device --layout $layout
		same_bits "$work/host" "$work/logits" "128 rows of $file $tensor, $layout"
	done
	ran=$((ran + 1))
done < <(tail -n +2 "$data/EXPECTED.tsv" | tr '\t' '\037')
((ran >= 40)) || fail "only $ran rows ran"

rows() { # ROWS MODEL
	run_once "$work/host" "$2" --random 7 --rows "$1" --path host
	for how in device alternate auto "auto --verify"; do
		read -ra path <<<"$how"
		run_once "$work/logits" "$2" --random 7 --rows "$1" --path "${path[@]}"
		same_bits "$work/host" "$work/logits" "$1 rows of $2 on $how"
	done
}
models=("$data/gguf/stories260K-bf16.gguf" "$data/safetensors/wink-4096-f32.safetensors" "$data/q4nx/discollama-q4k.q4nx")
for model in "${models[@]}"; do
	for m in 1 2 15 16 17 100; do rows $m "$model"; done
done
[ "$(device_field mismatches)$(device_field errors)$(device_field timeouts)" = 000 ] || fail "$(device_told)"
stop_daemon

# Passes and launches of 128 rows.
[ "$kind" = soft ] || every_geometry 128
start_device "" '[head]' 'batch = 128'
health_becomes ok
for model in "${models[@]}"; do
	for m in 33 127 128 200; do rows $m "$model"; done
done
stop_daemon
