"""Training: Ray Train starts one rank of the program a worker, places the group anew when one is lost or nodes come, and hears of metrics
and checkpoints. Weights, losses and the data position are the program's (docs/ranks.md): any number of ranks gives the same bits."""

import dataclasses
import os
import re
import sys
import threading
import time

from darkroom_ray.cluster import actor_here
from darkroom_ray.item_job import cause_of, counts_kept
from darkroom_ray.items import pause_after
from darkroom_ray.measured import restart_counter
from darkroom_ray.places import inside
from darkroom_ray.program import run_to_summary
from darkroom_ray.program_log import local_storage
from darkroom_ray.progress import Progress
from darkroom_ray.rank import run_rank
from darkroom_ray.request import Request
from darkroom_ray.room_wait import PlaceNote, RoomWait
from darkroom_ray.run_notes import WARNING, RunNotes, told
from darkroom_ray.stopping import ENDING, JobFailed, Stopped, StopWatch, wait_for_ends

LOOK_SECONDS = 0.5
STEP = re.compile(r"train step (\d+)/")  # Of the program's line of progress.
RESIZE_SECONDS = 30.0  # How often a healthy group looks whether it could be larger; DARKROOM_RAY_RESIZE_SECONDS.
ALONE_SECONDS = 60.0  # Without a rank at work after a stop: there is none that could end with a checkpoint.


def storage_of(request: Request, given: dict[str, list[str]]) -> str:
    """Where Ray Train keeps its own records: beside the run's."""
    output = given["--output"][0]
    return local_storage(request, output) or request.storage or inside(output, "_ray")


def make_trainer(request: Request, given: dict[str, list[str]], notes, encoders=None):
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    from darkroom_ray.group import RankTrainer
    from darkroom_ray.meeting import RankMeetingConfig

    placement = request.placement
    resources = {"CPU": placement.num_cpus, **placement.resources}
    resources |= {"GPU": placement.num_gpus} if placement.num_gpus else {}
    resources |= {"memory": placement.memory_bytes} if placement.memory_bytes else {}
    scaling = ScalingConfig(
        num_workers=request.num_workers,
        resources_per_worker=resources,
        use_gpu=bool(placement.num_gpus),
        label_selector=placement.group_selector() or None,
        accelerator_type=placement.accelerator_type or None,
    )
    run = RunConfig(storage_path=storage_of(request, given), failure_config=FailureConfig(max_failures=request.max_failures))
    return RankTrainer(
        request,
        notes,
        float(os.environ.get("DARKROOM_RAY_RESIZE_SECONDS", RESIZE_SECONDS)),
        train_loop_per_worker=run_rank,
        train_loop_config={"request": request, "output": given["--output"][0], "resume": given.get("--resume", ["auto"])[0], "notes": notes, "encoders": encoders},
        backend_config=RankMeetingConfig(),
        scaling_config=scaling,
        run_config=run,
    )


class Fit:
    """fit() in a thread of its own, because in the main one it takes SIGINT for itself and ends the process with no checkpoint."""

    def __init__(self, trainer) -> None:
        self._trainer = trainer
        self._failure: Exception | None = None
        self._result = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._trainer.fit()
        except Exception as error:  # Ray Train's own classes differ by who failed; all say why.
            self._failure = error

    def wait(self, seconds: float) -> bool:
        """Whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def failure(self) -> Exception | None:
        return self._failure

    def summary(self) -> dict:
        """What rank 0 returned; empty where the training was not done."""
        return (self._result and self._result.return_value) or {}


class RunRecord:
    """The driver's copy of what the notes must not forget. Notes that were lost begin anew, and hear it again."""

    def __init__(self, ray, notes, restarts=None) -> None:
        """`restarts`: a counter of Ray's metrics."""
        self.failure: tuple[int, str] | None = None
        self.sizes: list[int] = []  # Of the groups that were begun.
        self._ray = ray
        self._notes = notes
        self._restarts = restarts
        self._num_counted = 1  # Starts; the first is no restart.

    def look(self) -> None:
        failure = told(self._ray, self._notes.failure.remote(), self.failure)
        sizes = told(self._ray, self._notes.sizes.remote(), self.sizes)
        forgotten = self.sizes[len(sizes) :]
        self.sizes = [*sizes, *forgotten]
        if self._restarts and len(self.sizes) > self._num_counted:
            self._restarts.inc(len(self.sizes) - self._num_counted)
            self._num_counted = len(self.sizes)
        for size in forgotten:  # Before a failure, after which none is begun.
            told(self._ray, self._notes.begin.remote(size))
        if self.failure and not failure:
            told(self._ray, self._notes.note_failure.remote(*self.failure))
        self.failure = self.failure or failure

    def counts(self) -> dict:
        starts = len(self.sizes)
        return {"cluster": {"starts": starts, "restarts": max(starts - 1, 0), "ranks": self.sizes}}

    def has_none_begun(self) -> bool:
        """Asked behind a stop, after which none begins: no rank has a place."""
        return not self.sizes and told(self._ray, self._notes.sizes.remote(), None) == []

    def is_hopeless(self) -> bool:
        """As the notes', which may have forgotten that a group was begun."""
        return not self.sizes and told(self._ray, self._notes.is_hopeless.remote())


