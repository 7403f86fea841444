"""Asks every node what it has: programs, versions, and whether it sees the places of the command line."""

import concurrent.futures
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import secrets
import subprocess
import time
import tomllib
from collections.abc import Callable

from darkroom_ray.flags import RUNS, Refused
from darkroom_ray.item_job import cause_of, first_line
from darkroom_ray.nodes import nodes_of, staying_nodes, with_coming
from darkroom_ray.own_folder import own_folder
from darkroom_ray.places import Places, places_of
from darkroom_ray.preflight import Node, SeenPath, candidates, check_amounts, check_probes, check_resources, check_storage, idle_gpus, listed
from darkroom_ray.program import find_program, is_set, program_version, run_for
from darkroom_ray.progress import say
from darkroom_ray.request import Request, without_secrets

# What is wrong where nodes have answered by then is told then: a refusal comes within ten seconds.
PROBE_SECONDS = 7.0
# That nodes have which are silent still where nothing else is wrong (DARKROOM_RAY_PROBE_SECONDS): workers are long in coming on a busy machine.
SILENCE_SECONDS = 120.0
REMOVE_SECONDS = 1.0  # That a node has to take its nonces away.
LOOK_SECONDS = 0.5
STORE_SECONDS = 5.0  # That a store has to answer a node.
NOTHING_THERE = "nothing has that name yet"  # As the program says of a place of S3 (apps/darkroom/doctor/stores.cpp).
# Of the driver's machine, where other packages compute nothing: a head without GPUs may have another torch.
DRIVER_PACKAGES = ("darkroom", "ray", "python")
HEAD_IS_SILENT = ("the head has not said yet what its autoscaler may bring, and nodes that may come were not counted: run the same command again, or name "
                  "the file of `ray up`, or KubeRay's manifest, with --cluster-config")
KUBERAY = "RAY_USAGE_STATS_KUBERAY_IN_USE"  # Its operator sets it in every pod.
PODS_ARE_NOT_COUNTED = "pods that KubeRay may bring were not counted, since it tells Ray nothing of them: name its manifest with --cluster-config"
NONCE_PREFIX = "_tmp.probe-"  # What begins with _tmp is no data (docs/formats/commit.md).


