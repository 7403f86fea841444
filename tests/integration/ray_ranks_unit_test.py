#!/usr/bin/env python3
"""The ranks of darkroom-ray without Ray: how many there are, what becomes of a group that is lost or could grow, what they tell.

usage: ray_ranks_unit_test.py
"""

import collections
import contextlib
import dataclasses
import importlib
import io
import itertools
import json
import pathlib
import queue
import subprocess
import threading
import time
import types
import unittest.mock

from cases import main, require, temporary_folder
from ray_units import PATIENCE, ROOT, asked, fake_modules, item_request

from darkroom_ray import group_size, item_job, nodes, preflight, probe, program, program_log, progress, rank, run_notes, stopping, training, verbs  # noqa: E402
from darkroom_ray.preflight import Node  # noqa: E402
from darkroom_ray.request import Placement, Request  # noqa: E402

# -- how many ranks ---------------------------------------------------------------------------------------------------


def ranks_have_room_where_labels_fit_and_nobody_else_is() -> None:
    picky, any_node = Placement(labels={"zone": "b"}), Placement()
    free = [free_node("a", 8), free_node("b", 1.5, zone="b")]
    require((preflight.room_in(free, picky), preflight.room_in(free, any_node)) == (1, 9), "room")
    own = preflight.with_amounts(free[1], {"CPU": 1.0, "GPU": 0.0}, 2)
    require(preflight.room_in([own], picky) == 3 and own.labels == free[1].labels, "with two that are to go", own)
    require(preflight.with_amounts(free[1], {"CPU": 1.0}, 0) is free[1], "with none")
    require(preflight.take_places(free, Placement(num_cpus=8), 1) is not None and preflight.room_in(free, any_node) == 1, "what an encoder waits for is left to it")


def a_group_begins_with_what_has_room_once_that_is_sure() -> None:
    size = group_size.GroupSize(1, 4, 100, 30)
    require(size.to_start(6, 0) == 4, "all that are asked for, at once")
    require((size.to_start(2, 1), size.to_start(2, group_size.SETTLE_SECONDS)) == (0, 2), "fewer only after a while")
    require(size.to_start(0, 50) == 0, "none")
    size.tried = 4
    size.note_failed_start()
    require(size.to_start(4, 51) == 3, "what was free is not")
    size.tried = 1
    size.note_failed_start()
    require(size.to_start(4, 52) == 1, "never fewer than the fewest")
    size.note_start(60)
    require(size.to_start(4, 200) == 4, "a group that stood: all may begin again, and the wait begins anew")


def a_run_whose_fewest_ranks_find_no_place_ends() -> None:
    for room in (1, 4):  # With room by Ray's word that no start finds, too.
        size = group_size.GroupSize(2, 4, 100, 30)
        size.to_start(room, 0)
        if room == 4:
            size.note_failed_start()
        size.to_start(room, 100)
        try:
            size.to_start(room, 101)
        except group_size.NoRoom as error:
            require("2 ranks, the fewest" in str(error) and "101 s" in str(error) and f"room for {room}" in str(error), "why", error)
        else:
            raise AssertionError("a wait without end")


def a_run_with_room_begins_however_short_its_wait_may_be() -> None:
    size = group_size.GroupSize(2, 4, 0, 30)
    require((size.to_start(3, 0), size.to_start(3, 1), size.to_start(3, group_size.SETTLE_SECONDS)) == (0, 0, 3), "fewer than asked for")
    size.note_failed_start()
    size.note_start(6)
    require(size.to_start(4, 7) == 4, "a start that failed before the last group")


def ranks_that_are_not_alone_wait_until_room_is_certain() -> None:
    size = group_size.GroupSize(1, 4, 100, 30, settles=True)
    require((size.to_start(4, 0), size.to_start(4, 1), size.to_start(4, group_size.SETTLE_SECONDS)) == (0, 0, 4), "room of an encoder that was just lost, say")


def growth_that_fails_is_tried_later_and_later() -> None:
    size = group_size.GroupSize(1, 4, 100, 30)

    def begin(tried: int, stands: bool) -> None:
        size.tried = tried
        size.note_start(0) if stands else size.note_failed_start()

    def seconds_to_look() -> int:
        return next(now for now in range(10000) if size.is_look_due(2, now))

    begin(4, False)
    begin(2, True)
    require(seconds_to_look() == 30, "a first start that found no place is no growth", seconds_to_look())
    waits = []
    for _ in range(8):
        begin(3, False)
        begin(2, True)
        waits.append(seconds_to_look())
    require(waits == [60, 120, 240, 480, 960, 1800, 1800, 1800], "looks", waits)
    begin(3, True)
    require(seconds_to_look() == 30, "a group that has grown", seconds_to_look())


def a_group_grows_into_room_that_stays() -> None:
    size = group_size.GroupSize(1, 4, 100, 30)
    size.note_start(0)
    require(not size.is_look_due(2, 29) and size.is_look_due(2, 30) and not size.is_look_due(4, 1000), "looks")
    looks = [size.grows(2, more, now) for more, now in ((1, 30), (0, 60), (2, 90), (1, 120))]
    require(looks == [False, False, False, True], "room at two looks in a row", looks)
    size.note_start(130)
    require(not size.grows(3, 1, 160), "a new group looks twice, too")


def a_pause_is_over_when_all_ranks_have_ended() -> None:
    notes = run_notes.RunNotes()
    notes.begin(2)
    require(not notes.is_pausing() and not notes.ask_to_pause(2) and notes.is_pausing(), "asked")
    notes.note_paused(1)
    notes.note_paused(1)
    require(not notes.ask_to_pause(2), "one of two")
    notes.note_paused(0)
    require(notes.ask_to_pause(2), "both")
    notes.begin(3)
    require(not notes.is_pausing() and not notes.ask_to_pause(1), "the next group")