class RunView:
    """What the user sees of a run: what its notes were told; of that warnings alone where the progress is quiet."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._num_lines = 0
        self._shown = ""
        self._steps: dict[str, int] = {}

    def counts(self) -> dict:
        """The steps that were told of last."""
        return self._steps

    def look(self, ray, notes) -> None:
        news = told(ray, notes.news.remote(self._num_lines))
        if not news:
            return
        self._num_lines, lines, progress = news
        if found := STEP.match(progress):
            self._steps = {"steps": int(found[1])}
        if self._progress.is_quiet:
            self._progress.warn([line for line in lines if WARNING.match(line)])
            return
        for line in lines:
            self._progress.say(line)
        if progress != self._shown:
            self._shown = progress
            (self._progress.show if self._progress.is_terminal else self._progress.say)(progress)  # The program says one each ten seconds.

    def end(self, ray, notes) -> None:
        self.look(ray, notes)
        self._progress.clear()


def wait_for_end(ray, fit: Fit, notes, stop: StopWatch, view: RunView | None = None, restarts=None) -> RunRecord:
    """Tells the ranks of the driver's stop, so that they end with a checkpoint. A failure, or a stop, before any rank had a place, for which they may
    wait for long, is not waited for. Errors: Stopped when there is none that could."""
    record = RunRecord(ray, notes, restarts)
    asked_at = 0.0
    with counts_kept(record.counts):
        while not fit.wait(LOOK_SECONDS) and not record.is_hopeless():
            record.look()
            if view:
                view.look(ray, notes)
            if not stop.is_asked:
                continue
            asked_at = asked_at or time.monotonic()
            told(ray, notes.ask_to_stop.remote(stop.number))  # Again and again: notes that were lost begin anew.
            if record.has_none_begun():
                raise Stopped(stop.number)
            alone = min(time.monotonic() - asked_at, told(ray, notes.seconds_without_rank.remote()))
            if alone > ALONE_SECONDS:
                raise Stopped(stop.number)
        record.look()
    return record


def why_it_ended(request: Request, failure: Exception) -> str:
    """Of what fit() raised."""
    if hasattr(failure, "controller_failure"):
        return f"Ray Train cannot go on: {failure.controller_failure}"
    return f"the ranks were lost more often than --max-failures {request.max_failures} allows without a new checkpoint; the last time: {failure}"


def train(ray, request: Request, given: dict[str, list[str]], stop: StopWatch, encoders=None, on_notes=None) -> tuple[int, dict]:
    """Exit code and summary. `encoders`: an online.EncoderAccess for the ranks; `on_notes` hears of the notes before the ranks begin.
    Errors: JobFailed, Stopped."""
    notes = actor_here(ray, RunNotes, max_restarts=-1)
    if on_notes:
        on_notes(notes)
    view = RunView(Progress(request.verb, is_quiet=request.is_quiet))
    with counts_kept(view.counts):
        try:
            fit = Fit(make_trainer(request, given, notes, encoders))
            record = wait_for_end(ray, fit, notes, stop, view, restart_counter(request.verb))
        finally:
            view.end(ray, notes)
        with counts_kept(record.counts):
            summary = summary_of_fit(request, fit, record, stop)
    summary["train"] |= record.counts()
    return 0, summary


def summary_of_fit(request: Request, fit: Fit, record: RunRecord, stop: StopWatch) -> dict:
    """Errors: JobFailed, Stopped."""
    if record.failure:
        raise JobFailed(record.failure[1], record.failure[0])
    stop.check()
    if fit.failure():
        raise JobFailed(why_it_ended(request, fit.failure()))
    if not fit.summary().get("train"):
        raise JobFailed("the ranks ended before the training was done; run the same command again to go on")
    return fit.summary()


def run_as_task(ray, request: Request, stop: StopWatch) -> tuple[int, dict]:
    """A verb that is one piece of work: sample, and plans (--dry-run, --clean). Exit code and summary. Errors: JobFailed, Stopped."""
    task = ray.remote(run_to_summary).options(**request.placement.options(), max_retries=0)
    progress = Progress(request.verb, is_quiet=request.is_quiet)
    if request.is_quiet:  # What it says is told at its end.
        request = dataclasses.replace(request, arguments=("--quiet", *request.arguments))
    failures = 0
    while True:
        note = PlaceNote()
        reference = task.remote(request, note)
        wait_for_task(ray, reference, stop, progress, RoomWait(progress.say, f"{request.verb}: the task", request.placement), note)
        try:
            code, summary, said = ray.get(reference)
            break
        except ray.exceptions.RayError as error:
            failures += 1
            if 0 <= request.max_failures < failures:
                lost = f"the task was lost more often than --max-failures {request.max_failures} allows; the last time: {cause_of(error)}"
                raise JobFailed(lost) from None
            stop.pause(pause_after(failures))
    if said:
        print(said, file=sys.stderr, flush=True)
    return code, summary


def wait_for_task(ray, reference, stop: StopWatch, progress: Progress, room: RoomWait, note: PlaceNote) -> None:
    """Errors: Stopped, once its program has ended in order."""
    try:
        while not ray.wait([reference], timeout=LOOK_SECONDS)[0]:
            room.look(note.is_waiting)
            stop.check()
    except Stopped:
        progress.say(f"{progress.verb}: {ENDING}")
        ray.cancel(reference)
        wait_for_ends(ray, [reference])
        raise
