"""The nodes of a cluster as Ray describes them: those that are there, what is free of them, and those that its autoscaler may bring."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator

from darkroom_ray import kuberay
from darkroom_ray.flags import Refused
from darkroom_ray.preflight import Node
from darkroom_ray.request import MOST_NODES, NodeType, Request

NODE_TYPE_LABEL = "ray.io/node-group"  # Ray gives it to nodes that an autoscaler brought.
HEAD_RESOURCE = "node:__internal_head__"  # Ray gives it to the head.
# Ray's process on the head that brings nodes, in both of its kinds.
AUTOSCALERS = ("/autoscaler/_private/monitor.py", "/autoscaler/v2/monitor.py")
HEAD_SECONDS = 4.0  # That the head has to tell what its autoscaler may bring: a refusal comes within ten seconds.


def nodes_of(ray) -> list[Node]:
    """Those that are alive."""

    def described(node: dict) -> Node:
        name = f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"
        labels = dict(node.get("Labels") or {})
        return Node(name=name, address=node["NodeManagerAddress"], resources=dict(node["Resources"]), labels=labels, node_id=node["NodeID"])

    return [described(node) for node in ray.nodes() if node["Alive"]]


def free_nodes(ray) -> list[Node]:
    """Those that are alive and stay, with what nobody holds of them at the moment; Ray's word of it lags behind by moments."""
    free = ray._private.state.available_resources_per_node()
    return [dataclasses.replace(node, resources=free.get(node.node_id, {})) for node in staying_nodes(ray)]


def staying_nodes(ray) -> list[Node]:
    """Those that are alive and not about to go: an autoscaler takes idle ones away at any time."""
    draining = ray._private.state.state.get_draining_nodes()
    return [node for node in nodes_of(ray) if node.node_id not in draining]


# -- nodes that may come ----------------------------------------------------------------------------------------------


def resources_of(path: str, name: str, resources: object) -> dict[str, float]:
    """Errors: Refused."""
    if not isinstance(resources, dict) or not all(isinstance(amount, (int, float)) for amount in resources.values()):
        raise Refused(f"{path}: available_node_types {name}: resources must be names and numbers, got: {resources}")
    return {str(key): float(amount) for key, amount in resources.items()}


def labels_of(path: str, name: str, labels: object) -> dict[str, str]:
    """Errors: Refused."""
    if not isinstance(labels, dict):
        raise Refused(f"{path}: available_node_types {name}: labels must be names and values, got: {labels}")
    return {str(key): str(value) for key, value in labels.items()}


def count_of(path: str, name: str, most: object) -> int:
    """Errors: Refused."""
    if not isinstance(most, int) or most < 0:
        raise Refused(f"{path}: available_node_types {name}: max_workers must be a whole number, got: {most}")
    return most


def types_in(path: str, document: object) -> Iterator[NodeType]:
    """Of a configuration of Ray's cluster launcher (`ray up`), without the head's. Errors: Refused, naming file, type and value."""
    types = document.get("available_node_types") if isinstance(document, dict) else None
    if not isinstance(types, dict) or not types:
        raise Refused(f"{path} has no available_node_types: name the file of `ray up` (on its head ~/ray_bootstrap_config.yaml), or a manifest of KubeRay "
                      f"(kind {' or '.join(kuberay.KINDS)})")
    for name, about in types.items():
        about = about if isinstance(about, dict) else {}
        most = count_of(path, name, about.get("max_workers", document.get("max_workers", 0)))  # As the launcher fills it in.
        of_all = count_of(path, name, document.get("max_workers", most))
        labels = labels_of(path, name, about.get("labels") or {})
        resources = resources_of(path, name, about.get("resources") or {})
        if name != document.get("head_node_type"):
            yield NodeType(str(name), min(most, of_all), resources, labels)


def nodes_that_may_come(types: tuple[NodeType, ...], there: list[Node]) -> Iterator[Node]:
    """Of each type as many as it may have, less those of it that are there."""
    for one in types:
        come = sum(node.labels.get(NODE_TYPE_LABEL) == one.name for node in there)
        for number in range(one.most - come):
            yield Node(name=f"{one.name} {number + 1}, which has not come yet", resources=dict(one.resources), labels={**one.labels, NODE_TYPE_LABEL: one.name})


