"""What a cluster's programs show of themselves while they run: each serves its numbers at a free port of its node and writes spans into a file
of its own; where the numbers are at a time stands in a folder of the driver's machine, for `darkroom top` and for Prometheus."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import secrets
import socket
import threading

from darkroom_ray.addresses import place_to_listen
from darkroom_ray.cluster import actor_here
from darkroom_ray.flags import Refused
from darkroom_ray.progress import say
from darkroom_ray.request import Request
from darkroom_ray.run_notes import TIME

NAMESPACE = "darkroom"  # Of actors that are found by their names.
NUMBERS_AT = re.compile(TIME + r"the job's numbers are at http://(\S+)/metrics")
LOOK_SECONDS = 1.0
CONNECT_SECONDS = 1.0
TELL_SECONDS = 5.0  # Between two times that a program's address is told.
BOOK_SECONDS = 30.0  # On the driver's own node, but a cluster may be lost.
# Verbs of the program that have these flags, and how Prometheus' rules know their processes (deploy/prometheus_rules.yml).
JOB_NAMES = {"download": "darkroom-data", "process": "darkroom-data", "transformer": "darkroom-data", "encoder": "darkroom-data", "train": "darkroom-train", "serve": "darkroom-serve"}


class MetricsBook:
    """An actor: the programs that serve numbers now, by their addresses. One that was lost begins anew, and hears of them again."""

    def __init__(self) -> None:
        self._programs: dict[str, dict] = {}

    def note(self, address: str, about: dict) -> None:
        self._programs[address] = about

    def cross_out(self, address: str) -> None:
        self._programs.pop(address, None)

    def programs(self) -> dict[str, dict]:
        return self._programs


def own_trace(path: str) -> str:
    """The file of one of many programs: spans.jsonl becomes spans-HOST-1a2b3c4d.jsonl."""
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.partition(".")
    return f"{folder}{slash}{stem}-{socket.gethostname()}-{secrets.token_hex(4)}{dot}{ending}"


class ProgramWatch:
    """Of one program that is about to start: what its command line gets, and what is told of it."""

    def __init__(self, request: Request, verb: str, on_said=None) -> None:
        """`on_said`: who else is given the lines of its standard error."""
        self._on_said = on_said or (lambda line: None)
        self._verb = verb
        self._book = None
        self._address = ""
        self._has_ended = threading.Event()
        self.words: list[str] = []
        if request.metrics_book and verb in JOB_NAMES:
            self._open_book(request.metrics_book)
        if request.trace_file:
            self.words += ["--trace-file", own_trace(request.trace_file)]

    def _open_book(self, name: str) -> None:
        import ray

        with contextlib.suppress(ValueError):  # Its driver has gone: nobody looks any more.
            self._book = ray.get_actor(name, namespace=NAMESPACE)
            self.words += ["--metrics-port", place_to_listen(ray.util.get_node_ip_address()), "--quiet=false"]

    def hear(self, line: str) -> None:
        self._on_said(line)
        # Only the line that begins so, and the first: rows that a line tells of are a stranger's.
        if self._book is not None and not self._address and (found := NUMBERS_AT.match(line)):
            self._address = found[1]
            self._tell()

    def _tell(self) -> None:
        with contextlib.suppress(Exception):  # Ray is about to end; who reads the program's lines must go on.
            self._book.note.remote(self._address, {"host": socket.gethostname(), "verb": self._verb})

    def follow(self, child) -> None:
        """Its address goes when it ends. Until then it is told again and again: a book that was lost begins anew."""
        if self._book is not None:
            threading.Thread(target=self._cross_out, args=(child,), daemon=True).start()
            threading.Thread(target=self._tell_again, daemon=True).start()

    def _tell_again(self) -> None:
        while not self._has_ended.wait(TELL_SECONDS):
            if self._address:
                self._tell()

    def _cross_out(self, child) -> None:
        child.wait()
        self._has_ended.set()
        with contextlib.suppress(Exception):  # As above.
            self._book.cross_out.remote(self._address)


def host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def is_refused(address: str) -> bool:
    """Whether nobody listens there any more: a program that was killed with its worker crosses nothing out."""
    try:
        with socket.create_connection((host_of(address), int(address.rpartition(":")[2])), CONNECT_SECONDS):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:  # This machine may not reach it, say: nothing is known.
        return False


def write_anew(path: pathlib.Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


class AddressFolder:
    """FOLDER/_metrics/ADDRESS.json as a program leaves it itself (docs/metrics.md), and FOLDER/targets.json for Prometheus' file_sd."""

    def __init__(self, folder: str) -> None:
        self._folder = pathlib.Path(folder)
        self._known: dict[str, dict] | None = None

    def write(self, programs: dict[str, dict]) -> None:
        """Errors: OSError."""
        if programs == self._known:
            return
        addresses = self._folder / "_metrics"
        addresses.mkdir(parents=True, exist_ok=True)
        if self._known is None:
            self._clear(addresses)
        for address, about in programs.items():
            write_anew(addresses / self._name(address), json.dumps({"address": address, **about}) + "\n")
        for address in set(self._known or ()) - set(programs):
            (addresses / self._name(address)).unlink(missing_ok=True)
        targets = [{"targets": [address], "labels": {"job": JOB_NAMES[about["verb"]], "verb": about["verb"]}} for address, about in sorted(programs.items())]
        write_anew(self._folder / "targets.json", json.dumps(targets, indent=1) + "\n")
        self._known = dict(programs)

    def _clear(self, addresses: pathlib.Path) -> None:
        """Of what an earlier driver left that was killed; files of other names are of programs that wrote them themselves."""
        for path in addresses.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if path.name == self._name(json.loads(path.read_text(encoding="utf-8"))["address"]):
                    path.unlink()

    @staticmethod
    def _name(address: str) -> str:
        return re.sub(r"[^0-9A-Za-z.]", "-", address) + ".json"


