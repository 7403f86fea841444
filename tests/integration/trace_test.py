#!/usr/bin/env python3
"""--trace-file: spans of a download, a process and a training run hang together, survive a stop, and leave a readable beginning after a
kill.

usage: trace_test.py [FOLDER]      FOLDER: where the traces are left, for tools/parity/observation_parity.py
"""

import collections
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from workbench import PROGRAM, ROOT, LoopbackWeb, Workbench, digests, main, require, run

KEPT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="darkroom-test-"))
PATIENCE = 300  # Seconds; a limit, no measure.
NUM_ROWS = 12
TRAIN = ["recipes/tiny.toml", "--set", "batch.global=4", "--set", "batch.micro=2", "--set", "runtime.gradient_groups=2", "--set", "samples.every_steps=0"]


def spans_of(path: pathlib.Path, may_be_torn: bool = False) -> list[dict]:
    lines = path.read_text().split("\n")
    require(may_be_torn or lines[-1] == "", "the last line is not whole", path)
    spans = []
    for line in lines[:-1]:  # After a kill the last one may be torn.
        for resource in json.loads(line)["resourceSpans"]:
            spans += [span for scope in resource["scopeSpans"] for span in scope["spans"]]
    return spans


def attributes_of(span: dict) -> dict:
    return {entry["key"]: int(entry["value"]["intValue"]) if "intValue" in entry["value"] else list(entry["value"].values())[0] for entry in span["attributes"]}


def begin_of(span: dict) -> int:
    return int(span["startTimeUnixNano"])


def end_of(span: dict) -> int:
    return int(span["endTimeUnixNano"])


def check_nesting(spans: list[dict]) -> None:
    """Every parent is there, in the same trace, and holds its children's time."""
    by_id = {span["spanId"]: span for span in spans}
    require(len(by_id) == len(spans), "identifiers come twice", len(spans) - len(by_id))
    for span in spans:
        require(begin_of(span) <= end_of(span), "a span ends before it begins", span)
        parent = by_id.get(span.get("parentSpanId", ""))
        require(("parentSpanId" in span) == (parent is not None), "a parent is missing", span)
        if parent is not None:
            require(parent["traceId"] == span["traceId"], "another trace", span, parent)
            require(begin_of(parent) <= begin_of(span) and end_of(span) <= end_of(parent), "not within its parent", span, parent)


def children_of(spans: list[dict], parent: dict) -> collections.Counter:
    return collections.Counter(span["name"] for span in spans if span.get("parentSpanId") == parent["spanId"])


def an_items_life_is_one_trace() -> None:
    with Workbench(NUM_ROWS) as bench, LoopbackWeb(bench.path("corpus")) as web:
        table = bench.write_url_table(web.port)
        next(pathlib.Path(bench.path("corpus"), "pictures").iterdir()).unlink()  # A row that fails.
        run("download", bench.path("images"), "--metadata", table, "--rows-per-file", "4", "--allow-private", f"127.0.0.1/32:{web.port}", "--trace-file", KEPT / "download.jsonl")
        spans = spans_of(KEPT / "download.jsonl")
        check_nesting(spans)
        items = [span for span in spans if span["name"] == "item"]
        require(sorted(attributes_of(item)["darkroom.item"] for item in items) == [0, 1, 2], "items", items)
        for item in items:  # Of the rows the first one has spans.
            require(children_of(spans, item) == dict.fromkeys(("claim", "read", "fetch", "inspect", "write", "finish", "commit"), 1), "spans of an item", children_of(spans, item))
        told = [attributes_of(item) for item in items]
        require(sum(one["darkroom.rows_in"] for one in told) == NUM_ROWS and sum(one["darkroom.rows_out"] for one in told) == NUM_ROWS - 1, "rows", told)
        require(sum(one.get("darkroom.rows_by_error.http_404", 0) for one in told) == 1, "errors", told)
        process = ["process", bench.path("images"), "--model", bench.model, "--resolution", "64", "--rows-per-file", "4", "--batch-size", "2"]
        run(*process, bench.path("latents"), "--trace-file", KEPT / "process.jsonl")
        run(*process, bench.path("plain"))
        require(digests(bench.path("latents"), "*.parquet") == digests(bench.path("plain"), "*.parquet"), "a trace changes bytes")
        spans = spans_of(KEPT / "process.jsonl")
        check_nesting(spans)
        items = [span for span in spans if span["name"] == "item"]
        require(len(items) == 3, "items", items)
        require(all({"claim", "read", "transform", "encode", "write", "finish", "commit"} == set(children_of(spans, item)) for item in items), "stages", spans)
        encoded = sum(attributes_of(span)["darkroom.rows"] for span in spans if span["name"] == "encode")
        require(encoded == NUM_ROWS - 1, "rows of the encoder", encoded)


def train_command(bench: Workbench, out: str, *more) -> list[str]:
    return [str(part) for part in ("train", *TRAIN, "--data", bench.path("latents"), "--model", bench.model, "--output", bench.path(out), *more)]


