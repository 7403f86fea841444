#!/usr/bin/env python3
"""The Python package over the C++ code, as `make python` stages it: its results are the bytes of the program's verbs."""

import ast
import builtins
import concurrent.futures
import functools
import gc
import importlib
import json
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
import unittest.mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import safetensors_files
from workbench import ROOT, LoopbackWeb, Skipped, Workbench, digests, main, require, run

STAGED = ROOT / "build" / "release" / "python"
FAKE_DEVICE = ROOT / "build" / "release" / "tests" / "fake_device"  # A GPU that is not there (fake_device_test.py).
MODEL = ROOT / "models" / "tiny"
SIDE = 64
CAPTIONS = ["a red apple", "", "Ünïcode – ½", "word " * 200]

sys.path.insert(0, str(STAGED))


@functools.cache
def bench() -> Workbench:
    return Workbench(num_pictures=12)


def darkroom():
    return importlib.import_module("darkroom")


def python(code: str, *, expect: int = 0, environment: dict | None = None, interpreter: str = sys.executable, path: pathlib.Path = STAGED) -> str:
    """Runs code in a Python of its own; the last line that it printed."""
    variables = {**os.environ, "PYTHONPATH": str(path), **(environment or {})}
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, env=variables, timeout=900, check=False)
    require(done.returncode == expect, f"ended with {done.returncode}:", code, done.stdout, done.stderr)
    return (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]


def raised(kind: type, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def images() -> str:
    folder = bench().folder / "images"
    if not folder.exists():
        bench().write_image_dataset("images", rows_per_file=5, bad_rows={3: b"no picture", 7: None})
    return str(folder)


def processed(name: str, *flags: str) -> str:
    output = bench().folder / name
    if not output.exists():
        run("process", images(), output, "--model", MODEL, "--resolution", SIDE, *flags)
    return str(output)


def image_rows() -> pa.Table:
    return pq.read_table(images())


def same_columns(got: pa.Table, want: pa.Table) -> None:
    require(got.schema.names == want.schema.names, "columns", got.schema.names, want.schema.names)
    require(got.num_rows == want.num_rows, "rows", got.num_rows, want.num_rows)
    for name in want.schema.names:
        require(got[name].type == want[name].type, name, got[name].type, want[name].type)
        require(got[name].combine_chunks().equals(want[name].combine_chunks()), "other values in", name)


# -- tokens and pixels --------------------------------------------------------------------------------------------


def tokens_are_those_of_the_verb() -> None:
    folder = MODEL / "tokenizer"
    for dialect in ("hf", "open_clip"):
        done = subprocess.run([ROOT / "build/darkroom", "tokenize", "--tokenizer", folder, "--tokenizer-dialect", dialect],
                              input="\n".join(CAPTIONS) + "\n", capture_output=True, text=True, check=True)
        want = np.array([line.split() for line in done.stdout.splitlines()], dtype=np.int32)
        for threads in (1, 3):
            got = darkroom().tokenize(CAPTIONS, folder, dialect, threads=threads)
            require(got.dtype == np.int32 and got.shape == (4, 77) and np.array_equal(got, want), "ids", dialect)
    require(np.array_equal(darkroom().tokenize("a red apple"), darkroom().tokenize(CAPTIONS, folder)[:1]), "the shipped tokenizer")
    require(darkroom().tokenize([]).shape == (0, 77), "no captions")


def pixels_are_those_of_the_verb() -> None:
    picture = next(iter(sorted((bench().folder / "corpus" / "pictures").iterdir())))
    for flags in ({}, {"resize": "lanczos", "crop": "random"}, {"orientation": "apply", "crop": "center_round"}):
        output = bench().path("pixels.safetensors")
        words = [word for name, value in flags.items() for word in (f"--{name}", value)]
        run("transform", picture, "--resolution", 48, "--seed", 3, "--output", output, *words)
        raw = pathlib.Path(output).read_bytes()
        want = np.frombuffer(raw[8 + int.from_bytes(raw[:8], "little"):], np.float32).reshape(3, 48, 48)
        got = darkroom().transform(picture.read_bytes(), 48, seed=3, key=picture.name, **flags)
        require(np.array_equal(got, want), "pixels", flags)
        squares = darkroom().transform(picture.read_bytes(), 48, seed=3, key=picture.name, dtype="uint8", **flags)
        require(squares.dtype == np.uint8 and squares.flags.c_contiguous, "squares", squares.dtype)
        require(np.array_equal((squares.astype(np.float32) / 255 - np.float32(0.5)) / np.float32(0.5), want), "squares", flags)


# -- pictures -----------------------------------------------------------------------------------------------------


def painted_pictures_have_the_pixels_of_sample() -> None:
    start = bench().path("start.png")
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)).save(start)
    for number, (flags, words) in enumerate([
        ({"steps": 3}, ["--steps", "3"]),
        ({"steps": 2, "seed": 7, "images": 2, "sampler": "euler_a", "negative": "blue", "guidance": 3.0},
         ["--steps", "2", "--seed", "7", "--images", "2", "--sampler", "euler_a", "--negative", "blue", "--guidance", "3"]),
        ({"steps": 4, "init_image": pathlib.Path(start).read_bytes(), "strength": 0.5}, ["--steps", "4", "--init-image", start, "--strength", "0.5"]),
        ({"steps": 2, "width": 32, "height": 64, "prompt_syntax": "weighted"}, ["--steps", "2", "--size", "32x64", "--prompt-syntax", "weighted"]),
    ]):
        folder = bench().folder / f"sample-{number}"
        run("sample", "--model", MODEL, "--prompt", "a (red:1.3) apple", "a dog", "--device", "cpu", "--output", folder / "picture.png", *words)
        want = [np.asarray(Image.open(path).convert("RGB")) for path in sorted(folder.iterdir())]
        got = painter().paint(["a (red:1.3) apple", "a dog"], **flags)
        require(len(got) == len(want), "pictures", len(got), len(want))
        for mine, theirs in zip(got, want):
            require(isinstance(mine, Image.Image) and np.array_equal(np.asarray(mine), theirs), "other pixels:", words)
    array = np.asarray(Image.open(start).convert("RGB"))
    from_bytes, from_array, from_pil = (painter().paint("a dog", steps=2, init_image=picture)[0].tobytes()
                                        for picture in (pathlib.Path(start).read_bytes(), array, Image.open(start)))
    require(from_bytes == from_array == from_pil, "the form of an initial picture")


