"""A verb on the cluster that is connected: look at it, run the verb there."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from darkroom_ray.cluster import import_ray
from darkroom_ray.flags import RUNS
from darkroom_ray.item_job import cause_of
from darkroom_ray.prices import with_price
from darkroom_ray.program import is_set
from darkroom_ray.request import Request
from darkroom_ray.shares import with_memory
from darkroom_ray.stopping import JobFailed


def run_checked(request: Request, given: dict[str, list[str]], stop) -> tuple[int, dict]:
    """On the cluster that is connected. Exit code and summary. Errors: Refused, JobFailed, Stopped."""
    from darkroom_ray.nodes import with_node_types
    from darkroom_ray.probe import check_cluster, probe_time
    from darkroom_ray.watched import watched

    ray = import_ray()
    request = dataclasses.replace(request, is_quiet=request.is_quiet or is_set(given, "--quiet"))  # By --config, too.
    request = with_memory(with_price(request, given), given)
    with failures_told(ray):
        until = probe_time(stop.check)
        request = with_node_types(ray, request)
        try:
            check_all(ray, request, given, lambda *words: check_cluster(*words, until))
        finally:
            stop.check()  # Before what it may have broken: it reaches a program that is asked for its version, too.
        with watched(ray, request) as observed:
            return work(ray, observed, given, stop)


def check_room_for(request: Request, given: dict[str, list[str]]) -> None:
    """Whether the cluster that is connected has what a command asks for, by what Ray says of it. Errors: Refused, JobFailed."""
    from darkroom_ray.nodes import with_node_types
    from darkroom_ray.probe import check_room

    ray = import_ray()
    with failures_told(ray):
        check_all(ray, with_node_types(ray, request), given, check_room)


def check_all(ray, request: Request, given: dict[str, list[str]], check: Callable[..., None]) -> None:
    """A request and what it is served by. Errors: Refused."""
    from darkroom_ray.online import check_encoders

    check(ray, request, given)
    if request.encoders or request.transformers:
        check_encoders(ray, request, given, check)


@contextlib.contextmanager
def failures_told(ray) -> Iterator[None]:
    """Errors: JobFailed."""
    try:
        yield
    except ray.exceptions.RayError as error:  # What is lost with a worker is dealt with where it is waited for.
        raise JobFailed(why_ray_failed(ray, error), summary=getattr(error, "summary", None)) from None


def why_ray_failed(ray, error: Exception) -> str:
    """Of the driver's own calls. A cluster is lost where the driver's node or the head does not answer; of an actor that is lost, or a fault in
    what was called, Ray's own words are told. A RaySystemError with a traceback is of a value that cannot be read."""
    lost = (ray.exceptions.LocalRayletDiedError, ray.exceptions.RaySystemError, ray.exceptions.RpcError)
    if isinstance(error, lost) and not getattr(error, "traceback_str", None):
        return f"the cluster was lost; run the same command again on another to go on: {error}"
    cause = cause_of(error)
    return f"a call on the cluster failed; run the same command again to go on: {type(cause).__name__}: {cause}"


def planned(request: Request, given: dict[str, list[str]]) -> Request:
    """The program that plans a run is alone, and is told of its ranks."""
    if request.verb not in RUNS or not is_set(given, "--dry-run"):
        return request
    return dataclasses.replace(request, arguments=("--ranks", str(request.num_workers), *request.arguments))


def work(ray, request: Request, given: dict[str, list[str]], stop) -> tuple[int, dict]:
    from darkroom_ray.item_job import ItemJob
    from darkroom_ray.online import start_transformers, train_online
    from darkroom_ray.training import run_as_task, train

    if request.verb == "sample" or is_set(given, "--dry-run") or is_set(given, "--clean"):
        return run_as_task(ray, planned(request, given), stop)
    if request.verb == "serve":
        from darkroom_ray.serving import serve_until_stopped

        serve_until_stopped(ray, request, given, stop)
    if request.verb == "train":
        return train(ray, request, given, stop)
    if request.verb == "tune":
        from darkroom_ray.tuning import tune

        return tune(ray, request, stop)
    if request.verb == "online":
        return train_online(ray, request, given, stop)
    if not request.transformers:
        return ItemJob(ray, request, stop).run()
    keeper, access = start_transformers(ray, request, given)
    try:
        return ItemJob(ray, request, stop, keeper, access).run()
    finally:
        keeper.end()
