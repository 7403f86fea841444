#!/usr/bin/env python3
"""One stage of gpu_verbs.sh: a table of checks on the standard output; exits 1 when one of them fails.

    gpu_verbs.py doctor|kernels|process|train|sample|ranks|lost|serve|scale|save|model --program TREE --device D --out FOLDER --scratch FOLDER
"""

import argparse
import contextlib
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np

from verb_bench import (BOUNDS_OF_NORM, ROOT, TINY, Bench, Table, VerbFailed, caption, digests, last_words, losses, of_largest, of_norm, pixels,
                        read_latents, read_safetensors, stacked, weights, write_pictures)  # fmt: skip
from verb_scale import make_large_model, save, scale, serve

LATENTS, MOMENTS, STATES = "image_latents_64", "image_moments_64", "caption_embeddings"
FLOAT32_BOUND = 1e-5  # Of the largest value: what the networks keep (docs/nn.md).
LOSS_BOUND, WEIGHT_BOUND = 1e-5, 1e-3  # As gpu_parity's: relative, and of the way that the weights went.
SAMPLERS = ["ddim", "euler", "dpmpp_2m", "unipc"]
SHARED = {"DARKROOM_RANKS_SHARE_GPU": "1"}
WATCHDOG = 4  # Seconds.
GREY_LEVELS = 1  # In float32, as docs/serve.md has it of one picture in two ways.


def require_fields(bench: Bench, table: Table, fields: dict) -> None:
    for name, value in fields.items():
        table.note(name, value if isinstance(value, str) else ", ".join(map(str, value)), "")


def doctor(bench: Bench) -> Table:
    table = Table("doctor", "says", "")
    done = bench.attempt("doctor", "doctor", limit=110)
    for part in ("program", "processor", "gpu", "memory"):
        require_fields(bench, table, {f"{part}: {name}": value for name, value in done.summary.get(part, {}).items()})
    table.check("exit code", done.code == 0, f"{done.code}; {last_words(done.said)}")
    table.check("a GPU is used", bench.is_cpu or ("none" not in done.summary.get("gpu", {"none": ""})))
    return table


def kernels(bench: Bench) -> Table:
    """The plugin's kernels against their references, networks and five steps against the golden files."""
    table = Table("plugin_test and gpu_parity", "says", "")
    tests, parity = ([bench.tree / "bin/plugin_test"], [bench.tree / "bin/gpu_parity", "check", "--device", bench.device, "--source", ROOT])
    (code, said), (parity_code, parity_said) = bench.together([lambda: bench.said_by("plugin_test", tests), lambda: bench.said_by("gpu_parity", parity)])
    counts = last_words(said).rsplit(" / ", 1)[-1]
    table.check("plugin_test", bench.is_cpu or (code == 0 and re.match(r"[1-9]\d* passed, 0 failed, 0 skipped", counts) is not None), counts)
    for failed in re.findall(r"^FAIL .*(?:\n .*)*", said, re.MULTILINE):  # With its complaints, a line each.
        table.check("a kernel", False, "; ".join(line.strip() for line in failed.splitlines()))
    for row in [line for line in parity_said.splitlines() if line.startswith("|")][2:]:
        cells = [cell.strip() for cell in row.strip("| ").split("|")]
        table.note(": ".join(cells[:2]), " of ".join(cells[2:4]), " ".join(cells[4:]))
    table.check("gpu_parity: every bound", parity_code == 0, f"exit code {parity_code}" + ("" if parity_code == 0 else f"; {last_words(parity_said)}"))
    return table


# -- process ----------------------------------------------------------------------------------------------------------


def latents_of(bench: Bench, name: str, pictures: pathlib.Path, *flags) -> pathlib.Path:
    bench.process(f"process-{name}", pictures, bench.new_folder(f"latents-{name}"), "--model", TINY, "--resolution", "64", *flags, limit=100)
    return bench.path(f"latents-{name}")


def small_pictures(bench: Bench, name: str = "pictures", keys: list[int] | None = None) -> pathlib.Path:
    folder = bench.path(name)
    keys = keys if keys is not None else list(range(60))
    return folder if folder.exists() else write_pictures(folder, keys, 160, 120, len(keys), 1000)


