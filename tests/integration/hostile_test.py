#!/usr/bin/env python3
"""200 seeded hostile invocations: paths that are no UTF-8, full devices, links, closed streams, homes that are missing, a million bytes of
arguments, terminals of any size, the locale C; places that each verb's own code has to refuse; a home that is read-only. Nothing aborts, no
device or link is replaced, codes are right.
"""

import collections
import fcntl
import functools
import json
import os
import pathlib
import pty
import random
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import termios
import threading
import time
import zlib
from collections.abc import Iterable

from workbench import PROGRAM, ROOT, Skipped, main, require

SEED = 7
NUM_CASES = 200
ARGUMENT_LIMIT = 125_000  # Bytes. Linux takes 128 KiB an argument; a million bytes are eight of them.
ABORTED = re.compile(rb"terminate called|this is a bug of darkroom|Segmentation|Aborted|core dumped|AddressSanitizer|CLI::|toml::")
HOSTILE_NAMES = [b"\xff", b"\xc3\x28", b"a\nb", b"\x1b[31mred", b" ", b"-", b"--", b"-x", b"'\"", b"a" * 200, "naïve-日本".encode(), b"%s%n", b"{}", b"[a,b]", b"~", b"$HOME"]

Case = collections.namedtuple("Case", "arguments expect options")


class Place:
    """A temporary folder with a model, a table, a picture, devices and links."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="darkroom-test-"))
        self.model = str(self.folder / "tiny")
        subprocess.run([PROGRAM, "models", "init", "--preset", "tiny", self.model, "--tokenizer", ROOT / "models" / "tiny" / "tokenizer"], check=True, capture_output=True)
        self.table = self.folder / "urls.csv"
        self.table.write_text("URL,TEXT\nhttp://127.0.0.1:1/a.png,a red apple\n")
        self.picture = self.folder / "a.png"
        self.picture.write_bytes(png(40, 40))
        self.full = self.make_device("full", 7)
        self.null = self.make_device("null", 3)
        self.target = self.folder / "target.txt"
        self.target.write_text("before")
        self.link = self.folder / "link"
        self.link.symlink_to("target.txt")
        self.broken = self.folder / "broken"
        self.broken.symlink_to("nowhere/at/all")
        self.loop = self.folder / "loop"
        self.loop.symlink_to("loop")
        self.sealed = self.folder / "sealed"
        self.sealed.mkdir()
        self.sealed.chmod(0o500)

        self.pictures = self.folder / "pictures"
        self.pictures.mkdir()
        shutil.copy(self.picture, self.pictures)
        self.holder = socket.create_server(("127.0.0.1", 0))
        self.taken_port = self.holder.getsockname()[1]

    def file(self, name: str, text: str) -> pathlib.Path:
        (self.folder / name).write_text(text)
        return self.folder / name

    def make_device(self, name: str, minor: int) -> pathlib.Path:
        """A copy of a device of /dev to be hostile with, where this user may make one; else a link to it."""
        path = self.folder / name
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            with open(path, "rb"):
                return path
        except OSError:
            path.unlink(missing_ok=True)
            path.symlink_to(f"/dev/{name}")
            return path

    def state(self) -> list:
        """What must not change: the kind of devices and links, and where these lead."""
        kinds = [(str(path), stat.S_IFMT(path.lstat().st_mode), path.lstat().st_rdev) for path in (self.full, self.null, self.link, self.broken, self.loop)]
        return kinds + [os.readlink(path) for path in (self.link, self.broken, self.loop)] + [stat.S_IFMT(os.stat(f"/dev/{name}").st_mode) for name in ("full", "null", "zero")]

    def hostile_path(self, generator: random.Random) -> bytes:
        return os.fsencode(self.folder) + b"/" + generator.choice(HOSTILE_NAMES)

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *unused) -> None:
        self.holder.close()
        self.sealed.chmod(0o700)
        shutil.rmtree(self.folder, ignore_errors=True)


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes(width * 3) for _ in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def hostile_environment(generator: random.Random, place: Place) -> dict[str, str]:
    environment = dict(os.environ)
    changes = generator.choice([
        {"HOME": None}, {"HOME": ""}, {"HOME": "/no/such/home"}, {"HOME": str(place.sealed)}, {"LC_ALL": "C"}, {"LC_ALL": "no_SUCH.locale"}, {"LANG": "C", "LC_ALL": "POSIX"},
        {"TERM": None}, {"TERM": "dumb"}, {"TERM": "no-such-terminal"}, {"NO_COLOR": "1"}, {"TMPDIR": "/no/such/folder"}, {"PATH": None}, {"COLUMNS": "-1"}, {"TZ": "no/such/zone"},
        {"MALLOC_ARENA_MAX": "1"},
    ])
    for key, value in changes.items():
        environment.pop(key, None)
        if value is not None:
            environment[key] = value
    return environment


# Each maker gives the arguments, the exit codes that are right, and how to run it.

def missing_paths(generator: random.Random, place: Place) -> Case:
    path = place.hostile_path(generator) + b"-missing"
    line = generator.choice([
        ["inspect", path], ["models", "check", path], ["process", path, b"out", "--model", place.model], ["train", path, "--output", b"run"],
        ["sample", "--model", path, "--prompt", "x", "--output", b"x.png"], ["tokenize", "--tokenizer", path], ["download", b"out", "--metadata", path],
        ["transform", path, "--resolution", "8", "--output", b"x.safetensors"], ["models", "export", path, b"out"],
        ["models", "forward", place.model, "--component", "unet", "--inputs", path, "--output", b"x"],
    ])
    expect = {2} if line[0] == "train" else {1}  # A recipe is configuration.
    return Case([*line, "--json-summary", "summary.json"], expect, {"env": hostile_environment(generator, place)})


def hostile_tables(generator: random.Random, place: Place) -> Case:
    path = place.hostile_path(generator) + b".csv"
    shutil.copy(place.table, path)
    return Case(["inspect", path, "--json-summary", path + b".json"], {0}, {"env": hostile_environment(generator, place)})


def hostile_summaries(generator: random.Random, place: Place) -> Case:
    path, good = generator.choice([(place.full, 1), (place.null, 0), (place.link, 0), (place.broken, 0), (place.loop, 1), (place.folder, 1), (b"/no/such/folder/x.json", 1), (place.hostile_path(generator) + b".json", 0)])
    return Case(["inspect", place.table, "--json-summary", path], {good}, {})


def hostile_outputs(generator: random.Random, place: Place) -> Case:
    """Devices take the bytes or refuse them, a link's target is written, also where there is nothing yet (docs/files.md)."""
    path, good = generator.choice([(place.full, 1), (place.null, 0), (place.link, 0), (place.broken, 0), (place.loop, 1), (place.folder, 1), (place.hostile_path(generator) + b".safetensors", 0)])
    return Case(["transform", place.picture, "--resolution", "8", "--output", path], {good}, {})


