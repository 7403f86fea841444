"""Ray Train's group of ranks by rules of our own, inside its controller: how many ranks it has, and after which losses it is started again. Ray's
own elastic policy counts what nodes have, not what is free of it nor which labels they bear, so that it asks for ever for a group that
cannot be placed."""

import time

import ray
from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
from ray.train.v2._internal.execution.controller.state import ReschedulingState, RunningState
from ray.train.v2._internal.execution.failure_handling import DefaultFailurePolicy, FailureDecision
from ray.train.v2._internal.execution.scaling_policy import NoopDecision, ResizeDecision, ScalingDecision, ScalingPolicy
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from darkroom_ray.group_size import GroupSize, LossCount, NoRoom
from darkroom_ray.item_job import first_line
from darkroom_ray.nodes import free_nodes
from darkroom_ray.preflight import Node, described, room_in, take_places, with_amounts
from darkroom_ray.request import Request
from darkroom_ray.run_notes import told

LOOK_SECONDS = 0.5
TELL_SECONDS = 30.0  # Until it is said again that nothing has changed.


def why_not(error) -> str:
    """Of Ray Train's error about a group that did not start."""
    cause = getattr(error, "controller_failure", error)
    return "found no place after all" if isinstance(cause, WorkerGroupStartupTimeoutError) else f"did not start: {first_line(cause)}"


class RoomPolicy(ScalingPolicy):
    """As many ranks as find room now, up to those that are asked for: GroupSize decides, this one looks at the cluster for it. Made by the
    driver, at work in Ray Train's controller; `notes` are the run's RunNotes."""

    def __init__(self, scaling_config, request: Request, notes, resize_seconds: float) -> None:
        super().__init__(scaling_config)
        self._placement = request.placement
        self._encoders = request.encoders.placement if request.encoders else None
        self._notes = notes
        self._size = GroupSize(request.min_workers, request.num_workers, request.max_wait, resize_seconds, settles=bool(request.encoders))
        self._is_up = False  # A group stands, at work or failed: what it holds is free for the next one.
        self._placement_group = None  # Of that group, once it has been seen at work.
        self._is_growing = False  # The ranks have been asked to end with a checkpoint.
        self._told: tuple[float, int] | None = None  # When a wait was last told of, and for how much room.

    # What the controller calls.

    def _get_num_workers_for_resource_request(self) -> int:
        """What an autoscaler is asked for."""
        return self._size.most

    def after_controller_state_update(self, previous_state, current_state) -> None:
        if isinstance(current_state, RunningState) and not isinstance(previous_state, RunningState):
            self._is_up, self._placement_group, self._is_growing, self._told = True, None, False, None
            self._size.note_start(time.monotonic())
        elif isinstance(current_state, ReschedulingState):
            self._is_up = False
            self._size.note_failed_start()
            self._tell(f"{self._size.tried} ranks {why_not(current_state.training_failed_error)}; at most {self._size.limit} are tried next")

    def make_decision_for_non_running_worker_group(self) -> ScalingDecision:
        self._maybe_send_resource_request()
        room = self._count_room(with_own_group=True)
        try:
            size = self._size.to_start(room, time.monotonic())
        except NoRoom as error:
            told(ray, self._notes.note_failure.remote(1, f"{error}; a rank takes {described(self._placement)}: free or add nodes, ask for less, or for a longer --max-wait; the same command goes on"))
            raise
        if size:
            return self._resize(size)
        if room < self._size.most:  # Else it only makes sure that there is.
            self._tell_wait(room)
        time.sleep(LOOK_SECONDS)  # The controller asks again at once.
        return NoopDecision()

    def make_decision_for_running_worker_group(self, worker_group_state, worker_group_status) -> ScalingDecision:
        self._maybe_send_resource_request()
        self._placement_group = worker_group_state.placement_group_handle.placement_group
        size = worker_group_state.num_workers
        now = time.monotonic()
        if not self._is_growing and self._size.is_look_due(size, now):
            self._is_growing = self._size.grows(size, self._count_room(with_own_group=False), now)
            if self._is_growing:
                self._tell(f"there is room for more than {size} ranks: they end with a checkpoint, and more go on from there")
        if not self._is_growing or not told(ray, self._notes.ask_to_pause.remote(size)):
            return NoopDecision()
        self._is_growing = False
        return self._resize(min(self._size.most, size + self._count_room(with_own_group=False)))

    # What it looks at.

    def _resize(self, size: int) -> ResizeDecision:
        self._size.tried = size
        return ResizeDecision(num_workers=size, resources_per_worker=self.scaling_config._resources_per_worker_not_none)

    def _count_room(self, with_own_group: bool) -> int:
        """Ranks that would find a place now, encoders that still wait for one apart; with those of a group that stands, if its places are to be
        free for the next one. 0, which is told, where the cluster does not answer: it is asked again."""
        if with_own_group and self._is_up and self._placement_group is None:
            return self._size.tried  # It failed before it was seen: the next one is as large, or finds out.
        try:
            nodes = free_nodes(ray)
            if with_own_group and self._is_up:
                nodes = self._with_own_places(nodes)
        except Exception as error:  # Ray's classes differ by what is away, and the controller would end the run.
            self._tell(f"the cluster does not say what is free of it: {first_line(error)}")
            return 0
        if self._encoders:
            take_places(nodes, self._encoders, told(ray, self._notes.num_waiting.remote(), 0))
        return room_in(nodes, self._placement)

    def _with_own_places(self, nodes: list[Node]) -> list[Node]:
        places = list(ray.util.placement_group_table(self._placement_group).get("bundles_to_node_id", {}).values())
        each = self.scaling_config._resources_per_worker_not_none
        return [with_amounts(node, each, places.count(node.node_id)) for node in nodes]

    def _tell_wait(self, room: int) -> None:
        now = time.monotonic()
        if self._told and now - self._told[0] < TELL_SECONDS and self._told[1] == room:
            return
        self._told = (now, room)
        least = f", and {self._size.least} at least are needed" if room < self._size.least else ""
        self._tell(f"waiting for machines: there is room for {room} of {self._size.most} ranks ({described(self._placement)} each){least}")

    def _tell(self, text: str) -> None:
        self._notes.say.remote(text)


