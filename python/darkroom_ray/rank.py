"""One rank: a Ray Train worker whose program is the rank."""

import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

from darkroom_ray.measured import TrainMeasures
from darkroom_ray.own_folder import own_folder
from darkroom_ray.places import inside
from darkroom_ray.program import Child, start_child
from darkroom_ray.program_log import ProgramLog, log_folder
from darkroom_ray.request import Request, path_on_disk, without_secrets
from darkroom_ray.run_notes import NO_ATTEMPT, PROGRESS, TIME, asked
from darkroom_ray.watched import NUMBERS_AT

LOOK_SECONDS = 0.5
# As the program's: a rank whose peers were lost, which a restart mends (docs/ranks.md).
EXIT_RANK_LOST = 75
RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"  # As torchrun calls it: the number of this start.
EXIT_STOPPED = 128 + signal.SIGTERM  # With a checkpoint, at somebody's wish.
REPORT_SECONDS = 60.0  # That a rank whose work is done waits for its last report: another one may be stuck, and Ray does not say so.
METRICS_SECONDS = 5.0  # Between reports to Ray of metrics alone: its controller asks for reports every two seconds.
MOST_WORDS = 1000  # Lines of the program between two looks.
# As the program's line of progress has them.
PROGRESS_FIELDS = re.compile(r"train step (?P<step>\d+)/\d+  loss (?P<loss>\S+)  grad (?P<grad_norm>\S+)  lr (?P<lr>\S+)  (?P<images_per_second>\S+) img/s")
# As it refuses a run folder, on a disk (src/train/set_up_run.cpp) and on a store, where another host's process has claimed it
# (src/train/remote_run.cpp): a lost program may take a moment to end.
HELD_BY_ANOTHER = "another process is training in this run folder"
# As it says that a checkpoint is on the store of its run folder (src/train/remote_run.cpp).
STORED = re.compile(TIME + r"the checkpoint of step (?P<step>\d+) is stored: ")


class MetricsTail:
    """New whole lines of a run's metrics.jsonl, and new checkpoints, of a folder on a disk."""

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
    path = path_on_disk(output)
    return pathlib.Path(request.folder, path) if path else None


def taken(words: collections.deque) -> list:
    """All that is there now, and no longer then."""
    return [words.popleft() for _ in range(len(words))]


def metrics_of_progress(line: str) -> dict:
    """The program's line of progress as a line of metrics.jsonl; empty where it is none."""
    found = PROGRESS.match(line) and PROGRESS_FIELDS.search(line)
    if not found:
        return {}
    fields = {}
    for name, text in found.groupdict().items():
        with contextlib.suppress(ValueError):  # "-": no loss yet.
            fields[name] = int(text) if name == "step" else float(text)
    return fields


class RankVoice:
    """What a rank's program says on its standard error: into its log at once, and to the notes at each look. On a store, where there is no
    folder to follow, the line of progress has the metrics, and another one says what was stored. Thread safety: one thread takes, another one
    tells."""

    def __init__(self, rank: int, log: ProgramLog) -> None:
        self._rank = rank
        self._log = log
        self._lines: collections.deque[str] = collections.deque(maxlen=MOST_WORDS)
        self.metrics: collections.deque[dict] = collections.deque(maxlen=MOST_WORDS)
        self.checkpoints: collections.deque[str] = collections.deque(maxlen=MOST_WORDS)
        self._newest = -1

    def take(self, line: str) -> None:
        self._log.write(line)
        if self._rank == 0 or not NUMBERS_AT.search(line):  # The book hears where numbers are; the user need not, of each rank.
            self._lines.append(line.rstrip("\n"))
        metrics = metrics_of_progress(line) if self._rank == 0 else {}
        if metrics:
            self.metrics.append(metrics)
        if self._rank == 0 and (stored := STORED.match(line)) and int(stored["step"]) > self._newest:
            self._newest = int(stored["step"])  # At a stop the newest is stored before earlier ones.
            self.checkpoints.append(f"step-{self._newest:08d}")

    def tell(self, notes) -> None:
        lines = taken(self._lines)
        if lines:
            notes.hear.remote(self._rank, lines)


