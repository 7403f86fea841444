#!/usr/bin/env python3
"""The whole chain as one pipeline on a cluster, on a disk and over s3:// where Debian's radosgw is installed: a list on a hub (a stand-in on
loopback), pictures, latents of two sizes, training, training from pictures, a sheet of pictures; the bytes of the single program, its counts, and
the job's numbers on Ray's metrics port. Debian's Prometheus, where it is installed, scrapes the chain on a disk and an endpoint on the same
cluster, and every panel of deploy/grafana must find numbers there. And the operators of `import darkroom` in Ray Data. With kills: ray_kills.py.

usage: cluster.py [SHEET.png]       where the sheet of the chain on a disk goes
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
from cluster_watch import CHAIN_PATIENCE, GatedWeb, Watch, environment_to_watch
from harness import Skipped, Workbench, darkroom, digests, require, temporary_folder
from PIL import Image
from radosgw import BUCKET, Radosgw

from cases import main
from ray_bench import RAY_PYTHON, Driver, RayCluster
from workbench import ROOT, LoopbackWeb, numbers_at

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from fake_hub import FakeHub  # noqa: E402

SHEET_PATH = sys.argv[1] if len(sys.argv) > 1 else ""
NUM_ROWS = 160
NUM_GOOD = NUM_ROWS - 1  # One picture is not there.
TRAIN = ["recipes/tiny.toml", "--set", "batch.global=8", "--set", "batch.micro=2", "--set", "runtime.gradient_groups=4", "--set", "checkpoint.every_steps=4", "--set", "samples.every_steps=0", "--set", "runtime.watchdog_seconds=3600"]  # A rank may stand for a while.
SPREAD = ["--num-cpus-per-task", "0.5"]
STAGED = ROOT / "build" / "release" / "python"
MISSING_PACKAGES = "import importlib.util; print(*(name for name in ('numpy', 'pyarrow') if importlib.util.find_spec(name) is None))"
LIST = "hf://datasets/org/list/data/*.parquet"
ONLINE = ["--set", "batch.global=12", "--set", "batch.micro=1", "--set", "checkpoint.every_steps=4", "--set", "samples.every_steps=0", "--set", "data.memory_bytes=1048576", "--max-steps", "4"]
PATIENT = ["--timeout", "86400"]  # Pictures may be held back.
SHEET = ["--prompt", "a red heart", "a blue circle", "--images", "2", "--grid", "--steps", "4"]


def write_recipe(path: pathlib.Path, out: str, bench: Workbench, port: int, metrics_folder: pathlib.Path | None) -> None:
    """256 px and 512 px of the real thing are 64 and 128 px here. `metrics_folder`: where the programs tell their addresses, and what makes them
    show all numbers that they have."""
    seen = ["--metrics-folder", str(metrics_folder), "--price-per-hour", "p4de.24xlarge:spot"] if metrics_folder else []
    seen_ranks = [*seen, "--tflops", "1"] if seen else []
    stages = [("images", "download", ["${out}/images", "--metadata", "${urls}", "--rows-per-file", "16", "--allow-private", f"127.0.0.1/32:{port}", *PATIENT, "--resources", "cpu=0.5", *seen])]
    for side, more in ((64, []), (128, ["--init-from", "${run-64.checkpoint}"])):
        stages.append((f"latents-{side}", "process", ["${out}/images", f"${{out}}/latents-{side}", "--model", "${model}", "--resolution", str(side), "--rows-per-file", "16", "--num-encoders", "2", "--resources", "encoder=1", *seen]))
        stages.append((f"run-{side}", "train", [*TRAIN, "--data", f"${{out}}/latents-{side}", "--set", f"data.resolution={side}", "--model", "${model}", "--output", f"${{out}}/run-{side}", "--max-steps", "8",
                                               "--num-training-workers", "2", "--resources", "trainer=1", *more, *seen_ranks]))
    stages.append(("run-online", "online", ["recipes/tiny.toml", "--raw-data", "${out}/images", "--model", "${model}", "--output", "${out}/run-online", *ONLINE, "--resources", "trainer=1",
                                            "--num-encoders", "2", "--num-cpus-per-encoder", "0.5", "--encoder-resources", "encoder=1", *seen_ranks]))
    stages.append(("pictures", "sample", ["--model", "${run-128.checkpoint}", "--frozen", "${model}", *SHEET, "--output", "${out}/heart.png"]))
    values = {"out": out, "urls": LIST, "model": bench.model}
    text = "[values]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    for name, verb, arguments in stages:
        text += f"\n[[stage]]\nname = {json.dumps(name)}\nverb = {json.dumps(verb)}\narguments = {json.dumps([*arguments, *SPREAD])}\n"
    path.write_text(text, encoding="utf-8")


def put_list_on_hub(hub: FakeHub, bench: Workbench, port: int) -> None:
    place = hub.root / "datasets" / "org" / "list" / "data" / "urls.parquet"
    place.parent.mkdir(parents=True)
    shutil.copy(bench.write_url_table(port), place)
    next(iter(sorted(pathlib.Path(bench.path("corpus"), "pictures").iterdir()))).unlink()


def rows_on_metrics_port(cluster: RayCluster, verb: str) -> float:
    """As the job's driver counted them; -1 while nobody answers."""
    page = numbers_at(f"127.0.0.1:{cluster.metrics_port}")
    if not page:
        return -1.0
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("ray_darkroom_ray_rows_total{") and f'verb="{verb}"' in line)


