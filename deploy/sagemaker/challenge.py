#!/usr/bin/env python3
"""The AWS challenge's whole path on SageMaker: download, encode, train, endpoint, each a request to the platform.

    challenge.py CONFIG.toml                    prints every request, sends none
    challenge.py CONFIG.toml --execute          sends them in order and waits; run again after any interruption, it goes on
    challenge.py CONFIG.toml --execute --only STEP...   some steps, or stages, only
    challenge.py CONFIG.toml --remove [--execute]       takes away what costs until it is removed: the endpoint with what it is made of, the file system

CONFIG.toml: deploy/sagemaker/challenge.toml is one to copy. Names of jobs come from the config, so what is there is found and waited for,
never started twice; a failed job is named with the platform's reason and ends the script (remove or rename it to try again). Every job is
an ordinary darkroom command: its own items and checkpoints make a second try of the same job go on where the first one ended.

The requests are checked against botocore's own models before anything is sent. Needs boto3 (`pip install boto3`) and, for --execute,
credentials as every AWS tool takes them.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import sys
import time
import tomllib
from collections.abc import Callable

CHECKPOINTS = "/opt/ml/checkpoints"
DATA = "/opt/ml/input/data"
POLL_SECONDS = 30
# What a training container runs, in words of at most 256 characters, as many as the platform takes. The shell is the container's first process,
# which SIGTERM reaches alone: it hands it on, and ends as the training does.
TRAIN = ('rm -f /tmp/summary.json; darkroom train "$@" --json-summary /tmp/summary.json & train=$!; trap "again=1; kill $train || :" TERM; again=1; '
         'while [ "$again" ]; do again=; code=0; wait $train || code=$?; done; [ $code = 0 ] || exit $code')
# What lies in /opt/ml/model at its end becomes the model archive of the job; the folder is there already, so a new one is filled beside it. Of
# several hosts only that of rank 0 has a summary; the others may have a run folder, too: one of an earlier start that the platform brought back.
EXPORT = ('[ -f /tmp/summary.json ] || exit 0; set -- {checkpoints}/checkpoints/step-*; shift $(($# - 1)); '
          'darkroom models export "$1" /tmp/model --ema; cp -r /tmp/model/. /opt/ml/model/')
TRAIN_AND_EXPORT = ["sh", "-ec", 'export=$1; shift; eval "$0"; eval "$export"', TRAIN, EXPORT.format(checkpoints=CHECKPOINTS)]
# Of the platform's patterns, which Python's `re` does not know.
UNICODE_CLASSES = {r"\p{L}": "a-zA-Z\u00c0-\uffff", r"\p{N}": "0-9", r"\p{Z}": " \u00a0"}
# In place of what the platform tells.
EXAMPLE_ANSWER = {"FileSystems": [{"FileSystemId": "fs-0123456789abcdef0", "LustreConfiguration": {"MountName": "mount"}}]}
# What a config must have, section by section; another key is a mistake.
FIELDS = {
    "account": {"region": str, "role_arn": str, "image_uri": str, "subnets": list, "security_groups": list},
    "job": {"name": str, "bucket": str, "prefix": str},
    "metadata": {"location": str, "where": str},
    "download": {"instance_type": str, "instances": int, "jobs": int, "volume_gb": int, "max_hours": int},
    "process": {"instance_type": str, "instances": int, "jobs": int, "volume_gb": int, "max_hours": int, "resolution": int, "model": str},
    "training": {"instance_type": str, "instances": int, "ranks": int, "volume_gb": int, "max_hours": int, "max_wait_hours": int, "spot": bool, "recipe": str,
                 "fsx_gb": int},
    "endpoint": {"instance_type": str, "instances": int},
}


class ConfigError(Exception):
    """Of the config; the message names the file and the key."""


class StepFailed(Exception):
    """The platform says that a step has failed; the message has its reason."""


@dataclasses.dataclass
class Request:
    service: str
    operation: str
    parameters: dict


@dataclasses.dataclass
class Step:
    """Something that the platform makes once. `status` of the answer to `describe` is one of `done`, `failed`, or anything else: wait."""

    name: str
    create: Request
    describe: Request
    status: tuple[str, ...]  # Where in the answer it stands; "*" is the first of a list.
    done: frozenset[str]
    failed: frozenset[str]
    reason: str = "FailureReason"
    stage: str = ""  # Steps of one stage run side by side; empty: the step's own name.
    remove: Callable[[dict], Request] | None = None  # Of the answer to `describe`. Jobs end by themselves and have none.

    def __post_init__(self) -> None:
        self.stage = self.stage or self.name


def read_config(path: pathlib.Path) -> dict:
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    for section in config:
        if section not in FIELDS:
            raise ConfigError(f"{path}: no section is called [{section}]; there are: {', '.join(FIELDS)}")
    for section, fields in FIELDS.items():
        given = config.get(section, {})
        for key in given:
            if key not in fields:
                raise ConfigError(f"{path}: [{section}] has no {key}; there are: {', '.join(fields)}")
        for key, kind in fields.items():
            if key not in given:
                raise ConfigError(f"{path}: [{section}] lacks {key}")
            if type(given[key]) is not kind:
                raise ConfigError(f"{path}: [{section}] {key} must be of type {kind.__name__}, got: {given[key]!r}")
            if kind is int and given[key] < (0 if key == "fsx_gb" else 1):
                raise ConfigError(f"{path}: [{section}] {key} must be at least {0 if key == 'fsx_gb' else 1}, got: {given[key]}")
    if config["training"]["spot"] and config["training"]["max_wait_hours"] < config["training"]["max_hours"]:
        raise ConfigError(f"{path}: [training] max_wait_hours must be at least max_hours, got: {config['training']['max_wait_hours']}")
    return config


def place(config: dict, name: str) -> str:
    return f"s3://{config['job']['bucket']}/{config['job']['prefix']}/{name}"


def network(config: dict) -> dict:
    return {"SecurityGroupIds": config["account"]["security_groups"], "Subnets": config["account"]["subnets"]}


def processing_step(config: dict, stage: str, name: str, arguments: list[str]) -> Step:
    """One processing job. With several instances each runs the same command: claims share the items out, the first writer of one wins."""
    machines, full_name = config[stage], f"{config['job']['name']}-{name}"
    create = {
        "ProcessingJobName": full_name,
        "RoleArn": config["account"]["role_arn"],
        "AppSpecification": {"ImageUri": config["account"]["image_uri"], "ContainerEntrypoint": ["darkroom"], "ContainerArguments": arguments},
        "ProcessingResources": {"ClusterConfig": {"InstanceCount": machines["instances"], "InstanceType": machines["instance_type"],
                                                  "VolumeSizeInGB": machines["volume_gb"]}},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600 * machines["max_hours"]},
        "NetworkConfig": {"VpcConfig": network(config)},
    }
    return Step(name, Request("sagemaker", "create_processing_job", create),
                Request("sagemaker", "describe_processing_job", {"ProcessingJobName": full_name}), ("ProcessingJobStatus",),
                frozenset({"Completed"}), frozenset({"Failed", "Stopped"}), stage=stage)


def processing_steps(config: dict, stage: str, arguments: list[str]) -> list[Step]:
    """As many jobs as are asked for, each with its part of the metadata: items I, I + N, ... of N, on one output. Whole without `--shard`."""
    jobs = config[stage]["jobs"]
    if jobs == 1:
        return [processing_step(config, stage, stage, arguments)]
    digits = len(str(jobs))
    return [processing_step(config, stage, f"{stage}-{part:0{digits}}-of-{jobs}", [*arguments, "--shard", f"{part}/{jobs}"]) for part in range(jobs)]


def download_steps(config: dict) -> list[Step]:
    arguments = ["download", place(config, "images"), "--metadata", config["metadata"]["location"]]
    if config["metadata"]["where"]:
        arguments += ["--where", config["metadata"]["where"]]
    return processing_steps(config, "download", arguments)


def process_steps(config: dict) -> list[Step]:
    chosen = config["process"]
    return processing_steps(config, "process", ["process", place(config, "images"), place(config, "latents"), "--model", chosen["model"],
                                                "--resolution", str(chosen["resolution"])])


def file_system_step(config: dict) -> Step:
    """FSx for Lustre that shows the bucket's prefix as files. The platform knows it by its tag."""
    name = f"{config['job']['name']}-fsx"
    create = {
        "ClientRequestToken": name,
        "FileSystemType": "LUSTRE",
        "StorageCapacity": config["training"]["fsx_gb"],
        "SubnetIds": config["account"]["subnets"][:1],
        "SecurityGroupIds": config["account"]["security_groups"],
        "LustreConfiguration": {"DeploymentType": "SCRATCH_2", "ImportPath": place(config, "").rstrip("/")},
        "Tags": [{"Key": "Name", "Value": name}],
    }
    return Step("fsx", Request("fsx", "create_file_system", create), Request("fsx", "describe_file_systems", {}), ("FileSystems", "*", "Lifecycle"),
                frozenset({"AVAILABLE"}), frozenset({"FAILED", "MISCONFIGURED"}), "FailureDetails",
                remove=lambda answer: Request("fsx", "delete_file_system", {"FileSystemId": answer["FileSystems"][0]["FileSystemId"]}))


