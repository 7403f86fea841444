"""When machines go and come back: exponential times between losses, then a wait for another machine and its start."""

import dataclasses
import random
from collections.abc import Iterator

NEVER = float("inf")
HOUR = 3600.0


@dataclasses.dataclass(frozen=True)
class Losses:
    """Of one machine, in seconds. The names are those of the catalogue's [[loss]] (docs/plan.md)."""

    between: float = NEVER
    wait: float = 0.0
    restart: float = 0.0

    @property
    def away(self) -> float:
        return self.wait + self.restart


def outages(losses: Losses, generator: random.Random) -> Iterator[tuple[float, float]]:
    """(lost at, back at) of one machine, without end; none where it is never lost."""
    now = 0.0
    while losses.between < NEVER:
        lost = now + generator.expovariate(1.0 / losses.between)
        now = lost + losses.away
        yield lost, now
