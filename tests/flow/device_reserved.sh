#!/bin/bash
# Under an exclusive ticket only its holder's work, and its children's, is on the device, in batches of its own; others
# compute the same on the host, and are told so by name where they want the device and nothing else.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
. "$(dirname "$0")/tickets.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 512 >/dev/null || fail "make-model"
rows=("$work/m.safetensors" --random 5 --rows 3)
run() { run_to "$work/logits" "${rows[@]}" "$@"; }
start_soft ""
health_becomes ok
run --path device
cp "$work/logits" "$work/right"

in_background "$hold" -t 60s -l "mine" -- sh -c "echo \"\$NPU_TICKET\" >'$work/t' && mv '$work/t' '$work/ticket' && exec sleep 1000"
holder=${children[-1]}
until_true test -s "$work/ticket" || fail "no ticket: $(cat "$work/bg.err")"
ticket=$(cat "$work/ticket")
launches=$(device_field launches)
for path in auto alternate host; do
	run --path $path
	same_bits "$work/right" "$work/logits" "others, path=$path"
	[ "$(run_field path)" = host ] || fail "others' path=$path uses a device that is reserved"
	[ $path = host ] || [ "$(run_field path_why)" = "the device is reserved by an exclusive ticket" ] || fail "$(cat "$work/run.json")"
done
[ "$(device_field launches)" = "$launches" ] || fail "work of others was launched"
[ "$(events_with 'runs on the host for now')" = 1 ] || fail "the fallback is not said once: $("$npuctl" events)"
expect 75 "$head" run "${rows[@]}" --path device
says "reserved by ticket" "mine" "leave the path to npud"
expect 69 "$head" run "${rows[@]}" --verify
says "reserved by an exclusive ticket"

# The holder's, meanwhile, beside those of others: neither is ever in a pass of the other.
run_as_holder() { NPU_TICKET=$ticket timeout 60 "$head" run "${rows[@]}" "$@" --json >"$work/own.json" 2>"$work/err"; }
run_as_holder --logits "$work/own" --path device || fail "the holder: $(cat "$work/err")"
same_bits "$work/right" "$work/own" "the holder's"
[ "$(json_field path <"$work/own.json")" = device ] || fail "the holder's work is not on the device"
run_as_holder --logits "$work/own" --path device --verify || fail "the holder verifies: $(cat "$work/err")"
PYTHONPATH=$NPUD_SOURCE_DIR/client/python NPU_TICKET=$ticket timeout 100 python3 - "$work/m.safetensors" <<'EOC' || fail "beside"
import os, sys
import npud

ticket = os.environ.pop("NPU_TICKET")
clients = []
for i in range(6):
    if i >= 3:
        os.environ["NPU_TICKET"] = ticket
    clients.append((npud.Client(name=f"client {i}"), i >= 3))
handles = []
for client, own in clients:
    file = client.pass_file(open(sys.argv[1], "rb"))
    head = client.call("head.open", file=file)["head"]
    while not client.call("head.wait", head=head)["ready"]:
        pass
    handles.append(head)
x = npud.array.array("f", [0.25] * 512).tobytes()
shared = {False: 0, True: 0}
for turn in range(40):
    # Every other time all ask alike, so that nothing but the ticket keeps their rows apart.
    path = "device" if turn % 2 else "auto"
    pending = [(own, client.start("head.run", head=head, rows=1, x=x, path=path if own else "auto"))
               for (client, own), head in zip(clients, handles) for _ in range(4)]
    answers = [(own, p.result()) for own, p in pending]
    assert len({a["logits"] for _, a in answers}) == 1, "other bits"
    for own, a in answers:
        assert own and path == "auto" or a["path"] == ("device" if own else "host"), (own, a["path"], a["why"])
        assert a["rows_in_pass"] <= 12, f"a pass of {a['rows_in_pass']} rows has more than the 12 of one side"
        shared[own] += a["rows_in_pass"] > 4
assert all(shared.values()), f"nothing shared a pass: {shared}"
EOC

# Given back, the device is anybody's.
kill -TERM "$holder"
wait "$holder"
run --path device
same_bits "$work/right" "$work/logits" "afterwards"
expect 75 env NPU_TICKET="$ticket" "$head" run "${rows[@]}" --path device
stop_daemon
