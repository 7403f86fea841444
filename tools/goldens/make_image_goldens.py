#!/usr/bin/env python3
"""Writes tests/golden/image: small encoded pictures and what Pillow makes of them.

Run with the Python environment of `make setup` (Pillow 13.0.0). resize.json holds SHA-256 of resized noise (the noise
comes from Philox, docs/formats/randomness.md, so only its recipe is stored); files.json holds, for each file in files/,
SHA-256 of its RGB pixels, with EXIF orientation ignored and applied, and of its float32 transform.
"""
import hashlib
import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, features
from PIL import __version__ as pillow_version

from counter_random import draws, hash_key

FOLDER = Path(__file__).resolve().parent.parent.parent / "tests/golden/image"
FILTERS = {name: Image.Resampling[name.upper()] for name in ("bilinear", "bicubic", "lanczos", "hamming", "box")}
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def noise(seed: int, count: int, extremes: bool) -> np.ndarray:
    values = (draws(seed, "resize", count) >> 24).astype(np.uint8)
    return np.where(values > 127, 255, 0).astype(np.uint8) if extremes else values


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def resize_cases() -> list[dict]:
    numbers = iter(draws(1, "cases", 20000).tolist())
    below = lambda bound: next(numbers) * bound >> 32
    cases = []
    for seed in range(400):
        channels = (1, 3, 4)[below(3)]
        filter_name = list(FILTERS)[below(5)]
        largest = 400 if below(10) == 0 else 70
        width, height, to_width, to_height = (1 + below(largest) for _ in range(4))
        if below(8) == 0:
            to_width = width
        if below(8) == 0:
            to_height = height
        extremes = below(3) == 0
        pixels = noise(seed, width * height * channels, extremes)
        shape = (height, width) if channels == 1 else (height, width, channels)
        image = Image.fromarray(pixels.reshape(shape)).resize((to_width, to_height), FILTERS[filter_name])
        assert image.mode == MODES[channels]
        case = dict(seed=seed, channels=channels, width=width, height=height, extremes=extremes)
        cases.append(case | dict(to_width=to_width, to_height=to_height, filter=filter_name, sha256=sha256(image.tobytes())))
    return cases


