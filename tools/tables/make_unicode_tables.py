#!/usr/bin/env python3
"""Writes what the tokenizer knows of Unicode, pinned, so that no id depends on a system library.

    src/text/unicode_properties.inc   classes, ages and other properties of every code point
    src/text/letter_case.inc          lower case
    src/text/normal_form.inc          decompositions and combining classes

    .venv-parity/bin/python tools/tables/make_unicode_tables.py [/usr/share/unicode]

Two sources, both checked for their version:
  tokenizers 0.23.3       asked for every code point: \\s, \\p{L}, \\p{N} (Unicode 16) and the lower case of single characters (Unicode 17)
  Unicode 15.0's files    (Debian 12's package unicode-data): normalisation forms, case of whole texts, ages
"""

import pathlib
import sys

import tokenizers
from tokenizers import Regex, normalizers

OUT = pathlib.Path(__file__).parent.parent.parent / "src/text"
HEADER = "// Made by tools/tables/make_unicode_tables.py from {}. Do not edit by hand."
TOKENIZERS = "0.23.3"
UNICODE = "15.0.0"
NUM_CODE_POINTS = 0x110000

# Bits of a character's properties; the two lowest are its class, in the order of CharacterClass.
CLASS_SPACE, CLASS_LETTER, CLASS_NUMBER, CLASS_OTHER = range(4)
BITS = [
    ("kInUnicode9", "assigned in Unicode 9"),
    ("kNormal", "stays as it is in NFC, whatever stands before it"),
    ("kCased", "the property Cased"),
    ("kCaseIgnorable", "the property Case_Ignorable"),
    ("kDecimal", "category Nd"),
    ("kNew", "a letter, number or mark newer than Unicode 14, or not assigned, from U+0800 on"),
    ("kHasLower", "stands in kLowerRanges"),
    ("kHasDecomposition", "stands in kDecompositions"),
    ("kIsMark", "stands in kCombiningRanges"),
]
BIT = {name: 4 << place for place, (name, _) in enumerate(BITS)}


def read_lines(folder, name, check_version=True):
    text = (folder / name).read_text(encoding="utf-8")
    if check_version and UNICODE not in text[:200]:
        sys.exit(f"{folder / name} is not of Unicode {UNICODE}")
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("#")[0].split(";")]
        if fields[0]:
            yield fields


def code_range(text):
    first, _, last = text.partition("..")
    return range(int(first, 16), int(last or first, 16) + 1)


def property_set(folder, name, value):
    return {c for fields in read_lines(folder, name) if fields[1] == value for c in code_range(fields[0])}


class UnicodeFiles:
    """Unicode's own files, as far as they are needed."""

    def __init__(self, folder):
        self.category = ["Cn"] * NUM_CODE_POINTS
        self.combining, self.canonical, self.lower, self.compatible = {}, {}, {}, {}
        first = None
        for fields in read_lines(folder, "UnicodeData.txt", check_version=False):  # It names no version: the others do.
            c = int(fields[0], 16)
            for covered in range(c if first is None else first, c + 1):
                self.category[covered] = fields[2]
            first = c if fields[1].endswith("First>") else None
            if fields[3] != "0":
                self.combining[c] = int(fields[3])
            if fields[5]:
                parts = fields[5].split()
                mapping = [int(part, 16) for part in parts if not part.startswith("<")]
                (self.compatible if parts[0].startswith("<") else self.canonical)[c] = mapping
            if fields[13]:
                self.lower[c] = int(fields[13], 16)
        self.age = {}
        for fields in read_lines(folder, "DerivedAge.txt"):
            for c in code_range(fields[0]):
                self.age[c] = tuple(int(part) for part in fields[1].split("."))
        self.cased = property_set(folder, "DerivedCoreProperties.txt", "Cased")
        self.case_ignorable = property_set(folder, "DerivedCoreProperties.txt", "Case_Ignorable")
        self.excluded = property_set(folder, "DerivedNormalizationProps.txt", "Full_Composition_Exclusion")
        self.abnormal = {c for fields in read_lines(folder, "DerivedNormalizationProps.txt") if fields[1] == "NFC_QC" for c in code_range(fields[0])}
        full = [fields for fields in read_lines(folder, "SpecialCasing.txt") if len(fields) == 5 and len(fields[1].split()) > 1]
        assert [fields[0] for fields in full] == ["0130"], "the code knows U+0130 as the only character with two in lower case"


def characters():
    return (c for c in range(NUM_CODE_POINTS) if not 0xD800 <= c <= 0xDFFF)


def reference_classes():
    """Of tokenizers' regular expressions."""
    classes = [CLASS_OTHER] * NUM_CODE_POINTS
    for expression, value in ((r"\s", CLASS_SPACE), (r"\p{L}", CLASS_LETTER), (r"\p{N}", CLASS_NUMBER)):
        matcher = normalizers.Replace(Regex(expression), "")
        for c in characters():
            if not matcher.normalize_str(chr(c)):
                classes[c] = value
    return classes


def reference_lower():
    lower = normalizers.Lowercase()
    texts = {c: lower.normalize_str(chr(c)) for c in characters()}
    return {c: ord(text) for c, text in texts.items() if len(text) == 1 and text != chr(c)}


