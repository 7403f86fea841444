"""Training from raw images: encoder actors on some nodes, each a program `darkroom encoder`, feed the ranks on others. An actor that is lost
is started again somewhere; where the encoders are at a time stands in a book, which every rank copies into a file for its program. Of process
the same with `darkroom transformer`, where its transformers are on other nodes than its encoders."""

import collections
import contextlib
import dataclasses
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Callable

from darkroom_ray.addresses import LOOK_SECONDS, AddressFile, place_to_listen
from darkroom_ray.cluster import actor_here
from darkroom_ray.flags import Refused
from darkroom_ray.item_job import cause_of, first_line
from darkroom_ray.items import pause_after
from darkroom_ray.measured import restart_counter
from darkroom_ray.nodes import nodes_of, with_coming
from darkroom_ray.preflight import Node, check_both, described, places_beside
from darkroom_ray.probe import refuse
from darkroom_ray.program import EXIT_USAGE, is_set, start_child, stop_program
from darkroom_ray.program_log import ProgramLog, log_folder
from darkroom_ray.request import Placement, Request
from darkroom_ray.room_wait import ROOM_SECONDS
from darkroom_ray.run_notes import MOST_LINES
from darkroom_ray.shares import memory_here
from darkroom_ray.stopping import StopWatch, wait_for_ends
from darkroom_ray.training import train
from darkroom_ray.watched import own_trace

TOKEN = "DARKROOM_ENCODER_TOKEN"
READY = re.compile(r"(?:encoder|transformer) ready at (\S+)")
ADDRESSES_SECONDS = 30.0
STEADY_SECONDS = 600.0  # An encoder that served so long is no failing one: the losses of its seat are forgotten.
SLOW_SECONDS = 300.0  # After which it is told that an encoder with a place does not serve yet.
START_SECONDS = 3600.0  # Until it serves: models of other places are fetched before. One that takes longer hangs, and is lost.
AWAY_SECONDS = 120.0  # Without one good look at the encoders: what is away does not come back.
NODE_LABEL = "ray.io/node-id"  # Ray gives it to every node.
WAIT_FLAG = "--encoder-wait"  # Of the ranks' program: how long it waits where no encoder is.
USUAL_WAIT_SECONDS = 600.0  # Where nobody names it.
MOST_WAIT_SECONDS = 604800.0  # That the program takes.
# What the trainer's command line says of the pictures, by the program's flags.
SHARED_FLAGS = ("--raw-data", "--model", "--set")
# Flags of the encoders by those that the preflight knows.
ENCODER_FLAGS = {
    "--num-gpus-per-task": "--num-gpus-per-encoder",
    "--num-cpus-per-task": "--num-cpus-per-encoder",
    "--accelerator-type": "--encoder-accelerator-type",
    "--resources": "--encoder-resources",
    "--label": "--encoder-label",
    "--device": "--encoder-device",
}


TRANSFORMER_FLAGS = {
    "--num-cpus-per-task": "--num-cpus-per-transformer",
    "--resources": "--transformer-resources",
    "--label": "--transformer-label",
}
# What a job's command line says of the pictures.
PICTURE_FLAGS = ("--resolution", "--resize", "--crop", "--orientation", "--seed", "--caption-column", "--keep-columns")


class EncoderBook:
    """An actor: where the encoders are, in the order of their numbers. One that was lost begins anew, and hears it again."""

    def __init__(self) -> None:
        self._addresses: list[str] | None = None

    def note(self, addresses: list[str]) -> None:
        self._addresses = addresses

    def addresses(self) -> list[str] | None:
        """None: nobody has told yet."""
        return self._addresses


def make_book(ray):
    return actor_here(ray, EncoderBook, max_restarts=-1)


def traced_beside(given: dict[str, list[str]]) -> list[str]:
    """Where the ranks write spans, an encoder does so beside them."""
    return ["--trace-file", own_trace(given["--trace-file"][0])] if "--trace-file" in given else []


