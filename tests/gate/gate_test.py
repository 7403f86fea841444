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
import tomllib
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tools" / "check")]

import every_processor  # noqa: E402
import gate  # noqa: E402
import mutants  # noqa: E402
from cases import main, require  # noqa: E402

HOUSE = ROOT / "build" / "gate-test"  # Always the same place, so that the compiler's cache knows it.
REAL_PARTS = ("tools/check", "cmake", "tests/CMakeLists.txt", "CMakePresets.json", "tools/build", ".clang-format", "tests/integration/cases.py")
STEPS = ("structure", "format", "release", "integration", "asan-ubsan", "tsan")
PRESETS = ("release", "asan-ubsan", "tsan")
NUM_TESTS = 10 * len(PRESETS) + 5  # Of the two test programs in each preset, and of the script.
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
    (HOUSE / ".venv" / "bin" / "clang-format").symlink_to(ROOT / ".venv" / "bin" / "clang-format")
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


def require_red(kind: str, names: set[str], planted: str = "") -> list[dict]:
    """The gate fails with findings of this kind alone, about these programs or checks alone; returns them."""
    status, total, last = run_gate(planted)
    found = {(failure["kind"], failure["name"].split(" ")[0] if failure["kind"] != failure["name"] else failure["name"]) for failure in total["failures"]}
    require(found == {(kind, name) for name in names}, f"'{planted or kind}' is found by other checks than the one meant, or by none:", sorted(found), last)
    require(status == 1 and f" {len(total['failures'])} failed" in last, "the gate's exit status and last line:", status, last)
    return total["failures"]


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
    reason = require_red("data race", {"tsan/files_test"}, "race")[0]["reason"]
    require("counter.counts_what_two_threads_add" in reason and "add counter.cpp:" in reason, "the last lines name the test and the place:", reason)


def a_leak() -> None:
    require_red("leak", {"asan-ubsan/core_test"}, "leak")


def a_finding_in_a_library_names_it() -> None:
    places = gate.sanitizer_places("""[ RUN      ] jpeg.writes
ERROR: LeakSanitizer: detected memory leaks
    #0 0x7f00 in __interceptor_malloc ../../src/asan_malloc_linux.cpp:69
    #1 0x7f01 in jpeg_mem_dest (/usr/lib/libjpeg.so.62+0x1cedd) (BuildId: 12)
    #2 0x7f02  (/usr/lib/libjpeg.so.62+0x12)
    #3 0x7f03 in std::call(int) (/usr/lib/libstdc++.so.6+0x3)
    #4 0x7f04  (<unknown module>)
    #5 0x7f05 in main /folder/main.cpp:12:3""")
    want = "__interceptor_malloc asan_malloc_linux.cpp:69 < jpeg_mem_dest libjpeg.so.62+0x1cedd <  libjpeg.so.62+0x12 < std::call(int) libstdc++.so.6+0x3 <  <unknown module> < main main.cpp:12:3"
    require(places == f"jpeg.writes; {want}", "a finding's places:", places)


def a_sanitizer_that_dies_itself_is_named() -> None:
    for said, kind in (('ThreadSanitizer: CHECK failed: sanitizer_common.h:494 "((i)) < ((size_))" (0xffffffff, 0x8e9) (tid=1)', "sanitizer's own failure"),
                       ("FATAL: ThreadSanitizer: unexpected memory mapping 0x1-0x2", "sanitizer's own failure"),
                       ("==1==ERROR: ThreadSanitizer: SEGV on unknown address 0x000000000000", "crash")):
        output = f"[ RUN      ] loop.runs\n{said}\n    #0 epoll_ctl <null> (web_test+0x9a864)\n    #1 on_socket /folder/http_multi.cpp:72:5 (web_test+0x3a)\n"
        (failure,) = gate.judge_test_program("tsan/web_test", gate.Ended(66, output, 1.0), None).failures
        require(failure.kind == kind and "loop.runs" in failure.reason and "on_socket http_multi.cpp:72" in failure.reason, "the kind and the place:", failure)


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
    with Changed("tools/check/gate.py", lambda text: text.replace("PROGRAM_SECONDS = 1800", "PROGRAM_SECONDS = 15")):
        require_red("hang", in_presets("core_test") | {"integration/script"}, "hang")


