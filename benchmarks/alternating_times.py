"""Times ours and the peers in turn, in CPU seconds of one thread: other programs on the machine change neither much."""
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

Timer = Callable[[], float]  # Runs the task and returns its CPU seconds.


class TimedProgram:
    """A program of benchmarks/ that answers "NAME COUNT" with nanoseconds of CPU time (benchmarks/stopwatch_server.h)."""

    def __init__(self, *command: str):
        self.process = subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def task(self, name: str, count: int = 1) -> Timer:
        def run() -> float:
            self.process.stdin.write(f"{name} {count}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            if not answer:
                sys.exit(f"the benchmark program ended at {name}")
            return int(answer) * 1e-9 / count

        return run


def python_task(task: Callable[[], object], count: int = 1) -> Timer:
    def run() -> float:
        began = time.process_time()
        for _ in range(count):
            task()
        return (time.process_time() - began) / count

    return run


def measure(timers: dict[str, Timer], rounds: int) -> dict[str, list[float]]:
    """Seconds of every timer in every round; a first round warms up and is not counted."""
    times = {name: [] for name in timers}
    for number in range(rounds + 1):
        for name, timer in timers.items():
            seconds = timer()
            if number > 0:
                times[name].append(seconds)
    return times


def spread(values: list[float]) -> str:
    return f"{min(values):9.2f} {statistics.median(values):9.2f} {max(values):9.2f}"


def print_times(times: dict[str, list[float]], unit: str, per_second: Callable[[float], float]) -> None:
    for name, seconds in times.items():
        print(f"  {name:44} {spread([per_second(value) for value in seconds])} {unit}")


def print_ratio(label: str, slower: list[float], faster: list[float], bound: str) -> float:
    """Prints slower / faster round by round; returns the median."""
    ratios = [a / b for a, b in zip(slower, faster)]
    print(f"  {label:44} {spread(ratios)}  ({bound})")
    return statistics.median(ratios)
