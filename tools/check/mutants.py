#!/usr/bin/env python3
"""Plants small faults in our sources, one at a time, and counts how many the unit tests notice.

usage: mutants.py [--seed N] [--count N] [--modules a,b] [--retry-survivors] [--list]
A seed takes all modules that need no torch, and two of those that do, in turn: these compile slowly, and all of them would take hours.
Works on a copy of the sources in build/mutants/tree and rebuilds only what a fault touches. What was found is kept in build/mutants/seed-N.jsonl:
a run that was cut goes on there. A fault that survived is planted anew when its file or the tests that missed it have changed, one that was noticed
when the file of the test that noticed it has. Exits 1 below the target share; without --count and --modules also below 150 faults, and with seed 1 when a survivor has no reason in
tests/gate/mutant_survivors.toml.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib

import fault_sites
import gate
import run_tests

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HOME = ROOT / "build" / "mutants"
TREE = HOME / "tree"
BUILD = TREE / "build" / "release"  # As deep as a real one, so that what is not mutated comes from the compiler's cache.
KNOWN_SURVIVORS = ROOT / "tests" / "gate" / "mutant_survivors.toml"
TARGET_SHARE = 0.85
LEAST_FAULTS = 150  # Of a whole run.
DEFAULT_COUNT = 220
REASONED_SEED = 1  # What survives of it has a reason in KNOWN_SURVIVORS.
COPIED_FOLDERS = ("apps", "benchmarks", "cmake", "deploy", "docs", "include", "models", "notebooks", "prices", "python", "recipes", "requirements", "src",
                  "tests", "third_party", "tools")
MEMORY_BYTES = 16 << 30
FILE_BYTES = 1 << 30  # No fault may fill the disk.


@dataclasses.dataclass(frozen=True)
class Module:
    share: int  # Of all faults.
    also: tuple[str, ...] = ()  # Modules whose tests are asked when its own notice nothing; they need only be linked anew.
    headers: bool = False  # Its mechanism is in templates.
    sources: tuple[str, ...] = ()  # What is mutated where it is not src/MODULE/*.cpp.
    tests: str = ""  # Their folder where it is not tests/unit/MODULE.
    first: str = ""  # Faults in lines that hold this come before all others.


# The one place that says what is mutated. Those with torch stand in the order in which seeds take them.
MODULES = {
    "core": Module(14, also=("files", "stream", "text", "tables", "web", "stores")),
    "files": Module(22, also=("tables", "stores", "text")),
    "stream": Module(14, headers=True),
    "tables": Module(12),
    "web": Module(10),
    "stores": Module(8),
    "ingest": Module(16),
    "process": Module(12),
    "feed": Module(8),
    "image": Module(24),
    "text": Module(20),
    "diffusion": Module(12),
    "optim": Module(8),
    "serve": Module(24),
    "prompts": Module(12),
    "measure": Module(12),
    "tune": Module(12),
    "toml": Module(6, also=("prompts", "plan")),
    "slices": Module(12),
    "plan": Module(12),
    "nn": Module(12),
    "paint": Module(8),
    "batches": Module(8),
    "encode": Module(12),
    "train": Module(12),
    "show": Module(12),
    "tensor": Module(12, also=("nn",)),
    "ops": Module(8, also=("optim",)),
    "compare": Module(8),
}
NOT_MUTATED = {"plugin": "what needs no GPU of it is kernels: kernel_mutants.py"}
TORCH_MODULES_A_SEED = 2
# Not among them, because it is built with AddressSanitizer: kernel_mutants.py.
KERNELS = {"kernel_emulation": Module(50, sources=("src/plugin/*.cu", "src/plugin/*.cuh"), tests="tests/kernel_emulation", first="__syncthreads")}
DATA_FILES = {"src/image/font_table.cpp"}  # Tables that a script writes and a test compares.


def run_quietly(command: list, seconds: float, **options) -> tuple[int, str, float]:
    """Exit status (negative: a signal; None when it took longer than `seconds`), output and duration."""
    start = time.monotonic()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", process_group=0, **options)
    try:
        output = process.communicate(timeout=seconds)[0]
        return process.returncode, output, time.monotonic() - start
    except BaseException as stopped:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if not isinstance(stopped, subprocess.TimeoutExpired):
            raise
        return None, "", time.monotonic() - start


def sandbox() -> list[str]:
    """A prefix that leaves a faulty program nothing to harm but a /tmp of its own; empty where this machine lets us make none."""
    script = 'mount --make-rprivate / && mount -o remount,bind,ro / && mount -t tmpfs -o size=4g tmpfs /tmp && exec "$@"'
    flags = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    prefix = ["unshare", *flags, "sh", "-c", script, "sh"]
    if shutil.which("unshare") and run_quietly([*prefix, "true"], 20)[0] == 0:
        return prefix
    print("mutants: no right to make namespaces: faulty programs run unconfined", flush=True)
    return []


def listed_files(root: pathlib.Path) -> set[str]:
    """What belongs to the tree: in a checkout what git knows or could know, in an unpacked archive what lies in its own folders."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
        return {path for path in listed if path and (root / path).is_file()}
    found = [path for folder in COPIED_FOLDERS for path in (root / folder).rglob("*") if "__pycache__" not in path.parts]
    return {str(path.relative_to(root)) for path in [*root.iterdir(), *found] if path.is_file()}


