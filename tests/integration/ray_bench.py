"""What the tests of darkroom-ray share: a cluster of three nodes, the command, and the processes that it starts."""

import atexit
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable

from cases import made_once
from workbench import PROGRAM, ROOT, Skipped, parent_of, require

RAY_PYTHON = ROOT / ".venv-ray" / "bin" / "python"
PATIENCE = 300  # Seconds; a limit, no measure.
START_SECONDS = 300
LEAST_FREE_BYTES = 3 << 30  # For three nodes of Ray beside what else runs.


class RayCluster:
    """The cluster of ray_cluster.py. Ends with this process. `more`: environment of its nodes, of the command and of the programs; `kinds`: of
    its nodes, instead of one of each."""

    def __init__(self, more: dict[str, str] | None = None, kinds: tuple[str, ...] = ()) -> None:
        if not RAY_PYTHON.exists():
            raise Skipped("there is no .venv-ray; tools/build/setup.sh ray installs it")
        if free_bytes() < LEAST_FREE_BYTES:
            raise Skipped(f"three nodes of Ray want {LEAST_FREE_BYTES >> 30} GB of free memory, and there are {free_bytes() / (1 << 30):.1f}")
        self.folder = tempfile.mkdtemp(prefix="dr-ray-", dir="/tmp")  # Ray's sockets lie below it, and their paths must be short.
        self.more = more or {}
        with open(pathlib.Path(self.folder, "said"), "w", encoding="utf-8") as said:
            self.process = subprocess.Popen([RAY_PYTHON, pathlib.Path(__file__).with_name("ray_cluster.py"), self.folder, *kinds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, env={**os.environ, **self.more})
        about = self._first_words()
        self.address, self.raylets, self.head = about["address"], about["raylets"], about["head"]
        self.metrics_port = about["metrics"]  # Where Ray shows what drivers count.
        self.dashboard = about["dashboard"]  # Where jobs are submitted; "": it has none.
        self.has_head = True

    def _first_words(self) -> dict:
        """Errors: Skipped, where the machine is too slow; AssertionError, where the script has ended without a cluster."""
        in_time = bool(select.select([self.process.stdout], [], [], START_SECONDS)[0])
        line = self.process.stdout.readline() if in_time else ""
        if not line:
            self.process.kill()
            self.process.wait()
        said = pathlib.Path(self.folder, "said").read_text(encoding="utf-8")
        if not in_time:
            raise Skipped(f"Ray does not start on this machine in {START_SECONDS} s: {said[-300:]}")
        require(bool(line), "the cluster's script has ended:", said[-3000:])
        return json.loads(line)

    def heard(self) -> dict:
        line = self.process.stdout.readline()
        require(bool(line), "the cluster has ended:", pathlib.Path(self.folder, "said").read_text()[-3000:])
        return json.loads(line)

    def kill_node(self, kind: str) -> None:
        os.kill(self.raylets[kind], signal.SIGKILL)

    def kill_head(self) -> None:
        """What the whole cluster asks, and the node that it lies on. Nothing of this cluster works for long after it."""
        for pid in self.head:
            os.kill(pid, signal.SIGKILL)
        self.has_head = False

    def add_node(self, kind: str) -> None:
        self.process.stdin.write(f"add {kind}\n")
        self.process.stdin.flush()
        self.raylets[kind] = self.heard()["raylet"]

    def nodes(self) -> list[dict[str, str]]:
        """The labels of each that is alive."""
        self.process.stdin.write("nodes\n")
        self.process.stdin.flush()
        return self.heard()["nodes"]

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(60 if self.has_head else 0)  # Without a head there is nobody to end it in order.
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in of_session(self.process.pid):  # Nodes that an autoscaler has brought end late by themselves.
            kill(pid)
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.more,
            "PYTHONPATH": str(ROOT / "python"),
            "DARKROOM_PROGRAM": str(PROGRAM),
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "disabled",
            "RAY_TMPDIR": self.folder,
            "RAY_USAGE_STATS_ENABLED": "0",
            "DARKROOM_RAY_PROBE_SECONDS": str(PATIENCE),
        }

    def start(self, *arguments) -> "Driver":
        return Driver(self, [str(argument) for argument in arguments])

    def run(self, *arguments, expect: int = 0) -> str:
        """Runs darkroom-ray to its end; what it said."""
        return self.start(*arguments).finish(expect)


def cluster_of_script(*arguments, **more) -> Callable[[], RayCluster]:
    """Started when a case asks for it first; ends with the script. Errors: Skipped, told to each."""

    def start() -> RayCluster:
        cluster = RayCluster(*arguments, **more)
        atexit.register(cluster.close)
        return cluster

    return made_once(start)


class Driver:
    """A `darkroom-ray` that is at work."""

    def __init__(self, cluster, arguments: list[str], has_own_session: bool = False) -> None:
        """`cluster`: a RayCluster, or what else has the command's environment()."""
        self.arguments = arguments
        self.said = tempfile.TemporaryFile("w+")
        command = [RAY_PYTHON, "-m", "darkroom_ray", *arguments]
        self.process = subprocess.Popen(command, stdout=self.said, stderr=self.said, text=True, cwd=ROOT, env=cluster.environment(), start_new_session=has_own_session)

    def words(self) -> str:
        self.said.seek(0)
        return self.said.read()

    def finish(self, expect: int = 0, patience: float = PATIENCE) -> str:
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"darkroom-ray {' '.join(self.arguments)} does not end: {self.words()[-4000:]}") from None
        require(self.process.returncode == expect, "darkroom-ray", " ".join(self.arguments), "exit code", self.process.returncode, "want", expect, self.words()[-4000:])
        return self.words()

    def wait_for(self, is_so, what: str, patience: float = PATIENCE):
        """What is_so() gives, once it is something; the command must be at work still."""
        end = time.monotonic() + patience
        while True:
            found = is_so()
            if found:
                return found
            require(self.process.poll() is None, "the command ended before", what, self.words()[-4000:])
            require(time.monotonic() < end, "never came:", what, self.words()[-4000:])
            time.sleep(0.02)


def of_session(leader: int) -> list[int]:
    """Process ids of those whose session this process has begun."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            found += [int(folder.name)] if int(fields[3]) == leader else []
    return found


def free_bytes() -> int:
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def programs(*words) -> list[int]:
    """Process ids of the programs that have these words on their command lines, without what they start themselves."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if line[0] == str(PROGRAM) and all(str(word) in line for word in words):
                found.append(int(folder.name))
    return [pid for pid in found if parent_of(pid) not in found]  # A child looks like its parent until it runs its own program.


def described(pid: int) -> str:
    """A process as somebody wants to see it who asks why it is still there, and its parent."""
    lines = []
    for one in (pid, parent_of(pid)):
        with contextlib.suppress(OSError):
            folder = pathlib.Path("/proc", str(one))
            status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
            lines.append(f"{one} ({status['State']}, parent {status['PPid']}): {(folder / 'cmdline').read_bytes().decode(errors='replace').replace(chr(0), ' ')[:300]}")
    return "; its parent ".join(lines)


def kill(pid: int) -> bool:
    """Whether it was there."""
    if pid <= 1:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def hold(pid: int) -> bool:
    """Whether it was there. What is held neither ends nor lets its task end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        return True
    return False


def parts_in(folder: str) -> int:
    with contextlib.suppress(FileNotFoundError):  # The look at the nodes makes the folder and takes it away.
        return len(list(pathlib.Path(folder).glob("part-*.parquet")))
    return 0
