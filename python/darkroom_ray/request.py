"""What a command line asks of the cluster. Pure data: it travels to tasks and actors."""

import dataclasses
import itertools
import re
import urllib.parse

# Ray's own label of how a machine was bought; its values are "spot" and "on-demand".
MARKET_LABEL = "ray.io/market-type"

MOST_NODES = 1000  # Of a type that has no bound.
USUAL_SERVICE = "darkroom"  # The name of a service that was given none.


# Addresses in a text, by the rules of src/core/shown_uri.cpp: where one begins, and which letters end it.
ENDS = "\\0- \"'`<>|"
ADDRESS = re.compile(rf"(?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]*://[^{ENDS}]*")
WEB = ("https", "http")


def has_port(authority: str) -> bool:
    """Only the web's addresses have ports."""
    is_number = re.fullmatch("[0-9]{1,5}", authority.rpartition(":")[2]) is not None
    return authority.startswith("[") or (is_number and authority.count(":") == 1)


def without_user(place: str, is_web: bool) -> str:
    """Of what stands behind :// and before the settings: from the host on."""
    authority = place.partition("/")[0]
    at = authority.rfind("@")
    if at < 0 and ":" in authority and not (is_web and has_port(authority)):
        at = place.rfind("@")  # A password with a slash in it: "user:pa/ss@host".
    return place[at + 1 :]


def find_query(place: str, is_web: bool) -> int:
    """Where the settings or the query begin, -1 for none. Elsewhere than on the web # is a letter of a name, and so is a ? without NAME= behind it."""
    found = re.search("[?#]" if is_web else "[?][A-Za-z0-9_.-]+=", place)
    return found.start() if found else place.rfind("?")


def is_harmless_query(scheme: str, query: str) -> bool:
    if scheme == "hf":
        *fields, last = query.split("&")
        known = ("config=", "split=")
        return all(field.startswith(known) for field in fields) and (last.startswith(known) or "=" not in last)
    return scheme not in WEB and not re.search("[=&]", query)


def shown_address(address: str) -> str:
    """As the program's shown_uri()."""
    scheme, _, place = address.partition("://")
    is_web = scheme.lower() in WEB
    mark = find_query(place, is_web)
    place, query = (place[:mark], place[mark:]) if mark >= 0 else (place, "")
    stays = not query or is_harmless_query(scheme.lower(), query[1:])
    return f"{scheme}://{without_user(place, is_web)}{query if stays else '?...'}"


def without_secrets(text: str) -> str:
    """A word of a command line, or a message, as it may be written down: of each address what names a place and nothing that opens it."""
    found = ADDRESS.search(text)
    if found and not re.search(f"[{ENDS}]", text[: found.start()]):  # The word is an address, perhaps behind NAME=: spaces and quotes are of its password.
        text = text[: found.start()] + shown_address(text[found.start() :])
    return ADDRESS.sub(lambda one: shown_address(one[0]), text)


def shown(value):
    """Of a field of a request."""
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    return without_secrets(value) if isinstance(value, str) else value


def path_on_disk(place: str) -> str:
    """Of a place of a command line: its path, from file:// too; "" where it is on a store."""
    if place.startswith("file://"):
        return urllib.parse.unquote(place.removeprefix("file://"))
    return "" if "://" in place else place


@dataclasses.dataclass(frozen=True)
class Placement:
    """What one task, actor or rank takes of a node, and which nodes may hold it."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    memory_bytes: int = 0  # 0: nothing is reserved.
    resources: dict[str, float] = dataclasses.field(default_factory=dict)
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    accelerator_type: str = ""
    markets: tuple[str, ...] = ()  # In the order in which they are tried.

    def amounts(self) -> dict[str, float]:
        """What one takes of a node's resources, by Ray's names."""
        return {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": self.memory_bytes, **self.resources}

    def options(self) -> dict:
        """As options of a Ray task or actor."""
        options: dict = {"num_cpus": self.num_cpus}
        if self.num_gpus:
            options["num_gpus"] = self.num_gpus
        if self.memory_bytes:
            options["memory"] = self.memory_bytes
        if self.resources:
            options["resources"] = dict(self.resources)
        if self.accelerator_type:
            options["accelerator_type"] = self.accelerator_type
        selectors = self.label_selectors()
        if selectors[0]:
            options["label_selector"] = selectors[0]
        if len(selectors) > 1:
            options["fallback_strategy"] = [{"label_selector": selector} for selector in selectors[1:]]
        return options

    def label_selectors(self) -> list[dict[str, str]]:
        """The nodes that are asked for, those tried first in front."""
        return [{**self.labels, MARKET_LABEL: market} for market in self.markets] or [dict(self.labels)]

    def group_selector(self) -> dict[str, str]:
        """Of a placement group, which tries nothing first: nodes of any of the markets. Ray's in(...) takes no spaces."""
        market = {MARKET_LABEL: f"in({','.join(self.markets)})"} if len(self.markets) > 1 else {}
        return {**self.label_selectors()[0], **market}