class FakeController:
    """As much of Ray Train as darkroom_ray.group is made of, and a cluster whose free nodes are `nodes`."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.own_places: list[str] = []
        state = types.SimpleNamespace(**{name: type(name, (), {}) for name in ("RunningState", "ReschedulingState")})
        late = type("WorkerGroupStartupTimeoutError", (Exception,), {})
        self.running, self.rescheduling = state.RunningState(), state.ReschedulingState()
        self.rescheduling.training_failed_error = types.SimpleNamespace(controller_failure=late())
        lost = types.SimpleNamespace(DefaultFailurePolicy=FakeFailurePolicy, FailureDecision=types.SimpleNamespace(RETRY="retry"))
        scaling = types.SimpleNamespace(NoopDecision=type("NoopDecision", (), {"num_workers": 0}), ResizeDecision=types.SimpleNamespace, ScalingDecision=object, ScalingPolicy=FakeScalingPolicy)
        ray = types.SimpleNamespace(get=lambda value: value, exceptions=types.SimpleNamespace(RayError=ConnectionError), util=types.SimpleNamespace(
            placement_group_table=lambda group: {"bundles_to_node_id": dict(enumerate(self.own_places))}))
        execution = "ray.train.v2._internal.execution"
        fakes = {name: types.ModuleType(name) for name in ("ray", "ray.train", "ray.train.v2", "ray.train.v2._internal", execution, f"{execution}.controller", "ray.train.v2.api")}
        fakes["ray.train.v2._internal.exceptions"] = types.SimpleNamespace(WorkerGroupStartupTimeoutError=late)
        fakes |= {"ray": ray, f"{execution}.controller.state": state, f"{execution}.failure_handling": lost, f"{execution}.scaling_policy": scaling,
                  "ray.train.v2.api.data_parallel_trainer": types.SimpleNamespace(DataParallelTrainer=object)}
        with fake_modules({**fakes, "darkroom_ray.group": None}):
            self.module = importlib.import_module("darkroom_ray.group")
        self.module.free_nodes = lambda unused: list(self.nodes)
        self.module.time = types.SimpleNamespace(monotonic=lambda: self.now, sleep=lambda seconds: None)
        self.now = 0.0
        self.notes = run_notes.RunNotes()

    def policy(self, request: Request):
        config = types.SimpleNamespace(_resources_per_worker_not_none={"CPU": request.placement.num_cpus})
        return self.module.RoomPolicy(config, request, FakeNotes(self.notes), 30.0)

    def said(self) -> str:
        return "\n".join(self.notes.news(0)[1])


class FakeScalingPolicy:
    def __init__(self, scaling_config) -> None:
        self.scaling_config = scaling_config

    def _maybe_send_resource_request(self) -> None:
        pass


class FakeFailurePolicy:
    def __init__(self, failure_config) -> None:
        self.failure_config = failure_config
        self._worker_group_failures = 0

    def make_decision(self, error) -> str:
        if getattr(error, "is_preemption", False):
            return "retry"
        self._worker_group_failures += 1
        return "retry" if self._worker_group_failures <= self.failure_config.max_failures else "raise"


def free_node(name: str, cpus: float, **labels: str) -> Node:
    return Node(name=name, node_id=name, resources={"CPU": cpus}, labels=labels)


def a_group_is_no_larger_than_free_nodes_with_its_labels() -> None:
    ray = FakeController()
    policy = ray.policy(asked("train", 4, labels={"role": "trainer"}))
    ray.nodes = [free_node("head", 8), free_node("a", 2, role="trainer")]
    require(policy.make_decision_for_non_running_worker_group().num_workers == 0, "at once")
    require("room for 2 of 4 ranks" in ray.said(), "what it waits for", ray.said())
    ray.now = group_size.SETTLE_SECONDS
    require(policy.make_decision_for_non_running_worker_group().num_workers == 2, "what has room")
    policy.after_controller_state_update(None, ray.rescheduling)
    require(policy.make_decision_for_non_running_worker_group().num_workers == 1, "after a start that found no place")
    require("2 ranks found no place after all; at most 1" in ray.said(), "why", ray.said())
    ray.rescheduling.training_failed_error = types.SimpleNamespace(controller_failure=ConnectionError("its worker died\nmore"))
    policy.after_controller_state_update(None, ray.rescheduling)
    require("1 ranks did not start: its worker died; at most 1" in ray.said(), "another reason", ray.said())


def a_group_leaves_encoders_their_room() -> None:
    ray = FakeController()
    request = dataclasses.replace(asked("online", 2), encoders=asked("encoder"))
    ray.nodes, ray.now = [free_node("laptop", 2)], 0.0
    policy = ray.policy(request)
    ray.notes.note_waiting(1)
    require(policy.make_decision_for_non_running_worker_group().num_workers == 0 and "room for 1 of 2" in ray.said(), "at once", ray.said())
    ray.now = group_size.SETTLE_SECONDS
    require(policy.make_decision_for_non_running_worker_group().num_workers == 1, "the encoder has no place yet")
    ray.nodes = [free_node("laptop", 1)]
    ray.notes.note_waiting(0)
    require(policy.make_decision_for_non_running_worker_group().num_workers == 1, "the encoder has its place")
    ray.notes, ray.nodes = run_notes.RunNotes(), [free_node("laptop", 4)]
    require(ray.policy(request).make_decision_for_non_running_worker_group().num_workers == 0 and not ray.said(), "no machines are waited for", ray.said())


def a_lost_group_begins_again_in_its_own_places() -> None:
    ray = FakeController()
    policy = ray.policy(asked("train", 4))
    ray.nodes = [free_node("a", 2), free_node("b", 2)]
    require(policy.make_decision_for_non_running_worker_group().num_workers == 4, "all")
    policy.after_controller_state_update(None, ray.running)
    ray.nodes = []
    require(policy.make_decision_for_non_running_worker_group().num_workers == 4, "one that was lost before it was seen at work")
    group = types.SimpleNamespace(placement_group_handle=types.SimpleNamespace(placement_group="g"), num_workers=4)
    policy.make_decision_for_running_worker_group(group, None)
    ray.nodes, ray.own_places = [free_node("a", 0)], ["a", "a", "b", "b"]  # b is gone.
    policy.make_decision_for_non_running_worker_group()
    ray.now = group_size.SETTLE_SECONDS
    require(policy.make_decision_for_non_running_worker_group().num_workers == 2, "what the group that failed holds still")


def a_group_grows_when_its_ranks_have_ended_with_a_checkpoint() -> None:
    ray = FakeController()
    policy = ray.policy(asked("train", 4))
    ray.nodes = [free_node("a", 2)]
    policy.after_controller_state_update(None, ray.running)
    group = types.SimpleNamespace(placement_group_handle=types.SimpleNamespace(placement_group="g"), num_workers=2)

    def decided() -> int:
        return policy.make_decision_for_running_worker_group(group, None).num_workers

    ray.now = 30.0
    require(decided() == 0 and not ray.notes.is_pausing(), "room at one look")
    ray.nodes, ray.now = [], 60.0
    require(decided() == 0 and not ray.notes.is_pausing(), "which somebody else has taken")
    ray.nodes = [free_node("a", 1)]
    for ray.now in (90.0, 120.0):
        require(decided() == 0, "ranks at work")
    require(ray.notes.is_pausing() and "more than 2 ranks" in ray.said(), "they are asked to end", ray.said())
    for number in (0, 1):
        ray.notes.note_paused(number)
    require(decided() == 3, "the larger group")


def a_wait_without_end_is_told_and_ends() -> None:
    ray = FakeController()
    policy = ray.policy(dataclasses.replace(asked("train", 2, 2), max_wait=100.0))
    policy.make_decision_for_non_running_worker_group()
    ray.now = 101.0
    try:
        policy.make_decision_for_non_running_worker_group()
    except group_size.NoRoom:
        require(ray.notes.failure()[0] == 1 and "--max-wait" in ray.notes.failure()[1] and ray.notes.is_hopeless(), "why", ray.notes.failure())
    else:
        raise AssertionError("it waits for ever")
    ray.module.free_nodes = lambda unused: 1 / 0
    ray.now = 102.0
    policy = ray.policy(asked("train", 2))
    require(policy.make_decision_for_non_running_worker_group().num_workers == 0 and "does not say" in ray.said(), "a cluster that does not answer", ray.said())


def a_loss_that_does_not_count_is_told_without_a_count() -> None:
    ray = FakeController()
    policy = ray.module.LossPolicy(types.SimpleNamespace(max_failures=3), FakeNotes(ray.notes))
    error = types.SimpleNamespace(worker_failures={0: ConnectionError("its node was taken away")}, is_preemption=True)
    require(policy.make_decision(error) == "retry" and "again (since step 0): rank 0: its node" in ray.said(), "what is told", ray.said())
    drained = RuntimeError("interrupted by node preemption\nmore")
    drained.is_preemption = True
    require(policy.make_decision(drained) == "retry" and "again (since step 0): interrupted by node preemption" in ray.said(), "of nodes that are taken away", ray.said())


def losses_count_from_the_last_checkpoint() -> None:
    ray = FakeController()
    policy = ray.module.LossPolicy(types.SimpleNamespace(max_failures=2), FakeNotes(ray.notes))
    error = types.SimpleNamespace(worker_failures={1: ConnectionError("its node is gone\nmore")})
    decisions = []
    for step in (0, 0, 10, 10, 10):
        ray.notes.hear(0, [f"2026-11-23T04:00:00Z going on from run (step {step} of 30)"])
        decisions.append(policy.make_decision(error))
    require(decisions == ["retry", "retry", "retry", "retry", "raise"], "decisions", decisions)
    require("(loss 2 of 2 since step 10): rank 1: its node is gone" in ray.said() and "more" not in ray.said(), "why", ray.said())


# -- ranks ------------------------------------------------------------------------------------------------------------


def a_rank_tells_new_lines_and_checkpoints() -> None:
    with temporary_folder() as folder:
        (folder / "metrics.jsonl").write_text('{"step": 1}\n')
        tail = rank.MetricsTail(folder)
        require(tail.lines() == [], "lines of an earlier start are told")
        with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 2}\n{"step"')
            file.flush()
            require(tail.lines() == [{"step": 2}], "a torn line is told")
            file.write(': 3}\n')
        require(tail.lines() == [{"step": 3}], "its rest is lost")
        (folder / "metrics.jsonl").write_text('{"step": 1}\n')
        require(tail.lines() == [{"step": 1}], "a file that was cut")
        (folder / "checkpoints" / "step-00000004").mkdir(parents=True)
        require(tail.new_checkpoints() == [], "a checkpoint without its record")
        (folder / "checkpoints" / "step-00000004" / "state.json").touch()
        require((tail.new_checkpoints(), tail.new_checkpoints()) == (["step-00000004"], []), "checkpoints")
    require(rank.MetricsTail(None).lines() == [], "a run on a store")


def losses_of_a_run_that_gets_on_are_forgiven() -> None:
    count = group_size.LossCount()
    got = [count.begins_anew(step) for step in (-1, 0, 0, 100, 100, 50, 200)]
    require(got == [False, True, False, True, False, False, True], "counts that begin anew", got)


TIME_LETTERS = len("2026-11-23T04:14:17Z ")
LINE = "2026-11-23T04:14:17Z train step 12/30  loss 0.4202  grad 1.260  lr 8.28e-04  7 img/s  ms: data 0 fwd 525 bwd 1196 opt 30  ETA 0:20"


def what_ranks_say_reaches_the_user() -> None:
    notes = run_notes.RunNotes()
    notes.begin(3)
    for number, place in ((2, "10.0.0.2"), (0, "10.0.0.1"), (1, "10.0.0.2")):
        notes.note_place(number, place, "run/_ray/logs")
    notes.hear(0, ["2026-11-23T04:14:05Z going on from run/checkpoints/step-00000010 (step 10 of 30)", LINE])
    notes.hear(2, ["2026-11-23T04:14:06Z warning: little memory", LINE])
    number, lines, shown = notes.news(0)
    want = ["start 1: ranks 0 on 10.0.0.1; 1, 2 on 10.0.0.2; their logs: run/_ray/logs", "going on from run/checkpoints/step-00000010 (step 10 of 30)", "rank 2: warning: little memory", "rank 2: " + LINE[TIME_LETTERS:]]
    require((number, lines, shown, notes.start_step()) == (4, want, LINE[TIME_LETTERS:], 10), "what is told", number, lines, shown)
    require(notes.news(3)[1] == want[3:] and notes.news(4)[1] == [], "news alone")
    require(notes.news(900)[1] == want, "notes that were made anew")


def a_view_shows_news_once_and_warnings_alone_when_quiet() -> None:
    ray = types.SimpleNamespace(get=lambda value: value, exceptions=types.SimpleNamespace(RayError=ConnectionError))
    notes = run_notes.RunNotes()
    stream, quiet = io.StringIO(), io.StringIO()
    clock = itertools.count(0, 20)  # Seconds: each line of progress is due.
    views = [training.RunView(progress.Progress("train", where, lambda: next(clock), is_quiet)) for is_quiet, where in ((False, stream), (True, quiet))]
    for text in ("waiting for machines", "start 1"):
        notes.say(text)
        notes.hear(0, [LINE])
        for view in views:
            view.look(ray, FakeNotes(notes))
    views[0].end(ray, FakeNotes(notes))
    require([line[TIME_LETTERS:] for line in stream.getvalue().splitlines()] == ["waiting for machines", LINE[TIME_LETTERS:], "start 1"], "lines", stream.getvalue())
    require(quiet.getvalue() == "", "--quiet", quiet.getvalue())
    notes.hear(2, ["2026-11-23T04:14:06Z warning: little memory"])
    views[1].look(ray, FakeNotes(notes))
    require(quiet.getvalue()[TIME_LETTERS:] == "rank 2: warning: little memory\n", "a warning for all that", quiet.getvalue())


def a_rank_says_all_to_its_log_and_its_metrics_to_ray() -> None:
    heard: list = []
    notes = types.SimpleNamespace(hear=types.SimpleNamespace(remote=lambda number, lines: heard.append((number, lines))))
    with temporary_folder() as folder:
        for start in (1, 2):
            voice = rank.RankVoice(0, program_log.ProgramLog(str(folder / "logs"), "rank-000", f"start {start}"))
            for line in ("2026-11-23T04:14:05Z hello\n", LINE + "\n", LINE.replace("loss 0.4202", "loss -") + "\n"):
                voice.take(line)
        voice.tell(notes)
        voice.tell(notes)
        lines = (folder / "logs" / "rank-000.log").read_text().splitlines()
        require(len(lines) == 8 and "start 1" in lines[0] and lines[2] == lines[6] == LINE and "start 2" in lines[4], "the log", lines)
        require(len(heard) == 1 and heard[0][0] == 0 and len(heard[0][1]) == 3, "the notes", heard)
        want = {"step": 12, "loss": 0.4202, "grad_norm": 1.26, "lr": 8.28e-4, "images_per_second": 7.0}
        without_loss = {name: value for name, value in want.items() if name != "loss"}
        require(list(voice.metrics) == [want, without_loss], "metrics", voice.metrics)
        other = rank.RankVoice(1, program_log.ProgramLog(str(folder / "logs"), "rank-001", "start 1"))
        for line in ("2026-11-23T04:14:05Z the job's numbers are at http://10.0.0.7:4321/metrics\n", "2026-11-23T04:14:06Z warning: little memory\n"):
            other.take(line)
        other.tell(notes)
        require(heard[1:] == [(1, ["2026-11-23T04:14:06Z warning: little memory"])], "where another rank's numbers are is for --metrics-folder", heard[1:])
        (folder / "file").touch()
        program_log.ProgramLog(str(folder / "file" / "logs"), "rank-000", "").write("a log that cannot be written\n")
    require(program_log.log_folder(Request("train", (), folder="/here"), "run") == "/here/run/_ray/logs", "beside the run")
    require(program_log.log_folder(Request("train", (), storage="/records"), "s3://b/run") == "/records/logs", "where --storage-path says")
    require(training.storage_of(Request("train", ()), {"--output": ["s3://b/run/"]}) == "s3://b/run/_ray", "on a store")
    require(training.storage_of(Request("train", ()), {"--output": ["s3://b/run?region=r"]}) == "s3://b/run/_ray?region=r", "on a store, with settings")


def a_claim_that_may_be_a_dead_ranks_is_waited_for_once() -> None:
    words = f"2026-11-23T04:14:05Z error: train: {rank.HELD_BY_ANOTHER}; wait for it: s3://b/run"
    require(rank.HELD_BY_ANOTHER in (ROOT / "src" / "train" / "remote_run.cpp").read_text(), "the program's sentence is another one")
    got = [rank.is_claim_of_a_lost_start(*case) for case in ((1, words, 0, "auto"), (1, words, 1, "auto"), (1, words, 0, "none"), (1, "another reason", 0, "auto"), (2, words, 0, "auto"))]
    require(got == [True, False, False, False, False], "claims", got)


class FakeNotes:
    """The actor, called at once."""

    def __init__(self, notes: run_notes.RunNotes) -> None:
        self._notes = notes

    def __getattr__(self, name: str):
        return types.SimpleNamespace(remote=getattr(self._notes, name))


def a_rank_that_somebody_else_stopped_has_not_ended_well() -> None:
    for code, is_stop_asked, want in ((0, False, True), (143, True, True), (143, False, False), (75, True, False), (-9, False, False)):
        require(rank.has_ended_well(code, is_stop_asked) == want, "a code", code, is_stop_asked)


def a_start_that_would_mend_nothing_is_not_begun() -> None:
    notes = run_notes.RunNotes()
    require([notes.begin(2), notes.begin(1)] == [0, 1], "starts")
    notes.ask_to_stop(15)
    require(notes.begin(1) == run_notes.NO_ATTEMPT, "a start after a stop")
    failed = run_notes.RunNotes()
    failed.note_failure(2, "its words")
    require(failed.begin(1) == run_notes.NO_ATTEMPT and failed.sizes() == [], "a start after a failure")


@contextlib.contextmanager
def fake_train(report=lambda *unused, **more: None):
    """Ray Train with one rank, as far as a Reporter knows it."""
    collective = types.SimpleNamespace(broadcast_from_rank_zero=lambda what: what)
    train = types.SimpleNamespace(collective=collective, report=report)
    fakes = {"ray": types.SimpleNamespace(train=train), "ray.train": train, "ray.train.collective": collective}
    measures, rank.TrainMeasures = rank.TrainMeasures, lambda: types.SimpleNamespace(set=lambda line: None)
    try:
        with fake_modules(fakes):
            yield train
    finally:
        rank.TrainMeasures = measures


def metrics_are_reported_without_checkpoints() -> None:
    reports: list[dict] = []
    with temporary_folder() as folder, fake_train(lambda metrics, **more: reports.append(metrics)):
        voice = types.SimpleNamespace(metrics=collections.deque([{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5, "phases": {}}]), checkpoints=collections.deque())
        rank.Reporter(0, Request("train", ()), "s3://b/run", None, voice).end()
        require(reports == [{"step": 2, "loss": 1.5}] and not voice.metrics, "of a run on a store", reports)
        (folder / "run").mkdir()
        reporter = rank.Reporter(0, Request("train", (), folder=str(folder)), "run", None)
        (folder / "run" / "metrics.jsonl").write_text('{"step": 3}\n')
        reporter.end()
        require(reports[1:] == [{"step": 3}], "of a run on a disk", reports)


def checkpoints_on_a_store_are_reported_once_they_are_stored() -> None:
    source = (ROOT / "src" / "train" / "remote_run.cpp").read_text()
    require("the checkpoint of step {} is stored: {}" in source, "the program's sentence is another one")
    voices = [rank.RankVoice(number, program_log.ProgramLog("/proc/none", "rank", "")) for number in (0, 1)]
    for voice in voices:
        for line in ("2026-11-23T04:14:05Z the checkpoint of step 20 is stored: s3://b/run/checkpoints/step-00000020\n", "2026-11-23T04:14:06Z warning: the checkpoint of step 30 was not stored\n", "2026-11-23T04:14:07Z the checkpoint of step 10 is stored: s3://b/run/checkpoints/step-00000010\n"):
            voice.take(line)
    require([list(voice.checkpoints) for voice in voices] == [["step-00000020"], []], "rank 0 alone hears of them", voices[0].checkpoints)
    pointers: list[dict] = []
    with fake_train(lambda metrics, checkpoint: pointers.append(checkpoint)) as train:
        train.Checkpoint = types.SimpleNamespace(from_directory=lambda folder: json.loads(pathlib.Path(folder, "checkpoint.json").read_text()))
        for output in ("s3://key:sec/ret@b/run/", "s3://b/run?region=x"):
            voices[0].checkpoints.append("step-00000020")
            rank.Reporter(0, Request("train", ()), output, None, voices[0]).end()
    place = "s3://b/run/checkpoints/step-00000020"
    require(pointers == [{"uri": place}, {"uri": place + "?..."}], "what Ray keeps", pointers)


def heard_by(warnings: list[str]):
    """Notes that hear alone."""
    return types.SimpleNamespace(hear=types.SimpleNamespace(remote=lambda number, lines: warnings.extend(lines)))


def what_cannot_be_read_is_told_once_and_looked_at_again() -> None:
    reports: list[dict] = []
    looks = threading.Semaphore(0)
    with temporary_folder() as folder, fake_train(lambda metrics, **more: reports.append(metrics)), looking_often():
        file = folder / "run" / "metrics.jsonl"
        file.parent.mkdir()
        file.symlink_to(folder)  # Cannot be read as a file, and gives way to one in one step.
        real = rank.MetricsTail.lines
        with unittest.mock.patch.object(rank.MetricsTail, "lines", lambda tail: looks.release() or real(tail)):
            warnings: list[str] = []
            reporter = rank.Reporter(0, Request("train", (), folder=str(folder)), "run", heard_by(warnings))
            for _ in range(3):
                require(looks.acquire(timeout=PATIENCE), "it looks no more")
            (folder / "new").write_text("".join(json.dumps({"step": step}) + "\n" for step in range(2000)))  # More bytes than a folder has, which is where it began.
            (folder / "new").rename(file)
            reporter.end()
    require(len(warnings) == 1 and warnings[0].startswith("warning: ") and "metrics.jsonl" in warnings[0], "what the user hears", warnings)
    require(reports and reports[-1] == {"step": 1999}, "what Ray hears once it can be read", reports)


@contextlib.contextmanager
def two_ranks(report):
    """Ray Train with two ranks, of which rank 0 gives and the other one takes."""
    told: queue.SimpleQueue = queue.SimpleQueue()
    with fake_train(report) as train, looking_often():
        train.collective.broadcast_from_rank_zero = lambda what: told.get(timeout=PATIENCE) if what is None else told.put(what) or what
        train.Checkpoint = types.SimpleNamespace(from_directory=lambda folder: "pointer")
        yield told


def a_report_that_fails_costs_the_training_nothing() -> None:
    calls: list[dict] = []
    measured: list[dict] = []

    def report(metrics: dict, **more) -> None:
        calls.append({"step": metrics["step"], **more})
        if more:
            raise OSError("the checkpoint's pointer cannot be written")

    with two_ranks(report):
        rank.TrainMeasures = lambda: types.SimpleNamespace(set=measured.append)
        voice = types.SimpleNamespace(metrics=collections.deque([{"step": 1}]), checkpoints=collections.deque(["step-00000001"]))
        warnings: list[str] = []
        reporters = [rank.Reporter(number, Request("train", ()), "s3://b/run", heard_by(warnings), voice) for number in (0, 1)]
        wait_for(lambda: warnings)
        voice.metrics.append({"step": 2})
        wait_for(lambda: len(measured) == 2)
        notes = LostNotes()
        notes.notes.begin(2)
        with fake_modules({"ray": RAY_OF_NOTES}):
            for number, reporter in enumerate(reporters):
                rank.end_rank(number, 0, 0, False, "", {"notes": notes, "resume": "auto"}, reporter)
        require(not any(reporter._thread.is_alive() for reporter in reporters), "both have ended")
    require(sorted(map(str, calls)) == ["{'step': 1, 'checkpoint': 'pointer'}", "{'step': 1}"], "a report is made once", calls)
    require(len(warnings) == 1 and "pointer cannot be written" in warnings[0] and measured[-1] == {"step": 2}, "what is heard; Ray's gauges go on", warnings, measured)


def a_rank_whose_work_is_done_waits_for_ray_for_a_while_only() -> None:
    let_go = threading.Event()
    warnings: list[str] = []
    with two_ranks(lambda metrics, **more: let_go.wait(PATIENCE)), unittest.mock.patch.object(rank, "REPORT_SECONDS", 0.1):
        voice = types.SimpleNamespace(metrics=collections.deque([{"step": 1}]), checkpoints=collections.deque(["step-00000001"]))
        reporters = [rank.Reporter(number, Request("train", ()), "s3://b/run", heard_by(warnings), voice) for number in (0, 1)]
        for reporter in reporters:
            reporter.end()
        require(len(warnings) == 1 and "has not taken the last" in warnings[0], "rank 0 says so", warnings)
        let_go.set()
        for reporter in reporters:
            reporter._thread.join(PATIENCE)


def wait_for(is_so) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        require(time.monotonic() < end, "it never was so")
        time.sleep(0.01)


def a_killed_task_is_run_again() -> None:
    class Lost(Exception):
        cause = program.ProgramFailed(-9, "its words")

    class Tasks:
        """Lost as often as `losses` says, then done."""

        exceptions = types.SimpleNamespace(RayError=Lost)

        def __init__(self, losses: int) -> None:
            self.losses, self.starts = losses, 0

        def remote(self, what):
            return types.SimpleNamespace(options=lambda **unused: types.SimpleNamespace(remote=lambda *asked: self.start()))

        def start(self) -> None:
            self.starts += 1

        def wait(self, references, timeout):
            return references, []

        def get(self, reference):
            if self.starts <= self.losses:
                raise Lost()
            return 0, {"sample": {}}, "done"

    pauses: list[float] = []
    stop = types.SimpleNamespace(check=lambda: None, pause=pauses.append)
    request = dataclasses.replace(asked("sample"), max_failures=2)
    require(training.run_as_task(Tasks(2), request, stop) == (0, {"sample": {}}) and pauses == [2, 4], "tries", pauses)
    try:
        training.run_as_task(Tasks(3), request, stop)
    except item_job.JobFailed as failure:
        require("--max-failures 2" in str(failure) and "its words" in str(failure), "why", failure)
    else:
        raise AssertionError("a task is lost for ever")


def a_stop_before_any_rank_has_a_place_ends_at_once() -> None:
    ray = types.SimpleNamespace(get=get_or_raise, exceptions=types.SimpleNamespace(RayError=ConnectionError))
    for has_begun, has_lost in ((False, False), (True, False), (True, True)):
        notes = run_notes.RunNotes()
        if has_begun:
            notes.begin(2)
        waits = iter([False, False, has_lost, True])  # The ranks end then.
        stop = types.SimpleNamespace(is_asked=False, number=15)

        def wait(seconds: float, waits=waits, stop=stop, has_lost=has_lost) -> bool:
            is_over = next(waits)
            stop.is_asked = True
            return is_over

        class Anew(FakeNotes):
            """Lost behind the first look."""

            def __getattr__(self, name: str):
                if name == "ask_to_stop" and has_lost:  # noqa: B023
                    self._notes = run_notes.RunNotes()
                return super().__getattr__(name)

        try:
            training.wait_for_end(ray, types.SimpleNamespace(wait=wait), Anew(notes), stop)
        except stopping.Stopped as stopped:
            require(not has_begun and stopped.code == 143, "ranks are left alone", has_begun)
        else:
            require(has_begun, "nobody is waited for")


def a_stop_without_a_rank_ends() -> None:
    ray = types.SimpleNamespace(get=lambda value: value, exceptions=types.SimpleNamespace(RayError=ConnectionError))
    notes = run_notes.RunNotes()
    notes.begin(1)
    stop = types.SimpleNamespace(is_asked=True, number=15)
    over = threading.Event()
    fit = training.Fit(types.SimpleNamespace(fit=over.wait))
    limits = training.LOOK_SECONDS, training.ALONE_SECONDS
    training.LOOK_SECONDS = training.ALONE_SECONDS = 0.01
    try:
        training.wait_for_end(ray, fit, FakeNotes(notes), stop)
    except stopping.Stopped as stopped:
        require(stopped.code == 143 and notes.stop_number() == 15, "the stop", stopped.code)
    else:
        raise AssertionError("a training without ranks ended by itself")
    finally:
        over.set()
        training.LOOK_SECONDS, training.ALONE_SECONDS = limits
    require(fit.wait(PATIENCE), "the end of fit()")
    training.wait_for_end(ray, fit, FakeNotes(notes), stop)


def notes_that_are_made_anew_are_asked_again() -> None:
    losses = iter([True, True, True, False, True, False])

    def get(value):
        if next(losses, False):
            raise ConnectionError("the notes are lost")
        return value

    ray = types.SimpleNamespace(get=get, exceptions=types.SimpleNamespace(RayError=ConnectionError))
    waits = iter([False, False, False, True])
    notes = run_notes.RunNotes()
    notes.begin(1)
    training.wait_for_end(ray, types.SimpleNamespace(wait=lambda seconds: next(waits)), FakeNotes(notes), types.SimpleNamespace(is_asked=True, number=15))
    require(notes.stop_number() == 15 and next(waits, None) is None, "the stop", notes.stop_number())


class LostNotes:
    """The actor, which is lost once with each call that `losses` names, and made anew."""

    def __init__(self, *losses: str) -> None:
        self.losses = list(losses)
        self.begin_anew()

    def begin_anew(self) -> None:
        self.notes = run_notes.RunNotes()

    def __getattr__(self, name: str):
        def remote(*words):
            if name not in self.losses:
                return getattr(self.notes, name)(*words)
            self.losses.remove(name)
            self.begin_anew()
            return ConnectionError("the notes are lost")

        return types.SimpleNamespace(remote=remote)


def get_or_raise(value):
    """As ray.get: an error is raised."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, Exception):
            raise one
    return value


