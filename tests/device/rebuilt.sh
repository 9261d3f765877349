#!/bin/bash
# The command of docs/kernels.md makes a module of what is installed: the source and the headers beside it, alone.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp "$NPUD_SOURCE_DIR"/kernels/device/{xrt.cc,xrt_module.h,device.h} "$dir/" || exit 1
command=$(sed -n '/^    c++ /,/[^\\]$/p' "$NPUD_SOURCE_DIR/docs/kernels.md")
command=${command//\/opt\/xilinx\/xrt\/include/$NPUD_TEST_XRT_INCLUDE}
command=${command//\/usr\/share\/npud\/xrt/$dir}
[[ $command == *"$dir/xrt.cc"*" -o npud-xrt.so" ]] || {
	echo "FAIL: docs/kernels.md has no such command: $command"
	exit 1
}
cd "$dir" && bash -c "$command" || exit 1
mkdir set && "$NPUD_BIN/tests/mkset" set 4,64,128,0 || exit 1
printf '[device]\nnode = /dev/null\nkernels = %s/set\nmodule = %s/npud-xrt.so\n' "$dir" "$dir" >npud.conf
"$NPUD_BIN/daemon/npud" --config npud.conf --check-device
