"""darkroom from Python: the command's launcher, and the C++ code behind the command as functions and classes.

    import darkroom
    pictures = darkroom.Painter("models/tiny").paint("a red apple", seed=1)

The extension module, with torch's and pyarrow's libraries, is loaded when the first of the names below is used; where that cannot be,
ImportError says why and the command `darkroom` works all the same. docs/python.md has the whole of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from darkroom.errors import Error as Error, InvalidArgument as InvalidArgument, NotFound as NotFound, Unavailable as Unavailable
    from darkroom.jobs import Item as Item, ItemResult as ItemResult, Job as Job, download_item as download_item
    from darkroom.jobs import open_download_job as open_download_job, open_process_job as open_process_job
    from darkroom.jobs import process_item as process_item, read_items as read_items
    from darkroom.latents import LatentsReader as LatentsReader, read_latents as read_latents
    from darkroom.operators import Encode as Encode, Transform as Transform
    from darkroom.painter import Painter as Painter
    from darkroom.pictures import transform as transform
    from darkroom.tokens import Tokenizer as Tokenizer, tokenize as tokenize

# Where each name of the package lies; they are imported when they are asked for.
_MODULES = {
    "Encode": "operators",
    "Error": "errors",
    "InvalidArgument": "errors",
    "Item": "jobs",
    "ItemResult": "jobs",
    "Job": "jobs",
    "LatentsReader": "latents",
    "NotFound": "errors",
    "Painter": "painter",
    "Tokenizer": "tokens",
    "Transform": "operators",
    "Unavailable": "errors",
    "download_item": "jobs",
    "open_download_job": "jobs",
    "open_process_job": "jobs",
    "process_item": "jobs",
    "read_items": "jobs",
    "read_latents": "latents",
    "tokenize": "tokens",
    "transform": "pictures",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'darkroom' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"darkroom.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
