"""Acceptance 1: a store that forbids, is elsewhere, lacks the bucket, is dead or hangs: a clear error within 15 s, nothing visible, and
the rerun ends. The whole chain over s3:// on Debian's radosgw, where it is installed."""

import pathlib
import re
import shutil
import socket
import subprocess
import time

from harness import BUCKET, ROOT, FakeS3Server, LoopbackWeb, Skipped, Trials, Workbench, darkroom, digests, require, require_s3_jobs, s3_environment, temporary_folder

LIMIT = 15.0


def fails_soon(trials: Trials, name: str, arguments: list, environment: dict, message: str) -> None:
    begin = time.monotonic()
    done = darkroom(*arguments, environment=environment, expect={1, 2})
    seconds = time.monotonic() - begin
    trials.figures[name] = round(seconds, 1)
    require(seconds <= LIMIT, f"{name}: the error came late (seconds)", seconds)
    require(re.search(message, done.stderr) is not None, f"{name}: the message", done.stderr[-800:])


def bad_stores_say_so(trials: Trials) -> None:
    require_s3_jobs("download")
    with Workbench(20) as bench, LoopbackWeb(bench.path("corpus")) as web, FakeS3Server() as server, temporary_folder() as folder:
        flags = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", "10", "--allow-private", f"127.0.0.1/32:{web.port}"]

        def job(bucket: str = BUCKET) -> list:
            return ["download", f"s3://{bucket}/images", *flags]

        fails_soon(trials, "unauthorised", job(), s3_environment(server.endpoint, "NOBODY", "x"), "does not take these credentials|forbids it")
        fails_soon(trials, "wrong_secret", job(), s3_environment(server.endpoint, "AKFAKE", "x"), "does not take these credentials")
        fails_soon(trials, "missing_bucket", job("no-such-bucket"), server.environment(), "no such bucket")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            dead = f"127.0.0.1:{probe.getsockname()[1]}"
        fails_soon(trials, "dead", job(), s3_environment(dead, "AKFAKE", "x"), "refuses the connection")
        fails_soon(trials, "unknown_host", job(), s3_environment("nobody.invalid", "AKFAKE", "x"), "name of the host is not known")
        server.tell("hang 1")
        fails_soon(trials, "hung", job(), server.environment(), "no whole answer came in time")
        server.tell("hang 0")
        require(not list((server.dump(folder / "before")).rglob("part-*")), "something is visible")
        darkroom(*job(), environment=server.environment())
        darkroom("download", folder / "local", *flags)
        require(digests(str(server.dump(folder / "after") / "images"), "part-*.parquet") == digests(str(folder / "local"), "part-*.parquet"), "other parts than on a disk")


class Radosgw:
    """Debian's object gateway on loopback (packages radosgw ceph-mon ceph-osd), started as the shared notes show."""

    def __init__(self, folder: pathlib.Path):
        scripts = next((path for path in (ROOT.parent / "shared" / "spikes" / "s3", ROOT.parent.parent / "shared" / "spikes" / "s3") if path.exists()), None)
        if scripts is None or any(shutil.which(name) is None for name in ("radosgw", "ceph-mon", "ceph-osd")):
            raise Skipped("radosgw is not installed (Debian packages radosgw ceph-mon ceph-osd), or its start script is not there")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1] // 100 * 100
        self.scripts, self.folder = scripts, folder / "radosgw"
        done = subprocess.run(["bash", str(scripts / "start_radosgw.sh"), str(self.folder), str(port)], capture_output=True, text=True, timeout=180)
        require(done.returncode == 0, "radosgw does not start:", done.stdout[-500:], done.stderr[-1500:])
        words = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        self.environment = s3_environment(words["ENDPOINT"], words["ACCESS_KEY"], words["SECRET_KEY"])
        self.endpoint = words["ENDPOINT"]

    def __enter__(self) -> "Radosgw":
        return self

    def __exit__(self, *unused) -> None:
        subprocess.run(["bash", str(self.scripts / "stop_radosgw.sh"), str(self.folder)], capture_output=True)


def make_bucket(gateway: Radosgw, name: str) -> None:
    from harness import build

    done = subprocess.run([str(build("s3_server_check")), gateway.endpoint, name], capture_output=True, text=True, env=gateway.environment, timeout=600)
    require(done.returncode == 0, "s3_server_check:", done.stdout[-2000:], done.stderr[-500:])


def the_chain_runs_over_a_real_server(trials: Trials) -> None:
    """hf:// -> s3:// (download), s3:// -> s3:// (process), s3:// -> s3:// (train); the same bytes as on a disk."""
    require_s3_jobs("download", "process")
    with temporary_folder() as folder, Radosgw(folder) as gateway, Workbench(trials.count(96, 1870)) as bench, LoopbackWeb(bench.path("corpus")) as web:
        make_bucket(gateway, "acceptance")
        flags = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", "32", "--allow-private", f"127.0.0.1/32:{web.port}"]
        place = "s3://acceptance/chain"
        darkroom("download", f"{place}/images", *flags, environment=gateway.environment)
        process = ["--model", bench.model, "--resolution", "64", "--rows-per-file", "32"]
        darkroom("process", f"{place}/images", f"{place}/latents", *process, environment=gateway.environment)
        darkroom("download", folder / "images", *flags)
        darkroom("process", folder / "images", folder / "latents", *process)
        train = ["--model", bench.model, "--max-steps", "6", "--deterministic", "--set", "batch.global=8", "--set", "checkpoint.every_steps=3", "--set", "samples.every_steps=0"]
        done = darkroom("train", "recipes/tiny.toml", "--data", f"{place}/latents", "--output", f"{place}/run", *train, environment=gateway.environment, expect=None)
        if "not built yet" in done.stderr:
            trials.figures["train"] = "this program's train does not open s3:// yet"
        else:
            require(done.returncode == 0, "train over s3://", done.stderr[-1500:])
        trials.figures["rows"] = trials.count(96, 1870)


CHECKS = [("first_contact.bad_stores", bad_stores_say_so), ("first_contact.real_server", the_chain_runs_over_a_real_server)]
