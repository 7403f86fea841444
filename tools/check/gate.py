"""The gate's book-keeping: runs a check, a test program or a test script, decides whether it passed, and counts.

A test passes only when its program was there, wrote its report, the report holds no failure and no skip without a reason, the
program then ended with status 0 and no sanitizer had anything to say. Each failure names the kind of check that found it.
"""

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

PROGRAM_SECONDS = 1800  # Of a test program or script.
CHECK_SECONDS = 12 * 3600  # Of what compiles: a check as a whole, the gate's own test. One compiler on a slow machine works for hours.
# What a sanitizer writes, and what we call its finding. The exit status alone decides that a run failed; this says why.
SANITIZER_FINDINGS = [
    ("memory error", re.compile(r"(ERROR: AddressSanitizer: |WARNING: ThreadSanitizer: heap-use-after-free)[^\n]*")),
    ("data race", re.compile(r"WARNING: ThreadSanitizer: data race[^\n]*")),
    ("misuse of threads", re.compile(r"WARNING: ThreadSanitizer: [^\n]*")),
    ("leak", re.compile(r"ERROR: LeakSanitizer: [^\n]*")),
    ("undefined behaviour", re.compile(r"[^\n]*runtime error: [^\n]*")),
    ("crash", re.compile(r"ERROR: ThreadSanitizer: [^\n]*")),
    ("sanitizer's own failure", re.compile(r"(FATAL: )?(Address|Thread|Leak)Sanitizer: (CHECK failed: |unexpected memory mapping|failed to )[^\n]*")),
]
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_init_order=1:exitcode=24",
    "LSAN_OPTIONS": "exitcode=23",
    # The longest history: a finding whose earlier access has no stack left is matched by no suppression.
    "TSAN_OPTIONS": f"exitcode=66:halt_on_error=0:second_deadlock_stack=1:history_size=7:suppressions={pathlib.Path(__file__).resolve().parent / 'tsan_suppressions.txt'}",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


# Of programs with a sanitizer. libarrow's own allocator hides its memory from them: a block that another thread takes anew looks like a
# race, and an overrun like nothing.
SANITIZED_MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A failure or a skip."""

    kind: str  # Which check found it: "test", "missing program", "data race", ...
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclasses.dataclass
class Outcome:
    """What one program or script came to."""

    passed: int = 0
    failures: list[Finding] = dataclasses.field(default_factory=list)
    skips: list[Finding] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Ended:
    status: int | None  # None: killed, because it took too long.
    output: str
    seconds: float

    def sentence(self) -> str:
        if self.status is None:
            return f"did not end within {self.seconds:.0f} s"
        if self.status < 0:
            return f"died of {signal.Signals(-self.status).name}"
        return f"ended with exit status {self.status}"


OF_TESTS = ("GTEST_", "TESTBRIDGE_", "DARKROOM_")  # Variables that begin so choose tests, ask for fewer cases, change the program or its files.
# But other packages to compare with, a Python for the demo, the faults of the gate's own test, and that test programs are built already.
OF_THE_CALLER = ("DARKROOM_PEERS", "DARKROOM_PYTHON", "DARKROOM_PLANTED", "DARKROOM_BUILT")


def clean_environment() -> dict[str, str]:
    """No setting of the caller's shell may leave out tests or silence a sanitizer."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_TESTS) or name in OF_THE_CALLER}
    return {**kept, **SANITIZER_OPTIONS}


RUNNING: set[int] = set()  # Process groups.


def kill_running_programs() -> None:
    for group in list(RUNNING):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass  # It has just ended.


def run_program(command: list, log: pathlib.Path, environment: dict[str, str], cwd: pathlib.Path, seconds: float) -> Ended:
    """Runs a command and what it starts; its whole output is left in `log`."""
    start = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as file:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment, cwd=cwd,
                                   process_group=0)
        RUNNING.add(process.pid)
        try:
            status = process.wait(seconds)
        except BaseException as stopped:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(stopped, subprocess.TimeoutExpired):
                raise
            status = None
        finally:
            RUNNING.discard(process.pid)
    return Ended(status, log.read_text(encoding="utf-8", errors="replace"), time.monotonic() - start)


def sanitizer_finding(output: str) -> tuple[str, str] | None:
    for kind, pattern in SANITIZER_FINDINGS:
        found = pattern.search(output)
        if found:
            return kind, found[0].strip()
    return None


def sanitizer_report(output: str) -> str:
    """The first finding's lines, after the test in which it came; nothing where there is none."""
    at = min((found.start() for _, pattern in SANITIZER_FINDINGS if (found := pattern.search(output))), default=None)
    if at is None:
        return ""
    tests = re.findall(r"^\[ RUN      \] .*$", output[:at], re.MULTILINE)[-1:]
    return "\n".join(tests + output[output.rfind("\n", 0, at) + 1 :].splitlines()[:80])


