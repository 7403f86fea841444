#!/usr/bin/env python3
"""`darkroom serve` over a real model: the pictures of `sample`, alone and in company, its protocols, keys, a stop, and a container's start.

usage: serve_test.py
"""

import atexit
import base64
import concurrent.futures
import contextlib
import functools
import http.client
import http.server
import io
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from workbench import PROGRAM, ROOT, Skipped, main, require, run

PATIENCE = 120  # Seconds; a limit, no measure.
KEY = "a-key-of-more-than-16-characters"
INVOCATIONS = "/invocations"
GENERATIONS = "/v1/images/generations"
EDITS = "/v1/images/edits"
TXT2IMG = "/sdapi/v1/txt2img"
IMG2IMG = "/sdapi/v1/img2img"
JOBS = "/v1/jobs"


class Server:
    """The program serving a model on a free port of loopback, with one thread an operation: the bits of `sample`."""

    def __init__(self, model: str | list[str], *flags: object, tls: ssl.SSLContext | None = None, environment: dict[str, str] | None = None):
        models = [model] if isinstance(model, str) else model
        command = [PROGRAM, "serve", *models, "--port", "0", "--threads", "1", *flags]
        self.tls = tls
        self.process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        self.await_start()

    def await_start(self) -> None:
        self.log = ""
        self.told: queue.Queue = queue.Queue()
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        try:
            self.port = self.told.get(timeout=PATIENCE)
            require(self.port != 0, "the server ended:", self.log)
        except BaseException:
            self.__exit__()
            raise

    def read_log(self) -> None:
        for line in self.process.stderr:
            self.log += line
            if found := re.search(r"at https?://127\.0\.0\.1:(\d+)", line):
                self.told.put(int(found[1]))
        self.told.put(0)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *unused) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, method: str, path: str, body: object = None, headers: dict | None = None) -> tuple[int, dict, bytes]:
        if self.tls is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        else:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=self.tls)
        with contextlib.closing(connection):
            text = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, text, {"Content-Type": "application/json", **(headers or {})})
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()

    def paint(self, fields: dict) -> np.ndarray:
        status, headers, body = self.ask("POST", INVOCATIONS, {"prompt": "a red apple", **fields}, {"Accept": "image/png"})
        require(status == 200 and headers["content-type"] == "image/png", "painting", fields, status, body[:500])
        return pixels(body)

    def paint_job(self, fields: dict) -> np.ndarray:
        """The picture of a job, once it is done."""
        status, headers, body = self.ask("POST", JOBS, {"prompt": "a red apple", **fields})
        require(status == 202, "a job", {**fields, "init_image": "..."}, status, body[:500])
        name, end = events_of(self.ask("GET", f"{headers['location']}/events")[2])[-1]
        require(name == "done", "the job's end", name, end)
        return pixels(self.ask("GET", end["images"][0])[2])

    def metric(self, name: str) -> float:
        text = self.ask("GET", "/metrics")[2].decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(rf"{name}[ {{]", line) or line.startswith(f"{name},"))


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(np.int32)


