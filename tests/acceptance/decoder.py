"""Acceptance 7: damaged pictures and bombs through the sandboxed decoder: the parent lives, bombs are refused in little time and memory."""

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


def webp(width: int, height: int) -> bytes:
    lossless = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(64)
    body = b"WEBPVP8L" + struct.pack("<I", len(lossless)) + lossless + bytes(len(lossless) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


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
    # As many pixels as the limit lets pass, in forms that are decoded as a whole: more memory than a decoder has.
    made["png-limit.png"] = png(10_000, 10_000, zeros(4 << 20), interlace=1)
    made["png-limit-deep.png"] = png(10_000, 10_000, zeros(4 << 20), depth=16, color=6, interlace=1)
    made["jpeg-limit.jpg"] = jpeg_with_size(10_000, 10_000, True)
    made["webp-limit.webp"] = webp(10_000, 10_000)
    for size in ((16_384, 16_384), (16_383, 16_000), (12_000, 12_000)):
        made[f"webp-{size[0]}-{size[1]}.webp"] = webp(*size)
    return made


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


def bombs_are_refused_early(trials: Trials) -> None:
    program, decoder = build("decoder_mutations"), ROOT / "build" / "release" / "darkroom-decoder"
    found = {}
    with temporary_folder() as folder:
        for name, data in bombs().items():
            (folder / name).write_bytes(data)
            done = subprocess.run([str(program), "bomb", str(decoder), str(folder / name)], capture_output=True, text=True, timeout=600)
            require(done.returncode == 0, "the decoder was lost", name, done.stderr[-800:])
            found[name] = {"name": name, **json.loads(done.stdout)}
    largest = max(found.values(), key=lambda bomb: bomb["largest_child_mb"])
    slowest = max(found.values(), key=lambda bomb: bomb["cpu_seconds"])
    trials.figures.update(bombs=len(found), largest=largest, slowest=slowest)
    require(len(found) >= 40, "bombs", len(found))
    good = sorted(name for name, bomb in found.items() if bomb["outcome"] == "good" and not name.startswith(SMALL_INSIDE))
    require(not good, "bombs that were taken", good)
    require(largest["largest_child_mb"] <= LARGEST_MB, "memory of a decoder (MB)", largest)
    require(slowest["cpu_seconds"] <= LONGEST_SECONDS, "processor time of a bomb", slowest)


CHECKS = [("decoder.mutations", mutated_pictures_harm_nobody), ("decoder.bombs", bombs_are_refused_early)]
