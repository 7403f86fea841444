"""One rank: a Ray Train worker whose program is the rank, and what all ranks tell each other through one actor."""

import contextlib
import json
import os
import pathlib
import signal
import tempfile
import threading
import time

from darkroom_ray.measured import TrainMeasures
from darkroom_ray.program import Child, start_child
from darkroom_ray.request import Request, without_secrets

LOOK_SECONDS = 0.5
# As the program's: a rank whose peers were lost, which a restart mends (docs/ranks.md).
EXIT_RANK_LOST = 75
EXIT_STOPPED = 128 + signal.SIGTERM  # With a checkpoint, at somebody's wish.
NO_ATTEMPT = -1  # What rank 0 tells the others when nothing is to be begun.


class RunNotes:
    """An actor: what outlives the worker groups of one run."""

    def __init__(self) -> None:
        self._attempts = 0
        self._sizes: list[int] = []
        self._failure: tuple[int, str] | None = None
        self._stop = 0
        self._summary: dict = {}
        self._heard = time.monotonic()

    def begin(self, num_ranks: int) -> int:
        """Which start of the group this is; NO_ATTEMPT: a start would mend nothing. Called by rank 0, which tells the others."""
        if self._failure or self._stop:
            return NO_ATTEMPT
        self._attempts += 1
        self._sizes.append(num_ranks)
        return self._attempts - 1

    def note_failure(self, code: int, text: str) -> None:
        """The first counts: the others are its consequences."""
        self._failure = self._failure or (code, text)

    def failure(self) -> tuple[int, str] | None:
        return self._failure

    def is_hopeless(self) -> bool:
        """What failed beside the ranks (an encoder) has failed before one had a place: none will begin."""
        return self._failure is not None and self._attempts == 0

    def ask_to_stop(self, number: int) -> None:
        self._stop = number

    def stop_number(self) -> int:
        """Asked by ranks at work, again and again."""
        self._heard = time.monotonic()
        return self._stop

    def seconds_without_rank(self) -> float:
        """Since a rank was heard of."""
        return time.monotonic() - self._heard

    def note_summary(self, summary: dict) -> None:
        self._summary = summary

    def result(self) -> tuple[dict, int, list[int]]:
        return self._summary, self._attempts, self._sizes


class MetricsTail:
    """New whole lines of a run's metrics.jsonl, and new checkpoints. On a store other than a disk there are none to see."""

    def __init__(self, folder: pathlib.Path | None) -> None:
        self._folder = folder
        self._position = 0
        self._checkpoints: set[str] = self._list_checkpoints()
        if folder and (folder / "metrics.jsonl").exists():
            self._position = (folder / "metrics.jsonl").stat().st_size

    def _list_checkpoints(self) -> set[str]:
        return {path.parent.name for path in self._folder.glob("checkpoints/step-*/state.json")} if self._folder else set()

    def lines(self) -> list[dict]:
        path = self._folder / "metrics.jsonl" if self._folder else None
        if path is None or not path.exists():
            return []
        if path.stat().st_size < self._position:
            self._position = 0  # Lines after the checkpoint were cut away.
        with open(path, "rb") as file:
            file.seek(self._position)
            whole = file.read().rpartition(b"\n")[0]
        self._position += len(whole) + 1 if whole else 0
        found = []
        for line in whole.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # Begun in the middle of a line, after a cut.
        return found

    def new_checkpoints(self) -> list[str]:
        there = self._list_checkpoints()
        new = sorted(there - self._checkpoints)
        self._checkpoints |= there
        return new


def folder_of_run(request: Request, output: str) -> pathlib.Path | None:
    if "://" in output and not output.startswith("file://"):
        return None
    return pathlib.Path(request.folder, output.removeprefix("file://"))


