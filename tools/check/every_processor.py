#!/usr/bin/env python3
"""Runs the test programs as if on other processors, and says how near their errors come to their bounds.

Usage: tools/check/every_processor.py [--build build/release] [--jobs 1] [--only WORD] [--programs NAME ...] [--markdown FILE]

- Every program that links torch, under each of ATen's levels crossed with each of oneDNN's, then under each of MKL's levels with the other two
  at their best (processor_levels.py). Which these are is read from the built programs and held against deps.toml.
- image_test on every vector unit that Highway finds, and with libjpeg-turbo held to SSE2 and to plain C.
- core_test and image_test with a C library whose mathematics use no fused multiply-adds.

A level that this processor lacks is named and not run. That a level is the one that runs is looked at, too: ATen, oneDNN and MKL name
theirs in a run of nn_test, image_test refuses a vector unit that it does not get, and the results of Python's mathematics must change with
the C library's. libjpeg-turbo says nothing: looked at is only whether the library knows the variable.

A test that compares numbers hands in the largest ratio of its errors to their bounds (tests/support/error_bound.h). Prints a line a level,
then the largest ratio of each program. Exits 1 if a test fails, a program is missing or ends badly, a level does not take, or a ratio is
above 0.5.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

import gate
import processor_levels
import run_tests

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LARGEST_RATIO = 0.5
JPEG_LEVELS = {"SSE2": {"JSIMD_FORCESSE2": "1"}, "plain C": {"JSIMD_FORCENONE": "1"}}
PLAIN_MATHEMATICS = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX512F,-FMA,-FMA4"}
LEVEL_VARIABLES = {*processor_levels.SAYS, *PLAIN_MATHEMATICS, *(name for level in JPEG_LEVELS.values() for name in level)}
TIMEOUT_SECONDS = 3600
PROBE = ("--gtest_filter=VaeGoldenTest.encoder*:TextGoldenTest.*",)  # Of nn_test: a convolution for oneDNN, a product for MKL.
MATHEMATICS = "import math; print([[f(0.37 * i + 0.1).hex() for f in (math.sin, math.log, math.atan, math.tan)] for i in range(2000)])"


@dataclasses.dataclass
class Outcome:
    num_tests: int = 0
    num_skipped: int = 0
    failures: list = dataclasses.field(default_factory=list)
    ratios: dict = dataclasses.field(default_factory=dict)  # Test -> its largest ratio of error to bound.
    properties: dict = dataclasses.field(default_factory=dict)

    def add(self, other):
        self.num_tests += other.num_tests
        self.num_skipped += other.num_skipped
        self.failures += other.failures
        for test, ratio in other.ratios.items():
            self.ratios[test] = max(self.ratios.get(test, 0.0), ratio)

    def worst(self):
        return max(self.ratios.items(), key=lambda item: item[1], default=("", 0.0))


def read_report(report, program):
    """What a test program's report says. A ratio that is not a number counts as infinite."""
    outcome = Outcome()
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            name = f"{program}: {suite['name']}.{test['name']}"
            if test["status"] != "RUN":
                continue
            outcome.num_tests += 1
            outcome.num_skipped += test["result"] == "SKIPPED"
            if test.get("failures"):
                outcome.failures.append(name)
            if "error_to_bound" in test:
                ratio = float(test["error_to_bound"])
                outcome.ratios[name] = math.inf if math.isnan(ratio) else ratio
            outcome.properties |= {key: test[key] for key in ("vector_units",) if key in test}
    return outcome


def links_torch(program):
    """Whether a built program's list of libraries names one of torch's."""
    listed = subprocess.run(["readelf", "--dynamic", "--wide", program], capture_output=True, text=True, check=True,
                            env=os.environ | {"LC_ALL": "C"}).stdout
    return "Shared library: [libtorch" in listed