RAY_OF_NOTES = types.SimpleNamespace(get=get_or_raise, exceptions=types.SimpleNamespace(RayError=ConnectionError, RayActorError=ConnectionError))
TRAIN_PROGRAM = 'while [ "$1" != --json-summary ]; do shift; done; sleep 0.3; echo "{\\"train\\": {\\"steps\\": 7}}" > "$2"'


@contextlib.contextmanager
def looking_often():
    with unittest.mock.patch.object(rank, "LOOK_SECONDS", 0.01), unittest.mock.patch.object(run_notes, "LOOK_SECONDS", 0.01):
        yield


def a_rank_outlives_its_notes() -> None:
    notes = LostNotes("begin", "stop_number", "is_pausing")
    with temporary_folder() as folder, fake_train() as train, looking_often():
        places = {"get_world_rank": 0, "get_world_size": 1, "get_local_rank": 0, "get_local_world_size": 1}
        train.get_context = lambda: types.SimpleNamespace(**{name: lambda number=number: number for name, number in places.items()})
        ray = types.SimpleNamespace(**vars(RAY_OF_NOTES), train=train, util=types.SimpleNamespace(get_node_ip_address=lambda: "10.0.0.7"))
        request = dataclasses.replace(item_request(folder, TRAIN_PROGRAM), verb="train")
        (folder / "run").mkdir()
        with fake_modules({"ray": ray, "ray.util": ray.util}):
            summary = rank.run_rank({"request": request, "notes": notes, "output": "run", "resume": "auto"})
    require(summary == {"train": {"steps": 7}} and not notes.losses, "what Ray Train is given", summary, notes.losses)


