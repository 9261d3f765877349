#!/bin/bash
# Commands, options, files and sessions are completed.
. "$(dirname "$0")/lib.bash"
PATH=$NPUD_BIN/client:$NPUD_BIN/daemon:$PATH
. "$NPUD_SOURCE_DIR/client/completion/npud.bash" || fail "it cannot be sourced"
start_daemon

# completes "COMMAND LINE UP TO HERE" WORDS...: these are among what is offered; offered has all.
completes() {
	local line=$1 word
	shift
	read -ra COMP_WORDS <<<"$line"
	[[ $line != *" " ]] || COMP_WORDS+=("")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	COMPREPLY=()
	options=
	_npud "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
	offered=" ${COMPREPLY[*]} "
	for word; do
		[[ $offered == *" $word "* ]] || fail "'$line' offers$offered, not $word"
	done
}
compopt() { options=$*; } # which works in a completion only

completes "npuctl " status clients heads ping kick events evict pin drain resume tickets
completes "npuctl tickets " show revoke move
completes "npuctl store " ls show verify prune compact add export import
completes "npuctl kernels " ls import remove undo
completes "npuctl kernels import "
[[ $options == *default* ]] || fail "npuctl kernels import offers no files"
completes "npuctl sta" status
[[ $offered == " status " ]] || fail "'npuctl sta' offers$offered"
completes "npuctl --" --json --socket --count
completes "npuctl status --js" --json
completes "npu-head " run open compare pack
[[ $offered != *" multiply "* && $offered != *" npu-head "* ]] || fail "'npu-head ' offers$offered"
completes "npu-head run --lay" --layout
completes "npu-head run --layout " blocked row-major
completes "npu-head run --q8 " auto
completes "npu-head run --path " host alternate
completes "npu-bench " clients compare
completes "npu-bench compare model --a " path=device store=off
completes "npu-bench compare --ro" --rounds
completes "npu-hold --cl" --class
completes "npu-hold --class " batch
completes "npu-hold -- slee" sleep
completes "npud --sock" --socket
completes "npud --config "
[[ $options == *default* ]] || fail "npud --config offers no files"
completes "npu-head run "
[[ $options == *default* ]] || fail "npu-head run offers no files"
completes "npu-head run model --top "
[ -z "${offered// /}" ] || fail "--top offers$offered"

"$npuctl" ping --count 1000000 >/dev/null 2>&1 &
children+=($!)
for ((i = 0; i < 100; i++)); do
	completes "npuctl kick "
	((${#COMPREPLY[@]} >= 2)) && break # the one that pings, and the one that lists
	sleep 0.1
done
[[ $offered =~ ^\ ([0-9]+\ )+$ ]] || fail "npuctl kick offers$offered, not sessions"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 64 16 || fail "make-model"
expect 0 "$head" run "$work/m.safetensors" --random 1
expect 0 "$npuctl" heads --no-headers
read -r id _ <"$work/out"
completes "npuctl evict " "$id"
"$NPUD_BIN/client/npu-hold" --label completed -- sleep 60 >/dev/null 2>&1 &
holder=$!
children+=("$holder")
for ((i = 0; i < 100; i++)); do
	completes "npuctl why "
	((${#COMPREPLY[@]} == 1)) && break
	sleep 0.1
done
[[ $offered =~ ^\ [0-9]+\ $ ]] || fail "npuctl why offers$offered, not one ticket"
completes "npuctl tickets revoke " "${COMPREPLY[0]}"
kill -TERM "$holder"
wait "$holder"
completes "npuctl --socket /nowhere kick "
[ -z "${offered// /}" ] || fail "without a daemon kick offers$offered"
stop_daemon
