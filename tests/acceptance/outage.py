#!/usr/bin/env python3
"""Acceptance 6: resolver and network are gone in the middle of a run; no row fails because of it, and no job ends, whether it writes to a
disk or to a store that is out of reach with the rest."""

import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from harness import BUCKET, PROGRAM, ROOT, FakeS3Server, Trials, build, heads_of_requests, require, run_in_namespace
from addresses import RESOLVER, WEB, Names, listen, prepare_namespace, serve_names

NUM_ROWS = 1200


def serve_slowly(listener, picture: bytes) -> None:
    """Keeps connections open; each picture takes a little, so that the outage falls into the run."""

    def answer(connection) -> None:
        with connection:
            try:
                for _ in heads_of_requests(connection):
                    time.sleep(0.05)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n" % len(picture) + picture)
            except OSError:
                return

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def bring_back() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (WEB, RESOLVER):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=False, capture_output=True)


class Job:
    """A download, and what becomes of it."""

    def __init__(self, folder: pathlib.Path, name: str, output: str, environment: dict):
        self.summary, self.log = folder / f"{name}.json", folder / f"{name}.log"
        with open(self.log, "w") as log:
            arguments = ["--metadata", str(folder / "urls.jsonl"), "--timeout", "8", "--concurrency", "16", "--rows-per-file", "100", "--error-budget", "100", "--json-summary", str(self.summary), "--verbose"]
            self.process = subprocess.Popen([str(PROGRAM), "download", output, *arguments], stderr=log, stdout=log, cwd=ROOT, env=environment)

    def runs(self) -> bool:
        return self.process.poll() is None

    def result(self) -> dict:
        code, text = self.process.wait(timeout=600), self.log.read_text()
        summary = json.loads(self.summary.read_text())["download"] if self.summary.exists() else {}
        found = {name: summary.get(name) for name in ("rows_in", "rows_out", "rows_by_error")}
        network = [line for line in text.splitlines() if "network" in line.lower() or "resolver" in line.lower()]
        return {"code": code, **found, "network": network[:4], "store": [line for line in text.splitlines() if "the store" in line][:4], "log": text[-800:]}


def wait_until(is_so, jobs: list[Job], what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        require(all(job.runs() for job in jobs) and time.monotonic() < deadline, f"waiting for {what} was in vain", [job.log.read_text()[-800:] for job in jobs])
        time.sleep(0.02)


def take_away_the_network(seconds: float, server: FakeS3Server, jobs: dict[str, Job]) -> bool:
    """In the middle of a request to the store, and until that has noticed it. Whether the jobs ran at the end."""
    running = list(jobs.values())
    calls = int(server.tell("calls"))
    server.tell("hang 1")
    wait_until(lambda: int(server.tell("calls")) > calls, running, "a request to the store")
    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
    server.tell("hang 0")
    time.sleep(seconds)
    wait_until(lambda: "cannot be reached; waiting" in jobs["store"].log.read_text(), running, "a word about the store")
    still_running = all(job.runs() for job in running)
    bring_back()
    return still_running


def run_inside(seconds: float) -> dict:
    from hostile_test import png  # Of tests/integration.

    with tempfile.TemporaryDirectory(prefix="darkroom-outage-") as name:
        folder = pathlib.Path(name)
        prepare_namespace(folder)
        names = Names()
        hosts = [names.add("host", number, [[WEB]]) for number in range(40)]
        threading.Thread(target=serve_names, args=(names, listen(2, (RESOLVER, 53))), daemon=True).start()
        web = listen(1, (WEB, 80))
        web.listen(512)
        threading.Thread(target=serve_slowly, args=(web, png(64, 64)), daemon=True).start()
        (folder / "urls.jsonl").write_text("".join(json.dumps({"URL": f"http://{hosts[i % 40]}/{i}.png", "TEXT": "x"}) + "\n" for i in range(NUM_ROWS)))
        with FakeS3Server() as server:
            environment = server.environment()
            # The tries are over before a short outage is.
            jobs = {"disk": Job(folder, "disk", str(folder / "out"), environment), "store": Job(folder, "store", f"s3://{BUCKET}/out?timeout=4s&tries=3", environment)}
            wait_until(lambda: list((folder / "out").glob("part-*.parquet")), list(jobs.values()), "a part on the disk")
            wait_until(lambda: list(server.dump(folder / "objects").rglob("part-*.parquet")), list(jobs.values()), "a part in the store")
            still_running = take_away_the_network(seconds, server, jobs)
            return {"still_running": still_running, **{name: job.result() for name, job in jobs.items()}}


def an_outage_costs_no_row(trials: Trials) -> None:
    seconds = trials.count(12, 60)
    build("fake_s3_server")  # Outside of the namespace.
    found = run_in_namespace("outage.py", seconds)
    disk, store = found["disk"], found["store"]
    trials.figures.update(outage_seconds=seconds, rows=disk["rows_in"], rows_by_error=disk["rows_by_error"], said=disk["network"][:1], said_of_store=store["store"][:2])
    require(found["still_running"], "a job ended in the outage", found)
    for job in (disk, store):
        require(job["code"] == 0 and job["rows_out"] == NUM_ROWS, "rows failed because of the outage", job)
        require(bool(job["network"]), "the job did not say that it waits for the network", job["log"])
    said = [line for line in store["store"] if "cannot be reached; waiting" in line]
    require(len(said) == 1 and any("answers again" in line for line in store["store"]), "the job did not say once that it waits for the store", store["store"], store["log"])


CHECKS = [("outage", an_outage_costs_no_row)]

if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        print(json.dumps(run_inside(float(sys.argv[2]))))
    else:
        sys.exit("run tests/acceptance/acceptance.py outage")