def a_call_of_the_notes_that_fails_by_itself_is_not_made_again() -> None:
    calls: list[int] = []
    limits, run_notes.NOTES_SECONDS = run_notes.NOTES_SECONDS, 0.1
    try:
        with fake_modules({"ray": RAY_OF_NOTES}), looking_often():
            for error, least, most in ((ValueError("a fault"), 1, 1), (ConnectionError("gone"), 2, 1000)):
                calls.clear()
                call = types.SimpleNamespace(remote=lambda error=error: calls.append(1) or error)
                try:
                    run_notes.asked(call)
                except type(error):
                    require(least <= len(calls) <= most, "calls", error, len(calls))
                else:
                    raise AssertionError("an error is swallowed")
    finally:
        run_notes.NOTES_SECONDS = limits


def a_rank_that_was_told_to_pause_has_ended_well_whatever_the_notes_forget() -> None:
    notes = LostNotes()
    notes.notes.begin(1)
    notes.notes.ask_to_pause(1)
    ended: list[int] = []
    codes = iter([None, 143])

    def wait(seconds=None) -> int:
        if seconds:
            raise subprocess.TimeoutExpired("program", seconds)
        return 143

    child = types.SimpleNamespace(poll=lambda: next(codes), wait=wait, end=ended.append)
    voice = types.SimpleNamespace(tell=lambda unused: None)
    reporter = types.SimpleNamespace(end=lambda: notes.notes.ask_to_stop(15))  # So that it waits no longer for a larger group.
    with fake_modules({"ray": RAY_OF_NOTES}), looking_often():
        code, is_told = rank.wait_for_rank(child, notes, voice)
        notes.begin_anew()
        rank.end_rank(0, 0, code, is_told, "", {"notes": notes, "resume": "auto"}, reporter)
    require((code, is_told, ended) == (143, True, [15]), "what it was told", code, is_told, ended)


