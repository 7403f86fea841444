#!/usr/bin/env python3
"""darkroom-ray tune without Ray: launchers and the driver that serves them, what becomes of a trial that is lost, how a search ends.

usage: ray_tune_unit_test.py
"""

import contextlib
import io
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import threading
import types
import unittest.mock

from cases import main, require, temporary_folder
from ray_units import FAKE_METRICS, PATIENCE, ROOT, FakeCounter, asked, fake_modules, item_request, node, refusal_of

from darkroom_ray import places, preflight, room_wait, trial_desk, tuning  # noqa: E402
from darkroom_ray.flags import read_request  # noqa: E402
from darkroom_ray.item_job import JobFailed  # noqa: E402

FAKE_RAY = types.SimpleNamespace(util=types.SimpleNamespace(get_node_ip_address=lambda: "10.0.0.7"))


# -- the launcher and the desk ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def desk_of(run):
    """A desk and a way to start launchers at it."""
    with temporary_folder() as folder, trial_desk.TrialDesk(str(folder), run) as desk:

        def launch(*words: str) -> subprocess.Popen:
            return subprocess.Popen([*shlex.split(desk.launcher()), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

        yield launch


def said_by(launcher: subprocess.Popen) -> tuple[int, str]:
    said, errors = launcher.communicate(timeout=PATIENCE)
    require(errors == "", "the launcher itself complains", errors)
    return launcher.returncode, said


def a_launcher_stands_for_its_command() -> None:
    def run(command: list[str], launch) -> int:
        for word in command:
            launch.say(f"word {word}\n")
        return int(command[-1])

    with desk_of(run) as launch:
        launchers = [launch("darkroom", "with space", "--set", "ü=1", code) for code in ("0", "3", "137")]
        for launcher, code in zip(launchers, (0, 3, 137)):
            require(said_by(launcher) == (code, f"word darkroom\nword with space\nword --set\nword ü=1\nword {code}\n"), "output and exit code", code)


def a_signal_asks_and_a_kill_leaves() -> None:
    seen, is_stopped_twice = [], threading.Event()

    def run(command: list[str], launch) -> int:
        launch.say("at work")
        while not launch.is_ending:
            launch.pause(PATIENCE)
        require(launch.is_gone or is_stopped_twice.wait(PATIENCE), "the second signal")
        seen.append((command[0], launch.is_asked, launch.is_gone))
        return 143

    with desk_of(run) as launch:
        stopped = launch("stopped")
        require(stopped.stdout.readline() == "at work\n", "the trial's output comes while it is at work")
        for _ in range(2):  # The search's, and that of what stops the driver with all that it started.
            stopped.send_signal(signal.SIGTERM)
        is_stopped_twice.set()
        require(said_by(stopped) == (143, ""), "SIGTERM, then the trial's own exit code")
        killed = launch("killed")
        require(killed.stdout.readline() == "at work\n", "at work")
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
        left = launch("left")
        require(left.stdout.readline() == "at work\n", "at work")
    # The desk has been left, and has waited for what it served.
    require(said_by(left)[0] == 143, "a launcher ends with its driver")
    require(sorted(seen) == [("killed", False, True), ("left", False, True), ("stopped", True, False)], "what the driver sees", seen)


def a_launcher_whose_driver_was_killed_fails_no_trial() -> None:
    with temporary_folder() as folder:
        path = f"{folder}/trials"
        command = [sys.executable, "-I", "-S", str(trial_desk.LAUNCHER), path, "darkroom", "train"]

        def start() -> subprocess.Popen:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        code, said = said_by(start())
        require(code == 143 and "the driver of the search is gone" in said, "there is none", code, said)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            launcher = start()
            connection = server.accept()[0]
            require(json.loads(connection.makefile().readline()) == {"command": ["darkroom", "train"]}, "what it asks for")
            connection.shutdown(socket.SHUT_RDWR)
            code, said = said_by(launcher)
            connection.close()
        require(code == 143 and "the driver of the search is gone" in said, "it has gone", code, said)


class Deaf:
    """A server whose first connection cannot be taken."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._errors = iter([OSError("too many open files")])

    def accept(self):
        for error in self._errors:
            raise error
        return self._server.accept()

    def __getattr__(self, name: str):
        return getattr(self._server, name)


def a_launcher_that_cannot_be_heard_at_once_is_heard_later() -> None:
    with temporary_folder() as folder:
        desk = trial_desk.TrialDesk(str(folder), lambda command, launch: 5)
        desk._server = Deaf(desk._server)
        with desk:
            command = [*shlex.split(desk.launcher()), "train"]
            require(subprocess.run(command, stdin=subprocess.DEVNULL, timeout=PATIENCE).returncode == 5, "nobody is heard any more")


def a_trial_that_cannot_be_run_says_why() -> None:
    def run(command: list[str], launch) -> int:
        raise ValueError("no such thing")

    with desk_of(run) as launch:
        require(said_by(launch("train")) == (1, "error: the trial cannot be run on the cluster: no such thing\n"), "why")


def a_socket_with_too_long_a_path_is_refused() -> None:
    said = refusal_of(trial_desk.TrialDesk, "/tmp/" + "a" * 120, None)
    require("TMPDIR" in said, "advice", said)


# -- trials -----------------------------------------------------------------------------------------------------------


class RayFault(Exception):
    """Ray's error of anything."""


class Lost(RayFault):
    """Ray's error of a lost actor."""


class FakeRay:
    """Runs actors here. `ends`: of each actor, in their order: what befalls it, called once its program is at work."""

    exceptions = types.SimpleNamespace(RayError=RayFault, RayActorError=Lost)

    def __init__(self, *ends) -> None:
        self.ends = list(ends)
        self.actors: list = []
        self.killed: list = []
        self.has_room = True

    def remote(self, what):
        def make(*arguments):
            actor = FakeActor(what(*arguments), self.ends.pop(0) if self.ends else None)
            self.actors.append(actor)
            return actor

        return types.SimpleNamespace(options=lambda **options: types.SimpleNamespace(remote=make))

    def wait(self, references, num_returns, timeout):
        return (references, []) if self.has_room else ([], references)

    def get(self, reference):
        return reference()

    def kill(self, actor) -> None:
        self.killed.append(actor)
        if actor.own._child is not None:
            actor.own._child.end(signal.SIGKILL)


class FakeActor:
    def __init__(self, own, end) -> None:
        self.own = own
        self._end = end
        self.is_lost = False

    def __getattr__(self, name: str):
        def call(*arguments):
            if name == "end":
                self.own.end()
                return None

            def result():
                if self.is_lost:
                    be_lost()
                if name == "look" and self._end is not None:
                    self._end()
                return getattr(self.own, name)(*arguments)

            return result

        return types.SimpleNamespace(remote=call)


def be_lost() -> None:
    raise Lost("The node was lost.\nmore of it")


class Heard:
    """A trial_desk.Launch without a launcher; `pauses`: how long was waited before each new start."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pauses: list[float] = []
        self.is_asked = self.is_gone = False

    @property
    def is_ending(self) -> bool:
        return self.is_asked or self.is_gone

    def say(self, line: str) -> None:
        self.lines.append(line.rstrip("\n"))

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


COMMAND = ["/elsewhere/darkroom", "train", "--output", "/tuned/trials/trial-004"]


@contextlib.contextmanager
def trial_of(script: str, ray: FakeRay, max_failures: int = 3):
    """(run, what the launcher hears). `script`: the program of the nodes."""
    with temporary_folder() as folder, fake_modules({"ray": FAKE_RAY}):
        request = item_request(pathlib.Path(folder), script)
        runs = tuning.TrialRuns(ray, type(request)(**{**request.__dict__, "verb": "tune", "max_failures": max_failures}))
        yield runs, Heard()


def a_trial_ends_as_its_program_does() -> None:
    for script, code in (("exit 0", 0), ("exit 1", 1), ("exit 75", 75), ("kill -9 $$", 137), ("kill -11 $$", 139)):
        ray = FakeRay()
        with trial_of(f"echo saying >&2; echo error: $1 $2 >&2; {script}", ray) as (runs, heard):
            require(runs.run(COMMAND, heard) == code and runs.restarts == 0, "exit code", script)
            require(heard.lines == ["the trial is at work on 10.0.0.7", "saying", "error: train --output"], "the node's own program, its words, its log", heard.lines)
            require(ray.killed == [], "its actor is there for the next trial")


def an_actor_is_used_again_or_its_place_is_free() -> None:
    ray = FakeRay()
    with trial_of("echo $3 >&2", ray) as (runs, heard):
        for name in ("a", "b"):
            require(runs.run(["x", "train", "--output", name], heard) == 0 and heard.lines[-1] == name, "a trial", heard.lines)
        require(len(ray.actors) == 1, "two trials, one after the other", ray.actors)
        runs._drop(ray.actors[0])
        runs._drop(ray.actors[0])
        require(ray.killed == ray.actors, "it waits no longer")
        require(runs.run(COMMAND, heard) == 0 and len(ray.actors) == 2, "another one")
        taken = runs._take_idle()
        runs._drop(taken)
        require(taken not in ray.killed, "one at work is not dropped")
        runs.close()
        runs._give_back(taken)
        require(taken in ray.killed and not runs._idle, "an actor whose trial ends behind the search waits for none")


def a_lost_trial_goes_on_elsewhere() -> None:
    ray = FakeRay(be_lost, be_lost)
    with trial_of("echo $* >&2", ray) as (runs, heard):
        require(runs.run(COMMAND, heard) == 0 and runs.restarts == 2, "exit code", heard.lines)
        require(heard.lines[-1] == "train --output /tuned/trials/trial-004", "the same command", heard.lines)
        require(sum("goes on from its checkpoint" in line and "The node was lost." in line for line in heard.lines) == 2, "why", heard.lines)
        require(heard.pauses == [2, 4] and ray.killed == ray.actors[:2], "pauses; lost actors are not used again", heard.pauses)


def a_trial_that_was_lost_hears_how_often() -> None:
    """Its program then waits until a shared disk has given up what the lost machine holds."""
    ray = FakeRay(be_lost, be_lost)
    with trial_of("echo start $TORCHELASTIC_RESTART_COUNT >&2", ray) as (runs, heard):
        for want in ("start 2", "start 0"):
            require(runs.run(COMMAND, heard) == 0 and heard.lines[-1] == want, "the number of its start", heard.lines)


def an_actor_that_is_lost_while_it_waits_costs_no_trial() -> None:
    ray = FakeRay()
    with trial_of("exit 0", ray, max_failures=0) as (runs, heard):
        require(runs.run(COMMAND, heard) == 0, "the first trial", heard.lines)
        ray.actors[0].is_lost = True
        require(runs.run(COMMAND, heard) == 0 and runs.restarts == 0 and heard.pauses == [], "the next one", heard.lines)
        require(len(ray.actors) == 2 and ray.killed == ray.actors[:1] and runs._idle == ray.actors[1:], "a fresh actor", ray.killed)
        ray.actors[1].is_lost, ray.ends = True, [be_lost]
        require(runs.run(COMMAND, heard) == 1 and len(ray.actors) == 3, "a fresh one that is lost counts", heard.lines)


def a_trial_is_lost_a_number_of_times_at_most() -> None:
    for most in (0, 2):
        ray = FakeRay(*[be_lost] * 5)
        with trial_of("exit 0", ray, most) as (runs, heard):
            require(runs.run(COMMAND, heard) == 1 and len(ray.actors) == most + 1, "tries", len(ray.actors))
            require(heard.lines[-1].startswith(f"error: the trial was lost more often than --max-failures {most} allows") and "The node was lost." in heard.lines[-1], "why", heard.lines)
    ray = FakeRay(*[be_lost] * 20)
    with trial_of("exit 0", ray, -1) as (runs, heard):
        require(runs.run(COMMAND, heard) == 0 and runs.restarts == 20, "-1 is for ever")


def a_stop_of_somebody_else_is_a_loss() -> None:
    script = 'echo x >> "$0.starts"; test "$(wc -l < "$0.starts")" -gt 1 || exit 143'
    with trial_of(script, FakeRay()) as (runs, heard):
        require(runs.run(COMMAND, heard) == 0 and runs.restarts == 1, "a spot notice", heard.lines)


def a_folder_that_the_lost_program_still_holds_is_tried_again() -> None:
    require(tuning.HELD_BY_ANOTHER in (ROOT / "src" / "train" / "set_up_run.cpp").read_text(), "the program's sentence is another one")
    held = "echo error: another process is training in this run folder >&2; exit 1"
    with trial_of(held, FakeRay()) as (runs, heard):
        require(runs.run(COMMAND, heard) == 1 and runs.restarts == 0, "of a first start it is an error", heard.lines)
    with trial_of(f'test -e "$0.two" && exit 0; touch "$0.two"; {held}', FakeRay(be_lost)) as (runs, heard):
        # The first actor's program may or may not have run before it was lost.
        require(runs.run(COMMAND, heard) == 0 and runs.restarts in (1, 2), "of a later one it is not", heard.lines)
    require(tuning.why_lost(1, held, 1) and not tuning.why_lost(1, held, 0) and not tuning.why_lost(1, "error: x", 1), "which ends are losses")


def a_trial_that_is_asked_to_stop_saves_and_is_not_begun_again() -> None:
    ray = FakeRay()
    with trial_of('trap "echo saved >&2; exit 143" TERM; echo up >&2; while :; do sleep 0.05; done', ray) as (runs, heard):

        class Asking(Heard):
            def say(self, line: str) -> None:
                super().say(line)
                self.is_asked = self.is_asked or line.startswith("up")

        heard = Asking()
        require(runs.run(COMMAND, heard) == 143 and heard.lines[-1] == "saved" and runs.restarts == 0, "with a checkpoint", heard.lines)
    ray = FakeRay(be_lost)
    with trial_of("exit 0", ray) as (runs, heard):
        heard.is_asked = True
        require(runs.run(COMMAND, heard) == 143 and len(ray.actors) == 1, "a loss while it stops")
    ray = FakeRay()
    ray.has_room = False
    with trial_of("exit 0", ray) as (runs, heard):
        heard.is_gone = True
        require(runs.run(COMMAND, heard) == 143 and len(ray.killed) == 1 and heard.lines == [], "a trial that has no place yet")


def trials_that_wait_for_room_say_so_once() -> None:
    ray = FakeRay()
    with trial_of("exit 0", ray) as (runs, _):
        looks = iter(range(6))

        def wait(references, num_returns, timeout):
            """Twelve of each: nothing has a place yet."""
            return ([], references) if timeout == 0 or next(looks, None) is not None else (references, [])

        ray.wait = wait
        with contextlib.redirect_stderr(io.StringIO()) as said, unittest.mock.patch.object(room_wait, "ROOM_SECONDS", 0.0):
            for _ in range(2):
                heard, looks = Heard(), iter(range(6))
                require(runs.run(COMMAND, heard) == 0, "exit code")
                require(heard.lines[0] == "trial-004 has no room on the cluster now, and waits for it: 1 CPUs" and len(heard.lines) == 2, "its log", heard.lines)
        require(said.getvalue() == "darkroom-ray: trial-004 has no room on the cluster now, and waits for it: 1 CPUs\n", "the driver says it once", said.getvalue())
        ray.wait, heard, looks = (lambda references, num_returns, timeout: (references, []) if timeout == 0 or next(looks, None) is None else ([], references)), Heard(), iter(range(6))
        with unittest.mock.patch.object(room_wait, "ROOM_SECONDS", 0.0):
            require(runs.run(COMMAND, heard) == 0 and len(heard.lines) == 1, "a program that starts slowly has its place", heard.lines)


def a_trial_whose_launcher_was_killed_ends_at_once() -> None:
    ray = FakeRay()
    with trial_of("echo up >&2; exec sleep 300", ray) as (runs, heard):

        class Leaving(Heard):
            def say(self, line: str) -> None:
                super().say(line)
                self.is_gone = True

        require(runs.run(COMMAND, Leaving()) == 143 and ray.actors[0].own._child.wait(PATIENCE) == -signal.SIGKILL, "its program")


def a_node_without_the_program_fails_the_trial_with_advice() -> None:
    ray = FakeRay()
    with trial_of("exit 0", ray) as (runs, heard):
        os.unlink(runs._request.program)
        FakeRay.exceptions = types.SimpleNamespace(RayError=Exception)
        try:
            require(runs.run(COMMAND, heard) == 1 and "cannot be run here" in heard.lines[-1] and runs.restarts == 0, "why", heard.lines)
        finally:
            FakeRay.exceptions = types.SimpleNamespace(RayError=RayFault, RayActorError=Lost)


# -- the search -------------------------------------------------------------------------------------------------------

# As much of `darkroom tune` as its driver sees: $3 is the launcher, $5 the number of trials at a time, $7 the summary.
SEARCH = """
test "$1" = tune || { sleep 0.1; echo trial $* >&2; exit 5; }
echo "$2 $4 $5 $6 $8 $9" >&2
echo '{"tune": {"trials": 1}}' > "$7"
eval "$3" "$0" train now > "$0.log"
test $? = 5 || exit 9
"""


def searched(script: str, stop, ray: FakeRay | None = None, **more) -> tuple:
    """What tune() gives, what the program was called with, the log of the trial."""
    with temporary_folder() as folder, fake_modules({"ray": FAKE_RAY, **FAKE_METRICS}):
        request = item_request(pathlib.Path(folder), script)
        fields = {"verb": "tune", "arguments": ("r.toml", "--budget"), "num_workers": 2, "is_quiet": True, **more}
        request = type(request)(**{**request.__dict__, **fields})
        log = pathlib.Path(f"{request.program}.log")
        return tuning.tune(ray or FakeRay(), request, stop), log.read_text() if log.exists() else ""


def a_search_runs_its_trials_through_the_launcher() -> None:
    (code, summary), log = searched(SEARCH, types.SimpleNamespace(is_asked=False))
    require(code == 0 and summary == {"tune": {"trials": 1, "cluster": {"workers": 2, "restarts": 0}}}, "summary", code, summary)
    require(log == "the trial is at work on 10.0.0.7\ntrial train now\n", "the trial's log", log)


def a_search_says_how_it_failed() -> None:
    require(searched("exit 1", types.SimpleNamespace(is_asked=False))[0] == (1, {}), "its own exit code")
    refused = """echo '{"tune": null}' > "$7"; exit 2"""
    require(searched(refused, types.SimpleNamespace(is_asked=False))[0] == (2, {"tune": None}), "a refused command line")
    try:
        searched("kill -9 $$", types.SimpleNamespace(is_asked=False))
    except JobFailed as failure:
        require("signal (9)" in str(failure) and "same command" in str(failure), "why", failure)
    else:
        raise AssertionError("a killed search has a result")


def a_quiet_search_is_quiet_itself_and_its_warnings_are_heard() -> None:
    script = """echo "$@" > "$0.log"; echo '2026-11-27T12:00:00Z warning: odd' >&2; exit %d"""
    for is_quiet in (False, True):
        for code in (0, 1):
            with contextlib.redirect_stderr(io.StringIO()) as heard:
                _, words = searched(script % code, types.SimpleNamespace(is_asked=False), is_quiet=is_quiet)
            require(("--quiet" in words.split()) == is_quiet and words.split()[-2:] == ["r.toml", "--budget"], "its words", is_quiet, words)
            require(heard.getvalue() == "2026-11-27T12:00:00Z warning: odd\n", "what is said, once", is_quiet, code, heard.getvalue())


def a_lost_trial_is_counted_among_the_restarts() -> None:
    (code, summary), _ = searched(SEARCH, types.SimpleNamespace(is_asked=False), FakeRay(be_lost))
    require(code == 0 and summary["tune"]["cluster"]["restarts"] == 1, "it goes on", code, summary)
    require(FakeCounter.made == {("darkroom_ray_restarts_total", "tune"): 1}, "Ray's metrics", FakeCounter.made)


# As `darkroom tune` takes a stop: any number of signals ends it in order. It goes on until it has got so many, and for a while then.
STOPPABLE = """
trap 'echo x >> "$0.log"; echo stopping after what is complete has been committed >&2' TERM
touch "$0.up" "$0.log"
until test $(wc -l < "$0.log") = %d; do sleep 0.05; done
for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done
exit 143
"""


def wait_until(is_so, child) -> None:
    while not is_so():
        require(child.poll() is None, "the search has ended")
        threading.Event().wait(0.01)


def stopped_search(is_stopped_beside: bool = False) -> tuple:
    """(exit code, a line for each signal that it got) of a search whose driver is stopped; itself, too, by who stops the driver."""
    stop = types.SimpleNamespace(is_asked=False, number=signal.SIGINT)
    real = tuning.start_child

    def start(request, *arguments, on_said, **more):
        heard: list[str] = []
        child = real(request, *arguments, on_said=heard.append, **more)
        wait_until(pathlib.Path(request.program + ".up").exists, child)
        if is_stopped_beside:
            os.kill(child.process.pid, signal.SIGTERM)
            wait_until(lambda: heard, child)
        stop.is_asked = True
        return child

    tuning.start_child = start
    try:
        (code, _), log = searched(STOPPABLE % (2 if is_stopped_beside else 1), stop)
        return code, log
    finally:
        tuning.start_child = real


def a_stop_reaches_the_search_once() -> None:
    found = stopped_search()
    require(found == (130, "x\n"), "the driver hands it on, once, and ends as it was stopped", found)


def a_search_that_was_stopped_beside_its_driver_is_told_all_the_same() -> None:
    found = stopped_search(is_stopped_beside=True)
    require(found == (130, "x\nx\n"), "as `ray job stop` does; to a search with a launcher a second signal is nothing (tune_test.py)", found)


def as_many_trials_as_have_room_or_as_are_asked_for() -> None:
    ray = types.SimpleNamespace(nodes=lambda: [{"NodeManagerAddress": "10.0.0.1", "NodeID": f"{number:08}", "Resources": {"CPU": 8.0}, "Alive": True} for number in range(2)])
    for words, want in (([], 16), (["--num-cpus-per-task", "3"], 4), (["--workers", "5"], 5)):
        request = read_request("tune", ["r.toml", *words, "--output", "o"], "/")
        require(tuning.workers_of(ray, request) == want and request.arguments == ("r.toml", "--output", "o"), "trials at a time", words, request)
    words = tuning.search_words(request, 5, "a launcher", "s.json")
    require(words == ["tune", "--launcher", "a launcher", "--workers", "5", "--json-summary", "s.json", "r.toml", "--output", "o"], "words", words)


def what_a_search_cannot_have_is_refused() -> None:
    require("leave --launcher out" in refusal_of(read_request, "tune", ["r.toml", "--launcher", "srun"], "/"), "a launcher")
    require("--workers must be at least 1" in refusal_of(read_request, "tune", ["--workers", "0"], "/"), "workers")
    said = preflight.check_resources([node("a")], asked("tune", 9))
    require(said == ["the cluster has room for 8 trials at a time of the 9 that are asked for (1 CPUs each): ask for --workers 8, or add nodes"], "room", said)
    said = list(preflight.check_amounts(asked("tune"), {"--device": ["cuda"]}))
    require(len(said) == 1 and "a trial" in said[0] and "--num-gpus-per-task 1" in said[0], "a GPU", said)
    given = {"RECIPE.toml": ["r.toml"], "--data": ["d"], "--validation": ["s3://v"], "--model": ["m"], "--output": ["o"]}
    require(places.local_paths(given, places.READ_PLACES["tune"]) == ["d", "m"] and places.local_paths(given, places.WRITTEN_PLACES["tune"]) == ["o"], "places that nodes must see")


if __name__ == "__main__":
    main(
        [
            a_launcher_stands_for_its_command,
            a_signal_asks_and_a_kill_leaves,
            a_launcher_whose_driver_was_killed_fails_no_trial,
            a_launcher_that_cannot_be_heard_at_once_is_heard_later,
            a_trial_that_cannot_be_run_says_why,
            a_socket_with_too_long_a_path_is_refused,
            a_trial_ends_as_its_program_does,
            an_actor_is_used_again_or_its_place_is_free,
            a_lost_trial_goes_on_elsewhere,
            a_trial_that_was_lost_hears_how_often,
            an_actor_that_is_lost_while_it_waits_costs_no_trial,
            a_trial_is_lost_a_number_of_times_at_most,
            a_stop_of_somebody_else_is_a_loss,
            a_folder_that_the_lost_program_still_holds_is_tried_again,
            a_trial_that_is_asked_to_stop_saves_and_is_not_begun_again,
            trials_that_wait_for_room_say_so_once,
            a_trial_whose_launcher_was_killed_ends_at_once,
            a_node_without_the_program_fails_the_trial_with_advice,
            a_search_runs_its_trials_through_the_launcher,
            a_search_says_how_it_failed,
            a_quiet_search_is_quiet_itself_and_its_warnings_are_heard,
            a_lost_trial_is_counted_among_the_restarts,
            a_stop_reaches_the_search_once,
            a_search_that_was_stopped_beside_its_driver_is_told_all_the_same,
            as_many_trials_as_have_room_or_as_are_asked_for,
            what_a_search_cannot_have_is_refused,
        ]
    )
