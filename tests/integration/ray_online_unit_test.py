#!/usr/bin/env python3
"""`darkroom-ray online` without Ray: its flags, what is refused before anything is begun, who replaces a lost encoder, the addresses that a
rank's program reads.

usage: ray_online_unit_test.py
"""

import contextlib
import dataclasses
import io
import itertools
import pathlib
import re
import threading
import time
import types
import unittest.mock

from cases import main, require, temporary_folder
from ray_units import FAKE_METRICS, PATIENCE, FakeCounter, fake_modules, item_request

from darkroom_ray import item_job, online, preflight, progress, rank, run_notes, stopping, training  # noqa: E402
from darkroom_ray.flags import Refused, help_text, read_request  # noqa: E402
from darkroom_ray.preflight import Node  # noqa: E402
from darkroom_ray.request import Placement, Request  # noqa: E402

WORDS = ["r.toml", "--raw-data", "images", "--model", "m", "--output", "run"]


def the_request(*more: str) -> Request:
    return read_request("online", [*WORDS, *more], "/here", "/bin/darkroom")


def ranks_and_encoders_are_placed_apart() -> None:
    request = the_request("--num-training-workers", "2", "--resources", "trainer=1", "--num-encoders=3", "--encoder-accelerator-type", "A10G", "--num-gpus-per-encoder", "0.5",
                          "--encoder-resources", "encoder=1", "--encoder-label", "zone=a", "--max-failures", "5")
    require(list(request.arguments) == WORDS, "words of the program", request.arguments)
    require(request.command("--x")[:2] == ["train", "--x"], "the program's verb", request.command())
    require((request.num_workers, request.max_failures, request.placement) == (2, 5, Placement(resources={"trainer": 1.0})), "ranks", request)
    want = Placement(1.0, 0.5, 0, {"encoder": 1.0}, {"zone": "a"}, "A10G")
    require((request.encoders.num_workers, request.encoders.placement) == (3, want), "encoders", request.encoders)
    require(request.encoders.program == "/bin/darkroom" and read_request("train", ["r"], "/").encoders is None, "the program")


def names_of_the_reference_script_are_understood() -> None:
    line = "r.toml --train-data-uri raw --num-encoders 2 --num-transformers 6 --num-cpus-per-transformer 2 --encoder-batch-size 32 --num-gpus-per-encoder 1 --trainer-accelerator-type A100 --seed 7"
    request = read_request("online", line.split(), "/")
    require(list(request.arguments) == ["r.toml", "--raw-data", "raw", "--set", "runtime.seed=7"], "words of the program", request.arguments)
    require(request.placement.accelerator_type == "A100" and request.encoders.placement.num_gpus == 1.0, "types", request)
    require(list(request.encoders.arguments) == ["--num-encoders", "3", "--batch-size", "32"], "words of an encoder", request.encoders.arguments)
    require(request.encoders.placement.num_cpus == 6.0, "CPUs of three transformers", request.encoders.placement)
    for name in ("--num-encoders", "--encoder-accelerator-type", "--train-data-uri", "--num-training-workers"):
        require(name in help_text("online"), "the help lacks a flag", name)


def what_is_done_otherwise_is_refused_with_advice() -> None:
    for more, words in ((["--data", "latents"], "darkroom-ray train --data"), (["--encoders", "a:1"], "--num-encoders"), (["--nproc", "2"], "--num-training-workers"),
                        (["--limit", "5"], "whole dataset"), (["--max-restarts", "2"], "--max-failures"), (["--num-data-loading-workers", "4"], "--num-encoders"), (["--num-encoders", "0"], "at least 1")):
        try:
            the_request(*more)
        except Refused as refusal:
            require(words in str(refusal), "the refusal says something else", more, refusal)
        else:
            raise AssertionError(f"nothing was refused: {more}")


