"""The driver of download and process: hands the open items of a pinned job out until all are there. It holds no state that counts: the
parts are the record, and the same command goes on."""

import contextlib
import time
from collections.abc import Callable, Iterator

from darkroom.item_child import read_item_numbers
from darkroom_ray.item_workers import Encoders, Tasks
from darkroom_ray.items import ROW_FAILED, FirstErrors, ItemBook, ItemFailed, pause_after
from darkroom_ray.measured import JobMeasures
from darkroom_ray.nodes import nodes_of
from darkroom_ray.preflight import Node, described, room_in
from darkroom_ray.prices import COST_LINE
from darkroom_ray.program import EXIT_USAGE, ProgramFailed
from darkroom_ray.progress import Progress, items_text
from darkroom_ray.request import Placement, Request
from darkroom_ray.room_wait import ROOM_SECONDS, RoomWait
from darkroom_ray.run_notes import TIMED, WARNING
from darkroom_ray.stopping import ENDING, JobFailed, Stopped, StopWatch, wait_for_ends

LOOK_SECONDS = 0.5
COUNT_SECONDS = 10.0  # Between two counts of the nodes, which come and go.
# Until an item that somebody else has claimed is asked for again. A claim of a dead process of the same machine holds nobody up.
BUSY_PAUSE_SECONDS = 5.0
BATCHES_PER_WORKER = 8  # So that the last ones end together.
MOST_ITEMS_OF_A_BATCH = 64
# Of the program's summary: what it counts of its own work, which here was almost none.
OF_THE_CLOSING_RUN = ("bytes", "hosts", "retries", "stages")


@contextlib.contextmanager
def counts_kept(counts: Callable[[], dict]) -> Iterator[None]:
    """Whatever error ends a job has with it what was done until then, for the summary."""
    try:
        yield
    except Exception as error:
        error.summary = {**counts(), **getattr(error, "summary", {})}
        raise


def cause_of(error: Exception) -> Exception:
    """What a task or an actor raised itself; of a lost one Ray's own error."""
    return getattr(error, "cause", None) or error


def is_final(error: Exception) -> bool:
    """Whether the program refused its command line: it would again."""
    return isinstance(error, ProgramFailed) and error.code == EXIT_USAGE