def no_sandbox(given: dict[str, list[str]]) -> list[str]:
    """What decodes pictures does so where the command line wants it."""
    return ["--no-sandbox"] if is_set(given, "--no-sandbox") else []


def encoder_words(request: Request, given: dict[str, list[str]], address: str) -> list[str]:
    """The command line of an encoder on the node with this address: what it encodes is what the trainer says."""
    words = ["encoder", "--recipe", given["RECIPE.toml"][0]]
    for name in SHARED_FLAGS:
        for value in given.get(name, []):
            words += [name, value]
    words += no_sandbox(given)
    most = max(64, 2 * request.num_workers)  # Ranks of an attempt that has ended may still be counted.
    return [*words, "--listen", place_to_listen(address), "--max-trainers", str(most), *request.encoders.arguments, *traced_beside(given)]


def transformer_words(request: Request, given: dict[str, list[str]], address: str) -> list[str]:
    """The command line of a transformer on the node with this address: what it makes of pictures is what the job says."""
    words = ["transformer", given["RAW_URI"][0]]
    for name in PICTURE_FLAGS:
        for value in given.get(name, []):
            words += [name, value] if value else [name]
    words += no_sandbox(given)
    return [*words, "--listen", place_to_listen(address), *request.transformers.arguments]


def served_by(request: Request) -> Request:
    """What the actors beside a job are called with and given."""
    return request.transformers or request.encoders


class EncoderActor:
    """An actor: its program loads the models once and serves until it is ended."""

    def __init__(self, request: Request, given: dict[str, list[str]], token: str, number: int) -> None:
        import ray

        words_of = transformer_words if request.transformers else encoder_words
        place = ray.util.get_node_ip_address()
        words = words_of(request, given, place)
        words += [] if request.transformers else memory_here(request.encoders)
        self._logs = log_folder(request, given.get("--output", [""])[0])
        log = ProgramLog(self._logs, f"{served_by(request).verb}-{number:03d}", f"on {place}")
        self._address = ""
        self._is_ready = threading.Event()
        self._child = start_child(served_by(request), words, {TOKEN: token}, on_said=log.write, on_line=self._take_line)
        threading.Thread(target=self._tell_end, daemon=True).start()

    def _take_line(self, line: str) -> bool:
        found = READY.match(line)
        if not found:
            return False
        self._address = found[1]
        self._is_ready.set()
        return True

    def _tell_end(self) -> None:
        self._child.wait()
        self._is_ready.set()

    def logs(self) -> str:
        """The folder of its log: it has a place."""
        return self._logs

    def address(self) -> str:
        """Waits until it serves; "": it has ended before."""
        self._is_ready.wait()
        return self._address

    def wait(self) -> tuple[int, str]:
        """Its exit code and last words."""
        return self._child.wait(), self._child.last_words()

    def stop(self) -> None:
        """Ends its program in order."""
        stop_program(self._child)


