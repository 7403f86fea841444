"""`tune` from detuned recipes: it finds its way back to what the shipped recipe reaches in the same training time, and a kill -9 costs no
finished trial. The folder of the full form stays in build/acceptance, so that a check that was cut goes on with the same searches."""

import json
import pathlib
import shutil
import subprocess
import sys
import time

from harness import PROGRAM, ROOT, Skipped, Trials, Workbench, darkroom, require

SHIPPED = {"optimizer.lr": 2e-3, "batch.global": 64, "schedule.warmup_steps": 100}  # Of recipes/tiny.toml.
STARTS = {"lr x 10": ("optimizer.lr", 2e-2), "lr / 10": ("optimizer.lr", 2e-4), "batch x 8": ("batch.global", 512)}
MINUTES = 10
REFERENCE_SAMPLES = 600 * 64  # What the shipped recipe and the best one are trained on at the end.
MOST_WORSE = 1.05
PATIENCE = 3600


class TuningBench(Workbench):
    """Latents of the corpus by the shipped model, in a folder that is made once. The last part is held out."""

    def __init__(self, folder: pathlib.Path, parts: int, rows_of_part: int):
        self.folder, self.seed, self.model = folder, 1, str(ROOT / "models" / "tiny")
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            maker = [sys.executable, ROOT / "tools" / "corpus" / "make_corpus.py", folder / "corpus", "--limit", str(parts * rows_of_part), "--trouble-rate", "0"]
            subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
            images = pathlib.Path(self.write_image_dataset("images", rows_of_part))
            (folder / "held-images").mkdir()
            last = images / f"part-{parts - 1:06d}.parquet"
            last.rename(folder / "held-images" / last.name)
            for source, target in ((images, "latents"), (folder / "held-images", "held")):
                darkroom("process", source, self.path(target), "--model", self.model, "--resolution", "64", timeout=PATIENCE)
            (folder / "made").touch()

    def data(self) -> list[str]:
        return ["--data", self.path("latents"), "--model", self.model, "--validation", self.path("held")]

    def search(self, output: str, key: str, value: float, minutes: float, *more) -> list[str]:
        return ["tune", "recipes/tiny.toml", *self.data(), "--set", f"{key}={value}", "--output", self.path(output), "--budget", str(minutes), *map(str, more)]


def ledger_lines(folder: pathlib.Path) -> list[dict]:
    path = folder / "trials.jsonl"
    return [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()] if path.exists() else []


def ended(folder: pathlib.Path) -> dict:
    return {(line["trial"], line["rung"]): line for line in ledger_lines(folder) if line["event"] == "end"}


def killed_and_finished(command: list[str], folder: pathlib.Path, kill_after: int) -> int:
    """Runs a search, kills it once so many stages have ended, and runs it to its end. The finished stages that the kill met."""
    process = subprocess.Popen([str(PROGRAM), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    end = time.monotonic() + PATIENCE
    while process.poll() is None and len(ended(folder)) < kill_after:
        require(time.monotonic() < end, "the search makes no progress")
        time.sleep(0.05)
    process.kill()
    process.wait()
    before = ended(folder)
    darkroom(*command, timeout=PATIENCE)
    after = ended(folder)
    require(all(after.get(stage) == line for stage, line in before.items()), "a finished trial was lost or ran again", before, after)
    stages = [(line["trial"], line["rung"]) for line in ledger_lines(folder) if line["event"] == "end"]
    require(len(stages) == len(set(stages)), "a stage ended twice", stages)
    return len(before)


def is_shipped(settings: dict, key: str, value: float) -> bool:
    """Whether a trial from this start is the shipped recipe."""
    own = {**SHIPPED, key: value, **{name: float(text) for name, text in settings.items()}}
    return all(abs(own[name] - wanted) <= 1e-9 * wanted for name, wanted in SHIPPED.items())


def validation_loss(bench: TuningBench, name: str, recipe: str, steps: int, *more) -> dict:
    """A fresh run's last validation loss and its wall seconds."""
    shutil.rmtree(bench.path(name), ignore_errors=True)
    darkroom("train", recipe, *bench.data(), "--output", bench.path(name), "--max-steps", steps, "--set", "samples.every_steps=0", "--set", f"validation.every_steps={steps}",
             "--set", "checkpoint.every_steps=0", *more, timeout=PATIENCE)
    last = json.loads(pathlib.Path(bench.path(name), "metrics.jsonl").read_text().splitlines()[-1])
    return {"loss": last["validation_loss"], "seconds": last["seconds"], "samples": last["samples"]}


def from_one_start(trials: Trials, bench: TuningBench, start: str, reference: dict) -> float:
    key, value = STARTS[start]
    name = start.replace(" ", "").replace("/", "div")
    folder = pathlib.Path(bench.path(name))
    found = trials.trial(f"search {start}", lambda: {"before_kill": killed_and_finished(bench.search(name, key, value, MINUTES), folder, 9)})
    report = json.loads((folder / "report.json").read_text())
    require(not any(is_shipped(trial["settings"], key, value) for trial in report["trials"]), "the shipped recipe is among the trials", start)
    best = next(trial for trial in report["trials"] if trial["name"] == report["best"])
    batch = int(best["settings"].get("batch.global", value if key == "batch.global" else SHIPPED["batch.global"]))
    speeds = {speed["batch"]: speed["images_per_second"] for speed in report["speeds"] if speed["measured"].startswith("alone")}
    nearest = {size: speeds[min(speeds, key=lambda other: abs(other - size))] for size in (batch, SHIPPED["batch.global"])}
    steps = max(1, round(REFERENCE_SAMPLES * nearest[batch] / nearest[SHIPPED["batch.global"]] / batch))
    tuned = trials.trial(f"train the best of {start}", lambda: validation_loss(bench, f"{name}-best", str(folder / "best.toml"), steps))
    detuned = trials.trial(f"train {start}", lambda: validation_loss(bench, f"{name}-start", "recipes/tiny.toml", max(1, round(REFERENCE_SAMPLES / (value if key == "batch.global" else 64))), "--set", f"{key}={value}"))
    ratio = tuned["loss"] / reference["loss"]
    trials.figures[start] = {"trials": len(report["trials"]), "ended_before_kill": found["before_kill"], "best": best["settings"], "loss": tuned["loss"], "start_loss": detuned["loss"],
                             "seconds": tuned["seconds"], "over_reference": round(ratio, 4), "search_seconds": round(report["spent_seconds"])}
    return ratio


def detuned_starts(trials: Trials) -> None:
    if not trials.is_full:
        raise Skipped("only with --full: tests/integration/tune_test.py kills a search and goes on with it in every test run")
    bench = TuningBench(ROOT / "build" / "acceptance" / "tuning", 9, 256)
    reference = trials.trial("train the shipped recipe", lambda: validation_loss(bench, "shipped", "recipes/tiny.toml", REFERENCE_SAMPLES // 64))
    trials.figures["shipped"] = reference
    ratios = {start: from_one_start(trials, bench, start, reference) for start in STARTS}
    require(all(ratio <= MOST_WORSE for ratio in ratios.values()), f"a search's best recipe is more than 5 % worse than the shipped one: {ratios}")


CHECKS = [("tuning.detuned_starts", detuned_starts)]