def closed_streams(generator: random.Random, place: Place) -> Case:
    line = generator.choice([["help"], ["--help"], ["--version"], ["completion", "bash"], ["man"], ["inspect", place.table], ["models", "check", place.model], ["doctor"], ["help", "--json"]])
    stream, codes = generator.choice([("stdout", {1}), ("stdout-full", {1}), ("stderr", {0}), ("stdin", {0})])
    return Case(line, codes, {"closed": stream})


def streams_that_break(generator: random.Random, place: Place) -> Case:
    captions = b"a red apple\n" * 3000
    return generator.choice([
        Case(["tokenize", "--tokenizer", place.model + "/tokenizer"], {1}, {"closed": "stdout-pipe", "stdin": captions}),
        Case(["tokenize", "--tokenizer", place.model + "/tokenizer"], {1}, {"closed": "stdin"}),
        Case(["tokenize", "--tokenizer", place.model + "/tokenizer"], {0}, {"stdin": b"\xff\xfe\x00\n\x00" * 50 + b"\n" + b"x" * 300_000}),
        Case(["help", "--parse"], {0}, {"stdin": b"not json\n[1]\n[\"\\ud800\"]\n\xff\n[]\n{}\n"}),
    ])


def long_arguments(generator: random.Random, place: Place) -> Case:
    piece = generator.choice(["a", "é", "-", "[", "9", "../"])
    long = piece * (ARGUMENT_LIMIT // len(piece.encode()))
    many = [long] * 8
    return generator.choice([
        Case([long], {2}, {}), Case(["inspect", long], {2} if long[0] == "-" else {1}, {}), Case(["inspect", "x", "--rows", "9" * ARGUMENT_LIMIT], {2}, {}),
        Case(["download", "out", "--metadata", *many], {1, 2}, {}), Case(["sample", "--model", "no-such-model", "--output", "x.png", "--prompt", *many], {1, 2}, {}),
        Case(["train", "no-such.toml", "--output", "run", *(word for text in many for word in ("--set", text))], {1, 2}, {}),
        Case(["inspect", "x", "--" + "a" * ARGUMENT_LIMIT], {2}, {}), Case(["inspect", "x", "--config", long], {2}, {}), Case(["doctor", *many], {2} if long[0] == "-" else {1}, {}),
        Case(["process", *many], {2}, {}),
    ])


def hostile_configurations(generator: random.Random, place: Place) -> Case:
    path = place.hostile_path(generator) + b".toml"
    body, codes = generator.choice([
        (b"\xff\xfe", {2}), (b"rows = " + b"9" * 100_000, {2}), (b"[" * 50_000, {2}), (b"rows = 3\n" * 2, {2}), (b"rows = \"\\u0000\"", {2}), (b"rows = nan", {2}), (b"", {0}), (b"rows = 1e1\n", {0}),
        (b"x" * 1_000_000, {2}), (b"\"\" = 1", {2}), (b"[inspect]\nrows = 2\n[train]\nnothing = 1\n", {0}), (b"a.b.c.d = 1", {2}), (b"rows = [[[[[[]]]]]]", {2}), (b"json-summary = \"\"", {2}),
    ])
    pathlib.Path(os.fsdecode(path)).write_bytes(body)
    return Case(["inspect", place.table, "--config", path], codes, {})


def terminals(generator: random.Random, place: Place) -> Case:
    size = generator.choice([(0, 0), (1, 1), (2, 2), (3, 500), (24, 80), (500, 3), (65_535, 65_535)])
    line, codes = generator.choice([
        (["download", place.folder / f"images-{generator.random()}", "--metadata", place.table, "--error-budget", "100"], {0}), (["inspect", place.table], {0}), (["downlaod"], {2}), (["--help"], {0}),
        (["models", "check", place.model], {0}), (["transform", "missing", "--resolution", "8", "--output", "x"], {1}),
    ])
    return Case(line, codes, {"terminal": size, "env": hostile_environment(generator, place)})


@functools.cache
def sealing() -> list[str] | None:
    """A command that runs another one while the folder that comes first cannot be written. For root a mount in a namespace of its own does that, because no mode
    binds root; None: this machine lets us make none."""
    if os.geteuid() != 0:
        return ["sh", "-c", 'shift; exec "$@"', "sh"]  # The folder's mode is enough.
    prefix = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"', "sh"]
    is_possible = shutil.which("unshare") is not None and subprocess.run([*prefix, "/tmp", "true"], capture_output=True, check=False).returncode == 0
    return prefix if is_possible else None


def sealed_places(place: Place) -> list[Case]:
    """Outputs in a read-only home, and what writes elsewhere and needs nothing of it."""
    options = {"env": {**os.environ, "HOME": str(place.sealed)}, "sealed": True}
    outputs = [
        ["transform", place.picture, "--resolution", "8", "--output", place.sealed / "x.safetensors"], ["models", "init", "--preset", "tiny", place.sealed / "model"],
        ["inspect", place.table, "--json-summary", place.sealed / "summary.json"], ["download", place.sealed / "images", "--metadata", place.table],
    ]
    return [*(Case(line, {1}, options) for line in outputs), Case(["inspect", place.table], {0}, options), Case(["models", "check", place.model], {0}, options)]


def invocations_of_every_verb(place: Place) -> list[Case]:
    """Of each verb some that its own code, past the parser, has to refuse: places that are not there or are no UTF-8, outputs that cannot be written, a port that is
    taken, a standard output that is full or closed."""
    model, recipe, loop, full = place.model, ROOT / "recipes" / "tiny.toml", place.loop, place.full
    bad = os.fsencode(place.folder) + b"/\xff-missing"
    compared = ["--prompts-file", place.file("prompts.txt", "a red apple\n"), "--output"]
    sample = ["sample", "--prompt", "x", "--steps", "1", "--size", "32x32", "--model", model, "--output"]
    no_data = ["--data", place.folder / "absent", "--model", model, "--output"]
    encoder, transformer = ["encoder", "--raw-data", place.pictures, "--model", model, "--listen"], ["transformer", place.pictures, "--resolution", "64", "--listen"]
    taken, any_port = f"127.0.0.1:{place.taken_port}", "127.0.0.1:0"
    full_out, closed_out = {"closed": "stdout-full"}, {"closed": "stdout"}
    return [
        Case(["bench", "tokenize", "--repeats", "1", "--json-summary", full], {1}, {}),
        Case(["compare", bad, model, *compared, "c"], {1}, {}), Case(["compare", model, model, *compared, full], {1}, {}), Case(["compare", "--votes", bad, "--output", "c"], {1}, {}),
        Case(["completion", "fish"], {1}, full_out), Case(["man"], {1}, closed_out), Case(["help"], {1}, closed_out),
        Case(["demo", full], {1}, {}), Case(["demo", "demo", "--model", bad], {1}, {}),
        Case(["doctor", bad, loop], {1}, {}),
        Case(["download", full, "--metadata", place.table], {1}, {}), Case(["download", bad + b"-new", "--metadata", place.table, "--trace-file", full], {3}, {}),
        Case(["encoder", "--raw-data", bad, "--model", model, "--listen", any_port], {1}, {}), Case([*encoder, taken], {1}, {}), Case([*encoder, any_port], {1}, full_out),
        Case(["encoder", "--recipe", bad, "--listen", any_port], {2}, {}),
        Case(["inspect", place.pictures, "--sheet", full], {1}, {}), Case(["inspect", place.pictures], {1}, closed_out),
        Case(["models", "init", "--preset", "tiny", full], {1}, {}), Case(["models", "check", loop], {1}, {}), Case(["models", "export", model, full, "--single-file"], {1}, {}),
        Case(["models", "fetch", b"hf://org/\xff", "fetched"], {2}, {}), Case(["models", "fetch", "hf://org/name", full], {1}, {}),
        Case(["models", "forward", model, "--component", "unet", "--inputs", place.picture, "--output", "x"], {1}, {}),
        Case(["plan"], {1}, full_out), Case(["plan", "--output", full], {1}, {}), Case(["plan", "--from", bad], {1}, {}), Case(["plan", "--catalogue", bad], {2}, {}),
        Case(["process", place.pictures, full, "--model", model, "--resolution", "64"], {1}, {}), Case(["process", place.pictures, "latents", "--model", bad], {1}, {}),
        Case([*sample, "x.png", "--save-latents", full], {1}, {}), Case(["sample", "--model", model, "--jobs", bad, "--output", "out"], {2}, {}),
        Case(["serve", bad, "--port", "0"], {1}, {}), Case(["serve", model, "--port", "0", "--keys", bad], {1}, {}), Case(["serve", model, "--port", "0", "--metrics-port", str(place.taken_port)], {1}, {}),
        Case(["tokenize", "--tokenizer", model + "/tokenizer"], {1}, {**full_out, "stdin": b"a red apple\n" * 3000}),
        Case(["top", bad, "--once"], {1}, {}), Case(["top", place.folder, "--once"], {1}, full_out),
        Case(["train", recipe, *no_data, "run"], {1}, {}), Case(["train", recipe, *no_data, full], {1}, {}), Case(["train", recipe, "--data", bad, "--model", model, "--output", "run"], {2}, {}),
        Case(["transform", bad, place.picture, "--resolution", "8", "--output", "x.safetensors"], {1}, {}),
        Case([*transformer, taken], {1}, {}), Case([*transformer, any_port], {1}, full_out),
        Case(["tune", recipe, "--budget", "1", *no_data, full], {1}, {}), Case(["tune", recipe, "--budget", "1", "--data", bad, "--model", model, "--output", "tuned"], {2}, {}),
    ]


@functools.cache
def verbs() -> list[list[str]]:
    """The words of every verb that the program defines, and some that are none."""
    defined = json.loads(subprocess.run([PROGRAM, "help", "--json"], capture_output=True, check=True).stdout)["verbs"]
    return [*(verb.split() for verb in sorted(defined)), ["models"], ["completion"], [""], ["-"]]


def garbage(generator: random.Random, place: Place) -> Case:
    words = [b"-", b"=", b"--=", b"--limit", b"--limit=", b"--output", b"--json-summary=", b"--config", b"--prompt", b"--visualize", b"-h=", b"\xff=\xff", b"--\xff", b"[", b"[]", b"[a", b"{}", b"''", b"\x01\x02", b"--seed=-1", b"--no-graph=x", b"-rf", b"--metadata"]
    arguments = [*generator.choice(verbs()), *generator.choices(words, k=generator.randint(1, 8)), b"--zzz", b"--zzz=1"]  # Of two unknown flags no list can take both.
    return Case(arguments, {2}, {})


MAKERS = [missing_paths, hostile_tables, hostile_summaries, hostile_outputs, closed_streams, streams_that_break, long_arguments, hostile_configurations, terminals, garbage]


def run_on_terminal(command: list, options: dict, folder: pathlib.Path) -> tuple[int, bytes]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *options["terminal"], 0, 0))
    job = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=options.get("env"), close_fds=True)
    os.close(slave)
    output = []

    def drain() -> None:
        try:
            while piece := os.read(master, 65_536):
                output.append(piece)
        except OSError:
            pass  # The last holder of the other end is gone.

    reader = threading.Thread(target=drain)
    reader.start()
    code = job.wait(timeout=120)
    reader.join(timeout=30)
    os.close(master)
    return code, b"".join(output)


