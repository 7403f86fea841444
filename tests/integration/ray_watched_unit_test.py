#!/usr/bin/env python3
"""What programs of a cluster see of its GPUs and show of themselves, without Ray: their environment, numbers, spans, and where these are found.

usage: ray_watched_unit_test.py
"""

import contextlib
import dataclasses
import io
import json
import os
import re
import socket
import threading
import time
import types

from cases import main, require, temporary_folder
from ray_units import PATIENCE, ROOT, fake_modules, item_request, refusal_of

from darkroom_ray import item_child, program, watched  # noqa: E402
from darkroom_ray.flags import read_request  # noqa: E402
from darkroom_ray.request import Placement, Request  # noqa: E402

APART = ["--num-transformers", "2", "--transformer-resources", "cpu=1"]  # Transformers on nodes of their own.


def work_that_asks_for_no_gpu_sees_none() -> None:
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = "3"
    try:
        with temporary_folder() as folder:
            request = item_request(folder, 'echo "$CUDA_VISIBLE_DEVICES,$OTHER" > gpus')
            for num_gpus, want in ((0.0, ""), (0.5, "3"), (1.0, "3")):
                placed = dataclasses.replace(request, placement=Placement(num_gpus=num_gpus))
                program.start_child(placed, ["x"], {"OTHER": "o"}).wait()
                require((folder / "gpus").read_text() == f"{want},o\n", "what a program sees", num_gpus, (folder / "gpus").read_text())
                item_child.ItemChild(placed)._child.wait()
                require((folder / "gpus").read_text() == f"{want},\n", "what a program of items sees", num_gpus, (folder / "gpus").read_text())
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")
        os.environ |= {"CUDA_VISIBLE_DEVICES": before} if before is not None else {}


def programs_are_started_in_one_place() -> None:
    for path in (ROOT / "python" / "darkroom_ray").glob("*.py"):
        require(path.name == "program.py" or not re.search(r"\b(Child|Popen)\(", path.read_text()), "who hides the GPUs from it?", path.name)


class FakeBook:
    """The actor, called at once."""

    def __init__(self) -> None:
        self.book = watched.MetricsBook()

    def __getattr__(self, name: str):
        return types.SimpleNamespace(remote=getattr(self.book, name))


def book_of(books: dict):
    """As ray.get_actor."""

    def get_actor(name: str, namespace: str):
        if name not in books:
            raise ValueError(f"no actor {name}")
        return books[name]

    return get_actor


# What a table of somebody names, and the program tells of.
OF_A_STRANGER = "2026-11-23T12:00:01Z a row failed, dns: no such host; the first is of https://e/the job's numbers are at http://10.0.0.5:6379/metrics"
NUMBERS = f"""echo "$@" >> words; echo "2026-11-23T12:00:00Z the job's numbers are at http://10.0.0.7:4321/metrics" >&2; echo "{OF_A_STRANGER}" >&2; read until_told"""


def programs_tell_where_their_numbers_are_until_they_end() -> None:
    book = FakeBook()
    util = types.SimpleNamespace(get_node_ip_address=lambda: "10.0.0.7")
    with temporary_folder() as folder, fake_modules({"ray": types.SimpleNamespace(util=util, get_actor=book_of({"the-book": book}))}):
        request = dataclasses.replace(item_request(folder, NUMBERS), metrics_book="the-book")
        heard = threading.Event()
        child = program.start_child(request, ["train", "recipe"], on_said=lambda line: heard.set() if "a row failed" in line else None, is_fed=True)
        require(heard.wait(PATIENCE), "its words")
        time.sleep(0.1)
        wait_until(lambda: book.book.programs())
        require(set(book.book.programs()) == {"10.0.0.7:4321"} and book.book.programs()["10.0.0.7:4321"]["verb"] == "train", "the book", book.book.programs())
        child.close_input()
        wait_until(lambda: not book.book.programs())
        doer = item_child.ItemChild(request)
        wait_until(lambda: book.book.programs())
        doer._child.close_input()
        wait_until(lambda: not book.book.programs())
        want = "--metrics-port 10.0.0.7:0 --quiet=false"
        require((folder / "words").read_text().splitlines() == [f"train {want} recipe", f"process --items - {' '.join(item_child.OWN_WORDS)} {want}"], "words", (folder / "words").read_text())
        require(watched.ProgramWatch(request, "sample").words == [], "a verb that serves no numbers")
        require(all(watched.ProgramWatch(request, verb).words == want.split() for verb in ("encoder", "transformer")), "what serves slices is seen, too")
        gone = dataclasses.replace(request, metrics_book="gone")
        require(watched.ProgramWatch(gone, "train").words == [], "a book whose driver has gone")


def a_book_that_was_lost_hears_of_all_programs_again() -> None:
    book = FakeBook()
    util = types.SimpleNamespace(get_node_ip_address=lambda: "10.0.0.7")
    pause, watched.TELL_SECONDS = watched.TELL_SECONDS, 0.01
    try:
        with temporary_folder() as folder, fake_modules({"ray": types.SimpleNamespace(util=util, get_actor=book_of({"the-book": book}))}):
            request = dataclasses.replace(item_request(folder, NUMBERS), metrics_book="the-book")
            child = program.start_child(request, ["train", "recipe"], is_fed=True)
            for _ in range(2):
                wait_until(lambda: "10.0.0.7:4321" in book.book.programs())
                book.book = watched.MetricsBook()
            child.close_input()
            child.wait()
            wait_until(lambda: not book.book.programs())
    finally:
        watched.TELL_SECONDS = pause


def wait_until(is_so) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        require(time.monotonic() < end, "it never came")
        time.sleep(0.01)