def data_channel(config: dict, name: str, folder: str, file_system: dict | None) -> dict:
    if file_system is None:
        source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": folder, "S3DataDistributionType": "FullyReplicated"}}
        return {"ChannelName": name, "InputMode": "FastFile", "DataSource": source}
    path = f"/{file_system['LustreConfiguration']['MountName']}/{folder.removeprefix(place(config, ''))}"
    source = {"FileSystemDataSource": {"FileSystemId": file_system["FileSystemId"], "FileSystemType": "FSxLustre", "FileSystemAccessMode": "ro",
                                       "DirectoryPath": path}}
    return {"ChannelName": name, "DataSource": source}


def training_step(config: dict, file_system: dict | None) -> Step:
    """So many darkroom ranks on each host (docs/ranks.md); SageMaker copies the run folder to S3 while it grows and brings it back to a restarted job."""
    chosen = config["training"]
    full_name = f"{config['job']['name']}-train"
    create = {
        "TrainingJobName": full_name,
        "RoleArn": config["account"]["role_arn"],
        "AlgorithmSpecification": {
            "TrainingImage": config["account"]["image_uri"],
            "TrainingInputMode": "File",
            "ContainerEntrypoint": TRAIN_AND_EXPORT,
            "ContainerArguments": [chosen["recipe"], "--data", f"{DATA}/latents", "--model", config["process"]["model"], "--output", CHECKPOINTS,
                                   "--nproc", str(chosen["ranks"]), "--spot-notice", "aws"],
        },
        "InputDataConfig": [data_channel(config, "latents", place(config, "latents"), file_system)],
        "OutputDataConfig": {"S3OutputPath": place(config, "output")},
        "CheckpointConfig": {"S3Uri": place(config, "run"), "LocalPath": CHECKPOINTS},
        "ResourceConfig": {"InstanceType": chosen["instance_type"], "InstanceCount": chosen["instances"], "VolumeSizeInGB": chosen["volume_gb"]},
        "VpcConfig": network(config),
        "EnableManagedSpotTraining": chosen["spot"],
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600 * chosen["max_hours"],
                              **({"MaxWaitTimeInSeconds": 3600 * chosen["max_wait_hours"]} if chosen["spot"] else {})},
        "RetryStrategy": {"MaximumRetryAttempts": 30},
    }
    return Step("train", Request("sagemaker", "create_training_job", create),
                Request("sagemaker", "describe_training_job", {"TrainingJobName": full_name}), ("TrainingJobStatus",), frozenset({"Completed"}),
                frozenset({"Failed", "Stopped"}))


