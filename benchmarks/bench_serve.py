#!/usr/bin/env python3
"""How much faster requests that come together are painted in one network call than one after another, by the same server.

  bench_serve.py build/darkroom MODEL [--rounds 5] [--threads auto] [--steps 20]

Sixteen requests of mixed samplers, steps, guidance and prompts at once, to `darkroom serve --max-batch 8` and `--max-batch 1` in turn, wall-clock.
Before that each picture of the one is held against the other's: at most one grey level apart. Then what a request of 4 steps waits for
beside fifteen of 50 steps, against 4 steps alone.
"""
import argparse
import concurrent.futures
import http.client
import io
import json
import re
import statistics
import subprocess
import sys
import threading
import time

import numpy as np
from PIL import Image

from alternating_times import print_ratio, print_times

SAMPLERS = ["euler_a", "dpmpp_2m", "pndm", "unipc", "ddim", "dpmpp_2m_karras", "euler", ""]
NUM_REQUESTS = 16
SHORT_STEPS = 4
LONG_STEPS = 50


class Server:
    def __init__(self, program: str, model: str, *flags: str):
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", "--deadline", "3600", "--queue-cost", "1e15", *flags], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"at http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        sys.exit("bench_serve: the server did not start")

    def paint(self, fields: dict) -> tuple[np.ndarray, float]:
        """A picture and the seconds until it came."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        connection.request("POST", "/invocations", json.dumps(fields), {"Content-Type": "application/json", "Accept": "image/png"})
        reply = connection.getresponse()
        body = reply.read()
        if reply.status != 200:
            sys.exit(f"bench_serve: {reply.status} {body[:500]!r}")
        return np.asarray(Image.open(io.BytesIO(body))).astype(np.int32), time.perf_counter() - began

    def paint_together(self, requests: list[dict]) -> tuple[list[tuple[np.ndarray, float]], float]:
        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(len(requests)) as clients:
            painted = list(clients.map(self.paint, requests))
        return painted, time.perf_counter() - began


def mixed_requests(steps: int) -> list[dict]:
    requests = []
    for i in range(NUM_REQUESTS):
        fields = {"prompt": f"picture {i}", "seed": i, "num_inference_steps": steps // 2 + i * steps // NUM_REQUESTS, "guidance_scale": 1 if i % 5 == 4 else 5.0 + i / 4}
        if sampler := SAMPLERS[i % len(SAMPLERS)]:
            fields["sampler"] = sampler
        requests.append(fields)
    return requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="auto")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    servers = {f"at most {batch} in a call": Server(options.program, options.model, "--max-batch", str(batch), "--threads", options.threads) for batch in (1, 8)}
    alone, together = servers.values()
    try:
        requests = mixed_requests(options.steps)
        pictures = [[picture for picture, _ in server.paint_together(requests)[0]] for server in servers.values()]
        distance = max(int(np.abs(one - other).max()) for one, other in zip(*pictures, strict=True))
        if distance > 1:
            sys.exit(f"bench_serve: pictures differ by {distance} of 255")
        times = {name: [] for name in servers}
        shorts, beside = [], []
        short = {"prompt": "short", "seed": 99, "num_inference_steps": SHORT_STEPS}
        long = [{"prompt": f"long {i}", "seed": i, "num_inference_steps": LONG_STEPS} for i in range(NUM_REQUESTS - 1)]
        for _ in range(options.rounds):
            for name, server in servers.items():
                times[name].append(server.paint_together(requests)[1])
            shorts.append(together.paint(short)[1])
            with concurrent.futures.ThreadPoolExecutor(NUM_REQUESTS) as clients:
                waiting = [clients.submit(together.paint, fields) for fields in long]
                while together_open_cost(together) < (NUM_REQUESTS - 2) * pictures[0][0].shape[0] ** 2 * LONG_STEPS * 0.8:
                    if any(one.done() for one in waiting):
                        raise SystemExit("the long requests did not meet")
                    time.sleep(0.002)
                beside.append(together.paint(short)[1])
                for one in waiting:
                    one.result()
        print(f"{NUM_REQUESTS} mixed requests, {options.rounds} rounds; pictures differ by {distance} of 255 at most")
        print_times(times, "pictures/s", lambda seconds: NUM_REQUESTS / seconds)
        print_ratio("one after another / together", times["at most 1 in a call"], times["at most 8 in a call"], "wanted: 1.6")
        print(f"  4 steps alone {statistics.median(shorts) * 1000:.0f} ms, beside {NUM_REQUESTS - 1} of {LONG_STEPS} steps {statistics.median(beside) * 1000:.0f} ms (worst {max(beside) * 1000:.0f})")
    finally:
        for server in servers.values():
            server.process.terminate()


def together_open_cost(server: Server) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=3600)
    connection.request("GET", "/metrics")
    return float(re.search(r"^darkroom_serve_open_cost (\S+)", connection.getresponse().read().decode(), re.M)[1])


if __name__ == "__main__":
    main()