def an_encoder_encodes_what_the_trainer_says() -> None:
    given = {"RECIPE.toml": ["r.toml"], "--raw-data": ["images"], "--set": ["data.resolution=64", "optimizer.lr=1"], "--output": ["run"]}
    words = online.encoder_words(the_request("--encoder-batch-size", "8", "--encoder-device", "cpu"), given, "10.0.0.7")
    want = ["encoder", "--recipe", "r.toml", "--raw-data", "images", "--set", "data.resolution=64", "--set", "optimizer.lr=1", "--listen", "10.0.0.7:0", "--max-trainers", "64", "--batch-size", "8", "--device", "cpu"]
    require(words == want, "words", words)
    for value, has in (([""], True), (["true"], True), (["false"], False)):
        words = online.encoder_words(the_request(), {**given, "--no-sandbox": value}, "10.0.0.7")
        require(("--no-sandbox" in words) == has, "where the kernel refuses the sandbox", value, words)
    require("[fd00::7]:0" in online.encoder_words(the_request(), given, "fd00::7"), "an address of version 6")
    traced = online.encoder_words(the_request(), {**given, "--trace-file": ["t/spans.jsonl"]}, "10.0.0.7")
    require(traced[-2] == "--trace-file" and re.fullmatch(r"t/spans-[^/]+-[0-9a-f]{8}\.jsonl", traced[-1]) is not None, "spans beside the ranks'", traced)


def apart(*more: str) -> Request:
    words = ["images", "latents", "--model", "tiny", "--num-encoders", "2", "--num-transformers", "6", "--transformer-resources", "cpu_node=1", *more]
    return read_request("process", words, "/")


def transformers_may_be_apart_from_the_encoders() -> None:
    request = apart("--num-cpus-per-transformer", "2")
    served = online.served_by(request)
    require(served.verb == "transformer" and served.num_workers == 2 and served.placement.num_cpus == 8 and served.placement.resources == {"cpu_node": 1.0}, "actors", served)
    require(request.placement.num_cpus == 1 and "--num-transformers" not in request.arguments, "the encoders have none of their own", request)
    given = {"RAW_URI": ["images"], "OUTPUT_URI": ["latents"], "--model": ["tiny"], "--resolution": ["64"], "--keep-columns": ["url"]}
    words = online.transformer_words(request, given, "10.0.0.7")
    require(words == ["transformer", "images", "--resolution", "64", "--keep-columns", "url", "--listen", "10.0.0.7:0", "--num-workers", "4"], "words", words)
    nodes = [node("a", cpu_node=1.0), node("b")]
    said = list(preflight.check_both(nodes, apart("--transformers-per-actor", "2")))
    require(len(said) == 1 and "3 actors of transformers" in said[0] and "--num-transformers" in said[0], "three actors on one node of two CPUs", said)
    require(not apart().encoders and read_request("process", ["images", "latents", "--num-transformers", "6"], "/").transformers is None, "beside, where nothing else is said")
    try:
        read_request("process", ["images", "latents", "--transformer-label", "kind=cpu"], "/")
    except Refused as refusal:
        require("--num-transformers" in str(refusal), "what to do", refusal)
    else:
        raise AssertionError("a placement of nothing is taken")


def node(name: str, **resources: float) -> Node:
    return Node(name=name, resources={"CPU": 2.0, "memory": 8e9, **resources})


def ranks_and_encoders_must_have_room_at_once() -> None:
    nodes = [node("a", trainer=1.0), node("b", encoder=1.0)]
    require(not list(preflight.check_both(nodes, the_request("--num-encoders", "3"))), "four workers of one CPU have room on four")
    said = list(preflight.check_both(nodes, the_request("--num-encoders", "4")))
    require(len(said) == 1 and "1 ranks" in said[0] and "4 encoders" in said[0] and "--num-encoders" in said[0], "five have none", said)
    picky = the_request("--num-encoders", "3", "--resources", "trainer=1", "--num-cpus-per-task", "1")
    require(not list(preflight.check_both(nodes, picky)), "who has one node to choose from chooses first")
    for what, request, want in (("encoders leave the node of a picky rank", picky, ["b", "b", "a"]), ("ranks of whole nodes are not crowded out", the_request("--num-encoders", "2", "--num-cpus-per-task", "2"), ["b", "b"]),
                                ("picky encoders", the_request("--num-encoders", "2", "--encoder-resources", "encoder=0.5"), ["b", "b"])):
        require(sorted(place.name for place in preflight.places_beside(nodes, request)) == sorted(want), what, preflight.places_beside(nodes, request))
    for what, request, words in (("an absent type", the_request("--encoder-accelerator-type", "H100"), "no node has the accelerator type H100"),
                                 ("too many encoders", the_request("--num-encoders", "9"), "room for 4 encoders of the 9"),
                                 ("an absent resource", the_request("--encoder-resources", "gpu-box=1"), "the cluster has: encoder, trainer")):
        problems = preflight.check_resources(nodes, request.encoders)
        require(any(words in problem for problem in problems), what, problems)