def process(bench: Bench) -> Table:
    table = Table("process, tiny, 60 pictures at 64 px", "error of bound", "")
    pictures = small_pictures(bench)
    backwards = small_pictures(bench, "pictures-backwards", list(reversed(range(60))))
    here = ("--device", bench.device, "--dtype", "float32", "--batching", "together")
    runs = {"cpu": (pictures, "--device", "cpu", "--compute-dtype", "float32", "--dtype", "float32", "--latents", "moments")}
    for kind in ("float32", *BOUNDS_OF_NORM):
        runs[kind] = (pictures, *here, "--compute-dtype", kind, "--latents", "moments", "--batch-size", "8")
    for name, dataset, *flags in (("eight", pictures, "--batch-size", "8"), ("again", pictures, "--batch-size", "8"), ("backwards", backwards, "--batch-size", "8"),
                                  ("seven", pictures, "--batch-size", "7")):  # fmt: skip
        runs[name] = (dataset, *here, "--compute-dtype", "float32", *flags)
    for size in ("3", "8"):
        runs[f"alone-{size}"] = (pictures, *here[:-2], "--batching", "alone", "--compute-dtype", "float32", "--batch-size", size)
    folders = dict(zip(runs, bench.together([lambda name=name, words=words: latents_of(bench, name, *words) for name, words in runs.items()])))
    compare_types(table, folders)
    compare_bits(table, folders)
    return table


def compare_types(table: Table, folders: dict[str, pathlib.Path]) -> None:
    for column in (MOMENTS, STATES):
        want = stacked(read_latents(folders["cpu"], column))
        table.bound(f"{column}, float32: of the largest value of the CPU's", of_largest(stacked(read_latents(folders["float32"], column)), want), FLOAT32_BOUND)
        for kind, bound in BOUNDS_OF_NORM.items():
            table.bound(f"{column}, {kind}: of the CPU's in norm", of_norm(stacked(read_latents(folders[kind], column)), want), bound)


def compare_bits(table: Table, folders: dict[str, pathlib.Path]) -> None:
    columns = {name: [read_latents(folders[name], column) for column in (LATENTS, STATES)] for name in ("eight", "again", "backwards", "seven", "alone-3", "alone-8")}

    def are_same(one: str, other: str) -> bool:
        return all(sorted(a) == sorted(b) and all(np.array_equal(a[key], b[key]) for key in a) for a, b in zip(columns[one], columns[other]))

    table.check("60 rows of each run", all(len(rows) == 60 for run in columns.values() for rows in run))
    table.check("the same bits: again", are_same("eight", "again"))
    table.check("the same bits: rows in another order", are_same("eight", "backwards"))
    table.check("the same bits: row by row, batches of 3 and 8", are_same("alone-3", "alone-8"))
    table.report("batches of 7 and 8: of the largest value", f"{of_largest(stacked(columns['seven'][0]), stacked(columns['eight'][0])):.3g}")


# -- train ------------------------------------------------------------------------------------------------------------


def batch_size(bench: Bench) -> int:
    return 4 if bench.is_small else 16


def train_command(bench: Bench, data: pathlib.Path, name: str, device: str, steps: int, *settings: str) -> list:
    batch = batch_size(bench)
    fields = ("model.start=weights", "optimizer.lr=1e-4", "schedule.kind=constant", "schedule.warmup_steps=2", f"schedule.max_steps={steps}", f"batch.global={batch}",
              f"batch.micro={batch}", "samples.every_steps=0", "checkpoint.every_steps=0", "runtime.workers=1", *settings)  # fmt: skip
    sets = [word for field in fields for word in ("--set", field)]
    return ["train", "recipes/tiny.toml", "--data", data, "--model", TINY, "--output", bench.path(name), "--device", device, *sets]


def train_run(bench: Bench, data: pathlib.Path, name: str, device: str, steps: int, *settings: str, flags: tuple = ("--deterministic",), environment=None) -> pathlib.Path:
    bench.new_folder(name)
    bench.run(name, *train_command(bench, data, name, device, steps, *settings), *flags, environment=environment, limit=150)
    return bench.path(name)


def training_latents(bench: Bench) -> pathlib.Path:
    folder = bench.path("latents-training")
    return folder if folder.exists() else latents_of(bench, "training", small_pictures(bench), "--device", "cpu")


def killed_run(bench: Bench, data: pathlib.Path, steps: int, every: int) -> pathlib.Path:
    """A run that is killed after its first checkpoint, and goes on."""
    name, saves = "train-killed", f"checkpoint.every_steps={every}"
    folder = bench.new_folder(name)
    with open(bench.out / f"{name}-first.log", "w", encoding="utf-8") as log:
        process = bench.start(*train_command(bench, data, name, bench.device, steps, saves), "--deterministic", log=log)
        while process.poll() is None and not (folder / f"checkpoints/step-{every:08d}/state.json").exists():
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            raise VerbFailed(f"the run ended with {process.returncode} before it was killed")
    before = max(losses(folder), default=0)
    bench.run(name, *train_command(bench, data, name, bench.device, steps, saves), "--deterministic", limit=150)
    print(f"killed at step {before} of {steps}", file=sys.stderr)
    return folder


