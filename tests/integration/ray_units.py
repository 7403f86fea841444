"""What the tests of darkroom-ray without Ray share: its package on the path, requests and nodes, programs that are shell scripts, modules that
stand in for Ray's."""

import contextlib
import pathlib
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

from darkroom_ray import item_child  # noqa: E402
from darkroom_ray.flags import Refused  # noqa: E402
from darkroom_ray.preflight import Node  # noqa: E402
from darkroom_ray.request import Placement, Request  # noqa: E402

PATIENCE = 300  # Seconds; a limit, no measure.
VERSIONS = {"darkroom": "0.2.0", "ray": "2.60.0", "python": "3.11", "torch": "2.11.0", "pyarrow": "23.0.1"}

item_child.memory_here = lambda request: []  # No Ray tells a program here what it has of its node.


def refusal_of(function, *arguments) -> str:
    """The sentence with which something is refused."""
    try:
        function(*arguments)
    except Refused as refusal:
        return str(refusal)
    raise AssertionError(f"nothing was refused: {arguments}")


@contextlib.contextmanager
def fake_modules(fakes: dict):
    """None: a module that is imported anew."""
    before = {name: sys.modules.pop(name, None) for name in fakes}
    sys.modules |= {name: module for name, module in fakes.items() if module}
    try:
        yield
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            sys.modules |= {name: module} if module else {}


class FakeCounter:
    """Of Ray's metrics: `made` has what was counted, by name and tags."""

    made: dict[tuple, float] = {}

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        self._name = name
        self._tags: dict[str, str] = {}

    def set_default_tags(self, tags: dict[str, str]) -> None:
        self._tags = tags
        self.made[(self._name, *sorted(tags.values()))] = 0

    def inc(self, amount: float) -> None:
        self.made[(self._name, *sorted(self._tags.values()))] += amount


FAKE_METRICS = {"ray.util": types.SimpleNamespace(), "ray.util.metrics": types.SimpleNamespace(Counter=FakeCounter)}


def node(name: str, **fields) -> Node:
    resources = {"CPU": 8.0, "memory": 32e9, **fields.pop("resources", {})}
    return Node(name=name, resources=resources, versions=fields.pop("versions", VERSIONS), machine=fields.pop("machine", name), **fields)


def asked(verb: str, num_workers: int = 1, min_workers: int = 1, **placement) -> Request:
    return Request(verb=verb, arguments=(), placement=Placement(**placement), num_workers=num_workers, min_workers=min_workers)


def item_request(folder: pathlib.Path, script: str) -> Request:
    """Of a program that is this shell script."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Request("process", (), folder=str(folder), program=str(path))
