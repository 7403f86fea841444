"""Acceptance 12: canary tokens through many failures and redirects: none of them is in a log, a summary, a file, at a second host or in a child."""

import concurrent.futures
import contextlib
import http.server
import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import threading
import time
import typing

from harness import PROGRAM, ROOT, FakeS3Server, LoopbackWeb, Trials, Workbench, darkroom, require, s3_environment, temporary_folder
from transformers_test import Transformer
from workbench import numbers_at

sys.path.insert(0, str(ROOT / "tests" / "support"))
from fake_hub import FakeHub, Handler as RangedHandler, Server  # noqa: E402

NUM_PATHS = 50
REDIRECTS = (301, 302, 303, 307, 308)
CANARY = "CANARY" + secrets.token_hex(12)


class Served:
    """A server on loopback, each connection of which a `handler` class serves, while it is entered."""

    def __init__(self, handler: type):
        self.server = Server(("127.0.0.1", 0), handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *unused) -> None:
        self.server.shutdown()
        self.server.server_close()


class Host(Served):
    """A server that fails as the first number among a path's words says, or redirects all that it is asked, and keeps what it was sent."""

    def __init__(self, location: str = "", always: int = 0):
        host = self

        class FailingHandler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode(errors="replace")
                host.received.append((self.path, f"{self.headers}\n{sent}"))
                status = always or next((int(word) for word in self.path.split("?")[0].split("/")[:-1] if word.isdigit()), 404)
                body = b"text of the server" if status != 200 else b"no table, no picture"
                self.send_response(status)
                if status in REDIRECTS and location:
                    self.send_header("Location", location)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

            def log_message(self, *unused) -> None:
                pass

        self.received: list[tuple[str, str]] = []  # Target; headers and body.
        super().__init__(FailingHandler)


class RangedWeb(Served):
    """A folder over HTTP with ranges, as a store of tables has them."""

    def __init__(self, folder: pathlib.Path):
        class FolderHandler(RangedHandler):
            def do_GET(self) -> None:
                path = folder / self.path.partition("?")[0].strip("/")
                if path.is_file():
                    self.answer_range(path.read_bytes(), ETag='"one"')
                else:
                    self.answer(404, b"")

        super().__init__(FolderHandler)


def plain_environment(**more: str) -> dict:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HF_", "HUGGING_FACE_", "DARKROOM_"))}
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


def leaks_of(arguments: list, environment: dict, summary: pathlib.Path) -> tuple[int, list]:
    """The exit code of a run, and what it shows of the secret."""
    done = darkroom(*arguments, "--verbose", "--json-summary", summary, environment=environment, expect=None, timeout=120)
    said = done.stdout + done.stderr + (summary.read_text(errors="replace") if summary.exists() else "")
    shown = [line[:300] for line in said.splitlines() if CANARY[:20] in line]
    return done.returncode, [[*arguments[:4], shown[0]]] if shown else []


def no_failure_shows_a_secret(trials: Trials) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        dead = probe.getsockname()[1]
    with temporary_folder() as folder, Host() as second, Host(f"http://127.0.0.1:{second.port}/404/x.parquet") as first:
        (folder / "urls.csv").write_text("URL,TEXT\nhttp://127.0.0.1:1/a.png,x\n")
        cases = cases_of_addresses(first, dead, folder) + cases_of_tokens(first, dead, folder)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:  # Most of what they do is to wait.
            found = list(pool.map(lambda case: leaks_of(*case[1], folder / f"summary-{case[0]}.json"), enumerate(cases)))
        num_failures = sum(code != 0 for code, _ in found)
        leaks = [leak for _, shown in found for leak in shown]
        besides = {"token", *(f"config-{number}" for number in range(8))}
        trials.figures.update(paths=len(cases), failures=num_failures, leaks=len(leaks))
        require(num_failures >= NUM_PATHS, "too few of the paths failed", num_failures, len(cases))
        require(not leaks, "secrets were shown:", json.dumps(leaks[:5], indent=1))
        require(not files_with_canary(folder, besides), "secrets in files", files_with_canary(folder, besides))
        require(bool(second.received), "no path led to the second host")
        stolen = [sent for sent in second.received if CANARY in "".join(sent)]
        require(not stolen, "a secret went to another host", stolen[:1])


