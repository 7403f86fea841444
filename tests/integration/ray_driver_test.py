#!/usr/bin/env python3
"""How darkroom-ray comes to its Ray and leaves it: one of its own, which ends with it however that ends, and a job of `ray job submit`.

usage: ray_driver_test.py
"""

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from ray_bench import LEAST_FREE_BYTES, PATIENCE, RAY_PYTHON, Driver, RayCluster, cluster_of_script, free_bytes
from workbench import PROGRAM, ROOT, Skipped, main, require, run, temporary_folder

# Stands for the program: works until it is asked to end, and gives back what it has claimed.
STAND_IN = """#!/bin/sh
case "$1" in
--version) echo darkroom 0 ;;
help) read line; echo '{"exit_code": 0, "given": {}}' ;;
*) cd %s; trap 'sleep 0.2; touch given-back; exit 143' TERM; touch begun; while :; do sleep 0.05; done ;;
esac
"""
# Stands for a search with a launcher: the first signal ends it in order, which takes a while, a second one is nothing (verb_tune.cpp). It counts
# them, each at once, since a shell is told of two that wait as of one; it waits for the second one, and for what comes behind that.
SEARCH = """#!/bin/sh
case "$1" in
--version) echo darkroom 0 ;;
help) read line; echo '{"exit_code": 0, "given": {}}' ;;
*) cd %s; trap 'test -s signals || echo "x warning: stopping after what is complete has been committed" >&2; echo x >> signals' TERM
   touch signals begun; until test -s signals; do sleep 0.05 & wait; done
   left=300; until test $(wc -l < signals) -ge 2 || test $left = 0; do sleep 0.1 & wait; left=$((left - 1)); done
   for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.1 & wait; done
   touch given-back; exit 143 ;;
esac
"""
REFUSAL_SECONDS = 10  # As docs/cluster.md says.
PICTURE = ["--model", "models/tiny", "--prompt", "a red heart", "--steps", "2", "--seed", "3", "--output"]


