"""Acceptance 12: canary tokens through many failures: none of them is in a log, a summary, a file, at a second host or in a child."""

import contextlib
import http.server
import json
import os
import pathlib
import secrets
import socket
import subprocess
import threading
import time

from harness import PROGRAM, ROOT, FakeS3Server, LoopbackWeb, Trials, Workbench, darkroom, require, s3_environment, temporary_folder
from workbench import numbers_at

NUM_PATHS = 50
CANARY = "CANARY" + secrets.token_hex(12)


class Host:
    """A server that fails as its paths say, and keeps what it was sent."""

    def __init__(self, second: "Host | None" = None):
        host = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                host.received.append(f"{self.path}\n{self.headers}")
                words = self.path.split("?")[0].strip("/").split("/")
                status = int(words[-2]) if len(words) > 1 and words[-2].isdigit() else 404
                body = b"text of the server" if status != 200 else b"no table, no picture"
                self.send_response(status)
                if status in (301, 302, 307) and second is not None:
                    self.send_header("Location", f"http://127.0.0.1:{second.port}/404/x.parquet")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

            def log_message(self, *unused) -> None:
                pass

        self.received: list[str] = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def plain_environment(**more: str) -> dict:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HF_"))}
    return {**environment, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere", **more}


def web_addresses(first: Host, dead: int) -> list[str]:
    """Addresses with a password or a signature that fail on the way."""
    places = [f"127.0.0.1:{first.port}/{status}/x.parquet" for status in (200, 301, 302, 307, 400, 401, 403, 404, 410, 416)] + [f"127.0.0.1:{dead}/x.parquet", "nobody.invalid/x.parquet", f"127.0.0.1:{first.port}/*.parquet"]
    found = []
    for place in places:
        found += [f"http://user:{CANARY}@{place}", f"http://{place}?X-Amz-Credential=a&X-Amz-Signature={CANARY}"]
    return found + [f"https://user:{CANARY}@127.0.0.1:{first.port}/x.parquet?sig={CANARY}", f"ftp://user:{CANARY}@127.0.0.1/x", f"http://user:{CANARY}@/x", f"http://user:{CANARY}@127.0.0.1:port/x", f"HTTP://user:{CANARY}@127.0.0.1:{dead}/#{CANARY}"]


def cases_of_addresses(first: Host, dead: int, folder: pathlib.Path) -> list[tuple[list, dict]]:
    cases = []
    for number, address in enumerate(web_addresses(first, dead)):
        verb = [["download", str(folder / f"out-{number}"), "--metadata", address], ["inspect", address], ["process", address, str(folder / f"out-{number}"), "--model", str(ROOT / "models" / "tiny")]][number % 3]
        cases.append((verb, plain_environment()))
    bad_s3 = [f"s3://AKID:{CANARY}@bucket/x", f"s3://AKID:{CANARY}/x@bucket/y", f"s3://bucket/x?X-Amz-Signature={CANARY}", f"s3://bucket/x?region=r&token={CANARY}", f"s3://bucket/x?endpoint_override=u:{CANARY}@h", f"s3://bucket/x?region=r&{CANARY}"]
    for address in bad_s3:
        cases.append((["download", address, "--metadata", "/nowhere.parquet"], plain_environment()))
        cases.append((["inspect", address], plain_environment()))
        cases.append((["train", "recipes/tiny.toml", "--data", address, "--output", address, "--model", str(ROOT / "models" / "tiny")], plain_environment()))
    for address in (f"hf://datasets/o/n?token={CANARY}", f"hf://u:{CANARY}@datasets/o/n/x.parquet", f"hf://datasets/o/n?config=c&token={CANARY}"):
        cases.append((["download", str(folder / "out"), "--metadata", address], plain_environment(HF_ENDPOINT=f"http://127.0.0.1:{first.port}")))
    return cases


def cases_of_tokens(first: Host, dead: int, folder: pathlib.Path) -> list[tuple[list, dict]]:
    """Tokens of the environment and of files, given to places that fail."""
    cases = []
    for port in (first.port, dead):
        for word in ("hf://o/n", "hf://o/n@main"):
            cases.append((["models", "fetch", word, str(folder / "model")], plain_environment(HF_TOKEN=CANARY, HF_ENDPOINT=f"http://127.0.0.1:{port}")))
        cases.append((["download", str(folder / "out"), "--metadata", "hf://datasets/o/n/x.parquet"], plain_environment(HF_TOKEN=CANARY, HF_ENDPOINT=f"http://127.0.0.1:{port}/302")))
    cases.append((["models", "fetch", "hf://o/n", str(folder / "model")], plain_environment(HF_TOKEN=CANARY, HF_ENDPOINT=f"http://u:{CANARY}@127.0.0.1")))
    place = ["inspect", "s3://pictures/images"]
    job = ["download", "s3://pictures/images", "--metadata", str(folder / "urls.csv")]
    for arguments in (place, job):
        for endpoint in (f"127.0.0.1:{first.port}", f"127.0.0.1:{dead}"):
            cases.append((arguments, s3_environment(endpoint, "AKID", CANARY, AWS_SESSION_TOKEN=CANARY)))
        cases.append((arguments, plain_environment(AWS_SECRET_ACCESS_KEY=CANARY)))
        cases.append((arguments, plain_environment(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"http://127.0.0.1:{first.port}/{CANARY}/403/x", AWS_CONTAINER_AUTHORIZATION_TOKEN=CANARY)))
        cases.append((arguments, plain_environment(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"http://u:{CANARY}@host/{CANARY}")))
        cases.append((arguments, plain_environment(AWS_ENDPOINT_URL_S3=f"http://u:{CANARY}@127.0.0.1:{dead}", AWS_ACCESS_KEY_ID="A", AWS_SECRET_ACCESS_KEY=CANARY)))
        (folder / "token").write_text(CANARY)
        cases.append((arguments, plain_environment(AWS_WEB_IDENTITY_TOKEN_FILE=str(folder / "token"), AWS_ROLE_ARN="arn:r", AWS_ENDPOINT_URL_STS=f"http://127.0.0.1:{first.port}")))
        for number, text in enumerate([
            f"[default]\naws_access_key_id = A\n{CANARY}\n", f"[default\naws_secret_access_key = {CANARY}\n", f"[default]\naws_secret_access_key = {CANARY}\n",
            f"[default]\ncredential_process = sh -c 'echo {CANARY}; echo {CANARY} >&2; exit 1'\n", f"[default]\ncredential_process = echo {CANARY}\n", f"[default]\ncredential_process = /nowhere/{'x'} --secret {CANARY}\n",
            f"[default]\nrole_arn = arn:r\nsource_profile = default\naws_access_key_id = A\naws_secret_access_key = {CANARY}\n", f"[default]\nrole_arn = arn:r\nmfa_serial = {CANARY}\nsource_profile = x\n",
        ]):
            path = folder / f"config-{number}"
            path.write_text(text)
            cases.append((arguments, plain_environment(AWS_CONFIG_FILE=str(path), AWS_ENDPOINT_URL_STS=f"http://127.0.0.1:{first.port}", AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{dead}")))
    return cases


def files_with_canary(folder: pathlib.Path, besides: set[str]) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and path.name not in besides and CANARY.encode() in path.read_bytes()]


def no_failure_shows_a_secret(trials: Trials) -> None:
    second = Host()
    first = Host(second)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        dead = probe.getsockname()[1]
    with temporary_folder() as folder:
        (folder / "urls.csv").write_text("URL,TEXT\nhttp://127.0.0.1:1/a.png,x\n")
        cases = cases_of_addresses(first, dead, folder) + cases_of_tokens(first, dead, folder)
        leaks, num_failures = [], 0
        for number, (arguments, environment) in enumerate(cases):
            summary = folder / f"summary-{number}.json"
            done = darkroom(*arguments, "--verbose", "--json-summary", summary, environment=environment, expect=None, timeout=120)
            num_failures += done.returncode != 0
            said = done.stdout + done.stderr + (summary.read_text(errors="replace") if summary.exists() else "")
            if CANARY in said or CANARY[:20] in said:
                leaks.append([*arguments[:4], next(line for line in said.splitlines() if CANARY[:20] in line)[:300]])
        besides = {"token", *(f"config-{number}" for number in range(8))}
        trials.figures.update(paths=len(cases), failures=num_failures, leaks=len(leaks))
        require(num_failures >= NUM_PATHS, "too few of the paths failed", num_failures, len(cases))
        require(not leaks, "secrets were shown:", json.dumps(leaks[:5], indent=1))
        require(not files_with_canary(folder, besides), "secrets in files", files_with_canary(folder, besides))
    require(not [text for text in second.received if CANARY in text], "a secret went to another host", second.received[:2])


def scrape(output: pathlib.Path) -> str:
    """The numbers of the process that writes there; empty while it serves none."""
    for left in output.glob("_metrics/*.json"):
        with contextlib.suppress(OSError, ValueError):  # Not written yet, or gone.
            if page := numbers_at(json.loads(left.read_text())["address"], patience=10):
                return page
    return ""


def no_good_run_stores_a_secret(trials: Trials) -> None:
    """A dataset that is written with secrets in the environment and in the addresses of its inputs, and its decoders."""
    with Workbench(60) as bench, LoopbackWeb(bench.path("corpus"), delay=0.02) as web, temporary_folder() as folder:
        table = bench.write_url_table(web.port)
        (pathlib.Path(bench.path("corpus")) / "urls-served.parquet").write_bytes(pathlib.Path(table).read_bytes())
        flags = ["--rows-per-file", "20", "--allow-private", f"127.0.0.1/32:{web.port}", "--verbose", "--json-summary", folder / "summary.json"]
        environment = plain_environment(AWS_ACCESS_KEY_ID="A", AWS_SECRET_ACCESS_KEY=CANARY, AWS_SESSION_TOKEN=CANARY, HF_TOKEN=CANARY)
        address = f"http://127.0.0.1:{web.port}/urls-served.parquet?X-Amz-Signature={CANARY}"
        done = darkroom("download", folder / "images", "--metadata", address, *flags, environment=environment, expect=None)
        from_web = done.returncode == 0
        if not from_web:  # A server that gives no ranges, or a program whose download reads local tables alone.
            require(CANARY not in done.stdout + done.stderr, "a secret was shown", done.stderr[-500:])
            done = darkroom("download", folder / "images", "--metadata", table, *flags, environment=environment)
        job = subprocess.Popen([str(PROGRAM), "process", str(folder / "images"), str(folder / "latents"), "--model", bench.model, "--resolution", "64", "--verbose", "--metrics-port", "0"], stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        children = scrapes = 0
        while job.poll() is None:
            numbers = scrape(folder / "latents")
            scrapes += "darkroom_rows_total" in numbers
            require(CANARY not in numbers, "a secret is among the numbers")
            for entry in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if (entry / "stat").read_text().rsplit(")", 1)[1].split()[1] == str(job.pid):
                        children += 1
                        require(CANARY.encode() not in (entry / "environ").read_bytes(), "a child has a secret in its environment", (entry / "comm").read_text())
                except (OSError, IndexError):
                    continue  # It has ended.
            time.sleep(0.01)
        said = done.stdout + done.stderr + job.stderr.read()
        require(job.returncode == 0, "process failed", said[-800:])
        require(CANARY not in said, "a secret was shown")
        require(not files_with_canary(folder, set()), "secrets in files", files_with_canary(folder, set()))
        require(scrapes > 0, "no numbers were scraped", said[-800:])
        trials.figures.update(table_from_web=from_web, looks_at_children=children, scrapes=scrapes)


def a_bad_store_shows_no_secret(trials: Trials) -> None:
    with FakeS3Server() as server, temporary_folder() as folder:
        (folder / "urls.csv").write_text("URL,TEXT\nhttp://127.0.0.1:1/a.png,x\n")
        server.tell("faults 60")
        for arguments in (["inspect", "s3://pictures/images"], ["download", "s3://pictures/images", "--metadata", folder / "urls.csv", "--error-budget", "100"]):
            done = darkroom(*arguments, "--verbose", environment=server.environment(AWS_SESSION_TOKEN=CANARY), expect=None)
            require(CANARY not in done.stdout + done.stderr and "fake/secret+key" not in done.stdout + done.stderr, "a secret was shown", done.stderr[-500:])


CHECKS = [("secrets_kept.failures", no_failure_shows_a_secret), ("secrets_kept.good_run", no_good_run_stores_a_secret), ("secrets_kept.bad_store", a_bad_store_shows_no_secret)]