def torch_programs(is_linked, modules):
    """The programs that link torch, of `is_linked` (test program -> whether it does). A module's does when deps.toml lets it include tensor,
    and no other module's; what is no module belongs to the program, and only the linker knows."""
    wrong = [f"{program} {'links torch, but deps.toml does not let it' if links else 'does not link torch, which it needs by deps.toml'}"
             for program, links in sorted(is_linked.items())
             if (module := program.removesuffix("_test")) in modules and links != run_tests.needs_torch(module, modules)]
    if wrong:
        sys.exit("every_processor: " + "; ".join(wrong))
    return sorted(program for program, links in is_linked.items() if links)


def built_torch_programs(build):
    modules = tomllib.loads((ROOT / "deps.toml").read_text(encoding="utf-8"))["modules"]
    is_linked = {}
    for program in run_tests.expected_programs("release"):
        path = build / "tests" / program
        # One that is missing fails where it is run.
        is_linked[program] = links_torch(path) if path.exists() else run_tests.needs_torch(program.removesuffix("_test"), modules)
    return torch_programs(is_linked, modules)


def environment_of(report, folder, level):
    """Of a test program under a level. The caller's shell chooses no tests and no level."""
    kept = {name: value for name, value in gate.clean_environment().items() if name not in LEVEL_VARIABLES}
    return kept | {"DARKROOM_SOURCE_DIR": str(ROOT), "GTEST_OUTPUT": f"json:{report}", "TMPDIR": str(folder)} | level