def versions_here(program: str) -> dict[str, str]:
    """Errors: Refused."""
    found = {"darkroom": program_version(program), "python": ".".join(platform.python_version_tuple()[:2])}
    for package in ("ray", "torch", "pyarrow"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = ""
    return found


def look_at_store(program: str, uri: str, is_read: bool, seconds: float) -> SeenPath:
    """Through the program, which knows stores and their credentials. A program that cannot say has found nothing wrong."""
    shown = without_secrets(uri)
    with own_folder("dr-look-") as folder:
        summary = pathlib.Path(folder, "summary.json")
        command = [program, "doctor", "--json-summary", str(summary), "--", uri]
        try:
            run_for(seconds, command)
            found = json.loads(summary.read_text(encoding="utf-8"))["doctor"]
        except subprocess.TimeoutExpired:
            return SeenPath(shown, problem=f"the store does not answer within {seconds:.0f} s; look at the network and its firewall")
        except (OSError, ValueError, KeyError):
            return SeenPath(shown)
    for problem in found.get("problems", []):
        if problem.startswith("stores: "):
            return SeenPath(shown, problem=" ".join(problem.split(": ", 2)[2].split())[:400])
    if is_read and any(NOTHING_THERE in text for text in found.get("stores", {}).values()):
        return SeenPath(shown, problem="nothing has that name; look at it, and at the credentials of the node")
    return SeenPath(shown)


def look_at_stores(program: str, read: list[str], written: list[str], seconds: float) -> list[SeenPath]:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        looks = [pool.submit(look_at_store, program, uri, is_read, seconds) for is_read, uris in ((True, read), (False, written)) for uri in uris]
        return [look.result() for look in looks]


def look_at_program(request: Request, places: Places, seconds: float) -> dict:
    """Runs on a node. `seconds`: that a store has to answer."""
    try:
        program = find_program(request.program)
        versions = versions_here(program)
    except Refused as refusal:
        return {"problem": str(refusal)}
    return {"versions": versions, "paths": tuple(look_at_stores(program, places.read_stores, places.written_stores, seconds))}


def look_at_disk(request: Request, places: Places, nonce: str) -> dict:
    """Runs on a node."""
    where = request.folder if os.path.isdir(request.folder) else "/"
    seen = [SeenPath(path, is_there=os.path.exists(os.path.join(where, path))) for path in places.read]
    for path in places.written:
        folder = folder_of(request, os.path.join(where, path))
        has_nonce = os.path.exists(os.path.join(folder, NONCE_PREFIX + nonce))
        seen.append(SeenPath(path, is_there=os.path.isdir(folder), has_nonce=has_nonce, is_writable=os.access(folder, os.W_OK)))
    return {"paths": tuple(seen), "has_folder": os.path.isdir(request.folder), "machine": machine_id()}


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
            with contextlib.suppress(OSError):  # Somebody has taken it away.
                os.unlink(name)
        for folder in self.made:
            try:
                os.rmdir(folder)
            except OSError:
                pass  # Somebody has put something there.


class Look:
    """An actor on one node: one start of a worker there, whatever is asked of it."""

    def __init__(self, request: Request, places: Places) -> None:
        self._request = request
        self._places = places
        self._nonce: Nonce | None = None

    def put_nonce(self) -> str:
        self._nonce = Nonce(self._request, self._places.written)
        return self._nonce.text

    def remove_nonce(self) -> None:
        if self._nonce:
            self._nonce.remove()

    def at_program(self, seconds: float) -> dict:
        return look_at_program(self._request, self._places, seconds)

    def at_disk(self, nonce: str) -> dict:
        return look_at_disk(self._request, self._places, nonce)


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


@dataclasses.dataclass(frozen=True)
class ProbeTime:
    """Of time.monotonic()."""

    refusal: float  # What is wrong by then is told then.
    end: float  # Of waiting for silent nodes.
    check: Callable[[], None]  # Called again and again meanwhile. Errors: Stopped.


def probe_time(check: Callable[[], None]) -> ProbeTime:
    """If the nodes are asked now."""
    now = time.monotonic()
    return ProbeTime(now + PROBE_SECONDS, now + float(os.environ.get("DARKROOM_RAY_PROBE_SECONDS", SILENCE_SECONDS)), check)


def seconds_left(end: float) -> float:
    return max(0.0, end - time.monotonic())


def done_by(ray, calls: list, end: float, check: Callable[[], None]) -> list:
    """Those that are done by then. Errors: Stopped."""
    while True:
        check()
        seconds = seconds_left(end)
        done, _ = ray.wait(calls, num_returns=len(calls), timeout=min(seconds, LOOK_SECONDS))
        if len(done) == len(calls) or seconds <= LOOK_SECONDS:
            return done


def probe_nodes(ray, request: Request, nodes: list[Node], places: Places, until: ProbeTime, problems_of: Callable[[list[Node]], list[str]]) -> list[Node]:
    """The same nodes with what an actor on each found. Errors: Stopped."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def look_on(node: Node):
        strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        return ray.remote(Look).options(num_cpus=0, max_concurrency=2, scheduling_strategy=strategy).remote(request, places)

    looks = [look_on(node) for node in nodes]
    try:
        programs = [look.at_program.remote(STORE_SECONDS) for look in looks]
        nonce = looks[0].put_nonce.remote()
        done_by(ray, [nonce], until.end, until.check)
        text = ray.get(nonce, timeout=0)
        replies = list(zip(programs, [look.at_disk.remote(text) for look in looks]))

        def found_by(end: float) -> list[Node]:
            done = done_by(ray, [one for pair in replies for one in pair], end, until.check)
            return [with_facts(ray, node, pair if set(pair) <= set(done) else ()) for node, pair in zip(nodes, replies)]

        found = found_by(until.refusal)
        silent = [node.name for node in found if not node.answers]
        if silent and not problems_of([node for node in found if node.answers]):
            if not request.is_quiet:
                say(f"waiting for {listed(silent)} to answer")
            found = found_by(until.end)
        return found
    except ray.exceptions.RayError as error:
        return [dataclasses.replace(nodes[0], answers=False, problem=why_silent(ray, error)), *nodes[1:]]
    finally:
        with contextlib.suppress(ray.exceptions.RayError):  # Its node went, and is told of.
            ray.get(looks[0].remove_nonce.remote(), timeout=REMOVE_SECONDS + seconds_left(until.refusal))
        for look in looks:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(look)


def why_silent(ray, error: Exception) -> str:
    """What Ray says of a look that came to nothing; "": it has not come yet."""
    return "" if isinstance(error, ray.exceptions.GetTimeoutError) else first_line(cause_of(error))


def with_facts(ray, node: Node, replies: tuple) -> Node:
    """`replies`: none where they have not come."""
    try:
        found: list[dict] = [ray.get(reply) for reply in replies]
    except ray.exceptions.RayError as error:  # Its node went meanwhile, say, or its worker did not start.
        return dataclasses.replace(node, answers=False, problem=why_silent(ray, error))
    if not found:
        return dataclasses.replace(node, answers=False)
    facts = {name: value for one in found for name, value in one.items()}
    return dataclasses.replace(node, **{**facts, "paths": tuple(seen for one in found for seen in one.get("paths", ()))})


def refuse(problems: list[str]) -> None:
    """Errors: Refused, where there are any."""
    if problems:
        raise Refused("nothing was begun:\n" + "\n".join(f"  - {problem}" for problem in problems))


def what_was_not_counted(request: Request) -> list[str]:
    """Of nodes that may come."""
    if request.is_head_silent:
        return [HEAD_IS_SILENT]
    return [PODS_ARE_NOT_COUNTED] if KUBERAY in os.environ and not request.node_types and not request.cluster_config else []


def problems_of_room(request: Request, given: dict[str, list[str]], nodes: list[Node]) -> list[str]:
    groups = gradient_groups(given) if request.verb in RUNS else None
    missing = check_resources(with_coming(request, nodes), request)
    has_records = request.verb in RUNS and not is_set(given, "--dry-run")
    return [*check_amounts(request, given, groups), *(check_storage(request, given) if has_records else ()), *missing, *(what_was_not_counted(request) if missing else ())]


def check_room(ray, request: Request, given: dict[str, list[str]]) -> None:
    """By what Ray says of its nodes alone. Errors: Refused, with every reason why the request cannot be done here."""
    refuse(problems_of_room(request, given, nodes_of(ray)))


def warn_of_idle_gpus(request: Request, given: dict[str, list[str]], nodes: list[Node]) -> None:
    """A quiet command says warnings, too."""
    warning = idle_gpus(with_coming(request, nodes), request, given)
    if warning:
        say(f"warning: {warning}")


def check_cluster(ray, request: Request, given: dict[str, list[str]], until: ProbeTime) -> None:
    """As check_room(), and by what the nodes themselves say; without those that are about to go. Errors: Refused, Stopped."""
    here = versions_here(find_program(request.program))
    places = places_of(request, given)
    has_relative_paths = any(not path.startswith("/") for path in [*places.read, *places.written])

    def problems_of(found: list[Node]) -> list[str]:
        return check_probes(found, has_relative_paths, {name: here[name] for name in DRIVER_PACKAGES})

    while True:
        nodes = staying_nodes(ray)
        refuse(problems_of_room(request, given, nodes))
        chosen = nodes_to_probe(ray, request, nodes)
        found = probe_nodes(ray, request, chosen, places, until, problems_of) if chosen else []
        silent = {node.node_id for node in found if not node.answers}
        if silent <= {node.node_id for node in staying_nodes(ray)}:
            refuse(problems_of(found))
            warn_of_idle_gpus(request, given, nodes)
            return
        until = probe_time(until.check)  # Those that stay are asked anew, and have as long to answer.


def nodes_to_probe(ray, request: Request, nodes: list[Node]) -> list[Node]:
    chosen = candidates(nodes, request.placement)
    if request.verb == "tune":  # The search itself reads and writes its folder, too.
        own = ray.get_runtime_context().get_node_id()
        chosen += [node for node in nodes if node.node_id == own and node not in chosen]
    return chosen