def copy_tree() -> None:
    """Brings TREE up to date; a file that did not change keeps its time, so nothing is rebuilt for it."""
    wanted = listed_files(ROOT)
    for path in wanted:
        source, target = ROOT / path, TREE / path
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for folder in ("src", "include", "tests"):
        for old in (TREE / folder).rglob("*"):
            if old.is_file() and str(old.relative_to(TREE)) not in wanted:
                old.unlink()


class Bench:
    """Builds and runs test programs of the copied tree."""

    def __init__(self, modules: list[str], jobs: int, build: pathlib.Path = BUILD, settings: tuple[str, ...] = ("-DCMAKE_BUILD_TYPE=Release",),
                 memory_bytes: int = MEMORY_BYTES):
        self.jobs = jobs
        self.folder = build
        self.memory_bytes = memory_bytes
        self.confined = sandbox()
        self.clean: dict[str, tuple[float, float]] = {}  # Seconds on the clock and of a processor that a test program needs without a fault.
        self.clean_objects: dict[str, dict[str, str]] = {}
        self.environment = {**gate.clean_environment(), "DARKROOM_SOURCE_DIR": str(TREE), "GTEST_BRIEF": "1", "GTEST_FAIL_FAST": "1", "CCACHE_NOHASHDIR": "1"}
        command = ["cmake", "-S", TREE, "-B", build, "-G", "Ninja", *settings, f"-DDARKROOM_VENV={ROOT / '.venv'}",
                   f"-DDARKROOM_MUTATED={';'.join(modules)}"]
        status, output, _ = run_quietly(command, 600)
        if status != 0:
            sys.exit(f"mutants: the copy cannot be configured\n{output[-3000:]}")

    def build(self, target: str) -> tuple[bool, str]:
        status, output, _ = run_quietly(["ninja", "-C", self.folder, "-j", str(self.jobs), target], 3600, env=self.environment)
        return status == 0, output

    def test(self, module: str) -> tuple[int | None, str, float]:
        """Runs a test program; with far more time than it needs, so that only a fault that hangs runs out of it."""
        clock_seconds, cpu_seconds = self.clean.get(module, (300.0, 300.0))
        allowed_cpu = int(5 * cpu_seconds + 10)

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (allowed_cpu, allowed_cpu))
            resource.setrlimit(resource.RLIMIT_AS, (self.memory_bytes, self.memory_bytes))
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        program = self.folder / "tests" / f"{module}_test"
        status, output, seconds = run_quietly([*self.confined, program], 5 * clock_seconds + 60, env=self.environment, cwd=TREE, preexec_fn=limit)
        is_out_of_time = status is None or status in (-signal.SIGXCPU, 128 + signal.SIGXCPU)
        return None if is_out_of_time else status, output, seconds

    def prepare(self, module: str) -> None:
        """Builds a module's test program and measures it without a fault."""
        if module in self.clean:
            return
        print(f"mutants: building {module}_test", flush=True)
        built, output = self.build(f"{module}_test")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        status, said, seconds = self.test(module) if built else (1, output, 0.0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if status != 0:
            sys.exit(f"mutants: {module}_test fails without any fault\n{said[-4000:]}")
        self.clean_objects[module] = object_digests(self.folder, module)
        self.clean[module] = (seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def modules_of(seed: int) -> list[str]:
    """What a seed mutates: all modules that need no torch, and some of those that do, in turn."""
    table = tomllib.loads((ROOT / "deps.toml").read_text(encoding="utf-8"))["modules"]
    slow = [module for module in MODULES if run_tests.needs_torch(module, table)]
    turn = {slow[(TORCH_MODULES_A_SEED * (seed - 1) + i) % len(slow)] for i in range(TORCH_MODULES_A_SEED)}
    return [module for module in MODULES if module not in slow or module in turn]


def quotas_of(chosen: list[str], seed: int, count: int) -> dict[str, int]:
    """Faults a module: its share of those of the seed's modules and of what else was chosen."""
    whole = sum(MODULES[module].share for module in {*modules_of(seed), *chosen})
    return {module: -(-MODULES[module].share * count // whole) for module in chosen}


def module_named(name: str) -> Module:
    return (MODULES | KERNELS)[name]


def tests_of(name: str, tree: pathlib.Path) -> list[pathlib.Path]:
    """The files of a test program."""
    folder = (MODULES | KERNELS).get(name, Module(0)).tests or f"tests/unit/{name}"
    return [path for path in (tree / folder).glob("*") if path.is_file()]


def object_digests(build: pathlib.Path, module: str) -> dict[str, str]:
    """What the module's compiled sources are; equal before and after means that the fault changes no code."""
    folders = [build / "src" / "CMakeFiles" / f"darkroom_{module}.dir", build / "tests" / "CMakeFiles" / f"{module}_test.dir"]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for folder in folders for path in folder.rglob("*.o")}


def noticing_test(bench: Bench, module: str) -> tuple[str, str]:
    """Which test program notices what is planted now, and how; two empty texts when none does."""
    for name in (module, *module_named(module).also):
        built, output = bench.build(f"{name}_test")
        if not built:
            return f"{name}_test", "does not link: " + output[-300:]
        status, said, seconds = bench.test(name)
        if status is None:
            return f"{name}_test", f"hangs ({seconds:.0f} s)"
        if status != 0:
            failed = [line for line in said.splitlines() if line.startswith("[  FAILED  ]")]
            return f"{name}_test", failed[0][13:].split(" (")[0].split(",")[0] if failed else f"exit status {status}"
    return "", ""


def outcome_of(bench: Bench, fault: fault_sites.Fault, module: str) -> tuple[str, str, str]:
    """(verdict, test program, how); the verdict is noticed, survived, same code or not compiled."""
    target = TREE / fault.path
    original = target.read_text(encoding="utf-8")
    try:
        target.write_text(fault.planted_in(original), encoding="utf-8")
        if not bench.build(f"{module}_test")[0]:
            return "not compiled", "", ""
        if object_digests(bench.folder, module) == bench.clean_objects[module]:
            return "same code", "", ""
        program, how = noticing_test(bench, module)
        return ("noticed" if program else "survived"), program, how
    finally:
        target.write_text(original, encoding="utf-8")


def require_sound_build(bench: Bench, module: str) -> None:
    """A build that fails without a fault, too (a full disk, a compiler that is gone) says nothing about faults."""
    built, output = bench.build(f"{module}_test")
    if not built:
        sys.exit(f"mutants: {module}_test no longer builds, without any fault\n{output[-3000:]}")


def digest_of(paths: list[pathlib.Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def ground_of(fault: fault_sites.Fault, module: str) -> str:
    """Changes when a survivor is worth another look: its file or the tests that missed it are others."""
    tests = [path for name in (module, *module_named(module).also) for path in tests_of(name, TREE)]
    return digest_of([TREE / fault.path, *tests])


def witness_of(program: str, how: str, tree: pathlib.Path) -> str:
    """Changes when a noticed fault is worth another look: digest of the file of the test that noticed it, of all files of its program where a crash
    or a hang left no name."""
    files = tests_of(program.removesuffix("_test"), tree)
    suite, _, name = how.partition(".")
    suite, name = suite.split("/")[-1], name.split("/")[0]
    defined = re.compile(rf"TEST\w*\(\s*{re.escape(suite)}\s*,\s*{re.escape(name)}\s*\)")
    return digest_of([path for path in files if name and defined.search(path.read_text(encoding="utf-8"))] or files)


class Record:
    """What earlier runs found, a JSON line a fault; the newest line of a key holds."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.by_key = {entry["key"]: entry for entry in map(json.loads, lines)}

    def known(self, fault: fault_sites.Fault, ground: str, retry: bool, tree: pathlib.Path) -> dict | None:
        entry = self.by_key.get(fault.key)
        if entry is None or (entry["verdict"] == "survived" and (retry or entry["ground"] != ground)):
            return None
        if entry["verdict"] == "noticed" and "witness" in entry and entry["witness"] != witness_of(entry["program"], entry["how"], tree):
            return None
        return entry

    def add(self, entry: dict) -> None:
        self.by_key[entry["key"]] = entry
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def candidates(root: pathlib.Path, module: str, seed: int) -> list[fault_sites.Fault]:
    entry = module_named(module)
    paths = [path for pattern in entry.sources or (f"src/{module}/*.cpp",) for path in root.glob(pattern)]
    if entry.headers:
        paths += (root / "include" / "darkroom" / module).glob("*.h")
    names = sorted(str(path.relative_to(root)) for path in paths)
    ranked = fault_sites.ranked([fault for name in names if name not in DATA_FILES for fault in fault_sites.faults_of(root, name)], seed)
    return sorted(ranked, key=lambda fault: entry.first not in fault.line)


def mutate(bench: Bench, module: str, quota: int, seed: int, record: Record, retry: bool) -> list[dict]:
    """Plants faults of a module until `quota` of them changed its code. Returns what became of those."""
    counted: list[dict] = []
    for fault in candidates(TREE, module, seed):
        if len(counted) == quota:
            break
        ground = ground_of(fault, module)
        entry = record.known(fault, ground, retry, TREE)
        if entry is None:
            for name in (module, *module_named(module).also):
                bench.prepare(name)
            start = time.monotonic()
            verdict, program, how = outcome_of(bench, fault, module)
            if verdict == "not compiled" or how.startswith("does not link"):
                require_sound_build(bench, module)
            entry = {"key": fault.key, "module": module, "fault": str(fault), "path": fault.path, "kind": fault.kind, "line": fault.line, "old": fault.old,
                     "new": fault.new, "verdict": verdict, "program": program, "how": how, "ground": ground}
            if verdict == "noticed":
                entry["witness"] = witness_of(program, how, TREE)
            record.add(entry)
            print(f"{verdict:12} {fault} ({how + ', ' if how else ''}{time.monotonic() - start:.1f} s)", flush=True)
        if entry["verdict"] in ("noticed", "survived"):
            counted.append({**entry, "fault": str(fault)})
    return counted


def reasons() -> dict[tuple[str, str, str], str]:
    """Why a survivor cannot be noticed, or need not be, by path, line and kind."""
    if not KNOWN_SURVIVORS.exists():
        return {}
    table = tomllib.loads(KNOWN_SURVIVORS.read_text(encoding="utf-8"))
    return {(entry["path"], entry["line"], entry["old"]): entry["reason"] for entry in table.get("survivor", [])}


def shortcomings(found: dict[str, list[dict]], why: dict[tuple[str, str, str], str], target: float, least: int, wants_reasons: bool) -> list[str]:
    """What a run falls short of, in words: the share that is noticed, the number of faults, a reason for each survivor."""
    entries = [entry for module in found.values() for entry in module]
    survivors = [entry for entry in entries if entry["verdict"] == "survived"]
    unexplained = [entry for entry in survivors if (entry["path"], entry["line"], entry["old"]) not in why]
    short = []
    if not entries or len(entries) - len(survivors) < target * len(entries):
        short.append(f"fewer than {100 * target:.0f} % are noticed")
    if len(entries) < least:
        short.append(f"{len(entries)} faults are fewer than {least}: give a module's sources to be mutated, or more of its faults")
    if wants_reasons and unexplained:
        short.append(f"{len(unexplained)} survivors have no reason in {KNOWN_SURVIVORS.relative_to(ROOT)}: write a test, or the reason")
    return short


def report(found: dict[str, list[dict]], target: float = TARGET_SHARE, least: int = 1, wants_reasons: bool = False) -> bool:
    """Prints the share that was noticed, a module and in all, every survivor, and what the run falls short of. True when that is nothing."""
    why = reasons()
    survivors = [entry for entries in found.values() for entry in entries if entry["verdict"] == "survived"]
    for entry in survivors:
        print(f"survivor: {entry['fault']}\n          {why.get((entry['path'], entry['line'], entry['old']), 'no reason is given: a test is missing')}")
    total = sum(len(entries) for entries in found.values())
    unwitnessed = sum(entry["verdict"] == "noticed" and "witness" not in entry for entries in found.values() for entry in entries)
    if unwitnessed:
        print(f"mutants: {unwitnessed} verdicts are of records without the digest of the test that noticed the fault: they hold whatever became of it")
    for module, entries in found.items():
        noticed = sum(entry["verdict"] == "noticed" for entry in entries)
        hangs = sum(entry["how"].startswith("hangs") for entry in entries)
        print(f"mutants: {module:10} {noticed:3} of {len(entries):3} noticed{f', {hangs} of them by a hang' if hangs else ''}")
    share = (total - len(survivors)) / total if total else 0.0
    print(f"mutants: {total - len(survivors)} of {total} noticed ({100 * share:.1f} %; target {100 * target:.0f} %), {len(survivors)} survived")
    short = shortcomings(found, why, target, least, wants_reasons)
    for words in short:
        print(f"mutants: {words}")
    return not short


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help=f"faults in all, shared out over the modules (default {DEFAULT_COUNT})")
    parser.add_argument("--modules", help="only these (default: those of the seed)")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("JOBS", os.cpu_count() or 1)))
    parser.add_argument("--retry-survivors", action="store_true", help="plant them again, even where nothing changed")
    parser.add_argument("--list", action="store_true", help="print what the seed picks, plant nothing")
    options = parser.parse_args()
    chosen = options.modules.split(",") if options.modules else modules_of(options.seed)
    unknown = [module for module in chosen if module not in MODULES]
    if unknown:
        parser.error(f"not a mutated module: {', '.join(unknown)}; there are: {', '.join(MODULES)}")
    is_whole = options.count is None and not options.modules
    quotas = quotas_of(chosen, options.seed, options.count or DEFAULT_COUNT)
    if options.list:
        for module, quota in quotas.items():
            for fault in candidates(ROOT, module, options.seed)[:quota]:
                print(fault)
        return
    HOME.mkdir(parents=True, exist_ok=True)
    copy_tree()
    bench = Bench(chosen, options.jobs)
    record = Record(HOME / f"seed-{options.seed}.jsonl")
    found = {module: mutate(bench, module, quota, options.seed, record, options.retry_survivors) for module, quota in quotas.items()}
    sys.exit(0 if report(found, least=LEAST_FAULTS if is_whole else 1, wants_reasons=is_whole and options.seed == REASONED_SEED) else 1)


if __name__ == "__main__":
    main()
