"""Training that is fed by encoders beside it: a flow of rows between the moments at which a machine is lost or comes back, a checkpoint is due,
or the rows in between run out or have no more room."""

import dataclasses
import random
from collections.abc import Iterator

from losses import NEVER, Losses, outages

CLOSE_ROWS = 1e-6  # That rounding may leave.
CLOSE_SECONDS = 1e-9


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    rows: float
    num_trainers: int
    train_rate: float  # Rows a second of one trainer.
    num_encoders: int = 0  # 0: rows are there already, or the trainers encode.
    encode_rate: float = 0.0
    ahead_rows: float = 0.0  # Room between encoders and trainers.
    trainers_per_machine: int = 8
    trainer_losses: Losses = Losses()
    encoder_losses: Losses = Losses()
    checkpoint_every: float = NEVER  # Seconds of training.
    checkpoint_seconds: float = 0.0


@dataclasses.dataclass
class TrainingResult:
    seconds: float = 0.0
    rows_per_second: float = 0.0
    waiting: float = 0.0  # Shares of the trainers' time: for rows,
    saving: float = 0.0  # checkpoints,
    away: float = 0.0  # a machine that was lost,
    repeated: float = 0.0  # steps again that were lost with it.
    encoders_idle: float = 0.0  # Shares of the encoders' time: no room for rows,
    encoders_away: float = 0.0  # their machine was lost.
    losses: int = 0

    @property
    def tight(self) -> str:
        return "encode" if self.waiting > self.encoders_idle else "train"


class Machine:
    """Alternates between being there and being away."""

    def __init__(self, events: Iterator[tuple[float, float]]) -> None:
        self._events = events
        self._lost, self._back = next(events, (NEVER, NEVER))
        self.is_there = True

    @property
    def next_change(self) -> float:
        return self._lost if self.is_there else self._back

    def change(self) -> None:
        self.is_there = not self.is_there
        if self.is_there:
            self._lost, self._back = next(self._events, (NEVER, NEVER))


class TrainingRun:
    """One simulated run."""

    def __init__(self, plan: TrainingPlan, seed: int) -> None:
        self.plan = plan
        machines = -(-plan.num_trainers // plan.trainers_per_machine)
        self.trainers = [Machine(outages(plan.trainer_losses, random.Random(f"{seed} trainer {number}"))) for number in range(machines)]
        self.encoders = [Machine(outages(plan.encoder_losses, random.Random(f"{seed} encoder {number}"))) for number in range(plan.num_encoders)]
        self.now, self.ahead, self.done, self.saved = 0.0, 0.0, 0.0, 0.0
        self.until_save, self.saving_left, self.is_saving = plan.checkpoint_every, 0.0, False
        self.sums = {name: 0.0 for name in ("waiting", "saving", "away", "repeated", "idle", "encoders_away")}
        self.num_losses = 0

    def rates(self) -> tuple[float, float]:
        """Rows a second that are encoded and trained on now."""
        plan = self.plan
        most = plan.num_trainers * plan.train_rate if self.is_training() else 0.0
        if not plan.num_encoders:
            return most, most
        made = plan.encode_rate * sum(encoder.is_there for encoder in self.encoders)
        trained = most if self.ahead > CLOSE_ROWS else min(most, made)
        is_full = self.ahead >= plan.ahead_rows - CLOSE_ROWS
        return (min(made, trained) if is_full else made), trained

    def is_training(self) -> bool:
        return not self.is_saving and all(machine.is_there for machine in self.trainers)

    def run(self) -> TrainingResult:
        while self.done < self.plan.rows - CLOSE_ROWS:
            made, trained = self.rates()
            self.advance(self.next_moment(made, trained) - self.now, made, trained)
            self.change()
        return self.finish()

    def next_moment(self, made: float, trained: float) -> float:
        moments = [machine.next_change for machine in (*self.trainers, *self.encoders)]
        if self.is_training():
            moments.append(self.now + self.until_save)
        elif self.is_saving and all(machine.is_there for machine in self.trainers):
            moments.append(self.now + self.saving_left)
        if trained > 0:
            moments.append(self.now + (self.plan.rows - self.done) / trained)
        if made > trained:
            moments.append(self.now + (self.plan.ahead_rows - self.ahead) / (made - trained))
        if trained > made:
            moments.append(self.now + self.ahead / (trained - made))
        return min(moments)

    def advance(self, seconds: float, made: float, trained: float) -> None:
        plan, sums = self.plan, self.sums
        if self.is_training():
            sums["waiting"] += seconds * (1 - trained / (plan.num_trainers * plan.train_rate))
            self.until_save -= seconds
        elif not all(machine.is_there for machine in self.trainers):
            sums["away"] += seconds
        else:
            sums["saving"] += seconds
            self.saving_left -= seconds
        there = sum(encoder.is_there for encoder in self.encoders)
        if plan.num_encoders:
            sums["encoders_away"] += seconds * (1 - there / plan.num_encoders)
            sums["idle"] += seconds * (there - made / plan.encode_rate) / plan.num_encoders
        self.now += seconds
        self.done += trained * seconds
        self.ahead = min(max(0.0, self.ahead + (made - trained) * seconds), plan.ahead_rows)

    def change(self) -> None:
        """What is due now."""
        for machine in self.encoders:
            if machine.next_change <= self.now:
                machine.change()
        for machine in self.trainers:
            if machine.next_change <= self.now:
                machine.change()
                if not machine.is_there:
                    self.lose()
        self.save()

    def save(self) -> None:
        """Begins a checkpoint that is due; one that is whole counts."""
        if self.is_saving and self.saving_left <= CLOSE_SECONDS:
            self.is_saving, self.saving_left, self.saved = False, 0.0, self.done
        elif not self.is_saving and self.until_save <= CLOSE_SECONDS:
            self.is_saving, self.saving_left, self.until_save = True, self.plan.checkpoint_seconds, self.plan.checkpoint_every
            self.save()

    def lose(self) -> None:
        """The group goes on from the last checkpoint; a save that was under way is lost, too."""
        self.num_losses += 1
        self.sums["repeated"] += (self.done - self.saved) / (self.plan.num_trainers * self.plan.train_rate)
        self.done, self.is_saving, self.saving_left, self.until_save = self.saved, False, 0.0, self.plan.checkpoint_every

    def finish(self) -> TrainingResult:
        share = {name: seconds / self.now for name, seconds in self.sums.items()}
        return TrainingResult(self.now, self.plan.rows / self.now, share["waiting"], share["saving"], share["away"], share["repeated"], share["idle"], share["encoders_away"], self.num_losses)


def simulate_training(plan: TrainingPlan, seed: int = 1) -> TrainingResult:
    return TrainingRun(plan, seed).run()
