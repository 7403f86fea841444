"""The nodes that a cluster of KubeRay may have, by its manifest: a kind for each group of workers, as its operator starts them and Ray's autoscaler counts them."""

import json
import math
import re
from collections.abc import Iterator
from fractions import Fraction

from darkroom_ray.flags import Refused
from darkroom_ray.request import MOST_NODES, NodeType

KINDS = ("RayCluster", "RayJob")
# Of Kubernetes: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
QUANTITY = re.compile(r"((?:\d{1,30}\.?\d{0,30}|\.\d{1,30})(?:[eE][+-]?\d{1,2})?)([numkMGTPE]|[KMGTPE]i|)")
UNITS = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": 1}
UNITS |= {letter: 1000**power for power, letter in enumerate("kMGTPE", 1)} | {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
# Of what Ray counts: the parameter of `ray start`, and the name of a container's resource.
COUNTED = (("CPU", "num-cpus", "cpu"), ("GPU", "num-gpus", ".*gpu"), ("memory", "memory", "memory"))


def mapping(what: str, value: object) -> dict:
    """Errors: Refused."""
    if not isinstance(value, dict | None):
        raise Refused(f"{what} must be names and values, got: {value}")
    return value or {}


def amount(what: str, quantity: object) -> float:
    """Rounded up, as the operator does. Errors: Refused."""
    found = None if isinstance(quantity, bool) else QUANTITY.fullmatch(str(quantity))
    if found is None:
        raise Refused(f"{what} must be an amount of Kubernetes, such as 8, 500m or 30Gi, got: {quantity}")
    return float(math.ceil(Fraction(found[1]) * UNITS[found[2]]))


def count(where: str, group: dict, name: str, default: int) -> int:
    """Errors: Refused."""
    value = default if group.get(name) is None else group[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused(f"{where}: {name} must be a whole number, got: {value}")
    return value


def most_of_group(where: str, group: dict, is_autoscaled: bool) -> int:
    """Without the autoscaler a group has the replicas that its manifest names, within its bounds. Errors: Refused."""
    least, most = count(where, group, "minReplicas", 0), count(where, group, "maxReplicas", MOST_NODES)
    replicas = min(max(count(where, group, "replicas", least), least), most)
    hosts = count(where, group, "numOfHosts", 1)
    return 0 if group.get("suspend") is True else min((most if is_autoscaled else replicas) * hosts, MOST_NODES)


def resources_of_container(where: str, group: dict) -> list[tuple[str, object]]:
    """Of a pod's first container, where Ray runs: its limits, then its requests. Errors: Refused."""
    template = mapping(f"{where}: template", group.get("template"))
    containers = mapping(f"{where}: template: spec", template.get("spec")).get("containers") or [{}]
    if not isinstance(containers, list):
        raise Refused(f"{where}: containers must be a list, got: {containers}")
    resources = mapping(f"{where}: resources of the first container", mapping(f"{where}: the first container", containers[0]).get("resources"))
    return [one for kind in ("limits", "requests") for one in mapping(f"{where}: {kind}", resources.get(kind)).items()]


def custom_resources(where: str, start: dict) -> dict[str, float]:
    """Of the parameters of `ray start`: a JSON object in quotes for a shell. Errors: Refused."""
    text = str(start.get("resources", "{}"))
    try:
        found = json.loads(text.strip("\"'").replace("\\", ""))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refused(f"{where}: rayStartParams: resources must be a JSON object, got: {text}")
    return {name: amount(f"{where}: {name}", value) for name, value in found.items()}


def resources_of_group(where: str, group: dict) -> dict[str, float]:
    """What Ray counts of a pod: what the group's `resources` name, then the parameters of `ray start`, then its container. Errors: Refused."""
    named = mapping(f"{where}: resources", group.get("resources"))
    start = mapping(f"{where}: rayStartParams", group.get("rayStartParams"))
    of_container = resources_of_container(where, group)
    found = {name: amount(f"{where}: {name}", value) for name, value in named.items()} or custom_resources(where, start)
    for resource, parameter, pattern in COUNTED:
        if resource in named:
            continue
        given = [start[parameter]] if parameter in start else [value for name, value in of_container if re.fullmatch(pattern, name)]
        amounts = [amount(f"{where}: {resource}", value) for value in given]
        found |= {resource: next(filter(None, amounts), amounts[0])} if amounts else {}
    if "CPU" not in found:
        raise Refused(f"{where}: its CPUs are not named: resources, rayStartParams (num-cpus) or the first container must say how many a pod has")
    return found


def type_of_group(where: str, group: dict, is_autoscaled: bool) -> NodeType:
    """Errors: Refused."""
    labels = {str(name): str(value) for name, value in mapping(f"{where}: labels", group.get("labels")).items()}
    return NodeType(group["groupName"], most_of_group(where, group, is_autoscaled), resources_of_group(where, group), labels)


def is_manifest(document: object) -> bool:
    return isinstance(document, dict) and document.get("kind") in KINDS


def types_in(path: str, document: dict) -> Iterator[NodeType]:
    """Errors: Refused, naming file, group and value."""
    spec = mapping(f"{path}: spec", document.get("spec"))
    if document["kind"] == "RayJob":
        spec = mapping(f"{path}: rayClusterSpec", spec.get("rayClusterSpec"))
    groups = spec.get("workerGroupSpecs")
    if not isinstance(groups, list) or not groups:
        raise Refused(f"{path} has no workerGroupSpecs: name the manifest that has the cluster's groups of workers")
    for group in groups:
        if not isinstance(group, dict) or not isinstance(group.get("groupName"), str):
            raise Refused(f"{path}: workerGroupSpecs must be groups with a groupName, got: {group}")
        yield type_of_group(f"{path}: group {group['groupName']}", group, spec.get("enableInTreeAutoscaling") is True)
