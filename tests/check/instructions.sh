#!/bin/bash
# What is built for an instruction set uses no later one: a kernel picked for AVX2 must run on a processor that has
# just that, and all that is not a kernel on any.
set -u
command -v objdump >/dev/null || {
	echo "skipped: objdump is not installed"
	exit 77
}
[ "$(uname -m)" = x86_64 ] || {
	echo "skipped: the variants are for x86-64"
	exit 77
}

bad=0
seen=0
while IFS= read -r object; do
	seen=$((seen + 1))
	case ${object##*/} in
	*avx512vnni*) continue ;;                                        # the latest there is
	*avx512*) not='vpdpbusd|vpermi2b|vpermt2b|vpermb' ;;             # VNNI, VBMI
	*avxvnni*) not='%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])' ;;    # EVEX
	*avx2*) not='%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])|vpdpbusd' ;;
	*) not='%[yz]mm' ;;
	esac
	if found=$(objdump -d --no-show-raw-insn "$object" | grep -m 3 -E "$not"); then
		echo "${object#"$NPUD_BIN"/} has what its processor may lack:"
		echo "$found"
		bad=1
	fi
done < <(find "$NPUD_BIN/kernels/CMakeFiles/npud_kernels.dir" -name '*.c.o')

echo "$seen objects"
[ $seen -ge 8 ] && [ $bad = 0 ]