def make_latents(bench: Workbench) -> None:
    images = bench.write_image_dataset("images", NUM_ROWS)
    run("process", images, bench.path("latents"), "--model", bench.model, "--resolution", "64")


ALONE = ("data_wait", "forward_backward", "update", "device_wait")  # A step's phases of one rank.
AMONG_OTHERS = (*ALONE, "reduce")


def check_steps(spans: list[dict], steps: list[int], phases: tuple[str, ...]) -> None:
    check_nesting(spans)
    found = sorted((span for span in spans if span["name"] == "step"), key=begin_of)
    require([attributes_of(span)["darkroom.step"] for span in found] == steps, "steps", found)
    for before, after in zip(found, found[1:]):
        require(end_of(before) <= begin_of(after), "steps overlap", before, after)
    for step in found:
        require(children_of(spans, step) == dict.fromkeys(phases, 1), "phases", children_of(spans, step))


def each_rank_traces_its_steps() -> None:
    with Workbench(NUM_ROWS) as bench:
        make_latents(bench)
        run(*train_command(bench, "run", "--max-steps", "3", "--nproc", "2", "--trace-file", KEPT / "train.jsonl"))
        for name in ("train.jsonl", "train-rank1.jsonl"):
            spans = spans_of(KEPT / name)
            check_steps(spans, [1, 2, 3], AMONG_OTHERS)
            require(any(span["name"] == "save" for span in spans), "nothing is saved", name)
        resource = json.loads((KEPT / "train-rank1.jsonl").read_text().split("\n")[0])["resourceSpans"][0]["resource"]
        require({"key": "darkroom.rank", "value": {"intValue": "1"}} in resource["attributes"], "rank", resource)
        # Numbers and spans change no bit.
        run(*train_command(bench, "shown", "--max-steps", "3", "--metrics-port", "0", "--trace-file", KEPT / "shown.trace.json"))
        pattern = "checkpoints/step-00000003/unet/*.safetensors"
        require(len(digests(bench.path("run"), pattern)) == 1 and digests(bench.path("run"), pattern) == digests(bench.path("shown"), pattern), "weights differ")


def await_text(path: pathlib.Path, process: subprocess.Popen) -> None:
    begin = time.monotonic()
    while not path.exists() or b"\n" not in path.read_bytes():
        require(process.poll() is None and time.monotonic() - begin < PATIENCE, "no spans come", process.poll())
        time.sleep(0.05)


def a_stop_loses_no_span_and_a_kill_leaves_whole_lines() -> None:
    with Workbench(NUM_ROWS) as bench:
        make_latents(bench)
        for number, may_be_torn in ((signal.SIGTERM, False), (signal.SIGKILL, True)):
            path = KEPT / f"stopped-{number.name}.jsonl"
            out = f"run-{number.name}"
            process = subprocess.Popen([str(PROGRAM), *train_command(bench, out, "--max-steps", "100000", "--trace-file", path)], cwd=ROOT, stderr=subprocess.DEVNULL)
            await_text(path, process)
            process.send_signal(number)
            process.wait(PATIENCE)
            spans = spans_of(path, may_be_torn)
            steps = sum(span["name"] == "step" for span in spans)
            if number == signal.SIGTERM:
                check_steps(spans, list(range(1, steps + 1)), ALONE)
                last = json.loads(pathlib.Path(bench.path(out), "metrics.jsonl").read_text().strip().rsplit("\n", 1)[-1])
                require(last["step"] == steps and spans[-1]["name"] == "save", "the last steps are missing", last, steps)
            require(steps > 0, "no step", number)


def perfettos_form_is_one_array_of_events() -> None:
    with Workbench(NUM_ROWS) as bench:
        make_latents(bench)
        path = KEPT / "train.perfetto.json"
        run(*train_command(bench, "run", "--max-steps", "2", "--trace-file", path))
        events = [event for event in json.loads(path.read_text()) if event]
        steps = [event for event in events if event["name"] == "step"]
        require([event["args"]["darkroom.step"] for event in steps] == [1, 2], "steps", steps)
        for event in events:
            require(event["ph"] in "XMbe" and isinstance(event["pid"], int) and isinstance(event["tid"], int), "an event", event)
            require(event["ph"] != "X" or (event["ts"] >= 0 and event["dur"] >= 0), "times", event)


def a_file_that_cannot_be_written_ends_the_job_before_it_begins() -> None:
    with Workbench(1) as bench:
        images = bench.write_image_dataset("images", 1)
        done = run("process", images, bench.path("latents"), "--model", bench.model, "--resolution", "64", "--trace-file", bench.path("none/spans.jsonl"), expect=1)
        require("none/spans.jsonl" in done.stderr and not pathlib.Path(bench.path("latents")).exists(), "message", done.stderr)


if __name__ == "__main__":
    KEPT.mkdir(exist_ok=True)
    main([an_items_life_is_one_trace, each_rank_traces_its_steps, a_stop_loses_no_span_and_a_kill_leaves_whole_lines, perfettos_form_is_one_array_of_events, a_file_that_cannot_be_written_ends_the_job_before_it_begins])