class LossPolicy(DefaultFailurePolicy):
    """As Ray's, but that LossCount says which losses of the group count."""

    def __init__(self, failure_config, notes) -> None:
        super().__init__(failure_config)
        self._notes = notes
        self._losses = LossCount()

    def make_decision(self, training_failed_error) -> FailureDecision:
        step = told(ray, self._notes.start_step.remote(), -1)
        if self._losses.begins_anew(step):
            self._worker_group_failures = 0
        before = self._worker_group_failures
        decision = super().make_decision(training_failed_error)
        if decision == FailureDecision.RETRY and self.why(training_failed_error):
            count = self.count() if self._worker_group_failures > before else ""
            self._notes.say.remote(f"the ranks are started again ({count}since step {max(step, 0)}): {self.why(training_failed_error)}")
        return decision

    def count(self) -> str:
        """Of a loss that --max-failures counts: those of nodes that are taken away it does not."""
        allowed = self.failure_config.max_failures
        return f"loss {self._worker_group_failures}" + (f" of {allowed} " if allowed >= 0 else " ")

    @staticmethod
    def why(error) -> str:
        """The first line about each rank that failed, or about the nodes that are taken away; "" where no rank was lost."""
        if not hasattr(error, "worker_failures") and not hasattr(error, "controller_failure"):
            return first_line(error)
        return "; ".join(f"rank {rank}: {first_line(one)}" for rank, one in sorted(getattr(error, "worker_failures", {}).items())[:3])


class RankTrainer(DataParallelTrainer):
    def __init__(self, request: Request, notes, resize_seconds: float, **more) -> None:
        super().__init__(**more)
        self._request, self._notes, self._resize_seconds = request, notes, resize_seconds

    def _initialize_and_run_controller(self, **words):
        words["scaling_policy"] = RoomPolicy(self.scaling_config, self._request, self._notes, self._resize_seconds)
        words["failure_policy"] = LossPolicy(self.run_config.failure_config, self._notes)
        return super()._initialize_and_run_controller(**words)