def near_node(node_id: str):
    """On that node, or elsewhere where another job has taken its room."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id, soft=True, _spill_on_unavailable=True)


def options_on(place: Node | None, placement: Placement) -> dict:
    """On that node where it has room, else on one with the labels that are asked for; without a place where Ray likes."""
    options = placement.options()
    if place is None:
        return options
    if "label_selector" not in options:
        return {**options, "scheduling_strategy": near_node(place.node_id)}
    others = [{"label_selector": selector} for selector in placement.label_selectors()]
    return {**options, "label_selector": {NODE_LABEL: place.node_id}, "fallback_strategy": others}


class Seat:
    """One of the encoders that are asked for: the actor that holds its place now. Its first one is on the node that the preflight counted it on, so
    that room is left for the ranks, which come later; the others go where there is room."""

    def __init__(self, ray, number: int, request: Request, given: dict[str, list[str]], token: str, place: Node | None = None) -> None:
        self.number = number
        self.losses = 0  # Since one served for long.
        self.fill_at = 0.0  # When a new actor is tried; 0: one is there.
        self._ray = ray
        self._make = lambda options: ray.remote(EncoderActor).options(**options, max_concurrency=4, max_restarts=0).remote(request, given, token, number)
        self._placement = served_by(request).placement
        self._place = place
        self.fill()

    def fill(self) -> None:
        self.actor = self._make(options_on(self._place, self._placement))
        self.fill_at = 0.0
        self.address = ""  # Where it serves.
        self._place = None
        self.placed = self.actor.logs.remote()
        self.ready = self.actor.address.remote()
        self.ended = self.actor.wait.remote()
        self.filled_at = time.monotonic()
        self.is_waiting_told = False
        self.is_slow_told = False
        self.placed_at = 0.0  # When it was first seen to have a place; 0: not yet.
        self.noted_at = 0.0  # When it served; 0: not yet.

    def clear(self) -> None:
        self._ray.kill(self.actor)

    def news(self) -> str | None:
        """Its address, once, where it is ready; else None. Errors: RayError of an actor that is lost."""
        if self.noted_at or not self._ray.wait([self.ready], timeout=0)[0]:
            return None
        self.noted_at = time.monotonic()
        self.address = self._ray.get(self.ready)
        return self.address

    def has_place(self) -> bool:
        return not self.fill_at and bool(self._ray.wait([self.placed], timeout=0)[0])

    def seconds_of_start(self) -> float:
        """Since it has a place, as long as it does not serve; 0: it does, or has none."""
        if self.noted_at or not self.has_place():
            return 0.0
        self.placed_at = self.placed_at or time.monotonic()
        return time.monotonic() - self.placed_at

    def lose(self) -> None:
        """Counts a loss. One that served for long is no failing one."""
        self.address = ""
        if self.noted_at and time.monotonic() - self.noted_at >= STEADY_SECONDS:
            self.losses = 0
        self.losses += 1

    def end_of_program(self) -> tuple[int, str] | None:
        """Exit code and last words where it has ended. Errors: RayError of an actor that is lost."""
        return self._ray.get(self.ended) if self._ray.wait([self.ended], timeout=0)[0] else None


class EncoderKeeper:
    """Keeps the seats filled, on a thread of its own, and the book true. An encoder whose program refuses its command line, or that is lost
    too often, ends the run: the notes of the ranks hear why."""

    def __init__(self, ray, request: Request, given: dict[str, list[str]], book, token: str, places: list[Node] | None = None, restarts=None) -> None:
        """`restarts`: a counter of Ray's metrics."""
        self.ray = ray
        self.request = request
        self.book = book
        self.losses = 0
        self._restarts = restarts
        self.failure: tuple[int, str] | None = None  # What ends the run.
        self.lines: collections.deque[str] = collections.deque(maxlen=MOST_LINES)  # Without notes: what happens, until the driver says it.
        self._is_over = threading.Event()
        self._notes = None
        self._looked_at = time.monotonic()  # When a look at all encoders last went well.
        numbers = range(served_by(request).num_workers)
        self._seats = [Seat(ray, number, request, given, token, places[number] if places else None) for number in numbers]
        self._thread: threading.Thread | None = None

    def begin(self, notes=None) -> None:
        """`notes` of ranks hear what happens, how many encoders still want a place, and why the run ends; without them the driver looks at
        `failure` and `lines`."""
        self._notes = notes
        self._looked_at = time.monotonic()
        self.note_waiting()
        self._thread = threading.Thread(target=self._keep, args=(notes,), daemon=True)
        self._thread.start()

    def _keep(self, notes) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self.failure = self.look_at_all()
            if self.failure:
                break
        if self.failure and notes is not None:
            self._end_run(notes, *self.failure)

    def _end_run(self, notes, code: int, text: str) -> None:
        """Said again and again until the run is over: notes that were lost begin anew, perhaps before every rank has asked them."""
        while not self._is_over.is_set():
            with contextlib.suppress(self.ray.exceptions.RayError):
                self.ray.get(notes.note_failure.remote(code, text))
                self.ray.get(notes.ask_to_stop.remote(signal.SIGTERM))
            self._is_over.wait(LOOK_SECONDS)

    def is_serving(self) -> bool:
        """Whether one is there to work with."""
        return any(seat.address for seat in self._seats)

    def say(self, text: str) -> None:
        if self._notes is not None:
            self._notes.say.remote(text)
        else:
            self.lines.append(text)

    def note_waiting(self) -> None:
        """The ranks leave these encoders their room. Said again and again: notes that were lost begin anew."""
        if self._notes is not None:
            self._notes.note_waiting.remote(sum(not seat.has_place() for seat in self._seats))

    def tell_book(self) -> None:
        """Said again and again: a book that was lost begins anew."""
        self.book.note.remote([seat.address for seat in self._seats if seat.address])

    def look_at_all(self) -> tuple[int, str] | None:
        """What ends the run; else None."""
        try:
            self.note_waiting()
            failure = next(filter(None, map(self.look_at, self._seats)), None)
            self.note_waiting()  # Of what was lost just now, too, before ranks take its room.
            self.tell_book()
            self._looked_at = time.monotonic()
            return failure
        except Exception as error:
            is_away = isinstance(error, self.ray.exceptions.RayError) and time.monotonic() - self._looked_at < AWAY_SECONDS
            if is_away:  # The next look may do.
                return None
            # Nobody would replace what is lost from now on.
            return 1, f"the {served_by(self.request).verb}s are kept no longer: {cause_of(error)}"

    def look_at(self, seat: Seat) -> tuple[int, str] | None:
        """What ends the run, as exit code and text; else None."""
        if seat.fill_at:
            if time.monotonic() >= seat.fill_at:
                seat.fill()
            return None
        try:
            address = seat.news()
            if address:
                self.tell_book()
                self.say(f"{self.name_of(seat)} serves at {address}; its log: {self.ray.get(seat.placed)}")
            self.tell_wait(seat)
            ended = seat.end_of_program()
            if ended is None and not self.is_hanging(seat):
                return None
            lost = f"it did not serve within {START_SECONDS / 60:.0f} minutes" if ended is None else f"its program ended with exit code {ended[0]}: {ended[1][-2000:]}"
            if ended is not None and ended[0] == EXIT_USAGE:
                return EXIT_USAGE, f"{self.name_of(seat)} failed; {lost}"
        except self.ray.exceptions.RayError as error:
            lost = cause_of(error)
        return self.fill_again(seat, lost)

    def name_of(self, seat: Seat) -> str:
        return f"{served_by(self.request).verb} {seat.number}"

    def tell_wait(self, seat: Seat) -> None:
        """Once for each actor."""
        if not seat.is_waiting_told and time.monotonic() - seat.filled_at >= ROOM_SECONDS and not seat.has_place():
            seat.is_waiting_told = True
            self.say(f"{self.name_of(seat)} has no room on the cluster now, and waits for it: {described(served_by(self.request).placement)}")

    def is_hanging(self, seat: Seat) -> bool:
        """Of one whose program has not ended: whether its start takes too long. Before that it is told once that it takes long."""
        seconds = seat.seconds_of_start()
        if seconds >= SLOW_SECONDS and not seat.is_slow_told:
            seat.is_slow_told = True
            self.say(f"{self.name_of(seat)} is still starting, {seconds / 60:.0f} minutes after it found a place; its log: {self.ray.get(seat.placed)}")
        return seconds >= START_SECONDS

    def fill_again(self, seat: Seat, lost) -> tuple[int, str] | None:
        self.losses += 1
        seat.lose()
        self.tell_book()
        if 0 <= self.request.max_failures < seat.losses:
            return 1, f"{self.name_of(seat)} was lost more often than --max-failures {self.request.max_failures} allows, not having served for {STEADY_SECONDS / 60:.0f} minutes between; the last time: {lost}"
        if self._restarts:
            self._restarts.inc(1)
        seat.clear()
        pause = pause_after(seat.losses)
        seat.fill_at = time.monotonic() + pause
        self.say(f"{self.name_of(seat)} was lost and is started again in {pause:.0f} s (loss {seat.losses}): {first_line(lost)}")
        return None

    def end(self) -> None:
        """Their programs end in order; what has not ended by then ends with its actor."""
        self._is_over.set()
        if self._thread:
            self._thread.join()
        with contextlib.suppress(self.ray.exceptions.RayError):
            wait_for_ends(self.ray, [seat.actor.stop.remote() for seat in self._seats if seat.has_place()])
        for seat in self._seats:
            with contextlib.suppress(self.ray.exceptions.RayError):
                seat.clear()