class Reporter:
    """Rank 0 says what is new, and all ranks report it to Ray Train together, as it wants."""

    def __init__(self, rank: int, request: Request, output: str) -> None:
        self._rank = rank
        folder = folder_of_run(request, output) if rank == 0 else None
        self._tail = MetricsTail(folder)
        self._output = output
        self._measures = TrainMeasures() if rank == 0 else None
        self._is_over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _news(self) -> dict:
        """Of rank 0: waits for some."""
        while True:
            is_over = self._is_over.wait(LOOK_SECONDS)
            lines = self._tail.lines()
            for line in lines:
                self._measures.set(line)
            checkpoints = self._tail.new_checkpoints()
            if checkpoints or (is_over and lines):
                metrics = {name: value for name, value in (lines[-1] if lines else {}).items() if not isinstance(value, dict)}
                return {"metrics": metrics, "checkpoint": checkpoints[-1] if checkpoints else ""}
            if is_over:
                return {}

    def _news_or_failure(self) -> dict:
        """Of rank 0: what the others wait for comes, whatever happens."""
        try:
            return self._news()
        except Exception as error:
            return {"failure": f"rank 0 cannot read what is new in the run's folder: {error}"}

    def _run(self) -> None:
        import ray.train
        from ray.train.collective import broadcast_from_rank_zero

        try:
            while news := broadcast_from_rank_zero(self._news_or_failure() if self._rank == 0 else None):
                if "failure" in news:
                    raise RuntimeError(news["failure"])
                self._report(ray.train, news)
        except Exception as error:  # Told by end(): nobody looks at a thread's.
            self._failure = error

    def _report(self, train, news: dict) -> None:
        if self._rank != 0 or not news["checkpoint"]:
            train.report(news["metrics"])
            return
        # The checkpoint lies in the run folder and stays there: what Ray keeps says where.
        with tempfile.TemporaryDirectory() as folder:
            pointer = {"uri": f"{without_secrets(self._output).rstrip('/')}/checkpoints/{news['checkpoint']}"}
            pathlib.Path(folder, "checkpoint.json").write_text(json.dumps(pointer) + "\n", encoding="utf-8")
            train.report(news["metrics"], checkpoint=train.Checkpoint.from_directory(folder))

    def end(self) -> None:
        """The rank has done its work. Errors: whatever kept the reports from Ray; a restart begins at the last checkpoint."""
        self._is_over.set()
        self._thread.join()
        if self._failure:
            raise RuntimeError(f"rank {self._rank} cannot report to Ray Train: {self._failure}") from self._failure


def environment_of(context, attempt: int) -> dict[str, str]:
    """What the program knows a rank by (docs/ranks.md). MASTER_ADDR and MASTER_PORT are set already."""
    return {
        "RANK": str(context.get_world_rank()),
        "WORLD_SIZE": str(context.get_world_size()),
        "LOCAL_RANK": str(context.get_local_rank()),
        "LOCAL_WORLD_SIZE": str(context.get_local_world_size()),
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
    }


def wait_for_rank(child: Child, notes) -> int:
    """Its exit code. The driver's stop is handed on, once; the notes hear of this rank for as long as it is at work."""
    import ray

    is_told = False
    while child.poll() is None:
        try:
            child.wait(LOOK_SECONDS)
        except Exception:  # Still at work.
            number = ray.get(notes.stop_number.remote())
            if number and not is_told:
                child.end(signal.SIGTERM)
                is_told = True
    return child.wait()


def has_ended_well(code: int, is_stop_asked: bool) -> bool:
    """A rank that somebody else stopped (a spot notice, a drained node) has not: Ray Train is to start the group again."""
    return code == 0 or (code == EXIT_STOPPED and is_stop_asked)


def online_words(encoders, folder: str, beside: contextlib.ExitStack) -> tuple[list[str], dict[str, str]]:
    """What the program is told of the encoders, where there are some: on its command line and in its environment."""
    if encoders is None:
        return [], {}
    from darkroom_ray.online import AddressFile

    addresses = beside.enter_context(AddressFile(encoders.addresses, folder))
    return ["--encoders", f"@{addresses.path}"], encoders.environment()


def run_rank(config: dict) -> None:
    """What a Ray Train worker runs. It returns where a restart would mend nothing; the driver asks the notes."""
    import ray
    import ray.train
    from ray.train.collective import broadcast_from_rank_zero

    request, notes = config["request"], config["notes"]
    context = ray.train.get_context()
    rank = context.get_world_rank()
    attempt = broadcast_from_rank_zero(ray.get(notes.begin.remote(context.get_world_size())) if rank == 0 else None)
    if attempt == NO_ATTEMPT:
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as beside:
        summary = os.path.join(folder, "summary.json")
        more, environment = online_words(config.get("encoders"), folder, beside)
        child = start_child(request, request.command("--json-summary", summary, *more), {**environment_of(context, attempt), **environment})
        reporter = Reporter(rank, request, config["output"])
        code = wait_for_rank(child, notes)
        if rank == 0 and code == 0 and os.path.exists(summary):
            ray.get(notes.note_summary.remote(json.loads(pathlib.Path(summary).read_text(encoding="utf-8"))))
    if has_ended_well(code, bool(ray.get(notes.stop_number.remote()))):
        reporter.end()
        return
    if code in (1, 2):
        ray.get(notes.note_failure.remote(code, f"rank {rank} failed:\n{child.last_words()}"))
    raise RuntimeError(f"rank {rank} ended with exit code {code}: {child.last_words()[-2000:]}")
