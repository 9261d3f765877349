#!/bin/bash
# Includes point one way: client -> proto; daemon -> proto, store, kernels; store -> proto; proto and kernels
# to nobody. The programs in client/ that are named below may use more; the library may not.
set -u
cd "${NPUD_SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1

declare -A home
for folder in proto store kernels daemon client; do
	while IFS= read -r header; do
		home[${header##*/}]+=" $folder"
	done < <(find $folder -name '*.h' -o -name '*.def' | grep -v '/python/')
done

allowed() { # FILE: the folders it may include from
	case $1 in
	proto/*) echo proto ;;
	kernels/*) echo kernels ;;
	store/*) echo store proto ;;
	daemon/*) echo daemon proto store kernels ;;
	# What packs, reads images or takes kernels in. loader.h: a second packer would drift.
	client/pack.c | client/packer.[ch] | client/lone.c | client/npuctl_im*.c | client/npuctl_kernels.c)
		echo client proto store kernels daemon
		;;
	client/*) echo client proto ;;
	esac
}

bad=0
seen=0
while IFS= read -r line; do
	seen=$((seen + 1))
	file=${line%%:*}
	name=${line#*\"}
	name=${name%%\"*}
	own=${file%%/*}
	folder=${name%%/*}
	case $name in
	proto/* | store/* | kernels/* | daemon/* | client/*) folders=$folder ;;
	*) folders=${home[${name##*/}]:-} ;;
	esac
	[ -n "$folders" ] || continue                # generated or the system's
	[[ " $folders " != *" $own "* ]] || continue # quotes find the neighbour first
	for to in $folders; do
		[[ " $(allowed "$file") " == *" $to "* ]] && continue 2
	done
	echo "$file includes \"$name\" of $folders; it may only see: $(allowed "$file")"
	bad=1
done < <(grep -rnE --include='*.[ch]' --include='*.cc' --include='*.def' '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' \
	proto store kernels daemon client)

echo "$seen includes"
[ $seen -gt 0 ] && [ $bad = 0 ]