@dataclasses.dataclass(frozen=True)
class EncoderAccess:
    """What a rank is given: how its program finds the encoders, and what it proves to them that it may."""

    book: object
    token: str = dataclasses.field(repr=False)

    def environment(self) -> dict[str, str]:
        return {TOKEN: self.token}

    def addresses(self) -> list[str]:
        """Errors: RayError; LookupError: the book has not heard any yet, so that what a rank knew still counts."""
        import ray

        found = ray.get(self.book.addresses.remote(), timeout=ADDRESSES_SECONDS)
        if found is None:
            raise LookupError("the book of the encoders begins anew")
        return found


def check_encoders(ray, request: Request, given: dict[str, list[str]], check: Callable[..., None]) -> None:
    """The encoders by check(ray, request, given), as check_cluster or check_room, and whether they have room beside the ranks. Errors: Refused."""
    served = served_by(request)
    shared = {name: given[name] for name in ("RECIPE.toml", "RAW_URI", *SHARED_FLAGS) if name in given}
    words = served.arguments
    if "--device" in words:
        shared["--device"] = [words[words.index("--device") + 1]]
    try:
        check(ray, served, shared)
    except Refused as refusal:
        text = str(refusal)
        for name, ours in (TRANSFORMER_FLAGS if request.transformers else ENCODER_FLAGS).items():
            text = re.sub(rf"(?<!ray start ){re.escape(name)}(?![\w-])", ours, text)
        raise Refused(text) from None
    refuse(list(check_both(with_coming(request, nodes_of(ray)), request)))