def notes_that_are_made_anew_hear_what_they_knew() -> None:
    notes = LostNotes()
    restarts: list[int] = []
    record = training.RunRecord(RAY_OF_NOTES, notes, types.SimpleNamespace(inc=restarts.append))
    for size in (2, 3):
        notes.notes.begin(size)
    record.look()
    notes.begin_anew()
    record.look()
    require(notes.notes.sizes() == [2, 3] == record.sizes and restarts == [1], "starts", notes.notes.sizes(), record.sizes, restarts)
    notes.begin_anew()
    notes.notes.note_failure(1, "an encoder was lost too often")
    require(notes.notes.is_hopeless() and not record.is_hopeless(), "ranks at work end with a checkpoint")
    record.look()
    notes.begin_anew()
    record.look()
    require(notes.notes.failure() == (1, "an encoder was lost too often") and notes.notes.begin(2) == run_notes.NO_ATTEMPT, "why it ends", notes.notes.failure())
    require(record.failure == notes.notes.failure() and record.sizes == [2, 3], "the driver's", record.failure, record.sizes)


def a_training_that_is_done_is_done_without_its_notes() -> None:
    notes = LostNotes()
    looked = threading.Event()

    def fit():
        notes.notes.begin(2)
        looked.wait(PATIENCE)
        notes.begin_anew()
        return types.SimpleNamespace(return_value={"train": {"steps": 7}})

    def wait_for_end(ray, fit, notes, stop, view, restarts):
        record = real["wait_for_end"](ray, types.SimpleNamespace(wait=lambda seconds: looked.is_set()), notes, types.SimpleNamespace(is_asked=False), types.SimpleNamespace(look=lambda *unused: looked.set()))
        require(fit.wait(PATIENCE), "the end of fit()")
        return record

    fakes = {"restart_counter": lambda verb: None, "actor_here": lambda *unused, **more: notes, "make_trainer": lambda *unused: types.SimpleNamespace(fit=fit), "wait_for_end": wait_for_end}
    real = {name: getattr(training, name) for name in fakes}
    try:
        for name, fake in fakes.items():
            setattr(training, name, fake)
        code, summary = training.train(RAY_OF_NOTES, dataclasses.replace(asked("train", 2), is_quiet=True), {}, types.SimpleNamespace(check=lambda: None))
    finally:
        for name, function in real.items():
            setattr(training, name, function)
    require((code, summary) == (0, {"train": {"steps": 7, "cluster": {"starts": 1, "restarts": 0, "ranks": [2]}}}), "the summary", code, summary)


