#!/usr/bin/env python3
"""Jobs on a cluster that has a head without CPUs and an autoscaler: nodes come for what is asked for, do it, and leave when nobody holds them. The
autoscaler is Ray's own, and brings nodes to this machine (tests/integration/ray_cluster.py).

usage: ray_autoscale.py
"""

import atexit
import collections
import contextlib
import functools
import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

import ray_bench  # noqa: E402
from ray_bench import cluster_of_script, hold, parts_in, programs  # noqa: E402
from workbench import LoopbackWeb, Workbench, digests, main, read_losses, require, run  # noqa: E402

PATIENCE = 3 * ray_bench.PATIENCE  # A node that does not start, as happens beside compilers, is missed after a minute and brought again.
NUM_PICTURES = 24
ROWS_PER_FILE = 4
TYPES = {
    "fetch": {"resources": {"CPU": 2}, "max_workers": 2},
    "encode": {"resources": {"CPU": 2, "encoder": 2}, "labels": {"role": "encoder"}, "max_workers": 2},
    "train": {"resources": {"CPU": 2, "trainer": 2}, "labels": {"role": "trainer"}, "max_workers": 1},
}

the_cluster = cluster_of_script({"DARKROOM_TEST_AUTOSCALING": json.dumps(TYPES)}, kinds=("head",))


@functools.cache
def the_bench() -> Workbench:
    bench = Workbench(NUM_PICTURES)
    atexit.register(bench.__exit__)
    bench.write_image_dataset("images", ROWS_PER_FILE)
    return bench


def nodes_there() -> dict[str, int]:
    """How many of each type there are."""
    return dict(collections.Counter(labels["ray.io/node-group"] for labels in the_cluster().nodes() if "ray.io/node-group" in labels))


def wait_for_nodes(want: dict[str, int]) -> float:
    """The seconds until these are there, and no others."""
    begin = time.monotonic()
    while (found := nodes_there()) != want:
        require(time.monotonic() - begin < PATIENCE, "other nodes than", want, found)
        time.sleep(0.2)
    return time.monotonic() - begin


@contextlib.contextmanager
def driver_of(*arguments):
    """A command that holds no node any more once it is left."""
    driver = the_cluster().start(*arguments)
    try:
        yield driver
    finally:
        driver.process.kill()
        driver.process.wait()


def what_no_node_will_have_is_refused() -> None:
    bench = the_bench()
    for flags, words in ((["--resources", "encoder=2", "--num-encoders", "3"], "the cluster has room for 2 encoders of the 3"), (["--label", "role=none"], "nodes have role=encoder, trainer")):
        said = the_cluster().run("process", bench.path("images"), bench.path("refused"), "--model", bench.model, *flags, expect=2)
        require(words in said, "the sentence is missing", words, said)
    require(nodes_there() == {}, "nodes came for what was refused")


def encoders_wait_for_nodes_and_nodes_leave_behind_them() -> None:
    bench = the_bench()
    flags = ["--model", bench.model, "--resolution", "64", "--rows-per-file", ROWS_PER_FILE]
    run("process", bench.path("images"), bench.path("latents"), *flags)
    output = bench.path("c-latents")
    with driver_of("process", bench.path("images"), output, *flags, "--num-encoders", "2", "--resources", "encoder=2", "--items-per-task", "1", "--json-summary", bench.path("summary.json")) as driver:
        found = driver.wait_for(lambda: next(filter(hold, programs("process", output)), 0), "a program at work", PATIENCE)  # The first one looks what is to do: without it the job stands.
        driver.wait_for(lambda: nodes_there() == {"encode": 2}, "a node for each encoder", PATIENCE)
        os.kill(found, signal.SIGCONT)
        driver.finish(patience=PATIENCE)
    require(digests(output, "part-*.parquet") == digests(bench.path("latents"), "part-*.parquet"), "parts differ from those of the single program")
    about = json.loads(pathlib.Path(bench.path("summary.json")).read_text())["process"]["cluster"]
    require(about["restarts"] == 0 and about["items"] == NUM_PICTURES // ROWS_PER_FILE, "what the cluster did", about)
    print(f"        the nodes left {wait_for_nodes({}):.1f} s after the job", flush=True)


def a_node_leaves_while_the_driver_holds_nothing_of_it() -> None:
    bench = the_bench()
    with LoopbackWeb(bench.path("corpus")) as web:
        flags = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", ROWS_PER_FILE, "--allow-private", f"127.0.0.1/32:{web.port}"]
        run("download", bench.path("fetched"), *flags)
        output = bench.path("c-fetched")
        with driver_of("download", output, *flags, "--num-tasks", "2", "--num-cpus-per-task", "2", "--items-per-task", "1") as driver:
            held = driver.wait_for(lambda: parts_in(output) and next(filter(hold, programs("download", "--items", output)), 0), "a task at work", PATIENCE)
            driver.wait_for(lambda: parts_in(output) >= NUM_PICTURES // ROWS_PER_FILE - 1, "all but one item", PATIENCE)
            driver.wait_for(lambda: nodes_there() == {"fetch": 1}, "the end of the node that nobody needs", PATIENCE)
            os.kill(held, signal.SIGCONT)
            driver.finish(patience=PATIENCE)
    require(digests(output, "part-*.parquet") == digests(bench.path("fetched"), "part-*.parquet"), "parts differ from those of the single program")
    wait_for_nodes({})


def ranks_and_their_encoders_wait_for_nodes() -> None:
    bench = the_bench()
    settings = ["batch.global=4", "batch.micro=2", "runtime.watchdog_seconds=300", "checkpoint.every_steps=100", "schedule.max_steps=6", "samples.every_steps=0"]
    common = ["recipes/tiny.toml", "--raw-data", bench.path("images"), "--model", bench.model, *(word for one in settings for word in ("--set", one))]
    run("train", *common, "--output", bench.path("here"))
    output = bench.path("c-online")
    with driver_of("online", *common, "--output", output, "--label", "role=trainer", "--num-encoders", "2", "--encoder-resources", "encoder=2", "--json-summary", bench.path("summary.json")) as driver:
        driver.finish(patience=PATIENCE)
    require(read_losses(output) == read_losses(bench.path("here")), "losses differ from those of one program")
    about = json.loads(pathlib.Path(bench.path("summary.json")).read_text())["train"]["cluster"]
    require(about["encoders_lost"] == 0 and about["ranks"] == [1], "what the cluster did", about)
    print(f"        the nodes left {wait_for_nodes({}):.1f} s after the run", flush=True)


if __name__ == "__main__":
    main(
        [
            what_no_node_will_have_is_refused,
            encoders_wait_for_nodes_and_nodes_leave_behind_them,
            a_node_leaves_while_the_driver_holds_nothing_of_it,
            ranks_and_their_encoders_wait_for_nodes,
        ]
    )
