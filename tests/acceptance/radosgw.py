"""Acceptance 1: the whole chain, from a list on a hub to a trained run folder, over s3:// on a real server, Debian's radosgw (packages radosgw ceph-mon
ceph-osd) on loopback."""

import pathlib
import shutil
import socket
import subprocess

import pyarrow.parquet as pq

from chain import LIST, ListOnHub
from harness import Skipped, Trials, Workbench, darkroom, digests, require, s3_environment, temporary_folder

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("radosgw", "radosgw-admin", "ceph", "ceph-mon", "ceph-osd")
BUCKET = "acceptance"
NUM_PICTURES = (96, 1870)
NUM_ROWS = (96, 20_000)
ROWS_PER_FILE = (32, 250)


def free_ports() -> int:
    """The first of 50 ports, of which radosgw_start.sh wants some."""
    for first in range(20_000, 32_000, 50):
        try:
            for port in (first, first + 1, first + 10):
                socket.create_server(("127.0.0.1", port)).close()
            return first
        except OSError:
            continue
    raise Skipped("no row of free ports for radosgw")


class Radosgw:
    """A server of its own: a monitor, one disk in memory, a gateway. All that it writes is in `folder`."""

    def __init__(self, folder: pathlib.Path):
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            raise Skipped(f"radosgw is not installed (Debian packages radosgw ceph-mon ceph-osd; missing: {', '.join(missing)})")
        self.folder = folder
        done = subprocess.run(["bash", str(HERE / "radosgw_start.sh"), str(folder), str(free_ports())], capture_output=True, text=True, timeout=180)
        require(done.returncode == 0, "radosgw does not start:", done.stdout[-500:], done.stderr[-1500:])
        words = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        self.endpoint = words["ENDPOINT"]
        self.environment = s3_environment(words["ENDPOINT"], words["ACCESS_KEY"], words["SECRET_KEY"])

    def __enter__(self) -> "Radosgw":
        return self

    def __exit__(self, *unused) -> None:
        subprocess.run(["bash", str(HERE / "radosgw_stop.sh"), str(self.folder)], capture_output=True, check=True)

    def other_client(self):
        """pyarrow's: what we store is looked at by another client than ours."""
        import pyarrow.fs

        return pyarrow.fs.S3FileSystem(access_key=self.environment["AWS_ACCESS_KEY_ID"], secret_key=self.environment["AWS_SECRET_ACCESS_KEY"],
                                       endpoint_override=self.endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True)

    def fetch(self, place: str, folder: pathlib.Path) -> None:
        import pyarrow.fs

        folder.mkdir(parents=True)
        pyarrow.fs.copy_files(place, str(folder), source_filesystem=self.other_client())


def num_rows_of(folder: pathlib.Path) -> int:
    return sum(pq.ParquetFile(part).metadata.num_rows for part in folder.glob("part-*.parquet"))


def the_chain_runs_over_a_real_server(trials: Trials) -> None:
    """download hf:// -> s3://, process s3:// -> s3://, train on s3:// with its run folder there; the same parts and weights as on a disk."""
    num_rows, rows_per_file = trials.count(*NUM_ROWS), str(trials.count(*ROWS_PER_FILE))
    with temporary_folder() as folder, Radosgw(folder / "radosgw") as gateway, Workbench(trials.count(*NUM_PICTURES)) as bench, ListOnHub(bench, folder, num_rows) as given:
        gateway.other_client().create_dir(BUCKET)
        place, environment = f"s3://{BUCKET}/chain", gateway.environment | given.environment()
        download = ["--rows-per-file", rows_per_file, *given.web_flags]
        process = ["--model", bench.model, "--resolution", "64", "--rows-per-file", rows_per_file]
        darkroom("download", f"{place}/images", "--metadata", LIST, *download, environment=environment)
        given.require_read()
        darkroom("process", f"{place}/images", f"{place}/latents", *process, environment=environment)
        darkroom("download", folder / "images", "--metadata", given.tables, *download)
        darkroom("process", folder / "images", folder / "latents", *process)
        for name in ("images", "latents"):
            gateway.fetch(f"{BUCKET}/chain/{name}", folder / "fetched" / name)
            want = digests(str(folder / name), "part-*.parquet")
            require(bool(want) and digests(str(folder / "fetched" / name), "part-*.parquet") == want, "other parts than on a disk", name)
            require(num_rows_of(folder / "fetched" / name) == num_rows, "rows in the bucket", name, num_rows_of(folder / "fetched" / name))
        sizes = ["--set", "batch.global=8", "--set", "checkpoint.every_steps=3", "--set", "samples.every_steps=0"]
        train = ["train", "recipes/tiny.toml", "--model", bench.model, "--max-steps", "6", "--deterministic", *sizes]
        darkroom(*train, "--data", f"{place}/latents", "--output", f"{place}/run", environment=environment)
        darkroom(*train, "--data", folder / "latents", "--output", folder / "run")
        gateway.fetch(f"{BUCKET}/chain/run", folder / "fetched" / "run")
        want = digests(str(folder / "run"), "**/*.safetensors")
        require(bool(want) and digests(str(folder / "fetched" / "run"), "**/*.safetensors") == want, "other weights than on a disk", want)
        trials.figures.update(rows=num_rows, steps=6, weights=len(want))


CHECKS = [("radosgw.chain", the_chain_runs_over_a_real_server)]
