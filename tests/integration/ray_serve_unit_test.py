#!/usr/bin/env python3
"""`darkroom-ray serve` without Ray: what it refuses, whose application is deleted, the program behind a replica, how many there are.

usage: ray_serve_unit_test.py
"""

import contextlib
import dataclasses
import io
import re
import sys
import threading
import types
import unittest.mock

from cases import main, require, temporary_folder
from ray_units import PATIENCE, ROOT, asked, fake_modules, item_request, node, refusal_of

from darkroom_ray import item_job, places, preflight, program, serve_child, serve_scaling, serving, stopping  # noqa: E402
from darkroom_ray.flags import Refused, read_request  # noqa: E402
from darkroom_ray.request import Service  # noqa: E402


def a_service_is_asked_for_with_flags_of_its_own() -> None:
    request = read_request("serve", ["models/tiny", "--min-replicas", "2", "--max-replicas", "5", "--port", "80", "--host", "10.0.0.1", "--keys", "k", "--target-cost", "7e6", "--max-batch", "4"], "/")
    require(list(request.arguments) == ["models/tiny", "--keys", "k", "--max-batch", "4"], "words of the program", request.arguments)
    require((request.num_workers, request.service) == (2, Service("10.0.0.1", 80, 5, 7e6)), "the service", request)
    require(read_request("serve", ["m", "--min-replicas", "3"], "/").service.max_replicas == 3, "as many as the least")
    for words, sentence in ((["m", "--min-replicas", "3", "--max-replicas", "2"], "less than --min-replicas 3"), (["m", "--port", "0"], "--port must be at least 1"), (["m", "--min-replicas", "0"], "at least 1")):
        require(sentence in refusal_of(read_request, "serve", words, "/"), "sentence", words)
    require("a replica wants 9 CPUs" in "".join(preflight.check_resources([node("a")], read_request("serve", ["m", "--num-cpus-per-task", "9"], "/"))), "the preflight's word")


def a_service_lets_nobody_in_without_keys() -> None:
    others = read_request("serve", ["m", "--host", "0.0.0.0"], "/")
    require("--keys FILE" in refusal_of(serving.check_service, others, {}), "another host without keys")
    serving.check_service(others, {"--keys": ["k"]})
    for host in ("127.0.0.1", "localhost"):
        serving.check_service(read_request("serve", ["m", "--host", host], "/"), {})


def a_service_has_no_summary() -> None:
    said = refusal_of(read_request, "serve", ["m", "--json-summary", "s.json"], "/")
    require("leave --json-summary out" in said, "the refusal", said)
    said = refusal_of(serving.check_service, read_request("serve", ["m"], "/"), {"--json-summary": ["s.json"]})
    require("leave --json-summary out" in said, "of a file of settings", said)


def what_several_servers_do_each_by_itself_is_refused() -> None:
    alone, several = (read_request("serve", ["m", "--max-replicas", number], "/") for number in ("1", "2"))
    for name in ("--rate", "--multi-model"):
        serving.check_service(alone, {name: ["1"]})
        require(f"leave {name} out, or ask for --max-replicas 1" in refusal_of(serving.check_service, several, {name: ["1"]}), "sentence", name)
    for name in ("--tls-cert", "--tls-key"):
        require("leave --tls-cert and --tls-key out" in refusal_of(serving.check_service, alone, {name: ["x"]}), "TLS")


def models_are_looked_at_without_their_names() -> None:
    for word, read, stores in (("own=run/step-1", ["run/step-1"], []), ("own=s3://b/run?region=r", [], ["s3://b/run?region=r"]), ("own=file:///a%20b", ["/a b"], []), ("models/a=b", ["models/a=b"], []), ("=a", ["=a"], []),
                               ("own=a=b", ["a=b"], []), ("own=", [], []), ("s3://b/what=x", [], ["s3://b/what=x"]), ("models/tiny", ["models/tiny"], []), ("own=hf://o/n", [], ["hf://o/n"])):
        found = places.places_of(asked("serve"), {"MODEL": [word]})
        require((found.read, found.read_stores) == (read, stores), "a model", word, found)


