"""The API of `darkroom serve` on loopback with a painter that does what a test says: no step is taken, no picture done before that.

    with FakePainter(files) as painter:      # `files`: the folder whose files are the page.
        job = painter.next_job()             # Waits for a page's request.
        job.progress(3)
        job.preview(0)
        job.finish()

Fields of FakePainter (`facts`, `facts_of`, `key`, `refusals`, `warnings`, `num_busy`, `is_gone`, `runs`, `datasets`) may be changed at any time.
"""

import base64
import hashlib
import http.server
import json
import pathlib
import queue
import re
import struct
import threading
import urllib.parse
import zlib

PATIENCE = 120  # Seconds; a limit, no measure.
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml"}
POLICY = "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def png_of(color: tuple[int, int, int], width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(color) * width) * height
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Job:
    def __init__(self, number: int, request: dict) -> None:
        self.id, self.request = f"job-{number}", request
        self.status, self.step, self.error = "queued", 0, None
        self.events: list[tuple[str, dict]] = []
        self.changed = threading.Condition()
        self.drops = 0  # Streams of events that end at once instead of going on.

    @property
    def is_over(self) -> bool:
        return self.status in ("done", "failed", "cancelled")

    @property
    def seeds(self) -> list[int]:
        return [self.request["seed"] + index for index in range(self.request["images"])]

    def picture(self, index: int) -> bytes:
        """Its colour is that of the request and seed."""
        digest = hashlib.sha256(json.dumps([self.request, self.seeds[index]], sort_keys=True).encode()).digest()
        return png_of((digest[0], digest[1], digest[2]), self.request["width"], self.request["height"])

    def state(self) -> dict:
        images = [f"/v1/jobs/{self.id}/images/{index}" for index in range(self.request["images"])] if self.status == "done" else []
        steps = self.request["steps"]
        return {"id": self.id, "status": self.status, "step": self.step, "steps": steps, "progress": self.step / steps, "seeds": self.seeds,
                "request": self.request, "images": images, "error": self.error}

    def say(self, kind: str, data: dict) -> None:
        with self.changed:
            self.events.append((kind, data))
            self.changed.notify_all()

    def progress(self, step: int) -> None:
        self.status, self.step = "painting", step
        self.say("progress", {"step": step, "steps": self.request["steps"], "progress": step / self.request["steps"], "status": "painting"})

    def preview(self, index: int) -> None:
        self.say("preview", {"index": index, "image": base64.b64encode(png_of((90, 90, 90), 8, 8)).decode()})

    def end(self, status: str, error: str | None = None) -> None:
        if not self.is_over:
            self.status, self.error = status, error
            self.say(status, self.state())

    def finish(self) -> None:
        self.step = self.request["steps"]
        self.end("done")

    def fail(self, sentence: str) -> None:
        self.end("failed", sentence)


class FakeRun:
    """A training run of one prompt a picture: `lines` are added to, or replaced by others, which makes it anew."""

    def __init__(self, lines: list[dict], steps: tuple[int, ...] = (), prompts: tuple[str, ...] = (), has_report: bool = False) -> None:
        self.lines, self.steps, self.prompts, self.has_report = lines, steps, prompts, has_report
        self.recipe = {"optimizer.lr": 0.001, "schedule.max_steps": 1000, "batch.global": 8}
        self.last_start: dict = {"device": "cpu"}
        self.most_lines = 1000  # Of a reply.
        self.asked: list[int] = []  # The first line of each reply.

    def facts(self, name: str) -> dict:
        return {"name": name, "component": "unet", "parameters": 1234567, "recipe": self.recipe, "starts": 1, "last_start": self.last_start, "samples": self.steps,
                "checkpoints": self.steps, "has_report": self.has_report}

    def metrics(self, place: str) -> dict:
        first, mark = (int(place.split("-")[0]), place.split("-")[1]) if place else (0, "")
        anew = bool(place) and mark != self.mark(first)
        first = 0 if anew else first
        self.asked.append(first)
        last = min(len(self.lines), first + self.most_lines)
        return {"lines": self.lines[first:last], "next": f"{last}-{self.mark(last)}", "anew": anew, "more": last < len(self.lines), "unreadable": 0}

    def mark(self, place: int) -> str:
        return hashlib.sha256(json.dumps(self.lines[:place]).encode()).hexdigest()[:8]

    def samples(self, step: int) -> dict:
        pictures = [{"file": f"prompt-{index:03}.png", "prompt": prompt, "seed": index} for index, prompt in enumerate(self.prompts)]
        return {"step": step, "has_sheet": True, "pictures": pictures}