def a_program_without_tests() -> None:
    with Changed("tests/unit/files/counter_test.cpp", lambda text: text.replace("TEST(counter, counts_what", "[[maybe_unused]] void counts_what").replace("threads_add)", "threads_add()")):
        require_red("no tests", in_presets("files_test"))


def a_script_without_tests() -> None:
    require_red("no tests", {"integration/script"}, "no script tests")


def a_misuse_of_threads() -> None:
    require_red("misuse of threads", {"tsan/core_test"}, "misuse of threads")


def only_a_plugin_test_that_ends_well_may_skip() -> None:
    for status, output, want in ((0, "skip all: no GPU\n0 passed", (0, 0, 1)), (1, "skip all: no GPU\nFAILED", (0, 1, 0)), (0, "ok matrix\n1 passed", (1, 0, 0)),
                                 (-6, "", (0, 1, 0)), (None, "skip one\n", (0, 1, 0))):
        outcome = gate.judge_plugin_test("plugin", gate.Ended(status, output, 1.0))
        got = (outcome.passed, len(outcome.failures), len(outcome.skips))
        require(got == want, "status, output, got, want:", status, repr(output), got, want)


def a_noticed_fault_is_planted_again_when_the_test_that_noticed_it_changes() -> None:
    record = mutants.Record(HOUSE / "build" / "record.jsonl")
    fault = type("Fault", (), {"key": "a fault"})
    entry = {"key": "a fault", "verdict": "noticed", "program": "core_test", "how": "planted.ends", "ground": "then"}
    record.add(entry)
    require(record.known(fault, "now", False, HOUSE) == entry, "an older record has no digest of its test, and is kept")
    record.add({**entry, "witness": mutants.witness_of("core_test", "planted.ends", HOUSE)})
    require(record.known(fault, "now", False, HOUSE) is not None, "nothing has changed")
    with Changed("tests/unit/core/other_test.cpp", lambda _: "TEST(other, test) {}\n"):
        require(record.known(fault, "now", False, HOUSE) is not None, "another file of the program changed")
    with Changed("tests/unit/core/planted_test.cpp", lambda text: text.replace("hours(1)", "hours(2)")):
        require(record.known(fault, "now", False, HOUSE) is None, "the test that noticed it changed")
    record.add({**entry, "how": "exit status -6", "witness": mutants.witness_of("core_test", "exit status -6", HOUSE)})
    with Changed("tests/unit/core/other_test.cpp", lambda _: "TEST(other, test) {}\n"):
        require(record.known(fault, "now", False, HOUSE) is None, "which test noticed it is not known, so any may have")


def mutants_judges_what_its_line_says() -> None:
    def faults(noticed: int, survived: int) -> dict:
        entry = {"path": "src/core/planted.cpp", "line": "return;", "old": "return"}
        return {"core": [{**entry, "verdict": verdict} for verdict, count in (("noticed", noticed), ("survived", survived)) for _ in range(count)]}

    why = {("src/core/planted.cpp", "return;", "return"): "why not"}
    for found, reasons, least, wants_reasons, words in (
        (faults(85, 15), why, 100, True, []), (faults(85, 15), {}, 100, False, []), (faults(84, 16), why, 100, True, ["85 %"]), (faults(85, 15), why, 101, True, ["fewer than 101"]),
        (faults(85, 15), {}, 100, True, ["15 survivors have no reason"]), (faults(0, 1), {}, 2, True, ["85 %", "fewer than 2", "1 survivors"]), (faults(0, 0), why, 1, True, ["85 %", "fewer than 1"]),
    ):
        short = mutants.shortcomings(found, reasons, 0.85, least, wants_reasons)
        require(len(short) == len(words) and all(word in text for word, text in zip(words, short, strict=True)), "what a run falls short of:", short, "want", words)


