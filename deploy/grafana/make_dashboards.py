#!/usr/bin/env python3
"""Writes the dashboards of this folder: data_plane.json, training.json, endpoint.json, cluster.json (docs/metrics.md, Dashboards).

  make_dashboards.py [FOLDER]

Needs nothing but Python. What is committed is what it writes; tests/integration/dashboards_test.py holds one against the other.
"""

import json
import pathlib
import sys

SCHEMA_VERSION = 39  # Of Grafana 10.4 and later, which bring older ones up to date by themselves.
COLUMNS = 24
WIDTH, HEIGHT = 8, 7
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WAIT = ', phase=~"data_wait|device_wait"'
NO_STEP_OR_WAIT = ', phase!~"step|data_wait|device_wait"'
HERE = 'instance=~"$instance"'


def target(expression: str, legend: str, letter: str) -> dict:
    return {"refId": letter, "datasource": DATASOURCE, "expr": expression, "legendFormat": legend, "editorMode": "code", "range": True}


def panel(title: str, unit: str, *queries: tuple[str, str], kind: str = "timeseries", about: str = "") -> dict:
    """A graph of queries with their legends; `unit` is Grafana's name of it."""
    targets = [target(expression, legend, chr(ord("A") + i)) for i, (expression, legend) in enumerate(queries)]
    made = {"title": title, "type": kind, "datasource": DATASOURCE, "targets": targets, "fieldConfig": {"defaults": {"unit": unit}, "overrides": []}}
    if about:
        made["description"] = about
    if kind == "timeseries":
        made["options"] = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return made


def rate(metric: str, by: str, labels: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{HERE}{labels}}}[$__rate_interval]))"


def with_label(name: str, value: str) -> str:
    return f', {name}="{value}"'


def quantile(share: float, histogram: str, by: str = "") -> str:
    return f"histogram_quantile({share}, sum by (le{by}) (rate({histogram}_bucket{{{HERE}}}[$__rate_interval])))"


def state_share(state: str) -> str:
    return f"{rate('darkroom_stage_seconds_total', 'stage', with_label('state', state))} / {rate('darkroom_stage_seconds_total', 'stage')}"


def machine_panels() -> list[dict]:
    """Of every dashboard: what the processes and their machines take, and what they cost."""
    return [
        panel("Processors at work", "percentunit", (f"{rate('darkroom_host_cpu_seconds_total', 'instance', with_label('state', 'busy'))} / {rate('darkroom_host_cpu_seconds_total', 'instance')}", "machine of {{instance}}")),
        panel("Processors of the process", "none", (rate("darkroom_process_cpu_seconds_total", "instance"), "{{instance}}"), (rate("darkroom_children_cpu_seconds_total", "instance"), "decoders and ranks of {{instance}}")),
        panel("Memory", "bytes", (f"darkroom_process_resident_bytes{{{HERE}}}", "{{instance}}"), (f"darkroom_host_memory_bytes{{{HERE}}} - darkroom_host_memory_available_bytes{{{HERE}}}", "machine of {{instance}}")),
        panel("GPUs at work", "percentunit", (f"darkroom_gpu_utilization{{{HERE}}}", "{{instance}} GPU {{gpu}}")),
        panel("Memory of GPUs", "percentunit", (f"darkroom_gpu_memory_used_bytes{{{HERE}}} / darkroom_gpu_memory_bytes{{{HERE}}}", "{{instance}} GPU {{gpu}}")),
        panel("Cost so far", "currencyUSD", (f"sum(darkroom_cost_dollars{{{HERE}}})", "dollars"), kind="stat", about="Of the processes that were started with --price-per-hour."),
    ]


def data_plane() -> list[dict]:
    return [
        panel("Rows done", "percentunit", (f"sum by (instance) (darkroom_job_rows_done{{{HERE}}}) / sum by (instance) (darkroom_job_rows{{{HERE}}})", "{{instance}}"), kind="stat"),
        panel("Rows per second by stage", "rowsps", (rate("darkroom_rows_total", "stage"), "{{stage}}")),
        panel("Bytes per second by stage", "Bps", (rate("darkroom_bytes_total", "stage"), "{{stage}}")),
        panel("Stages at work", "percentunit", (state_share("busy"), "{{stage}}"), about="The stage that sets the pace is near 1."),
        panel("Stages blocked by a full output", "percentunit", (state_share("blocked"), "{{stage}}")),
        panel("Stages starved by an empty input", "percentunit", (state_share("starved"), "{{stage}}")),
        panel("Items that wait for a stage", "none", (f"sum by (stage) (darkroom_queue_items{{{HERE}}})", "{{stage}}")),
        panel("Rows without a result, by code", "rowsps", (rate("darkroom_row_errors_total", "code"), "{{code}}")),
        panel("Time of a fetch", "s", (quantile(0.5, "darkroom_fetch_seconds"), "half"), (quantile(0.95, "darkroom_fetch_seconds"), "95 %")),
        panel("HTTP exchanges by their end", "reqps", (rate("darkroom_http_requests_total", "result"), "{{result}}")),
        panel("HTTP exchanges on the wire", "none", (f"sum by (instance) (darkroom_http_active{{{HERE}}})", "{{instance}}")),
        panel("Received", "Bps", (rate("darkroom_http_received_bytes_total", "instance"), "{{instance}}")),
        *machine_panels(),
    ]


