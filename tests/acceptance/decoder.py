"""Acceptance 7: damaged pictures and bombs through the sandboxed decoder, started as the jobs start it: the parent lives, bombs are refused in little time
and memory, and the largest pictures that are let in are decoded in the memory that docs/sandbox.md says."""

import io
import json
import pathlib
import shutil
import struct
import subprocess
import zlib

from harness import ROOT, Trials, build, require, temporary_folder

SEED = 11
BATCH = 25_000
LARGEST_MB, LONGEST_SECONDS = 256, 1.0
# A side of the largest square that is let in, its pixels, and the processor time that any picture may take (sandbox.h).
SIDE, MOST_PIXELS, PICTURE_SECONDS = 10_000, 100_000_000, 10.0
BESIDES_MB = 64  # What a decoder takes besides its bytes per pixel.
# What is large in its own right is refused; of a small picture in a large wrapping the picture may be taken.
SMALL_INSIDE = ("png-iccp", "png-ztxt", "png-itxt", "png-many", "png-large", "png-splt", "png-extra", "png-animated", "jpeg-scans", "gif-frames")


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, data: bytes, depth: int = 8, color: int = 2, interlace: int = 0, before: bytes = b"", after: bytes = b"") -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace))
    return b"\x89PNG\r\n\x1a\n" + head + before + chunk(b"IDAT", data) + after + chunk(b"IEND", b"")


def zeros(num_bytes: int) -> bytes:
    maker = zlib.compressobj(9)
    return b"".join([*(maker.compress(bytes(1 << 20)) for _ in range(num_bytes >> 20)), maker.flush()])


def small_png(**more) -> bytes:
    return png(64, 64, zlib.compress(bytes(64 * (64 * 3 + 1))), **more)


def jpeg_with_size(width: int, height: int, progressive: bool) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (64, 64), (200, 30, 30)).save(out, "JPEG", progressive=progressive)
    data = bytearray(out.getvalue())
    marker = data.index(b"\xff\xc2" if progressive else b"\xff\xc0")
    data[marker + 5 : marker + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def many_scans(num_scans: int, size: int) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.effect_noise((size, size), 90).convert("RGB").save(out, "JPEG", progressive=True)
    data = out.getvalue()
    begin = data.index(b"\xff\xda")
    next_scan = data.index(b"\xff\xda", begin + 2)
    last = data.rindex(b"\xff\xda")
    return data[:next_scan] + data[last:-2] * num_scans + b"\xff\xd9"


def gif(width: int, height: int, frames: int) -> bytes:
    image = b"\x2c" + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x4c\x01\x00"
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6) + image * frames + b"\x3b"


def riff(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + bytes(len(body) % 2)


def webp(width: int, height: int) -> bytes:
    """One whose data are none."""
    return riff(b"RIFF", b"WEBP" + riff(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(64)))


def black_vp8l(width: int, height: int, has_alpha: bool) -> bytes:
    """A whole picture: each of its five codes has one symbol, 0, which takes no bit."""
    codes = sum(0b1001 << 3 + 4 * i for i in range(5))
    return riff(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14 | has_alpha << 28) + codes.to_bytes(8, "little"))


def whole_webp(width: int, height: int, has_alpha: bool = False) -> bytes:
    return riff(b"RIFF", b"WEBP" + black_vp8l(width, height, has_alpha))


def webp_on_canvas(width: int, height: int) -> bytes:
    """An animation whose first frame is smaller than its canvas."""

    def u24(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(3, "little") for number in numbers)

    frame = u24(0, 0, width - 3, height - 3, 100) + b"\0" + black_vp8l(width - 2, height - 2, True)
    return riff(b"RIFF", b"WEBP" + riff(b"VP8X", b"\x12\0\0\0" + u24(width - 1, height - 1)) + riff(b"ANIM", bytes(6)) + riff(b"ANMF", frame))