class Journey(typing.NamedTuple):
    """A command whose first host gets a secret and answers with a redirect to another one."""

    name: str
    is_followed: bool
    arguments: list
    environment: dict
    is_repeated: bool = False  # The first host puts what it got into the address of the second, which is its own affair.


def journeys(first: Host, folder: pathlib.Path) -> list[Journey]:
    hub = plain_environment(HF_TOKEN=CANARY, HF_ENDPOINT=f"http://127.0.0.1:{first.port}")
    s3 = s3_environment(f"127.0.0.1:{first.port}", "AKID", CANARY, AWS_SESSION_TOKEN=CANARY, AWS_MAX_ATTEMPTS="2")
    job = ["download", "s3://pictures/images", "--metadata", str(folder / "urls.csv")]
    signed = f"http://127.0.0.1:{first.port}/x.parquet?X-Amz-Credential=a&X-Amz-Signature={CANARY}"
    return [
        Journey("model", True, ["models", "fetch", "hf://o/n", str(folder / "model")], hub),
        Journey("dataset", True, ["download", str(folder / "out"), "--metadata", "hf://datasets/o/n/x.parquet"], hub),
        Journey("converted", True, ["download", str(folder / "out"), "--metadata", "hf://datasets/o/n?config=c&split=s"], hub),
        Journey("signature", True, ["download", str(folder / "out"), "--metadata", signed], plain_environment()),
        Journey("repeated", True, ["inspect", signed], plain_environment(), is_repeated=True),
        Journey("s3_read", False, ["inspect", "s3://pictures/images"], s3),
        Journey("s3_write", False, job, s3),
        Journey("container", False, job, plain_environment(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"http://127.0.0.1:{first.port}/x", AWS_CONTAINER_AUTHORIZATION_TOKEN=CANARY)),
        Journey("identity", False, job, plain_environment(AWS_WEB_IDENTITY_TOKEN_FILE=str(folder / "token"), AWS_ROLE_ARN="arn:r", AWS_ENDPOINT_URL_STS=f"http://127.0.0.1:{first.port}")),
    ]


def no_redirect_takes_a_secret_along(trials: Trials) -> None:
    """Each kind of secret to a host that sends its client elsewhere: who follows leaves the secret behind."""
    with temporary_folder() as folder:
        (folder / "urls.csv").write_text("URL,TEXT\nhttp://127.0.0.1:1/a.png,x\n")
        (folder / "token").write_text(CANARY)
        num_requests = {}
        names = [journey.name for journey in journeys(Host(), folder)]
        for number, name in enumerate(names):
            for status in (REDIRECTS if trials.is_full else (REDIRECTS[number % len(REDIRECTS)],)):
                with contextlib.ExitStack() as ends:
                    second = ends.enter_context(Host())
                    is_repeated = name == "repeated"
                    first = ends.enter_context(Host(f"http://127.0.0.1:{second.port}/x.parquet" + (f"?X-Amz-Signature={CANARY}" if is_repeated else ""), status))
                    journey = journeys(first, folder)[number]
                    code, shown = leaks_of(journey.arguments, journey.environment, folder / f"{name}-{status}.json")
                    where = f"{name}, {status}:"
                    require(code != 0, "nothing failed", where)
                    require(not shown, "a secret was shown", where, shown)
                    require(any(CANARY in "".join(sent) for sent in first.received), "the first host got no secret", where, first.received[:1])
                    require(bool(second.received) == journey.is_followed, "the second host was asked" if second.received else "the second host was not asked", where)
                    stolen = [sent for sent in second.received if CANARY in sent[1] or (CANARY in sent[0] and not is_repeated)]
                    require(not stolen, "a secret went to another host", where, stolen[:1])
                    num_requests[name] = num_requests.get(name, 0) + len(second.received)
        require(not files_with_canary(folder, {"token"}), "secrets in files", files_with_canary(folder, {"token"}))
        trials.figures.update(requests_to_second_hosts=num_requests)


