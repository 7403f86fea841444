"""Debian's Prometheus for the tests, and what every panel of deploy/grafana asks it."""

import http
import json
import math
import pathlib
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable

from ports import free_port
from workbench import ROOT, Skipped, require

DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
PATIENCE = 300  # Seconds; a limit, no measure.
# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "1m", "$__range": "1h", "$instance": ".*"}
MOST_POINTS = 5000  # Of one series in an answer; Prometheus takes 11,000.

Query = tuple[str, str, str]  # Dashboard, panel, expression.


def queries() -> list[Query]:
    """Of every target of every panel."""
    found = []
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                query = target["expr"]
                for name, value in VARIABLES.items():
                    query = query.replace(name, value)
                found.append((path.stem, panel["title"], query))
    return found


def program_of(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Skipped(f"there is no {name}; apt-get install prometheus")
    return found


def paint(address: str) -> None:
    """Something to count for an endpoint whose panels are looked at."""
    body = json.dumps({"prompt": "a red heart", "response_format": "b64_json", "steps": 2}).encode()
    request = urllib.request.Request(f"http://{address}/v1/images/generations", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        require(reply.status == 200, "status", reply.status)


def static_job(name: str, addresses: list[str]) -> dict:
    return {"job_name": name, "static_configs": [{"targets": addresses}]}


def job_of_files(name: str, *paths: pathlib.Path) -> dict:
    """As deploy/prometheus.yml has them. REQUIRES: the files' folders are there."""
    return {"job_name": name, "file_sd_configs": [{"files": [str(path) for path in paths], "refresh_interval": "1s"}]}


class Prometheus:
    """Scrapes these jobs every second, with the rules of deploy/."""

    def __init__(self, folder: pathlib.Path, jobs: list[dict]):
        program = program_of("prometheus")
        shutil.copy(ROOT / "deploy" / "prometheus_rules.yml", folder)
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["prometheus_rules.yml"], "scrape_configs": jobs}))
        self.address = f"127.0.0.1:{free_port()}"
        self.began = time.time()
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={self.address}"], stdout=self.log, stderr=self.log)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.log.close()

    def ask(self, path: str, **parameters: str):
        """None: it does not answer yet."""
        require(self.process.poll() is None, "Prometheus has ended; its log:", pathlib.Path(self.log.name).read_text()[-2000:])
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:  # It opens its store.
                return None
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def answer(self, path: str, **parameters: str):
        """As ask(), but it is waited for."""
        begin = time.monotonic()
        while (found := self.ask(path, **parameters)) is None:
            require(time.monotonic() - begin < PATIENCE, "Prometheus does not answer", path, parameters)
            time.sleep(0.2)
        return found

    def graph(self, expression: str) -> list[dict]:
        """The series that a panel of the time since the start would show: `metric`, and as `value` the last number. One that never was a number is none."""
        now = time.time()
        step = max(1, math.ceil((now - self.began) / MOST_POINTS))
        answer = self.ask("query_range", query=expression, start=f"{self.began:.3f}", end=f"{now:.3f}", step=str(step))
        found = []
        for series in answer["result"] if answer else []:
            numbers = [float(text) for _, text in series["values"] if math.isfinite(float(text))]
            if numbers:
                found.append({"metric": series["metric"], "value": numbers[-1]})
        return found

    def await_all(self, wanted: list[Query], meanwhile: Callable[[], None] = lambda: None) -> dict[Query, list[dict]]:
        """Asks until every query has found a number, and calls meanwhile() in between."""
        found: dict[Query, list[dict]] = {}
        begin = time.monotonic()
        while True:
            found |= {one: series for one in wanted if one not in found and (series := self.graph(one[2]))}
            if len(found) == len(wanted):
                return found
            require(time.monotonic() - begin < PATIENCE, "nothing is found by", [one for one in wanted if one not in found])
            meanwhile()
            time.sleep(0.2)