def whole_png(width: int, height: int, depth: int = 8, color: int = 2, interlace: int = 0) -> bytes:
    bits = width * depth * {0: 1, 2: 3, 6: 4}[color]
    left = height * (1 + bits // 8) + interlace * 64 * height  # Passes have filter bytes and last bytes of their own; libpng minds no surplus.
    maker, block, data = zlib.compressobj(1), bytes(1 << 20), []
    while left > 0:
        data.append(maker.compress(block))
        left -= len(block)
    return png(width, height, b"".join([*data, maker.flush()]), depth=depth, color=color, interlace=interlace)


def whole_jpeg(width: int, height: int, mode: str = "RGB", progressive: bool = False) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new(mode, (width, height)).save(out, "JPEG", progressive=progressive, subsampling=0)
    return out.getvalue()


def bombs() -> dict[str, bytes]:
    made = {}
    for side in (10_001, 20_000, 50_000, 100_000, 65_535, 2_147_483_647):
        for interlace in (0, 1):
            made[f"png-{side}-{interlace}.png"] = png(side, side, zeros(4 << 20), interlace=interlace)
    made["png-wide.png"] = png(100_000_001, 1, zeros(4 << 20))
    made["png-tall.png"] = png(1, 100_000_001, zeros(4 << 20))
    made["png-deep.png"] = png(20_000, 20_000, zeros(4 << 20), depth=16, color=6)
    for name, before in {
        "iccp": chunk(b"iCCP", b"icc\0\0" + zeros(60 << 20)), "ztxt": chunk(b"zTXt", b"text\0\0" + zeros(100 << 20)), "itxt": chunk(b"iTXt", b"text\0\1\0\0\0" + zeros(100 << 20)),
        "many-texts": chunk(b"tEXt", b"a\0" + b"b" * 900) * 20_000, "many-ztxts": chunk(b"zTXt", b"a\0\0" + zeros(1 << 20)) * 500, "many-chunks": chunk(b"abCd", b"") * 100_000,
        "large-chunk": chunk(b"abCd", bytes(40 << 20)), "splt": chunk(b"sPLT", b"p\0\x08" + bytes(6) * 1_000_000),
    }.items():
        made[f"png-{name}.png"] = small_png(before=before)
    made["png-animated.png"] = small_png(before=chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)), after=chunk(b"fdAT", bytes(1 << 20)) * 20)
    made["png-extra-data.png"] = png(64, 64, zeros(200 << 20))
    for width, height in ((65_500, 65_500), (65_535, 65_535), (20_000, 20_000), (65_535, 1_600)):
        for progressive in (False, True):
            made[f"jpeg-{width}-{height}-{progressive}.jpg"] = jpeg_with_size(width, height, progressive)
    made["jpeg-scans.jpg"] = many_scans(1_000, 128)
    for size in ((65_535, 65_535), (20_000, 20_000)):
        made[f"gif-{size[0]}.gif"] = gif(*size, 1)
    made["gif-frames.gif"] = gif(64, 64, 200_000)
    for size in ((16_384, 16_384), (16_383, 16_000), (12_000, 12_000)):
        made[f"webp-{size[0]}-{size[1]}.webp"] = webp(*size)
    # Whole pictures, beyond the limit by one column.
    made["png-beyond.png"] = whole_png(SIDE + 1, SIDE)
    made["webp-beyond.webp"] = whole_webp(SIDE + 1, SIDE)
    made["webp-canvas-beyond.webp"] = webp_on_canvas(SIDE + 1, SIDE)
    made["jpeg-beyond.jpg"] = whole_jpeg(SIDE + 1, SIDE)
    return made


# Of pictures as large as the limit lets pass: whether they are decoded, bytes of memory per pixel (docs/sandbox.md), how they are made.
LARGEST_PICTURES = {
    "png": (True, 0, lambda: whole_png(SIDE, SIDE)),
    "png-interlaced": (True, 3, lambda: whole_png(SIDE, SIDE, interlace=1)),
    "webp": (True, 7, lambda: whole_webp(SIDE, SIDE)),
    "webp-alpha": (True, 8, lambda: whole_webp(SIDE, SIDE, has_alpha=True)),
    "webp-canvas": (True, 8, lambda: webp_on_canvas(SIDE, SIDE)),
    "webp-empty": (False, 8, lambda: webp(SIDE, SIDE)),
    "jpeg": (True, 0, lambda: whole_jpeg(SIDE, SIDE)),
    "jpeg-cut": (None, 6, lambda: jpeg_with_size(SIDE, SIDE, True)),  # check refuses what the others show with grey.
}
# Of the full form: some take seconds to make.
SLOWLY_MADE = {
    "png-grey16": (True, 5, lambda: whole_png(SIDE, SIDE, depth=16, color=0)),
    "png-cut": (False, 3, lambda: png(SIDE, SIDE, zeros(4 << 20), interlace=1)),
    "png-deep": (True, 3, lambda: whole_png(SIDE, SIDE, depth=16, color=6, interlace=1)),
    "png-deep-cut": (False, 3, lambda: png(SIDE, SIDE, zeros(4 << 20), depth=16, color=6, interlace=1)),
    "jpeg-progressive": (True, 6, lambda: whole_jpeg(SIDE, SIDE, progressive=True)),
    "jpeg-progressive-cmyk": (True, 8, lambda: whole_jpeg(SIDE, SIDE, "CMYK", progressive=True)),
}


def write_seeds(folder: pathlib.Path) -> int:
    """The pictures of the golden tests and small ones of each format."""
    from PIL import Image

    folder.mkdir()
    for path in sorted((ROOT / "tests" / "golden" / "image" / "files").iterdir()):
        if path.is_file() and path.stat().st_size < 20_000:
            shutil.copy(path, folder / path.name)
    noise = Image.effect_noise((48, 40), 80).convert("RGB")
    for name, options in {"a.jpg": {}, "b.jpg": {"progressive": True, "quality": 95}, "c.png": {}, "d.webp": {}, "e.webp": {"lossless": True}, "f.gif": {}, "g.png": {"compress_level": 0}}.items():
        noise.save(folder / name, **options)
    return len(list(folder.iterdir()))