def check_summaries(stages: list[dict]) -> None:
    """Of the report: each row was done once, and each step."""
    by_name = {stage["name"]: stage["train" if stage["verb"] == "online" else stage["verb"]] for stage in stages}
    require(by_name["images"]["rows_in"] == NUM_ROWS and by_name["images"]["rows_out"] == NUM_GOOD and by_name["images"]["rows_by_error"] == {"http_404": 1}, "rows", by_name["images"])
    require(all(by_name[name]["rows_in"] == by_name[name]["rows_out"] == NUM_GOOD for name in ("latents-64", "latents-128")), "rows", by_name)
    require(all(by_name[name]["cluster"]["items"] + by_name[name]["cluster"]["items_there"] == by_name[name]["items_to_do"] == NUM_ROWS // 16 for name in ("images", "latents-64", "latents-128")), "items", by_name)
    require([by_name[name]["steps"] for name in ("run-64", "run-128", "run-online")] == [8, 8, 4], "steps", by_name)
    require(all(max(by_name[name]["cluster"]["ranks"]) == 2 for name in ("run-64", "run-128")) and by_name["run-online"]["cluster"]["encoders"] == 2, "ranks and encoders", by_name)
    require(by_name["pictures"]["rows_out"] == 4, "pictures", by_name["pictures"])


def weights_written(files: pyarrow.fs.FileSystem, place: str) -> dict[str, int]:
    """When, of the runs below `place`."""
    found = files.get_file_info(pyarrow.fs.FileSelector(place, recursive=True))
    return {info.path: info.mtime_ns for info in found if "/checkpoints/" in info.path and info.path.endswith(".safetensors")}


def pictures_in(folder: pathlib.Path) -> dict[str, tuple]:
    """The sheet and what is on it: pixels and what their files say of them, but for the model's place."""
    found = {}
    for path in folder.glob("heart*.png"):
        with Image.open(path) as picture:
            found[path.name] = (picture.size, picture.tobytes(), {name: value for name, value in picture.info.items() if name != "model"})
    return found


def await_rows(cluster: RayCluster, driver: Driver) -> None:
    for verb in ("download", "process"):  # How many is the summaries' matter: an item whose worker was lost behind its commit counts as one that was there.
        driver.wait_for(lambda: rows_on_metrics_port(cluster, verb) > 0, f"rows of {verb} on Ray's metrics port", CHAIN_PATIENCE)


def run_pipeline(folder: pathlib.Path, cluster: RayCluster, report: str, beside=lambda driver: None) -> dict:
    """Its report. beside(driver) is called while it is at work."""
    driver: Driver = cluster.start("pipeline", folder / "chain.toml", "--report", folder / report)
    try:
        beside(driver)
    except BaseException:
        driver.process.kill()
        raise
    driver.finish(patience=CHAIN_PATIENCE)
    return json.loads((folder / report).read_text())


def run_single_program(folder: pathlib.Path, bench: Workbench, port: int, environment: dict[str, str]) -> None:
    darkroom("download", folder / "images", "--metadata", LIST, "--rows-per-file", "16", "--allow-private", f"127.0.0.1/32:{port}", *PATIENT, environment=environment)
    for side, more in ((64, []), (128, ["--init-from", folder / "run-64/checkpoints/step-00000008"])):
        darkroom("process", folder / "images", folder / f"latents-{side}", "--model", bench.model, "--resolution", str(side), "--rows-per-file", "16")
        darkroom("train", *TRAIN, "--data", folder / f"latents-{side}", "--set", f"data.resolution={side}", "--model", bench.model, "--output", folder / f"run-{side}", "--max-steps", "8", *more)
    darkroom("train", "recipes/tiny.toml", "--raw-data", folder / "images", "--model", bench.model, "--output", folder / "run-online", *ONLINE)
    darkroom("sample", "--model", folder / "run-128/checkpoints/step-00000008", "--frozen", bench.model, *SHEET, "--output", folder / "heart.png")


def run_chain(out: str, fetch, environment: dict[str, str], store: pyarrow.fs.FileSystem, watch_of=None) -> None:
    """The pipeline into `out` (of `store`; without one into a folder), twice; then the single program into a folder: the same parts, weights and
    pictures. watch_of(folder, cluster): who looks on the first time."""
    with temporary_folder() as folder, Workbench(NUM_ROWS) as bench, GatedWeb(bench.path("corpus")) as web, FakeHub(folder / "hub") as hub, contextlib.ExitStack() as stack:
        put_list_on_hub(hub, bench, web.port)
        of_hub = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "no-home")}
        cluster = RayCluster({**environment, **of_hub})
        stack.callback(cluster.close)
        place = out or str(folder / "out")
        watch = stack.enter_context(contextlib.closing(watch_of(folder, cluster))) if watch_of else None
        write_recipe(folder / "chain.toml", place, bench, web.port, watch.stages if watch else None)
        if watch is None:
            web.is_open.set()
        report = run_pipeline(folder, cluster, "report.json", lambda driver: watch.follow(driver, web, place) if watch else await_rows(cluster, driver))
        require([stage["exit_code"] for stage in report["stages"]] == 7 * [0], "a stage failed", report)
        if watch is not None:
            costs = [stage[part]["dollars"] for stage in report["stages"] for part in ("download", "process", "train") if part in stage]
            require(len(costs) == 6 and min(costs) > 0 and report["dollars"] == sum(costs), "what the stages have cost", costs, report.get("dollars"))
            watch.judge(bench.model)
        written = weights_written(store, place.removeprefix("s3://"))
        again = run_pipeline(folder, cluster, "again.json")
        stack.close()
        require(len(written) >= 3 and weights_written(store, place.removeprefix("s3://")) == written, "weights were written a second time", written)
        check_summaries(report["stages"])
        require(all(stage[stage["verb"]]["cluster"]["items"] == 0 for stage in again["stages"] if stage["verb"] in ("download", "process")), "a stage was done twice", again)
        got = fetch(folder)
        run_single_program(folder, bench, web.port, {**os.environ, **of_hub})
        parts = [(name, "part-*") for name in ("images", "latents-64", "latents-128")]
        weights = [(name, "checkpoints/*/**/*.safetensors") for name in ("run-64", "run-128", "run-online")]
        for name, pattern in (*parts, *weights):
            want = digests(str(folder / name), pattern)
            require(bool(want) and digests(str(got / name), pattern) == want, "other bytes than the single program's", name)
        want = pictures_in(folder)
        require(len(want) == 5 and pictures_in(got) == want, "other pictures than the single program's", sorted(want), sorted(pictures_in(got)))
        if SHEET_PATH and not out:
            shutil.copy(got / "heart.png", SHEET_PATH)
        print(f"the chain of {NUM_ROWS} rows took {report['seconds_total']:.0f} s: " + ", ".join(f"{stage['name']} {stage['seconds']:.0f} s" for stage in report["stages"]), flush=True)


