"""`darkroom-ray serve MODEL`: an application of Ray Serve whose replicas are `darkroom serve`, as many as the open work wants."""

import os

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
    request = read_request("serve", [str(word) for word in arguments["words"]], os.getcwd(), os.environ.get("DARKROOM_PROGRAM", ""))
    return application(request, read_arguments(request))


def serve_until_stopped(request: Request, given: dict[str, list[str]], stop: StopWatch) -> tuple[int, dict]:
    """On the cluster that is connected. Errors: Refused, JobFailed, Stopped once every reply is sent."""
    from ray import serve

    from darkroom_ray.command import say
    from darkroom_ray.item_job import JobFailed

    bound = application(request, given)
    serve.start(http_options={"host": request.service.host, "port": request.service.port})
    try:
        serve.run(bound, name=NAME, route_prefix="/", blocking=False)
    except RuntimeError as error:
        raise JobFailed(f"the service does not start: {error}") from None
    try:
        say(f"serving at http://{request.service.host}:{request.service.port}, {request.num_workers} to {request.service.max_replicas} replicas")
        while True:
            stop.pause(LOOK_SECONDS)
    finally:
        serve.delete(NAME)
