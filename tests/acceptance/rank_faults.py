"""Acceptance of training: kill -9, SIGSTOP and SIGTERM to random ranks at random moments and in saves; the ledger of a run that is killed again
and again; bad numbers and damaged checkpoints."""

import atexit
import functools
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import threading
import time

from harness import PROGRAM, ROOT, Trials, Workbench, build, darkroom, digests, judges, require

SEED = 20261123
FAULTS = (3, 50)  # Short and full, over all signals.
RANKS = 4
STEPS = 24
GROUPS = 4
BATCH = 8
ROWS = 64
WATCHDOG = 5  # Seconds.
SLOWER = 4  # Than the longest of five starts that do nothing, beside compilers: a start, and the end of a run.
WITHIN_SAVE = 0.1  # Seconds into a save that a signal comes at most; one of these takes 0.13 to 0.28 alone.
PATIENCE = 600  # Seconds; a limit, no measure.
PARTS = ("training", "data_wait", "saving", "looking", "lost", "starting", "away")
NOTICED = ("no sign of life", "gives no answer", "ranks were lost")


def read_numbers(path: str, name: str) -> tuple[int, ...]:
    """An int64 tensor of a safetensors file."""
    with open(path, "rb") as file:
        head_bytes = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(head_bytes))[name]
        require(entry["dtype"] == "I64", "the tensor has another type than int64", name, entry["dtype"])
        begin, end = entry["data_offsets"]
        file.seek(8 + head_bytes + begin)
        return struct.unpack(f"<{(end - begin) // 8}q", file.read(end - begin))


class RankRuns(Workbench):
    """Latents, and the undisturbed run of one rank with the rows of every step."""

    def __init__(self):
        super().__init__(ROWS)
        images = self.write_image_dataset("images", ROWS)
        darkroom("process", images, self.path("latents"), "--model", self.model, "--resolution", "64")
        darkroom(*self.command("reference", "--trace", self.path("trace.safetensors"), "--trace-steps", STEPS))
        self.check_permutation()

    def command(self, output: str, *more) -> list[str]:
        settings = [f"batch.global={BATCH}", "batch.micro=1", f"runtime.gradient_groups={GROUPS}", "runtime.workers=1", f"runtime.watchdog_seconds={WATCHDOG}"]
        settings += ["schedule.kind=constant", "schedule.warmup_steps=3", "checkpoint.every_steps=4", "samples.every_steps=0", f"schedule.max_steps={STEPS}"]
        sets = [word for setting in settings for word in ("--set", setting)]
        return ["train", "recipes/tiny.toml", "--data", self.path("latents"), "--model", self.model, "--output", self.path(output), *sets, *map(str, more)]

    def check_permutation(self) -> None:
        """The undisturbed run sees each row once an epoch: what has its losses, bit for bit and step for step, does so, too."""
        rows = [row for step in range(STEPS) for row in read_numbers(self.path("trace.safetensors"), f"step.{step}.key_row")]
        for epoch in range(0, len(rows) - ROWS + 1, ROWS):
            require(sorted(rows[epoch : epoch + ROWS]) == list(range(ROWS)), "an epoch of the undisturbed run is no permutation of the rows", epoch)
        require(len(rows) >= ROWS, "the run is shorter than an epoch", len(rows))

    def require_same(self, output: str) -> None:
        want, got = (self.losses(name) for name in ("reference", output))
        require([step for step, _ in got] == list(range(1, STEPS + 1)), "steps were lost or are there twice", output, got)
        require(got == want, "losses differ from those of the undisturbed run", output)
        pattern = f"checkpoints/step-{STEPS:08d}/**/*.safetensors"
        digest = digests(self.path("reference"), pattern)
        require(len(digest) >= 3 and digests(self.path(output), pattern) == digest, "the last checkpoint differs from the undisturbed run's", output)

    def losses(self, output: str) -> list[tuple[int, float]]:
        lines = pathlib.Path(self.path(output), "metrics.jsonl").read_text().splitlines()
        return [(line["step"], line["loss"]) for line in map(json.loads, lines)]

    def ledger(self, output: str) -> list[dict]:
        return [json.loads(line) for line in pathlib.Path(self.path(output), "goodput.jsonl").read_text().splitlines()]

    def require_ledger(self, output: str) -> dict:
        last = self.ledger(output)[-1]
        spent, wall = sum(last[part] for part in PARTS), last["time"] - last["began"]
        require(abs(spent - wall) <= 0.005 * wall, "the ledger's parts do not add up to the wall time", last)
        return last


