"""The reference template's job (ray_data_template.py) under the kills of ray_kills.py: rows that are lost or there twice at its end."""

import contextlib
import pathlib
import random
import subprocess
import tempfile
import time
import zlib

import pyarrow.parquet as pq

from harness import require

from ray_bench import PATIENCE, RAY_PYTHON, RayCluster, kill, parent_of

TEMPLATE = pathlib.Path(__file__).with_name("ray_data_template.py")
ROWS_PER_FILE = 4
SEED = 20261125
TRIES = 5
RUNS = 3  # Of the same command, until it ends well.


def workers_of(cluster: RayCluster, is_actor: bool) -> list[int]:
    """Ray's workers of this cluster that are at work on the data: encoders, or tasks."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            title = (folder / "cmdline").read_bytes().decode(errors="replace")
            is_of_data = "MapWorker" in title if is_actor else title.startswith(("ray::ReadParquet", "ray::MapBatches", "ray::Write"))
            if title.startswith("ray::") and is_of_data and parent_of(int(folder.name)) in cluster.raylets.values():
                found.append(int(folder.name))
    return sorted(found)


class Rival:
    def __init__(self, folder: pathlib.Path, num_rows: int, images: str, clusters) -> None:
        self.folder, self.num_rows, self.clusters = folder, num_rows, clusters
        self.input = folder / "template-input"
        self.input.mkdir()
        table = pq.read_table(images)
        for first in range(0, num_rows, ROWS_PER_FILE):
            pq.write_table(table.slice(first, ROWS_PER_FILE), self.input / f"part-{first:06d}.parquet")
        self.keys = table["key"].to_pylist()

    def start(self, cluster: RayCluster, output: pathlib.Path) -> tuple[subprocess.Popen, object]:
        said = tempfile.TemporaryFile("w+")
        # The newer reader waits for ever where its actors find no CPU beside the job's own.
        environment = {**cluster.environment(), "RAY_DATA_USE_DATASOURCE_V2": "0"}
        return subprocess.Popen([RAY_PYTHON, str(TEMPLATE), str(self.input), str(output)], stdout=said, stderr=said, env=environment), said

    def wait_for_files(self, process: subprocess.Popen, output: pathlib.Path, moment: int) -> None:
        end = time.monotonic() + PATIENCE
        while process.poll() is None and len(list(output.glob("*.parquet"))) <= moment:
            require(time.monotonic() < end, "ray.data writes nothing", output)
            time.sleep(0.02)

    def strike(self, kind: str, process: subprocess.Popen, generator: random.Random) -> bool:
        cluster = self.clusters.get()
        if process.poll() is not None:
            return False
        if kind == "driver":
            return kill(process.pid)
        if kind == "head":
            cluster.kill_head()
            return True
        if kind == "node":
            cluster.kill_node("encoder")
            cluster.add_node("encoder")
            return True
        end = time.monotonic() + 2  # A task lives for a moment only.
        while not (found := workers_of(cluster, kind == "actor")) and time.monotonic() < end:
            time.sleep(0.01)
        return bool(found) and kill(generator.choice(found))

    def run_once(self, name: str, kind: str, generator: random.Random) -> dict:
        """One run with one kill (kind "": none), then the same command until it ends well."""
        output = self.folder / f"template-{name}"
        process, said = self.start(self.clusters.get(), output)
        is_hit = False
        if kind:
            self.wait_for_files(process, output, generator.randrange(self.num_rows // ROWS_PER_FILE - 12))
            time.sleep(generator.uniform(0, 0.3))
            is_hit = self.strike(kind, process, generator)
        codes = [self.finish(process, said)]
        if kind == "head" and is_hit:
            self.clusters.close()
        while codes[-1] != 0:
            require(len(codes) < RUNS, "ray.data does not come to its end", kind, codes)
            codes.append(self.finish(*self.start(self.clusters.get(), output)))
        keys = [key for path in output.glob("*.parquet") for key in pq.read_table(path, columns=["key"])["key"].to_pylist()]
        return {"hit": is_hit, "exit_code": codes[0], "runs": len(codes), "lost": len(set(self.keys) - set(keys)), "twice": len(keys) - len(set(keys))}

    def finish(self, process: subprocess.Popen, said) -> int:
        with said:
            try:
                return process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return -1

    def run_until_hit(self, kind: str, number: int) -> dict:
        for attempt in range(TRIES):
            generator = random.Random(SEED + 1000 * zlib.crc32(kind.encode()) + 10 * number + attempt)
            found = self.run_once(f"{kind}-{number}-{attempt}", kind, generator)
            if found["hit"]:
                return found
        raise AssertionError(f"no kill of {TRIES} hit ray.data's job ({kind}, {number})")
