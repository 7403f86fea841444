#!/usr/bin/env python3
"""Holds the files of deploy/ against what they are for: the platform's own models of requests, Kubernetes' schemas, systemd.

  deploy_parity.py

Runs in .venv-clients (requirements/clients.txt: botocore's models, kubernetes-validate's schemas); Ray's files are read by .venv-ray's Ray.
KubeRay's own schema is in no package, so that of its manifests the pods are held to Kubernetes' and the rest to what Ray's autoscaler reads. No service is asked: SageMaker and FSx
are played by botocore's stubs, which refuse any request that is not the expected one. Exits 1 on a difference.
"""
import contextlib
import copy
import fnmatch
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "deploy" / "sagemaker"), str(ROOT / "python")]

import boto3  # noqa: E402
import botocore.session  # noqa: E402
import botocore.validate  # noqa: E402
import challenge  # noqa: E402
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402
from botocore.stub import Stubber  # noqa: E402
from darkroom_ray import flags, nodes, preflight  # noqa: E402

KUBERNETES = ("1.31", "1.35")
WAIT_SECONDS = 60.0  # For what comes at once, or never.
CONFIG = challenge.read_config(ROOT / "deploy/sagemaker/challenge.toml")
FILE_SYSTEM = {"FileSystemId": "fs-0123456789abcdef0", "LustreConfiguration": {"MountName": "mount"}, "Lifecycle": "AVAILABLE",
               "Tags": [{"Key": "Name", "Value": "darkroom-challenge-fsx"}]}
ARCHIVE = "s3://my-bucket/challenge/output/darkroom-challenge-train/output/model.tar.gz"


def require(condition: bool, what: str, *values) -> None:
    if not condition:
        raise AssertionError(" ".join([what, *map(str, values)]))


def the_platform_takes_every_request() -> None:
    for fsx_gb in (0, 4800):
        config = copy.deepcopy(CONFIG)
        config["training"]["fsx_gb"] = fsx_gb
        steps = challenge.example_steps(config)
        require([step.name for step in steps] == ["download", "process", *(["fsx"] if fsx_gb else []), "train", "model", "endpoint-config", "endpoint"],
                "steps", steps)
        require(challenge.check_requests(steps) == [], "refused", challenge.check_requests(steps))


def what_the_platform_would_refuse_is_named() -> None:
    for section, key, value, word in (("job", "name", "n" * 80, "ProcessingJobName has 89 characters"), ("job", "name", "no_underscores", "not of the form"),
                                      ("account", "role_arn", "arn:aws:s3:::bucket-of-mine", "RoleArn is not of the form"), ("account", "subnets", [3], "Invalid type")):
        config = copy.deepcopy(CONFIG)
        config[section][key] = value
        wrong = "\n".join(challenge.check_requests(challenge.example_steps(config)))
        require(word in wrong, f"{section}.{key}: want '{word}', got", wrong)


def a_config_is_refused_by_section_key_and_value() -> None:
    text = (ROOT / "deploy/sagemaker/challenge.toml").read_text(encoding="utf-8")
    for old, new, sentence in (("[endpoint]", "[endpiont]", "no section is called [endpiont]"), ("volume_gb = 100", "volume_bg = 100", "has no volume_bg"),
                               ("instances = 20", "instances = 0", "instances must be at least 1, got: 0"), ("spot = true", "spot = 1", "type bool, got: 1"),
                               ("max_wait_hours = 120", "max_wait_hours = 12", "max_wait_hours must be at least max_hours"), ("[job]", "[job", "cannot read")):
        require(old in text, "the shipped config has no", old)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "challenge.toml")
            path.write_text(text.replace(old, new, 1), encoding="utf-8")
            try:
                challenge.read_config(path)
            except challenge.ConfigError as error:
                require(sentence in str(error) and "challenge.toml" in str(error), "message", error)
            else:
                raise AssertionError(f"taken: {new}")


TRAINED = """#!/bin/sh
if [ "$1" = models ]; then
  [ -d "$3" ] && mkdir "$4" && echo "$3" >"$4/of"
  exit
fi
echo "$*" >"$STUB/arguments"
summary=/dev/null
while [ $# -gt 0 ]; do
  [ "$1" = --json-summary ] && summary=$2
  shift
done
. "$STUB/train"
"""


