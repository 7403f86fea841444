#!/usr/bin/env python3
"""Writes the demo corpus: 3,360 captioned pictures as a small web with the troubles of the real one (docs/corpus.md).

    make_corpus.py OUT [--only PART] [--seed S] [--limit N] [--trouble-rate R] [--base-url URL] [--font F] [--names F]

OUT/pictures/*      JPEG, PNG and WebP files of mixed sizes: a colour emoji of Debian's fonts-noto-color-emoji on white
OUT/urls.parquet    the rows in LAION's columns; row number = the 12-digit key that `darkroom download` gives
OUT/web.json        what the web server answers to each path, troubles included
OUT/expected.json   what a download must report: good rows, rows by error code, retries, redirects
OUT/held_out.json   captions of the pictures that no training may see: persons and skin tones that are known only apart
"""

import argparse
import hashlib
import io
import json
import pathlib
import random
import shutil
import struct
import sys
import typing
import zlib

import pyarrow
import pyarrow.parquet
from fontTools.ttLib import TTFont
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parent
FETCHED_FONT = FOLDER / "NotoColorEmoji.ttf"  # fetch_font.sh puts it there, as does an installed darkroom.
INSTALLED_FONT = pathlib.Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
FONT_SHA256 = "e5899ed38b8ed83e08bd3ac5de09791e9d19d288333a796de1d35ad17396f1ec"  # Version 2.042, as in Debian 12.
SHIPPED_NAMES = FOLDER / "emoji-test.txt"  # Of an installed darkroom.
NAMES = SHIPPED_NAMES if SHIPPED_NAMES.exists() else pathlib.Path("/usr/share/unicode/emoji/emoji-test.txt")
NUM_PICTURES = 3360
NEWEST_EMOJI = (15, 0)  # Emoji that came later are left out, so that every version of unicode-data gives the same names.
RENAMED = {"flag: Türkiye": "flag: Turkey"}  # Newer names of Unicode 15.0's.
PARTS = ["all", "training", "held-out", "untoned"]
NUM_HELD_OUT = 200
TONELESS = {"snowboarder"}  # One bitmap for all its tones: training sees a held-out one under another name.
HELD_OUT_SEED = 0  # Not --seed: the shipped weights were trained without these pictures.
EMOJI_SHARE = 0.84  # Of the centre square's side, for the larger side of the bitmap.
SHORT_SIDE = (72, 400)
MAX_ASPECT = 2.0
SLOW_DRIP_BYTES_PER_SECOND = 25
MAX_SLOW_DRIPS = 6  # Each costs a download its whole time-out.
TEMPORARY_SHARE = 5 / 12  # Rows with a passing trouble for each row with a lasting one.

# Lasting troubles in the order in which the extra rows take them, and the error code of each. Repeats are weights.
LASTING = ["404", "html", "403", "empty_caption", "410", "redirect_private", "truncated", "bad_url", "404", "too_small",
           "gif", "redirect_loop", "bomb", "404", "403", "html", "empty_caption", "404", "truncated", "gif", "404",
           "redirect_private", "html", "too_small", "404", "410", "empty_caption", "bad_url", "404", "403"]
ERROR_CODES = {"404": "http_404", "403": "http_403", "410": "http_410", "html": "not_an_image",
               "redirect_private": "blocked_host", "redirect_loop": "too_many_redirects", "slow_drip": "timeout",
               "truncated": "truncated", "bomb": "bomb", "too_small": "too_small", "gif": "unsupported_format",
               "empty_caption": "empty_caption", "bad_url": "bad_url"}
TEMPORARY = ["status", "retry_after", "truncated", "reset", "redirect"]
BAD_URLS = ["not a url", "ftp://pictures.invalid/1.jpg", "http://"]
PRIVATE_LOCATIONS = ["http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/picture.jpg", "http://[fc00::1]/picture.jpg"]
HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><p>Please sign in to see this picture.</p></body></html>\n"


def draws(seed, purpose):
    """A stream of uniform numbers; only random() of it is used, whose sequence Python keeps stable across versions."""
    return random.Random(f"{seed}/{purpose}")


# -- the font ---------------------------------------------------------------------------------------------------------


