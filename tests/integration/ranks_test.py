#!/usr/bin/env python3
"""Several ranks train as one: the same bits for any number of them, at any checkpoint, and after a rank was killed, stopped or told to end.

usage: ranks_test.py
"""

import atexit
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

from ports import free_port
from workbench import PROGRAM, ROOT, Skipped, Workbench, digests, main, read_losses, require, run

STEPS = 12
LONG_STEPS = 50
FAST_STEPS = 8  # Any other last bit grows from step to step at this learning rate, a hundred thousand times in 30 steps.
FAST_DEVIATION = 1e-6  # Of a loss, relative.
PATIENCE = 300  # Seconds; a limit, no measure.


class RankBench(Workbench):
    """A workbench with latents, and the run of one rank that all others must equal."""

    def __init__(self):
        super().__init__(64)
        self.images = self.write_image_dataset("images", 64)
        run("process", self.images, self.path("latents"), "--model", self.model, "--resolution", "64")
        run(*self.command("reference"))

    def command(self, output: str, *more: str) -> list[str]:
        return self.command_of(["batch.global=12", "runtime.gradient_groups=6", "checkpoint.every_steps=4", f"schedule.max_steps={STEPS}"], output, *more)

    def long_command(self, output: str, *more: str) -> list[str]:
        """Of groups that 8 ranks do not share evenly, and that make more than one subtree a rank."""
        return self.command_of(["batch.global=12", "runtime.gradient_groups=12", "checkpoint.every_steps=25", f"schedule.max_steps={LONG_STEPS}"], output, *more)

    def command_of(self, own_settings: list[str], output: str, *more: str) -> list[str]:
        settings = [*own_settings, "batch.micro=1", "runtime.workers=1", "runtime.watchdog_seconds=10", "schedule.kind=constant", "schedule.warmup_steps=3", "samples.every_steps=0"]
        sets = [word for setting in settings for word in ("--set", setting)]
        return ["train", "recipes/tiny.toml", "--data", self.path("latents"), "--model", self.model, "--output", self.path(output), *sets, *map(str, more)]

    @functools.cached_property
    def long_losses(self) -> list[tuple[int, str]]:
        """Of the run of one rank, which is there then."""
        run(*self.long_command("long-reference"))
        return read_losses(self.path("long-reference"))

    def require_same(self, output: str) -> None:
        """Losses of every step, and the last checkpoint: weights, average and moments."""
        self.require_alike("reference", STEPS, output)

    def require_same_as_long(self, output: str) -> None:
        require(len(self.long_losses) == LONG_STEPS, "the reference has other steps", len(self.long_losses))
        self.require_alike("long-reference", LONG_STEPS, output)

    def require_alike(self, reference: str, steps: int, output: str) -> None:
        require(read_losses(self.path(output)) == read_losses(self.path(reference)), "losses differ from those of one rank", output)
        pattern = f"checkpoints/step-{steps:08d}/**/*.safetensors"
        want = digests(self.path(reference), pattern)
        require(len(want) >= 3 and digests(self.path(output), pattern) == want, "the last checkpoint differs from that of one rank", output)


@functools.cache
def the_bench() -> RankBench:
    """One for all cases, whose runs have names of their own: making it takes longer than most cases."""
    bench = RankBench()
    atexit.register(bench.__exit__)
    return bench


def start(arguments: list[str], environment: dict[str, str] | None = None) -> subprocess.Popen:
    return subprocess.Popen([str(PROGRAM), *arguments], stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **(environment or {})})


def finish(process: subprocess.Popen, expect: int = 0) -> str:
    _, errors = process.communicate(timeout=PATIENCE)
    require(process.returncode == expect, "exit code", process.returncode, "want", expect, errors[-4000:])
    return errors


def read_until(process: subprocess.Popen, words: str) -> str:
    """What the process says on stderr, up to the line with these words."""
    said = ""
    while words not in said:
        line = process.stderr.readline()
        require(line, "the process ended without a word of it", words, said[-4000:])
        said += line
    return said


def ranks_of(launcher: subprocess.Popen) -> list[int]:
    """Process ids of a launcher's ranks, by rank."""
    found = {}
    for pid in pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found.update({int(variable[5:]): int(pid) for variable in variables if variable.startswith(b"RANK=")})
    return [found[rank] for rank in sorted(found)]


