#!/bin/bash
# A file that is as it was when the daemon hashed it is not read whole again for somebody who cannot write it; for who can, only
# while nobody has it open to write, also after a restart. What was changed behind the times of the file gives the right logits all
# the same.
. "$(dirname "$0")/lib.bash"
[ "$(id -u)" = 0 ] || skip "only root can be other users"
command -v setpriv >/dev/null || skip "setpriv is not there"
getent group users >/dev/null || skip "the group users is not there"
chmod 0755 "$work"
install -d -m 0750 -g users "$work/run"
printf '[daemon]\ngroup = users\n[resident]\nkeep = 0\n' >"$work/npud.conf"
install -m 0755 "$head" "$work/"
m=$work/m.safetensors
for i in 1 2; do
	"$NPUD_BIN/tests/make-model" "$work/$i.safetensors" 3000 200 $i || fail "make-model"
done
cp "$work/1.safetensors" "$m"
chmod 0644 "$m"
start_daemon --config "$work/npud.conf"

shm=$(mktemp -d /dev/shm/npud-flow.XXXXXX) || skip "/dev/shm is not there"
trap 'status=$?; rm -rf "$shm"; (exit $status); cleanup' EXIT
chmod 0755 "$shm"
case $(stat -f -c %T "$work") in
ext2/ext3 | xfs | btrfs | f2fs) lasting=1 ;; # tells of all writing, and the same after a restart
*) lasting= ;;
esac
restart() {
	stop_daemon
	start_daemon --config "$work/npud.conf"
}
doubted() { grep -c 'whatever its times say: read again' "$log"; }
own() { "$work/npu-head" run "$m" --random 7 --rows 3 --tile 1024 --logits "$work/own" --json; }
stranger() {
	setpriv --reuid 2001 --regid 2001 --groups 100 -- \
		"$work/npu-head" run "$m" --random 7 --rows 3 --tile 1024 --logits - >"$work/theirs" || fail "stranger"
}
# opened EXPRESSION WHO: what open says is so.
opened() {
	local said
	case $2 in
	own) said=$("$work/npu-head" open "$m" --tile 1024 --json) || fail "open" ;;
	stranger) said=$(setpriv --reuid 2001 --regid 2001 --groups 100 -- "$work/npu-head" open "$m" --tile 1024 --json) || fail "open" ;;
	esac
	jq -e "$1" <<<"$said" >/dev/null || { echo "$said" >"$work/said"; return 1; }
}
# Until the file has been left alone for long enough to be believed.
known() {
	local i
	for ((i = 0; i < 100; i++)); do
		opened '.hashed | not' stranger && return
		sleep 0.1
	done
	fail "the file is read every time: $(cat "$work/said")"
}

NPUD_STORE=0 own >/dev/null || fail "run"
cp "$work/own" "$work/right1"
known
opened '.from_store == 3 and .packed == 0 and .gathered_columns == 24' stranger || fail "not from the store: $(cat "$work/said")"
exec 9<>"$m"
opened '.hashed' own || fail "who can write it is believed while somebody does: $(cat "$work/said")"
exec 9>&-
opened '.hashed' own || fail "somebody could write it when it was hashed, and is believed: $(cat "$work/said")"
if [ "$lasting" ]; then
	opened '.hashed | not' own || fail "nobody can have written it, and it is read again: $(cat "$work/said")"
else
	opened '.hashed' own || fail "this file system does not tell of writing, and is believed: $(cat "$work/said")"
fi
stranger && cmp "$work/right1" "$work/theirs" || fail "other logits"

# Resident: attached with the sample alone.
"$npuctl" reload || fail "reload"
printf '[daemon]\ngroup = users\n' >"$work/npud.conf"
"$npuctl" reload || fail "reload"
opened '.hashed | not' stranger || fail "read again: $(cat "$work/said")"
opened '.attached and (.hashed | not) and .gathered_columns == 24' stranger || fail "not attached: $(cat "$work/said")"

# The next daemon knows it, too, and whose image it is.
restart
if [ "$lasting" ]; then
	opened '(.hashed | not) and .from_store == 3 and .gathered_columns == 24' stranger || fail "read after a restart: $(cat "$work/said")"
	restart
	opened '.hashed | not' own || fail "nobody can have written it, and it is read after a restart: $(cat "$work/said")"
	restart
	exec 9<>"$m"
	opened '.hashed' own || fail "who can write it is believed after a restart while somebody does: $(cat "$work/said")"
	exec 9>&-