class Emoji(typing.NamedTuple):
    name: str
    person: str | None  # The name without its skin tone; None for an emoji without one.
    tone: str | None
    bitmap: bytes = b""  # A PNG of 136x128 pixels.


def is_tone(code):
    return 0x1F3FB <= code <= 0x1F3FF


def split_tone(name):
    """(person, tone): "man: dark skin tone, beard" is "man: beard" and "dark skin tone"."""
    person, attributes = name.split(": ", 1)
    attributes = attributes.split(", ")
    tone = next(attribute for attribute in attributes if attribute.endswith("skin tone"))
    attributes.remove(tone)
    return f"{person}: {', '.join(attributes)}" if attributes else person, tone


def read_names(path):
    """{code points: emoji without its bitmap} of every fully-qualified emoji of Unicode 15.0 with at most one skin tone.

    In the order of the code points, because the file's own order differs from version to version.
    """
    emoji = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if "; fully-qualified" not in line:
            continue
        codes = tuple(int(code, 16) for code in line.split(";")[0].split())
        comment = line.split("#", 1)[1].split()  # the emoji, its version as E1.0, the name
        version = tuple(int(part) for part in comment[1].removeprefix("E").split("."))
        num_tones = sum(map(is_tone, codes))
        if version > NEWEST_EMOJI or num_tones > 1:
            continue
        name = " ".join(comment[2:])
        name = RENAMED.get(name, name)
        emoji[codes] = Emoji(name, *(split_tone(name) if num_tones else (None, None)))
    return dict(sorted(emoji.items()))


def read_emoji(font_path, names_path):
    """All emoji of the corpus with their bitmaps."""
    font = TTFont(font_path)
    glyph_of_code = font.getBestCmap()
    bitmaps = font["CBDT"].strikeData[0]
    ligatures = {}
    for table in font["GSUB"].table.LookupList.Lookup[0].SubTable:
        for first, candidates in table.ligatures.items():
            ligatures.update({(first, *each.Component): each.LigGlyph for each in candidates})
    emoji = []
    for codes, named in read_names(names_path).items():
        # The font's ligatures are written without the emoji variation selector.
        glyphs = tuple(glyph_of_code[code] for code in codes if code != 0xFE0F)
        glyph = glyphs[0] if len(glyphs) == 1 else ligatures[glyphs]
        emoji.append(named._replace(bitmap=bitmaps[glyph].imageData))
    if len(emoji) != NUM_PICTURES:
        sys.exit(f"make_corpus: {names_path} names {len(emoji)} emoji up to version 15.0, want {NUM_PICTURES}: is it complete?")
    return emoji


def held_out_names(emoji):
    """Names of the pictures that no training may see; neither --seed nor the font's version changes them.

    Drawn from the emoji with a skin tone, at most one of a person: its other tones and the tone's other persons stay.
    """
    uniform = draws(HELD_OUT_SEED, "held out").random
    order = sorted((each for each in emoji if each.tone), key=lambda _: uniform())
    chosen = {}
    for each in order:
        if len(chosen) < NUM_HELD_OUT and each.person not in TONELESS:
            chosen.setdefault(each.person, each.name)
    return set(chosen.values())


def choose_part(emoji, held_out, part):
    """The emoji of one part of the corpus, in their order."""
    belongs = {"all": lambda each: True, "training": lambda each: each.name not in held_out,
               "held-out": lambda each: each.name in held_out, "untoned": lambda each: each.tone is None}[part]
    return [each for each in emoji if belongs(each)]


# -- pictures ---------------------------------------------------------------------------------------------------------


