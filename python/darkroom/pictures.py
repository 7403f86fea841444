"""Encoded pictures to what the autoencoder sees."""

from __future__ import annotations

import numpy as np

from darkroom.extension import native


def transform(picture: bytes, resolution: int, *, resize: str = "bilinear", crop: str = "center", orientation: str = "ignore",
              seed: int = 0, key: str = "", dtype: str = "float32") -> np.ndarray:
    """A JPEG, PNG or WebP, decoded, its shorter side resized to `resolution`, and cropped: [3, R, R], as `darkroom transform` makes it.

    `dtype`: "float32" in [-1, 1], or "uint8". `resize`: bilinear, bicubic, lanczos, hamming or box; `crop`: center, center_round or random,
    which draws by `seed` and `key` (the command takes the file's name); `orientation`: ignore or apply the EXIF orientation.
    The picture is decoded in this process: take Transform, which locks the decoder in, for pictures of strangers.
    Raises Error with the picture's error code in `row_error`.
    """
    arguments = (bytes(picture), resolution, resize, crop, orientation, seed, key)
    if dtype == "float32":
        return native.transform_to_floats(*arguments)
    if dtype == "uint8":
        return np.ascontiguousarray(native.transform_to_bytes(*arguments).transpose(2, 0, 1))
    raise ValueError(f"dtype must be float32 or uint8, got: {dtype}")
