"""What the acceptance checks share: results that survive a cut, trials that are not done twice, servers, mounts, peaks of memory."""

import argparse
import contextlib
import concurrent.futures
import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

from cases import Skipped, require, temporary_folder, write_report  # noqa: E402, F401: the checks take their whole vocabulary from here.
from workbench import PROGRAM, ROOT, LoopbackWeb, Workbench, digests  # noqa: E402, F401

BUCKET = "pictures"


def heads_of_requests(connection: socket.socket):
    """The head of one request without a body after the other, until the client goes."""
    received = b""
    while True:
        while b"\r\n\r\n" not in received:
            piece = connection.recv(65_536)
            if not piece:
                return
            received += piece
        head, _, received = received.partition(b"\r\n\r\n")
        yield head


def digest_of(paths) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(pathlib.Path(path).read_bytes())
    return digest.hexdigest()


def sources_of(module: pathlib.Path) -> list[pathlib.Path]:
    """A module of checks, this one, and what both import of tests/, with the files beside them that bear their names (radosgw_start.sh)."""
    here = pathlib.Path(__file__).resolve()
    found, left = set(), {here, module.resolve()}
    while left:
        path = left.pop()
        found.add(path)
        names = re.findall(r"^[ \t]*(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE) if path.suffix == ".py" else []
        imported = {here.parent.parent / folder / f"{name}.py" for name in names for folder in ("acceptance", "integration", "support")}
        left |= ({one for one in imported if one.is_file()} | set(path.parent.glob(f"{path.stem}[._]*"))) - found
    return sorted(found)


class Ledger:
    """The results of one form, in a JSON file that is whole at any moment. Each check's are of the program, its decoder, the check's sources and other
    `judged` files: where one of these has changed, the check begins anew."""

    def __init__(self, path: pathlib.Path, is_full: bool, judged: list[pathlib.Path] = ()):
        self.path = path
        self.judged = digest_of([PROGRAM, PROGRAM.resolve().parent / "darkroom-decoder", *sorted(judged)])
        self.commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        self.lock = threading.RLock()
        self.results = {"form": "full" if is_full else "short", "checks": {}}
        if path.exists():
            self.results["checks"] = json.loads(path.read_text(encoding="utf-8"))["checks"]

    def forget_if_changed(self, name: str, check) -> None:
        judged = hashlib.sha256((self.judged + digest_of(sources_of(pathlib.Path(sys.modules[check.__module__].__file__)))).encode())
        if hasattr(check, "program"):
            judged.update(digest_of([check.program()]).encode())
        with self.lock:
            if self.of(name).get("judged_sha256") != judged.hexdigest():
                self.results["checks"][name] = {"state": "begun", "trials": {}, "judged_sha256": judged.hexdigest(), "commit": self.commit}

    def of(self, check: str) -> dict:
        with self.lock:
            return self.results["checks"].setdefault(check, {"state": "begun", "trials": {}})

    def write(self) -> None:
        with self.lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_suffix(".new")
            beside.write_text(json.dumps(self.results, indent=1, sort_keys=True), encoding="utf-8")
            beside.replace(self.path)


class Trials:
    """What one check does: named trials, each done once over all starts. `figures` go into the results."""

    def __init__(self, ledger: Ledger, name: str, is_full: bool):
        self.ledger, self.name, self.is_full = ledger, name, is_full
        self.figures = dict(ledger.of(name).get("figures", {}))

    @property
    def slack_mb(self) -> int:
        """What memory may be above its promise in the short form, which runs beside compilers: what waits then takes room as well."""
        return 0 if self.is_full else 64

    def count(self, short: int, full: int) -> int:
        return full if self.is_full else short

    def keep(self, **fields) -> None:
        with self.ledger.lock:
            self.ledger.of(self.name).update(fields)
        self.ledger.write()

    def trial(self, name: str, work):
        """work()'s value, from the results where it was done before."""
        trials = self.ledger.of(self.name)["trials"]
        if name not in trials:
            done = {"value": work(), "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
            with self.ledger.lock:
                trials[name] = done
            self.keep(figures=dict(self.figures))
        return trials[name]["value"]


def judges(program):
    """A check that looks at another program than darkroom: program() builds it and gives its path. What was found of another build does not count."""

    def mark(check):
        check.program = program
        return check

    return mark


def run_check(name: str, check, ledger: Ledger, is_full: bool) -> dict:
    """Runs one check, unless it passed before; its entry of the results."""
    begin = time.monotonic()
    trials = Trials(ledger, name, is_full)
    try:
        ledger.forget_if_changed(name, check)
        if ledger.of(name)["state"] == "passed":
            print(f"ok      {name} (before)", flush=True)
            return ledger.of(name)
        trials = Trials(ledger, name, is_full)
        check(trials)
        ended = {"state": "passed", "reason": ""}
    except Skipped as skip:
        ended = {"state": "skipped", "reason": str(skip)}
    except Exception as error:  # Each check is a boundary: the next one runs whatever happened.
        ended = {"state": "failed", "reason": f"{type(error).__name__}: {error}"[-4000:]}
    entry = ledger.of(name)
    trials.keep(**ended, seconds=round(entry.get("seconds", 0) + time.monotonic() - begin, 1), figures=trials.figures)
    word = {"passed": "ok     ", "skipped": "skipped", "failed": "FAILED "}[entry["state"]]
    print(f"{word} {name} ({time.monotonic() - begin:.1f} s) {entry['reason']} {json.dumps(trials.figures) if trials.figures else ''}".rstrip(), flush=True)
    return entry


def run_checks(checks: list, ledger: Ledger, is_full: bool, jobs: int) -> dict[str, list]:
    """Runs (name, function of Trials), `jobs` at a time: most of what they do is to wait. Returns the report of cases.py."""
    report: dict[str, list] = {"passed": [], "failed": [], "skipped": []}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        entries = list(pool.map(lambda check: run_check(*check, ledger, is_full), checks))
    for (name, _), entry in zip(checks, entries):
        report[entry["state"]].append(name if entry["state"] == "passed" else (name, entry["reason"]))
    return report


def main_of_kinds(document: str, checks: list, results: str, judged: list[pathlib.Path]) -> int:
    """Of a script whose checks are called NAME.KIND, with its flags --full, --results FILE and KIND...: its exit code. Results are kept until the
    program, the script or a `judged` file changes."""
    parser = argparse.ArgumentParser(description=document.split("\n")[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    options = parser.parse_args()
    by_kind = {name.partition(".")[2]: (name, check) for name, check in checks}
    unknown = [kind for kind in options.kinds if kind not in by_kind]
    if unknown:
        parser.error(f"there is no kind {unknown[0]}: {', '.join(by_kind)}")
    path = options.results or ROOT / "build" / "acceptance" / f"{results}_{'full' if options.full else 'short'}.json"
    report = run_checks([by_kind[kind] for kind in options.kinds or by_kind], Ledger(path, options.full, judged), options.full, 1)
    write_report(report)
    print(f"{', '.join(f'{len(names)} {state}' for state, names in report.items())}; the results are in {path}")
    return 1 if report["failed"] else 0


def darkroom(*arguments, expect: int | set | None = 0, environment: dict | None = None, timeout: float = 900, **options) -> subprocess.CompletedProcess:
    """Runs the program to its end and requires its exit code (None: any)."""
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=timeout, cwd=ROOT, env=environment, **options)
    codes = {expect} if isinstance(expect, int) else expect
    require(codes is None or done.returncode in codes, f"darkroom {' '.join(map(str, arguments))}: exit code {done.returncode}, want {codes}\n", done.stderr[-2500:])
    return done


# The kernel begins the count of a process's peak with what the one that started it had, so a small one starts the program.
STARTER = """import os, sys
_, status, usage = os.wait4(os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ), 0)
open(sys.argv[1], "w").write(f"{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss} {usage.ru_utime + usage.ru_stime}")
"""


def peak_of(*arguments, **options) -> tuple[float, float]:
    """Runs the program; its largest resident size in MB, and the seconds it took."""
    cost = cost_of(*arguments, **options)
    return cost["peak_mb"], cost["seconds"]


def cost_of(*arguments, expect: int = 0, environment: dict | None = None, timeout: float = 900) -> dict[str, float]:
    """Runs the program; its largest resident size in MB, the seconds it took on the wall and of processors."""
    begin = time.monotonic()
    with temporary_folder() as folder, open(folder / "log", "w+b") as log:
        command = [sys.executable, "-I", "-S", "-c", STARTER, str(folder / "usage"), str(PROGRAM), *map(str, arguments)]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environment, start_new_session=True)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        said = log.read()[-2500:].decode(errors="replace")
        require((folder / "usage").exists(), f"no end within {timeout} seconds\n", said)
        code, peak_kib, cpu_seconds = (folder / "usage").read_text().split()
        require(int(code) == expect, f"exit code {code}, want {expect}\n", said)
    return {"peak_mb": round(int(peak_kib) * 1024 / 1e6, 1), "seconds": round(time.monotonic() - begin, 3), "cpu_seconds": round(float(cpu_seconds), 3)}


BUILDING = threading.Lock()  # One ninja at a time.


def build(target: str) -> pathlib.Path:
    """A test program that `make build` leaves out. DARKROOM_BUILT=1: it is there already."""
    if os.environ.get("DARKROOM_BUILT") == "1":
        return ROOT / "build" / "release" / target
    with BUILDING:
        return built(target)


@functools.cache
def built(target: str) -> pathlib.Path:
    done = subprocess.run([str(ROOT / "tools" / "build" / "build.sh"), "release", target], cwd=ROOT, capture_output=True, text=True)
    require(done.returncode == 0, f"building {target}:\n", done.stderr[-2500:])
    return ROOT / "build" / "release" / target


class FakeS3Server:
    """tests/support/fake_s3.h as a program: one bucket in memory, with faults on demand."""

    def __init__(self, conditions: str = "everywhere", seed: int = 1):
        self.process = subprocess.Popen([str(build("fake_s3_server")), conditions, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()
        require(self.endpoint.startswith("127.0.0.1:"), "the fake S3 server does not start:", self.endpoint)

    def __enter__(self) -> "FakeS3Server":
        return self

    def __exit__(self, *unused) -> None:
        self.process.kill()
        self.process.wait()

    def tell(self, command: str) -> str:
        """faults PERCENT | hang 0|1 | region NAME | uploads | calls | faulted | dump FOLDER | load FOLDER PREFIX"""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def environment(self, **more: str) -> dict:
        return s3_environment(self.endpoint, "AKFAKE", "fake/secret+key", **more)

    def dump(self, folder: pathlib.Path) -> pathlib.Path:
        require(self.tell(f"dump {folder}") == "ok", "the fake S3 server cannot write its objects")
        return folder


def write_url_lines(path: pathlib.Path, urls: list[str]) -> pathlib.Path:
    """A URL table as JSON lines."""
    path.write_text("".join(json.dumps({"URL": url, "TEXT": "a picture"}) + "\n" for url in urls), encoding="utf-8")
    return path


class FastWeb:
    """The troubled web in C++ over a folder with web.json."""

    def __init__(self, folder: pathlib.Path, routes: dict):
        (folder / "web.json").write_text(json.dumps({"routes": routes}), encoding="utf-8")
        self.process = subprocess.Popen([str(build("web_server")), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def __enter__(self) -> "FastWeb":
        return self

    def __exit__(self, *unused) -> None:
        self.process.kill()
        self.process.wait()


def s3_environment(endpoint: str, key: str, secret: str, **more: str) -> dict:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment.update(AWS_ENDPOINT_URL_S3=f"http://{endpoint}", AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret, AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
    environment.update(AWS_CONFIG_FILE="/nowhere", AWS_SHARED_CREDENTIALS_FILE="/nowhere", **more)
    return environment


def require_root(what: str) -> None:
    if os.geteuid() != 0:
        raise Skipped(f"{what} needs root")


def require_namespaces() -> None:
    require_root("a network namespace")
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode != 0:
        raise Skipped("this kernel or container grants no network namespace")
    if shutil.which("ip") is None:
        raise Skipped("there is no ip program (package iproute2)")


def run_in_namespace(script: str, *arguments, timeout: float = 900) -> dict:
    """Runs a script of this folder in a network and mount namespace of its own; its last line of output is JSON."""
    require_namespaces()
    done = subprocess.run(["unshare", "--net", "--mount", "--fork", "--kill-child", sys.executable, str(pathlib.Path(__file__).parent / script), "--inside", *map(str, arguments)],
                          capture_output=True, text=True, errors="replace", timeout=timeout, cwd=ROOT)
    require(done.returncode == 0, "the check in its namespace failed:\n", done.stdout[-1500:], done.stderr[-2500:])
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextlib.contextmanager
def tmpfs(size: str):
    """A small disk of its own, in this process's mount namespace or the machine's."""
    require_root("mounting a small disk")
    with temporary_folder() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "darkroom-acceptance", str(folder)], capture_output=True).returncode != 0:
            raise Skipped("this container may not mount a tmpfs")
        try:
            yield folder
        finally:
            subprocess.run(["umount", str(folder)], check=True)


def summary_of(path: pathlib.Path, verb: str) -> dict:
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))[verb]