class Reference:
    """Of a call of a fake actor: nothing, a value or an error."""

    def __init__(self) -> None:
        self.value: object = None
        self.has_come = False

    def come(self, value: object) -> None:
        self.value, self.has_come = value, True


class FakeActor:
    def __init__(self) -> None:
        self.references = {"logs": Reference(), "address": Reference(), "wait": Reference()}
        self.stops: list[Reference] = []
        self.stop = types.SimpleNamespace(remote=lambda: self.stops.append(Reference()) or self.stops[-1])
        self.logs = types.SimpleNamespace(remote=lambda: self.references["logs"])
        self.address = types.SimpleNamespace(remote=lambda: self.references["address"])
        self.wait = types.SimpleNamespace(remote=lambda: self.references["wait"])


class FakeRay:
    exceptions = types.SimpleNamespace(RayError=ConnectionError)

    def __init__(self) -> None:
        self.actors: list[FakeActor] = []
        self.killed: list[FakeActor] = []
        self.waits: list[tuple] = []
        self.options: dict = {}
        self.restarts: list[float] = []  # As they were counted.

    def remote(self, what):
        def make(*unused) -> FakeActor:
            self.actors.append(FakeActor())
            return self.actors[-1]

        def with_options(**options):
            self.options = options
            return types.SimpleNamespace(remote=make)

        return types.SimpleNamespace(options=with_options)

    def wait(self, references, timeout, num_returns=1):
        self.waits.append((references, timeout, list(self.killed)))
        return [one for one in references if one.has_come], None

    def get(self, reference):
        if not isinstance(reference, Reference):
            return reference
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value

    def kill(self, actor) -> None:
        self.killed.append(actor)


class Direct:
    """An actor's methods, called at once."""

    def __init__(self, target) -> None:
        self._target = target

    def __getattr__(self, name: str):
        return types.SimpleNamespace(remote=getattr(self._target, name))


def the_keeper(*more: str) -> tuple[FakeRay, online.EncoderBook, online.EncoderKeeper]:
    ray, book = FakeRay(), online.EncoderBook()
    online.pause_after = lambda failures: 0
    return ray, book, online.EncoderKeeper(ray, the_request("--num-encoders", "2", *more), {}, Direct(book), "token", restarts=types.SimpleNamespace(inc=ray.restarts.append))


def a_lost_encoder_is_crossed_out_and_replaced() -> None:
    ray, book, keeper = the_keeper()
    seats = keeper._seats
    require(len(ray.actors) == 2 and ray.options["max_restarts"] == 0, "an actor a seat")
    for number, actor in enumerate(ray.actors):
        actor.references["address"].come(f"10.0.0.{number}:7000")
    require([keeper.look_at(seat) for seat in seats] == [None, None] and book.addresses() == ["10.0.0.0:7000", "10.0.0.1:7000"], "addresses", book.addresses())
    ray.actors[0].references["wait"].come(ConnectionError("its node is gone"))
    require(keeper.look_at(seats[0]) is None and book.addresses() == ["10.0.0.1:7000"], "a lost one stands in the book", book.addresses())
    require(keeper.look_at(seats[0]) is None, "a pause is no failure")
    require(ray.killed == [ray.actors[0]] and len(ray.actors) == 3 and keeper.losses == 1 and ray.restarts == [1], "it is not replaced, or not counted", ray.restarts)
    ray.actors[2].references["address"].come("10.0.0.9:7000")
    require(keeper.look_at(seats[0]) is None and book.addresses() == ["10.0.0.9:7000", "10.0.0.1:7000"], "the new one", book.addresses())
    ray.actors[2].references["wait"].come((-9, "killed"))
    require(keeper.look_at(seats[0]) is None and keeper.losses == 2, "a killed program is replaced, too")
    keeper.look_at(seats[0])
    keeper.end()
    require(set(ray.actors) == set(ray.killed), "an encoder outlives the run")


