"""Which items of a job are open, at work and done: the bookkeeping of the driver. Knows neither Ray nor clocks nor the program."""

import collections
import dataclasses
import re


MOST_PAUSE_SECONDS = 60.0
# As a program tells why a row failed, the first one of each code (src/ingest/told_errors.cpp).
ROW_FAILED = re.compile(r"(?:download|process): a row failed, (?P<code>\w+): (?P<reason>.+)")
MOST_CODES = 64
MOST_CHARACTERS = 500  # Of a reason: more than a program says.


def pause_after(failures: int) -> float:
    """Seconds until the next try: what dies at once is not started again at once."""
    return min(MOST_PAUSE_SECONDS, 2.0 ** min(failures, 10))


class ItemFailed(Exception):
    """An item failed more often than --max-failures allows."""


@dataclasses.dataclass
class Totals:
    """What this run of the job came to."""

    items: int = 0  # That this run committed.
    items_there: int = 0  # That were there already.
    rows_in: int = 0  # Of the committed ones, like the two below.
    rows_out: int = 0
    bytes: int = 0
    rows_by_error: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def add(self, answer: dict) -> None:
        self.items += 1
        self.rows_in += answer["rows_in"]
        self.rows_out += answer["rows_out"]
        self.bytes += answer["bytes"]
        self.rows_by_error.update(answer["rows_by_error"])


class FirstErrors:
    """Of each code why the first row failed that did."""

    def __init__(self) -> None:
        self.by_code: dict[str, str] = {}

    def note(self, sentence: str) -> bool:
        """Whether it tells of a code of which nothing was told yet."""
        found = ROW_FAILED.match(sentence)
        if not found or found["code"] in self.by_code or len(self.by_code) >= MOST_CODES:
            return False
        self.by_code[found["code"]] = found["reason"][:MOST_CHARACTERS]
        return True


class ItemBook:
    """Hands items out in batches and takes the answers. An item that failed goes alone the next time, after a while, so that it costs no
    other."""

    def __init__(self, items: list[int], items_per_batch: int, max_failures: int, num_takers: int = 0) -> None:
        """`num_takers`: how many batches are at work at a time. Where it is named, batches shrink towards the end, so that no taker has many
        items left while others have none; where a batch has a price of its own it is 0."""
        self.items_per_batch = max(1, items_per_batch)
        self.num_takers = num_takers
        self.max_failures = max_failures
        self.open: collections.deque[int] = collections.deque(items)
        self.alone: collections.deque[int] = collections.deque()  # That failed before.
        self.later: list[tuple[float, int]] = []  # (not before, item): somebody else is at it, or it failed just now.
        self.at_work: set[int] = set()
        self.failures: collections.Counter = collections.Counter()
        self.num_items = len(items)
        self.totals = Totals()

    def take(self, now: float, may_go_alone: bool = True) -> list[int]:
        """The next batch; empty: there is nothing to hand out now. `may_go_alone`: there is a worker with nothing else to do."""
        for not_before, item in [entry for entry in self.later if entry[0] <= now]:
            self.later.remove((not_before, item))
            (self.alone if self.failures[item] else self.open).append(item)
        if self.alone and not self.open:
            batch = [self.alone.popleft()] if may_go_alone else []
        else:
            batch = [self.open.popleft() for _ in range(self._next_size())]
        self.at_work.update(batch)
        return batch

    def _next_size(self) -> int:
        most = min(self.items_per_batch, len(self.open))
        return min(most, -(-len(self.open) // self.num_takers)) if self.num_takers else most

    def goes_alone(self, batch: list[int]) -> bool:
        return any(self.failures[item] for item in batch)

    def settle(self, answers: list[dict], now: float, pause: float) -> None:
        """Takes the program's answers about items of a batch."""
        for answer in answers:
            item = answer["item"]
            self.at_work.discard(item)
            if answer["outcome"] == "committed":
                self.totals.add(answer)
            elif answer["outcome"] == "there":
                self.totals.items_there += 1
            elif answer["outcome"] == "busy":
                self.later.append((now + pause, item))
            else:
                raise ItemFailed(f"the job has no item {item}: was its folder changed meanwhile?")

    def fail(self, batch: list[int], why: str, now: float) -> None:
        """A batch whose worker was lost or failed: what it has committed nevertheless is found there the next time. Errors: ItemFailed."""
        for item in batch:
            self.at_work.discard(item)
            self.failures[item] += 1
            if 0 <= self.max_failures < self.failures[item]:
                raise ItemFailed(f"item {item} failed {self.failures[item]} times, more than --max-failures {self.max_failures} allows; the last time: {why}")
            self.later.append((now + pause_after(self.failures[item]), item))

    @property
    def num_done(self) -> int:
        return self.totals.items + self.totals.items_there

    @property
    def is_done(self) -> bool:
        return not (self.open or self.alone or self.later or self.at_work)
