"""The stages `serve` and `scale` of gpu_verbs.sh: pictures over HTTP, and sd2-base at full size through the verbs."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import time
import urllib.request

import numpy as np

from verb_bench import TINY, Bench, Table, VerbFailed, Watch, caption, last_words, memory_of_gpu, metric_at, pixels, read_metrics, write_pictures

NUM_REQUESTS = 16
SEED = 7
STEPS = 12
LONG_STEPS = 200
GREY_LEVELS = 1  # Of a picture in company, in float32 (docs/serve.md).
STOPPED = 128 + signal.SIGTERM
TFLOPS = 989  # bfloat16, dense: an H100 SXM's by its data sheet, which an H200 shares.


class Server(contextlib.AbstractContextManager):
    """The program serving a model on a free port of loopback."""

    def __init__(self, bench: Bench, name: str, model: pathlib.Path, *flags, limit: float = 120):
        self.log = bench.out / f"{name}.log"
        begin = time.monotonic()
        self.file = open(self.log, "w", encoding="utf-8")
        words = ["serve", model, "--port", 0, "--threads", 1, "--device", bench.device, "--deadline", 120, *flags]
        self.process = bench.start(*words, log=self.file)
        while not (found := re.search(r"at http://127\.0\.0\.1:(\d+)", self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() - begin > limit:
                self.__exit__()
                raise VerbFailed(f"{name}: the server did not start: {last_words(self.log.read_text())}")
            time.sleep(0.05)
        self.port = int(found[1])
        self.seconds_to_start = time.monotonic() - begin

    def __exit__(self, *unused) -> None:
        self.process.kill()
        self.process.wait()
        self.file.close()

    def paint(self, prompt: str, **fields) -> bytes:
        body = json.dumps({"prompt": prompt, "num_inference_steps": STEPS, "seed": SEED, "sampler": "ddim", **fields}).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}/invocations", body, {"Content-Type": "application/json", "Accept": "image/png"})
        with urllib.request.urlopen(asked, timeout=150) as reply:
            return reply.read()

    def paint_all(self, prompts: list[str], **fields) -> list[bytes | Exception]:
        """Asked for at the same time; a request that fails is its exception."""

        def attempt(prompt: str):
            try:
                return self.paint(prompt, **fields)
            except OSError as error:
                return error

        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(attempt, prompts))


def sampled(bench: Bench, prompts: list[str]) -> list[np.ndarray]:
    """The same pictures by `sample`."""
    (bench.path("prompts.txt")).write_text("\n".join(prompts) + "\n", encoding="utf-8")
    output = bench.new_folder("sampled") / "picture.png"
    output.parent.mkdir()
    flags = ("--prompts-file", bench.path("prompts.txt"), "--steps", STEPS, "--seed", SEED, "--sampler", "ddim", "--precision", "float32", "--output", output)
    bench.run("serve-sample", "sample", "--model", TINY, "--device", bench.device, *flags, limit=60)
    return [pixels(path) for path in sorted(output.parent.glob("picture-0*.png"))]


def serve(bench: Bench) -> Table:
    table = Table("serve, tiny, float32", "figure", "")
    prompts = [caption(number) for number in range(NUM_REQUESTS)]
    wanted = sampled(bench, prompts)
    table.check("pictures of `sample`", len(wanted) == NUM_REQUESTS, len(wanted))
    with Server(bench, "serve", TINY, "--precision", "float32", limit=60) as server:
        table.report("seconds to start", f"{server.seconds_to_start:.1f}")
        alone = np.abs(pixels(server.paint(prompts[0])) - wanted[0]).max()
        table.check("alone: the bits of `sample`", alone == 0, f"largest difference {alone} in 255")
        begin = time.monotonic()
        replies = server.paint_all(prompts)
        seconds = time.monotonic() - begin
        failed = [reply for reply in replies if isinstance(reply, Exception)]
        table.check(f"{NUM_REQUESTS} requests at a time: answered", not failed, failed[:1])
        apart = max((int(np.abs(pixels(reply) - want).max()) for reply, want in zip(replies, wanted) if isinstance(reply, bytes)), default=255)
        table.check(f"{NUM_REQUESTS} requests at a time: pictures of `sample`", apart <= GREY_LEVELS, f"largest difference {apart} in 255; {NUM_REQUESTS / seconds:.1f} pictures/s")
        check_drain(table, server, prompts[:4])
    return table


def check_drain(table: Table, server: Server, prompts: list[str]) -> None:
    """SIGTERM while it paints."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(server.paint_all, prompts, num_inference_steps=LONG_STEPS)
        all_but_one = (len(prompts) - 1) * 64 * 64 * (LONG_STEPS + 2)
        while metric_at(server.port, "darkroom_serve_open_cost") <= all_but_one and not waiting.done():
            time.sleep(0.002)
        server.process.send_signal(signal.SIGTERM)
        replies = waiting.result()
    table.check("a stop: what is painted is finished", all(isinstance(reply, bytes) for reply in replies), [reply for reply in replies if isinstance(reply, Exception)][:1])
    try:
        code = server.process.wait(40)
    except subprocess.TimeoutExpired:
        code = "none within 40 s"
    table.check(f"a stop: exit code {STOPPED}", code == STOPPED, code)


