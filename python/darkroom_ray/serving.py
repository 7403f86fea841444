"""`darkroom-ray serve MODEL`: an application of Ray Serve whose replicas are `darkroom serve`, as many as the open work wants."""

import contextlib
import os
import threading
import time
from typing import NoReturn

from darkroom_ray.cluster import actor_here
from darkroom_ray.flags import REFUSALS, Refused, read_request, with_settings
from darkroom_ray.prices import with_price
from darkroom_ray.program import read_arguments
from darkroom_ray.progress import say
from darkroom_ray.request import Request, Service
from darkroom_ray.stopping import JobFailed, StopWatch
from darkroom_ray.watched import NAMESPACE

LOOK_SECONDS = 1.0
TELL_SECONDS = 40.0  # Until it is told what a start waits for: Ray Serve itself gives a replica 30 s before it says why it has no place.
START_SECONDS = 15.0  # That an end waits for a start that goes on: one that has deployed waits for replicas without end.
# More than the program takes: it refuses by itself what it has no room for, with its own words.
MOST_REQUESTS_OF_A_REPLICA = 2048
# What each server does by itself.
OF_ONE_SERVER = {
    "--rate": "each server counts the requests of a key by itself, so that several together let more through",
    "--multi-model": "models that are loaded by requests are loaded in one server, and the next request may go to another",
}
BIND_FAILED = "Failed to bind to address"  # As Ray Serve's proxies say it.
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_service(request: Request, given: dict[str, list[str]]) -> None:
    """Errors: Refused."""
    if request.service.host not in LOOPBACK and "--keys" not in given:
        raise Refused(f"--host {request.service.host} lets others in: name their keys with --keys FILE, or leave --host out")
    if "--json-summary" in given:  # By --config; flags.py refuses it on the command line.
        raise Refused(f"--json-summary in --config: {REFUSALS['--json-summary']}")
    if "--tls-cert" in given or "--tls-key" in given:
        raise Refused("Ray's proxies speak to the clients, and without TLS: leave --tls-cert and --tls-key out, and put what ends TLS before them")
    if request.service.max_replicas > 1:
        for name, why in OF_ONE_SERVER.items():
            if name in given:
                raise Refused(f"{why}: leave {name} out, or ask for --max-replicas 1")


def import_serve():
    """Errors: Refused."""
    try:
        from ray import serve
    except ImportError as error:
        raise Refused(f"Ray Serve is not installed here ({error}): pip install 'darkroom[ray]'") from None
    return serve


def deployment_options(request: Request) -> dict:
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

    from darkroom_ray.serve_child import DRAIN_SECONDS
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
        "max_queued_requests": MOST_REQUESTS_OF_A_REPLICA,  # Of each proxy, which holds their bodies until a replica takes them; then 503.
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
    """For a configuration of Ray Serve (`import_path: darkroom_ray.serving:build`): `args: {words: [MODEL, --keys, /shared/keys.txt, --max-replicas, "4",
    ...]}`, the words of the command. Host and port are then those of the configuration. Errors: Refused."""
    words = [str(word) for word in arguments["words"]]
    request = read_request("serve", words, os.getcwd(), os.environ.get("DARKROOM_PROGRAM", ""))
    given = read_arguments(request)
    request = with_settings(request, given)
    if "--keys" not in given and not any(word.partition("=")[0] == "--host" for word in words):
        raise Refused("the configuration says where Ray's proxies listen: name keys with --keys FILE, or say with --host 127.0.0.1 that it is loopback")
    if request.metrics_folder:
        raise Refused("--metrics-folder is kept by the command, and here there is none: leave it out, and scrape Ray's own metrics ports")
    return application(with_price(request, given), given)


def check_proxies(request: Request) -> None:
    """A Serve that runs already keeps its own address, whoever that lets in. Errors: Refused."""
    from ray.serve.context import _get_global_client

    found = _get_global_client().http_config
    wanted = (request.service.host, request.service.port)
    if (found.host, found.port) != wanted:
        raise Refused(f"Ray Serve runs on this cluster already, at {found.host}:{found.port} and not at {wanted[0]}:{wanted[1]}: name that place with --host and --port, or end it with `serve shutdown`")


def why_no_proxy(ray, service: Service, error: Exception) -> str:
    """"": it says nothing of proxies."""
    from darkroom_ray.item_job import cause_of, first_line

    place, why = f"{service.host}:{service.port}", first_line(cause_of(error))
    if BIND_FAILED in why:
        return f"Ray's proxies cannot listen at {place}: the port is taken on a node, or may not be had there: name a free one with --port; Ray says: {why}"
    if isinstance(error, (TimeoutError, ray.exceptions.RayActorError)):
        return (f"Ray's proxies do not come to listen at {place}: {why}; on a busy machine start the nodes with RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S=60 in their "
                "environment, and where something else has the port name a free one with --port")
    return ""