def services_of_one_cluster_have_names() -> None:
    usual, named = (read_request("serve", ["m", *words], "/").service for words in ([], ["--name", "sd-2"]))
    require((usual.name, usual.route_prefix) == ("darkroom", "/") and (named.name, named.route_prefix) == ("sd-2", "/sd-2"), "names", usual, named)
    for text in ("a/b", "", "-a"):
        require("letters, digits" in refusal_of(read_request, "serve", ["m", f"--name={text}"], "/"), "a wrong name", text)
    for service in (usual, named):
        require(f"an application {service.name}" in refusal_of(serving.check_name, service, {service.name: 1}), "a name that is taken", service)
    serving.check_name(named, {"darkroom": 1})
    replacing = read_request("serve", ["m", "--replace", "--max-batch", "4"], "/")
    require(replacing.arguments == ("m", "--max-batch", "4"), "a flag without a value", replacing.arguments)
    serving.check_name(replacing.service, {"darkroom": 1})


class RayFault(Exception):
    """Ray's error of anything."""


class Lost(RayFault):
    """Ray's error of a lost actor."""


class TaskFault(RayFault, RuntimeError):
    """Ray's error of a call that has raised a RuntimeError: of its class, too."""

    def __init__(self, cause: RuntimeError) -> None:
        super().__init__(f"ray::ProxyActor.ready() (pid=7)\n  File \"http_util.py\"\nRuntimeError: {cause}")
        self.cause = cause


FAULTS = types.SimpleNamespace(RayError=RayFault, RayActorError=Lost)


class FakeServe:
    """As much of ray.serve as holds applications."""

    def __init__(self, there: set[str], fails: bool) -> None:
        self.applications = set(there)
        self.fails = fails
        self.is_slow = False  # What is asked for is deployed once somebody has deleted it.
        self.start_error: Exception | None = None  # Of its proxies.
        self.is_shut_down = False
        self.deleted, self.deployed = threading.Event(), threading.Event()

    def start(self, http_options: dict) -> None:
        if self.start_error:
            raise self.start_error

    def shutdown(self) -> None:
        self.is_shut_down = True

    def status(self):
        return types.SimpleNamespace(applications=self.applications)

    def run(self, bound, name: str, route_prefix: str, blocking: bool) -> None:
        if self.is_slow:
            self.deleted.wait(PATIENCE)
        self.applications.add(name)
        self.deployed.set()
        if self.fails:
            raise RuntimeError("no room")

    def delete(self, name: str, _blocking: bool) -> None:
        self.applications.discard(name)
        self.deleted.set()


@contextlib.contextmanager
def fake_serve(there: set[str], fails: bool = False, is_claimed: bool = False):
    """serving on a cluster whose Ray Serve has these applications."""
    fake = FakeServe(there, fails)
    claims: list[str] = []

    def claimed(ray, name: str) -> str:
        if is_claimed:
            raise Refused("another command serves it")
        claims.append(name)
        return name

    module = types.ModuleType("ray")
    module.serve = fake
    kept = {name: getattr(serving, name) for name in ("application", "check_proxies", "claimed")}
    serving.application, serving.check_proxies, serving.claimed = lambda request, given: None, lambda request: None, claimed
    try:
        with fake_modules({"ray": module}):
            yield fake, types.SimpleNamespace(kill=claims.remove, exceptions=FAULTS), claims
    finally:
        for name, value in kept.items():
            setattr(serving, name, value)