def lost_encoders_and_transformers_are_counted_among_the_restarts() -> None:
    process = read_request("process", ["a", "b", "--num-transformers", "1", "--transformer-resources", "x=1"], "/")
    fakes = {"make_book": lambda ray: Direct(online.EncoderBook()), "nodes_of": lambda ray: [], "places_beside": lambda *unused: None, "pause_after": lambda failures: 0}
    with contextlib.ExitStack() as patches:
        patches.enter_context(fake_modules(FAKE_METRICS))
        for name, fake in fakes.items():
            patches.enter_context(unittest.mock.patch.object(online, name, fake))
        ray = FakeRay()

        def train(ray, request, given, stop, access, begin):
            ray.actors[0].references["wait"].come(ConnectionError("its node is gone"))
            begin()
            end = time.monotonic() + PATIENCE
            while len(ray.actors) < 2:
                require(time.monotonic() < end, "it is not replaced")
                time.sleep(0.01)
            return 0, {"train": {"cluster": {}}}

        patches.enter_context(unittest.mock.patch.object(online, "train", train))
        summary = online.train_online(ray, the_request("--num-encoders", "1"), {}, None)[1]
        require(summary["train"]["cluster"] == {"encoders": 1, "encoders_lost": 1}, "the summary", summary)
        keeper, _ = online.start_transformers(FakeRay(), process, {})
        keeper.end()
        keeper.fill_again(keeper._seats[0], "its node is gone")
    require(FakeCounter.made == {("darkroom_ray_restarts_total", "encoder"): 1, ("darkroom_ray_restarts_total", "transformer"): 1}, "Ray's metrics", FakeCounter.made)


def a_job_says_what_becomes_of_its_transformers() -> None:
    """On its own thread, which is the one that may write to the progress."""
    process = read_request("process", ["a", "b", "--num-transformers", "2", "--transformers-per-actor", "1", "--transformer-resources", "x=1"], "/")
    ray, book = FakeRay(), online.EncoderBook()
    keeper = online.EncoderKeeper(ray, process, {}, Direct(book), "token")
    with unittest.mock.patch.object(online, "pause_after", lambda failures: 0):
        ray.actors[0].references["logs"].come("here")
        ray.actors[0].references["address"].come("10.0.0.1:7000")
        keeper.look_at_all()
        ray.actors[0].references["wait"].come(ConnectionError("its node is gone"))
        keeper._seats[1].filled_at -= online.ROOM_SECONDS
        keeper.look_at_all()
    for is_quiet in (False, True):
        stream = io.StringIO()
        job = item_job.ItemJob.__new__(item_job.ItemJob)
        job.stop, job.request, job.keeper, job.progress = types.SimpleNamespace(check=lambda: None), process, keeper, progress.Progress("process", stream, is_quiet=is_quiet)
        kept = list(keeper.lines)
        job.check()
        said = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
        want = ["process: transformer 0 serves at 10.0.0.1:7000; its log: here", "process: transformer 0 was lost and is started again in 0 s (loss 1): its node is gone", "process: transformer 1 has no room on the cluster now, and waits for it: 1 CPUs, 1 x"]
        require(said == ([] if is_quiet else want) and not keeper.lines, "what is said", said)
        keeper.lines.extend(kept)
    keeper.end()


def encoders_end_their_programs_in_order() -> None:
    ray, _, keeper = the_keeper()
    placed, waiting = ray.actors
    placed.references["logs"].come("run/_ray/logs")
    keeper.end()
    require(len(placed.stops) == 1 and not waiting.stops, "one without a place would never say that it has ended", placed.stops, waiting.stops)
    require(ray.waits[-1] == (placed.stops, stopping.STOP_SECONDS, []) and set(ray.killed) == {placed, waiting}, "what has not ended then is killed", ray.waits[-1], ray.killed)


def a_stopped_encoder_waits_for_its_program() -> None:
    with temporary_folder() as folder:
        request = dataclasses.replace(the_request(), folder=str(folder), encoders=item_request(folder, "trap 'sleep 0.2; touch ended; exit 0' TERM; echo \"$@\" > words; touch begun; while :; do sleep 0.05; done"))
        context = types.SimpleNamespace(get_node_id=lambda: "17", get_assigned_resources=lambda: {"CPU": 1.0})
        nodes = [{"NodeID": "16", "Resources": {}}, {"NodeID": "17", "Resources": {"CPU": 4.0, "memory": 16e9}}]
        ray = types.SimpleNamespace(util=types.SimpleNamespace(get_node_ip_address=lambda: "10.0.0.7"), get_runtime_context=lambda: context, nodes=lambda: nodes)
        with fake_modules({"ray": ray}):
            actor = online.EncoderActor(request, {"RECIPE.toml": ["r.toml"], "--output": ["run"]}, "token", 0)
        end = time.monotonic() + PATIENCE
        while not (folder / "begun").exists():
            require(time.monotonic() < end, "the program does not begin")
            time.sleep(0.01)
        actor.stop()
        require((folder / "ended").exists() and actor.wait()[0] == 0, "the program was not waited for")
        require("--memory 1000000000" in (folder / "words").read_text(), "its share of the node's memory", (folder / "words").read_text())


