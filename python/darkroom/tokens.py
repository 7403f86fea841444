"""Captions to CLIP's token ids."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable

import numpy as np

from darkroom.extension import TOKENIZER, native


class Tokenizer:
    """CLIP's tokenizer of a folder with vocab.json and merges.txt, or tokenizer.json. Immutable; any number of threads may use one.

    `dialect`: "hf" cleans and pads as transformers does, "open_clip" as open_clip, with which Stable Diffusion 2 was trained.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, dialect: str = "hf") -> None:
        self._native = native.Tokenizer(str(TOKENIZER if folder is None else folder), dialect)

    def encode(self, captions: Iterable[str], threads: int = 1) -> np.ndarray:
        """The ids of each caption: int32 [N, 77], with start, end and padding; what is longer is cut. The same for any `threads`."""
        return self._native.encode(list(captions), threads)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all that decides the ids."""
        return self._native.fingerprint

    @property
    def vocabulary_size(self) -> int:
        return self._native.vocabulary_size


@functools.lru_cache(maxsize=8)
def _tokenizer_of(folder: str | None, dialect: str) -> Tokenizer:
    return Tokenizer(folder, dialect)


def tokenize(texts: str | Iterable[str], tokenizer: str | os.PathLike[str] | None = None, dialect: str = "hf", threads: int = 1) -> np.ndarray:
    """The token ids of captions: int32 [N, 77], as `darkroom tokenize` prints them; of a single text [1, 77].

    `tokenizer` is a folder; None: the vocabulary that is shipped, CLIP's. The last eight that were named stay loaded, as they were.
    """
    folder = None if tokenizer is None else os.fspath(tokenizer)
    return _tokenizer_of(folder, dialect).encode([texts] if isinstance(texts, str) else texts, threads)
