#!/usr/bin/env python3
"""The gate's own test: each planted fault turns it red, by the check meant for it and by no other.

A house of two modules (tests/gate/house) is copied to build/gate-test together with the real tools/check, cmake/, tests/CMakeLists.txt and presets; there the
real tools/check/run_tests.py runs whole, once without a fault and once with each.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tools" / "check")]

import gate  # noqa: E402
from cases import main, require  # noqa: E402

HOUSE = ROOT / "build" / "gate-test"  # Always the same place, so that the compiler's cache knows it.
REAL_PARTS = ("tools/check", "cmake", "tests/CMakeLists.txt", "CMakePresets.json", "tools/build", ".clang-format", "tests/integration/cases.py")
STEPS = ("structure", "format", "release", "integration", "asan-ubsan", "tsan")
PRESETS = ("release", "asan-ubsan", "tsan")
NUM_TESTS = 8 * len(PRESETS) + 3  # Of the two test programs in each preset, and of the script.
NUM_CHECKS = 2 + 2 + len(PRESETS)  # Structure, format; every test built, every header alone; builds.


def build_house() -> None:
    shutil.rmtree(HOUSE, ignore_errors=True)
    shutil.copytree(ROOT / "tests" / "gate" / "house", HOUSE)
    for part in REAL_PARTS:
        source, target = ROOT / part, HOUSE / part
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    (HOUSE / ".venv" / "bin").mkdir(parents=True)
    (HOUSE / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (HOUSE / ".gitignore").write_text("/build/\n/.venv/\n__pycache__/\n")
    subprocess.run(["git", "init", "--quiet", str(HOUSE)], check=True)
    subprocess.run(["git", "add", "--all"], cwd=HOUSE, check=True)


def run_gate(planted: str = "", **environment: str) -> tuple[int, dict, str]:
    """The gate's exit status, its sums and its last line."""
    summary = HOUSE / "build" / "test-logs" / "summary.json"
    summary.unlink(missing_ok=True)
    done = subprocess.run([sys.executable, HOUSE / "tools" / "check" / "run_tests.py", *STEPS], cwd=HOUSE, capture_output=True, text=True, check=False,
                          env={**os.environ, "DARKROOM_PLANTED": planted, **environment})
    require(summary.exists(), "the gate wrote no summary:", done.stdout[-2000:], done.stderr[-2000:])
    return done.returncode, json.loads(summary.read_text()), done.stdout.splitlines()[-1]


def require_red(kind: str, names: set[str], planted: str = "") -> None:
    """The gate fails with findings of this kind alone, about these programs or checks alone."""
    status, total, last = run_gate(planted)
    found = {(failure["kind"], failure["name"].split(" ")[0] if failure["kind"] != failure["name"] else failure["name"]) for failure in total["failures"]}
    require(found == {(kind, name) for name in names}, f"'{planted or kind}' is found by other checks than the one meant, or by none:", sorted(found), last)
    require(status == 1 and f" {len(total['failures'])} failed" in last, "the gate's exit status and last line:", status, last)


def in_presets(program: str, presets: tuple = PRESETS) -> set[str]:
    return {f"{preset}/{program}" for preset in presets}


class Changed:
    """A file of the house that is another for a while."""

    def __init__(self, path: str, change):
        self.path = HOUSE / path
        self.before = self.path.read_bytes() if self.path.exists() else None
        text = change(self.before.decode() if self.before is not None else "")
        require(self.before is None or text != self.before.decode(), "the fault is not planted:", path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text)

    def __enter__(self) -> "Changed":
        return self

    def __exit__(self, *unused) -> None:
        self.path.write_bytes(self.before) if self.before is not None else self.path.unlink()


def without_a_fault_everything_passes() -> None:
    build_house()
    status, total, last = run_gate()
    require(status == 0 and last == f"{NUM_TESTS + NUM_CHECKS} passed, 0 failed, 0 skipped", "a clean house:", status, last, total["failures"])


def a_test_that_fails() -> None:
    require_red("test", in_presets("core_test"), "failure")


def a_data_race() -> None:
    require_red("data race", {"tsan/files_test"}, "race")


def a_leak() -> None:
    require_red("leak", {"asan-ubsan/core_test"}, "leak")


def undefined_behaviour() -> None:
    require_red("undefined behaviour", {"asan-ubsan/core_test"}, "undefined behaviour")


def a_use_after_free() -> None:
    require_red("memory error", {"asan-ubsan/core_test", "tsan/core_test"}, "memory error")


def a_crash_after_the_report() -> None:
    require_red("death after the report", in_presets("core_test"), "crash")


def an_exit_status_after_the_report() -> None:
    require_red("death after the report", in_presets("core_test"), "exit status")


