#!/bin/bash
# Every man page is made by scdoc and shown by man without a warning.
set -u
cd "${NPUD_SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1

for tool in scdoc man; do
	command -v $tool >/dev/null || {
		echo "skipped: $tool is not installed"
		exit 77
	}
done
shopt -s nullglob
pages=(docs/man/*.scd)
if [ ${#pages[@]} = 0 ]; then
	echo "there are no pages in docs/man"
	exit 1
fi

dir=$(mktemp -d) || exit 1
trap 'rm -rf -- "$dir"' EXIT
export LC_ALL=C.UTF-8 MANWIDTH=80 MAN_KEEP_FORMATTING= MANROFFSEQ=
bad=0
for page in "${pages[@]}"; do
	out=$dir/$(basename "$page" .scd)
	if ! scdoc <"$page" >"$out" 2>"$dir/said" || [ -s "$dir/said" ]; then
		echo "$page: scdoc:"
		cat "$dir/said"
		bad=1
	elif ! man --warnings -E UTF-8 -l "$out" >/dev/null 2>"$dir/said" || [ -s "$dir/said" ]; then
		echo "$page: man:"
		cat "$dir/said"
		bad=1
	fi
done
echo "${#pages[@]} pages"
exit $bad