def run_case(case: Case, folder: pathlib.Path) -> tuple[int, bytes]:
    command = [str(PROGRAM), *(word if isinstance(word, bytes) else os.fsencode(str(word)) for word in case.arguments)]
    if case.options.get("sealed"):
        command = [*sealing(), str(folder / "sealed"), *command]
    if "terminal" in case.options:
        return run_on_terminal(command, case.options, folder)
    closed = case.options.get("closed", "")
    if closed in ("stdout", "stderr", "stdin"):
        shell = {"stdout": '"$@" >&-', "stderr": '"$@" 2>&-', "stdin": '"$@" <&-'}[closed]
        command = ["bash", "-c", shell, "bash", *command]
    if closed == "stdout-full":
        command = ["bash", "-c", '"$@" >/dev/full', "bash", *command]
    if closed == "stdout-pipe":
        command = ["bash", "-c", 'set -o pipefail; "$@" | head -c 10 >/dev/null', "bash", *command]
    done = subprocess.run(command, input=case.options.get("stdin", b""), capture_output=True, timeout=120, cwd=folder, env=case.options.get("env"))
    return done.returncode, done.stderr


def run_cases(place: Place, cases: Iterable[tuple[str, Case]]) -> None:
    """Runs named cases, and fails by those that go wrong: another exit code, an abort, a device or link that was replaced."""
    before = place.state()
    failures = []
    counts = collections.Counter()
    for number, (name, case) in enumerate(cases):
        code, output = run_case(case, place.folder)
        counts[code] += 1
        shown = " ".join(repr(word)[:60] for word in case.arguments)[:300]
        if code not in case.expect or ABORTED.search(output):
            failures.append(f"{number} {name}: {shown} {case.options.get('closed', '')}: exit code {code}, want {case.expect}: {output[-300:]!r}")
        if place.state() != before:
            failures.append(f"{number} {name}: {shown}: a device or a link was replaced")
            break
    print(f"        exit codes: {dict(sorted(counts.items()))}")
    require(not failures, f"{len(failures)} of {counts.total()} went wrong:\n" + "\n".join(failures[:40]))


