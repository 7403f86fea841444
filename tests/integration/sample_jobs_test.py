#!/usr/bin/env python3
"""sample --jobs: the pictures of `sample`, a record that paints each of them again, and folders that a cut run goes on in."""

import fcntl
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import time
import zlib

from bad_input_test import SmallDisk
from cases import temporary_folder
from workbench import PROGRAM, ROOT, digests, main, require, run

MODEL = str(ROOT / "models" / "tiny")
TWO_STEPS = "steps = 2\nguidance = 3\n"
PICTURES = "*/[0-9]*.png"


def write_jobs(folder: pathlib.Path, text: str) -> str:
    path = folder / "jobs.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def paint(folder: pathlib.Path, text: str, out: str = "out", *flags: str, expect: int = 0) -> pathlib.Path:
    """Paints a job file into folder/out; gives the folder."""
    run("sample", "--model", MODEL, "--jobs", write_jobs(folder, text), "--output", str(folder / out), *flags, expect=expect)
    return folder / out


def refused(arguments: list, exit_code: int, *words: str) -> None:
    stderr = run("sample", *arguments, expect=exit_code).stderr
    errors = [line for line in stderr.splitlines() if "error: " in line]
    require(len(errors) == 1, "want one error line:", stderr[-2000:])
    for word in words:
        require(re.search(word, errors[0]) is not None, f"the message lacks /{word}/:", errors[0])


