#!/usr/bin/env python3
"""tools/simulation against cases that can be worked out by hand.

usage: simulation_test.py
"""

import collections
import contextlib
import dataclasses
import itertools
import math
import pathlib
import random
import sys

from cases import main, require

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "simulation"))

import topology  # noqa: E402: finds darkroom_ray for the others.

import encoding  # noqa: E402
import simulate  # noqa: E402
import training  # noqa: E402
from encoding import EncodingPlan, Stage, simulate_encoding  # noqa: E402
from losses import NEVER, Losses, outages  # noqa: E402
from training import TrainingPlan, simulate_training  # noqa: E402

ENCODE = Stage("encode", 1, 10.0)
FAST, SLOW = Stage("transform", 2, 50.0), Stage("transform", 1, 5.0)


def job(items: int = 1, encoders: int = 1, stages=(ENCODE,), **more) -> EncodingPlan:
    """Items of 100 rows, 10 s each to encode; pieces of 10 rows."""
    return EncodingPlan(items, 100, encoders, stages, piece_rows=10, **more)


def require_near(got: float, want: float, what: str) -> None:
    require(math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-9), f"{what} (got, want)", got, want)


@contextlib.contextmanager
def machines_lost(module, *moments: tuple[float, float]):
    """The first machine that asks is lost and back at these moments; the others never are."""
    before, asked = module.outages, []

    def outages(*unused):
        asked.append(0)
        return iter(moments if len(asked) == 1 else ())

    module.outages = outages
    try:
        yield
    finally:
        module.outages = before


# -- machines ---------------------------------------------------------------------------------------------------------


def machines_are_away_for_wait_and_restart_and_are_lost_as_often_as_said() -> None:
    moments = list(itertools.islice(outages(Losses(100.0, 20.0, 5.0), random.Random(1)), 10_000))
    require(all(math.isclose(back - lost, 25.0, abs_tol=1e-6) for lost, back in moments), "away", moments[:3])
    times_there = [lost - back for (_, back), (lost, _) in zip([(0.0, 0.0), *moments], moments)]
    require(min(times_there) >= 0, "lost while it was away", min(times_there))
    # Exponential: mean and deviation are both 100; five deviations of the mean of 10,000.
    require(abs(sum(times_there) / 10_000 - 100.0) < 5.0, "mean time between losses", sum(times_there) / 10_000)
    require(list(outages(Losses(), random.Random(1))) == [], "a machine that is never lost")


# -- encoding ---------------------------------------------------------------------------------------------------------


def stages_work_side_by_side_and_the_slowest_sets_the_pace() -> None:
    # A piece of 10 rows takes the fast stage 0.1 s; then the encoder never waits.
    for items, encoders, stages, seconds, tight in (
        (1, 1, (FAST, ENCODE), 10.1, "encode"),
        (4, 1, (FAST, ENCODE), 40.1, "encode"),
        (4, 2, (FAST, ENCODE), 20.1, "encode"),
        (1, 1, (SLOW, ENCODE), 21.0, "transform"),  # 20 s, and the last piece is encoded in 1 s.
        (2, 1, (SLOW, ENCODE), 41.0, "transform"),
    ):
        run = simulate_encoding(job(items, encoders, stages))
        require_near(run.seconds, seconds, f"{items} items, {encoders} encoders")
        require(run.tight == tight, "the tight stage", run)
        require_near(run.busy["encode"], 10 * items / (encoders * seconds), "the encoders' share")
        require_near(run.idle, 1 - run.busy["encode"], "idle")


def a_lost_machine_costs_its_item_and_the_time_without_it() -> None:
    with machines_lost(encoding, (5.0, 10.0)):
        run = simulate_encoding(job())
    require_near(run.seconds, 20.0, "lost at 5, again from 10 to 20")
    require_near(run.wasted, 5 / 20, "wasted")
    require_near(run.away, 5 / 20, "away")
    require((run.losses, run.items_done_alone, run.most_failures) == (1, 1, 1), "counts", run)
    with machines_lost(encoding, (15.0, 16.0)):  # It is asked for 2 s after the loss, not at once.
        run = simulate_encoding(job(2))
    require_near(run.seconds, 27.0, "the second item from 17 to 27")