def mutants_copies_an_archive_as_it_does_a_checkout() -> None:
    """What is ignored is no part of either; an archive has no git to say so."""
    with Changed("src/core/__pycache__/scrap.pyc", lambda _: "scrap"), Changed("build/scrap.cpp", lambda _: "scrap"), Changed(".venv/scrap.py", lambda _: "scrap"):
        of_checkout = mutants.listed_files(HOUSE)
        (HOUSE / ".git").rename(HOUSE / "aside")
        try:
            of_archive = mutants.listed_files(HOUSE)
        finally:
            (HOUSE / "aside").rename(HOUSE / ".git")
    require(of_archive == of_checkout and "src/core/planted.cpp" in of_archive and "CMakeLists.txt" in of_archive, "files of one of them alone:", sorted(of_archive ^ of_checkout))


def a_program_that_links_torch_runs_on_every_processor() -> None:
    modules = {"core": [], "tensor": ["core"], "nn": ["tensor"]}
    is_linked = {"core_test": False, "tensor_test": True, "nn_test": True, "data_bench_test": True, "doctor_test": False}
    got = every_processor.torch_programs(is_linked, modules)
    require(got == ["data_bench_test", "nn_test", "tensor_test"], "the programs that link torch:", got)
    for program, links in (("core_test", True), ("nn_test", False)):
        try:
            every_processor.torch_programs({**is_linked, program: links}, modules)
        except SystemExit as refused:
            require(program in str(refused), "which program deps.toml contradicts:", refused)
        else:
            raise AssertionError(f"{program} is not what deps.toml says, and nothing was said")
    require(every_processor.links_torch(pathlib.Path(sys.executable).resolve()) is False, "Python links torch")


def structure_findings() -> list[str]:
    """What check_structure.py finds in the house."""
    done = subprocess.run([sys.executable, HOUSE / "tools" / "check" / "check_structure.py"], capture_output=True, text=True, check=False)
    *findings, last = done.stdout.splitlines()
    require(done.returncode == (1 if findings else 0) and f" {len(findings)} findings" in last, "the structure's status and sum:", done)
    return findings


def a_table_without_a_notice() -> None:
    notices = Changed("THIRD_PARTY_NOTICES.md", lambda _: "| `src/core/my_foreign_table.inc` | |\n")
    with Changed("src/core/foreign_table.inc", lambda _: "1,\n"), Changed("src/core/my_foreign_table.inc", lambda _: "1,\n"), notices:
        found = structure_findings()
        require(len(found) == 1 and found[0].startswith("src/core/foreign_table.inc: "), "a table whose origin is not named:", found)
    with Changed("src/core/foreign_table.inc", lambda _: "1,\n"), Changed("THIRD_PARTY_NOTICES.md", lambda _: "| `core/foreign_table.inc` | |\n"):
        require(structure_findings() == [], "a table whose origin is named:", structure_findings())


def a_library_without_a_notice() -> None:
    with Changed("deps.toml", lambda text: text + 'openssl = ["core"]\n'):
        for notices, is_wrong in (("| libcurl-openssl | |\n", True), ("| OpenSSLish | |\n", True), ("| OpenSSL 3 | Apache-2.0 |\n", False)):
            with Changed("THIRD_PARTY_NOTICES.md", lambda _, notices=notices: notices):
                found = structure_findings()
                require(len(found) == is_wrong and all("OpenSSL" in finding for finding in found), "a library, what is found:", notices, found)
    with Changed("src/core/foreign_table.cpp", lambda _: "// Made by tools/tables/make_foreign_table.py.\n"):
        found = structure_findings()
        require(len(found) == 1 and found[0].startswith("src/core/foreign_table.cpp: "), "a table in a source whose origin is not named:", found)


