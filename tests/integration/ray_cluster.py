#!/usr/bin/env python3
"""A Ray cluster of this machine for the tests: three nodes with the custom resources cpu, encoder and trainer; the last is a spot one. Runs in
.venv-ray. A node of the kind `gpu` says that it has two GPUs.

    ray_cluster.py FOLDER [KIND...]
                               with nodes of these kinds, the first one the head, says {"address": ..., "raylets": {"cpu": PID, ...}, "head": [PID, ...], "metrics": PORT of the head's, "dashboard": its HOST:PORT where DARKROOM_TEST_DASHBOARD asks for one} on a line; then, for each line
                               `add NAME` of the standard input, starts one more node of that kind and says its {"raylet": PID}, and for
                               `nodes` says {"nodes": [LABELS of each that is alive, ...]}. It ends, and the cluster with it, at the end
                               of the input.

Where DARKROOM_TEST_AUTOSCALING has the available_node_types of a configuration of `ray up`, as JSON, the head has no CPUs and Ray's autoscaler
brings nodes of them to this machine by Ray's own fake provider. Ray's AutoscalingCluster is not used: it reads a file that wheels of Ray
2.60.0 lack, and begins with `ray stop --force`, which ends every Ray of the machine.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

KINDS = tuple(sys.argv[2:]) or ("cpu", "encoder", "trainer")
STORE_BYTES = int(os.environ.get("DARKROOM_TEST_STORE_BYTES", 80 << 20))  # Of each node.
TRIES = 4
PR_SET_PDEATHSIG = 1

ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # Ray's own processes follow: they end with this one.
os.setsid()
# Compilers beside may fill memory or disk to where Ray would end its workers.
os.environ |= {"RAY_TMPDIR": sys.argv[1], "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0",
               "RAY_local_fs_capacity_threshold": "1.0", "RAY_raylet_start_wait_time_s": "240", "RAY_worker_niceness": "0"}  # Beside compilers Ray's 15 would be next to nothing.

import ray  # noqa: E402
from ports import free_port  # noqa: E402
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


HEAD_TYPE = "ray.head.default"  # As the fake provider calls it.
HEAD_ID = "f" * 51 + "00000"  # The same.
IDLE_MINUTES = 0.25  # Until an idle node is taken away: beside compilers it takes seconds until one that has come is used.


def node_type(name: str, about: dict) -> dict:
    """With the label that nodes get which `ray up` brings."""
    return {**about, "node_config": {}, "resources": {**about["resources"], "object_store_memory": STORE_BYTES}, "labels": {**about.get("labels", {}), "ray.io/node-group": name}}


def autoscaling_head(types: dict) -> dict:
    """What a head gets whose autoscaler brings nodes of these types."""
    port = free_port()
    os.environ |= {"RAY_raylet_start_wait_time_s": "60", "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_enable_autoscaler_v2": "1"}
    provider = {"type": "external", "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider", "use_node_id_as_ip": True, "disable_node_updaters": True, "disable_launch_config_check": True, "launch_multiple": True,
                "head_node_id": HEAD_ID, "gcs_address": f"{ray.util.get_node_ip_address()}:{port}"}
    empty = {name: [] for name in ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files")}
    nodes = {HEAD_TYPE: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}, **{name: node_type(name, about) for name, about in types.items()}}
    file = pathlib.Path(sys.argv[1], "autoscaling.json")
    file.write_text(json.dumps({"cluster_name": "test", "max_workers": 8, "provider": provider, "available_node_types": nodes, "head_node_type": HEAD_TYPE, "idle_timeout_minutes": IDLE_MINUTES, "upscaling_speed": 1.0, "auth": {}, "docker": {}, "file_mounts": {}, **empty}), encoding="utf-8")
    return {"num_cpus": 0, "object_store_memory": STORE_BYTES, "gcs_server_port": port, "autoscaling_config": str(file), "env_vars": {"RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID, "RAY_CLOUD_INSTANCE_ID": HEAD_ID, "RAY_NODE_TYPE_NAME": HEAD_TYPE}}


def head_of_a_try() -> dict:
    types = os.environ.get("DARKROOM_TEST_AUTOSCALING", "")
    return autoscaling_head(json.loads(types)) if types else node_of(KINDS[0])


def process_of(node, name: str) -> subprocess.Popen:
    return node.all_processes[name][0].process


def raylet_of(node) -> int:
    """It is waited for, as `ray start --block` does: to Ray's workers a dead raylet that nobody has waited for is alive, and they stay with it."""
    raylet = process_of(node, "raylet")
    threading.Thread(target=raylet.wait, daemon=True).start()
    return raylet.pid


def say(**what) -> None:
    print(json.dumps(what), flush=True)


def dashboard() -> dict:
    """Of one try: the one before may have its ports still."""
    if "DARKROOM_TEST_DASHBOARD" not in os.environ:
        return {"include_dashboard": False}
    return {"include_dashboard": True, "dashboard_port": free_port(), "dashboard_agent_listen_port": free_port()}


def main() -> None:
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args={**head_of_a_try(), **dashboard()}))
    raylets = {KINDS[0]: raylet_of(cluster.head_node)}
    for kind in KINDS[1:]:
        raylets[kind] = raylet_of(patiently(lambda: cluster.add_node(**node_of(kind))))
    say(address=cluster.address, raylets=raylets, head=[process_of(cluster.head_node, "gcs_server").pid, raylets[KINDS[0]]], metrics=cluster.head_node.metrics_export_port, dashboard=cluster.head_node.webui_url or "")
    for line in sys.stdin:
        if line == "nodes\n":
            say(nodes=[node["Labels"] for node in cluster.global_state.node_table() if node["Alive"]])
            continue
        say(raylet=raylet_of(patiently(lambda: cluster.add_node(**node_of(line.split()[1])))))
    cluster.shutdown()


main()
