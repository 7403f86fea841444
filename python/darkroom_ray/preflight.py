"""What is asked of a cluster against what it has: each thing that is wrong as a sentence that says what to do. Pure functions over data.

Ray itself waits for ever for a node that never comes, without a word.
"""

import collections
import dataclasses
import math
from collections.abc import Iterator

from darkroom_ray.flags import REFUSALS, RUNS, is_refused
from darkroom_ray.places import split_settings
from darkroom_ray.request import MARKET_LABEL, Placement, Request

ACCELERATOR_PREFIX = "accelerator_type:"
# Ray gives work that asks for no type to nodes with GPUs last, and offers these labels and resources by itself.
OWN_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")
ON_ONE_GPU = ("process", "encoder", "train", "online", "tune", "sample", "serve")  # Each worker of theirs.
# Of an s3:// address, those of ours that pyarrow's reader of addresses knows.
SETTINGS_OF_RAY = ("region", "scheme", "endpoint_override")


@dataclasses.dataclass(frozen=True)
class SeenPath:
    """A place of the command line as one node sees it."""

    path: str
    is_there: bool = True
    has_nonce: bool = True  # What another node wrote there a moment ago. Of inputs always true.
    is_writable: bool = True  # Of inputs always true.
    problem: str = ""  # Of a place on a store: why the node does not see it.


@dataclasses.dataclass(frozen=True)
class Node:
    """What a node offers, and what a probe found on it."""

    name: str  # Its address and the first letters of its id.
    address: str = "10.0.0.1"
    resources: dict[str, float] = dataclasses.field(default_factory=dict)  # As Ray counts them: CPU, GPU, memory, custom ones.
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    machine: str = ""  # An id that two nodes of one machine share.
    answers: bool = True  # The probe came back.
    versions: dict[str, str] = dataclasses.field(default_factory=dict)  # Of darkroom, ray, python, torch, pyarrow; "": it is not there.
    problem: str = ""  # Why the program does not start there, or why a probe does not.
    has_folder: bool = True  # The driver's working folder is there.
    paths: tuple[SeenPath, ...] = ()
    node_id: str = ""  # Ray's.

    def amount(self, resource: str) -> float:
        return self.resources.get(resource, 0.0)

    @property
    def accelerator_types(self) -> list[str]:
        return [name[len(ACCELERATOR_PREFIX) :] for name in self.resources if name.startswith(ACCELERATOR_PREFIX)]


def number(value: float) -> str:
    return f"{value:g}"


def listed(names) -> str:
    return ", ".join(sorted(names)) or "none"


def worker_name(verb: str) -> str:
    return {"download": "a task", "process": "an encoder", "train": "a rank", "online": "a rank", "tune": "a trial", "encoder": "an encoder", "transformer": "an actor of transformers", "sample": "the task", "serve": "a replica"}[verb]


# -- what is asked, by itself -----------------------------------------------------------------------------------------


def check_amounts(request: Request, given: dict[str, list[str]], num_groups: int | None = None) -> Iterator[str]:
    """`num_groups`: the recipe's gradient groups with the command line over them, where they are known."""
    placement = request.placement
    for name, value in (("--num-gpus-per-task", placement.num_gpus), *(("--resources " + name, value) for name, value in placement.resources.items())):
        if value > 1 and value != int(value):
            yield f"{name} {number(value)}: Ray gives whole ones or a part of one; ask for {math.floor(value)} or {math.ceil(value)}"
    if placement.num_gpus > 1 and request.verb in ON_ONE_GPU:
        yield f"{worker_name(request.verb)} works on one GPU, and {number(placement.num_gpus)} would be reserved: ask for --num-gpus-per-task 1"
    device = given.get("--device", ["auto"])[0]
    if device.startswith("cuda") and not placement.num_gpus:
        yield f"--device {device} needs a GPU of Ray's for {worker_name(request.verb)}: add --num-gpus-per-task 1"
    if device == "cpu" and placement.num_gpus:
        yield f"--device cpu leaves the {number(placement.num_gpus)} GPUs of {worker_name(request.verb)} idle: drop --device or the GPUs"
    if ":" in device:
        yield f"--device {device}: Ray chooses which GPU; ask for --device cuda"
    if placement.accelerator_type and not placement.num_gpus:
        yield f"--accelerator-type {placement.accelerator_type} with no GPU: ask for --num-gpus-per-task 1, or leave the type out"
    if not placement.num_cpus and not placement.num_gpus and not placement.resources:
        yield f"{worker_name(request.verb)} that takes nothing of a node is started without end: ask for --num-cpus-per-task"
    for name in REFUSALS:
        if name in given and is_refused(request.verb, name):  # In a file of settings; flags.py refuses it on the command line.
            yield f"{name} in --config: {REFUSALS[name]}"
    yield from check_ranks(request, num_groups)


