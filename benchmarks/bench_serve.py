#!/usr/bin/env python3
"""How much faster requests that come together are painted in one network call than one after another, by the same server.

  bench_serve.py PROGRAM MODEL [--widen N] [--side PIXELS] [--rounds 5] [--steps 20] [--shorts 100] [--threads auto] [--short]

With `--widen 5` and models/tiny the U-Net is one of 103 million parameters with random weights, made anew for each run
(benchmarks/widened_model.py), beside the model's own texts and VAE. In turn, wall-clock:

- sixteen requests of mixed samplers, steps, guidance and prompts at once, to `darkroom serve --max-batch 8` and `--max-batch 1`; before that
  each picture of the one is held against the other's: at most one grey level apart. Beside the ratio stands what the processor could make
  of it: its rate of matrix products, measured in every round, against what the U-Net's calls reached.
- of the same requests the latest against equal sharing: when each would have been done had all had equal parts of what was done.
- what a request of 4 steps waits for beside fifteen of 50 steps, against the same alone, times what a full call takes longer than one of one
  picture.

--short is to see that it runs: few steps, one round; its figures mean nothing.
"""
import argparse
import atexit
import concurrent.futures
import contextlib
import http.client
import io
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import numpy as np
from PIL import Image

from alternating_times import print_ratio, print_times, spread
from widened_model import forward_flops, num_parameters, shapes_of, widen_model

SAMPLERS = ["euler_a", "dpmpp_2m", "pndm", "unipc", "ddim", "dpmpp_2m_karras", "euler", ""]
NUM_REQUESTS = 16
MAX_BATCH = 8
SHORT_STEPS = 4
WANTED_RATIO = 1.6
WANTED_WAIT = 1.5


