"""Debian's Prometheus beside a pipeline on a cluster: it scrapes Ray's nodes and the programs of every stage while these are at work, and every
panel of deploy/grafana must find a number. A stage may be over before anybody has looked: so that what is judged is what can be seen and not how
fast a machine is, the web lets pictures go one by one and a program of each stage is held until its neighbour was scraped."""

import contextlib
import functools
import json
import os
import pathlib
import signal
import threading
import time

from harness import LoopbackWeb, require

from ports import free_port
from prometheus import DASHBOARDS, PATIENCE, Prometheus, Query, job_of_files, paint, program_of, queries
from ray_bench import Driver, RayCluster, hold, programs
from workbench import PROGRAM

STAND_IN = PROGRAM.resolve().parent / "tests" / "fake_management"  # Of NVIDIA's management library; made with core_test.
PANELS_OF_GPUS = ("GPUs at work", "Memory of GPUs")
ERRORS = "rate(darkroom_row_errors_total[1m])"
FETCHES = "histogram_quantile(0.5, sum by (le) (rate(darkroom_fetch_seconds_bucket[1m])))"
CHAIN_PATIENCE = 3600  # The same, for seven stages beside compilers.
LOOK_SECONDS = 0.2
HELD_STEPS = (2, 4)  # After which a rank is held: between two looks there are steps.
VERBS = ("download", "process", "train", "encoder", "serve")  # That the chain and the endpoint start on the nodes.


class GatedWeb(LoopbackWeb):
    """Each picture waits until somebody lets it go; later all go. That one is not there is said at once."""

    def __init__(self, folder: str):
        super().__init__(folder)
        self.to_go = threading.Semaphore(0)
        self.is_open = threading.Event()
        of_loopback, web = self.server.RequestHandlerClass.func, self

        class Handler(of_loopback):
            def do_GET(self) -> None:
                is_there = os.path.exists(self.translate_path(self.path))
                while is_there and not web.is_open.is_set() and not web.to_go.acquire(timeout=LOOK_SECONDS):
                    pass
                super().do_GET()

        self.server.RequestHandlerClass = functools.partial(Handler, directory=folder)


def environment_to_watch() -> dict[str, str]:
    """Of the nodes and their programs: Ray's dashboard, whose part it is to say where the nodes' numbers are; machines with two GPUs, as the
    management library's stand-in has them. Ray gives a proxy five seconds to start, which is too few beside compilers."""
    gpus = {"LD_LIBRARY_PATH": str(STAND_IN)} if STAND_IN.exists() else {}
    return {"DARKROOM_TEST_DASHBOARD": "1", "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": str(PATIENCE), **gpus}


def wanted_queries() -> list[Query]:
    if STAND_IN.exists():
        return queries()
    print(f"        without {', '.join(PANELS_OF_GPUS)}: the stand-in of NVIDIA's management library is not built (core_test), and there is no GPU", flush=True)
    return [one for one in queries() if one[1] not in PANELS_OF_GPUS]


def rank_of(pid: int) -> int:
    """-1: it has gone."""
    with contextlib.suppress(OSError):
        for word in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if word.startswith(b"RANK="):
                return int(word[5:])
    return -1