@dataclasses.dataclass(frozen=True)
class NodeType:
    """Nodes of one kind that the cluster's autoscaler may bring."""

    name: str
    most: int  # That there may be at a time.
    resources: dict[str, float]
    labels: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Service:
    """What `serve` is asked for besides: the least number of replicas is Request.num_workers."""

    host: str = "127.0.0.1"
    port: int = 8080
    max_replicas: int = 1
    target_cost: float = 0.0  # Open width x height x (steps + 2) of a replica, above which another is started; 0: by the model.
    name: str = USUAL_SERVICE
    is_replacing: bool = False  # Takes the place of an application of its name that nobody's command holds.

    @property
    def route_prefix(self) -> str:
        """What its paths begin with: services of one cluster share its proxies."""
        return "/" if self.name == USUAL_SERVICE else f"/{self.name}"


@dataclasses.dataclass(frozen=True)
class Request:
    """One command line: what the program is called with, and what the cluster gives it."""

    verb: str  # Of darkroom-ray; `online` is the program's train, and `encoder` its part of that.
    arguments: tuple[str, ...]  # Of the program, behind the verb: as they were given, reference names translated.
    placement: Placement = Placement()
    num_workers: int = 0  # Tasks, encoder actors or ranks at a time; 0: by what the cluster has.
    min_workers: int = 1  # Ranks with which training still goes on.
    max_wait: float = 3600.0  # Seconds that a run waits for room for so many.
    items_per_task: int = 0  # 0: by the number of items.
    max_failures: int = 3  # -1: for ever.
    address: str = ""  # Of the cluster; "": RAY_ADDRESS, else a Ray of this machine that ends with the command.
    cluster_config: str = ""  # Of `ray up`, or KubeRay's manifest: its types of nodes may come; "": as the cluster itself knows.
    node_types: tuple[NodeType, ...] = ()  # That may come: nodes.with_node_types().
    is_head_silent: bool = False  # Whether any may come is not known: the head, which was asked, has not answered yet.
    program: str = ""  # Path of the program on every node; "": each node's own.
    storage: str = ""  # Of Ray Train's own records.
    summary_path: str = ""
    metrics_folder: str = ""  # Of the driver's machine: where the addresses of its programs lie; "": they serve no numbers.
    metrics_book: str = ""  # Name of the actor to which programs tell them.
    trace_file: str = ""  # From which each program's own gets its name.
    is_quiet: bool = False  # The driver says warnings and errors alone.
    folder: str = ""  # The working folder that relative paths are meant from.
    service: Service = Service()
    encoders: "Request | None" = None  # Of `online`: what its encoder actors are called with and given.
    transformers: "Request | None" = None  # Of `process`, where they are on nodes of their own: the same of its transformers.

    def __repr__(self) -> str:
        """As it may be written down, which Ray Train does with RAY_TRAIN_ENABLE_STATE_TRACKING=1, for one."""
        return f"Request({', '.join(f'{field.name}={shown(getattr(self, field.name))!r}' for field in dataclasses.fields(self))})"

    def named_flags(self) -> set[str]:
        """Of the program's on the command line."""
        words = itertools.takewhile(lambda word: word != "--", self.arguments)
        return {word.partition("=")[0] for word in words if word.startswith("--")}

    def command(self, *more: str) -> list[str]:
        """The program's command line, without the program. `more` goes first: there may be words behind `--`."""
        return ["train" if self.verb == "online" else self.verb, *more, *self.arguments]