# -- sd2-base ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sizes:
    preset: str
    resolution: int
    rows: int
    picture: tuple[int, int]
    batch: int
    micros: tuple[int, ...]
    first_step: int  # Steps between this one and the last are measured.
    last_step: int
    sampling_steps: int
    precision: str
    prediction: str


LARGE = Sizes("sd2-base", 256, 5000, (512, 384), 128, (128, 64), 10, 30, 20, "bfloat16", "epsilon")
SMALL = Sizes("tiny", 64, 300, (160, 120), 16, (16, 8), 4, 10, 4, "float32", "v_prediction")


def sizes_of(bench: Bench) -> Sizes:
    return SMALL if bench.is_small else LARGE


def make_large_model(bench: Bench) -> None:
    """Random weights, in a folder that appears when it is whole; `scale` waits for it."""
    folder, unfinished = bench.new_folder("large-model"), bench.new_folder("large-model-unfinished")
    bench.path("large-model.failed").unlink(missing_ok=True)
    try:
        done = bench.run("model-init", "models", "init", unfinished, "--preset", sizes_of(bench).preset, "--dtype", "float16", limit=200)
    except VerbFailed:
        bench.path("large-model.failed").touch()
        raise
    unfinished.rename(folder)
    print(f"model: {done.seconds:.1f} s")


def large_model(bench: Bench) -> pathlib.Path:
    folder = bench.path("large-model")
    while not folder.exists():
        if bench.path("large-model.failed").exists():
            raise VerbFailed("the large model was not made; see model-init.log")
        time.sleep(0.2)
    return folder


def scale(bench: Bench) -> Table:
    sizes = sizes_of(bench)
    table = Table(f"{sizes.preset}, random weights, {sizes.precision}", "figure", "")
    begin = time.monotonic()
    pictures = bench.path("large-pictures")
    if not pictures.exists():
        write_pictures(pictures, list(range(sizes.rows)), *sizes.picture, 256, 5000)
    model = large_model(bench)
    table.report("seconds until model and pictures are there", f"{time.monotonic() - begin:.1f}")
    kinds = [sizes.precision] if bench.is_small else ["bfloat16", "float16"]
    trainings = [functools.partial(scale_train, micro=micro) for micro in sizes.micros]
    strict = functools.partial(scale_train, micro=sizes.micros[0], flags=("--deterministic",))
    parts = [*(functools.partial(scale_process, kind=kind) for kind in kinds), *trainings, strict, scale_sample, scale_serve]
    for part in parts:
        try:
            part(bench, table, sizes, model)
        except (VerbFailed, OSError, KeyError, IndexError) as failure:  # The next one runs whatever happened.
            table.check("a verb at full size", False, failure)
    return table


def scale_process(bench: Bench, table: Table, sizes: Sizes, model: pathlib.Path, kind: str) -> None:
    flags = ("--resolution", sizes.resolution, "--device", bench.device, "--compute-dtype", kind)
    with Watch(memory_of_gpu) as memory:
        done = bench.process(f"scale-process-{kind}", bench.path("large-pictures"), bench.new_folder("large-latents"), "--model", model, *flags, limit=60)
    figures = done.summary
    table.check(f"process, {sizes.resolution} px, {kind}: every row", figures["rows_out"] == sizes.rows, f"{figures['rows_out']} of {sizes.rows}")
    table.report(f"process, {sizes.resolution} px, {kind}: pictures/s; seconds of the job, of the program; GB of the GPU",
                 f"{figures['rows_per_second']:.0f}; {figures['seconds']:.1f}, {done.seconds:.1f}; {memory.gigabytes()}")  # fmt: skip
    encode = next(stage for stage in figures["stages"] if stage["name"] == "encode")
    table.report("process: pictures/s while the encoders work", f"{encode['rows'] * encode['workers'] / encode['busy_seconds']:.0f}")
    shares = [f"{stage['name']} {stage['busy_seconds'] / stage['workers']:.2f} ({stage['workers']})" for stage in figures["stages"]]
    table.report("process: busy seconds of a worker (workers)", ", ".join(shares))