def check_storage(request: Request, given: dict[str, list[str]]) -> Iterator[str]:
    """Of a run: whether Ray can read the address of its own records, and may keep it. It would say no only when the ranks begin."""
    address = request.storage or given.get("--output", [""])[0]
    if "@" in address.partition("://")[2].partition("/")[0]:  # The program refuses it in --output; --storage-path it never sees.
        yield "--storage-path holds credentials, which Ray would show to whoever sees its state: leave them out, and give them in the environment of the nodes"
    names = [setting.partition("=")[0] for setting in filter(None, split_settings(address)[1].removeprefix("?").split("&"))]
    unknown = [name for name in names if name not in SETTINGS_OF_RAY]
    if address.startswith("s3://") and unknown:
        yield (f"Ray keeps records of its own with the run, and knows no setting {', '.join(unknown)} of an s3:// address: name --storage-path URI, "
               f"a folder that all nodes see or an address with no settings but {', '.join(SETTINGS_OF_RAY)}")


def check_ranks(request: Request, num_groups: int | None) -> Iterator[str]:
    if request.verb in RUNS and num_groups is not None and num_groups < request.num_workers:
        yield (f"{request.num_workers} ranks want a gradient group each: set runtime.gradient_groups to {request.num_workers} or more (it is {num_groups}; "
               f"--set runtime.gradient_groups={request.num_workers}), or ask for --num-training-workers {num_groups}")
    if request.verb in RUNS and request.num_workers > 1 and 0 < request.placement.num_gpus < 1:
        yield f"ranks take a GPU each, not {number(request.placement.num_gpus)}: ask for --num-gpus-per-task 1"


# -- nodes ------------------------------------------------------------------------------------------------------------


def has_labels(node: Node, selector: dict[str, str]) -> bool:
    return all(node.labels.get(name) == value for name, value in selector.items())


def fits(node: Node, placement: Placement) -> bool:
    """Whether one worker has room on an empty node."""
    return room_on(node, placement) >= 1 and any(has_labels(node, selector) for selector in placement.label_selectors())


def room_on(node: Node, placement: Placement) -> int:
    """Workers that an empty node holds, its labels apart."""
    if placement.accelerator_type and placement.accelerator_type not in node.accelerator_types:
        return 0
    shares = [node.amount(name) / value for name, value in placement.amounts().items() if value > 0]
    return math.floor(min(shares, default=0) + 1e-9)


def candidates(nodes: list[Node], placement: Placement) -> list[Node]:
    return [node for node in nodes if fits(node, placement)]


def room_in(nodes: list[Node], placement: Placement) -> int:
    """Workers that all of them hold."""
    return sum(room_on(node, placement) for node in candidates(nodes, placement))


def with_amounts(node: Node, more: dict[str, float], count: int) -> Node:
    """The same node with so many times these resources besides; below 0: without them."""
    return dataclasses.replace(node, resources={name: node.amount(name) + count * more.get(name, 0.0) for name in {*node.resources, *more}}) if count else node


def check_types(nodes: list[Node], placement: Placement) -> Iterator[str]:
    kind = placement.accelerator_type
    there = {name for node in nodes for name in node.accelerator_types}
    if kind and kind not in there:
        near = [name for name in there if name.lower() == kind.lower()]
        advice = f"did you mean {near[0]}?" if near else "name one of these, add such nodes, or leave --accelerator-type out"
        yield f"no node has the accelerator type {kind}; the cluster has: {listed(there)}; {advice}"


def check_labels(nodes: list[Node], placement: Placement) -> Iterator[str]:
    for name, value in placement.labels.items():
        values = {node.labels[name] for node in nodes if name in node.labels}
        if not values:
            yield f"no node has a label {name}; start nodes with it (ray start --labels {name}={value}), or leave it out of --label"
        elif value not in values:
            yield f"no node has the label {name}={value}; nodes have {name}={listed(values)}"
    bought = {node.labels[MARKET_LABEL] for node in nodes if MARKET_LABEL in node.labels}
    if placement.markets and not set(placement.markets) & bought:
        yield (f"no node is labelled {' or '.join(placement.markets)} ({MARKET_LABEL}: {listed(bought)}); leave --market out, or start nodes with "
               f"--labels {MARKET_LABEL}={placement.markets[0]}")