@functools.cache
def model() -> str:
    """A model with random weights: these tests are about which picture comes, not about how it looks."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="darkroom-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run("models", "init", "--preset", "tiny", folder / "tiny", "--tokenizer", ROOT / "models" / "tiny" / "tokenizer")
    return str(folder / "tiny")


@functools.cache
def other_model() -> str:
    """Another one, of other weights."""
    folder = pathlib.Path(model()).parent / "other"
    run("models", "init", "--preset", "tiny", folder, "--tokenizer", ROOT / "models" / "tiny" / "tokenizer", "--seed", "2")
    return str(folder)


def model_bytes(folder: str) -> int:
    """Of its weights in float32, as files of safetensors have them but for their headers."""
    return sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*.safetensors"))


def sampled(fields: dict, of: str | None = None) -> np.ndarray:
    """The picture of `darkroom sample` for the fields of a request."""
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        words = ["--prompt", fields.get("prompt", "a red apple"), "--output", f"{folder}/x.png"]
        flags = {"sampler": "--sampler", "num_inference_steps": "--steps", "guidance_scale": "--guidance", "negative_prompt": "--negative", "seed": "--seed"}
        words += [word for name, flag in flags.items() if name in fields for word in (flag, fields[name])]
        if "width" in fields:
            words += ["--size", f"{fields['width']}x{fields['height']}"]
        run("sample", "--model", of or model(), *words)
        return pixels(pathlib.Path(folder, "x.png").read_bytes())


def gradient(width: int, height: int, form: str = "PNG") -> bytes:
    """A picture to start from."""
    down, across = np.mgrid[0:height, 0:width]
    image = Image.fromarray(np.stack([across * 255 // width, down * 255 // height, (across + down) % 256], axis=2).astype(np.uint8))
    file = io.BytesIO()
    image.save(file, form)
    return file.getvalue()


def sampled_from(picture: bytes, *flags: object) -> tuple[np.ndarray, bytes]:
    """The pixels and the file of `darkroom sample` that starts from a picture."""
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        pathlib.Path(folder, "in").write_bytes(picture)
        words = ["--init-image", f"{folder}/in", "--size", "64x64", "--output", f"{folder}/x.png", *flags]
        run("sample", "--model", model(), *map(str, words))
        png = pathlib.Path(folder, "x.png").read_bytes()
        return pixels(png), png


def form_of(fields: dict[str, object], picture: bytes) -> tuple[bytes, dict]:
    """multipart/form-data as a client writes it, and its header."""
    parts = [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields.items()]
    head = b'--b\r\nContent-Disposition: form-data; name="image"; filename="in.png"\r\nContent-Type: image/png\r\n\r\n'
    return b"".join(parts) + head + picture + b"\r\n--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}


def base64_of(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


MIXED = [
    {"sampler": "euler_a", "num_inference_steps": 7, "seed": 1},
    {"sampler": "dpmpp_2m", "num_inference_steps": 9, "seed": 2, "guidance_scale": 3.5},
    {"sampler": "pndm", "num_inference_steps": 8, "seed": 3, "prompt": "a blue bird", "negative_prompt": "grey"},
    {"sampler": "unipc", "num_inference_steps": 6, "seed": 4, "guidance_scale": 1},
    {"num_inference_steps": 12, "seed": 5, "prompt": ""},
    {"sampler": "ddim", "num_inference_steps": 5, "seed": 6, "width": 128, "height": 64},
    {"sampler": "dpmpp_2m_karras", "num_inference_steps": 10, "seed": 7, "negative_prompt": "blurry, dark"},
    {"sampler": "lcm", "num_inference_steps": 4, "seed": 8},
    {"sampler": "euler", "num_inference_steps": 20, "seed": 2**33 + 1, "prompt": "a green tree"},
]


def a_picture_painted_alone_has_the_bits_of_sample() -> None:
    with Server(model()) as server:
        for fields in MIXED:
            require(np.array_equal(server.paint(fields), sampled(fields)), "another picture than sample's", fields)


def pictures_painted_together_are_those_of_sample() -> None:
    with Server(model()) as server, concurrent.futures.ThreadPoolExecutor(16) as clients:
        asked = MIXED + [{**fields, "seed": fields["seed"] + 10} for fields in MIXED]
        painted = list(clients.map(server.paint, asked))
        for fields, picture in zip(asked, painted, strict=True):
            want = sampled(fields)
            require(picture.shape == want.shape and np.abs(picture - want).max() <= 1, "another picture than sample's", fields, np.abs(picture - want).max())
        calls, steps = server.metric("darkroom_serve_calls_total"), server.metric("darkroom_serve_steps_total")
        require(steps > calls, "pictures shared no call (calls, steps)", calls, steps)
        require(server.metric("darkroom_serve_pictures_total") == len(asked), "pictures counted")


def protocols_reply_as_their_clients_expect() -> None:
    with Server(model()) as server:
        few = {"num_inference_steps": 4, "seed": 9}
        picture = server.paint(few)
        require(server.ask("GET", "/ping")[0] == 200, "ping")

        def json_of(path: str, body: dict, headers: dict | None = None) -> dict:
            status, got, text = server.ask("POST", path, body, headers)
            require(status == 200 and got["content-type"] == "application/json", path, status, text[:500])
            return json.loads(text)

        arrays = json_of(INVOCATIONS, {"prompt": ["a red apple", "a red apple"], **few})
        require(arrays["prompt"] == ["a red apple"] * 2, "the prompt comes back", arrays["prompt"])
        require(all(np.abs(np.asarray(one) - picture).max() <= 1 for one in arrays["generated_images"]), "nested arrays")
        texts = json_of(INVOCATIONS, {"prompt": "a red apple", **few}, {"Accept": "application/json;png"})
        require(np.array_equal(pixels(base64.b64decode(texts["generated_images"][0])), picture), "base64 of PNG")
        hugging_face = {"inputs": "a red apple", "parameters": few}
        status, headers, body = server.ask("POST", "/", hugging_face)
        require(status == 200 and headers["content-type"] == "image/png" and np.array_equal(pixels(body), picture), "inputs at /", status)
        inputs = json_of(INVOCATIONS, hugging_face)
        require(np.array_equal(pixels(base64.b64decode(inputs["generated_images"][0])), picture) and inputs["prompt"] == "a red apple", "inputs at", INVOCATIONS)
        jpegs = json_of(INVOCATIONS, {"prompt": "a red apple", **few}, {"Accept": "application/json;jpeg"})
        jpeg = Image.open(io.BytesIO(base64.b64decode(jpegs["generated_images"][0])))
        require(jpeg.format == "JPEG" and np.abs(np.asarray(jpeg).astype(np.int32) - picture).mean() < 4, "base64 of JPEG")
        text = json_of(INVOCATIONS, b"a red apple", {"Content-Type": "application/x-text"})
        require(np.asarray(text["generated_image"]).shape == picture.shape and text["prompt"] == "a red apple", "a prompt alone")
        reply = json_of(GENERATIONS, {"prompt": "a red apple", "n": 2, "size": "64x64", "steps": 4, "seed": 9, "model": "tiny"})
        require(abs(reply["created"] - time.time()) < PATIENCE and len(reply["data"]) == 2, "OpenAI's reply", reply["created"])
        require(np.abs(pixels(base64.b64decode(reply["data"][0]["b64_json"])) - picture).max() <= 1, "OpenAI's picture")
        models = json.loads(server.ask("GET", "/v1/models")[2])
        require([one["id"] for one in models["data"]] == ["tiny"], "models", models)
        require("serve: 1 picture: pre " in server.log, "the log tells how long a picture took")
        # What is too long is cut, and said to be: the same words as sample's.
        long = " ".join(["apple"] * 80 + ["tail"])
        done = run("sample", "--model", model(), "--prompt", long, "--steps", "4", "--output", pathlib.Path(model()).parent / "long.png")
        lost = re.search(r"lost: '([^']*)'", done.stderr)[1]
        require(lost.endswith("tail"), "what sample says is lost", lost)
        for path, body in ((INVOCATIONS, {"prompt": long, "num_inference_steps": 4}), (GENERATIONS, {"prompt": long, "steps": 4})):
            status, headers, text = server.ask("POST", path, body)
            require(json.loads(text)["warnings"][0].endswith(f"left out: {lost}") and lost in headers["x-darkroom-warning"], "a warning", path, status, headers)
        job = json.loads(server.ask("POST", JOBS, {"prompt": long, "steps": 4})[2])
        require(job["warnings"][0].endswith(f"left out: {lost}"), "a job's warning", job)
        job = json.loads(server.ask("POST", JOBS, {"prompt": long, "steps": 4, "prompt_syntax": "weighted"})[2])
        require("warnings" not in job, "a prompt that is read in chunks", job)


def pictures_to_start_from_give_the_bits_of_sample() -> None:
    with Server(model()) as server:
        for picture, sampler, ours, strength in [
            (gradient(100, 60), "DDIM", "ddim", 0.5),
            (gradient(64, 64), "Euler a", "euler_a", 1.0),
            (gradient(70, 200, "JPEG"), "DPM++ 2M", "dpmpp_2m_karras", 0.3),
            (gradient(300, 30, "WEBP"), "PLMS", "pndm", 0.75),
        ]:
            want, _ = sampled_from(picture, "--prompt", "a red apple", "--sampler", ours, "--steps", 8, "--strength", strength, "--seed", 5, "--guidance", 7)
            fields = {"prompt": "a red apple", "sampler_name": sampler, "steps": 8, "seed": 5, "cfg_scale": 7}
            body = {**fields, "init_images": [base64_of(picture)], "denoising_strength": strength}
            status, _, text = server.ask("POST", IMG2IMG, body)
            require(status == 200, "image to image", sampler, status, text[:500])
            require(np.array_equal(pixels(base64.b64decode(json.loads(text)["images"][0])), want), "another picture than sample's", sampler)
            form = {"prompt": "a red apple", "sampler": ours, "steps": 8, "strength": strength, "seed": 5, "guidance_scale": 7}
            status, _, text = server.ask("POST", EDITS, *form_of(form, picture))
            require(status == 200, "an edit", sampler, status, text[:500])
            require(np.array_equal(pixels(base64.b64decode(json.loads(text)["data"][0]["b64_json"])), want), "another edit than sample's", sampler)
            require(np.array_equal(server.paint_job({**form, "init_image": base64_of(picture)}), want), "another job's picture than sample's", sampler)


def weights_are_read_and_pngs_keep_their_settings() -> None:
    prompt = "a (red:1.4) apple, [green]"
    with Server(model()) as server, tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        path = f"{folder}/x.png"
        flags = ["--prompt", prompt, "--prompt-syntax", "weighted", "--steps", 4, "--seed", 9, "--sampler", "euler_a", "--negative", "dark"]
        run("sample", "--model", model(), "--output", path, *map(str, flags))
        sampled_png = pathlib.Path(path).read_bytes()
        body = {"prompt": prompt, "negative_prompt": "dark", "steps": 4, "seed": 9, "sampler_name": "Euler a", "cfg_scale": 7.5}
        status, _, text = server.ask("POST", TXT2IMG, body)
        require(status == 200, "text to image", status, text[:500])
        png = base64.b64decode(json.loads(text)["images"][0])
        require(np.array_equal(pixels(png), pixels(sampled_png)), "another picture than that of weighted prompts")
        require(not np.array_equal(pixels(png), server.paint({"prompt": prompt, "negative_prompt": "dark", "num_inference_steps": 4, "seed": 9, "sampler": "euler_a"})), "weights change nothing")
        job = {"prompt": prompt, "negative_prompt": "dark", "steps": 4, "seed": 9, "sampler": "euler_a"}
        require(np.array_equal(server.paint_job({**job, "prompt_syntax": "weighted"}), pixels(png)), "another picture of a job than A1111's")
        require(not np.array_equal(server.paint_job(job), pixels(png)), "a job reads weights unasked")
        most = "a BREAK " * 31 + "a"
        weighted = {**job, "prompt_syntax": "weighted"}
        for path, long in ((JOBS, {**weighted, "prompt": f"{most} BREAK a"}), (JOBS, {**weighted, "negative_prompt": f"{most} BREAK a"}), (TXT2IMG, {**body, "prompt": f"{most} BREAK a"})):
            status, _, text = server.ask("POST", path, long)
            require(status == 400 and b"more chunks of 75 tokens than this server reads (bound, got): 32 33" in text, "a prompt of 33 chunks", path, status, text[:500])
        for taken in ({**weighted, "prompt": most}, {**job, "prompt": f"{most} BREAK a"}):
            require(server.ask("POST", JOBS, taken)[0] == 202, "a prompt of 32 chunks, and a plain one")
        told = []
        for picture in (png, sampled_png):
            status, _, text = server.ask("POST", "/sdapi/v1/png-info", {"image": base64_of(picture)})
            require(status == 200, "png-info", status, text[:500])
            told.append(json.loads(text)["parameters"])
        for name, value in {"Prompt": prompt, "Negative prompt": "dark", "Steps": "4", "Sampler": "Euler a", "CFG scale": "7.5", "Seed": "9", "Size-1": "64"}.items():
            require([one.get(name) for one in told] == [value, value], "settings of serve and of sample", name, told)
        require(Image.open(io.BytesIO(png)).info["parameters"].startswith(prompt), "the chunk's name")
        status, _, plain = server.ask("POST", INVOCATIONS, {"inputs": "a secret", "parameters": {"num_inference_steps": 4}}, {"Accept": "image/png"})
        require(status == 200 and not Image.open(io.BytesIO(plain)).info, "a prompt leaks through a native route's PNG")
    with Server(model(), "--png-settings", "off") as server:
        status, _, text = server.ask("POST", TXT2IMG, {"steps": 4})
        require(not Image.open(io.BytesIO(base64.b64decode(json.loads(text)["images"][0]))).info, "settings though they are off")


def hostile_pictures_cost_only_their_requests() -> None:
    bomb = bytearray(gradient(8, 8))
    bomb[16:24] = b"\x00\x00\xff\xff" * 2
    with Server(model()) as server:
        cases = {"garbage": b"garbage", "a bomb": bytes(bomb), "a cut file": gradient(64, 64)[:100], "nothing": b"", "a GIF": b"GIF89a" + bytes(20)}
        for name, picture in cases.items():
            status, _, text = server.ask("POST", IMG2IMG, {"init_images": [base64_of(picture)], "steps": 4})
            message = json.loads(text)["detail"]
            require(status == 400 and "init_images[0]" in message, name, status, message)
            status, _, text = server.ask("POST", EDITS, *form_of({"prompt": "x"}, picture))
            require(status == 400 and "image" in json.loads(text)["error"]["message"], name, status, text[:500])
        status, _, text = server.ask("POST", IMG2IMG, {"init_images": ["http://127.0.0.1:1/x.png"], "steps": 4})
        require(status == 400 and "URL" in json.loads(text)["detail"], "a URL", status, text[:500])
        status, _, text = server.ask("POST", TXT2IMG, b'{"prompt":"' + b"a" * 250_000 + b'"}')
        require(status == 400 and "prompt" in json.loads(text)["detail"], "a long prompt", status, text[:500])
        status, _, text = server.ask("POST", TXT2IMG, b'{"comments":' + b"[" * 250_000)
        require(status == 400, "deep JSON", status, text[:500])
        require(server.ask("POST", TXT2IMG, b'{"prompt":"' + b"a" * 1_000_000 + b'"}')[0] == 413, "more than any prompt may have")
        status, headers, picture = server.ask("GET", "/imagine?prompt=a%20red%20apple&steps=4&img_size=64&seed=3")
        require(status == 200 and headers["content-type"] == "image/png", "the server goes on", status)
        require(np.array_equal(pixels(picture), sampled({"num_inference_steps": 4, "seed": 3})), "imagine paints another picture")
        require(server.ask("GET", "/imagine")[0] == 400, "imagine without a prompt")


def bad_requests_are_told_the_field_and_cost_only_themselves() -> None:
    with Server(model()) as server:
        cases = [
            (INVOCATIONS, {"prompt": "x", "num_inference_steps": 0}, 400, "num_inference_steps"),
            (INVOCATIONS, {"prompt": "x", "num_inference_steps": 1, "sampler": "pndm", "width": 68, "height": 64}, 400, "width"),
            (INVOCATIONS, {"prompt": "x", "sampler": "heun"}, 400, "sampler"),
            (INVOCATIONS, {"prompt": "x", "sampler": "lcm", "num_inference_steps": 60}, 400, "steps"),
            (INVOCATIONS, {"prompt": "x", "stepz": 4}, 400, "stepz"),
            (INVOCATIONS, {"prompt": "x", "guidance_scale": "much"}, 400, "guidance_scale"),
            (INVOCATIONS, b"{", 400, "JSON"),
            (INVOCATIONS, {"inputs": "x", "parameters": {"seed": -1}}, 400, "parameters.seed"),
            (GENERATIONS, {"prompt": "x", "size": "63x64"}, 400, "size"),
            (GENERATIONS, {"prompt": "x", "model": "dall-e-3"}, 404, "dall-e-3"),
            (GENERATIONS, {"prompt": "x", "stream": 1}, 400, "stream"),
            (JOBS, {"prompt": "x", "size": "64x64"}, 400, "size"),
            ("/nowhere", {}, 404, "nothing here"),
        ]
        for path, body, want, part in cases:
            status, _, text = server.ask("POST", path, body)
            message = json.loads(text)["error"]["message"]
            require(status == want and part in message, "refused", path, body, status, message)
        require(server.ask("GET", INVOCATIONS)[0] == 405, "another method")
        require(server.paint({"num_inference_steps": 4}).shape == (64, 64, 3), "the server goes on")


def keys_open_all_but_liveness() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        keys = pathlib.Path(folder, "keys")
        keys.write_text(f"# of this test\n{KEY}\n")
        with Server(model(), "--keys", keys) as server:
            require(server.ask("GET", "/ping")[0] == 200, "ping needs no key")
            for path in ("/v1/models", "/metrics", "/nowhere", "/v2/health/ready"):
                require(server.ask("GET", path)[0] == 401, "without a key", path)
                require(server.ask("GET", path, headers={"Authorization": f"Bearer {KEY}x"})[0] == 401, "with another key", path)
            require(server.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}"})[0] == 200, "with the key")
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(PATIENCE)
            server.reader.join(PATIENCE)
            require("stopp" in server.log, "the log says that it stops", server.log)
            require(KEY not in server.log, "the log tells the key")


def a_folder_that_is_no_run_ends_the_start() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for run_folder, code, part in ((f"{folder}/missing", 1, "there is no such run folder"), (folder, 1, "this is no run folder"), ("s3://bucket/run", 2, "local paths alone")):
            done = run("serve", model(), "--port", "0", "--run", run_folder, expect=code)
            require(part in done.stderr and run_folder in done.stderr and "serving" not in done.stderr, "the message", done.stderr)


def write_datasets(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """20 pictures of two parts, each with caption, width and score, of which row 3 is damaged; and latents of the tiny model, two rows."""
    images, latents = folder / "my images", folder / "latents"
    images.mkdir()
    latents.mkdir()
    for part, rows in enumerate((range(11), range(11, 20))):
        pictures = [b"no picture" if row == 3 else gradient(400 if row < 11 else 600, 300) for row in rows]
        columns = {"key": [f"{row:09}" for row in rows], "caption": [f"Picture {row}" for row in rows], "image": pa.array(pictures, pa.binary()),
                   "width": [400 if row < 11 else 600 for row in rows], "score": [row / 10 for row in rows]}
        pq.write_table(pa.table(columns), images / f"part-{part:06}.parquet")
    values = [np.full((4, 8, 8), row / 4, np.float32).tobytes() for row in range(2)]
    pq.write_table(pa.table({"caption": ["first", "second"], "image_latents_64": pa.array(values, pa.binary())}), latents / "part-000000.parquet")
    return images, latents


def datasets_are_read_row_by_row_and_searched() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        images, latents = write_datasets(pathlib.Path(folder))
        with Server(model(), "--dataset", images, latents, f"{images}/part-000001.parquet") as server:
            def told(path: str, want: int = 200) -> dict:
                status, _, body = server.ask("GET", f"/v1/datasets{path}")
                require(status == want, path, status, body[:500])
                return json.loads(body)

            require([one["name"] for one in told("")["datasets"]] == ["my images", "latents", "part-000001.parquet"], "names", told(""))
            facts = told("/my%20images")
            require((facts["kind"], facts["rows"], facts["decodes"]) == ("image dataset", 20, False), "facts", facts)
            require(folder not in json.dumps(facts), "where it lies")
            first = told("/my%20images/rows?count=5")
            require([row["row"] for row in first["rows"]] == [0, 1, 2, 3, 4] and first["next"] == 5, "rows", first["next"])
            require(first["rows"][1]["caption"] == "Picture 1" and ["score", "0.1"] in first["rows"][1]["facts"], "a row", first["rows"][1]["facts"])
            shown = pixels(base64.b64decode(first["rows"][0]["pictures"][0]["png"]))
            whole = np.asarray(Image.open(io.BytesIO(gradient(400, 300))).resize((256, 192), Image.LANCZOS)).astype(np.int32)
            require(shown.shape == (192, 256, 3) and np.abs(shown - whole).max() <= 8, "the picture", shown.shape)
            damaged = first["rows"][3]
            require(damaged["pictures"][0]["png"] is None and damaged["caption"].startswith("[not_an_image]"), "a damaged picture", damaged)
            across = told("/my%20images/rows?from=9&count=4")
            require([row["row"] for row in across["rows"]] == [9, 10, 11, 12], "rows of two parts", across["next"])
            end = told("/my%20images/rows?from=18")
            require(len(end["rows"]) == 2 and end["next"] is None, "the end", end["next"])
            require(told("/my%20images/rows?from=99")["rows"] == [], "past the end")
            for words, want in (("picture+1", [1, *range(10, 20)]), ("WIDTH%3E500+score%3C1.3", [11, 12]), ("width%3D400+key%3D5", [5]), ("pear", []), ("no%3D1", [])):
                found = told(f"/my%20images/rows?count=24&q={words}")
                require([row["row"] for row in found["rows"]] == want and found["next"] is None, words, [row["row"] for row in found["rows"]], found["next"])
            found = told("/my%20images/rows?count=2&q=picture+1")
            require([row["row"] for row in found["rows"]] == [1, 10] and found["next"] == 11, "a search goes on", found["next"])
            require(told("/latents")["decodes"], "a model decodes latents")
            decoded = told("/latents/rows?from=1&count=1&decode=true")["rows"][0]
            require([one["label"] for one in decoded["pictures"]] == ["channel 0", "channel 1", "channel 2", "channel 3", "decoded"], "latents", decoded["caption"])
            require(pixels(base64.b64decode(decoded["pictures"][4]["png"])).shape == (64, 64, 3), "a decoded picture")
            require(len(told("/latents/rows")["rows"][0]["pictures"]) == 4, "channels alone")
            for path in ("/none", "/..%2F", "/my%20images/rows/../../x"):
                told(path, 404)
            (images / "part-000001.parquet").write_bytes(b"garbage")
            require(folder not in json.dumps(told("/my%20images/rows?from=12", 500)), "where a damaged one lies")
            require(len(told("/my%20images/rows?count=5")["rows"]) == 5, "a part that is whole")
        for place, code in ((f"{folder}/missing", 1), (f"{images}/part-000001.parquet", 1), ("ftp://host/x", 2)):
            done = run("serve", model(), "--port", "0", "--dataset", place, expect=code)
            require("--dataset" in done.stderr and "serving" not in done.stderr, "a dataset that is none", done.stderr)


def the_demo_is_one_server_of_what_is_there() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        program = pathlib.Path(folder, "program")
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        program.chmod(0o755)
        demo = pathlib.Path(folder, "a demo")

        def served(*port: str, expect: int = 0) -> list[str]:
            environment = {**os.environ, "PROGRAM": str(program), "DEMO": str(demo)}
            done = subprocess.run([ROOT / "tools" / "build" / "serve_demo.sh", *port], env=environment, capture_output=True, text=True)
            require(done.returncode == expect, "exit code", port, done.returncode, done.stderr)
            return done.stdout.splitlines()[1:]

        require(served("81") == ["serve", "tiny=models/tiny", "--port", "81"], "without a demo", served("81"))
        for part in ("images/part-000000.parquet", "latents/part-000000.parquet", "run/run.json", "run/checkpoints/step-00000010/x", "run/checkpoints/step-00000002/x"):
            (demo / part).parent.mkdir(parents=True, exist_ok=True)
            (demo / part).touch()
        want = ["serve", "tiny=models/tiny", f"trained={demo}/run/checkpoints/step-00000010", "--run", f"{demo}/run", "--dataset", f"{demo}/images", f"{demo}/latents", "--port", "8080"]
        require(served("8080") == want, "with a demo", served("8080"))
        shutil.rmtree(demo / "run" / "checkpoints")  # One that was stopped early.
        require("trained" not in "".join(served("8080")) and "--run" in served("8080"), "without a checkpoint", served("8080"))
        require(served("0")[-1] == "0", "any port", served("0"))
        for port in ("65536", "x", "-1"):
            served(port, expect=2)
        program.unlink()
        served("81", expect=1)


def flags_that_would_open_the_server_to_all_are_refused() -> None:
    done = run("serve", model(), "--host", "0.0.0.0", "--port", "0", expect=2)
    require("--keys" in done.stderr, "another address without keys", done.stderr)
    done = run("serve", model(), "--host", "example.com", "--port", "0", expect=2)
    require("--host" in done.stderr and "example.com" in done.stderr, "a name for an address", done.stderr)
    with tempfile.NamedTemporaryFile("w", prefix="darkroom-test-", suffix=".keys") as keys:
        keys.write("short\n")
        keys.flush()
        done = run("serve", model(), "--keys", keys.name, "--port", "0", expect=2)
        require(f"{keys.name} 1" in done.stderr, "a short key", done.stderr)
    with Server(model()) as server:
        done = run("serve", model(), "--port", server.port, expect=1)
        require(str(server.port) in done.stderr, "a port that is taken", done.stderr)


def events_of(body: bytes) -> list[tuple[str, dict]]:
    """Name and data of each event of a text/event-stream."""
    found = re.findall(r"^event: (.*)\ndata: (.*)\n\n", body.decode(), re.MULTILINE)
    return [(name, json.loads(data)) for name, data in found]


def job_of(fields: dict) -> dict:
    """The fields of a job that asks for the picture of an invocation."""
    names = {"num_inference_steps": "steps"}
    return {"prompt": "a red apple", **{names.get(name, name): value for name, value in fields.items()}}


def jobs_have_the_pictures_of_sample_with_previews_and_without() -> None:
    with Server(model(), "--deadline", "3600") as server:  # However slow the machine is, it takes a long job.
        for fields in (MIXED[0], MIXED[2], MIXED[5]):
            want = sampled(fields)
            status, headers, body = server.ask("POST", JOBS, {**job_of(fields), "preview_every": 2})
            require(status == 202 and headers["location"] == f"{JOBS}/{json.loads(body)['id']}", "a job", status, body[:500])
            path = headers["location"]
            events = events_of(server.ask("GET", f"{path}/events")[2])
            require(events[-1][0] == "done" and events[-1][1]["status"] == "done", "the last event", events[-1])
            for name, data in events:
                if name == "preview":
                    require(pixels(base64.b64decode(data["image"])).shape == want.shape, "a preview of another size")
            pictures = [server.ask("GET", image)[2] for image in events[-1][1]["images"]]
            require(len(pictures) == 1 and np.array_equal(pixels(pictures[0]), want), "another picture than sample's", fields)
            require(server.ask("DELETE", path)[0] == 204 and server.ask("GET", path)[0] == 404, "the job is forgotten")
        slow = {**job_of({"num_inference_steps": 500, "seed": 1}), "preview_every": 50}
        path = server.ask("POST", JOBS, slow)[1]["location"]
        with concurrent.futures.ThreadPoolExecutor(1) as clients:
            watching = clients.submit(server.ask, "GET", f"{path}/events")
            while json.loads(server.ask("GET", path)[2])["step"] < 60:
                require(not watching.done(), "the job ended", path)
            require(server.ask("DELETE", path)[0] == 204, "a cancel")
            events = events_of(watching.result(PATIENCE)[2])
        require(events[-1][0] == "cancelled" and any(name == "preview" for name, _ in events), "events", [name for name, _ in events])


def streams_of_pictures_end_with_those_of_sample() -> None:
    with Server(model()) as server:
        fields = {"num_inference_steps": 8, "seed": 9}
        want = sampled(fields)
        body = {"prompt": "a red apple", "steps": 8, "seed": 9, "stream": True, "partial_images": 2}
        events = events_of(server.ask("POST", GENERATIONS, body)[2])
        require(events[-1][0] == "image_generation.completed", "the last event", events[-1][0])
        require(np.array_equal(pixels(base64.b64decode(events[-1][1]["b64_json"])), want), "OpenAI's streamed picture")
        events = events_of(server.ask("POST", INVOCATIONS, {"prompt": "a red apple", **fields}, {"Accept": "text/event-stream"})[2])
        require(events[-1][0] == "done", "the last event", events[-1][0])
        require(np.array_equal(pixels(base64.b64decode(events[-1][1]["generated_images"][0])), want), "a streamed invocation")


def facts_and_the_document_are_those_of_the_model() -> None:
    with Server(model()) as server:
        facts = json.loads(server.ask("GET", "/v1/facts")[2])
        require(facts["model"] == "tiny" and facts["native_size"] == 64 and "ddim" in facts["samplers"], "facts", facts)
        require(facts["defaults"]["sampler"] in facts["samplers"], "the default sampler", facts)
        document = json.loads(server.ask("GET", "/openapi.json")[2])
        fields = document["paths"][JOBS]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        require(fields["sampler"]["enum"] == facts["samplers"], "samplers of the document", fields)
        require(json.loads(server.ask("GET", "/v2/models/tiny")[2])["name"] == "tiny", "the Open Inference Protocol's model")


def no_reply_is_broken_by_a_stop() -> None:
    """Several rounds, each stopped at another point. http.client raises where a reply, or a chunked one's end, is missing; a machine that does
    not paint the rest within the 25 s of a stop says so in a whole reply, too."""
    num_steps = 150  # Long enough for five clients to meet before much of it is painted.
    whole = 64 * 64 * (num_steps + 2)
    for share_left in (0.9, 0.4):
        with Server(model(), "--deadline", "3600") as server, concurrent.futures.ThreadPoolExecutor(8) as clients:
            path = server.ask("POST", JOBS, job_of({"num_inference_steps": num_steps, "seed": 1}))[1]["location"]
            streamed = {"prompt": "x", "steps": num_steps, "seed": 2, "stream": True, "partial_images": 2}
            asked = [("GET", f"{path}/events", None), ("POST", GENERATIONS, streamed)]
            asked += [("POST", INVOCATIONS, {"prompt": "x", "num_inference_steps": num_steps, "seed": seed}) for seed in range(3)]
            painting = [clients.submit(server.ask, *one) for one in asked]
            limit = time.monotonic() + PATIENCE
            while server.metric("darkroom_serve_open_cost") < 4.1 * whole or server.metric('darkroom_serve_requests_total{route="/v1/jobs/{id}/events"') < 1:
                require(time.monotonic() < limit and not any(one.done() for one in painting), "the requests did not meet")
            while server.metric("darkroom_serve_open_cost") > share_left * 5 * whole:
                require(time.monotonic() < limit, "nothing is painted")
            server.process.send_signal(signal.SIGTERM)
            require(server.process.wait(PATIENCE) == 143, "exit code", server.process.returncode)
            for (_, place, _), reply in zip(asked, painting, strict=True):
                status, headers, body = reply.result(PATIENCE)
                require(status in (200, 503), place, status, body[:200])
                if headers["content-type"] == "text/event-stream":
                    require(events_of(body)[-1][0] in ("done", "failed", "image_generation.completed", "error"), place, events_of(body)[-1])


def a_stop_finishes_what_was_begun() -> None:
    num_steps = 120
    whole = 64 * 64 * (num_steps + 2)  # With its texts and its decoding.
    with Server(model(), "--deadline", "3600") as server, concurrent.futures.ThreadPoolExecutor(4) as clients:
        asked = [{"num_inference_steps": num_steps, "seed": seed} for seed in range(4)]
        painting = [clients.submit(server.paint, fields) for fields in asked]
        limit = time.monotonic() + PATIENCE
        while server.metric("darkroom_serve_open_cost") <= 3 * whole:  # Three alone never need more: then all were taken.
            require(time.monotonic() < limit and not any(one.done() for one in painting), "the requests did not meet")
        while server.metric("darkroom_serve_open_cost") > 2 * whole:  # As much as the 25 s of a stop do for anywhere.
            require(time.monotonic() < limit, "the requests do not come to their end")
        server.process.send_signal(signal.SIGTERM)
        require(server.process.wait(PATIENCE) == 143, "exit code", server.process.returncode)
        for fields, picture in zip(asked, painting, strict=True):
            require(np.abs(picture.result(PATIENCE) - sampled(fields)).max() <= 1, "a picture after the stop", fields)


def serve_in_a_container(folder: str) -> None:
    """Within namespaces of its own: /opt/ml/model is a model, and nobody else listens on port 8080."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/opt"], check=True)
    shutil.copytree(folder, "/opt/ml/model")
    with Server([], "--host", "127.0.0.1", "--queue-cost", "1e15") as server:  # Flags hold in a container, too.
        server.paint({"num_inference_steps": 4})
        status, _, text = server.ask("POST", INVOCATIONS, {"prompt": "x", "width": 2048, "height": 2048, "num_inference_steps": 500}, {"Accept": "image/png"})
        require(status == 429 and "deadline is in 55 s" in json.loads(text)["error"]["message"], "what ends after the platform's 60 s", status, text)
    with Server([], "--host", "127.0.0.1", environment={**os.environ, "SAGEMAKER_MULTI_MODEL": "true"}) as server:
        require(json.loads(server.ask("GET", "/models")[2])["models"] == [] and server.ask("GET", "/ping")[0] == 200, "a container of several models")
    process = subprocess.Popen([PROGRAM, "serve"], cwd=ROOT)
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=PATIENCE)
            connection.request("GET", "/ping")
            break
        except ConnectionRefusedError:
            require(process.poll() is None and time.monotonic() < limit, "no answer on port 8080", process.poll())
            time.sleep(0.05)
    reply = connection.getresponse()
    require(reply.status == 200 and reply.read() == b"", "ping")
    body = json.dumps({"inputs": "a red apple", "parameters": {"num_inference_steps": 4}})
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=PATIENCE)
    connection.request("POST", INVOCATIONS, body, {"Content-Type": "application/json", "Host": "model.aws.local:8080"})
    reply = connection.getresponse()
    require(reply.status == 200 and pixels(base64.b64decode(json.loads(reply.read())["generated_images"][0])).shape == (64, 64, 3), "an invocation", reply.status)
    process.send_signal(signal.SIGTERM)
    require(process.wait(PATIENCE) == 143, "exit code", process.returncode)


