"""What outlives the worker groups of one run: an actor that ranks, Ray Train's controller, the encoders' keeper and the driver tell things to."""

import collections
import re
import time

LOOK_SECONDS = 0.5
NOTES_SECONDS = 120.0  # Notes that do not answer for so long are not made anew any more.
NO_ATTEMPT = -1  # What rank 0 tells the others when nothing is to be begun.
MOST_LINES = 1000  # That nobody has asked for yet.
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "
PROGRESS = re.compile(TIME + r"(train step \d+/\d+ .*)")
GOING_ON = re.compile(TIME + r"going on from .* \(step (\d+) of \d+\)")
TIMED = re.compile(TIME)
WARNING = re.compile(r"(rank \d+: )?(warning|error): ")  # As the user is told a program's.


def told(ray, reference, otherwise=False):
    """What the notes say; `otherwise` while they are being made anew: the next look asks again."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError:
        return otherwise


def asked(call, *words):
    """What the notes answer to a call, which is made again while they are being made anew: a rank at work is not to be lost with them. Errors:
    RayError: of the call itself; RayActorError: they are gone."""
    import ray

    end = time.monotonic() + NOTES_SECONDS
    while True:
        try:
            return ray.get(call.remote(*words))
        except ray.exceptions.RayActorError:
            if time.monotonic() >= end:
                raise
        time.sleep(LOOK_SECONDS)


class RunNotes:
    """An actor."""

    def __init__(self) -> None:
        self._sizes: list[int] = []  # Of the groups that were begun.
        self._failure: tuple[int, str] | None = None
        self._stop = 0
        self._heard = time.monotonic()
        self._places: dict[int, str] = {}  # Of the ranks of this attempt.
        self._is_pausing = False
        self._paused: set[int] = set()
        self._num_waiting = 0  # Encoders without a place.
        self._start_step = -1  # Where an attempt began last, as its program said.
        self._lines: collections.deque[str] = collections.deque(maxlen=MOST_LINES)
        self._num_lines = 0  # That there ever were.
        self._progress = ""

    # Attempts.

    def begin(self, num_ranks: int) -> int:
        """Which start of the group this is; NO_ATTEMPT: a start would mend nothing. Called by rank 0, which tells the others."""
        if self._failure or self._stop:
            return NO_ATTEMPT
        self._sizes.append(num_ranks)
        self._places = {}
        self._is_pausing = False
        self._paused = set()
        return len(self._sizes) - 1

    def note_place(self, rank: int, place: str, log_folder: str) -> None:
        """Where a rank of this attempt is; once all have a place, that is told."""
        self._places[rank] = place
        if self._sizes and len(self._places) == self._sizes[-1]:
            by_place = collections.defaultdict(list)
            for number in sorted(self._places):
                by_place[self._places[number]].append(str(number))
            where = "; ".join(f"{', '.join(numbers)} on {name}" for name, numbers in by_place.items())
            self.say(f"start {len(self._sizes)}: ranks {where}; their logs: {log_folder}")

    def start_step(self) -> int:
        return self._start_step

    def note_failure(self, code: int, text: str) -> None:
        """The first counts: the others are its consequences."""
        self._failure = self._failure or (code, text)

    def failure(self) -> tuple[int, str] | None:
        return self._failure

    def is_hopeless(self) -> bool:
        """What failed beside the ranks (an encoder) has failed before one had a place: none will begin."""
        return self._failure is not None and not self._sizes

    def sizes(self) -> list[int]:
        """With how many ranks each group was begun."""
        return self._sizes

    # Ends.

    def ask_to_stop(self, number: int) -> None:
        self._stop = number

    def stop_number(self) -> int:
        """Asked by ranks at work, again and again."""
        self._heard = time.monotonic()
        return self._stop

    def seconds_without_rank(self) -> float:
        """Since a rank was heard of."""
        return time.monotonic() - self._heard

    def ask_to_pause(self, num_ranks: int) -> bool:
        """So that the group may be begun anew with more of them; whether all have ended with a checkpoint. Asked again and again."""
        self._is_pausing = True
        return len(self._paused) >= num_ranks

    def is_pausing(self) -> bool:
        return self._is_pausing

    def note_paused(self, rank: int) -> None:
        self._paused.add(rank)

    # Encoders.

    def note_waiting(self, num_encoders: int) -> None:
        self._num_waiting = num_encoders

    def num_waiting(self) -> int:
        return self._num_waiting

    # What the user sees.

    def say(self, text: str) -> None:
        self._lines.append(text)
        self._num_lines += 1

    def hear(self, rank: int, lines: list[str]) -> None:
        """What a rank's program said. Others than rank 0 say warnings and errors alone."""
        for line in lines:
            progress, going_on = (pattern.match(line) for pattern in (PROGRESS, GOING_ON)) if rank == 0 else (None, None)
            if progress:
                self._progress = progress[1]
                continue
            if going_on:
                self._start_step = int(going_on[1])
            self.say((f"rank {rank}: " if rank else "") + TIMED.sub("", line, count=1))

    def news(self, after: int) -> tuple[int, list[str], str]:
        """How many lines there ever were, those after the first `after` of them, and the program's line of progress."""
        new = self._num_lines - after if 0 <= after <= self._num_lines else self._num_lines
        return self._num_lines, list(self._lines)[-new:] if new else [], self._progress
