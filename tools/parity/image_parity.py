#!/usr/bin/env python3
"""Compares `darkroom transform` with Pillow on a folder of pictures: every float must be equal.

  image_parity.py --darkroom build/darkroom --images FOLDER [--resolution 256 --resolution 512]

Pillow is the judge: a picture that Pillow reads must come out with equal bits, one that it refuses must be refused.
Prints a line a setting; exits 1 on the first setting with a difference.
"""
import argparse
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageOps

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "hamming": Image.Resampling.HAMMING,
    "box": Image.Resampling.BOX,
}
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


def expected(path: Path, resolution: int, resize: str, orientation: str) -> np.ndarray | None:
    try:
        with Image.open(path) as image:
            if orientation == "apply":
                image = ImageOps.exif_transpose(image)
            image = image.convert("RGB")
    except (OSError, SyntaxError, ValueError):
        return None
    width, height = image.size
    if width <= height:
        size = (resolution, int(resolution * height / width))
    else:
        size = (int(resolution * width / height), resolution)
    image = image.resize(size, FILTERS[resize])
    left, top = (size[0] - resolution) // 2, (size[1] - resolution) // 2
    pixels = np.asarray(image.crop((left, top, left + resolution, top + resolution)), dtype=np.float32)
    return ((pixels / np.float32(255) - np.float32(0.5)) / np.float32(0.5)).transpose(2, 0, 1)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    data = path.read_bytes()
    (header_bytes,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + header_bytes]).items():
        if name != "__metadata__":
            begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[begin:end], np.float32).reshape(entry["shape"])
    return tensors


def compare(program: str, images: list[Path], resolution: int, resize: str, orientation: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.safetensors")
        command = [program, "transform", "--resolution", str(resolution), "--resize", resize, "--orientation", orientation]
        result = subprocess.run([*command, "--output", str(output), *map(str, images)], capture_output=True, text=True, check=False)
        if not output.exists():
            print(f"darkroom transform failed: {result.stderr}")
            return False
        got = read_safetensors(output)
    num_equal = num_refused = 0
    wrong = []
    for path in images:
        want = expected(path, resolution, resize, orientation)
        if want is None:
            num_refused += path.name not in got
            if path.name in got:
                wrong.append(f"{path.name}: Pillow refuses it")
        elif path.name not in got:
            wrong.append(f"{path.name}: only Pillow reads it")
        elif np.array_equal(want.view(np.uint32), got[path.name].view(np.uint32)):
            num_equal += 1
        else:
            wrong.append(f"{path.name}: largest difference {np.abs(want - got[path.name]).max() * 127.5:.2f} levels")
    print(f"transform {resolution} {resize} orientation={orientation}: {num_equal} equal, {num_refused} refused by both, {len(wrong)} wrong")
    for line in wrong[:10]:
        print("  " + line)
    return not wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--darkroom", required=True, help="the program")
    parser.add_argument("--images", required=True, type=Path, help="folder, searched at any depth")
    parser.add_argument("--resolution", type=int, action="append", help="default: 256 and 512")
    arguments = parser.parse_args()
    by_name = {path.name: path for path in sorted(arguments.images.rglob("*")) if path.suffix.lower() in SUFFIXES}
    images = list(by_name.values())
    if not images:
        sys.exit(f"no pictures in {arguments.images}")
    print(f"Pillow {PIL.__version__}, {len(images)} pictures")
    passed = True
    for resolution in arguments.resolution or [256, 512]:
        for resize in FILTERS:
            passed &= compare(arguments.darkroom, images, resolution, resize, "ignore")
        passed &= compare(arguments.darkroom, images, resolution, "bilinear", "apply")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
