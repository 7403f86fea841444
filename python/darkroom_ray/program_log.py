"""The log of one program on one node, for whoever asks afterwards."""

import datetime
import os
import socket

from darkroom_ray.request import Request, path_on_disk


def local_storage(request: Request, output: str) -> str:
    """The folder of Ray Train's own records of a run, beside the run's; "" where they are on a store."""
    place = path_on_disk(request.storage or output)
    return os.path.join(request.folder, place, *([] if request.storage else ["_ray"])) if place else ""


def log_folder(request: Request, output: str) -> str:
    """`logs` beside Ray Train's records, which all nodes see; where those are on a store, or of no run, the folder of Ray's own logs on this node."""
    storage = local_storage(request, output) if output else ""
    if storage:
        return os.path.join(storage, "logs")
    import ray

    context = ray.get_runtime_context()
    return os.path.join(context.get_temp_dir(), context.get_session_name(), "logs")


class ProgramLog:
    """A file that all programs of one name append to, one after the other. A log that cannot be written costs nothing but itself."""

    def __init__(self, folder: str, name: str, heading: str) -> None:
        try:
            os.makedirs(folder, exist_ok=True)
            self._file = open(os.path.join(folder, f"{name}.log"), "a", encoding="utf-8")
        except OSError:
            self._file = None
        self.write(f"-- {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ} {heading}, on {socket.gethostname()}\n")

    def write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError:
            self._file = None
