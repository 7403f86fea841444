#!/usr/bin/env python3
"""Acceptance 6: resolver and network are gone in the middle of a run; no row fails because of it."""

import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from harness import PROGRAM, ROOT, Trials, heads_of_requests, require, run_in_namespace
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
        with open(folder / "log", "w+") as log:
            job = subprocess.Popen([str(PROGRAM), "download", str(folder / "out"), "--metadata", str(folder / "urls.jsonl"), "--timeout", "8", "--concurrency", "16", "--rows-per-file", "100", "--error-budget", "100",
                                    "--json-summary", str(folder / "summary.json"), "--verbose"], stderr=log, stdout=log, cwd=ROOT)
            deadline = time.monotonic() + 60
            while not list((folder / "out").glob("part-*.parquet")) and job.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            was_running = job.poll() is None
            subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
            time.sleep(seconds)
            still_running = job.poll() is None
            bring_back()
            code = job.wait(timeout=600)
            log.seek(0)
            text = log.read()
        summary = json.loads((folder / "summary.json").read_text())["download"]
        said = [line for line in text.splitlines() if "network" in line.lower() or "resolver" in line.lower()]
        return {"code": code, "was_running": was_running, "still_running": still_running, "rows_in": summary["rows_in"], "rows_out": summary["rows_out"], "rows_by_error": summary["rows_by_error"], "said": said[:4], "log": text[-800:]}


def an_outage_costs_no_row(trials: Trials) -> None:
    seconds = trials.count(12, 60)
    found = run_in_namespace("outage.py", seconds)
    trials.figures.update(outage_seconds=seconds, rows=found["rows_in"], rows_by_error=found["rows_by_error"], said=found["said"][:1])
    require(found["was_running"] and found["still_running"], "the job was not in its middle", found)
    require(found["code"] == 0 and found["rows_out"] == NUM_ROWS, "rows failed because of the outage", found)
    require(bool(found["said"]), "the job did not say that it waits for the network", found["log"])


CHECKS = [("outage", an_outage_costs_no_row)]

if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        print(json.dumps(run_inside(float(sys.argv[2]))))
    else:
        sys.exit("run tests/acceptance/acceptance.py outage")
