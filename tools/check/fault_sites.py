"""Where small faults can be planted in a C++ source, and which of them a seed picks.

A fault is one replaced piece of text. Comments, texts, preprocessor lines, log lines and DARKROOM_CHECK (which no right program reaches) hold none.
The order of the candidates of a seed depends only on each candidate's own line, so a change elsewhere moves no other pick.
"""

import collections
import dataclasses
import hashlib
import pathlib
import re

SKIPPED_LINE = re.compile(r"^\s*(DARKROOM_CHECK|DCHECK|log::|log_|static_assert|using |namespace |template|friend |HWY_EXPORT)|\blog_(info|warning|error|debug)\(")
HIDDEN = re.compile(
    r'R"(?P<tag>[^()\\\s]{0,16})\((?:.|\n)*?\)(?P=tag)"'  # A raw text.
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'"  # A character; between digits the mark only groups them.
    r"|//[^\n]*|/\*(?:.|\n)*?\*/"
    r"|^[ \t]*\#(?:\\\n|[^\n])*",
    re.MULTILINE,
)
SWAPS = [
    ("bound", re.compile(r"(?<= )(<=|>=|<|>)(?= )"), {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}),
    ("equality", re.compile(r"(?<= )(==|!=)(?= )"), {"==": "!=", "!=": "=="}),
    ("logic", re.compile(r"(?<= )(&&|\|\|)(?= )"), {"&&": "||", "||": "&&"}),
    ("operator", re.compile(r"(?<= )(\+|-|\*|/|%|<<|>>|\+=|-=|\*=|\|=)(?= )"),
     {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "*=": "/=", "|=": "&="}),
    ("verdict", re.compile(r"(?<=return )(true|false)(?=;)"), {"true": "false", "false": "true"}),
]
CONDITION = re.compile(r"\b(?:if|while) \(")
NUMBER = re.compile(r"(?<![\w.'])(0[xX][0-9a-fA-F']+|\d[\d']*(?:\.[\d']*)?(?:e[+-]?\d+)?)([fFuUlLzZ]*)(?![\w.'])")
CALL = re.compile(r"^(\s+)(?!return\b|else\b|throw\b|case\b|delete\b|new\b|goto\b)((?:\(void\))?[\w:.\->*\[\]()]*\w\((?:.*)\);)$", re.MULTILINE)
ASSIGNMENT = re.compile(r"^(\s+)([\w.\->*\[\]()]+ (?:=|\+=|-=|\*=|\|=) [^\n]*;)$", re.MULTILINE)
JUMP = re.compile(r"^(\s+)(continue;|break;)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Fault:
    """Replaces `old` at `offset` of a source by `new`."""

    path: str  # Relative to the tree.
    offset: int
    kind: str
    old: str
    new: str
    line_number: int
    line: str  # As it stands, without indentation.
    key: str = ""  # The same as long as the line and the lines like it in its file are.

    def planted_in(self, text: str) -> str:
        assert text[self.offset:].startswith(self.old)
        return text[:self.offset] + self.new + text[self.offset + len(self.old):]

    def __str__(self) -> str:
        return f"{self.path}:{self.line_number} [{self.kind}] '{self.old}' -> '{self.new or 'nothing'}' in: {self.line}"


def without_hidden(text: str) -> str:
    """The text with everything blanked that is no code; every offset stays."""
    return HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]) if found[0][0] not in "\"'R" else found[0][0] + "_" * (len(found[0]) - 2) + found[0][-1], text)


def closing(code: str, at: int) -> int:
    """The offset of the parenthesis that closes the one at `at`."""
    depth = 0
    for offset in range(at, len(code)):
        depth += (code[offset] == "(") - (code[offset] == ")")
        if depth == 0:
            return offset
    return -1


def other_number(digits: str) -> str:
    plain = digits.replace("'", "")
    if plain[:2].lower() == "0x":
        return hex(int(plain, 16) + 1)
    if plain.isdigit():
        return str(int(plain) + 1)
    value = float(plain)
    return repr(value * 1.1 if value else 1.0)


def raw_candidates(code: str) -> list[tuple[int, str, str, str]]:
    """(offset, kind, old, new) of everything that can be replaced."""
    found = []
    for kind, pattern, swap in SWAPS:
        found += [(match.start(), kind, match[0], swap[match[0]]) for match in pattern.finditer(code)]
    for match in CONDITION.finditer(code):
        opening = match.end() - 1
        end = closing(code, opening)
        start = max(opening + 1, code.rfind(";", opening, end) + 1)
        start += len(code[start:end]) - len(code[start:end].lstrip())
        if start < end:
            found.append((start, "condition", code[start:end], f"!({code[start:end]})"))
    for match in NUMBER.finditer(code):
        found.append((match.start(1), "constant", match[1], other_number(match[1])))
    for kind, pattern in (("dropped call", CALL), ("dropped assignment", ASSIGNMENT), ("dropped jump", JUMP)):
        for match in pattern.finditer(code):
            if match[2].count("(") == match[2].count(")"):
                found.append((match.start(2), kind, match[2], ";"))
    return found


def faults_of(root: pathlib.Path, path: str) -> list[Fault]:
    text = (root / path).read_text(encoding="utf-8")
    code = without_hidden(text)
    lines = text.splitlines()
    seen: collections.Counter = collections.Counter()
    faults = []
    for offset, kind, old, new in sorted(raw_candidates(code)):
        number = text.count("\n", 0, offset)
        line = lines[number].strip()
        if SKIPPED_LINE.search(lines[number]):
            continue
        original = text[offset:offset + len(old)]  # With its texts, which `code` has blanked.
        new = f"!({original})" if kind == "condition" else new
        name = (path, kind, line, original, offset - text.rfind("\n", 0, offset) - len(lines[number]) + len(lines[number].lstrip()))
        seen[name] += 1
        key = hashlib.sha256(repr((name, seen[name])).encode()).hexdigest()[:16]
        faults.append(Fault(path, offset, kind, original, new, number + 1, line, key))
    return faults


def ranked(faults: list[Fault], seed: int) -> list[Fault]:
    """The order in which a seed plants them: kinds in turn, so that the many constants do not crowd out the few dropped calls."""
    by_kind: dict[str, list[Fault]] = {}
    for fault in sorted(faults, key=lambda fault: hashlib.sha256(f"{seed}:{fault.key}".encode()).hexdigest()):
        by_kind.setdefault(fault.kind, []).append(fault)
    order = [(turn, kind, fault) for kind, group in by_kind.items() for turn, fault in enumerate(group)]
    return [fault for _, _, fault in sorted(order, key=lambda entry: entry[:2])]