def an_encoder_is_where_the_preflight_counted_it_until_it_is_lost() -> None:
    online.near_node = lambda node_id: f"on {node_id} or elsewhere"
    online.pause_after = lambda failures: 0
    ray = FakeRay()
    request = the_request("--num-encoders", "1", "--encoder-label", "zone=a")
    keeper = online.EncoderKeeper(ray, request, {}, Direct(online.EncoderBook()), "token", [dataclasses.replace(node("a"), node_id="17")])
    require(ray.options["label_selector"] == {"ray.io/node-id": "17"} and ray.options["num_cpus"] == 1.0, "its node", ray.options)
    require(ray.options["fallback_strategy"] == [{"label_selector": {"zone": "a"}}], "elsewhere where another job has its room", ray.options)
    ray.actors[0].references["wait"].come(ConnectionError("its node is gone"))
    for _ in range(2):
        require(keeper.look_at(keeper._seats[0]) is None, "it is replaced")
    require("fallback_strategy" not in ray.options and ray.options["label_selector"] == {"zone": "a"}, "anywhere", ray.options)
    of_market = online.options_on(node("b"), Placement(markets=("spot", "on-demand")))
    require([len(one["label_selector"]) for one in of_market["fallback_strategy"]] == [1, 1], "markets in their order", of_market)
    require(online.options_on(node("b"), Placement())["scheduling_strategy"] == "on  or elsewhere", "another job may have its room")


def losses_of_an_encoder_that_served_for_long_are_forgiven() -> None:
    ray, _, keeper = the_keeper("--max-failures", "1")
    said: list[str] = []
    waiting: list[int] = []
    keeper._notes = Direct(types.SimpleNamespace(say=said.append, note_waiting=waiting.append))
    seat = keeper._seats[1]
    for number in range(4):
        actor = ray.actors[-1]
        keeper.note_waiting()
        actor.references["logs"].come("run/_ray/logs")
        actor.references["address"].come("10.0.0.1:7000")
        keeper.note_waiting()
        require(keeper.look_at(seat) is None, "it serves", number)
        seat.noted_at -= online.STEADY_SECONDS
        actor.references["wait"].come((-9, f"killed {number}"))
        require(keeper.look_at(seat) is None, "a loss now and then", number)
        keeper.note_waiting()
        require(waiting[-1] == 2 and keeper.look_at(seat) is None, "the room of the next one", waiting)
    require(seat.losses == 1 and keeper.losses == 4, "losses", seat.losses, keeper.losses)
    told = [number for number, _ in itertools.groupby(waiting)]
    require(told == [*(4 * [2, 1]), 2], "encoders without a place, which ranks leave theirs", waiting)
    require("encoder 1 serves at 10.0.0.1:7000; its log: run/_ray/logs" in said and any("encoder 1 was lost" in text and "killed 3" in text for text in said), "what is told", said)
    seat.filled_at -= online.ROOM_SECONDS
    require([keeper.look_at(seat), keeper.look_at(seat)] == [None, None] and sum("no room" in text for text in said) == 1, "a wait is told once", said)


def the_room_of_an_encoder_that_was_just_lost_is_left_to_it() -> None:
    ray, _, keeper = the_keeper()
    waiting: list[int] = []
    keeper._notes = Direct(types.SimpleNamespace(say=lambda text: None, note_waiting=waiting.append))
    for actor in ray.actors:
        actor.references["logs"].come("run/_ray/logs")
    keeper.look_at_all()
    require(waiting[-1] == 0, "both have a place", waiting)
    keeper.look_at_all()
    require(waiting == [0, 0, 0, 0], "notes that were made anew hear it, too", waiting)
    ray.actors[0].references["wait"].come(ConnectionError("its node is gone"))
    keeper.look_at_all()
    require(waiting[-1] == 1, "told in the same look", waiting)


