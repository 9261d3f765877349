#!/bin/bash
# What is read, packed and computed from random models of every reading is what the oracle says, bit for bit.
# NPUD_TEST_SEED: another draw than the usual one, for instance $RANDOM.
. "$(dirname "$0")/lib.bash"
tools=$data/../tools
[ -r "$tools/oracle.py" ] || skip "$tools/oracle.py is not there; set NPUD_TEST_DATA to the folder beside it"
seed=${NPUD_TEST_SEED:-1}
mkdir "$work/models"
python3 "$here/random_models.py" "$tools" "$work/models" "$seed" || fail "random_models.py, seed $seed"
NPUD_TEST_DATA=$work/models "$NPUD_BIN/tests/test_numbers" --filter 'numbers/every_tensor_has_the_sums_of_the_oracle' ||
	fail "seed $seed"
echo "$(wc -l <"$work/models/EXPECTED.tsv") models of seed $seed"