def a_training_that_ends_early_has_its_steps_and_starts() -> None:
    for number, why in ((0, (1, "rank 0 failed")), (15, None)):
        notes = run_notes.RunNotes()
        notes.begin(2)
        notes.hear(0, [LINE])
        waits = iter([False, True])
        fit = types.SimpleNamespace(wait=lambda seconds, waits=waits: next(waits), failure=lambda: None, summary=dict)

        def check(number=number) -> None:
            if number:
                raise stopping.Stopped(number)

        stop = types.SimpleNamespace(is_asked=False, number=number, check=check)
        if why:
            notes.note_failure(*why)
        with contextlib.ExitStack() as patches:
            for name, fake in {"restart_counter": lambda verb: None, "actor_here": lambda *unused, notes=notes, **more: FakeNotes(notes), "make_trainer": lambda *unused: None, "Fit": lambda trainer, fit=fit: fit}.items():
                patches.enter_context(unittest.mock.patch.object(training, name, fake))
            try:
                training.train(RAY_OF_NOTES, dataclasses.replace(asked("train", 2), is_quiet=True), {}, stop)
            except (item_job.JobFailed, stopping.Stopped) as failure:
                require(failure.summary == {"steps": int(LINE.split("train step ")[1].partition("/")[0]), "cluster": {"starts": 1, "restarts": 0, "ranks": [2]}}, "what is known", failure, failure.summary)
            else:
                raise AssertionError("it is done")