def a_book_that_was_lost_hears_of_all_encoders_again() -> None:
    ray, _, keeper = the_keeper()
    for number, actor in enumerate(ray.actors):
        actor.references["address"].come(f"10.0.0.{number}:7000")
    require(keeper.look_at_all() is None, "they serve")
    anew = online.EncoderBook()
    keeper.book = Direct(anew)
    require(keeper.look_at_all() is None and anew.addresses() == ["10.0.0.0:7000", "10.0.0.1:7000"], "what it hears", anew.addresses())


def a_book_that_is_away_ends_no_run() -> None:
    ray, _, keeper = the_keeper()
    away = Reference()
    away.come(ConnectionError("the book is lost"))
    keeper.book = Direct(types.SimpleNamespace(note=lambda *unused: away, cross_out=lambda *unused: away))
    ray.actors[0].references["address"].come("10.0.0.0:7000")
    require(keeper.look_at_all() is None and keeper.losses == 0, "an encoder that serves", keeper.losses)
    ray.actors[0].references["wait"].come(ConnectionError("its node is gone"))
    require(keeper.look_at_all() is None and keeper.losses == 1, "one that is lost", keeper.losses)
    ray.remote = lambda what: away.value and ray.get(away)  # No actor can be made for a moment.
    for _ in range(2):
        require(keeper.look_at_all() is None and keeper._seats[0].fill_at, "a place that cannot be filled now is filled later")
    keeper._looked_at -= online.AWAY_SECONDS
    require("the book is lost" in keeper.look_at_all()[1], "what stays away does")
    ray, _, keeper = the_keeper()
    keeper.look_at = lambda seat: 1 / 0
    require(keeper.look_at_all()[0] == 1, "a fault of our own does end it")


def ranks_keep_what_they_knew_while_the_book_begins_anew() -> None:
    book = online.EncoderBook()
    access = online.EncoderAccess(Direct(book), "token")
    with fake_modules({"ray": types.SimpleNamespace(get=lambda value, timeout: value)}):
        try:
            access.addresses()
        except LookupError:
            book.note([])
        else:
            raise AssertionError("a book that knows nothing says that there are none")
        require(access.addresses() == [], "none")


def notes_that_are_made_anew_hear_why_a_run_ends() -> None:
    heard: list = []
    losses = itertools.chain([True, False, True], itertools.repeat(False))  # Once at each of the two calls.

    class Notes:
        def note_failure(self, code: int, text: str) -> None:
            self.hear("failure")

        def ask_to_stop(self, number: int) -> None:
            self.hear("stop")

        def hear(self, what: str) -> None:
            if next(losses):
                raise ConnectionError("the notes are lost")
            heard.append(what)
            if len(heard) == 5:
                keeper._is_over.set()

        def note_waiting(self, number: int) -> None: ...

    ray, _, keeper = the_keeper()
    ray.actors[0].references["wait"].come((2, "no such model"))
    keeper.begin(Direct(Notes()))
    keeper._thread.join(PATIENCE)
    require(heard == ["failure", "failure", "stop", "failure", "stop"], "the ranks are not told, or not again", heard)


class WaitingFit:
    """Ranks that wait for a place, for ever."""

    def wait(self, seconds: float) -> bool:
        return False


def a_refusal_of_an_encoder_is_told_before_a_rank_has_a_place() -> None:
    ray, _, keeper = the_keeper()
    notes = run_notes.RunNotes()
    ray.actors[0].references["wait"].come((2, "another model"))
    keeper.begin(Direct(notes))
    training.wait_for_end(ray, WaitingFit(), Direct(notes), types.SimpleNamespace(is_asked=False))
    require(notes.failure()[0] == 2 and "another model" in notes.failure()[1], "why", notes.failure())
    at_work = run_notes.RunNotes()
    at_work.begin(1)
    at_work.note_failure(2, "another model")
    require(not at_work.is_hopeless(), "ranks at work end with a checkpoint")


