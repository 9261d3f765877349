#!/bin/bash
# libnpu exports what client/npu.map says and no more; npud defines the sendmsg that NNG is to call.
set -u
cd "${NPUD_SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1

said=$(tr -s ' \t\n{};' '\n' <client/npu.map | awk '/^#/ { next } $0 == "global:" { on = 1; next }
	$0 == "local:" { on = 0 } on && NF' | sort -u)
# "A" is the version's own name.
found=$(nm -D --defined-only "$NPUD_BIN/client/libnpu.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)

bad=0
if [ -z "$said" ] || ! diff <(echo "$said") <(echo "$found"); then
	echo "the names in client/npu.map (<) are not those of libnpu.so (>)"
	bad=1
fi
if ! nm -D --defined-only "$NPUD_BIN/daemon/npud" | grep -qE ' T sendmsg(@|$)'; then
	echo "npud does not define sendmsg: NNG would use the C library's"
	bad=1
fi
exit $bad
