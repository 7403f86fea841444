#!/usr/bin/env python3
"""Compares `darkroom transform` with Pillow: every float must be equal.

  image_parity.py --darkroom build/darkroom [--photographs 400] [--images FOLDER]

Pictures: the photographs of scikit-image and scikit-learn re-encoded (tools/corpus/photographs.py), and those in FOLDER. Each goes
through the published setting (256, bilinear, floor of the centre) and, by turns, through one of 30 others: every filter
with every crop and orientation, at five resolutions. Pillow is the judge: a picture that Pillow reads must come out with equal
bits, one that it refuses must be refused. torchvision's CenterCrop judges `--crop center_round`. Exits 1 on a difference.
"""
import argparse
import itertools
import json
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL
from PIL import Image, ImageOps
from torchvision.transforms.v2.functional import center_crop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "goldens"))
from counter_random import CROP, draws  # noqa: E402
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "corpus"))
from photographs import write_photographs  # noqa: E402

FILTERS = {name: Image.Resampling[name.upper()] for name in ("bilinear", "bicubic", "lanczos", "hamming", "box")}
CROPS = ("center", "center_round", "random")
ORIENTATIONS = ("ignore", "apply")
RESOLUTIONS = (64, 224, 256, 299, 512)
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
SEED = 7
PICTURES_A_RUN = 60  # Bounds the size of one output file.


class Setting(NamedTuple):
    resolution: int
    resize: str
    crop: str
    orientation: str


PUBLISHED = Setting(256, "bilinear", "center", "ignore")
OTHERS = [Setting(RESOLUTIONS[(i + i // 6) % 5], *rest) for i, rest in enumerate(itertools.product(FILTERS, CROPS, ORIENTATIONS))]


def cut(image: Image.Image, setting: Setting, name: str) -> Image.Image:
    side = setting.resolution
    if setting.crop == "center_round":
        return center_crop(image, [side, side])
    play = (image.width - side, image.height - side)
    if setting.crop == "random":
        fractions = draws(SEED, name, 2, CROP) * 2.0**-32
        left, top = (int(fraction * (free + 1)) for fraction, free in zip(fractions, play))
    else:
        left, top = play[0] // 2, play[1] // 2
    return image.crop((left, top, left + side, top + side))


def expected(path: Path, setting: Setting) -> np.ndarray | None:
    try:
        with Image.open(path) as image:
            if setting.orientation == "apply":
                image = ImageOps.exif_transpose(image)
            image = image.convert("RGB")
    except (OSError, SyntaxError, ValueError):
        return None
    side = setting.resolution
    width, height = image.size
    size = (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
    image = cut(image.resize(size, FILTERS[setting.resize]), setting, path.name)
    pixels = np.asarray(image, dtype=np.float32)
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


def transformed(program: str, images: list[Path], setting: Setting) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.safetensors")
        command = [program, "transform", "--resolution", str(setting.resolution), "--resize", setting.resize, "--crop", setting.crop]
        command += ["--orientation", setting.orientation, "--seed", str(SEED), "--output", str(output), *map(str, images)]
        subprocess.run(command, capture_output=True, text=True, check=False)
        return read_safetensors(output) if output.exists() else {}


class Tally:
    def __init__(self):
        self.num_equal = self.num_floats = self.num_refused = 0
        self.wrong = []

    def compare(self, program: str, images: list[Path], setting: Setting) -> None:
        got = transformed(program, images, setting)
        for path in images:
            want = expected(path, setting)
            have = got.get(path.name)
            if want is None and have is None:
                self.num_refused += 1
            elif want is None or have is None:
                self.wrong.append(f"{path.name} {tuple(setting)}: only {'darkroom' if want is None else 'Pillow'} reads it")
            elif np.array_equal(want.view(np.uint32), have.view(np.uint32)):
                self.num_equal += 1
                self.num_floats += want.size
            else:
                different = int(np.count_nonzero(want != have))
                self.wrong.append(f"{path.name} {tuple(setting)}: {different} floats differ, by {np.abs(want - have).max() * 127.5:.2f} levels at most")


def groups(images: list[Path]) -> dict[Setting, list[Path]]:
    """The pictures of each run: all in the published setting, and each in one more."""
    found = defaultdict(list)
    for number, path in enumerate(images):
        found[OTHERS[number % len(OTHERS)]].append(path)
    return dict(found)


def compare_all(program: str, what: str, images: list[Path]) -> bool:
    tally = Tally()
    for begin in range(0, len(images), PICTURES_A_RUN):
        tally.compare(program, images[begin : begin + PICTURES_A_RUN], PUBLISHED)
    others = groups(images)
    for setting, some in others.items():
        for begin in range(0, len(some), PICTURES_A_RUN):
            tally.compare(program, some[begin : begin + PICTURES_A_RUN], setting)
    print(f"{what}: {len(images)} pictures in {1 + len(others)} settings, {tally.num_equal} transforms equal ({tally.num_floats} floats), "
          f"{tally.num_refused} refused by both, {len(tally.wrong)} wrong")
    for line in tally.wrong[:20]:
        print("  " + line)
    return not tally.wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--darkroom", required=True, help="the program")
    parser.add_argument("--photographs", type=int, default=400, help="number of re-encoded photographs")
    parser.add_argument("--images", type=Path, help="folder of more pictures, searched at any depth")
    arguments = parser.parse_args()
    print(f"Pillow {PIL.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        passed = compare_all(arguments.darkroom, "photographs", write_photographs(Path(folder), arguments.photographs))
    if arguments.images:
        by_name = {path.name: path for path in sorted(arguments.images.rglob("*")) if path.suffix.lower() in SUFFIXES}
        passed &= compare_all(arguments.darkroom, "corpus", list(by_name.values()))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