def an_encoder_that_refuses_its_command_line_or_is_lost_too_often_ends_the_run() -> None:
    ray, _, keeper = the_keeper()
    ray.actors[1].references["wait"].come((2, "no such model"))
    code, said = keeper.look_at(keeper._seats[1])
    require(code == 2 and "no such model" in said, "why", code, said)
    for code in (1, -9):  # A GPU of one node may be broken; another node's is not.
        ray, _, keeper = the_keeper("--max-failures", "1")
        ray.actors[1].references["wait"].come((code, "no memory"))
        require(keeper.look_at(keeper._seats[1]) is None and keeper.look_at(keeper._seats[1]) is None and len(ray.actors) == 3, "it is started again", code)
        ray.actors[2].references["wait"].come((code, "no memory"))
        failure = keeper.look_at(keeper._seats[1])
        require(failure is not None and failure[0] == 1 and "--max-failures 1" in failure[1] and "no memory" in failure[1], "failures without end", failure)

    heard: list = []
    notes = Direct(types.SimpleNamespace(note_failure=lambda *words: heard.append(words), ask_to_stop=lambda number: (heard.append(number), keeper._is_over.set()), note_waiting=lambda count: None, say=lambda text: None))
    ray, _, keeper = the_keeper()
    ray.actors[0].references["wait"].come((2, "no such model"))
    keeper.begin(notes)
    keeper._thread.join(PATIENCE)
    require(heard[0][0] == 2 and len(heard) == 2, "the ranks are not told", heard)


def an_encoder_that_hangs_at_its_start_is_told_of_and_started_again() -> None:
    ray, _, keeper = the_keeper("--max-failures", "1")
    said: list[str] = []
    keeper._notes = Direct(types.SimpleNamespace(say=said.append))
    seat = keeper._seats[0]
    with unittest.mock.patch.object(online.time, "monotonic") as now:
        now.return_value = seat.filled_at + 2 * online.START_SECONDS
        require(keeper.look_at(seat) is None and len(said) == 1 and "no room" in said.pop(), "one without a place hangs nowhere", said)
        ray.actors[0].references["logs"].come("run/_ray/logs")
        for seconds, is_told in ((0, False), (online.SLOW_SECONDS, True), (online.SLOW_SECONDS, False), (online.START_SECONDS - 1, False)):
            now.return_value = 3 * online.START_SECONDS + seat.filled_at + seconds
            require(keeper.look_at(seat) is None and keeper.losses == 0, "it may take long", seconds)
            require(said == (["encoder 0 is still starting, 5 minutes after it found a place; its log: run/_ray/logs"] if is_told else []), "what is told", seconds, said)
            said.clear()
        now.return_value += 1
        require(keeper.look_at(seat) is None and keeper.losses == 1 and ray.killed == [ray.actors[0]], "it is given up", ray.killed)
        require("did not serve within 60 minutes" in said[0], "why", said)
        require(keeper.look_at(seat) is None and len(ray.actors) == 3 and not seat.is_slow_told, "another one")
        ray.actors[2].references["logs"].come("run/_ray/logs")
        ray.actors[2].references["address"].come("10.0.0.1:7000")
        for _ in range(2):
            require(keeper.look_at(seat) is None and keeper.losses == 1, "one that serves")
            now.return_value += 2 * online.START_SECONDS


def ranks_wait_for_encoders_as_long_as_the_driver_waits_for_nodes() -> None:
    for words, want in (([], "3600"), (["--max-wait", "60"], "600"), (["--max-wait", "7200"], "7200"), (["--max-wait", "1e9"], "604800")):
        found = online.with_encoder_wait(the_request(*words), {})
        require(found.arguments == ("--encoder-wait", want, *WORDS), "their words", words, found.arguments)
    named = the_request("--encoder-wait", "5")
    require(online.with_encoder_wait(named, {"--encoder-wait": ["5"]}) == named, "the user's own")
    heard: list[Request] = []

    def train(ray, request, *unused):
        heard.append(request)
        return 0, {"train": {"cluster": {}}}

    with contextlib.ExitStack() as patches:
        for name, fake in {"make_book": lambda ray: Direct(online.EncoderBook()), "nodes_of": lambda ray: [], "places_beside": lambda *unused: None, "restart_counter": lambda verb: None, "train": train}.items():
            patches.enter_context(unittest.mock.patch.object(online, name, fake))
        online.train_online(FakeRay(), the_request(), {}, None)
    require(heard[0].arguments[:2] == ("--encoder-wait", "3600"), "the ranks are not told", heard[0].arguments)