def train(bench: Bench) -> Table:
    table = Table(f"train, tiny, batch {batch_size(bench)}", "figure", "")
    data = training_latents(bench)
    steps, every = (6, 2) if bench.is_small else (200, 40)
    short, long = 5, steps
    saves = f"checkpoint.every_steps={every}"
    four, narrow, eager = f"batch.micro={batch_size(bench) // 4}", "runtime.precision=bfloat16", "runtime.graphs=false"
    runs = {"cpu": ("cpu", short), "short": (bench.device, short), "narrow-short": (bench.device, short, narrow), "long": (bench.device, long, saves),
            "again": (bench.device, long, saves), "eager": (bench.device, long, saves, eager), "waiting": (bench.device, long, saves, "runtime.background_saves=false"),
            "four": (bench.device, long, four), "four-eager": (bench.device, long, four, eager), "narrow": (bench.device, long, narrow),
            "narrow-eager": (bench.device, long, narrow, eager), "narrow-four": (bench.device, long, narrow, four),
            "narrow-four-eager": (bench.device, long, narrow, four, eager)}  # fmt: skip
    works = [lambda name=name, words=words: train_run(bench, data, f"train-{name}", *words) for name, words in runs.items()]
    works += [lambda name=name: train_run(bench, data, name, bench.device, long, flags=()) for name in ("train-free", "train-free-again")]
    works.append(lambda: killed_run(bench, data, long, every))
    results = dict(zip([*runs, "free", "free-again", "killed"], attempts(bench, table, works)))
    compare_with_cpu(table, results, short)
    for what, one, other in (("again", "long", "again"), ("passes and update not recorded", "long", "eager"), ("saves not in the background", "long", "waiting"),
                             ("4 micro-batches, not recorded", "four", "four-eager"), ("bfloat16, not recorded", "narrow", "narrow-eager"),
                             ("bfloat16, 4 micro-batches, not recorded", "narrow-four", "narrow-four-eager"), ("killed, and gone on", "long", "killed")):  # fmt: skip
        check_same_run(table, f"{long} steps, the same bits: {what}", results[one], results[other], long)
    compare_free(table, results, long)
    return table


def attempts(bench: Bench, table: Table, works: list) -> list[pathlib.Path | None]:
    """What each returns; a verb that failed is a row, and None."""

    def attempt(work):
        try:
            return work()
        except VerbFailed as error:
            return error

    results = bench.together([lambda work=work: attempt(work) for work in works])
    for result in results:
        if isinstance(result, VerbFailed):
            table.check("runs", False, result)
    return [None if isinstance(result, VerbFailed) else result for result in results]


def worst_loss(got: pathlib.Path, want: pathlib.Path) -> float:
    pairs = [(losses(got).get(step, math.nan), loss) for step, loss in losses(want).items()]
    return max((abs(a - b) / b if a == a else math.inf for a, b in pairs), default=math.nan)


def compare_with_cpu(table: Table, results: dict, steps: int) -> None:
    if not (results["cpu"] and results["short"] and results["narrow-short"]):
        return
    table.bound(f"losses of {steps} steps, float32: of the CPU's", worst_loss(results["short"], results["cpu"]), LOSS_BOUND)
    begin = read_safetensors(TINY / "unet/diffusion_pytorch_model.safetensors")
    start = np.concatenate([begin[name].astype(np.float64) for name in sorted(begin)])
    want, got, narrow = (weights(results[name], steps) for name in ("cpu", "short", "narrow-short"))
    way = np.linalg.norm(want - start)
    table.bound(f"weights after {steps} steps, float32: share of their way", float(np.linalg.norm(got - want) / way), WEIGHT_BOUND)
    table.bound(f"losses of {steps} steps, bfloat16: of the CPU's in float32", worst_loss(results["narrow-short"], results["cpu"]), BOUNDS_OF_NORM["bfloat16"])
    table.report(f"weights after {steps} steps, bfloat16: share of their way", f"{np.linalg.norm(narrow - want) / way:.3g}")


