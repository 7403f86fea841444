"""What does items on the cluster: a task a batch, or actors whose program stays with its models loaded."""

import threading

from darkroom_ray.item_child import ItemChild
from darkroom_ray.program import run_to_summary
from darkroom_ray.request import Request

CALLS_OF_AN_ACTOR = 2  # While the program works on one batch the next is at hand.


def plan_items(request: Request) -> tuple[dict, list[str]]:
    """A task: pins the job and says which items are open."""
    child = ItemChild(request)
    plan = child.plan()
    return plan, child.finish()


def do_items(request: Request, items: list[int]) -> tuple[list[dict], list[str]]:
    """A task: its program does these items and ends."""
    child = ItemChild(request)
    answers = child.do(items)
    return answers, child.finish()


def close_job(request: Request) -> tuple[int, dict, str]:
    """A task: runs the verb for the whole job once all its items are there, and makes those that are gone meanwhile. What concerns all items
    (--dedup content, --visualize, the error budget) is done by it. Exit code, summary, last words."""
    return run_to_summary(request)


class Encoder:
    """An actor: its program starts with the first call and loads the models once."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._starting = threading.Lock()
        self._child: ItemChild | None = None

    def _started(self) -> ItemChild:
        with self._starting:
            if self._child is None:
                self._child = ItemChild(self._request)
            return self._child

    def plan(self) -> tuple[dict, list[str]]:
        return self._started().plan(), []

    def do(self, items: list[int]) -> tuple[list[dict], list[str]]:
        return self._started().do(items), []

    def finish(self) -> list[str]:
        return self._child.finish() if self._child else []


class Tasks:
    """A task a batch."""

    def __init__(self, ray, request: Request, num_tasks: int) -> None:
        options = {**request.placement.options(), "max_retries": 0}
        self._plan = ray.remote(plan_items).options(**options)
        self._do = ray.remote(do_items).options(**options)
        self._close = ray.remote(close_job).options(**options)
        self._request = request
        self.num_workers = num_tasks
        self._free = num_tasks

    def plan(self):
        return self._plan.remote(self._request)

    def renew(self) -> None:
        """The next plan has a worker of its own."""

    def submit(self, batch: list[int]) -> tuple[object, object]:
        """(reference, worker)"""
        self._free -= 1
        return self._do.remote(self._request, batch), None

    def has_room(self) -> bool:
        return self._free > 0

    def give_back(self, worker, is_lost: bool) -> None:
        self._free += 1

    def finish(self) -> list[str]:
        return []

    def close(self):
        return self._close.remote(self._request)


class Encoders:
    """Actors; one that was lost is replaced by a new one, wherever there is room then."""

    def __init__(self, ray, request: Request) -> None:
        self._ray = ray
        self._request = request
        self._actor = ray.remote(Encoder).options(**request.placement.options(), max_concurrency=CALLS_OF_AN_ACTOR + 1, max_restarts=0)
        self._close = ray.remote(close_job).options(**request.placement.options(), max_retries=0)
        self.num_workers = request.num_workers
        self._calls = {self._actor.remote(request): 0 for _ in range(request.num_workers)}

    def plan(self):
        return next(iter(self._calls)).plan.remote()

    def renew(self) -> None:
        """The actor that was to plan is lost."""
        self.replace(next(iter(self._calls)))

    def has_room(self) -> bool:
        return any(calls < CALLS_OF_AN_ACTOR for calls in self._calls.values())

    def submit(self, batch: list[int]) -> tuple[object, object]:
        worker = min(self._calls, key=self._calls.get)
        self._calls[worker] += 1
        return worker.do.remote(batch), worker

    def give_back(self, worker, is_lost: bool) -> None:
        if worker not in self._calls:
            return  # It was replaced when another of its calls failed.
        self._calls[worker] -= 1
        if is_lost:
            self.replace(worker)

    def replace(self, worker) -> None:
        self._calls.pop(worker)
        self._ray.kill(worker)  # It may be there still, without its program.
        self._calls[self._actor.remote(self._request)] = 0

    def finish(self) -> list[str]:
        """Ends the programs. What they warned of; one that is lost now has committed all that was asked of it."""
        warnings: list[str] = []
        for worker in list(self._calls):
            try:
                warnings += self._ray.get(worker.finish.remote())
            except self._ray.exceptions.RayError:
                continue
        for worker in self._calls:
            self._ray.kill(worker)
        self._calls = {}
        return warnings

    def close(self):
        return self._close.remote(self._request)
