"""What the place of a program costs: of a machine's price the share that it reserves there."""

import dataclasses

from darkroom_ray.request import Request
from darkroom_ray.shares import resources_here, share_of, with_flag_of_settings

FLAG = "--price-per-hour"
COST_LINE = ": this has cost $"  # As the program says it (apps/darkroom/jobs/job_observation.cpp).


def with_price(request: Request, given: dict[str, list[str]]) -> Request:
    """A price of a file of settings stands on the command line, too, where its share is taken. `given`: program.read_arguments()."""
    return with_flag_of_settings(request, given, FLAG)


def with_share(request: Request, share: float) -> Request:
    """The price of the machine becomes that of a part of it."""
    words = list(request.arguments)
    for place, word in enumerate(words):
        if word.startswith(f"{FLAG}="):
            words[place] = f"{word}*{share:.6f}"
        elif word == FLAG and place + 1 < len(words):
            words[place + 1] = f"{words[place + 1]}*{share:.6f}"
    return dataclasses.replace(request, arguments=tuple(words))


def priced_here(request: Request) -> Request:
    """As the program of this Ray worker is to count. REQUIRES: called in a task or an actor, where there is a price."""
    if FLAG not in request.named_flags():
        return request
    return with_share(request, share_of(*resources_here()))