def an_end_with_status_0_before_the_report() -> None:
    require_red("no report", in_presets("core_test"), "early death")


def a_program_that_does_not_end() -> None:
    log = HOUSE / "build" / "test-logs" / "endless.log"
    ended = gate.run_program(["sleep", "60"], log, gate.clean_environment(), HOUSE, seconds=0.3)
    kinds = [failure.kind for failure in gate.judge_test_program("endless", ended, None).failures]
    require(kinds == ["hang"], "a program that sleeps:", kinds)


def a_missing_program() -> None:
    with Changed("cmake/modules.cmake", lambda text: text.replace('DIRECTORY "${CMAKE_BINARY_DIR}/tests"', 'DIRECTORY "${CMAKE_BINARY_DIR}/${module}"')):
        for preset in PRESETS:
            shutil.rmtree(HOUSE / "build" / preset / "tests", ignore_errors=True)
        require_red("missing program", in_presets("core_test") | in_presets("files_test"))


def a_missing_script() -> None:
    script = HOUSE / "tests" / "integration" / "script_test.py"
    text = script.read_text()
    script.unlink()
    try:
        require_red("missing script", {"integration/script"})
    finally:
        script.write_text(text)


def a_silent_skip() -> None:
    require_red("silent skip", in_presets("core_test"), "silent skip")


def a_test_that_is_switched_off() -> None:
    with Changed("tests/unit/files/counter_test.cpp", lambda text: text.replace("counts_what", "DISABLED_counts_what")):
        require_red("silent skip", in_presets("files_test"))


def a_skip_with_a_reason_is_counted_and_said() -> None:
    for planted, number in (("skip", len(PRESETS)), ("script skip", 1)):
        status, total, last = run_gate(planted)
        require(status == 0 and last.endswith(f"passed, 0 failed, {number} skipped"), planted, status, last)
        require(all("this machine lacks a thing" in skip["reason"] for skip in total["skips"]), planted, total["skips"])


def settings_of_the_callers_shell_leave_out_nothing() -> None:
    status, total, last = run_gate("leak", GTEST_FILTER="-*", ASAN_OPTIONS="detect_leaks=0", LSAN_OPTIONS="exitcode=0")
    require(status == 1 and [failure["kind"] for failure in total["failures"]] == ["leak"], "a leak, with a shell that hides it:", status, last)


def a_script_that_fails_or_dies() -> None:
    require_red("test", {"integration/script"}, "script failure")
    require_red("no report", {"integration/script"}, "script death")


def a_broken_module_order() -> None:
    with Changed("src/core/planted.cpp", lambda text: text.replace("#include <cstdlib>", '#include <cstdlib>\n\n#include "darkroom/files/counter.h"')):
        require_red("structure", {"structure"})


def a_module_that_is_not_there() -> None:
    with Changed("CMakeLists.txt", lambda text: text.replace("darkroom_module(files", "darkroom_module(absent)\ndarkroom_module(files")):
        status, total, last = run_gate()
        names = {failure["kind"] for failure in total["failures"]}
        require(status == 1 and names == {f"build {preset}" for preset in PRESETS}, "a module without sources:", names, last)


def a_test_that_no_target_builds() -> None:
    with Changed("tests/unit/core/deep/lost_test.cpp", lambda _: "#include <gtest/gtest.h>\n\nTEST(lost, is_never_run) { FAIL(); }\n"):
        require_red("every test is built", {"every test is built"})


def a_header_that_does_not_compile_alone() -> None:
    with Changed("include/darkroom/files/lame.h", lambda _: "#pragma once\n\nstd::string lame();\n"):
        require_red("every header compiles alone", {"every header compiles alone"})


def an_unformatted_file() -> None:
    with Changed("include/darkroom/files/untidy.h", lambda _: "#pragma once\n\nint   untidy( );\n"):
        require_red("format", {"format"})


if __name__ == "__main__":
    main([
        without_a_fault_everything_passes,
        a_test_that_fails,
        a_data_race,
        a_leak,
        undefined_behaviour,
        a_use_after_free,
        a_crash_after_the_report,
        an_exit_status_after_the_report,
        an_end_with_status_0_before_the_report,
        a_program_that_does_not_end,
        a_silent_skip,
        a_skip_with_a_reason_is_counted_and_said,
        settings_of_the_callers_shell_leave_out_nothing,
        a_script_that_fails_or_dies,
        a_missing_script,
        a_broken_module_order,
        a_test_that_no_target_builds,
        a_header_that_does_not_compile_alone,
        an_unformatted_file,
        a_test_that_is_switched_off,
        a_missing_program,
        a_module_that_is_not_there,
    ])
