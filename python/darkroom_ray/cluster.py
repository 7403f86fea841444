"""The Ray that a command works with: one that is there, or one of its own that ends with it."""

import contextlib
import json
import logging
import os
import pathlib
import secrets
import socket
import sysconfig
import tempfile
from collections.abc import Iterator

from darkroom_ray.flags import Refused
from darkroom_ray.own_folder import own_folder
from darkroom_ray.request import Request
from darkroom_ray.stopping import JobFailed

# Items travel as numbers and answers as counts, so that Ray's object store stays almost empty.
OBJECT_STORE_BYTES = 128 << 20
QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}
CONNECT_SECONDS = 5.0  # That a cluster's head has to answer: Ray itself asks without end.
START_TRIES = 3  # A node's helpers have 15 s to start, which on a busy machine may not be enough.
JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray's name for what the driver of `ray job submit` finds in its environment.
CHECKSUMS = "AWS_REQUEST_CHECKSUM_CALCULATION"  # Ray Train's records of a run on s3:// are written by pyarrow, whose trailing checksums many servers
ONLY_WHERE_REQUIRED = "when_required"  # refuse (411 MissingContentLength); the signature keeps a request whole.
SHORT_FOLDER_BYTES = 40  # Ray makes socket paths of at most 107 bytes below it.


def import_ray():
    """Errors: Refused."""
    try:
        import ray
    except ImportError as error:
        raise Refused(f"Ray is not installed here ({error}): pip install 'darkroom[ray]'") from None
    return ray


def is_installed(parent: pathlib.Path) -> bool:
    return parent in (pathlib.Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib"))


def runtime_environment() -> dict:
    """What Ray's processes need beside their own environment. A job of `ray job submit` may say some of it already, and Ray takes no second word
    of that."""
    of_job = json.loads(os.environ.get(JOB_CONFIG, "{}")).get("runtime_env") or {}
    variables = {CHECKSUMS: os.environ.get(CHECKSUMS, ONLY_WHERE_REQUIRED)}
    parent = pathlib.Path(__file__).resolve().parent.parent
    if not is_installed(parent):  # But run from a checkout.
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(parent), os.environ.get("PYTHONPATH", ""))))
    return {"env_vars": {name: value for name, value in variables.items() if name not in of_job.get("env_vars", {})}}


def actor_here(ray, what: type, **options):
    """An actor on the driver's own node: what it knows must not go with a node that may."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(what).options(num_cpus=0, scheduling_strategy=here, **options).remote()


def has_cluster(request: Request) -> bool:
    """Whether an address leads to a cluster: a flag's, or the environment's (also in `ray job submit`)."""
    return bool(request.address or os.environ.get("RAY_ADDRESS"))


def check_answer(address: str) -> None:
    """Errors: OSError, where nobody listens at HOST:PORT. Of other addresses (auto) Ray knows at once."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


@contextlib.contextmanager
def connected(request: Request) -> Iterator[None]:
    """Errors: Refused where there is no cluster at the address; JobFailed where a Ray of its own does not start."""
    ray = import_ray()
    if not has_cluster(request):
        with own_ray(ray):
            yield
        return
    try:
        check_answer(request.address or os.environ["RAY_ADDRESS"])
        ray.init(address=request.address or None, runtime_env=runtime_environment(), **QUIET)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:  # The last one: of a cluster with tokens.
        raise Refused(f"there is no Ray cluster at {request.address or os.environ['RAY_ADDRESS']}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def own_ray(ray) -> Iterator[None]:
    """A Ray of this machine in a folder of its own. It ends with this process, however that ends. Errors: Refused, JobFailed."""
    # Without one Ray writes a token into the home folder, which may not be there.
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ.setdefault("RAY_worker_niceness", "0")  # As the program has it alone; Ray's 15 is for machines that others work at, too.
    parent = os.environ.get("RAY_TMPDIR", tempfile.gettempdir())
    if len(parent.encode()) > SHORT_FOLDER_BYTES:
        raise Refused(f"Ray makes sockets below its folder, whose path may have {SHORT_FOLDER_BYTES} bytes: set RAY_TMPDIR to a shorter one than {parent}")
    os.makedirs(parent, exist_ok=True)
    for tries_left in reversed(range(START_TRIES)):
        with own_folder("ray-", parent) as folder:
            try:
                sizes = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
                ray.init(address="local", _temp_dir=folder, runtime_env=runtime_environment(), **sizes, **QUIET)
            except BaseException as error:  # Ray's own node gives up after half a minute, and its errors have no class of their own; a stop.
                ray.shutdown()
                if not isinstance(error, Exception):
                    raise
                if not tries_left:
                    raise JobFailed(f"Ray did not start on this machine in {START_TRIES} tries; is it very busy? The last reason: {error}") from None
                continue
            try:
                yield
                return
            finally:
                ray.shutdown()