def wait_for_steps(run_folder: str, steps: int, process: subprocess.Popen) -> None:
    metrics = pathlib.Path(run_folder) / "metrics.jsonl"
    end = time.monotonic() + PATIENCE
    while not metrics.exists() or metrics.read_text().count("\n") < steps:
        require(process.poll() is None, "the run ended early", process.returncode, process.stderr.read()[-4000:] if process.poll() is not None else "")
        require(time.monotonic() < end, "no step was made in time", run_folder)
        time.sleep(0.01)


def any_number_of_ranks_has_the_bits_of_one() -> None:
    bench = the_bench()
    for num_ranks in (2, 3, 4, 8):
        output = f"ranks-{num_ranks}" + ("\udcff" if num_ranks == 2 else "")  # The byte 0xff: a folder's name need not be UTF-8.
        run(*bench.long_command(output, "--nproc", num_ranks, "--json-summary", bench.path(f"{output}.json")))
        bench.require_same_as_long(output)
        require(f'"steps": {LONG_STEPS}' in pathlib.Path(bench.path(f"{output}.json")).read_text(), "no summary of the run")


def a_run_goes_on_with_another_number_of_ranks() -> None:
    bench = the_bench()
    for num_ranks, steps in ((1, 8), (2, 16), (3, 25), (4, 33), (2, 41), (1, LONG_STEPS)):
        run(*bench.long_command("changing", "--nproc", num_ranks, "--max-steps", steps))
    bench.require_same_as_long("changing")


def ranks_in_bfloat16_have_the_bits_of_one() -> None:
    """The float32 weights, which each rank has of its own slice alone, and a change of their number on the way."""
    bench = the_bench()
    bfloat16 = ("--set", "runtime.precision=bfloat16")
    run(*bench.command("bfloat16-1", *bfloat16))
    for num_ranks, steps in ((2, 4), (3, 8), (2, STEPS)):
        run(*bench.command("bfloat16", *bfloat16, "--nproc", num_ranks, "--max-steps", steps))
    bench.require_alike("bfloat16-1", STEPS, "bfloat16")
    require(read_losses(bench.path("bfloat16")) != read_losses(bench.path("reference")), "bfloat16 changed no loss")


def gradients_sent_in_bfloat16_have_the_bits_of_one_rank() -> None:
    """Whether they are sent while the backward pass goes on or after it."""
    bench = the_bench()
    wire = ("--set", "runtime.gradient_wire=bfloat16")
    run(*bench.command("wire-1", *wire))
    for num_ranks, overlap in ((3, "true"), (2, "false")):
        output = f"wire-{num_ranks}"
        run(*bench.command(output, *wire, "--set", f"runtime.overlap={overlap}", "--nproc", num_ranks))
        bench.require_alike("wire-1", STEPS, output)
    require(read_losses(bench.path("wire-1")) != read_losses(bench.path("reference")), "bfloat16 between ranks changed no loss")
    done = run(*bench.command("refused", *wire, "--set", "runtime.reduction=fast"), expect=2)
    require("runtime.gradient_wire" in done.stderr, "the field is not named", done.stderr[-2000:])


def checkpoints_written_at_once_or_in_the_background_are_the_same() -> None:
    bench = the_bench()
    run(*bench.command("at-once", "--nproc", 2, "--set", "runtime.background_saves=false", "--set", "runtime.overlap=false"))
    bench.require_same("at-once")


def the_fast_reduction_changes_last_bits_alone() -> None:
    bench = the_bench()
    for num_ranks in (2, 3):
        output = f"fast-{num_ranks}"
        run(*bench.long_command(output, "--nproc", num_ranks, "--set", "runtime.reduction=fast", "--max-steps", FAST_STEPS))
        got = read_losses(bench.path(output))
        require([step for step, _ in got] == list(range(1, FAST_STEPS + 1)), "other steps", output, got)
        worst = max(abs(float(loss) - float(want)) / float(want) for (_, loss), (_, want) in zip(got, bench.long_losses))
        print(f"the fast reduction of {num_ranks} ranks: losses of {FAST_STEPS} steps within {worst:.1e}", flush=True)
        require(worst <= FAST_DEVIATION, "losses of the fast reduction deviate (ranks, relative, limit)", num_ranks, worst, FAST_DEVIATION)