class FolderKeeper:
    """Keeps the folder true to the book, on a thread of its own."""

    def __init__(self, ray, book, folder: AddressFolder) -> None:
        self._ray = ray
        self._book = book
        self._folder = folder
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        has_warned = False
        while not self._is_over.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # The next look may do; a thread that has ended would leave the folder as it was.
                if not has_warned and not self._is_over.is_set():
                    say(f"warning: the folder of --metrics-folder could not be brought up to date, and is tried again: {type(error).__name__}: {error}")
                    has_warned = True

    def look(self) -> None:
        programs = self._ray.get(self._book.programs.remote(), timeout=BOOK_SECONDS)
        alive = {node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}
        for address in list(programs):
            if self._is_over.is_set():  # Many that do not answer would hold the end up.
                return
            if host_of(address) not in alive or is_refused(address):
                self._book.cross_out.remote(address)
                del programs[address]
        self._folder.write(programs)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._folder.write({})


def make_book(ray) -> tuple[str, object]:
    """On the driver's own node: its name and itself, which lives as long as somebody holds it."""
    name = f"metrics-{secrets.token_hex(8)}"
    return name, actor_here(ray, MetricsBook, name=name, namespace=NAMESPACE, max_restarts=-1)


@contextlib.contextmanager
def watched(ray, request: Request):
    """The request as its programs get it, while the folder is kept. Errors: Refused."""
    if not request.metrics_folder:
        yield request
        return
    folder = AddressFolder(os.path.join(request.folder, request.metrics_folder))
    try:
        folder.write({})
    except OSError as error:
        raise Refused(f"--metrics-folder cannot be written: {error}") from None
    name, book = make_book(ray)
    keeper = FolderKeeper(ray, book, folder)
    try:
        beside = {part: dataclasses.replace(served, metrics_book=name) for part in ("encoders", "transformers") if (served := getattr(request, part))}
        yield dataclasses.replace(request, metrics_book=name, **beside)
    finally:
        keeper.end()