class OwnRay:
    """The environment of a command that finds no cluster, and no home folder."""

    def __init__(self) -> None:
        if not RAY_PYTHON.exists():
            raise Skipped("there is no .venv-ray; tools/build/setup.sh ray installs it")
        if free_bytes() < LEAST_FREE_BYTES // 2:
            raise Skipped(f"a node of Ray wants {LEAST_FREE_BYTES >> 31} GB of free memory, and there are {free_bytes() / (1 << 30):.1f}")
        self.folder = tempfile.mkdtemp(prefix="dr-own-", dir="/tmp")

    def __enter__(self) -> "OwnRay":
        return self

    def __exit__(self, *unused: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        without = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        more = {"RAY_raylet_start_wait_time_s": "240", "RAY_worker_niceness": "0", "RAY_memory_monitor_refresh_ms": "0", "RAY_local_fs_capacity_threshold": "1.0"}  # As ray_cluster.py.
        return {**without, **more, "PYTHONPATH": str(ROOT / "python"), "DARKROOM_PROGRAM": str(PROGRAM), "RAY_TMPDIR": self.folder, "HOME": "/nowhere", "RAY_USAGE_STATS_ENABLED": "0"}

    def processes(self, *more: object) -> list[str]:
        """Command lines of all that Ray started for it, and of what else names a folder of `more`."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                line = path.read_bytes().decode(errors="replace").replace("\0", " ")
                found += [line] if any(f"{folder}/" in line for folder in (self.folder, *more)) else []
        return found

    def require_over(self, *more: object) -> None:
        end = time.monotonic() + PATIENCE
        while left := self.processes(*more):
            require(time.monotonic() < end, "these outlive the command", left)
            time.sleep(0.05)


def stand_in(folder: pathlib.Path, script: str = STAND_IN) -> str:
    path = folder / "program"
    path.write_text(script % folder)
    path.chmod(0o755)
    return str(path)


def a_ray_of_its_own_does_the_work_and_leaves_nothing() -> None:
    with OwnRay() as own, temporary_folder() as folder:
        run("sample", *PICTURE, str(folder / "a.png"))
        said = Driver(own, ["sample", *PICTURE, str(folder / "b.png"), "--json-summary", str(folder / "s.json"), "--quiet"]).finish()
        require((folder / "a.png").read_bytes() == (folder / "b.png").read_bytes(), "the picture differs from the program's")
        require("sample" in json.loads((folder / "s.json").read_text()), "the summary", (folder / "s.json").read_text())
        require(said == "", "what a quiet command says", said)
        own.require_over()
        require(os.listdir(own.folder) == [], "what is left of Ray's folder", os.listdir(own.folder))


def ctrl_c_on_a_terminal_ends_the_program_in_order() -> None:
    with OwnRay() as own, temporary_folder() as folder:
        driver = Driver(own, ["sample", "--program", stand_in(folder)], has_own_session=True)
        driver.wait_for((folder / "begun").exists, "the program")
        os.killpg(driver.process.pid, signal.SIGINT)  # As a terminal does: Ray's processes get it, too.
        said = driver.finish(130)
        require((folder / "given-back").exists() and "the programs end" in said, "the program was killed", said)
        own.require_over(folder)


def a_ray_of_its_own_ends_with_a_killed_command() -> None:
    with OwnRay() as own, temporary_folder() as folder:
        driver = Driver(own, ["sample", "--program", stand_in(folder)])
        driver.wait_for((folder / "begun").exists, "the program")
        require(any("raylet" in line for line in own.processes()), "Ray's processes are not seen here", own.processes())
        driver.process.kill()
        driver.process.wait()
        own.require_over(folder)
        require(not (folder / "given-back").exists(), "the program was not killed")


def seconds_to_load_ray(own: OwnRay) -> float:
    begin = time.monotonic()
    subprocess.run([RAY_PYTHON, "-c", "import ray"], check=True, env=own.environment(), stdin=subprocess.DEVNULL)
    return time.monotonic() - begin


def an_address_without_a_cluster_is_refused() -> None:
    with OwnRay() as own, temporary_folder() as folder:
        loading = min(seconds_to_load_ray(own) for _ in range(2))  # The first time it may come from the disk.
        begin = time.monotonic()
        said = Driver(own, ["sample", "--program", stand_in(folder), "--address", "127.0.0.1:1"]).finish(2)
        seconds = time.monotonic() - begin
        require("no Ray cluster at 127.0.0.1:1" in said, "the refusal", said)
        print(f"        refused after {seconds:.1f} s, of which {loading:.1f} s load Ray", flush=True)
        require(seconds - loading < REFUSAL_SECONDS, "a refusal comes late", seconds, loading)


# -- ray job submit ---------------------------------------------------------------------------------------------------


job_cluster = cluster_of_script({"DARKROOM_TEST_DASHBOARD": "1"}, kinds=("cpu",))


def variables_of_a_job() -> dict[str, str]:
    """In a job's runtime environment: the package is found by PYTHONPATH, as that of a checkout is."""
    return {"PYTHONPATH": str(ROOT / "python"), "DARKROOM_RAY_PROBE_SECONDS": str(PATIENCE), "RAY_JOB_STOP_WAIT_TIME_S": "90"}


class AsSubmitted:
    """The environment that the job server gives to a job's command."""

    def __init__(self, cluster: RayCluster) -> None:
        self.cluster = cluster

    def environment(self) -> dict[str, str]:
        job = {"runtime_env": {"env_vars": variables_of_a_job()}, "metadata": {"job_submission_id": "sampled"}}
        return {**self.cluster.environment(), **variables_of_a_job(), "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(job)}


def a_submitted_command_has_the_bytes_of_the_program() -> None:
    cluster = job_cluster()
    with temporary_folder() as folder:
        run("sample", *PICTURE, str(folder / "a.png"))
        Driver(AsSubmitted(cluster), ["sample", *PICTURE, str(folder / "b.png"), "--num-cpus-per-task", "0.5"]).finish()
        require((folder / "a.png").read_bytes() == (folder / "b.png").read_bytes(), "the picture differs from the program's")


def ask_job_server(cluster: RayCluster, path: str, body: dict | None = None) -> dict:
    """As `ray job` does. Errors: HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{cluster.dashboard}/api/jobs/{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return json.loads(reply.read())


def submit(cluster: RayCluster, name: str, words: list[str]) -> None:
    """The head's agent takes jobs some seconds after the head is up."""
    about = {"submission_id": name, "entrypoint": shlex.join([str(RAY_PYTHON), "-m", "darkroom_ray", *words]), "runtime_env": {"env_vars": variables_of_a_job()}}
    end = time.monotonic() + PATIENCE
    while True:
        try:
            ask_job_server(cluster, "", about)
            return
        except urllib.error.HTTPError as error:
            said = error.read().decode()
            require("No available agent" in said and time.monotonic() < end, "it is not taken", said)
        time.sleep(0.5)


def stop_job(name: str, words: list[str], folder: pathlib.Path) -> None:
    """Submits this command, and stops it once its program is at work, which must end in order."""
    cluster = job_cluster()
    if not cluster.dashboard:
        raise Skipped("this Ray has no job server: it is a part of ray[default]")
    submit(cluster, name, words)
    end = time.monotonic() + PATIENCE

    def wait_for(is_so, what: str) -> None:
        while not is_so():
            require(time.monotonic() < end, "never came:", what, ask_job_server(cluster, f"{name}/logs"))
            time.sleep(0.1)

    wait_for((folder / "begun").exists, "the program")
    ask_job_server(cluster, f"{name}/stop", {})
    wait_for(lambda: ask_job_server(cluster, name)["status"] == "STOPPED", "the end of the job")
    wait_for((folder / "given-back").exists, "the program's end in order")  # The job's shell may have ended before.


def a_stopped_job_ends_its_program_in_order() -> None:
    with temporary_folder() as folder:
        stop_job("stopped", ["sample", "--program", stand_in(folder)], folder)


def a_stopped_search_is_told_by_ray_and_once_by_its_driver() -> None:
    """Ray signals what the driver has started, too: to a search with a launcher a second signal is nothing."""
    with temporary_folder() as folder:
        stop_job("searched", ["tune", "--program", stand_in(folder, SEARCH)], folder)
        signals = (folder / "signals").read_text().split()
        require(len(signals) == 2, "signals", signals)


if __name__ == "__main__":
    main(
        [
            a_ray_of_its_own_does_the_work_and_leaves_nothing,
            ctrl_c_on_a_terminal_ends_the_program_in_order,
            a_ray_of_its_own_ends_with_a_killed_command,
            an_address_without_a_cluster_is_refused,
            a_submitted_command_has_the_bytes_of_the_program,
            a_stopped_job_ends_its_program_in_order,
            a_stopped_search_is_told_by_ray_and_once_by_its_driver,
        ]
    )
