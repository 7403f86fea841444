#!/usr/bin/env python3
"""The verbs with `--device cuda:0` on a GPU that is not there (tests/support/fake_device): the bits of the CPU, and what a step asks for.

The unmodified program opens the fake device as its CUDA plugin, because its folder is on the loader's path.
usage: fake_device_test.py
"""

import atexit
import collections
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest.mock

import numpy as np
from pyarrow.parquet import read_table
from ranks_test import finish, read_until
from serve_test import Server, pixels
from workbench import PROGRAM, ROOT, Workbench, digests, main, read_losses, require, run

sys.path += [str(ROOT / "tests" / "acceptance"), str(ROOT / "tools" / "gpu")]

from harness import BUCKET, FakeS3Server  # noqa: E402
from verb_bench import read_safetensors, weights  # noqa: E402

FAKE_DEVICE = ROOT / "build" / "release" / "tests" / "fake_device"
BATCH = 8
STEPS = 20
TENSORS_OF_A_BATCH = 7  # Coordinates, timestep, dropped, scales, weight, latents, states.
SCALARS_OF_AN_UPDATE = 10  # AdamWScalar::kCount
PEAK = ("--tflops", "1")  # Else it is measured, by as many products as the machine's speed asks for.
PATIENCE = 600  # Seconds; a limit, no measure.


class DeviceBench(Workbench):
    """A workbench with latents and pictures."""

    def __init__(self):
        super().__init__(32)
        require((FAKE_DEVICE / "libdarkroom_cuda.so").exists(), "the fake device is not built: tools/build/build.sh release darkroom_fake_cuda")
        self.images = self.write_image_dataset("images", 32)
        run("process", self.images, self.path("latents"), "--model", self.model, "--resolution", "64")

    def command(self, output: str, device: str, *settings: str, recipe: str = "tiny") -> list[str]:
        data = ["--data", self.path("latents")] if recipe == "tiny" else ["--raw-data", self.images]
        settings = (f"batch.global={BATCH}", f"batch.micro={BATCH}", "runtime.workers=1", "schedule.kind=constant", "schedule.warmup_steps=2",
                    "checkpoint.every_steps=0", "samples.every_steps=0", "schedule.max_steps=4", *settings)  # fmt: skip
        sets = [word for setting in settings for word in ("--set", setting)]
        return ["train", f"recipes/{recipe}.toml", *data, "--model", self.model, "--output", self.path(output), "--device", device, *PEAK, *sets]

    def read_metrics(self, output: str, name: str) -> list[str | None]:
        lines = pathlib.Path(self.path(output), "metrics.jsonl").read_text().splitlines()
        return [json.loads(line, parse_float=str).get(name) for line in lines]

    def require_same(self, output: str, reference: str, steps: int) -> None:
        """Losses of every step, and the bytes of weights, average and moments."""
        require(read_losses(self.path(output)) == read_losses(self.path(reference)), "losses differ", output, reference)
        pattern = f"checkpoints/step-{steps:08d}/**/*.safetensors"
        want = digests(self.path(reference), pattern)
        require(len(want) >= 3 and digests(self.path(output), pattern) == want, "the checkpoints differ", output, reference)


@functools.cache
def the_bench() -> DeviceBench:
    bench = DeviceBench()
    atexit.register(bench.__exit__)
    return bench


def run_on_device(arguments: list[str], counts: str = "", fault: str = "", layout: str = "", shares: bool = False) -> subprocess.CompletedProcess:
    wanted = {"LD_LIBRARY_PATH": str(FAKE_DEVICE), "DARKROOM_FAKE_DEVICE_COUNTS": counts, "DARKROOM_FAKE_DEVICE_FAULT": fault, "DARKROOM_FAKE_DEVICE_LAYOUT": layout,
              "DARKROOM_RANKS_SHARE_GPU": "1" if shares else ""}  # fmt: skip
    environment = {**os.environ, **{name: value for name, value in wanted.items() if value}}
    return subprocess.run([str(PROGRAM), *arguments], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, env=environment)


def require_done(done: subprocess.CompletedProcess) -> None:
    require(done.returncode == 0, "exit code", done.returncode, done.stderr[-4000:])


def costs_of_four_steps(name: str, *settings: str, fault: str = "", first: int = 6) -> dict:
    """What the device was asked for in four steps whose numbers nobody looks at, after `first` others: the difference of two runs."""
    bench = the_bench()
    totals = []
    for steps in (first, first + 4):
        counts = bench.path(f"{name}-{steps}.json")
        command = bench.command(f"{name}-{steps}", "cuda:0", "runtime.log_every=100", f"schedule.max_steps={steps}", *settings)
        require_done(run_on_device(command, counts=counts, fault=fault))
        totals.append(json.loads(pathlib.Path(counts).read_text()))
    return {figure: totals[1][figure] - totals[0][figure] for figure in totals[0] if figure != "waits"}