def paint(bitmap_png, uniform):
    """The emoji on a white canvas of a random size, inside the centre square."""
    short = round(SHORT_SIDE[0] * (SHORT_SIDE[1] / SHORT_SIDE[0]) ** uniform())
    aspect = MAX_ASPECT ** (2 * uniform() - 1)  # width / height
    width, height = (round(short * aspect), short) if aspect > 1 else (short, round(short / aspect))
    bitmap = Image.open(io.BytesIO(bitmap_png)).convert("RGBA")
    scale = EMOJI_SHARE * short / max(bitmap.size)
    # The whole bitmap, not its inked box: large and small squares differ in nothing but their margin.
    emoji = bitmap.resize((round(bitmap.width * scale), round(bitmap.height * scale)), Image.Resampling.LANCZOS)
    canvas = Image.new("RGB", (width, height), "white")
    canvas.paste(emoji, ((width - emoji.width) // 2, (height - emoji.height) // 2), emoji)
    return canvas


def encode(picture, uniform):
    """(file extension, bytes) in a random format: JPEG 70 %, PNG 16 %, WebP 14 %."""
    kind, detail, quality = uniform(), uniform(), uniform()
    buffer = io.BytesIO()
    if kind < 0.70:
        subsampling = ["4:4:4", "4:2:2", "4:2:0"][int(detail * 3)]
        picture.save(buffer, "JPEG", quality=85 + int(quality * 11), subsampling=subsampling, progressive=detail * 10 % 1 < 0.3)
        return "jpg", buffer.getvalue()
    if kind < 0.86:
        if detail < 0.2:
            picture = picture.quantize(256, Image.Quantize.MEDIANCUT)
        elif detail < 0.4:
            picture = picture.convert("RGBA")
        picture.save(buffer, "PNG", compress_level=4)
        return "png", buffer.getvalue()
    picture.save(buffer, "WEBP", quality=50 if detail < 0.4 else 80 + int(quality * 16), lossless=detail < 0.4, method=1)
    return "webp", buffer.getvalue()


def bomb_png():
    """A PNG of 69 bytes whose header claims 60000 x 60000 pixels."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(64))) + chunk(b"IEND", b"")


def reencode(picture, kind):
    """Bytes of `picture` as a GIF, or as a PNG of 16x16 pixels."""
    buffer = io.BytesIO()
    if kind == "gif":
        picture.save(buffer, "GIF")
    else:
        picture.resize((16, 16)).save(buffer, "PNG")
    return buffer.getvalue()


# -- the web ----------------------------------------------------------------------------------------------------------


class Web:
    """Collects files, routes, rows and what a download must make of them."""

    def __init__(self, folder, base_url):
        self.folder = folder
        self.base_url = base_url.rstrip("/")
        self.routes = {}
        self.rows = []
        self.planted = {}
        self.passing = {}

    def add_file(self, name, data):
        (self.folder / name).write_bytes(data)
        return name

    def add_route(self, path, trouble, **fields):
        self.routes[path] = {"trouble": trouble, **fields}

    def add_row(self, path_or_url, caption, size, uniform):
        url = self.base_url + path_or_url if path_or_url.startswith("/") else path_or_url
        self.rows.append({
            "URL": url, "TEXT": caption, "WIDTH": float(size[0]), "HEIGHT": float(size[1]),
            "similarity": 0.28 + 0.15 * uniform(), "LICENSE": "OFL-1.1", "punsafe": 0.05 * uniform(),
            "pwatermark": 0.1 * uniform(), "hash": murmur3_word(f"{url}{caption or ''}".encode())})


def add_good_row(web, index, name, bitmap, seed, temporary_period):
    """One row whose picture arrives, perhaps after a passing trouble."""
    uniform = draws(seed, f"picture/{name}").random
    picture = paint(bitmap, uniform)
    extension, data = encode(picture, uniform)
    number = len(web.rows)
    path = f"/pictures/{number:06d}.{extension}"
    file = web.add_file(path[1:], data)
    trouble = None
    if temporary_period and index % temporary_period == temporary_period // 2:
        trouble = TEMPORARY[index // temporary_period % len(TEMPORARY)]
        web.passing[trouble] = web.passing.get(trouble, 0) + 1
    fields = {"status": {"status": 503, "times": 1}, "retry_after": {"status": 429, "seconds": 1, "times": 1},
              "truncated": {"times": 1}, "reset": {"times": 1}}
    if trouble in fields:
        web.add_route(path, trouble, file=file, **fields[trouble])
    else:
        web.add_route(path, "none", file=file)
    if trouble == "redirect":
        web.add_route(f"/moved/{number:06d}", "redirect", status=301, location=path)
        path = f"/moved/{number:06d}"
    web.add_row(path, name, picture.size, uniform)


def add_trouble_row(web, kind, name, bitmap, seed):
    """One extra row that can never arrive."""
    number, count = len(web.rows), web.planted.get(kind, 0)
    web.planted[kind] = count + 1
    uniform = draws(seed, f"trouble/{number}").random
    picture = paint(bitmap, uniform)
    extension, data = encode(picture, uniform)
    path = f"/pictures/{number:06d}.{extension}"
    caption = name
    if kind.isdigit():
        web.add_route(path, "status", status=int(kind), times=0)
    elif kind == "html":
        web.add_route(path, "html", file=web.add_file(f"pictures/{number:06d}.html", HTML))
    elif kind == "redirect_private":
        web.add_route(path, kind, location=PRIVATE_LOCATIONS[count % len(PRIVATE_LOCATIONS)])
    elif kind == "redirect_loop":
        web.add_route(path, kind, location=path)
    elif kind == "bad_url":
        path = BAD_URLS[count % len(BAD_URLS)]
    elif kind == "empty_caption":
        web.add_route(path, "none", file=web.add_file(path[1:], data))
        caption = "" if count % 2 == 0 else None
    elif kind in ("bomb", "too_small", "gif"):
        path = f"/pictures/{number:06d}.{'gif' if kind == 'gif' else 'png'}"
        web.add_route(path, "none", file=web.add_file(path[1:], bomb_png() if kind == "bomb" else reencode(picture, kind)))
    else:
        fields = {"truncated": {"times": 0}, "slow_drip": {"bytes_per_second": SLOW_DRIP_BYTES_PER_SECOND}}[kind]
        web.add_route(path, kind, file=web.add_file(path[1:], data), **fields)
    web.add_row(path, caption, picture.size, uniform)


def lasting_kinds(num_extra):
    """The trouble of each extra row. Slow drips come early, so that their time-outs overlap with other work."""
    num_drips = min(MAX_SLOW_DRIPS, -(-num_extra // 43))
    kinds, next_kind = [], 0
    for i in range(num_extra):
        if i % 13 == 12 and i // 13 < num_drips:
            kinds.append("slow_drip")
        else:
            kinds.append(LASTING[next_kind % len(LASTING)])
            next_kind += 1
    return kinds


def fill_web(web, emoji, seed, trouble_rate):
    """Good rows in the emoji's order, extra rows at drawn places between them."""
    num_extra = round(len(emoji) * trouble_rate / (1 - trouble_rate))
    temporary_period = max(1, round(1 / (trouble_rate * TEMPORARY_SHARE))) if trouble_rate > 0 else 0
    uniform = draws(seed, "order").random
    order = sorted(range(len(emoji) + num_extra), key=lambda _: uniform())
    extra_places = set(order[:num_extra])
    kinds = iter(lasting_kinds(num_extra))
    goods = iter(enumerate(emoji))
    for place in range(len(emoji) + num_extra):
        if place in extra_places:
            drawn = emoji[int(uniform() * len(emoji))]
            add_trouble_row(web, next(kinds), drawn.name, drawn.bitmap, seed)
        else:
            index, good = next(goods)
            add_good_row(web, index, good.name, good.bitmap, seed, temporary_period)


def murmur3_word(data):
    """LAION's `hash`: the first signed 64-bit word of MurmurHash3 x64 128 (Appleby), seed 0, of UTF-8(url + text)."""
    mask, c1, c2 = (1 << 64) - 1, 0x87C37B91114253D5, 0x4CF5AD432745937F

    def rotate(x, r):
        return ((x << r) | (x >> (64 - r))) & mask

    def mix(x):
        x = ((x ^ (x >> 33)) * 0xFF51AFD7ED558CCD) & mask
        x = ((x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53) & mask
        return x ^ (x >> 33)

    h1 = h2 = 0
    whole = len(data) // 16 * 16
    padded = data + bytes(-len(data) % 16)
    for at in range(0, len(padded), 16):
        k1, k2 = struct.unpack_from("<QQ", padded, at)
        k1 = rotate(k1 * c1 & mask, 31) * c2 & mask
        k2 = rotate(k2 * c2 & mask, 33) * c1 & mask
        if at >= whole:  # The tail is xored in without the rounds.
            h1, h2 = h1 ^ k1, h2 ^ k2
            break
        h1 = (rotate(h1 ^ k1, 27) + h2) * 5 + 0x52DCE729 & mask
        h2 = (rotate(h2 ^ k2, 31) + h1) * 5 + 0x38495AB5 & mask
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & mask
    h2 = (h1 + h2) & mask
    word = (mix(h1) + mix(h2)) & mask
    return word - (1 << 64) if word >> 63 else word


# -- files ------------------------------------------------------------------------------------------------------------


def write_tables(web, seed, held_out):
    schema = pyarrow.schema([
        ("URL", pyarrow.string()), ("TEXT", pyarrow.string()), ("WIDTH", pyarrow.float64()), ("HEIGHT", pyarrow.float64()),
        ("similarity", pyarrow.float64()), ("LICENSE", pyarrow.string()), ("punsafe", pyarrow.float32()),
        ("pwatermark", pyarrow.float32()), ("hash", pyarrow.int64())])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(web.rows, schema=schema), web.folder / "urls.parquet")
    (web.folder / "web.json").write_text(json.dumps({"seed": seed, "routes": web.routes}, indent=0) + "\n")
    (web.folder / "held_out.json").write_text(json.dumps({"captions": held_out}, indent=1, ensure_ascii=False) + "\n", "utf-8")
    codes = {}
    for kind, count in web.planted.items():
        codes[ERROR_CODES[kind]] = codes.get(ERROR_CODES[kind], 0) + count
    redirects = web.passing.pop("redirect", 0)
    expected = {
        "rows": len(web.rows), "good_rows": len(web.rows) - sum(codes.values()), "rows_by_error": dict(sorted(codes.items())),
        # All retries of a download with --retries N >= 1: temporary + N * lasting_per_retry.
        "retries": {"temporary": sum(web.passing.values()), "lasting_per_retry": web.planted.get("truncated", 0)},
        "redirected_rows": redirects}
    (web.folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    return expected


def prepare_folder(folder):
    """An empty OUT/pictures; a folder that holds something other than an earlier corpus is left alone."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "web.json").exists():
        sys.exit(f"make_corpus: the output folder holds other files; name an empty or a new one: {folder}")
    shutil.rmtree(folder / "pictures", ignore_errors=True)
    (folder / "pictures").mkdir(parents=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", choices=PARTS, default="all", help="which pictures (docs/corpus.md)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="pictures, taken evenly from the whole list (default: all)")
    parser.add_argument("--trouble-rate", type=float, default=0.12, help="share of rows with a lasting trouble, below 0.9")
    parser.add_argument("--base-url", default="http://127.0.0.1:8765")
    parser.add_argument("--font", type=pathlib.Path, help="NotoColorEmoji.ttf (default: fetch_font.sh's, else the installed one)")
    parser.add_argument("--names", type=pathlib.Path, default=NAMES, help="emoji-test.txt")
    options = parser.parse_args()
    if not 0 <= options.trouble_rate < 0.9:
        parser.error(f"--trouble-rate must be in [0, 0.9): {options.trouble_rate}")
    font = options.font or (FETCHED_FONT if FETCHED_FONT.exists() else INSTALLED_FONT)
    for path, package in ((font, "fonts-noto-color-emoji"), (options.names, "unicode-data")):
        if not path.exists():
            sys.exit(f"make_corpus: {path} is missing: apt-get install {package}")
    if hashlib.sha256(font.read_bytes()).hexdigest() != FONT_SHA256:
        print(f"make_corpus: {font} is not version 2.042: the pictures differ from those that models/tiny was trained on; "
              "tools/corpus/fetch_font.sh brings that version", file=sys.stderr)
    emoji = read_emoji(font, options.names)
    held_out = held_out_names(emoji)
    emoji = choose_part(emoji, held_out, options.only)
    limit = len(emoji) if options.limit is None else options.limit
    if not 1 <= limit <= len(emoji):
        parser.error(f"--limit must be 1..{len(emoji)}: {limit}")
    prepare_folder(options.out)
    emoji = [emoji[i * len(emoji) // limit] for i in range(limit)]
    web = Web(options.out, options.base_url)
    fill_web(web, emoji, options.seed, options.trouble_rate)
    expected = write_tables(web, options.seed, [each.name for each in emoji if each.name in held_out])
    print(f"corpus: {expected['good_rows']} pictures and {sum(expected['rows_by_error'].values())} troubled rows in {options.out}")


if __name__ == "__main__":
    main()
