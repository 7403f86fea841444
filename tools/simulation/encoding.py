"""`darkroom-ray process` as discrete events: the driver's own bookkeeping (darkroom_ray.items.ItemBook) hands out items to encoders that read,
transform and encode them in a line, and whose machines are lost now and then."""

import dataclasses
import heapq
import itertools
import random

from darkroom_ray.item_job import batch_size
from darkroom_ray.item_workers import CALLS_OF_AN_ACTOR
from darkroom_ray.items import ItemBook
from losses import NEVER, Losses, outages

LOOK_SECONDS = 0.1  # Until the program says of a committed item that it is there.
FOR_EVER = -1  # --max-failures.


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage of one encoder's program."""

    name: str
    workers: int
    rows_per_second: float  # Of one worker.

    def seconds(self, rows: float) -> float:
        return rows / (self.workers * self.rows_per_second)


@dataclasses.dataclass(frozen=True)
class EncodingPlan:
    num_items: int
    rows_per_item: int
    num_encoders: int
    stages: tuple[Stage, ...]
    piece_rows: int = 32  # What a stage hands to the next at once.
    items_ahead: int = 8  # That the first stage may begin before the last one does.
    losses: Losses = Losses()


@dataclasses.dataclass
class EncodingResult:
    seconds: float = 0.0
    busy: dict[str, float] = dataclasses.field(default_factory=dict)  # Share of the whole time of all its workers, by stage.
    wasted: float = 0.0  # Share of the last stage's time that was work on items which were lost.
    away: float = 0.0  # Share of the encoders' time without their machine.
    tail: float = 0.0  # Share of the encoders' time after there was nothing left to hand out.
    losses: int = 0
    items_done_alone: int = 0
    most_failures: int = 0  # That one item had: what --max-failures must allow.
    rows_per_second: float = 0.0

    @property
    def tight(self) -> str:
        return max(self.busy, key=self.busy.get)

    @property
    def idle(self) -> float:
        """Share of the encoders' time in which they are there and have nothing to encode."""
        return 1.0 - list(self.busy.values())[-1] - self.wasted - self.away


class Line:
    """The stages of one encoder, an item after the other in each; a piece that one stage has done goes to the next at once."""

    def __init__(self, plan: EncodingPlan) -> None:
        self.plan = plan
        self.free_at = [0.0] * len(plan.stages)
        self.begun: list[float] = []  # By item of this line: when its last stage began.

    def do(self, now: float, rows: int) -> list[tuple[float, float]]:
        """(begin, end) in each stage of an item that is at hand from `now` on."""
        ready, ended, times = now, now, []
        if len(self.begun) >= self.plan.items_ahead:
            ready = max(ready, self.begun[-self.plan.items_ahead])
        for number, stage in enumerate(self.plan.stages):
            piece = stage.seconds(min(rows, self.plan.piece_rows))
            begin = max(ready, self.free_at[number])
            ended = max(begin + stage.seconds(rows), ended + piece if number else 0.0)
            self.free_at[number] = ended
            times.append((begin, ended))
            ready = begin + piece
        self.begun.append(times[-1][0])
        del self.begun[: -self.plan.items_ahead]
        return times


@dataclasses.dataclass
class Encoder:
    line: Line
    is_there: bool = True
    back: float = 0.0  # When its machine comes back, or came.
    calls: int = 0
    at_work: dict[int, tuple[list[int], int]] = dataclasses.field(default_factory=dict)  # By call: its items, its share of the actor's calls.