def hostile_invocations_end_with_the_right_code() -> None:
    generator = random.Random(SEED)
    with Place() as place:
        makers = [MAKERS[number % len(MAKERS)] for number in range(NUM_CASES)]
        run_cases(place, ((maker.__name__, maker(generator, place)) for maker in makers))


def every_verb_refuses_places_that_it_cannot_use() -> None:
    with Place() as place:
        cases = invocations_of_every_verb(place)
        defined = {" ".join(words) for words in verbs() if words not in ([""], ["-"], ["models"])}
        called = {verb for verb in defined for case in cases if list(map(str, case.arguments[: len(verb.split())])) == verb.split()}
        require(called == defined, "verbs that nothing hostile is done to", defined - called)
        run_cases(place, (("every verb", case) for case in cases))


def a_read_only_home_costs_only_what_is_written_there() -> None:
    if sealing() is None:
        raise Skipped("this machine lets root make no mount namespace, so nothing is read-only")
    with Place() as place:
        run_cases(place, (("sealed", case) for case in sealed_places(place)))


def in_shell(script: str, *arguments, **options) -> subprocess.CompletedProcess:
    """Runs the program as "$@" of a line of bash."""
    return subprocess.run(["bash", "-c", script, "bash", PROGRAM, *arguments], capture_output=True, timeout=120, **options)


