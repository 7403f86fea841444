#!/usr/bin/env python3
"""Makes benchmarks/pictures: three photographs of 600x825 pixels as the web serves them (JPEG, 4:2:0, quality 85).

Needs scikit-image 0.26.0 (whose wheel holds the photographs) and Pillow 13.0.0. usage: make_pictures.py [OUT=benchmarks/pictures]
Sources: astronaut (NASA, public domain), chelsea (Stefan van der Walt, CC0), coffee (Rachel Michetti, CC0).
"""
import importlib.util
import sys
from pathlib import Path

from PIL import Image

SIZE = (600, 825)


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "pictures"
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(importlib.util.find_spec("skimage").origin).parent / "data"
    for name in ("astronaut", "chelsea", "coffee"):
        picture = Image.open(folder / f"{name}.png").convert("RGB")
        width = picture.height * SIZE[0] // SIZE[1]
        left = (picture.width - width) // 2
        picture = picture.crop((left, 0, left + width, picture.height)).resize(SIZE, Image.Resampling.LANCZOS)
        picture.save(out / f"{name}.jpg", quality=85, subsampling="4:2:0")


if __name__ == "__main__":
    main()
