#!/bin/bash
# What is installed can be used from there: by pkg-config and by CMake (docs/example.c), and from Python; and has its documents.
set -u
cd "${NPUD_SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1

work=$(mktemp -d) || exit 1
daemon=
trap '[ -z "$daemon" ] || kill -KILL "$daemon"; rm -rf -- "$work"' EXIT
root=$work/root

run() { # COMMAND...: quiet unless it fails
	"$@" >"$work/said" 2>&1 && return
	cat "$work/said"
	echo "FAIL: $*"
	exit 1
}

if nm -D "$NPUD_BIN/client/libnpu.so" | grep -q '__[a-z]*san_'; then
	echo "skipped: a library with a sanitizer in it needs programs built with it, too"
	exit 77
fi
DESTDIR=$root run cmake --install "$NPUD_BIN"
library=$(find "$root" -name libnpu.so)
export LD_LIBRARY_PATH=${library%/*}

pc=$(find "$root" -name npu.pc)
export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=${pc%/*}
flags=$(pkg-config --cflags --libs npu) || exit 1
# shellcheck disable=SC2086
run cc -Wall -Wextra -Werror docs/example.c -o "$work/by-pkg-config" $flags
mkdir "$work/user"
cat >"$work/user/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES C)
find_package(npud 0.1 REQUIRED)
add_executable(by-cmake $PWD/docs/example.c)
target_link_libraries(by-cmake PRIVATE npud::npu)
END
config=$(find "$root" -name npudConfig.cmake)
run cmake -G Ninja -S "$work/user" -B "$work/user/build" -Dnpud_DIR="${config%/*}"
run cmake --build "$work/user/build"
export NPUD_SOCKET=$work/npud.sock
run "$NPUD_BIN/tests/make-model" "$work/model" 200 64
"$NPUD_BIN/daemon/npud" --foreground --socket "$NPUD_SOCKET" --cache-dir "$work/cache" --state-dir "$work/state" \
	2>"$work/log" &
daemon=$!
for ((i = 0; i < 100; i++)); do
	"$NPUD_BIN/client/npuctl" ping >/dev/null 2>&1 && break
	sleep 0.1
done
for program in "$work/by-pkg-config" "$work/user/build/by-cmake"; do
	run "$program" "$work/model"
	[ "$(wc -l <"$work/said")" = 5 ] || {
		echo "$program prints no five words: $(cat "$work/said")"
		exit 1
	}
	"$program" >/dev/null 2>"$work/said"
	[ "$(cat "$work/said")" = "usage: example MODEL" ] || {
		echo "$program says: $(cat "$work/said")"
		exit 1
	}
	nm -D "$program" | grep -q ' U npu_connect@NPU_' || {
		echo "$program wants npu_connect without a version"
		exit 1
	}
done

documents=$(find "$root" -type d -path '*/doc/npud')
for document in README.md docs/kernels.md docs/protocol.md docs/npud.conf docs/example.c; do
	[ -s "$documents/$document" ] || {
		echo "$document was not installed"
		exit 1
	}
done

module=$(find "$root" -name npud.py)
[ -n "$module" ] || {
	echo "npud.py was not installed"
	exit 1
}
PYTHONPATH=${module%/*} PYTHONDONTWRITEBYTECODE=1 run python3 -c "import npud; npud.Client"