def a_container_serves_its_model_on_port_8080() -> None:
    probe = subprocess.run(["unshare", "-rmn", "sh", "-c", "ip link set lo up && mount -t tmpfs none /opt"], capture_output=True, text=True)
    if probe.returncode != 0:
        raise Skipped(f"no namespaces here: {probe.stderr.strip()[:200]}")
    done = subprocess.run(["unshare", "-rmn", sys.executable, __file__, "--container", model()], capture_output=True, text=True, timeout=2 * PATIENCE)
    require(done.returncode == 0, "the container:", done.stdout[-2000:], done.stderr[-4000:])


def the_image_is_started_as_the_platform_does() -> None:
    """`docker run IMAGE serve`: exec-form, so that signals arrive, by the program itself and as root; no driver within."""
    text = (ROOT / "deploy" / "Containerfile").read_text()
    entry = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    require([json.loads(one) for one in entry] == [["darkroom"]], "the entry point", entry)
    installed = " ".join(re.findall(r"apt-get install[^\n]*", text))
    require(not re.search(r"^USER", text, re.MULTILINE) and not re.search("tini|nvidia|cuda-drivers", installed), "user and packages", installed)


def the_platforms_headers_are_taken_and_given() -> None:
    fields = {"num_inference_steps": 4, "seed": 9}
    attributes = "x" * 1024
    platform = {"X-Amzn-SageMaker-Custom-Attributes": attributes, "X-Amzn-SageMaker-Target-Model": "a.tar.gz", "X-Amzn-SageMaker-Inference-Id": "7", "X-Nobody-Knows": "this"}
    with Server(model()) as server:
        status, headers, png = server.ask("POST", INVOCATIONS, {"prompt": "a red apple", **fields}, {"Accept": "image/png", **platform})
        require(status == 200 and np.array_equal(pixels(png), sampled(fields)), "headers that are not known", status)
        given = headers["x-amzn-sagemaker-custom-attributes"]
        require(given == "seed=9" and len(given) <= 1024 and given.isascii(), "what the platform hands on", given)
        status, headers, body = server.ask("POST", INVOCATIONS, {"prompt": "a red apple", **fields}, {"Accept": "text/event-stream", **platform})
        require(status == 200 and headers["transfer-encoding"] == "chunked" and events_of(body)[-1][0] == "done", "a stream", headers)
        status, _, body = server.ask("POST", INVOCATIONS, {"prompt": "x", "width": 256, "height": 256, "num_inference_steps": 1, "num_images_per_prompt": 2})
        require(status == 200 and np.asarray(json.loads(body)["generated_images"]).shape == (2, 256, 256, 3), "two pictures as nested arrays", status, len(body))


