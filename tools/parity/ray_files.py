"""What Ray itself makes of deploy/ray: the pools of machines that it would start, as JSON. Runs in .venv-ray, for deploy_parity.py.

    ray_files.py FILE.yaml...       {FILE: {"pools": {NAME: {"min", "max", "resources", "labels"}}} or {FILE: {"error": ...}}
"""

import json
import sys

import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.autoscaler._private.util import prepare_config, validate_config


def read_config(document: dict) -> dict:
    if "kind" not in document:  # For the cluster launcher.
        config = prepare_config(document)
        validate_config(config)
        return config
    cluster = document["spec"]["rayClusterSpec"] if document["kind"] == "RayJob" else document["spec"]
    return _derive_autoscaling_config_from_ray_cr({"metadata": document["metadata"], "spec": cluster})


def described(path: str) -> dict:
    with open(path, encoding="utf-8") as file:
        document = yaml.safe_load(file)
    try:
        config = read_config(document)
    except Exception as error:  # Whatever Ray refuses it with.
        return {"error": f"{type(error).__name__}: {error}"}
    return {"pools": {name: {"min": pool.get("min_workers", 0), "max": pool.get("max_workers", 0), "resources": pool["resources"], "labels": pool.get("labels", {})}
                      for name, pool in config["available_node_types"].items() if name not in ("head", "headgroup")}}


print(json.dumps({path: described(path) for path in sys.argv[1:]}))