def each_program_has_a_trace_of_its_own() -> None:
    request = read_request("process", ["a", "b", "--trace-file", "/t.d/spans.perfetto.json"], "/")
    require(request.arguments == ("a", "b") and request.trace_file == "/t.d/spans.perfetto.json", "the flag", request)
    names = [watched.ProgramWatch(request, "process").words[1] for _ in range(2)]
    require(len(set(names)) == 2, "names", names)
    apart = read_request("process", [*APART, "a", "b", "--trace-file", "/t.d/spans.jsonl"], "/").transformers
    require(apart.trace_file == "/t.d/spans.jsonl", "transformers on other nodes have theirs, too", apart)
    require(all(re.fullmatch(r"/t\.d/spans-[^/]+-[0-9a-f]{8}\.perfetto\.json", name) for name in names), "names", names)
    require(re.fullmatch(r"spans-[^/]+", watched.own_trace("spans")) is not None, "a name without an ending")
    require(read_request("train", ["r.toml", "--trace-file", "t.jsonl"], "/").arguments == ("r.toml", "--trace-file", "t.jsonl"), "ranks name theirs themselves")


def raise_next(errors) -> None:
    for error in errors:
        raise error


def addresses_lie_where_top_and_prometheus_look() -> None:
    with temporary_folder() as place, socket.socket() as listening, socket.socket() as unused:
        for one in (listening, unused):
            one.bind(("127.0.0.1", 0))
        listening.listen()
        here, gone = (f"127.0.0.1:{one.getsockname()[1]}" for one in (listening, unused))
        book = FakeBook()
        lost = "10.0.0.9:4321"  # Of a node that is gone.
        for address in (here, gone, lost):
            book.book.note(address, {"host": "h", "verb": "download"})
        ray = types.SimpleNamespace(get=lambda value, timeout: dict(value), exceptions=types.SimpleNamespace(RayError=OSError))
        ray.nodes = lambda: [{"NodeManagerAddress": "127.0.0.1", "Alive": True}, {"NodeManagerAddress": "10.0.0.9", "Alive": False}]
        left = place / "seen" / "_metrics"
        left.mkdir(parents=True)
        (left / "10.0.0.5-4321.json").write_text(json.dumps({"address": "10.0.0.5:4321", "host": "h", "verb": "train"}))  # By a driver that was killed.
        (left / "torn.json").write_text("{")
        (left / "h-17.json").write_text(json.dumps({"address": "10.0.0.5:4321", "host": "h", "pid": 17}))  # By a program itself.
        answers = iter([ValueError("a fault"), ValueError("a second one")])
        real_nodes, ray.nodes = ray.nodes, lambda: raise_next(answers) or real_nodes()  # Whatever Ray says at the first looks.
        with contextlib.redirect_stderr(io.StringIO()) as said:
            keeper = watched.FolderKeeper(ray, book, watched.AddressFolder(str(place / "seen")))
            wait_until((place / "seen" / "targets.json").exists)
        require(said.getvalue().count("warning: ") == 1 and "ValueError: a fault\n" in said.getvalue(), "the first failure is said, once", said.getvalue())
        require(set(book.book.programs()) == {here}, "where nobody listens", book.book.programs())
        require(sorted(path.name for path in left.iterdir() if path.name != "torn.json") == sorted([f"127.0.0.1-{here[10:]}.json", "h-17.json"]), "files", list(left.iterdir()))
        file = left / f"127.0.0.1-{here[10:]}.json"
        require(json.loads(file.read_text()) == {"address": here, "host": "h", "verb": "download"}, "for top", file.read_text())
        targets = json.loads((place / "seen" / "targets.json").read_text())
        require(targets == [{"targets": [here], "labels": {"job": "darkroom-data", "verb": "download"}}], "for Prometheus", targets)
        keeper.end()
        require(not file.exists() and json.loads((place / "seen" / "targets.json").read_text()) == [], "what is left")
        keeper.look()
        require(not file.exists(), "a look goes on behind the end")
        (place / "file").write_text("")
        wrong = read_request("process", ["a", "b", "--metrics-folder", "file"], str(place))
        require("--metrics-folder cannot be written" in refusal_of(watched.watched(None, wrong).__enter__), "a file in its place")
    unwatched = Request("process", ())
    with watched.watched(None, unwatched) as same:
        require(same is unwatched, "nobody looks")


def what_works_beside_a_job_tells_the_same_book() -> None:
    ray = types.SimpleNamespace(get=lambda value, timeout: dict(value), exceptions=types.SimpleNamespace(RayError=OSError), nodes=list)
    make_book = watched.make_book
    watched.make_book = lambda unused: ("the-book", FakeBook())
    try:
        with temporary_folder() as place:
            for verb, words, part in (("process", [*APART, "a", "b"], "transformers"), ("online", ["r.toml"], "encoders"), ("process", ["a", "b"], "")):
                with watched.watched(ray, read_request(verb, [*words, "--metrics-folder", "seen"], str(place))) as seen:
                    beside = [one.metrics_book for one in (seen.encoders, seen.transformers) if one]
                    require(seen.metrics_book == "the-book" and beside == (["the-book"] if part else []), "the book", verb, part, seen)
    finally:
        watched.make_book = make_book


if __name__ == "__main__":
    main(
        [
            work_that_asks_for_no_gpu_sees_none,
            programs_are_started_in_one_place,
            programs_tell_where_their_numbers_are_until_they_end,
            a_book_that_was_lost_hears_of_all_programs_again,
            each_program_has_a_trace_of_its_own,
            addresses_lie_where_top_and_prometheus_look,
            what_works_beside_a_job_tells_the_same_book,
        ]
    )
