"""
store_damage.py WHAT DATA.MDB: breaks the file of an image store, at rest, as a disk or a stray program would. Knows records
by their bytes (store/record.h), not LMDB. Headers are broken in every copy, for LMDB leaves old pages behind; chunks in
the first, which is all there is while none was replaced.
  codes N, scales N        flips a byte of chunk N's payload (of the first tile found)
  prefix N                 flips a byte of its length
  header OFFSET            flips that byte of every header
  swap-headers             puts the headers of two heads under each other's keys
  swap-chunks              puts the chunks of two heads under each other's keys
  cut                      takes the second half of the file away
"""
import os
import struct
import sys

HEADER, PREFIX = 128, 48


def headers(data):
    found, at = {}, data.find(b"NPHI")
    while at >= 0:
        header = bytes(data[at : at + HEADER])
        # Old pages have halves of some, overwritten by others.
        if header[4:8] == b"\1\0\0\0" and header[25:28] == b"\0\0\0" and header[96:120] == bytes(24):
            found.setdefault(header, []).append(at)
        at = data.find(b"NPHI", at + 1)
    return found


def key(header):
    kd, nd, layout, tile = struct.unpack_from("<4I", header, 16)
    return header[48:64] + struct.pack(">IIBI", kd, nd, layout, tile)


def chunk(data, tile_key, number):
    """Where the chunk's prefix begins; the same 33 bytes as its LMDB key have no prefix behind them."""
    name, at = tile_key + struct.pack(">I", number), -1
    while True:
        at = data.find(name, at + 1)
        if at < 0:
            sys.exit(f"there is no chunk {number}")
        if at % 4096 == 16 and data[at + 33 : at + 36] == b"\0\0\0":
            return at, struct.unpack_from("<I", data, at + 36)[0]


def main():
    what, path = sys.argv[1:3] if sys.argv[2:3] and not sys.argv[2].isdigit() else (sys.argv[1], sys.argv[3])
    number = int(sys.argv[2]) if sys.argv[2].isdigit() else 0
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        heads = sorted((h for h in headers(data)), key=key)
        if what == "cut":
            file.truncate(len(data) // 2)
            return
        if what == "header":
            for places in headers(data).values():
                for at in places:
                    data[at + number] ^= 0x10
        elif what == "prefix":
            at, _ = chunk(data, key(heads[0]), number)
            data[at + 36] ^= 0x10
        elif what in ("codes", "scales"):
            at, length = chunk(data, key(heads[0]), number)
            data[at + PREFIX + length // 2] ^= 0x10
        elif what == "swap-headers":
            by_hash = {}
            for h in heads:
                by_hash.setdefault(h[48:64], []).append(h)
            a, b = by_hash.values()
            places = headers(data)
            for one, other in zip(a, b):
                for at in places[one]:
                    data[at : at + HEADER] = other
                for at in places[other]:
                    data[at : at + HEADER] = one
        elif what == "swap-chunks":
            a, b = (next(h for h in heads if h[48:64] == x) for x in sorted({h[48:64] for h in heads}))
            (at, size), (to, other) = chunk(data, key(a), 0), chunk(data, key(b), 0)
            assert size == other
            size += PREFIX
            data[at : at + size], data[to : to + size] = data[to : to + size], data[at : at + size]
        else:
            sys.exit(f"{what}?")
        file.seek(0)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


main()
