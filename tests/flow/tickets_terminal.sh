#!/bin/bash
# The terminal works as without npu-hold: interrupt, stop and go on, its size; the queue is shown while it waits.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"
command -v tmux >/dev/null || skip "tmux is not installed"
start_daemon
tmux=(tmux -L "npud-$$" -f /dev/null)
end_tmux() { "${tmux[@]}" kill-server 2>/dev/null; }
trap 'status=$?; end_tmux; (exit $status); cleanup' EXIT
"${tmux[@]}" new-session -d -x 100 -y 30 "env -u NPU_TICKET NPUD_SOCKET='$socket' PS1='\$ ' bash --norc --noprofile -i" || skip "tmux does not run here"
screen() { "${tmux[@]}" capture-pane -p; }
type_in() { "${tmux[@]}" send-keys "$@"; }
shows() { until_true sh -c "${tmux[*]} capture-pane -p | grep -q -- '$1'" || fail "the terminal does not show '$1': $(screen)"; }
# An empty screen: what was shown before is not taken for what comes.
screens=0
fresh() {
	type_in "clear; echo fresh$((++screens))" Enter
	shows "^fresh$screens"
}

# ctrl-C while it runs: the command gets it, once.
type_in "'$hold' -- bash -c 'trap \"echo got it; exit 9\" INT; echo ready; while :; do sleep 0.1; done'; echo status=\$?" Enter
shows '^ready'
type_in C-c
shows '^status=9'
[[ $(screen | grep -c '^got it\|got it$') == 1 ]] || fail "interrupted twice: $(screen)"

# ctrl-Z and fg.
fresh
type_in "'$hold' -- bash -c 'echo begun; sleep 1.5; echo over'; echo status=\$?" Enter
shows '^begun'
type_in C-z
shows Stopped
type_in "fg" Enter
shows '^over'
type_in 'echo after=$?' Enter
shows '^after=0'

# The size.
fresh
type_in "'$hold' -- bash -c 'trap \"stty size; exit 0\" WINCH; echo wide; while :; do sleep 0.1; done'; echo status=\$?" Enter
shows '^wide'
"${tmux[@]}" resize-window -x 90 -y 28 2>/dev/null || "${tmux[@]}" resize-pane -x 90 -y 28
shows '28 90'
shows '^status=0'

# A terminal that hangs up while npu-hold leads its session ends what runs, as without npu-hold.
s=$(unique_sleep 1)
"${tmux[@]}" new-window -d -n gone "exec env -u NPU_TICKET NPUD_SOCKET='$socket' '$hold' -t 60s -- sh -c 'sleep $s; true'"
until_true pgrep -f "^sleep $s" >/dev/null || fail "the command does not run"
"${tmux[@]}" kill-window -t gone
until_true nothing_left "^sleep $s" || fail "the command goes on without its terminal"
until_true sh -c "! '$npuctl' tickets -N | grep -q granted" || fail "a hold goes on without its terminal"

# While it waits: the place and the holder, and ctrl-C leaves the queue.
in_background "$hold" -t 60s -l nightly -- sleep 60
until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "not granted"
fresh
type_in "'$hold' -- echo never; echo status=\$?" Enter
shows 'place 1'
shows nightly
type_in C-c
shows '^status=130'
until_true sh -c "! '$npuctl' tickets -N | grep -q queued" || fail "it still waits"

# Stopped while it waits, and gone on with.
fresh
type_in "'$hold' -- echo granted now; echo status=\$?" Enter
shows 'place 1'
type_in C-z
shows Stopped
type_in "fg" Enter
sleep 0.3
kill -TERM "${children[0]}"
shows '^granted now'
type_in 'echo after=$?' Enter
shows '^after=0'

# npuctl top goes on until it is interrupted, within the screen.
fresh
type_in "'$npuctl' top" Enter
shows 'rows/s'
shows 'SESSION'
first=$(screen)
until_true sh -c "[ \"\$(${tmux[*]} capture-pane -p)\" != '$first' ]" || fail "top does not go on"
[[ $(screen | grep -c rows/s) == 1 ]] || fail "top does not stay in place: $(screen)"
type_in C-c
type_in 'echo over=$?' Enter
shows '^over=130'
end_tmux
stop_daemon
