#!/bin/bash
# libnpu exports what client/npu.map says and no more; the programs define the functions that NNG is to call
# instead of those with its faults.
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
for name in sendmsg readv shutdown nng_stream_send nng_stream_recv; do
	if ! nm -D --defined-only "$NPUD_BIN/daemon/npud" | grep -qE " T $name(@|\$)"; then
		echo "npud does not define $name: NNG would use the one that is worked around"
		bad=1
	fi
done
for program in npuctl npu-head npu-hold npu-bench; do
	if ! nm -D --defined-only "$NPUD_BIN/client/$program" | grep -qE ' T nng_stream_recv(@|$)'; then
		echo "$program does not define nng_stream_recv: its npu_close could hang in NNG"
		bad=1
	fi
done
exit $bad
