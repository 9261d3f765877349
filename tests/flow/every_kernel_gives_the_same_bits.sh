#!/bin/bash
# With every variant of the kernels forced in turn, the daemon's logits and best words are the oracle's and the
# reference's: of one row, and of as many as go through another part of a kernel.
. "$(dirname "$0")/lib.bash"
need_data EXPECTED.tsv
file=$data/safetensors/wink-4096-f32.safetensors
many=(2 3 5 8 9 17 40 128)
export NPUD_STORE=0 # each packs for itself

logits() { # OPTION...: their sum in $found
	expect 0 "$head" run "$file" --logits "$work/logits" "$@"
	found=$(sha256sum "$work/logits")
	found=${found%% *}
}

sums() { # what this daemon makes of it all
	local rows
	for rows in "${many[@]}"; do
		logits --random 7 --rows "$rows"
		echo "$rows $found"
	done
	expect 0 "$head" run "$file" --random 7 --rows 20 --top 12 --no-headers
	cat "$work/out"
}

oracle() { # every matrix there is, one row
	local model tensor opts sha options
	while IFS=$'\x1f' read -r model tensor opts _ _ _ _ _ _ _ _ sha; do
		read -ra options <<<"$opts"
		expect 0 "$head" run "$data/$model" --tensor "$tensor" ${options[@]+"${options[@]}"} --random 1 \
			--logits "$work/logits"
		found=$(sha256sum "$work/logits")
		[ "${found%% *}" = "$sha" ] || fail "$1: $model $tensor: ${found%% *}, the oracle has $sha"
	done < <(tail -n +2 "$data/EXPECTED.tsv" | tr '\t' '\037')
}

declare -A needs=([ref]= [avx2]=avx2 [avxvnni]=avx_vnni [avx512]=avx512bw [avx512vnni]='avx512_vnni avx512vbmi')
ran=0
for variant in ref avx2 avxvnni avx512 avx512vnni; do
	for flag in ${needs[$variant]}; do
		if ! grep -qw "$flag" /proc/cpuinfo; then
			echo "$variant: this processor cannot run it"
			continue 2
		fi
	done
	export NPU_KERNELS=$variant
	start_daemon
	grep -qE "head=$variant(,| with)" "$log" || fail "$variant was not used"
	expect 0 "$npuctl" status
	grep -qE "^host +$variant(,| with)" "$work/out" || fail "npuctl status does not tell $variant"
	oracle "$variant"
	sums >"$work/sums.$variant"
	cmp "$work/sums.ref" "$work/sums.$variant" || fail "$variant differs from ref"
	stop_daemon
	ran=$((ran + 1))
done
echo "$ran variants agree"
((ran >= 1))