@functools.cache
def painter():
    return darkroom().Painter(MODEL)


def a_painter_says_what_it_can() -> None:
    require(painter().native_size == SIDE and painter().size_multiple > 1, "sizes", painter().native_size, painter().size_multiple)
    require({"ddim", "euler", "unipc"} <= set(painter().samplers), "samplers", painter().samplers)
    require(painter().lost_text("a red apple") == "" and "word" in painter().lost_text("word " * 100), "lost text")


def threads_paint_side_by_side_with_the_same_bits() -> None:
    prompts = ["a red apple", "a dog", "a house", "rain"]
    want = [painter().paint(prompt, steps=2, seed=5)[0].tobytes() for prompt in prompts]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda prompt: painter().paint(prompt, steps=2, seed=5)[0].tobytes(), prompts))
    require(got == want, "other bits side by side")


def a_callback_hears_of_every_step() -> None:
    heard = []
    painter().paint(["a dog", "a cat"], steps=3, sampler="ddim", callback=lambda *where: heard.append(where))
    require(heard == [(picture, step, 3) for picture in (0, 1) for step in (1, 2, 3)], "steps", heard)


def python_runs_while_a_picture_is_painted() -> None:
    native = importlib.import_module("darkroom._native")
    settings = native.PictureSettings()
    settings.steps, settings.guidance, settings.strength, settings.prompt_syntax, settings.long_prompts = 2, 1.0, 0.8, "plain", "auto"
    opened, counted, is_over = painter()._native, 0, False

    def count() -> None:
        nonlocal counted
        while not is_over:
            counted += 1
            time.sleep(0)  # Lets the others have the GIL.

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)  # Nobody is asked for the GIL: who has it keeps it until he lets go of it himself.
    other = threading.Thread(target=count)
    try:
        other.start()
        before = counted
        for _ in range(500):  # Nothing in this loop lets go of the GIL but the painting.
            opened.paint("a dog", 0, settings, None)
            if counted > before + 10:
                break
        during = counted - before
    finally:
        is_over = True
        sys.setswitchinterval(interval)
        other.join()
    require(during > 10, "no other Python code ran while pictures were painted")


def calls_that_wait_let_other_threads_run() -> None:
    """The decoder waits for a named pipe that another thread of the same Python writes: with the GIL held that would be for ever."""
    gate, decoder = bench().folder / "gate", bench().folder / "waiting-decoder"
    os.mkfifo(gate)
    decoder.write_text(f'#!/bin/sh\nread line <"{gate}"\nexec "{ROOT}/build/release/darkroom-decoder" "$@"\n')
    decoder.chmod(0o755)
    code = f"""
import os, pathlib, threading, pyarrow.parquet as pq, darkroom, darkroom.operators
rows = pq.read_table({images()!r})
want = darkroom.Transform({SIDE})(rows)
darkroom.operators.DECODER = pathlib.Path({str(decoder)!r})
opened = []
def open_gate():
    while True:  # Whoever reads is let through, as many times as a decoder is started.
        try:
            with open({str(gate)!r}, "wb") as pipe:
                pipe.write(b"on\\n")
            opened.append(True)
        except BrokenPipeError:
            pass  # One line was enough for the reader before.
threading.Thread(target=open_gate, daemon=True).start()
made = darkroom.Transform({SIDE})(rows)
assert made.equals(want) and opened, opened
print("ran", flush=True)
os._exit(0)  # The thread waits for a reader who does not come.
"""
    require(python(code) == "ran", "a thread")


def a_callback_may_paint_with_any_painter() -> None:
    others = [painter(), darkroom().Painter(MODEL)]
    cat, dog = (painter().paint(prompt, steps=2, sampler="ddim")[0].tobytes() for prompt in ("a cat", "a dog"))
    cats = []

    def paint_cats(*where: int) -> None:
        cats.extend(other.paint("a cat", steps=2, sampler="ddim")[0].tobytes() for other in others)

    require(painter().paint("a dog", steps=2, sampler="ddim", callback=paint_cats)[0].tobytes() == dog, "another picture")
    require(cats == [cat] * 4, "other pictures in a callback", len(cats))


def on_the_fake_device(code: str) -> str:
    require((FAKE_DEVICE / "libdarkroom_cuda.so").exists(), "the fake device is not built: tools/build/build.sh release darkroom_fake_cuda")
    return python(code, environment={"LD_LIBRARY_PATH": str(FAKE_DEVICE)})


