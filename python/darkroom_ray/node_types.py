"""Nodes that an autoscaler may bring: the types of a configuration of Ray's cluster launcher (`ray up`), as the preflight counts nodes. Ray's
own nodes tell nothing of them."""

import os
from collections.abc import Iterator

from darkroom_ray.flags import Refused
from darkroom_ray.preflight import Node
from darkroom_ray.request import Request

NODE_TYPE_LABEL = "ray.io/node-group"  # Ray gives it to nodes that an autoscaler brought.


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


def nodes_that_may_come(path: str, document: object, there: list[Node]) -> Iterator[Node]:
    """Of each type as many as it may have, less those of it that are there. Errors: Refused, naming file, type and value."""
    types = document.get("available_node_types") if isinstance(document, dict) else None
    if not isinstance(types, dict) or not types:
        raise Refused(f"{path} has no available_node_types: name the file of `ray up`, on the head ~/ray_bootstrap_config.yaml")
    for name, about in types.items():
        about = about if isinstance(about, dict) else {}
        most = about.get("max_workers", document.get("max_workers", 0))  # As the launcher fills it in.
        if not isinstance(most, int) or most < 0:
            raise Refused(f"{path}: available_node_types {name}: max_workers must be a whole number, got: {most}")
        labels = labels_of(path, name, about.get("labels") or {})
        resources = resources_of(path, name, about.get("resources") or {})
        come = sum(node.labels.get(NODE_TYPE_LABEL) == name for node in there)
        for number in range(most - come if name != document.get("head_node_type") else 0):
            yield Node(name=f"{name} {number + 1}, which has not come yet", resources=resources, labels={**labels, NODE_TYPE_LABEL: str(name)})


def with_coming(request: Request, there: list[Node]) -> list[Node]:
    """The nodes, and behind them those that the file of --cluster-config says may come. Errors: Refused."""
    if not request.cluster_config:
        return there
    path = os.path.join(request.folder, os.path.expanduser(request.cluster_config))
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            document = yaml.safe_load(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Refused(f"--cluster-config {path} cannot be read: {error}") from None
    return [*there, *nodes_that_may_come(path, document, there)]