def endpoint_steps(config: dict, archive: str) -> list[Step]:
    """Model, configuration, endpoint. The container starts as `darkroom serve` and opens /opt/ml/model (docs/serve.md)."""
    name, chosen = config["job"]["name"], config["endpoint"]
    model = {"ModelName": name, "ExecutionRoleArn": config["account"]["role_arn"],
             "PrimaryContainer": {"Image": config["account"]["image_uri"], "ModelDataUrl": archive}, "VpcConfig": network(config)}
    variant = {"VariantName": "own", "ModelName": name, "InstanceType": chosen["instance_type"], "InitialInstanceCount": chosen["instances"],
               "ContainerStartupHealthCheckTimeoutInSeconds": 600}
    there = frozenset({"there"})

    def removal(operation: str, **parameters: str) -> Callable[[dict], Request]:
        return lambda _answer: Request("sagemaker", operation, parameters)

    return [
        Step("model", Request("sagemaker", "create_model", model), Request("sagemaker", "describe_model", {"ModelName": name}), (), there, frozenset(),
             remove=removal("delete_model", ModelName=name)),
        Step("endpoint-config", Request("sagemaker", "create_endpoint_config", {"EndpointConfigName": name, "ProductionVariants": [variant]}),
             Request("sagemaker", "describe_endpoint_config", {"EndpointConfigName": name}), (), there, frozenset(),
             remove=removal("delete_endpoint_config", EndpointConfigName=name)),
        Step("endpoint", Request("sagemaker", "create_endpoint", {"EndpointName": name, "EndpointConfigName": name}),
             Request("sagemaker", "describe_endpoint", {"EndpointName": name}), ("EndpointStatus",), frozenset({"InService"}),
             frozenset({"Failed", "OutOfService", "RollbackFailed"}), remove=removal("delete_endpoint", EndpointName=name)),
    ]