def painters_and_encoders_on_a_gpu_take_turns() -> None:
    """A thread's network calls are recorded once there were about a dozen, while nobody else may ask the GPU for anything."""
    code = f"""
import concurrent.futures, os, darkroom, pyarrow.parquet
rows = pyarrow.parquet.read_table({images()!r})
def work(number):
    if number == 4:
        return encode(rows)
    return painters[number % 2].paint("a red apple", seed=number, steps=14, sampler="ddim")[0].tobytes()
def opened():
    return [darkroom.Painter({str(MODEL)!r}, device="cuda:0") for _ in range(2)], darkroom.Encode({str(MODEL)!r}, {SIDE}, device="cuda:0", precision="float32", batch_size=2)
painters, encode = opened()
want = [work(number) for number in range(5)]
pool = concurrent.futures.ThreadPoolExecutor(6)
try:
    doing = [pool.submit(work, number) for number in range(5)]
    others = pool.submit(opened)
    bad = [number for number, done in enumerate(doing) if done.result(timeout=300) != want[number]]
    others.result(timeout=300)
    print("other values: " + str(bad) if bad else "in turn", flush=True)
except Exception as error:
    print(repr(error).splitlines()[0], flush=True)
os._exit(0)  # Whoever waits for ever is left.
"""
    said = on_the_fake_device(code)
    require(said == "in turn", said)


def callbacks_of_painters_on_a_gpu_may_paint_and_wait_for_who_paints() -> None:
    code = f"""
import concurrent.futures, os, threading, darkroom
painters = [darkroom.Painter({str(MODEL)!r}, device="cuda:0") for _ in range(2)]
want = painters[0].paint("a cat", steps=2)[0].tobytes()
threads = concurrent.futures.ThreadPoolExecutor(2)
both = threading.Barrier(2)
cats = []
def wait_for_another(*where):
    cats.extend(threads.submit(painter.paint, "a cat", steps=2).result(timeout=120)[0].tobytes() for painter in painters)
def paint_with(other):
    def callback(*where):
        both.wait(120)
        cats.append(other.paint("a cat", steps=2)[0].tobytes())
    return callback
try:
    painters[0].paint("a dog", steps=1, sampler="ddim", callback=wait_for_another)
    crossed = [threads.submit(painters[number].paint, "a dog", steps=1, sampler="ddim", callback=paint_with(painters[1 - number])) for number in range(2)]
    for done in crossed:
        done.result(timeout=120)
    assert cats == [want] * 4, len(cats)
    print("painted", flush=True)
except TimeoutError:
    print("somebody waits for ever", flush=True)
os._exit(0)  # Whoever waits for ever is left.
"""
    said = on_the_fake_device(code)
    require(said == "painted", said)


def what_a_callback_raises_ends_the_call() -> None:
    calls = []

    def stop(*where: int) -> None:
        calls.append(where)
        raise KeyError("enough")

    raised(KeyError, painter().paint, "a dog", steps=5, callback=stop)
    require(len(calls) == 1, "calls", calls)
    # Ctrl-C while a picture is painted: the signal comes in the middle, of itself.
    code = f"""
import os, signal, darkroom
signal.signal(signal.SIGINT, signal.default_int_handler)  # Who was started in the background ignores it.
painter = darkroom.Painter({str(MODEL)!r})
try:
    painter.paint("a dog", steps=50, callback=lambda picture, step, steps: step == 2 and os.kill(os.getpid(), signal.SIGINT))
except KeyboardInterrupt:
    print("stopped")
"""
    require(python(code) == "stopped", "Ctrl-C")


def a_picture_without_numbers_is_an_error_with_a_callback_and_without() -> None:
    damaged = bench().path("damaged")
    shutil.copytree(MODEL, damaged)
    safetensors_files.set_to_nan(pathlib.Path(damaged) / "unet" / "diffusion_pytorch_model.safetensors", "conv_out.bias")
    paint = darkroom().Painter(damaged).paint
    for named in ({}, {"callback": lambda *where: None}):
        error = raised(darkroom().Error, paint, "a dog", steps=1, **named)
        require("NaN" in str(error), "what is said", error, named)


# -- operators ----------------------------------------------------------------------------------------------------


@functools.cache
def encoder():
    return darkroom().Encode(MODEL, SIDE)


def encoded_rows_are_those_of_process() -> None:
    want = pq.read_table(processed("latents"))
    same_columns(encoder()(image_rows()), want)
    before = encoder().counts
    batch = image_rows().combine_chunks().to_batches()[0]
    got = encoder()(batch)
    require(isinstance(got, pa.RecordBatch), "a batch gives a batch", type(got))
    same_columns(pa.Table.from_batches([got]), want)
    after = encoder().counts
    require(after["rows_in"] - before["rows_in"] == 12 and after["rows_out"] - before["rows_out"] == 10, "counts", before, after)
    require({code: number - before["rows_by_error"][code] for code, number in after["rows_by_error"].items()}
            == {"not_an_image": 1, "null_image": 1}, "errors", after)


def squares_on_the_way_change_nothing() -> None:
    flags = {"crop": "random", "seed": 9, "resize": "bicubic", "keep_columns": ["url"]}
    want = pq.read_table(processed("random", "--crop", "random", "--seed", "9", "--resize", "bicubic", "--keep-columns", "url", "--text", "both",
                                   "--dtype", "float32"))
    squares = darkroom().Transform(SIDE, **flags)(image_rows())
    require(squares.schema.names == ["key", "caption", "width", "height", f"pixels_{SIDE}", "url"], "columns", squares.schema.names)
    encode = darkroom().Encode(MODEL, SIDE, text="both", dtype="float32", **flags)
    same_columns(encode(squares), want)
    same_columns(encode(image_rows()), want)


def operators_decode_outside_of_this_process_unless_told_otherwise() -> None:
    inside = darkroom().Transform(SIDE, sandbox=False)(image_rows())
    same_columns(darkroom().Transform(SIDE)(image_rows()), inside)
    operators = importlib.import_module("darkroom.operators")
    kept, operators.DECODER = operators.DECODER, pathlib.Path("/nowhere/darkroom-decoder")
    try:
        error = raised(FileNotFoundError, darkroom().Transform, SIDE)
        require("/nowhere/darkroom-decoder" in str(error), "message", error)
    finally:
        operators.DECODER = kept