def several_models_paint_what_each_does_alone_and_take_turns_in_memory() -> None:
    fields = {"num_inference_steps": 5, "seed": 4}
    want = {"tiny": sampled(fields), "second": sampled(fields, other_model())}
    require(not np.array_equal(want["tiny"], want["second"]), "two models paint the same")
    room = model_bytes(model()) * 3 // 2
    not_theirs = ("--prediction-type", "epsilon", "--frozen", model())  # They say v_prediction, and are no checkpoints.
    with Server([model(), f"second={other_model()}"], "--memory", room, "--deadline", 3600, *not_theirs) as server:
        require([one["id"] for one in json.loads(server.ask("GET", "/v1/models")[2])["data"]] == ["tiny", "second"], "models")
        require(np.array_equal(server.paint(fields), want["tiny"]), "the first is what requests get that name none")
        for name in ("second", "tiny", "second"):
            require(np.array_equal(server.paint({**fields, "model": name}), want[name]), "another picture than the model's alone", name)
        require(server.metric("darkroom_serve_model_evictions_total") == 3, "evictions", server.metric("darkroom_serve_model_evictions_total"))
        require(server.metric("darkroom_serve_models_bytes") <= room, "more than --memory")
        with concurrent.futures.ThreadPoolExecutor(4) as clients:
            painted = list(clients.map(lambda name: server.paint({**fields, "model": name}), ["tiny", "second"] * 4))
        for name, picture in zip(["tiny", "second"] * 4, painted, strict=True):
            require(np.abs(picture - want[name]).max() <= 1, "in company", name)
        status, _, text = server.ask("POST", INVOCATIONS, {"prompt": "x", "model": "none"})
        require(status == 404 and b"none" in text, "no such model", status, text)
    done = run("serve", model(), other_model(), "--memory", 1000, "--port", "0", expect=2)
    require("--memory" in done.stderr, "a model that never fits", done.stderr)
    done = run("serve", model(), f"tiny={other_model()}", "--port", "0", expect=2)
    require("name of its own" in done.stderr, "two models of one name", done.stderr)
    run("serve", model(), f"{other_model()}-missing", "--port", "0", expect=1)


