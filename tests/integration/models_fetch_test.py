#!/usr/bin/env python3
"""`models fetch` against a hub on loopback: what it leaves of a model folder when all goes well, and when not."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys

from workbench import main, require, said_on_a_terminal, temporary_folder

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("DARKROOM_PROGRAM", ROOT / "build" / "darkroom"))
sys.path.insert(0, str(ROOT / "tests" / "support"))
from fake_hub import FakeHub  # noqa: E402: it lies beside the tests' other support.

SECRET = "hf_canary_token"
WEIGHTS = random.Random(1).randbytes(300_000)


def write_model(root: pathlib.Path) -> dict[str, bytes]:
    """A model of the hub; returns what a fetched folder must hold."""
    files = {
        "model_index.json": json.dumps({"_class_name": "X", "unet": ["diffusers", "U"], "tokenizer": ["transformers", "T"]}).encode(),
        "unet/config.json": b"{}",
        "unet/diffusion_pytorch_model.safetensors": WEIGHTS,
        "tokenizer/merges.txt": b"#version: 0.2\n",
    }
    others = {"README.md": b"x", "unet/diffusion_pytorch_model.bin": b"pickle", "unet/diffusion_pytorch_model.fp16.safetensors": WEIGHTS[:5000]}
    for path, data in {**files, **others}.items():
        place = root / "models" / "org" / "sd" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return files


def fetch(hub: FakeHub, folder: pathlib.Path, *flags: str, source: str = "hf://org/sd", token: str = "", expect: int = 0, summary: bool = False,
          columns: int = 0) -> str:
    """What is said on stderr, which is a terminal where `columns` are given."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING_FACE_"))}
    environment.update(HF_ENDPOINT=hub.endpoint, HF_HOME=str(folder / "no-home"), **({"HF_TOKEN": token} if token else {}))
    command = [PROGRAM, "models", "fetch", source, folder / "model", *flags, *(["--json-summary", folder / "summary.json"] if summary else [])]
    if columns:
        status, said = said_on_a_terminal(command, environment, columns)
    else:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        status, said = done.returncode, done.stderr
        require(SECRET not in done.stdout, "the token is told")
    require(status == expect, "exit code", status, said)
    require(SECRET not in said, "the token is told")
    return said


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copies_a_model_and_sends_the_token_to_the_hub_alone() -> None:
    with temporary_folder() as folder, FakeHub(folder / "hub", token=SECRET, is_gated=True) as hub:
        files = write_model(hub.root)
        require("set HF_TOKEN" in fetch(hub, folder, expect=1), "it does not say what to do")
        shown = fetch(hub, folder, token=SECRET, summary=True, columns=130)
        require("models fetch [#" in shown and "(100.0%), 4/4 files" in shown and "[#" not in shown.partition("wrote ")[2],
                "a line with a bar, and at the end none", repr(shown))
        require(contents(folder / "model") == files, "files", sorted(contents(folder / "model")))
        summary = json.loads((folder / "summary.json").read_text())
        require(summary["files"] == 4 and summary["bytes"] == sum(map(len, files.values())), "summary", summary)
        require(bool(hub.byte_requests), "no file came from the second server")
        require(not any(SECRET in str(headers) for _, _, headers in hub.byte_requests), "the other server sees the token")
        require(sorted(path.name for path in folder.iterdir()) == ["hub", "model", "summary.json"], "left behind", list(folder.iterdir()))