def picture(width: int, height: int, channels: int) -> np.ndarray:
    """Soft gradients with some noise on top: something for every coding tool to do."""
    y, x = np.mgrid[0:height, 0:width]
    planes = np.stack([x * 5 + y * 2, 255 - x * 3 + y, x * y // 5, x * 2 + y * 7], axis=-1)[..., :channels]
    grain = (draws(width * height, "picture", planes.size) >> 27).reshape(planes.shape).astype(np.int64)
    return ((planes + grain) % 256).astype(np.uint8)


def encoded(pixels: np.ndarray, mode: str, file_format: str, **options) -> bytes:
    image = Image.fromarray(pixels[..., 0] if mode == "L" else pixels)
    assert len(image.getbands()) == len(Image.new(mode, (1, 1)).getbands())
    if mode != image.mode:
        image = Image.frombytes(mode, image.size, image.tobytes())
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def jpegs() -> dict[str, bytes]:
    rgb = picture(45, 37, 3)
    files = {}
    for name, subsampling in {"444": 0, "422": 1, "420": 2}.items():
        files[f"jpeg_{name}.jpg"] = encoded(rgb, "RGB", "JPEG", subsampling=subsampling, quality=85)
        files[f"jpeg_{name}_progressive.jpg"] = encoded(rgb, "RGB", "JPEG", subsampling=subsampling, quality=60, progressive=True)
    files["jpeg_restarts.jpg"] = encoded(rgb, "RGB", "JPEG", quality=75, restart_marker_blocks=2)
    files["jpeg_rgb.jpg"] = encoded(rgb, "RGB", "JPEG", quality=75, keep_rgb=True)
    files["jpeg_grey.jpg"] = encoded(picture(33, 41, 1), "L", "JPEG")
    cmyk = encoded(picture(34, 40, 4), "CMYK", "JPEG", quality=90)
    files["jpeg_cmyk.jpg"] = cmyk
    # The same data declared to be YCCK: the transform byte of the Adobe segment becomes 2.
    adobe = cmyk.index(b"Adobe") + 11
    files["jpeg_ycck.jpg"] = cmyk[:adobe] + b"\x02" + cmyk[adobe + 1 :]
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        files[f"orientation_{orientation}.jpg"] = encoded(picture(37, 33, 3), "RGB", "JPEG", quality=40, exif=exif.tobytes())
    return files


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, depth: int, colour_type: int, interlaced: bool, extra: bytes = b"") -> bytes:
    """A PNG of random samples and random row filters, in two IDAT chunks."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type]
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    numbers = iter((draws(depth * 10 + colour_type, "png", 40000) >> 24).astype(np.uint8).tolist())
    rows = bytearray()
    for left, top, step_x, step_y in passes:
        pass_width, pass_height = -(-(width - left) // step_x), -(-(height - top) // step_y)
        for _ in range(pass_height if pass_width > 0 else 0):
            rows.append(next(numbers) % 5)
            rows += bytes(next(numbers) for _ in range((pass_width * samples * depth + 7) // 8))
    data = zlib.compress(bytes(rows))
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, interlaced)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", data[:100]) + chunk(b"IDAT", data[100:]) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def palette(entries: int) -> bytes:
    return chunk(b"PLTE", (draws(entries, "palette", 3 * entries) >> 24).astype(np.uint8).tobytes())


def pngs() -> dict[str, bytes]:
    files = {}
    for name, (colour_type, depths) in {
        "grey": (0, (1, 2, 4, 8, 16)),
        "rgb": (2, (8, 16)),
        "palette": (3, (1, 2, 4, 8)),
        "grey_alpha": (4, (8, 16)),
        "rgba": (6, (8, 16)),
    }.items():
        for depth in depths:
            extra = palette(2**depth) if colour_type == 3 else b""
            files[f"png_{name}_{depth}.png"] = png(35, 32, depth, colour_type, depth in (4, 16), extra)
    transparency = chunk(b"tRNS", bytes(range(0, 250, 10)))
    files["png_palette_transparent.png"] = png(33, 34, 8, 3, True, palette(256) + transparency)
    files["png_palette_short.png"] = png(32, 33, 8, 3, False, palette(100))
    files["png_grey_transparent.png"] = png(33, 33, 8, 0, False, chunk(b"tRNS", b"\0\x20"))
    files["png_rgb_interlaced.png"] = png(37, 39, 8, 2, True)
    profile = b"bomb\0\0" + zlib.compress(bytes(900_000), 9)
    files["png_profile.png"] = png(32, 32, 8, 0, False, chunk(b"iCCP", profile) + chunk(b"gAMA", struct.pack(">I", 20000)))
    exif = Image.Exif()
    exif[0x0112] = 6
    files["orientation_png.png"] = encoded(picture(32, 40, 3), "RGB", "PNG", exif=exif.tobytes())
    return files


def webps() -> dict[str, bytes]:
    rgb, rgba = picture(45, 37, 3), picture(40, 36, 4)
    exif = Image.Exif()
    exif[0x0112] = 7
    second = Image.fromarray(picture(45, 37, 3)[::-1].copy())
    return {
        "webp_lossy.webp": encoded(rgb, "RGB", "WEBP", quality=70),
        "webp_lossless.webp": encoded(rgb, "RGB", "WEBP", lossless=True),
        "webp_lossy_alpha.webp": encoded(rgba, "RGBA", "WEBP", quality=60),
        "webp_lossless_alpha.webp": encoded(rgba, "RGBA", "WEBP", lossless=True, exact=True),
        "webp_animated.webp": encoded(rgb, "RGB", "WEBP", save_all=True, append_images=[second], quality=50),
        "orientation_webp.webp": encoded(picture(32, 40, 3), "RGB", "WEBP", quality=50, exif=exif.tobytes()),
    }


def transformed(image: Image.Image, resolution: int, filter_name: str) -> bytes:
    width, height = image.size
    size = (resolution, int(resolution * height / width)) if width <= height else (int(resolution * width / height), resolution)
    image = image.resize(size, FILTERS[filter_name])
    left, top = (size[0] - resolution) // 2, (size[1] - resolution) // 2
    pixels = np.asarray(image.crop((left, top, left + resolution, top + resolution)), dtype=np.float32)
    floats = (pixels / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
    return np.ascontiguousarray(floats.transpose(2, 0, 1)).tobytes()


def describe(name: str, data: bytes, number: int) -> dict:
    rgb = Image.open(io.BytesIO(data)).convert("RGB")
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    resolution, filter_name = (16, 31, 64)[number % 3], list(FILTERS)[number % 5]
    return {
        "name": name,
        "width": rgb.width,
        "height": rgb.height,
        "sha256": sha256(rgb.tobytes()),
        "upright_width": upright.width,
        "upright_sha256": sha256(upright.tobytes()),
        "resolution": resolution,
        "filter": filter_name,
        "transform_sha256": sha256(transformed(rgb, resolution, filter_name)),
    }


def write_json(path: Path, key: str, entries: list[dict]) -> None:
    versions = {name: features.version(name) for name in ("libjpeg_turbo", "webp", "zlib")}
    head = {"made_by": "tools/goldens/make_image_goldens.py", "pillow": pillow_version, "numpy": np.__version__} | versions
    lines = ",\n".join("  " + json.dumps(entry) for entry in entries)
    path.write_text(json.dumps(head)[:-1] + f', "{key}": [\n{lines}\n]}}\n', encoding="utf-8")


def main() -> None:
    assert draws(42, "x", 1).size == 1 and hash_key("000000000042") == 0xC4198FF42168F018
    files = jpegs() | pngs() | webps()
    (FOLDER / "files").mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (FOLDER / "files" / name).write_bytes(data)
    write_json(FOLDER / "files.json", "files", [describe(*item, number) for number, item in enumerate(files.items())])
    write_json(FOLDER / "resize.json", "cases", resize_cases())
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main()
