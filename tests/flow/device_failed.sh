#!/bin/bash
# A device that goes on failing is left alone: no work, no processor time, the reason in status; one that is lost while
# idle is renewed without ado.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 512 >/dev/null || fail "make-model"
kernel_set 16,64,128,1 16,512,1024,1
run() { run_to "$work/logits" "$work/m.safetensors" --random 5 --rows 3 "$@"; }

ticks() { awk '{ print $14 + $15 }' "/proc/$daemon_pid/stat"; }

start_device error/1
health_becomes failed
run
run_to "$work/host" "$work/m.safetensors" --random 5 --rows 3 --path host
same_bits "$work/host" "$work/logits" failed
[ "$(run_field path)" = host ] || fail "a failed device is used"
said=$("$npuctl" status)
says failed "the canary" "the host does the work"
launches=$(device_field launches)
before=$(ticks)
sleep 2
(($(ticks) - before <= 4)) || fail "$(($(ticks) - before)) ticks of processor time in 2 s while failed"
[ "$(device_field launches)" = "$launches" ] || fail "it launches while failed"
stop_daemon

# A recovery as often as it likes does not spin either, and answers are right all the while.
start_device "error/3 lost=300" "recovery = 1"
for i in 1 2 3 4 5 6; do
	run
	same_bits "$work/host" "$work/logits" "with every third launch at fault"
done
stop_daemon

start_device lost=300
health_becomes ok
run --path device
sleep 5.5
run --path device
same_bits "$work/host" "$work/logits" "after idling"
[ "$(device_field errors) $(device_field recoveries)" = "0 0" ] || fail "lost while idle is a fault: $(device_told)"
[ "$(device_field contexts_opened)" = 3 ] || fail "the context was not renewed: $(device_told)"
stop_daemon

# So is one that the machine's sleep took, however short the idling: it is proven before it works again.
slept() { # SECONDS: more than before, behind the daemon's back
	truncate -s "+$1" "$NPUD_TEST_SLEPT"
}
export NPUD_TEST_SLEPT=$work/slept ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0
touch "$NPUD_TEST_SLEPT"
export LD_PRELOAD=$NPUD_BIN/tests/libsleeper.so
start_device lost=2000
unset LD_PRELOAD
health_becomes ok
run_once "$work/logits" "$work/m.safetensors" --random 5 --rows 3 --path device
opened=$(device_field contexts_opened)
slept 3600
sleep 2.5
run_once "$work/logits" "$work/m.safetensors" --random 5 --rows 3 --path device
same_bits "$work/host" "$work/logits" "after a sleep"
[ "$(device_field errors) $(device_field recoveries)" = "0 0" ] || fail "lost in a sleep is a fault: $(device_told)"
[ "$(device_field contexts_opened)" = $((opened + 1)) ] || fail "the context was not renewed: $(device_told)"
stop_daemon