class Reporter:
    """Rank 0 says what is new, and all ranks report it to Ray Train together, as it wants: what its voice has heard where the run is on a store.
    Whatever fails here costs Ray what it would have heard, and the training nothing; the notes hear a warning."""

    def __init__(self, rank: int, request: Request, output: str, notes, voice: RankVoice | None = None) -> None:
        self._rank = rank
        self._notes = notes
        self._warned = ""
        folder = folder_of_run(request, output) if rank == 0 else None
        self._tail = MetricsTail(folder)
        self._voice = voice if folder is None else None
        self._reported_at = 0.0
        self._output = output
        self._measures = TrainMeasures() if rank == 0 else None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _news(self) -> dict:
        """Of rank 0: waits for some."""
        lines: list[dict] = []
        checkpoints: list[str] = []
        while True:
            is_over = self._is_over.wait(LOOK_SECONDS)
            try:
                lines = self._new_lines() or lines[-1:]
                checkpoints = taken(self._voice.checkpoints) if self._voice else self._tail.new_checkpoints()
            except Exception as error:  # The next look may see it: what the others wait for comes, whatever happens.
                self._warn(f"Ray Train does not hear what is new in the run's folder: {error}")
            is_due = lines and (is_over or time.monotonic() - self._reported_at >= METRICS_SECONDS)
            if checkpoints or is_due:
                self._reported_at = time.monotonic()
                metrics = {name: value for name, value in (lines[-1] if lines else {}).items() if not isinstance(value, dict)}
                return {"metrics": metrics, "checkpoint": checkpoints[-1] if checkpoints else ""}
            if is_over:
                return {}

    def _new_lines(self) -> list[dict]:
        lines = taken(self._voice.metrics) if self._voice else self._tail.lines()
        for line in lines:
            self._measures.set(line)
        return lines

    def _warn(self, text: str) -> None:
        if text != self._warned:  # Looks are many.
            self._warned = text
            self._notes.hear.remote(self._rank, [f"warning: {text}"])

    def _run(self) -> None:
        import ray.train
        from ray.train.collective import broadcast_from_rank_zero

        try:
            while news := broadcast_from_rank_zero(self._news() if self._rank == 0 else None):
                self._report(ray.train, news)
            return
        except Exception as error:  # Ray has counted the report, and would wait for it for ever before the next one: there is none.
            self._warn(f"Ray Train hears no more of this start's metrics and checkpoints: {error}")
        if self._rank == 0:
            with contextlib.suppress(Exception):
                broadcast_from_rank_zero({})  # The others wait for news.
            while self._news():  # Ray's gauges go on.
                pass

    def _report(self, train, news: dict) -> None:
        if self._rank != 0 or not news["checkpoint"]:
            train.report(news["metrics"])
            return
        # The checkpoint lies in the run folder and stays there: what Ray keeps says where.
        with own_folder("dr-report-") as own:
            folder = pathlib.Path(own, "checkpoint")  # All that is in it goes to Ray's storage.
            folder.mkdir()
            pointer = {"uri": without_secrets(inside(self._output, f"checkpoints/{news['checkpoint']}"))}
            (folder / "checkpoint.json").write_text(json.dumps(pointer) + "\n", encoding="utf-8")
            train.report(news["metrics"], checkpoint=train.Checkpoint.from_directory(folder))

    def end(self) -> None:
        """The rank has done its work. Others than rank 0 may have to wait for that; what they are waiting for then still goes on behind this."""
        self._is_over.set()
        self._thread.join(REPORT_SECONDS)
        if self._rank == 0 and self._thread.is_alive():
            self._warn(f"Ray Train has not taken the last metrics and checkpoints within {REPORT_SECONDS:.0f} s")


def environment_of(context, attempt: int) -> dict[str, str]:
    """What the program knows a rank by (docs/ranks.md). MASTER_ADDR and MASTER_PORT are set already."""
    return {
        "RANK": str(context.get_world_rank()),
        "WORLD_SIZE": str(context.get_world_size()),
        "LOCAL_RANK": str(context.get_local_rank()),
        "LOCAL_WORLD_SIZE": str(context.get_local_world_size()),
        RESTART_COUNT: str(attempt),
    }


def wait_for_rank(child: Child, notes, voice: RankVoice) -> tuple[int, bool]:
    """Its exit code, and whether it was told to end: the driver's stop, or the wish to begin anew with more ranks, is handed on, once. The notes
    hear of this rank for as long as it is at work."""
    is_told = False
    while child.poll() is None:
        try:
            child.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:  # Still at work.
            voice.tell(notes)
            is_asked = asked(notes.stop_number) or asked(notes.is_pausing)
            if is_asked and not is_told:
                child.end(signal.SIGTERM)
                is_told = True
    code = child.wait()
    voice.tell(notes)
    return code, is_told