def all_steps(config: dict, file_system: dict | None, archive: str) -> list[Step]:
    """`file_system` and `archive` are told by the platform when they are there: what training mounts, and the trained model."""
    steps = [*download_steps(config), *process_steps(config)]
    steps += [file_system_step(config)] if config["training"]["fsx_gb"] else []
    return [*steps, training_step(config, file_system), *endpoint_steps(config, archive)]


def outside_bounds(value: object, shape, where: str) -> list[str]:
    """Texts that are too long or of another form than the platform takes; botocore's own check leaves these to the platform."""
    if shape.type_name == "structure":
        return [found for key, inner in value.items() for found in outside_bounds(inner, shape.members[key], f"{where}.{key}")]
    if shape.type_name == "list":
        found = [f"{where} holds {len(value)}, at most {shape.metadata['max']}"] if len(value) > shape.metadata.get("max", len(value)) else []
        return found + [one for i, inner in enumerate(value) for one in outside_bounds(inner, shape.member, f"{where}[{i}]")]
    if shape.type_name != "string":
        return []
    if len(value) > shape.metadata.get("max", len(value)):
        return [f"{where} has {len(value)} characters, at most {shape.metadata['max']}"]
    pattern = shape.metadata.get("pattern", "")
    for unicode_class, characters in UNICODE_CLASSES.items():
        pattern = pattern.replace(unicode_class, characters)
    return [f"{where} is not of the form {pattern}: {value}"] if pattern and not re.fullmatch(pattern, value) else []


def check_requests(steps: list[Step]) -> list[str]:
    """What botocore's models say against the requests, one sentence each."""
    import botocore.session
    import botocore.validate

    session, wrong = botocore.session.get_session(), []
    for step in steps:
        for request in (step.create, step.describe, *([step.remove(EXAMPLE_ANSWER)] if step.remove else [])):
            operation = "".join(word.capitalize() for word in request.operation.split("_"))
            shape = session.get_service_model(request.service).operation_model(operation).input_shape
            report = botocore.validate.ParamValidator().validate(request.parameters, shape)
            found = [report.generate_report()] if report.has_errors() else outside_bounds(request.parameters, shape, request.operation)
            wrong += [f"{step.name}: {sentence}" for sentence in found]
    return wrong


def found_file_system(answer: dict, token: str) -> dict | None:
    for system in answer["FileSystems"]:
        if {"Key": "Name", "Value": token} in system.get("Tags", []) and system.get("Lifecycle") != "DELETING":
            return system
    return None


class Platform:
    """The services, each a client of boto3."""

    def __init__(self, clients: dict, sleep=time.sleep, poll_seconds: float = POLL_SECONDS):
        self.clients, self.sleep, self.poll_seconds = clients, sleep, poll_seconds

    def ask(self, request: Request) -> dict:
        return getattr(self.clients[request.service], request.operation)(**request.parameters)

    def look(self, step: Step) -> dict | None:
        """The answer to `describe`; nothing where the platform knows no such thing."""
        from botocore.exceptions import ClientError

        if step.create.service == "fsx":
            request, systems = step.describe, []
            while True:
                answer = self.ask(request)
                systems += answer["FileSystems"]
                if not answer.get("NextToken"):
                    found = found_file_system({"FileSystems": systems}, step.create.parameters["ClientRequestToken"])
                    return None if found is None else {"FileSystems": [found]}
                request = Request("fsx", request.operation, {"NextToken": answer["NextToken"]})
        try:
            return self.ask(step.describe)
        except ClientError as error:
            code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
            if code in ("ResourceNotFound", "ValidationException") and ("not find" in message or "does not exist" in message or "not found" in message):
                return None
            raise

    def begin(self, step: Step) -> dict | None:
        """Makes it where it is missing; what the platform says of it."""
        answer = self.look(step)
        if answer is None:
            print(f"{step.name}: {step.create.operation}", flush=True)
            self.ask(step.create)
            answer = self.look(step)
        return answer

    def finish(self, step: Step) -> dict:
        """Makes what is missing and waits until it is done. Errors: StepFailed."""
        return self.wait_for(step, self.begin(step))

    def finish_together(self, steps: list[Step]) -> None:
        """Makes all that are missing before it waits for any. Errors: StepFailed of the first that failed; the others go on."""
        for step, answer in [(step, self.begin(step)) for step in steps]:
            self.wait_for(step, answer)

    def wait_for(self, step: Step, answer: dict | None) -> dict:
        """Until it is done, from the latest answer on."""
        while True:
            status = status_of(step, answer)
            if status in step.done:
                print(f"{step.name}: done", flush=True)
                return answer
            if status in step.failed:
                raise StepFailed(f"{step.name}: the platform says {status}: {reason_of(step, answer)}")
            self.sleep(self.poll_seconds)
            answer = self.look(step)


