# What the flow tests share; sourced, not run. Variables: work, socket, log, daemon_pid.
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${NPUD_SOURCE_DIR:=$(cd "$here/../.." && pwd)}"
: "${NPUD_BIN:?the build directory}"
data=${NPUD_TEST_DATA:-$NPUD_SOURCE_DIR/../shared/data}
npud=$NPUD_BIN/daemon/npud
npuctl=$NPUD_BIN/client/npuctl
head=$NPUD_BIN/client/npu-head
unset NPUD_CONFIG NPU_KERNELS
work=$(mktemp -d /tmp/npud-flow.XXXXXX) || exit 1
socket=$work/run/npud.sock
log=$work/npud.log
daemon_pid=
keep_nothing=$work/keep-nothing.conf # a configuration: weights go at the last close
printf '[resident]\nkeep = 0\n' >"$keep_nothing"
children=() # other processes of the test, to be ended with it
export NPUD_SOCKET=$socket

cleanup() {
	local status=$? pid
	trap - EXIT
	for pid in ${daemon_pid:+"$daemon_pid"} ${children[@]+"${children[@]}"}; do
		kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
	done
	if ((status != 0 && status != 77)) && [ -s "$log" ]; then
		echo "--- last lines of the daemon's log"
		tail -n 40 "$log"
	fi
	rm -rf "$work"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

skip() {
	echo "skipped: $*"
	exit 77
}

need_data() {
	[ -r "$data/$1" ] || skip "$data/$1 is not there; set NPUD_TEST_DATA"
}

# start_daemon [OPTION...]: returns when it answers.
start_daemon() {
	local i
	"$npud" --foreground --socket "$socket" --cache-dir "$work/cache" --state-dir "$work/state" "$@" \
		>>"$log" 2>&1 </dev/null &
	daemon_pid=$!
	for ((i = 0; i < 100; i++)); do
		timeout 5 "$npuctl" ping >/dev/null 2>&1 && return 0
		kill -0 "$daemon_pid" 2>/dev/null || fail "the daemon ended at its start: $(cat "$log")"
		sleep 0.1
	done
	fail "the daemon does not answer after 10 s"
}

daemon_lives() {
	kill -0 "$daemon_pid" 2>/dev/null || fail "the daemon is gone${1:+ after $1}"
	timeout 5 "$npuctl" ping >/dev/null || fail "the daemon does not answer${1:+ after $1}"
}

daemon_descriptors() {
	local all=("/proc/$daemon_pid/fd"/*)
	echo ${#all[@]}
}

# True once the daemon has at most $1 descriptors; waits five seconds at most.
descriptors_back_to() {
	local i
	for ((i = 0; i < 50; i++)); do
		(($(daemon_descriptors) <= $1)) && return 0
		sleep 0.1
	done
	return 1
}

stop_daemon() {
	local i status
	kill -TERM "$daemon_pid" || fail "the daemon was gone before SIGTERM"
	for ((i = 0; i < 150; i++)); do
		# A zombie has ended too.
		[[ $(ps -o stat= -p "$daemon_pid" 2>/dev/null) == [!Z]* ]] || break
		sleep 0.1
	done
	((i < 150)) || fail "the daemon is still there 15 s after SIGTERM"
	wait "$daemon_pid"
	status=$?
	daemon_pid=
	((status == 0)) || fail "the daemon exited $status"
	! grep -E 'ERROR: |runtime error:' "$log" || fail "the daemon's log has sanitizer reports"
	[ ! -e "$socket.fd" ] || fail "$socket.fd is left behind"
}

# expect STATUS COMMAND...: stdout in $work/out, stderr in $work/err and $said.
expect() {
	local wanted=$1 status
	shift
	timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
	said=$(tr -d '\0' <"$work/err")
	((status == wanted)) || fail "exit $status, not $wanted: $* : $said"
	! grep -qE 'ERROR: (Address|Leak)Sanitizer|runtime error:' "$work/err" || fail "$*: $said"
}

# The last message names all these strings.
says() {
	local part
	for part; do
		[[ $said == *"$part"* ]] || fail "the message does not have '$part': $said"
	done
}