def an_operator_travels_to_another_process() -> None:
    copy = pickle.loads(pickle.dumps(darkroom().Transform(SIDE, crop="random", seed=4)))
    same_columns(copy(image_rows()), darkroom().Transform(SIDE, crop="random", seed=4)(image_rows()))
    require(copy.counts["rows_in"] == 12, "a copy counts by itself", copy.counts)


def a_table_without_rows_gives_one_without_rows() -> None:
    empty = image_rows().schema.empty_table()
    for rows in (empty, pa.Table.from_batches([], schema=empty.schema)):
        made = encoder()(rows)
        require(made.num_rows == 0 and f"image_latents_{SIDE}" in made.schema.names, "columns", made.schema.names)


def operators_of_several_threads_share_nothing_but_their_counts() -> None:
    want = encoder()(image_rows())
    before = encoder().counts["rows_in"]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for got in pool.map(encoder(), [image_rows()] * 3):
            same_columns(got, want)
    require(encoder().counts["rows_in"] - before == 36, "counts")


# -- memory -------------------------------------------------------------------------------------------------------


def addresses(batch: pa.RecordBatch) -> list[int]:
    return [buffer.address for column in batch.columns for buffer in (column.storage if hasattr(column, "storage") else column).buffers() if buffer]


def rows_cross_the_border_without_a_copy() -> None:
    native = importlib.import_module("darkroom._native")
    batch = image_rows().combine_chunks().to_batches()[0]
    require(addresses(pa.record_batch(native.ArrowBatch(batch))) == addresses(batch), "a copy on the way in or out")
    latents = pa.record_batch(native.ArrowBatch(next(iter(darkroom().read_latents(processed("latents"))))))
    held = native.ArrowBatch(latents)
    array = held.numpy_tensor(f"image_latents_{SIDE}", [])
    values = latents.column(f"image_latents_{SIDE}").storage.values
    require(array.ctypes.data == values.buffers()[1].address + 2 * values.offset, "a copy on the way to NumPy")
    require(not array.flags.writeable, "Arrow's memory is nobody's to write")
    want = array.copy()
    del latents, held, values
    gc.collect()
    pa.array(np.full(1 << 20, 255, np.uint8))
    require(np.array_equal(array, want, equal_nan=True), "the array outlives the batch that it came from")


