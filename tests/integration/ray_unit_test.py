#!/usr/bin/env python3
"""darkroom-ray without Ray: its flags, what is refused before anything is begun, who does which item.

usage: ray_unit_test.py
"""

import _thread
import concurrent.futures
import contextlib
import dataclasses
import importlib
import io
import itertools
import json
import os
import pathlib
import pickle
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import types
import unittest.mock
from collections.abc import Callable

import cases
import ray_bench
from cases import main, require, temporary_folder
from ray_units import PATIENCE, ROOT, VERSIONS, asked, fake_modules, item_request, node, refusal_of

from darkroom.item_child import read_item_numbers  # noqa: E402
from darkroom_ray import cluster, command, flags, item_child, item_job, item_workers, items, kuberay, nodes, own_folder, places, preflight, prices, probe, program, program_log, progress, room_wait, shares, stopping, summaries, training, verbs  # noqa: E402
from darkroom_ray.flags import read_request  # noqa: E402
from darkroom_ray.preflight import Node, SeenPath  # noqa: E402
from darkroom_ray.request import MARKET_LABEL, Placement, Request, without_secrets  # noqa: E402
from darkroom_ray.stopping import Stopped  # noqa: E402

AT = "2026-11-27T12:00:00Z"  # As a line of the program's log begins.

# -- flags ------------------------------------------------------------------------------------------------------------


def flags_of_the_program_go_through_unchanged() -> None:
    words = ["out", "--metadata", "a.parquet", "b.parquet", "--rows-per-file=20", "--limit", "7", "--dedup", "url"]
    request = read_request("download", words, "/here", "/bin/darkroom")
    require(list(request.arguments) == words, "the program's own words were changed", request.arguments)
    require(request.folder == "/here" and request.program == "/bin/darkroom" and request.num_workers == 0 and request.max_failures == 3, "defaults", request)


def flags_of_the_cluster_are_taken_out() -> None:
    words = ["raw", "--num-encoders", "3", "out", "--num-cpus-per-task=0.5", "--model", "m", "--resources", "encoder=1,disk=0.5", "--label", "zone=a", "--market", "spot,on-demand"]
    words += ["--memory-per-task", "2GiB", "--max-failures", "-1", "--json-summary", "s.json", "--address", "auto", "--accelerator-type", "A10G"]
    request = read_request("process", words, "/")
    require(list(request.arguments) == ["raw", "out", "--model", "m"], "words of the program", request.arguments)
    want = Placement(0.5, 1.0, 2 << 30, {"encoder": 1.0, "disk": 0.5}, {"zone": "a"}, "A10G", ("spot", "on-demand"))
    require(request.placement == want, "placement", request.placement)
    require((request.num_workers, request.max_failures, request.summary_path, request.address) == (3, -1, "s.json", "auto"), "the others", request)
    options = request.placement.options()
    require(options["label_selector"] == {"zone": "a", MARKET_LABEL: "spot"}, "selector", options)
    require(options["fallback_strategy"] == [{"label_selector": {"zone": "a", MARKET_LABEL: "on-demand"}}], "fall-back", options)


def the_driver_is_quiet_in_the_place_of_its_programs() -> None:
    for words, want in ((["--quiet"], True), (["--quiet=true"], True), (["--quiet=false"], False), ([], False)):
        request = read_request("train", ["r.toml", *words, "--model", "m"], "/")
        require(request.is_quiet == want and request.arguments == ("r.toml", "--model", "m"), "the flag", words, request)


def a_switch_of_the_cluster_may_say_false() -> None:
    switches = [("train", name, lambda request: request.is_quiet) for name in flags.UNHEARD]
    switches += [("serve", flag.name, lambda request: request.service.is_replacing) for flag in flags.CLUSTER_FLAGS if not flag.shown]
    require([name for _, name, _ in switches] == ["--quiet", "--replace"], "switches", switches)
    for verb, name, is_on in switches:
        for word, want in ((name, True), (f"{name}=true", True), (f"{name}=", True), (f"{name}=false", False)):
            require(is_on(read_request(verb, ["x", word], "/")) == want, "a switch", word)
        for value in ("maybe", "0"):
            require(f"{name} is a switch" in refusal_of(read_request, verb, ["x", f"{name}={value}"], "/"), "no value of a switch", name, value)


# The command line of a reference script, and what it means here.
REFERENCE_LINES = (
    ("download", "s3://b/raw laion/laion-art en train --limit 5 --num-rows-per-output-file 100", ["s3://b/raw", "--metadata", "hf://datasets/laion/laion-art?config=en&split=train", "--limit", "5", "--rows-per-file", "100"], {}),
    ("download", "--output_uri out --metadata m --num_rows_per_output_file 10 --dry_run", ["out", "--metadata", "m", "--rows-per-file", "10", "--dry-run"], {}),
    ("process", "raw out --batch-size 40 --accelerator-type A10G --resolution 256 --num-rows-per-output-file 50 --num-encoders 16", ["raw", "out", "--batch-size", "40", "--resolution", "256", "--rows-per-file", "50"], {"num_workers": 16}),
    ("process", "--input-uri raw --no-visualize-output --output-path out --num-transformers 8 --num-cpus-per-transformer 2 --num-encoders 4", ["--num-transformers", "2", "raw", "out"], {"num_workers": 4, "num_cpus": 4.0}),
    ("process", "raw out --num-gpus-per-encoder 0.5 --encoder-accelerator-type A10G --encoder-batch-size 120", ["raw", "out", "--batch-size", "120"], {"num_gpus": 0.5, "accelerator_type": "A10G"}),
    ("process", "--raw_data_uri raw --output_uri out --num_gpu 16 --resolution 512 --num_rows_per_output_file 5000", ["raw", "out", "--resolution", "512", "--rows-per-file", "5000"], {"num_workers": 16}),
    ("train", "r.toml --train-data-uri d --validation-data-uri v --num-training-workers 1 --trainer-accelerator-type A100 --max-failures 3", ["r.toml", "--data", "d", "--validation", "v"], {"num_workers": 1, "accelerator_type": "A100", "num_gpus": 1.0}),
    ("process", "--model m --output-path out raw", ["--model", "m", "raw", "out"], {}),
    ("process", "--output-path out --input-uri raw --model m", ["raw", "out", "--model", "m"], {}),
    ("process", "raw --num-encoders 2 -- --odd --num-encoders", ["raw", "--", "--odd", "--num-encoders"], {"num_workers": 2}),
    ("train", "r.toml --seed 7 --lr 1e-4 --weight-decay 0.01 --num-warmup-steps 10 --max-steps 20", ["r.toml", "--set", "runtime.seed=7", "--set", "optimizer.lr=1e-4", "--set", "optimizer.weight_decay=0.01", "--set", "schedule.warmup_steps=10", "--max-steps", "20"], {}),
    ("train", "r.toml --checkpoint-every-n-steps 50 --val-check-interval 100 --batch-size-per-worker 4 --global_batch_size 2048", ["r.toml", "--set", "checkpoint.every_steps=50", "--set", "validation.every_steps=100", "--micro-batch", "4", "--set", "batch.global=2048"], {}),
    ("train", "r.toml --resume-from-checkpoint c --resolution 256 --no-fsdp", ["r.toml", "--init-from", "c", "--set", "data.resolution=256"], {}),
)


def ranks_take_nodes_of_any_market_that_is_asked_for() -> None:
    labels = {"zone": "a"}
    for markets, want in (((), labels), (("spot",), {**labels, MARKET_LABEL: "spot"}), (("spot", "on-demand"), {**labels, MARKET_LABEL: "in(spot,on-demand)"})):
        got = Placement(labels=labels, markets=markets).group_selector()
        require(got == want, "selector", markets, got)


def names_of_the_reference_scripts_are_understood() -> None:
    for verb, line, arguments, fields in REFERENCE_LINES:
        request = read_request(verb, line.split(), "/")
        require(list(request.arguments) == arguments, "words of the program", line, request.arguments)
        for name, want in fields.items():
            got = getattr(request, name) if hasattr(request, name) else getattr(request.placement, name)
            require(got == want, "field", name, line, got)


WRONG_LINES = (
    ("download", "out --shard 0/2", "leave --shard out"),
    ("process", "a b --items 3", "leave --items out"),
    ("download", "out --metadata m --retry-failed timeout", "on one machine only"),
    ("process", "a b --metrics-port 9100", "--metrics-folder FOLDER"),
    ("train", "r --nproc 2", "--num-training-workers"),
    ("train", "r --max-restarts 2", "--max-failures N"),
    ("train", "r --raw-data images", "darkroom-ray online"),
    ("train", "r --fsdp", "ZeRO-1"),
    ("train", "r --num-data-loading-workers 2", "leave --num-data-loading-workers out"),
    ("train", "r --use_xformers", "needs no package"),
    ("train", "r --accumulate-grad-batches 4", "--global-batch"),
    ("train", "r --min-training-workers 3 --num-training-workers 2", "more than --num-training-workers 2"),
    ("process", "a b --visualize-output", "--visualize 2"),
    ("process", "a b --num-encoders 0", "at least 1"),
    ("process", "a b --num-encoders two", "whole number"),
    ("process", "a b --num-encoders", "needs a value"),
    ("process", "a b --num-cpus-per-task -1", "0 or more"),
    ("process", "a b --num-cpus-per-task nan", "0 or more"),
    ("process", "a b --resources encoder", "NAME=VALUE"),
    ("process", "a b --resources GPU=1", "--num-gpus-per-task"),
    ("process", "a b --resources {", "no JSON"),
    ("process", "a b --market cheap", "spot, on-demand"),
    ("process", "a b --market spot,spot", "spot, on-demand"),
    ("process", "a b --num-cpus-per-transformer 2", "--num-transformers"),
    ("download", "out --max-failures -2", "at least -1"),
)


def wrong_command_lines_are_refused_with_advice() -> None:
    for verb, line, words in WRONG_LINES:
        said = refusal_of(read_request, verb, line.split(), "/")
        require(words in said, "the refusal says something else", line, said)


def flags_of_the_cluster_are_no_settings_of_a_file() -> None:
    wrong = (("process", "", "--num-encoders"), ("process", "--num-encoders=2", "--num-encoders"), ("process", "", "--num-transformers"), ("process", "-- --num-transformers", "--num-transformers"),
             ("download", "", "--trace-file"), ("tune", "", "--workers"), ("serve", "", "--host"), ("serve", "--port 80", "--port"))
    for verb, line, name in wrong:
        said = refusal_of(flags.with_settings, read_request(verb, line.split(), "/"), {name: ["48"], "--model": ["m"]})
        require(f"{name} in --config" in said and "on the command line" in said, "the refusal", verb, name, said)
    for verb, line, given in (("process", "a b --num-transformers 4 --model m", {"--num-transformers": ["4"], "--model": ["m"]}), ("train", "r", {"--workers": ["2"], "RECIPE.toml": ["r"]})):
        request = read_request(verb, line.split(), "/")
        require(flags.with_settings(request, given) == request, "what is the program's", verb, line)


def a_file_of_settings_says_where_the_summary_goes() -> None:
    for line, given, want in (("", {"--json-summary": ["s.json"]}, "s.json"), ("--json-summary t.json", {"--json-summary": ["s.json"]}, "t.json"), ("--json-summary t.json", {}, "t.json"), ("", {}, "")):
        require(flags.with_settings(read_request("download", line.split(), "/"), given).summary_path == want, "the place", line, given)
    with temporary_folder() as folder:
        child = item_child.ItemChild(item_request(folder, 'echo "$*" > words'))
        child.finish()
        require("--json-summary /dev/null" in (folder / "words").read_text(), "each program has one", (folder / "words").read_text())
        request = dataclasses.replace(item_request(folder, """echo '{"exit_code": 0, "given": {"--json-summary": ["none/s.json"]}}'"""), verb="download")
        with unittest.mock.patch.object(command, "connected", None):
            require("there is no folder" in refusal_of(command.run_verb, request), "its place is looked at")


def names_of_the_reference_scripts_stand_for_what_the_program_takes() -> None:
    """By the contract that cli_test.py holds the program against."""
    contract = tomllib.loads((ROOT / "tests/integration/cli_contract.toml").read_text(encoding="utf-8"))
    for verb, names in flags.RENAMED.items():
        own = contract["train" if verb == "online" else verb]["flags"] + contract["shared"]["flags"]
        taken = {flag["name"] for flag in own if not flag.get("later")}
        for name, ours in names.items():
            require(ours in taken or ours in flags.flags_of(verb), f"{verb} takes no", ours, "for", name)


def named_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", text))


def flags_of_the_cluster_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    ours = {flag.name for flag in flags.CLUSTER_FLAGS}
    require(ours <= named_in(page), "the page lacks", ours - named_in(page))
    # First columns of its tables of flags; in the text there are flags of the program, too.
    told = {name for row in re.findall(r"^\| (`--.*?) \| ", page, re.MULTILINE) for name in named_in(row)}
    require(len(told) > 30 and told <= ours, "the page has flags that are none", told - ours)
    in_help = {verb: named_in(flags.help_text(verb)) for verb in flags.PLACED}
    require(told <= set().union(*in_help.values()), "no help has", told)
    for verb in ("serve", "tune"):
        own = {flag.name for flag in flags.CLUSTER_FLAGS if flag.verbs == (verb,)}
        section = page.partition(f"\n## {verb}:")[2].partition("\n## ")[0] + page.partition("\n## Placement")[2].partition("\n## ")[0]
        require(own and own <= named_in(section) and own <= in_help[verb], "the section lacks", verb, own - named_in(section))
    reference = page.partition("**Names of the reference scripts** are taken:")[2].partition("What is done otherwise here")[0]
    for name in named_in(reference):
        verbs_of_it = [verb for verb in flags.PLACED if name in in_help[verb]]
        require(bool(verbs_of_it), "no help has the reference's", name)
        for verb in verbs_of_it:
            value = {"--encoder-accelerator-type": "A10G", "--trainer-accelerator-type": "A10G"}.get(name, "1")
            request = read_request(verb, ["--input-uri", "in"][: 2 * (name == "--output-path")] + [name, value], "/")
            require(name not in request.arguments, "it goes through to the program", verb, name, request.arguments)


def the_help_says_what_is_so() -> None:
    for verb, words in flags.POSITIONALS.items():
        text = flags.help_text(verb)
        for name in words:
            require(name in named_in(text), "the help lacks", verb, name)
            taken = [other for other, place in words.items() if place == 0]
            require("a place" in read_request(verb, ([taken[0], "x"] if words[name] else []) + [name, "a place"], "/").arguments, "it is taken", verb, name)
    usual = {"--accelerator-type": Placement(num_gpus=1.0, accelerator_type="A10G"), "--encoder-accelerator-type": Placement(num_gpus=1.0, accelerator_type="A10G")}
    for name, count in (("--accelerator-type", "--num-gpus-per-task"), ("--encoder-accelerator-type", "--num-gpus-per-encoder")):
        request = read_request("online", ["r.toml", name, "A10G"], "/")
        require((request.encoders if "encoder" in name else request).placement == usual[name], "GPUs", name, request)
        require("1 where an accelerator type is named" in flags.flags_of("online")[count].help, "its help", count)
    require("slices" in flags.flags_of("online")["--num-transformers"].help and "slices" not in flags.flags_of("process")["--num-transformers"].help, "of online another thing")
    line = next(line for line in command.USAGE.splitlines() if line.startswith("  pipeline"))
    for verb in flags.PLACED:
        require((verb in line) == (verb in flags.VERBS), "what a pipeline runs", verb, line)


def sizes_are_read_as_the_program_reads_them() -> None:
    for text, want in (("0", 0), ("1000", 1000), ("2KB", 2000), ("2KiB", 2048), ("1.5GB", 1_500_000_000), ("1GiB", 1 << 30)):
        require(flags.byte_count("--memory-per-task", text) == want, "bytes", text, flags.byte_count("", text))


# -- preflight --------------------------------------------------------------------------------------------------------

GPU = {"GPU": 1.0, "accelerator_type:A10G": 1.0}
CLUSTER = [
    node("head", labels={"zone": "a", MARKET_LABEL: "on-demand"}, resources={"cpu": 1.0}),
    node("gpu-1", labels={"zone": "b"}, resources={**GPU, "encoder": 2.0}),
    node("gpu-2", labels={"zone": "b"}, resources={**GPU, "encoder": 1.0}),
]


