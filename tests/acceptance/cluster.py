#!/usr/bin/env python3
"""The whole chain as one pipeline on a cluster, on a disk and over s3:// where Debian's radosgw is installed: the bytes of the single program.
With kills: ray_kills.py.

usage: cluster.py [PICTURE.png]       where the picture of the chain on a disk goes
"""

import json
import pathlib
import shutil
import sys
import time

from harness import LoopbackWeb, Workbench, darkroom, digests, require, temporary_folder
from radosgw import BUCKET, Radosgw

from cases import main
from ray_bench import RayCluster

PICTURE = sys.argv[1] if len(sys.argv) > 1 else ""
NUM_ROWS = 160
TRAIN = ["recipes/tiny.toml", "--set", "batch.global=8", "--set", "batch.micro=2", "--set", "runtime.gradient_groups=4", "--set", "checkpoint.every_steps=4", "--set", "samples.every_steps=0"]
SPREAD = ["--num-cpus-per-task", "0.5"]


def write_recipe(path: pathlib.Path, out: str, bench: Workbench, port: int) -> None:
    """256 px and 512 px of the real thing are 64 and 128 px here."""
    stages = [("images", "download", ["${out}/images", "--metadata", "${urls}", "--rows-per-file", "16", "--allow-private", f"127.0.0.1/32:{port}", "--resources", "cpu=0.5"])]
    for side, more in ((64, []), (128, ["--init-from", "${run-64.checkpoint}"])):
        stages.append((f"latents-{side}", "process", ["${out}/images", f"${{out}}/latents-{side}", "--model", "${model}", "--resolution", str(side), "--rows-per-file", "16", "--num-encoders", "2", "--resources", "encoder=1"]))
        stages.append((f"run-{side}", "train", [*TRAIN, "--data", f"${{out}}/latents-{side}", "--set", f"data.resolution={side}", "--model", "${model}", "--output", f"${{out}}/run-{side}", "--max-steps", "8",
                                               "--num-training-workers", "2", "--resources", "trainer=1", *more]))
    stages.append(("pictures", "sample", ["--model", "${run-128.checkpoint}", "--frozen", "${model}", "--prompt", "a red heart", "--steps", "4", "--output", "${out}/heart.png"]))
    values = {"out": out, "urls": bench.write_url_table(port), "model": bench.model}
    text = "[values]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    for name, verb, arguments in stages:
        text += f"\n[[stage]]\nname = {json.dumps(name)}\nverb = {json.dumps(verb)}\narguments = {json.dumps([*arguments, *SPREAD])}\n"
    path.write_text(text, encoding="utf-8")


def run_chain(out: str, fetch, environment: dict[str, str]) -> None:
    """The pipeline into `out`, twice; then the single program into a folder: the same parts and weights."""
    with temporary_folder() as folder, Workbench(NUM_ROWS) as bench, LoopbackWeb(bench.path("corpus")) as web:
        write_recipe(folder / "chain.toml", out or str(folder / "out"), bench, web.port)
        cluster = RayCluster(environment)
        try:
            begin = time.monotonic()
            cluster.run("pipeline", folder / "chain.toml", "--report", folder / "report.json")
            first = time.monotonic() - begin
            cluster.run("pipeline", folder / "chain.toml", "--report", folder / "again.json")
        finally:
            cluster.close()
        report, again = (json.loads((folder / name).read_text()) for name in ("report.json", "again.json"))
        require([stage["exit_code"] for stage in report["stages"]] == 6 * [0], "a stage failed", report)
        require(all(stage[stage["verb"]]["cluster"]["items"] == 0 for stage in again["stages"] if stage["verb"] in ("download", "process")), "a stage was done twice", again)
        got = fetch(folder)
        darkroom("download", folder / "images", "--metadata", bench.path("urls.parquet"), "--rows-per-file", "16", "--allow-private", f"127.0.0.1/32:{web.port}")
        for side, more in ((64, []), (128, ["--init-from", folder / "run-64/checkpoints/step-00000008"])):
            darkroom("process", folder / "images", folder / f"latents-{side}", "--model", bench.model, "--resolution", str(side), "--rows-per-file", "16")
            darkroom("train", *TRAIN, "--data", folder / f"latents-{side}", "--set", f"data.resolution={side}", "--model", bench.model, "--output", folder / f"run-{side}", "--max-steps", "8", *more)
        for name, pattern in (("images", "part-*"), ("latents-64", "part-*"), ("latents-128", "part-*"), ("run-64", "checkpoints/*/**/*.safetensors"), ("run-128", "checkpoints/*/**/*.safetensors")):
            want = digests(str(folder / name), pattern)
            require(bool(want) and digests(str(got / name), pattern) == want, "other bytes than the single program's", name)
        if PICTURE and not out:
            shutil.copy(got / "heart.png", PICTURE)
        print(f"the chain of {NUM_ROWS} rows took {first:.0f} s: " + ", ".join(f"{stage['name']} {stage['seconds']:.0f} s" for stage in report["stages"]), flush=True)


def the_chain_runs_as_a_pipeline_on_a_disk() -> None:
    run_chain("", lambda folder: folder / "out", {})


def the_chain_runs_as_a_pipeline_over_s3() -> None:
    with temporary_folder() as folder, Radosgw(folder / "radosgw") as gateway:
        gateway.other_client().create_dir(BUCKET)

        def fetch(place: pathlib.Path) -> pathlib.Path:
            gateway.fetch(f"{BUCKET}/chain", place / "fetched")
            return place / "fetched"

        run_chain(f"s3://{BUCKET}/chain", fetch, gateway.environment)


if __name__ == "__main__":
    main([the_chain_runs_as_a_pipeline_on_a_disk, the_chain_runs_as_a_pipeline_over_s3])