# A line of a stack: with debug symbols a source file, else the library and the place in it.
IN_SOURCE = re.compile(r"\s+#\d+ (?:0x[0-9a-f]+ in )?(?P<function>.*?)(?:\(.*)? (?:\S+/)?(?P<place>[^/ ]+:\d+|<null>)")
IN_LIBRARY = re.compile(r"\s+#\d+ (?:0x[0-9a-f]+ +(?:in )?)?(?P<function>.*?) *\((?:\S*/)?(?P<place>[^/()]+\+0x[0-9a-f]+|<unknown module>)\)")


def sanitizer_places(output: str) -> str:
    """The first finding in a line: the test, and of each of its stacks the functions nearest to it. The last lines of a long run are often
    all that is kept of it.
    """
    test, *lines = sanitizer_report(output).splitlines() or [""]
    stacks = [[]]
    for line in lines:
        frame = IN_SOURCE.match(line) or IN_LIBRARY.match(line)
        if frame:
            stacks[-1].append(f"{frame['function'][:60]} {frame['place']}")
        elif stacks[-1]:
            stacks.append([])
    return "; ".join([test.removeprefix("[ RUN      ] "), *(" < ".join(frames[:6]) for frames in stacks[:2])])


def read_report(path: pathlib.Path) -> list[dict] | None:
    """The cases of a GoogleTest JSON report; None when there is none, or not a whole one."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        return [case for suite in report["testsuites"] for case in suite["testsuite"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_script_report(path: pathlib.Path) -> dict[str, list] | None:
    """What a test script ran (tests/integration/cases.py); None when there is no report, or not a whole one."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        return {"passed": list(report["passed"]), **{key: [(name, reason) for name, reason in report[key]] for key in ("failed", "skipped")}}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def skip_reason(case: dict, output: str) -> str:
    """Why a test was skipped: the report says it from GoogleTest 1.13 on, the output before."""
    for message in case.get("skipped", []):
        return message.get("message", "").partition("\n")[2].strip()
    name = f"{case['classname']}.{case['name']}"
    said = re.search(rf"^\[ RUN      \] {re.escape(name)}\n(?P<said>(?:.*\n)*?)\[  SKIPPED \] {re.escape(name)}", output, re.MULTILINE)
    after = re.search(r"Skipped\n(?P<why>(?:.*\n?)*)", said["said"]) if said else None
    return after["why"].strip() if after else ""


def judge_cases(program: str, cases: list[dict], output: str) -> Outcome:
    """Counts a report's cases. A test that is switched off, or skipped without a word, is a failure."""
    outcome = Outcome()
    for case in cases:
        name = f"{program} {case['classname']}.{case['name']}"
        if case.get("failures"):
            outcome.failures.append(Finding("test", name, case["failures"][0]["failure"].strip().replace("\n", " ")[:300]))
        elif case.get("status") != "RUN":
            outcome.failures.append(Finding("silent skip", name, "is switched off; skip it with a reason, or mend it"))
        elif case.get("result") == "SKIPPED":
            reason = skip_reason(case, output)
            if reason:
                outcome.skips.append(Finding("skip", name, reason))
            else:
                outcome.failures.append(Finding("silent skip", name, "was skipped without a reason"))
        else:
            outcome.passed += 1
    return outcome


def judge_test_program(program: str, ended: Ended, cases: list[dict] | None) -> Outcome:
    """What a test program's report, its exit status and its last words come to together."""
    outcome = judge_cases(program, cases, ended.output) if cases is not None else Outcome()
    finding = sanitizer_finding(ended.output)
    has_failed_tests = any(failure.kind == "test" for failure in outcome.failures)
    if finding is not None:
        outcome.failures.append(Finding(finding[0], program, f"{finding[1]} ({ended.sentence()}): {sanitizer_places(ended.output)}"))
    elif ended.status is None:
        outcome.failures.append(Finding("hang", program, ended.sentence()))
    elif cases is None:
        outcome.failures.append(Finding("no report", program, f"{ended.sentence()} before its report was written"))
    elif ended.status != (1 if has_failed_tests else 0):
        outcome.failures.append(Finding("death after the report", program, f"{ended.sentence()} after its report was written"))
    if cases == []:
        outcome.failures.append(Finding("no tests", program, "holds no test"))
    return outcome


def judge_script(script: str, ended: Ended, report: dict | None) -> Outcome:
    """The same for a test script that tells its counts as tests/integration/cases.py does."""
    if report is None:
        kind = "hang" if ended.status is None else "no report"
        return Outcome(failures=[Finding(kind, script, f"{ended.sentence()} before its report was written")])
    outcome = Outcome(passed=len(report["passed"]))
    outcome.failures = [Finding("test", f"{script} {name}", reason.replace("\n", " ")[:300]) for name, reason in report["failed"]]
    for name, reason in report["skipped"]:
        if reason:
            outcome.skips.append(Finding("skip", f"{script} {name}", reason))
        else:
            outcome.failures.append(Finding("silent skip", f"{script} {name}", "was skipped without a reason"))
    if ended.status is None:
        outcome.failures.append(Finding("hang", script, ended.sentence()))
    elif ended.status != (1 if report["failed"] else 0):
        outcome.failures.append(Finding("death after the report", script, f"{ended.sentence()} after its report was written"))
    if not (report["passed"] or report["failed"] or report["skipped"]):
        outcome.failures.append(Finding("no tests", script, "holds no test"))
    return outcome