class FakeDataset:
    """A dataset whose rows have a caption and a colour; it looks through `most_searched` rows at a time."""

    def __init__(self, captions: list[str], channels: int = 0, rows_by_error: dict[str, int] | None = None) -> None:
        self.captions, self.channels, self.rows_by_error = captions, channels, rows_by_error or {}
        self.most_searched = 20_000
        self.asked: list[dict] = []  # Of its rows.

    def facts(self, name: str) -> dict:
        tables = [{"title": "", "head": [], "rows": [["format", "parquet"]]}, {"title": "columns", "head": ["column", "type"], "rows": [["caption", "string"]]}]
        kind = "latents dataset" if self.channels else "image dataset"
        return {"name": name, "kind": kind, "rows": len(self.captions), "decodes": self.channels > 0, "rows_by_error": self.rows_by_error, "tables": tables}

    def row(self, number: int, is_decoded: bool) -> dict:
        def picture(label: str) -> dict:
            return {"label": label, "width": 8, "height": 8, "png": base64.b64encode(png_of(color_of("row", number, label), 8, 8)).decode()}

        labels = [f"channel {channel}" for channel in range(self.channels)] or [""]
        return {"row": number, "caption": self.captions[number], "pictures": [picture(label) for label in labels + ["decoded"] * is_decoded],
                "facts": [["score", str(number / 2)]]}

    def rows(self, query: dict[str, str]) -> dict:
        self.asked.append(query)
        first, count, words = int(query.get("from", 0)), int(query.get("count", 12)), query.get("q", "").lower().split()
        found = []
        for next_row in range(first, min(len(self.captions), first + (self.most_searched if words else count))):
            if all(word in self.captions[next_row].lower() for word in words) and len(found) < count:
                found.append(next_row)
            if len(found) == count:
                break
        last = next_row + 1 if first < len(self.captions) else first
        return {"rows": [self.row(number, query.get("decode") == "true") for number in found], "next": last if last < len(self.captions) else None}


