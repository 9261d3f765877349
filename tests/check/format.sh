#!/bin/bash
# clang-format has nothing to change.
set -u
cd "${NPUD_SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1

command -v clang-format >/dev/null || {
	echo "skipped: clang-format is not installed"
	exit 77
}
# A clone made by somebody else is fine to read.
mapfile -t files < <(git -c safe.directory='*' ls-files -co --exclude-standard -- '*.c' '*.h' |
	while IFS= read -r f; do [ ! -f "$f" ] || echo "$f"; done)
if [ ${#files[@]} = 0 ]; then
	echo "skipped: not a git checkout"
	exit 77
fi
out=$(clang-format --dry-run -Werror --style=file "${files[@]}" 2>&1) && echo "${#files[@]} files" && exit
# One line a place is enough.
grep -E '^[^ ].*: error: ' <<<"$out" | cut -d: -f1,2 | uniq | head -n 50
echo "cure: clang-format -i FILE"
exit 1