def only_a_lost_cluster_is_said_to_be_lost() -> None:
    class RayError(Exception): ...

    kinds = {name: type(name, (RayError,), {}) for name in ("LocalRayletDiedError", "RaySystemError", "RpcError", "RayTaskError", "ActorDiedError")}
    said: dict[str, str] = {}
    real = (verbs.import_ray, nodes.with_node_types, probe.check_cluster)
    nodes.with_node_types = lambda ray, request: request
    verbs.import_ray = lambda: types.SimpleNamespace(exceptions=types.SimpleNamespace(RayError=RayError, **kinds))
    try:
        for name, kind in {**kinds, "unreadable": kinds["RaySystemError"]}.items():
            error = kind("its words")
            error.cause = KeyError("a fault") if name == "RayTaskError" else None
            error.traceback_str = "Traceback" if name == "unreadable" else None
            probe.check_cluster = lambda *unused, error=error: get_or_raise(error)
            try:
                verbs.run_checked(asked("train"), {}, types.SimpleNamespace(check=lambda: None))
            except item_job.JobFailed as failure:
                said[name] = str(failure)
    finally:
        verbs.import_ray, nodes.with_node_types, probe.check_cluster = real
    lost = {name for name, text in said.items() if "the cluster was lost" in text and "its words" in text}
    require(lost == {"LocalRayletDiedError", "RaySystemError", "RpcError"}, "a lost cluster", said)
    require("KeyError: 'a fault'" in said["RayTaskError"] and "ActorDiedError: its words" in said["ActorDiedError"], "what else fails", said)


