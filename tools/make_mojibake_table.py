#!/usr/bin/env python3
"""Writes src/text/mojibake_table.inc: the characters that ftfy's badness heuristic tells apart (ftfy 6.3.1, Apache-2.0).

    make_mojibake_table.py       run in .venv-parity

One line a range of code points: {first, last, kCategory}.
"""

import pathlib
import re

from ftfy.badness import MOJIBAKE_CATEGORIES

OUT = pathlib.Path(__file__).parent.parent / "src/text/mojibake_table.inc"


def ranges(characters):
    """Ranges of the inside of a character class such as "a-zü"."""
    found = sorted(c for c in range(0x110000) if re.fullmatch(f"[{characters}]", chr(c)))
    begin = 0
    for i in range(1, len(found) + 1):
        if i == len(found) or found[i] != found[i - 1] + 1:
            yield found[begin], found[i - 1]
            begin = i


def main():
    lines = ["// Made by tools/make_mojibake_table.py from ftfy 6.3.1 (Apache-2.0). Do not edit by hand.\n"]
    for name, characters in MOJIBAKE_CATEGORIES.items():
        constant = "k" + "".join(word.title() for word in name.split("_"))
        lines += [f"{{0x{first:X}, 0x{last:X}, {constant}}},\n" for first, last in ranges(characters)]
    OUT.write_text("".join(lines))


if __name__ == "__main__":
    main()
