#!/usr/bin/env python3
"""A Ray cluster of this machine for the tests: three nodes with the custom resources cpu, encoder and trainer; the last is a spot one. Runs in
.venv-ray. A node of the kind `gpu` says that it has two GPUs.

    ray_cluster.py FOLDER [KIND...]
                               with nodes of these kinds, the first one the head, says {"address": ..., "raylets": {"cpu": PID, ...}, "head": [PID, ...], "metrics": PORT of the head's, "dashboard": its HOST:PORT where DARKROOM_TEST_DASHBOARD asks for one} on a line; then, for each line
                               `add NAME` of the standard input, starts one more node of that kind and says its {"raylet": PID}. It
                               ends, and the cluster with it, at the end of the input.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import sys

KINDS = tuple(sys.argv[2:]) or ("cpu", "encoder", "trainer")
STORE_BYTES = int(os.environ.get("DARKROOM_TEST_STORE_BYTES", 80 << 20))  # Of each node.
TRIES = 4
PR_SET_PDEATHSIG = 1

ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # Ray's own processes follow: they end with this one.
os.setsid()
# Compilers beside may fill memory or disk to where Ray would end its workers.
os.environ |= {"RAY_TMPDIR": sys.argv[1], "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0",
               "RAY_local_fs_capacity_threshold": "1.0", "RAY_raylet_start_wait_time_s": "240", "RAY_worker_niceness": "0"}  # Beside compilers Ray's 15 would be next to nothing.

from ray.cluster_utils import Cluster  # noqa: E402


def weigh(nice: int) -> None:
    """The kernel weighs sessions against each other: this one, where the account may say so."""
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")


@contextlib.contextmanager
def going_first():
    """A node ends when its helpers do not start within 15 s, which beside compilers they may not."""
    weigh(-10)
    try:
        yield
    finally:
        weigh(0)


def patiently(start):
    """Ray's node gives up after half a minute; another try has its files in memory."""
    for tries_left in reversed(range(TRIES)):
        try:
            with going_first():
                return start()
        except Exception as error:
            if not tries_left:
                raise
            print(f"ray_cluster: once more, because {error}", file=sys.stderr, flush=True)


def node_of(kind: str) -> dict:
    labels = {"role": kind, "ray.io/market-type": "spot" if kind == "trainer" else "on-demand"}
    return {"num_cpus": 2, "resources": {kind: 2}, "num_gpus": 2 if kind == "gpu" else 0, "labels": labels, "object_store_memory": STORE_BYTES}


def process_of(node, name: str) -> int:
    return node.all_processes[name][0].process.pid


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def raylet_of(node) -> int:
    return process_of(node, "raylet")


def say(**what) -> None:
    print(json.dumps(what), flush=True)


def dashboard() -> dict:
    """Of one try: the one before may have its ports still."""
    if "DARKROOM_TEST_DASHBOARD" not in os.environ:
        return {"include_dashboard": False}
    return {"include_dashboard": True, "dashboard_port": free_port(), "dashboard_agent_listen_port": free_port()}


def main() -> None:
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args={**node_of(KINDS[0]), **dashboard()}))
    raylets = {KINDS[0]: raylet_of(cluster.head_node)}
    for kind in KINDS[1:]:
        raylets[kind] = raylet_of(patiently(lambda: cluster.add_node(**node_of(kind))))
    say(address=cluster.address, raylets=raylets, head=[process_of(cluster.head_node, "gcs_server"), raylets[KINDS[0]]], metrics=cluster.head_node.metrics_export_port, dashboard=cluster.head_node.webui_url or "")
    for line in sys.stdin:
        say(raylet=raylet_of(patiently(lambda: cluster.add_node(**node_of(line.split()[1])))))
    cluster.shutdown()


main()
