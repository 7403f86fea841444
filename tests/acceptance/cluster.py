#!/usr/bin/env python3
"""The longer form of tests/integration/ray_test.py: the whole chain as one pipeline on a cluster, over s3:// where Debian's radosgw is
installed, and kills at random moments, 2 of each kind (or KILLS).

usage: cluster.py [KILLS [SEED]]
"""

import json
import pathlib
import random
import sys
import time

from harness import LoopbackWeb, Workbench, darkroom, digests, require, temporary_folder
from radosgw import BUCKET, Radosgw

from cases import main
from ray_bench import Driver, RayCluster, kill, parent_of, parts_in, programs

KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 20261125
NUM_ROWS = 160
SIDE = 128
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


def strike(cluster: RayCluster, driver: Driver, output: str, kind: str) -> bool:
    """Kills one thing of a kind; whether it was there."""
    found = programs("process", output)
    if kind == "driver":
        return driver.process.poll() is None and kill(driver.process.pid)
    if kind == "node":
        cluster.kill_node("encoder")
        cluster.add_node("encoder")
        return True
    if not found:
        return False
    return kill(found[0] if kind == "program" else parent_of(found[0]))


def no_kill_costs_a_row() -> None:
    """Programs, actors, the encoders' node and the driver, each at a random moment of a job."""
    generator = random.Random(SEED)
    cluster = RayCluster()
    hits = {kind: 0 for kind in ("program", "actor", "node", "driver")}
    try:
        with Workbench(NUM_ROWS) as bench:
            images = bench.write_image_dataset("images", NUM_ROWS)
            common = ["--model", bench.model, "--resolution", str(SIDE), "--rows-per-file", "8", "--batch-size", "1"]
            darkroom("process", images, bench.path("reference"), *common)
            want = digests(bench.path("reference"), "part-*")
            for number in range(KILLS):
                for kind in hits:
                    output = bench.path(f"{kind}-{number}")
                    command = ["process", images, output, *common, *SPREAD, "--resources", "encoder=1", "--num-encoders", "2", "--items-per-task", "1", "--max-failures", "-1"]
                    driver = cluster.start(*command)
                    moment = generator.randrange(NUM_ROWS // 8 - 2)
                    driver.wait_for(lambda: parts_in(output) > moment, f"part {moment}")
                    hits[kind] += strike(cluster, driver, output, kind)
                    driver.process.wait()
                    if kind == "driver":
                        cluster.run(*command)
                    require(digests(output, "part-*") == want, "other bytes than the undisturbed run's; kind, seed", kind, SEED, driver.words()[-3000:])
    finally:
        cluster.close()
    print(f"kills that hit: {hits}", flush=True)
    require(all(hits.values()), "no kill of a kind hit; seed", hits, SEED)


if __name__ == "__main__":
    main([the_chain_runs_as_a_pipeline_on_a_disk, the_chain_runs_as_a_pipeline_over_s3, no_kill_costs_a_row])