def mutated_pictures_harm_nobody(trials: Trials) -> None:
    program, decoder = build("decoder_mutations"), ROOT / "build" / "release" / "darkroom-decoder"
    count = trials.count(50_000, 1_000_000)
    with temporary_folder() as folder:
        seeds = write_seeds(folder / "seeds")

        def mutate(first: int) -> dict:
            done = subprocess.run([str(program), "mutate", str(decoder), str(folder / "seeds"), str(first), str(BATCH), str(SEED)], capture_output=True, text=True, timeout=1800)
            require(done.returncode == 0, "the parent died or lost its decoder (mutations from, exit code)", first, done.returncode, done.stderr[-800:])
            return json.loads(done.stdout)

        totals: dict[str, int] = {}
        for first in range(0, count, BATCH):
            for name, number in trials.trial(f"mutations {first}", lambda: mutate(first)).items():
                totals[name] = totals.get(name, 0) + number
        trials.figures.update(seeds=seeds, mutations=sum(totals.values()), outcomes=totals, deaths_of_the_parent=0)
        require(sum(totals.values()) == count, "mutations without an outcome", totals)
        require(totals.get("good", 0) > count // 100 and len(totals) > 3, "the mutations are all alike", totals)


def decode(task: str, path: pathlib.Path) -> dict:
    """What became of a picture in a decoder as the jobs open it, its memory and processor time."""
    program, decoder = build("decoder_mutations"), ROOT / "build" / "release" / "darkroom-decoder"
    done = subprocess.run([str(program), "decode", str(decoder), task, str(path)], capture_output=True, text=True, timeout=600)
    require(done.returncode == 0, "the decoder was lost", path.name, done.stderr[-800:])
    return {"name": path.name, "task": task, **json.loads(done.stdout)}


def bombs_are_refused_early(trials: Trials) -> None:
    """Beyond the limit, or of a small picture in a large wrapping. download checks and process transforms; short: checks alone."""
    found = []
    tasks = ("check", "transform") if trials.is_full else ("check",)
    with temporary_folder() as folder:
        for name, data in bombs().items():
            (folder / name).write_bytes(data)
            found += [decode(task, folder / name) for task in tasks]
            (folder / name).unlink()
    largest = max(found, key=lambda bomb: bomb["largest_child_mb"])
    slowest = max(found, key=lambda bomb: bomb["cpu_seconds"])
    trials.figures.update(bombs=len(found) // len(tasks), largest=largest, slowest=slowest)
    require(trials.figures["bombs"] >= 40, "bombs", len(found))
    require(all(bomb["granted_mb"] > 2 * LARGEST_MB for bomb in found), "a decoder that may have no more proves nothing", found[0])
    good = sorted(bomb["name"] for bomb in found if bomb["outcome"] == "good" and not bomb["name"].startswith(SMALL_INSIDE))
    require(not good, "bombs that were taken", good)
    require(largest["largest_child_mb"] <= LARGEST_MB, "memory of a decoder (MB)", largest)
    require(slowest["cpu_seconds"] <= LONGEST_SECONDS, "processor time of a bomb", slowest)


def largest_pictures_are_decoded(trials: Trials) -> None:
    """At the limit: what is whole is decoded, in the memory and the time that docs/sandbox.md and sandbox.h say. Short: process's task alone."""
    pictures = {**LARGEST_PICTURES, **(SLOWLY_MADE if trials.is_full else {})}
    tasks = {"check": 0, "transform": 0, "resize": 3} if trials.is_full else {"transform": 0}  # More bytes per pixel: a whole picture.
    found = []
    with temporary_folder() as folder:
        for name, (is_whole, pixel_bytes, make) in pictures.items():
            (folder / name).write_bytes(make())
            for task, more in tasks.items():
                one = decode(task, folder / name)
                found.append(one)
                is_wanted = task != "check" if is_whole is None else is_whole
                require((one["outcome"] == "good") == is_wanted, "a picture at the limit (is to be decoded, found)", is_wanted, one)
                most_mb = ((pixel_bytes + more) * MOST_PIXELS) / 1e6 + BESIDES_MB
                require(one["largest_child_mb"] <= most_mb, "memory of a decoder (most, found)", most_mb, one)
                require(one["cpu_seconds"] <= PICTURE_SECONDS, "processor time of a picture", one)
            (folder / name).unlink()
    trials.figures.update(pictures=len(pictures), largest=max(found, key=lambda one: one["largest_child_mb"]), slowest=max(found, key=lambda one: one["cpu_seconds"]))


CHECKS = [("decoder.mutations", mutated_pictures_harm_nobody), ("decoder.bombs", bombs_are_refused_early), ("decoder.largest", largest_pictures_are_decoded)]
