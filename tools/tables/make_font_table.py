#!/usr/bin/env python3
"""Writes src/image/font_table.cpp: printable ASCII and Latin-1 of a monospaced font as anti-aliased bitmaps.

Needs Pillow. The committed table was made with Pillow 13.0.0 from DejaVu Sans Mono 2.37 (Debian package
fonts-dejavu-core):  make_font_table.py DejaVuSansMono.ttf src/image/font_table.cpp
"""
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

PIXELS = 12
CODE_POINTS = [*range(0x20, 0x7F), *range(0xA0, 0x100)]

HEAD = '''// Made by tools/tables/make_font_table.py from DejaVu Sans Mono; do not edit. Licence of the font: font_table_license.txt.
// One line a glyph: coverage of 0 to 15 as a hexadecimal digit a pixel, rows from the top.
#include "font_table.h"

namespace darkroom {{

// clang-format off
const char* const kFontGlyphs[kNumFontGlyphs] = {{
{glyphs}
}};
// clang-format on

}}  // namespace darkroom
'''


def main() -> None:
    font = ImageFont.truetype(sys.argv[1], PIXELS)
    ascent, descent = font.getmetrics()
    width, height = round(font.getlength("M")), ascent + descent
    lines = []
    for code_point in CODE_POINTS:
        glyph = Image.new("L", (width, height))
        ImageDraw.Draw(glyph).text((0, 0), chr(code_point), font=font, fill=255)
        digits = "".join(f"{round(value / 17):x}" for value in glyph.tobytes())
        lines.append(f'    "{digits}",')
    Path(sys.argv[2]).write_text(HEAD.format(glyphs="\n".join(lines)), encoding="utf-8")
    print(f"{len(lines)} glyphs of {width} x {height} pixels")


if __name__ == "__main__":
    main()
