#!/usr/bin/env python3
"""What `compare` says of models that are far apart, and of one model: of two checkpoints of a run it prefers the later in 95 % of pairs, and it
tells a model from itself, painted from other noise, in no more than its error rate. Trains the tiny recipe shortly; minutes to hours, so that
it is no part of `make test`, but of acceptance.py --full.

usage: compare_verdicts.py [--full] [--results FILE] [KIND...]    KIND: later, equal; all
A run that was cut goes on where it was.
"""

import json
import math
import pathlib
import shutil
import sys

from harness import ROOT, Trials, Workbench, darkroom, main_of_kinds, require

ERROR_RATE = 0.05
WANTED = 0.95
PROMPTS_A_PAIR = 12
PAINTING = ["--sampler", "ddim", "--steps", 10, "--guidance", 3]
WORK = ROOT / "build" / "acceptance" / "compare-work"  # The run and what was painted stay for the next start.


def steps(trials: Trials) -> tuple[int, int]:
    return (200, 2000) if trials.is_full else (60, 300)


def pairs(trials: Trials) -> int:
    return trials.count(10, 40)


def prepare(trials: Trials) -> None:
    """A corpus, its latents, and a run with an early and a late checkpoint."""
    early, late = steps(trials)
    done = WORK / f"run-{late}.done"
    if done.exists():
        return
    WORK.mkdir(parents=True, exist_ok=True)
    with Workbench(PROMPTS_A_PAIR * pairs(trials)) as bench:
        for name in ("images", "latents", f"run-{late}"):
            shutil.rmtree(WORK / name, ignore_errors=True)
        images = bench.write_image_dataset("images", 500)
        shutil.copytree(images, WORK / "images")
        (WORK / "captions.json").write_text(json.dumps(captions_of(WORK / "images")), encoding="utf-8")
        model = ROOT / "models" / "tiny"
        darkroom("process", WORK / "images", WORK / "latents", "--model", model, "--resolution", 64)
        darkroom("train", "recipes/tiny.toml", "--data", WORK / "latents", "--model", model, "--output", WORK / f"run-{late}", "--max-steps", late, "--global-batch", 32,
                 "--set", f"checkpoint.every_steps={early}", "--set", "checkpoint.keep_last=1000", "--set", "samples.every_steps=0", timeout=6 * 3600)
    done.write_text("")


def captions_of(images: pathlib.Path) -> list[str]:
    import pyarrow.parquet as pq

    return [caption for path in sorted(images.glob("*.parquet")) for caption in pq.read_table(path)["caption"].to_pylist()]


def checkpoint(trials: Trials, step: int) -> pathlib.Path:
    return WORK / f"run-{steps(trials)[1]}" / "checkpoints" / f"step-{step:08}"


def seed_of(pair: int, noise: int) -> int:
    """The first of a comparison's seeds, one a prompt: no two comparisons share any."""
    return 100_000 * noise + PROMPTS_A_PAIR * pair


def compare(trials: Trials, a: pathlib.Path, b: pathlib.Path, pair: int, name: str, seed: int) -> pathlib.Path:
    """The comparison of a pair, on prompts that no other pair has; its folder."""
    output = WORK / f"{'full' if trials.is_full else 'short'}-{name}-{pair}"
    prompts = WORK / f"prompts-{pair}.txt"
    chosen = json.loads((WORK / "captions.json").read_text(encoding="utf-8"))[PROMPTS_A_PAIR * pair : PROMPTS_A_PAIR * (pair + 1)]
    prompts.write_text("".join(caption + "\n" for caption in chosen), encoding="utf-8")
    darkroom("compare", a, b, "--prompts-file", prompts, "--output", output, "--references", WORK / "images", "--seed", seed, *PAINTING)
    return output


def verdict_of(output: pathlib.Path) -> dict:
    return json.loads((output / "report.json").read_text(encoding="utf-8"))["verdict"]


def the_later_checkpoint_is_preferred(trials: Trials) -> None:
    prepare(trials)
    early, late = (checkpoint(trials, step) for step in steps(trials))
    preferred = []
    for pair in range(pairs(trials)):
        # The later one is A in every other pair.
        sides = (late, early) if pair % 2 == 0 else (early, late)
        verdict = trials.trial(f"pair {pair}", lambda: verdict_of(compare(trials, *sides, pair, "far", seed_of(pair, 0))))
        preferred.append(verdict["preferred"] == ("A" if pair % 2 == 0 else "B"))
        trials.figures.update(pairs=len(preferred), later_preferred=sum(preferred))
    require(sum(preferred) >= WANTED * len(preferred), "the later one is preferred in", sum(preferred), "of", len(preferred))


def painted_twice(trials: Trials, pair: int) -> dict:
    """One checkpoint on both sides, B's pictures from other noise: they are painted in a folder of their own and laid into the first one."""
    late = checkpoint(trials, steps(trials)[1])
    output = compare(trials, late, late, pair, "equal", seed_of(pair, 1))
    other = compare(trials, late, late, pair, "other-noise", seed_of(pair, 2))
    for picture in (other / "pictures" / "b").iterdir():
        shutil.copyfile(picture, output / "pictures" / "b" / picture.name)
    return verdict_of(compare(trials, late, late, pair, "equal", seed_of(pair, 1)))


def a_model_is_not_told_from_itself(trials: Trials) -> None:
    prepare(trials)
    num_told = 0
    for pair in range(pairs(trials)):
        verdict = trials.trial(f"pair {pair}", lambda: painted_twice(trials, pair))
        num_told += verdict["preferred"] != "none" or verdict["contradictory"]
        trials.figures.update(pairs=pair + 1, told_apart=num_told)
    expected = ERROR_RATE * pairs(trials)
    require(num_told <= expected + 3 * math.sqrt(expected * (1 - ERROR_RATE)), "told apart in", num_told, "of", pairs(trials))


CHECKS = [("compare.later", the_later_checkpoint_is_preferred), ("compare.equal", a_model_is_not_told_from_itself)]


if __name__ == "__main__":
    sys.exit(main_of_kinds(__doc__, CHECKS, "compare", []))