class Server:
    def __init__(self, program: str, model: pathlib.Path, max_batch: int, threads: str):
        flags = ["--port", "0", "--deadline", "3600", "--queue-cost", "1e15", "--max-batch", str(max_batch), "--threads", threads]
        self.process = subprocess.Popen([program, "serve", str(model), *flags], stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.terminate)
        for line in self.process.stderr:
            if found := re.search(r"at http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        sys.exit("bench_serve: the server did not start")

    def ask(self, method: str, path: str, body: str | None = None) -> bytes:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json", "Accept": "image/png"})
            reply = connection.getresponse()
            text = reply.read()
        if reply.status != 200:
            sys.exit(f"bench_serve: {reply.status} {text[:500]!r}")
        return text

    def paint(self, fields: dict) -> tuple[np.ndarray, float]:
        """A picture and the seconds until it came."""
        began = time.perf_counter()
        body = self.ask("POST", "/invocations", json.dumps(fields))
        return np.asarray(Image.open(io.BytesIO(body))).astype(np.int32), time.perf_counter() - began

    def paint_together(self, requests: list[dict]) -> tuple[list[tuple[np.ndarray, float]], float]:
        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(len(requests)) as clients:
            painted = list(clients.map(self.paint, requests))
        return painted, time.perf_counter() - began

    def metric(self, name: str) -> float:
        return float(re.search(rf"^{name} (\S+)", self.ask("GET", "/metrics").decode(), re.M)[1])


class Bench:
    def __init__(self, options: argparse.Namespace, model: pathlib.Path, scratch: pathlib.Path):
        self.options, self.scratch = options, scratch
        self.long_steps = 10 if options.short else 50
        self.shapes = shapes_of(model)
        self.threads = len(os.sched_getaffinity(0)) if options.threads == "auto" else int(options.threads)
        self.check_count()
        self.alone, self.together = (Server(options.program, model, batch, options.threads) for batch in (1, MAX_BATCH))
        self.sides = {} if options.side is None else {"width": options.side, "height": options.side}
        self.requests = self.mixed_requests()

    def end(self) -> None:
        for server in (self.alone, self.together):
            server.process.terminate()
            server.process.wait()

    def output_of(self, *words: object) -> str:
        return subprocess.run([self.options.program, *map(str, words)], check=True, capture_output=True, text=True).stdout

    def measure_network(self) -> dict:
        """A call of the preset `tiny` and a large matrix product, measured by the program."""
        return json.loads(self.output_of("bench", "forward", "--preset", "tiny", "--batch-size", 1, "--repeats", 1, "--threads", self.threads, "--json"))

    def gemm_rate(self) -> float:
        return 1e12 * self.measure_network()["gemm_tflops"]

    def check_count(self) -> None:
        """Holds what is counted of a U-Net's shapes against what the program counts while it runs one."""
        self.output_of("models", "init", self.scratch / "preset", "--preset", "tiny")
        figures = self.measure_network()
        counted = forward_flops(shapes_of(self.scratch / "preset"), figures["resolution"] // 8)
        if abs(figures["tflops"] * figures["ms"]["median"] * 1e9 - counted) > 1e-6 * counted:
            sys.exit(f"bench_serve: the program counts other operations: {figures['tflops'] * figures['ms']['median'] * 1e9} {counted}")

    def mixed_requests(self) -> list[dict]:
        requests = []
        for i in range(NUM_REQUESTS):
            steps = max(self.options.steps // 2 + i * self.options.steps // NUM_REQUESTS, 2)
            fields = {"prompt": f"picture {i}", "seed": i, "num_inference_steps": steps, "guidance_scale": 1 if i % 5 == 4 else 5.0 + i / 4, **self.sides}
            if sampler := SAMPLERS[i % len(SAMPLERS)]:
                fields["sampler"] = sampler
            requests.append(fields)
        return requests

    def steps_of(self, request: dict) -> int:
        """Of the network: pndm, the shipped models' own sampler, takes one more."""
        return request["num_inference_steps"] + (request.get("sampler", "pndm") == "pndm")

    def flops(self, side: int) -> float:
        """Of the U-Net for all requests: two rows of a call where there is guidance, one where there is none."""
        rows = sum(self.steps_of(request) * (2 if request["guidance_scale"] > 1 else 1) for request in self.requests)
        return rows * forward_flops(self.shapes, side // 8)

    def check_pictures(self) -> int:
        """Returns a picture's side."""
        before = self.alone.metric("darkroom_serve_steps_total")
        pictures = [[picture for picture, _ in server.paint_together(self.requests)[0]] for server in (self.alone, self.together)]
        steps = self.alone.metric("darkroom_serve_steps_total") - before
        if steps != sum(map(self.steps_of, self.requests)):
            sys.exit(f"bench_serve: the server took other steps: {steps} {sum(map(self.steps_of, self.requests))}")
        distance = max(int(np.abs(one - other).max()) for one, other in zip(*pictures, strict=True))
        if distance > 1:
            sys.exit(f"bench_serve: pictures differ by {distance} of 255")
        side = pictures[0][0].shape[0]
        print(f"U-Net of {num_parameters(self.shapes):,} parameters, {side} px, {self.threads} threads; {NUM_REQUESTS} mixed requests, "
              f"{self.options.rounds} rounds; pictures differ by {distance} of 255 at most")
        return side

    def lateness(self, seconds: list[float]) -> float:
        """The latest request's time by what it would be with equal parts of what was done; the unit is the server's (steps + 2)."""
        costs = [self.steps_of(request) + 2 for request in self.requests]
        shares = [sum(min(one, other) for other in costs) / sum(costs) * max(seconds) for one in costs]
        return max(taken / share for taken, share in zip(seconds, shares, strict=True))

    def measure_throughput(self, side: int) -> None:
        servers = {"one in a call": self.alone, f"at most {MAX_BATCH} in a call": self.together}
        times, gemm, late = {name: [] for name in servers}, [], []
        for _ in range(self.options.rounds):
            for name, server in servers.items():
                painted, seconds = server.paint_together(self.requests)
                times[name].append(seconds)
            late.append(self.lateness([taken for _, taken in painted]))
            gemm.append(self.gemm_rate())
        print_times(times, "pictures/s", lambda seconds: NUM_REQUESTS / seconds)
        alone, together = times.values()
        ratio = print_ratio("one after another / together", alone, together, f"wanted: {WANTED_RATIO}")
        flops = self.flops(side)
        for name, seconds in times.items():
            shares = [100 * flops / one / rate for one, rate in zip(seconds, gemm, strict=True)]
            print(f"  {name + ', U-Net alone':44} {spread([flops / one / 1e9 for one in seconds])} GFLOP/s, {statistics.median(shares):.0f} % of matrix products")
        print(f"  {'matrix products, 1536 x 1536':44} {spread([rate / 1e9 for rate in gemm])} GFLOP/s")
        limit = statistics.median([rate * one / flops for rate, one in zip(gemm, alone, strict=True)])
        print(f"  {'ratio if every call were as fast as these':44} {limit:19.2f}")
        verdict = "reached" if ratio >= WANTED_RATIO else "the processor's limit" if limit < WANTED_RATIO else "NOT reached, and not the processor's limit"
        print(f"  throughput: {verdict}")
        print(f"  {'latest request / equal sharing':44} {spread(late)}  (wanted: 1, and what a call takes)")

    def batch_cost(self) -> float:
        """How much longer a step takes of a full call than of one picture's."""
        one = {"prompt": "one", "num_inference_steps": self.long_steps, "sampler": "ddim", **self.sides}
        ratios = []
        for _ in range(self.options.rounds):
            alone = self.together.paint({**one, "seed": 0})[1]
            ratios.append(self.together.paint_together([{**one, "seed": seed} for seed in range(MAX_BATCH)])[1] / alone)
        return statistics.median(ratios)

    @contextlib.contextmanager
    def long_requests(self, side: int) -> Iterator[None]:
        """So many long requests open all the time. REQUIRES: the server is used for nothing after it."""
        has_ended = threading.Event()

        def keep_asking(number: int) -> None:
            while not has_ended.is_set():
                with contextlib.suppress(OSError, http.client.HTTPException):  # The server ends before its clients.
                    self.together.paint({"prompt": f"long {number}", "seed": number, "num_inference_steps": self.long_steps, **self.sides})

        clients = [threading.Thread(target=keep_asking, args=(number,), daemon=True) for number in range(NUM_REQUESTS - 1)]
        for client in clients:
            client.start()
        while self.together.metric("darkroom_serve_open_cost") < (NUM_REQUESTS - 2) * max(side, 64) ** 2 * self.long_steps * 0.8:
            if not all(client.is_alive() for client in clients):
                sys.exit("bench_serve: the long requests did not meet")
            time.sleep(0.002)
        try:
            yield
        finally:
            has_ended.set()
            self.end()
            for client in clients:
                client.join()

    def measure_shorts(self, side: int) -> None:
        short = {"prompt": "short", "seed": 99, "num_inference_steps": SHORT_STEPS, **self.sides}
        cost = self.batch_cost()
        alone = [self.together.paint(short)[1] for _ in range(self.options.shorts)]
        with self.long_requests(side):
            beside = sorted(self.together.paint(short)[1] for _ in range(self.options.shorts))
        slowest = beside[math.ceil(0.99 * len(beside)) - 1]
        print(f"  a step of a full call / of one picture's     {cost:19.2f}")
        print(f"  {SHORT_STEPS} steps alone {statistics.median(alone) * 1000:.0f} ms, beside {NUM_REQUESTS - 1} of {self.long_steps} steps "
              f"{statistics.median(beside) * 1000:.0f} ms, p99 {slowest * 1000:.0f} ms of {len(beside)}")
        print(f"  p99 / (alone x batch cost)                   {slowest / statistics.median(alone) / cost:19.2f}  (wanted: at most {WANTED_WAIT})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--widen", type=int, default=1)
    parser.add_argument("--side", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="auto")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--shorts", type=int, default=100)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    if options.short:
        options.rounds, options.steps, options.shorts = 1, 4, 2
    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if options.widen > 1:
            model = pathlib.Path(folder) / "wide"
            widen_model(options.model, model, options.widen)
        bench = Bench(options, model, pathlib.Path(folder))
        try:
            side = bench.check_pictures()
            bench.measure_throughput(side)
            bench.measure_shorts(side)
        finally:
            bench.end()


if __name__ == "__main__":
    main()
