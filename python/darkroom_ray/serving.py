"""`darkroom-ray serve MODEL`: an application of Ray Serve whose replicas are `darkroom serve`, as many as the open work wants."""

import os
import threading
import time

from darkroom_ray.flags import Refused, read_request
from darkroom_ray.program import read_arguments
from darkroom_ray.request import Request
from darkroom_ray.stopping import StopWatch

NAME = "darkroom"
LOOK_SECONDS = 1.0
# More than the program takes: it refuses by itself what it has no room for, with its own words.
MOST_REQUESTS_OF_A_REPLICA = 2048
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_service(request: Request, given: dict[str, list[str]]) -> None:
    """Errors: Refused."""
    if request.service.host not in LOOPBACK and "--keys" not in given:
        raise Refused(f"--host {request.service.host} lets others in: name their keys with --keys FILE, or leave --host out")


def deployment_options(request: Request) -> dict:
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

    from darkroom_ray.serve_replica import DRAIN_SECONDS
    from darkroom_ray.serve_scaling import replicas_for_load

    scaling = AutoscalingConfig(
        min_replicas=request.num_workers,
        max_replicas=request.service.max_replicas,
        upscale_delay_s=5.0,
        downscale_delay_s=300.0,
        metrics_interval_s=2.0,
        look_back_period_s=10.0,
        policy=AutoscalingPolicy(policy_function=replicas_for_load),
    )
    return {
        "name": "painting",
        "ray_actor_options": request.placement.options(),
        "autoscaling_config": scaling,
        "max_ongoing_requests": MOST_REQUESTS_OF_A_REPLICA,
        "health_check_period_s": 5.0,
        "health_check_timeout_s": 30.0,
        "graceful_shutdown_wait_loop_s": 1.0,
        "graceful_shutdown_timeout_s": 2 * DRAIN_SECONDS,
    }


def application(request: Request, given: dict[str, list[str]]):
    """The application of a request, for serve.run. Errors: Refused."""
    from ray import serve

    from darkroom_ray.serve_replica import PaintingReplica

    check_service(request, given)
    keys = given.get("--keys", [""])[0]
    return serve.deployment(PaintingReplica, **deployment_options(request)).bind(request, os.path.join(request.folder, keys) if keys else "")


def build(arguments: dict):
    """For a configuration of Ray Serve (`import_path: darkroom_ray.serving:build`): `args: {words: [MODEL, --max-replicas, "4", ...]}`, the words
    of the command. Host and port are then those of the configuration. Errors: Refused."""
    words = [str(word) for word in arguments["words"]]
    request = read_request("serve", words, os.getcwd(), os.environ.get("DARKROOM_PROGRAM", ""))
    given = read_arguments(request)
    if "--keys" not in given and not any(word.partition("=")[0] == "--host" for word in words):
        raise Refused("the configuration says where Ray's proxies listen: name keys with --keys FILE, or say with --host 127.0.0.1 that it is loopback")
    return application(request, given)


def check_proxies(request: Request) -> None:
    """A Serve that runs already keeps its own address, whoever that lets in. Errors: Refused."""
    from ray.serve.context import _get_global_client

    found = _get_global_client().http_config
    wanted = (request.service.host, request.service.port)
    if (found.host, found.port) != wanted:
        raise Refused(f"Ray Serve runs on this cluster already, at {found.host}:{found.port} and not at {wanted[0]}:{wanted[1]}: name that place with --host and --port, or end it with `serve shutdown`")


def start_application(bound, failures: list[BaseException]) -> threading.Thread:
    """Waits for the replicas on a thread of its own, so that a stop is heard meanwhile."""
    from ray import serve

    def start() -> None:
        try:
            serve.run(bound, name=NAME, route_prefix="/", blocking=False)
        except BaseException as error:  # Raised by whoever waits for it.
            failures.append(error)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    return thread


def end_application() -> None:
    """Until its replicas have sent what they paint."""
    from ray import serve

    from darkroom_ray.serve_replica import DRAIN_SECONDS

    serve.delete(NAME, _blocking=False)
    deadline = time.monotonic() + 2 * DRAIN_SECONDS + 10
    while NAME in serve.status().applications and time.monotonic() < deadline:
        time.sleep(0.2)


def serve_until_stopped(request: Request, given: dict[str, list[str]], stop: StopWatch) -> tuple[int, dict]:
    """On the cluster that is connected. Errors: Refused, JobFailed, Stopped once every reply is sent."""
    from ray import serve

    from darkroom_ray.command import say
    from darkroom_ray.item_job import JobFailed

    bound = application(request, given)
    serve.start(http_options={"host": request.service.host, "port": request.service.port})
    check_proxies(request)
    failures: list[BaseException] = []
    try:
        starting = start_application(bound, failures)
        while starting.is_alive():
            stop.pause(LOOK_SECONDS)
        if failures:
            raise JobFailed(f"the service does not start: {failures[0]}")
        say(f"serving at http://{request.service.host}:{request.service.port}, {request.num_workers} to {request.service.max_replicas} replicas")
        while NAME in serve.status().applications:
            stop.pause(LOOK_SECONDS)
        raise JobFailed("the service is gone: somebody has deleted its application")
    finally:
        end_application()
