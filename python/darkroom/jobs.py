"""Items of `darkroom download` and `process`, one by one, for schedulers: which there are, and what does one. The work is that of the program."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from darkroom.child_process import ProgramFailed
from darkroom.errors import Error, InvalidArgument, NotFound, Unavailable
from darkroom.item_child import ItemChild, read_item_numbers

PROGRAM = pathlib.Path(__file__).resolve().parent / "bin" / "darkroom"
_EXIT_USAGE = 2


@dataclasses.dataclass(frozen=True)
class Item:
    """A piece of a job: the rows [first_row, first_row + num_rows) of the input file `input`, a name below what the job reads, become the
    file `part` of the job's output."""

    number: int
    input: str
    first_row: int
    num_rows: int
    part: str


@dataclasses.dataclass(frozen=True)
class ItemResult:
    """What became of an item: `outcome` is "committed" (by this call), "there" (its part was there already) or "busy" (another process is
    at it: ask again later). Counts are those of its part; `bytes` of one that this call made."""

    item: int
    outcome: str
    rows_in: int = 0
    rows_out: int = 0
    rows_by_error: Mapping[str, int] = dataclasses.field(default_factory=dict)
    bytes: int = 0


def read_items(output: str | os.PathLike[str]) -> list[Item]:
    """The items of the job that `output` (a folder, s3://) belongs to, by number. Reads what the job pinned there, and looks at no input.

    Raises NotFound where no job was begun.
    """
    from darkroom.extension import native  # Whoever does items alone needs no libraries here.

    return [Item(item.number, item.input, item.first_row, item.num_rows, item.part) for item in native.list_items(os.fspath(output))]


def _words_of(flags: Mapping[str, Any]) -> list[str]:
    """{"rows_per_file": 20} is --rows-per-file 20. True is the flag alone; of None and False there is none; a list is several values."""
    words: list[str] = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
            words += [os.fspath(one) if isinstance(one, os.PathLike) else str(one) for one in values]
    return words


def _error_of(failure: ProgramFailed) -> Error:
    if failure.was_killed:
        return Unavailable(str(failure), "unavailable")
    if failure.code == _EXIT_USAGE:
        return InvalidArgument(failure.said, "invalid_argument")
    return Error(str(failure), "program_failed")


_jobs: weakref.WeakSet[Job] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a process that was forked: whoever held one is in the other process."""
    for job in list(_jobs):
        job._starting = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


class Job:
    """A download or process job, as open_download_job and open_process_job make it.

    A program of this process does its items. It starts when it is first needed, pins the job's inputs, and keeps models and inputs open
    between items, until close(), the end of a `with`, or until nobody holds the job any more. Any number of threads may do items. Pickled, a
    job goes to another process as its command line; there it starts a program of its own.
    """

    def __init__(self, verb: str, places: Sequence[str], flags: Mapping[str, Any]) -> None:
        self._verb, self._places, self._flags = verb, tuple(places), dict(flags)
        self._starting = threading.Lock()
        self._child: ItemChild | None = None
        self._process = 0  # That started it.
        self._letting_go: weakref.finalize | None = None  # Its threads hold the child, and so the program.
        _jobs.add(self)

    @property
    def output(self) -> str:
        return self._places[-1]

    @property
    def verb(self) -> str:
        return self._verb

    def _started(self) -> ItemChild:
        with self._starting:
            if self._child is None or self._process != os.getpid():  # A fork has the program of its parent, whose answers it never hears.
                self._process = os.getpid()
                self._child = ItemChild([str(PROGRAM), self._verb, *_words_of(self._flags), "--", *self._places])
                if self._letting_go is not None:
                    self._letting_go.detach()  # Of the one before, which has ended, or is another process's.
                self._letting_go = weakref.finalize(self, self._child.close_input)
                self._letting_go.atexit = False  # The program ends with this process.
            return self._child

    def _plan(self) -> dict[str, Any]:
        child = self._started()
        try:
            return child.plan()
        except ProgramFailed as failure:
            self._end(child)
            raise _error_of(failure) from None

    @property
    def items(self) -> list[Item]:
        """All items, by number. Pins the inputs where nobody has yet."""
        self._plan()
        return read_items(self.output)

    @property
    def open_items(self) -> list[int]:
        """Numbers of the items that had no part when this job's program started."""
        return read_item_numbers(self._plan()["open_items"])

    def do(self, items: Sequence[Item | int]) -> list[ItemResult]:
        """Does these items, several at a time. What is committed stays, whatever is raised: do them again. A program that ended is started
        anew by the next call."""
        numbers = [item.number if isinstance(item, Item) else int(item) for item in items]
        child = self._started()
        try:
            answers = child.do(list(dict.fromkeys(numbers)))
        except ProgramFailed as failure:
            self._end(child)
            raise _error_of(failure) from None
        for answer in answers:
            if answer["outcome"] == "unknown":
                raise NotFound(f"the job has no item {answer['item']}: {self.output}", "not_found")
        by_number = {answer["item"]: ItemResult(**answer) for answer in answers}
        return [by_number[number] for number in numbers]

    def _end(self, child: ItemChild | None) -> None:
        """Ends this program, which another thread may have replaced already."""
        if child is not None and self._process == os.getpid():
            child.end()
        with self._starting:
            self._child = None if self._child is child else self._child

    def close(self) -> None:
        """Ends the program, once what was asked of it is done."""
        with self._starting:
            child, self._child = self._child, None
        if child is not None:
            try:
                child.finish()
            except ProgramFailed as failure:
                raise _error_of(failure) from None

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: object, *unused: object) -> None:
        if kind is None:
            self.close()
        else:
            self._end(self._child)

    def __reduce__(self) -> tuple:
        return Job, (self._verb, self._places, self._flags)


def open_download_job(output: str | os.PathLike[str], **flags: Any) -> Job:
    """`darkroom download OUTPUT` with these flags, by their names with underscores: metadata="urls.parquet", rows_per_file=1000. They are
    checked by the program when it starts."""
    return Job("download", [os.fspath(output)], flags)


def open_process_job(images: str | os.PathLike[str], output: str | os.PathLike[str], **flags: Any) -> Job:
    """`darkroom process IMAGES OUTPUT` with these flags, by their names with underscores: model="models/tiny", resolution=64. They are
    checked by the program when it starts."""
    return Job("process", [os.fspath(images), os.fspath(output)], flags)


def _do_one(job: Job, verb: str, item: Item | int) -> ItemResult:
    if job.verb != verb:
        raise InvalidArgument(f"this is a {job.verb} job, and {verb}_item was asked for: {job.output}", "invalid_argument")
    return job.do([item])[0]


def download_item(job: Job, item: Item | int) -> ItemResult:
    """Does one item of a download job: `darkroom download ... --items N`."""
    return _do_one(job, "download", item)


def process_item(job: Job, item: Item | int) -> ItemResult:
    """Does one item of a process job: `darkroom process ... --items N`."""
    return _do_one(job, "process", item)