def goes_on_where_it_was_cut() -> None:
    with temporary_folder() as folder, FakeHub(folder / "hub") as hub:
        files = write_model(hub.root)
        part = folder / "_tmp.model.fetch" / "unet" / "diffusion_pytorch_model.safetensors"
        for cut in (0, 1, 4095, 150_000, len(WEIGHTS) - 1, len(WEIGHTS)):
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(WEIGHTS[:cut])
            hub.byte_requests.clear()
            said = fetch(hub, folder, *(["--quiet"] if cut == 1 else []), summary=True, columns=130 if cut == 4095 else 0)
            require((said == "") == (cut == 1) and ("[#" in said) == (cut == 4095), "what is said with --quiet, on a terminal and elsewhere", cut, said)
            require(contents(folder / "model") == files, "files after a cut at", cut)
            asked = [headers["Range"] for _, _, headers in hub.byte_requests]
            require(asked == ([f"bytes={cut}-{len(WEIGHTS) - 1}"] if cut < len(WEIGHTS) else []), "ranges", cut, asked)
            require(json.loads((folder / "summary.json").read_text())["resumed_bytes"] == cut, "resumed bytes", cut)
            for path in sorted((folder / "model").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (folder / "model").rmdir()


def require_counts_of_a_failure(folder: pathlib.Path, files: dict[str, bytes]) -> None:
    """The summary of a run that came as far as the large file, and not through it."""
    summary = json.loads((folder / "summary.json").read_text())
    require(summary["files"] == 3 and summary["files_wanted"] == 4 and summary["bytes_wanted"] == sum(map(len, files.values())) and summary["error"],
            "summary after a failure", summary)


def a_signal_leaves_what_the_next_run_goes_on_with() -> None:
    with temporary_folder() as folder, FakeHub(folder / "hub") as hub:
        files = write_model(hub.root)
        hub.cut_after = 0  # It tries again and again, until the signal.
        environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "no-home")}
        job = subprocess.Popen([PROGRAM, "models", "fetch", "hf://org/sd", folder / "model", "--json-summary", folder / "summary.json"], env=environment,
                               stderr=subprocess.PIPE, text=True)
        for line in job.stderr:
            if "fetching unet/diffusion" in line:
                break
        job.send_signal(signal.SIGTERM)
        stderr = job.communicate(timeout=60)[1]
        require(job.returncode == 143, "exit code", job.returncode, stderr)
        require(not (folder / "model").exists(), "an unfinished folder is visible")
        require_counts_of_a_failure(folder, files)
        hub.cut_after = None
        fetch(hub, folder)
        require(contents(folder / "model") == files, "files")


def never_publishes_other_bytes() -> None:
    with temporary_folder() as folder, FakeHub(folder / "hub") as hub:
        files = write_model(hub.root)
        hub.lies = True
        stderr = fetch(hub, folder, "--quiet", expect=1, summary=True)
        require_counts_of_a_failure(folder, files)
        require(all(": " in line and "fetching" not in line for line in stderr.splitlines()), "more than warnings and errors with --quiet", stderr)
        require("unet/diffusion_pytorch_model.safetensors" in stderr and "hash" in stderr, "message", stderr)
        require(not (folder / "model").exists(), "other bytes are visible")


def refuses_with_a_sentence() -> None:
    with temporary_folder() as folder, FakeHub(folder / "hub") as hub:
        write_model(hub.root)
        require("no such branch" in fetch(hub, folder, source="hf://org/sd@v9", expect=1), "revision")
        require("no such repository" in fetch(hub, folder, source="hf://org/none", expect=1), "repository")
        fetch(hub, folder, source="hf://datasets/org/sd", expect=2)
        fetch(hub, folder, source="org/sd", expect=2)
        (hub.root / "models/org/sd/unet/diffusion_pytorch_model.safetensors").unlink()
        (hub.root / "models/org/sd/unet/diffusion_pytorch_model.fp16.safetensors").unlink()
        require("pickle" in fetch(hub, folder, expect=1), "pickle")
        (folder / "model").mkdir()
        require("already" in fetch(hub, folder, expect=1), "a name that is taken")


if __name__ == "__main__":
    main([
        copies_a_model_and_sends_the_token_to_the_hub_alone,
        goes_on_where_it_was_cut,
        a_signal_leaves_what_the_next_run_goes_on_with,
        never_publishes_other_bytes,
        refuses_with_a_sentence,
    ])
