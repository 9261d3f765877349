# What the tests of tickets share; sourced after lib.bash.
hold=$NPUD_BIN/client/npu-hold
unset NPU_TICKET NPU_TICKET_EXPIRES

# in_background COMMAND...: its pid in $!, stderr in $work/err.N
in_background() {
	"$@" >>"$work/bg.out" 2>>"$work/bg.err" </dev/null &
	children+=("$!")
}

# until_true COMMAND...: waits ten seconds at most.
until_true() {
	local i
	for ((i = 0; i < 200; i++)); do
		"$@" && return 0
		sleep 0.05
	done
	return 1
}

# state_of ID: queued, granted ...
state_of() {
	"$npuctl" tickets show "$1" 2>/dev/null | awk '$1 == "state" { print $2 }'
}

is_state() { [[ $(state_of "$1") == "$2" ]]; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }

# nothing_left WORDS: no process whose command line has them.
nothing_left() { ! pgrep -f -- "$1" >/dev/null; }

# A number of seconds to sleep that no other process has: processes are found by it.
unique_sleep() { echo "$((1000 + RANDOM)).$$$1"; }
