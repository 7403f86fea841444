#!/usr/bin/env python3
"""Holds what the program shows of itself against the formats' own packages: spans of --trace-file against OpenTelemetry's messages, the
dashboards of deploy/grafana against Grafana's models of them.

  observation_parity.py TRACES

TRACES: the folder that tests/integration/trace_test.py wrote into. Runs in .venv-clients (requirements/clients.txt: opentelemetry-proto,
grafana-foundation-sdk). Exits 1 on a difference.
"""
import base64
import copy
import json
import pathlib
import sys

from google.protobuf import json_format
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
IDENTIFIERS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def require(condition: bool, what: str, *values) -> None:
    if not condition:
        raise AssertionError(" ".join([what, *map(str, values)]))


def as_protobuf(line: dict) -> dict:
    """OTLP writes identifiers as hexadecimal digits, where protobuf's own mapping has base64."""
    line = copy.deepcopy(line)
    for resource in line["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in IDENTIFIERS.keys() & span.keys():
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return line


def read_request(line: dict) -> ExportTraceServiceRequest:
    """Refuses a field that OpenTelemetry does not know, and a value of another type."""
    return json_format.ParseDict(as_protobuf(line), ExportTraceServiceRequest())


def lines_of(folder: pathlib.Path) -> list[dict]:
    """After a kill the last line of a file may be torn."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def spans_are_opentelemetrys(folder: pathlib.Path) -> None:
    lines = lines_of(folder)
    num_spans = 0
    for line in lines:
        request = read_request(line)
        for resource in request.resource_spans:
            require(any(entry.key == "service.name" for entry in resource.resource.attributes), "a resource without service.name", line)
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                num_spans += 1
                require(len(span.trace_id) == 16 and len(span.span_id) == 8 and len(span.parent_span_id) in (0, 8), "identifiers of", span)
                require(any(span.trace_id) and any(span.span_id), "an identifier of zeros", span)
                require(0 < span.start_time_unix_nano <= span.end_time_unix_nano, "times of", span)
                require(span.kind == Span.SPAN_KIND_INTERNAL and span.status.code in (Status.STATUS_CODE_UNSET, Status.STATUS_CODE_ERROR), "kind or status of", span)
        require(json.loads(json.dumps(line)) == line, "no JSON of its own", line)
    require(num_spans > 50, "spans", num_spans)
    print(f"  {num_spans} spans in {len(lines)} lines")


def a_field_that_is_not_opentelemetrys_is_noticed(folder: pathlib.Path) -> None:
    for name, value in (("startTime", "1"), ("startTimeUnixNano", "soon"), ("kind", "NO_KIND")):
        line = copy.deepcopy(lines_of(folder)[0])
        line["resourceSpans"][0]["scopeSpans"][0]["spans"][0][name] = value
        try:
            read_request(line)
        except json_format.ParseError:
            continue
        raise AssertionError(f"taken: {name} {value}")


def lost_fields(ours: object, theirs: object, path: str = "") -> list[str]:
    """What Grafana's models do not give back as it was."""
    if isinstance(ours, dict):
        found = []
        for key, value in ours.items():
            known = isinstance(theirs, dict) and key in theirs
            found += lost_fields(value, theirs[key], f"{path}/{key}") if known else [f"{path}/{key}"]
        return found
    if isinstance(ours, list):
        if not isinstance(theirs, list) or len(ours) != len(theirs):
            return [path]
        return [lost for i, (one, other) in enumerate(zip(ours, theirs)) for lost in lost_fields(one, other, f"{path}/{i}")]
    return [] if ours == theirs else [path]


def round_trip(dashboard: dict) -> list[str]:
    return lost_fields(dashboard, json.loads(json.dumps(Dashboard.from_json(copy.deepcopy(dashboard)), cls=JSONEncoder)))


def dashboards_are_grafanas(_folder: pathlib.Path) -> None:
    paths = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
    require(len(paths) == 4, "dashboards", paths)
    for path in paths:
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        require(round_trip(dashboard) == [], path.name, "has fields that Grafana does not know:", round_trip(dashboard))


def a_field_that_is_not_grafanas_is_noticed(_folder: pathlib.Path) -> None:
    dashboard = json.loads((ROOT / "deploy/grafana/training.json").read_text(encoding="utf-8"))
    for place in (dashboard, dashboard["panels"][0], dashboard["panels"][0]["gridPos"], dashboard["templating"]["list"][0]):
        place["colour"] = "red"
        require(len(round_trip(dashboard)) == 1, "not noticed:", place)
        del place["colour"]


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    failed = 0
    checks = [spans_are_opentelemetrys, a_field_that_is_not_opentelemetrys_is_noticed, dashboards_are_grafanas, a_field_that_is_not_grafanas_is_noticed]
    for check in checks:
        try:
            check(folder)
            print(f"  ok      {check.__name__}")
        except AssertionError as error:
            failed += 1
            print(f"  FAILED  {check.__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