def does_not_take(build, level):
    """The variables of a level of ATen, oneDNN and MKL that change nothing, as sentences."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        environment = environment_of(report, folder, level.environment) | {"ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1"}
        try:
            said = subprocess.run([build / "tests/nn_test", *PROBE], env=environment, cwd=ROOT, capture_output=True, text=True,
                                  timeout=TIMEOUT_SECONDS).stdout
            said += f"aten_level: {json.loads(report.read_text())['aten_level']}\n"
        except (OSError, subprocess.TimeoutExpired, KeyError, ValueError) as error:
            return [f"nn_test does not say under which level it runs: {error}"]
    return [f"{name}={value} does not take" for name, value in level.environment.items() if processor_levels.SAYS[name][value] not in said]


def mathematics_does_not_take():
    plain, fused = (subprocess.run([sys.executable, "-c", MATHEMATICS], env=environment_of("", "/tmp", extra), capture_output=True, check=True).stdout
                    for extra in (PLAIN_MATHEMATICS, {}))
    return ["GLIBC_TUNABLES change no result of Python's functions"] if plain == fused else []


def jpeg_does_not_take(build):
    linked = subprocess.run(["ldd", build / "tests/image_test"], capture_output=True, text=True, check=False).stdout
    library = re.search(r"libjpeg\S* => (\S+)", linked)
    known = pathlib.Path(library.group(1)).read_bytes() if library else b""
    return [f"libjpeg-turbo does not know {name}" for level in JPEG_LEVELS.values() for name in level if name.encode() not in known]


def run_program(build, program, environment):
    path = build / "tests" / program
    if not path.exists():
        return Outcome(failures=[f"{program} is missing"])
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        try:
            code = subprocess.run([path], env=environment_of(report, folder, environment), cwd=ROOT, timeout=TIMEOUT_SECONDS, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL).returncode
        except subprocess.TimeoutExpired:
            return Outcome(failures=[f"{program} took more than {TIMEOUT_SECONDS} s"])
        if not report.exists():
            return Outcome(failures=[f"{program} ended without a report, exit {code}"])
        outcome = read_report(json.loads(report.read_text()), program)
    if outcome.num_tests == 0:
        outcome.failures.append(f"{program} ran no test")
    if code != 0 and not outcome.failures:
        outcome.failures.append(f"{program} passed its tests and ended with exit {code}")
    return outcome


def levels_of_torch(programs):
    return [(level, programs) for level in processor_levels.torch_levels()]


def image_levels(build):
    """image_test itself knows the vector units."""
    units = run_program(build, "image_test", {}).properties.get("vector_units", "").split()
    if not units:
        sys.exit("image_test does not name its vector units")
    levels = [(f"vector unit {unit}", {"DARKROOM_VECTOR_UNIT": unit}) for unit in units]
    levels += [(f"libjpeg-turbo {name}", environment) for name, environment in JPEG_LEVELS.items()]
    return [(processor_levels.Level(name, environment, ""), ["image_test"]) for name, environment in levels]


def mathematics_levels():
    lacks = processor_levels.lacking(("avx2", "fma"), processor_levels.processor_flags())
    return [(processor_levels.Level("C library without fused multiply-adds", PLAIN_MATHEMATICS, lacks), ["core_test", "image_test"])]


def run_level(pool, build, level, programs):
    outcome = Outcome()
    if set(level.environment) & set(processor_levels.SAYS):
        outcome.failures += does_not_take(build, level)
    elif level.environment == PLAIN_MATHEMATICS:
        outcome.failures += mathematics_does_not_take()
    elif level.environment in JPEG_LEVELS.values():
        outcome.failures += jpeg_does_not_take(build)
    runs = {program: pool.submit(run_program, build, program, level.environment) for program in programs}
    by_program = {program: run.result() for program, run in runs.items()}
    for part in by_program.values():
        outcome.add(part)
    test, ratio = outcome.worst()
    print(f"{level.name}: {outcome.num_tests} tests, {len(outcome.failures)} failed, {outcome.num_skipped} skipped; worst ratio {ratio:.3f} {test}",
          flush=True)
    for failure in outcome.failures:
        print(f"  failed: {failure}", flush=True)
    return by_program, outcome


def markdown(rows, worst):
    lines = ["| level | tests | failed | worst ratio | of test |", "|---|---|---|---|---|"]
    for name, outcome in rows:
        test, ratio = outcome.worst()
        lines.append(f"| {name} | {outcome.num_tests} | {len(outcome.failures)} | {ratio:.2f} | {test} |")
    lines += ["", "| program | bounded tests | worst ratio | of test |", "|---|---|---|---|"]
    for program, outcome in worst.items():
        test, ratio = outcome.worst()
        lines.append(f"| {program} | {len(outcome.ratios)} | {ratio:.2f} | {test.removeprefix(program + ': ')} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--jobs", type=int, default=1, help="programs side by side")
    parser.add_argument("--only", default="", help="levels whose name has this word")
    parser.add_argument("--programs", nargs="*", help="of those that link torch; default: all of them")
    parser.add_argument("--markdown", type=pathlib.Path, help="where the two tables go")
    flags = parser.parse_args()
    of_torch = built_torch_programs(flags.build) if flags.programs is None else [f"{name.removesuffix('_test')}_test" for name in flags.programs]
    levels = levels_of_torch(of_torch) + image_levels(flags.build) + mathematics_levels()
    rows, worst, whole = [], {}, Outcome()
    print(processor_levels.processor_name())
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        for level, programs in levels:
            if flags.only not in level.name:
                continue
            if level.lacks:
                print(f"{level.name}: not run, {level.lacks}", flush=True)
                continue
            by_program, outcome = run_level(pool, flags.build, level, programs)
            rows.append((level.name, outcome))
            whole.add(outcome)
            for program, part in by_program.items():
                worst.setdefault(program, Outcome()).add(part)
    if flags.markdown:
        flags.markdown.write_text(markdown(rows, worst))
    for program, outcome in worst.items():
        test, ratio = outcome.worst()
        print(f"{program}: worst ratio {ratio:.3f} {test.removeprefix(program + ': ')}")
    tight = {test: ratio for test, ratio in whole.ratios.items() if not ratio <= LARGEST_RATIO}
    for test, ratio in sorted(tight.items(), key=lambda item: -item[1]):
        print(f"above {LARGEST_RATIO}: {ratio:.3f} {test}")
    print(f"{len(rows)} levels, {whole.num_tests} tests, {len(whole.failures)} failed, {len(tight)} bounds with too little room")
    return 0 if rows and not whole.failures and not tight else 1


if __name__ == "__main__":
    sys.exit(main())