class EncodingRun:
    """One simulated job."""

    def __init__(self, plan: EncodingPlan, seed: int) -> None:
        self.plan = plan
        items = list(range(plan.num_items))
        self.book = ItemBook(items, batch_size(len(items), plan.num_encoders), FOR_EVER, plan.num_encoders * CALLS_OF_AN_ACTOR)
        self.encoders = [Encoder(Line(plan)) for _ in range(plan.num_encoders)]
        self.outages = [outages(plan.losses, random.Random(seed * 1_000_003 + number)) for number in range(plan.num_encoders)]
        self.result = EncodingResult(busy={stage.name: 0.0 for stage in plan.stages})
        self.times: dict[int, list[tuple[float, float]]] = {}  # Of items that are at work.
        self.committed: set[int] = set()
        self.events: list[tuple] = []
        self.order = itertools.count()
        self.out_of_work_at = 0.0
        self.woken: set[float] = set()  # Moments at which something is looked for that is not to be done before.

    def at(self, when: float, what, *arguments) -> None:
        if when < NEVER:
            heapq.heappush(self.events, (when, next(self.order), what, arguments))

    def run(self) -> EncodingResult:
        for number in range(len(self.encoders)):
            self.plan_loss(number)
        now = 0.0
        self.hand_out(now)
        while not self.book.is_done:
            now, _, what, arguments = heapq.heappop(self.events)
            what(now, *arguments)
            self.hand_out(now)
        return self.finish(now)

    def plan_loss(self, number: int) -> None:
        for lost, back in itertools.islice(self.outages[number], 1):
            self.at(lost, self.lose, number, back)

    def hand_out(self, now: float) -> None:
        """As item_job.ItemJob.hand_out and item_workers.Encoders.submit do it."""
        while True:
            free = [encoder for encoder in self.encoders if encoder.is_there and encoder.calls < CALLS_OF_AN_ACTOR]
            batch = self.book.take(now, any(encoder.calls == 0 for encoder in free)) if free else []
            if not batch:
                break
            goes_alone = self.book.goes_alone(batch)
            self.result.items_done_alone += goes_alone
            encoder = min(free, key=lambda one: one.calls)
            self.submit(now, encoder, batch, CALLS_OF_AN_ACTOR if goes_alone else 1)
        if self.book.open or self.book.alone or self.book.later:
            self.out_of_work_at = now
            for not_before in {when for when, _ in self.book.later if when > now}:
                self.wake(not_before)

    def wake(self, when: float) -> None:
        if when not in self.woken:
            self.woken.add(when)
            self.at(when, lambda now: None)

    def submit(self, now: float, encoder: Encoder, batch: list[int], share: int) -> None:
        call, ended = next(self.order), now
        for item in batch:
            if item in self.committed:
                ended = max(ended, now + LOOK_SECONDS)
                continue
            self.times[item] = encoder.line.do(now, self.plan.rows_per_item)
            ended = max(ended, self.times[item][-1][1])
        encoder.calls += share
        encoder.at_work[call] = (batch, share)
        self.at(ended, self.settle, encoder, call)

    def settle(self, now: float, encoder: Encoder, call: int) -> None:
        if call not in encoder.at_work:
            return  # Its machine was lost meanwhile.
        batch, share = encoder.at_work.pop(call)
        encoder.calls -= share
        answers = [{"item": item, "outcome": "there" if item in self.committed else "committed", "rows_in": self.plan.rows_per_item, "rows_out": 0, "bytes": 0, "rows_by_error": {}} for item in batch]
        for item in batch:
            self.commit(item)
        self.book.settle(answers, now, 0.0)

    def commit(self, item: int) -> None:
        if item in self.committed:
            return
        self.committed.add(item)
        for stage, (begin, end) in zip(self.plan.stages, self.times.pop(item)):
            self.result.busy[stage.name] += min(end - begin, stage.seconds(self.plan.rows_per_item))

    def lose(self, now: float, number: int, back: float) -> None:
        """The machine of an encoder is lost: what its program had committed stays, the rest is asked for again."""
        encoder = self.encoders[number]
        self.result.losses += 1
        for batch, _ in encoder.at_work.values():
            for item in batch:
                self.give_up(now, item)
            self.book.fail(batch, "its machine was lost", now)
        encoder.at_work, encoder.calls, encoder.is_there, encoder.back = {}, 0, False, back
        self.result.away += back - now
        self.at(back, self.come_back, number)

    def give_up(self, now: float, item: int) -> None:
        if item not in self.times:
            return
        begin, end = self.times[item][-1]
        if end <= now:
            self.commit(item)
            return
        self.result.wasted += max(0.0, now - begin)
        del self.times[item]

    def come_back(self, now: float, number: int) -> None:
        encoder = self.encoders[number]
        encoder.line, encoder.is_there = Line(self.plan), True
        self.plan_loss(number)

    def finish(self, now: float) -> EncodingResult:
        result, whole = self.result, now * self.plan.num_encoders
        result.seconds = now
        result.rows_per_second = self.plan.num_items * self.plan.rows_per_item / now
        result.busy = {name: seconds / whole for name, seconds in result.busy.items()}
        beyond_the_end = sum(encoder.back - now for encoder in self.encoders if not encoder.is_there)
        result.wasted, result.away = result.wasted / whole, (result.away - beyond_the_end) / whole
        result.most_failures = max(self.book.failures.values(), default=0)
        result.tail = (now - self.out_of_work_at) / now
        return result


def simulate_encoding(plan: EncodingPlan, seed: int = 1) -> EncodingResult:
    return EncodingRun(plan, seed).run()