def a_page_that_a_wrapper_has_run_together() -> None:
    good = f"# Page\n\n```cpp\n{'code ' * 40}\n# {'a comment ' * 10}\n```\n\n### \"{'a message ' * 10}\"\n{'prose ' * 20}\n| a | b |\n|---|---|\n  ```\n  more\n  ```\n"
    with Changed("docs/page.md", lambda _: good):
        require(structure_findings() == [], "a page as it should be:", structure_findings())
    for text, number, word in ((good + "```\ncode\n", 15, "does not end"), (good + "```\ncode ```\n\nprose\n", 16, "behind a fence"),
                               (good + "prose ```\ncode\n```\n", 15, "behind a fence"), (good + "``` prose\ncode\n```\n", 15, "behind a fence"),
                               (good + "```\ncode\n```cpp\n", 17, "behind a fence"), (good + f"## Heading {'prose ' * 12}\n", 15, "a heading of"),
                               (good + f"{'prose ' * 21}\n", 15, "columns, wrap it"), (good + "| a | b | |---|---| | 1 | 2 |\n", 15, "a table that")):
        with Changed("docs/page.md", lambda _, text=text: text):
            found = structure_findings()
            require(len(found) == 1 and found[0].startswith(f"docs/page.md:{number}: ") and word in found[0], "what was planted, what is found:", text[len(good):], found)


def a_page_that_names_a_file_that_is_gone() -> None:
    for word, is_wrong in (("core/planted", False), ("core/planted.cpp", False), ("src/core/planted.cpp", False), ("src/core/planted", False), ("src/MODULE", False),
                           ("core/gone", True), ("core/gone.h", True), ("src/core/gone.cpp", True), ("tools/check/gone.py", True), ("core/values.json", False), ("elsewhere/gone", False)):
        with Changed("docs/page.md", lambda _, word=word: f"Words about `{word}`.\n"):
            require(structure_findings() == ([f"docs/page.md:1: there is no file {word}"] if is_wrong else []), "what is named, what is found:", word, structure_findings())
    for name in ("CHANGELOG.md", "docs/formats/page.md"):
        with Changed(name, lambda _: "`core/loss`\n"):
            require(structure_findings() == [], "a word that need not be a file:", name, structure_findings())


def a_reason_for_a_fault_whose_line_is_gone() -> None:
    entry = '[[survivor]]\npath = "src/core/planted.cpp"\nline = "{}"\nold = "{}"\nreason = "why not"\n'
    line = next(line for line in (HOUSE / "src/core/planted.cpp").read_text().splitlines() if line.startswith("  return ")).strip().replace('"', '\\"')
    for text, is_wrong in ((entry.format(line, "return"), False), (entry.format(line, "absent"), True), (entry.format("gone();", "gone"), True),
                           (entry.format(line, "return").replace("planted", "gone"), True)):
        with Changed("tests/gate/mutant_survivors.toml", lambda _, text=text: text):
            found = structure_findings()
            require(len(found) == is_wrong and all("no line of src/core/" in finding for finding in found), "an entry, what is found:", text, found)


def every_module_is_mutated_by_some_seed_or_excused() -> None:
    modules = tomllib.loads((ROOT / "deps.toml").read_text(encoding="utf-8"))["modules"].keys()
    require({*mutants.MODULES, *mutants.NOT_MUTATED} == set(modules) and not mutants.MODULES.keys() & mutants.NOT_MUTATED.keys(),
            "modules that are neither mutated nor excused, or both:", {*mutants.MODULES, *mutants.NOT_MUTATED} ^ set(modules))
    by_seed = [mutants.modules_of(seed) for seed in range(1, len(modules))]
    require({module for chosen in by_seed for module in chosen} == set(mutants.MODULES), "modules that no seed takes")
    require({"core", "diffusion", "optim"} <= set(by_seed[0]) and "nn" not in by_seed[0] and {"nn", "paint"} <= set(by_seed[1]), "what seeds 1 and 2 take:", by_seed[:2])
    require(all(mutants.quotas_of(["nn"], seed, 220)["nn"] >= 8 for seed in (1, 2)), "a module that is named gets its share, whatever the seed")


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
    status, total, last = run_gate("leak", GTEST_FILTER="-*", TESTBRIDGE_TEST_ONLY="none", ASAN_OPTIONS="detect_leaks=0", LSAN_OPTIONS="exitcode=0")
    require(status == 1 and [failure["kind"] for failure in total["failures"]] == ["leak"], "a leak, with a shell that hides it:", status, last)