def small_png(path: pathlib.Path, side: int) -> str:
    """A picture of two colours."""
    rows = b"".join(b"\0" + bytes((x * 255 // side, y * 255 // side, 90) [c] for x in range(side) for c in range(3)) for y in range(side))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return str(path)


def pictures_have_the_bytes_that_sample_gives_them() -> None:
    with temporary_folder() as folder:
        start = small_png(folder / "start.png", 72)
        text = f"""{TWO_STEPS}
[lists]
fruit = ["apple", "pear"]
[styles.photo]
prefix = "a photo of "
negative = "grey"
[[job]]
name = "plain"
prompt = "a red {{fruit}}"
negative = "blurry"
styles = ["photo"]
images = 2
seed = 4
[[job]]
name = "other"
prompt = "a (red:1.3) apple"
prompt_syntax = "weighted"
size = "32x48"
sampler = "euler_a"
guidance_rescale = 0.5
[[job]]
name = "start"
prompt = "a house"
init_image = "{start}"
strength = 0.5
steps = 4
sampler = "ddim"
eta = 0.5
"""
        out = paint(folder, text)
        common = ["--model", MODEL, "--guidance", "3"]
        two = [*common, "--steps", "2", "--negative", "blurry, grey", "--seed", "4", "--images", "2"]
        run("sample", *two, "--prompt", "a photo of a red apple", "a photo of a red pear", "--output", folder / "plain.png")
        run("sample", *common, "--steps", "2", "--prompt", "a (red:1.3) apple", "--prompt-syntax", "weighted", "--size", "32x48", "--sampler", "euler_a", "--guidance-rescale", "0.5", "--output", folder / "other.png")
        run("sample", *common, "--steps", "4", "--prompt", "a house", "--init-image", start, "--strength", "0.5", "--sampler", "ddim", "--eta", "0.5", "--output", folder / "start-00000.png")
        for i in range(4):
            require((out / f"plain/{i:05d}.png").read_bytes() == (folder / f"plain-{i:05d}.png").read_bytes(), "another picture than sample's", i)
        require((out / "other/00000.png").read_bytes() == (folder / "other.png").read_bytes(), "another weighted picture than sample's")
        require((out / "start/00000.png").read_bytes() == (folder / "start-00000.png").read_bytes(), "another picture than sample's from a start")
        record = json.loads((out / "pictures.json").read_text())
        require([entry["file"] for entry in record["pictures"]] == [f"plain/{i:05d}.png" for i in range(4)] + ["other/00000.png", "start/00000.png"], "order", record)
        require({entry["file"]: entry["sha256"] for entry in record["pictures"]} == digests(str(out), PICTURES), "digests of the record")
        require(record["pictures"][5]["width"] == 72 and record["pictures"][0]["sampler"] != "", "what the model decided", record["pictures"])
        require(sorted(path.name for path in out.iterdir()) == ["other", "pictures.json", "plain", "start"], "files", list(out.iterdir()))


def any_number_of_workers_gives_the_same_files() -> None:
    text = TWO_STEPS + "[[job]]\nprompts = ['a', 'b', 'c']\nx = {field = 'steps', values = [1, 3]}\ny = {field = 'size', values = ['64x64', '32x64']}\n"
    with temporary_folder() as folder:
        one = paint(folder, text, "one", "--workers", "1")
        three = paint(folder, text, "three", "--workers", "3")
        require(len(digests(str(one), PICTURES)) == 12, "pictures", digests(str(one), PICTURES))
        require(digests(str(one), "**/*") == digests(str(three), "**/*"), "three workers paint otherwise")


def the_record_alone_paints_any_picture_again() -> None:
    with temporary_folder() as folder:
        out = paint(folder, TWO_STEPS + "[[job]]\nname = 'a'\nprompt = 'a red apple'\nimages = 3\n[[job]]\nname = 'b'\nprompt = 'a dog'\n")
        (folder / "jobs.toml").unlink()
        record = str(out / "pictures.json")
        run("sample", "--reproduce", record, "--only", "a/00001", "b", "--output", folder / "again")
        want = digests(str(out), PICTURES)
        require(digests(str(folder / "again"), PICTURES) == {name: want[name] for name in ("a/00001.png", "b/00000.png")}, "other bytes than before")
        run("sample", "--reproduce", record, "--output", folder / "all")
        require(digests(str(folder / "all"), PICTURES) == want, "other bytes of all")

        moved = folder / "moved"
        moved.symlink_to(MODEL)
        run("sample", "--reproduce", record, "--model", moved, "--only", "b", "--output", folder / "moved-model")
        require((folder / "moved-model/b/00000.png").read_bytes() == (out / "b/00000.png").read_bytes(), "a model that moved gives other bytes")
        run("models", "init", "--preset", "tiny", folder / "other", "--tokenizer", ROOT / "models" / "tiny" / "tokenizer")
        refused(["--reproduce", record, "--model", folder / "other", "--output", folder / "x"], 1, "another model .part, recorded, this one.: ")

        refused(["--reproduce", record, "--output", out], 2, "--output is the folder of the record")
        refused(["--reproduce", record, "--only", "c", "--output", folder / "x"], 2, "--only names no job and no picture", "c$")
        refused(["--reproduce", record, "--steps", "3", "--output", folder / "x"], 2, "--steps does not go with --reproduce")
        refused(["--reproduce", folder / "none.json", "--output", folder / "x"], 2, "--reproduce names a file that cannot be read")

        changed = json.loads(pathlib.Path(record).read_text())
        changed["pictures"][1]["sha256"] = "0" * 64
        (folder / "changed.json").write_text(json.dumps(changed))
        refused(["--reproduce", folder / "changed.json", "--output", folder / "differs"], 1, "1 of 4 pictures are painted, but have other bytes", "a/00001.png")
        require(digests(str(folder / "differs"), PICTURES) == want, "pictures of a failed comparison")


def a_record_opens_no_picture_that_its_reader_does_not_expect() -> None:
    with temporary_folder() as folder:
        (folder / "starts").mkdir()
        start = folder / "starts" / "start.png"
        small_png(start, 64)
        out = paint(folder, TWO_STEPS + f"[[job]]\nname = 'a'\nprompt = 'an apple'\ninit_image = '{start}'\n")
        record = out / "pictures.json"
        refused(["--reproduce", record, "--output", folder / "x"], 2, "a picture outside its own folder.*--init-images", "a/00000.png", "start.png")
        refused(["--reproduce", record, "--init-images", out, "--output", folder / "x"], 2, "a picture outside its own folder")
        run("sample", "--reproduce", record, "--init-images", folder / "starts", "--output", folder / "again")
        require(digests(str(folder / "again"), PICTURES) == digests(str(out), PICTURES), "other bytes than before")

        (out / "start.png").write_bytes(start.read_bytes())
        (out / "link.png").symlink_to(start)
        os.mkfifo(out / "pipe.png")
        with open(out / "huge.png", "wb") as huge:
            huge.truncate(100_000_001)
        whole = json.loads(record.read_text())
        for name, words in (("link.png", "a picture outside its own folder"), ("../starts/start.png", "a picture outside its own folder"), ("pipe.png", "no regular file"),
                            ("a", "no regular file"), ("huge.png", "too large"), ("none.png", "not there")):
            whole["pictures"][0]["init_image"] = str(out / name)
            record.write_text(json.dumps(whole))
            refused(["--reproduce", record, "--output", folder / "x"], 2, words)
        whole["pictures"][0]["init_image"] = str(out / "start.png")
        record.write_text(json.dumps(whole))
        refused(["--reproduce", record, "--output", folder / "moved"], 1, "have other bytes")  # Opened: the file names another start.


MANY = "steps = 8\nguidance = 3\n[lists]\nn = ['1', '2', '3', '4', '5', '6']\n[[job]]\nname = 'many'\nprompt = 'picture {n}'\nimages = 4\n"


def lines_of(out: pathlib.Path) -> list[dict]:
    journal = out / "pictures.jsonl"
    text = journal.read_text() if journal.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def start_and_hit(folder: pathlib.Path, number: signal.Signals) -> tuple[pathlib.Path, subprocess.Popen, str]:
    """A run that a signal hit after its first pictures and before its last; on a machine where it missed, another one."""
    for attempt in range(10):
        out = folder / f"hit-{number}-{attempt}"
        command = [str(PROGRAM), "sample", "--model", MODEL, "--jobs", write_jobs(folder, MANY), "--output", str(out), "--workers", "1"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        while process.poll() is None and len(lines_of(out)) < 3:
            time.sleep(0.005)
        process.send_signal(number)
        message = process.communicate()[1]
        if not (out / "pictures.json").exists():
            return out, process, message
    raise AssertionError("no signal hit a running job")


def require_goes_on(folder: pathlib.Path, out: pathlib.Path) -> None:
    """The same command keeps what is painted, file by file, and ends with the bytes of an undisturbed run."""
    painted = {line["file"]: (out / line["file"]).stat() for line in lines_of(out)}
    require(len(painted) >= 3, "pictures before the cut", len(painted))
    paint(folder, MANY, out.name, "--json-summary", str(folder / "summary.json"))
    for name, before in painted.items():
        after = (out / name).stat()
        require((after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns), "painted again:", name)
    summary = json.loads((folder / "summary.json").read_text())["sample"]
    require(summary["rows_kept"] == len(painted) and summary["rows_written"] == 24 - len(painted), "counts", summary)
    reference = folder / "reference"
    if not reference.exists():
        paint(folder, MANY, "reference")
    require(digests(str(out), "**/*") == digests(str(reference), "**/*"), "the rerun differs from an undisturbed run")
    leftovers = [str(path) for path in out.rglob("*") if "_tmp" in path.name]
    require(not leftovers, "temporaries stay", leftovers)


def a_killed_or_stopped_run_goes_on_without_painting_again() -> None:
    with temporary_folder() as folder:
        out, process, _ = start_and_hit(folder, signal.SIGKILL)
        require(process.returncode == -signal.SIGKILL, "exit code", process.returncode)
        require_goes_on(folder, out)
        out, process, message = start_and_hit(folder, signal.SIGINT)
        require(process.returncode == 130 and "of 24 pictures painted; the same command goes on with the others" in message, "exit code of Ctrl-C", process.returncode, message[-500:])
        require_goes_on(folder, out)


def a_changed_file_paints_what_changed() -> None:
    with temporary_folder() as folder:
        job = "[[job]]\nname = 'a'\nprompts = ['a', 'b']\n"
        out = paint(folder, TWO_STEPS + job)
        before = (out / "a/00000.png").stat()
        paint(folder, TWO_STEPS + "[[job]]\nname = 'new'\nprompt = 'x'\n" + job.replace("'b'", "'c'"), "out", "--json-summary", str(folder / "summary.json"))
        summary = json.loads((folder / "summary.json").read_text())["sample"]
        require((summary["rows_kept"], summary["rows_written"], summary["sheets"]) == (1, 2, 2), "counts", summary)
        require((out / "a/00000.png").stat().st_ino == before.st_ino, "painted again")
        (out / "a/00001.png").write_bytes(b"damaged")
        paint(folder, TWO_STEPS + job.replace("'b'", "'c'"))
        require((out / "a/00001.png").read_bytes()[:4] == b"\x89PNG", "a damaged picture stays")


def a_full_disk_says_so_and_the_rerun_goes_on() -> None:
    with temporary_folder() as folder, SmallDisk(str(folder / "disk"), "100k") as disk:
        refused(["--model", MODEL, "--jobs", write_jobs(folder, MANY), "--output", str(folder / "disk" / "out")], 1, "no space left")
        kept = lines_of(folder / "disk" / "out")
        require(0 < len(kept) < 24, "pictures before the disk was full", len(kept))
        disk.remount("size=100m")
        paint(folder, MANY, "disk/out", "--json-summary", str(folder / "summary.json"))
        require(json.loads((folder / "summary.json").read_text())["sample"]["rows_kept"] >= len(kept) - 1, "pictures were painted again")


def a_folder_is_painted_into_by_one_process_at_a_time() -> None:
    with temporary_folder() as folder:
        out = folder / "out"
        out.mkdir()
        descriptor = os.open(out, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            refused(["--model", MODEL, "--jobs", write_jobs(folder, TWO_STEPS + "[[job]]\nprompt = 'a'\n"), "--output", out], 1, "another process is painting into this folder")
        finally:
            os.close(descriptor)


def flags_and_files_that_do_not_fit_are_refused_before_anything_is_painted() -> None:
    with temporary_folder() as folder:
        jobs = write_jobs(folder, "steps = 2\n[[job]]\nname = 'a'\nprompt = 'a'\nsize = '64x64'\nx = {field = 'guidance', values = [1, 2]}\n")
        common = ["--model", MODEL, "--jobs", jobs, "--output", folder / "out"]
        for flag in (["--prompt", "a"], ["--prompts-file", jobs], ["--grid"], ["--batch-size", "2"], ["--latents", "x.safetensors"], ["--save-latents", "x.safetensors"]):
            refused([*common, *flag], 2, f"{flag[0]} does not go with --jobs: ")
        for flag, field in (("--steps", "steps"), ("--guidance", "guidance"), ("--size", "size")):
            refused([*common, flag, "64x64" if field == "size" else "3"], 2, f"{flag} is given, but .*jobs.toml sets {field}, too")
        refused([*common, "--reproduce", jobs], 2, "--jobs and --reproduce do not go together")
        refused([*common, "--max-pictures", "1"], 2, "asks for 2 pictures, more than the 1 that --max-pictures allows")
        refused(["--model", MODEL, "--jobs", folder / "none.toml", "--output", folder / "out"], 2, "--jobs names a file that cannot be read", "none.toml")
        refused(["--model", MODEL, "--jobs", jobs, "--output", "s3://bucket/out"], 2, "must be a folder of this machine")
        refused(["--model", MODEL, "--jobs", jobs, "--output", jobs], 2, "names a folder, but this is a file")
        broken = write_jobs(folder, "[[job]]\nname = 'a'\npromt = 'a'\n")
        refused([*common[:3], broken, "--output", folder / "out"], 2, "jobs.toml, line 3: ..job.. 1 .a.: there is no field 'promt'; did you mean 'prompt'?")
        tall = write_jobs(folder, TWO_STEPS + "[[job]]\nname = 'a'\nprompts = ['a', 'b']\n[[job]]\nname = 'odd'\nprompt = 'c'\nwidth = 65\n")
        refused([*common[:3], tall, "--output", folder / "odd"], 2, "odd/00000.png: ", "multiples of the VAE's factor")
        require(not digests(str(folder), "**/*.png"), "something was painted")
        # What the file leaves open is the flags'.
        out = paint(folder, "[[job]]\nprompt = 'a'\n", "filled", "--steps", "2", "--guidance", "3", "--seed", "5", "--images", "2", "--negative", "grey")
        entries = json.loads((out / "pictures.json").read_text())["pictures"]
        require([(entry["steps"], entry["guidance"], entry["seed"], entry["negative"]) for entry in entries] == [(2, 3.0, 5, "grey"), (2, 3.0, 6, "grey")], "flags", entries)


def the_shipped_file_is_painted() -> None:
    with temporary_folder() as folder:
        run("sample", "--model", MODEL, "--jobs", ROOT / "recipes/prompts.toml", "--steps", "2", "--output", folder / "studies")
        entries = json.loads((folder / "studies/pictures.json").read_text())["pictures"]
        jobs = {entry["file"].split("/")[0] for entry in entries}
        require(all((folder / "studies" / job / "sheet.png").exists() for job in jobs) and len(jobs) == 6, "sheets", jobs)
        require(len(digests(str(folder / "studies"), PICTURES)) == len(entries) == 42, "pictures", len(entries))


if __name__ == "__main__":
    main(
        [
            pictures_have_the_bytes_that_sample_gives_them,
            any_number_of_workers_gives_the_same_files,
            the_record_alone_paints_any_picture_again,
            a_record_opens_no_picture_that_its_reader_does_not_expect,
            a_killed_or_stopped_run_goes_on_without_painting_again,
            a_changed_file_paints_what_changed,
            a_full_disk_says_so_and_the_rerun_goes_on,
            a_folder_is_painted_into_by_one_process_at_a_time,
            flags_and_files_that_do_not_fit_are_refused_before_anything_is_painted,
            the_shipped_file_is_painted,
        ]
    )