# What is asked, what the program's flags were, and words of the sentence that it must get.
WRONG_REQUESTS = (
    ("an absent accelerator type", asked("process", accelerator_type="H100", num_gpus=1), {}, "the cluster has: A10G"),
    ("a type in the wrong case", asked("process", accelerator_type="a10g", num_gpus=1), {}, "did you mean A10G?"),
    ("a type without a GPU", asked("process", accelerator_type="A10G"), {}, "--num-gpus-per-task 1"),
    ("more CPUs than a node has", asked("download", num_cpus=9), {}, "--num-cpus-per-task 8"),
    ("more GPUs than a node has", asked("process", num_gpus=2), {}, "--num-gpus-per-task 1"),
    ("GPUs that an encoder leaves idle", asked("process", num_gpus=2), {}, "an encoder works on one GPU, and 2 would be reserved"),
    ("GPUs that the only rank leaves idle", asked("train", num_gpus=4), {}, "a rank works on one GPU, and 4 would be reserved"),
    ("one and a half GPUs", asked("process", num_gpus=1.5), {}, "ask for 1 or 2"),
    ("one and a half of a resource", asked("process", resources={"encoder": 1.5}), {}, "ask for 1 or 2"),
    ("more memory than a node has", asked("process", memory_bytes=int(64e9)), {}, "--memory-per-task"),
    ("an absent resource", asked("process", resources={"encodr": 1}), {}, "the cluster has: cpu, encoder"),
    ("too much of a resource", asked("process", resources={"encoder": 3}), {}, "has 2"),
    ("an absent label", asked("train", labels={"rack": "1"}), {}, "--labels rack=1"),
    ("an absent value of a label", asked("train", labels={"zone": "c"}), {}, "zone=a, b"),
    ("a market that no node is of", asked("train", markets=("spot",)), {}, "on-demand"),
    ("things that no node has together", asked("process", resources={"cpu": 1}, num_gpus=1), {}, "no single node"),
    ("a label that only nodes without GPUs have", asked("process", labels={"zone": "a"}, num_gpus=1), {}, "no single node"),
    ("more encoders than there is room for", asked("process", 3, num_gpus=1), {}, "room for 2 encoders of the 3"),
    ("more tasks than there is room for", asked("download", 25, num_cpus=1), {}, "room for 24 tasks"),
    ("more ranks at least than there is room for", asked("train", 40, 30, num_cpus=1), {}, "room for 24 ranks of the 30"),
    ("a device that no GPU is asked for", asked("process"), {"--device": ["cuda"]}, "--num-gpus-per-task 1"),
    ("a device of a number", asked("process", num_gpus=1), {"--device": ["cuda:1"]}, "Ray chooses"),
    ("GPUs that would be idle", asked("process", num_gpus=1), {"--device": ["cpu"]}, "idle"),
    ("work that takes nothing", asked("download", num_cpus=0), {}, "--num-cpus-per-task"),
    ("ranks that share a GPU", asked("train", 2, num_gpus=0.5), {}, "ranks take a GPU each, not 0.5"),
    ("ranks of two GPUs", asked("train", 2, num_gpus=2), {}, "a rank works on one GPU, and 2 would be reserved"),
    ("trials of two GPUs", asked("tune", num_gpus=2), {}, "a trial works on one GPU, and 2 would be reserved"),
    ("failed rows to fetch again", asked("download"), {"--retry-failed": ["timeout"]}, "on one machine only"),
    ("ranks by a file of settings", asked("train"), {"--nproc": ["2"]}, "--nproc in --config: the ranks are Ray's"),
    ("items by a file of settings", asked("process"), {"--items": ["0-3"]}, "--items in --config: the cluster hands"),
    ("more ranks than gradient groups", asked("train", 4, num_cpus=1), {"--set": ["runtime.gradient_groups=2"]}, "gradient group"),
    ("more ranks than the recipe's gradient groups", asked("online", 2, num_cpus=1), {"RECIPE.toml": [str(ROOT / "recipes/tiny.toml")]}, "it is 1;"),
)

# A change to the cluster, and words of the sentence that it must get from what a probe found.
WRONG_NODES = (
    ("a node without the program", {"problem": "there is no program darkroom here: install the wheel"}, "gpu-2 cannot run the program"),
    ("a node that does not answer", {"answers": False}, "gpu-2 does not answer"),
    ("another darkroom", {"versions": {**VERSIONS, "darkroom": "0.1.0"}}, "versions of darkroom (0.1.0: gpu-2; 0.2.0: gpu-1, head)"),
    ("another torch", {"versions": {**VERSIONS, "torch": "2.10.0"}}, "versions of torch"),
    ("another pyarrow", {"versions": {**VERSIONS, "pyarrow": "25.0.1"}}, "versions of pyarrow"),
    ("another Ray", {"versions": {**VERSIONS, "ray": "2.59.0"}}, "versions of ray"),
    ("another Python", {"versions": {**VERSIONS, "python": "3.12"}}, "versions of python"),
    ("a package that is not installed", {"versions": {**VERSIONS, "torch": ""}}, "not installed: gpu-2"),
    ("an input that is not seen", {"paths": (SeenPath("images", is_there=False),)}, "gpu-2 does not see images"),
    ("an output of the node's own", {"paths": (SeenPath("out", has_nonce=False),)}, "of its own"),
    ("an output that may not be written", {"paths": (SeenPath("out", is_writable=False),)}, "may not write to out"),
    ("a working folder that is not there", {"has_folder": False}, "relative paths"),
    ("an address of its own machine", {"address": "127.0.0.1"}, "--node-ip-address"),
)


def require_sentence(problems: list[str], what: str, words: str) -> None:
    require(any(words in problem for problem in problems), "no sentence with these words", what, words, problems)
    require(all("\n" not in problem and len(problem) < 600 for problem in problems), "no sentence", what, problems)


def wrong_requests_are_refused_with_advice() -> None:
    for what, request, given, words in WRONG_REQUESTS:
        require_sentence([*preflight.check_amounts(request, given, probe.gradient_groups(given)), *preflight.check_resources(CLUSTER, request)], what, words)


def wrong_nodes_are_refused_with_advice() -> None:
    for what, change, words in WRONG_NODES:
        changed = [*CLUSTER[:2], dataclasses.replace(CLUSTER[2], **change)]
        require_sentence(preflight.check_probes(changed, has_relative_paths=True), what, words)
    require(len(WRONG_REQUESTS) + len(WRONG_NODES) >= 25, "set-ups", len(WRONG_REQUESTS) + len(WRONG_NODES))


def a_cluster_without_nodes_or_cpus_is_refused() -> None:
    require_sentence(preflight.check_resources([], asked("download")), "no node", "no node that is alive")
    require_sentence(preflight.check_resources([Node("head", resources={"memory": 1e9})], asked("download")), "no CPU", "no node offers CPUs")
    require_sentence(preflight.check_resources([node("head")], asked("process", num_gpus=1)), "no GPU", "no node offers GPUs")


def what_a_cluster_has_is_not_refused() -> None:
    good = (
        asked("download"),
        asked("download", 24, num_cpus=1),
        asked("process", 2, num_gpus=1, accelerator_type="A10G"),
        asked("process", 16, num_gpus=0.125, num_cpus=0.5),
        asked("process", 3, resources={"encoder": 1}),
        asked("train", 40, 1, num_cpus=1),
        asked("train", 1, labels={"zone": "b"}),
        asked("train", 1, num_gpus=1, accelerator_type="A10G"),
        asked("train", 1, markets=("on-demand",)),
        asked("train", 1, markets=("spot", "on-demand")),
        asked("sample", 1, markets=("spot", "on-demand")),
        asked("download", memory_bytes=int(16e9)),
    )
    for request in good:
        problems = [*preflight.check_amounts(request, {}), *preflight.check_resources(CLUSTER, request)]
        require(not problems, "a good request is refused", request, problems)
    require(not preflight.check_probes(CLUSTER, has_relative_paths=True), "a good cluster is refused", preflight.check_probes(CLUSTER))
    one_machine = [dataclasses.replace(one, machine="m", address="127.0.0.1") for one in CLUSTER]
    require(not preflight.check_probes(one_machine), "several nodes of one machine are refused")


def gpus_that_nobody_asks_for_are_warned_of() -> None:
    for what, request, given, words in (
        ("ranks", asked("train", 2), {}, "a rank runs on the CPU, and nodes that may take it have GPUs: ask for --accelerator-type A10G (or --num-gpus-per-task 1), or say --device cpu"),
        ("ranks of online", asked("online", 2), {"--device": ["auto"]}, "--accelerator-type A10G"),
        ("its encoders", asked("encoder", 2), {}, "an encoder runs on the CPU, and nodes that may take it have GPUs: ask for --encoder-accelerator-type A10G (or --num-gpus-per-encoder 1), or say --encoder-device cpu"),
        ("a trial", asked("tune", 2), {}, "a trial runs on the CPU"),
        ("ranks that say so", asked("train", 2), {"--device": ["cpu"]}, ""),
        ("ranks that ask for some", asked("train", 2, num_gpus=1), {}, ""),
        ("ranks of nodes without", asked("train", 2, labels={"zone": "a"}), {}, ""),
        ("a download", asked("download"), {}, ""),
        ("transformers", asked("transformer"), {}, ""),
    ):
        said = preflight.idle_gpus(CLUSTER, request, given)
        require(said == words or (words != "" and words in said), "the warning", what, said)
    unnamed = [node("a", resources={"GPU": 4.0})]
    require("ask for --num-gpus-per-task 1, or say" in preflight.idle_gpus(unnamed, asked("process"), {}), "GPUs of no named type")
    good = types.SimpleNamespace(nodes=lambda: [{"NodeManagerAddress": "10.0.0.1", "NodeID": "00000000", "Resources": {"CPU": 8.0, "GPU": 1.0}, "Alive": True}], _private=nobody_leaves())
    for is_quiet in (False, True):
        with contextlib.redirect_stderr(io.StringIO()) as heard, unittest.mock.patch.object(probe, "probe_nodes", lambda ray, request, found, *unused: found):
            probe.check_cluster(good, dataclasses.replace(asked("process"), program="/bin/true", is_quiet=is_quiet), {}, probe.probe_time(lambda: None))
        require(heard.getvalue().count("warning: an encoder runs on the CPU") == 1, "what is said", is_quiet, heard.getvalue())


def examples_of_the_page_ask_for_the_gpus_that_they_want() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    block = page.partition("```\n")[2].partition("```")[0].replace("\\\n", " ")
    lines = [shlex.split(line, comments=True)[1:] for line in block.splitlines() if line.startswith("darkroom-ray ")]
    stages = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])["stage"]
    for verb, *words in [*lines, *([stage["verb"], *stage["arguments"]] for stage in stages)]:
        request = read_request(verb, words, "/")
        for one in filter(None, (request, request.encoders)):
            require((one.placement.num_gpus == 1) == (one.verb in preflight.ON_ONE_GPU), "GPUs of", one.verb, words, one.placement)
            require(not [*preflight.check_amounts(one, {})], "it is refused", words)
    require({verb for verb, *_ in lines} == set(flags.VERBS), "an example each", lines)


def gradient_groups_are_those_of_the_recipe_under_the_command_line() -> None:
    with temporary_folder() as folder:
        recipe = folder / "r.toml"
        for text, settings, want in (("", [], 1), ("[runtime]\ngradient_groups = 6\n", [], 6), ("[runtime]\nworkers = 2\n", [], 1), ("runtime = 3\n", [], None), ("[runtime\n", [], None),
                                     ("[runtime]\ngradient_groups = 6\n", ["runtime.gradient_groups=2", "batch.global=8", "runtime.gradient_groups = 4"], 4), ("", ["runtime.gradient_groups=many"], None)):
            recipe.write_text(text)
            got = probe.gradient_groups({"RECIPE.toml": [str(recipe)], "--set": settings})
            require(got == want, "groups", text, settings, got)
        require(probe.gradient_groups({"RECIPE.toml": [str(folder / "gone.toml")]}) is None, "a recipe that only the nodes see")
    require(not list(preflight.check_ranks(asked("train", 4), 4)) and not list(preflight.check_ranks(asked("train", 4), None)), "a group each, or nothing known")


LAUNCHER = {
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 4}, "max_workers": 3},
        "encode-spot": {"min_workers": 0, "max_workers": 3, "resources": {"CPU": 8, "GPU": 1, "accelerator_type:T4": 1}, "labels": {MARKET_LABEL: "spot"}},
        "empty": {"max_workers": 0},
    },
}


def types_of(document) -> tuple:
    return tuple(nodes.types_in("c.yaml", document))


def nodes_of_an_autoscaler_count_before_they_come() -> None:
    there = [node("head"), node("e1", labels={nodes.NODE_TYPE_LABEL: "encode-spot"}, resources={"GPU": 1.0, "accelerator_type:T4": 1.0})]
    coming = list(nodes.nodes_that_may_come(types_of(LAUNCHER), there))
    require([one.amount("GPU") for one in coming] == [1.0, 1.0], "as many as may come, less those that are there", coming)
    request = asked("process", num_workers=3, num_cpus=1, num_gpus=1, accelerator_type="T4")
    require_sentence(preflight.check_resources(there, request), "without them", "room for 1 encoders")
    require(preflight.check_resources([*there, *coming], request) == [], "with them")
    by_market = asked("process", num_workers=2, num_cpus=1, num_gpus=1, markets=("spot",))
    require(preflight.check_resources([*there, *coming], by_market) == [], "their labels")
    require(len(list(nodes.nodes_that_may_come(types_of(LAUNCHER), []))) == 3, "from none")
    of_all = {"max_workers": 2, "available_node_types": {"cpu": {"resources": {"CPU": 4}}, "gpu": {"resources": {"GPU": 1}, "max_workers": 1}, "many": {"max_workers": 9}}}
    require([(one.name, one.most) for one in types_of(of_all)] == [("cpu", 2), ("gpu", 1), ("many", 2)], "what all may have bounds each type")


def a_wrong_cluster_configuration_is_refused_with_its_place() -> None:
    def with_type(**fields) -> dict:
        return {"available_node_types": {"t": {"max_workers": 1, **fields}}}

    for document, words in ((None, "no available_node_types"), ({"x": 1}, "no available_node_types"), (with_type(max_workers="2"), "t: max_workers must be"), (with_type(resources=[1]), "t: resources must be"),
                            (with_type(resources={"CPU": "many"}), "t: resources must be"), (with_type(labels=["spot"]), "t: labels must be"), ({"max_workers": -1, **with_type()}, "max_workers must be")):
        said = refusal_of(types_of, document)
        require(words in said and "c.yaml" in said, "the refusal says something else", document, said)
    request = read_request("online", ["r.toml", "--cluster-config", "/nowhere/c.yaml"], "/")
    require(request.cluster_config == "/nowhere/c.yaml" and request.arguments == ("r.toml",), "the flag", request)
    with fake_modules({"yaml": JSON_AS_YAML}):
        require("/nowhere/c.yaml cannot be read" in refusal_of(nodes.with_node_types, None, request), "a file that is not there")


JSON_AS_YAML = types.SimpleNamespace(safe_load_all=lambda file: [json.load(file)], YAMLError=ValueError)  # Ray brings the real one.


# As deploy/ray/kuberay_cluster.yaml: with the group's own resources; the others have what KubeRay takes from elsewhere.
KUBERAY_GROUP = {"groupName": "encode-spot", "replicas": 0, "minReplicas": 0, "maxReplicas": 48, "labels": {MARKET_LABEL: "spot"}, "rayStartParams": {"object-store-memory": "268435456"},
                 "resources": {"CPU": "8", "GPU": "1", "accelerator_type:A10G": "1"}}


def group_of(*, limits: dict | None = None, requests: dict | None = None, **fields) -> dict:
    container = {"name": "ray", "resources": {"limits": limits or {}, "requests": requests or {}}}
    return {**KUBERAY_GROUP, "template": {"spec": {"containers": [container, {"name": "beside", "resources": {"limits": {"cpu": "99"}}}]}}, **fields}


def manifest_of(*groups: dict, is_autoscaled: bool = True) -> dict:
    head = {"resources": {"CPU": "0"}, "rayStartParams": {}, "template": {}}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"}, "spec": {"enableInTreeAutoscaling": is_autoscaled, "headGroupSpec": head, "workerGroupSpecs": list(groups)}}


def types_of_manifest(document) -> tuple:
    return tuple(kuberay.types_in("k.yaml", document))