def batch_size(num_items: int, num_workers: int) -> int:
    """Items that a worker is given at once."""
    return min(MOST_ITEMS_OF_A_BATCH, -(-num_items // (BATCHES_PER_WORKER * num_workers)))


def room_for_tasks(nodes: list[Node], placement: Placement) -> int:
    """Tasks that these nodes hold, one at least."""
    return max(1, room_in(nodes, placement))


class ItemJob:
    """One run of a job."""

    def __init__(self, ray, request: Request, stop: StopWatch, keeper=None, access=None) -> None:
        """`keeper`, `access`: of transformers on other nodes (online.start_transformers)."""
        self.keeper = keeper
        self.access = access
        self.ray = ray
        self.request = request
        self.stop = stop
        self.progress = Progress(request.verb, is_quiet=request.is_quiet)
        self.measures = JobMeasures(request.verb)
        self.book: ItemBook | None = None  # Once it is known what is open.
        self.first_errors = FirstErrors()
        self.restarts = 0
        self.worker_seconds = 0.0  # Of programs that have ended in order.
        self.start = time.monotonic()
        self.has_told_of_room = False
        self.count_at = 0.0  # When the nodes are counted again.
        self.workers = self.make_workers()
        self.at_work: dict = {}  # Reference of a call: (batch, worker).
        self.asked: list = []  # The call that get() waits for.

    def make_workers(self):
        if self.request.verb == "process":
            return Encoders(self.ray, self.request, self.access)
        return Tasks(self.ray, self.request, self.request.num_workers or room_for_tasks(nodes_of(self.ray), self.request.placement))

    def wait(self, references: list) -> list:
        """Those that are done, after a short while at most. Errors: Stopped."""
        done, _ = self.ray.wait(references, num_returns=1, timeout=LOOK_SECONDS)
        self.check()
        return done

    def check(self) -> None:
        """Says what becomes of its transformers, too. Errors: Stopped; JobFailed: its transformers cannot be had."""
        self.stop.check()
        while self.keeper is not None and self.keeper.lines:
            self.progress.say(f"{self.request.verb}: {self.keeper.lines.popleft()}")
        if self.keeper is not None and self.keeper.failure:
            code, text = self.keeper.failure
            raise JobFailed(f"{text}\nwhat was committed is safe: put it right and run the same command again to go on", code)

    def get(self, start, renew=lambda: None):
        """The result of one call, which is made again, after renew(), when its worker is lost. Errors: JobFailed, Stopped."""
        failures = 0
        while True:
            reference = start()
            self.asked = [reference]
            room = RoomWait(self.progress.say, f"{self.request.verb}: the task that plans or ends the job", self.request.placement)
            while not self.wait(self.asked):
                room.look(self.workers.has_no_place)
            self.asked = []
            try:
                return self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                cause = cause_of(error)
                failures += 1
                if isinstance(cause, ProgramFailed) and not cause.was_killed:
                    raise JobFailed(str(cause), EXIT_USAGE if is_final(cause) else 1) from None
                if 0 <= self.request.max_failures < failures:
                    raise JobFailed(f"{failures} workers in a row were lost; the last one: {cause}") from None
                self.note_restart(cause)
                self.stop.pause(pause_after(failures))
                renew()

    def note_restart(self, why: Exception) -> None:
        self.restarts += 1
        self.measures.restarts.inc(1)
        self.progress.say(f"{self.request.verb}: a worker was lost and is replaced: {first_line(why)}")

    def run(self) -> tuple[int, dict]:
        """Exit code and summary. Errors: JobFailed, Stopped."""
        with counts_kept(self.counts):
            try:
                return self.run_to_end()
            except (JobFailed, Stopped):
                self.end_in_order()
                raise

    def end_in_order(self) -> None:
        """What is under way, with its programs."""
        calls = [*self.at_work, *self.asked]
        ends: list = []
        with contextlib.suppress(self.ray.exceptions.RayError):
            ends = list(dict.fromkeys([*self.workers.stop(calls), *calls]))
        if ends:
            self.progress.say(f"{self.request.verb}: {ENDING}")
            wait_for_ends(self.ray, ends)

    def run_to_end(self) -> tuple[int, dict]:
        """As run(), but leaves programs at work behind where it raises."""
        # A program that plans waits for transformers, too, but not as long as they may wait for room.
        while not self.workers.is_ready() or (self.keeper is not None and not self.keeper.is_serving()):
            self.stop.pause(LOOK_SECONDS)
            self.check()
            self.tell_of_room()
        plan, said, seconds = self.get(self.workers.plan, self.workers.renew)
        self.worker_seconds += seconds
        self.hear(said)
        open_items = read_item_numbers(plan["open_items"])
        workers = self.workers.num_workers
        given = self.request.items_per_task
        self.book = book = ItemBook(open_items, given or batch_size(len(open_items), workers), self.request.max_failures, 0 if given else self.workers.num_takers)
        to_do = f"{len(open_items)} of {plan['items']} items ({plan['rows']} rows) are to do"
        self.progress.say(f"{self.request.verb}: {to_do}, {book.items_per_batch} at a time, {workers} workers")
        try:
            while not book.is_done:
                self.hand_out(book)
                self.take_back(book)
                self.look(plan, book)
        except ItemFailed as failure:
            raise JobFailed(f"{failure}\nwhat was committed is safe: put it right and run the same command again to go on") from None
        said, seconds = self.workers.finish(self.wait)
        self.worker_seconds += seconds
        self.hear(said)
        if self.keeper is not None:  # All is committed: what transformers do now ends nothing.
            self.keeper.end()
            self.keeper.failure = None
        code, summary, last_words = self.get(self.workers.close)
        self.tell_end(code, last_words)
        return code, self.summarize(summary)

    def hear(self, said: list[str]) -> None:
        """What programs of items tell: why rows fail, which is said once of each code, and warnings."""
        for sentence in said:
            if not ROW_FAILED.match(sentence):
                self.progress.warn([sentence])
            elif self.first_errors.note(sentence):
                self.progress.say(sentence)

    def hand_out(self, book: ItemBook) -> None:
        while self.workers.has_room():
            batch = book.take(time.monotonic(), self.workers.is_one_idle())
            if not batch:
                return
            reference, worker = self.workers.submit(batch, book.goes_alone(batch))
            self.at_work[reference] = (batch, worker)

    def take_back(self, book: ItemBook) -> None:
        if not self.at_work:
            self.stop.pause(LOOK_SECONDS)  # What is open is with somebody else, failed just now, or has no encoder yet.
            self.check()
            return
        for reference in self.wait(list(self.at_work)):
            batch, worker = self.at_work.pop(reference)
            try:
                answers, said, seconds = self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                self.lose(book, batch, worker, cause_of(error))
                continue
            self.workers.give_back(worker, is_lost=False)
            self.hear(said)
            self.worker_seconds += seconds
            self.measures.count(answers)
            book.settle(answers, time.monotonic(), BUSY_PAUSE_SECONDS)

    def lose(self, book: ItemBook, batch: list[int], worker, cause: Exception) -> None:
        if is_final(cause):
            raise JobFailed(str(cause), EXIT_USAGE)
        if self.workers.give_back(worker, is_lost=True):
            self.note_restart(cause)
        book.fail(batch, str(cause), time.monotonic())

    def tell_of_room(self) -> None:
        """Once: the job goes on with the encoders that there is room for."""
        waiting = 0 if self.has_told_of_room or time.monotonic() - self.start < ROOM_SECONDS else self.workers.num_waiting()
        if waiting:
            self.has_told_of_room = True
            self.progress.say(f"{self.request.verb}: {waiting} of {self.workers.num_workers} encoders have no room on the cluster now, and wait for it: {described(self.request.placement)} each")

    def look(self, plan: dict, book: ItemBook) -> None:
        self.measures.open_items.set(book.num_items - book.num_done)
        at_work = self.workers.num_at_work()
        self.measures.workers.set(at_work)
        text = items_text(self.request.verb, plan, book, at_work, self.restarts, self.progress.seconds())
        self.progress.show(text)
        self.tell_of_room()
        if self.request.verb != "process" and time.monotonic() >= self.count_at:  # Ray places encoders that wait by itself.
            self.count_at = time.monotonic() + COUNT_SECONDS
            self.count_nodes()

    def count_nodes(self) -> None:
        """A cluster that does not answer, or that has no node for a moment, keeps the number that it had."""
        with contextlib.suppress(self.ray.exceptions.RayError):
            nodes = nodes_of(self.ray)
            if nodes:
                self.workers.note_room(room_for_tasks(nodes, self.request.placement))

    def tell_end(self, code: int, last_words: str) -> None:
        """How the closing run has ended: its last line, and what it warns of. A quiet job says why it failed, too."""
        self.progress.clear()
        said = [TIMED.sub("", line, count=1) for line in last_words.splitlines() if COST_LINE not in line]
        troubles = [sentence for sentence in said if WARNING.match(sentence)]
        self.progress.warn(troubles)
        if code and not any(sentence.startswith("error: ") for sentence in troubles):
            self.progress.warn([": ".join([f"error: {self.request.verb} ended with exit code {code}", *said[-1:]])])
        elif not troubles or said[-1] != troubles[-1]:
            self.progress.say(said[-1] if said else f"{self.request.verb}: done")

    def counts(self) -> dict:
        """Of this run alone, which ends before the job is done."""
        if self.book is None:
            return {}
        totals = self.book.totals
        return {"rows_in": totals.rows_in, "rows_out": totals.rows_out, "rows_by_error": dict(totals.rows_by_error), **self.counts_of_run(), "first_errors": self.first_errors.by_code}

    def counts_of_run(self) -> dict:
        """What this run has done on the cluster, besides what a job has of itself."""
        seconds, totals = self.progress.seconds(), self.book.totals
        counts = {"rows_this_run": totals.rows_in, "bytes_of_parts": totals.bytes, "seconds": seconds}
        counts |= {"rows_per_second": totals.rows_in / seconds if seconds else 0.0, "items_to_do": self.book.num_items}
        about = {"workers": self.workers.num_workers, "restarts": self.restarts, "items": totals.items, "items_there": totals.items_there}
        if self.keeper is not None:
            about |= {"transformer_actors": self.request.transformers.num_workers, "transformer_actors_lost": self.keeper.losses}
        return {**counts, "cluster": about}

    def summarize(self, summary: dict) -> dict:
        """The program's own summary of the whole job, with what this run did on the cluster."""
        stage = summary.setdefault(self.request.verb, {})
        for name in OF_THE_CLOSING_RUN:
            stage.pop(name, None)
        stage |= self.counts_of_run()
        stage["first_errors"] = dict(sorted({**stage.get("first_errors", {}), **self.first_errors.by_code}.items()))
        self.add_cost(stage)
        return summary

    def add_cost(self, stage: dict) -> None:
        """The closing run has told what its own place has cost; those of the workers were as large. Of workers that were lost nobody has told."""
        rate = stage.pop("dollars_per_hour", None)
        if rate is None:
            return
        stage["dollars"] += self.worker_seconds / 3600 * rate
        stage["cluster"] |= {"worker_seconds": self.worker_seconds, "dollars_per_worker_hour": rate}
        self.progress.say(f"{self.request.verb}{COST_LINE}{stage['dollars']:.4g}, at ${rate:.4g} an hour of a worker")


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