def check_same_run(table: Table, what: str, one: pathlib.Path | None, other: pathlib.Path | None, steps: int) -> None:
    """Losses of every step, and the last checkpoint: weights, average and moments."""
    if one is None or other is None:
        table.check(what, False, "a run is missing")
        return
    mine, others = losses(one), losses(other)
    first = next((step for step in sorted(mine) if mine[step] != others.get(step)), None)
    is_same = len(mine) == steps and mine == others and len(digests(one, steps)) >= 3 and digests(one, steps) == digests(other, steps)
    table.check(what, is_same, "" if first is None else f"from step {first} on: {mine[first]!r}, {others.get(first)!r}")


def compare_free(table: Table, results: dict, steps: int) -> None:
    one, other, strict = results["free"], results["free-again"], results["long"]
    if one and other:
        table.report("without --deterministic, the same bits again", "yes" if digests(one, steps) == digests(other, steps) else f"no; losses differ by {worst_loss(one, other):.3g}")
    if one and strict:
        table.report("without and with --deterministic, the same bits", "yes" if losses(one) == losses(strict) else "no")


# -- sample -----------------------------------------------------------------------------------------------------------


def write_sample_jobs(bench: Bench) -> pathlib.Path:
    jobs = [f'[[job]]\nname = "{sampler}"\nsampler = "{sampler}"\nprompts = ["{caption(1)}", "{caption(5)}"]\n' for sampler in SAMPLERS]
    path = bench.path("samples.toml")
    path.write_text("steps = 12\nseed = 3\n\n" + "\n".join(jobs), encoding="utf-8")
    return path


def sample(bench: Bench) -> Table:
    table = Table("sample, tiny, 64 px, 12 steps, two prompts", "largest difference in 255; share of values that differ", "")
    jobs = write_sample_jobs(bench)
    runs = {"cpu": ("cpu", "float32"), **{kind: (bench.device, kind) for kind in ("float32", "bfloat16", "float16")}, "again": (bench.device, "float32")}

    def paint(name: str, device: str, precision: str) -> pathlib.Path:
        folder = bench.new_folder(f"pictures-{name}")
        flags = ("--jobs", jobs, "--output", folder, "--device", device, "--precision", precision)
        bench.run(f"sample-{name}", "sample", "--model", TINY, *flags, limit=80)
        return folder

    works = [lambda name=name, words=words: paint(name, *words) for name, words in runs.items()]
    folders = dict(zip(runs, attempts(bench, table, works)))
    for name in ("float32", "bfloat16", "float16", "again"):
        for sampler in SAMPLERS if folders["cpu"] and folders[name] else []:
            compare_pictures(table, name, sampler, folders["float32" if name == "again" else "cpu"], folders[name])
    return table


def compare_pictures(table: Table, name: str, sampler: str, wanted: pathlib.Path, got: pathlib.Path) -> None:
    paths = sorted(path.relative_to(wanted) for path in (wanted / sampler).rglob("0*.png"))  # No sheets.
    if len(paths) < 2:
        table.check(f"{sampler}: two pictures", False, len(paths))
        return
    apart = np.abs(np.stack([pixels(wanted / path) - pixels(got / path) for path in paths]))
    figure = f"{apart.max()}; {np.count_nonzero(apart) / apart.size:.2%}"
    if name == "again":
        table.check(f"{sampler}, float32, again: the same pictures", apart.max() == 0, figure)
    elif name == "float32":
        table.check(f"{sampler}, float32, of the CPU's", apart.max() <= GREY_LEVELS, figure)
    else:
        table.report(f"{sampler}, {name}, of the CPU's in float32", f"{figure}; mean {apart.mean():.3g}")


# -- ranks ------------------------------------------------------------------------------------------------------------


def ranks(bench: Bench) -> Table:
    table = Table("train, tiny, ranks on one GPU", "figure", "")
    data = training_latents(bench)
    steps = 6 if bench.is_small else 60
    common = (f"batch.micro={batch_size(bench) // 4}", "runtime.gradient_groups=4", "runtime.watchdog_seconds=30")
    for precision, numbers in (("float32", (1, 2, 4)), ("bfloat16", (1, 2))):
        results = {}
        for number in numbers:
            name = f"ranks-{precision}-{number}"
            bench.new_folder(name)
            command = train_command(bench, data, name, bench.device, steps, *common, f"runtime.precision={precision}")
            done = bench.attempt(name, *command, "--deterministic", "--nproc", number, "--max-restarts", 0, environment=SHARED, limit=60)
            results[number] = bench.path(name) if done.code == 0 else None
            table.check(f"{number} ranks, {precision}: {steps} steps", done.code == 0, f"{done.seconds:.1f} s" if done.code == 0 else last_words(done.said))
            if number > 1 and results[number]:
                check_same_run(table, f"{number} ranks, {precision}: losses and weights of one rank, to the bit", results[1], results[number], steps)
    return table