def groups_of_kuberay_count_before_they_come() -> None:
    head = node("head", resources={"CPU": 0.0})
    request = read_request("process", ["in", "out", "--num-encoders", "48", "--accelerator-type", "A10G", "--market", "spot"], "/")
    require_sentence(preflight.check_resources([head], request), "the head alone", "no node has the accelerator type A10G")
    manifest = manifest_of(group_of(limits={"memory": "30Gi", "nvidia.com/gpu": "1"}, requests={"cpu": "7", "memory": "26Gi"}))
    with temporary_folder() as folder, fake_modules({"yaml": JSON_AS_YAML}):
        for document in (manifest, {"kind": "RayJob", "spec": {"entrypoint": "x", "rayClusterSpec": manifest["spec"]}}):
            (folder / "k.yaml").write_text(json.dumps(document))
            known = nodes.with_node_types(None, dataclasses.replace(request, cluster_config=str(folder / "k.yaml")))
            require([(one.name, one.most) for one in known.node_types] == [("encode-spot", 48)], "the groups", known.node_types)
            require(preflight.check_resources(nodes.with_coming(known, [head]), known) == [], "with the file", document)
            require_sentence(preflight.check_resources(nodes.with_coming(known, [head]), dataclasses.replace(known, num_workers=49)), "one too many", "room for 48 encoders of the 49")
    come = node("e1", labels={nodes.NODE_TYPE_LABEL: "encode-spot"})
    require(len(list(nodes.nodes_that_may_come(known.node_types, [come]))) == 47, "less those that are there")


def groups_of_kuberay_have_what_it_gives_their_pods() -> None:
    of_container = {"cpu": "7500m", "memory": "1.5Gi", "nvidia.com/gpu": "2"}
    for group, want in (
        (group_of(), {"CPU": 8, "GPU": 1, "accelerator_type:A10G": 1}),
        (group_of(limits={"memory": "30Gi"}), {"CPU": 8, "GPU": 1, "accelerator_type:A10G": 1, "memory": 30 << 30}),
        (group_of(resources={"memory": "2G", "rack": 3}, limits=of_container), {"CPU": 8, "GPU": 2, "memory": 2e9, "rack": 3}),
        (group_of(resources={}, limits=of_container), {"CPU": 8, "GPU": 2, "memory": 3 << 29}),
        (group_of(resources=None, requests=of_container), {"CPU": 8, "GPU": 2, "memory": 3 << 29}),
        (group_of(resources={}, limits={"cpu": 4, "amd.com/gpu": 0}, requests={"cpu": "2", "amd.com/gpu": 1}), {"CPU": 4, "GPU": 1}),
        (group_of(resources={}, limits=of_container, rayStartParams={"num-cpus": "3", "num-gpus": "4", "memory": "1000", "resources": '"{\\"rack\\": 1, \\"accelerator_type:T4\\": 1}"'}),
         {"CPU": 3, "GPU": 4, "memory": 1000, "rack": 1, "accelerator_type:T4": 1}),
        (group_of(resources={"CPU": "2"}, rayStartParams={"num-cpus": "3", "resources": '"{\\"rack\\": 1}"'}), {"CPU": 2}),
        (group_of(resources={"CPU": "1e1"}), {"CPU": 10}),
    ):
        found = types_of_manifest(manifest_of(group))
        require(found[0].resources == want, "resources", group, found[0].resources)
    require(types_of_manifest(manifest_of(group_of()))[0].labels == {MARKET_LABEL: "spot"} and types_of_manifest(manifest_of(group_of(labels=None)))[0].labels == {}, "labels")


def groups_of_kuberay_come_as_often_as_their_cluster_lets_them() -> None:
    for fields, is_autoscaled, most in (({}, True, 48), ({"numOfHosts": 2}, True, 96), ({"suspend": True}, True, 0), ({"maxReplicas": None}, True, nodes.MOST_NODES), ({"maxReplicas": 2**31 - 1, "numOfHosts": 4}, True, nodes.MOST_NODES),
                                       ({}, False, 0), ({"replicas": 5}, False, 5), ({"replicas": None, "minReplicas": 3}, False, 3), ({"replicas": 60}, False, 48), ({"replicas": 1, "minReplicas": 2, "numOfHosts": 3}, False, 6)):
        found = types_of_manifest(manifest_of(group_of(**fields), is_autoscaled=is_autoscaled))
        require(found[0].most == most, "of a group", fields, is_autoscaled, found)


def a_wrong_manifest_of_kuberay_is_refused_with_its_place() -> None:
    cpus_of_none = group_of(resources={})
    for document, words in (
        ({"kind": "RayCluster"}, "no workerGroupSpecs"), ({"kind": "RayJob", "spec": {"clusterSelector": {"x": "y"}}}, "no workerGroupSpecs"), ({"kind": "RayCluster", "spec": [1]}, "spec must be"),
        ({"kind": "RayJob", "spec": {"rayClusterSpec": "x"}}, "rayClusterSpec must be"), (manifest_of(), "no workerGroupSpecs"), (manifest_of("x"), "with a groupName"), (manifest_of(group_of(groupName=None)), "with a groupName"),
        (manifest_of(group_of(maxReplicas="48")), "encode-spot: maxReplicas must be a whole number"), (manifest_of(group_of(minReplicas=-1)), "minReplicas must be"), (manifest_of(group_of(numOfHosts=True)), "numOfHosts must be"),
        (manifest_of(group_of(replicas=1.5)), "replicas must be"), (manifest_of(group_of(labels=["spot"])), "encode-spot: labels must be"), (manifest_of(group_of(resources={"GPU": "many"})), "encode-spot: GPU must be an amount"),
        (manifest_of(group_of(resources={"GPU": -1})), "GPU must be an amount"), (manifest_of(group_of(resources={"GPU": True})), "GPU must be an amount"), (manifest_of(group_of(resources=["GPU"])), "resources must be"),
        (manifest_of(group_of(limits={"memory": "30GiB"})), "memory must be an amount"), (manifest_of(group_of(resources={}, rayStartParams={"num-cpus": "8", "resources": "rack"})), "must be a JSON object"),
        (manifest_of(group_of(resources={}, rayStartParams={"num-cpus": "8", "resources": "[1]"})), "must be a JSON object"), (manifest_of(group_of(rayStartParams="x")), "rayStartParams must be"),
        (manifest_of(cpus_of_none), "encode-spot: its CPUs are not named"), (manifest_of({**cpus_of_none, "template": {}}), "its CPUs are not named"), (manifest_of({**cpus_of_none, "template": 3}), "template must be"),
        (manifest_of({**cpus_of_none, "template": {"spec": {"containers": "x"}}}), "containers must be a list"), (manifest_of({**cpus_of_none, "template": {"spec": {"containers": ["x"]}}}), "container must be"),
    ):
        said = refusal_of(types_of_manifest, document)
        require(words in said and "k.yaml" in said and "\n" not in said, "the refusal says something else", document, said)
    with temporary_folder() as folder, fake_modules({"yaml": JSON_AS_YAML}):
        several = types.SimpleNamespace(safe_load_all=lambda file: [{"kind": "Namespace"}, *json.load(file)], YAMLError=ValueError)
        (folder / "k.yaml").write_text(json.dumps([manifest_of(group_of())]))
        with fake_modules({"yaml": several}):
            require(len(nodes.types_of_file(str(folder / "k.yaml"))) == 1, "beside other documents")
            (folder / "k.yaml").write_text(json.dumps([manifest_of(group_of())] * 2))
            require("several clusters" in refusal_of(nodes.types_of_file, str(folder / "k.yaml")), "which one")
        for text, words in (("[\n{", "cannot be read"), ('{"kind": "RayService"}', "no available_node_types"), ("3", "no available_node_types")):
            (folder / "k.yaml").write_text(text)
            said = refusal_of(nodes.types_of_file, str(folder / "k.yaml"))
            require(words in said and "\n" not in said and ("cannot" in words or "RayCluster or RayJob" in said), "another file", text, said)


JOB_IDS = itertools.count()


def ray_of_head(told=None, own_id: str = "00000000", get=None, asked_for=None) -> types.SimpleNamespace:
    """Two nodes, the first one the head, whose store listens at port 6379; a connection of its own. `asked_for`: what the head is asked."""
    job_id = f"job {next(JOB_IDS)}"
    alive = [{"NodeID": f"{number:08}", "Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 1.0, **({nodes.HEAD_RESOURCE: 1.0} if number == 0 else {})}} for number in range(2)]
    state = types.SimpleNamespace(get_cluster_config=lambda: told)
    task = types.SimpleNamespace(options=lambda **options: types.SimpleNamespace(remote=lambda port: note(port) or (port, options["scheduling_strategy"])))
    note = ([] if asked_for is None else asked_for).append
    context = types.SimpleNamespace(gcs_address="10.0.0.1:6379", get_node_id=lambda: own_id, get_job_id=lambda: job_id)
    return types.SimpleNamespace(nodes=lambda: alive, _private=types.SimpleNamespace(state=types.SimpleNamespace(state=state)), remote=lambda what: task, get=get, exceptions=types.SimpleNamespace(RayError=RuntimeError, GetTimeoutError=Late),
                                 get_runtime_context=lambda: context)


class Late(RuntimeError):
    """Ray's error of an answer that has not come yet."""


AFFINITY = {"ray.util": types.SimpleNamespace(), "ray.util.scheduling_strategies": types.SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node_id, soft: node_id)}


def the_autoscaler_of_the_cluster_is_asked_what_may_come() -> None:
    monitor = ["python", "-u", "/ray/autoscaler/v2/monitor.py", "--logs-dir=/tmp/a=b", "--gcs-address=10.0.0.1:6379", "--autoscaling-config=/c.yaml", ""]
    require(nodes.autoscaler_file(monitor, "6379") == "/c.yaml", "Ray's process on the head")
    require(nodes.autoscaler_file([*monitor[:2], "/ray/autoscaler/_private/monitor.py", *monitor[3:]], "6379") == "/c.yaml", "its earlier kind")
    for wrong, port in ((monitor, "6380"), (monitor[:5], "6379"), ([*monitor[:2], "/my/monitor.py", *monitor[3:]], "6379"), ([""], "6379")):
        require(nodes.autoscaler_file(wrong, port) == "", "of another cluster, without a file, another program", wrong)
    request = read_request("online", ["r.toml"], "/")
    group = types.SimpleNamespace(name="g5", max_count=-1, resources={"CPU": 8})
    with fake_modules({**AFFINITY, "yaml": JSON_AS_YAML}):
        found = nodes.with_node_types(ray_of_head(types.SimpleNamespace(node_group_configs=[group])), request)
        require([(one.name, one.most, one.resources) for one in found.node_types] == [("g5", nodes.MOST_NODES, {"CPU": 8})] and found.encoders.node_types == found.node_types, "what Ray's store was told", found)
        known = types_of(LAUNCHER)
        found = nodes.with_node_types(ray_of_head(own_id="00000001", get=lambda reply, timeout: known if reply == ("6379", "00000000") else ()), request)
        require(found.node_types == known and not found.is_head_silent, "the head of another node", found)
        for ends, num_asked, want in (([Late(), Late(), known, known], 1, [(), (), known, known]), ([RuntimeError("its worker died"), known], 2, [(), known]), ([()], 1, [()])):
            asked_for: list = []
            ray = ray_of_head(own_id="00000001", get=unittest.mock.Mock(side_effect=list(ends)), asked_for=asked_for)
            of_looks = [nodes.with_node_types(ray, request) for _ in ends]
            require([one.node_types for one in of_looks] == want and len(asked_for) == num_asked, "a head that answers later", of_looks, asked_for)
            require(all(one.is_head_silent == one.encoders.is_head_silent == isinstance(end, RuntimeError) for one, end in zip(of_looks, ends)), "none and silence are two things", of_looks)
        with temporary_folder() as folder:
            (folder / "c.yaml").write_text(json.dumps(LAUNCHER))
            port = f"of {os.getpid()}"
            words = ["/autoscaler/v2/monitor.py", f"--gcs-address=10.0.0.1:{port}", f"--autoscaling-config={folder}/c.yaml"]
            stands_for_it = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *words])
            try:
                while not pathlib.Path(f"/proc/{stands_for_it.pid}/cmdline").read_bytes():  # The kernel is loading it still.
                    require(stands_for_it.poll() is None, "it has ended")
                    time.sleep(0.01)
                require(nodes.types_on_head(port) == known and nodes.types_on_head("another") == (), "the process is found by its words")
                (folder / "c.yaml").write_text("none")
                require(nodes.types_on_head(port) == (), "a file that is not read here")
            finally:
                stands_for_it.kill()
                stands_for_it.wait()
            (folder / "c.yaml").write_text(json.dumps(LAUNCHER))
            with_file = dataclasses.replace(request, cluster_config="c.yaml", folder=str(folder))
            require(nodes.with_node_types(None, with_file).encoders.node_types == known, "the file of the flag, for what is asked beside, too")
        with unittest.mock.patch.object(nodes, "types_on_head", lambda port: known if port == "6379" else ()):
            require(nodes.with_node_types(ray_of_head(), request).node_types == known, "a driver on the head asks nobody")


def a_silent_head_is_told_of_where_room_is_missing() -> None:
    there = [node("a")]
    for num_workers, is_silent, num_problems in ((4, True, 0), (40, False, 1), (40, True, 2)):
        request = dataclasses.replace(asked("train", num_workers, num_workers), is_head_silent=is_silent)
        problems = probe.problems_of_room(request, {"RECIPE.toml": ["gone.toml"]}, there)
        require(len(problems) == num_problems and (num_problems < 2 or "autoscaler" in problems[-1] and "--cluster-config" in problems[-1]), "problems", num_workers, is_silent, problems)


def pods_that_were_not_counted_are_told_of() -> None:
    of_types = dataclasses.replace(asked("process", 40, num_cpus=1), node_types=types_of(LAUNCHER))
    for request, is_told in ((asked("process", 40, num_cpus=1), True), (asked("process", 4, num_cpus=1), False), (of_types, False), (dataclasses.replace(asked("process", 40), cluster_config="k.yaml"), False)):
        for environment in ({probe.KUBERAY: "1"}, {}):
            with unittest.mock.patch.dict(os.environ, environment):
                problems = probe.problems_of_room(request, {}, [node("head")])
            require(any("--cluster-config" in problem for problem in problems) == (is_told and bool(environment)), "the advice", request, environment, problems)


def places_of_a_command_line_are_found() -> None:
    given = {"--metadata": ["a.parquet", "hf://datasets/x", "file:///data/b%20c", "in/part-*.parquet", "in/[ab]*/x", "/part-?", "*.csv"], "OUTPUT_URI": ["s3://b/out"]}
    require(places.local_paths(given, places.READ_PLACES["download"]) == ["a.parquet", "/data/b c", "in", "in", "/", "."], "inputs", places.local_paths(given, places.READ_PLACES["download"]))
    require(places.local_paths(given, places.WRITTEN_PLACES["download"]) == [], "outputs")
    for output, want in (("file:///data/b%20c", "/data/b c/_ray"), ("run", "/here/run/_ray"), ("s3://b/run", "")):
        require(program_log.local_storage(Request("train", (), folder="/here"), output) == want, "Ray Train's records", output)


def every_place_that_a_node_reads_or_writes_is_found() -> None:
    given = {"--config": ["c.toml"], "--catalogue": ["p.toml"], "--rates-from": ["summary.json"], "--resume": ["old/step-1"], "--run": ["run-1", "run-2"], "--dataset": ["images", "s3://b/d"], "--multi-model": ["models"],
             "--latents": ["noise.safetensors"], "--init-images": ["pictures"], "--reproduce": ["pictures.json"], "--save-latents": ["out/l.safetensors"]}
    for verb, want in (("download", ["c.toml", "p.toml", "summary.json"]), ("process", ["c.toml", "p.toml"]), ("train", ["old/step-1", "c.toml"]), ("online", ["old/step-1", "c.toml"]), ("tune", []),
                       ("sample", ["noise.safetensors", "pictures", "pictures.json", "c.toml"]), ("serve", ["run-1", "run-2", "images", "models", "c.toml"])):
        found = places.places_of(asked(verb), given)
        require(sorted(found.read) == sorted(want), "inputs", verb, found)
        require(found.written == (["out/l.safetensors"] if verb == "sample" else []), "outputs", verb, found)
    require(places.places_of(asked("serve"), given).read_stores == ["s3://b/d"] and places.places_of(asked("train"), {"--resume": ["s3://b/x"]}).read_stores == ["s3://b/x"], "on stores")
    require(places.places_of(asked("sample"), {"--save-latents": ["s3://b/l"]}).written_stores == ["s3://b/l"], "written to stores")
    restored = read_request("train", ["r.toml", "--restore-from-uri", "old/step-1"], "/").arguments
    require(restored == ("r.toml", "--resume", "old/step-1"), "by the reference's name", restored)
    for word in ("auto", "none"):
        require(places.places_of(asked("train"), {"--resume": [word]}) == places.Places([], []), "a word that names no place", word)


