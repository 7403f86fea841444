"""Asks every node what it has: programs, versions, and whether it sees the places of the command line."""

import contextlib
import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import re
import secrets
import tomllib

from darkroom_ray.flags import RUNS, Refused
from darkroom_ray.node_types import with_coming
from darkroom_ray.preflight import Node, SeenPath, candidates, check_amounts, check_probes, check_resources
from darkroom_ray.program import find_program, program_version
from darkroom_ray.request import Request, path_on_disk

PROBE_SECONDS = float(os.environ.get("DARKROOM_RAY_PROBE_SECONDS", "60"))
PATTERN = re.compile(r"[*?\[]")
NONCE_PREFIX = "_tmp.probe-"  # What begins with _tmp is no data (docs/formats/commit.md).

# Flags and positionals that name places, by verb: what is read, and what is written.
READ_PLACES = {
    "download": ("--metadata", "--deny-list"),
    "process": ("RAW_URI", "--model"),
    "train": ("RECIPE.toml", "--data", "--model", "--validation", "--init-from"),
    "online": ("RECIPE.toml", "--raw-data", "--model", "--validation", "--init-from"),
    "encoder": ("RECIPE.toml", "--raw-data", "--model"),
    "transformer": ("RAW_URI",),
    "tune": ("--data", "--raw-data", "--model", "--validation"),  # The recipe lies in the output folder for the trials.
    "sample": ("--model", "--prompts-file", "--jobs", "--frozen", "--init-image"),
    "serve": ("MODEL", "--keys", "--frozen"),
}
WRITTEN_PLACES = {"download": ("OUTPUT_URI",), "process": ("OUTPUT_URI",), "train": ("--output",), "online": ("--output",), "tune": ("--output",), "encoder": (), "transformer": (), "sample": ("--output",), "serve": ()}


def local_paths(given: dict[str, list[str]], names: tuple[str, ...]) -> list[str]:
    """Those of the places that lie on a disk, as paths; of a pattern its folder."""
    paths = []
    for name in names:
        for path in filter(None, map(path_on_disk, given.get(name, []))):
            paths.append(folder_of_pattern(path) if PATTERN.search(path) else path)
    return paths


def folder_of_pattern(word: str) -> str:
    """The folder below which all names lie that a pattern stands for."""
    return os.path.dirname(PATTERN.split(word)[0]) or "."


