"""Prompts to pictures."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from darkroom.extension import TOKENIZER, native


def _pixels_of(picture: Any) -> np.ndarray:
    """RGB pixels [H, W, 3] of encoded bytes, a PIL picture or an array."""
    if isinstance(picture, (bytes, bytearray)):
        return native.decode_picture(bytes(picture))
    if hasattr(picture, "convert"):
        picture = picture.convert("RGB")
    pixels = np.ascontiguousarray(picture)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise ValueError(f"init_image must be encoded bytes, a PIL picture or uint8 [H, W, 3], got: {pixels.dtype} {list(pixels.shape)}")
    return pixels


def _picture_of(pixels: np.ndarray) -> Any:
    """A PIL picture; the array itself where there is no Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return pixels
    return Image.fromarray(pixels)


class Painter:
    """A model that paints: a model folder, a checkpoint of a run, or an original checkpoint of Stable Diffusion 1 or 2 as one file; here
    or at an address (s3://, hf://, https://), from which it is fetched.

    Several threads may paint with one painter; on a GPU all painters and encoders of a process take turns, step by step. `threads`: of
    torch inside an operation, while a call lasts; they change the last bits of a picture. Each call works without the GIL. The other
    arguments are the flags of `darkroom sample`.
    """

    def __init__(self, model: str | os.PathLike[str], device: str = "cpu", precision: str = "float32", threads: int = 1, *,
                 weights: str = "ema", frozen: str | os.PathLike[str] = "", tokenizer_dialect: str = "", prediction_type: str = "") -> None:
        shipped = str(TOKENIZER) if TOKENIZER.exists() else ""
        self._native = native.Painter(os.fspath(model), device, precision, threads, weights, os.fspath(frozen), tokenizer_dialect,
                                      prediction_type, shipped)

    def paint(self, prompt: str | Sequence[str], *, negative: str = "", seed: int = 0, images: int = 1, steps: int = 50,
              guidance: float = 7.5, guidance_rescale: float = 0.0, eta: float = 0.0, sampler: str = "", width: int = 0, height: int = 0,
              init_image: Any = None, strength: float = 0.8, prompt_syntax: str = "plain", long_prompts: str = "auto",
              callback: Callable[[int, int, int], object] | None = None) -> list[Any]:
        """Pictures as PIL pictures, or as uint8 [H, W, 3] without Pillow: `images` of each prompt, one prompt after another, with the
        pixels that `darkroom sample` with these flags writes. Picture j of a prompt starts from the noise of seed + j.

        `sampler`: one of `samplers`, empty for the model's own. `width`, `height`: 0 for the model's size. `init_image` (encoded bytes, a
        PIL picture or an array): start from it, taking the share `strength` of the steps. `callback(picture, step, steps)` is called after
        each step, and may paint; what it raises ends the call, as Ctrl-C does.
        """
        settings = native.PictureSettings()
        settings.negative, settings.sampler = negative, sampler
        settings.steps, settings.width, settings.height = steps, width, height
        settings.guidance, settings.guidance_rescale, settings.eta, settings.strength = guidance, guidance_rescale, eta, strength
        settings.prompt_syntax, settings.long_prompts = prompt_syntax, long_prompts
        if init_image is not None:
            settings.start_from(_pixels_of(init_image))
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        for text in prompts:
            self._native.check(text, settings)
        pictures = []
        for text in prompts:
            for number in range(images):
                told = None if callback is None else functools.partial(callback, len(pictures))
                pictures.append(_picture_of(self._native.paint(text, seed + number, settings, told)))
        return pictures

    def lost_text(self, prompt: str) -> str:
        """What of a prompt of more than 75 tokens is not read; empty: all is."""
        return self._native.lost_text(prompt)

    @property
    def samplers(self) -> list[str]:
        """Names of the samplers that run this model's schedule."""
        return self._native.samplers

    @property
    def native_size(self) -> int:
        """Side in pixels of the pictures that the model was made for."""
        return self._native.native_size

    @property
    def size_multiple(self) -> int:
        """Width and height must be multiples of it."""
        return self._native.size_multiple
