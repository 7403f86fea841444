"""What does items on the cluster: a task a batch, or actors whose program stays with its models loaded."""

import contextlib
import threading

from darkroom_ray.addresses import AddressFile
from darkroom_ray.item_child import ItemChild
from darkroom_ray.own_folder import own_folder
from darkroom_ray.program import run_to_summary, until_cancelled
from darkroom_ray.request import Request
from darkroom_ray.room_wait import PlaceNote

TASKS_PER_WAITING = 4  # A cluster that is larger by a quarter each time is soon large enough.
CALLS_OF_AN_ACTOR = 2  # While the program works on one batch the next is at hand.


def plan_items(request: Request, note=None) -> tuple[dict, list[str], float]:
    """A task: pins the job and says which items are open. Plan, what ItemChild.finish() tells, seconds of its program. `note`: as until_cancelled's."""
    return until_cancelled(lambda: ItemChild(request), lambda child: (child.plan(), child.finish(), child.seconds()), ItemChild.stop, note)


def do_items(request: Request, items: list[int]) -> tuple[list[dict], list[str], float]:
    """A task: its program does these items and ends. Answers, what ItemChild.finish() tells, seconds of its program."""
    return until_cancelled(lambda: ItemChild(request), lambda child: (child.do(items), child.finish(), child.seconds()), ItemChild.stop)


class Encoder:
    """An actor: its program starts with the first call and loads the models once."""

    def __init__(self, request: Request, access=None) -> None:
        """`access`: an online.EncoderAccess of transformers on other nodes."""
        self._request = request
        self._access = access
        self._starting = threading.Lock()
        self._child: ItemChild | None = None
        self._is_stopped = False
        self._beside = contextlib.ExitStack()  # Until the actor ends.

    def _started(self) -> ItemChild:
        with self._starting:
            if self._is_stopped:
                raise ChildProcessError("it was stopped")
            if self._child is None:
                self._child = ItemChild(self._request, *self._transformers())
            return self._child

    def _transformers(self) -> tuple[list[str], dict[str, str]]:
        """What the program is told of them, where there are some: on its command line and in its environment."""
        if self._access is None:
            return [], {}
        folder = self._beside.enter_context(own_folder("dr-items-"))
        addresses = self._beside.enter_context(AddressFile(self._access.addresses, folder))
        return ["--transformers", f"@{addresses.path}"], self._access.environment()

    def plan(self) -> tuple[dict, list[str], float]:
        return self._started().plan(), [], 0.0

    def do(self, items: list[int]) -> tuple[list[dict], list[str], float]:
        child = self._started()
        return child.do(items), child.new_reasons(), 0.0

    def finish(self) -> tuple[list[str], float]:
        """What ItemChild.finish() tells, seconds of its program."""
        with self._beside:
            return (self._child.finish(), self._child.seconds()) if self._child else ([], 0.0)

    def stop(self) -> None:
        """Ends its program in order, beside calls that are under way: they fail. One that is about to start one starts none."""
        with self._starting:
            self._is_stopped = True
        with self._beside:
            if self._child:
                self._child.stop()


