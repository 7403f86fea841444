#!/usr/bin/env python3
"""Writes src/text/html_entity_table.inc: HTML 5's named character references, from Python's html.entities (the WHATWG list)."""

import html
import html.entities
import pathlib


def literal(text):
    return '"' + "".join(char if " " < char < "\x7f" and char not in '"\\' else f"\\{byte:03o}"
                         for char in text for byte in ([0] if " " < char < "\x7f" and char not in '"\\' else char.encode())) + '"'


def shouted_entities():
    """As ftfy 6.3.1 makes them: upper-case spellings of lower-case names, unless HTML itself reads that spelling otherwise."""
    for name, text in html.entities.html5.items():
        shouted = name.upper()
        if name.endswith(";") and name == name.lower() and html.unescape("&" + shouted) == "&" + shouted:
            yield shouted, text.upper()


def table(name, entities):
    lines, line = [f"constexpr Entity {name}[] = {{"], ""
    for entity, text in sorted(entities):  # byte order of the names: the table is searched by bisection
        entry = f'{{"{entity}", {literal(text)}}},'
        if len(line) + len(entry) > 118:
            lines.append(line)
            line = ""
        line += (" " if line else "") + entry
    return [*lines, line, "};"]


def main():
    header = "// Written by tools/tables/make_html_entities.py; {name, UTF-8 text} in byte order of the names."
    out = pathlib.Path(__file__).parent.parent.parent / "src/text/html_entity_table.inc"
    lines = [header, *table("kEntities", html.entities.html5.items()), "// As ftfy has them.", *table("kShoutedEntities", shouted_entities())]
    out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