def start_transformers(ray, request: Request, given: dict[str, list[str]]) -> tuple[EncoderKeeper, EncoderAccess]:
    """Those of a process job, kept until the keeper's end()."""
    token = os.environ.get(TOKEN) or secrets.token_hex(32)
    book = make_book(ray)
    keeper = EncoderKeeper(ray, request, given, book, token, places_beside(nodes_of(ray), request), restart_counter(served_by(request).verb))
    keeper.begin()
    return keeper, EncoderAccess(book, token)


def with_encoder_wait(request: Request, given: dict[str, list[str]]) -> Request:
    """Where the user does not say how long, ranks wait for an encoder as long as the driver waits for nodes."""
    if WAIT_FLAG in given:
        return request
    seconds = min(max(USUAL_WAIT_SECONDS, request.max_wait), MOST_WAIT_SECONDS)
    return dataclasses.replace(request, arguments=(WAIT_FLAG, f"{seconds:.0f}", *request.arguments))


def train_online(ray, request: Request, given: dict[str, list[str]], stop: StopWatch) -> tuple[int, dict]:
    """Exit code and summary. Errors: JobFailed, Stopped."""
    token = os.environ.get(TOKEN) or secrets.token_hex(32)
    book = make_book(ray)
    keeper = EncoderKeeper(ray, request, given, book, token, places_beside(nodes_of(ray), request), restart_counter(served_by(request).verb))
    try:
        code, summary = train(ray, with_encoder_wait(request, given), given, stop, EncoderAccess(book, token), keeper.begin)
        summary["train"]["cluster"] |= {"encoders": request.encoders.num_workers, "encoders_lost": keeper.losses}
        return code, summary
    finally:
        keeper.end()