def check_each(nodes: list[Node], request: Request) -> Iterator[str]:
    """Each amount against the largest node, by itself."""
    placement = request.placement
    who = worker_name(request.verb)
    asked = (("CPU", "CPUs", placement.num_cpus, "--num-cpus-per-task"), ("GPU", "GPUs", placement.num_gpus, "--num-gpus-per-task"))
    for resource, plural, value, flag in asked:
        most = max((node.amount(resource) for node in nodes), default=0)
        if value and not most:
            yield f"no node offers {plural}: start nodes with some (ray start --num-{plural.lower()} N), or ask for {flag} 0"
        elif value > most:
            yield f"{who} wants {number(value)} {plural} of one node, and the largest has {number(most)}: ask for {flag} {number(most)} or less"
    most = max((node.amount("memory") for node in nodes), default=0)
    if placement.memory_bytes > most:
        yield (f"{who} wants {placement.memory_bytes / 1e9:.1f} GB of memory of one node, and the largest offers {most / 1e9:.1f} GB: "
               "ask for a smaller --memory-per-task")
    custom = {name for node in nodes for name in node.resources if name not in OWN_RESOURCES and ":" not in name}
    for name, value in placement.resources.items():
        most = max((node.amount(name) for node in nodes), default=0)
        if not most:
            yield f"no node has the resource {name}; the cluster has: {listed(custom)}; start nodes with it (ray start --resources '{{\"{name}\": 1}}')"
        elif value > most:
            yield f"{who} wants {number(value)} of the resource {name}, and the node with the most has {number(most)}: ask for less of it"


def check_together(nodes: list[Node], request: Request) -> Iterator[str]:
    """All of it on one node, and room for all workers."""
    placement = request.placement
    found = candidates(nodes, placement)
    if not found:
        yield f"each thing that {worker_name(request.verb)} wants is there, but no single node has all of them: {described(placement)}; ask for less, or name other nodes"
        return
    room = room_in(nodes, placement)
    least = request.min_workers if request.verb in RUNS else request.num_workers
    plural = {"download": ("tasks", "--num-tasks"), "process": ("encoders", "--num-encoders"), "train": ("ranks", "--num-training-workers"), "tune": ("trials at a time", "--workers"), "serve": ("replicas", "--min-replicas")}
    plural |= {"online": plural["train"], "encoder": plural["process"], "transformer": ("actors of transformers", "--transformers-per-actor or --num-transformers for")}
    if request.verb in plural and least > room:
        name, flag = plural[request.verb]
        yield f"the cluster has room for {room} {name} of the {least} that are asked for ({described(placement)} each): ask for {flag} {room}, or add nodes"


def take_places(left: list[Node], placement: Placement, count: int) -> list[Node] | None:
    """A node for each of so many workers, first fit, whose resources it takes of `left`; None where there is no room."""
    taken = []
    for _ in range(count):
        found = (i for selector in placement.label_selectors() for i, node in enumerate(left) if room_on(node, placement) >= 1 and has_labels(node, selector))
        place = next(found, None)
        if place is None:
            return None
        taken.append(left[place])
        left[place] = with_amounts(left[place], placement.amounts(), -1)
    return taken


def places_beside(nodes: list[Node], request: Request) -> list[Node] | None:
    """Of `online`: a node for each encoder that leaves room for the ranks; of process for each actor of transformers beside the encoders. Who has
    fewer nodes to choose from chooses first. None: there is no room for both at once."""
    served = request.transformers or request.encoders
    left = list(nodes)
    both = [(request.placement, 1 if request.transformers else request.min_workers), (served.placement, served.num_workers)]
    places: list[Node] | None = None
    for placement, count in sorted(both, key=lambda one: len(candidates(nodes, one[0]))):
        taken = take_places(left, placement, count)
        if taken is None:
            return None
        places = taken if placement is served.placement else places
    return places


def check_both(nodes: list[Node], request: Request) -> Iterator[str]:
    """Room for both at once, as places_beside()."""
    served = request.transformers or request.encoders
    least, name, beside, flag = (1, "encoders", "actors of transformers", "--num-transformers") if request.transformers else (request.min_workers, "ranks", "encoders", "--num-encoders")
    if places_beside(nodes, request) is None:
        yield (f"the cluster has room for {least} {name} ({described(request.placement)} each) or for {served.num_workers} {beside} "
               f"({described(served.placement)} each), but not for both at once: ask for fewer {flag}, or add nodes")