def is_new(unicode, c):
    return c >= 0x800 and unicode.age.get(c, (99,)) > (14, 0) and (unicode.category[c][0] in "LNM" or unicode.category[c] == "Cn")


def properties(unicode, classes, lower):
    flags = []
    for c in range(NUM_CODE_POINTS):
        is_set = {
            "kInUnicode9": unicode.age.get(c, (99,)) <= (9, 0),
            "kNormal": c not in unicode.abnormal and c not in unicode.combining,
            "kCased": c in unicode.cased,
            "kCaseIgnorable": c in unicode.case_ignorable,
            "kDecimal": unicode.category[c] == "Nd",
            "kNew": is_new(unicode, c),
            "kHasLower": c in lower or c in unicode.lower,
            "kHasDecomposition": c in unicode.canonical,
            "kIsMark": c in unicode.combining,
        }
        flags.append(classes[c] + sum(BIT[name] for name, value in is_set.items() if value))
    return flags


def runs(values):
    """(first, last, value) of runs of equal values."""
    first = 0
    for c in range(1, len(values) + 1):
        if c == len(values) or values[c] != values[first]:
            yield first, c - 1, values[first]
            first = c


def lower_ranges(mapping):
    """[first, last, step, distance]: every step-th character of a range has its lower case that far away."""
    ranges = []
    for c in sorted(mapping):
        distance = mapping[c] - c
        if ranges and ranges[-1][3] == distance:
            first, last, step, _ = ranges[-1]
            if c - last == step or (first == last and c - last <= 2):
                ranges[-1][1:3] = [c, c - last]
                continue
        ranges.append([c, c, 1, distance])
    return ranges


def table(declaration, entries):
    lines, line = [f"constexpr {declaration}[] = {{"], ""
    for entry in entries:
        if len(line) + len(entry) > 116:
            lines.append(line.rstrip())
            line = ""
        line += entry + ", "
    return "\n".join([*lines, line.rstrip(), "};", ""])


def property_parts(flags):
    yield HEADER.format(f"tokenizers {TOKENIZERS} and Unicode {UNICODE}'s files")
    yield "// {first, last, properties}: the two lowest bits are the CharacterClass, the others those of unicode_properties.h."
    yield table("PropertyRange kPropertyRanges", (f"{{0x{a:X}, 0x{b:X}, 0x{v:X}}}" for a, b, v in runs(flags)))


def case_parts(unicode, lower):
    simple = {c: to for c, to in unicode.lower.items() if c != 0x130}
    assert all(lower[c] == to for c, to in simple.items()), "a later Unicode changed a case mapping"
    later = {c: to for c, to in lower.items() if c not in unicode.lower}
    yield HEADER.format(f"tokenizers {TOKENIZERS} and Unicode {UNICODE}'s files")
    yield "// {first, last, step, distance to the lower case}, without U+0130."
    yield table("LowerRange kLowerRanges", (f"{{0x{a:X}, 0x{b:X}, {s}, {d}}}" for a, b, s, d in lower_ranges(simple)))
    yield "// Of Unicode 16 and 17."
    yield table("LowerRange kLaterLowerRanges", (f"{{0x{a:X}, 0x{b:X}, {s}, {d}}}" for a, b, s, d in lower_ranges(later)))


def normal_form_parts(unicode):
    yield HEADER.format(f"Unicode {UNICODE}'s files")
    yield "// {first, last, canonical combining class}"
    combining = [unicode.combining.get(c, 0) for c in range(NUM_CODE_POINTS)]
    yield table("CombiningRange kCombiningRanges", (f"{{0x{a:X}, 0x{b:X}, {v}}}" for a, b, v in runs(combining) if v))
    yield "// {composed, first, second or 0, whether NFC composes it}: canonical decompositions, one step."
    yield table("Decomposition kDecompositions", (
        f"{{0x{c:X}, 0x{to[0]:X}, {f'0x{to[1]:X}' if len(to) > 1 else 0}, {'false' if c in unicode.excluded else 'true'}}}"
        for c, to in sorted(unicode.canonical.items())))
    yield "// NFKC of U+FF01 to U+FFEF: one character or two."
    wide = [unicode.compatible.get(c, [c]) for c in range(0xFF01, 0xFFF0)]
    wide = [unicode.compatible.get(to[0], to) if len(to) == 1 else to for to in wide]
    yield table("WideForm kWideForms", ("{" + ", ".join(f"0x{c:X}" if c else "0" for c in (*to, 0)[:2]) + "}" for to in wide))


def property_names():
    """What unicode_properties.h must say."""
    return [f"constexpr uint16_t {name} = 0x{BIT[name]:X};" for name, _ in BITS]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode")
    if tokenizers.__version__ != TOKENIZERS:
        sys.exit(f"tokenizers is {tokenizers.__version__}, not {TOKENIZERS}")
    header = (OUT / "unicode_properties.h").read_text()
    missing = [name for name in property_names() if name not in header]
    if missing:
        sys.exit("unicode_properties.h lacks: " + " ".join(missing))
    unicode, lower = UnicodeFiles(folder), reference_lower()
    flags = properties(unicode, reference_classes(), lower)
    for name, parts in (("unicode_properties", property_parts(flags)), ("letter_case", case_parts(unicode, lower)), ("normal_form", normal_form_parts(unicode))):
        (OUT / f"{name}.inc").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
