#!/usr/bin/env python3
"""The dashboards and rules of deploy/ on a real Prometheus (Debian's package), which scrapes a small download, process, train and serve on
loopback: every query of every panel finds something. No Grafana runs.

usage: dashboards_test.py
"""

import contextlib
import http.server
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types

from prometheus import DASHBOARDS, PATIENCE, Prometheus, job_of_files, paint, program_of, queries, static_job
from workbench import PROGRAM, ROOT, LoopbackWeb, Orders, Skipped, Workbench, main, require, run

PRICE = ["--price-per-hour", "p4de.24xlarge:spot"]
NUM_ROWS = 16


def the_committed_dashboards_are_those_of_the_script() -> None:
    require(len(DASHBOARDS) == 4, "dashboards", DASHBOARDS)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, ROOT / "deploy" / "grafana" / "make_dashboards.py", folder], check=True)
        for path in DASHBOARDS:
            require(pathlib.Path(folder, path.name).read_text() == path.read_text(), "not what make_dashboards.py writes:", path)


def every_query_names_a_variable_that_the_dashboard_has() -> None:
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        known = {variable["name"] for variable in dashboard["templating"]["list"]} | {"__rate_interval", "__range"}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard["panels"])))
        require(used <= known and "instance" in used, path.name, used - known)
        ids = [panel["id"] for panel in dashboard["panels"]]
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
        require(len(set(ids)) == len(ids) and len(set(places)) == len(places), "panels on top of each other in", path.name)


def promtool_takes_the_configuration() -> None:
    done = subprocess.run([program_of("promtool"), "check", "config", ROOT / "deploy" / "prometheus.yml"], capture_output=True, text=True)
    require(done.returncode == 0 and "8 rules found" in done.stdout, done.stdout, done.stderr)


# For each alert, numbers a minute that make it fire after an hour (or several such), and such that do not: one example of them or more.
ALERTS = {
    "DarkroomProcessSilent": ({'up{job="darkroom-train", instance="a"}': "0x60"}, {'up{job="darkroom-train", instance="a"}': "1x60"}),
    "DarkroomRowsFail": (
        (
            {'darkroom_row_errors_total{code="dns", instance="a"}': "0+7x60", 'darkroom_rows_total{stage="inspect", instance="a"}': "0+10x60", 'darkroom_rows_total{stage="read", instance="a"}': "0+20x60"},
            {'darkroom_row_errors_total{code="decode", instance="a"}': "0+7x60", 'darkroom_rows_total{stage="read", instance="a"}': "0+10x60"},  # Transformers apart.
        ),
        {'darkroom_row_errors_total{code="dns", instance="a"}': "0+5x60", 'darkroom_rows_total{stage="transform", instance="a"}': "0+10x60", 'darkroom_rows_total{stage="order", instance="a"}': "0+1x60"},
    ),
    "DarkroomTrainingStands": (
        {'darkroom_train_step{instance="a"}': "5x60", 'darkroom_train_last_step{instance="a"}': "10x60", 'darkroom_process_uptime_seconds{instance="a"}': "0+60x60"},
        {'darkroom_train_step{instance="a"}': "0+1x60", 'darkroom_train_last_step{instance="a"}': "100x60", 'darkroom_process_uptime_seconds{instance="a"}': "0+60x60"},
        {'darkroom_train_step{instance="a"}': "_x49 0x10", 'darkroom_train_last_step{instance="a"}': "_x49 10x10", 'darkroom_process_uptime_seconds{instance="a"}': "_x49 0+60x10"},  # Ten minutes old.
    ),
    "DarkroomStepsLeftOut": ({'darkroom_train_skipped_steps_total{instance="a"}': "0x50 1x10"}, {'darkroom_train_skipped_steps_total{instance="a"}': "1x60"}),
    "DarkroomTrainingWaitsForData": (
        {'darkroom_train_phase_seconds_total{phase="data_wait", instance="a"}': "0+2x60", 'darkroom_train_phase_seconds_total{phase="step", instance="a"}': "0+10x60"},
        {'darkroom_train_phase_seconds_total{phase="data_wait", instance="a"}': "0+1x60", 'darkroom_train_phase_seconds_total{phase="step", instance="a"}': "0+20x60"},
    ),
    "DarkroomEndpointRefuses": (
        {'darkroom_serve_requests_total{status="429", instance="a"}': "0+1x60", 'darkroom_serve_requests_total{status="200", instance="a"}': "0+9x60"},
        {'darkroom_serve_requests_total{status="429", instance="a"}': "0+1x60", 'darkroom_serve_requests_total{status="200", instance="a"}': "0+99x60"},
    ),
    "DarkroomMemoryShort": (
        {'darkroom_host_memory_available_bytes{instance="a"}': "4x60", 'darkroom_host_memory_bytes{instance="a"}': "100x60"},
        {'darkroom_host_memory_available_bytes{instance="a"}': "6x60", 'darkroom_host_memory_bytes{instance="a"}': "100x60"},
    ),
    "DarkroomCost": ({'darkroom_cost_dollars{instance="a"}': "600x60", 'darkroom_cost_dollars{instance="b"}': "600x60"}, {'darkroom_cost_dollars{instance="a"}': "600x60"}),
}