def a_killed_or_stopped_rank_costs_a_restart() -> None:
    bench = the_bench()
    for name, number, rank in (("killed", signal.SIGKILL, 1), ("killed-0", signal.SIGKILL, 0), ("stopped", signal.SIGSTOP, 1), ("stopped-0", signal.SIGSTOP, 0)):
        launcher = start(bench.command(name, "--nproc", "2", "--resume", "none"))  # A restart goes on nevertheless.
        wait_for_steps(bench.path(name), 5, launcher)
        os.kill(ranks_of(launcher)[rank], number)
        errors = finish(launcher)
        require("ranks were lost" in errors, "the loss of a rank was not told", name, errors[-2000:])
        bench.require_same(name)


def no_restart_is_more_than_was_allowed() -> None:
    bench = the_bench()
    launcher = start(bench.command("lost", "--nproc", "2", "--max-restarts", "0"))
    wait_for_steps(bench.path("lost"), 5, launcher)
    os.kill(ranks_of(launcher)[1], signal.SIGKILL)
    require("--max-restarts" in finish(launcher, expect=1), "the reason is missing")
    run(*bench.command("lost", "--nproc", "2"))
    bench.require_same("lost")


def sigterm_ends_all_ranks_with_a_checkpoint() -> None:
    bench = the_bench()
    for name in ("told", "told-twice"):
        launcher = start(bench.command(name, "--nproc", "3", "--max-steps", "100000"))
        wait_for_steps(bench.path(name), 5, launcher)
        # Also as systemd and scancel do it: all processes at once, and the launcher hands it on to its ranks.
        for pid in [launcher.pid, *(ranks_of(launcher) if name == "told-twice" else [])]:
            os.kill(pid, signal.SIGTERM)
        finish(launcher, expect=128 + signal.SIGTERM)
        lines = len(read_losses(bench.path(name)))
        saved = sorted(path.name for path in pathlib.Path(bench.path(name), "checkpoints").glob("step-*"))
        require(saved[-1] == f"step-{lines:08d}", "the checkpoint of the stop is missing", name, saved, lines)


def a_group_stopped_in_the_pause_before_a_restart_has_a_summary_of_its_own() -> None:
    bench = the_bench()
    summary = pathlib.Path(bench.path("paused.json"))
    summary.write_text('{"train": {"steps": 7}}')  # Of an earlier run.
    launcher = start(bench.command("paused", "--nproc", "2", "--max-steps", "100000", "--resume", "none", "--json-summary", summary))
    wait_for_steps(bench.path("paused"), 2, launcher)
    require(not summary.exists(), "the summary of an earlier run is left", summary)
    os.kill(ranks_of(launcher)[0], signal.SIGKILL)
    read_until(launcher, "ranks were lost")
    launcher.terminate()
    said = finish(launcher, expect=128 + signal.SIGTERM)
    require("--resume auto goes on from the last checkpoint" in said, "the command that goes on is not told", said[-2000:])
    require("stopped on request" in json.loads(summary.read_text())["error"], "no summary of the stop", summary.read_text())


def ranks_end_with_their_launcher() -> None:
    bench = the_bench()
    launcher = start(bench.command("orphaned", "--nproc", "2", "--max-steps", "100000"))
    wait_for_steps(bench.path("orphaned"), 2, launcher)
    ranks = ranks_of(launcher)
    launcher.kill()
    launcher.communicate(timeout=PATIENCE)
    end = time.monotonic() + PATIENCE
    while any(pathlib.Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text() for pid in ranks):
        require(time.monotonic() < end, "ranks outlive their launcher", ranks)
        time.sleep(0.05)


