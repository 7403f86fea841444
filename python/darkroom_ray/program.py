"""The program darkroom on a node: where it lies, what it says of a command line, and a run of it to its end."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable

from darkroom.child_process import Child, ProgramFailed, was_killed
from darkroom_ray.flags import Refused
from darkroom_ray.own_folder import own_folder
from darkroom_ray.prices import priced_here
from darkroom_ray.request import Request
from darkroom_ray.watched import ProgramWatch

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
EXIT_FAILED = 1  # As the program ends (docs/command_line.md), and so darkroom-ray.
EXIT_USAGE = 2
ANSWER_SECONDS = 60.0  # Of a program that is only asked what it is, or what it makes of a command line.
CANCEL_SECONDS = 0.2  # Until a task hears that it is cancelled.


def find_program(named: str = "") -> str:
    """Errors: Refused."""
    named = named or os.environ.get("DARKROOM_PROGRAM", "")
    if named:
        if not os.path.isfile(named) or not os.access(named, os.X_OK):
            raise Refused(f"the program that --program or DARKROOM_PROGRAM names cannot be run here: {named}")
        return named
    of_wheel = pathlib.Path(__file__).resolve().parent.parent / "darkroom" / "bin" / "darkroom"
    found = str(of_wheel) if of_wheel.exists() else shutil.which("darkroom")
    if found is None:
        raise Refused("there is no program darkroom here: install the wheel on every node, or name it with --program PATH")
    return found


def child_environment(request: Request, more: dict[str, str] | None = None) -> dict[str, str]:
    """Of a program that works for a request, besides the worker's own; `more` goes before. Ray hides the GPUs of others from work that it gave
    some to; from work that asks for none it hides nothing, and `--device auto` would take one that is not reserved."""
    return {**({} if request.placement.num_gpus else NO_GPU), **(more or {})}


def start_child(request: Request, words: list[str], environment: dict[str, str] | None = None, on_said=None, **hooks) -> Child:
    """The program with these words, for a request's work. `on_said` and `hooks`: Child's. Errors: Refused, where it is not here."""
    watch = ProgramWatch(request, words[0], on_said)
    command = [find_program(request.program), words[0], *watch.words, *words[1:]]
    child = Child(command, child_environment(request, environment), request.folder, on_said=watch.hear, **hooks)
    watch.follow(child)
    return child


def run_program(program: str, *words: str, said: str = "") -> subprocess.CompletedProcess:
    """To its end, with this on its standard input. Errors: Refused, where the system does not start it, or it does not answer."""
    try:
        return subprocess.run([program, *words], input=said, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Refused(f"{program} does not answer within {ANSWER_SECONDS:.0f} s; look at the disk that it lies on") from None
    except OSError as error:
        raise Refused(f"{program} does not start: {error.strerror}; name the program darkroom, built for this machine, with --program PATH") from None


def run_for(seconds: float, command: list[str]) -> None:
    """A program that sees no GPU, and ends with this process and no later than then; what it says is dropped. Errors:
    subprocess.TimeoutExpired."""
    child = Child(command, NO_GPU)
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.end(signal.SIGKILL)
        raise


def program_version(program: str) -> str:
    """Errors: Refused."""
    done = run_program(program, "--version")
    return done.stdout.strip() if done.returncode == 0 else f"it does not start ({done.stderr.strip().splitlines()[-1:] or done.returncode})"


def read_arguments(request: Request) -> dict[str, list[str]]:
    """What the program makes of a command line: the words of each flag and positional. Errors: Refused, with the program's own sentence."""
    program = find_program(request.program)
    line = json.dumps(request.command()) + "\n"
    done = run_program(program, "help", "--parse", said=line)
    if done.returncode != 0:
        raise Refused(f"{program} does not start: {done.stderr.strip()}")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise Refused(f"{program} does not answer as darkroom does; name the program darkroom with --program PATH") from None
    if answer["exit_code"] != 0:
        raise Refused(f"{answer['message']}; {answer['hint']}" if answer.get("hint") else answer["message"])
    return answer["given"]


def is_set(given: dict[str, list[str]], name: str) -> bool:
    """Of a flag without a value, which may say =false, in a file of settings, too."""
    return given.get(name, ["false"])[-1] != "false"


def stop_program(child: Child) -> None:
    """Ends it as SIGTERM does: what it has claimed is given back, so that it holds nobody up. Waits for its end; whoever asks for this ends
    the worker, and the program with it, when that takes too long."""
    child.end(signal.SIGTERM)
    child.wait()


def hear_cancelling() -> None:
    """Ray cancels a task by what Ctrl-C raises, which nothing does in the workers of a cluster that a shell has started in the background."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def until_cancelled(start: Callable, work: Callable, stop: Callable, note=None):
    """What work(program) gives, of the program that start() gives. Where the task is cancelled meanwhile, while the program starts, too, stop(program)
    ends it: Ray's worker, and the program with it, may go on for other tasks. `note`: the task's room_wait.PlaceNote, where its driver made one.
    Errors: the start's and the work's; KeyboardInterrupt."""
    hear_cancelling()
    starting: concurrent.futures.Future = concurrent.futures.Future()

    def start_and_work():
        if not starting.set_running_or_notify_cancel():  # Cancelled before.
            return None
        if note is not None:
            note.take()
        try:
            starting.set_result(start())
        except BaseException as error:  # Raised by result(), for whoever asks.
            starting.set_exception(error)
        return work(starting.result())

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            working = pool.submit(start_and_work)
            # Ray raises it in the task's thread without waking it: that one must not wait for long.
            while not working.done():
                concurrent.futures.wait([working], CANCEL_SECONDS)
        except KeyboardInterrupt:
            if not starting.cancel():
                stop(starting.result())
            raise
        found = working.result()
        if note is not None:
            note.leave()
        return found


def run_to_summary(request: Request, note=None) -> tuple[int, dict, str]:
    """A task: runs a verb to its end; where the task is cancelled, its program ends in order. Exit code, summary, last words. `note`: as
    until_cancelled's. Errors: ProgramFailed when it was killed; KeyboardInterrupt."""
    with own_folder("dr-summary-") as folder:
        path = pathlib.Path(folder, "summary.json")

        def start() -> Child:
            return start_child(request, priced_here(request).command("--json-summary", str(path)))

        code, said = until_cancelled(start, lambda child: (child.wait(), child.last_words()), stop_program, note)
        if was_killed(code):
            raise ProgramFailed(code, said, socket.gethostname())
        summary = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return code, summary, said
