#!/usr/bin/env python3
"""Writes the tables of src/text/mojibake.cpp from ftfy 6.3.1 (Apache-2.0). Run in .venv-parity.

mojibake_table.inc         the characters that the badness heuristic tells apart: {first, last, kCategory}
utf8_lookalike_table.inc   the characters that stand for bytes of UTF-8 in one of the single-byte encodings that ftfy tries, each a
                           bit, or in its expression for UTF-8 in the midst of text, the last bit:
                           {code point, first of 2, first of 3, first of 4, continuation}
"""

import pathlib
import re

import ftfy.bad_codecs  # noqa: F401  (registers the sloppy encodings)
from ftfy.badness import MOJIBAKE_CATEGORIES
from ftfy.chardata import CHARMAP_ENCODINGS, UTF8_CLUES

OUT = pathlib.Path(__file__).parent.parent.parent / "src/text"
HEADER = "// Made by tools/tables/make_mojibake_table.py from ftfy 6.3.1 (Apache-2.0). Do not edit by hand.\n"
FIRST_OF_2, FIRST_OF_3, FIRST_OF_4, CONTINUATION = range(4)
CLUES = ("utf8_first_of_2", "utf8_first_of_3", "utf8_first_of_4", "utf8_continuation")


def ranges(characters):
    """Ranges of the inside of a character class such as "a-zü"."""
    found = sorted(c for c in range(0x110000) if re.fullmatch(f"[{characters}]", chr(c)))
    begin = 0
    for i in range(1, len(found) + 1):
        if i == len(found) or found[i] != found[i - 1] + 1:
            yield found[begin], found[i - 1]
            begin = i


def write_categories():
    lines = [HEADER]
    for name, characters in MOJIBAKE_CATEGORIES.items():
        constant = "k" + "".join(word.title() for word in name.split("_"))
        lines += [f"{{0x{first:X}, 0x{last:X}, {constant}}},\n" for first, last in ranges(characters)]
    (OUT / "mojibake_table.inc").write_text("".join(lines))


def role(byte):
    """What a byte is in UTF-8 or in its laxer variants; None: nothing."""
    if byte < 0xC0:
        return CONTINUATION
    return FIRST_OF_2 if byte < 0xE0 else FIRST_OF_3 if byte < 0xF0 else FIRST_OF_4 if byte < 0xF5 else None


def write_lookalikes():
    masks = {}
    for bit, encoding in enumerate(CHARMAP_ENCODINGS):
        for byte in range(0x80, 0xF5):
            masks.setdefault(ord(bytes([byte]).decode(encoding)), [0] * 4)[role(byte)] |= 1 << bit
    for kind, name in enumerate(CLUES):
        for first, last in ranges(UTF8_CLUES[name]):
            for code_point in range(first, last + 1):
                masks.setdefault(code_point, [0] * 4)[kind] |= 1 << len(CHARMAP_ENCODINGS)
    lines, line = [HEADER], ""
    for code_point, kinds in sorted(masks.items()):
        line += f"{{0x{code_point:X}, " + ", ".join(f"0x{mask:X}" if mask else "0" for mask in kinds) + "}, "
        if len(line) > 100:
            lines.append(line.rstrip() + "\n")
            line = ""
    (OUT / "utf8_lookalike_table.inc").write_text("".join([*lines, line.rstrip() + "\n"]))


def main():
    write_categories()
    write_lookalikes()


if __name__ == "__main__":
    main()
