#!/bin/bash
# What the documents point at is there: links, files, and functions in the files they are said to be in. npu(3) names every
# function of npu.h.
set -u
cd "${NPUD_SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
python3 - <<'PY'
import glob, os, re, sys

TREE = ("client", "daemon", "proto", "store", "kernels", "tests", "docs", "scripts", "systemd")
sources = [f for top in TREE for f in glob.glob(top + "/**/*.*", recursive=True)]
bad, seen = [], 0

for document in glob.glob("*.md") + glob.glob("docs/*.md"):
    with open(document) as f:
        text = f.read()
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        seen += 1
        if not os.path.exists(os.path.join(os.path.dirname(document), link)):
            bad.append(f"{document} links to {link}")
    for path in re.findall(rf"(?<![\w/.<-])((?:{'|'.join(TREE)})/[\w./-]*\w)", text):
        seen += 1
        # A module is named without its ending, a header or a source with it.
        if not glob.glob(path + "*"):
            bad.append(f"{document} names {path}")
    for name, path in re.findall(r"`([a-z_0-9]+)` \(`?((?:\w+/)*\w+\.[ch])`?\)", text):
        seen += 1
        homes = [f for f in sources if f.endswith("/" + path) or f == path]
        if not any(re.search(rf"\b{name}\b", open(f).read()) for f in homes):
            bad.append(f"{document}: {name} is not in {path}")
with open("client/npu.h") as header, open("docs/man/npu.3.scd") as page:
    functions, page = set(re.findall(r"^(?:int|void|const char \*) ?(npu_[a-z_]+)\(", header.read(), re.M)), page.read()
for function in functions:
    seen += 1
    if f"*{function}*" not in page:
        bad.append(f"npu(3): {function} is not in docs/man/npu.3.scd")
for line in bad:
    print(line + ", which is not there" if " is not in " not in line else line)
print(f"{seen} places")
sys.exit(bool(bad) or seen < 50)
PY
