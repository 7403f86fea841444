"""How the ranks of a Ray Train worker group find each other: rank 0's machine and a port that is free there."""

import dataclasses
import os
import socket

from ray.train import BackendConfig
from ray.train.backend import Backend


def free_place() -> tuple[str, int]:
    """Runs on rank 0's machine."""
    import ray

    address = ray.util.get_node_ip_address()
    with socket.socket() as probe:
        probe.bind(("", 0))
        return address, probe.getsockname()[1]


def name_place(address: str, port: int) -> None:
    """Runs in every worker."""
    os.environ["MASTER_ADDR"] = address
    os.environ["MASTER_PORT"] = str(port)


class RankMeeting(Backend):
    def on_start(self, worker_group, backend_config) -> None:
        address, port = worker_group.execute_single(0, free_place)
        worker_group.execute(name_place, address, port)


@dataclasses.dataclass
class RankMeetingConfig(BackendConfig):
    @property
    def backend_cls(self):
        return RankMeeting