def a_node_looks_at_the_places_and_leaves_nothing() -> None:
    with temporary_folder() as folder:
        (folder / "in").mkdir()
        (folder / "in" / "part-000000.parquet").touch()
        request = Request("process", (), folder=str(folder), program="/bin/true")
        nonce = probe.Nonce(request, ["new/out"])
        facts = probe.look_at_disk(request, places.Places(["in", ".", "gone"], ["new/out"]), nonce.text)
        require([seen.is_there for seen in facts["paths"]] == [True, True, False, True], "places", facts["paths"])
        require(facts["paths"][3].has_nonce, "the nonce is not seen")
        require(not probe.look_at_disk(request, places.Places([], ["new/out"]), "another")["paths"][0].has_nonce, "any nonce is seen")
        os.unlink(nonce.files[0])  # As somebody who clears temporary files may.
        nonce.remove()
        require(sorted(path.name for path in folder.iterdir()) == ["in"], "something stays", list(folder.iterdir()))
        elsewhere = probe.Nonce(dataclasses.replace(request, folder=str(folder / "gone")), ["out-of-a-folder-that-is-not-here"])
        require(not elsewhere.files and not elsewhere.made, "what is made where the command's folder is not", elsewhere.made)
        missing = probe.look_at_program(dataclasses.replace(request, program=str(folder / "none")), places.Places([], []), PATIENCE)
        require("cannot be run here" in missing["problem"], "a missing program", missing)


def a_program_that_does_not_start_is_refused() -> None:
    with temporary_folder() as folder:
        (folder / "text").write_text("no program")
        (folder / "text").chmod(0o755)
        for name, words in (("", "cannot be run here"), ("gone", "cannot be run here"), ("text", "does not start")):
            request = Request("process", (), folder=str(folder), program=str(folder / name))
            for asks in (program.read_arguments, lambda request: probe.versions_here(program.find_program(request.program))):
                said = refusal_of(asks, request)
                require(words in said and str(folder / name) in said and "\n" not in said, "the refusal", name, said)
            require(words in probe.look_at_program(request, places.Places([], []), PATIENCE)["problem"], "a node that looks at it", name)
        require("does not answer as darkroom does" in refusal_of(program.read_arguments, Request("process", (), program="/bin/true")), "another program")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            code = command.main(["process", "in", "out", "--program", str(folder)])
        require(code == 2 and "cannot be run here" in said.getvalue(), "the command", code, said.getvalue())


def an_actor_on_a_node_tells_all_that_it_sees() -> None:
    ray = types.SimpleNamespace(get=lambda reply: reply, exceptions=types.SimpleNamespace(RayError=RuntimeError))
    with temporary_folder() as folder:
        look = probe.Look(dataclasses.replace(item_request(folder, 'echo darkroom 7'), verb="process"), places.Places(["gone"], ["out"], ["s3://b/x"]))
        look.remove_nonce()  # None was put.
        nonce = look.put_nonce()
        seen = probe.with_facts(ray, node("a"), (look.at_program(PATIENCE), look.at_disk(nonce)))
        require([one.path for one in seen.paths] == ["s3://b/x", "gone", "out"] and seen.paths[2].has_nonce and not seen.paths[1].is_there, "places", seen)
        require(seen.versions["darkroom"] == "darkroom 7" and seen.answers and seen.has_folder, "the others", seen)
        look.remove_nonce()
        require(not (folder / "out").exists(), "a nonce stays")
        require(not probe.with_facts(ray, node("a"), ()).answers, "a silent node")


def an_address_at_which_nobody_listens_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        cluster.check_answer(address)
    for wrong in (address, "no.such.host.invalid:6379"):
        with unittest.mock.patch.object(cluster, "import_ray", lambda: types.SimpleNamespace(init=lambda **unused: require(False, "Ray asks without end"), exceptions=types.SimpleNamespace(RayError=RuntimeError))):
            said = refusal_of(cluster.connected(dataclasses.replace(asked("sample"), address=wrong)).__enter__)
        require(f"no Ray cluster at {wrong}" in said, "the refusal", said)
    for other in ("auto", "ray://nowhere:1", "nowhere"):
        cluster.check_answer(other)


def a_cluster_that_does_not_let_the_command_in_refuses_it() -> None:
    class NoToken(Exception): ...

    def init(**unused) -> None:
        raise NoToken("Authentication failed: the token is missing")

    ray = types.SimpleNamespace(init=init, exceptions=types.SimpleNamespace(RayError=NoToken))
    with unittest.mock.patch.object(cluster, "import_ray", lambda: ray):
        said = refusal_of(cluster.connected(dataclasses.replace(asked("sample"), address="auto")).__enter__)
    require("no Ray cluster at auto: Authentication failed" in said, "the refusal", said)


def a_stop_while_ray_starts_leaves_nothing() -> None:
    for error, code, name in ((KeyboardInterrupt(), 130, "SIGINT"), (SystemExit(signal.SIGTERM), 143, "SIGTERM"), (SystemExit(3), None, "")):
        ended: list[str] = []

        def init(error=error, **unused) -> None:
            raise error

        ray = types.SimpleNamespace(init=init, shutdown=lambda ended=ended: ended.append("ray"))
        with temporary_folder() as folder, unittest.mock.patch.dict(os.environ, {"RAY_TMPDIR": str(folder)}), unittest.mock.patch.object(cluster, "import_ray", lambda ray=ray: ray), \
                unittest.mock.patch.object(command, "read_arguments", lambda request: {}), unittest.mock.patch.object(cluster, "SHORT_FOLDER_BYTES", 200), contextlib.redirect_stderr(io.StringIO()) as said:
            os.environ.pop("RAY_ADDRESS", None)
            try:
                require(command.main(["sample"]) == code, "exit code", code)
            except SystemExit as other:
                require(code is None and other.code == 3, "another end is no stop", other.code)
            require(ended == ["ray"] and os.listdir(folder) == [] and name in said.getvalue(), "what is left of Ray, and what is said", ended, os.listdir(folder), said.getvalue())


def a_ray_that_does_not_start_is_a_failed_job() -> None:
    """Nothing is wrong with flags or configuration: on a machine that is less busy the same command goes on."""
    tries: list[str] = []

    def init(**unused) -> None:
        tries.append("init")
        raise ValueError("the node's helpers did not start")

    ray = types.SimpleNamespace(init=init, shutdown=lambda: None)
    with temporary_folder() as folder, temporary_folder() as out, unittest.mock.patch.dict(os.environ, {"RAY_TMPDIR": str(folder)}), unittest.mock.patch.object(cluster, "import_ray", lambda: ray), \
            unittest.mock.patch.object(command, "read_arguments", lambda request: {}), unittest.mock.patch.object(cluster, "SHORT_FOLDER_BYTES", 200), contextlib.redirect_stderr(io.StringIO()) as said:
        os.environ.pop("RAY_ADDRESS", None)
        require(command.main(["sample", "--json-summary", str(out / "s.json")]) == 1 and len(tries) == cluster.START_TRIES, "exit code", tries)
        require("Ray did not start" in said.getvalue() and "helpers did not start" in said.getvalue(), "the sentence", said.getvalue())
        require("Ray did not start" in json.loads((out / "s.json").read_text())["error"], "the summary")


def other_versions_than_those_of_the_command_are_refused() -> None:
    for package in probe.DRIVER_PACKAGES:
        problems = preflight.check_probes(CLUSTER, of_command={**VERSIONS, package: "0.1.0"})
        require_sentence(problems, package, f"different versions of {package} (0.1.0: this command;")
    require(not preflight.check_probes(CLUSTER, of_command=VERSIONS), "the same ones")
    require("torch" not in probe.DRIVER_PACKAGES and not preflight.check_probes([], of_command=VERSIONS), "a head that computes nothing, and no node yet")


def places_on_stores_are_found() -> None:
    given = {"--metadata": ["a.parquet", "hf://datasets/x?config=en&split=train", "s3://b/in/part-*.parquet?region=r", "s3://b/in/part-?.parquet", "https://h/x"], "OUTPUT_URI": ["s3://b/out?endpoint=http://h:1"]}
    found = places.places_of(asked("download"), given)
    require(found.read_stores == ["hf://datasets/x?config=en&split=train", "s3://b/in?region=r", "s3://b/in"], "inputs", found)
    require(found.written_stores == ["s3://b/out?endpoint=http://h:1"] and found.read == ["a.parquet"] and found.written == [], "the others", found)


def what_lies_in_a_folder_on_a_store_has_its_settings() -> None:
    for folder, want in (("s3://b/run", "s3://b/run/x/y"), ("s3://b/run/?region=r&tries=2", "s3://b/run/x/y?region=r&tries=2"), ("s3://b/what?/run?region=r", "s3://b/what?/run/x/y?region=r"),
                         ("s3://b?endpoint_override=http://h:1/", "s3://b/x/y?endpoint_override=http://h:1/"), ("/data/a?b=c/", "/data/a?b=c/x/y"), ("run", "run/x/y"), ("/", "/x/y")):
        require(places.inside(folder, "x/y") == want, "in", folder, places.inside(folder, "x/y"))


def settings_that_ray_does_not_know_are_refused_before_the_start() -> None:
    def said(output: str, verb: str = "train", storage: str = "", **given) -> list[str]:
        request = dataclasses.replace(asked(verb), storage=storage)
        return [problem for problem in probe.problems_of_room(request, {"--output": [output], **given}, CLUSTER) if "--storage-path" in problem]

    for setting in ("profile=p", "timeout=20s", "tries=2", "anonymous=true", "force_virtual_addressing=true"):
        for verb in ("train", "online"):
            found = said(f"s3://b/run?region=r&{setting}", verb)
            require(len(found) == 1 and setting.split("=")[0] in found[0] and "name --storage-path" in found[0], "a setting that Ray does not know", setting, found)
    require(len(said("run", storage="s3://b/records?tries=2")) == 1, "of --storage-path itself")
    for address in ("s3://KEY:SECRET@bucket/records", "https://me:word@host/records"):
        (found,) = said("run", storage=address)
        require("credentials" in found and "SECRET" not in found and "word" not in found, "credentials that Ray would show", found)
    require(said("run", storage="s3://bucket/a@b") == [], "an @ of a key is none")
    require(not said("s3://b/run?tries=2", storage="/shared/records"), "records elsewhere")
    require(not said("s3://b/run?region=r&endpoint_override=h:1&scheme=http") and not said("s3://b/run") and not said("/a?tries=2"), "what Ray knows")
    require(not said("s3://b/out?tries=2", "process") and not said("s3://b/run?tries=2", **{"--dry-run": [""]}), "no run")


# Of the program: what it says of a place, by its name.
DOCTOR = """[ "$1 $2 $4" = "doctor --json-summary --" ] || exit 2
case "$5" in
*good*) said='{"problems": [], "stores": {"x": "answers after 3 ms: objects lie in it"}}' ;;
*none*) said='{"problems": [], "stores": {"x": "answers after 3 ms: nothing has that name yet; credentials were found"}}' ;;
*wrong*) said='{"problems": ["disk: /tmp: full; clear it", "stores: s3://b/wrong: is refused: the key is not known; look at the credentials"], "stores": {}}' ;;
*silent*) exec sleep 60 ;;
*) exit 1 ;;
esac
echo "{\\"doctor\\": $said}" > "$3"
"""


def a_node_looks_at_stores_through_its_program() -> None:
    with temporary_folder() as folder:
        request = item_request(folder, DOCTOR)
        of_stores = places.Places([], [], ["s3://key:secret@b/good?token=t", "s3://b/none", "hf://b/wrong", "s3://b/mute"], ["s3://b/none"])
        seen = probe.look_at_program(request, of_stores, PATIENCE)["paths"]
        require([one.path for one in seen] == ["s3://b/good?...", "s3://b/none", "hf://b/wrong", "s3://b/mute", "s3://b/none"], "places", seen)
        require([bool(one.problem) for one in seen] == [False, True, True, False, False], "what is wrong", seen)
        problems = preflight.check_probes([node("a", paths=seen)])
        require_sentence(problems, "an input that is not there", "node a does not see s3://b/none: nothing has that name")
        require_sentence(problems, "the program's own words", "does not see hf://b/wrong: is refused: the key is not known; look at the credentials")
        begin = time.monotonic()
        silent = probe.look_at_program(request, places.Places([], [], ["s3://b/silent"]), 0.3)["paths"]
        require_sentence(preflight.check_probes([node("a", paths=silent)]), "a silent store", "does not answer")
        require(time.monotonic() - begin < 30, "it is waited for")


def nobody_leaves(*leaving: str) -> types.SimpleNamespace:
    """What Ray says of nodes that are about to go."""
    return types.SimpleNamespace(state=types.SimpleNamespace(state=types.SimpleNamespace(get_draining_nodes=lambda: dict.fromkeys(leaving, 0))))


class Lost(Exception):
    """Ray's error of an actor that is lost."""


class LookRay:
    """Three nodes with an actor each, whose replies come at once; those of `lost` are lost."""

    exceptions = types.SimpleNamespace(RayError=Lost, GetTimeoutError=TimeoutError)

    def __init__(self, lost: set[int], fact: dict) -> None:
        self.lost, self.fact = lost, fact
        self.alive = [0, 1, 2]
        self.looks = 0
        self.killed: list[int] = []
        self._private = nobody_leaves()

    def nodes(self) -> list[dict]:
        return [{"NodeManagerAddress": "10.0.0.1", "NodeID": f"{number:08}", "Resources": {"CPU": 2.0}, "Alive": number in self.alive} for number in range(3)]

    def remote(self, what):
        return types.SimpleNamespace(options=lambda scheduling_strategy, **unused: types.SimpleNamespace(remote=lambda *unused: FakeActor(int(scheduling_strategy))))

    def wait(self, references, num_returns, timeout):
        return references, []

    def get(self, reference, timeout=None):
        number, name = reference
        self.looks += name == "put_nonce"
        if number in self.lost:
            raise Lost("The actor died.\nmore of it")
        return "nonce" if name == "put_nonce" else self.fact

    def kill(self, actor) -> None:
        self.killed.append(actor.number)


def refusal_by(ray: LookRay, on_look=lambda: None, check=lambda: None) -> str:
    """What the look at its nodes is refused with; "": it is not."""

    def nodes_now() -> list[dict]:
        found = LookRay.nodes(ray)
        on_look()
        return found

    ray.nodes = nodes_now
    with fake_modules({**AFFINITY, "ray": ray}):
        request = dataclasses.replace(asked("download", 1), address="head:1", program="/bin/true")
        try:
            probe.check_cluster(ray, request, {}, probe.probe_time(check))
        except flags.Refused as refusal:
            return str(refusal)
    return ""


def no_endless_look() -> Callable[[], None]:
    """What a look at a node calls: it is called a few times."""
    calls = iter(range(10))
    return lambda: require(next(calls, None) is not None, "it is looked at again and again")


def silent_then_drained_nodes_leave_the_others_their_time() -> None:
    """A node is silent until the time of the first look is over, and begins to be drained then."""
    now, leaving, asked_until = [100.0], [], []

    def look(ray, request, looked_at, places, until, problems_of):
        asked_until.append(until.end - now[0])
        now[0] = until.end
        leaving[:] = ["00000002"]
        return [dataclasses.replace(one, answers=one.node_id != "00000002", machine=one.name, has_folder=True) for one in looked_at]

    ray = LookRay(set(), {})
    ray._private = types.SimpleNamespace(state=types.SimpleNamespace(state=types.SimpleNamespace(get_draining_nodes=lambda: dict.fromkeys(leaving, 0))))
    with unittest.mock.patch.object(probe, "probe_nodes", look), unittest.mock.patch.object(probe, "time", types.SimpleNamespace(monotonic=lambda: now[0])):
        require(refusal_by(ray, no_endless_look()) == "", "those that stay")
    require(asked_until == [probe.SILENCE_SECONDS] * 2, "seconds that each look had", asked_until)