def training_has_the_bits_of_the_cpu() -> None:
    bench = the_bench()
    for precision in ("float32", "bfloat16"):
        for micro in (BATCH, BATCH // 4):
            name = f"{precision}-{micro}"
            settings = (f"runtime.precision={precision}", f"batch.micro={micro}", f"schedule.max_steps={STEPS}", "runtime.log_every=5")
            run(*bench.command(f"cpu-{name}", "cpu", *settings))
            for graphs in ("true", "false"):
                require_done(run_on_device(bench.command(f"device-{name}-{graphs}", "cuda:0", *settings, f"runtime.graphs={graphs}")))
                bench.require_same(f"device-{name}-{graphs}", f"cpu-{name}", STEPS)
    require(read_losses(bench.path("cpu-bfloat16-8")) != read_losses(bench.path("cpu-float32-8")), "bfloat16 changed no bit")


def a_batch_that_ends_with_a_smaller_micro_batch_has_the_bits_of_the_cpu() -> None:
    bench = the_bench()
    for name, *settings in (("rest", "batch.micro=3"), ("groups", "batch.micro=1", "runtime.gradient_groups=4")):
        settings = (*settings, "schedule.max_steps=7", "runtime.precision=bfloat16")
        run(*bench.command(f"cpu-{name}", "cpu", *settings))
        counts = bench.path(f"{name}.json")
        require_done(run_on_device(bench.command(f"device-{name}", "cuda:0", *settings), counts=counts))
        bench.require_same(f"device-{name}", f"cpu-{name}", 7)
        recordings = json.loads(pathlib.Path(counts).read_text())["recordings"]
        require(recordings == (3 if name == "rest" else 2), "other graphs were recorded than the update's and one for each size", name, recordings)


def the_autoencoder_has_the_bits_of_the_cpu() -> None:
    bench = the_bench()
    # Validation loads batches of other sizes into the inputs that the recorded passes are fed from.
    settings = ("data.resolution=64", "schedule.max_steps=5", "batch.global=4", "batch.micro=2", "validation.every_steps=2", "validation.num_rows=3")
    for output, start in (("cpu-vae", run), ("device-vae", None)):
        command = [*bench.command(output, "cpu" if start else "cuda:0", *settings, recipe="tiny-vae"), "--validation", bench.images]
        start(*command) if start else require_done(run_on_device(command))
    bench.require_same("device-vae", "cpu-vae", 5)
    scores = [bench.read_metrics(output, name) for output in ("cpu-vae", "device-vae") for name in ("validation_loss", "validation_psnr")]
    require(scores[:2] == scores[2:] and any(scores[0]), "validation differs", scores)


def a_step_sends_its_batch_and_waits_for_nothing() -> None:
    latents, states = 4 * 8 * 8, 77 * 128  # Of one sample of the tiny model.
    numbers = 8 * 2 + 8 + 1 + 4 * 2 + 4  # Coordinates, timestep, dropped, scales, weight.
    on_the_device = {}
    for precision, micro, graphs in [(precision, micro, graphs) for precision in ("float32", "bfloat16") for micro in (BATCH, BATCH // 4) for graphs in (False, True)]:
        case = (f"runtime.precision={precision}", f"batch.micro={micro}", f"runtime.graphs={str(graphs).lower()}")
        cost = costs_of_four_steps(f"cost-{precision}-{micro}-{graphs}", *case)
        passes = BATCH // micro
        require(cost["recordings"] == 0 and cost["replays"] == (4 * (passes + 1) if graphs else 0), "a step replays other graphs", case, cost)
        on_the_device[precision, micro, graphs] = cost["device_to_device"]
        if graphs:
            # A pass: its inputs to where the graph reads them, its losses from where the graph writes them.
            more = cost["device_to_device"] - on_the_device[precision, micro, False]
            require(more == 4 * passes * (TENSORS_OF_A_BATCH + 1), "a replayed step makes other copies than its inputs and losses", case, more)
        require(cost["synchronisations"] == 0 and cost["device_to_host"] == 0, "a step waits for the device", cost)
        # Each tensor's memory is one of two: before it is filled, its copy of two steps ago must have been done.
        require(cost["event_waits"] == 4 * 8 and cost["late_waits"] == 0, "a step waits for other copies than those of two steps ago", cost)
        require(cost["host_to_device"] == 4 * 8, "a step sends other tensors than its batch", cost)
        want = 4 * (BATCH * (2 * (latents + states) + numbers) + 8 * SCALARS_OF_AN_UPDATE)
        require(cost["host_to_device_bytes"] == want, "a step sends other bytes than its batch as it is stored", cost, want)


def planted_mistakes_are_seen() -> None:
    bench = the_bench()
    for place, times in (("norm_partials", 1), ("counter_normal", 4)):  # In the update, in each of four passes.
        cost = costs_of_four_steps(f"item-{place}", "runtime.graphs=false", "batch.micro=2", fault=f"item:{place}", first=2)
        require(cost["synchronisations"] == 4 * times, "an item() in a step is not counted", place, cost)
        cost = costs_of_four_steps(f"event-{place}", "runtime.graphs=false", "batch.micro=2", fault=f"event:{place}", first=2)
        require(cost["event_waits"] != 4 * 8 and cost["late_waits"] == 4 * times, "a wait for an event just recorded is not counted", place, cost)
        done = run_on_device(bench.command(f"recorded-event-{place}", "cuda:0", "batch.micro=2"), fault=f"event:{place}")
        require(done.returncode != 0 and "waits for an event while a graph is recorded" in done.stderr, "a wait for an event is recorded", place, done.stderr[-2000:])
        done = run_on_device(bench.command(f"recorded-{place}", "cuda:0", "batch.micro=2"), fault=f"item:{place}")
        require(done.returncode != 0 and "waits for the device while a graph is recorded: item" in done.stderr, "an item() is recorded", place, done.stderr[-2000:])
        for graphs in ("true", "false"):
            setting = f"runtime.graphs={graphs}"
            done = run_on_device(bench.command(f"forgotten-{place}-{graphs}", "cuda:0", setting), fault=f"forgotten_to:{place}")
            require(done.returncode != 0 and "a host tensor among the device's in" in done.stderr, "a forgotten to() is not seen", place, done.stderr[-2000:])
            done = run_on_device(bench.command(f"host-read-{place}-{graphs}", "cuda:0", setting), fault=f"host_read:{place}")
            require(done.returncode in (-signal.SIGSEGV, 128 + signal.SIGSEGV), "a host read is not seen", place, done.returncode, done.stderr[-2000:])


def a_run_goes_on_on_the_other_device() -> None:
    bench = the_bench()
    run(*bench.command("straight", "cpu", "schedule.max_steps=12"))
    require_done(run_on_device(bench.command("changing", "cuda:0", "schedule.max_steps=5")))
    run(*bench.command("changing", "cpu", "schedule.max_steps=6"))
    require_done(run_on_device(bench.command("changing", "cuda:0", "schedule.max_steps=12")))
    bench.require_same("changing", "straight", 12)


def steps_that_are_left_out_leave_everything_as_it_was() -> None:
    bench = the_bench()
    # The first update throws the weights so far that every later step is left out: warm-up, recording and replays.
    settings = ("optimizer.lr=1e30", "optimizer.max_skipped=9", "schedule.max_steps=8", "schedule.warmup_steps=0")
    run(*bench.command("cpu-skips", "cpu", *settings))
    require_done(run_on_device(bench.command("device-skips", "cuda:0", *settings)))
    bench.require_same("device-skips", "cpu-skips", 8)
    skipped = [bench.read_metrics(output, "skipped") for output in ("cpu-skips", "device-skips")]
    require(skipped[0] == skipped[1] and skipped[0][-1] >= 6, "other steps were left out", skipped)


def validation_previews_and_trace_move_their_tensors() -> None:
    bench = the_bench()
    extra = ("validation.every_steps=2", "validation.num_rows=11", "samples.every_steps=5", "samples.steps=4", "schedule.max_steps=8")
    for output, start in (("cpu-shown", run), ("device-shown", None)):
        device = "cpu" if start else "cuda:0"
        command = [*bench.command(output, device, *extra), "--validation", bench.path("latents"), "--trace", bench.path(f"{output}.safetensors"), "--trace-steps", "2"]
        start(*command) if start else require_done(run_on_device(command))
    bench.require_same("device-shown", "cpu-shown", 8)
    pictures = [digests(bench.path(output), "samples/**/*.png") for output in ("cpu-shown", "device-shown")]
    require(len(pictures[0]) >= 2 and pictures[0] == pictures[1], "previews differ", pictures)
    lines = [bench.read_metrics(output, "validation_loss") for output in ("cpu-shown", "device-shown")]
    require(lines[0] == lines[1] and any(lines[0]), "validation differs", lines)
    traces = [pathlib.Path(bench.path(f"{output}.safetensors")) for output in ("cpu-shown", "device-shown")]
    require(traces[0].read_bytes() == traces[1].read_bytes(), "the traces differ")


def weights_in_the_layout_of_a_gpu_train_as_well() -> None:
    """Other kernels, so other roundings, of float32."""
    bench = the_bench()
    run(*bench.command("layout-cpu", "cpu", "model.start=weights"))
    require_done(run_on_device(bench.command("layout-given", "cuda:0", "model.start=weights"), layout="given"))
    for (_, want), (_, got) in zip(read_losses(bench.path("layout-cpu")), read_losses(bench.path("layout-given")), strict=True):
        # Of squares of an output that is within 1e-5 of its largest value, which is five times its root mean square at most: 2 * 1e-5 * 5.
        require(abs(float(got) - float(want)) <= 1e-4 * float(want), "the loss is another", got, want)
    begin = read_safetensors(pathlib.Path(bench.model) / "unet" / "diffusion_pytorch_model.safetensors")
    start = np.concatenate([begin[name].astype(np.float64) for name in sorted(begin)])
    want, got = (weights(pathlib.Path(bench.path(output)), 4) for output in ("layout-cpu", "layout-given"))
    share = np.linalg.norm(got - want) / np.linalg.norm(want - start)
    require(share <= 1e-3, "the weights went another way (share of it)", share)


def process_and_sample_give_what_the_cpu_gives() -> None:
    bench = the_bench()
    shared = ("--model", bench.model, "--resolution", "64", "--batching", "together", "--batch-size", "4")
    latents = {"float32": [read_table(part).to_pylist() for part in sorted(pathlib.Path(bench.path("latents")).glob("*.parquet"))]}
    for kind, asked in (("float16", ()), ("bfloat16", ("--compute-dtype", "bfloat16"))):  # float16 is what process takes on a GPU.
        run("process", bench.images, bench.path(f"latents-cpu-{kind}"), *shared, "--compute-dtype", kind, "--device", "cpu")
        require_done(run_on_device(["process", bench.images, bench.path(f"latents-device-{kind}"), *shared, *asked, "--device", "cuda:0"]))
        want, got = ([read_table(part).to_pylist() for part in sorted(pathlib.Path(bench.path(f"latents-{place}-{kind}")).glob("*.parquet"))] for place in ("cpu", "device"))
        require(want == got and want, "latents differ", kind)
        require(want not in latents.values(), "a type changed no bit", kind)
        latents[kind] = want
    looked = run_on_device(["process", bench.images, bench.path("latents-looked"), *shared, "--device", "cuda:0", "--dry-run"])
    require_done(looked)
    require("the lower of the GPU's encoder" in looked.stderr, "a GPU's encoder shares the cores with decoding", looked.stderr[-4000:])
    pictures = []
    for device in ("cpu", "cuda:0"):  # In the other types sample packs its U-Net on the CPU, to other bits.
        pictures.append(bench.path(f"{device[:3]}.png"))
        command = ["sample", "--model", bench.model, "--prompt", "a red apple", "--seed", "3", "--steps", "13", "--precision", "float16", "--device", device, "--output", pictures[-1]]
        require_done(run_on_device(command))
    want, got = (pixels(pathlib.Path(picture).read_bytes()) for picture in pictures)
    require((want == got).all(), "pictures differ")


def training_on_pictures_has_the_bits_of_what_process_stores_there() -> None:
    bench = the_bench()
    settings = ("samples.every_steps=3", "samples.steps=2", "batch.micro=4")
    for name, data in (("offline", ["--data", bench.path("latents-device-float16")]), ("online", ["--raw-data", bench.images])):
        command = bench.command(name, "cuda:0", *settings)
        command[2:4] = data
        require_done(run_on_device(command))
    bench.require_same("online", "offline", 4)
    require(len(digests(bench.path("online"), "samples/**/*.png")) >= 2, "previews are missing")


def served_pictures_are_replayed_and_a_lost_device_ends_the_server() -> None:
    bench = the_bench()
    # Of a picture of 20 steps the first 12 calls are plain; the third picture is lost in its third call.
    environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE_DEVICE), "DARKROOM_FAKE_DEVICE_FAULT": f"lost_device:{8 + 20 + 2}"}
    with Server(bench.model, "--device", "cuda:0", "--precision", "float16", environment=environment) as server:
        asked = {"prompt": "a red apple", "seed": 3, "num_inference_steps": 20}
        first, again = server.paint(asked), server.paint(asked)
        command = ["sample", "--model", bench.model, "--prompt", "a red apple", "--seed", "3", "--steps", "20", "--precision", "float16", "--device", "cpu"]
        run(*command, "--output", bench.path("served.png"))
        painted = pixels(pathlib.Path(bench.path("served.png")).read_bytes())
        require((first == painted).all() and (again == painted).all(), "pictures of recorded calls are others")
        require(server.ask("POST", "/invocations", asked)[0] == 500, "a lost picture was answered otherwise")
        require(server.process.wait(timeout=PATIENCE) == 1, "the server went on, or ended as if it had been told to", server.process.returncode)
        server.reader.join(timeout=PATIENCE)
        require("the GPU does nothing any more in this process" in server.log, "why is not told", server.log)


def an_encoder_whose_device_is_lost_ends_to_be_replaced() -> None:
    bench = the_bench()
    counts = bench.path("encoder.json")
    command = [str(PROGRAM), "encoder", "--recipe", "recipes/tiny.toml", "--raw-data", bench.images, "--model", bench.model, "--device", "cuda:0", "--listen", "127.0.0.1:0"]

    def started(**variables: str) -> tuple[subprocess.Popen, str]:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE_DEVICE), **variables}
        encoder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        line = encoder.stdout.readline()
        require(line.startswith("encoder ready at "), "the encoder does not start", line)
        return encoder, line.split()[-1]

    encoder, _ = started(DARKROOM_FAKE_DEVICE_COUNTS=counts)
    encoder.terminate()
    require(encoder.wait(timeout=PATIENCE) == 0, "exit code", encoder.returncode)
    kernels = json.loads(pathlib.Path(counts).read_text())["kernels"]
    encoder, address = started(DARKROOM_FAKE_DEVICE_FAULT=f"lost_at_kernel:{kernels + 20}")
    training = bench.command("lost-encoder", "cpu", "samples.every_steps=0")
    training[2:4] = ["--raw-data", bench.images]
    done = subprocess.run([str(PROGRAM), *training, "--encoders", address, "--encoder-wait", "1"], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
    said = encoder.communicate(timeout=PATIENCE)[1]
    require(encoder.returncode == 75 and "the GPU does nothing any more in this process" in said, "the encoder goes on", encoder.returncode, said[-2000:])
    require(done.returncode != 0, "trained without an encoder", done.stderr[-2000:])


def ranks_on_devices_have_the_bits_of_one_on_the_cpu() -> None:
    bench = the_bench()
    for precision in ("float32", "bfloat16"):
        settings = (f"runtime.precision={precision}", "runtime.gradient_groups=4", "batch.micro=1", "schedule.max_steps=8", "checkpoint.every_steps=5")
        run(*bench.command(f"cpu-groups-{precision}", "cpu", *settings))
        # Gradients are sent while the last pass goes on, or passes are replayed.
        for ranks, more in ((2, ()), (3, ("runtime.background_saves=false",)), (3, ("runtime.overlap=false",))):
            name = f"device-{precision}-{ranks}-{len(more) and more[0]}"
            require_done(run_on_device([*bench.command(name, "cuda:0", *settings, *more), "--nproc", str(ranks)], shares=True))
            for step in (5, 8):
                bench.require_same(name, f"cpu-groups-{precision}", step)


def a_run_goes_on_with_other_ranks_on_the_other_device() -> None:
    bench = the_bench()
    settings = ("runtime.precision=bfloat16", "runtime.gradient_groups=4", "batch.micro=2")
    run(*bench.command("one-rank", "cpu", *settings, "schedule.max_steps=9"))
    require_done(run_on_device([*bench.command("many-ranks", "cuda:0", *settings, "schedule.max_steps=3"), "--nproc", "3"], shares=True))
    run(*bench.command("many-ranks", "cpu", *settings, "schedule.max_steps=5"), "--nproc", "2")
    require_done(run_on_device([*bench.command("many-ranks", "cuda:0", *settings, "schedule.max_steps=7"), "--nproc", "2"], shares=True))
    require_done(run_on_device(bench.command("many-ranks", "cuda:0", *settings, "schedule.max_steps=9")))
    bench.require_same("many-ranks", "one-rank", 9)


def ranks_of_one_machine_want_a_gpu_each() -> None:
    bench = the_bench()
    groups = ("runtime.gradient_groups=2", "batch.micro=2", "schedule.max_steps=1")
    done = run_on_device([*bench.command("one-gpu", "cuda:0", *groups), "--nproc", "2"])
    require(done.returncode != 0 and "say cuda, which gives every rank its own" in done.stderr, "two ranks took one GPU", done.returncode, done.stderr[-2000:])
    # `auto` is the CPU where there are fewer GPUs than ranks, whether or not somebody has said which of them shall be seen.
    for name, visible in (("fewer-gpus", {}), ("fewer-visible-gpus", {"CUDA_VISIBLE_DEVICES": "0"})):
        with unittest.mock.patch.dict(os.environ, visible):
            require_done(run_on_device([*bench.command(name, "auto", *groups), "--nproc", "2"]))
        require(json.loads(pathlib.Path(bench.path(name), "run.json").read_text())["starts"][0]["device"] == "cpu", "another device was taken", name)


def sums_on_a_stream_of_their_own_wait_for_the_pass() -> None:
    bench = the_bench()
    waits = []
    for steps in (3, 5):  # The first sends in one piece.
        counts = bench.path(f"waits-{steps}.json")
        settings = ("runtime.gradient_groups=2", "batch.micro=2", f"schedule.max_steps={steps}")
        require_done(run_on_device([*bench.command(f"waits-{steps}", "cuda:0", *settings), "--nproc", "2"], counts=counts, shares=True))
        waits.append(json.loads(pathlib.Path(counts).read_text())["stream_waits"])  # Of the rank that ended last.
    # The tiny network is one piece of gradients: its sum waits for the pass, and what follows for the sum.
    require(waits[1] - waits[0] == 2 * 2, "streams wait for each other otherwise", waits)
    # Without one of these waits, of the sum's stream or of what follows it.
    settings = ("runtime.gradient_groups=2", "batch.micro=2", "schedule.max_steps=3")
    for stream, told in ((1, "of stream 1 reads what"), (0, "of stream 0 reads what")):
        done = run_on_device([*bench.command(f"unordered-{stream}", "cuda:0", *settings), "--nproc", "2", "--max-restarts", "0"],
                             fault=f"unordered_stream:{stream}", shares=True)  # fmt: skip
        require(done.returncode != 0 and told in done.stderr and "and has not waited for it" in done.stderr, "no wait was missed", stream, done.stderr[-3000:])


def a_lost_connection_between_devices_ends_the_ranks() -> None:
    bench = the_bench()
    settings = ("runtime.gradient_groups=2", "batch.micro=2", "schedule.max_steps=400")
    done = run_on_device([*bench.command("lost-connection", "cuda:0", *settings), "--nproc", "2", "--max-restarts", "0"], fault="lost_rank:9", shares=True)
    wanted = ("is lost, as was asked for", "ranks were lost (rank 0: missed another, rank 1: missed another)")
    require(done.returncode == 1 and all(words in done.stderr for words in wanted), "a lost connection was not seen", done.returncode, done.stderr[-2000:])


def ranks_whose_device_is_lost_begin_again() -> None:
    bench = the_bench()
    settings = ("runtime.gradient_groups=2", "batch.micro=2", "runtime.overlap=false", "schedule.max_steps=8", "checkpoint.every_steps=2")
    run(*bench.command("kept-device", "cpu", *settings))
    done = run_on_device([*bench.command("lost-device", "cuda:0", *settings), "--nproc", "2"], fault="lost_device:9", shares=True)
    require_done(done)
    require("the GPU does nothing any more in this process" in done.stderr and "ranks were lost" in done.stderr, "no device was lost", done.stderr[-2000:])
    bench.require_same("lost-device", "kept-device", 8)


def a_stop_in_a_checkpoints_step_ends_ranks_whose_run_folder_is_on_a_store() -> None:
    bench = the_bench()
    with FakeS3Server() as server:
        environment = server.environment(LD_LIBRARY_PATH=str(FAKE_DEVICE), DARKROOM_RANKS_SHARE_GPU="1")
        for background in ("true", "false"):
            # Three ranks: their slices cut convolutions, of whose values they tell each other for a checkpoint.
            command = bench.command("unused", "cuda:0", "runtime.gradient_groups=4", "batch.micro=2", "schedule.max_steps=100000", "checkpoint.every_steps=1",
                                    "runtime.watchdog_seconds=10", f"runtime.background_saves={background}")  # fmt: skip
            command[command.index("--output") + 1] = f"s3://{BUCKET}/stopped-{background}"
            launcher = subprocess.Popen([str(PROGRAM), *command, "--nproc", "3"], stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
            try:
                read_until(launcher, "the checkpoint of step 2 is stored")
                launcher.terminate()
                finish(launcher, expect=128 + signal.SIGTERM)
            finally:
                launcher.kill()
            stored = server.dump(pathlib.Path(bench.path(f"dump-{background}"))) / f"stopped-{background}"
            saved = max(path.parent.name for path in stored.glob("checkpoints/step-*/state.json"))
            logged = max(path.stem for path in stored.glob("metrics-*.jsonl"))
            require(int(saved.removeprefix("step-")) == int(logged.removeprefix("metrics-")), "the checkpoint of the stop is missing", saved, logged)


def a_device_that_is_not_there_is_an_error_that_says_why() -> None:
    bench = the_bench()
    done = subprocess.run([str(PROGRAM), *bench.command("no-gpu", "cuda")], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
    require(done.returncode != 0 and "libdarkroom_cuda.so" in done.stderr, "the reason is missing", done.returncode, done.stderr[-2000:])
    require(not pathlib.Path(bench.path("no-gpu")).exists(), "a run that did not begin left a folder")
    done = run_on_device(bench.command("second-gpu", "cuda:1"))
    require(done.returncode != 0 and "there is no such GPU" in done.stderr, "the reason is missing", done.returncode, done.stderr[-2000:])
    done = run_on_device(bench.command("recipe-gpu", "auto", "runtime.device=cuda:1"))
    require(done.returncode != 0 and "runtime.device" in done.stderr, "the recipe's device is not used", done.returncode, done.stderr[-2000:])


def a_gpus_phases_are_of_its_own_clock() -> None:
    """Which is a microsecond for each kernel and copy, so that replayed steps take the same time."""
    bench = the_bench()
    spans_file = pathlib.Path(bench.path("phases.jsonl"))
    settings = ("runtime.log_every=4", "schedule.max_steps=12", "batch.micro=2")
    require_done(run_on_device([*bench.command("phases", "cuda:0", *settings), "--trace-file", str(spans_file)]))
    lines = [json.loads(line) for line in pathlib.Path(bench.path("phases"), "metrics.jsonl").read_text().splitlines()]
    require([line["step"] for line in lines] == [4, 8, 12], "other steps are logged", lines)
    parts = [{part: line["ms"][part] for part in ("forward", "backward", "optimizer", "device_idle")} for line in lines]
    require(all(value > 0 for part in parts for value in part.values()) and parts[1] == parts[2], "phases", parts)
    spans = [span for line in spans_file.read_text().splitlines() for resource in json.loads(line)["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]]
    steps = {span["spanId"]: step for step, span in enumerate((span for span in spans if span["name"] == "step"), 1)}
    require(len(steps) == 12, "steps", steps)
    told = collections.defaultdict(dict)
    for span in spans:
        if span.get("parentSpanId") in steps:
            told[steps[span["parentSpanId"]]][span["name"]] = (int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
    for step, phases in told.items():
        looked = {"device_wait"} if step % 4 == 0 else set()
        require(set(phases) == {"data_wait", "device_idle", "forward_backward", "update"} | looked, "phases of a step", step, phases)
        require(phases["device_idle"][1] == phases["forward_backward"][0] and phases["forward_backward"][1] == phases["update"][0], "phases lie apart", step, phases)
    for part, step in zip(parts, (4, 8, 12)):
        want = (part["device_idle"], part["forward"] + part["backward"], part["optimizer"])
        got = [(told[step][name][1] - told[step][name][0]) * 1e-6 for name in ("device_idle", "forward_backward", "update")]
        require(all(abs(one - other) < 2e-6 for one, other in zip(want, got)), "a span has another time than the line of metrics", step, want, got)
    for before, after in zip(range(1, 12), range(2, 13)):
        require(told[before]["update"][1] <= told[after]["device_idle"][0] or after % 4 == 1, "steps overlap on the device", before, told)


def the_peak_is_measured_on_the_device_in_the_steps_type() -> None:
    bench = the_bench()
    command = bench.command("measured", "cuda:0", "schedule.max_steps=1", "runtime.precision=bfloat16")
    at = command.index(PEAK[0])
    done = run_on_device(command[:at] + command[at + 2 :])
    require_done(done)
    require("cuda:0 does" in done.stderr and "products of bfloat16 matrices" in done.stderr, "the log does not tell the peak", done.stderr)
    start = json.loads(pathlib.Path(bench.path("measured"), "run.json").read_text())["starts"][0]
    line = json.loads(pathlib.Path(bench.path("measured"), "metrics.jsonl").read_text())
    require(start["rank_peak_is_measured"] and abs(line["mfu"] * start["rank_peak_tflops"] / line["tflops"] - 1) < 1e-9, "MFU is a share of another peak", start, line)


def compute_sanitizers_tools_see_each_tensor_as_an_allocation_of_its_own() -> None:
    """The stages of gpu_check.sh with a stand-in of the tool, which tells how it was called, and of plugin_test."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        for name, text in (("compute-sanitizer", 'echo "cache $PYTORCH_NO_CUDA_MEMORY_CACHING $*"; shift 4; "$@"; echo "===== ERROR SUMMARY: 0 errors"'),
                           ("plugin_test", 'echo "$(cat $0.says)"')):  # fmt: skip
            (place / name).write_text(f"#!/bin/sh\n{text}\n")
            (place / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "GPU_CHECK_BUILD": folder}

        def check(stage: str, says: str) -> subprocess.CompletedProcess:
            (place / "plugin_test.says").write_text(says)
            return subprocess.run(["bash", "tools/gpu/gpu_check.sh", stage, "--out", folder], capture_output=True, text=True, cwd=ROOT, env=environment)

        for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
            done = check(f"sanitize-{tool}", "10 passed, 0 failed, 0 skipped")
            require(done.returncode == 0 and f"| {tool} | ERROR SUMMARY: 0 errors |" in done.stdout, "the stage failed", tool, done.stdout, done.stderr)
            log = (place / f"{tool}.log").read_text()
            require(f"cache 1 --tool {tool} --error-exitcode 1 {folder}/plugin_test kernel" in log, "the tool was called otherwise", log)
        require(check("sanitize-memcheck", "0 passed, 0 failed, 10 skipped").returncode == 1, "checks that were skipped count as clean")


def kernels_that_fail_on_a_gpu_box_are_told_with_their_complaints() -> None:
    """The stage of gpu_verbs.sh with stand-ins of torch's wheel, plugin_test and gpu_parity."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "torch").mkdir()
        (place / "torch" / "__init__.py").touch()
        (place / "bin").mkdir()
        says = {"plugin_test": "pass one\nFAIL two\n     differs by 3\n     threw: no room\nFAIL three\n     is late\n1 passed, 2 failed, 0 skipped", "gpu_parity": ""}
        for name, text in says.items():
            (place / "bin" / name).write_text(f"#!/bin/sh\ncat <<'end'\n{text}\nend\n[ {name} = gpu_parity ]\n")
            (place / "bin" / name).chmod(0o755)
        command = [sys.executable, "tools/gpu/gpu_verbs.py", "kernels", "--program", folder, "--out", folder, "--scratch", f"{folder}/scratch"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": folder})
        rows = [line for line in done.stdout.splitlines() if line.startswith("| a kernel ")]
        want = ["| a kernel | FAIL two; differs by 3; threw: no room | FAILS |", "| a kernel | FAIL three; is late | FAILS |"]
        require(done.returncode == 1 and rows == want, "failed kernels are told otherwise", done.stdout, done.stderr)


if __name__ == "__main__":
    main(
        [
            training_has_the_bits_of_the_cpu,
            a_batch_that_ends_with_a_smaller_micro_batch_has_the_bits_of_the_cpu,
            the_autoencoder_has_the_bits_of_the_cpu,
            a_step_sends_its_batch_and_waits_for_nothing,
            planted_mistakes_are_seen,
            a_run_goes_on_on_the_other_device,
            steps_that_are_left_out_leave_everything_as_it_was,
            validation_previews_and_trace_move_their_tensors,
            weights_in_the_layout_of_a_gpu_train_as_well,
            process_and_sample_give_what_the_cpu_gives,
            training_on_pictures_has_the_bits_of_what_process_stores_there,
            served_pictures_are_replayed_and_a_lost_device_ends_the_server,
            an_encoder_whose_device_is_lost_ends_to_be_replaced,
            ranks_on_devices_have_the_bits_of_one_on_the_cpu,
            a_run_goes_on_with_other_ranks_on_the_other_device,
            sums_on_a_stream_of_their_own_wait_for_the_pass,
            a_lost_connection_between_devices_ends_the_ranks,
            ranks_whose_device_is_lost_begin_again,
            a_stop_in_a_checkpoints_step_ends_ranks_whose_run_folder_is_on_a_store,
            ranks_of_one_machine_want_a_gpu_each,
            a_device_that_is_not_there_is_an_error_that_says_why,
            a_gpus_phases_are_of_its_own_clock,
            the_peak_is_measured_on_the_device_in_the_steps_type,
            compute_sanitizers_tools_see_each_tensor_as_an_allocation_of_its_own,
            kernels_that_fail_on_a_gpu_box_are_told_with_their_complaints,
        ]
    )
