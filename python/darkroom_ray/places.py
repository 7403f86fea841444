"""The places that a command line names: what is read and what is written, on a disk and on stores."""

import dataclasses
import os
import re

from darkroom_ray.request import Request, path_on_disk

PATTERN = re.compile(r"[*?\[]")
STORES = ("s3://", "hf://")
SETTINGS = re.compile(r"\?[^?]*=.*$")  # Of an address of a store; another ? is of a pattern.

# Flags and positionals that name places, by verb: what is read, and what is written. Of tune the recipe lies in the output folder for the trials,
# and what --config says stands in their commands.
READ_PLACES = {
    "download": ("--metadata", "--deny-list", "--catalogue", "--rates-from", "--config"),
    "process": ("RAW_URI", "--model", "--catalogue", "--config"),
    "train": ("RECIPE.toml", "--data", "--model", "--validation", "--init-from", "--resume", "--config"),
    "online": ("RECIPE.toml", "--raw-data", "--model", "--validation", "--init-from", "--resume", "--config"),
    "encoder": ("RECIPE.toml", "--raw-data", "--model"),
    "transformer": ("RAW_URI",),
    "tune": ("--data", "--raw-data", "--model", "--validation"),
    "sample": ("--model", "--prompts-file", "--jobs", "--reproduce", "--frozen", "--init-image", "--init-images", "--latents", "--config"),
    "serve": ("MODEL", "--keys", "--frozen", "--run", "--dataset", "--multi-model", "--config"),
}
WRITTEN_PLACES = {"download": ("OUTPUT_URI",), "process": ("OUTPUT_URI",), "train": ("--output",), "online": ("--output",), "tune": ("--output",), "encoder": (), "transformer": (), "sample": ("--output", "--save-latents"), "serve": ()}
NO_PLACES = {"--resume": ("auto", "none")}  # Words that a flag takes instead of a place.


def place_of_model(word: str) -> str:
    """Of NAME=PLACE the place; a / before the = is of a path, as the program has it (apps/darkroom/verb_serve.cpp)."""
    name, equals, place = word.partition("=")
    return place if name and equals and "/" not in name else word


def named_places(given: dict[str, list[str]], names: tuple[str, ...]) -> list[str]:
    words = [(name, word) for name in names for word in given.get(name, []) if word not in NO_PLACES.get(name, ())]
    return [place_of_model(word) if name == "MODEL" else word for name, word in words]


def local_paths(given: dict[str, list[str]], names: tuple[str, ...]) -> list[str]:
    """Those of the places that lie on a disk, as paths; of a pattern its folder."""
    paths = filter(None, map(path_on_disk, named_places(given, names)))
    return [folder_of_pattern(path) if PATTERN.search(path) else path for path in paths]


def folder_of_pattern(word: str) -> str:
    """The folder below which all names lie that a pattern stands for."""
    return os.path.dirname(PATTERN.split(word)[0]) or "."


def split_settings(place: str) -> tuple[str, str]:
    """A place without the settings of its store, and these with their ?."""
    settings = found[0] if place.startswith(STORES) and (found := SETTINGS.search(place)) else ""
    return place.removesuffix(settings), settings


def inside(folder: str, name: str) -> str:
    """The place of what lies in a folder; on a store with the folder's settings."""
    place, settings = split_settings(folder)
    return f"{place.rstrip('/')}/{name}{settings}"


def store_places(given: dict[str, list[str]], names: tuple[str, ...]) -> list[str]:
    """Those of the places that lie on a store; of a pattern its folder."""
    places = []
    for uri in (place for place in named_places(given, names) if place.startswith(STORES)):
        place, settings = split_settings(uri)
        places.append((folder_of_pattern(place) if PATTERN.search(place) else place) + settings)
    return places


@dataclasses.dataclass(frozen=True)
class Places:
    """Of a command line: paths on a disk, and addresses on stores."""

    read: list[str]
    written: list[str]
    read_stores: list[str] = dataclasses.field(default_factory=list)
    written_stores: list[str] = dataclasses.field(default_factory=list)


def places_of(request: Request, given: dict[str, list[str]]) -> Places:
    read, written = READ_PLACES[request.verb], WRITTEN_PLACES[request.verb]
    return Places(local_paths(given, read), local_paths(given, written), store_places(given, read), store_places(given, written))