def panels_of_a_cluster_ask_for_names_that_its_jobs_show() -> None:
    asked = {name for dashboard, _, query in queries() if dashboard == "cluster" for name in re.findall(r"\bray_(\w+)", query)}
    require(len(asked) > 8 and asked <= set(names_of_jobs()), "names that nobody shows", asked - set(names_of_jobs()))


class Opening(http.server.ThreadingHTTPServer):
    """Prometheus while it opens its store: it does not answer, then not yet, and then does. Errors of a query are its own words."""

    def __init__(self) -> None:
        ways = iter(["hang up", 503, 200, 400])

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                way = next(ways)
                if way == "hang up":
                    return
                body = json.dumps({"data": ["a"], "error": "wrong"}).encode()
                self.send_response(way)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)


def a_prometheus_that_opens_its_store_is_asked_again() -> None:
    server = Opening()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    opening = Prometheus.__new__(Prometheus)
    opening.address, opening.process, opening.log = f"127.0.0.1:{server.server_port}", types.SimpleNamespace(poll=lambda: None), types.SimpleNamespace(name=os.devnull)
    try:
        require([opening.ask("labels") for _ in range(2)] == [None, None] and opening.answer("labels") == ["a"], "an answer")
        try:
            opening.ask("query")
        except AssertionError as error:
            require("wrong" in str(error), "its words", error)
        else:
            raise AssertionError("a query that is refused has an answer")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    require(opening.ask("labels") is None, "nobody listens")


