"""What a Ray worker has of its machine: the share that its task or actor reserves."""

import dataclasses
import functools

from darkroom_ray.request import Request

RESERVED = ("CPU", "GPU", "memory")  # Of Ray's resources those that a machine is paid for.
FLAG = "--memory"
BUFFERS_SHARE = 4  # What the program takes of a machine that it has alone: a quarter.
LEAST_MEMORY = 256 << 20


def share_of(taken: dict[str, float], whole: dict[str, float]) -> float:
    """Of the resource of which it takes most: what is left of the others beside it nobody can use as well."""
    return max((min(1.0, taken.get(name, 0.0) / whole[name]) for name in RESERVED if whole.get(name)), default=0.0)


def resources_here() -> tuple[dict[str, float], dict[str, float]]:
    """What this task or actor has reserved, and what its node has. REQUIRES: called in one."""
    import ray

    context = ray.get_runtime_context()
    return context.get_assigned_resources(), resources_of_node(context.get_node_id())


@functools.cache
def resources_of_node(node_id: str) -> dict[str, float]:
    """They stay as they are: the cluster's head is asked once by each worker process, not for each of its tasks."""
    import ray

    return next((node["Resources"] for node in ray.nodes() if node["NodeID"] == node_id), {})


def with_flag_of_settings(request: Request, given: dict[str, list[str]], flag: str) -> Request:
    """What a file of settings says of it stands on the command line, too. `given`: program.read_arguments()."""
    words = [f"{flag}={word}" for word in given.get(flag, [])[-1:] if flag not in request.named_flags()]
    return dataclasses.replace(request, arguments=(*words, *request.arguments))  # In front: there may be words behind `--`.


def with_memory(request: Request, given: dict[str, list[str]]) -> Request:
    """A budget of a file of settings stays the user's. `given`: program.read_arguments()."""
    return with_flag_of_settings(request, given, FLAG)


def memory_here(request: Request) -> list[str]:
    """As memory_for(), where the user has named none. REQUIRES: called in a task or an actor."""
    return [] if FLAG in request.named_flags() else memory_for(*resources_here())


def memory_for(taken: dict[str, float], whole: dict[str, float]) -> list[str]:
    """--memory for a program that is not told otherwise, so that as many as a node has room for take no more than one that is alone there; nothing
    where it cannot be known."""
    share = share_of(taken, whole)
    return [FLAG, str(max(LEAST_MEMORY, int(whole["memory"] / BUFFERS_SHARE * share)))] if share > 0 and whole.get("memory") else []
