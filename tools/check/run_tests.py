#!/usr/bin/env python3
"""The whole test run. Prints a line a step, then what failed and what was skipped, and last "N passed, N failed, N skipped".

usage: run_tests.py [STEP...]
Steps, in their order: structure format release integration acceptance gate asan-ubsan tsan cuda; without a name all of them. `release` builds everything,
checks that every test is in the build and every header compiles alone, and runs the unit tests; `asan-ubsan` and `tsan` run the tests of the
modules that need no torch under the sanitizers (`tsan`: those that start threads, threaded_tests.py); `gate` plants faults and sees this program turn red.
Logs are left in build/test-logs. Exits 1 when anything failed.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tomllib

import check_structure
import gate
import threaded_tests

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SANITIZERS = ("asan-ubsan", "tsan")
STEPS = ("structure", "format", "release", "integration", "acceptance", "gate", *SANITIZERS, "cuda")


def needs_torch(module: str, table: dict[str, list[str]]) -> bool:
    """Whether only a build with torch has the module; what is no module belongs to the program, which has all of them."""
    return module not in table or "tensor" in check_structure.reachable(module, table)


def has_torch(preset: str) -> bool:
    presets = {entry["name"]: entry for entry in json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]}
    while preset is not None:
        if "DARKROOM_TORCH" in presets[preset].get("cacheVariables", {}):
            return presets[preset]["cacheVariables"]["DARKROOM_TORCH"] == "ON"
        preset = presets[preset].get("inherits")
    return True


def expected_programs(preset: str) -> list[str]:
    """The test programs that a preset must give, from the folders of tests and deps.toml; CMake is not asked."""
    table = tomllib.loads((ROOT / "deps.toml").read_text(encoding="utf-8"))["modules"]
    tested = {folder.name for folder in (ROOT / "tests" / "unit").iterdir() if folder.is_dir()} | (table.keys() - check_structure.WITHOUT_UNIT_TESTS)
    programs = [f"{name}_test" for name in tested if has_torch(preset) or not needs_torch(name, table)]
    if preset == "tsan":
        return sorted(f"{name}_test" for name in tested if f"{name}_test" in programs and threaded_tests.threaded_tests(name))
    if preset == "asan-ubsan" and "plugin" in table:  # Its kernels on the CPU (tests/kernel_emulation): without the sanitizers it sees less.
        programs.append("kernel_emulation_test")
    return sorted(programs)


def expected_scripts() -> list[pathlib.Path]:
    """Every integration script that git knows or that lies there."""
    folder = ROOT / "tests" / "integration"
    listed = subprocess.run(["git", "ls-files", "tests/integration/*_test.py"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    return sorted({ROOT / path for path in listed} | set(folder.glob("*_test.py")))


def build_command(preset: str) -> list:
    others = ["helpers", *(["python"] if (ROOT / "python" / "CMakeLists.txt").exists() else [])] if preset == "release" else []  # No part of `all`.
    targets = expected_programs(preset) if preset in SANITIZERS else ["all", *others]
    return [ROOT / "tools" / "build" / "build.sh", preset, *targets]


def start_sanitizer_builds(presets: list[str]) -> subprocess.Popen | None:
    """Compiles while the tests run, with what the tests leave of the cores. What it says is said again by the step's own build."""
    if not presets:
        return None
    command = "; ".join(shlex.join(map(str, build_command(preset))) for preset in presets)
    return subprocess.Popen(["nice", "-n", "19", "sh", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run_side_by_side(run_one, names: list, num: int) -> None:
    """`num` at a time; none is started any more after Ctrl-C."""
    with concurrent.futures.ThreadPoolExecutor(num) as threads:
        try:
            list(threads.map(run_one, names))
        except BaseException:  # Ctrl-C reaches this thread alone.
            threads.shutdown(wait=False, cancel_futures=True)
            gate.kill_running_programs()
            raise


def run_unit_tests(run: gate.Gate, preset: str, num: int) -> None:
    run_side_by_side(lambda program: run.test_program(ROOT / "build" / preset, program), expected_programs(preset), num)


def run_release(run: gate.Gate) -> bool:
    """False when there is no program to test."""
    if not run.check("build release", build_command("release")):
        return False
    build = ROOT / "build" / "release"
    run.check("every test is built", [ROOT / "tools" / "check" / "check_structure.py", build])
    run.check("every header compiles alone", [ROOT / "tools" / "check" / "check_headers.py", build])
    return True


def run_cuda(run: gate.Gate) -> None:
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=False).stdout if shutil.which("nvcc") else ""
    if "release 13" not in version:
        run.skip("CUDA plugin", "there is no nvcc of CUDA 13 here")
        return
    if run.check("build cuda", [ROOT / "tools" / "build" / "build.sh", "cuda", "libdarkroom_cuda.so", "plugin_test"]):
        log = run.logs / "plugin_test.log"
        ended = gate.run_program([ROOT / "build" / "cuda" / "plugin_test"], log, gate.clean_environment(), ROOT, gate.PROGRAM_SECONDS)
        title = "CUDA kernels against their references"
        run.add(title, gate.judge_plugin_test(title, ended), ended, log)


def main() -> None:
    chosen = sys.argv[1:] or list(STEPS)
    unknown = [step for step in chosen if step not in STEPS]
    if unknown:
        sys.exit(f"run_tests: no step is called {', '.join(unknown)}; there are: {' '.join(STEPS)}")
    run = gate.Gate(ROOT)
    if "structure" in chosen:
        run.check("structure", [ROOT / "tools" / "check" / "check_structure.py"])
    if "format" in chosen:
        run.check("format", [ROOT / "tools" / "check" / "check_format.sh"])
    is_built = "release" not in chosen or run_release(run)
    builds = start_sanitizer_builds([preset for preset in SANITIZERS if preset in chosen])
    cores = len(os.sched_getaffinity(0))  # Most programs and scripts have one thread, or wait.
    if is_built and "release" in chosen:
        run_unit_tests(run, "release", cores)
    scripts = [(script, gate.PROGRAM_SECONDS) for script in expected_scripts() if is_built and "integration" in chosen]
    if is_built and "acceptance" in chosen:
        scripts.append((ROOT / "tests" / "acceptance" / "acceptance.py", gate.CHECK_SECONDS))
    if "gate" in chosen:
        scripts.append((ROOT / "tests" / "gate" / "gate_test.py", gate.CHECK_SECONDS))
    run_side_by_side(lambda script: run.test_script(ROOT / ".venv" / "bin" / "python", *script), scripts, min(cores, 2))
    if builds is not None:
        builds.wait()
    for preset in SANITIZERS:
        if preset in chosen and run.check(f"build {preset}", build_command(preset)):
            run_unit_tests(run, preset, cores + 1)
    if "cuda" in chosen:
        run_cuda(run)
    sys.exit(0 if run.finish() else 1)


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