def with_coming(request: Request, there: list[Node]) -> list[Node]:
    """The nodes, and behind them those that may come."""
    return [*there, *nodes_that_may_come(request.node_types, there)]


# -- who knows of them ------------------------------------------------------------------------------------------------


def types_of_file(path: str) -> tuple[NodeType, ...]:
    """Of `ray up`, or a manifest of KubeRay, beside which there may be other documents. Errors: Refused."""
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            documents = list(yaml.safe_load_all(file))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Refused(f"--cluster-config {path} cannot be read: {' '.join(str(error).split())}") from None
    manifests = [document for document in documents if kuberay.is_manifest(document)]
    if len(manifests) > 1:
        raise Refused(f"{path} has several clusters of KubeRay: name a file with one")
    return tuple(kuberay.types_in(path, manifests[0]) if manifests else types_in(path, documents[0] if len(documents) == 1 else None))


def autoscaler_file(words: list[str], port: str) -> str:
    """The configuration that a process was started with; "": it is not the autoscaler of the cluster whose head listens at this port, or has none
    and brings nothing."""
    given = dict(word.removeprefix("--").split("=", 1) for word in words if word.startswith("--") and "=" in word)
    is_it = any(word.endswith(AUTOSCALERS) for word in words) and given.get("gcs-address", "").rpartition(":")[2] == port
    return given.get("autoscaling-config", "") if is_it else ""


def types_on_head(port: str) -> tuple[NodeType, ...]:
    """Runs on the head; none where no autoscaler is seen (that of KubeRay is in a container of its own)."""
    for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError, Refused):  # It has ended; a file that the autoscaler itself reads in another way.
            path = autoscaler_file(process.read_bytes().decode(errors="replace").split("\0"), port)
            if path:
                return types_of_file(os.path.expanduser(path))
    return ()


_asked: dict[tuple[str, str], object] = {}  # By connection (cluster and Ray's job) what its head is to answer: it is asked once.


def types_of_head(ray) -> tuple[NodeType, ...] | None:
    """By the process on the head that brings nodes, which tells Ray's clients nothing; None: the head has not said it yet."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context()
    head = next((node["NodeID"] for node in ray.nodes() if node["Alive"] and HEAD_RESOURCE in node["Resources"]), "")
    port = here.gcs_address.rpartition(":")[2]
    if not head or head == here.get_node_id():
        return types_on_head(port) if head else ()
    connection = (here.gcs_address, here.get_job_id())
    if connection not in _asked:
        strategy = NodeAffinitySchedulingStrategy(head, soft=False)
        _asked[connection] = ray.remote(types_on_head).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy).remote(port)
    try:
        return ray.get(_asked[connection], timeout=HEAD_SECONDS)
    except ray.exceptions.GetTimeoutError:  # It may have said it when it is looked at again.
        return None
    except ray.exceptions.RayError:  # Its worker was lost, say.
        del _asked[connection]
        return None


def types_told(ray) -> tuple[NodeType, ...]:
    """What an autoscaler has told Ray's own store, as Ray's libraries read it: those of some platforms do, Ray's own does not."""
    config = ray._private.state.state.get_cluster_config()
    groups = config.node_group_configs if config else ()
    return tuple(NodeType(group.name, group.max_count if group.max_count >= 0 else MOST_NODES, dict(group.resources), {}) for group in groups)


def with_node_types(ray, request: Request) -> Request:
    """The request, and what is asked beside it, with the nodes that may come: by --cluster-config, else as the cluster knows. Errors: Refused."""
    if request.cluster_config:
        types = types_of_file(os.path.join(request.folder, os.path.expanduser(request.cluster_config)))
    else:
        types = types_told(ray) or types_of_head(ray)
    known = {"node_types": types or (), "is_head_silent": types is None}
    beside = {part: dataclasses.replace(served, **known) for part in ("encoders", "transformers") if (served := getattr(request, part))}
    return dataclasses.replace(request, **known, **beside)