class Container:
    """The command of the training job in a container of our own: its folders below a temporary one, `darkroom` a script that writes `model/of` for
    `models export`, and for `train` does what it is told."""

    def __init__(self, folder: str, train: str):
        self.folder = pathlib.Path(folder)
        for name in ("bin", "tmp", "opt/ml/model", "opt/ml/checkpoints/checkpoints/step-00000010", "opt/ml/checkpoints/checkpoints/step-00000200"):
            self.folder.joinpath(name).mkdir(parents=True)
        program = self.folder / "bin/darkroom"
        program.write_text(TRAINED, encoding="utf-8")
        program.chmod(0o755)
        (self.folder / "train").write_text(train, encoding="utf-8")
        (self.folder / "tmp/summary.json").write_text("{}", encoding="utf-8")  # Of another start in the same container.
        algorithm = challenge.training_step(CONFIG, None).create.parameters["AlgorithmSpecification"]
        words = [*algorithm["ContainerEntrypoint"], *algorithm["ContainerArguments"]]
        self.command = [re.sub("(/opt/ml/|/tmp/)", rf"{folder}\1", word) for word in words]

    def start(self, *before: str) -> subprocess.Popen:
        environment = {**os.environ, "STUB": str(self.folder), "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        return subprocess.Popen([*before, *self.command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def exported(self) -> str:
        """The folder whose export lies in the job's model; "" where there is none."""
        of = self.folder / "opt/ml/model/of"
        return of.read_text(encoding="utf-8").strip() if of.exists() else ""


def the_host_of_the_first_rank_alone_exports_its_checkpoint() -> None:
    for train, code, exported in (('echo "{}" >"$summary"', 0, "step-00000200"), (":", 0, ""), ('echo "{}" >"$summary"; exit 3', 3, "")):
        with tempfile.TemporaryDirectory() as folder:
            container = Container(folder, train)
            done = container.start()
            said = done.communicate()[0]
            require(done.returncode == code, f"{train}: exit code", done.returncode, said)
            require(pathlib.Path(container.exported()).name == exported, f"{train}: exported", container.exported(), said)
            words = (container.folder / "arguments").read_text(encoding="utf-8").split()
            require(words[0] == "train" and words[1] == CONFIG["training"]["recipe"] and "--spot-notice" in words, "arguments", words)


def as_first_process() -> list[str]:
    """What starts a command as PID 1, which no signal ends that it has not asked for; nothing where this account may not."""
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    may = shutil.which("unshare") and subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0
    return unshare if may else []


def a_stop_of_the_container_reaches_the_training_and_ends_with_its_code() -> None:
    train = """trap 'touch "$STUB/asked"; while [ ! -e "$STUB/saved" ]; do sleep 0.02; done; exit 143' TERM
echo $$ >"$STUB/pid.new"; mv "$STUB/pid.new" "$STUB/pid"
while :; do sleep 0.02; done
"""
    with tempfile.TemporaryDirectory() as folder:
        container, before = Container(folder, train), as_first_process()
        done = container.start(*before)
        try:
            wait_for_file(container.folder / "pid", done)
            shell = done.pid
            if before:  # unshare waits for the first process, which is its child.
                shell = int(pathlib.Path(f"/proc/{done.pid}/task/{done.pid}/children").read_text(encoding="utf-8"))
            for _ in range(2):  # What stops a container may ask twice.
                os.kill(shell, signal.SIGTERM)
                wait_for_file(container.folder / "asked", done)
            (container.folder / "saved").touch()
            said = done.communicate()[0]
        finally:
            done.kill()
        require(done.returncode == 143, "exit code", done.returncode, said)
        require(container.exported() == "", "exported", container.exported())


def wait_for_file(path: pathlib.Path, process: subprocess.Popen) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        require(process.poll() is None, f"it ended before it wrote {path.name}:", process.returncode)
        require(time.monotonic() < until, "nobody writes", path.name)
        time.sleep(0.02)


class Account:
    """A platform that knows what it is told to; it refuses every request that was not announced."""

    def __init__(self):
        clients = {name: boto3.client(name, region_name="us-east-1", aws_access_key_id="id", aws_secret_access_key="secret") for name in ("sagemaker", "fsx")}
        self.stubs = {name: Stubber(client) for name, client in clients.items()}
        self.waits = 0
        self.platform = challenge.Platform(clients, sleep=self.wait)

    def wait(self, _seconds: float) -> None:
        self.waits += 1

    def expect(self, request: challenge.Request, answer: dict) -> None:
        self.stubs[request.service].add_response(request.operation, answer, request.parameters)

    def expect_unknown(self, request: challenge.Request) -> None:
        self.stubs[request.service].add_client_error(request.operation, "ValidationException", "Could not find requested job", 400,
                                                     expected_params=request.parameters)

    def run(self, only: list[str] | None = None, config: dict = CONFIG, run=challenge.execute) -> None:
        with contextlib.ExitStack() as stack, contextlib.redirect_stdout(io.StringIO()):
            for stub in self.stubs.values():
                stack.enter_context(stub)
            run(config, self.platform, only)
            for stub in self.stubs.values():
                stub.assert_no_pending_responses()


def answers(step: challenge.Step, status: str) -> dict:
    """What the platform says of a thing; fields that its model demands and nobody reads are filled in."""
    arn, now = "arn:aws:sagemaker:us-east-1:123456789012:thing/name", 1_800_000_000
    answer = {
        "describe_processing_job": {"ProcessingJobName": "name", "ProcessingResources": step.create.parameters.get("ProcessingResources"),
                                    "AppSpecification": step.create.parameters.get("AppSpecification"), "ProcessingJobArn": arn,
                                    "ProcessingJobStatus": status, "CreationTime": now, "FailureReason": "no room"},
        "describe_training_job": {"TrainingJobName": "name", "TrainingJobArn": arn, "ModelArtifacts": {"S3ModelArtifacts": ARCHIVE},
                                  "TrainingJobStatus": status, "SecondaryStatus": "Training", "StoppingCondition": {}, "CreationTime": now,
                                  "AlgorithmSpecification": {"TrainingInputMode": "File"}, "ResourceConfig": {"VolumeSizeInGB": 1}},
        "describe_model": {"ModelName": "name", "CreationTime": now, "ModelArn": arn},
        "describe_endpoint_config": {"EndpointConfigName": "name", "EndpointConfigArn": arn, "ProductionVariants": [{"VariantName": "own"}], "CreationTime": now},
        "describe_endpoint": {"EndpointName": "name", "EndpointArn": arn, "EndpointStatus": status, "CreationTime": now, "LastModifiedTime": now},
        "describe_file_systems": {"FileSystems": [dict(FILE_SYSTEM, Lifecycle=status)]},
    }
    return answer[step.describe.operation]


CREATED = {"create_processing_job": {"ProcessingJobArn": "arn:aws:sagemaker:us-east-1:1:p/n"}, "create_training_job": {"TrainingJobArn": "arn:aws:s:t"},
           "create_model": {"ModelArn": "arn:aws:sagemaker:us-east-1:1:m/n"}, "create_endpoint_config": {"EndpointConfigArn": "arn:aws:sagemaker:us-east-1:1:c/n"},
           "create_endpoint": {"EndpointArn": "arn:aws:sagemaker:us-east-1:1:e/n"}, "create_file_system": {}}


def done_status(step: challenge.Step) -> str:
    return next(iter(step.done))


def an_empty_account_gets_everything_once_and_in_order() -> None:
    account = Account()
    for step in challenge.all_steps(CONFIG, FILE_SYSTEM, ARCHIVE):
        if step.name in ("fsx", "train"):  # Whether a training is still to be begun.
            account.expect_unknown(challenge.training_step(CONFIG, FILE_SYSTEM).describe)
        if step.name == "train":  # What it mounts and what the endpoint opens are asked of the platform.
            account.expect(challenge.file_system_step(CONFIG).describe, answers(challenge.file_system_step(CONFIG), "AVAILABLE"))
        if step.name == "model":
            account.expect(challenge.training_step(CONFIG, FILE_SYSTEM).describe, answers(challenge.training_step(CONFIG, FILE_SYSTEM), "Completed"))
        if step.name == "fsx":
            account.expect(step.describe, {"FileSystems": []})
        else:
            account.expect_unknown(step.describe)
        account.expect(step.create, CREATED[step.create.operation])
        account.expect(step.describe, answers(step, "CREATING" if step.name == "fsx" else "InProgress" if step.status else ""))
        if step.status:
            account.expect(step.describe, answers(step, done_status(step)))
    account.run()
    require(account.waits == 5, "waits", account.waits)  # Download, process, file system, training, endpoint.


def in_parts(jobs: int) -> dict:
    config = copy.deepcopy(CONFIG)
    config["download"]["jobs"] = jobs
    return config


def jobs_of_parts_share_the_items_out_and_the_platform_takes_them() -> None:
    whole = challenge.download_steps(CONFIG)[0].create.parameters["AppSpecification"]["ContainerArguments"]
    require("--shard" not in whole, "one job takes all", whole)
    steps = challenge.download_steps(in_parts(12))
    require([step.name for step in steps][::11] == ["download-00-of-12", "download-11-of-12"], "names", steps)
    for part, step in enumerate(steps):
        parameters = step.create.parameters
        require(parameters["AppSpecification"]["ContainerArguments"] == [*whole, "--shard", f"{part}/12"], "arguments", parameters)
        require(step.describe.parameters == {"ProcessingJobName": parameters["ProcessingJobName"]}, "another job is asked for", step)
    require(len({step.create.parameters["ProcessingJobName"] for step in steps}) == 12, "names are equal", steps)
    require(challenge.check_requests(challenge.example_steps(in_parts(12))) == [], "refused")
    chosen = challenge.chosen_steps(challenge.example_steps(in_parts(12)), ["download"])
    require(len(chosen) == 12 and challenge.chosen_steps(chosen, ["download-03-of-12"]) == [chosen[3]], "--only", chosen)


def jobs_of_parts_are_all_started_before_one_is_waited_for() -> None:
    config = in_parts(2)
    account, (first, second) = Account(), challenge.download_steps(config)
    account.expect(first.describe, answers(first, "InProgress"))  # It was there.
    account.expect_unknown(second.describe)
    account.expect(second.create, CREATED[second.create.operation])
    account.expect(second.describe, answers(second, "InProgress"))
    account.expect(first.describe, answers(first, "Completed"))
    account.expect(second.describe, answers(second, "Failed"))
    try:
        account.run(["download"], config)
    except challenge.StepFailed as error:
        require("download-1-of-2" in str(error) and "no room" in str(error), "message", error)
    else:
        raise AssertionError("a failed part was taken for done")
    account.stubs["sagemaker"].assert_no_pending_responses()
    require(account.waits == 2, "waits", account.waits)


def a_second_run_waits_for_what_the_first_one_started() -> None:
    account, steps = Account(), {step.name: step for step in challenge.all_steps(CONFIG, FILE_SYSTEM, ARCHIVE)}
    account.expect(steps["process"].describe, answers(steps["process"], "InProgress"))
    account.expect(steps["process"].describe, answers(steps["process"], "Completed"))
    account.run(["process"])
    require(account.waits == 1, "waits", account.waits)


def an_endpoint_wants_a_training_and_starts_none() -> None:
    account, steps = Account(), {step.name: step for step in challenge.all_steps(CONFIG, FILE_SYSTEM, ARCHIVE)}
    account.expect_unknown(steps["train"].describe)
    try:
        account.run(["model"])
    except challenge.StepFailed as error:
        require("leave --only out, or add train" in str(error), "message", error)
    else:
        raise AssertionError("a model without a training")
    account.expect(steps["train"].describe, answers(steps["train"], "InProgress"))
    account.expect(steps["train"].describe, answers(steps["train"], "Completed"))
    account.expect(steps["model"].describe, answers(steps["model"], ""))
    account.run(["model"])
    require(account.waits == 1, "waits", account.waits)


def a_training_that_was_begun_gets_no_other_file_system() -> None:
    """Such as one that was taken away when the training was done."""
    for status in ("Completed", "Failed"):
        account, steps = Account(), {step.name: step for step in challenge.all_steps(CONFIG, FILE_SYSTEM, ARCHIVE)}
        for _ in ("fsx", "train", "the step train itself"):
            account.expect(steps["train"].describe, answers(steps["train"], status))
        try:
            account.run(["fsx", "train"])
        except challenge.StepFailed as error:
            require(status == "Failed" and error.args[0].startswith("train: "), "message", error)
        account.stubs["sagemaker"].assert_no_pending_responses()


def a_failed_job_ends_the_script_with_the_platforms_reason() -> None:
    account, steps = Account(), {step.name: step for step in challenge.all_steps(CONFIG, FILE_SYSTEM, ARCHIVE)}
    account.expect(steps["download"].describe, answers(steps["download"], "Failed"))
    try:
        account.run(["download", "process"])
    except challenge.StepFailed as error:
        require("download" in str(error) and "no room" in str(error), "message", error)
    else:
        raise AssertionError("a failed job was taken for done")


def what_costs_until_it_is_removed_is_removed_the_last_made_first() -> None:
    account, steps = Account(), {step.name: step for step in challenge.all_steps(CONFIG, FILE_SYSTEM, ARCHIVE)}
    require(challenge.check_requests(challenge.removed_steps(CONFIG, None)) == [], "refused")
    account.expect(steps["endpoint"].describe, answers(steps["endpoint"], "InService"))
    account.expect(challenge.Request("sagemaker", "delete_endpoint", {"EndpointName": CONFIG["job"]["name"]}), {})
    account.expect_unknown(steps["endpoint-config"].describe)  # Somebody has taken it away already.
    account.expect(steps["model"].describe, answers(steps["model"], ""))
    account.expect(challenge.Request("sagemaker", "delete_model", {"ModelName": CONFIG["job"]["name"]}), {})
    account.expect(steps["fsx"].describe, answers(steps["fsx"], "AVAILABLE"))
    account.expect(challenge.Request("fsx", "delete_file_system", {"FileSystemId": FILE_SYSTEM["FileSystemId"]}), {})
    account.run(run=challenge.take_away)
    account = Account()
    account.expect(steps["fsx"].describe, {"FileSystems": []})
    account.run(["fsx"], run=challenge.take_away)
    try:
        challenge.removed_steps(CONFIG, ["download"])
    except challenge.ConfigError as error:
        require("no step is called download; there are: fsx model endpoint-config endpoint" in str(error), "message", error)
    else:
        raise AssertionError("a job was to be removed")


def kubernetes_takes_every_manifest() -> None:
    for path in sorted((ROOT / "deploy/kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            for version in KUBERNETES:
                kubernetes_validate.validate(document, version, strict=True)
            document["spec"]["planted"] = True
            try:
                kubernetes_validate.validate(document, KUBERNETES[0], strict=True)
            except kubernetes_validate.ValidationError:
                continue
            raise AssertionError(f"{path.name}: a planted field was taken")


def endpoint_documents(name: str) -> dict[str, dict]:
    """{kind: document} of a manifest of the endpoint."""
    documents = list(yaml.safe_load_all((ROOT / "deploy/kubernetes" / name).read_text(encoding="utf-8")))
    return {document["kind"]: document for document in documents}


def require_affinity_with_replicas(documents: dict[str, dict], name: str) -> None:
    """A job lives in one process (docs/serve.md), so where there are several a client must come back to its own."""
    replicas = documents["Deployment"]["spec"]["replicas"]
    require(replicas < 2 or documents["Service"]["spec"].get("sessionAffinity") == "ClientIP", f"{name}: {replicas} replicas, and no affinity of clients")


def a_client_comes_back_to_the_pod_that_has_its_job() -> None:
    for name in ("serve.yaml", "serve_gpu.yaml"):
        documents = endpoint_documents(name)
        require_affinity_with_replicas(documents, name)
        del documents["Service"]["spec"]["sessionAffinity"]
        try:
            require_affinity_with_replicas(documents, name)
        except AssertionError:
            continue
        raise AssertionError(f"{name}: a service without affinity was taken")


def the_endpoint_on_gpus_is_that_on_processors_but_for_its_gpu() -> None:
    ours, gpu = endpoint_documents("serve.yaml"), endpoint_documents("serve_gpu.yaml")
    pod = gpu["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    require(container["resources"]["limits"].pop("nvidia.com/gpu") == 1, "GPUs of a pod", container["resources"])
    require(container["args"][-2:] == ["--device", "cuda"], "a pod may compute on the CPU", container["args"])
    container["args"] = container["args"][:-2]
    container["image"] = container["image"].removesuffix("-cuda")
    require([one["key"] for one in pod.pop("tolerations")] == ["nvidia.com/gpu"], "tolerations", pod)
    require(gpu["HorizontalPodAutoscaler"]["spec"].pop("metrics")[0]["type"] == "Pods", "what scales")
    del ours["HorizontalPodAutoscaler"]["spec"]["metrics"]
    require(gpu == ours, "differs from serve.yaml", gpu, ours)


def ray_documents() -> dict[str, dict]:
    return {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "deploy/ray").glob("*.yaml"))}


def read_by_ray(documents: dict[str, dict]) -> dict[str, dict]:
    """What Ray makes of each (ray_files.py)."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: pathlib.Path(folder, name) for name in documents}
        for name, path in paths.items():
            path.write_text(yaml.safe_dump(documents[name]), encoding="utf-8")
        done = subprocess.run([ROOT / ".venv-ray/bin/python", ROOT / "tools/parity/ray_files.py", *paths.values()], capture_output=True, text=True, check=False)
    require(done.returncode == 0, "ray_files.py:", done.stderr)
    said = json.loads(done.stdout)
    return {name: said[str(path)] for name, path in paths.items()}


# Machines by how they are bought: the published counts.
POOLS = {"download-spot": 10, "download-on-demand": 10, "encode-spot": 48, "encode-on-demand": 48, "train-spot": 4, "train-on-demand": 4}
PUBLISHED = {"aws.yaml": POOLS, "kuberay_cluster.yaml": POOLS, "kuberay_process_job.yaml": {"encode": 48}}
HEAD = preflight.Node("head", resources={"CPU": 0.0, "memory": 30e9})


def ray_takes_its_files_and_sees_the_published_pools() -> None:
    if not (ROOT / ".venv-ray").exists():
        print("skipped: there is no .venv-ray; tools/build/setup.sh ray installs it")
        return
    documents = ray_documents()
    for name, read in read_by_ray(documents).items():
        require("error" not in read, f"Ray refuses {name}:", read)
        require({pool: about["max"] for pool, about in read["pools"].items()} == PUBLISHED[name], f"{name}: pools", read)
        for pool, about in read["pools"].items():
            require(about["labels"].get("ray.io/market-type") == ("on-demand" if pool.endswith("on-demand") else "spot"), f"{name}: label of {pool}", about)
        require_the_drivers_own_reading(name, read["pools"])
    wrong = copy.deepcopy(documents)
    wrong["aws.yaml"]["available_node_types"]["encode-spot"]["max_wrkers"] = 3
    wrong["kuberay_cluster.yaml"]["spec"]["workerGroupSpecs"][0]["labels"] = {"ray.io/market-type": "no label!"}
    wrong["kuberay_process_job.yaml"]["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["resources"]["GPU"] = "many"
    for name, read in read_by_ray(wrong).items():
        require("error" in read, f"{name}: a planted mistake was taken", read)


def require_the_drivers_own_reading(name: str, pools: dict[str, dict]) -> None:
    """Of --cluster-config: what the preflight counts is what Ray's autoscaler does."""
    types = nodes.types_of_file(str(ROOT / "deploy/ray" / name))
    ours = {one.name: (one.most, one.resources, one.labels) for one in types}
    theirs = {pool: (about["max"], about["resources"], about["labels"]) for pool, about in pools.items()}
    require(ours == theirs, f"{name}: the driver reads", ours, "and Ray", theirs)


def published_commands(name: str) -> list[list[str]]:
    """Words behind darkroom-ray: of a job its entry point, of a cluster those that the head of aws.yaml has for its pools."""
    entrypoint = ray_documents()["kuberay_process_job.yaml"]["spec"]["entrypoint"].split()
    require(entrypoint[:2] == ["darkroom-ray", "process"], "entry point", entrypoint)
    head = (ROOT / "deploy/ray/aws.yaml").read_text(encoding="utf-8")
    of_pools = [[verb, *words.split()] for verb, words in re.findall(r"darkroom-ray (\w+) \.\.\. (--.*)", head)]
    require([words[0] for words in of_pools] == ["download", "process", "train"], "the head of aws.yaml has the commands", of_pools)
    return [entrypoint[1:], *(of_pools if name != "kuberay_process_job.yaml" else [])]


def problems_of_room(document: dict, words: list[str]) -> list[str]:
    """Of the driver's own preflight: the head alone is there, and --cluster-config names this file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "cluster.yaml")
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        request = nodes.with_node_types(None, flags.read_request(words[0], [*words[1:], "--cluster-config", str(path)], "/"))
    return preflight.check_resources(nodes.with_coming(request, [HEAD]), request)


def with_one_encoder_less(document: dict) -> dict:
    """In each of its pools."""
    fewer = copy.deepcopy(document)
    for group in fewer.get("spec", {}).get("rayClusterSpec", fewer.get("spec", {})).get("workerGroupSpecs", []):
        group["maxReplicas"] -= group["groupName"].startswith("encode")
    for name, pool in fewer.get("available_node_types", {}).items():
        pool["max_workers"] = pool.get("max_workers", 0) - name.startswith("encode")
    return fewer


def the_preflight_counts_the_pools_that_the_head_may_bring() -> None:
    for name, document in ray_documents().items():
        for words in published_commands(name):
            require(problems_of_room(document, words) == [], f"{name}: the preflight refuses {words}", problems_of_room(document, words))
            request = flags.read_request(words[0], words[1:], "/")
            require(preflight.check_resources([HEAD], request) != [], "a head alone has room for", words)
        of_one_market = [*published_commands(name)[0], "--market", "spot"]
        require(problems_of_room(document, of_one_market) == [], f"{name}: on spot machines alone", problems_of_room(document, of_one_market))
        require(problems_of_room(with_one_encoder_less(document), of_one_market) != [], f"{name}: 47 machines hold 48 encoders")


def kubernetes_takes_the_pods_of_ray() -> None:
    pods = []
    for document in ray_documents().values():
        cluster = document.get("spec", {}).get("rayClusterSpec", document.get("spec"))
        if cluster:
            pods += [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]
    require(len(pods) == 9, "pods", len(pods))
    for template in pods:
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": copy.deepcopy(template)}
        for version in KUBERNETES:
            kubernetes_validate.validate(pod, version, strict=True)
        pod["template"]["spec"]["containers"][0]["planted"] = True
        try:
            kubernetes_validate.validate(pod, KUBERNETES[0], strict=True)
        except kubernetes_validate.ValidationError:
            continue
        raise AssertionError("a planted field was taken")


def ec2_takes_every_machine_of_the_cluster_launcher() -> None:
    shape = botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances").input_shape
    types = shape.members["InstanceType"].enum
    for name, pool in ray_documents()["aws.yaml"]["available_node_types"].items():
        asked = {"MinCount": 1, "MaxCount": 1, **pool["node_config"]}
        report = botocore.validate.ParamValidator().validate(asked, shape)
        require(not report.has_errors(), f"{name}:", report.generate_report())
        require(re.fullmatch("ami-[0-9a-f]{17}", asked.get("ImageId", "")), f"{name}: Ray would choose an image itself, with a driver that CUDA 13 refuses:", asked)
        require(asked["InstanceType"] in types, f"{name}: EC2 knows no machine", asked["InstanceType"])
        is_spot = asked.get("InstanceMarketOptions", {}).get("MarketType") == "spot"
        require(is_spot == name.endswith("-spot"), f"{name}: how it is bought", asked)
    require(botocore.validate.ParamValidator().validate({"MinCount": 1, "MaxCount": 1, "InstanceTipe": "m5.large"}, shape).has_errors(), "a planted field was taken")


def the_rights_of_the_ray_head_are_those_that_ray_asks_for() -> None:
    if not (ROOT / ".venv-ray").exists():
        print("skipped: there is no .venv-ray; tools/build/setup.sh ray installs it")
        return
    file = ROOT / "deploy/ray/aws.yaml"
    packages = pathlib.Path(boto3.__file__).parent.parent
    done = subprocess.run([ROOT / ".venv-ray/bin/python", ROOT / "tools/parity/ray_aws_calls.py", file, packages], capture_output=True, text=True, check=False)
    require(done.returncode == 0, "ray_aws_calls.py:", done.stderr)
    asked = json.loads(done.stdout)
    head = {*asked["head"], "iam:PassRole"}  # Nobody calls that one: EC2 asks for it where a machine gets a profile.
    named = set(re.findall(r"\b(?:ec2|iam):\w+", file.read_text(encoding="utf-8")))
    require(named == head, "aws.yaml names", named, "and Ray asks for", head)
    page = (ROOT / "docs/deploying.md").read_text(encoding="utf-8")
    lacking = [action for action in head if f"`{action}`" not in page] + [action for action in asked["launcher"] if f"`{action.removeprefix('ec2:')}`" not in page]
    require(lacking == [], "docs/deploying.md lacks", lacking)


def systemd_takes_the_unit() -> None:
    if shutil.which("systemd-analyze") is None:
        print("skipped: systemd-analyze is not installed here")
        return
    text = (ROOT / "deploy/systemd/darkroom-serve.service").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder, "darkroom-serve.service")
        for planted, is_fine in (("", True), ("ProtectSystm=yes\n", False)):
            unit.write_text(text.replace("/usr/local/bin/darkroom", "/bin/true").replace("UMask=", planted + "UMask="), encoding="utf-8")
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
            own = [line for line in done.stderr.splitlines() if "darkroom-serve.service" in line]
            require((own == []) == is_fine, "systemd-analyze says", own)


def the_unit_allows_the_gpus_that_its_policy_closes_off() -> None:
    unit = (ROOT / "deploy/systemd/darkroom-serve.service").read_text(encoding="utf-8").splitlines()
    require("DevicePolicy=closed" not in unit or "DeviceAllow=char-nvidia* rw" in unit, "the unit shuts the GPUs out")


def the_units_head_names_what_the_unit_reads() -> None:
    text = (ROOT / "deploy/systemd/darkroom-serve.service").read_text(encoding="utf-8")
    head = text.split("[Unit]")[0]
    command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    named = re.findall(r"\b([A-Z_]{2,})=", head)
    require(named != [] and all(f"${{{name}}}" in command for name in named), "ExecStart does not read all of", named)


def is_left_out(name: str, patterns: list[str]) -> bool:
    """By the rules of .dockerignore: the last pattern counts that the name, or a folder above it, matches."""
    is_out = False
    for pattern in patterns:
        bare = pattern.removeprefix("!").strip("/")
        above = [name, *map(str, pathlib.PurePosixPath(name).parents)]
        if any(len(one.split("/")) == len(bare.split("/")) and fnmatch.fnmatchcase(one, bare) for one in above):
            is_out = not pattern.startswith("!")
    return is_out


def a_build_finds_what_it_copies() -> None:
    """Below the context that the head of each file names."""
    for path in sorted((ROOT / "deploy").rglob("Containerfile")):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT)
        context = re.search(rf"podman build .*-f {name} (\S+)", text)
        require(context is not None, f"{name} does not say how it is built")
        ignored = ROOT / context[1] / ".dockerignore"
        patterns = ignored.read_text(encoding="utf-8").split() if ignored.exists() else []
        copied = re.findall(r"^COPY (?!--from)(?:--\S+ )*(\S+) ", text, re.MULTILINE)
        require(copied != [], f"{name} copies nothing")
        require(not any(is_left_out(one, patterns) for one in copied), f"{name} copies what {ignored} leaves out:", copied)
        wheels = [one for one in copied if one.endswith(".whl")]
        require(all(str(pathlib.PurePath(context[1], one)) == "dist/darkroom-*.whl" for one in wheels), f"{name}: `make wheel` writes none of", wheels)
    require(is_left_out("dist/darkroom-0.whl", ["build*", "dist"]) and not is_left_out("dist/a.whl", ["dist/*", "!dist/*.whl"]), "what is left out")


def a_pod_that_reads_a_store_has_an_account_for_it() -> None:
    for path in sorted((ROOT / "deploy/kubernetes").glob("*.yaml")):
        for document in filter(lambda one: "template" in one["spec"], yaml.safe_load_all(path.read_text(encoding="utf-8"))):
            pod = document["spec"]["template"]["spec"]
            reads = any("s3://" in word for container in pod["containers"] for word in container["args"])
            require(not reads or (pod.get("serviceAccountName") and pod["automountServiceAccountToken"]), f"{path.name}: a pod without an account reads", pod)


def main() -> int:
    failed = 0
    for check in (the_units_head_names_what_the_unit_reads, a_build_finds_what_it_copies, a_pod_that_reads_a_store_has_an_account_for_it, an_endpoint_wants_a_training_and_starts_none, a_training_that_was_begun_gets_no_other_file_system, the_host_of_the_first_rank_alone_exports_its_checkpoint, a_stop_of_the_container_reaches_the_training_and_ends_with_its_code,
                  the_platform_takes_every_request, what_the_platform_would_refuse_is_named, a_config_is_refused_by_section_key_and_value,
                  an_empty_account_gets_everything_once_and_in_order, a_second_run_waits_for_what_the_first_one_started,
                  jobs_of_parts_share_the_items_out_and_the_platform_takes_them, jobs_of_parts_are_all_started_before_one_is_waited_for,
                  a_failed_job_ends_the_script_with_the_platforms_reason, what_costs_until_it_is_removed_is_removed_the_last_made_first,
                  kubernetes_takes_every_manifest, a_client_comes_back_to_the_pod_that_has_its_job,
                  the_endpoint_on_gpus_is_that_on_processors_but_for_its_gpu, ray_takes_its_files_and_sees_the_published_pools,
                  the_preflight_counts_the_pools_that_the_head_may_bring, kubernetes_takes_the_pods_of_ray, ec2_takes_every_machine_of_the_cluster_launcher,
                  the_rights_of_the_ray_head_are_those_that_ray_asks_for, systemd_takes_the_unit, the_unit_allows_the_gpus_that_its_policy_closes_off):
        try:
            check()
            print(f"ok      {check.__name__}")
        except Exception as error:  # Each check is a boundary: the next one runs whatever happened.
            failed += 1
            print(f"differs {check.__name__}: {type(error).__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
