#!/bin/bash
# Every breakage that is kept still applies to the tree: one that does not would never be tried again.
set -u
cd "$NPUD_SOURCE_DIR" || exit 1
command -v git >/dev/null || {
	echo "skipped: git is not there"
	exit 77
}
bad=0
for mutant in tests/mutants/*.patch; do
	git apply --check "$mutant" 2>/dev/null || {
		echo "$mutant does not apply: make it again, or remove it with what it broke"
		bad=1
	}
done
exit $bad