def no_user_in_an_address_is_sent(trials: Trials) -> None:
    """A user and a password are refused before anything is asked, and so is a redirect to an address that has them."""
    with temporary_folder() as folder, Host() as second, Host(f"http://user:{CANARY}@127.0.0.1:{second.port}/x.parquet", 302) as first:
        commands = [["inspect"], ["download", str(folder / "out"), "--metadata"], ["process"]]
        for verb in commands:
            address = f"http://user:{CANARY}@127.0.0.1:{first.port}/x.parquet"
            more = [str(folder / "latents"), "--model", str(ROOT / "models" / "tiny")] if verb == ["process"] else []
            code, shown = leaks_of([*verb, address, *more], plain_environment(), folder / "summary.json")
            require(code == 2 and not shown and not first.received, "an address with a user", verb, code, shown, first.received[:1])
        code, shown = leaks_of(["inspect", f"http://127.0.0.1:{first.port}/x.parquet"], plain_environment(), folder / "summary.json")
        require(bool(first.received) and not second.received and code != 0 and not shown, "a redirect to an address with a user", code, shown, second.received[:1])


def scrape(output: pathlib.Path) -> str:
    """The numbers of the process that writes there; empty while it serves none."""
    for left in output.glob("_metrics/*.json"):
        with contextlib.suppress(OSError, ValueError):  # Not written yet, or gone.
            if page := numbers_at(json.loads(left.read_text())["address"], patience=10):
                return page
    return ""


def no_good_run_stores_a_secret(trials: Trials) -> None:
    """A dataset that is written with secrets in the environment and in the addresses of its inputs, and its decoders."""
    with Workbench(60) as bench, LoopbackWeb(bench.path("corpus"), delay=0.02) as web, RangedWeb(bench.folder) as tables, temporary_folder() as folder:
        bench.write_url_table(web.port)
        flags = ["--rows-per-file", "20", "--allow-private", f"127.0.0.1/32:{web.port}", "--verbose", "--json-summary", folder / "summary.json"]
        environment = plain_environment(AWS_ACCESS_KEY_ID="A", AWS_SECRET_ACCESS_KEY=CANARY, AWS_SESSION_TOKEN=CANARY, HF_TOKEN=CANARY, DARKROOM_ENCODER_TOKEN=CANARY)
        done = darkroom("download", folder / "images", "--metadata", f"http://127.0.0.1:{tables.port}/urls.parquet?X-Amz-Signature={CANARY}", *flags, environment=environment)
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
        require(children > 0, "no child was seen", said[-800:])
        trials.figures.update(looks_at_children=children, scrapes=scrapes)


def a_hubs_second_server_sees_no_token(trials: Trials) -> None:
    """A good run from a list on a hub that wants a token, whose bytes lie on another server."""
    with Workbench(20) as bench, LoopbackWeb(bench.path("corpus")) as web, temporary_folder() as folder, FakeHub(folder / "hub", token=CANARY) as hub:
        table = hub.root / "datasets" / "org" / "list" / "urls.parquet"
        table.parent.mkdir(parents=True)
        table.write_bytes(pathlib.Path(bench.write_url_table(web.port)).read_bytes())
        environment = plain_environment(HF_TOKEN=CANARY, HF_ENDPOINT=hub.endpoint)
        done = darkroom("download", folder / "images", "--metadata", "hf://datasets/org/list/urls.parquet", "--allow-private", f"127.0.0.1/32:{web.port}", "--verbose", environment=environment)
        require(CANARY in repr(hub.requests), "the hub got no token")
        require(bool(hub.byte_requests) and CANARY not in repr(hub.byte_requests), "the second server", hub.byte_requests[:2])
        require(CANARY not in done.stdout + done.stderr and not files_with_canary(folder, set()), "secrets were shown or are in files", files_with_canary(folder, set()))
        trials.figures.update(requests_to_second_server=len(hub.byte_requests))