def a_thousand_calls_keep_no_memory() -> None:
    code = f"""
import resource, darkroom, pyarrow as pa, pyarrow.parquet as pq
from darkroom import _native
rows = pq.read_table({images()!r})
squares = darkroom.Transform({SIDE}, sandbox=False)(rows.slice(0, 2))
encode = darkroom.Encode({str(MODEL)!r}, {SIDE}, text="tokens")
picture = rows["image"][0].as_py()
def once():
    darkroom.tokenize(["a red apple"] * 100)
    darkroom.transform(picture, 256)
    pa.record_batch(_native.ArrowBatch(squares.to_batches()[0]))
    next(iter(darkroom.read_latents({processed("latents")!r}).to_numpy()))
    try:
        darkroom.transform(b"no picture", 8)
    except darkroom.Error:
        pass
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
for _ in range(200):
    once()
for _ in range(10):
    encode(squares)
before = resident()
for _ in range(1000):
    once()
for _ in range(20):
    encode(squares)
print(resident() - before)
"""
    grown = int(python(code, environment={"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}))
    # A picture of 256 x 256 in floats that stayed at every call would be 786 MB, the ids of a call 31 MB, a batch of squares 25 MB.
    require(grown < 20 << 20, "bytes more after a thousand calls:", grown)


# -- datasets -----------------------------------------------------------------------------------------------------


def flags_of_items() -> dict:
    return {"model": MODEL, "resolution": SIDE, "rows_per_file": 3}


def items_of_a_job_are_done_one_by_one_with_the_verbs_bytes() -> None:
    output = bench().folder / "item-latents"
    with darkroom().open_process_job(images(), output, **flags_of_items()) as job:
        found = [(item.number, item.input, item.first_row, item.num_rows, item.part) for item in job.items]
        # Three files of 5, 5 and 2 rows.
        want = [(0, "part-000000.parquet", 0, 3), (1, "part-000000.parquet", 3, 2), (2, "part-000001.parquet", 0, 3), (3, "part-000001.parquet", 3, 2), (4, "part-000002.parquet", 0, 2)]
        require(found == [(*item, f"part-{item[0]:06d}.parquet") for item in want], "items", found)
        require(job.open_items == [0, 1, 2, 3, 4], "open items", job.open_items)
        first = darkroom().process_item(job, job.items[1])
        require((first.item, first.outcome, first.rows_in, first.rows_out, dict(first.rows_by_error)) == (1, "committed", 2, 1, {"not_an_image": 1}), "result", first)
        require(first.bytes == (output / "part-000001.parquet").stat().st_size, "bytes", first)
        require(darkroom().process_item(job, 1).outcome == "there", "an item was done twice")
        copy = pickle.loads(pickle.dumps(job))
        with copy:
            require(copy.open_items == [0, 2, 3, 4] and copy.do([3, 0])[0].item == 3, "another process's program", copy.open_items)
        require([result.outcome for result in job.do([0, 2, 3, 4, 2])] == ["there", "committed", "there", "committed", "committed"], "the rest")
    require(darkroom().read_items(output) == job.items, "items of the output folder alone")
    job.close()
    reference = processed("item-reference", "--rows-per-file", "3")
    require(digests(str(output), "part-*") == digests(reference, "part-*"), "the bytes are not those of process")


def threads_that_ask_for_the_same_item_all_get_an_answer() -> None:
    with darkroom().open_process_job(images(), bench().folder / "same-item", **flags_of_items()) as job, concurrent.futures.ThreadPoolExecutor(4) as threads:
        outcomes = sorted(result.outcome for result in threads.map(lambda number: darkroom().process_item(job, number), [0] * 4))
    require(outcomes.count("committed") == 1 and set(outcomes) <= {"committed", "busy", "there"}, "outcomes", outcomes)


def download_items_are_those_of_the_verb() -> None:
    with LoopbackWeb(str(bench().folder / "corpus")) as web:
        flags = {"metadata": bench().write_url_table(web.port), "rows_per_file": 5, "allow_private": f"127.0.0.1/32:{web.port}"}
        with darkroom().open_download_job(bench().folder / "item-images", **flags) as job:
            results = [darkroom().download_item(job, item) for item in job.items]
        require([(result.outcome, result.rows_out) for result in results] == [("committed", 5), ("committed", 5), ("committed", 2)], "results", results)
        run("download", bench().folder / "reference-images", "--metadata", flags["metadata"], "--rows-per-file", "5", "--allow-private", flags["allow_private"])
    require(digests(bench().path("item-images"), "part-*") == digests(bench().path("reference-images"), "part-*"), "the bytes are not those of download")


def jobs_that_cannot_be_done_say_so() -> None:
    package = darkroom()
    output = bench().folder / "no-job"
    raised(package.NotFound, package.read_items, output)
    for flags, words in (({"model": MODEL, "resolution": "none"}, "--resolution"), ({"model": MODEL, "no_such_flag": 1}, "--no-such-flag")):
        with package.open_process_job(images(), output, **flags) as job:
            error = raised(package.InvalidArgument, lambda job=job: job.open_items)
            require(error.code == "invalid_argument" and words in str(error), "the verb's sentence is missing", error)
    with package.open_process_job(images(), output, model=bench().folder / "nowhere") as job:
        error = raised(package.Error, package.process_item, job, 0)
        require(error.code == "program_failed" and "nowhere" in str(error), "message", error)
    with package.open_process_job(images(), output, **flags_of_items()) as job:
        require("no item 99" in str(raised(package.NotFound, package.process_item, job, 99)), "an unknown item")
        raised(package.InvalidArgument, package.download_item, job, 0)
        os.kill(job._started().pid, signal.SIGKILL)
        require(raised(package.Unavailable, lambda: [package.process_item(job, 0) for _ in range(100)]).code == "unavailable", "a killed program")
        require(package.process_item(job, 0).outcome in ("committed", "there"), "a program that ended is not started anew")


def stored_latents_come_as_they_are_stored() -> None:
    uri = processed("latents")
    want = pq.read_table(uri)
    batches = list(darkroom().read_latents(uri, batch_rows=3))
    require(max(batch.num_rows for batch in batches) == 3, "batch_rows")
    same_columns(pa.Table.from_batches(batches), want)
    some = pa.Table.from_batches(list(darkroom().read_latents(uri, columns=["caption", "key"], rows=slice(3, 8))))
    same_columns(some, want.select(["caption", "key"]).slice(3, 5))
    require(list(darkroom().read_latents(uri, rows=range(0, 0))) == [], "no rows")
    reader = darkroom().read_latents(uri)
    require(len(list(reader)) == len(list(reader)), "a second loop")


def every_dialect_gives_the_same_numbers() -> None:
    def tensors(name: str, shapes=None, latents=f"image_latents_{SIDE}", states="caption_embeddings"):
        rows = list(darkroom().read_latents(processed(name, *(["--output-dialect", name] if name != "latents" else []))).to_numpy(shapes))
        return tuple(np.concatenate([row[column] for row in rows]).astype(np.float32) for column in (latents, states))

    want = tensors("latents")
    require(want[0].ndim == 4 and want[0].shape[0] == 10, "shape", want[0].shape)
    found = {
        "anyscale": tensors("anyscale", None, f"latents_{SIDE}_bytes", "caption_latents"),
        "ray-summit": tensors("ray-summit", None, f"image_latents_{SIDE}", "caption_latents"),
        "huggingface": tensors("huggingface"),
        "mosaicml": tensors("mosaicml", {f"latents_{SIDE}": want[0].shape[1:], "caption_latents": want[1].shape[1:]}, f"latents_{SIDE}", "caption_latents"),
    }
    for dialect, (latents, states) in found.items():
        require(latents.shape == want[0].shape and states.shape == want[1].shape, dialect, latents.shape, states.shape)
        # float16 of the same numbers, where they were stored as float32.
        require(np.array_equal(latents.astype(np.float16), want[0].astype(np.float16)), "latents of", dialect)
        require(np.array_equal(states.astype(np.float16), want[1].astype(np.float16)), "states of", dialect)


def token_ids_and_text_come_as_arrays() -> None:
    rows = next(darkroom().read_latents(processed("tokens", "--text", "tokens")).to_numpy())
    require(rows["caption_ids"].shape[1] == 77 and rows["caption_ids"].dtype == np.uint16, "ids", rows["caption_ids"].shape)
    require(np.array_equal(rows["caption_ids"], darkroom().tokenize(list(rows["caption"]))), "ids")
    require(rows["width"].dtype == np.int32 and isinstance(rows["key"][0], str), "text")


def whole_numbers_keep_their_digits_beside_a_null() -> None:
    folder = bench().folder / "latents-with-nulls"
    if not folder.exists():
        table = pq.read_table(processed("latents"))
        large = pa.array([2**60 + 1 + row if row != 5 else None for row in range(table.num_rows)], pa.int64())
        pairs = pa.array([[2**60 + 1, row] if row != 4 else [row, None] for row in range(table.num_rows)], pa.list_(pa.int64(), 2))
        folder.mkdir()
        pq.write_table(table.append_column("large", large).append_column("pairs", pairs), folder / "part-000000.parquet")
    first, second = darkroom().read_latents(folder, rows=slice(0, 6), batch_rows=3).to_numpy()
    require(first["large"].dtype == np.int64 and first["pairs"].dtype == np.int64 and first["pairs"].shape == (3, 2), "without a null", first["large"].dtype, first["pairs"].shape)
    require(second["large"].dtype == object and list(second["large"]) == [2**60 + 4, 2**60 + 5, None], "with one", second["large"])
    require(second["pairs"].dtype == object and list(second["pairs"]) == [[2**60 + 1, 3], [4, None], [2**60 + 1, 5]], "in a list", second["pairs"])
    with unittest.mock.patch.dict(sys.modules, {"torch": types.SimpleNamespace(from_numpy=np.asarray)}):
        for column, row in (("large", 5), ("pairs", 4)):
            batches = darkroom().read_latents(folder, columns=[column], rows=slice(1, 10), batch_rows=2).to_torch()
            require(f"{column}, {row}" in str(raised(ValueError, list, batches)), "which one", column)
            fine = list(darkroom().read_latents(folder, columns=[column], rows=slice(6, 10), batch_rows=2).to_torch())
            require(len(fine) == 2 and fine[0][column].dtype == np.int64, "without a null", fine)


def lists_that_vary_in_length_keep_their_digits_beside_a_null() -> None:
    folder = bench().folder / "latents-with-lists"
    large = 2**60 + 1
    values = [[large, row] if row not in (1, 4) else None if row == 1 else [large, None, 7] for row in range(10)]
    # Parquet has no views of lists: those are looked at below by themselves.
    kinds = {"lists": pa.list_(pa.int64()), "large_lists": pa.large_list(pa.int64()), "lists_of_lists": pa.list_(pa.list_(pa.int64()))}
    if not folder.exists():
        table = pq.read_table(processed("latents"))
        for name, kind in kinds.items():
            table = table.append_column(name, pa.array([[value] for value in values] if name == "lists_of_lists" else values, kind))
        folder.mkdir()
        pq.write_table(table, folder / "part-000000.parquet")
    for rows in darkroom().read_latents(folder, columns=list(kinds), batch_rows=5).to_numpy():
        for name in kinds:
            require(rows[name].dtype == object, "kind", name, rows[name].dtype)
    first, second = darkroom().read_latents(folder, columns=list(kinds), batch_rows=5).to_numpy()
    for name in ("lists", "large_lists"):
        require(list(first[name]) == values[:5], "digits", name, list(first[name]))
        require([list(row) for row in second[name]] == values[5:], "without a null", name, list(second[name]))
    require(list(first["lists_of_lists"]) == [[value] for value in values[:5]], "lists of lists", list(first["lists_of_lists"]))
    latents = importlib.import_module("darkroom.latents")
    for kind in (pa.list_view(pa.int64()), pa.large_list_view(pa.int64())):
        array = pa.array(values, kind)
        require(list(latents._as_numpy(array)) == values and latents._first_null(array[2:]) == 2, "views of lists", kind)
    with unittest.mock.patch.dict(sys.modules, {"torch": types.SimpleNamespace(from_numpy=np.asarray)}):
        require(list(darkroom().read_latents(folder, columns=list(kinds)).to_torch()) == [{}], "lists that vary in length are left out")


def numbers_that_no_int64_holds_are_refused_as_tensors() -> None:
    folder = bench().folder / "latents-with-large-numbers"
    if not folder.exists():
        table = pq.read_table(processed("latents"))
        most = 2**63 - 1
        numbers = pa.array([most if row != 6 else most + 1 for row in range(table.num_rows)], pa.uint64())
        pairs = pa.array([[most, row] if row != 3 else [row, 2**64 - 1] for row in range(table.num_rows)], pa.list_(pa.uint64(), 2))
        folder.mkdir()
        pq.write_table(table.append_column("numbers", numbers).append_column("pairs", pairs), folder / "part-000000.parquet")
    with unittest.mock.patch.dict(sys.modules, {"torch": types.SimpleNamespace(from_numpy=np.asarray)}):
        for column, row in (("numbers", 6), ("pairs", 3)):
            batches = darkroom().read_latents(folder, columns=[column], rows=slice(1, 10), batch_rows=2).to_torch()
            require(f"{column}, {row}" in str(raised(ValueError, list, batches)), "which one", column)
            fine = next(iter(darkroom().read_latents(folder, columns=[column], rows=slice(7, 9), batch_rows=2).to_torch()))
            require(fine[column].dtype == np.int64 and fine[column].max() == 2**63 - 1, "the largest number", fine)


# -- failures -----------------------------------------------------------------------------------------------------


def failures_are_exceptions_with_the_verbs_messages() -> None:
    it = darkroom()
    missing = raised(FileNotFoundError, it.Painter, bench().path("nothing"))
    require(missing.code == "not_found" and isinstance(missing, it.Error), "kind", missing.code)
    said = run("sample", "--model", bench().path("nothing"), "--prompt", "a", "--device", "cpu", "--output", bench().path("a.png"), expect=1).stderr
    require(str(missing) in said, "another message than the verb's:", missing, said)
    wrong = raised(ValueError, painter().paint, "a dog", sampler="oil")
    require(wrong.code == "invalid_argument" and "oil" in str(wrong), "message", wrong)
    raised(ValueError, painter().paint, ["a dog", "(a:1.2.3)"], prompt_syntax="weighted")
    raised(ValueError, painter().paint, "a dog", prompt_syntax="poem")
    raised(ValueError, painter().paint, "a dog", width=SIDE + 1)
    raised(ValueError, painter().paint, "a dog", init_image=np.zeros((4, 4), np.uint8))
    raised(ValueError, it.Painter, MODEL, threads=0)
    raised(ValueError, it.Painter, MODEL, precision="float8")
    raised(ValueError, it.tokenize, ["a"], dialect="latin")
    raised(FileNotFoundError, it.tokenize, ["a"], bench().path("nothing"))
    bad = raised(it.Error, it.transform, b"no picture", 8)
    require(bad.row_error == "not_an_image" and bad.code == "corrupt_data", "row", bad.row_error, bad.code)
    raised(ValueError, it.transform, b"", 0)
    raised(ValueError, it.transform, b"", 8, resize="nearest")
    raised(ValueError, it.transform, b"", 8, dtype="float64")
    raised(ValueError, it.Encode, MODEL, SIDE + 1)
    raised(ValueError, it.Encode, MODEL, SIDE, output_dialect="mosaicml")
    raised(ValueError, it.Encode, MODEL, SIDE, latents="mean")
    raised(FileNotFoundError, encoder(), image_rows().drop_columns(["image"]))
    no_key = raised(it.Error, encoder(), image_rows().drop_columns(["key"]))
    require(no_key.code == "failed_precondition", "code", no_key.code)
    keys = image_rows()["key"].to_pylist()
    for key in (None, ""):
        rows = image_rows().set_column(image_rows().schema.get_field_index("key"), "key", [[*keys[:2], key, *keys[3:]]])
        for operator in (encoder(), it.Transform(SIDE)):
            error = raised(it.Error, operator, rows)
            require(error.code == "failed_precondition" and str(error).endswith("key 2"), "a row without a key", error)
    raised(TypeError, encoder(), [1, 2])
    raised(FileNotFoundError, lambda: list(it.read_latents(bench().path("nothing"))))
    raised(FileNotFoundError, lambda: list(it.read_latents(processed("latents"), columns=["pixels"])))
    raised(ValueError, it.read_latents, "x", rows=slice(0, 10, 2))
    raised(ValueError, lambda: list(it.read_latents(processed("latents"), batch_rows=0)))
    copy = pickle.loads(pickle.dumps(bad))
    require((type(copy), str(copy), copy.code, copy.row_error) == (type(bad), str(bad), bad.code, bad.row_error), "an error that was pickled")
    copy = pickle.loads(pickle.dumps(missing))
    require((type(copy), str(copy), copy.code) == (type(missing), str(missing), missing.code), "an error that was pickled")


def an_unknown_device_or_one_that_is_not_there_says_so() -> None:
    raised(ValueError, darkroom().Painter, MODEL, device="tpu")
    code = f"import darkroom\ntry:\n    darkroom.Painter({str(MODEL)!r}, device='cuda:99')\nexcept OSError as error:\n    print(error.code)"
    require(python(code, environment={"CUDA_VISIBLE_DEVICES": ""}) == "unavailable", "a GPU that is not there")


# -- the package itself -------------------------------------------------------------------------------------------

USE = "darkroom.tokenize(['a']); darkroom.read_latents"
ONE_OF_EACH = """
names = {line.split()[-1] for line in open('/proc/self/maps') if 'libarrow.so' in line or 'libtorch_cpu.so' in line or 'libparquet.so' in line}
assert len(names) == 3, names
print('one of each')
"""


def imports_in_any_order_map_each_library_once() -> None:
    for order in (["darkroom", "hashlib", "ssl", "pyarrow.parquet", "PIL.Image"], ["pyarrow", "darkroom", "hashlib"], ["PIL.Image", "ssl", "darkroom", "pyarrow.parquet"]):
        lines = [f"import {name}" if name != "darkroom" else f"import darkroom; {USE}" for name in order]
        # The system's OpenSSL and the one in libparquet stay apart.
        openssl = "import hashlib, ssl; hashlib.new('sha512', b'a').hexdigest(); ssl.create_default_context()"
        require(python("\n".join([*lines, openssl, ONE_OF_EACH])) == "one of each", order)


def torch_in_either_order_is_the_same_torch() -> None:
    """Python's torch wants the CUDA libraries that it was built with; the environment of the tests has none."""
    peers = [pathlib.Path(os.environ.get("DARKROOM_PEERS") or ROOT / ".venv-parity", "bin/python")]
    interpreter = next((str(path) for path in peers if path.exists()), None)
    if interpreter is None:
        raise Skipped("no environment here has a Python torch that can be imported: .venv-parity (make parity), or the one in DARKROOM_PEERS")
    paint = f"darkroom.Painter({str(MODEL)!r}).paint('a dog', steps=2)[0].tobytes()"
    want = python(f"import darkroom, hashlib; print(hashlib.sha256(bytes({paint})).hexdigest())")
    for order in (["darkroom", "torch", "pyarrow"], ["torch", "darkroom"], ["pyarrow", "torch", "darkroom"]):
        lines = [f"import {name}" if name != "darkroom" else f"import darkroom; {USE}" for name in order]
        code = "\n".join([*lines, ONE_OF_EACH, "import hashlib, torch", "torch.set_num_threads(2)", "torch.ones(3) + 1",
                          f"first = next(darkroom.read_latents({processed('latents')!r}).to_torch())", f"latents = first['image_latents_{SIDE}']",
                          "assert latents.dtype == torch.float16 and latents.float().isfinite().all() and first['width'].dtype == torch.int64, first",
                          f"digest = hashlib.sha256(bytes({paint})).hexdigest()", "assert torch.get_num_threads() == 2", "print(digest)"])
        require(python(code, interpreter=interpreter) == want, "other bits beside torch", order)


def another_pyarrow_or_torch_is_refused_with_a_sentence() -> None:
    folder = bench().folder / "packages"
    for package, library in (("pyarrow", "libarrow.so.2600"), ("torch", "lib/libother.so")):
        shutil.rmtree(folder, ignore_errors=True)
        (folder / package / library).parent.mkdir(parents=True)
        (folder / package / library).touch()
        (folder / package / "__init__.py").touch()
        (folder / f"{package}-26.0.1.dist-info").mkdir()
        (folder / "darkroom").symlink_to(STAGED / "darkroom")
        said = python("import darkroom\ntry:\n    darkroom.tokenize\nexcept ImportError as error:\n    print(error)", path=folder)
        require("26.0.1" in said and f"pip install '{package}==" in said, "sentence", said)


def without_the_extension_the_launcher_stays() -> None:
    folder = bench().folder / "other-python" / "darkroom"
    shutil.copytree(STAGED / "darkroom", folder, symlinks=True)
    extension = next(folder.glob("_native.*.so"))
    require(f"cpython-{sys.version_info.major}{sys.version_info.minor}" in extension.name, "the file does not say its Python:", extension.name)
    extension.rename(folder / "_native.cpython-399-x86_64-linux-gnu.so")
    code = "import darkroom, darkroom.launcher\ntry:\n    darkroom.Painter\nexcept ImportError as error:\n    print(error)"
    require("this package's is for another one: _native.cpython-399" in python(code, path=folder.parent), "sentence")
    (folder / "_native.cpython-399-x86_64-linux-gnu.so").unlink()
    require("make python" in python(code, path=folder.parent), "sentence")
    done = subprocess.run([sys.executable, "-m", "darkroom", "--version"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(folder.parent)})
    require(done.returncode == 0 and done.stdout.strip() == run("--version").stdout.strip(), "the launcher", done.stdout, done.stderr)


def importing_the_package_opens_nothing() -> None:
    code = "import darkroom, sys; print('numpy' in sys.modules, 'torch' in open('/proc/self/maps').read(), 'Painter' in dir(darkroom))"
    require(python(code) == "False False True", "import darkroom")
    raised(AttributeError, getattr, darkroom(), "paintbrush")


def examples_of_the_page_import_what_they_name() -> None:
    known = set(dir(builtins))
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.DOTALL):
        names = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Name)]
        known |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
        known |= {(alias.asname or alias.name).partition(".")[0] for node in ast.walk(ast.parse(block)) if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
        missing = {node.id for node in names} - known
        require(not missing, "nothing gives", missing, "in", block)


def stubs_are_those_of_the_extension() -> None:
    output = bench().path("_native.pyi")
    done = subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-m", "darkroom._native", "-o", output], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(STAGED)})
    require(done.returncode == 0, done.stdout, done.stderr)
    require(pathlib.Path(output).read_text() == (ROOT / "python/darkroom/_native.pyi").read_text(),
            "python/darkroom/_native.pyi is not what nanobind.stubgen writes; write it anew (docs/python.md)")
    named = json.loads(python("import darkroom, json; print(json.dumps([n for n in darkroom.__all__ if not getattr(darkroom, n).__doc__]))"))
    require(named == [], "without a docstring:", named)


if __name__ == "__main__":
    if not list(STAGED.glob("darkroom/_native.*.so")):
        subprocess.run([ROOT / "tools/build/build.sh", "release", "python"], check=True)
    main([
        tokens_are_those_of_the_verb,
        pixels_are_those_of_the_verb,
        painted_pictures_have_the_pixels_of_sample,
        a_painter_says_what_it_can,
        threads_paint_side_by_side_with_the_same_bits,
        a_callback_hears_of_every_step,
        python_runs_while_a_picture_is_painted,
        calls_that_wait_let_other_threads_run,
        a_callback_may_paint_with_any_painter,
        painters_and_encoders_on_a_gpu_take_turns,
        callbacks_of_painters_on_a_gpu_may_paint_and_wait_for_who_paints,
        what_a_callback_raises_ends_the_call,
        a_picture_without_numbers_is_an_error_with_a_callback_and_without,
        encoded_rows_are_those_of_process,
        squares_on_the_way_change_nothing,
        operators_decode_outside_of_this_process_unless_told_otherwise,
        an_operator_travels_to_another_process,
        a_table_without_rows_gives_one_without_rows,
        operators_of_several_threads_share_nothing_but_their_counts,
        rows_cross_the_border_without_a_copy,
        a_thousand_calls_keep_no_memory,
        items_of_a_job_are_done_one_by_one_with_the_verbs_bytes,
        threads_that_ask_for_the_same_item_all_get_an_answer,
        download_items_are_those_of_the_verb,
        jobs_that_cannot_be_done_say_so,
        stored_latents_come_as_they_are_stored,
        every_dialect_gives_the_same_numbers,
        token_ids_and_text_come_as_arrays,
        whole_numbers_keep_their_digits_beside_a_null,
        lists_that_vary_in_length_keep_their_digits_beside_a_null,
        numbers_that_no_int64_holds_are_refused_as_tensors,
        failures_are_exceptions_with_the_verbs_messages,
        an_unknown_device_or_one_that_is_not_there_says_so,
        imports_in_any_order_map_each_library_once,
        torch_in_either_order_is_the_same_torch,
        another_pyarrow_or_torch_is_refused_with_a_sentence,
        without_the_extension_the_launcher_stays,
        importing_the_package_opens_nothing,
        examples_of_the_page_import_what_they_name,
        stubs_are_those_of_the_extension,
    ])