def judge_plugin_test(name: str, ended: Ended) -> Outcome:
    """What plugin_test came to, which writes no report: it ends with 0, and says "skip" first where there is no GPU."""
    if ended.status != 0:
        return Outcome(failures=[Finding("CUDA kernels", name, ended.sentence())])
    if ended.output.startswith("skip"):
        return Outcome(skips=[Finding("skip", name, ended.output.splitlines()[0])])
    return Outcome(passed=1)


class Gate:
    """Runs steps on a tree, prints a line for each, and keeps the sums and every log (build/test-logs). Any thread may run one."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.logs = root / "build" / "test-logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.total = Outcome()
        self.lock = threading.RLock()  # Of the sums and the lines: programs may run side by side.

    def check(self, kind: str, command: list, **environment: str) -> bool:
        """A command that passes or fails as a whole."""
        log = self.logs / (re.sub(r"\W+", "-", kind) + ".log")
        ended = run_program(command, log, {**clean_environment(), **environment}, self.root, CHECK_SECONDS)
        failures = [] if ended.status == 0 else [Finding(kind, kind, ended.sentence())]
        self.add(kind, Outcome(passed=int(not failures), failures=failures), ended, log)
        return ended.status == 0

    def test_program(self, folder: pathlib.Path, name: str) -> None:
        """Runs BUILD/tests/NAME and judges it. A program that is not there fails."""
        title = f"{folder.name}/{name}"
        program = folder / "tests" / name
        if not os.access(program, os.X_OK):
            self.fail("missing program", title, f"was expected, and is not there: {program.relative_to(self.root)}")
            return
        log = self.logs / folder.name / f"{name}.log"
        report = log.with_suffix(".json")
        report.unlink(missing_ok=True)
        environment = {**clean_environment(), "DARKROOM_SOURCE_DIR": str(self.root), "GTEST_OUTPUT": f"json:{report}"}
        if folder.name != "release":
            environment |= SANITIZED_MEMORY
        ended = run_program([program], log, environment, self.root, PROGRAM_SECONDS)
        self.add(title, judge_test_program(title, ended, read_report(report)), ended, log)

    def test_script(self, python: pathlib.Path, script: pathlib.Path, seconds: float = PROGRAM_SECONDS) -> None:
        title = f"{script.parent.name}/{script.stem.removesuffix('_test')}"
        if not script.is_file():
            self.fail("missing script", title, f"is in the repository's list, and is not there: {script.relative_to(self.root)}")
            return
        log = self.logs / "integration" / f"{script.stem}.log"
        report = log.with_suffix(".json")
        report.unlink(missing_ok=True)
        ended = run_program([python, script], log, {**clean_environment(), "DARKROOM_TEST_REPORT": str(report)}, self.root, seconds)
        self.add(title, judge_script(title, ended, read_script_report(report)), ended, log)

    def fail(self, kind: str, name: str, reason: str) -> None:
        with self.lock:
            self.total.failures.append(Finding(kind, name, reason))
            print(f"test: FAILED   {name}: {reason}", flush=True)

    def skip(self, name: str, reason: str) -> None:
        with self.lock:
            self.total.skips.append(Finding("skip", name, reason))
            print(f"test: skipped  {name}: {reason}", flush=True)

    def add(self, title: str, outcome: Outcome, ended: Ended, log: pathlib.Path) -> None:
        with self.lock:
            self.total.passed += outcome.passed
            self.total.failures += outcome.failures
            self.total.skips += outcome.skips
            word = "FAILED  " if outcome.failures else "ok      "
            print(f"test: {word} {title}: {outcome.passed} passed{f', {len(outcome.failures)} failed' if outcome.failures else ''}"
                  f"{f', {len(outcome.skips)} skipped' if outcome.skips else ''} ({ended.seconds:.1f} s)", flush=True)
            if outcome.failures:
                lines = [line for line in ended.output.splitlines() if not re.match(r"\[ (RUN|      OK) ", line)]
                print("\n".join(filter(None, [sanitizer_report(ended.output), *lines[-60:]])))
                print(f"test: the whole output is {log.relative_to(self.root)}", flush=True)

    def finish(self) -> bool:
        """Prints what failed and what was not run, each with its reason, and the sums; CI reads the last line."""
        for skip in self.total.skips:
            print(f"test: skipped: {skip}")
        for failure in self.total.failures:
            print(f"test: failed: {failure} [{failure.kind}]")
        with open(self.logs / "summary.json", "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(self.total), file, indent=1)
        print(f"{self.total.passed} passed, {len(self.total.failures)} failed, {len(self.total.skips)} skipped", flush=True)
        return not self.total.failures