MAKING = threading.Lock()


@functools.cache
def made_runs() -> RankRuns:
    bench = RankRuns()
    atexit.register(bench.__exit__)
    return bench


def the_runs() -> RankRuns:
    """One for all checks, whose runs have names of their own."""
    with MAKING:
        return made_runs()


class Run:
    """A run of several ranks, and when it said what."""

    def __init__(self, arguments: list[str]):
        self.process = subprocess.Popen([str(PROGRAM), *arguments], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        self.said: list[tuple[float, str]] = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        for line in self.process.stderr:
            self.said.append((time.monotonic(), line))

    def finish(self) -> int:
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the run does not end by itself: {self.said[-5:]}") from None
        self.reader.join()
        return code

    def rank(self, number: int) -> int | None:
        """The process id of a rank; none: it is not there."""
        try:
            for pid in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
                if f"RANK={number}".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    return int(pid)
        except OSError:  # One has ended meanwhile.
            pass
        return None

    def noticed_after(self, moment: float) -> float | None:
        return next((when - moment for when, line in self.said if when >= moment and any(word in line for word in NOTICED)), None)


def wait_until(condition, run: Run) -> bool:
    """False: the run ended before."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if run.process.poll() is not None:
            return False
        require(time.monotonic() < end, "the run makes no progress")
        time.sleep(0.001)
    return True


def unfinished_saves(folder: pathlib.Path) -> set[str]:
    """Checkpoints that are being written, or whose writer died (NAME.UNIQUE, while an old one that is removed lies there as NAME): their
    folder itself stays when they have got their names."""
    try:
        return {name for name in os.listdir(folder / "checkpoints" / "_tmp") if "." in name}
    except FileNotFoundError:
        return set()


def is_signalled(process: int, number: int) -> bool:
    """Sends a signal to a process that is open as `process`, and closes it. False: it has ended."""
    try:
        signal.pidfd_send_signal(process, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(process)


def disturb(bench: RankRuns, output: str, number: int, seconds: float, first_signal: int, in_save: bool, generator: random.Random) -> dict:
    """One signal to one rank of a run; it ends by itself, or goes on with the same command where it was told to end."""
    folder = pathlib.Path(bench.path(output))
    run = Run(bench.command(output, "--nproc", RANKS))
    metrics = folder / "metrics.jsonl"
    rank = generator.randrange(RANKS)
    save = generator.randrange(STEPS // 4)
    is_training = wait_until(lambda: metrics.exists() and b"\n" in metrics.read_bytes(), run)
    pid = run.rank(rank)
    process = os.pidfd_open(pid) if pid is not None else None  # Stays this process's when its id is another's.
    if in_save:
        hit = is_training and wait_until(lambda: unfinished_saves(folder) and metrics.read_bytes().count(b"\n") >= 4 * save, run)
        time.sleep(generator.uniform(0, WITHIN_SAVE))
    else:
        time.sleep(generator.uniform(0, seconds))
        hit = run.process.poll() is None
    saves = unfinished_saves(folder)
    moment = time.monotonic()
    hit = hit and process is not None and is_signalled(process, first_signal)
    was_in_save = hit and in_save and bool(saves & unfinished_saves(folder))  # One that had begun, and has not ended.
    code = run.finish()
    if code == 128 + signal.SIGTERM and first_signal == signal.SIGTERM:
        steps = len(bench.losses(output))
        require((folder / "checkpoints" / f"step-{steps:08d}" / "state.json").exists(), "SIGTERM left no checkpoint of the last step", steps)
        code = Run(bench.command(output, "--nproc", RANKS)).finish()
    require(code == 0, f"trial {number}: the run ended with exit code {code}", run.said[-8:])
    bench.require_same(output)
    noticed = run.noticed_after(moment) if hit and first_signal == signal.SIGSTOP else None
    if noticed is not None:
        require(noticed <= 2 * WATCHDOG, "a hung rank was noticed late (seconds, limit)", noticed, 2 * WATCHDOG)
    ledger = bench.require_ledger(output)
    return {"hit": hit, "in_save": was_in_save, "rank": rank, "noticed": noticed, "lost": ledger["lost"], "goodput": ledger["goodput"]}


def survives(trials: Trials) -> None:
    num_faults = trials.count(*FAULTS)
    bench = the_runs()
    seconds = trials.trial("undisturbed", lambda: undisturbed(bench))
    kinds = [(signal.SIGKILL, False), (signal.SIGSTOP, True), (signal.SIGTERM, True), (signal.SIGKILL, True), (signal.SIGSTOP, False), (signal.SIGTERM, False)]
    found = []
    for trial in range(num_faults):
        which, in_save = kinds[trial % len(kinds)]
        generator = random.Random(SEED + trial)
        name = f"{trial} {signal.Signals(which).name}{' in a save' if in_save else ''}"
        found.append(trials.trial(name, lambda: disturb(bench, f"trial-{trial}", trial, seconds, which, in_save, generator)))
    notices = [one["noticed"] for one in found if one["noticed"] is not None]
    trials.figures.update(faults=num_faults, hits=sum(one["hit"] for one in found), in_saves=sum(one["in_save"] for one in found))
    trials.figures.update(slowest_notice_seconds=max(notices, default=None), notices=len(notices), watchdog_seconds=WATCHDOG)
    require(trials.figures["hits"] >= num_faults // 2, "too few signals hit a running rank", trials.figures)
    # Of the kind's trials a third, and one in the short form.
    require(trials.figures["in_saves"] >= max(1, num_faults // 2 // 3), "too few signals hit a rank in a save", trials.figures)
    require(len(notices) >= max(1, num_faults // 3 // 3), "too few stopped ranks were noticed by another", trials.figures)


def undisturbed(bench: RankRuns) -> float:
    """Seconds from the first step to the end of a run of several ranks that nobody disturbs, and which has the bits of one rank."""
    run = Run(bench.command("undisturbed", "--nproc", RANKS))
    metrics = pathlib.Path(bench.path("undisturbed"), "metrics.jsonl")
    wait_until(lambda: metrics.exists() and b"\n" in metrics.read_bytes(), run)
    begin = time.monotonic()
    require(run.finish() == 0, "the undisturbed run of several ranks failed", run.said[-8:])
    bench.require_same("undisturbed")
    return time.monotonic() - begin


def wait_for_lines(metrics: pathlib.Path, lines: int, process: subprocess.Popen) -> None:
    """Until so many steps are logged or the process has ended."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") >= lines):
        require(time.monotonic() < end, "no step is made", metrics)
        time.sleep(0.01)