def versions_here(program: str) -> dict[str, str]:
    found = {"darkroom": program_version(program), "python": ".".join(platform.python_version_tuple()[:2])}
    for package in ("ray", "torch", "pyarrow"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = ""
    return found


def look_around(request: Request, read: list[str], written: list[str], nonce: str) -> dict:
    """Runs on a node."""
    where = request.folder if os.path.isdir(request.folder) else "/"
    seen = [SeenPath(path, is_there=os.path.exists(os.path.join(where, path))) for path in read]
    for path in written:
        folder = folder_of(request, os.path.join(where, path))
        has_nonce = os.path.exists(os.path.join(folder, NONCE_PREFIX + nonce))
        seen.append(SeenPath(path, is_there=os.path.isdir(folder), has_nonce=has_nonce, is_writable=os.access(folder, os.W_OK)))
    facts = {"paths": tuple(seen), "has_folder": os.path.isdir(request.folder), "machine": machine_id()}
    try:
        facts["versions"] = versions_here(find_program(request.program))
    except Refused as refusal:
        facts["problem"] = str(refusal)
    return facts


def folder_of(request: Request, path: str) -> str:
    """Where a nonce is put: the output folder, of a picture the one that it lies in."""
    return os.path.dirname(path) if request.verb == "sample" else path


def machine_id() -> str:
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


class Nonce:
    """A file in each output folder for as long as the others look for it. Folders that were made for it go with it."""

    def __init__(self, request: Request, written: list[str]) -> None:
        self.text = secrets.token_hex(8)
        self.files: list[str] = []
        self.made: list[str] = []
        for path in written:
            if os.path.isabs(path) or os.path.isdir(request.folder):  # Else its node is told of (check_paths), and nothing is made elsewhere.
                self.put(folder_of(request, os.path.join(request.folder, path)))

    def put(self, folder: str) -> None:
        missing = folder
        while missing and not os.path.isdir(missing):
            self.made.append(missing)
            missing = os.path.dirname(missing)
        try:
            os.makedirs(folder, exist_ok=True)
            name = os.path.join(folder, NONCE_PREFIX + self.text)
            with open(name, "x", encoding="ascii"):
                self.files.append(name)
        except OSError:
            pass  # Then nobody finds it, which is what is told.

    def remove(self) -> None:
        for name in self.files:
            os.unlink(name)
        for folder in self.made:
            try:
                os.rmdir(folder)
            except OSError:
                pass  # Somebody has put something there.


def nodes_of(ray) -> list[Node]:
    """As Ray describes them."""

    def described(node: dict) -> Node:
        name = f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"
        labels = dict(node.get("Labels") or {})
        return Node(name=name, address=node["NodeManagerAddress"], resources=dict(node["Resources"]), labels=labels, node_id=node["NodeID"])

    return [described(node) for node in ray.nodes() if node["Alive"]]


def free_nodes(ray) -> list[Node]:
    """Those that are alive and stay, with what nobody holds of them at the moment; Ray's word of it lags behind by moments."""
    free = ray._private.state.available_resources_per_node()
    draining = ray._private.state.state.get_draining_nodes()
    return [dataclasses.replace(node, resources=free.get(node.node_id, {})) for node in nodes_of(ray) if node.node_id not in draining]


def gradient_groups(given: dict[str, list[str]]) -> int | None:
    """Of the recipe, with --set over it. None: the recipe cannot be read here, or says nothing that is a number; the program tells."""
    words = [word.partition("=")[2].strip() for word in given.get("--set", []) if word.partition("=")[0].strip() == "runtime.gradient_groups"]
    if words:
        return int(words[-1]) if words[-1].isdigit() else None
    try:
        with open(given["RECIPE.toml"][0], "rb") as file:
            found = tomllib.load(file).get("runtime", {}).get("gradient_groups", 1)
    except (OSError, KeyError, AttributeError, ValueError):
        return None
    return found if isinstance(found, int) else None


def probe_nodes(ray, request: Request, nodes: list[Node], given: dict[str, list[str]]) -> list[Node]:
    """The same nodes with what a task on each found."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    read = local_paths(given, READ_PLACES[request.verb])
    written = local_paths(given, WRITTEN_PLACES[request.verb])

    def on(node_id: str, function):
        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        return ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)

    holder = ray.remote(Nonce).options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[0].node_id, soft=False)).remote(request, written)
    try:
        text = ray.get(holder.__ray_call__.remote(lambda nonce: nonce.text), timeout=PROBE_SECONDS)
        asked = [on(node.node_id, look_around).remote(request, read, written, text) for node in nodes]
        done, _ = ray.wait(asked, num_returns=len(asked), timeout=PROBE_SECONDS)
        return [with_facts(ray, node, reply, reply in done) for node, reply in zip(nodes, asked)]
    except ray.exceptions.RayError:
        return [with_facts(ray, nodes[0], None, False), *nodes[1:]]
    finally:
        with contextlib.suppress(ray.exceptions.RayError):  # Its node went, and is told of.
            ray.get(holder.remove.remote(), timeout=PROBE_SECONDS)
            ray.kill(holder)


def with_facts(ray, node: Node, reply, has_come: bool) -> Node:
    facts: dict = {"answers": False}
    if has_come:
        try:
            facts = ray.get(reply)
        except ray.exceptions.RayError:
            pass  # Its node went meanwhile.
    return dataclasses.replace(node, **facts)


def check_cluster(ray, request: Request, given: dict[str, list[str]]) -> None:
    """Errors: Refused, with every reason why the request cannot be done here."""
    nodes = nodes_of(ray)
    groups = gradient_groups(given) if request.verb in RUNS else None
    problems = [*check_amounts(request, given, groups), *check_resources(with_coming(request, nodes), request)]
    if not problems:
        chosen = candidates(nodes, request.placement)
        if request.verb == "tune":  # The search itself reads and writes its folder, too.
            own = ray.get_runtime_context().get_node_id()
            chosen += [node for node in nodes if node.node_id == own and node not in chosen]
        probed = probe_nodes(ray, request, chosen, given) if chosen else []
        places = local_paths(given, READ_PLACES[request.verb] + WRITTEN_PLACES[request.verb])
        problems = check_probes(probed, any(not path.startswith("/") for path in places))
    if problems:
        raise Refused("nothing was begun:\n" + "\n".join(f"  - {problem}" for problem in problems))