def a_job_begins_to_plan_once_a_transformer_serves() -> None:
    ray = FakeRay()
    keeper = online.EncoderKeeper(ray, apart(), {}, Direct(online.EncoderBook()), "token")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            ray.actors[1].references["logs"].come("here")
            ray.actors[1].references["address"].come("10.0.0.1:7000")
        keeper.look_at_all()

    class Planned(Exception):
        pass

    def get(*unused):
        raise Planned

    job = item_job.ItemJob.__new__(item_job.ItemJob)
    job.keeper, job.stop, job.check, job.tell_of_room, job.get = keeper, types.SimpleNamespace(pause=pause), lambda: None, lambda: None, get
    job.workers = types.SimpleNamespace(is_ready=lambda: True, plan=None, renew=None)
    try:
        job.run_to_end()
    except Planned:
        require(len(pauses) == 3, "what it has waited for", pauses)
    else:
        raise AssertionError("nothing was planned")


def a_rank_reads_the_addresses_from_a_file_that_is_renewed() -> None:
    told, changed = ["a:1"], threading.Event()

    def read() -> list[str]:
        changed.set()
        if told == ["lost"]:
            raise ConnectionError("the book is away")
        return list(told)

    def next_content(path: pathlib.Path, want: str) -> None:
        for _ in range(int(PATIENCE / online.LOOK_SECONDS)):
            if path.read_text() == want:
                return
            changed.clear()
            changed.wait(PATIENCE)
        raise AssertionError(f"the file never held {want!r}: {path.read_text()!r}")

    with temporary_folder() as folder:
        with online.AddressFile(read, str(folder)) as addresses:
            path = pathlib.Path(addresses.path)
            next_content(path, "a:1\n")
            told[:] = ["b:1", "c:1"]
            next_content(path, "b:1\nc:1\n")
            told[:] = ["lost"]
            changed.clear()
            changed.wait(PATIENCE)
            require(path.read_text() == "b:1\nc:1\n", "what was known is forgotten")
            told[:] = []
            next_content(path, "")


def a_rank_is_told_of_encoders_only_where_there_are_some() -> None:
    require(rank.online_words(None, "/", None) == ([], {}), "encoders of nobody")
    access = types.SimpleNamespace(addresses=lambda: [], environment=lambda: {online.TOKEN: "t"})
    with temporary_folder() as folder, contextlib.ExitStack() as beside:
        words, environment = rank.online_words(access, str(folder), beside)
        require(words == ["--encoders", f"@{folder}/encoders.txt"] and environment == {online.TOKEN: "t"}, "words", words, environment)
        require((folder / "encoders.txt").read_text() == "", "the program reads it at once")


if __name__ == "__main__":
    main(
        [
            ranks_and_encoders_are_placed_apart,
            names_of_the_reference_script_are_understood,
            what_is_done_otherwise_is_refused_with_advice,
            an_encoder_encodes_what_the_trainer_says,
            transformers_may_be_apart_from_the_encoders,
            ranks_and_encoders_must_have_room_at_once,
            a_lost_encoder_is_crossed_out_and_replaced,
            lost_encoders_and_transformers_are_counted_among_the_restarts,
            a_job_says_what_becomes_of_its_transformers,
            encoders_end_their_programs_in_order,
            a_stopped_encoder_waits_for_its_program,
            an_encoder_is_where_the_preflight_counted_it_until_it_is_lost,
            losses_of_an_encoder_that_served_for_long_are_forgiven,
            the_room_of_an_encoder_that_was_just_lost_is_left_to_it,
            a_book_that_was_lost_hears_of_all_encoders_again,
            a_book_that_is_away_ends_no_run,
            ranks_keep_what_they_knew_while_the_book_begins_anew,
            notes_that_are_made_anew_hear_why_a_run_ends,
            a_refusal_of_an_encoder_is_told_before_a_rank_has_a_place,
            an_encoder_that_refuses_its_command_line_or_is_lost_too_often_ends_the_run,
            an_encoder_that_hangs_at_its_start_is_told_of_and_started_again,
            ranks_wait_for_encoders_as_long_as_the_driver_waits_for_nodes,
            a_job_begins_to_plan_once_a_transformer_serves,
            a_rank_reads_the_addresses_from_a_file_that_is_renewed,
            a_rank_is_told_of_encoders_only_where_there_are_some,
        ]
    )