def the_environment_names_the_ranks() -> None:
    bench = the_bench()
    port = str(free_port())
    environment = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [start([*bench.command("by-hand"), "--metrics-port", "0"], {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2)]
    for rank in ranks:
        require("the job's numbers are at http://" in finish(rank), "who watches a cluster finds them by this sentence")
    bench.require_same("by-hand")


def launch(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Runs a launcher to its end."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, cwd=ROOT, env={**os.environ, **(environment or {})})
    require(done.returncode == 0, f"{command[0]} ended with", done.returncode, done.stderr[-4000:])


def torchrun_starts_the_ranks() -> None:
    places = [os.environ.get("DARKROOM_PEERS", ""), str(ROOT / ".venv-parity" / "bin" / "python"), str(ROOT / "build" / "parity-venv" / "bin" / "python")]
    pythons = [*filter(os.path.exists, places), sys.executable]
    tried = {python: subprocess.run([python, "-c", "import torch.distributed.run"], capture_output=True, text=True) for python in pythons}
    python = next((python for python in pythons if tried[python].returncode == 0), None)
    if python is None:
        raise Skipped("torchrun wants torch's Python with NVIDIA's libraries, 1.9 GB: `make parity`, or name a Python in DARKROOM_PEERS; "
                      f"here {tried[sys.executable].stderr.strip().splitlines()[-1]}")  # fmt: skip
    bench = the_bench()
    launcher = [python, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2", "--max-restarts", "0"]
    launch([*launcher, str(PROGRAM), *bench.command("torchrun")])
    bench.require_same("torchrun")


def mpirun_starts_the_ranks() -> None:
    if shutil.which("mpirun") is None:
        raise Skipped("there is no mpirun (package openmpi-bin)")
    bench = the_bench()
    settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MASTER_PORT": str(free_port())}
    launch(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", str(PROGRAM), *bench.command("mpirun")], settings)
    bench.require_same("mpirun")


def start_all(environments: list[dict[str, str]], commands: list[list[str]]) -> None:
    """Runs a rank in each of these environments to its end."""
    for rank in [start(command, environment) for command, environment in zip(commands, environments)]:
        finish(rank)


def the_environment_of_srun_names_the_ranks() -> None:
    bench = the_bench()
    step = {"SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "MASTER_PORT": str(free_port())}
    start_all([{**step, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(3)], 3 * [bench.command("srun")])
    bench.require_same("srun")


def the_cost_of_a_run_is_that_of_its_machines() -> None:
    """Three ranks on one and one on another, wherever rank 0 is."""
    bench = the_bench()
    for name, machines in (("three-and-one", (0, 0, 0, 1)), ("one-and-three", (0, 1, 1, 1))):
        port = str(free_port())
        environments = [{"WORLD_SIZE": "4", "RANK": str(rank), "LOCAL_RANK": str(machines[:rank].count(machines[rank])), "LOCAL_WORLD_SIZE": str(machines.count(machines[rank])),
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for rank in range(4)]
        summary = bench.path(f"{name}.json")
        start_all(environments, 4 * [[*bench.command(name), "--price-per-hour", "10", "--json-summary", summary]])
        told = json.loads(pathlib.Path(summary).read_text())["train"]
        require(told["dollars_per_hour"] == 20, "two machines of 10 dollars", told)


def sagemaker_names_the_hosts() -> None:
    """Two containers, which here share a machine and its folders: channels are read, checkpoints are the run folder, the model is exported."""
    bench = the_bench()
    hosts = ["127.0.0.1", "127.0.0.2"]
    shared = {"TRAINING_JOB_NAME": "job-1", "MASTER_PORT": str(free_port())}
    toolkit = {**shared, "SM_HOSTS": json.dumps(hosts), "SM_CURRENT_HOST": hosts[0]}
    without = {**shared, "SM_RESOURCE_CONFIG": json.dumps({"current_host": hosts[1], "hosts": hosts, "network_interface_name": "lo"})}
    for name in ("input/data/training", "input/data/model", "checkpoints"):
        pathlib.Path(bench.path("ml"), name).parent.mkdir(parents=True, exist_ok=True)
    os.symlink(bench.path("latents"), bench.path("ml/input/data/training"))
    os.symlink(bench.model, bench.path("ml/input/data/model"))
    places = {bench.path("latents"): bench.path("ml/input/data/training"), bench.model: bench.path("ml/input/data/model")}
    command = [places.get(word, word) for word in bench.command("ml/checkpoints")]
    start_all([toolkit, without], [command, command])
    bench.require_same("ml/checkpoints")
    newest = f"checkpoints/step-{STEPS:08d}"
    run("models", "export", pathlib.Path(bench.path("ml/checkpoints"), newest), bench.path("ml/model"), "--ema")
    run("models", "check", bench.path("ml/model"))
    job = {"TRAINING_JOB_NAME": "job-3", "MASTER_PORT": str(free_port())}
    for host in hosts:  # Without the toolkit: the file that every container has.
        config = pathlib.Path(bench.path("container"), host, "input/config/resourceconfig.json")
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps({"current_host": host, "hosts": hosts, "network_interface_name": "lo"}))
    start_all([{**job, "SAGEMAKER_BASE_DIR": bench.path(f"container/{host}")} for host in hosts], 2 * [bench.command("by-file")])
    bench.require_same("by-file")
    config.write_text("{")
    done = start(bench.command("by-file"), {**job, "SAGEMAKER_BASE_DIR": str(config.parents[2])})
    require("resourceconfig.json" in finish(done, expect=2), "a file that names no hosts is not told")
    done = start(command, {**toolkit, "SM_CURRENT_HOST": "algo-9"})
    require("SM_CURRENT_HOST" in finish(done, expect=2), "a host that is none of the job's is not named")


def ranks_of_several_machines_are_each_machines_own_to_start() -> None:
    """Two containers of two ranks each; one of them loses a rank, and both begin again."""
    bench = the_bench()
    hosts = ["127.0.0.1", "127.0.0.2"]
    job = {"TRAINING_JOB_NAME": "job-2", "SM_HOSTS": json.dumps(hosts), "MASTER_PORT": str(free_port())}
    command = bench.command("machines", "--nproc", "2", "--resume", "none")
    first, second = (start(command, {**job, "SM_CURRENT_HOST": host}) for host in hosts)
    wait_for_steps(bench.path("machines"), 5, first)
    ranks = ranks_of(second)
    os.kill(ranks[1], signal.SIGKILL)
    for launcher in (first, second):
        require("ranks were lost" in finish(launcher), "the loss of a rank was not told")
    bench.require_same("machines")
    several = {"WORLD_SIZE": "4", "RANK": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": hosts[0]}
    require("--nproc" in finish(start(command, several), expect=2), "a launcher of several processes a machine is not refused")
    done = start(bench.command("machines", "--nproc", "4"), {**job, "SM_CURRENT_HOST": hosts[1]})
    require("runtime.gradient_groups" in finish(done, expect=2), "more ranks than groups on all machines are not refused")


def signals_that_come_twice_cost_launchers_of_several_machines_no_checkpoint() -> None:
    """As srun and mpirun hand them on."""
    bench = the_bench()
    environment = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = bench.command("twice", "--nproc", "2", "--max-steps", "100000")
    launchers = [start(command, {**environment, "RANK": str(machine)}) for machine in range(2)]
    wait_for_steps(bench.path("twice"), 2, launchers[0])
    for launcher in launchers:
        launcher.send_signal(signal.SIGTERM)
    for launcher in launchers:
        read_until(launcher, "stopping after")
        launcher.send_signal(signal.SIGTERM)
    for launcher in launchers:
        finish(launcher, expect=128 + signal.SIGTERM)
    lines = len(read_losses(bench.path("twice")))
    require(pathlib.Path(bench.path("twice"), "checkpoints", f"step-{lines:08d}", "state.json").exists(), "the stop's checkpoint is missing", lines)


def a_rank_of_another_job_does_not_disturb_this_one() -> None:
    bench = the_bench()
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_ID": "0", "MASTER_PORT": str(free_port())}
    first = start(bench.command("this-job"), {**step, "SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"})
    stranger = start(bench.command("that-job"), {**step, "SLURM_JOB_ID": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"})
    require("another job" in finish(stranger, expect=1), "the stranger does not say that the ranks are another job's")
    finish(start(bench.command("this-job"), {**step, "SLURM_JOB_ID": "1", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}))
    finish(first)
    bench.require_same("this-job")


def a_spot_notice_ends_the_run_with_a_checkpoint() -> None:
    bench = the_bench()
    for name, ranks in (("spot", []), ("spot-ranks", ["--nproc", "2"])):
        notice = pathlib.Path(bench.path(f"{name}.notice"))
        launcher = start(bench.command(name, *ranks, "--max-steps", "100000", "--spot-notice", notice))
        wait_for_steps(bench.path(name), 2, launcher)
        notice.write_text("go")
        said = read_until(launcher, "stopping after")
        require(f"every 5 s a spot notice is looked for at the file {notice}" in said, "what is watched is not told", name, said)
        for _ in range(2):  # Whoever stops the machine's services comes after the notice.
            launcher.send_signal(signal.SIGTERM)
        finish(launcher, expect=128 + signal.SIGTERM)
        require("about to be taken back" in said, "the notice is not told", name, said)
        lines = len(read_losses(bench.path(name)))
        require(pathlib.Path(bench.path(name), "checkpoints", f"step-{lines:08d}", "state.json").exists(), "the notice's checkpoint is missing", name, lines)


def start_two(commands: list[list[str]]) -> list[subprocess.Popen]:
    environment = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [start(command, {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank, command in enumerate(commands)]


def a_rank_of_another_run_is_refused() -> None:
    bench = the_bench()
    others = (
        (bench.command("mixed", "--set", "runtime.seed=7"), "runtime.seed"),
        (bench.command("mixed-2"), "--output"),
        (bench.command("mixed", "--validation", bench.path("latents")), "validation.path"),
    )
    for other, field in others:
        for rank in start_two([bench.command("mixed"), other]):
            require(field in finish(rank, expect=1), "the field that differs is not named", field)
        require(not pathlib.Path(bench.path("mixed")).exists(), "a run that did not begin left a folder")


def a_rank_with_another_model_is_refused() -> None:
    bench = the_bench()
    other = bench.path("other-model")
    run("models", "init", "--preset", "tiny", other, "--tokenizer", ROOT / "models" / "tiny" / "tokenizer", "--seed", "99")
    raw = ["train", "recipes/tiny.toml", "--raw-data", bench.images, "--output", bench.path("models"), "--set", "data.resolution=64"]
    raw += ["--set", "batch.global=4", "--set", "batch.micro=1", "--set", "runtime.gradient_groups=2", "--max-steps", "2", "--set", "samples.every_steps=0"]
    first, second = start_two([[*raw, "--model", bench.model], [*raw, "--model", other]])
    require("other inputs" in finish(first, expect=1), "rank 0 does not say that another rank differs")
    require("fingerprint" in finish(second, expect=1), "the part that differs is not named")
    require(not pathlib.Path(bench.path("models")).exists(), "a run that did not begin left a folder")


def sigterm_ends_a_rank_that_waits_for_others() -> None:
    port = str(free_port())
    rank = start(the_bench().command("alone"), {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
    end = time.monotonic() + PATIENCE
    while not listens(int(port)):
        require(rank.poll() is None and time.monotonic() < end, "rank 0 does not listen for the others")
        time.sleep(0.05)
    rank.send_signal(signal.SIGTERM)
    rank.send_signal(signal.SIGTERM)
    finish(rank, expect=128 + signal.SIGTERM)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wrong_numbers_of_ranks_are_refused() -> None:
    bench = the_bench()
    refusals = (
        (["--nproc", "7"], "runtime.gradient_groups"),
        (["--nproc", "2", "--set", "runtime.gradient_groups=5"], "runtime.gradient_groups"),
        (["--nproc", "2", "--set", "batch.micro=4"], "batch.micro"),
        (["--nproc", "2", "--trace", bench.path("trace.safetensors")], "--trace"),
    )
    for flags, reason in refusals:
        done = run(*bench.command("refused", *flags), expect=2)
        require(reason in done.stderr, "the reason is not named", reason, done.stderr[-2000:])
    require(not pathlib.Path(bench.path("refused")).exists(), "a run that did not begin left a folder")


if __name__ == "__main__":
    main(
        [
            any_number_of_ranks_has_the_bits_of_one,
            a_run_goes_on_with_another_number_of_ranks,
            ranks_in_bfloat16_have_the_bits_of_one,
            gradients_sent_in_bfloat16_have_the_bits_of_one_rank,
            checkpoints_written_at_once_or_in_the_background_are_the_same,
            the_fast_reduction_changes_last_bits_alone,
            a_killed_or_stopped_rank_costs_a_restart,
            no_restart_is_more_than_was_allowed,
            sigterm_ends_all_ranks_with_a_checkpoint,
            a_group_stopped_in_the_pause_before_a_restart_has_a_summary_of_its_own,
            ranks_end_with_their_launcher,
            the_environment_names_the_ranks,
            torchrun_starts_the_ranks,
            mpirun_starts_the_ranks,
            the_environment_of_srun_names_the_ranks,
            the_cost_of_a_run_is_that_of_its_machines,
            sagemaker_names_the_hosts,
            ranks_of_several_machines_are_each_machines_own_to_start,
            signals_that_come_twice_cost_launchers_of_several_machines_no_checkpoint,
            a_rank_of_another_job_does_not_disturb_this_one,
            a_spot_notice_ends_the_run_with_a_checkpoint,
            a_rank_of_another_run_is_refused,
            a_rank_with_another_model_is_refused,
            sigterm_ends_a_rank_that_waits_for_others,
            wrong_numbers_of_ranks_are_refused,
        ]
    )