def nodes_that_leave_while_they_are_looked_at_refuse_nothing() -> None:
    good = {"versions": {}}
    ray = LookRay({0, 2}, good)
    require(refusal_by(ray, lambda: setattr(ray, "alive", [1])) == "" and ray.looks == 2 and sorted(ray.killed) == [0, 1, 1, 2], "an autoscaler takes idle nodes away", ray.looks, ray.killed)
    ray = LookRay({2}, good)
    ray._private = nobody_leaves("00000002")
    require(refusal_by(ray, lambda: setattr(ray, "alive", [0, 1])) == "", "one that is being drained")
    for lost in (set(), {2}):
        ray = LookRay(lost, good)
        ray._private = nobody_leaves("00000002")
        require(refusal_by(ray, no_endless_look()) == "" and sorted(ray.killed) == [0, 1], "one that is drained for long is not asked at all", ray.killed)
    silent_then_drained_nodes_leave_the_others_their_time()
    ray = LookRay({0}, good)
    said = refusal_by(ray)
    require("10.0.0.1 (00000000) cannot be looked at: The actor died.; look" in said and "more of it" not in said, "one that stays, and why", said)
    require(sorted(ray.killed) == [0, 1, 2], "actors stay, though the nonce could not be taken away", ray.killed)
    ray = LookRay({0}, {"problem": "no such program"})
    said = refusal_by(ray, lambda: setattr(ray, "alive", [1, 2]))
    require("no such program" in said and "00000000" not in said, "the others are looked at", said)
    ray = LookRay({0, 1, 2}, good)
    require("the cluster has no node" in refusal_by(ray, lambda: setattr(ray, "alive", [])), "when all have left")


def a_stop_ends_the_wait_for_silent_nodes() -> None:
    ray = LookRay(set(), {"versions": {}})
    ray.wait = lambda calls, num_returns, timeout: ([], calls)  # None answers.
    looks = iter([None, None])

    def check() -> None:
        if next(looks, ...) is ...:
            raise Stopped(signal.SIGINT)

    try:
        refusal_by(ray, check=check)
    except Stopped:
        require(sorted(ray.killed) == [0, 1, 2], "actors stay", ray.killed)
    else:
        raise AssertionError("it is waited on")


def what_is_wrong_is_told_within_ten_seconds_and_silent_nodes_are_waited_for() -> None:
    class Silent(Exception): ...

    # Whether the first node answers at all, what is wrong with the second, the most seconds, what is said.
    for has_nonce, wrong, seconds, words in ((False, "", 130, "10.0.0.1 (00000000) does not answer"), (True, "", 130, "10.0.0.1 (00000000) does not answer"), (True, "no such program", 9, "no such program")):
        now = [100.0]

        def get(reference, timeout=None, has_nonce=has_nonce, wrong=wrong, now=now):
            if has_nonce and reference == "text 0":
                return "nonce"
            if timeout is None:
                return {"problem": wrong} if reference.startswith("p") else {}
            now[0] += timeout
            raise Silent

        def wait(references, num_returns, timeout, has_nonce=has_nonce, wrong=wrong, now=now):
            done = [reference for reference in references if (has_nonce and reference == "text 0") or (wrong and reference.endswith("1"))]
            now[0] += 1 if len(done) == len(references) else timeout
            return done, references

        looks = iter([types.SimpleNamespace(**{name: types.SimpleNamespace(remote=lambda *unused, reply=f"{reply} {number}": reply) for name, reply in (("put_nonce", "text"), ("remove_nonce", "removed"), ("at_program", "p"), ("at_disk", "d"))}) for number in range(2)])
        made = types.SimpleNamespace(options=lambda looks=looks, **unused: types.SimpleNamespace(remote=lambda *unused: next(looks)))
        ray = types.SimpleNamespace(get=get, wait=wait, remote=lambda what: made, kill=lambda actor: None, exceptions=types.SimpleNamespace(RayError=Silent, GetTimeoutError=Silent), nodes=ray_with_nodes(2, 2).nodes, _private=nobody_leaves())
        strategies = types.SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node_id, soft: node_id)
        real, probe.time = probe.time, types.SimpleNamespace(monotonic=lambda now=now: now[0])
        try:
            with fake_modules({"ray": ray, "ray.util": types.SimpleNamespace(), "ray.util.scheduling_strategies": strategies}):
                request = dataclasses.replace(asked("download"), address="head:1", program="/bin/true")
                said = refusal_of(probe.check_cluster, ray, request, {}, probe.probe_time(lambda: None))
        finally:
            probe.time = real
        require(words in said and now[0] - 100 <= seconds, "seconds", has_nonce, now[0] - 100, said)


# -- items ------------------------------------------------------------------------------------------------------------


def answer(item: int, outcome: str = "committed", **counts) -> dict:
    return {"item": item, "outcome": outcome, "rows_in": 10, "rows_out": 9, "rows_by_error": {"timeout": 1}, "bytes": 100, **counts}


def items_are_handed_out_once() -> None:
    book = items.ItemBook(read_item_numbers("0-4,7"), 2, 3)
    batches = [book.take(0), book.take(0), book.take(0), book.take(0)]
    require(batches == [[0, 1], [2, 3], [4, 7], []], "batches", batches)
    require(not book.is_done, "done too early")
    for batch in batches:
        book.settle([answer(item) for item in batch], 0, 5)
    require(book.is_done and book.num_done == 6, "not done")
    require((book.totals.rows_in, book.totals.rows_out, book.totals.bytes) == (60, 54, 600), "totals", book.totals)
    require(book.totals.rows_by_error == {"timeout": 6}, "errors", book.totals.rows_by_error)


def batches_shrink_towards_the_end() -> None:
    book = items.ItemBook(list(range(100)), 30, 3, num_takers=4)
    sizes = []
    while batch := book.take(0.0):
        sizes.append(len(batch))
    # A quarter of what is left each time, rounded up.
    require(sizes == [25, 19, 14, 11, 8, 6, 5, 3, 3, 2, 1, 1, 1, 1], "sizes", sizes)
    book = items.ItemBook(list(range(100)), 30, 3)
    require([len(book.take(0.0)) for _ in range(5)] == [30, 30, 30, 10, 0], "without takers", book.open)
    book = items.ItemBook(list(range(100)), 7, 3, num_takers=4)
    require(len(book.take(0.0)) == 7, "more than a batch may have")


def items_of_others_are_asked_for_again_later() -> None:
    book = items.ItemBook([0, 1], 2, 3)
    book.take(0)
    book.settle([answer(0, "busy"), answer(1, "there")], 10, 5)
    require(book.take(14.9) == [] and not book.is_done, "asked for again too early")
    require(book.take(15) == [0], "not asked for again")
    book.settle([answer(0, "there")], 15, 5)
    require(book.is_done and book.totals.items_there == 2 and book.totals.rows_in == 0, "totals", book.totals)


def an_item_that_fails_goes_alone_and_ends_the_job_at_last() -> None:
    book = items.ItemBook([0, 1, 2], 2, 1)
    book.fail(book.take(0), "lost", 10)
    require(book.take(10) == [2], "what is fresh goes first")
    require(book.take(11.9) == [] and not book.is_done, "what failed is tried again at once")
    require(book.take(12, may_go_alone=False) == [], "a failed item goes beside others")
    batches = [book.take(12), book.take(12)]
    require(batches == [[0], [1]] and all(map(book.goes_alone, batches)) and not book.goes_alone([2]), "failed items go alone", batches)
    book.settle([answer(0)], 0, 5)
    try:
        book.fail([1], "corrupt part", 12)
    except items.ItemFailed as failure:
        require("item 1 failed 2 times" in str(failure) and "corrupt part" in str(failure), "why", failure)
    else:
        raise AssertionError("a bad item is tried for ever")
    forever = items.ItemBook([0], 1, -1)
    pauses = []
    for _ in range(100):
        forever.fail(forever.take(0), "lost", 0)
        pauses.append(forever.later[0][0])
        forever.later = [(0, 0)]
    require(forever.take(0) == [0], "-1 is for ever")
    require(pauses[:6] == [2, 4, 8, 16, 32, 60] and pauses[-1] == 60, "pauses", pauses)


def an_item_that_the_job_does_not_have_ends_it() -> None:
    book = items.ItemBook([0], 1, -1)
    book.take(0)
    try:
        book.settle([answer(0, "unknown")], 0, 5)
    except items.ItemFailed as failure:
        require("no item 0" in str(failure), "why", failure)
    else:
        raise AssertionError("an unknown item is done")


def progress_is_one_line_and_a_warning_is_said_once() -> None:
    now = [0.0]
    stream = io.StringIO()
    view = progress.Progress("process", stream, lambda: now[0])
    book = items.ItemBook([0, 1], 1, 3)
    book.settle([answer(0)], 0, 5)
    text = progress.items_text("process", {"items": 5}, book, 2, 1, 4.0)
    for second in (1.0, 11.0, 12.0):
        now[0] = second
        view.show(text)
    view.warn(["warning: a", "warning: a"])
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    quiet = progress.Progress("process", terminal, lambda: now[0], is_quiet=True)
    quiet.show(text)
    quiet.say(text)
    require(quiet.stream.getvalue() == "", "--quiet", quiet.stream.getvalue())
    quiet.warn(["warning: a"])
    require("warning: a" in quiet.stream.getvalue(), "a warning for all that")
    lines = stream.getvalue().splitlines()
    require(len(lines) == 2 and "4/5 items" in lines[0] and "1 restarts" in lines[0] and "timeout 1" in lines[0], "lines", lines)


def a_line_that_is_no_answer_is_a_said_one() -> None:
    with temporary_folder() as folder:
        script = """echo 'a library says hello'; echo '[1]'; echo '{"ready": true, "items": 1}'; read item; echo "{\\"item\\": $item}"; read item; exit 0"""
        child = item_child.ItemChild(item_request(folder, script))
        require(child.plan()["items"] == 1 and child.do([7]) == [{"item": 7}], "answers")
        child.finish()
        require(child._child.last_words().splitlines() == ["a library says hello", "[1]"], "what was said", child._child.last_words())


def answers_that_were_given_are_kept_no_longer() -> None:
    with temporary_folder() as folder:
        child = item_child.ItemChild(item_request(folder, """while read item; do echo "{\\"item\\": $item}"; done"""))
        for items in ([1, 2, 3], [2]):
            require(child.do(items) == [{"item": item} for item in items], "answers", items)
        require(not child._answers, "what is kept", child._answers)
        child.finish()


