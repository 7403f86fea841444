"""Flags of darkroom-ray: what is the cluster's is taken out, names of the reference scripts are translated, all else is the program's.

No flag of the program is read here: it checks them itself (program.read_arguments).
"""

import dataclasses
import json
import re
from collections.abc import Callable

from darkroom_ray.request import USUAL_SERVICE, Placement, Request, Service

VERBS = ("download", "process", "train", "online", "tune", "sample")
PLACED = (*VERBS, "serve")  # What Ray places: those that end, and the one that does not.


class Refused(Exception):
    """A command line or a cluster with which nothing is begun; the text says what to do."""


def whole_number(name: str, text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise Refused(f"{name} must be a whole number, got: {text}") from None
    if value < least:
        raise Refused(f"{name} must be at least {least}, got: {text}")
    return value


def amount(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise Refused(f"{name} must be a number, got: {text}") from None
    if not 0 <= value < float("inf"):
        raise Refused(f"{name} must be 0 or more, got: {text}")
    return value


def byte_count(name: str, text: str) -> int:
    """As the program reads sizes: 2GB, 512MiB, 1000000."""
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
    for ending, factor in sorted(units.items(), key=lambda unit: -len(unit[0])):
        if text.upper().endswith(ending):
            return int(amount(name, text[: -len(ending)]) * factor)
    return int(amount(name, text))


def pairs(name: str, text: str) -> dict[str, str]:
    """NAME=VALUE,NAME=VALUE, or a JSON object."""
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise Refused(f"{name} is no JSON object ({error}), got: {text}") from None
        return {str(key): str(value) for key, value in found.items()}
    found = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not key or not equals or not value:
            raise Refused(f"{name} must be NAME=VALUE,NAME=VALUE, got: {text}")
        found[key] = value
    return found


def custom_resources(name: str, text: str) -> dict[str, float]:
    found = {key: amount(f"{name} {key}", value) for key, value in pairs(name, text).items()}
    for key in found:
        if key in ("CPU", "GPU", "memory"):
            own = "--num-cpus-per-task, --num-gpus-per-task, --memory-per-task"
            raise Refused(f"{name} is for resources that the cluster has named itself; {key} has a flag of its own: {own}")
    return found


def markets(name: str, text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    if not set(found) <= {"spot", "on-demand"} or len(set(found)) < len(found):
        raise Refused(f"{name} must be spot, on-demand, or both in the order in which they are tried: spot,on-demand; got: {text}")
    return found


def accelerator(name: str, text: str) -> str:
    """Also by the name of Ray's constant: NVIDIA_TESLA_A10G."""
    if not text:
        raise Refused(f"{name} names no accelerator type")
    try:
        from ray.util import accelerators
    except ImportError:
        return text
    return getattr(accelerators, text, text)


def switch(name: str, text: str) -> bool:
    """As the program reads one."""
    if text not in ("", "true", "false"):
        raise Refused(f"{name} is a switch and takes no value, got: {text}")
    return text != "false"


def service_name(name: str, text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", text):
        raise Refused(f"{name} must be letters, digits, - and _, got: {text}")
    return text


@dataclasses.dataclass(frozen=True)
class ClusterFlag:
    name: str
    shown: str
    help: str
    verbs: tuple[str, ...] = PLACED
    read: Callable[[str, str], object] = lambda name, text: text


JOBS = ("download", "process")
RUNS = ("train", "online")
SEARCH = ("tune",)
SERVICE = ("serve",)

# Of the cluster. The program does not see them.
CLUSTER_FLAGS = (
    ClusterFlag("--address", "HOST:PORT", "of the Ray cluster; auto: one that runs on this machine (RAY_ADDRESS; else a Ray of its own that ends with the command)"),
    ClusterFlag("--cluster-config", "FILE.yaml", "of `ray up` (on its head ~/ray_bootstrap_config.yaml), or a manifest of KubeRay (RayCluster, RayJob): nodes that it may bring count as if they were there (those of the autoscaler that runs on the cluster's head)"),
    ClusterFlag("--num-cpus-per-task", "X", "CPUs that Ray reserves for a task, an encoder, a rank or a trial (1)", read=amount),
    ClusterFlag("--num-gpus-per-task", "X", "GPUs of the same (0; 1 where an accelerator type is named)", read=amount),
    ClusterFlag("--memory-per-task", "BYTES", "memory of the same (nothing reserved)", read=byte_count),
    ClusterFlag("--resources", "NAME=X,...", "custom resources of the same", read=custom_resources),
    ClusterFlag("--label", "NAME=VALUE,...", "labels that a node must have", read=pairs),
    ClusterFlag("--accelerator-type", "NAME", "as Ray calls it (A10G, A100) or its constant (NVIDIA_TESLA_A10G)", read=accelerator),
    ClusterFlag("--market", "spot|on-demand|spot,on-demand", "nodes by how they were bought; the first that there are", read=markets),
    ClusterFlag("--max-failures", "N", "failures an item (train: the run; tune: a trial) may have before the job ends (tune: the trial); -1: for ever (3)", VERBS, lambda n, t: whole_number(n, t, -1)),
    ClusterFlag("--program", "PATH", "the program on every node (DARKROOM_PROGRAM; else the one of the wheel, else the one in PATH)"),
    ClusterFlag("--workers", "N", "trials at a time (as many as the cluster has room for)", SEARCH, lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--num-tasks", "N", "tasks at a time (as many as the cluster has room for)", ("download",), lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--items-per-task", "N", "items a task is given (by their number)", JOBS, lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--num-encoders", "N", "encoder actors: each loads the models once (1)", ("process", "online"), lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--num-transformers", "N", "workers that decode, transform and tokenise, of all encoders together", ("process",), lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--num-transformers", "N", "slices that all encoders together work on at a time", ("online",), lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--num-cpus-per-transformer", "X", "CPUs reserved for each of them (1)", ("process", "online"), amount),
    ClusterFlag("--transformer-resources", "NAME=X,...", "custom resources of an actor of transformers; with one of these three they are apart from the encoders, on nodes of their own", ("process",), custom_resources),
    ClusterFlag("--transformer-label", "NAME=VALUE,...", "labels that their nodes must have", ("process",), pairs),
    ClusterFlag("--transformers-per-actor", "N", "transformers of one actor (4, or all)", ("process",), lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--num-cpus-per-encoder", "X", "CPUs that Ray reserves for an encoder (1)", ("online",), amount),
    ClusterFlag("--num-gpus-per-encoder", "X", "GPUs of the same (0; 1 where an accelerator type is named)", ("online",), amount),
    ClusterFlag("--encoder-accelerator-type", "NAME", "of the encoders' nodes, as --accelerator-type", ("online",), accelerator),
    ClusterFlag("--encoder-resources", "NAME=X,...", "custom resources of an encoder", ("online",), custom_resources),
    ClusterFlag("--encoder-label", "NAME=VALUE,...", "labels that an encoder's node must have", ("online",), pairs),
    ClusterFlag("--encoder-batch-size", "N", "rows in one call of an encoder's networks (by itself)", ("online",), lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--encoder-device", "NAME", "auto, cpu or cuda: where the encoders run (auto)", ("online",)),
    ClusterFlag("--num-training-workers", "N", "ranks (1)", RUNS, lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--min-training-workers", "N", "ranks with which a run still starts or goes on; it grows again when nodes come (1)", RUNS, lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--max-wait", "SECONDS", "a run without room for its fewest ranks waits so long, then ends (3600); ranks of online wait so long for an encoder, too, at least 600", RUNS, amount),
    ClusterFlag("--storage-path", "URI", "of Ray Train's own records (_ray in the run folder)", RUNS),
    ClusterFlag("--json-summary", "PATH", "write the closing summary as JSON, on this machine", VERBS),
    ClusterFlag("--metrics-folder", "FOLDER", "of this machine: every program serves its numbers at a free port of its node, and their addresses lie there, for `darkroom top FOLDER` and, as targets.json, for Prometheus", (*JOBS, *RUNS, *SEARCH, *SERVICE)),
    ClusterFlag("--trace-file", "FILE", "spans of each program, in a file of its own beside FILE, on its node or where all share it", JOBS),
    ClusterFlag("--host", "ADDRESS", "where Ray's proxies listen; another address than loopback needs --keys (127.0.0.1)", SERVICE),
    ClusterFlag("--port", "N", "their port (8080)", SERVICE, lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--min-replicas", "N", "servers that are always there (1)", SERVICE, lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--max-replicas", "N", "and at most; with more than one, jobs and A1111's progress are refused (as many as --min-replicas)", SERVICE, lambda n, t: whole_number(n, t, 1)),
    ClusterFlag("--name", "NAME", "of the service: paths begin with /NAME; without it there is one to a cluster, whose paths are the program's", SERVICE, service_name),
    ClusterFlag("--replace", "", "take the place of an application of this name whose command is gone", SERVICE),
    ClusterFlag("--target-cost", "C", "open width x height x (steps + 2) for which a replica is meant (8 pictures of the model's size, 50 steps)", SERVICE, amount),
)

# Names of the reference scripts (docs/cluster.md) for a flag of ours.
RENAMED = {
    "download": {
        "--num-rows-per-output-file": "--rows-per-file",
        "--num-downloaders": "--num-tasks",
    },
    "process": {
        "--num-rows-per-output-file": "--rows-per-file",
        "--encoder-batch-size": "--batch-size",
        "--encoder-accelerator-type": "--accelerator-type",
        "--num-gpus-per-encoder": "--num-gpus-per-task",
        "--num-cpus-per-encoder": "--num-cpus-per-task",
        "--num-gpu": "--num-encoders",
    },
    "train": {
        "--trainer-accelerator-type": "--accelerator-type",
        "--num-gpus-per-worker": "--num-gpus-per-task",
        "--train-data-uri": "--data",
        "--validation-data-uri": "--validation",
        "--batch-size-per-worker": "--micro-batch",
        "--resume-from-checkpoint": "--init-from",
        "--restore-from-uri": "--resume",
    },
    "tune": {
        "--trainer-accelerator-type": "--accelerator-type",
        "--num-gpus-per-worker": "--num-gpus-per-task",
        "--train-data-uri": "--data",
        "--validation-data-uri": "--validation",
    },
    "sample": {},
    "serve": {},
}
RENAMED["online"] = {name: ours for name, ours in RENAMED["train"].items() if name != "--train-data-uri"}
RENAMED["online"] |= {"--train-data-uri": "--raw-data", "--raw-data-uri": "--raw-data"}

# For a field of the recipe.
RECIPE_FIELDS = {
    "--seed": "runtime.seed",
    "--lr": "optimizer.lr",
    "--weight-decay": "optimizer.weight_decay",
    "--num-warmup-steps": "schedule.warmup_steps",
    "--checkpoint-every-n-steps": "checkpoint.every_steps",
    "--val-check-interval": "validation.every_steps",
    "--prefetch-batches": "data.batches_ahead",
    "--resolution": "data.resolution",
    "--global-batch-size": "batch.global",
    "--num-inference-steps": "samples.steps",
}

# For a positional: by its place.
POSITIONALS = {
    "download": {"--output-uri": 0},
    "process": {"--input-uri": 0, "--raw-data-uri": 0, "--output-path": 1, "--output-uri": 1},
    "train": {},
    "online": {},
    "tune": {},
    "sample": {},
    "serve": {},
}

# What is done otherwise here, and how.
REFUSALS = {
    "--shard": "the cluster hands the items out itself: leave --shard out",
    "--items": "the cluster hands the items out itself: leave --items out",
    "--retry-failed": "rows that failed are fetched again on one machine only: `darkroom download --retry-failed`",
    "--launcher": "the trials are started by Ray: leave --launcher out",
    "--nproc": "the ranks are Ray's: ask for them with --num-training-workers N",
    "--ranks": "the ranks are Ray's: ask for them with --num-training-workers N",
    "--max-restarts": "restarts are Ray's: say how often with --max-failures N",
    "--json-summary": "each server would write one, on its own node: leave --json-summary out, and ask for --metrics-folder FOLDER",
    "--metrics-port": "programs of a node take free ports: ask for --metrics-folder FOLDER, where their addresses lie",
    "--fsdp": "optimizer state is sharded over the ranks always (ZeRO-1): leave --fsdp out",
    "--sharding-policy": "optimizer state is sharded over the ranks always (ZeRO-1): leave --sharding-policy out",
    "--use-xformers": "attention needs no package: leave --use-xformers out",
    "--sdxl": "Stable Diffusion XL is not built",
    "--model-name": "name a model folder: --model DIR (darkroom models fetch hf://ORG/NAME DIR)",
    "--init-from-pretrained": "name what to begin with: --init-from DIR, or model.start in the recipe",
    "--use-small-unet": "the U-Net is that of --model DIR: models/tiny, or one of `darkroom models init --preset`",
    "--accumulate-grad-batches": "name the whole batch, --global-batch N: micro-batches are added up until it is full, whatever the number of ranks",
    "--visualize-output": "name the picture: --visualize 2 look.png",
    "--online-preprocessing": "training from raw images is a verb of its own: `darkroom-ray online`",
    "--raw-data": "training from raw images is a verb of its own: `darkroom-ray online`",
    "--data": "online training reads pictures: name them with --raw-data URI, or run `darkroom-ray train --data`",
    "--encoders": "the encoders are Ray's: ask for them with --num-encoders N",
    "--limit": "training takes the whole dataset: leave --limit out",
    "--num-data-loading-workers": "ranks read ahead by themselves, and of raw images encoders do it, --num-encoders N: leave --num-data-loading-workers out",
    "--experiment-name": "name the run folder: --output URI",
}
REFUSED_IN = {
    "--raw-data": ("train",),
    "--data": ("online",),
    "--encoders": RUNS,
    "--json-summary": SERVICE,
    "--launcher": SEARCH,
    "--limit": ("online",),
    "--max-restarts": RUNS,
    "--num-data-loading-workers": RUNS,
    "--shard": JOBS,
    "--items": JOBS,
    "--retry-failed": ("download",),
    "--metrics-port": (*JOBS, *RUNS, *SERVICE),
}
ACCEPTED_WITHOUT_EFFECT = ("--no-visualize-output", "--no-use-xformers", "--no-fsdp")
# The driver's alone: a program is found by what it says, and is heard by the driver, which is quiet in its place.
UNHEARD = ("--quiet",)


def is_refused(verb: str, name: str) -> bool:
    """Of a name of REFUSALS."""
    return verb in REFUSED_IN.get(name, VERBS)


def flags_of(verb: str) -> dict[str, ClusterFlag]:
    return {flag.name: flag for flag in CLUSTER_FLAGS if verb in flag.verbs}


class ArgumentReader:
    """Goes once through the words behind a verb."""

    def __init__(self, verb: str, words: list[str]) -> None:
        self.verb = verb
        self.words = list(words)
        self.cluster: dict[str, object] = {}
        self.placed: dict[int, str] = {}
        self.program: list[str] = []

    def read(self) -> None:
        while self.words:
            word = self.words.pop(0)
            if word == "--":  # Behind it there are positionals alone.
                self.program += [word, *self.words]
                break
            if not word.startswith("--"):
                self.program.append(word)
                continue
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")  # As some of the reference scripts write them.
            self.refuse(name)
            if name in ACCEPTED_WITHOUT_EFFECT:
                continue
            if name in UNHEARD:
                self.cluster[name] = switch(name, value)
                continue
            self.take(RENAMED[self.verb].get(name, name), value if equals else None)
        for place in sorted(self.placed):
            if place == 0 or 0 in self.placed:
                self.program.insert(place, self.placed[place])
            else:  # The first one is among the words, wherever.
                self.program.append(self.placed[place])

    def refuse(self, name: str) -> None:
        if name in REFUSALS and is_refused(self.verb, name):
            raise Refused(REFUSALS[name])

    def take(self, name: str, value: str | None) -> None:
        flags = flags_of(self.verb)
        if name in flags and not flags[name].shown:
            self.cluster[name] = switch(name, value or "")
        elif name in flags:
            self.cluster[name] = flags[name].read(name, self.value_of(name, value))
        elif name in POSITIONALS[self.verb]:
            self.placed[POSITIONALS[self.verb][name]] = self.value_of(name, value)
        elif self.verb in RUNS and name in RECIPE_FIELDS:
            self.program += ["--set", f"{RECIPE_FIELDS[name]}={self.value_of(name, value)}"]
        else:
            self.program.append(name if value is None else f"{name}={value}")

    def value_of(self, name: str, value: str | None) -> str:
        if value is None and not self.words:
            raise Refused(f"{name} needs a value")
        return self.words.pop(0) if value is None else value


def hub_address(words: list[str]) -> list[str]:
    """The guide's download script: OUTPUT PATH NAME SPLIT of a dataset of the hub."""
    places = [i for i, word in enumerate(words) if not word.startswith("--")]
    if len(places) < 4 or places[:4] != [0, 1, 2, 3] or "--metadata" in words:
        return words
    output, path, name, split = words[:4]
    return [output, "--metadata", f"hf://datasets/{path}?config={name}&split={split}", *words[4:]]


APART = ("--transformer-resources", "--transformer-label", "--transformers-per-actor")
TRANSFORMERS_OF_AN_ACTOR = 4  # Each actor lists the dataset once.


def transformers_of(cluster: dict[str, object], program: str, folder: str) -> Request | None:
    """Where transformers are apart from the encoders: the actors that hold them."""
    if not any(name in cluster for name in APART):
        return None
    total = cluster.get("--num-transformers")
    if total is None:
        raise Refused(f"{next(name for name in APART if name in cluster)} counts with --num-transformers N only")
    each = min(int(cluster.get("--transformers-per-actor", TRANSFORMERS_OF_AN_ACTOR)), int(total))
    placement = Placement(
        num_cpus=each * float(cluster.get("--num-cpus-per-transformer", 1.0)),
        resources=cluster.get("--transformer-resources", {}),
        labels=cluster.get("--transformer-label", {}),
    )
    return Request("transformer", ("--num-workers", str(each)), placement, num_workers=-(-int(total) // each), program=program, folder=folder,
                   trace_file=str(cluster.get("--trace-file", "")))


def process_shape(cluster: dict[str, object], program: list[str]) -> tuple[float, list[str]]:
    """CPUs an encoder actor takes, and its program's own workers: those of all encoders are shared out."""
    cpus = cluster.get("--num-cpus-per-task")
    total = cluster.get("--num-transformers")
    if total is None:
        if "--num-cpus-per-transformer" in cluster:
            raise Refused("--num-cpus-per-transformer counts with --num-transformers N only")
        return float(1.0 if cpus is None else cpus), program
    each = -(-int(total) // int(cluster.get("--num-encoders", 1)))
    per_transformer = float(cluster.get("--num-cpus-per-transformer", 1.0))
    return float(each * per_transformer if cpus is None else cpus), ["--num-transformers", str(each), *program]


def placement_of(cluster: dict[str, object], num_cpus: float) -> Placement:
    has_type = bool(cluster.get("--accelerator-type"))
    return Placement(
        num_cpus=num_cpus,
        num_gpus=float(cluster.get("--num-gpus-per-task", 1.0 if has_type else 0.0)),
        memory_bytes=int(cluster.get("--memory-per-task", 0)),
        resources=cluster.get("--resources", {}),
        labels=cluster.get("--label", {}),
        accelerator_type=str(cluster.get("--accelerator-type", "")),
        markets=cluster.get("--market", ()),
    )


def service_of(cluster: dict[str, object]) -> Service:
    least = int(cluster.get("--min-replicas", 1))
    most = int(cluster.get("--max-replicas", least))
    if most < least:
        raise Refused(f"--max-replicas {most} is less than --min-replicas {least}")
    return Service(
        host=str(cluster.get("--host", "127.0.0.1")),
        port=int(cluster.get("--port", 8080)),
        max_replicas=most,
        target_cost=float(cluster.get("--target-cost", 0.0)),
        name=str(cluster.get("--name", USUAL_SERVICE)),
        is_replacing=bool(cluster.get("--replace", False)),
    )


def encoders_of(cluster: dict[str, object], program: str, folder: str) -> Request:
    """The encoder actors of `online`. What they encode, the trainer's words say: online.encoder_words."""
    of_encoder = {
        "--num-gpus-per-task": "--num-gpus-per-encoder",
        "--accelerator-type": "--encoder-accelerator-type",
        "--resources": "--encoder-resources",
        "--label": "--encoder-label",
        "--num-cpus-per-task": "--num-cpus-per-encoder",
        "--num-transformers": "--num-transformers",
        "--num-cpus-per-transformer": "--num-cpus-per-transformer",
        "--num-encoders": "--num-encoders",
    }
    own = {name: cluster[theirs] for name, theirs in of_encoder.items() if theirs in cluster}
    cpus, words = process_shape(own, [])
    words = ["--num-encoders" if word == "--num-transformers" else word for word in words]  # Slices that one works on at a time.
    for name, theirs in (("--batch-size", "--encoder-batch-size"), ("--device", "--encoder-device")):
        words += [name, str(cluster[theirs])] if theirs in cluster else []
    return Request("encoder", tuple(words), placement_of(own, cpus), num_workers=int(cluster.get("--num-encoders", 1)), program=program, folder=folder)


def read_request(verb: str, words: list[str], folder: str, default_program: str = "") -> Request:
    """`default_program`: where no flag names one. Errors: Refused."""
    reader = ArgumentReader(verb, hub_address(words) if verb == "download" else words)
    reader.read()
    cluster, program = reader.cluster, reader.program
    cpus = float(cluster.get("--num-cpus-per-task", 1.0))
    named_program = str(cluster.get("--program", default_program))
    transformers = transformers_of(cluster, named_program, folder) if verb == "process" else None
    if verb == "process":
        beside = {name: value for name, value in cluster.items() if not transformers or name not in ("--num-transformers", "--num-cpus-per-transformer")}
        cpus, program = process_shape(beside, program)
    placement = placement_of(cluster, cpus)
    workers = {"download": "--num-tasks", "process": "--num-encoders", "train": "--num-training-workers", "online": "--num-training-workers", "tune": "--workers", "serve": "--min-replicas"}.get(verb, "")
    num_workers = int(cluster.get(workers, 0 if verb in ("download", "tune") else 1))
    min_workers = int(cluster.get("--min-training-workers", 1))
    if min_workers > num_workers and verb in RUNS:
        raise Refused(f"--min-training-workers {min_workers} is more than --num-training-workers {num_workers}")
    return Request(
        verb=verb,
        arguments=tuple(program),
        placement=placement,
        num_workers=num_workers,
        min_workers=min_workers,
        max_wait=float(cluster.get("--max-wait", 3600.0)),
        items_per_task=int(cluster.get("--items-per-task", 0)),
        max_failures=int(cluster.get("--max-failures", 3)),
        address=str(cluster.get("--address", "")),
        cluster_config=str(cluster.get("--cluster-config", "")),
        program=named_program,
        storage=str(cluster.get("--storage-path", "")),
        summary_path=str(cluster.get("--json-summary", "")),
        metrics_folder=str(cluster.get("--metrics-folder", "")),
        trace_file=str(cluster.get("--trace-file", "")),
        is_quiet=bool(cluster.get("--quiet", False)),
        folder=folder,
        service=service_of(cluster),
        encoders=encoders_of(cluster, named_program, folder) if verb == "online" else None,
        transformers=transformers,
    )


def with_settings(request: Request, given: dict[str, list[str]]) -> Request:
    """A file of settings says where the summary goes; no other flag of the cluster is one for it, since each program would read that by itself.
    `given`: program.read_arguments(). Errors: Refused."""
    told_here = request.named_flags()  # What both have, as the workers of process, the driver hands on.
    for name in given:
        if name in flags_of(request.verb) and name != "--json-summary" and name not in told_here:
            raise Refused(f"{name} in --config would be read by each program by itself, and is the cluster's here: give it on the command line")
    return dataclasses.replace(request, summary_path=request.summary_path or given.get("--json-summary", [""])[-1])


def help_text(verb: str) -> str:
    """The flags of the cluster; the verb's own come from the program."""
    lines = [f"usage: darkroom-ray {verb} [flags of the cluster] [positionals and flags of `darkroom {'train' if verb == 'online' else verb}`]", "", "Of the cluster:"]
    lines += [f"  {flag.name} {flag.shown}".rstrip() + f"\n      {flag.help}" for flag in flags_of(verb).values()]
    places = {name: f"the {'first' if place == 0 else 'second'} positional" for name, place in POSITIONALS[verb].items()}
    renamed = sorted({**RENAMED[verb], **(RECIPE_FIELDS if verb in RUNS else {}), **places}.items())
    if renamed:
        lines += ["", "Names of the reference scripts:", *(f"  {name}: {ours}" for name, ours in renamed)]
    return "\n".join(lines)