class Tasks:
    """A task a batch."""

    num_takers = 0  # A batch is a start of the program: none is made small.

    def __init__(self, ray, request: Request, num_tasks: int) -> None:
        options = {**request.placement.options(), "max_retries": 0}
        self._ray = ray
        self._plan = ray.remote(plan_items).options(**options)
        self._do = ray.remote(do_items).options(**options)
        self._close = ray.remote(run_to_summary).options(**options)
        self._request = request
        self.num_workers = num_tasks
        self.is_fixed = bool(request.num_workers)
        self._at_work = 0
        self._note = PlaceNote()  # Of the task that plans, or that closes the job.

    def plan(self):
        self._note = PlaceNote()
        return self._plan.remote(self._request, self._note)

    def has_no_place(self) -> bool:
        """Of the call that plans or closes, while it is not done."""
        return self._note.is_waiting()

    def renew(self) -> None:
        """The next plan has a worker of its own."""

    def is_ready(self) -> bool:
        return True

    def num_waiting(self) -> int:
        return 0

    def num_at_work(self) -> int:
        """Of those under way some wait for nodes."""
        return min(self._at_work, self.num_workers)

    def submit(self, batch: list[int], goes_alone: bool) -> tuple[object, object]:
        """(reference, worker)"""
        self._at_work += 1
        return self._do.remote(self._request, batch), None

    def has_room(self) -> bool:
        """Where nobody says how many, some wait: an autoscaler brings nodes for what waits alone."""
        waiting = 0 if self.is_fixed else -(-self.num_workers // TASKS_PER_WAITING)
        return self._at_work < self.num_workers + waiting

    def is_one_idle(self) -> bool:
        return self._at_work < self.num_workers

    def give_back(self, worker, is_lost: bool) -> bool:
        """Whether a worker was lost with it."""
        self._at_work -= 1
        return is_lost

    def note_room(self, num_tasks: int) -> None:
        """Nodes have come or gone."""
        if not self.is_fixed:
            self.num_workers = num_tasks

    def finish(self, wait) -> tuple[list[str], float]:
        return [], 0.0

    def stop(self, calls: list) -> list:
        """Ends the programs in order. `calls`: that are under way. References that are done when the programs have ended."""
        for call in calls:
            self._ray.cancel(call)
        return calls

    def close(self):
        """A task that runs the verb for the whole job once all its items are there, and makes those that are gone meanwhile. What concerns all items
        (--dedup content, --visualize, the error budget) is done by it."""
        self._note = PlaceNote()
        return self._close.remote(self._request, self._note)


class Encoders:
    """Actors; one that was lost is replaced by a new one, wherever there is room then. One that Ray has not placed yet gets no work."""

    def __init__(self, ray, request: Request, access=None) -> None:
        """`access`: as Encoder's."""
        self._ray = ray
        self._request = request
        self._access = access
        self._actor = ray.remote(Encoder).options(**request.placement.options(), max_concurrency=CALLS_OF_AN_ACTOR + 1, max_restarts=0)
        self._close = ray.remote(run_to_summary).options(**request.placement.options(), max_retries=0)
        self.num_workers = request.num_workers
        self._calls: dict = {}  # Of each actor: those that are under way.
        self._waiting: dict = {}  # Actors that are not placed yet: the reference that is done when they are.
        self._planner = None
        self._closing = None  # The call of the task that closes the job.
        self._note = PlaceNote()  # Of that task.
        for _ in range(request.num_workers):
            self._add()

    @property
    def num_takers(self) -> int:
        return self.num_workers * CALLS_OF_AN_ACTOR

    def _add(self) -> None:
        actor = self._actor.remote(self._request, self._access)
        self._calls[actor] = 0
        self._waiting[actor] = actor.__ray_ready__.remote()

    def _placed(self) -> list:
        """Actors that are there. One that ended before it was is among them: its first call tells how."""
        if self._waiting:
            references = list(self._waiting.values())
            done, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
            self._waiting = {actor: reference for actor, reference in self._waiting.items() if reference not in done}
        return [actor for actor in self._calls if actor not in self._waiting]

    def is_ready(self) -> bool:
        """Whether one is there that could plan."""
        return bool(self._placed())

    def num_waiting(self) -> int:
        return self.num_workers - len(self._placed())

    def num_at_work(self) -> int:
        return self.num_workers - self.num_waiting()

    def has_no_place(self) -> bool:
        """As Tasks'."""
        return self._closing is not None and self._note.is_waiting()

    def plan(self):
        self._planner = (self._placed() or list(self._calls))[0]
        return self._planner.plan.remote()

    def renew(self) -> None:
        """The actor that was to plan is lost."""
        self.replace(self._planner)

    def has_room(self) -> bool:
        return any(self._calls[actor] < CALLS_OF_AN_ACTOR for actor in self._placed())

    def is_one_idle(self) -> bool:
        return any(self._calls[actor] == 0 for actor in self._placed())

    def submit(self, batch: list[int], goes_alone: bool) -> tuple[object, object]:
        """(reference, worker). REQUIRES: has_room(); is_one_idle() for a batch that goes alone, beside which its actor gets no other."""
        actor = min(self._placed(), key=self._calls.get)
        share = CALLS_OF_AN_ACTOR if goes_alone else 1
        self._calls[actor] += share
        return actor.do.remote(batch), (actor, share)

    def give_back(self, worker, is_lost: bool) -> bool:
        """Whether a worker was lost with it: not again one that was replaced when another of its calls failed."""
        actor, share = worker
        if actor not in self._calls:
            return False
        self._calls[actor] -= share
        if is_lost:
            self.replace(actor)
        return is_lost

    def replace(self, actor) -> None:
        self._calls.pop(actor)
        self._waiting.pop(actor, None)
        self._ray.kill(actor)  # It may be there still, without its program.
        self._add()

    def finish(self, wait) -> tuple[list[str], float]:
        """Ends the programs. What they tell at their end, and their seconds; one that is lost now has committed all that was asked of it. `wait`: ItemJob's.
        Errors: its."""
        placed = self._placed()
        for actor in self._waiting:
            self._ray.kill(actor)
        replies = [actor.finish.remote() for actor in placed]
        open_replies = list(replies)
        while open_replies:
            done = wait(open_replies)
            open_replies = [reply for reply in open_replies if reply not in done]
        said: list[str] = []
        seconds = 0.0
        for reply in replies:
            try:
                of_one, its_seconds = self._ray.get(reply)
            except self._ray.exceptions.RayError:
                continue
            said += of_one
            seconds += its_seconds
        for actor in placed:
            self._ray.kill(actor)
        self._calls, self._waiting = {}, {}
        return said, seconds

    def stop(self, calls: list) -> list:
        """As Tasks': the closing run is a task, everything else is an actor's."""
        placed = self._placed()
        for actor in self._waiting:
            self._ray.kill(actor)
        closing = [call for call in calls if call is self._closing]
        for call in closing:
            self._ray.cancel(call)
        return [*closing, *(actor.stop.remote() for actor in placed)]

    def close(self):
        """As Tasks'."""
        self._note = PlaceNote()
        self._closing = self._close.remote(self._request, self._note)
        return self._closing
