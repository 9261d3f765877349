#!/bin/bash
# systemd understands the units, and the system's is as closed as it was.
set -u
command -v systemd-analyze >/dev/null || {
	echo "skipped: systemd-analyze is not there"
	exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
export XDG_RUNTIME_DIR=$work
bad=0

for unit in npud.service user/npud.service; do
	mkdir -p "$work/${unit%npud.service}"
	# The program is where it was built; its pages are not where man looks.
	sed -E "s|^ExecStart=[^ ]*|ExecStart=$NPUD_BIN/daemon/npud|; /^Documentation=/d" "$NPUD_BIN/systemd/$unit" >"$work/$unit"
	manager=--system
	[ "$unit" = npud.service ] || manager=--user
	said=$(systemd-analyze $manager --man=no verify "$work/$unit" 2>&1) && [ -z "$said" ] && continue
	echo "$unit: $said"
	bad=1
done
systemd-analyze security --offline=true --threshold=20 --no-pager "$work/npud.service" >"$work/said" 2>&1 || {
	tail -n 3 "$work/said"
	bad=1
}
tail -n 1 "$work/said"
exit $bad