def described(placement: Placement) -> str:
    parts = [f"{number(placement.num_cpus)} CPUs"]
    parts += [f"{number(placement.num_gpus)} GPUs"] if placement.num_gpus else []
    parts += [f"accelerator type {placement.accelerator_type}"] if placement.accelerator_type else []
    parts += [f"{placement.memory_bytes / 1e9:.1f} GB"] if placement.memory_bytes else []
    parts += [f"{number(value)} {name}" for name, value in placement.resources.items()]
    parts += [f"label {name}={value}" for name, value in placement.labels.items()]
    parts += [" or ".join(placement.markets)] if placement.markets else []
    return ", ".join(parts)


def check_resources(nodes: list[Node], request: Request) -> list[str]:
    """Without a probe: what Ray itself says of its nodes."""
    if not nodes:
        return ["the cluster has no node that is alive: start one (ray start --address ...)"]
    problems = [*check_types(nodes, request.placement), *check_labels(nodes, request.placement), *check_each(nodes, request)]
    return problems or list(check_together(nodes, request))


def idle_gpus(nodes: list[Node], request: Request, given: dict[str, list[str]]) -> str:
    """A warning: work that runs on a GPU where it has one asks for none, beside nodes with some; "": it does not."""
    if request.verb not in ON_ONE_GPU or request.placement.num_gpus or given.get("--device", ["auto"])[0] == "cpu":
        return ""
    beside = [node for node in candidates(nodes, request.placement) if node.amount("GPU")]
    if not beside:
        return ""
    device, kind, count = ("--device", "--accelerator-type", "--num-gpus-per-task") if request.verb != "encoder" else ("--encoder-device", "--encoder-accelerator-type", "--num-gpus-per-encoder")
    types = sorted({name for node in beside for name in node.accelerator_types})
    ask = f"{kind} {types[0]} (or {count} 1)" if types else f"{count} 1"
    return f"{worker_name(request.verb)} runs on the CPU, and nodes that may take it have GPUs: ask for {ask}, or say {device} cpu"


# -- what a probe found -----------------------------------------------------------------------------------------------


def check_programs(nodes: list[Node], of_command: dict[str, str]) -> Iterator[str]:
    """`of_command`: versions where the command runs."""
    for node in nodes:
        if not node.answers and node.problem:
            yield f"node {node.name} cannot be looked at: {node.problem}; look at it with `ray status` and in Ray's logs there, or take it out of the cluster"
        elif not node.answers:
            yield f"node {node.name} does not answer: a probe was not run there within its time; look at it with `ray status`, take it out of the cluster, or give a busy one longer (DARKROOM_RAY_PROBE_SECONDS=600)"
        elif node.problem:
            yield f"node {node.name} cannot run the program: {node.problem}"
    alive = [node for node in nodes if node.answers and not node.problem]
    for package in ("darkroom", "ray", "python", "torch", "pyarrow"):
        by_version = collections.defaultdict(list)
        for node in alive:
            if package in node.versions:
                by_version[node.versions[package]].append(node.name)
        if by_version and package in of_command:
            by_version[of_command[package]].append("this command")
        if len(by_version) > 1:
            groups = "; ".join(f"{version or 'not installed'}: {listed(names)}" for version, names in sorted(by_version.items()))
            yield f"nodes have different versions of {package} ({groups}): install the same wheel and packages on all, since other versions give other bytes or none"


def check_paths(nodes: list[Node], has_relative_paths: bool) -> Iterator[str]:
    several = len({node.machine for node in nodes if node.answers}) > 1
    for node in nodes:
        if node.answers and has_relative_paths and not node.has_folder:
            yield f"node {node.name} does not have the folder of this command, which relative paths begin at: name whole paths or URIs"
        for seen in node.paths if node.answers else ():
            if seen.problem:
                yield f"node {node.name} does not see {seen.path}: {seen.problem}"
            elif not seen.is_there:
                yield f"node {node.name} does not see {seen.path}: put it where all nodes see it (a shared file system, s3://, hf://)"
            elif not seen.has_nonce:
                yield f"node {node.name} has a {seen.path} of its own, which other nodes do not see: name a place that all share (a shared file system, s3://)"
            elif not seen.is_writable:
                yield f"node {node.name} may not write to {seen.path}: give its account the right to, or name another place"
    loopback = [node.name for node in nodes if node.address.startswith("127.")]
    if several and loopback:
        yield f"nodes on several machines, and these say that their address is this machine's own: {listed(loopback)}; start them with --node-ip-address ADDRESS"


def check_probes(nodes: list[Node], has_relative_paths: bool = False, of_command: dict[str, str] | None = None) -> list[str]:
    """`of_command`: as check_programs'."""
    return [*check_programs(nodes, of_command or {}), *check_paths(nodes, has_relative_paths)]