@contextlib.contextmanager
def held(pid: int):
    """REQUIRES: hold(pid) held it."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Watch:
    """REQUIRES: a cluster with environment_to_watch(). Errors: Skipped: there is no Prometheus."""

    def __init__(self, folder: pathlib.Path, cluster: RayCluster) -> None:
        program_of("prometheus")
        self.cluster = cluster
        self.stages, self.endpoint = folder / "stages", folder / "endpoint"  # --metrics-folder of the pipeline's stages and of the service.
        place = folder / "prometheus"
        for made in (self.stages, self.endpoint, place):
            made.mkdir()
        jobs = [job_of_files("darkroom-cluster", self.stages / "targets.json", self.endpoint / "targets.json"), job_of_files("ray", pathlib.Path(cluster.folder, "ray", "prom_metrics_service_discovery.json"))]
        self.prometheus = Prometheus(place, jobs)

    def close(self) -> None:
        self.prometheus.close()

    def _sees(self, expression: str):
        time.sleep(LOOK_SECONDS)
        return self.prometheus.graph(expression)

    def _await(self, driver: Driver, expression: str) -> None:
        driver.wait_for(lambda: self._sees(expression), f"a number of {expression}", CHAIN_PATIENCE)

    def _scrapes(self, verb: str) -> float:
        return max((series["value"] for series in self.prometheus.graph(f'sum(count_over_time(up{{verb="{verb}"}}[1h]))')), default=0.0)

    def feed_download(self, driver: Driver, web: GatedWeb) -> None:
        """A picture a scrape, until there are rates of fetches and of the row that fails."""
        scrapes = 0.0

        def is_seen() -> bool:
            nonlocal scrapes
            now = self._scrapes("download")
            if now > scrapes:
                scrapes = now
                web.to_go.release()
            return bool(self._sees(FETCHES) and self._sees(ERRORS))

        driver.wait_for(is_seen, "the time of a fetch", CHAIN_PATIENCE)
        web.is_open.set()

    def hold_process(self, driver: Driver, images: str) -> None:
        """One of two encoders keeps the job from its end until the other one was scraped. The first one alone plans the job."""
        pid = driver.wait_for(lambda: next((pid for pid in both if hold(pid)), 0) if len(both := programs("process", images)) == 2 else 0, "the programs of two encoders", CHAIN_PATIENCE)
        with held(pid):
            self._await(driver, 'up{verb="process"} == 1')

    def hold_train(self, driver: Driver, output: str) -> None:
        """Rank 1 stands twice, and rank 0 with it, until its steps were scraped and Ray has heard of them."""
        for step in HELD_STEPS:
            pid = driver.wait_for(lambda: self._num_lines(output) >= step and next((pid for pid in programs("train", output) if rank_of(pid) == 1 and hold(pid)), 0), f"rank 1 behind step {step}", CHAIN_PATIENCE)
            with held(pid):
                self._await(driver, f"darkroom_train_step >= {step}")
                self._await(driver, f"ray_darkroom_ray_train_step >= {HELD_STEPS[0]}")

    @staticmethod
    def _num_lines(output: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            return len(pathlib.Path(output, "metrics.jsonl").read_bytes().splitlines())
        return 0

    def hold_online(self, driver: Driver, output: str) -> None:
        """The rank stands until an encoder was scraped."""
        pid = driver.wait_for(lambda: next(filter(hold, programs("train", output)), 0), "the rank of online", CHAIN_PATIENCE)
        with held(pid):
            self._await(driver, 'up{verb="encoder"} == 1')

    def follow(self, driver: Driver, web: GatedWeb, out: str) -> None:
        """The pipeline's stages, one after the other."""
        self.feed_download(driver, web)
        self.hold_process(driver, f"{out}/images")
        self.hold_train(driver, f"{out}/run-64")
        self.hold_online(driver, f"{out}/run-online")

    def judge(self, model: str) -> None:
        """Behind the pipeline: an endpoint on the same cluster, and every panel."""
        port = free_port()
        service = self.cluster.start("serve", model, "--port", port, "--threads", "1", "--num-cpus-per-task", "0.25", "--resources", "cpu=0.1", "--metrics-folder", self.endpoint)  # On the head, whose proxy has the port: the nodes are one machine.
        try:
            service.wait_for(lambda: "serving at" in service.words(), "the endpoint")
            found = self.prometheus.await_all(wanted_queries(), meanwhile=lambda: paint(f"127.0.0.1:{port}"))
        finally:
            service.process.send_signal(signal.SIGTERM)
            service.process.wait(PATIENCE)
        unseen = [verb for verb in VERBS if not self.prometheus.graph(f'up{{verb="{verb}"}} == 1')]
        require(not unseen, "programs that were never scraped", unseen)
        print(f"        {len(found)} queries of {len(DASHBOARDS)} dashboards find numbers on the cluster", flush=True)