def the_chain_runs_as_a_pipeline_on_a_disk_and_every_panel_finds_numbers() -> None:
    is_watched = shutil.which("prometheus") is not None
    run_chain("", lambda folder: folder / "out", environment_to_watch() if is_watched else {}, pyarrow.fs.LocalFileSystem(), Watch if is_watched else None)
    if not is_watched:
        raise Skipped("the chain runs, but nobody has looked at the panels: there is no prometheus; apt-get install prometheus")


def the_chain_runs_as_a_pipeline_over_s3() -> None:
    with temporary_folder() as folder, Radosgw(folder / "radosgw") as gateway:
        gateway.other_client().create_dir(BUCKET)

        def fetch(place: pathlib.Path) -> pathlib.Path:
            gateway.fetch(f"{BUCKET}/chain", place / "fetched")
            return place / "fetched"

        run_chain(f"s3://{BUCKET}/chain", fetch, gateway.environment, gateway.other_client())


def path_of_operators(folder: pathlib.Path) -> str:
    """PYTHONPATH for .venv-ray, which has pyarrow but no torch: the staged package, and this environment's torch, whose libraries it shares."""
    torch = importlib.util.find_spec("torch")
    if not STAGED.exists() or torch is None:
        raise Skipped("there is no build/release/python (make python), or no torch in this environment")
    (folder / "packages").mkdir()
    (folder / "packages" / "torch").symlink_to(torch.submodule_search_locations[0])
    path = f"{STAGED}:{folder / 'packages'}"
    missing = subprocess.run([RAY_PYTHON, "-c", MISSING_PACKAGES], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=True).stdout.split()
    if missing:
        raise Skipped(f".venv-ray cannot import the staged package: it lacks {', '.join(missing)}")
    tried = subprocess.run([RAY_PYTHON, "-c", "import darkroom; darkroom.Encode"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)
    require(tried.returncode == 0, "the staged package cannot be imported", tried.stderr[-3000:])
    return path


def rows_by_key(folder: pathlib.Path, pattern: str) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob(pattern))]).sort_by("key").combine_chunks()