def settings_of_the_callers_shell_reach_no_test_program() -> None:
    shell = {"GTEST_FILTER": "-*", "GTEST_TOTAL_SHARDS": "9", "GTEST_SHARD_INDEX": "1", "TESTBRIDGE_TEST_ONLY": "none", "DARKROOM_VECTOR_UNIT": "none",
             "DARKROOM_SEEDS": "1", "DARKROOM_MUTATIONS": "1", "DARKROOM_SHAPES": "1", "DARKROOM_FAULTS": "none", "DARKROOM_SHARE": "/nowhere"}
    with unittest.mock.patch.dict(os.environ, {**shell, "ATEN_CPU_CAPABILITY": "default", "DARKROOM_PEERS": "peers", "DARKROOM_BUILT": "1"}):
        for made in (gate.clean_environment(), every_processor.environment_of("report", "folder", {})):
            require(not made.keys() & shell.keys() and (made["DARKROOM_PEERS"], made["DARKROOM_BUILT"]) == ("peers", "1"), "what reaches a test program:", made.keys() & shell.keys())
        level = every_processor.environment_of("report", "folder", {"DARKROOM_VECTOR_UNIT": "AVX2"})
        require(level["DARKROOM_VECTOR_UNIT"] == "AVX2" and "ATEN_CPU_CAPABILITY" not in level, "of levels the one that is tried:", level)
        outcome = every_processor.run_program(HOUSE / "build" / "release", "core_test", {})
        require(outcome.num_tests == 9 and not outcome.failures, "tests and failures of a program, with a shell that leaves all out:", outcome)


def a_script_that_fails_or_dies() -> None:
    require_red("test", {"integration/script"}, "script failure")
    require_red("no report", {"integration/script"}, "script death")


def a_script_whose_report_is_torn() -> None:
    run = gate.Gate(HOUSE)
    report = run.logs / "torn.json"
    for text in ('{"passed": ["a"', "", "[]", "null", '{"passed": []}', '{"passed": [], "failed": ["a"], "skipped": []}', '{"passed": 1, "failed": [], "skipped": []}'):
        report.write_text(text)
        require(gate.read_script_report(report) is None, "a report that is none:", text)
    report.write_text('{"passed": ["a"], "failed": [["b", "why"]], "skipped": []}')
    require(gate.read_script_report(report) == {"passed": ["a"], "failed": [("b", "why")], "skipped": []}, "a whole report")
    with unittest.mock.patch.dict(os.environ, {"DARKROOM_PLANTED": "script torn report"}):
        run.test_script(pathlib.Path(sys.executable), HOUSE / "tests" / "integration" / "script_test.py")
    require([failure.kind for failure in run.total.failures] == ["no report"], "a script that dies while it writes its report:", run.total)


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
        a_finding_in_a_library_names_it,
        a_sanitizer_that_dies_itself_is_named,
        undefined_behaviour,
        a_use_after_free,
        a_crash_after_the_report,
        an_exit_status_after_the_report,
        an_end_with_status_0_before_the_report,
        a_program_that_does_not_end,
        a_program_without_tests,
        a_script_without_tests,
        a_misuse_of_threads,
        only_a_plugin_test_that_ends_well_may_skip,
        a_noticed_fault_is_planted_again_when_the_test_that_noticed_it_changes,
        mutants_judges_what_its_line_says,
        mutants_copies_an_archive_as_it_does_a_checkout,
        a_program_that_links_torch_runs_on_every_processor,
        a_table_without_a_notice,
        a_library_without_a_notice,
        a_page_that_a_wrapper_has_run_together,
        a_page_that_names_a_file_that_is_gone,
        a_reason_for_a_fault_whose_line_is_gone,
        every_module_is_mutated_by_some_seed_or_excused,
        a_silent_skip,
        a_skip_with_a_reason_is_counted_and_said,
        settings_of_the_callers_shell_leave_out_nothing,
        settings_of_the_callers_shell_reach_no_test_program,
        a_script_that_fails_or_dies,
        a_script_whose_report_is_torn,
        a_missing_script,
        a_broken_module_order,
        a_test_that_no_target_builds,
        a_header_that_does_not_compile_alone,
        an_unformatted_file,
        a_test_that_is_switched_off,
        a_missing_program,
        a_module_that_is_not_there,
    ])
