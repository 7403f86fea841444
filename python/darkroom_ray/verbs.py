"""A verb on the cluster that is connected: look at it, run the verb there."""

from darkroom_ray.cluster import import_ray
from darkroom_ray.item_job import JobFailed, cause_of
from darkroom_ray.request import Request


def run_checked(request: Request, given: dict[str, list[str]], stop) -> tuple[int, dict]:
    """On the cluster that is connected. Exit code and summary. Errors: Refused, JobFailed, Stopped."""
    from darkroom_ray.online import check_encoders
    from darkroom_ray.probe import check_cluster
    from darkroom_ray.watched import watched

    ray = import_ray()
    try:
        check_cluster(ray, request, given)
        if request.encoders or request.transformers:
            check_encoders(ray, request, given)
        stop.check()
        with watched(ray, request) as observed:
            return work(ray, observed, given, stop)
    except ray.exceptions.RayError as error:  # What is lost with a worker is dealt with where it is waited for.
        raise JobFailed(why_ray_failed(ray, error)) from None


def why_ray_failed(ray, error: Exception) -> str:
    """Of the driver's own calls. A cluster is lost where the driver's node or the head does not answer; of an actor that is lost, or a fault in
    what was called, Ray's own words are told. A RaySystemError with a traceback is of a value that cannot be read."""
    lost = (ray.exceptions.LocalRayletDiedError, ray.exceptions.RaySystemError, ray.exceptions.RpcError)
    if isinstance(error, lost) and not getattr(error, "traceback_str", None):
        return f"the cluster was lost; run the same command again on another to go on: {error}"
    cause = cause_of(error)
    return f"a call on the cluster failed; run the same command again to go on: {type(cause).__name__}: {cause}"


def work(ray, request: Request, given: dict[str, list[str]], stop) -> tuple[int, dict]:
    from darkroom_ray.item_job import ItemJob
    from darkroom_ray.online import start_transformers, train_online
    from darkroom_ray.training import run_as_task, train

    if request.verb == "sample" or "--dry-run" in given or "--clean" in given:
        return run_as_task(ray, request, stop)
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
