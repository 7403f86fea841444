#!/usr/bin/env python3
"""Writes src/text/html_entity_table.inc: HTML 5's named character references, from Python's html.entities (the WHATWG list)."""

import html.entities
import pathlib


def literal(text):
    return '"' + "".join(char if " " < char < "\x7f" and char not in '"\\' else f"\\{byte:03o}"
                         for char in text for byte in ([0] if " " < char < "\x7f" and char not in '"\\' else char.encode())) + '"'


def main():
    lines, line = [], ""
    for name, text in sorted(html.entities.html5.items()):  # byte order of the names: the table is searched by bisection
        entry = f'{{"{name}", {literal(text)}}},'
        if len(line) + len(entry) > 118:
            lines.append(line)
            line = ""
        line += (" " if line else "") + entry
    header = "// Written by tools/tables/make_html_entities.py; {name, UTF-8 text} in byte order of the names.\n"
    out = pathlib.Path(__file__).parent.parent.parent / "src/text/html_entity_table.inc"
    out.write_text(header + "\n".join([*lines, line]) + "\n")


if __name__ == "__main__":
    main()
