#!/usr/bin/env python3
"""`darkroom tune` as a user meets it: trials that go on exactly, a search that survives kill -9 and SIGTERM, budgets, what is refused."""

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import time

from cases import main, require, temporary_folder
from workbench import PROGRAM, ROOT, Workbench, children, is_alive, read_losses, run

ROWS = 24
BATCH = 4
STEPS = 8  # Of a trial of a grid.
PATIENCE = 300  # Seconds until a process that makes no progress is given up.


class TuneBench(Workbench):
    def __init__(self):
        super().__init__(ROWS)
        images = self.write_image_dataset("images", ROWS)
        run("process", images, self.path("latents"), "--model", self.model, "--resolution", "64")
        self.data = ["--data", self.path("latents"), "--model", self.model, "--validation", self.path("latents")]
        self.settings = ["batch.global=4", "batch.micro=2", "runtime.workers=1", "validation.num_rows=4", "schedule.warmup_steps=2", "schedule.max_steps=40"]

    def command(self, output: str, *more, workers: int = 1) -> list[str]:
        sets = [word for setting in self.settings for word in ("--set", setting)]
        return ["tune", "recipes/tiny.toml", *self.data, *sets, "--output", self.path(output), "--budget", "60", "--workers", str(workers), *map(str, more)]

    def halving(self, output: str) -> list[str]:
        """Three trials of 2 steps, the best of which goes on to 6."""
        return self.command(output, "--trials", 3, "--samples", 6 * BATCH, "--set-range", "optimizer.lr=1e-4,1e-2,1e-3")

    def launcher(self) -> str:
        """A program that stays between the search and a trial, and notes the command; its path has a space."""
        path = pathlib.Path(self.path("a launcher"))
        path.write_text(LAUNCHER)
        path.chmod(0o755)
        return f"'{path}' {self.path('commands.txt')}"

    def folder_of(self, output: str) -> pathlib.Path:
        return pathlib.Path(self.path(output))


# Hands SIGTERM on, as a launcher must, and ends with the command's exit code.
LAUNCHER = """#!/bin/sh
notes=$1
shift
echo "$*" >> "$notes"
"$@" &
trap "kill -TERM $!" TERM
wait $!
code=$?
if kill -0 $! 2> /dev/null; then
  wait $!
  code=$?
fi
exit $code
"""


def ledger(folder: pathlib.Path) -> list[dict]:
    path = folder / "trials.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def ends(folder: pathlib.Path) -> dict[tuple[int, int], dict]:
    found = {}
    for line in ledger(folder):
        if line["event"] == "end":
            require((line["trial"], line["rung"]) not in found, "a stage ended twice", line)
            found[(line["trial"], line["rung"])] = line
    return found


def outcomes(folder: pathlib.Path) -> dict:
    return {stage: (line["outcome"], line.get("loss")) for stage, line in ends(folder).items()}


def wait_for(condition, process: subprocess.Popen) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        require(process.poll() is None, "the search ended before", process.returncode)
        require(time.monotonic() < end, "the search makes no progress")
        time.sleep(0.01)


