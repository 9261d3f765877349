#!/bin/bash
# Metrics are what scrapers read, by npuctl and by HTTP; top shows what is busy; whoever speaks nonsense is in nobody's way.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"
. "$(dirname "$0")/device.bash"
"$NPUD_BIN/tests/make-model" "$work/na\"me\\.safetensors" 3000 512 >/dev/null || fail "make-model"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
start_soft "others=3" "[metrics]" "port = $port"
health_becomes ok

expect 0 "$hold" -c batch -- "$head" run "$work/na\"me\\.safetensors" --random 1 --rows 5
expect 0 "$head" run "$work/na\"me\\.safetensors" --random 1 --path host
in_background "$hold" -t 60s -c interactive -l demo -- sleep 60
until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "not granted"
in_background "$hold" -- true
until_true sh -c "'$npuctl' tickets -N | grep -q queued" || fail "it does not wait"

value() { awk -v name="$1" '$1 == name { print $2 }' "$work/out"; }
is() { [ "$(value "$1")" = "$2" ] || fail "$1 is $(value "$1"), not $2: $(grep "${1%%\{*}" "$work/out")"; }
expect 0 "$npuctl" metrics
is 'npud_rows_total{class="batch",path="device"}' 5
is 'npud_runs_total{class="normal",path="host"}' 1
is 'npud_queue_seconds_bucket{class="batch",path="device",le="+Inf"}' 1
is 'npud_compute_seconds_count{class="normal",path="host"}' 1
is 'npud_tickets{state="granted",class="interactive"}' 1
is 'npud_tickets{state="queued",class="normal"}' 1
is 'npud_tickets_ended_total{state="released"}' 1
is 'npud_ticket_wait_seconds_count{class="batch"}' 1
is 'npud_device_health{npud_device_health="ok"}' 1
is npud_device_reserved 1
is npud_device_contexts_max 16
grep -q '^npud_ticket_idle_seconds{ticket="2"' "$work/out" || fail "no idle time: $(grep idle "$work/out")"
expect 64 "$npuctl" metrics --json

# By HTTP the same, in the words of the format.
cat >"$work/scrape.py" <<'END'
import http.client, socket, sys
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
except ImportError:
    parse = None
port = int(sys.argv[1])

def ask(method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    c.request(method, path, body)
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, r.getheader("Content-Type"), text.decode()

status, kind, text = ask("GET", "/metrics")
assert status == 200 and kind.startswith("application/openmetrics-text; version=1.0.0"), (status, kind)
assert text.endswith("# EOF\n"), text[-100:]
if parse:
    families = {f.name: f for f in parse(text)}
    assert families["npud_queue_seconds"].type == "histogram" and families["npud_requests"].type == "counter"
    assert {s.labels["label"] for s in families["npud_object_rows"].samples} == {sys.argv[2]}, text
assert ask("HEAD", "/metrics")[0] == 200
assert ask("GET", "/")[0] == 404
assert ask("POST", "/metrics", b"x" * 100000)[0] == 405

# Half a request, nonsense, and more connections than are served: they end, and the next is answered.
idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
for i, s in enumerate(idle):
    try:
        s.sendall((b"GET /metr", b"\0\xff" * 500, b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 100000, b"")[i % 4])
    except OSError:
        pass
for s in idle:
    s.close()
for _ in range(40):
    try:
        if ask("GET", "/metrics")[0] == 200:
            break
    except OSError:
        pass
else:
    sys.exit("not answered after nonsense")
END
scraper=python3
/usr/bin/python3 -c 'import prometheus_client' 2>/dev/null && scraper=/usr/bin/python3
expect 0 "$scraper" "$work/scrape.py" "$port" "$("$npuctl" heads --json | jq -r '.heads[0].label')"
daemon_lives "nonsense by HTTP"
# At that address only.
! ss -Htln "sport = :$port" 2>/dev/null | grep -v "127.0.0.1:$port" || fail "others than this machine are served"

expect 0 "$npuctl" top
grep -q "1 hold, 1 wait" "$work/out" && grep -q "granted .*demo" "$work/out" && grep -q "HEAD" "$work/out" ||
	fail "top: $(cat "$work/out")"
expect 0 "$npuctl" top --json --count 2
[ "$(wc -l <"$work/out")" = 2 ] || fail "top --json: $(cat "$work/out")"
tail -1 "$work/out" | jq -e '.health == "ok" and .tickets[0].label == "demo" and .heads[0].rows == 6 and
	.requests_per_second > 0 and (.clients | length) >= 2' >/dev/null || fail "top --json: $(cat "$work/out")"
expect 0 "$npuctl" status
grep -q "tickets  *1 hold, 1 wait" "$work/out" || fail "status: $(cat "$work/out")"

# Contexts that no process seen from here has belong to somebody; npud's own do not.
expect 0 "$npuctl" who
grep -q "hardware contexts: 4 of 16 in use, 1 by npud, 3 by others" "$work/out" || fail "who: $(cat "$work/out")"
kill "${children[@]}"
until_true sh -c "[ -z \"\$('$npuctl' tickets -N)\" ]" || fail "holds do not end"
expect 75 "$hold" --alone -n -- true
stop_daemon

# A port that is taken costs nothing but the metrics by HTTP.
python3 -c 'import socket, sys, time; s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(); print("bound", flush=True); time.sleep(600)' "$port" >"$work/bound" &
children+=("$!")
until_true grep -q bound "$work/bound" || fail "the port cannot be taken"
start_soft "" "[metrics]" "port = $port"
grep -q "port $port of 127.0.0.1 cannot be had" "$log" || fail "nothing is said of a port that is taken"
health_becomes ok
expect 0 "$hold" --alone -n -- true
stop_daemon