def what_nobody_can_read_changes_no_code() -> None:
    for arguments, code in ((["nosuch"], 2), (["inspect", "/nowhere.csv"], 1), (["--version"], 0)):
        done = in_shell('"$@" 2>/dev/full', *arguments)
        require(done.returncode == code, "stderr is full", arguments, done.returncode)
    done = in_shell('"$@" >/dev/full 2>/dev/full', "--version")
    require(done.returncode == 1, "stdout and stderr are full", done.returncode)


def too_few_descriptors_are_an_error() -> None:
    for limit in (3, 4):
        done = in_shell(f'ulimit -n {limit}; "$@"', "--version")
        require(done.returncode not in (0, 124) and not ABORTED.search(done.stderr), "exit code", limit, done.returncode, done.stderr)
    require(done.returncode == 1 and b"cannot watch for signals" in done.stderr, "message", done.returncode, done.stderr)


def a_thread_that_cannot_be_started_is_an_error() -> None:
    done = in_shell('ulimit -s 100000000000000 && "$@"', "--version")  # KiB of stack for each thread; this limit binds root, too.
    require(done.returncode == 1 and b"cannot start a thread" in done.stderr, "message", done.returncode, done.stderr)


def a_parent_that_ignores_sigchld_takes_no_exit_codes() -> None:
    script = "trap '' CHLD; exec \"$@\""
    job = subprocess.Popen(["bash", "-c", script, "bash", PROGRAM, "tokenize", "--tokenizer", ROOT / "models" / "tiny" / "tokenizer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        job.stdin.write(b"a red apple\n")
        job.stdin.flush()
        require(len(job.stdout.readline().split()) == 77, "it runs")
        ignored = re.search(r"SigIgn:\s*(\w+)", pathlib.Path(f"/proc/{job.pid}/status").read_text())
        require(not int(ignored.group(1), 16) >> (signal.SIGCHLD - 1) & 1, "SIGCHLD is ignored")
    finally:
        job.kill()
        job.communicate()


def a_second_signal_ends_a_program_whose_stderr_nobody_reads() -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"x" * 4096)
    job = subprocess.Popen([PROGRAM, "tokenize", "--tokenizer", ROOT / "models" / "tiny" / "tokenizer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writer)
    try:
        job.stdin.write(b"a red apple\n")
        job.stdin.flush()
        require(len(job.stdout.readline().split()) == 77, "it runs")
        job.send_signal(signal.SIGINT)
        is_taken, deadline = False, time.monotonic() + 60
        while not is_taken and time.monotonic() < deadline:
            pending = re.search(r"ShdPnd:\s*(\w+)", pathlib.Path(f"/proc/{job.pid}/status").read_text())
            is_taken = not int(pending.group(1), 16) >> (signal.SIGINT - 1) & 1
            time.sleep(0.05)
        require(is_taken, "the first signal was not read")
        job.send_signal(signal.SIGINT)
        require(job.wait(timeout=60) == 130, "exit code", job.returncode)
    finally:
        job.kill()
        job.communicate()
        os.close(reader)
        os.close(writer)


def text_that_nests_deep_is_refused() -> None:
    deep = "[" * 300_000 + "]" * 300_000
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as name:
        folder = pathlib.Path(name)
        shutil.copytree(ROOT / "models" / "tiny" / "tokenizer", folder / "tokenizer")
        (folder / "tokenizer" / "tokenizer.json").write_text(f'{{"model": {deep}}}')
        (folder / "rows.jsonl").write_text(f'{{"url": {deep}}}\n{{"url": "a"}}\n')
        (folder / "model_index.json").write_text(f'{{"_class_name": {deep}}}')
        (folder / "recipe.toml").write_text("a" + ".a" * 300_000 + " = 1\n")
        for arguments, code in (
            (["tokenize", "--tokenizer", folder / "tokenizer"], 1), (["inspect", folder / "rows.jsonl"], 0), (["models", "check", folder], 1),
            (["train", folder / "recipe.toml", "--output", folder / "run"], 2), (["inspect", folder / "rows.jsonl", "--config", folder / "recipe.toml"], 2),
        ):
            done = in_shell('"$@"', *arguments)
            require(done.returncode == code and not ABORTED.search(done.stderr), "exit code", arguments, done.returncode, done.stderr[-300:])
        done = in_shell('"$@"', "help", "--parse", input=deep.encode() + b"\n")
        require(done.returncode == 0 and b"not a JSON list" in done.stdout, "help --parse", done.returncode, done.stderr[-300:])


def what_goes_to_the_standard_output_by_name_goes_behind_what_is_there() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as name:
        out, table = pathlib.Path(name) / "out", pathlib.Path(name) / "urls.csv"
        table.write_text("URL,TEXT\nhttp://127.0.0.1:1/a.png,a red apple\n")
        script = 'out="$1"; shift; "$@" > "$out"'

        def printed(*arguments, text: bytes = b"") -> bytes:
            done = subprocess.run(["bash", "-c", script, "bash", out, PROGRAM, *arguments], input=text, capture_output=True, timeout=120)
            require(done.returncode == 0, "exit code", done.returncode, done.stderr[-300:])
            return out.read_bytes()

        ids = printed("tokenize", "--tokenizer", ROOT / "models" / "tiny" / "tokenizer", "--json-summary", "/dev/stdout", text=b"a red apple\n")
        require(len(ids.split(b"\n")[0].split()) == 77 and b'"captions": 1' in ids, "ids, then the summary", ids[:200])
        text = printed("inspect", table)
        page = printed("inspect", table, "--html", "/dev/stdout")
        require(page.lower().startswith(b"<!doctype html") and b"</html>" in page and page.endswith(text), "the page, then the text", page[:100], page[-300:])


def a_picture_whose_name_is_no_utf8_leaves_nothing_behind() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as name:
        folder = os.fsencode(name)
        picture, out = folder + b"/a\xff.png", folder + b"/out"
        os.mkdir(out)
        pathlib.Path(os.fsdecode(picture)).write_bytes(png(40, 40))
        done = in_shell('"$@"', "transform", picture, "--resolution", "8", "--output", out + b"/x.safetensors")
        require(done.returncode == 1 and b"UTF-8" in done.stderr and not ABORTED.search(done.stderr), "exit code", done.returncode, done.stderr[-300:])
        require(os.listdir(out) == [], "left behind", os.listdir(out))


if __name__ == "__main__":
    main([
        hostile_invocations_end_with_the_right_code,
        every_verb_refuses_places_that_it_cannot_use,
        a_read_only_home_costs_only_what_is_written_there,
        what_nobody_can_read_changes_no_code,
        too_few_descriptors_are_an_error,
        a_thread_that_cannot_be_started_is_an_error,
        a_parent_that_ignores_sigchld_takes_no_exit_codes,
        a_second_signal_ends_a_program_whose_stderr_nobody_reads,
        text_that_nests_deep_is_refused,
        what_goes_to_the_standard_output_by_name_goes_behind_what_is_there,
        a_picture_whose_name_is_no_utf8_leaves_nothing_behind,
    ])