def start(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen([str(PROGRAM), *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)


BENCH: list[TuneBench] = []


def bench() -> TuneBench:
    if not BENCH:
        BENCH.append(TuneBench())
    return BENCH[0]


def a_search_ends_with_a_report_and_a_recipe_that_train_takes() -> None:
    one = bench()
    folder = one.folder_of("undisturbed")
    run(*one.halving("undisturbed"), "--json-summary", one.path("summary.json"), "--instance", "g5.2xlarge")
    summary = json.loads(pathlib.Path(one.path("summary.json")).read_text())["tune"]
    found = outcomes(folder)
    require(sorted(found) == [(0, 0), (1, 0), (2, 0), (summary_trial(summary), 1)], "stages", found)
    best_of_first = min((loss, trial) for (trial, rung), (_, loss) in found.items() if rung == 0)[1]
    require(best_of_first == summary_trial(summary), "the best of the first rung goes on", found)
    report = json.loads((folder / "report.json").read_text())
    require(report["best"] == summary["best"]["name"] and report["is_complete"], "report", report["best"])
    require(len(report["trials"]) == 3 and all(trial["loss"] is not None for trial in report["trials"]), "trials", report["trials"])
    require(report["price"]["dollars_per_hour"] == 1.212 and report["trials"][0]["dollars"] > 0 and report["trials"][0]["kilowatt_hours"] > 0, "price", report["price"])
    page = (folder / "report.html").read_text()
    for word in ("Trials", "optimizer.lr", "Pareto", "optimizer steps/s", "best.toml", "on_demand"):
        require(word in page, "the page lacks", word)
    require("src=" not in page and "http://" not in page.replace("http://www.w3.org", ""), "the page loads something")
    best = (folder / "best.toml").read_text()
    require("max_steps = 40" in best and "every_steps = 1000" in best, "best.toml is the full recipe", best)
    run("train", folder / "best.toml", "--dry-run")
    kept = sorted(path.parent.name for path in folder.glob("trials/*/checkpoints"))
    require(kept == [report["best"]], "checkpoints are kept of the best trial alone", kept)


def within(command: list[str], minutes: object) -> list[str]:
    """The command with another budget."""
    place = command.index("--budget") + 1
    return [*command[:place], str(minutes), *command[place + 1 :]]


def summary_trial(summary: dict) -> int:
    return int(summary["best"]["name"].removeprefix("trial-"))


def a_trial_goes_on_exactly_where_its_rung_stopped() -> None:
    one = bench()
    report = json.loads((one.folder_of("undisturbed") / "report.json").read_text())
    best = next(trial for trial in report["trials"] if trial["name"] == report["best"])
    sets = [word for setting in [*one.settings, *(f"{key}={value}" for key, value in best["settings"].items())] for word in ("--set", setting)]
    run("train", "recipes/tiny.toml", *one.data, *sets, "--set", "samples.every_steps=0", "--max-steps", 6, "--output", one.path("alone"))
    require(read_losses(one.path("alone")) == read_losses(one.path(f"undisturbed/trials/{report['best']}")), "losses of the trial and of an undisturbed run")
    last = json.loads(pathlib.Path(one.path("alone"), "metrics.jsonl").read_text().splitlines()[-1])
    require(last["validation_loss"] == best["loss"], "the score is the validation loss of the run", last, best)


def is_locked(folder: pathlib.Path) -> bool:
    """Whether a trial is at work in it, and so is bound to its search's life. To try the lock might take it from the trial."""
    inode = str(folder.stat().st_ino)
    return any(line.split()[5].split(":")[-1] == inode for line in pathlib.Path("/proc/locks").read_text().splitlines() if "->" not in line)


def a_killed_search_loses_no_finished_trial_and_repeats_none() -> None:
    one = bench()
    folder = one.folder_of("killed")
    # Behind a launcher that becomes the trial. The search goes on without one, since its ledger knows none.
    first = start([*one.halving("killed"), "--launcher", "env"])
    wait_for(lambda: len(ends(folder)) >= 1 and any(is_locked(trial) for trial in (folder / "trials").glob("trial-*")), first)
    orphans = children(first.pid)
    first.kill()
    first.communicate()
    finished = ends(folder)
    run(*one.halving("killed"))  # At once: the kernel ends the trials, but not in the same instant.
    end = time.monotonic() + PATIENCE
    while any(is_alive(pid) for pid in orphans):
        require(time.monotonic() < end, "trials outlive their search", orphans)
        time.sleep(0.01)
    for stage, line in finished.items():
        require(ends(folder)[stage] == line, "a finished trial ran again", stage)
        require(line["peak_bytes"] == 0, "the size of a launched trial is not known", line)
    require(outcomes(folder) == outcomes(one.folder_of("undisturbed")), "results differ from the undisturbed search's")
    before = [line for line in ledger(folder) if line["event"] != "close"]
    run(*one.halving("killed"))
    require([line for line in ledger(folder) if line["event"] != "close"] == before, "a complete search did something")


def a_trial_of_a_dead_search_is_waited_for() -> None:
    one = bench()
    folder = one.folder_of("held")
    run(*within(one.halving("held"), "0.0001"), expect=1)  # A search of this folder, which began no trial.
    first = folder / "trials" / "trial-000"
    first.mkdir(parents=True)
    held = os.open(first, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # As a trial does whose search was killed, until it has ended.
    search = start(one.halving("held"))
    said = ""
    while "waiting for the end of a trial" not in said:
        line = search.stderr.readline()
        require(line != "", "the search did not wait:", said)
        said += line
    os.close(held)
    _, rest = search.communicate()
    require(search.returncode == 0, "exit code", search.returncode, said, rest)
    require(outcomes(folder) == outcomes(one.folder_of("undisturbed")), "results differ from the undisturbed search's", outcomes(folder))


def a_stopped_search_keeps_checkpoint_summary_and_report() -> None:
    one = bench()
    folder = one.folder_of("stopped")
    # Long enough that no machine ends it before the signal.
    command = one.command("stopped", "--strategy", "grid", "--samples", 1_000_000, "--set-range", "optimizer.lr=1e-3,1e-2", "--json-summary", one.path("stopped.json"), "--launcher", one.launcher())
    process = start(command)
    wait_for(lambda: any(path.read_bytes().count(b"\n") >= 2 for path in folder.glob("trials/*/metrics.jsonl")), process)
    refused = run(*command, expect=1).stderr
    require("another process is tuning" in refused, "two searches in one folder", refused[-500:])
    process.send_signal(signal.SIGTERM)
    said = ""
    while "stopping after what is complete" not in said:
        line = process.stderr.readline()
        require(line != "", "the search does not say that it is stopping:", said)
        said += line
    process.send_signal(signal.SIGTERM)  # Of what stops all that belongs together, too.
    said += process.communicate()[1]
    require(process.returncode == 143, "SIGTERM", process.returncode, said[-2000:])
    require(ends(folder) == {} and "the same command goes on" in said, "nothing has ended", said[-800:])
    require(json.loads(pathlib.Path(one.path("stopped.json")).read_text())["tune"]["trials"] == 2, "a stopped search keeps its summary")
    require((folder / "report.html").exists(), "and its report")
    launched = pathlib.Path(one.path("commands.txt")).read_text()
    require(launched.startswith(f"{PROGRAM.resolve()} train ") and "--stop-at" in launched and launched.count("\n") == 1, "what was launched", launched)
    trial = next(folder.glob("trials/*/metrics.jsonl")).parent
    last_step = read_losses(str(trial))[-1][0]
    require((trial / "checkpoints" / f"step-{last_step:08d}" / "state.json").exists(), "and the trial its last step", last_step)


def another_search_in_the_folder_is_refused_with_what_differs() -> None:
    one = bench()
    before = (one.folder_of("undisturbed") / "trials.jsonl").read_text()
    for more, *shown in (
        (["--set", "ema.decay=0.5"], "recipe.ema.decay (was 0.999, is 0.5)"),
        (["--seed", "1"], "search.seed (was 0, is 1)"),
        (["--set-range", "batch.global=4,8"], "search.space"),
    ):
        said = run(*one.halving("undisturbed"), *more, expect=1).stderr
        for word in shown:
            require(word in said, "the message lacks", word, said[-800:])
    require((one.folder_of("undisturbed") / "trials.jsonl").read_text() == before, "a refused search wrote")


def trials_that_fail_cost_themselves() -> None:
    one = bench()
    # Each value fits into the recipe, and one pair of them does not.
    run(*one.command("refused", "--strategy", "grid", "--samples", 4 * BATCH, "--set", "runtime.gradient_groups=2", "--set", "batch.micro=1", "--set-range", "batch.global=4,6", "--set-range", "batch.micro=1,2", workers=3))
    report = json.loads((one.folder_of("refused") / "report.json").read_text())
    by_settings = {(trial["settings"]["batch.global"], trial["settings"]["batch.micro"]): trial for trial in report["trials"]}
    refused = by_settings.pop(("6", "2"))
    require(refused["state"] == "failed" and "batch.micro" in refused["reason"] and refused["loss"] is None, "a pair that the recipe code refuses", refused)
    require(len(by_settings) == 3 and all(trial["loss"] is not None for trial in by_settings.values()), "the others have scores", by_settings)
    require([speed["batch"] for speed in report["speeds"]] == [4, 6], "speeds by batch", report["speeds"])
    events = [(line["event"], line["trial"]) for line in ledger(one.folder_of("refused")) if line["event"] in ("begin", "end") and line.get("outcome") != "failed"]
    require([event for event, _ in events[:3]] == ["begin"] * 3, "three trials run side by side", events)
    failing = one.command("diverging", "--strategy", "grid", "--samples", 4 * BATCH, "--set-range", "optimizer.lr=1e37,1e38")
    said = run(*failing, expect=1).stderr
    require("no trial has a score" in said and "not finite" in said, "the first reason", said[-1500:])
    report = json.loads((one.folder_of("diverging") / "report.json").read_text())
    require([trial["state"] for trial in report["trials"]] == ["diverged", "diverged"] and report["best"] is None, "states", report["trials"])
    require(not (one.folder_of("diverging") / "best.toml").exists(), "there is no best recipe")


# Trial 1 stops one step before its end, as one does that the end of the budget cuts there: a checkpoint, and 143 when it is asked to stop.
CUTTING = """#!/bin/sh
case "$*" in
*trials/trial-001*) ;;
*) exec "$@" ;;
esac
for word; do
  shift
  test "$before" = --stop-at && word=$((word - 1))
  before=$word
  set -- "$@" "$word"
done
"$@" &
trial=$!
trap 'asked=1; kill -TERM $trial 2> /dev/null' TERM
wait $trial
wait $trial  # A signal ends the first one.
while test -z "$asked"; do sleep 0.1; done
exit 143
"""


def a_budget_is_kept_and_a_larger_one_goes_on() -> None:
    one = bench()
    folder = one.folder_of("budget")
    command = one.command("budget", "--strategy", "grid", "--samples", STEPS * BATCH, "--set-range", "optimizer.lr=1e-3,1e-2")
    said = run(*within(command, "0.0001"), expect=1).stderr  # Six milliseconds.
    require("no trial has a score" in said and ends(folder) == {}, "nothing is scored within no time", said[-800:])
    require(ledger(folder)[-1] | {"spent_seconds": 0} == {"event": "close", "why": "budget", "spent_seconds": 0}, "the ledger tells why", ledger(folder)[-1])
    small = [*command, "--set-range", "ema.decay=0,0.9"]
    require("search.space" in run(*small, expect=1).stderr, "another space")


def what_the_end_of_a_budget_cut_goes_on_from_its_checkpoint() -> None:
    one = bench()
    folder = one.folder_of("cut")
    launcher = pathlib.Path(one.path("cutting"))
    launcher.write_text(CUTTING)
    launcher.chmod(0o755)
    command = one.command("cut", "--strategy", "grid", "--samples", STEPS * BATCH, "--set-range", "optimizer.lr=1e-3,1e-2")
    cut = folder / "trials" / "trial-001" / "checkpoints" / f"step-{STEPS - 1:08d}" / "state.json"
    minutes = 0.1
    while not cut.exists():  # A slow machine wants a larger one.
        require(minutes < 60, "the trial is not cut", ledger(folder)[-3:])
        subprocess.run([str(PROGRAM), *within(command, minutes), "--launcher", str(launcher)], cwd=ROOT, stderr=subprocess.DEVNULL, timeout=PATIENCE + 60 * minutes)
        minutes *= 2
    require(sorted(ends(folder)) == [(0, 0)] and ledger(folder)[-1]["why"] == "budget", "the budget ended the second trial", ledger(folder)[-3:])
    report = json.loads((folder / "report.json").read_text())
    require([trial["state"] for trial in report["trials"]] == ["best", "cut by the budget"] and not report["is_complete"], "states", report["trials"])
    require(report["trials"][1]["seconds"] > 0 and report["trials"][1]["machine_hours"] > 0, "what was cut took time, too", report["trials"][1])
    # As if the first trial had taken a quarter of an hour a step: a whole one does not fit into an hour, the last step does.
    path = folder / "trials.jsonl"
    slow = [json.dumps(line | {"seconds": 900 * STEPS} if line["event"] == "end" else line) + "\n" for line in ledger(folder)]
    path.write_text("".join(slow))
    run(*within(command, 60 + ledger(folder)[-1]["spent_seconds"] / 60))
    require(outcomes(folder)[(1, 0)][0] == "scored", "the larger budget ends it", ends(folder))
    settings = json.loads((folder / "report.json").read_text())["trials"][1]["settings"]
    changed = [*one.settings, f"schedule.max_steps={STEPS}", "samples.every_steps=0", *(f"{key}={value}" for key, value in settings.items())]
    sets = [word for setting in changed for word in ("--set", setting)]
    run("train", "recipes/tiny.toml", *one.data, *sets, "--output", one.path("uncut"))
    require(read_losses(one.path("uncut")) == read_losses(str(folder / "trials" / "trial-001")), "losses differ from an undisturbed run's")


def a_launcher_that_cannot_be_started_ends_the_search() -> None:
    one = bench()
    said = run(*one.command("unlaunched", "--strategy", "grid", "--samples", 4 * BATCH, "--set-range", "optimizer.lr=1e-3,1e-2", "--launcher", "no-such-launcher -n1"), expect=1).stderr
    require("cannot start a program" in said and "no-such-launcher" in said, "which program", said[-800:])
    require(ends(one.folder_of("unlaunched")) == {}, "no trial has ended")


def speeds_and_lengths_are_measured_where_nothing_is_given() -> None:
    one = bench()
    folder = one.folder_of("measured")
    run(*one.command("measured", "--strategy", "grid", "--score", "loss-at-budget", "--set-range", "batch.global=2,4", "--set", "schedule.max_steps=6"), "--set", "batch.micro=2")
    lines = ledger(folder)
    speeds = {line["batch"]: line for line in lines if line["event"] == "speed"}
    plan = next(line for line in lines if line["event"] == "plan")
    require(sorted(speeds) == [2, 4] and plan["unit"] == "seconds", "speeds", speeds)
    # The budget is ample: a full trial takes as long as the recipe's own run.
    require(abs(plan["length"] - 6 / speeds[4]["steps_per_second"]) < 1e-6 * plan["length"], "length", plan["length"], speeds)
    for trial in plan["trials"]:
        require(trial["full_steps"] == max(1, round(plan["length"] * speeds[trial["batch"]]["steps_per_second"])), "steps of equal time", trial)
    require(not any((folder / "speed").glob("*/")), "runs that measured are removed")


def a_folder_of_something_else_stays_as_it_is() -> None:
    with temporary_folder() as folder:
        recipe = (ROOT / "recipes" / "tiny.toml").read_bytes() + b"# The user's own.\n"
        (folder / "recipe.toml").write_bytes(recipe)
        said = run("tune", folder / "recipe.toml", "--data", "nowhere", "--model", "nomodel", "--workers", "1", "--output", folder, "--budget", "1", expect=1).stderr
        require("new folder" in said and str(folder / "recipe.toml") in said, "the message names what is there", said[-600:])
        require(os.listdir(folder) == ["recipe.toml"] and (folder / "recipe.toml").read_bytes() == recipe, "a user's recipe was replaced")


def what_cannot_be_tuned_is_refused_before_anything_is_written() -> None:
    with temporary_folder() as folder:
        common = ["tune", "recipes/tiny.toml", "--data", "latents", "--model", "models/tiny"]
        defaults = {"--output": folder / "out", "--budget": "1"}
        for more, *shown in (
            (["--set-range", "optimizer.lt=1,2"], "optimizer.lt", "optimizer.lr"),
            (["--set-range", "optimizer.lr=fast,slow"], "optimizer.lr", "fast"),
            (["--set-range", "optimizer.lr=1e-2..1e-5"], "optimizer.lr", "begins below"),
            (["--set-range", "optimizer.lr=1e-3,0.001"], "optimizer.lr", "twice"),
            (["--set-range", "optimizer.lr=-1,1"], "optimizer.lr", "-1"),
            (["--set-range", "batch.global=1.5..2.5"], "batch.global", "whole"),
            (["--set-range", "schedule.kind=1..2"], "schedule.kind"),
            (["--set-range", "schedule.kind=cosine,linear"], "schedule.kind", "linear"),
            (["--set-range", "runtime.seed=1,2"], "runtime.seed", "luck"),
            (["--set-range", "data.path=a,b"], "data.path", "same rows"),
            (["--set-range", "noise.beta_end=0.1,0.2"], "noise.beta_end", "compared"),
            (["--set-range", "schedule.max_steps=1,2"], "schedule.max_steps", "--samples"),
            (["--set-range", "optimizer.lr=1,2", "--set-range", "optimizer.lr=3,4"], "optimizer.lr", "twice"),
            (["--set", "optimizer.lr=x"], "optimizer.lr"),
            (["--instance", "p5.49xlarge"], "p5.49xlarge", "p5.48xlarge"),
            (["--instance", "m5.8xlarge", "--purchase", "reserved"], "reserved", "--dollars-per-hour"),
            (["--budget", "0"], "--budget"),
            (["--launcher", "ssh 'a machine"], "--launcher", "not closed"),
            (["--launcher", " "], "--launcher", "no program"),
            (["--output", "s3://bucket/tuned"], "--output", "s3://bucket/tuned"),
        ):
            said = run(*common, *more, *(word for flag, value in defaults.items() if flag not in more for word in (flag, value)), expect=2).stderr
            for word in shown:
                require(word in said, "the message lacks", word, more, said[-600:])
            require("more than once" not in said, "the command itself is wrong", more)
        require(list(folder.iterdir()) == [], "something was written")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        main(
            [
                a_search_ends_with_a_report_and_a_recipe_that_train_takes,
                a_trial_goes_on_exactly_where_its_rung_stopped,
                a_killed_search_loses_no_finished_trial_and_repeats_none,
                a_trial_of_a_dead_search_is_waited_for,
                a_stopped_search_keeps_checkpoint_summary_and_report,
                another_search_in_the_folder_is_refused_with_what_differs,
                trials_that_fail_cost_themselves,
                a_budget_is_kept_and_a_larger_one_goes_on,
                what_the_end_of_a_budget_cut_goes_on_from_its_checkpoint,
                a_launcher_that_cannot_be_started_ends_the_search,
                speeds_and_lengths_are_measured_where_nothing_is_given,
                a_folder_of_something_else_stays_as_it_is,
                what_cannot_be_tuned_is_refused_before_anything_is_written,
            ]
        )
    finally:
        for one in BENCH:
            one.__exit__()
