"""Training: Ray Train starts one rank of the program a worker, places the group anew when one is lost or nodes come, and hears of metrics
and checkpoints. Weights, losses and the data position are the program's (docs/ranks.md): any number of ranks gives the same bits."""

import os
import threading

from darkroom_ray.item_job import JobFailed
from darkroom_ray.program import run_to_summary
from darkroom_ray.rank import RunNotes, run_rank
from darkroom_ray.request import Request
from darkroom_ray.stopping import StopWatch

LOOK_SECONDS = 0.5
RESIZE_SECONDS = 60.0  # How often a healthy group looks whether it could be larger.


def storage_of(request: Request, given: dict[str, list[str]]) -> str:
    """Where Ray Train keeps its own records: beside the run's."""
    if request.storage:
        return request.storage
    output = given["--output"][0]
    if "://" in output and not output.startswith("file://"):
        return f"{output.rstrip('/')}/_ray"
    path = output.removeprefix("file://")
    return os.path.join(request.folder, path, "_ray")


def make_trainer(request: Request, given: dict[str, list[str]], notes):
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    from darkroom_ray.meeting import RankMeetingConfig

    placement = request.placement
    resources = {"CPU": placement.num_cpus, **placement.resources}
    resources |= {"GPU": placement.num_gpus} if placement.num_gpus else {}
    resources |= {"memory": placement.memory_bytes} if placement.memory_bytes else {}
    is_fixed = request.min_workers == request.num_workers
    scaling = ScalingConfig(
        num_workers=request.num_workers if is_fixed else (request.min_workers, request.num_workers),
        resources_per_worker=resources,
        use_gpu=bool(placement.num_gpus),
        label_selector=placement.label_selectors()[0] or None,
        accelerator_type=placement.accelerator_type or None,
        elastic_resize_monitor_interval_s=float(os.environ.get("DARKROOM_RAY_RESIZE_SECONDS", RESIZE_SECONDS)),
    )
    run = RunConfig(storage_path=storage_of(request, given), failure_config=FailureConfig(max_failures=request.max_failures))
    return DataParallelTrainer(
        run_rank,
        train_loop_config={"request": request, "output": given["--output"][0], "notes": notes},
        backend_config=RankMeetingConfig(),
        scaling_config=scaling,
        run_config=run,
    )


class StopRelay:
    """Tells the ranks of the driver's stop, so that they end with a checkpoint: fit() returns only when they have."""

    def __init__(self, stop: StopWatch, notes) -> None:
        self._stop, self._notes = stop, notes
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._relay, daemon=True)

    def _relay(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            if self._stop.is_asked:
                self._notes.ask_to_stop.remote(self._stop.number)
                return

    def __enter__(self) -> "StopRelay":
        self._thread.start()
        return self

    def __exit__(self, *unused) -> None:
        self._is_over.set()
        self._thread.join()


def train(ray, request: Request, given: dict[str, list[str]], stop: StopWatch) -> tuple[int, dict]:
    """Exit code and summary. Errors: JobFailed, Stopped."""
    notes = ray.remote(RunNotes).options(num_cpus=0, max_restarts=-1).remote()
    with StopRelay(stop, notes):
        try:
            make_trainer(request, given, notes).fit()
        except Exception as error:  # Ray Train's own classes differ by who failed; all say why.
            failure = ray.get(notes.failure.remote())
            lost = f"the ranks were lost more often than --max-failures {request.max_failures} allows; the last time: {error}"
            raise JobFailed(failure[1] if failure else lost) from None
    failure = ray.get(notes.failure.remote())
    if failure:
        raise JobFailed(failure[1], failure[0])
    stop.check()
    summary, attempts, sizes = ray.get(notes.result.remote())
    summary.setdefault("train", {})["cluster"] = {"starts": attempts, "restarts": attempts - 1, "ranks": sizes}
    return 0, summary


def run_as_task(ray, request: Request, stop: StopWatch) -> tuple[int, dict]:
    """A verb that is one piece of work: sample, and plans (--dry-run, --clean). Exit code and summary. Errors: JobFailed, Stopped."""
    task = ray.remote(run_to_summary).options(**request.placement.options(), max_retries=max(request.max_failures, -1))
    reference = task.remote(request)
    while True:
        done, _ = ray.wait([reference], timeout=LOOK_SECONDS)
        stop.check()
        if done:
            break
    try:
        code, summary, said = ray.get(reference)
    except ray.exceptions.RayError as error:
        raise JobFailed(f"the task was lost more often than --max-failures {request.max_failures} allows; the last time: {error}") from None
    print(said, flush=True)
    return code, summary