def training() -> list[dict]:
    of = lambda metric, by="instance": f"max by ({by}) ({metric}{{{HERE}}})"  # noqa: E731: of one rank, whose numbers these are.
    spent = lambda labels: f"rate(darkroom_train_phase_seconds_total{{{HERE}{labels}}}[$__rate_interval])"  # noqa: E731
    idle = f'darkroom_train_phase_seconds_total{{{HERE}, phase="device_idle"}}'
    parts = f"{spent(NO_STEP_OR_WAIT)} or ({spent(WAIT)} unless on (instance) {idle})"  # A GPU's program waits beside its phases.
    phases = f'sum by (phase) ({parts}) / on() group_left sum(rate(darkroom_train_phase_seconds_total{{{HERE}, phase="step"}}[$__rate_interval]))'
    return [
        panel("Steps done", "percentunit", (f"max(darkroom_train_step{{{HERE}}}) / max(darkroom_train_last_step{{{HERE}}})", "of the run"), kind="stat"),
        panel("Images per second", "none", (f"sum(rate(darkroom_train_images_total{{{HERE}}}[$__rate_interval]))", "all ranks"), (f"max(darkroom_train_images_per_second{{{HERE}}})", "over the last steps")),
        panel("MFU", "percentunit", (of("darkroom_train_mfu"), "{{instance}}"), about="Share of the peak, which is --tflops or was measured at the start."),
        panel("Loss", "none", (f"max(darkroom_train_loss{{{HERE}}})", "loss")),
        panel("Norm of the gradient", "none", (f"max(darkroom_train_grad_norm{{{HERE}}})", "before clipping")),
        panel("Learning rate", "sci", (f"max(darkroom_train_learning_rate{{{HERE}}})", "learning rate")),
        panel("Goodput", "percentunit", (f"max(darkroom_train_goodput{{{HERE}}})", "goodput"), about="Share of training in the time that the run was not away, earlier starts included."),
        panel("What the wall time went into", "s", (of("darkroom_train_spent_seconds", "spending"), "{{spending}}")),
        panel("What a step goes into", "percentunit", (phases, "{{phase}}"), about="Waiting for data should be near 0; on a GPU, where the phases are by its own clock, its idling."),
        panel("Floating-point operations", "none", (of("darkroom_train_flop_per_second"), "{{instance}} per second")),
        panel("Peak memory of a rank's tensors", "bytes", (of("darkroom_train_peak_memory_bytes"), "{{instance}}")),
        panel("Steps left out", "none", (f"sum(increase(darkroom_train_skipped_steps_total{{{HERE}}}[$__rate_interval]))", "not finite")),
        *machine_panels(),
    ]


def endpoint() -> list[dict]:
    return [
        panel("Requests by status", "reqps", (rate("darkroom_serve_requests_total", "status"), "{{status}}")),
        panel("Time to a reply", "s", (quantile(0.5, "darkroom_serve_seconds"), "half"), (quantile(0.95, "darkroom_serve_seconds"), "95 %")),
        panel("Time to a reply by route, 95 %", "s", (quantile(0.95, "darkroom_serve_seconds", ", route"), "{{route}}")),
        panel("Orders by result", "ops", (rate("darkroom_serve_orders_total", "result"), "{{result}}")),
        panel("Pictures per second", "none", (f"sum(rate(darkroom_serve_pictures_total{{{HERE}}}[$__rate_interval]))", "pictures")),
        panel("Pictures in a network call", "none", (f"sum(rate(darkroom_serve_steps_total{{{HERE}}}[5m])) / sum(rate(darkroom_serve_calls_total{{{HERE}}}[5m]))", "mean")),
        panel("Open cost", "none", (f"sum by (instance) (darkroom_serve_open_cost{{{HERE}}})", "{{instance}}"), about="Pixels times steps that open requests still need; above --queue-cost requests get 429."),
        panel("Refused for want of room", "percentunit", (f'sum(rate(darkroom_serve_requests_total{{{HERE}, status="429"}}[5m]) or vector(0)) / sum(rate(darkroom_serve_requests_total{{{HERE}}}[5m]))', "429")),
        *machine_panels(),
    ]