def inside(answer: dict, path: tuple[str, ...]) -> object:
    for key in path:
        answer = answer[0] if key == "*" else answer.get(key, {})
    return answer


def status_of(step: Step, answer: dict | None) -> str:
    if answer is None:
        return "not there yet"
    return str(inside(answer, step.status)) if step.status else "there"


def reason_of(step: Step, answer: dict) -> str:
    reason = inside(answer, (*step.status[:-1], step.reason))
    return json.dumps(reason) if reason else "no reason given"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("--execute", action="store_true", help="send the requests")
    parser.add_argument("--remove", action="store_true", help="instead of making them, take away the endpoint and the file system, last made first")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="these steps only")
    return parser.parse_args()


def example_steps(config: dict) -> list[Step]:
    """With names in place of those that the platform will tell."""
    file_system = EXAMPLE_ANSWER["FileSystems"][0] if config["training"]["fsx_gb"] else None
    return all_steps(config, file_system, place(config, "output/TRAINING-JOB/output/model.tar.gz"))


def chosen_steps(steps: list[Step], only: list[str] | None) -> list[Step]:
    names = list(dict.fromkeys(name for step in steps for name in (step.stage, step.name)))
    for name in only or []:
        if name not in names:
            raise ConfigError(f"no step is called {name}; there are: {' '.join(names)}")
    return [step for step in steps if only is None or step.name in only or step.stage in only]


def trained_archive(config: dict, platform: Platform) -> str:
    """Of the training job, which is waited for and never begun here. Errors: StepFailed."""
    training = training_step(config, None)
    answer = platform.look(training)
    if answer is None:
        raise StepFailed("train has not run, and its model is what the endpoint is made of: leave --only out, or add train")
    return platform.wait_for(training, answer)["ModelArtifacts"]["S3ModelArtifacts"]


def wants_file_system(config: dict, platform: Platform) -> bool:
    """Whether a training is still to be begun: one that is there has mounted its own, and another would cost for nothing."""
    return bool(config["training"]["fsx_gb"]) and platform.look(training_step(config, None)) is None


def execute(config: dict, platform: Platform, only: list[str] | None) -> None:
    """Every stage in order, each with what the ones before it have told."""
    file_system, archive = None, ""
    for stage in dict.fromkeys(step.stage for step in chosen_steps(example_steps(config), only)):
        if stage == "fsx" and not wants_file_system(config, platform):
            print("fsx: train was begun already and wants no other", flush=True)
            continue
        if stage == "train" and wants_file_system(config, platform):
            file_system = platform.finish(file_system_step(config))["FileSystems"][0]
        if stage == "model":
            archive = trained_archive(config, platform)
        steps = chosen_steps(all_steps(config, file_system, archive), only)
        platform.finish_together([step for step in steps if step.stage == stage])


def removed_steps(config: dict, only: list[str] | None) -> list[Step]:
    """Those that cost until they are taken away, the last made first. Errors: ConfigError, also of a step that is none of them."""
    removable = [step for step in example_steps(config) if step.remove]
    return list(reversed(chosen_steps(removable, only)))


def take_away(config: dict, platform: Platform, only: list[str] | None) -> None:
    for step in removed_steps(config, only):
        answer = platform.look(step)
        if answer is None:
            print(f"{step.name}: is not there", flush=True)
            continue
        request = step.remove(answer)
        print(f"{step.name}: {request.operation}", flush=True)
        platform.ask(request)


def main() -> int:
    arguments = parse_arguments()
    try:
        config = read_config(arguments.config)
        steps = removed_steps(config, arguments.only) if arguments.remove else chosen_steps(example_steps(config), arguments.only)
        if wrong := check_requests(steps):
            raise ConfigError("the platform would refuse this:\n" + "\n".join(wrong))
        if not arguments.execute:
            for step in steps:
                request = step.remove(EXAMPLE_ANSWER) if arguments.remove else step.create
                print(json.dumps({"step": step.name, **dataclasses.asdict(request)}, indent=2))
            return 0
        import boto3

        clients = {service: boto3.client(service, region_name=config["account"]["region"]) for service in ("sagemaker", "fsx")}
        (take_away if arguments.remove else execute)(config, Platform(clients), arguments.only)
        return 0
    except ModuleNotFoundError as error:
        print(f"challenge: needs boto3: pip install boto3 ({error})", file=sys.stderr)
        return 1
    except (ConfigError, StepFailed) as error:
        print(f"challenge: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    sys.exit(main())
