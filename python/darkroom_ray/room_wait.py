"""What waits for a place on the cluster, for which Ray waits without a word: a task notes in Ray's own store that it has one."""

import contextlib
import dataclasses
import secrets
import time
from collections.abc import Callable

from darkroom_ray.preflight import described
from darkroom_ray.request import Placement

ROOM_SECONDS = 30.0  # After which it is told that something has found no room.
NAMESPACE = "darkroom"  # Of our keys in Ray's store.


@dataclasses.dataclass(frozen=True)
class PlaceNote:
    """Of one task: made by its driver, travels with it."""

    key: str = dataclasses.field(default_factory=lambda: f"place-{secrets.token_hex(8)}")

    def take(self) -> None:
        """The task has its place. A store that is away for a moment fails no task."""
        from ray.experimental import internal_kv

        with contextlib.suppress(Exception):
            internal_kv._internal_kv_put(self.key, b"", namespace=NAMESPACE)

    def leave(self) -> None:
        """The task is done. That of a task which is lost stays with its cluster."""
        from ray.experimental import internal_kv

        with contextlib.suppress(Exception):
            internal_kv._internal_kv_del(self.key, namespace=NAMESPACE)

    def is_waiting(self) -> bool:
        """Asked by the driver while the task is not done. Nobody knows while the store is away: then not."""
        from ray.experimental import internal_kv

        with contextlib.suppress(Exception):
            return not internal_kv._internal_kv_exists(self.key, namespace=NAMESPACE)
        return False


class RoomWait:
    """One wait, of which is told once, and no more where it has ended by then."""

    def __init__(self, say: Callable[[str], None], who: str, placement: Placement) -> None:
        """`who`: as it is told."""
        self._say = say
        self._text = f"{who} has no room on the cluster now, and waits for it: {described(placement)}"
        self._look_at = time.monotonic() + ROOM_SECONDS

    def look(self, is_waiting: Callable[[], bool]) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = float("inf")
        if is_waiting():
            self._say(self._text)