def cluster() -> list[dict]:
    """Of Ray's own metrics ports, which put `ray_` before every name."""
    of_ray = lambda name, by: rate(f"ray_darkroom_ray_{name}", by)  # noqa: E731
    last = lambda name, by: f"max by ({by}) (ray_darkroom_ray_{name}{{{HERE}}})"  # noqa: E731
    of_drivers = lambda name: f"sum by (verb) (ray_darkroom_ray_{name}{{{HERE}}})"  # noqa: E731: each has a series of its own.
    # What each driver has counted in the range shown: a series begins with the first loss, of which increase() would know nothing.
    restarts = f"ray_darkroom_ray_restarts_total{{{HERE}}}"
    most = f"max_over_time({restarts}[$__range])"
    lost = f"sum by (verb) ({most} - ({restarts} offset $__range or 0 * {most}))"
    return [
        panel("Rows per second", "rowsps", (of_ray("rows_total", "verb"), "{{verb}}"), about="Input rows of committed items."),
        panel("Bytes of parts per second", "Bps", (of_ray("bytes_total", "verb"), "{{verb}}")),
        panel("Rows without a result, by code", "rowsps", (of_ray("row_errors_total", "code"), "{{code}}")),
        panel("Items committed per second", "ops", (of_ray("items_total", "verb"), "{{verb}}")),
        panel("Items to do", "none", (of_drivers("open_items"), "{{verb}}")),
        panel("Tasks and encoders", "none", (of_drivers("workers"), "{{verb}}")),
        panel("Workers lost and replaced", "none", (f"{lost} or on() vector(0)", "{{verb}}"), about="Of all jobs, within a time as long as the one shown. Ray shows no counter before it counts."),
        panel("Open cost of a replica by its target", "none", (last("serve_load", "application, WorkerId"), "{{application}} {{WorkerId}}"), about="Above 1 another replica is wanted."),
        panel("Step", "none", (last("train_step", "instance"), "{{instance}}")),
        panel("Loss", "none", (last("train_loss", "instance"), "{{instance}}"), about="Of a run on a store a running mean."),
        panel("Images per second", "none", (last("train_images_per_second", "instance"), "{{instance}}")),
        panel("Goodput", "percentunit", (last("train_goodput", "instance"), "{{instance}}"), about="Of runs on a disk."),
    ]


def placed(panels: list[dict]) -> list[dict]:
    for number, one in enumerate(panels):
        one["id"] = number + 1
        one["gridPos"] = {"h": HEIGHT, "w": WIDTH, "x": number * WIDTH % COLUMNS, "y": number * WIDTH // COLUMNS * HEIGHT}
    return panels


def dashboard(uid: str, title: str, panels: list[dict], known_by: str) -> dict:
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0, "includeAll": False, "multi": False},
        {"name": "instance", "label": "Process", "type": "query", "datasource": DATASOURCE, "query": {"query": f"label_values({known_by}, instance)", "refId": "instance"},
         "refresh": 2, "includeAll": True, "allValue": ".*", "multi": True, "hide": 0, "sort": 1, "current": {"text": "All", "value": "$__all"}},
    ]
    return {"uid": uid, "title": title, "tags": ["darkroom"], "schemaVersion": SCHEMA_VERSION, "editable": True, "graphTooltip": 1, "refresh": "10s", "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser", "templating": {"list": variables}, "annotations": {"list": []}, "panels": placed(panels)}


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent
    for name, title, panels, known_by in (
        ("data_plane", "Darkroom: data plane", data_plane(), "darkroom_rows_total"),
        ("training", "Darkroom: training", training(), "darkroom_train_step"),
        ("endpoint", "Darkroom: endpoint", endpoint(), "darkroom_serve_pictures_total"),
        ("cluster", "Darkroom: jobs of a Ray cluster", cluster(), '{__name__=~"ray_darkroom_ray_.*"}'),
    ):
        made = dashboard(f"darkroom-{name.replace('_', '-')}", title, panels, known_by)
        (folder / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