def color_of(run: str, step: int, file: str) -> tuple[int, int, int]:
    return tuple(hashlib.sha256(f"{run} {step} {file}".encode()).digest()[:3])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *unused) -> None:
        pass

    def answer(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def tell(self, value: object, status: int = 200) -> None:
        self.answer(status, json.dumps(value).encode())

    def refuse(self, status: int, sentence: str, **headers: str) -> None:
        self.answer(status, json.dumps({"error": {"message": sentence, "code": status}}).encode(), **headers)

    def do_GET(self) -> None:
        painter: FakePainter = self.server.painter
        name = "index.html" if self.path == "/" else self.path.removeprefix("/page/")
        file = painter.files / name
        if (self.path == "/" or self.path.startswith("/page/")) and "/" not in name and file.is_file():
            self.answer(200, file.read_bytes(), TYPES[file.suffix], Content_Security_Policy=POLICY, Cache_Control="no-store")
        else:
            self.handle_api(b"")

    def do_POST(self) -> None:
        self.handle_api(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    do_DELETE = do_POST

    def handle_api(self, body: bytes) -> None:
        painter: FakePainter = self.server.painter
        if painter.is_gone:
            self.close_connection = True
            return None
        if painter.key and self.headers.get("Authorization") != f"Bearer {painter.key}":
            return self.refuse(401, "a key is needed: Authorization: Bearer KEY")
        if self.path == "/v1/facts":
            return self.tell(painter.facts)
        if self.path.startswith("/v1/facts?model="):
            facts = painter.facts_of.get(urllib.parse.unquote(self.path.partition("=")[2]))
            return self.tell(facts) if facts is not None else self.refuse(409, "the model has not been loaded yet")
        if self.path.startswith("/v1/runs"):
            return self.tell_of_runs()
        if self.path.startswith("/v1/datasets"):
            return self.tell_of_datasets()
        if self.path == "/v1/jobs" and self.command == "POST":
            return self.take_job(json.loads(body))
        found = re.fullmatch(r"/v1/jobs/(job-\d+)(/events|/images/(\d+))?", self.path)
        job = painter.jobs.get(found[1]) if found else None
        if job is None:
            return self.refuse(404, "there is nothing here")
        if self.command == "GET" and painter.num_busy > 0:
            painter.num_busy -= 1
            return self.refuse(429, "there is no room", Retry_After="0")
        if self.command == "DELETE":
            job.end("cancelled")
            return self.tell(job.state())
        if found[2] == "/events":
            return self.stream(job)
        return self.tell(job.state()) if found[2] is None else self.answer(200, job.picture(int(found[3])), "image/png")

    def tell_of_runs(self) -> None:
        runs = self.server.painter.runs
        path, _, query = self.path.partition("?")
        parts = [urllib.parse.unquote(part) for part in path.split("/")[3:]]
        if not parts:
            return self.tell({"runs": [{"name": name} for name in runs]})
        run = runs.get(parts[0])
        if run is None:
            return self.refuse(404, "no such run is served")
        if len(parts) == 1:
            return self.tell(run.facts(parts[0]))
        if parts[1] == "metrics":
            return self.tell(run.metrics(query.removeprefix("from=")))
        if parts[1] == "report":
            return self.answer(200, b"<h1>report</h1>", "text/html")
        if len(parts) == 3:
            return self.tell(run.samples(int(parts[2])))
        return self.answer(200, png_of(color_of(parts[0], int(parts[2]), parts[3]), 8, 8), "image/png")

    def tell_of_datasets(self) -> None:
        datasets = self.server.painter.datasets
        path, _, query = self.path.partition("?")
        parts = [urllib.parse.unquote(part) for part in path.split("/")[3:]]
        if not parts:
            return self.tell({"datasets": [{"name": name} for name in datasets]})
        if parts[0] not in datasets:
            return self.refuse(404, "no such dataset is served")
        dataset = datasets[parts[0]]
        return self.tell(dataset.facts(parts[0]) if len(parts) == 1 else dataset.rows(dict(urllib.parse.parse_qsl(query))))

    def take_job(self, request: dict) -> None:
        painter: FakePainter = self.server.painter
        if painter.refusals:
            status, sentence, headers = painter.refusals.pop(0)
            return self.refuse(status, sentence, **headers)
        job = Job(len(painter.jobs), request)
        painter.jobs[job.id] = job
        painter.arrived.put(job)
        return self.tell({"id": job.id, "status": "queued", "seeds": job.seeds, "images": [], **({"warnings": painter.warnings} if painter.warnings else {})}, 202)

    def stream(self, job: Job) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        told = 0
        while True:
            with job.changed:
                if job.drops > 0:
                    job.drops -= 1
                    return
                if not job.changed.wait_for(lambda: len(job.events) > told or job.drops > 0, PATIENCE) or job.drops > 0:
                    continue
                kind, data = job.events[told]
                told += 1
            try:
                self.wfile.write(f": a comment\r\nevent: {kind}\r\ndata: {json.dumps(data)}\r\n\r\n".encode())
                self.wfile.flush()
            except OSError:
                return
            if kind in ("done", "failed", "cancelled"):
                return


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address) -> None:
        pass  # A tab that is closed breaks its connections.


class FakePainter:
    def __init__(self, files: pathlib.Path) -> None:
        self.files = files
        self.key = ""
        self.is_gone = False  # Connections end without an answer.
        self.refusals: list[tuple[int, str, dict]] = []  # Of the next requests for jobs.
        self.num_busy = 0  # How many of the next requests that read a job are told to come again.
        self.jobs: dict[str, Job] = {}
        self.runs: dict[str, FakeRun] = {}
        self.datasets: dict[str, FakeDataset] = {}
        self.arrived: queue.Queue = queue.Queue()
        self.facts = {"model": "fake", "models": ["fake"], "native_size": 64, "size_multiple": 8, "samplers": ["ddim", "euler", "euler_a"],
                      "limits": {"max_images": 4, "max_steps": 100, "max_side": 512}, "version": "0.0", "features": {}}
        self.warnings: list[str] = []  # Of the next jobs, as they are taken.
        self.facts_of: dict[str, dict] = {}  # Of models beside the first; one that is not there has not been loaded yet.
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.painter = self
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next_job(self) -> Job:
        return self.arrived.get(timeout=PATIENCE)

    def __enter__(self) -> "FakePainter":
        return self

    def __exit__(self, *unused) -> None:
        self.server.shutdown()
        self.server.server_close()