def ranks_command(bench: Bench, data: pathlib.Path, name: str, steps: int, number: int, *settings: str) -> list:
    bench.new_folder(name)
    common = (f"batch.micro={batch_size(bench) // 4}", "runtime.gradient_groups=4", f"runtime.watchdog_seconds={WATCHDOG}", *settings)
    return [*train_command(bench, data, name, bench.device, steps, *common), "--nproc", number]


def children_of(process) -> list[int]:
    """The ranks that a launcher has started, in order."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            if int(fields["PPid"]) == process.pid and fields["State"].split()[0] != "Z":
                found.append(int(fields["Pid"]))
    return sorted(found)


def strike_a_rank(bench: Bench, data: pathlib.Path, name: str, steps: int, every: int, strike: signal.Signals) -> tuple[pathlib.Path, str]:
    """A run of two ranks, one of which is struck after the first checkpoint; it goes on by itself."""
    command = ranks_command(bench, data, name, steps, 2, f"checkpoint.every_steps={every}")
    with open(bench.out / f"{name}.log", "w", encoding="utf-8") as log:
        process = bench.start(*command, "--deterministic", environment=SHARED, log=log)
        while process.poll() is None and not (bench.path(name) / f"checkpoints/step-{every:08d}/state.json").exists():
            time.sleep(0.01)
        ranks = children_of(process)
        if process.poll() is None:
            os.kill(ranks[-1], strike)
        begin = time.monotonic()
        while process.poll() is None and ranks[0] in children_of(process):
            time.sleep(0.02)
        seconds = time.monotonic() - begin
        code = process.wait(120)
    if code != 0:
        raise VerbFailed(f"{name}: exit code {code}: {last_words((bench.out / f'{name}.log').read_text())}")
    return bench.path(name), f"the other rank ended after {seconds:.1f} s"


def lost(bench: Bench) -> Table:
    """Ranks that are killed or stopped, and the library's own sum."""
    table = Table("train, tiny, 2 ranks on one GPU", "figure", "")
    data = training_latents(bench)
    steps, every = (40, 2) if bench.is_small else (60, 20)
    bench.run("lost-none", *ranks_command(bench, data, "lost-none", steps, 1, f"checkpoint.every_steps={every}"), "--deterministic", limit=60)
    for strike in (signal.SIGKILL, signal.SIGSTOP):
        name = f"lost-{strike.name.lower()}"
        try:
            folder, figure = strike_a_rank(bench, data, name, steps, every, strike)
            check_same_run(table, f"{strike.name} of a rank, watchdog {WATCHDOG} s; {figure}: the bits of one rank", bench.path("lost-none"), folder, steps)
        except (VerbFailed, IndexError, subprocess.TimeoutExpired) as failure:
            table.check(f"{strike.name} of a rank", False, failure)
    bench.run("lost-fast", *ranks_command(bench, data, "lost-fast", steps, 2, "runtime.reduction=fast"), "--deterministic", environment=SHARED, limit=60)
    mine, others = losses(bench.path("lost-fast")), losses(bench.path("lost-none"))
    table.bound("the library's own sum: losses of 5 steps, of one rank's", max(abs(mine[step] - others[step]) / others[step] for step in range(1, 6)), 1e-6)
    return table


STAGES = {"doctor": doctor, "kernels": kernels, "process": process, "train": train, "sample": sample, "ranks": ranks, "lost": lost, "serve": serve, "scale": scale, "save": save}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("stage", choices=[*STAGES, "model"])
    for flag in ("--program", "--out", "--scratch"):
        parser.add_argument(flag, type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--small", action="store_true", help="few steps and small networks, as on the CPU")
    options = parser.parse_args()
    bench = Bench(options.program, options.device, options.out.resolve(), options.scratch.resolve(), options.small)
    try:
        if options.stage == "model":
            make_large_model(bench)
            return
        table = STAGES[options.stage](bench)
    except VerbFailed as failure:
        sys.exit(f"gpu_verbs: {failure}")
    if table.failed:
        sys.exit(f"gpu_verbs: {options.stage}: {table.failed} checks fail")


if __name__ == "__main__":
    main()