def a_failure_of_fit_is_kept() -> None:
    def fail() -> None:
        raise RuntimeError("its words")

    fit = training.Fit(types.SimpleNamespace(fit=fail))
    require(fit.wait(PATIENCE) and str(fit.failure()) == "its words", "failure", fit.failure())
    require("--max-failures 3 allows" in training.why_it_ended(asked("train"), fit.failure()), "ranks that were lost")
    of_controller = RuntimeError("its words")
    of_controller.controller_failure = OSError("no space left")
    require(training.why_it_ended(asked("train"), of_controller) == "Ray Train cannot go on: no space left", "Ray Train's own", training.why_it_ended(asked("train"), of_controller))


if __name__ == "__main__":
    main(
        [
            ranks_have_room_where_labels_fit_and_nobody_else_is,
            a_group_begins_with_what_has_room_once_that_is_sure,
            a_run_whose_fewest_ranks_find_no_place_ends,
            a_run_with_room_begins_however_short_its_wait_may_be,
            ranks_that_are_not_alone_wait_until_room_is_certain,
            growth_that_fails_is_tried_later_and_later,
            a_group_grows_into_room_that_stays,
            a_pause_is_over_when_all_ranks_have_ended,
            a_group_is_no_larger_than_free_nodes_with_its_labels,
            a_group_leaves_encoders_their_room,
            a_lost_group_begins_again_in_its_own_places,
            a_group_grows_when_its_ranks_have_ended_with_a_checkpoint,
            a_wait_without_end_is_told_and_ends,
            losses_count_from_the_last_checkpoint,
            a_loss_that_does_not_count_is_told_without_a_count,
            losses_of_a_run_that_gets_on_are_forgiven,
            what_ranks_say_reaches_the_user,
            a_view_shows_news_once_and_warnings_alone_when_quiet,
            a_rank_says_all_to_its_log_and_its_metrics_to_ray,
            a_claim_that_may_be_a_dead_ranks_is_waited_for_once,
            a_rank_tells_new_lines_and_checkpoints,
            a_rank_that_somebody_else_stopped_has_not_ended_well,
            a_start_that_would_mend_nothing_is_not_begun,
            metrics_are_reported_without_checkpoints,
            checkpoints_on_a_store_are_reported_once_they_are_stored,
            what_cannot_be_read_is_told_once_and_looked_at_again,
            a_report_that_fails_costs_the_training_nothing,
            a_rank_whose_work_is_done_waits_for_ray_for_a_while_only,
            a_killed_task_is_run_again,
            a_stop_before_any_rank_has_a_place_ends_at_once,
            a_stop_without_a_rank_ends,
            notes_that_are_made_anew_are_asked_again,
            a_rank_outlives_its_notes,
            a_call_of_the_notes_that_fails_by_itself_is_not_made_again,
            a_rank_that_was_told_to_pause_has_ended_well_whatever_the_notes_forget,
            notes_that_are_made_anew_hear_what_they_knew,
            a_training_that_is_done_is_done_without_its_notes,
            a_training_that_ends_early_has_its_steps_and_starts,
            only_a_lost_cluster_is_said_to_be_lost,
            a_failure_of_fit_is_kept,
        ]
    )
