#!/bin/bash
# The sample configuration is good, and names every key that there is.
set -eu
cd "$NPUD_SOURCE_DIR"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$NPUD_BIN/daemon/npud" --config docs/npud.conf --check-config >/dev/null
keys=$(sed -nE 's/^\t(TEXT|COUNT|SPAN|FLAG)_KEY\("[a-z]+", "([a-z_]+)".*/\2/p' daemon/config.c)
[ "$(echo "$keys" | wc -w)" -ge 8 ]
for key in $keys; do
	grep -qE "^(; )?$key =" docs/npud.conf || { echo "docs/npud.conf does not name $key"; exit 1; }
	grep -q "\*$key\*" docs/man/npud.conf.5.scd || { grep -q "\*.*$key" docs/man/npud.conf.5.scd; } ||
		{ echo "npud.conf(5) does not name $key"; exit 1; }
done