def time_away_ends_with_the_job() -> None:
    with machines_lost(encoding, (12.0, 100.0)):  # The other encoder goes on with its own item until 20, and does the lost one until 30.
        run = simulate_encoding(job(4, 2))
    require_near(run.seconds, 30.0, "seconds")
    require_near(run.away, (30 - 12) / 60, "away")
    require_near(run.idle, 0.0, "idle")


def what_a_lost_machine_had_committed_is_found_there() -> None:
    with machines_lost(encoding, (15.0, 16.0)):
        run = simulate_encoding(job(16))
    # Batches of two, and two at a time. Item 0 was committed, 1 to 3 were not: after the other twelve these four go one by one.
    require_near(run.seconds, 16 + 12 * 10 + encoding.LOOK_SECONDS + 3 * 10, "seconds")
    require(run.items_done_alone == 4, "items that went alone", run)
    require_near(run.busy["encode"] * run.seconds, 160.0, "each item counts once")


class CountedTimes(dict):
    """EncodingRun.times, and how often each item was begun and given up."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.given_up = collections.Counter(), collections.Counter()

    def __setitem__(self, item: int, times: list) -> None:
        self.begun[item] += 1
        super().__setitem__(item, times)

    def __delitem__(self, item: int) -> None:
        self.given_up[item] += 1
        super().__delitem__(item)


def every_item_is_done_once_whatever_is_lost() -> None:
    plan = job(300, 5, (FAST, ENCODE), losses=Losses(120.0, 20.0, 5.0))
    counted = encoding.EncodingRun(plan, 3)
    counted.times = CountedTimes()
    run = counted.run()
    require(counted.times.begun - counted.times.given_up == collections.Counter(range(300)), "items that were done more than once, or not at all", counted.times.begun.most_common(3))
    require(sum(counted.times.given_up.values()) > 5, "items that were lost", counted.times.given_up)
    require(run.losses > 20, "machines were lost", run)
    require_near(run.busy["encode"] * run.seconds * 5, 3000.0, "work that counts")
    require(run.idle >= 0, "shares", run)
    require(run == simulate_encoding(plan, seed=3), "the same seed gives another run")
    require(run.seconds != simulate_encoding(plan, seed=4).seconds, "another seed gives the same run")


# -- training ---------------------------------------------------------------------------------------------------------


def trainers(**more) -> TrainingPlan:
    """1,000 rows at 10 a second."""
    return TrainingPlan(rows=1000.0, num_trainers=1, train_rate=10.0, **more)


def the_slower_side_sets_the_pace() -> None:
    require_near(simulate_training(trainers()).seconds, 100.0, "rows that are there")
    slow = simulate_training(trainers(num_encoders=2, encode_rate=4.0, ahead_rows=100.0))
    require_near(slow.seconds, 125.0, "8 rows a second")
    require_near(slow.waiting, 0.2, "the trainers wait")
    require(slow.tight == "encode", "tight", slow)
    fast = simulate_training(trainers(num_encoders=1, encode_rate=20.0, ahead_rows=100.0))
    require_near(fast.seconds, 100.0, "10 rows a second")
    # Until 10 s the room between them is filled, then half of the encoder's time is left over.
    require_near(fast.encoders_idle, 0.45, "the encoder is idle")
    require(fast.tight == "train" and fast.waiting == 0, "tight", fast)


def checkpoints_and_losses_cost_what_they_take() -> None:
    saving = simulate_training(trainers(checkpoint_every=30.0, checkpoint_seconds=5.0))
    require_near(saving.seconds, 115.0, "saves after 30, 60 and 90 s of training")
    require_near(saving.saving, 15 / 115, "saving")
    with machines_lost(training, (50.0, 60.0)):
        lost = simulate_training(trainers(checkpoint_every=30.0))
    require_near(lost.seconds, 130.0, "10 s away and 20 s again")
    require_near(lost.away, 10 / 130, "away")
    require_near(lost.repeated, 20 / 130, "repeated")
    with machines_lost(training, (32.0, 40.0)):  # In the save that began at 30.
        in_save = simulate_training(trainers(checkpoint_every=30.0, checkpoint_seconds=5.0))
    require_near(in_save.seconds, 40 + 115.0, "everything again")
    require_near(in_save.repeated, 30 / 155, "repeated")


def a_lost_encoder_slows_the_trainers_down_once_nothing_is_ahead() -> None:
    for ahead, seconds in ((0.0, 110.0), (50.0, 110.0)):  # Encoders as fast as the trainers never get ahead.
        with machines_lost(training):
            plan = trainers(num_encoders=2, encode_rate=5.0, ahead_rows=ahead)
            run = training.TrainingRun(plan, 1)
            run.encoders[0] = training.Machine(iter([(20.0, 40.0)]))
            result = run.run()
        require_near(result.seconds, seconds, "20 s at half the rate")
        require_near(result.encoders_away, 0.5 * 20 / seconds, "away")
    run = training.TrainingRun(trainers(num_encoders=2, encode_rate=10.0, ahead_rows=100.0), 1)
    run.encoders[0] = training.Machine(iter([(20.0, 40.0)]))
    require_near(run.run().seconds, 100.0, "what is ahead bridges a loss")


# -- the published topology -------------------------------------------------------------------------------------------


def the_published_command_fits_the_published_nodes() -> None:
    found = topology.placement_report()
    require(found == {"problems": [], "nodes_that_fit": 48, "encoders_with_room": 48, "cpus_of_these_nodes": 384.0, "cpus_reserved": 192.0}, "placement", found)


def rates_come_from_the_catalogue() -> None:
    catalogue = topology.Catalogue()
    plan = topology.training_plan(catalogue, 256, "spot", 48)
    require((plan.train_rate, plan.encode_rate) == (138.7233, 75.0), "rates", plan)
    require(plan.trainer_losses == Losses(24 * 3600.0, 1800.0, 360.0), "losses", plan)
    require_near(plan.checkpoint_every, math.sqrt(2 * 18.0 * 6 * 3600.0), "Young's interval for four machines")
    require(topology.training_plan(catalogue, 256, "never").checkpoint_every == NEVER, "nothing is lost, nothing is saved")
    try:
        catalogue.rate("encode", "A10G", 128)
    except KeyError as error:
        require("A10G at 128" in str(error), "the sentence", error)
    else:
        raise AssertionError("a rate that is not there was given")


def the_claim_wants_more_encoders_than_were_published() -> None:
    for side, train, encode in ((256, 138.7233, 75.0), (512, 44.3242, 25.0)):
        count = simulate.encoders_for_the_claim(topology.Catalogue(), side)
        require(count == math.ceil(1.3 * 32 * train / 1.4 / encode) > topology.NUM_ENCODERS, "encoders for 30 % more", side, count)


def a_small_job_of_the_published_shape_ends_as_its_encoders_allow() -> None:
    plan = dataclasses.replace(topology.encoding_plan(topology.Catalogue(), 256, "never"), num_items=48 * 16)
    run = simulate_encoding(plan)
    first_piece = sum(stage.seconds(plan.piece_rows) for stage in plan.stages[:-1])
    require_near(run.seconds, 16 * 5000 / 75 + first_piece, "sixteen items an encoder")


if __name__ == "__main__":
    main(
        [
            machines_are_away_for_wait_and_restart_and_are_lost_as_often_as_said,
            stages_work_side_by_side_and_the_slowest_sets_the_pace,
            a_lost_machine_costs_its_item_and_the_time_without_it,
            time_away_ends_with_the_job,
            what_a_lost_machine_had_committed_is_found_there,
            every_item_is_done_once_whatever_is_lost,
            the_slower_side_sets_the_pace,
            checkpoints_and_losses_cost_what_they_take,
            a_lost_encoder_slows_the_trainers_down_once_nothing_is_ahead,
            the_published_command_fits_the_published_nodes,
            rates_come_from_the_catalogue,
            the_claim_wants_more_encoders_than_were_published,
            a_small_job_of_the_published_shape_ends_as_its_encoders_allow,
        ]
    )
