"""`darkroom-ray tune`: the search is the program's own (`darkroom tune`, on the driver's machine), which decides by results alone; its trials are
actors wherever they find room, each with one `darkroom train` as its child. A trial whose node is lost goes on elsewhere from its checkpoint."""

import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

from darkroom.child_process import SIGNAL_CODES, Child, was_killed
from darkroom_ray.flags import Refused
from darkroom_ray.item_job import cause_of
from darkroom_ray.items import pause_after
from darkroom_ray.measured import restart_counter
from darkroom_ray.nodes import nodes_of, with_coming
from darkroom_ray.own_folder import own_folder
from darkroom_ray.preflight import room_in
from darkroom_ray.program import EXIT_FAILED, start_child
from darkroom_ray.progress import say
from darkroom_ray.rank import EXIT_STOPPED, HELD_BY_ANOTHER, RESTART_COUNT
from darkroom_ray.request import Request
from darkroom_ray.room_wait import RoomWait
from darkroom_ray.stopping import JobFailed, StopWatch
from darkroom_ray.trial_desk import Launch, TrialDesk

LOOK_SECONDS = 0.5
IDLE_SECONDS = 3.0  # An actor waits so long for the next trial, which a search begins at once: to start one costs seconds.
STOPPED_CODES = (EXIT_STOPPED, SIGNAL_CODES + signal.SIGINT)
MOST_WORDS = 1000  # Lines of a trial between two looks.
CALLS_AT_ONCE = 3  # A stop is heard while a look waits.