def run_promtool(series: dict[str, str], asked: dict, rules: tuple[str, ...] = ()) -> tuple[int, str]:
    """Exit code and words of `promtool test rules`, a sample of each series a minute. `asked`: the fields of a test that say what it expects."""
    test = {"interval": "1m", "input_series": [{"series": name, "values": values} for name, values in series.items()], **asked}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "test.yml")
        path.write_text(json.dumps({"rule_files": rules, "evaluation_interval": "1m", "tests": [test]}))
        done = subprocess.run([program_of("promtool"), "test", "rules", path], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def require_samples(dashboard: str, panel: str, series: dict[str, str], eval_time: str, samples: dict[str, float]) -> None:
    """Of the query of a panel, by labels."""
    query = next(query for of, title, query in queries() if (of, title) == (dashboard, panel))
    expected = [{"labels": labels, "value": value} for labels, value in samples.items()]
    code, said = run_promtool(series, {"promql_expr_test": [{"expr": query, "eval_time": eval_time, "exp_samples": expected}]})
    require(code == 0, "other samples of", panel, said)


def each_alert_fires_for_what_it_is_about_and_for_nothing_else() -> None:
    rules = (str(ROOT / "deploy" / "prometheus_rules.yml"),)
    for alert, (firing, *silent) in ALERTS.items():
        for series, fires in [*((one, True) for one in (firing if isinstance(firing, tuple) else (firing,))), *((one, False) for one in silent)]:
            # Without the labels and sentences of an alert that fires the tool names what it got: what is looked for here.
            code, said = run_promtool(series, {"alert_rule_test": [{"eval_time": "1h", "alertname": alert, "exp_alerts": []}]}, rules)
            require((code != 0) == fires and (f"alertname: {alert}" in said) == fires, alert, "should fire:", fires, said)


def a_steps_phases_add_up_to_it_on_a_gpu_and_on_a_cpu() -> None:
    """A GPU's program waits beside the phases, which are by the GPU's clock."""
    gpu = {"device_idle": 2, "forward": 2, "backward": 8, "update": 4, "data_wait": 3, "device_wait": 90, "step": 16}
    cpu = {"data_wait": 2, "forward": 2, "backward": 8, "update": 4, "device_wait": 0, "step": 16}
    for seconds, beside in ((gpu, {"data_wait", "device_wait"}), (cpu, set())):
        series = {f'darkroom_train_phase_seconds_total{{phase="{phase}", instance="a"}}': f"0+{each}x60" for phase, each in seconds.items()}
        shares = {f'{{phase="{phase}"}}': each / 16 for phase, each in seconds.items() if phase not in beside | {"step"}}
        require_samples("training", "What a step goes into", series, "1h", shares)


def workers_lost_are_those_of_all_jobs_in_the_time_shown() -> None:
    # Each driver has a series of its own, which begins with its first loss. The last two: of a job that ended before, and one that began then.
    drivers = {("process", "1"): "_x90 1x29", ("process", "2"): "_x90 1x9 2x19", ("process", "3"): "5x30", ("download", "4"): "4x100 6x19"}
    series = {f'ray_darkroom_ray_restarts_total{{verb="{verb}", WorkerId="{worker}", instance="a"}}': values for (verb, worker), values in drivers.items()}
    require_samples("cluster", "Workers lost and replaced", series, "2h", {'{verb="process"}': 3, '{verb="download"}': 2})


def left_address(folder: str) -> str:
    """Where the process that works in a folder says that its numbers are."""
    begin = time.monotonic()
    while True:
        files = list(pathlib.Path(folder, "_metrics").glob("*.json"))
        if files:
            return json.loads(files[0].read_text())["address"]
        require(time.monotonic() - begin < PATIENCE, "no address in", folder)
        time.sleep(0.1)


@contextlib.contextmanager
def started(*arguments, environment: dict[str, str]):
    """A program that goes on until it is told to stop."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([str(PROGRAM), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=errors, text=True, cwd=ROOT, env=environment)
        try:
            yield process, errors
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE)
            errors.seek(0)
            require(code == 143, "exit code", code, errors.read()[-3000:])


def served_at(errors) -> str:
    begin = time.monotonic()
    while True:
        errors.seek(0)
        found = re.search(r"serving .* at http://(\S+)", errors.read())
        if found:
            return found.group(1)
        require(time.monotonic() - begin < PATIENCE, "the endpoint does not say where it is")
        time.sleep(0.1)


def documented_names() -> set[str]:
    rows = [line for line in (ROOT / "docs" / "metrics.md").read_text().split("\n") if line.startswith("| `darkroom_")]
    return {name for row in rows for name in re.findall(r"`(darkroom_[a-z0-9_]+)`", row.split("|")[1])}


def names_of_jobs() -> list[str]:
    """What a driver, rank 0 and a replica of darkroom-ray show on Ray's metrics ports, without Ray."""
    names: list[str] = []

    class Recorder:
        def __init__(self, name: str, **unused) -> None:
            names.append(name)

        def set_default_tags(self, tags: dict) -> None: ...

    sys.path.insert(0, str(ROOT / "python"))
    from darkroom_ray import measured

    sys.modules |= {name: types.SimpleNamespace(Counter=Recorder, Gauge=Recorder) for name in ("ray", "ray.util", "ray.util.metrics")}
    try:
        measured.JobMeasures("download")
        measured.TrainMeasures()
    finally:
        for name in ("ray", "ray.util", "ray.util.metrics"):
            sys.modules.pop(name)
    return names + re.findall(r'Gauge\("(darkroom_ray_\w+)"', (ROOT / "python" / "darkroom_ray" / "serve_replica.py").read_text())


class RayStandIn(http.server.ThreadingHTTPServer):
    """A node's metrics port as Ray writes it: `ray_` before every name."""

    def __init__(self) -> None:
        looks = itertools.count(1)
        names = names_of_jobs()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                labels = '{verb="download",code="timeout",application="darkroom",WorkerId="1a"}'
                look = next(looks)
                body = "".join(f"ray_{name}{labels} {7 * look}\n" for name in names).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


def names_of_jobs_are_documented() -> None:
    text = (ROOT / "docs" / "cluster.md").read_text()
    table = text[text.index("## Metrics"):text.index("## Pipelines")]
    for name in names_of_jobs():
        stem = re.sub("^darkroom_ray_train", "", name)
        require(f"`{name}`" in table or f"`{stem}`" in table, "docs/cluster.md lacks", name)


def every_documented_name_is_counted_by_a_source() -> None:
    files = [file for folder in ("src", "include", "apps") for file in (ROOT / folder).rglob("*") if file.suffix in (".cpp", ".h")]
    sources = "".join(file.read_text() for file in files)
    lost = {name for name in documented_names() if f'"{name}"' not in sources}
    require(not lost, "docs/metrics.md names what no source counts", lost)


def check_rules(prometheus: Prometheus, known: set[str]) -> None:
    rules = [rule for group in prometheus.answer("rules")["groups"] for rule in group["rules"]]
    require(len(rules) == 8, "rules", rules)
    for rule in rules:
        require(rule["health"] == "ok", "a rule cannot be evaluated", rule)
        names = set(re.findall(r"darkroom_[a-z0-9_]+", rule["query"]))
        require(names <= known, "a rule of metrics that nobody has", rule["name"], names - known)


class Targets:
    """A file that tells Prometheus of processes as they come."""

    def __init__(self, folder: pathlib.Path):
        self.path = folder / "targets.json"
        self.known: list[dict] = []
        self.write()

    def write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.known))
        new.replace(self.path)

    def add(self, job: str, address: str) -> None:
        self.known.append({"targets": [address], "labels": {"job": job}})
        self.write()


