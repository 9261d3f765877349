#!/bin/bash
# What a Q4NX file does not say is told by options, or decided and said; what goes with no file is refused.
. "$(dirname "$0")/lib.bash"
need_data q4nx/retsim-q8a.q4nx
start_daemon

field() { # NAME: of the JSON in $work/out
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/out" "$1"
}

expect 0 "$head" run "$data/q4nx/retsim-q8a.q4nx" --random 1 --top 1
says "layout a: of 4096 groups"
expect 0 "$head" run "$data/q4nx/retsim-q8a.q4nx" --random 1 --json
[ "$(field type)" = q4nx:q8a ] || fail "type $(field type)"
[[ $(field note) == *"layout a"* ]] || fail "note $(field note)"
auto=$(field hash)
expect 0 "$head" run "$data/q4nx/retsim-q8a.q4nx" --random 1 --json --q8 a
[ "$(field hash)" = "$auto" ] || fail "told and decided alike, the weights have two names"
[ -z "$(field note)" ] || fail "a note where nothing was decided: $(field note)"
expect 0 "$head" run "$data/q4nx/retsim-q8a.q4nx" --random 1 --json --q8 b
[ "$(field hash)" != "$auto" ] || fail "another reading has the same name"

expect 0 "$head" run "$data/q4nx/retsim-q4_0s.q4nx" --random 1 --json
[[ $(field note) == *--signed* ]] || fail "note $(field note)"
plain=$(field hash)
expect 0 "$head" run "$data/q4nx/retsim-q4_0s.q4nx" --random 1 --json --signed
[ "$(field type)" = "q4nx:q4_1 signed" ] || fail "type $(field type)"
[ "$(field hash)" != "$plain" ] || fail "another reading has the same name"

expect 0 "$head" run "$data/q4nx/guesslang-h0-q8a.q4nx" --random 1 --json --k 70
[ "$(field type)" = "q4nx:q8a k=70" ] || fail "type $(field type)"
expect 65 "$head" run "$data/q4nx/guesslang-h0-q8a.q4nx" --random 1 --k 700
says "--k of 700"
expect 0 "$head" run "$data/llama2c/stories260K.bin" --random 1 --json
[ "$(field tensor) $(field why)" = "token_embedding_table tied" ] || fail "$(field tensor) $(field why)"
expect 65 "$head" run "$data/gguf/retsim-q4_0.gguf" --random 1 --signed
says "Q4_0 tensor"
expect 64 "$head" run "$data/q4nx/retsim-q8a.q4nx" --random 1 --q8 c
says "--q8 c"
expect 64 "$head" run "$data/q4nx/retsim-q8a.q4nx" --random 1 --k 0
says "--k"
stop_daemon