def start_proxies(ray, serve, service: Service) -> None:
    """Errors: JobFailed, where they do not come to listen; RayError."""
    try:
        serve.start(http_options={"host": service.host, "port": service.port})
    except (TimeoutError, RuntimeError, ray.exceptions.RayError) as error:
        why = why_no_proxy(ray, service, error)
        if not why:
            raise
        with contextlib.suppress(Exception):  # Ray's classes differ by what is away. A Serve that stays would keep the port for the next command.
            if not serve.status().applications:
                serve.shutdown()
        raise JobFailed(why) from None


class Claim:
    """An actor that lives as long as its driver: two drivers have no service of one name."""

    def is_there(self) -> bool:
        return True


def claimed(ray, name: str):
    """The right to deploy and to delete the application of this name, for as long as what is given is kept. Errors: Refused."""
    try:
        return actor_here(ray, Claim, name=f"serve-{name}", namespace=NAMESPACE)
    except ValueError:  # The name is taken.
        raise Refused(f"another command serves {name} on this cluster: give this service a name of its own with --name, or end the other command") from None


def check_name(service: Service, applications) -> None:
    """`applications`: names of those that are there. REQUIRES: the name is claimed. Errors: Refused."""
    if service.name in applications and not service.is_replacing:
        raise Refused(f"there is an application {service.name} on this cluster, whose command is gone or which Ray Serve has of a file: take its place with --replace, "
                      "or give this service a name of its own with --name")


def start_application(bound, service: Service, failures: list[BaseException]) -> threading.Thread:
    """Waits for the replicas on a thread of its own, so that a stop is heard meanwhile."""
    from ray import serve

    def start() -> None:
        try:
            serve.run(bound, name=service.name, route_prefix=service.route_prefix, blocking=False)
        except BaseException as error:  # Raised by whoever waits for it.
            failures.append(error)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    return thread


def state_of(serve, name: str) -> str:
    """What Ray Serve says of this application and its replicas. Errors: KeyError: it is not there yet; Ray's."""
    found = serve.status().applications[name]
    said = [found.message, *(deployment.message for deployment in found.deployments.values())]
    return " ".join(": ".join([found.status.value, *filter(None, said)]).split())


def await_start(starting: threading.Thread, request: Request, stop: StopWatch) -> None:
    """Where it takes long, Ray Serve's reason is told once. Errors: Stopped."""
    from ray import serve

    tell_at = float("inf") if request.is_quiet else time.monotonic() + TELL_SECONDS
    while starting.is_alive():
        stop.pause(LOOK_SECONDS)
        if time.monotonic() >= tell_at:
            with contextlib.suppress(Exception):  # Ray's classes differ by what is away. The next look may see it.
                say(f"the service waits for its replicas; Ray Serve says: {state_of(serve, request.service.name)}")
                tell_at = float("inf")


def end_application(name: str) -> None:
    """Until its replicas have sent what they paint."""
    from ray import serve

    from darkroom_ray.serve_child import DRAIN_SECONDS

    serve.delete(name, _blocking=False)
    deadline = time.monotonic() + 2 * DRAIN_SECONDS + 10
    while name in serve.status().applications and time.monotonic() < deadline:
        time.sleep(0.2)
        serve.delete(name, _blocking=False)  # Its start may have deployed it behind the one before.


def end_started(name: str, starting: threading.Thread) -> None:
    """Also where its start, which nobody can end, comes to deploy it only now: as long as that goes on it is deleted again."""
    end_application(name)
    deadline = time.monotonic() + START_SECONDS
    while starting.is_alive() and time.monotonic() < deadline:
        starting.join(LOOK_SECONDS)
        end_application(name)
    end_application(name)  # Of a start that has ended since.


def hold_application(bound, request: Request, stop: StopWatch) -> NoReturn:
    """Deploys it, and deletes it when somebody asks for the end. REQUIRES: its name is claimed. Errors: JobFailed, Stopped."""
    from ray import serve

    service = request.service
    failures: list[BaseException] = []
    starting = start_application(bound, service, failures)
    try:
        await_start(starting, request, stop)
        if failures:
            raise JobFailed(f"the service does not start: {failures[0]}")
        if not request.is_quiet:
            say(f"serving at http://{service.host}:{service.port}{service.route_prefix.rstrip('/')}, {request.num_workers} to {service.max_replicas} replicas")
        while service.name in serve.status().applications:
            stop.pause(LOOK_SECONDS)
        raise JobFailed("the service is gone: somebody has deleted its application")
    finally:
        end_started(service.name, starting)


def serve_until_stopped(ray, request: Request, given: dict[str, list[str]], stop: StopWatch) -> NoReturn:
    """On the cluster that is connected. Errors: Refused; JobFailed or Stopped, one of which ends it, once every reply is sent."""
    serve = import_serve()
    bound = application(request, given)
    start_proxies(ray, serve, request.service)
    check_proxies(request)
    claim = claimed(ray, request.service.name)
    try:
        check_name(request.service, serve.status().applications)
        hold_application(bound, request, stop)
    finally:
        ray.kill(claim)