class TrialActor:
    """An actor: the program of one trial, then of the next."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._lines: collections.deque[str] = collections.deque()
        self._child: Child | None = None

    def start(self, words: list[str], failures: int) -> str:
        """Where it is. After failures the program waits for what a lost machine holds. Errors: Refused, where the program is not there."""
        import ray

        self._lines = collections.deque(maxlen=MOST_WORDS)
        self._child = start_child(self._request, words, {RESTART_COUNT: str(failures)}, on_said=self._lines.append)
        return ray.util.get_node_ip_address()

    def look(self, seconds: float) -> tuple[list[str], int | None]:
        """What it said since the last look, and its exit code once it has ended; waits for that so long at most."""
        try:
            code: int | None = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        return [self._lines.popleft() for _ in range(len(self._lines))], code

    def end(self) -> None:
        """With a checkpoint."""
        self._child.end(signal.SIGTERM)


class TrialRuns:
    """Runs the trials of one search. Thread safety: any thread."""

    def __init__(self, ray, request: Request, restarts=None) -> None:
        """`restarts`: a counter of Ray's metrics."""
        self._ray = ray
        self._request = request
        self._counter = restarts
        self._is_closed = False
        self._has_told_of_room = False
        self._actor = ray.remote(TrialActor).options(**request.placement.options(), max_restarts=0, max_concurrency=CALLS_AT_ONCE)
        self._lock = threading.Lock()
        self._idle: list = []
        self.restarts = 0

    def run(self, command: list[str], launch: Launch) -> int:
        """Its exit code, as a shell gives it. `command`: the program of the driver's machine, and its words."""
        words = command[1:]
        failures = 0
        while True:
            lost = ""
            try:
                code, last_words = self._run_once(words, failures, launch)
                lost = why_lost(code, last_words, failures)
            except self._ray.exceptions.RayError as error:
                cause = cause_of(error)
                if isinstance(cause, Refused):
                    launch.say(f"error: {cause}")
                    return EXIT_FAILED
                code, lost = EXIT_STOPPED, (str(cause).strip().splitlines() or [type(cause).__name__])[0]
            if not lost:
                return code
            if launch.is_ending:  # Whatever it ended with: the same search takes it up again.
                return EXIT_STOPPED
            failures += 1
            if not self._may_go_on(words, launch, failures, lost):
                return EXIT_FAILED
            launch.pause(pause_after(failures))
            if launch.is_ending:
                return EXIT_STOPPED

    def _run_once(self, words: list[str], failures: int, launch: Launch) -> tuple[int, str]:
        """Exit code and last words. Errors: RayError."""
        actor = self._begin(words, failures, launch)
        return self._follow(actor, launch) if actor is not None else (EXIT_STOPPED, "")

    def _begin(self, words: list[str], failures: int, launch: Launch):
        """An actor whose program is at work; None: the trial is to end before. Errors: RayError."""
        idle = self._take_idle()
        if idle is not None:
            try:
                return self._begin_on(idle, words, failures, launch)
            except self._ray.exceptions.RayActorError:
                pass  # Lost while it waited for a trial, perhaps: no loss of this one, which goes to a fresh actor.
        return self._begin_on(self._actor.remote(self._request), words, failures, launch)

    def _begin_on(self, actor, words: list[str], failures: int, launch: Launch):
        """As _begin(): this actor, or None."""
        is_at_work = False
        room = RoomWait(lambda text: self._tell_of_room(text, launch), name_of(words), self._request.placement)
        try:
            started = actor.start.remote(words, failures)
            has_place = actor.__ray_ready__.remote()
            while not self._ray.wait([started], num_returns=1, timeout=LOOK_SECONDS)[0]:
                if launch.is_ending:
                    return None
                room.look(lambda: not self._ray.wait([has_place], num_returns=1, timeout=0)[0])
            launch.say(f"the trial is at work on {self._ray.get(started)}")
            is_at_work = True
            return actor
        finally:
            if not is_at_work:
                self._ray.kill(actor)

    def _tell_of_room(self, text: str, launch: Launch) -> None:
        """In the log of each trial that waits; by the driver once."""
        launch.say(text)
        with self._lock:
            is_first, self._has_told_of_room = not self._has_told_of_room, True
        if is_first and not self._request.is_quiet:
            say(text)

    def _follow(self, actor, launch: Launch) -> tuple[int, str]:
        """As _run_once(), of a trial that is at work."""
        last: collections.deque[str] = collections.deque(maxlen=20)
        is_told = has_ended = False
        try:
            while True:
                lines, code = self._ray.get(actor.look.remote(LOOK_SECONDS))
                for line in lines:
                    launch.say(line)
                last.extend(lines)
                has_ended = code is not None
                if has_ended or launch.is_gone:
                    return shell_code(code) if has_ended else EXIT_STOPPED, "".join(last)
                if launch.is_asked and not is_told:
                    actor.end.remote()
                    is_told = True
        finally:
            (self._give_back if has_ended else self._ray.kill)(actor)

    def _take_idle(self):
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, actor) -> None:
        with self._lock:
            is_waiting = not self._is_closed
            self._idle += [actor] if is_waiting else []
        if not is_waiting:
            self._ray.kill(actor)
            return
        timer = threading.Timer(IDLE_SECONDS, self._drop, (actor,))
        timer.daemon = True
        timer.start()

    def _drop(self, actor) -> None:
        """Its place is free, where no trial has taken it meanwhile."""
        with self._lock:
            if actor not in self._idle:
                return
            self._idle.remove(actor)
        self._ray.kill(actor)

    def close(self) -> None:
        """Nobody waits for a trial any more. Before the end of Ray, which a timer would begin anew."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for actor in idle:
            self._ray.kill(actor)

    def _may_go_on(self, words: list[str], launch: Launch, failures: int, lost: str) -> bool:
        name = name_of(words)
        if 0 <= self._request.max_failures < failures:
            launch.say(f"error: the trial was lost more often than --max-failures {self._request.max_failures} allows; the last time: {lost}")
            return False
        with self._lock:
            self.restarts += 1
            if self._counter:
                self._counter.inc(1)
        launch.say(f"warning: the trial goes on from its checkpoint, start {failures + 1}: {lost}")
        if not self._request.is_quiet:
            say(f"{name} was lost and goes on from its checkpoint, start {failures + 1}: {lost}")
        return True


def shell_code(code: int) -> int:
    """Of a process that a signal ended, as a shell gives it."""
    return SIGNAL_CODES - code if code < 0 else code


def name_of(words: list[str]) -> str:
    """Of a trial, by its run folder."""
    return os.path.basename(words[words.index("--output") + 1]) if "--output" in words[:-1] else "a trial"


def why_lost(code: int, last_words: str, failures: int) -> str:
    """Why a program that ended so is to be begun again, had nobody asked for its end; "": it is not."""
    if code in STOPPED_CODES:
        return f"signal {code - SIGNAL_CODES} of somebody else (a spot notice, a drained node)"
    if code == EXIT_FAILED and failures and HELD_BY_ANOTHER in last_words:
        return "the program of the last start has not ended yet"
    return ""


def search_words(request: Request, workers: int, launcher: str, summary: str) -> list[str]:
    quiet = ["--quiet"] if request.is_quiet else []
    return request.command("--launcher", launcher, "--workers", str(workers), "--json-summary", summary, *quiet)


def workers_of(ray, request: Request) -> int:
    """Trials at a time: as many as were asked for, else as all nodes have room for."""
    return request.num_workers or max(1, room_in(with_coming(request, nodes_of(ray)), request.placement))


def wait_for_search(child: Child, stop: StopWatch) -> int:
    """Its exit code. A stop is handed on, once. Whoever stopped the driver may have stopped the search, too (`ray job stop`, systemd): to one with a
    launcher a second signal is nothing."""
    is_told = False
    while True:
        try:
            return child.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if stop.is_asked and not is_told:
                child.end(signal.SIGTERM)
                is_told = True


def tune(ray, request: Request, stop: StopWatch) -> tuple[int, dict]:
    """Exit code and summary. Errors: Refused, JobFailed."""
    workers = workers_of(ray, request)
    runs = TrialRuns(ray, request, restart_counter(request.verb))
    with own_folder("dr-") as folder, TrialDesk(folder, runs.run) as desk:
        path = pathlib.Path(folder, "summary.json")
        words = search_words(request, workers, desk.launcher(), str(path))
        child = start_child(request, words, on_said=sys.stderr.write, has_own_group=True)
        code = wait_for_search(child, stop)
        runs.close()
        summary = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if stop.is_asked and shell_code(code) in STOPPED_CODES:
        return SIGNAL_CODES + stop.number, summary
    if was_killed(code):
        raise JobFailed(f"the search was ended by a signal ({shell_code(code) - SIGNAL_CODES}); run the same command again to go on")
    if summary.get("tune"):  # Of a refused search there is none.
        summary["tune"]["cluster"] = {"workers": workers, "restarts": runs.restarts}
    return code, summary
