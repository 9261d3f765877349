#!/bin/bash
# The logits of every row of EXPECTED.tsv are the oracle's, bit for bit, in every tiling.
. "$(dirname "$0")/lib.bash"
need_data EXPECTED.tsv
start_daemon

same() { # FILE TENSOR SHA OPTION...
	local file=$1 tensor=$2 sha=$3 found status
	shift 3
	rm -f "$work/logits"
	timeout 60 "$head" run "$data/$file" --tensor "$tensor" "$@" --random 1 --logits "$work/logits" 2>"$work/err"
	status=$?
	said=$(<"$work/err")
	((status == 0)) || return "$status"
	found=$(sha256sum "$work/logits")
	[ "${found%% *}" = "$sha" ] || fail "$file $tensor $*: sha256 ${found%% *}, the oracle has $sha"
}

ran=0
while IFS=$'\x1f' read -r file tensor opts n k _ _ _ _ _ _ sha; do
	read -ra options <<<"$opts"
	options=(${options[@]+"${options[@]}"})
	same "$file" "$tensor" "$sha" ${options[@]+"${options[@]}"}
	status=$?
	((status == 0)) || fail "$file $tensor: exit $status: $said"
	(($(stat -c %s "$work/logits") == n * 4)) || fail "$file: not $n logits"
	for layout in blocked row-major; do
		same "$file" "$tensor" "$sha" ${options[@]+"${options[@]}"} --tile 128 --layout $layout ||
			fail "$file $tensor --tile 128 --layout $layout: $said"
	done
	ran=$((ran + 1))
done < <(tail -n +2 "$data/EXPECTED.tsv" | tr '\t' '\037')
stop_daemon
echo "$ran rows equal the oracle"
((ran >= 40)) || fail "only $ran rows ran"
