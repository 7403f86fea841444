#!/usr/bin/env python3
"""Writes the tables of src/text/mojibake.cpp and src/text/utf8_lookalike.cpp from ftfy 6.3.1 (Apache-2.0). Run in .venv-parity with Python 3.11.

mojibake_table.inc         ftfy's expression for what text rarely holds (badness.py, BADNESS_RE) as an automaton: classes of characters, and
                           for each state the next one by class
utf8_lookalike_table.inc   the characters that stand for bytes of UTF-8 in one of the single-byte encodings that ftfy tries, each a
                           bit, or in its expression for UTF-8 in the midst of text, the last bit:
                           {code point, first of 2, first of 3, first of 4, continuation}
"""

import itertools
import pathlib
import re
import re._constants as kinds
import re._parser as parser
import sys
import unicodedata

import ftfy
import ftfy.bad_codecs  # noqa: F401  (registers the sloppy encodings)
from ftfy.badness import BADNESS_RE
from ftfy.chardata import CHARMAP_ENCODINGS, UTF8_CLUES

OUT = pathlib.Path(__file__).parent.parent.parent / "src/text"
HEADER = "// Made by tools/tables/make_mojibake_table.py from ftfy 6.3.1 (Apache-2.0){}. Do not edit by hand.\n"
FIRST_OF_2, FIRST_OF_3, FIRST_OF_4, CONTINUATION = range(4)
CLUES = ("utf8_first_of_2", "utf8_first_of_3", "utf8_first_of_4", "utf8_continuation")
EVERY = frozenset(c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
CATEGORIES = {
    kinds.CATEGORY_WORD: frozenset(c for c in EVERY if re.match(r"\w", chr(c))),
    kinds.CATEGORY_SPACE: frozenset(c for c in EVERY if re.match(r"\s", chr(c))),
}
START_OF_TEXT = "start"


def characters_of(kind, value):
    """The characters that one step of an expression takes."""
    if kind is kinds.LITERAL:
        return frozenset([value])
    if kind is kinds.NOT_LITERAL:
        return EVERY - {value}
    if kind is kinds.ANY:
        return EVERY - {ord("\n")}
    if kind is kinds.RANGE:
        return frozenset(range(value[0], value[1] + 1))
    if kind is kinds.CATEGORY:
        return CATEGORIES[value]
    if kind is kinds.IN:
        negated = value[0][0] is kinds.NEGATE
        found = frozenset().union(*(characters_of(*item) for item in value[negated:]))
        return EVERY - found if negated else found
    raise ValueError(f"no step of one character: {kind}")


def sequences(steps):
    """Every sequence of character sets that a list of parsed steps stands for."""
    if not steps:
        return [[]]
    (kind, value), rest = steps[0], sequences(steps[1:])
    if kind is kinds.BRANCH:
        heads = [head for branch in value[1] for head in sequences(list(branch))]
    elif kind is kinds.SUBPATTERN:
        heads = sequences(list(value[3]))
    elif kind is kinds.MAX_REPEAT:
        low, high, item = value
        heads = [head for count in range(low, high + 1) for head in sequences(list(item) * count)]
    elif kind is kinds.AT and value is kinds.AT_BEGINNING:
        heads = [[START_OF_TEXT]]
    else:
        heads = [[characters_of(kind, value)]]
    return [head + tail for head, tail in itertools.product(heads, rest)]


def classes_of(sets):
    """The coarsest classes of characters that every set is a union of: the class of each character."""
    signature = {}
    for place, characters in enumerate(sets):
        for c in characters:
            signature[c] = signature.get(c, 0) | 1 << place
    numbers = {signature[0x10FFFF]: 0}  # Of most characters, which then need no entry.
    return {c: numbers.setdefault(signature.get(c, 0), len(numbers)) for c in sorted(EVERY)}, list(numbers)


def automaton(patterns):
    """(ranges of classes, transitions): state 0 is the start of a text, FOUND one past the last state."""
    sets = list(dict.fromkeys(step for pattern in patterns for step in pattern if step != START_OF_TEXT))
    class_of, signatures = classes_of(sets)
    number = {characters: place for place, characters in enumerate(sets)}
    anchored = frozenset((i, 1) for i, pattern in enumerate(patterns) if pattern[0] == START_OF_TEXT)
    floating = frozenset((i, 0) for i, pattern in enumerate(patterns) if pattern[0] != START_OF_TEXT)
    states, rows = {anchored | floating: 0}, []
    for state in states_in_order(states):
        row = []
        for signature in signatures:
            reached = {(i, step + 1) for i, step in state if signature >> number[patterns[i][step]] & 1}
            if any(step == len(patterns[i]) for i, step in reached):
                row.append(None)
            else:
                row.append(states.setdefault(frozenset(reached) | floating, len(states)))
        rows.append(row)
    return class_of, rows


def states_in_order(states):
    """The states, also those that are found on the way."""
    done = 0
    while done < len(states):
        yield list(states)[done]
        done += 1


def runs(class_of):
    """(first, last, class) of the characters that are in any class but 0."""
    found = []
    for c, number in class_of.items():
        if number == 0:
            continue
        if found and found[-1][1] == c - 1 and found[-1][2] == number:
            found[-1][1] = c
        else:
            found.append([c, c, number])
    return found


def wrapped(entries):
    lines, line = [], ""
    for entry in entries:
        if len(line) + len(entry) > 112:
            lines.append(line.rstrip() + "\n")
            line = ""
        line += entry + ", "
    return [*lines, line.rstrip() + "\n"]


def write_automaton():
    tree = parser.parse(BADNESS_RE.pattern, BADNESS_RE.flags)
    class_of, rows = automaton(sequences(list(tree)))
    version = f" and Unicode {unicodedata.unidata_version}"
    lines = [HEADER.format(version), f"constexpr size_t kNumClasses = {max(class_of.values()) + 1};\n", f"constexpr State kFound = {len(rows)};\n"]
    lines += ["// {first, last, class}; all other characters are of class 0.\n", "constexpr ClassRange kClassRanges[] = {\n"]
    lines += wrapped(f"{{0x{first:X}, 0x{last:X}, {number}}}" for first, last, number in runs(class_of))
    lines += ["};\n", "// A row a state, the next state by class. State 0 is the start of a text.\n", "constexpr State kNextStates[][kNumClasses] = {\n"]
    for row in rows:
        inner = "".join(wrapped(str(len(rows) if state is None else state) for state in row)).rstrip()
        lines.append(f"{{{inner}}},\n")
    (OUT / "mojibake_table.inc").write_text("".join([*lines, "};\n"]))
    print(f"{max(class_of.values()) + 1} classes, {len(rows)} states")


def ranges(characters):
    """Ranges of the inside of a character class such as "a-zü"."""
    found = sorted(c for c in range(0x110000) if re.fullmatch(f"[{characters}]", chr(c)))
    begin = 0
    for i in range(1, len(found) + 1):
        if i == len(found) or found[i] != found[i - 1] + 1:
            yield found[begin], found[i - 1]
            begin = i


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
    lines, line = [HEADER.format("")], ""
    for code_point, kinds_of in sorted(masks.items()):
        line += f"{{0x{code_point:X}, " + ", ".join(f"0x{mask:X}" if mask else "0" for mask in kinds_of) + "}, "
        if len(line) > 100:
            lines.append(line.rstrip() + "\n")
            line = ""
    (OUT / "utf8_lookalike_table.inc").write_text("".join([*lines, line.rstrip() + "\n"]))


def main():
    if ftfy.__version__ != "6.3.1" or unicodedata.unidata_version != "14.0.0":
        sys.exit(f"ftfy is {ftfy.__version__} and Python's Unicode {unicodedata.unidata_version}; needed are 6.3.1 and 14.0.0")
    write_automaton()
    write_lookalikes()


if __name__ == "__main__":
    main()
