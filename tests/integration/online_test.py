#!/usr/bin/env python3
"""Training fed by encoders in other processes: the losses of offline training, whatever number of encoders, ranks and kills.

usage: online_test.py
"""

import atexit
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from workbench import PROGRAM, ROOT, Workbench, digests, main, numbers_at, read_losses, require, run

NUM_PICTURES = 160
STEPS = 20
PATIENCE = 300  # Seconds; a limit, no measure.
READY = "encoder ready at "
TOKEN = "DARKROOM_ENCODER_TOKEN"


class Encoder:
    """`darkroom encoder` as a child, at the address that it has printed."""

    def __init__(self, *arguments: str, token: str = ""):
        environment = {**os.environ, TOKEN: token} if token else None
        self.process = subprocess.Popen([str(PROGRAM), "encoder", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        line = self.process.stdout.readline()
        require(line.startswith(READY), "the encoder does not start", line, self.process.stderr.read() if not line else "")
        self.address = line.removeprefix(READY).strip()

    def place_of_numbers(self) -> str:
        """REQUIRES: --metrics-port. It is said before the encoder is ready."""
        while line := self.process.stderr.readline():
            if found := re.search(r"numbers are at http://(\S+)/metrics", line):
                return found[1]
        raise AssertionError("the encoder does not say where its numbers are")

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.send(signal.SIGCONT)
        self.send(number)
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said


class OnlineBench(Workbench):
    """An image dataset, its latents, and the offline run that all others must equal."""

    def __init__(self):
        super().__init__(NUM_PICTURES)
        self.images = self.write_image_dataset("images", 64)
        run("process", self.images, self.path("latents"), "--model", self.model, "--resolution", "64")
        run(*self.command("offline", "--data", self.path("latents")))
        self.children: list[Encoder] = []

    def __exit__(self, *unused) -> None:
        for child in self.children:
            if child.process.poll() is None:
                child.end(signal.SIGKILL)
        super().__exit__(*unused)

    def command(self, output: str, *more: str) -> list[str]:
        settings = ["batch.global=8", "batch.micro=4", "runtime.gradient_groups=2", f"schedule.max_steps={STEPS}", "schedule.kind=constant", "checkpoint.every_steps=100",
                    "samples.every_steps=0", "runtime.watchdog_seconds=60"]
        sets = [word for setting in settings for word in ("--set", setting)]
        return ["train", "recipes/tiny.toml", "--model", self.model, "--output", self.path(output), *sets, *map(str, more)]

    def encoder(self, *more: str, token: str = "") -> Encoder:
        child = Encoder("--raw-data", self.images, "--model", self.model, "--resolution", "64", "--num-encoders", "1", *more, token=token)
        self.children.append(child)
        return child

    def online(self, output: str, encoders: str, *more: str) -> list[str]:
        """Rows are asked for until the end: there are as many as the steps take, and room for some only."""
        return self.command(output, "--set", "data.memory_bytes=1048576", "--raw-data", self.images, "--encoders", encoders, "--json-summary", self.path(f"{output}.json"), *more)

    def balance(self, output: str) -> dict:
        return json.loads(pathlib.Path(self.path(f"{output}.json")).read_text(encoding="utf-8"))["train"]["online"]

    def require_same(self, output: str) -> None:
        losses = read_losses(self.path("offline"))
        require(len(losses) == STEPS, "steps of the offline run", len(losses))
        require(read_losses(self.path(output)) == losses, "losses differ from those of offline training", output)
        pattern = f"checkpoints/step-{STEPS:08d}/**/*.safetensors"
        require(digests(self.path(output), pattern) == digests(self.path("offline"), pattern), "weights differ from those of offline training", output)


@functools.cache
def the_bench() -> OnlineBench:
    bench = OnlineBench()
    atexit.register(bench.__exit__)
    return bench


def steps_of(bench: OnlineBench, output: str) -> int:
    path = pathlib.Path(bench.path(output), "metrics.jsonl")
    return path.read_bytes().count(b"\n") if path.exists() else 0


def stop_in_the_middle(bench: OnlineBench, output: str, command: list[str]) -> subprocess.Popen:
    """Starts a trainer; it stands still after its first steps when this returns."""
    trainer = subprocess.Popen([str(PROGRAM), *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    end = time.monotonic() + PATIENCE
    while steps_of(bench, output) < 2:
        require(trainer.poll() is None and time.monotonic() < end, "the trainer does not begin", trainer.poll())
        time.sleep(0.01)
    trainer.send_signal(signal.SIGSTOP)
    require(steps_of(bench, output) < STEPS, "the trainer was done before it could be held")
    return trainer


def finish(trainer: subprocess.Popen, expect: int = 0) -> str:
    trainer.send_signal(signal.SIGCONT)
    _, said = trainer.communicate(timeout=PATIENCE)
    require(trainer.returncode == expect, "exit code", trainer.returncode, said[-2000:])
    return said


def one_or_three_encoders_give_the_losses_of_offline_training() -> None:
    bench = the_bench()
    run(*bench.command("here", "--raw-data", bench.images))
    bench.require_same("here")
    spans = pathlib.Path(bench.path("spans.jsonl"))
    encoders = [bench.encoder("--metrics-port", "0", "--trace-file", spans), *(bench.encoder() for _ in range(2))]
    run(*bench.online("one", encoders[0].address))
    bench.require_same("one")
    page = numbers_at(encoders[0].place_of_numbers())
    require('verb="encoder"' in page and re.search(r'^darkroom_rows_total{stage="encode"} [1-9]', page, re.MULTILINE), "its numbers", page)
    run(*bench.online("three", ",".join(encoder.address for encoder in encoders), "--no-sandbox"))
    bench.require_same("three")
    balance = bench.balance("three")
    require(balance["encoders"] == 3 and balance["encoders_lost"] == 0 and balance["rows"] >= 128, "balance", balance)
    require(balance["encoders_to_match"] >= 1 and balance["rows_per_second_of_an_encoder"] > 0, "how many would match", balance)
    require(0 <= balance["trainer_wait_seconds"] <= balance["trainer_seconds"], "who waited", balance)
    run_folder = pathlib.Path(bench.path("three"))
    require(json.loads((run_folder / "run.json").read_text())["starts"][-1]["online"] == balance, "the balance in run.json", balance)
    require("Encoders on other machines" in (run_folder / "report.html").read_text(), "the balance in the report")
    require("online" not in json.loads(pathlib.Path(bench.path("here"), "run.json").read_text())["starts"][-1], "a run without encoders")
    for encoder in encoders:
        code, said = encoder.end()
        require(code == 0 and "busy" in said, "an encoder that is stopped ends well", code, said)
    require('"encode"' in spans.read_text(), "its spans", spans.read_text()[:500])


def two_ranks_give_them_too() -> None:
    bench = the_bench()
    encoders = [bench.encoder() for _ in range(2)]
    run(*bench.online("ranks", ",".join(encoder.address for encoder in encoders), "--nproc", "2"))
    bench.require_same("ranks")
    require(bench.balance("ranks")["encoders"] == 2, "balance of rank 0", bench.balance("ranks"))


def a_killed_and_a_hung_encoder_cost_their_slices_a_repetition() -> None:
    bench = the_bench()
    encoders = [bench.encoder() for _ in range(3)]
    trainer = stop_in_the_middle(bench, "killed", bench.online("killed", ",".join(encoder.address for encoder in encoders), "--encoder-timeout", "3"))
    encoders[0].end(signal.SIGKILL)
    encoders[1].send(signal.SIGSTOP)
    said = finish(trainer)
    require("is lost" in said, "the trainer did not tell of the lost encoder", said[-2000:])
    bench.require_same("killed")
    require(bench.balance("killed")["encoders_lost"] >= 2, "lost encoders", bench.balance("killed"))


def a_cluster_may_replace_all_of_them() -> None:
    bench = the_bench()
    path = pathlib.Path(bench.path("encoders.txt"))
    first = bench.encoder()
    path.write_text(f"# of the job\n{first.address}\n", encoding="ascii")
    trainer = stop_in_the_middle(bench, "replaced", bench.online("replaced", f"@{path}"))
    first.end(signal.SIGKILL)
    path.with_suffix(".new").write_text(f"{bench.encoder().address}\n", encoding="ascii")
    path.with_suffix(".new").rename(path)
    finish(trainer)
    bench.require_same("replaced")


def a_run_goes_on_exactly_where_it_was_stopped() -> None:
    bench = the_bench()
    encoder = bench.encoder()
    trainer = stop_in_the_middle(bench, "resumed", bench.online("resumed", encoder.address))
    trainer.send_signal(signal.SIGTERM)
    finish(trainer, expect=128 + signal.SIGTERM)
    require(steps_of(bench, "resumed") < STEPS, "the run was not stopped")
    run(*bench.online("resumed", encoder.address))
    bench.require_same("resumed")


def without_encoders_a_run_ends_in_the_stated_time_and_goes_on_later() -> None:
    bench = the_bench()
    encoder = bench.encoder()
    trainer = stop_in_the_middle(bench, "alone", bench.online("alone", encoder.address, "--encoder-wait", "2"))
    encoder.end(signal.SIGKILL)
    said = finish(trainer, expect=1)
    require("no encoder was there for 2 s" in said and encoder.address in said, "the reason", said[-2000:])
    run(*bench.online("alone", bench.encoder().address))
    bench.require_same("alone")


def what_does_not_fit_is_refused() -> None:
    bench = the_bench()
    other = Encoder("--raw-data", bench.images, "--model", bench.model, "--resolution", "128")
    bench.children.append(other)
    said = run(*bench.online("refused", other.address), expect=1).stderr
    require("resolution 128 64" in said and other.address in said, "both values are named", said)
    require(not pathlib.Path(bench.path("refused")).exists(), "a run that did not begin left a folder")
    said = run("encoder", "--raw-data", bench.images, "--model", bench.model, "--listen", "0.0.0.0:0", expect=2).stderr
    require(TOKEN in said, "an encoder for everybody was not refused", said)
    guarded = bench.encoder(token="secret")
    said = run(*bench.online("refused", guarded.address), expect=1).stderr
    require("same token" in said and "secret" not in said, "a trainer without the token", said)
    for words, flags in (("--raw-data", ["--data", bench.path("latents")]), ("HOST:PORT", ["--raw-data", bench.images])):
        said = run(*bench.command("refused", "--encoders", "nowhere", *flags), expect=2).stderr
        require(words in said, "flags that do not go together", said)
    said = run("encoder", "--recipe", "recipes/tiny.toml", "--resolution", "64", expect=2).stderr
    require("--recipe says this" in said, "two sayings", said)


def an_encoder_takes_the_recipe_of_its_trainer() -> None:
    bench = the_bench()
    encoder = Encoder("--recipe", "recipes/tiny.toml", "--set", "data.storage_dtype=float32", "--raw-data", bench.images, "--model", bench.model, token="secret")
    bench.children.append(encoder)
    exact = ["--set", "data.storage_dtype=float32", "--max-steps", "3"]
    run(*bench.command("exact", "--raw-data", bench.images, *exact))
    command = bench.online("recipe", encoder.address, *exact)
    done = subprocess.run([str(PROGRAM), *command], capture_output=True, text=True, cwd=ROOT, env={**os.environ, TOKEN: "secret"}, timeout=PATIENCE)
    require(done.returncode == 0, "a trainer with the token and the recipe", done.stderr[-2000:])
    losses = read_losses(bench.path("recipe"))
    require(losses == read_losses(bench.path("exact")), "other losses than of a trainer that encodes itself", losses)
    require(len(losses) == 3 and losses != read_losses(bench.path("offline"))[:3], "float32 gives the losses of float16", losses)


if __name__ == "__main__":
    main([one_or_three_encoders_give_the_losses_of_offline_training, two_ranks_give_them_too, a_killed_and_a_hung_encoder_cost_their_slices_a_repetition,
          a_cluster_may_replace_all_of_them, a_run_goes_on_exactly_where_it_was_stopped, without_encoders_a_run_ends_in_the_stated_time_and_goes_on_later,
          what_does_not_fit_is_refused, an_encoder_takes_the_recipe_of_its_trainer])