def files_beside_the_weights_that_are_read_take_no_memory() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        crowded = pathlib.Path(folder, "crowded")
        shutil.copytree(model(), crowded)
        for stem, part in (("diffusion_pytorch_model", "unet"), ("diffusion_pytorch_model", "vae"), ("model", "text_encoder")):
            for variant in ("non_ema", "fp16"):  # As published folders have them.
                shutil.copy(crowded / part / f"{stem}.safetensors", crowded / part / f"{stem}.{variant}.safetensors")
        fields = {"num_inference_steps": 4, "seed": 9}
        with Server(str(crowded), "--memory", model_bytes(model())) as server:
            require(np.array_equal(server.paint(fields), sampled(fields)), "a picture")
            require(server.metric("darkroom_serve_models_bytes") < model_bytes(model()), "bytes", server.metric("darkroom_serve_models_bytes"))


def sagemaker_loads_and_unloads_models() -> None:
    fields = {"inputs": "a red apple", "parameters": {"num_inference_steps": 4, "seed": 9}}
    root = pathlib.Path(model()).parent
    with Server([], "--multi-model", root, "--memory", model_bytes(model()) * 3 // 2) as server:
        require(server.ask("GET", "/ping")[0] == 200, "ping without a model")
        require(server.ask("POST", INVOCATIONS, fields)[0] == 404, "an invocation without a model")
        status, _, text = server.ask("POST", "/models", {"model_name": "own", "url": model()})
        require(status == 200, "load", status, text)
        require(server.ask("POST", "/models", {"model_name": "own", "url": model()})[0] == 409, "loaded already")
        require(server.ask("POST", "/models", {"model_name": "other", "url": other_model()})[0] == 507, "no memory")
        require(server.ask("POST", "/models", {"model_name": "x", "url": str(ROOT / "models" / "tiny")})[0] == 400, "outside of the folder")
        listed = json.loads(server.ask("GET", "/models")[2])["models"]
        require(listed == [{"modelName": "own", "modelUrl": model()}], "models", listed)
        status, _, png = server.ask("POST", "/models/own/invoke", fields, {"Accept": "image/png"})
        require(status == 200 and np.array_equal(pixels(png), sampled({"num_inference_steps": 4, "seed": 9})), "invoke", status)
        require(server.ask("POST", "/models/other/invoke", fields)[0] == 404, "invoke what is not there")
        require(server.ask("DELETE", "/models/own")[0] == 200 and server.ask("DELETE", "/models/own")[0] == 404, "unload")
        require(server.ask("POST", "/models", {"model_name": "other", "url": other_model()})[0] == 200, "room again")


def certificate(folder: str, name: str) -> tuple[str, str]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    paths = f"{folder}/{name}.pem", f"{folder}/{name}.key"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    subprocess.run(["openssl", *words, "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=critical,digitalSignature,keyCertSign", "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


def tls_is_verified_by_clients_and_bad_files_are_refused() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        cert, key = certificate(folder, "own")
        _, other_key = certificate(folder, "other")
        trusting = ssl.create_default_context(cafile=cert)
        fields = {"num_inference_steps": 4, "seed": 9}
        with Server(model(), "--tls-cert", cert, "--tls-key", key, tls=trusting) as server:
            require(np.array_equal(server.paint(fields), sampled(fields)), "a picture by TLS")
            events = events_of(server.ask("POST", INVOCATIONS, {"prompt": "a red apple", **fields}, {"Accept": "text/event-stream"})[2])
            require(events[-1][0] == "done", "a stream by TLS", events[-1][0])
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as plain:
                plain.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
                require(b"HTTP" not in plain.recv(1000), "plain bytes are answered")
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as half:
                half.sendall(b"\x16\x03\x01")
                require(half.recv(1) == b"", "a handshake that does not end")  # After the 10 s that a request has.
            try:
                server.tls = ssl.create_default_context()
                server.ask("GET", "/ping")
                raise AssertionError("a client that does not know the certificate")
            except ssl.SSLCertVerificationError:
                server.tls = trusting
            require(server.ask("GET", "/ping")[0] == 200, "the server goes on")
        for flags, part in [((cert, other_key), "--tls-key"), ((key, key), "--tls-cert"), ((f"{folder}/none", key), "--tls-cert")]:
            done = run("serve", model(), "--tls-cert", flags[0], "--tls-key", flags[1], "--port", "0", expect=2)
            require(part in done.stderr, "files that do not fit", flags, done.stderr)
        require("--tls-key" in run("serve", model(), "--tls-cert", cert, "--port", "0", expect=2).stderr, "one of two files")


@contextlib.contextmanager
def silent_store():
    """(asked, answers, environment) of a store for s3:// that is silent until `answers` is set and has nothing then."""
    asked, answers = threading.Event(), threading.Event()

    class Store(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.set()
            answers.wait(PATIENCE)
            with contextlib.suppress(OSError):  # Whoever asked may be gone.
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *unused) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.server_port}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}
        try:
            yield asked, answers, {**os.environ, **environment}
        finally:
            answers.set()
            store.shutdown()


def a_hangup_before_the_server_listens_is_outlived() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder, silent_store() as (asked, answers, environment):
        cert, key = certificate(folder, "own")
        command = [PROGRAM, "serve", "s3://bucket/model", "--port", "0", "--tls-cert", cert, "--tls-key", key]
        with subprocess.Popen([str(word) for word in command], cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment) as process:
            require(asked.wait(PATIENCE), "the model is not looked for")
            process.send_signal(signal.SIGHUP)
            answers.set()
            _, log = process.communicate(timeout=PATIENCE)
            require(process.returncode == 1 and "s3://bucket/model" in log, "exit code", process.returncode, log)


def a_stop_answers_who_waits_for_a_model_that_never_comes() -> None:
    with silent_store() as (asked, _, environment), concurrent.futures.ThreadPoolExecutor(1) as clients:
        with Server([model(), "far=s3://bucket/model"], "--deadline", 3600, environment=environment) as server:
            waiting = clients.submit(server.ask, "POST", INVOCATIONS, {"inputs": "x", "model": "far"})
            require(asked.wait(PATIENCE), "the model is not looked for")
            require(server.ask("GET", "/v1/facts?model=far")[0] == 409, "facts wait for it")
            server.process.send_signal(signal.SIGTERM)
            status, headers, body = waiting.result(PATIENCE)
            require(status == 503 and "retry-after" in headers and b"shutting down" in body, "the reply", status, body)
            require(server.process.wait(PATIENCE) == 143, "exit code", server.process.returncode)


def each_key_has_its_own_rate() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        keys = pathlib.Path(folder, "keys")
        keys.write_text(f"{KEY}\n{KEY}-other\n")
        with Server(model(), "--keys", keys, "--rate", "0.01") as server:
            def ask(key: str) -> tuple[int, dict, bytes]:
                fields = {"inputs": "x", "parameters": {"num_inference_steps": 4}}
                return server.ask("POST", INVOCATIONS, fields, {"Authorization": f"Bearer {key}"})

            require(ask(KEY)[0] == 200, "the first")
            status, headers, _ = ask(KEY)
            require(status == 429 and int(headers["retry-after"]) > 60, "the second", status, headers)
            require(ask(f"{KEY}-other")[0] == 200, "another key")
            require(server.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}"})[0] == 200, "what paints nothing")


def watermarks_are_read_back() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        def is_marked(picture: Image.Image, name: str, **how: object) -> bool:
            picture.save(f"{folder}/{name}", **how)
            return "watermark: yes" in run("inspect", f"{folder}/{name}", "--watermark").stdout

        fields = {"num_inference_steps": 4, "seed": 9, "width": 128, "height": 192}
        with Server(model(), "--watermark") as server:
            picture = Image.fromarray(server.paint(fields).astype(np.uint8))
        plain = sampled(fields)
        error = np.mean((np.asarray(picture).astype(float) - plain) ** 2)
        require(0 < error < 255**2 / 10**4.2, "more than 42 dB", error)
        require(is_marked(picture, "x.png") and is_marked(picture, "x.jpg", quality=75), "the mark")
        require(is_marked(picture.resize((200, 300)), "large.png"), "the mark of a larger picture")
        require(not is_marked(Image.fromarray(plain.astype(np.uint8)), "plain.png"), "no mark")
        pathlib.Path(folder, "garbage.png").write_bytes(b"garbage")
        run("inspect", f"{folder}/garbage.png", "--watermark", expect=1)


def a_safety_hook_decides_and_without_an_answer_nothing_is_sent() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        hook = pathlib.Path(folder, "hook")
        verdict = pathlib.Path(folder, "verdict")
        hook.write_text(f"#!/bin/sh\nhead -c 8 >{folder}/begin\n. {verdict}\n")
        hook.chmod(0o755)
        fields = {"prompt": "x", "num_inference_steps": 4}
        with Server(model(), "--safety-hook", hook) as server:
            def ask(words: str) -> tuple[int, dict]:
                verdict.write_text(words + "\n")
                status, _, text = server.ask("POST", INVOCATIONS, fields, {"Accept": "application/json;png"})
                return status, json.loads(text)

            status, reply = ask("echo allow")
            require(status == 200 and reply["finish_reasons"] == [None] and reply["generated_images"][0], "allowed", status)
            require(pathlib.Path(folder, "begin").read_bytes() == b"\x89PNG\r\n\x1a\n", "the hook gets a PNG")
            status, reply = ask("echo block")
            require(status == 200 and reply["finish_reasons"] == ["content_filter"] and reply["generated_images"] == [None], "blocked", reply)
            for words in ("echo maybe", "echo allow; exit 1", "exit 0", "kill -9 $$", "exec sleep 600"):  # The last one for its 10 s.
                status, reply = ask(words)
                require(status == 503 and "safety checker" in reply["error"]["message"], words, status, reply)
            hook.unlink()
            require(ask("echo allow")[0] == 503, "a hook that is gone")
    for words in ("http://127.0.0.1:1/check", " "):
        require("--safety-hook" in run("serve", model(), "--safety-hook", words, "--port", "0", expect=2).stderr, "no program", words)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--container"]:
        serve_in_a_container(sys.argv[2])
        sys.exit(0)
    os.environ.pop("OMP_NUM_THREADS", None)
    try:
        main([
            a_picture_painted_alone_has_the_bits_of_sample,
            pictures_painted_together_are_those_of_sample,
            protocols_reply_as_their_clients_expect,
            pictures_to_start_from_give_the_bits_of_sample,
            weights_are_read_and_pngs_keep_their_settings,
            hostile_pictures_cost_only_their_requests,
            bad_requests_are_told_the_field_and_cost_only_themselves,
            keys_open_all_but_liveness,
            a_folder_that_is_no_run_ends_the_start,
            datasets_are_read_row_by_row_and_searched,
            the_demo_is_one_server_of_what_is_there,
            flags_that_would_open_the_server_to_all_are_refused,
            jobs_have_the_pictures_of_sample_with_previews_and_without,
            streams_of_pictures_end_with_those_of_sample,
            facts_and_the_document_are_those_of_the_model,
            no_reply_is_broken_by_a_stop,
            a_stop_finishes_what_was_begun,
            a_container_serves_its_model_on_port_8080,
            the_image_is_started_as_the_platform_does,
            the_platforms_headers_are_taken_and_given,
            several_models_paint_what_each_does_alone_and_take_turns_in_memory,
            files_beside_the_weights_that_are_read_take_no_memory,
            sagemaker_loads_and_unloads_models,
            tls_is_verified_by_clients_and_bad_files_are_refused,
            a_hangup_before_the_server_listens_is_outlived,
            a_stop_answers_who_waits_for_a_model_that_never_comes,
            each_key_has_its_own_rate,
            watermarks_are_read_back,
            a_safety_hook_decides_and_without_an_answer_nothing_is_sent,
        ])
    finally:
        shutil.rmtree(pathlib.Path(model()).parent, ignore_errors=True)
