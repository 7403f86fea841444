"""Real photographs, re-encoded: the pictures of scikit-image and scikit-learn at many sizes and in every coding that darkroom reads.

Read from the packages' folders without importing them. Deterministic for one seed and pinned package versions.
"""
import importlib.util
import io
import random
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

SUBSAMPLINGS = {
    "444": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "422": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "420": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "440": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "411": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}
NAMES = ("astronaut.png", "chelsea.png", "coffee.png", "ihc.png", "motorcycle_left.png", "hubble_deep_field.jpg", "retina.jpg", "rocket.jpg",
         "camera.png", "coins.png", "moon.png", "brick.png", "china.jpg", "flower.jpg")


def package_folder(name: str) -> Path:
    return Path(importlib.util.find_spec(name).origin).parent


def originals() -> dict[str, Image.Image]:
    """The bundled photographs as RGB."""
    found = {}
    for folder in (package_folder("skimage") / "data", package_folder("sklearn") / "datasets/images"):
        for path in sorted(folder.iterdir()):
            if path.name in NAMES:
                found[path.stem] = Image.open(path).convert("RGB")
    assert len(found) == len(NAMES), sorted(found)
    return found


def saved(image: Image.Image, file_format: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def jpeg(image: Image.Image, rng: random.Random) -> tuple[str, bytes]:
    quality = rng.choice((1, 10, 30, 50, 75, 85, 90, 95, 100, rng.randint(1, 100)))
    kind = rng.choice(("pillow", "pillow", "pillow", "opencv", "opencv", "grey", "cmyk", "ycck", "rgb"))
    options = {"quality": quality, "progressive": rng.random() < 0.4, "optimize": rng.random() < 0.3}
    if rng.random() < 0.2:
        options["restart_marker_blocks"] = rng.randint(1, 9)
    if rng.random() < 0.4:
        options["exif"] = orientation_exif(rng)
    if kind == "pillow":
        return f"q{quality}", saved(image, "JPEG", subsampling=rng.randrange(3), **options)
    if kind == "grey":
        return "grey", saved(image.convert("L"), "JPEG", **options)
    if kind == "rgb":
        return "rgb", saved(image, "JPEG", keep_rgb=True, **options)
    if kind in ("cmyk", "ycck"):
        data = saved(image.convert("CMYK"), "JPEG", **{k: v for k, v in options.items() if k != "exif"})
        transform = data.index(b"Adobe") + 11  # 2 declares the samples to be YCCK.
        return kind, data if kind == "cmyk" else data[:transform] + b"\x02" + data[transform + 1 :]
    name = rng.choice(list(SUBSAMPLINGS))
    parameters = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SUBSAMPLINGS[name]]
    parameters += [cv2.IMWRITE_JPEG_PROGRESSIVE, int(options["progressive"])]
    return f"s{name}", cv2.imencode(".jpg", np.asarray(image)[..., ::-1], parameters)[1].tobytes()


def orientation_exif(rng: random.Random) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = rng.randint(1, 8)
    return exif.tobytes()


def with_alpha(image: Image.Image) -> Image.Image:
    result = image.copy()
    result.putalpha(Image.linear_gradient("L").resize(image.size))
    return result


def png(image: Image.Image, rng: random.Random) -> tuple[str, bytes]:
    kind = rng.choice(("rgb", "rgba", "grey", "grey_alpha", "palette", "palette_alpha", "bilevel", "grey16", "rgb16", "rgba16"))
    options = {"exif": orientation_exif(rng)} if rng.random() < 0.4 else {}
    if kind == "rgb":
        return kind, saved(image, "PNG", **options)
    if kind == "rgba":
        return kind, saved(with_alpha(image), "PNG", **options)
    if kind in ("grey", "grey_alpha"):
        return kind, saved(with_alpha(image).convert("LA") if kind == "grey_alpha" else image.convert("L"), "PNG", **options)
    if kind == "palette":
        return kind, saved(image.quantize(rng.choice((2, 4, 16, 200, 256))), "PNG", **options)
    if kind == "palette_alpha":
        return kind, saved(image.quantize(64), "PNG", transparency=rng.randrange(64), **options)
    if kind == "bilevel":
        return kind, saved(image.convert("1"), "PNG", **options)
    wide = np.asarray(with_alpha(image)).astype(np.uint16) * 257 - rng.randrange(2)
    channels = {"grey16": wide[..., 0] // rng.choice((1, 2, 300)), "rgb16": wide[..., 2::-1], "rgba16": wide[..., [2, 1, 0, 3]]}[kind]
    return kind, cv2.imencode(".png", np.ascontiguousarray(channels))[1].tobytes()


def webp(image: Image.Image, rng: random.Random) -> tuple[str, bytes]:
    kind = rng.choice(("lossy", "lossy", "lossless", "alpha", "lossless_alpha"))
    options = {"quality": rng.randint(1, 100), "lossless": kind.startswith("lossless"), "method": 2, "exact": rng.random() < 0.5}
    if rng.random() < 0.4:
        options["exif"] = orientation_exif(rng)
    return kind, saved(with_alpha(image) if kind.endswith("alpha") else image, "WEBP", **options)


def draw_size(rng: random.Random) -> tuple[int, int]:
    short = rng.choice((rng.randint(8, 64), rng.randint(64, 300), rng.randint(300, 900)))
    long = int(short * rng.choice((1.0, rng.uniform(1.0, 1.2), rng.uniform(1.2, 2.0), rng.uniform(2.0, 4.0))))
    return (short, long) if rng.random() < 0.5 else (long, short)


def write_photographs(folder: Path, count: int, seed: int = 1) -> list[Path]:
    """Writes `count` re-encoded photographs; returns their paths. Sizes 8 to 3600 pixels, no two drawn alike."""
    rng = random.Random(seed)
    sources = originals()
    paths = []
    for number in range(count):
        name = rng.choice(list(sources))
        image = sources[name].resize(draw_size(rng), Image.Resampling.BICUBIC)
        suffix, encode = rng.choice((("jpg", jpeg),) * 6 + (("png", png),) * 3 + (("webp", webp),) * 2)
        kind, data = encode(image, rng)
        path = folder / f"{number:04}_{name}_{image.width}x{image.height}_{kind}.{suffix}"
        path.write_bytes(data)
        paths.append(path)
    return paths