def scale_settings(bench: Bench, sizes: Sizes, micro: int) -> list:
    fields = (f"data.resolution={sizes.resolution}", "model.start=weights", f"objective.prediction={sizes.prediction}", f"batch.global={sizes.batch}", f"batch.micro={micro}", "runtime.gradient_groups=1",
              "runtime.lanes=1", f"runtime.precision={sizes.precision}", "data.memory_bytes=8000000000", "schedule.max_steps=1000", "checkpoint.every_steps=0",
              "samples.every_steps=0", f"runtime.log_every={sizes.first_step // 2}")  # fmt: skip
    return ["recipes/sd2-256.toml", "--model", bench.path("large-model"), "--device", bench.device, "--tflops", TFLOPS, *(word for field in fields for word in ("--set", field))]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def scale_train(bench: Bench, table: Table, sizes: Sizes, model: pathlib.Path, micro: int, flags: tuple = ()) -> None:
    """Steps until enough are measured; then the run is killed, because its last checkpoint would take longer than all of them."""
    name, port, what = f"scale-train-{micro}{''.join(flags)}", free_port(), " ".join((f"train, batch {sizes.batch} in passes of {micro}", *flags))
    settings = scale_settings(bench, sizes, micro)
    plan = {"step_flop": 0, "bytes": {"peak_on_device": 0, "peak_on_host": 0}}
    if not bench.is_cpu:  # Of a machine's processors it knows no peak on a device.
        plan = bench.run(f"{name}-plan", "train", *settings, "--dry-run", limit=60).summary["estimate"]
    run = bench.new_folder(name)
    begin = time.monotonic()
    with open(bench.out / f"{name}.log", "w", encoding="utf-8") as log, Watch(memory_of_gpu) as memory, \
            Watch(lambda: metric_at(port, "darkroom_train_peak_memory_bytes")) as tensors:  # fmt: skip
        process = bench.start("train", *settings, "--data", bench.path("large-latents"), "--output", run, "--metrics-port", port, *flags, log=log)
        while process.poll() is None and time.monotonic() - begin < 75 and newest_step(run) < sizes.last_step:
            time.sleep(0.05)
        time.sleep(0.5)  # The figures of memory are looked at once more.
        process.kill()
        process.wait()
    lines = {line["step"]: line for line in read_metrics(run)}
    if sizes.last_step not in lines:
        raise VerbFailed(f"{what}: no step {sizes.last_step} after {time.monotonic() - begin:.0f} s: {last_words((bench.out / f'{name}.log').read_text())}")
    seconds = (lines[sizes.last_step]["seconds"] - lines[sizes.first_step]["seconds"]) / (sizes.last_step - sizes.first_step)
    table.report(f"{what}: images/s; ms a step; MFU of {TFLOPS} TFLOP/s",
                 f"{sizes.batch / seconds:.1f}; {seconds * 1e3:.1f}; {plan['step_flop'] / seconds / TFLOPS / 1e12:.1%}")  # fmt: skip
    table.report(f"{what}: ms of its last line", ", ".join(f"{phase} {value:.1f}" for phase, value in lines[sizes.last_step]["ms"].items()))
    table.report(f"{what}: GB of tensors, planned, in use on the GPU", f"{tensors.gigabytes()}, {plan['bytes']['peak_on_device'] / 1e9:.1f}, {memory.gigabytes()}")
    starting = lines[min(lines)]["seconds"]
    table.report(f"{what}: loss first and last; seconds to step {min(lines)}", f"{lines[min(lines)]['loss']:.4f}, {lines[sizes.last_step]['loss']:.4f}; {starting:.1f}")


def scale_sample(bench: Bench, table: Table, sizes: Sizes, model: pathlib.Path) -> None:
    seconds = {}
    with Watch(memory_of_gpu) as memory:
        for images in (1, 5):
            output = bench.new_folder(f"large-sampled-{images}") / "picture.png"
            output.parent.mkdir()
            flags = ("--prompt", caption(3), "--images", images, "--steps", sizes.sampling_steps, "--sampler", "ddim", "--device", bench.device, "--output", output)
            done = bench.run(f"scale-sample-{images}", "sample", "--model", model, *flags, limit=60)
            seconds[images] = done.summary["seconds"]
    table.report(f"sample, {sizes.sampling_steps} steps, one after the other: s a picture; s of the first; GB of the GPU",
                 f"{(seconds[5] - seconds[1]) / 4:.3f}; {seconds[1]:.2f}; {memory.gigabytes()}")  # fmt: skip


