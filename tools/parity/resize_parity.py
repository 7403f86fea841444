#!/usr/bin/env python3
"""Resizes random pictures with darkroom and with Pillow's Image.resize: every byte must be equal.

  resize_parity.py --program build/release/resize_stream [--cases 2000] [--seed 1]

Modes L, RGB and RGBA, sizes 1..1500 in and out, five filters. A third of the pictures holds only 0 and 255 (the filters'
overshoot is clamped), a third is smooth with noise, a third is noise. Exits 1 when a byte differs.
"""
import argparse
import random
import struct
import subprocess
import sys
from collections import Counter

import numpy as np
import PIL
from PIL import Image

# In the order of darkroom's enumeration Filter.
FILTERS = {name: Image.Resampling[name.upper()] for name in ("bilinear", "bicubic", "lanczos", "hamming", "box")}
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}


class ResizeStream:
    """The program tests/parity/resize_stream.cpp: one request, one answer."""

    def __init__(self, program: str):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def resize(self, pixels: np.ndarray, channels: int, size: tuple[int, int], resize: str) -> bytes:
        height, width = pixels.shape[:2]
        self.process.stdin.write(struct.pack("<6i", width, height, channels, *size, list(FILTERS).index(resize)))
        self.process.stdin.write(pixels.tobytes())
        self.process.stdin.flush()
        answer = self.process.stdout.read(size[0] * size[1] * channels)
        if len(answer) != size[0] * size[1] * channels:
            sys.exit("resize_stream ended before its answer")
        return answer

    def close(self) -> None:
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit("resize_stream failed")


def draw_pixels(rng: random.Random, width: int, height: int, channels: int) -> np.ndarray:
    numbers = np.random.default_rng(rng.getrandbits(32))
    shape = (height, width) if channels == 1 else (height, width, channels)
    kind = rng.randrange(3)
    noise = numbers.integers(0, 256, shape, np.uint8)
    if kind == 0:
        return np.where(noise > 127, np.uint8(255), np.uint8(0))
    if kind == 1:
        return noise
    ramp = np.linspace(0, 220, width)[None, :] * np.linspace(0.3, 1, height)[:, None]
    return (ramp if channels == 1 else ramp[..., None]).astype(np.uint8) + (noise >> 3)


def draw_case(rng: random.Random) -> dict:
    width, height, to_width, to_height = (rng.randint(1, 1500) if rng.random() < 0.8 else rng.randint(1, 40) for _ in range(4))
    if rng.random() < 0.1:
        to_width = width
    if rng.random() < 0.1:
        to_height = height
    return {"mode": rng.choice(list(CHANNELS)), "size": (width, height), "to": (to_width, to_height), "filter": rng.choice(list(FILTERS))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    stream = ResizeStream(arguments.program)
    compared = Counter()
    num_bytes = num_different = num_wrong = 0
    for _ in range(arguments.cases):
        case = draw_case(rng)
        pixels = draw_pixels(rng, *case["size"], CHANNELS[case["mode"]])
        got = stream.resize(pixels, CHANNELS[case["mode"]], case["to"], case["filter"])
        want = Image.fromarray(pixels).resize(case["to"], FILTERS[case["filter"]])
        assert want.mode == case["mode"]
        different = int(np.count_nonzero(np.frombuffer(got, np.uint8) != np.frombuffer(want.tobytes(), np.uint8)))
        compared[case["mode"], case["filter"]] += 1
        num_bytes += len(got)
        num_different += different
        num_wrong += different > 0
        if different:
            print(f"  {case}: {different} bytes differ")
    stream.close()
    print(f"Pillow {PIL.__version__}: {arguments.cases} cases, {len(compared)} pairs of mode and filter with at least {min(compared.values())} each, "
          f"{num_bytes} bytes, {num_different} bytes differ in {num_wrong} cases")
    sys.exit(1 if num_different else 0)


if __name__ == "__main__":
    main()
