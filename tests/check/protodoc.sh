#!/bin/bash
# docs/protocol.md is what npud-protodoc prints from proto/ops.def.
set -u
cd "${NPUD_SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1

out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
"$NPUD_BIN/proto/npud-protodoc" >"$out" || exit 1
diff -u docs/protocol.md "$out" && exit
echo "cure: build/dev/proto/npud-protodoc > docs/protocol.md"
exit 1