def file_times(folder: pathlib.Path) -> list[float]:
    return [path.stat().st_mtime for path in folder.rglob("*") if path.is_file()]


def kill_again_and_again(bench: RankRuns, steps: int, every_steps: int, mean_seconds: float, most_kills: int, most_seconds: float) -> dict:
    """A run that is killed and started again, until it ends by itself: first between two checkpoints, then after exponential times, for so many
    kills or seconds. Seconds as seen from outside, and its ledger's."""
    generator = random.Random(SEED)
    output, checkpoints = "killed", pathlib.Path(bench.path("killed"), "checkpoints")
    command = bench.command(output, "--max-steps", steps, "--set", f"checkpoint.every_steps={every_steps}")
    begin, kills, least_lost, most_lost, code = time.time(), 0, 0.0, 0.0, None
    while code is None:
        process = subprocess.Popen([str(PROGRAM), *command], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        started = time.time()
        if kills == 0:
            wait_for_lines(pathlib.Path(bench.path(output), "metrics.jsonl"), every_steps + every_steps // 2, process)
        is_disturbed = kills < most_kills and time.time() - begin < most_seconds
        pause = 0 if kills == 0 else generator.expovariate(1 / mean_seconds) if is_disturbed else most_seconds
        try:
            _, errors = process.communicate(timeout=pause)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            died = time.time()
            process.communicate()
            kills += 1
            # Work since the last checkpoint, or since this start's first line where it made none. A checkpoint is of a moment before its
            # first file, and is there when its state is.
            has_ledger = pathlib.Path(bench.path(output), "goodput.jsonl").exists()
            began = [line["time"] for line in bench.ledger(output) if line["event"] == "begin" and line["time"] > started] if has_ledger else []
            saved = [(file_times(state.parent), state.stat().st_mtime) for state in checkpoints.glob("step-*/state.json")]
            most_lost += max(0.0, died - max([began[-1], *(min(files) for files, _ in saved)])) if began else 0.0
            least_lost += max(0.0, died - max([began[-1], *(whole for _, whole in saved)])) if began else 0.0
    require(code == 0, "the run that was killed does not end", code, errors[-2000:])
    outside = time.time() - begin
    require([step for step, _ in bench.losses(output)] == list(range(1, steps + 1)), "steps were lost or are there twice")
    last = bench.require_ledger(output)
    wall = last["time"] - last["began"]
    spent = {part: round(last[part], 3) for part in PARTS}
    require(last["away"] == 0, "a killed run was away", last)
    # A line a second at most: what came after the last one of a killed start is the next one's starting.
    is_seen = least_lost - 1.5 * kills <= last["lost"] <= most_lost + 0.5
    require(is_seen, "the ledger's lost seconds are others than those since checkpoints (ledger, seen at least and at most, kills)", last["lost"], least_lost, most_lost, kills)
    began = [line["began"] for line in bench.ledger(output)]
    require(len(set(began)) == 1, "the ledger of a later start begins later (began)", sorted(set(began)))
    return {"kills": kills, "outside": outside, "wall": wall, "deviation": abs(sum(last[part] for part in PARTS) - wall) / wall, "outside_deviation": (outside - wall) / outside,
            "least_lost_seen": least_lost, "most_lost_seen": most_lost, "saving_share": last["saving"] / wall, "goodput": last["goodput"], **spent}


def longest_empty_start() -> float:
    """Seconds of a start that loads the program's libraries and does nothing."""

    def once() -> float:
        begin = time.monotonic()
        darkroom("--help")
        return time.monotonic() - begin

    return max(once() for _ in range(5))


def goodput(trials: Trials) -> None:
    found = trials.trial("killed again and again", lambda: kill_again_and_again(the_runs(), *trials.count((60, 15, 7.0, 2, PATIENCE), (20_000, 500, 45.0, 1000, 3600))))
    trials.figures.update(found)
    require(found["kills"] > 0, "no kill hit the run")
    # What no ledger sees: the first start until the run begins, and the last one's end.
    unseen, most = found["outside"] - found["wall"], SLOWER * longest_empty_start() + 1
    trials.figures.update(unseen_seconds=round(unseen, 3), unseen_bound_seconds=round(most, 3))
    require(0 <= unseen <= most, "the ledger misses wall time (seconds, at most)", unseen, most)
    if trials.is_full:  # Else those seconds are too large a part.
        require(found["outside_deviation"] <= 0.005, "the ledger misses wall time", found)
        require(found["saving_share"] <= 0.02, "saving takes more than 2 % of the wall time", found)


def train_test() -> pathlib.Path:
    if os.environ.get("DARKROOM_BUILT") != "1":
        build("train_test")
    return ROOT / "build" / "release" / "tests" / "train_test"


@judges(train_test)
def bad_bits(trials: Trials) -> None:
    """NaN and exponent bits in gradients, flips and truncations of checkpoints: unit tests, in the full form with thousands of them."""
    environment = {**os.environ, "DARKROOM_SOURCE_DIR": str(ROOT), **({"DARKROOM_FAULTS": "full"} if trials.is_full else {})}
    done = subprocess.run([str(train_test()), "--gtest_filter=bad_bits.*:DamagedCheckpoints.*"], capture_output=True, text=True, env=environment, timeout=3600)
    require(done.returncode == 0 and "[  PASSED  ] 3 tests" in done.stdout, "bad bits:\n", done.stdout[-2500:])
    trials.figures.update(gradients=trials.count(50, 1000), flips=trials.count(300, 10_000), truncations=trials.count(50, 1000))


CHECKS = [("rank_faults.signals", survives), ("rank_faults.goodput", goodput), ("rank_faults.bad_bits", bad_bits)]