def scale_serve(bench: Bench, table: Table, sizes: Sizes, model: pathlib.Path) -> None:
    fields = {"num_inference_steps": sizes.sampling_steps}
    with Watch(memory_of_gpu) as memory, Server(bench, "scale-serve", model, limit=60) as server:
        alone = []
        for _ in range(3):
            begin = time.monotonic()
            server.paint(caption(3), **fields)
            alone.append(time.monotonic() - begin)
        begin = time.monotonic()
        replies = server.paint_all([caption(number) for number in range(NUM_REQUESTS)], **fields)
        seconds = time.monotonic() - begin
    failed = [reply for reply in replies if isinstance(reply, Exception)]
    table.check(f"serve: {NUM_REQUESTS} requests at a time", not failed, failed[:1])
    table.report(f"serve, {sizes.sampling_steps} steps: s alone; pictures/s of {NUM_REQUESTS} at a time; s to start; GB of the GPU",
                 f"{statistics.median(alone):.3f}; {NUM_REQUESTS / seconds:.2f}; {server.seconds_to_start:.1f}; {memory.gigabytes()}")  # fmt: skip


# -- a checkpoint at full size ------------------------------------------------------------------------------------------


def save(bench: Bench) -> Table:
    """Steps with a checkpoint in the background between them, and a start from it; takes what `scale` has made."""
    sizes = sizes_of(bench)
    table = Table(f"{sizes.preset}, {sizes.precision}: a checkpoint", "figure", "")
    name, every = "save", 10
    settings = (*scale_settings(bench, sizes, sizes.micros[-1]), *(word for field in ("runtime.log_every=1", f"checkpoint.every_steps={every}") for word in ("--set", field)))
    run = bench.new_folder(name)
    begin = time.monotonic()
    with open(bench.out / f"{name}.log", "w", encoding="utf-8") as log:
        process = bench.start("train", *settings, "--data", bench.path("large-latents"), "--output", run, "--metrics-port", free_port(), log=log)
        saved = run / f"checkpoints/step-{every:08d}/state.json"
        meanwhile = None  # The newest step when the checkpoint was there.
        while process.poll() is None and time.monotonic() - begin < 100 and (meanwhile is None or newest_step(run) < every + 3):
            newest = newest_step(run)  # Before the look: what comes between them does not count.
            meanwhile = newest if meanwhile is None and saved.exists() else meanwhile
            time.sleep(0.05)
        process.kill()
        process.wait()
    done = 0 if meanwhile is None else meanwhile - every
    is_good = meanwhile is not None and (done > 0 or bench.is_small)  # A small checkpoint takes less than a step.
    table.check("saved while training went on", is_good, last_words((bench.out / f"{name}.log").read_text()) if meanwhile is None else f"{done} steps meanwhile")
    times = {line["step"]: line["seconds"] for line in read_metrics(run) if "seconds" in line}
    durations = {step: times[step] - times[step - 1] for step in times if step - 1 in times}
    usual = statistics.median(durations.values())
    table.report("a step; the first after the snapshot: s", f"{usual:.3f}; {durations.get(every + 1, 0):.3f}")
    size = sum(path.stat().st_size for path in saved.parent.rglob("*")) if saved.exists() else 0
    table.report("GB of the checkpoint; steps done while it was written", f"{size / 1e9:.2f}; {done}")
    begin = time.monotonic()
    with open(bench.out / f"{name}-resumed.log", "w", encoding="utf-8") as log:
        process = bench.start("train", *settings, "--data", bench.path("large-latents"), "--output", run, "--metrics-port", free_port(), log=log)
        while process.poll() is None and time.monotonic() - begin < 60 and not is_resumed(run, every):
            time.sleep(0.05)
        process.kill()
        process.wait()
    table.check("goes on from it", is_resumed(run, every), f"first step after {time.monotonic() - begin:.1f} s")
    return table


def newest_step(run: pathlib.Path) -> int:
    return max((line["step"] for line in read_metrics(run)), default=0)


def is_resumed(run: pathlib.Path, step: int) -> bool:
    """Lines behind the checkpoint's step are cut off at a start, and come anew."""
    lines = [line["step"] for line in read_metrics(run) if "loss" in line]
    return step + 1 in lines and lines[-1] <= step + 2
