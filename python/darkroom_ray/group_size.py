"""How many ranks a group begins with, when it may grow, and which of its losses count. Knows neither Ray nor clocks."""

SETTLE_SECONDS = 5.0  # What a cluster says of its room lags behind: fewer ranks than asked for are not begun before.
MOST_LOOK_SECONDS = 1800.0  # Between two looks whether a group could be larger, once growing has failed again and again.


class NoRoom(Exception):
    """The fewest ranks with which the run may go on have found no place for too long."""


class GroupSize:
    """The size of the next group. Times are seconds of any one clock."""

    def __init__(self, least: int, most: int, max_wait: float, look_every: float, settles: bool = False) -> None:
        """`settles`: others beside the ranks look for places, too, so that room for all of them is no room for certain at once."""
        self.least, self.most = least, most
        self.tried = most  # Of the last start, or the one to come.
        self._max_wait, self._settles = max_wait, settles
        self._usual_look_every = self._look_every = look_every
        self._last = most  # Ranks of the last group that stood.
        self._has_failed = False  # A start since then has found no place after all.
        self.limit = most  # After starts that found no place after all.
        self._asked_at: float | None = None  # When the first question since the last group was asked.
        self._looked_at = 0.0
        self._had_room = False  # At the last look at a group at work.

    def to_start(self, room: int, now: float) -> int:
        """Of a group; 0: wait. Errors: NoRoom."""
        self._asked_at = now if self._asked_at is None else self._asked_at
        waited = now - self._asked_at
        size = min(room, self.limit)
        if waited > self._max_wait and (size < self.least or self._has_failed):
            raise NoRoom(f"{self.least} ranks, the fewest that the run goes on with, have found no place for {waited:.0f} s: the cluster has room for {room} of them")
        if size < self.least or (waited < SETTLE_SECONDS and (size < self.limit or self._settles)):
            return 0
        return size

    def note_failed_start(self) -> None:
        """What was free is not: fewer are tried the next time, and growing into it later and later."""
        if self.tried > self._last:
            self._look_every = min(2 * self._look_every, max(MOST_LOOK_SECONDS, self._usual_look_every))
        self.limit, self._has_failed = max(self.least, self.tried - 1), True

    def note_start(self, now: float) -> None:
        if self.tried > self._last:
            self._look_every = self._usual_look_every
        self._last, self._has_failed = self.tried, False
        self.limit, self._asked_at = self.most, None
        self._looked_at, self._had_room = now, False

    def is_look_due(self, size: int, now: float) -> bool:
        """At a group at work, whether it could be larger."""
        return size < self.most and now - self._looked_at >= self._look_every

    def grows(self, size: int, more: int, now: float) -> bool:
        """Whether a group is to be begun anew because `more` ranks have found room at two looks, one after the other: what is free for a moment
        is worth no restart."""
        self._looked_at = now
        had_room, self._had_room = self._had_room, more > 0
        return had_room and more > 0


class LossCount:
    """What --max-failures counts: losses of the group since it last began at a later checkpoint. Those of a run that gets on are forgiven."""

    def __init__(self) -> None:
        self._step = -1  # The latest at which a group that was lost had begun.

    def begins_anew(self, step: int) -> bool:
        """Whether a group that began at this step and is lost now is the first to be lost since that checkpoint."""
        is_later = step > self._step
        self._step = max(step, self._step)
        return is_later