def what_a_killed_owner_leaves_goes_with_the_next_one() -> None:
    hold = "import sys, time; from darkroom_ray.own_folder import own_folder; folder = own_folder('dr-', sys.argv[1]); print(folder.__enter__(), flush=True); time.sleep(600)"
    with temporary_folder() as folder, temporary_folder() as elsewhere:
        killed, living = (subprocess.Popen([sys.executable, "-c", hold, str(folder)], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")}) for _ in range(2))
        left, held = (pathlib.Path(owner.stdout.readline().strip()) for owner in (killed, living))
        try:
            (left / "session").mkdir()
            (left / "session" / "log").write_text("x")
            (left / "link").symlink_to(elsewhere)
            (elsewhere / own_folder.LOCK).touch()
            (folder / "dr-link").symlink_to(elsewhere)
            (folder / "dr-of-somebody").mkdir()
            (folder / "other").mkdir()
            (folder / "other" / own_folder.LOCK).touch()
            killed.kill()
            killed.wait()
            with own_folder.own_folder("dr-", str(folder)) as own:
                want = {pathlib.Path(own).name, held.name, "dr-link", "dr-of-somebody", "other"}
                require(set(os.listdir(folder)) == want, "what is there", os.listdir(folder), want)
            require(set(os.listdir(folder)) == want - {pathlib.Path(own).name} and (elsewhere / own_folder.LOCK).exists(), "behind it", os.listdir(folder))
        finally:
            for owner in (killed, living):
                owner.kill()
                owner.communicate()


def a_cluster_whose_script_crashes_is_no_skip() -> None:
    with temporary_folder() as folder:
        for script, kind, words in (("echo its words >&2; exit 1", AssertionError, "its words"), ("echo late >&2; exec sleep 300", cases.Skipped, "does not start on this machine")):
            python = pathlib.Path(item_request(folder, script).program)
            with unittest.mock.patch.multiple(ray_bench, RAY_PYTHON=python, START_SECONDS=60 if kind is AssertionError else 0.2, LEAST_FREE_BYTES=0):
                try:
                    ray_bench.RayCluster()
                except (AssertionError, cases.Skipped) as error:
                    require(type(error) is kind and words in str(error), "how a case ends", script, repr(error))
                else:
                    raise AssertionError("there is a cluster")


def a_staged_package_that_is_broken_is_no_skip() -> None:
    with unittest.mock.patch.object(sys, "path", [*sys.path, str(ROOT / "tests" / "acceptance")]), unittest.mock.patch.object(sys, "argv", sys.argv[:1]):
        acceptance = importlib.import_module("cluster")
    script = 'case "$2" in *find_spec*) echo %s;; *) echo ImportError: its words >&2; exit 1;; esac'
    for missing, kind, words in (("pyarrow", cases.Skipped, "it lacks pyarrow"), ("", AssertionError, "its words")):
        with temporary_folder() as folder:
            python = item_request(folder, script % missing).program
            with unittest.mock.patch.multiple(acceptance, RAY_PYTHON=python, STAGED=folder):
                try:
                    acceptance.path_of_operators(folder)
                except (AssertionError, cases.Skipped) as error:
                    require(type(error) is kind and words in str(error), "how the case ends", repr(error))
                else:
                    raise AssertionError("it can be imported")


def a_killed_program_has_no_result() -> None:
    with temporary_folder() as folder:
        for script, code in (("kill -9 $$", -9), ("exit 143", 143)):
            try:
                program.run_to_summary(item_request(folder, script))
            except program.ProgramFailed as failure:
                require(failure.code == code and failure.was_killed, "code", failure.code)
            else:
                raise AssertionError(f"a killed program has a result: {script}")
        require(program.run_to_summary(item_request(folder, "exit 3"))[0] == 3, "a program that ends by itself has one")


# Works for five seconds, and when it is asked to end gives back what it had claimed.
ENDS_IN_ORDER = """trap 'sleep 0.2; touch given-back; exit 143' TERM; touch begun; for i in $(seq 100); do sleep 0.05; done"""


def wait_for_file(path) -> None:
    end = time.monotonic() + PATIENCE
    while not path.exists():
        require(time.monotonic() < end, "never came:", path)
        time.sleep(0.01)


def a_stopped_encoder_ends_its_program_in_order() -> None:
    with temporary_folder() as folder:
        encoder = item_workers.Encoder(item_request(folder, ENDS_IN_ORDER))
        failures: list[Exception] = []

        def work() -> None:
            try:
                encoder.do([7])
            except program.ProgramFailed as failure:
                failures.append(failure)

        working = threading.Thread(target=work)
        working.start()
        wait_for_file(folder / "begun")
        encoder.stop()
        require((folder / "given-back").exists(), "the program was not waited for")
        working.join()
        require([failure.code for failure in failures] == [143], "the call that was under way", failures)
        item_workers.Encoder(item_request(folder, "exit 0")).stop()  # Nothing was asked of it.


def a_cancelled_task_ends_its_program_in_order() -> None:
    works = (item_workers.plan_items, lambda request: item_workers.do_items(request, [7]), program.run_to_summary)
    for number, work in enumerate(works):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # As of what a shell starts in the background.
        with temporary_folder() as folder:

            def cancel(begun=folder / "begun") -> None:
                wait_for_file(begun)
                _thread.interrupt_main()  # As Ray does.

            threading.Thread(target=cancel).start()
            try:
                work(item_request(folder, ENDS_IN_ORDER))
            except (KeyboardInterrupt, program.ProgramFailed) as ended:
                require(isinstance(ended, KeyboardInterrupt), "a cancelled task failed", number, ended)
            else:
                raise AssertionError(f"work {number} was not cancelled")
            require((folder / "given-back").exists(), "the program was not waited for", number)


def a_task_that_is_cancelled_while_its_program_starts_leaves_none_behind() -> None:
    begun, ended = threading.Event(), []

    def start() -> str:
        begun.set()
        time.sleep(0.5)  # The cancelling comes meanwhile: it is told at once.
        return "its program"

    def cancel() -> None:
        begun.wait(PATIENCE)
        _thread.interrupt_main()

    def work(started: str) -> None:
        while not ended:  # As one that serves until it is ended.
            time.sleep(0.01)

    threading.Thread(target=cancel).start()
    try:
        program.until_cancelled(start, work, ended.append)
    except KeyboardInterrupt:
        require(ended == ["its program"], "it is ended", ended)
    else:
        raise AssertionError("the task was not cancelled")
    never: list[str] = []
    with unittest.mock.patch.object(program.concurrent.futures, "wait", side_effect=KeyboardInterrupt), unittest.mock.patch.object(program.concurrent.futures.ThreadPoolExecutor, "submit", lambda *unused: concurrent.futures.Future()):
        try:
            program.until_cancelled(lambda: never.append("begun"), never.append, never.append)
        except KeyboardInterrupt:
            require(not never, "what was not begun yet is not waited for", never)


def a_task_that_is_cancelled_while_it_asks_for_its_price_hears_it() -> None:
    def priced(request: Request) -> Request:
        _thread.interrupt_main()
        return request

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with temporary_folder() as folder, unittest.mock.patch.object(program, "priced_here", priced):
        try:
            program.run_to_summary(item_request(folder, "exit 0"))
        except KeyboardInterrupt:
            return
        raise AssertionError("the task was not cancelled")


def a_task_without_trouble_has_its_program_s_words() -> None:
    with temporary_folder() as folder:
        script = """echo 'x warning: w' >&2; echo '{"ready": true, "items": 1}'; read item && echo "{\\"item\\": $item}"; read item; exit 0"""
        request = item_request(folder, script)
        answers, warnings, seconds = item_workers.do_items(request, [7])
        require(answers == [{"item": 7}] and warnings == ["warning: w"] and seconds > 0, "items", answers, warnings, seconds)
        require(item_workers.plan_items(request)[:2] == ({"ready": True, "items": 1}, ["warning: w"]), "a plan")
        closing = item_request(folder, """echo 'done' >&2; echo '{"process": {}}' > "$3"; exit 3""")
        require(program.run_to_summary(closing) == (3, {"process": {}}, "done"), "a closing run")


class FakeActor:
    """Of Ray's: calls give their names."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __getattr__(self, name: str):
        return types.SimpleNamespace(remote=lambda *unused: (self.number, name))


class FakeRay:
    """Places the actors of `placed`."""

    exceptions = types.SimpleNamespace(RayError=RuntimeError)

    def __init__(self) -> None:
        self.placed: set[int] = set()
        self.killed: list[int] = []
        self.cancelled: list = []
        self.waits: list = []
        self._numbers = itertools.count()

    def remote(self, what):
        made = types.SimpleNamespace(remote=lambda *unused: FakeActor(next(self._numbers)))
        return types.SimpleNamespace(options=lambda **unused: made)

    def wait(self, references, num_returns, timeout):
        self.waits.append((references, num_returns, timeout))
        return [one for one in references if one[0] in self.placed], None

    def kill(self, actor) -> None:
        self.killed.append(actor.number)

    def cancel(self, reference) -> None:
        self.cancelled.append(reference)

    def get(self, reference) -> tuple[list[str], float]:
        return [f"warning of {reference[0]}"], 2.0


def encoders_that_are_not_placed_get_no_work() -> None:
    ray = FakeRay()
    encoders = item_workers.Encoders(ray, asked("process", 3))
    require(not encoders.is_ready() and not encoders.has_room() and encoders.num_waiting() == 3, "work for nobody")
    ray.placed = {1}
    require(encoders.is_ready() and encoders.plan()[0] == 1 and encoders.num_waiting() == 2, "the placed one plans")
    first, second = encoders.submit([0], False), encoders.submit([1], False)
    require(first[0][0] == second[0][0] == 1 and not encoders.has_room(), "work for one that is not placed")
    encoders.give_back(first[1], is_lost=False)
    require(encoders.has_room() and not encoders.is_one_idle(), "room")
    encoders.give_back(second[1], is_lost=False)
    alone = encoders.submit([2], True)
    require(not encoders.has_room(), "another batch goes beside one that goes alone")
    encoders.give_back(alone[1], is_lost=True)
    require(ray.killed == [1] and not encoders.has_room() and encoders.num_waiting() == 3, "a lost one is replaced", ray.killed)
    ray.placed = {3}
    require(encoders.finish(lambda replies: replies[:1]) == (["warning of 3"], 2.0), "warnings and seconds")
    require(ray.killed == [1, 0, 2, 3], "all are killed at the end", ray.killed)


class StopNow:
    """A watch that has heard a signal."""

    def check(self) -> None:
        raise Stopped(signal.SIGTERM)


def job_of(ray: FakeRay, request: Request) -> item_job.ItemJob:
    """Without Ray's counters."""
    counters, item_job.JobMeasures = item_job.JobMeasures, lambda verb: types.SimpleNamespace(restarts=types.SimpleNamespace(inc=lambda amount: None))
    try:
        job = item_job.ItemJob(ray, request, StopNow())
    finally:
        item_job.JobMeasures = counters
    job.progress = progress.Progress(request.verb, io.StringIO())
    return job


def a_stopped_job_waits_until_its_encoders_have_ended_their_programs() -> None:
    ray = FakeRay()
    ray.placed = {0}
    job = job_of(ray, asked("process", 2))
    try:
        job.run()
    except Stopped as stopped:
        require(stopped.code == 143, "exit code", stopped.code)
    else:
        raise AssertionError("the job goes on")
    require(ray.killed == [1], "one that is not placed yet may come", ray.killed)
    require(ray.waits[-1] == ([(0, "stop"), (0, "plan")], 2, stopping.STOP_SECONDS), "what was waited for", ray.waits[-1])


def a_stop_cancels_tasks_and_no_call_of_an_actor() -> None:
    ray = FakeRay()
    request = read_request("download", ["out", "--metadata", "m"], "/")
    require(item_workers.Tasks(ray, request, 2).stop(["a", "b"]) == ["a", "b"] and ray.cancelled == ["a", "b"], "tasks", ray.cancelled)
    encoders = item_workers.Encoders(ray, asked("process", 1))
    ray.placed, ray.cancelled = {0}, []
    require(encoders.stop([(0, "do")]) == [(0, "stop")] and not ray.cancelled, "encoders at work", ray.cancelled)
    encoders.finish(lambda replies: replies)
    closing = encoders.close()
    require(encoders.stop([closing]) == [closing] and ray.cancelled == [closing], "the closing run", ray.cancelled)


def a_lost_encoder_with_two_calls_is_one_restart() -> None:
    ray = FakeRay()
    ray.placed = {0}
    job = job_of(ray, asked("process", 1))
    book = items.ItemBook([0, 1], 1, 3)
    calls = [(batch, job.workers.submit(batch, False)[1]) for batch in (book.take(0), book.take(0))]
    for batch, worker in calls:
        job.lose(book, batch, worker, RuntimeError("the actor died"))
    require(job.restarts == 1 and job.progress.stream.getvalue().count("is replaced") == 1, "restarts", job.restarts, job.progress.stream.getvalue())
    require(ray.killed == [0] and len(book.later) == 2, "both batches are asked for again", ray.killed, book.later)
    ray.placed = {1}
    job.lose(book, [0], job.workers.submit([0], False)[1], RuntimeError("the next one died"))
    require(job.restarts == 2, "the next one", job.restarts)


def worked_with(request: Request, given: dict[str, list[str]]) -> Request:
    """As a verb's work gets it. `given`: as the program reads the command line and its files of settings."""
    ray = types.SimpleNamespace(exceptions=types.SimpleNamespace(RayError=RuntimeError))
    seen: list[Request] = []
    with contextlib.ExitStack() as patches:
        for module, name, fake in ((verbs, "check_all", lambda *unused: None), (verbs, "work", lambda ray, request, given, stop: seen.append(request) or (0, {})), (verbs, "import_ray", lambda: ray), (nodes, "with_node_types", lambda ray, request: request)):
            patches.enter_context(unittest.mock.patch.object(module, name, fake))
        verbs.run_checked(request, given, types.SimpleNamespace(check=lambda: None))
    return seen[0]


def programs_of_one_node_share_a_quarter_of_its_memory() -> None:
    whole = {"CPU": 8.0, "GPU": 4.0, "memory": 64e9}
    require(shares.memory_for({"GPU": 1.0, "CPU": 1.0}, whole) == ["--memory", "4000000000"], "four encoders with a GPU each")
    require(shares.memory_for({"CPU": 8.0}, whole) == ["--memory", "16000000000"], "one that has all")
    require(shares.memory_for({"CPU": 0.001}, whole) == ["--memory", str(256 << 20)], "the least")
    request = read_request("process", ["a", "b"], "/")
    for words, given in ((["--memory", "5"], {"--memory": ["5"]}), ([], {"--memory": ["5"]})):
        told = shares.with_memory(dataclasses.replace(request, arguments=(*words, "a", "b")), given)
        with unittest.mock.patch.object(shares, "resources_here", lambda: ({"CPU": 8.0}, whole)):
            require(shares.memory_here(told) == [] and " ".join(told.arguments).replace("=", " ") == "--memory 5 a b", "what the user says", told.arguments)
            require(shares.memory_here(request) == ["--memory", "16000000000"], "what nobody says")
    require(shares.memory_for({"darkroom": 1.0}, whole) == shares.memory_for({"CPU": 1.0}, {}) == [], "what is not known")


def a_program_is_told_of_its_share_of_the_machine_s_price() -> None:
    whole = {"CPU": 8.0, "GPU": 0.0, "memory": 100.0, "encoder": 2.0}
    for taken, share in (({"CPU": 2.0}, 0.25), ({"CPU": 2.0, "memory": 50.0}, 0.5), ({"encoder": 2.0}, 0.0), ({}, 0.0), ({"GPU": 1.0, "CPU": 0.8}, 0.1), ({"CPU": 9.0}, 1.0)):
        require(shares.share_of(taken, whole) == share, "the share of", taken, shares.share_of(taken, whole))
    require(shares.share_of({"GPU": 0.5, "CPU": 1.0}, {"GPU": 1.0, "CPU": 8.0}) == 0.5, "half a GPU")
    for words, want in (("--limit 3 --price-per-hour g5:spot", "--limit 3 --price-per-hour g5:spot*0.250000"), ("--price-per-hour=4*0.5", "--price-per-hour=4*0.5*0.250000")):
        request = read_request("process", ["a", "b", *words.split()], "/")
        require(" ".join(prices.with_share(request, 0.25).arguments[2:]) == want, "words of", words, prices.with_share(request, 0.25).arguments)
    for words, settings, want in ((["--price-per-hour=4"], {"--price-per-hour": ["4"]}, ("--price-per-hour=4",)), ([], {"--price-per-hour": ["8*0.5"]}, ("--price-per-hour=8*0.5",)), ([], {"--price-per-hour": []}, ()), ([], {}, ())):
        request = read_request("process", [*words, "--", "a", "b"], "/")
        require(prices.with_price(request, settings).arguments == (*want, "--", "a", "b"), "the price of a file of settings", words, settings)
    require("--price-per-hour=5" in worked_with(asked("download"), {"--price-per-hour": ["5"]}).arguments, "every verb's programs are told of it")
    request = asked("download")
    require(prices.priced_here(request) is request, "without a price nobody is asked")
    context = types.SimpleNamespace(get_node_id=lambda: "b", get_assigned_resources=lambda: {"CPU": 4.0})
    ray = types.SimpleNamespace(get_runtime_context=lambda: context, nodes=lambda: [{"NodeID": "a", "Resources": {"CPU": 4.0}}, {"NodeID": "b", "Resources": whole}])
    with fake_modules({"ray": ray}):
        priced = prices.priced_here(read_request("download", ["out", "--metadata", "m", "--price-per-hour", "8"], "/"))
    require("8*0.500000" in priced.arguments, "of the node that it is on", priced.arguments)


def a_job_has_cost_what_its_workers_and_its_closing_run_have() -> None:
    ray = FakeRay()
    ray.placed = {0}
    job = job_of(ray, asked("process", 1))
    job.worker_seconds, job.book = 1800.0, items.ItemBook([], 1, 3)
    job.tell_end(0, f"{AT} process: done, as it says\n{AT} process: this has cost $0.5, at $3 an hour")
    stage = job.summarize({"process": {"dollars": 0.5, "dollars_per_hour": 3.0}})["process"]
    require(stage["dollars"] == 2.0 and "dollars_per_hour" not in stage and stage["cluster"]["dollars_per_worker_hour"] == 3.0 and stage["cluster"]["worker_seconds"] == 1800.0, "the cost", stage)
    shown = job.progress.stream.getvalue()
    require("done, as it says" in shown and "this has cost $2, at $3 an hour of a worker" in shown and "$0.5" not in shown, "what is said", shown)
    require("dollars" not in job.summarize({"process": {}})["process"], "a cost without a price")


def what_ends_a_job_badly_is_said_by_a_quiet_one_too() -> None:
    ends = (
        (0, "process: 3 rows in", {"process: 3 rows in"}, set()),
        (0, "", {"process: done"}, set()),
        (0, f"warning: odd\n{AT} process: 3 rows in", {"warning: odd", "process: 3 rows in"}, {"warning: odd"}),
        (3, f"process: 3 rows in\n{AT} error: no good row", {"error: no good row"}, {"error: no good row"}),
        (1, "warning: odd", {"warning: odd", "error: process ended with exit code 1: warning: odd"}, {"warning: odd", "error: process ended with exit code 1: warning: odd"}),
        (1, "a library's last word", {"error: process ended with exit code 1: a library's last word"}, {"error: process ended with exit code 1: a library's last word"}),
        (1, "", {"error: process ended with exit code 1"}, {"error: process ended with exit code 1"}),
    )
    for is_quiet, (code, said, loud, quiet) in itertools.product((False, True), ends):
        job = job_of(FakeRay(), asked("process", 1))
        job.progress = progress.Progress("process", io.StringIO(), is_quiet=is_quiet)
        job.tell_end(code, f"{AT} {said}" if said else "")
        shown = {line.partition(" ")[2] for line in job.progress.stream.getvalue().splitlines()}
        require(shown == (quiet if is_quiet else loud), "what is said", code, said, is_quiet, shown)


def why_rows_failed_is_told_once_for_each_code() -> None:
    ray = FakeRay()
    job = job_of(ray, asked("download", 2))
    job.book = items.ItemBook([], 1, 3)
    tls, gone = "download: a row failed, tls: expired; the first is of https://a/b", "download: a row failed, http_404: Not: Found"
    job.hear([tls, "warning: odd"])
    job.hear([gone, "download: a row failed, tls: another", tls])
    said = [line.partition(" ")[2] for line in job.progress.stream.getvalue().splitlines()]
    require(said == [tls, "warning: odd", gone], "what is said", said)
    stage = job.summarize({"download": {"first_errors": {"bomb": "of the closing run", "tls": "of it"}}})["download"]
    require(stage["first_errors"] == {"bomb": "of the closing run", "http_404": "Not: Found", "tls": "expired; the first is of https://a/b"}, "the summary", stage)
    for code in range(200):
        job.hear([f"download: a row failed, http_{code}: {'x' * 5000}"])
    told = job.first_errors.by_code
    require(len(told) == items.MOST_CODES and max(map(len, told.values())) == items.MOST_CHARACTERS, "it is bounded", len(told))


def programs_of_items_tell_why_rows_failed() -> None:
    failed = "process: a row failed, truncated: the JPEG header is cut"
    script = f"""echo "$*" > words; echo '{AT} {failed}' >&2; for i in $(seq 50); do echo '{AT} process 1/2 rows' >&2; done
    echo '{{"ready": true, "items": 1}}'; while read item; do sleep 0.3; echo "{{\\"item\\": $item}}"; done"""
    with temporary_folder() as folder:
        _, said, _ = item_workers.do_items(item_request(folder, script), [7])
        require(failed in said, "of a task", said)
        words = (folder / "words").read_text().split()
        require("--quiet=false" in words, "a quiet program says none", words)
        encoder = item_workers.Encoder(item_request(folder, script))
        _, said, _ = encoder.do([7])
        require(failed in said, "of an encoder, before its end", said)
        require(encoder.do([8])[1] == [] and encoder.finish()[0] == [], "it is told again")


def a_place_of_the_summary_that_takes_none_is_refused_before_the_job() -> None:
    with temporary_folder() as folder:
        script = """echo '{"exit_code": 0, "given": {}}'"""
        request = item_request(folder, script)
        connected, command.connected = command.connected, None
        try:
            for path, words in ((folder / "none" / "s.json", "no folder"), (folder, "a folder")):
                said = refusal_of(command.run_verb, dataclasses.replace(request, summary_path=str(path)))
                require("--json-summary" in said and words in said and str(path.parent if words == "no folder" else path) in said, "the refusal", said)
        finally:
            command.connected = connected
        summaries.check_summary_place("")
        summaries.check_summary_place(str(folder / "s.json"))
        require(not (folder / "s.json").exists(), "a file that has no summary yet")
        summaries.write_summary(str(folder / "s.json"), {"a": 1})
        summaries.check_summary_place(str(folder / "s.json"))
        require(json.loads((folder / "s.json").read_text()) == {"a": 1}, "an earlier summary is gone")


def ended_with(folder, failure: Exception) -> tuple[int, dict]:
    """A command whose job ends with this: exit code and summary, where an earlier run has left one."""
    (folder / "s.json").write_text('{"an": "earlier one"}')
    request = dataclasses.replace(item_request(folder, """echo '{"exit_code": 0, "given": {}}'"""), summary_path=str(folder / "s.json"))
    with unittest.mock.patch.object(command, "connected", lambda request: contextlib.nullcontext()), unittest.mock.patch.object(verbs, "run_checked", side_effect=failure), unittest.mock.patch.object(stopping, "StopWatch", StopNow):
        code = command.run_verb(request)
    require([path.name for path in folder.iterdir() if "s.json" in path.name] == ["s.json"], "files", list(folder.iterdir()))
    return code, json.loads((folder / "s.json").read_text())


def a_summary_after_a_failure_or_a_stop_says_why() -> None:
    with temporary_folder() as folder:
        code, summary = ended_with(folder, item_job.JobFailed("item 3 failed", 1, {"rows_in": 7}))
        require((code, summary) == (1, {"process": {"rows_in": 7}, "error": "item 3 failed"}), "a failure", code, summary)
        code, summary = ended_with(folder, Stopped(signal.SIGTERM))
        require(code == 143 and summary["process"] == {} and summary["error"].startswith("stopped by SIGTERM"), "a stop", code, summary)


def a_job_that_ends_early_has_its_counts() -> None:
    for failure in (item_job.JobFailed("item 3 failed"), Stopped(signal.SIGTERM), FakeRay.exceptions.RayError("the head is gone")):
        job = job_of(FakeRay(), asked("process", 1))

        def run_and_end(job=job, failure=failure) -> None:
            job.book = items.ItemBook([0, 1], 1, 3)
            job.book.settle([answer(0)], 0, 5)
            raise failure

        with unittest.mock.patch.object(job, "run_to_end", run_and_end), contextlib.suppress(type(failure)):
            job.run()
        about = failure.summary
        require((about["rows_in"], about["rows_out"], about["rows_by_error"], about["items_to_do"], about["cluster"]["items"]) == (10, 9, {"timeout": 1}, 2, 1), "counts", failure, about)
    early = job_of(FakeRay(), asked("process", 1))
    with unittest.mock.patch.object(early, "run_to_end", side_effect=Stopped(signal.SIGTERM)):
        try:
            early.run()
        except Stopped as stopped:
            require(stopped.summary == {}, "before the plan", stopped.summary)
    lost = RuntimeError("the head is gone")
    lost.summary = {"rows_in": 7}
    try:
        with verbs.failures_told(types.SimpleNamespace(exceptions=types.SimpleNamespace(RayError=RuntimeError, LocalRayletDiedError=OSError, RaySystemError=OSError, RpcError=OSError))):
            raise lost
    except item_job.JobFailed as failed:
        require(failed.summary == {"rows_in": 7}, "a lost cluster", failed.summary)


def a_summary_goes_through_what_is_no_file() -> None:
    with temporary_folder() as folder:
        os.symlink(folder / "target", folder / "link")
        summaries.check_summary_place(str(folder / "link"))
        summaries.write_summary(str(folder / "link"), {"a": 1})
        require((folder / "link").is_symlink() and json.loads((folder / "target").read_text()) == {"a": 1}, "a link")
        os.mkfifo(folder / "pipe")
        heard: list[str] = []
        reading = threading.Thread(target=lambda: heard.append((folder / "pipe").read_text()))
        reading.start()
        summaries.write_summary(str(folder / "pipe"), {"a": 2})
        reading.join(PATIENCE)
        require(json.loads(heard[0]) == {"a": 2} and (folder / "pipe").is_fifo(), "a pipe", heard)
        os.link(folder / "target", folder / "older")
        summaries.write_summary(str(folder / "target"), {"a": 3})
        require(json.loads((folder / "older").read_text()) == {"a": 1} and json.loads((folder / "target").read_text()) == {"a": 3}, "a file is replaced, not written over")
        with unittest.mock.patch.object(summaries.os, "replace", side_effect=OSError("full")), contextlib.suppress(item_job.JobFailed):
            summaries.write_summary(str(folder / "target"), {"a": 4})
        require(not (folder / "target.new").exists(), "what was begun is left")


def a_finished_job_whose_summary_cannot_be_written_has_failed() -> None:
    with temporary_folder() as folder:
        for code, want in ((0, 1), (3, 3)):
            try:
                summaries.write_summary(str(folder / "none" / "s.json"), {}, code)
            except item_job.JobFailed as failure:
                require(failure.code == want and "--json-summary" in str(failure), "exit code", failure.code, failure)
            else:
                raise AssertionError("nothing was said")


def ray_with_nodes(*cpus: float) -> FakeRay:
    ray = FakeRay()
    ray.nodes = lambda: [{"NodeManagerAddress": "10.0.0.1", "NodeID": f"{number:08}", "Resources": {"CPU": amount}, "Alive": True} for number, amount in enumerate(cpus)]
    return ray


def tasks_follow_the_nodes_that_there_are() -> None:
    request = read_request("download", ["out", "--metadata", "m"], "/")
    job = item_job.ItemJob.__new__(item_job.ItemJob)
    job.ray, job.request, job.keeper, job.access = ray_with_nodes(2, 2), request, None, None
    workers = job.make_workers()

    def fill() -> int:
        given = 0
        while workers.has_room():
            workers.submit([given], False)
            given += 1
        return given

    require(workers.num_workers == 4 and fill() == 5, "as many as have room, and one that waits", workers.num_workers)
    require(not workers.is_one_idle(), "none is idle")
    workers.note_room(item_job.room_for_tasks(nodes.nodes_of(ray_with_nodes(2, 2, 4)), request.placement))
    require(workers.num_workers == 8 and fill() == 5, "a node has come", workers.num_workers)
    workers.note_room(item_job.room_for_tasks(nodes.nodes_of(ray_with_nodes(2)), request.placement))
    require(workers.num_workers == 2 and fill() == 0, "nodes have gone", workers.num_workers)
    for _ in range(9):
        workers.give_back(None, is_lost=False)
    require(workers.is_one_idle() and fill() == 2, "the last ones have ended")
    fixed = dataclasses.replace(request, num_workers=3)
    job.request = fixed
    workers = job.make_workers()
    workers.note_room(8)
    require(workers.num_workers == 3 and fill() == 3, "so many as were asked for", workers.num_workers)


def the_nodes_are_counted_again_now_and_then() -> None:
    request = read_request("download", ["out", "--metadata", "m"], "/")
    job = item_job.ItemJob.__new__(item_job.ItemJob)
    job.ray, job.request, job.keeper, job.access = ray_with_nodes(2), request, None, None
    job.workers, job.count_at, job.has_told_of_room, job.restarts = job.make_workers(), 0.0, True, 0
    job.progress = progress.Progress("download", io.StringIO())
    gauge = types.SimpleNamespace(set=lambda value: None)
    job.measures = types.SimpleNamespace(open_items=gauge, workers=gauge)
    book = items.ItemBook([0], 1, 0)
    for cpus, want in (((2, 4), 6), ((2, 4, 4), 6)):  # The second time it is too early.
        job.ray = ray_with_nodes(*cpus)
        job.look({"items": 1}, book)
        require(job.workers.num_workers == want, "tasks", cpus, job.workers.num_workers)
    job.count_at = 0.0
    job.look({"items": 1}, book)
    require(job.workers.num_workers == 10, "tasks after a while", job.workers.num_workers)

    def is_away() -> list:
        raise RuntimeError("the head does not answer")

    for answer_of_ray in (ray_with_nodes().nodes, is_away):
        job.count_at, job.ray.nodes = 0.0, answer_of_ray
        job.look({"items": 1}, book)
        require(job.workers.num_workers == 10 and job.count_at > 0, "no node for a moment", job.workers.num_workers)


def workers_are_those_that_are_at_work() -> None:
    request = read_request("download", ["out", "--metadata", "m"], "/")
    tasks = item_workers.Tasks(FakeRay(), request, 4)
    ray = FakeRay()
    ray.placed = {1}
    encoders = item_workers.Encoders(ray, asked("process", 3))
    gauged: list[int] = []
    for workers, verb, batches, want in ((tasks, "download", 0, 0), (tasks, "download", 3, 3), (tasks, "download", 2, 4), (encoders, "process", 0, 1)):  # A fifth task waits.
        for number in range(batches):
            workers.submit([number], False)
        job = item_job.ItemJob.__new__(item_job.ItemJob)
        job.request, job.workers, job.restarts, job.has_told_of_room, job.count_at = dataclasses.replace(request, verb=verb), workers, 0, True, float("inf")
        job.measures = types.SimpleNamespace(open_items=types.SimpleNamespace(set=lambda value: None), workers=types.SimpleNamespace(set=gauged.append))
        job.progress = progress.Progress(verb, io.StringIO())
        job.progress.last_line = -100.0
        job.look({"items": 9}, items.ItemBook([0], 1, 0))
        require(gauged[-1] == want and f" {want} workers" in job.progress.stream.getvalue(), "workers", verb, batches, gauged, job.progress.stream.getvalue())


def nodes_that_are_being_drained_have_no_room() -> None:
    ray = ray_with_nodes(2, 4)
    free = {f"{number:08}": {"CPU": 1.0} for number in range(2)}
    ray._private = types.SimpleNamespace(state=types.SimpleNamespace(available_resources_per_node=lambda: free, state=types.SimpleNamespace(get_draining_nodes=lambda: {"00000000": 0})))
    require([(one.node_id, one.resources) for one in nodes.free_nodes(ray)] == [("00000001", {"CPU": 1.0})], "nodes", nodes.free_nodes(ray))


class FakeTask:
    """Of Ray's: a task that ends when it is cancelled."""

    exceptions = types.SimpleNamespace(RayError=RuntimeError)

    def __init__(self, result=None) -> None:
        self.result = result  # None: it is at work until it is cancelled.
        self.asked: list = []
        self.cancelled: list = []
        self.waits: list = []

    def remote(self, what):
        require(what is program.run_to_summary, "what is run", what)
        return types.SimpleNamespace(options=lambda **unused: types.SimpleNamespace(remote=lambda request, note: self.asked.append(request) or "task"))

    def wait(self, references, num_returns=1, timeout=0.0):
        self.waits.append((references, timeout))
        return (references if self.result or self.cancelled else []), []

    def cancel(self, reference) -> None:
        self.cancelled.append(reference)

    def get(self, reference):
        if self.cancelled:
            raise RuntimeError("cancelled")
        return self.result


def a_stopped_task_is_cancelled_and_waited_for() -> None:
    ray = FakeTask()
    try:
        training.run_as_task(ray, asked("sample"), StopNow())
    except Stopped as stopped:
        require(stopped.code == 143, "exit code", stopped.code)
    else:
        raise AssertionError("the task goes on")
    require(ray.cancelled == ["task"] and ray.waits[-1] == (["task"], stopping.STOP_SECONDS), "its program is killed", ray.cancelled, ray.waits)


class Waiting:
    """As much of a RoomWait's clock and of Ray's store as a wait needs: half a minute each look, and whether the task has noted its place."""

    def __init__(self, has_place: bool) -> None:
        self.store = types.SimpleNamespace(_internal_kv_exists=lambda key, namespace: has_place)
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 15
        return self.now

    @contextlib.contextmanager
    def installed(self):
        with fake_modules({"ray": types.SimpleNamespace(), "ray.experimental": types.SimpleNamespace(internal_kv=self.store)}), unittest.mock.patch.object(room_wait.time, "monotonic", self.monotonic):
            yield


def done_after(looks: int):
    """ray.wait() of a call that is done after so many looks."""
    left = iter(range(looks))
    return lambda references, num_returns=1, timeout=0.0: ([], references) if next(left, None) is not None else (references, [])


def a_task_that_waits_for_room_says_so_once() -> None:
    at_work = types.SimpleNamespace(check=lambda: None)
    for has_place in (False, True):
        ray, waiting = FakeTask((0, {}, "")), Waiting(has_place)
        ray.wait = done_after(9)
        request = dataclasses.replace(asked("sample", num_gpus=1), placement=Placement(num_cpus=2, num_gpus=1))
        with waiting.installed(), contextlib.redirect_stderr(io.StringIO()) as heard:
            training.run_as_task(ray, request, at_work)
        require(heard.getvalue().count("sample: the task has no room on the cluster now, and waits for it: 2 CPUs, 1 GPUs") == (not has_place), "a task", has_place, heard.getvalue())
        for request in (read_request("download", ["out", "--metadata", "m", "--num-tasks", "2"], "/"), asked("process", 1)):
            ray, waiting = FakeRay(), Waiting(has_place)
            ray.placed = {0}
            job = job_of(ray, request)
            job.stop, ray.wait, ray.get = at_work, done_after(9), lambda reference: "done"
            with waiting.installed():
                require(job.get(job.workers.close) == "done", "its result")
            said = job.progress.stream.getvalue()
            require(said.count("no room on the cluster now, and waits for it: 1 CPUs") == (not has_place), "the closing run", request.verb, has_place, said)
    ray, waiting = FakeRay(), Waiting(False)
    job = job_of(ray, read_request("download", ["out", "--metadata", "m", "--num-tasks", "2"], "/"))
    job.stop, ray.wait, ray.get = at_work, done_after(9), lambda reference: "a plan"
    with waiting.installed():
        require(job.get(job.workers.plan, job.workers.renew) == "a plan" and "no room" in job.progress.stream.getvalue(), "a plan", job.progress.stream.getvalue())


def a_task_notes_its_place_while_it_is_at_work() -> None:
    keys: set[tuple] = set()
    seen: list[bool] = []
    store = types.SimpleNamespace(_internal_kv_put=lambda key, value, namespace: keys.add((namespace, key)), _internal_kv_del=lambda key, namespace: keys.discard((namespace, key)), _internal_kv_exists=lambda key, namespace: (namespace, key) in keys)

    def seeing(start):
        return lambda *words, **more: seen.append(note.is_waiting()) or start(*words, **more)

    script = """echo '{"ready": true, "items": 1}'; read item; exit 0"""
    with temporary_folder() as folder, fake_modules({"ray": types.SimpleNamespace(), "ray.experimental": types.SimpleNamespace(internal_kv=store)}):
        with unittest.mock.patch.object(program, "start_child", seeing(program.start_child)), unittest.mock.patch.object(item_child, "priced_here", seeing(item_child.priced_here)):
            for work, script in ((program.run_to_summary, "exit 0"), (item_workers.plan_items, script)):
                note = pickle.loads(pickle.dumps(room_wait.PlaceNote()))
                require(note.is_waiting(), "before")
                work(item_request(folder, script), note)
                require(seen.pop() is False and not keys, "it is seen while the program is at work, and goes with it", keys)
        note = room_wait.PlaceNote()
        with fake_modules({"ray.experimental": types.SimpleNamespace(internal_kv=types.SimpleNamespace())}):  # A store that is away.
            require(program.run_to_summary(item_request(folder, "exit 0"), note)[0] == 0 and not note.is_waiting(), "no task fails of it, and nobody is told what is not known")


def a_quiet_task_says_what_its_program_warns_of() -> None:
    for is_quiet, want in ((False, ("a",)), (True, ("--quiet", "a"))):
        ray = FakeTask((0, {}, ""))
        heard = io.StringIO()
        with contextlib.redirect_stdout(heard):
            training.run_as_task(ray, dataclasses.replace(asked("sample"), arguments=("a",), is_quiet=is_quiet), StopNow())
        require(ray.asked[0].arguments == want and heard.getvalue() == "", "words", ray.asked, heard.getvalue())


def what_a_task_s_program_says_is_said_where_the_program_says_it() -> None:
    """On the standard error: these verbs write nothing else to a terminal."""
    for code in (0, 1):
        ray = FakeTask((code, {}, f"{AT} train: an estimate\n{AT} error: odd"))
        with contextlib.redirect_stdout(io.StringIO()) as written, contextlib.redirect_stderr(io.StringIO()) as said:
            got = training.run_as_task(ray, asked("train"), StopNow())
        require(got == (code, {}) and written.getvalue() == "" and said.getvalue() == f"{AT} train: an estimate\n{AT} error: odd\n", "streams", code, written.getvalue(), said.getvalue())


def every_verb_is_quiet_when_it_is_asked_to_be() -> None:
    for verb in flags.PLACED:
        loud = read_request(verb, ["x"], "/")
        quiet = dataclasses.replace(loud, is_quiet=True)
        # The last one is by --config.
        for request, given, want in ((quiet, {}, True), (loud, {}, False), (quiet, {"--quiet": ["false"]}, True), (loud, {"--quiet": ["false"]}, False), (loud, {"--quiet": [""]}, True)):
            require(worked_with(request, given).is_quiet == want, "quiet", verb, request.is_quiet, given)
    require(read_request("train", ["x", "--quiet"], "/").is_quiet, "the flag")


def a_stop_counts_before_a_refusal_that_it_may_have_caused() -> None:
    def refused(*unused) -> None:
        raise flags.Refused("nodes have different versions of darkroom (it does not start ...)")

    fakes = {"check_all": refused, "import_ray": lambda: types.SimpleNamespace(exceptions=types.SimpleNamespace(RayError=RuntimeError))}
    with contextlib.ExitStack() as patches:
        for name, fake in fakes.items():
            patches.enter_context(unittest.mock.patch.object(verbs, name, fake))
        patches.enter_context(unittest.mock.patch.object(nodes, "with_node_types", lambda ray, request: request))
        require("versions" in refusal_of(verbs.run_checked, asked("train"), {}, types.SimpleNamespace(check=lambda: None)), "without a stop")
        for number in (signal.SIGTERM, signal.SIGINT):

            def check(number=number) -> None:
                raise Stopped(number)

            try:
                verbs.run_checked(asked("train"), {}, types.SimpleNamespace(check=check))
            except Stopped as stopped:
                require(stopped.code == 128 + number, "exit code", stopped.code)


def a_flag_that_says_false_is_not_set() -> None:
    def way_of(given: dict) -> str:
        with contextlib.ExitStack() as patches:
            patches.enter_context(unittest.mock.patch.object(training, "run_as_task", lambda *unused: "a task"))
            patches.enter_context(unittest.mock.patch.object(training, "train", lambda *unused: "ranks"))
            return verbs.work(None, asked("train"), given, None)

    for given, want in (({}, "ranks"), ({"--dry-run": ["true"]}, "a task"), ({"--clean": [""]}, "a task"), ({"--dry-run": ["false"], "--clean": ["false"]}, "ranks"), ({"--dry-run": ["true", "false"]}, "ranks")):
        require(way_of(given) == want, "who does it", given)


def a_plan_of_a_run_is_of_the_ranks_that_are_asked_for() -> None:
    for verb, words, given, want in (
        ("train", "r.toml --dry-run --num-training-workers 4", {"--dry-run": ["true"]}, ["--ranks", "4", "r.toml", "--dry-run"]),
        ("train", "--dry-run -- r.toml", {"--dry-run": ["true"]}, ["--ranks", "1", "--dry-run", "--", "r.toml"]),
        ("online", "r.toml --num-training-workers 2", {"--dry-run": [""]}, ["--ranks", "2", "r.toml"]),  # By --config.
        ("process", "a b --dry-run --num-encoders 4", {"--dry-run": ["true"]}, ["a", "b", "--dry-run"]),
        ("download", "a --clean", {"--clean": ["true"]}, ["a", "--clean"]),
        ("sample", "--prompt x", {}, ["--prompt", "x"]),
    ):
        ray = FakeTask((0, {}, ""))
        verbs.work(ray, read_request(verb, words.split(), "/"), given, StopNow())
        require(list(ray.asked[0].arguments) == want, "the program's words", verb, words, ray.asked[0].arguments)


def a_quiet_job_has_quiet_progress() -> None:
    for is_quiet in (False, True):
        with unittest.mock.patch.object(item_job, "JobMeasures", lambda verb: None):
            job = item_job.ItemJob(FakeRay(), dataclasses.replace(asked("process", 1), is_quiet=is_quiet), StopNow())
        require(job.progress.is_quiet == is_quiet, "its progress", is_quiet)


def names_given(of_job: str, environment: dict[str, str] | None = None) -> dict[str, str]:
    """Variables that Ray's processes get beside those of a job of `ray job submit`."""
    given = {cluster.JOB_CONFIG: of_job, cluster.CHECKSUMS: "", **(environment or {})}
    with unittest.mock.patch.dict(os.environ, given):
        for name in (name for name, value in given.items() if not value):
            del os.environ[name]
        return cluster.runtime_environment()["env_vars"]


def workers_of_a_submitted_job_have_its_path() -> None:
    require("PYTHONPATH" in names_given(""), "a checkout's path")
    for of_job, want in (('{"runtime_env": {"env_vars": {"PYTHONPATH": "/p"}}}', False), ('{"runtime_env": {"env_vars": {"X": "1"}}}', True), ('{"metadata": {}}', True), ('{"runtime_env": null}', True)):
        require(("PYTHONPATH" in names_given(of_job)) == want, "said twice", of_job, names_given(of_job))


def records_on_a_store_have_no_trailing_checksums() -> None:
    """Which Debian's radosgw, among others, refuses; the acceptance's cluster.py runs on one."""
    require(names_given("")[cluster.CHECKSUMS] == "when_required", "by itself", names_given(""))
    require(names_given("", {cluster.CHECKSUMS: "when_supported"})[cluster.CHECKSUMS] == "when_supported", "as the user says")
    require(cluster.CHECKSUMS not in names_given('{"runtime_env": {"env_vars": {"AWS_REQUEST_CHECKSUM_CALCULATION": "x"}}}'), "said twice")


def the_bench_judges_by_the_medians_of_its_rounds() -> None:
    with unittest.mock.patch.object(sys, "path", [*sys.path, str(ROOT / "benchmarks")]):
        import bench_ray as bench
    nan = float("nan")
    good = {bench.SINGLE: [10, 10, nan], bench.ON_RAY: [9, 9, 9], bench.OPERATORS: [9, 9, 9], bench.TEMPLATE: [4, 4, 4]}
    for what, rates, want in (("all", good, True), ("a median below", {**good, bench.ON_RAY: [8, 9.5, 9]}, False), ("none", {**good, bench.TEMPLATE: [nan] * 3}, False)):
        heard = io.StringIO()
        with contextlib.redirect_stdout(heard):
            require(bench.judge(rates) == want, "judged", what, heard.getvalue())
        require(("not measured" in heard.getvalue()) == (what == "none") and ("NO" in heard.getvalue()) == (what == "a median below"), "the table", what, heard.getvalue())


# Signals at every line that a pause runs, one by one: wherever one lands, the pause ends with it.
SIGNALS_IN_A_PAUSE = """
import signal, sys
from darkroom_ray import stopping

def pause_with_signal_at(line):
    watch, seen = stopping.StopWatch(), 0
    def trace(frame, event, argument):
        nonlocal seen
        seen += event == "line"
        if event == "line" and seen == line:
            signal.raise_signal(signal.SIGTERM)
        return trace
    sys.settrace(trace)
    try:
        watch.pause(0.02)
    except stopping.Stopped as stopped:
        assert stopped.code == 143 and watch.is_asked
    finally:
        sys.settrace(None)
    return seen >= line

line = 1
while pause_with_signal_at(line):
    line += 1
assert line > 3
"""

SECOND_SIGNAL = """
import os, signal
from darkroom_ray import stopping

watch = stopping.StopWatch()
os.kill(os.getpid(), signal.{first})
try:
    watch.pause(60)
except stopping.Stopped as stopped:
    print(stopped.code, watch.number, flush=True)
os.kill(os.getpid(), signal.{second})
print("it goes on")
"""


def run_script(script: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, timeout=PATIENCE / 5, check=False)


def a_signal_is_heard_wherever_it_lands() -> None:
    done = run_script(SIGNALS_IN_A_PAUSE)
    require(done.returncode == 0, "its end", done.returncode, done.stderr[-2000:])


def a_second_signal_of_either_kind_ends_the_driver() -> None:
    for first, second in itertools.product(("SIGINT", "SIGTERM"), repeat=2):
        done = run_script(SECOND_SIGNAL.format(first=first, second=second))
        number = signal.Signals[first].value
        require(done.stdout.split() == [str(128 + number), str(number)], "the first one", first, done.stdout, done.stderr[-2000:])
        require(done.returncode == -signal.Signals[second].value, "the second one", first, second, done.returncode)


def what_is_written_down_has_no_secrets() -> None:
    """As the program's shown_uri(), by the cases of its own test."""
    source = (ROOT / "tests" / "unit" / "core" / "shown_uri_test.cpp").read_text(encoding="utf-8")
    cases = re.findall(r'^    \{"(.*)", "(.*)"\},$', source, re.MULTILINE)
    require(len(cases) > 30, "the program's test has other cases", len(cases))
    for uri, want in cases:
        for text, shown in ((uri, want), (f"data.uri={uri}", f"data.uri={want}"), (f'x "{uri}" y', f'x "{want}" y')):
            if not (" " in uri and " " in text.replace(uri, "")):  # In a text a space ends an address.
                require(without_secrets(text) == shown and without_secrets(shown) == shown, "a word", text, without_secrets(text))
    for text, want in (
        ("cannot read https://u:CANARY@host/a?b=CANARY: no such file 'https://h/x?CANARY' (s3://b/k?profile=p)", "cannot read https://host/a?... no such file 'https://h/x?...' (s3://b/k?..."),
        ("12:00:00 a://b c://d?e=f\nhttps://h?x", "12:00:00 a://b c://d?...\nhttps://h?..."),
        ("s3://AK:abc/def@bucket/x", "s3://bucket/x"),
        ("data.uri=s3://AK:a b'c@bucket/x", "data.uri=s3://bucket/x"),
        ("s3://b/k s3://AK:abc/d?f@bucket/x?token=c", "s3://b/k s3://bucket/x?..."),
        ('["s3://AK:a@b/c", "s3://AK:a/b@d"]', '["s3://b/c", "s3://d"]'),
    ):
        require(without_secrets(text) == want, "a text", text, without_secrets(text))


def a_request_that_is_written_down_has_no_secrets() -> None:
    encoders = Request("encoder", ("s3://AK:CAN/ARY@bucket/raw",))
    request = Request("online", ("r.toml", "--set", "data.uri=https://host/a?CANARY"), Placement(num_cpus=2), storage="s3://AK:CANARY@bucket/_ray", encoders=encoders)
    for said in (str(request), repr({"request": request})):
        require("CANARY" not in said and "s3://bucket/raw" in said and "num_cpus=2" in said, "what is written", said)
    require(pickle.loads(pickle.dumps(request)) == request, "a request that travels")


if __name__ == "__main__":
    main(
        [
            flags_of_the_program_go_through_unchanged,
            flags_of_the_cluster_are_taken_out,
            the_driver_is_quiet_in_the_place_of_its_programs,
            a_switch_of_the_cluster_may_say_false,
            ranks_take_nodes_of_any_market_that_is_asked_for,
            names_of_the_reference_scripts_are_understood,
            wrong_command_lines_are_refused_with_advice,
            flags_of_the_cluster_are_no_settings_of_a_file,
            a_file_of_settings_says_where_the_summary_goes,
            names_of_the_reference_scripts_stand_for_what_the_program_takes,
            flags_of_the_cluster_are_those_of_the_page,
            the_help_says_what_is_so,
            sizes_are_read_as_the_program_reads_them,
            wrong_requests_are_refused_with_advice,
            wrong_nodes_are_refused_with_advice,
            a_cluster_without_nodes_or_cpus_is_refused,
            what_a_cluster_has_is_not_refused,
            gpus_that_nobody_asks_for_are_warned_of,
            examples_of_the_page_ask_for_the_gpus_that_they_want,
            gradient_groups_are_those_of_the_recipe_under_the_command_line,
            nodes_of_an_autoscaler_count_before_they_come,
            a_wrong_cluster_configuration_is_refused_with_its_place,
            groups_of_kuberay_count_before_they_come,
            groups_of_kuberay_have_what_it_gives_their_pods,
            groups_of_kuberay_come_as_often_as_their_cluster_lets_them,
            a_wrong_manifest_of_kuberay_is_refused_with_its_place,
            the_autoscaler_of_the_cluster_is_asked_what_may_come,
            a_silent_head_is_told_of_where_room_is_missing,
            pods_that_were_not_counted_are_told_of,
            places_of_a_command_line_are_found,
            every_place_that_a_node_reads_or_writes_is_found,
            a_node_looks_at_the_places_and_leaves_nothing,
            a_program_that_does_not_start_is_refused,
            an_actor_on_a_node_tells_all_that_it_sees,
            an_address_at_which_nobody_listens_is_refused_at_once,
            a_cluster_that_does_not_let_the_command_in_refuses_it,
            a_stop_while_ray_starts_leaves_nothing,
            a_ray_that_does_not_start_is_a_failed_job,
            other_versions_than_those_of_the_command_are_refused,
            places_on_stores_are_found,
            what_lies_in_a_folder_on_a_store_has_its_settings,
            settings_that_ray_does_not_know_are_refused_before_the_start,
            a_node_looks_at_stores_through_its_program,
            nodes_that_leave_while_they_are_looked_at_refuse_nothing,
            a_stop_ends_the_wait_for_silent_nodes,
            what_is_wrong_is_told_within_ten_seconds_and_silent_nodes_are_waited_for,
            items_are_handed_out_once,
            batches_shrink_towards_the_end,
            items_of_others_are_asked_for_again_later,
            an_item_that_fails_goes_alone_and_ends_the_job_at_last,
            an_item_that_the_job_does_not_have_ends_it,
            progress_is_one_line_and_a_warning_is_said_once,
            a_line_that_is_no_answer_is_a_said_one,
            answers_that_were_given_are_kept_no_longer,
            what_a_killed_owner_leaves_goes_with_the_next_one,
            a_cluster_whose_script_crashes_is_no_skip,
            a_staged_package_that_is_broken_is_no_skip,
            a_killed_program_has_no_result,
            a_stopped_encoder_ends_its_program_in_order,
            a_cancelled_task_ends_its_program_in_order,
            a_task_that_is_cancelled_while_its_program_starts_leaves_none_behind,
            a_task_that_is_cancelled_while_it_asks_for_its_price_hears_it,
            a_task_without_trouble_has_its_program_s_words,
            encoders_that_are_not_placed_get_no_work,
            a_stopped_job_waits_until_its_encoders_have_ended_their_programs,
            a_stop_cancels_tasks_and_no_call_of_an_actor,
            a_lost_encoder_with_two_calls_is_one_restart,
            a_program_is_told_of_its_share_of_the_machine_s_price,
            programs_of_one_node_share_a_quarter_of_its_memory,
            a_job_has_cost_what_its_workers_and_its_closing_run_have,
            what_ends_a_job_badly_is_said_by_a_quiet_one_too,
            why_rows_failed_is_told_once_for_each_code,
            programs_of_items_tell_why_rows_failed,
            a_place_of_the_summary_that_takes_none_is_refused_before_the_job,
            a_summary_after_a_failure_or_a_stop_says_why,
            a_job_that_ends_early_has_its_counts,
            a_summary_goes_through_what_is_no_file,
            a_finished_job_whose_summary_cannot_be_written_has_failed,
            tasks_follow_the_nodes_that_there_are,
            the_nodes_are_counted_again_now_and_then,
            workers_are_those_that_are_at_work,
            nodes_that_are_being_drained_have_no_room,
            a_stopped_task_is_cancelled_and_waited_for,
            a_task_that_waits_for_room_says_so_once,
            a_task_notes_its_place_while_it_is_at_work,
            a_quiet_task_says_what_its_program_warns_of,
            what_a_task_s_program_says_is_said_where_the_program_says_it,
            every_verb_is_quiet_when_it_is_asked_to_be,
            a_stop_counts_before_a_refusal_that_it_may_have_caused,
            a_flag_that_says_false_is_not_set,
            a_plan_of_a_run_is_of_the_ranks_that_are_asked_for,
            a_quiet_job_has_quiet_progress,
            workers_of_a_submitted_job_have_its_path,
            records_on_a_store_have_no_trailing_checksums,
            the_bench_judges_by_the_medians_of_its_rounds,
            a_signal_is_heard_wherever_it_lands,
            a_second_signal_of_either_kind_ends_the_driver,
            what_is_written_down_has_no_secrets,
            a_request_that_is_written_down_has_no_secrets,
        ]
    )