def await_answer(prometheus: Prometheus, expression: str) -> None:
    prometheus.await_all([("", "", expression)])


def every_panel_finds_what_it_asks_for() -> None:
    program_of("prometheus")
    library = PROGRAM.resolve().parent / "tests" / "fake_management"
    if not library.exists():
        raise Skipped("the stand-in of NVIDIA's management library is not built (core_test)")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library)}
    with Workbench(NUM_ROWS) as bench, LoopbackWeb(bench.path("corpus")) as web, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        targets, ray = Targets(pathlib.Path(folder)), RayStandIn()
        stack.callback(ray.close)
        prometheus = Prometheus(pathlib.Path(folder), [job_of_files("darkroom", targets.path), static_job("ray", [f"127.0.0.1:{ray.server_port}"])])
        stack.callback(prometheus.close)
        table = bench.write_url_table(web.port)
        observed = ["--metrics-port", "0", *PRICE]
        os.remove(next(pathlib.Path(bench.path("corpus"), "pictures").iterdir()))  # A row that fails.
        download = Orders("download", bench.path("images"), "--metadata", table, "--rows-per-file", "4", "--allow-private", f"127.0.0.1/32:{web.port}", *observed, environment=environment)
        stack.callback(download.end)
        targets.add("darkroom-data", left_address(bench.path("images")))
        images = [download.ask(0)]
        await_answer(prometheus, "darkroom_fetch_seconds_count > 0")  # What comes behind the first look is a rate.
        images += [download.ask(item) for item in range(1, 4)]
        require(sum(answer["rows_out"] for answer in images) == NUM_ROWS - 1, "rows", images)
        process = Orders("process", bench.path("images"), bench.path("latents"), "--model", bench.model, "--resolution", "64", "--rows-per-file", "4", *observed, environment=environment)
        stack.callback(process.end)
        targets.add("darkroom-data", left_address(bench.path("latents")))
        for item in range(process.first["items"]):
            process.ask(item)
        recipe = ["recipes/tiny.toml", "--model", bench.model, "--set", "batch.global=4", "--set", "batch.micro=4", "--set", "data.resolution=64", "--set", "checkpoint.every_steps=0", "--set", "samples.every_steps=0"]
        stack.enter_context(started("train", *recipe, "--data", bench.path("latents"), "--output", bench.path("run"), "--max-steps", "1000000", "--tflops", "1", *observed, environment=environment))
        targets.add("darkroom-train", left_address(bench.path("run")))
        _, errors = stack.enter_context(started("serve", bench.model, "--port", "0", *PRICE, environment=environment))
        endpoint = served_at(errors)
        targets.add("darkroom-serve", endpoint)
        await_answer(prometheus, "count(darkroom_job_rows_done == darkroom_job_rows) == 2")  # Before that "Rows done" finds a number, too, of a scrape before the end.
        found = prometheus.await_all(queries(), meanwhile=lambda: paint(endpoint))
        print(f"        {len(found)} queries of {len(DASHBOARDS)} dashboards")
        check_numbers(prometheus, found)
        check_top(bench, endpoint)
        stack.close()  # Before the folder goes.


