"""Acceptance 3: a disk that is full, fails, or lacks locks and hard links: no bad file is seen, no failure is silent, the rerun ends right."""

import os
import pathlib
import shutil
import subprocess

from harness import LoopbackWeb, Skipped, Trials, Workbench, darkroom, digests, require, temporary_folder, tmpfs


def compile_faults(folder: pathlib.Path) -> pathlib.Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Skipped("there is no C compiler for the preloaded faults")
    library = folder / "disk_faults.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(pathlib.Path(__file__).parent / "disk_faults.c"), "-ldl"], check=True)
    return library


class Job:
    """A download or process of a small corpus, into any folder."""

    def __init__(self, bench: Workbench, web: LoopbackWeb, verb: str):
        self.verb = verb
        if verb == "download":
            self.inputs = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", "12", "--concurrency", "4", "--allow-private", f"127.0.0.1/32:{web.port}", "--error-budget", "0"]
        else:
            self.images = bench.write_image_dataset("images", 18)
            self.inputs = ["--model", bench.model, "--resolution", "64", "--rows-per-file", "12", "--batch-size", "4"]

    def arguments(self, out: pathlib.Path) -> list[str]:
        return ["download", str(out), *self.inputs] if self.verb == "download" else ["process", self.images, str(out), *self.inputs]

    def run(self, out: pathlib.Path, expect: int | set | None = 0, environment: dict | None = None) -> subprocess.CompletedProcess:
        return darkroom(*self.arguments(out), expect=expect, environment=environment)


def parts_of(folder: pathlib.Path) -> dict[str, str]:
    return digests(str(folder), "part-*.parquet")


def with_faults(library: pathlib.Path, out: pathlib.Path, kind: str, at: int = 0, stays: bool = False, log: pathlib.Path | None = None) -> dict:
    environment = {**os.environ, "LD_PRELOAD": str(library), "FAULT_PATH": str(out), "FAULT_KIND": kind, "FAULT_AT": str(at)}
    environment.update({"FAULT_STAYS": "1"} if stays else {}, **({"FAULT_LOG": str(log)} if log else {}))
    return environment


def count_calls(job: Job, library: pathlib.Path, folder: pathlib.Path) -> int:
    job.run(folder / "counted", environment=with_faults(library, folder / "counted", "none", log=folder / "count"))
    count = int((folder / "count").read_text())
    require(count > 20, "the preloaded library sees no calls", count)
    return count


def one_fault(job: Job, library: pathlib.Path, folder: pathlib.Path, want: dict, kind: str, at: int, stays: bool) -> str:
    """One run with the at-th call failing, then one without: visible files are right at any time, the end is that of a clean run."""
    out = folder / f"{job.verb}-{kind}-{at}-{stays}"
    done = job.run(out, expect=None, environment=with_faults(library, out, kind, at, stays))
    seen = parts_of(out) if out.exists() else {}
    wrong = [name for name, digest in seen.items() if want.get(name) != digest]
    require(not wrong, "bad files are visible after", kind, at, wrong)
    require(done.returncode in (0, 1), "exit code", kind, at, done.returncode, done.stderr[-500:])
    require(done.returncode != 0 or seen == want, "a silent failure", kind, at)
    require(done.returncode == 0 or "error" in done.stderr, "no message", kind, at, done.stderr[-500:])
    job.run(out)
    require(parts_of(out) == want, "the rerun is not that of a clean run", kind, at)
    left = [str(path) for path in out.rglob("*") if "_tmp" in path.name and path.is_file()] + [str(path) for path in (out / "_tmp").glob("*")]
    require(not left, "leftovers", left[:3])
    shutil.rmtree(out)
    return "failed" if done.returncode else "ended well"


def every_call_may_fail(trials: Trials, verb: str) -> None:
    with Workbench(36) as bench, LoopbackWeb(bench.path("corpus")) as web, temporary_folder() as folder:
        library = compile_faults(folder)
        job = Job(bench, web, verb)
        job.run(folder / "reference")
        want = parts_of(folder / "reference")
        count = count_calls(job, library, folder)
        step = 1 if trials.is_full else max(1, count // 5)
        outcomes: dict[str, int] = {}
        for kind, stays in (("nospace", False), ("io", False), ("short", False), ("nospace", True), ("io", True)):
            for at in range(1, count + 1, step):
                outcome = trials.trial(f"{kind} {at} {stays}", lambda: one_fault(job, library, folder, want, kind, at, stays))
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
        trials.figures.update(calls=count, trials=sum(outcomes.values()), **{name.replace(" ", "_"): number for name, number in outcomes.items()})
        require(outcomes.get("failed", 0) > 0, "no fault was felt", outcomes)


def poor_file_systems_work(trials: Trials) -> None:
    with Workbench(36) as bench, LoopbackWeb(bench.path("corpus")) as web, temporary_folder() as folder:
        library = compile_faults(folder)
        for verb in ("download", "process"):
            job = Job(bench, web, verb)
            job.run(folder / f"reference-{verb}")
            want = parts_of(folder / f"reference-{verb}")
            for kind in ("nolocks", "nfs4", "nolinks", "poor"):
                out = folder / f"{verb}-{kind}"
                job.run(out, environment=with_faults(library, out, kind))
                require(parts_of(out) == want, "another end without", kind, verb)
                job.run(out, environment=with_faults(library, out, kind))
                require(parts_of(out) == want, "another end of a second run without", kind, verb)


def a_full_disk_is_said_and_room_mends_it(trials: Trials) -> None:
    """4 MB: too little. The run fails with a message and whole parts; on the same disk with more room it ends as a clean run."""
    with Workbench(240) as bench, LoopbackWeb(bench.path("corpus")) as web, temporary_folder() as folder:
        common = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", "20", "--allow-private", f"127.0.0.1/32:{web.port}"]
        darkroom("download", folder / "reference", *common)
        want = parts_of(folder / "reference")
        size = sum(path.stat().st_size for path in (folder / "reference").glob("part-*.parquet"))
        with tmpfs(f"{min(4 << 20, size // 2)}") as disk:
            done = darkroom("download", disk / "out", *common, expect=1)
            require("no space left" in done.stderr, "the message", done.stderr[-800:])
            seen = parts_of(disk / "out")
            require(all(want.get(name) == digest for name, digest in seen.items()), "bad files on a full disk")
            require(len(seen) < len(want), "the disk was not full")
            subprocess.run(["mount", "-o", f"remount,size={4 * size + (8 << 20)}", str(disk)], check=True)
            darkroom("download", disk / "out", *common)
            require(parts_of(disk / "out") == want, "the rerun with room is not that of a clean run")
        trials.figures.update(disk_bytes=min(4 << 20, size // 2), dataset_bytes=size, parts_before=len(seen), parts=len(want))


CHECKS = [
    ("disk_faults.download", lambda trials: every_call_may_fail(trials, "download")),
    ("disk_faults.process", lambda trials: every_call_may_fail(trials, "process")),
    ("disk_faults.poor_file_systems", poor_file_systems_work),
    ("disk_faults.full_disk", a_full_disk_is_said_and_room_mends_it),
]
