"""What Ray's provider for AWS asks of it for a file of `ray up`, as JSON, while its launcher starts a cluster and the head's autoscaler brings a machine, tags
it and ends it. No service is asked. Runs in .venv-ray with the packages of .venv-clients behind its own, for deploy_parity.py.

    ray_aws_calls.py FILE.yaml SITE_PACKAGES      {"launcher": [ACTION...], "head": [ACTION...]}
"""

import contextlib
import json
import os
import sys
import tempfile

path, packages = sys.argv[1:]
sys.path.append(packages)  # Ray's own go before.

import botocore.client  # noqa: E402
import yaml  # noqa: E402
from ray.autoscaler._private.aws.node_provider import AWSNodeProvider  # noqa: E402
from ray.autoscaler._private.util import prepare_config  # noqa: E402

MACHINE = {"InstanceId": "i-1", "State": {"Name": "running"}, "Tags": [], "StateReason": {"Message": "pending"}, "PrivateIpAddress": "10.0.0.1", "PublicIpAddress": "10.0.0.1"}
SUBNET = {"SubnetId": "subnet-1", "VpcId": "vpc-1", "State": "available", "AvailabilityZone": "us-east-1a", "MapPublicIpOnLaunch": True}


class Account:
    """Stands for a new one of AWS: it answers, and notes what it was asked."""

    def __init__(self, machines: set[str]) -> None:
        self.called: set[str] = set()
        types = [{"InstanceType": name, "VCpuInfo": {"DefaultVCpus": 8}, "MemoryInfo": {"SizeInMiB": 16384}} for name in machines]
        self.answers: dict[str, dict] = {
            "DescribeInstances": {"Reservations": [{"Instances": [MACHINE]}]},
            "RunInstances": {"Instances": [MACHINE]},
            "DescribeInstanceTypes": {"InstanceTypes": types},
            "DescribeKeyPairs": {"KeyPairs": []},
            "CreateKeyPair": {"KeyName": "key", "KeyMaterial": "secret"},
            "DescribeSubnets": {"Subnets": [SUBNET]},
            "DescribeSecurityGroups": {"SecurityGroups": []},
        }

    def answer(self, client, operation: str, parameters: dict) -> dict:
        self.called.add(f"{client.meta.service_model.service_name}:{operation}")
        if operation == "CreateSecurityGroup":
            self.answers["DescribeSecurityGroups"]["SecurityGroups"] = [{"GroupId": "sg-1", "GroupName": parameters["GroupName"], "VpcId": "vpc-1", "IpPermissions": []}]
        return self.answers.get(operation, {})

    def asked(self) -> list[str]:
        """Since the last time."""
        called, self.called = self.called, set()
        return sorted(called)


def start_and_end(config: dict) -> None:
    """As the autoscaler does with a machine."""
    pool = next(pool for name, pool in config["available_node_types"].items() if name != config["head_node_type"])
    provider = AWSNodeProvider(config["provider"], config["cluster_name"])
    provider.create_node(pool["node_config"], {"ray-node-type": "worker", "ray-launch-config": "hash"}, 1)
    provider.non_terminated_nodes({})
    provider.set_node_tags("i-1", {"ray-node-status": "up-to-date"})
    provider.terminate_node("i-1")
    provider.terminate_nodes(["i-1"])


with open(path, encoding="utf-8") as file, tempfile.TemporaryDirectory() as home, contextlib.redirect_stdout(sys.stderr):
    os.environ.update(HOME=home, AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret")  # The launcher writes the key that it makes.
    cluster = prepare_config(yaml.safe_load(file))
    account = Account({pool["node_config"]["InstanceType"] for pool in cluster["available_node_types"].values()})
    botocore.client.BaseClient._make_api_call = lambda client, operation, parameters: account.answer(client, operation, parameters)
    cluster = AWSNodeProvider.bootstrap_config(AWSNodeProvider.fillout_available_node_types_resources(cluster))
    launcher = account.asked()
    start_and_end(cluster)
    head = account.asked()
print(json.dumps({"launcher": launcher, "head": head}))
