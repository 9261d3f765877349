#!/usr/bin/env python3
"""example.py MODEL [K]: the K (5) best words of a model's head for one row of ones."""
import sys

import npud


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    k = int(sys.argv[2]) if len(sys.argv) == 3 else 5
    try:
        with npud.Client(name="example.py") as client, client.open(sys.argv[1]) as head:
            for word, score in head.top([1.0] * head.h, min(k, head.nv))[0]:
                print(f"{word:8}  {score:g}")
    except (npud.Error, OSError) as error:
        sys.exit(f"example.py: {error}")


main()