def check_top(bench: Workbench, endpoint: str) -> None:
    """The same processes in a terminal view, found by their folders."""
    text = run("top", bench.path("images"), bench.path("latents"), bench.path("run"), endpoint, "--once").stdout
    for words in ("machine: processors ", "GPU 1: ", "download at ", "http_404 1", "process at ", "\n  encode ", "train at ", ", rank 0 of 1  up ", " of 1000000  loss ", "  goodput ", "serve at ", "  requests: 200 "):
        require(words in text, "top lacks", words, text)


def check_zero_is_a_line_of_nobody(prometheus: Prometheus, found: dict) -> None:
    """Of what counts from the first time on: a line at 0 until then, and after it the lines of those that count alone."""
    query = next(query for dashboard, title, query in found if (dashboard, title) == ("cluster", "Workers lost and replaced"))
    for asked, want in ((query, {"download"}), (query.replace("restarts", "of_nobody"), {None})):
        verbs = {series["metric"].get("verb") for series in prometheus.answer("query", query=asked)["result"]}
        require(verbs == want, "lines of", asked, verbs)


def check_numbers(prometheus: Prometheus, found: dict) -> None:
    by_title = {(dashboard, title): result for (dashboard, title, _), result in found.items()}
    done = {series["value"] for series in by_title["data_plane", "Rows done"]}
    require(done == {1.0}, "all rows are done", done)
    require({series["metric"]["code"] for series in by_title["data_plane", "Rows without a result, by code"]} == {"http_404"}, "codes", by_title)
    require({series["metric"]["gpu"] for series in by_title["training", "Memory of GPUs"]} == {"0", "1"}, "GPUs", by_title)
    shares = {series["metric"]["phase"]: series["value"] for series in by_title["training", "What a step goes into"]}
    require(set(shares) == {"data_wait", "forward", "backward", "update", "device_wait"}, "phases", shares)
    names = set(prometheus.answer("label/__name__/values"))
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name in names if name.startswith("darkroom_")}
    require(ours <= documented_names(), "docs/metrics.md lacks", ours - documented_names())
    check_rules(prometheus, names)
    check_zero_is_a_line_of_nobody(prometheus, found)


if __name__ == "__main__":
    main([every_documented_name_is_counted_by_a_source, the_committed_dashboards_are_those_of_the_script, every_query_names_a_variable_that_the_dashboard_has, promtool_takes_the_configuration, panels_of_a_cluster_ask_for_names_that_its_jobs_show, a_prometheus_that_opens_its_store_is_asked_again, names_of_jobs_are_documented, each_alert_fires_for_what_it_is_about_and_for_nothing_else, workers_lost_are_those_of_all_jobs_in_the_time_shown, a_steps_phases_add_up_to_it_on_a_gpu_and_on_a_cpu, every_panel_finds_what_it_asks_for])