else
	opened '.hashed' stranger || fail "such a file is another one after a restart, and is believed: $(cat "$work/said")"
fi
stranger && cmp "$work/right1" "$work/theirs" || fail "other logits after a restart"

# Written like any file, it has other times, also if nobody was there to see.
stop_daemon
old=$(stat -c %y "$m")
cp "$work/2.safetensors" "$m"
touch -d "$old" "$m"
start_daemon --config "$work/npud.conf"
opened '.hashed and .packed == 3' stranger || fail "the old weights are believed: $(cat "$work/said")"
own >/dev/null || fail "run"
cp "$work/own" "$work/right2"
cmp -s "$work/right1" "$work/right2" && fail "the same logits: this shows nothing"

# What the store says of a file, and is not so, the sample finds, and then it is gone.
if [ "$lasting" ]; then
	"$npuctl" store prune >/dev/null || fail "prune"
	for i in 1 2; do
		m=$work/noted.$i.safetensors
		cp "$work/$i.safetensors" "$m"
		chmod 0644 "$m"
		known
	done
	stop_daemon
	"$NPUD_BIN/tests/forge" "$work/cache/images" names || fail "forge names"
	start_daemon --config "$work/npud.conf"
	for i in 1 2; do
		m=$work/noted.$i.safetensors
		stranger && cmp "$work/right$i" "$work/theirs" || fail "$i: logits of other weights"
	done
	[ "$(doubted)" = 2 ] || fail "the log has not that both files were read again, but $(doubted)"
	restart
	for i in 1 2; do
		m=$work/noted.$i.safetensors
		opened '.from_store == 3 and .refused == 0' stranger || fail "$i: an image was replaced by the other's: $(cat "$work/said")"
	done
	[ "$(doubted)" = 2 ] || fail "what was found wrong is believed after a restart, until it is found again"
fi

# Through a map that was made writable before, bytes change and times need not (in memory; on a disk they do once the bytes have been
# there): the sample finds it, attached or not.
m=$shm/m.safetensors
for keep in 600 0; do
	printf '[daemon]\ngroup = users\n[resident]\nkeep = %s\n' $keep >"$work/npud.conf"
	"$npuctl" reload || fail "reload"
	cp "$work/2.safetensors" "$m"
	: >"$work/mapped"
	python3 - "$m" "$work/1.safetensors" "$work/mapped" "$work/go" <<'END' &
import mmap, os, sys, time
with open(sys.argv[1], "r+b") as f, open(sys.argv[2], "rb") as other, open(sys.argv[3], "w") as said:
    at = mmap.mmap(f.fileno(), 0)
    for i in range(0, len(at), 4096):
        at[i] = at[i]
    said.write("mapped")
    said.flush()
    while not os.path.exists(sys.argv[4]):
        time.sleep(0.02)
    at[:] = other.read()
    said.write(" written")
    said.flush()
    while os.path.exists(sys.argv[4]):
        time.sleep(0.02)
END
	children=($!)
	until grep -q mapped "$work/mapped"; do
		kill -0 "${children[0]}" || fail "no map"
		sleep 0.02
	done
	known
	touch "$work/go"
	until grep -q written "$work/mapped"; do
		kill -0 "${children[0]}" || fail "the map was not written"
		sleep 0.02
	done
	doubts=$(doubted)
	stranger && cmp "$work/right1" "$work/theirs" || fail "keep $keep: logits of weights that are there no more"
	[ "$(stat -f -c %T "$shm")" != tmpfs ] || [ "$(doubted)" -gt "$doubts" ] || fail "keep $keep: the log does not say why"
	daemon_lives
	# Nor does the next daemon believe it.
	rm "$work/go"
	wait "${children[0]}" || fail "map"
	children=()
	# What was packed from the changed bytes is not what goes by the old name.
	said=$("$work/npu-head" open "$work/2.safetensors" --tile 1024 --json) || fail "open"
	jq -e '.refused == 0 and .packed == 0' <<<"$said" >/dev/null || fail "keep $keep: the old weights' image was replaced: $said"
done
stop_daemon