class Eavesdropper:
    """Passes bytes between clients and an address, and keeps them."""

    def __init__(self, address: str):
        host, port = address.rsplit(":", 1)
        self.target = (host, int(port))
        self.heard = bytearray()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(self.target)
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self.pass_on, args=pair, daemon=True).start()

    def pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # One side has gone.
            while part := source.recv(65_536):
                self.heard += part
                sink.sendall(part)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def the_token_of_encoders_is_not_sent(trials: Trials) -> None:
    """A transformer and the process that asks it prove to each other that they know the token; who listens between them does not get it."""
    environment = plain_environment(DARKROOM_ENCODER_TOKEN=CANARY)
    with Workbench(20) as bench, Transformer(bench.write_image_dataset("images", 20), environment=environment) as transformer:
        between = Eavesdropper(transformer.address)
        job = ["process", bench.path("images"), bench.path("latents"), "--model", bench.model, "--resolution", "128", "--keep-columns", "url", "--transformers", between.address, "--verbose"]
        done = darkroom(*job, environment=environment)
        require(len(between.heard) > 20 * 128 * 128 * 3, "the pictures did not come this way (bytes)", len(between.heard))
        require(CANARY.encode() not in between.heard, "the token was sent")
        other = darkroom(*job[:2], bench.path("other"), *job[3:], environment=plain_environment(DARKROOM_ENCODER_TOKEN=CANARY[::-1]), expect=None)
        require(other.returncode != 0, "another token was let in")
        require(CANARY not in done.stdout + done.stderr + other.stdout + other.stderr, "a secret was shown")
        trials.figures.update(bytes_heard=len(between.heard))


def the_helper_that_gives_keys_gets_no_other_secrets(trials: Trials) -> None:
    """`credential_process` starts a program of the user: it gets what AWS is told, not the secrets of hubs and encoders."""
    others = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "DARKROOM_ENCODER_TOKEN")
    with FakeS3Server() as server, temporary_folder() as folder:
        keys = json.dumps({"Version": 1, "AccessKeyId": "AKFAKE", "SecretAccessKey": "fake/secret+key"})
        (folder / "keys").write_text(keys)
        (folder / "helper").write_text(f"#!/bin/sh\nenv > {folder}/seen\ncat {folder}/keys\n")
        (folder / "helper").chmod(0o755)
        (folder / "config").write_text(f"[default]\ncredential_process = {folder}/helper\n")
        environment = plain_environment(AWS_ENDPOINT_URL_S3=f"http://{server.endpoint}", AWS_REGION="us-east-1", AWS_CONFIG_FILE=str(folder / "config"), **dict.fromkeys(others, CANARY))
        darkroom("inspect", "s3://pictures/images", environment=environment, expect=None)
        require((folder / "seen").exists(), "the helper was not started")
        seen = (folder / "seen").read_text()
        require("AWS_REGION=us-east-1" in seen and "PATH=" in seen, "the helper lacks what it needs", seen)
        require(CANARY not in seen, "the helper of credential_process has secrets in its environment:", [line.split("=")[0] for line in seen.splitlines() if CANARY in line])


def a_bad_store_shows_no_secret(trials: Trials) -> None:
    with FakeS3Server() as server, temporary_folder() as folder:
        (folder / "urls.csv").write_text("URL,TEXT\nhttp://127.0.0.1:1/a.png,x\n")
        server.tell("faults 60")
        for arguments in (["inspect", "s3://pictures/images"], ["download", "s3://pictures/images", "--metadata", folder / "urls.csv", "--error-budget", "100"]):
            done = darkroom(*arguments, "--verbose", environment=server.environment(AWS_SESSION_TOKEN=CANARY), expect=None)
            require(CANARY not in done.stdout + done.stderr and "fake/secret+key" not in done.stdout + done.stderr, "a secret was shown", done.stderr[-500:])


CHECKS = [
    ("secrets_kept.failures", no_failure_shows_a_secret),
    ("secrets_kept.redirects", no_redirect_takes_a_secret_along),
    ("secrets_kept.users", no_user_in_an_address_is_sent),
    ("secrets_kept.good_run", no_good_run_stores_a_secret),
    ("secrets_kept.hub", a_hubs_second_server_sees_no_token),
    ("secrets_kept.encoders", the_token_of_encoders_is_not_sent),
    ("secrets_kept.key_helper", the_helper_that_gives_keys_gets_no_other_secrets),
    ("secrets_kept.bad_store", a_bad_store_shows_no_secret),
]