def operators_in_ray_data_have_the_rows_of_process() -> None:
    """`Encode` in actors, and behind `Transform`, as docs/python.md says."""
    with temporary_folder() as folder, Workbench(NUM_ROWS) as bench, LoopbackWeb(bench.path("corpus")) as web:
        cluster = RayCluster(kinds=("cpu",))
        try:
            path = path_of_operators(folder)
            darkroom("download", folder / "images", "--metadata", bench.write_url_table(web.port), "--rows-per-file", "16", "--allow-private", f"127.0.0.1/32:{web.port}")
            darkroom("process", folder / "images", folder / "latents", "--model", bench.model, "--resolution", "64", "--rows-per-file", "16")
            command = [RAY_PYTHON, pathlib.Path(__file__).with_name("ray_data_operators.py"), folder / "images", bench.model, "64", folder]
            done = subprocess.run(command, capture_output=True, text=True, env={**cluster.environment(), "PYTHONPATH": path}, timeout=1800, check=False)
            require(done.returncode == 0, "Ray Data", done.stderr[-4000:])
        finally:
            cluster.close()
        want = rows_by_key(folder / "latents", "part-*.parquet")
        require(want.num_rows == NUM_ROWS, "rows of process", want.num_rows)
        for name in ("encode", "both"):
            require(rows_by_key(folder / name, "*.parquet").equals(want), "other rows than those of process", name)


if __name__ == "__main__":
    main([the_chain_runs_as_a_pipeline_on_a_disk_and_every_panel_finds_numbers, the_chain_runs_as_a_pipeline_over_s3, operators_in_ray_data_have_the_rows_of_process])