def pause(rank: int, notes) -> None:
    """This rank has ended with a checkpoint, so that the group may be begun anew with more: its worker is ended when all have. It returns where
    that is not to be any more. The notes are told again and again: those that were lost begin anew."""
    while not asked(notes.stop_number):
        notes.note_paused.remote(rank)
        time.sleep(LOOK_SECONDS)


def has_ended_well(code: int, is_stop_asked: bool) -> bool:
    """A rank that somebody else stopped (a spot notice, a drained node) has not: Ray Train is to start the group again."""
    return code == 0 or (code == EXIT_STOPPED and is_stop_asked)


def is_claim_of_a_lost_start(code: int, words: str, attempt: int, given_resume: str) -> bool:
    """Whether a first start was refused because of a claim that may be a dead driver's rank's: later starts wait until it expires, but take
    the run's newest checkpoint, whatever --resume says."""
    return code == 1 and attempt == 0 and given_resume == "auto" and HELD_BY_ANOTHER in words


def online_words(encoders, folder: str, beside: contextlib.ExitStack) -> tuple[list[str], dict[str, str]]:
    """What the program is told of the encoders, where there are some: on its command line and in its environment."""
    if encoders is None:
        return [], {}
    from darkroom_ray.addresses import AddressFile

    addresses = beside.enter_context(AddressFile(encoders.addresses, folder))
    return ["--encoders", f"@{addresses.path}"], encoders.environment()


def start_program(config: dict, rank: int, attempt: int, context, voice: RankVoice, folder: str, beside: contextlib.ExitStack) -> Child:
    request = config["request"]
    more, environment = online_words(config.get("encoders"), folder, beside)
    words = request.command("--json-summary", os.path.join(folder, "summary.json"), *more)
    return start_child(request, words, {**environment_of(context, attempt), **environment}, on_said=voice.take)


def run_rank(config: dict) -> dict:
    """What a Ray Train worker runs: the summary of a training that is done, which rank 0 has and Ray Train gives to the driver. It returns, too,
    where a restart would mend nothing; the driver asks the notes."""
    import ray
    import ray.train
    from ray.train.collective import broadcast_from_rank_zero

    request, notes = config["request"], config["notes"]
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    attempt = broadcast_from_rank_zero(asked(notes.begin, size) if rank == 0 else None)
    if attempt == NO_ATTEMPT:
        return {}
    logs = log_folder(request, config["output"])
    notes.note_place.remote(rank, ray.util.get_node_ip_address(), logs)
    voice = RankVoice(rank, ProgramLog(logs, f"rank-{rank:03d}", f"start {attempt + 1} with {size} ranks"))
    with own_folder("dr-rank-") as folder, contextlib.ExitStack() as beside:
        child = start_program(config, rank, attempt, context, voice, folder, beside)
        reporter = Reporter(rank, request, config["output"], notes, voice)
        code, is_told = wait_for_rank(child, notes, voice)
        path = pathlib.Path(folder, "summary.json")
        summary = json.loads(path.read_text(encoding="utf-8")) if rank == 0 and code == 0 and path.exists() else {}
    end_rank(rank, attempt, code, is_told, child.last_words(), config, reporter)
    return summary


def end_rank(rank: int, attempt: int, code: int, is_told: bool, words: str, config: dict, reporter: Reporter) -> None:
    """`is_told`: this rank was told to end; notes that were lost since do not know that. Errors: RuntimeError: the group is to be started again,
    or the run has failed, as the notes know."""
    notes = config["notes"]
    is_stop_asked, is_pausing = asked(notes.stop_number), asked(notes.is_pausing)
    if has_ended_well(code, bool(is_told or is_stop_asked or is_pausing)):
        reporter.end()
        if code != 0 and not is_stop_asked:
            pause(rank, notes)
        return
    if code in (1, 2) and not is_claim_of_a_lost_start(code, words, attempt, config["resume"]):
        asked(notes.note_failure, code, f"rank {rank} failed:\n{words}")
    raise RuntimeError(f"rank {rank} ended with exit code {code}: {words[-2000:]}")