def proxies_that_do_not_come_to_listen_are_told_of() -> None:
    taken = RuntimeError("Failed to bind to address '127.0.0.1:8080'.")
    for error, there, words in (
        (TaskFault(taken), set(), ("127.0.0.1:8080", "the port is taken", "--port")),
        (taken, {"another"}, ("the port is taken", "--port")),
        (TimeoutError("HTTP proxies not available after 60s."), set(), ("not available after 60s", "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "--port")),
        (Lost("The actor died.\nmore of it"), set(), ("The actor died.", "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "--port")),
    ):
        with fake_serve(there) as (fake, ray, claims):
            fake.start_error = error
            try:
                serving.serve_until_stopped(ray, read_request("serve", ["m"], "/"), {}, None)
            except item_job.JobFailed as failure:
                require(failure.code == 1 and all(word in str(failure) for word in words) and "\n" not in str(failure), "the sentence", error, failure)
            else:
                raise AssertionError("the service goes on")
            require(fake.is_shut_down == (not there), "a Serve without proxies keeps its port; one with applications is another's", there, fake.is_shut_down)
    for error in (RayFault("the head is away"), TaskFault(RuntimeError("no such option"))):
        with fake_serve(set()) as (fake, ray, claims):
            fake.start_error = error
            try:
                serving.serve_until_stopped(ray, read_request("serve", ["m"], "/"), {}, None)
            except RayFault as fault:
                require(fault is error and not fake.is_shut_down, "what says nothing of proxies is told as of any call", fault)


def pods_of_kuberay_leave_the_port_of_serve_free() -> None:
    """KubeRay's own choice for Ray's numbers on each pod is the port of `darkroom-ray serve`."""
    for name in ("kuberay_cluster.yaml", "kuberay_process_job.yaml"):
        text = (ROOT / "deploy" / "ray" / name).read_text(encoding="utf-8")
        groups = len(re.findall(r"^ *(?:- groupName|headGroupSpec):", text, re.MULTILINE))
        params = re.findall(r"rayStartParams: (\*\w+|.*\{.*\})", text)
        require(len(params) == groups > 0, "start parameters of each group", name, params)
        ports = {found for one in params if not one.startswith("*") for found in re.findall(r'metrics-export-port: "(\d+)"', one) or ["none"]}
        require(len(ports) == 1 and ports != {"none"} and int(*ports) != Service().port, "the port of Ray's numbers", name, params)
        lists = re.findall(r"^ *ports: (\*\w+|.*\[.*\])$", text, re.MULTILINE)
        require(len(lists) == groups, "ports of each container", name, lists)
        for one in (one for one in lists if not one.startswith("*")):
            require(re.findall(r"name: metrics, containerPort: (\d+)", one) == list(ports), "where Prometheus looks", name, one)
        head = lists[0]
        # Of a head that names some KubeRay's service has these alone.
        require(all(f"name: {port}" in head for port in ("gcs-server, containerPort: 6379", "dashboard, containerPort: 8265", "client, containerPort: 10001", f"serve, containerPort: {Service().port}")), "the head's", name, head)


def a_ray_without_serve_is_refused() -> None:
    with fake_serve(set()):
        del sys.modules["ray"].serve
        require("pip install" in refusal_of(serving.import_serve), "the sentence")


def a_name_that_another_command_holds_is_refused() -> None:
    taken: set[str] = set()

    def make(name: str) -> str:
        if name in taken:
            raise ValueError(f"the name {name} is taken")
        taken.add(name)
        return name

    context = types.SimpleNamespace(get_node_id=lambda: "n")
    remote = lambda what: types.SimpleNamespace(options=lambda name, **more: types.SimpleNamespace(remote=lambda: make(name)))  # noqa: E731
    ray = types.SimpleNamespace(get_runtime_context=lambda: context, remote=remote)
    strategies = types.SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node_id, soft: None)
    with fake_modules({"ray": ray, "ray.util": types.SimpleNamespace(), "ray.util.scheduling_strategies": strategies}):
        require(serving.claimed(ray, "a") != serving.claimed(ray, "b"), "two names")
        require("another command serves a" in refusal_of(serving.claimed, ray, "a"), "one name twice")


def a_configuration_of_serve_keeps_no_folder() -> None:
    kept, serving.read_arguments = serving.read_arguments, lambda request: {"--keys": ["k"]}
    try:
        require("--metrics-folder is kept by the command" in refusal_of(serving.build, {"words": ["m", "--metrics-folder", "f"]}), "the sentence")
    finally:
        serving.read_arguments = kept


def the_configuration_of_serve_that_is_published_is_taken() -> None:
    published = [(ROOT / "docs" / "cluster.md").read_text(encoding="utf-8"), serving.build.__doc__]
    for text in published:
        found = re.search(r"args: *\{words: *\[([^\]]*)\]", " ".join(text.split()))
        words = [word.strip(' "') for word in found[1].split(",") if word != " ..."]
        with contextlib.ExitStack() as patches:
            patches.enter_context(unittest.mock.patch.object(serving, "application", lambda request, given: request))
            patches.enter_context(unittest.mock.patch.object(serving, "read_arguments", lambda request: {name: ["given"] for name in request.named_flags()}))
            request = serving.build({"words": words})
        require(request.service.max_replicas == 4 and request.arguments[0] == "MODEL", "the request", words, request)


def a_service_deletes_no_other() -> None:
    class Stop:
        def pause(self, seconds: float) -> None:
            if "mine" in fake.applications and not fake.fails:
                raise stopping.Stopped(15)

    request = read_request("serve", ["m", "--name", "mine"], "/")
    with fake_serve({"darkroom", "mine"}) as (fake, ray, claims):
        require("--replace" in refusal_of(serving.serve_until_stopped, ray, request, {}, Stop()), "the name is taken")
        require(fake.applications == {"darkroom", "mine"}, "another's application was deleted", fake.applications)
        require(not claims, "a refused service keeps its claim", claims)
    with fake_serve({"darkroom", "mine"}, is_claimed=True) as (fake, ray, claims):
        require("another command" in refusal_of(serving.serve_until_stopped, ray, request, {}, Stop()), "the claim is another's")
        require(fake.applications == {"darkroom", "mine"}, "another's application was deleted", fake.applications)
    for fails, error in ((True, item_job.JobFailed), (False, stopping.Stopped)):
        with fake_serve({"darkroom"}, fails) as (fake, ray, claims):
            try:
                serving.serve_until_stopped(ray, request, {}, Stop())
            except error:
                pass
            else:
                raise AssertionError("the service ended without a word")
            require(fake.applications == {"darkroom"} and not claims, "its own application and nothing else goes", fake.applications, claims)


def a_service_that_is_ended_while_it_starts_is_gone() -> None:
    class Stop:
        def pause(self, seconds: float) -> None:
            raise stopping.Stopped(15)

    with fake_serve({"darkroom"}) as (fake, ray, claims):
        fake.is_slow = True
        try:
            serving.serve_until_stopped(ray, read_request("serve", ["m", "--name", "mine"], "/"), {}, Stop())
        except stopping.Stopped:
            pass
        require(fake.deployed.wait(PATIENCE) and fake.applications == {"darkroom"} and not claims, "it was deployed behind its end", fake.applications)


def a_service_without_replicas_says_once_what_ray_says_of_it() -> None:
    painting = types.SimpleNamespace(message="1 replicas that\nhave taken more than 30s to be scheduled.")
    found = types.SimpleNamespace(status=types.SimpleNamespace(value="DEPLOYING"), message="", deployments={"painting": painting})
    request = read_request("serve", ["m", "--name", "mine"], "/")
    for seconds, is_quiet in ((0.0, False), (0.0, True), (PATIENCE, False)):
        with fake_serve(set()) as (fake, ray, claims), contextlib.redirect_stderr(io.StringIO()) as heard, unittest.mock.patch.object(serving, "TELL_SECONDS", seconds):
            fake.is_slow = True
            own_status = fake.status
            looks: list[float] = []

            def status_that_comes():
                if not looks or len(looks) == 5:
                    return own_status()
                if len(looks) == 1:
                    raise RayFault("the controller is away")
                return types.SimpleNamespace(applications={"mine": found} if len(looks) > 2 else {})

            def pause(seconds: float) -> None:
                looks.append(seconds)
                if len(looks) == 5:
                    raise stopping.Stopped(15)

            fake.status = status_that_comes
            with contextlib.suppress(stopping.Stopped):
                serving.serve_until_stopped(ray, dataclasses.replace(request, is_quiet=is_quiet), {}, types.SimpleNamespace(pause=pause))
        want = "darkroom-ray: the service waits for its replicas; Ray Serve says: DEPLOYING: 1 replicas that have taken more than 30s to be scheduled.\n"
        require(len(looks) == 5 and heard.getvalue() == ("" if is_quiet or seconds else want), "what is said", is_quiet, seconds, heard.getvalue())


def a_server_that_does_not_listen_is_waited_for_no_longer() -> None:
    with temporary_folder() as folder:
        def child_of(script: str) -> serve_child.ServeChild:
            request = dataclasses.replace(item_request(folder, script), verb="serve", arguments=("m",))
            return serve_child.ServeChild(request)

        listening = child_of("""echo "$@" > words; echo '2026-11-23T12:00:00Z serving m at http://127.0.0.1:4321' >&2; exec sleep 300""")
        require(listening.wait_for_port() == 4321, "the port")
        require("--port 0 --quiet=false m" in (folder / "words").read_text(), "its words", (folder / "words").read_text())
        listening._child.end(9)
        try:
            child_of("echo 'fetching m' >&2; touch said; exec sleep 300").wait_for_port(0.5)
        except TimeoutError as error:
            require("does not listen after 0.5 s" in str(error), "the sentence", error)
        else:
            raise AssertionError("a port came of nothing")
        try:
            child_of("echo 'no model m' >&2; exit 2").wait_for_port()
        except program.ProgramFailed as failure:
            require(failure.code == 2 and "no model m" in failure.said, "its end", failure)
        else:
            raise AssertionError("a port came of nothing")


def replicas_follow_the_open_cost() -> None:
    def wanted(loads: dict | None, target: int = 2) -> float:
        metrics = None if loads is None else {serve_scaling.LOAD: loads}
        return serve_scaling.replicas_for_load(types.SimpleNamespace(aggregated_metrics=metrics, target_num_replicas=target))[0]

    require(wanted(None) == 2 and wanted({}, 3) == 3, "before a replica has told anything the number stays")
    require(wanted({"a": 0.5}) == 0.5 and wanted({"a": 1.5, "b": 2.0}) == 3.5 and wanted({"a": 0.0}) == 0.0, "the sum of the loads")


if __name__ == "__main__":
    main(
        [
            a_service_is_asked_for_with_flags_of_its_own,
            a_service_lets_nobody_in_without_keys,
            a_service_has_no_summary,
            what_several_servers_do_each_by_itself_is_refused,
            models_are_looked_at_without_their_names,
            services_of_one_cluster_have_names,
            proxies_that_do_not_come_to_listen_are_told_of,
            pods_of_kuberay_leave_the_port_of_serve_free,
            a_ray_without_serve_is_refused,
            a_name_that_another_command_holds_is_refused,
            a_configuration_of_serve_keeps_no_folder,
            the_configuration_of_serve_that_is_published_is_taken,
            a_service_deletes_no_other,
            a_service_that_is_ended_while_it_starts_is_gone,
            a_service_without_replicas_says_once_what_ray_says_of_it,
            a_server_that_does_not_listen_is_waited_for_no_longer,
            replicas_follow_the_open_cost,
        ]
    )
